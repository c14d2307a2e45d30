"""The catalog: names, lookups, and that every embedded document loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from steppe.catalog import EMBEDDED, Catalog
from steppe.documents import Chip, CoefficientSet, Fabric, ModelGraph
from steppe.errors import DocumentError

CHIP = """Provenance: derived
TFlopsPeak: 100
BwPeakTBs: 1
MemoryGiB: 40
IntraNodeBwGBps: 10
SMCount: 50
"""


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    (tmp_path / "hardware").mkdir()
    for name in ("one", "two"):
        (tmp_path / f"hardware/{name}.yaml").write_text(CHIP)
    (tmp_path / "hardware/notes.txt").write_text("not a chip")
    return Catalog(tmp_path)


def embedded(kind: str) -> list[str]:
    return Catalog().names(kind) if EMBEDDED.is_dir() else []


def test_names_are_listed_and_documents_loaded(catalog: Catalog) -> None:
    assert catalog.chips() == ["one", "two"]
    assert catalog.chip("one").sm_count == 50
    assert catalog.fabrics() == catalog.models() == catalog.coefficient_sets() == []
    assert catalog.storage() == {}
    assert repr(catalog) == f"Catalog({str(catalog.root)!r})"


def test_a_parsed_document_is_kept_until_its_file_changes(catalog: Catalog) -> None:
    first = catalog.chip("one")
    assert catalog.chip("one") is first
    (catalog.root / "hardware/one.yaml").write_text(CHIP + "L2MB: 5\n")
    assert catalog.chip("one").l2_mb == 5


def test_an_unknown_name_suggests_the_nearest(catalog: Catalog) -> None:
    with pytest.raises(DocumentError, match=r"unknown chip 'tow'.*did you mean two"):
        catalog.chip("tow")
    with pytest.raises(DocumentError, match=r"unknown fabric 'x'.*there are none"):
        catalog.fabric("x")


@pytest.mark.parametrize("name", ["../hardware/one", "/etc/passwd", "..", ".", "", "one\0", "a/b", "one.yaml/../two"])
def test_names_never_leave_the_catalog(catalog: Catalog, name: str) -> None:
    with pytest.raises(DocumentError, match="unknown chip"):
        catalog.chip(name)


def test_a_malformed_document_is_named(catalog: Catalog) -> None:
    (catalog.root / "hardware/one.yaml").write_text(CHIP + "SMs: 5\n")
    with pytest.raises(DocumentError, match=r"one.yaml:7: SMs: unknown key"):
        catalog.chip("one")


def test_a_root_must_exist(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="no such folder"):
        Catalog(tmp_path / "nowhere")


@pytest.mark.parametrize("name", embedded("chip"))
def test_an_embedded_chip_loads(name: str) -> None:
    assert isinstance(Catalog().chip(name), Chip)


@pytest.mark.parametrize("name", embedded("fabric"))
def test_an_embedded_network_loads(name: str) -> None:
    assert isinstance(Catalog().fabric(name), Fabric)


@pytest.mark.parametrize("name", embedded("model"))
def test_an_embedded_model_loads(name: str) -> None:
    graph = Catalog().model(name)
    assert isinstance(graph, ModelGraph)
    assert graph.name == name


@pytest.mark.parametrize("name", embedded("coefficient set"))
def test_an_embedded_coefficient_set_loads(name: str) -> None:
    document = Catalog().coefficient_set(name)
    assert isinstance(document, CoefficientSet)
    assert document.name == name
    for entry in document.coefficients:
        assert set(entry.scope.get("hardware", [])) <= set(Catalog().chips()), entry.name


def test_embedded_storage_loads() -> None:
    assert Catalog().storage()


def test_importing_and_listing_needs_no_schema_library() -> None:
    code = (
        "import sys, steppe, steppe.catalog\n"
        "steppe.catalog.Catalog().chips()\n"
        "assert 'pydantic' not in sys.modules and 'yaml' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
