"""The pages made from the package's own tables: what they hold, and what a stale or incomplete one is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from steppe.catalog import Catalog
from steppe.cli import app
from steppe.docgen import DocgenError, cli_page, documents_page
from steppe.docgen.__main__ import generate_reference, put, repository
from steppe.docgen.documents_page import _type
from steppe.docgen.markdown import WRITTEN, cell, code, page, table
from steppe.docgen.reference import pages
from steppe.documents.schema import SCHEMA_KINDS
from steppe.resolve.rules import ASSUMPTIONS, OVERRIDES, REFUSALS


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return {Path(name).name: text for name, text in pages().items()}


def test_cells_stay_on_one_line_and_numbers_stand_at_the_right() -> None:
    assert cell("a\n |b  c") == "a \\|b c"
    assert code("") == ""
    assert code("a|b") == "`a\\|b`"
    assert table(("a", "b"), [("1", "x\ny")], right=[0]) == "| a | b |\n| ---: | --- |\n| 1 | x y |\n"
    assert page("one", "two\n") == f"{WRITTEN}\none\n\ntwo\n"


def test_the_catalog_page_lists_every_model_chip_and_network(made: dict[str, str]) -> None:
    shipped, text = Catalog(), made["catalog.md"]
    for name in (*shipped.models(), *shipped.chips(), *shipped.fabrics(), *shipped.storage()):
        assert f"| `{name}` |" in text, name
    row = next(line for line in text.splitlines() if line.startswith("| `llama-3.1-8b-instruct` |"))
    assert [part.strip() for part in row.strip("|").split("|")][1:] == ["8.0", "32", "4,096", "bf16", "gqa", ""]
    counts = len(shipped.models()), len(shipped.chips()), len(shipped.fabrics())
    assert text.endswith("{} models, {} chips, {} networks.\n".format(*counts))


def test_the_coefficient_page_lists_every_set_and_law(made: dict[str, str]) -> None:
    shipped, text = Catalog(), made["coefficients.md"]
    for name in shipped.coefficient_sets():
        each = shipped.coefficient_set(name)
        assert f"| `{name}` | {len(each.coefficients) + len(each.laws)} |" in text
        for law in each.laws:
            assert f"### {law.law}\n" in text
            assert f"| `{law.key}` |" in text


def test_every_command_is_described(made: dict[str, str]) -> None:
    text = made["cli.md"]
    found = [path for path, _ in cli_page._commands("steppe", app)]
    assert {"steppe price", "steppe memory", "steppe derive", "steppe catalog list"} <= set(found)
    assert [line[3:] for line in text.splitlines() if line.startswith("## steppe")] == found
    derive = text.split("## steppe derive\n")[1].split("\n## ")[0]
    assert "`steppe derive [OPTIONS] [CONFIG]`" in derive
    assert "`--target-layers INTEGER`" in derive
    assert "`--json`" in derive


def test_every_rule_of_the_resolver_is_listed(made: dict[str, str]) -> None:
    for rule in REFUSALS:
        assert f'<span id="{rule.code}"></span>`{rule.code}`' in made["refusals.md"]
    for assumed in ASSUMPTIONS:
        assert code(assumed.name) in made["assumptions.md"]
    for changed in OVERRIDES:
        assert code(changed.field) in made["assumptions.md"]
    assert "{" not in made["refusals.md"].split("## ", 1)[1]  # every placeholder is shown as a word


def test_every_kind_of_document_has_a_heading(made: dict[str, str]) -> None:
    for kind in SCHEMA_KINDS:
        assert f"`steppe validate --schema {kind}`" in made["documents.md"]
    assert "| `hidden_size` | integer" in made["documents.md"]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"$ref": "#/$defs/Node"}, "[Node](#node)"),
        ({"$ref": "#/$defs/JsonValue"}, "any"),
        ({"const": "Scenario"}, "`Scenario`"),
        ({"enum": ["a", "b", ""]}, "one of `a`, `b`"),
        ({"anyOf": [{"type": "integer"}, {"type": "integer"}, {"type": "null"}]}, "integer"),
        ({"type": "array", "items": {"type": "string"}}, "list of text"),
        ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]}, "[integer, text]"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "map to number"),
        ({"type": "object"}, "map"),
        ({"type": "integer", "minimum": 1, "maximum": 64}, "integer, >= 1, <= 64"),
        ({"type": "number", "exclusiveMinimum": 0}, "number, > 0"),
        ({"type": "integer", "maximum": 2**31 - 1}, "integer"),
        ({}, "any"),
    ],
)
def test_types_as_a_reader_says_them(schema: dict[str, object], said: str) -> None:
    assert _type(schema) == said


def test_keys_and_their_meanings_must_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meanings = yaml.safe_load(documents_page.KEYS.read_text(encoding="utf-8"))
    name = next(iter(meanings))
    lost = next(iter(meanings[name]))
    del meanings[name][lost]
    meanings[name]["no_such_key"] = "nothing"
    changed = tmp_path / "document_keys.yaml"
    changed.write_text(yaml.safe_dump(meanings), encoding="utf-8")
    monkeypatch.setattr(documents_page, "KEYS", changed)
    with pytest.raises(DocgenError) as error:
        documents_page.documents()
    assert f"{name}.{lost} has no meaning" in str(error.value)
    assert f"{name}.no_such_key is no key of a document" in str(error.value)


def test_pages_are_written_then_current_then_stale(tmp_path: Path) -> None:
    wrote = generate_reference(tmp_path, check=False)
    assert wrote == [f"wrote {name}" for name in pages()]
    assert generate_reference(tmp_path, check=True) == [f"{name} is current" for name in pages()]
    first, second, *_ = (tmp_path / name for name in pages())
    first.write_text("old", encoding="utf-8")
    second.unlink()
    with pytest.raises(DocgenError) as error:
        generate_reference(tmp_path, check=True)
    assert [line.split()[0] for line in str(error.value).splitlines()] == list(pages())[:2]
    assert first.read_text(encoding="utf-8") == "old"
    assert put(tmp_path, "a/b.md", "text", check=False) == "wrote a/b.md"


def test_a_folder_outside_any_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocgenError, match="not inside the repository"):
        repository(tmp_path)
