"""The site as a whole: generated pages are current, pictures and links lead somewhere, figures agree."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import yaml
from doc_blocks import ROOT, pages

from steppe.docgen.__main__ import generate_reference
from steppe.docgen.notes import DocgenError
from steppe.documents.schema import SCHEMA_KINDS

DOCS = ROOT / "docs"


def module(path: Path):
    """A script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def navigation(entries: list) -> list[str]:
    """Every page the navigation names."""
    found = []
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            found += navigation(value) if isinstance(value, list) else [value]
    return found


def settings() -> dict:
    return yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def test_generated_pages_are_current() -> None:
    assert all(line.endswith("is current") for line in generate_reference(ROOT, check=True))


def test_a_stale_page_is_named(tmp_path: Path) -> None:
    generate_reference(tmp_path, check=False)
    page = tmp_path / "docs/reference/refusals.md"
    page.write_text(page.read_text(encoding="utf-8") + "more\n", encoding="utf-8")
    with pytest.raises(DocgenError, match=r"docs/reference/refusals\.md is not what the sources say"):
        generate_reference(tmp_path, check=True)


def test_every_page_is_in_the_navigation() -> None:
    config = settings()
    named = set(navigation(config["nav"]))
    aside = set(config["not_in_nav"].split())
    there = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert there - aside == named


def test_nothing_is_fetched_from_elsewhere() -> None:
    config = settings()
    assert config["theme"]["font"] is False
    assert not any(key in config for key in ("extra_javascript", "repo_url"))
    assert "url(" not in (DOCS / "style.css").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_local_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)|(?:src|srcset)=\"([^\"]+)\"", text)
    local = [a or b for a, b in targets if not re.match(r"https?:|mailto:", a or b)]
    assert [target for target in local if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_path_of_the_writers_machine_is_shown(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert str(ROOT) not in text
    assert str(Path.home()) not in text or Path.home() == Path("/")


def test_the_readme_states_the_published_accuracy() -> None:
    """README's two rows are those of the generated table, column by column."""
    published = {}
    for line in (DOCS / "research/accuracy_serving.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        published[cells[0]] = cells
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for label, row in (("clean, without a known fault", "clean, no fault"), ("all clean rows", "all clean rows")):
        cells = published[row]
        found = re.search(rf"\| {label} \((\d+)\) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", readme)
        assert found is not None, label
        assert list(found.groups()) == [cells[2], cells[3], cells[4], cells[7], cells[8]]


def test_every_picture_has_its_script_and_its_dark_twin() -> None:
    pytest.importorskip("matplotlib")
    drawn = set(module(DOCS / "figures.py").FIGURES)
    committed = {path.stem for path in (DOCS / "figures").glob("*.svg")}
    assert committed == drawn | {f"{name}-dark" for name in drawn}


@pytest.mark.slow
def test_the_pictures_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figures = module(DOCS / "figures.py")
    written = figures.draw(tmp_path, list(figures.FIGURES))
    assert len(written) == 2 * len(figures.FIGURES)
    assert all(path.stat().st_size > 5000 for path in written)


def test_links_out_of_the_docs_become_text_on_the_site(tmp_path: Path) -> None:
    hooks = module(DOCS / "hooks.py")

    class Page:
        class file:
            src_uri = "reference/divergences.md"

    text = "[`f`](../../README.md#L3) and [a page](cli.md) and [no such](../../absent.md)"
    assert hooks.on_page_markdown(text, Page) == "`f` and [a page](cli.md) and [no such](../../absent.md)"
    hooks.on_post_build({"site_dir": tmp_path})
    assert {path.stem for path in (tmp_path / "schemas").iterdir()} == set(SCHEMA_KINDS)
