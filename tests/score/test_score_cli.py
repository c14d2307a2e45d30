"""The command: tables, JSON, pictures and a report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from steppe.cli import app
from steppe.errors import DeploymentError, DocumentError
from steppe.score import build as score_build
from steppe.score.points import Built, Launch

runner = CliRunner()

POINTS = """id,model,system,precision,isl,osl,concurrency_per_dp_rank,tp,tpot_ms,aisimulate_tpot_ms
a,openai/gpt-oss-120b,b200,fp4,1024,512,8,2,10,11
b,openai/gpt-oss-120b,b200,fp4,1024,512,8,4,10,11
"""


@pytest.fixture
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def build(launch: Launch) -> Built:
        if launch.tp == 4:
            raise DeploymentError("no")
        return Built(lambda decodes, context, chunks: 0.011, 8192)

    monkeypatch.setattr(score_build, "build", build)
    path = tmp_path / "points.csv"
    path.write_text(POINTS)
    return path


def test_a_table_by_default(points: Path) -> None:
    result = runner.invoke(app, ["score", str(points)])
    assert result.exit_code == 0
    assert "gpt-oss-120b" in result.stdout
    assert "refused 1: no" in result.stdout


def test_json_is_all_that_is_printed(points: Path) -> None:
    result = runner.invoke(app, ["score", str(points), "--json"])
    made = json.loads(result.stdout)
    assert [row["refused"] for row in made["rows"]] == [None, "no"]
    assert made["rows"][0]["tpot_ms"] == pytest.approx(11)


def test_pictures_and_a_report(points: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report = tmp_path / "report.md"
    result = runner.invoke(app, ["score", str(points), "--plot", str(tmp_path / "plots"), "--report", str(report)])
    assert result.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == ["error_cdf.png", "parity.png"]
    assert "| gpt-oss-120b | b200 | 1 |" in report.read_text()


def test_a_bad_file_is_an_error_the_command_line_reports(tmp_path: Path) -> None:
    result = runner.invoke(app, ["score", str(tmp_path / "none.csv")])
    assert isinstance(result.exception, DocumentError)


def test_memory(tmp_path: Path) -> None:
    path = tmp_path / "starts.csv"
    path.write_text("model,gpu,tp,weights_gib,available_kv_gib,checked\nQwen/Qwen3-32B,2x H100,2,30.59,34,yes\n")
    result = runner.invoke(app, ["score", str(path), "--memory", "--json"])
    assert json.loads(result.stdout)["summary"]["weights"]["passed"] == 1
    table = runner.invoke(app, ["score", str(path), "--memory"]).stdout
    assert "weights, all rows: 1 of 1 within the bar" in table
    assert max(map(len, table.splitlines())) <= 100
    assert runner.invoke(app, ["score", str(path), "--memory", "--plot", str(tmp_path)]).exit_code == 2
