"""The embedded catalog: every graph is a valid document, counts what its publisher counts, and can be derived anew."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.models.published import PUBLISHED, billions, half_digit

from steppe.documents import load_graph
from steppe.models.catalog import CATALOG, derive_entry, text_of, write
from steppe.models.catalog_entries import ENTRIES, Entry
from steppe.models.derive import DERIVER_VERSION
from steppe.models.parameters import parameters
from steppe.models.stated import STATED

NAMES = [entry.name for entry in ENTRIES]
# Their embedding, and the projection of what they capture, are the target's to count; see test_drafts.
DRAFTS = {"eagle-llama-3.1-8b-instruct", "eagle3-llama-3.1-8b-instruct"}
BY_NAME = {entry.name: entry for entry in ENTRIES}


def graph_of(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.load((CATALOG / name / "graph.yaml").read_text(), Loader=yaml.CSafeLoader)
    return loaded


def test_the_catalog_holds_the_listed_models_and_no_others() -> None:
    assert sorted(NAMES) == sorted(path.parent.name for path in CATALOG.glob("*/graph.yaml"))
    assert len(NAMES) == len(set(NAMES)) >= 60


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_is_a_valid_document(name: str) -> None:
    graph = load_graph(CATALOG / name / "graph.yaml")
    assert graph.name == name
    assert graph.derived_from.deriver_version == DERIVER_VERSION


@pytest.mark.parametrize("name", [name for name in NAMES if name not in DRAFTS])
def test_a_graph_counts_what_its_publisher_counts(name: str) -> None:
    """Within one per cent of the published total, or within the rounding of the published figure itself."""
    published = PUBLISHED[name]
    counted = parameters(graph_of(name), speculator=published.speculator) / 1e9 + published.outside
    allowed = max(0.01 * billions(published.figure), half_digit(published.figure))
    assert abs(counted - billions(published.figure)) <= allowed, f"{counted:.3f} against {published.figure}"


def test_every_catalog_model_but_the_drafts_has_a_published_count() -> None:
    assert sorted(PUBLISHED) == sorted(set(NAMES) - DRAFTS)


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_a_fresh_derivation_equals_the_file(entry: Entry, configs: Path) -> None:
    graph = derive_entry(entry, configs)
    if graph is None:
        pytest.skip(f"no config of {entry.checkpoint} under STEPPE_CONFIGS")
    assert (CATALOG / entry.name / "graph.yaml").read_text() == text_of(entry, graph)


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.checkpoint in STATED], ids=lambda e: e.name)
def test_a_graph_of_stated_keys_is_derived_without_a_config(entry: Entry) -> None:
    graph = derive_entry(entry, None)
    assert graph is not None
    assert graph["derived_from"]["format"] == "stated"
    assert (CATALOG / entry.name / "graph.yaml").read_text() == text_of(entry, graph)


def test_a_quantization_stated_by_the_catalog_names_its_source() -> None:
    assert all(entry.quantization_source for entry in ENTRIES if entry.quantization)


def test_writing_from_a_folder_without_configs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none of the configs"):
        write(tmp_path, tmp_path / "catalog")


@pytest.mark.parametrize("name", NAMES)
def test_names_are_lower_case_hub_names(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9][a-z0-9.\-]*", name)
    assert BY_NAME[name].checkpoint.count("/") == 1


@pytest.mark.parametrize("name", NAMES)
def test_layers_reduce_after_both_blocks_and_collectives_follow_experts(name: str) -> None:
    """Every kind ends in a reduction, and an expert layer dispatches before it reduces."""
    for kind in graph_of(name)["layer_kinds"]:
        ops = [node["op"] for node in kind["nodes"]]
        roles = [node.get("role", "") for node in kind["nodes"]]
        assert "AllReduce" in ops, kind["id"]
        if "GroupedGEMM" in ops:
            assert ops.index("GroupedGEMM") < ops.index("All2All"), kind["id"]
            assert roles.count("router") == 1, kind["id"]
