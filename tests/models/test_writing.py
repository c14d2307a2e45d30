"""Writing a catalog from a folder of configs, with entries and configs made for the test."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import typer
import yaml
from tests.models import small
from typer.testing import CliRunner

from steppe.cli import derive as command
from steppe.documents import load_graph
from steppe.models import catalog
from steppe.models.catalog import derive_entry, find, text_of, write
from steppe.models.catalog_entries import ENTRIES, Entry
from steppe.models.parameters import parameters
from steppe.models.stated import STATED

FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
BESIDE = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}
FLAT, NESTED = Entry("flat", "org/Flat"), Entry("nested", "org/Nested")
FLAT_PLAIN = Entry("plain", "org/Flat", plain=True)
ABSENT = Entry("absent", "org/Absent")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One config of each layout, the flat one with a quantization beside it."""
    configs = tmp_path / "configs"
    (configs / "org" / "Nested").mkdir(parents=True)
    (configs / "org--Flat_config.json").write_text(json.dumps(small.LLAMA))
    (configs / "org--Flat_hf_quant_config.json").write_text(json.dumps(BESIDE))
    (configs / "org" / "Nested" / "config.json").write_text(json.dumps(small.MIXTRAL))
    return configs


def test_configs_are_found_in_both_layouts(folder: Path) -> None:
    flat, nested = find(folder, "org/Flat"), find(folder, "org/Nested")
    assert flat == catalog.Files(folder / "org--Flat_config.json", folder / "org--Flat_hf_quant_config.json")
    assert nested == catalog.Files(folder / "org" / "Nested" / "config.json", None)
    assert find(folder, "org/Absent") is None


def test_an_entry_names_its_checkpoint_and_the_hash_of_its_config(folder: Path) -> None:
    graph = derive_entry(NESTED, folder)
    assert graph is not None
    raw = (folder / "org" / "Nested" / "config.json").read_bytes()
    assert graph["name"] == "nested"
    assert graph["derived_from"]["path"] == "org/Nested/config.json"
    assert graph["derived_from"]["sha256"] == hashlib.sha256(raw).hexdigest()
    assert derive_entry(ABSENT, folder) is None
    assert derive_entry(NESTED, None) is None


def test_an_entry_is_stored_as_the_file_beside_says_unless_it_is_plain(folder: Path) -> None:
    stored, plain = derive_entry(FLAT, folder), derive_entry(FLAT_PLAIN, folder)
    assert stored is not None
    assert plain is not None
    assert stored["global"]["weight_dtype"] == "nvfp4"
    assert plain["global"]["weight_dtype"] == "bf16"
    assert "at 16 bits: the quantization beside that config is left out." in text_of(FLAT_PLAIN, plain)


def test_an_entry_may_state_its_quantization_and_says_whose_it_is(folder: Path) -> None:
    entry = Entry("eight", "org/Nested", quantization=FP8, quantization_source="the publisher's export")
    graph = derive_entry(entry, folder)
    assert graph is not None
    assert graph["global"]["weight_dtype"] == "fp8"
    first, second, *_ = text_of(entry, graph).splitlines()
    assert first.startswith("# Derived from the config of org/Nested by")
    assert second == "# Quantization stated by the catalog: the publisher's export."


def test_writing_leaves_out_what_has_no_config(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "ENTRIES", (FLAT, NESTED, ABSENT))
    out = tmp_path / "out"
    assert write(folder, out) == ["flat", "nested"]
    assert sorted(path.parent.name for path in out.glob("*/graph.yaml")) == ["flat", "nested"]
    graph = load_graph(out / "nested" / "graph.yaml")
    assert (graph.name, graph.stack.layers) == ("nested", 4)
    text = (out / "nested" / "graph.yaml").read_text()
    assert yaml.safe_load(text) == derive_entry(NESTED, folder)


def test_stated_models_are_written_beside_the_found_ones(folder: Path, tmp_path: Path) -> None:
    """The listed entries, of which these configs hold one: it and those that state their keys are written."""
    real = next(entry for entry in ENTRIES if entry.checkpoint not in STATED and entry.quantization is None)
    (folder / f"{real.checkpoint.replace('/', '--')}_config.json").write_text(json.dumps(small.QWEN3))
    written = write(folder, tmp_path / "out")
    expected = [e.name for e in ENTRIES if e.checkpoint in STATED or e.checkpoint == real.checkpoint]
    assert written == expected


def test_derive_catalog_says_what_it_left(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "ENTRIES", (FLAT, NESTED, ABSENT))
    monkeypatch.setattr(command, "ENTRIES", (FLAT, NESTED, ABSENT))
    monkeypatch.setattr(write, "__defaults__", (tmp_path / "out",))
    result = CliRunner().invoke(alone(), ["derive", "--catalog", str(folder)])
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].startswith("2 graphs written to ")
    assert f"1 left as they are, their config is not in {folder}: absent" in result.stdout
    assert (tmp_path / "out" / "flat" / "graph.yaml").is_file()
    monkeypatch.setattr(command, "ENTRIES", (FLAT, NESTED))
    assert "left as they are" not in CliRunner().invoke(alone(), ["derive", "--catalog", str(folder)]).stdout


def test_derive_writes_the_file_it_is_given_and_sums_it_up(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "some" / "graph.json"
    config = folder / "org" / "Nested" / "config.json"
    result = CliRunner().invoke(alone(), ["derive", str(config), "--json", "-o", str(out)])
    assert result.exit_code == 0
    graph = json.loads(out.read_text())
    assert graph["name"] == "nested"
    assert f"{parameters(graph) / 1e9:.2f} B parameters, 1 kinds of layer" in result.output


def test_a_draft_is_derived_with_its_targets_layers(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(small.of("LlamaForCausalLMEagle3", num_hidden_layers=1)))
    result = CliRunner().invoke(alone(), ["derive", str(config), "--target-layers", "20", "--json"])
    assert json.loads(result.stdout)["speculator"]["hidden_taps"] == [2, 10, 17]


def alone() -> typer.Typer:
    """The command in an application of two, so that it keeps its name."""
    app = typer.Typer()
    command.register(app)
    app.command(name="other")(lambda: None)
    return app
