"""`steppe validate`, as a person and as a program sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from steppe.cli import validate
from steppe.documents.inspection import inspect_file

from .conftest import DEPLOYMENT, SCENARIO, Tree, dump

app = typer.Typer()
validate.register(app)


@app.command()
def other() -> None:
    """A second command, so that `validate` has to be named."""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["validate", *map(str, arguments)])


def test_sound_files_are_ok(tree: Tree) -> None:
    path = tree.write()
    files = [path, *sorted(tree.root.glob("catalog/**/*.yaml")), *tree.root.glob("registry/**/*.yaml")]
    result = run(*files, "--catalog", tree.root / "catalog", "--registry", tree.root / "registry")
    assert result.exit_code == 0, result.output
    kinds = ["bundle", "StorageDevices", "Chip", "ModelGraph", "Fabric", "CoefficientSet"]
    assert result.output.splitlines() == [f"{file} ({kind}): ok" for file, kind in zip(files, kinds, strict=True)]


def test_problems_exit_with_2_and_name_their_place(tree: Tree) -> None:
    tree.chip["SMCount"] = 0
    path = tree.write()
    result = run(path, "--catalog", tree.root / "catalog", "--registry", tree.root / "registry")
    assert result.exit_code == 2
    assert f"{path} (bundle): 1 problem\n" in result.output
    assert "chip-x.yaml:" in result.output
    assert "Traceback" not in result.output


def test_json_holds_problems_refusals_and_warnings(tree: Tree) -> None:
    tree.pool["engine"] |= {"quantization": "fp9", "eplb": {"num_redundant_experts": 1}}
    path = tree.write()
    result = run(path, "--catalog", tree.root / "catalog", "--registry", tree.root / "registry", "--json")
    assert result.exit_code == 2
    data = json.loads(result.stdout)
    [file] = data["files"]
    assert (data["ok"], file["ok"], file["kind"]) == (False, False, "bundle")
    assert file["problems"] == []
    assert file["refusals"][0]["key"] == "pools[0].engine.eplb.num_redundant_experts"
    assert file["warnings"][0]["line"] > 0


def test_warnings_alone_are_shown_and_ok(tree: Tree) -> None:
    tree.pool["engine"]["quantization"] = "fp9"
    path = tree.write()
    result = run(path, "--catalog", tree.root / "catalog", "--registry", tree.root / "registry")
    assert result.exit_code == 0
    assert "  warning: " in result.output


def test_a_schema_is_printed() -> None:
    result = run("--schema", "chip")
    assert json.loads(result.stdout)["title"] == "Chip"
    result = run("--schema", "chips")
    assert (result.exit_code, "did you mean chip?" in result.output) == (2, True)


def test_nothing_to_do_is_an_error() -> None:
    result = run()
    assert (result.exit_code, "no file given" in result.output) == (2, True)


def test_a_missing_root_is_an_error(tree: Tree) -> None:
    result = run(tree.write(), "--catalog", tree.root / "nowhere")
    assert (result.exit_code, "no such folder" in result.output) == (2, True)


@pytest.mark.parametrize(
    ("text", "kind", "problem"),
    [
        ("a: 1\n", "unknown", "no document this package knows"),
        ("- 1\n", "unknown", "no document this package knows"),
        ("", "unknown", "no document this package knows"),
        ("a: [\n", "unknown", "not valid YAML"),
        ("kind: ModelGraph\n", "ModelGraph", "required key"),
        ("prompt: {tokens: 0}\n", "Workload", "out of range"),
        ("x: {read_bandwidth: 0}\n", "StorageDevices", "out of range"),
    ],
)
def test_kinds_are_told_by_their_keys(write: Callable[..., Path], text: str, kind: str, problem: str) -> None:
    found = inspect_file(write(text))
    assert found.kind == kind
    assert not found.ok
    assert problem in str(found.problems[0])


def test_half_a_bundle_is_checked_by_itself(tmp_path: Path) -> None:
    scenario = inspect_file(dump(tmp_path / "s.yaml", SCENARIO))
    assert (scenario.ok, scenario.kind) == (True, "Scenario")
    deployment = inspect_file(dump(tmp_path / "d.yaml", {**DEPLOYMENT, "pools": []}))
    assert (deployment.ok, deployment.kind) == (False, "Deployment")
