"""`steppe catalog list` and `steppe catalog show`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner, Result

from steppe.cli import catalog
from steppe.documents.load import load_chip, load_coefficient_set

app = typer.Typer()
catalog.register(app)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["catalog", *map(str, arguments)])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "hardware/big.yaml": "{Provenance: derived, TFlopsPeak: 9, BwPeakTBs: 1, MemoryGiB: 4, IntraNodeBwGBps: 1, "
        "SMCount: 5}",
        "devices/storage.yaml": "disk: {read_bandwidth: 1, write_bandwidth: 1, base_latency: 1}",
        "coefficients/set.yaml": "{kind: CoefficientSet, name: set, coefficients: [{x: {value: 1, units: tokens, "
        "method: measured, fitted: true, scope: {tp: [1]}}}]}",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_names_are_listed_by_kind(root: Path) -> None:
    result = run("list", "--catalog", root)
    assert result.exit_code == 0
    assert "chips (1)\n  big\n" in result.output
    data = json.loads(run("list", "--catalog", root, "--json").stdout)
    assert data == {"models": [], "chips": ["big"], "fabrics": [], "coefficients": ["set"], "storage": ["disk"]}
    assert json.loads(run("list", "chips", "--catalog", root, "--json").stdout) == {"chips": ["big"]}


def test_the_embedded_catalog_is_the_default() -> None:
    assert json.loads(run("list", "--json").stdout)["chips"]


def test_a_shown_document_is_one_that_loads(root: Path, tmp_path: Path) -> None:
    shown = run("show", "big", "--catalog", root)
    assert shown.exit_code == 0
    assert shown.output.startswith("chip big\n")
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(yaml.safe_load(shown.output.split("\n", 1)[1])))
    assert load_chip(tmp_path / "again.yaml").sm_count == 5
    data = json.loads(run("show", "set", "--catalog", root, "--json").stdout)
    (tmp_path / "set.json").write_text(json.dumps(data["document"]))
    assert load_coefficient_set(tmp_path / "set.json").coefficients[0].name == "x"
    device = json.loads(run("show", "disk", "--kind", "storage", "--catalog", root, "--json").stdout)
    assert device["document"]["read_bandwidth"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "bigg"], "did you mean big?"),
        (["show", "disk", "--kind", "chip"], "'disk' is not in "),
        (["show", "big", "--kind", "part"], "unknown kind 'part'"),
        (["list", "chip"], "unknown kind 'chip'; did you mean chips?"),
        (["list", "--catalog", "/nowhere"], "no such folder"),
    ],
)
def test_bad_input_exits_with_2(root: Path, arguments: list[str], message: str) -> None:
    if "--catalog" not in arguments:
        arguments = [*arguments, "--catalog", str(root)]
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output
