"""`steppe derive`, run in process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
import yaml
from tests.models import small
from typer.testing import CliRunner

from steppe.cli.derive import register
from steppe.documents import load_graph
from steppe.errors import DocumentError


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    register(app)

    @app.command(name="other")
    def other() -> None:
        """A second command, so that the first keeps its name."""

    return app


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "small-llama"
    folder.mkdir()
    file = folder / "config.json"
    file.write_text(json.dumps(small.LLAMA))
    return file


def test_prints_yaml(app: typer.Typer, config: Path) -> None:
    result = CliRunner().invoke(app, ["derive", str(config), "--source", "org/small"])
    assert result.exit_code == 0
    graph = yaml.safe_load(result.stdout)
    assert graph["name"] == "small-llama"
    assert graph["derived_from"]["path"] == "org/small"


def test_prints_json(app: typer.Typer, config: Path) -> None:
    result = CliRunner().invoke(app, ["derive", str(config.parent), "--json", "--name", "other"])
    assert json.loads(result.stdout)["name"] == "other"


def test_writes_a_catalog_entry(app: typer.Typer, config: Path, tmp_path: Path) -> None:
    out = tmp_path / "catalog"
    out.mkdir()
    result = CliRunner().invoke(app, ["derive", str(config), "-o", str(out)])
    assert result.exit_code == 0
    assert load_graph(out / "small-llama" / "graph.yaml").stack.layers == 4
    assert "small-llama" in result.output


def test_needs_a_config_or_a_catalog(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["derive"])
    assert isinstance(result.exception, DocumentError)


def test_an_unwritable_output_is_an_error(app: typer.Typer, config: Path) -> None:
    result = CliRunner().invoke(app, ["derive", str(config), "-o", str(config / "graph.yaml")])
    assert isinstance(result.exception, DocumentError)
