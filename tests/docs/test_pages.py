"""What the documentation shows is what running it prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_blocks import ROOT, blocks_of, lacking, pages, run, unaccounted

PAGES = [page for page in pages() if blocks_of(page)]
SKIPPED = [block for page in PAGES for block in blocks_of(page) if block.skip]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_page_prints_what_it_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for outcome in run(blocks_of(page)):
        assert outcome.agrees, (
            f"{outcome.block.where} shows\n{outcome.shown}\nbut running it prints\n{outcome.printed}\n"
            "(python tests/docs/update.py writes what it prints into the page)"
        )
    missing = sorted({program for block in blocks_of(page) for program in lacking(block)})
    if missing:
        pytest.skip(f"all but the blocks that need {', '.join(missing)}")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_run_or_skipped_with_a_reason(page: Path) -> None:
    assert unaccounted(blocks_of(page)) == []


@pytest.mark.parametrize("block", SKIPPED, ids=lambda block: block.where)
def test_blocks_that_are_not_run(block) -> None:
    pytest.skip(block.skip)
