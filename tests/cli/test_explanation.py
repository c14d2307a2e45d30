"""One step explained as text, as a rich table and as HTML: the same terms, which sum to the step."""

from __future__ import annotations

import re

import pytest

import steppe
from steppe.breakdown import by_stage
from steppe.explanation import Explanation


@pytest.fixture(scope="module")
def explained() -> Explanation:
    kernel = steppe.Kernel.build(model="llama-3.1-8b-instruct", hardware="h100")
    return kernel.explain(steppe.Batch([1] * 8 + [512], [2048] * 8 + [0]))


def test_terms_of_all_stages_sum_to_the_step(explained: Explanation) -> None:
    assert sum(ns for terms in by_stage(explained.estimate).values() for ns in terms.values()) == pytest.approx(
        explained.estimate.no_overlap, abs=2
    )


def test_text_names_every_term_its_time_and_the_bottleneck(explained: Explanation) -> None:
    text = str(explained)
    e = explained.estimate
    assert text.startswith("llama-3.1-8b-instruct on h100")
    assert f"{e.no_overlap / 1e6:.3f} ms ({e.overlap / 1e6:.3f} ms overlapped), bottleneck {e.bottleneck}" in text
    for stage, terms in by_stage(e).items():
        assert stage in text
        for name, ns in terms.items():
            assert re.search(rf"{re.escape(name)} .*{re.escape(f'{ns / 1e3:,.1f}')} ", text), name
    assert max(len(line) for line in text.splitlines()) <= 110


def test_the_table_has_a_row_a_term_and_shares_of_a_hundred(explained: Explanation) -> None:
    table = explained.table()
    assert [str(column.header) for column in table.columns] == ["stage", "term", "us a layer", "us", "share"]
    assert table.row_count == sum(len(terms) for terms in by_stage(explained.estimate).values())
    shares = [float(str(cell).removesuffix(" %")) for cell in table.columns[4].cells]
    assert sum(shares) == pytest.approx(100, abs=0.05 * table.row_count)


def test_a_stage_is_named_once_with_its_layers(explained: Explanation) -> None:
    first = [str(cell) for cell in explained.table().columns[0].cells if str(cell)]
    assert len(first) == len(by_stage(explained.estimate))
    assert any(cell.endswith(" x 32") for cell in first)


def test_a_notebook_shows_the_terms_that_matter(explained: Explanation) -> None:
    html, e = explained._repr_html_(), explained.estimate
    assert f"<b>{e.no_overlap / 1e6:.3f} ms</b>" in html
    assert f"bottleneck {e.bottleneck}" in html
    large = [ns for terms in by_stage(e).values() for ns in terms.values() if ns >= 0.01 * e.no_overlap]
    assert html.count("<tr>") == 1 + len(large)
