"""The whole command: repeatable to the byte, honest about what it lacks, blind to serving points."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import steppe.calibrate
from steppe.calibrate.run import calibrate, execute, plan
from steppe.calibrate.write import render
from steppe.cli.calibrate import register
from steppe.errors import DocumentError

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    return app


def test_the_same_bytes_whatever_the_number_of_workers(wheel: Path) -> None:
    one, two = (calibrate(wheel, ["h100"], jobs=n) for n in (1, 2))
    assert render("h100", one.laws["h100"]) == render("h100", two.laws["h100"])
    assert one.unmeasured == two.unmeasured


def test_command_writes_a_set_and_names_what_is_missing(app: typer.Typer, wheel: Path, tmp_path: Path) -> None:
    arguments = ["calibrate", "--data", str(wheel), "--out", str(tmp_path), "--part", "h100", "--jobs", "1"]
    result = RUNNER.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "no table, so not measured: h100 attention_prefill" in result.output
    first = (tmp_path / "h100-refined.json").read_bytes()
    document = json.loads(first)
    assert document["name"] == "h100-refined"
    keys = [(law["law"], law["key"]) for law in document["laws"]]
    assert len(keys) == len(set(keys))
    measured = [law for law in document["laws"] if law["method"] == "measured"]
    assert {law["law"] for law in measured} == {"gemm", "attention_decode", "collective", "all_reduce_curve"}
    for law in measured:
        assert law["scope"] == {"hardware": ["h100"]}
        assert law["fit"]["script"] == "steppe calibrate"
        assert (wheel / law["fit"]["data"]).is_file()
        assert law["fit"]["rows"] > 0
    assert RUNNER.invoke(app, arguments).exit_code == 0
    assert (tmp_path / "h100-refined.json").read_bytes() == first


def test_assumed_laws_say_what_stands_in(wheel: Path) -> None:
    assumed = [f for f in calibrate(wheel, ["h100"], jobs=1).laws["h100"] if f.method == "assumed"]
    assert {f.key for f in assumed} >= {"int4_wo", "nvfp4"}
    for f in assumed:
        assert "would replace it" in f.rationale
        assert f.extra["copied_from"]
    dense = next(f for f in assumed if f.key == "int4_wo")
    assert dense.params["w_bytes"] == 0.5625


def test_a_folder_that_is_no_wheel_is_refused(app: typer.Typer, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="aisimulate_core/systems/data"):
        calibrate(tmp_path, ["h100"])
    result = RUNNER.invoke(app, ["calibrate", "--data", str(tmp_path), "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_an_unknown_part_is_refused(wheel: Path) -> None:
    with pytest.raises(DocumentError, match="unknown part 'h101'"):
        calibrate(wheel, ["h101"])


_OPENED: list[str] | None = None


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _OPENED is not None:
        _OPENED.append(str(arguments[0]))


@pytest.fixture
def opened() -> Iterator[list[str]]:
    global _OPENED
    if not getattr(_watch, "installed", False):
        sys.addaudithook(_watch)
        _watch.installed = True  # type: ignore[attr-defined]
    _OPENED = []
    yield _OPENED
    _OPENED = None


def test_no_serving_point_is_ever_opened(wheel: Path, part: object, opened: list[str]) -> None:
    from steppe.calibrate.parts import load_part

    for job in plan([load_part(wheel, "h100")]):
        execute(wheel, job)
    assert any(name.endswith("h100_sxm.yaml") for name in opened)  # the watch works
    assert not [name for name in opened if name.endswith(".csv")]


def test_no_source_names_a_serving_point() -> None:
    for source in Path(steppe.calibrate.__path__[0]).glob("*.py"):
        text = source.read_text()
        for word in (".csv", "read_csv", "silicon_sample", "serving_points"):
            assert word not in text, f"{source.name} mentions {word}"
