"""Reading points, mapping launches, error figures and the report."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from rich.console import Console

import steppe
from steppe.errors import DeploymentError, DocumentError, Error
from steppe.score.build import build, documents, experts_of, model_of
from steppe.score.points import Built, Launch, Point, Row, read_points
from steppe.score.predict import predict, rows_json
from steppe.score.report import markdown, plots, terminal
from steppe.score.stats import cells, figures, spearman, summary

GOLDEN = Path(os.environ.get("STEPPE_GOLDEN", Path(__file__).parents[2] / "../shared/golden"))
POINTS = GOLDEN.parent / "accuracy/serving_points.csv"
CATALOG = Path(steppe.__file__).parent / "catalog/data"

ROW = {
    "id": "a",
    "model": "openai/gpt-oss-120b",
    "system": "b200",
    "precision": "fp4",
    "engine_version": "0.18.0",
    "isl": "1024",
    "osl": "512",
    "concurrency_per_dp_rank": "8",
    "tp": "2",
    "dp": "1",
    "ep": "1",
    "kv_cache_dtype": "fp8",
    "attention_path": "trtllm",
    "experts_law": "w4a8_mxfp4_mxfp8/modular",
    "token_budget": "8192",
    "capture_limit": "2048",
    "fused_all_reduce_norm": "1",
    "all_reduce_lane": "0.19.0",
    "synchronous_host": "0",
    "queued": "0",
    "duplicate": "0",
    "fault": "",
    "tpot_ms": "10",
    "aisimulate_tpot_ms": "11",
}


def write(path: Path, *rows: dict[str, str], drop: Sequence[str] = ()) -> Path:
    names = [name for name in ROW if name not in drop]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**ROW, **row} for row in rows)
    return path


def point(**changes: Any) -> Point:
    launch = Launch(
        model="openai/gpt-oss-120b",
        system="b200",
        precision="fp4",
        engine_version="0.18.0",
        tp=2,
        dp=1,
        ep=1,
        kv_cache_dtype="fp8",
        attention_path="trtllm",
        experts_law="w4a8_mxfp4_mxfp8/modular",
        token_budget=8192,
        capture_limit=2048,
        fused_all_reduce_norm=True,
        all_reduce_lane="0.19.0",
        synchronous_host=False,
    )
    mine = {k: v for k, v in changes.items() if k in Launch.__dataclass_fields__}
    rest = {k: v for k, v in changes.items() if k not in mine}
    plain = Point("a", launch, 1024, 512, 8, 10.0, 11.0, False, False, "")
    return replace(plain, launch=replace(launch, **mine), **rest)


def constant(seconds: float) -> Built:
    return Built(lambda decodes, context, chunks: seconds, 8192)


def test_a_row_is_read_as_what_it_says(tmp_path: Path) -> None:
    (read,) = read_points(write(tmp_path / "p.csv", {}))
    assert read == point()
    assert read.clean


def test_blank_and_missing_options_are_not_stated(tmp_path: Path) -> None:
    blank = dict.fromkeys(("engine_version", "token_budget", "fused_all_reduce_norm", "aisimulate_tpot_ms"), "")
    dropped = ("dp", "ep", "queued", "fault", "experts_law")
    (read,) = read_points(write(tmp_path / "p.csv", blank, drop=dropped))
    assert (read.launch.dp, read.launch.ep) == (1, 1)
    assert read.launch.token_budget is None
    assert read.launch.fused_all_reduce_norm is None
    assert read.launch.experts_law == ""
    assert read.other_tpot_ms is None
    assert read.clean


@pytest.mark.parametrize(("queued", "duplicate", "clean"), [("0", "0", True), ("1", "0", False), ("0", "1", False)])
def test_clean_is_neither_queued_nor_repeated(tmp_path: Path, queued: str, duplicate: str, clean: bool) -> None:
    (read,) = read_points(write(tmp_path / "p.csv", {"queued": queued, "duplicate": duplicate}))
    assert read.clean is clean


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tp": "two"}, "p.csv:2: column tp must be a positive number, not 'two'"),
        ({"tp": "1.5"}, "p.csv:2: column tp must be a whole number, not 1.5"),
        ({"isl": "0"}, "column isl must be a positive number, not '0'"),
        ({"tpot_ms": "nan"}, "column tpot_ms must be a positive number, not 'nan'"),
        ({"model": " "}, "column model is blank"),
        ({"queued": "maybe"}, "column queued must be 0 or 1, not 'maybe'"),
    ],
)
def test_a_bad_cell_is_named(tmp_path: Path, change: dict[str, str], message: str) -> None:
    with pytest.raises(DocumentError) as error:
        read_points(write(tmp_path / "p.csv", change))
    assert message in str(error.value)


def test_missing_columns_and_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="no column tp, tpot_ms"):
        read_points(write(tmp_path / "p.csv", {}, drop=("tp", "tpot_ms")))
    with pytest.raises(DocumentError, match="cannot be read"):
        read_points(tmp_path / "none.csv")


def test_rows_are_predicted_in_milliseconds_and_launches_built_once() -> None:
    built: list[Launch] = []

    def once(launch: Launch) -> Built:
        built.append(launch)
        return constant(0.02)

    seen: list[Point] = []
    points = [point(), point(id="b", isl=2048), point(id="c", tp=4)]
    rows = predict(points, once, progress=seen.append)
    assert [row.tpot_ms for row in rows] == [pytest.approx(20)] * 3
    assert [launch.tp for launch in built] == [2, 4]
    assert seen == points


def test_refusals_are_rows_with_a_reason() -> None:
    def refuse(launch: Launch) -> Built:
        raise DeploymentError("no such layout")

    (row,) = predict([point()], refuse)
    assert (row.tpot_ms, row.refused) == (None, "no such layout")
    (row,) = predict([point(concurrency=9000)], lambda launch: constant(0.02))
    assert "leaves no prompt token" in str(row.refused)
    (row,) = predict([point()], lambda launch: constant(float("nan")))
    assert "must be a positive time" in str(row.refused)


def test_other_exceptions_are_not_hidden() -> None:
    def broken(launch: Launch) -> Built:
        raise KeyError("a fault")

    with pytest.raises(KeyError):
        predict([point()], broken)


def test_json_has_the_stated_keys() -> None:
    rows = predict([point(), point(id="b", fault="why", duplicate=True)], lambda launch: constant(0.02))
    made = json.loads(json.dumps(rows_json(rows)))
    assert list(made) == ["rows", "cells", "summary"]
    assert made["rows"][1] == {
        "id": "b",
        "tpot_ms": pytest.approx(20),
        "measured_tpot_ms": 10.0,
        "refused": None,
        "clean": False,
        "fault": "why",
    }


def scored(*values: tuple[float | None, float, float | None], **changes: Any) -> list[Row]:
    """Rows of (predicted, measured, other)."""
    return [
        Row(point(measured_tpot_ms=m, other_tpot_ms=o, **changes), p, None if p is not None else "no law")
        for p, m, o in values
    ]


def test_figures_by_hand() -> None:
    found = figures([(11, 10), (18, 20), (15, 10), (30, 30)])
    assert found["rows"] == 4
    assert found["mape"] == pytest.approx((10 + 10 + 50 + 0) / 4)
    assert found["median"] == pytest.approx(10)
    assert found["bias"] == pytest.approx((10 - 10 + 50 + 0) / 4)
    assert found["within_30"] == pytest.approx(75)
    assert found["spearman"] == pytest.approx(1 - 0.0513, abs=1e-3)
    assert figures([])["mape"] is None


def test_spearman_averages_equal_ranks() -> None:
    assert spearman([(1, 1), (2, 2), (3, 3)]) == pytest.approx(1)
    assert spearman([(3, 1), (2, 2), (1, 3)]) == pytest.approx(-1)
    assert spearman([(1, 5), (1, 6)]) is None
    assert spearman([(1, 1)]) is None
    assert spearman([(1, 1), (1, 2), (2, 3)]) == pytest.approx(0.8660254)


def test_cells_take_clean_rows_and_keep_faults_apart() -> None:
    rows = scored((11, 10, 12), (13, 10, None), (None, 10, 10))
    rows += scored((20, 10, 20), fault="faulty")
    rows += scored((99, 10, 99), duplicate=True)
    rows += scored((10, 10, 10), model="m/other", system="h100")
    first, second = cells(rows)
    assert (first["model"], first["gpu"]) == ("gpt-oss-120b", "b200")
    assert first["without_fault"]["rows"] == 2
    assert first["without_fault"]["mape"] == pytest.approx(20)
    assert first["without_fault"]["refused"] == 1
    assert first["without_fault"]["aisimulate"]["rows"] == 2
    assert first["clean"]["mape"] == pytest.approx((10 + 30 + 100) / 3)
    assert (second["model"], second["gpu"]) == ("other", "h100")


def test_the_worst_cell_needs_twenty_rows() -> None:
    few = scored(*[(20.0, 10.0, None)] * 19, system="h200")
    many = scored(*[(11.0, 10.0, None)] * 20)
    found = summary(few + many)
    assert found["worst_cell"]["gpu"] == "b200"
    assert found["worst_cell"]["median"] == pytest.approx(10)
    assert summary(few)["worst_cell"] is None


def test_refusals_are_counted_by_reason() -> None:
    found = summary(scored((None, 10, 10), (None, 10, 10), (11, 10, 10)))
    assert found["refused"] == {"no law": 2}
    assert (found["rows"], found["answered"]) == (3, 1)


def text_of(rows: list[Row]) -> str:
    console = Console(width=160, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(terminal(rows))
    console.file.close()
    return console.export_text()


def test_the_table_and_the_page_show_both_models() -> None:
    rows = scored((11, 10, 12), (None, 10, 9))
    text = text_of(rows)
    assert "gpt-oss-120b" in text
    assert "1 of 2 rows answered" in text
    assert "refused 1: no law" in text
    page = markdown(rows)
    assert "| gpt-oss-120b | b200 | 1 | 10.0 | 10.0 | +10.0 | 2 | 15.0 | 15.0 | +5.0 |" in page
    assert "| **all clean rows** |" in page
    assert "Refused (1 rows): no law" in page


def test_a_report_of_nothing_is_still_a_report() -> None:
    assert "0 of 0 rows answered" in text_of([])
    assert "0 of 0 rows answered" in markdown([])
    with pytest.raises(Error, match="nothing to plot"):
        plots([], Path("unused"))


def test_plots_are_saved(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = plots(scored((11, 10, 12), (19, 20, 21), (None, 10, 9)), tmp_path / "new")
    assert [file.name for file in files] == ["parity.png", "error_cdf.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)


def test_a_launch_becomes_documents() -> None:
    scenario, deployment = documents(point().launch)
    assert scenario["model"] == "gpt-oss-120b"
    assert scenario["engine_version"] == "0.19.0"
    assert scenario["coefficients"] == ["b200-reference", "b200-engine", "b200-refined"]
    assert scenario["cluster"] == {"hardware": "b200", "nodes": 1, "gpus_per_node": 8}
    (pool,) = deployment["pools"]
    assert pool["parallel"] == {"tp": 2, "pp": 1, "dp": 1, "enable_expert_parallel": False}
    assert pool["engine"] == {
        "cache_dtype": "fp8",
        "attention_backend": "FLASHINFER",
        "moe_backend": "w4a8_mxfp4_mxfp8/modular",
        "max_num_batched_tokens": 8192,
        "max_cudagraph_capture_size": 2048,
        "fuse_allreduce_rms": True,
    }


def test_unstated_options_stay_unstated() -> None:
    bare = point(
        kv_cache_dtype="",
        attention_path="",
        experts_law="",
        token_budget=None,
        capture_limit=None,
        fused_all_reduce_norm=None,
        all_reduce_lane="",
        engine_version="",
    ).launch
    scenario, deployment = documents(bare)
    assert scenario["engine_version"] == "0.31.0"
    assert deployment["pools"][0]["engine"] == {}


def test_layouts_over_nodes_and_racks() -> None:
    scenario, deployment = documents(point(tp=8, dp=2, ep=16).launch)
    assert scenario["cluster"] == {"hardware": "b200", "nodes": 2, "gpus_per_node": 8, "fabric": "ib-ndr-400"}
    assert deployment["pools"][0]["nodes"] == 2
    assert deployment["pools"][0]["parallel"]["enable_expert_parallel"] is True
    scenario, _ = documents(point(system="gb200", tp=8).launch)
    assert scenario["cluster"]["hardware"] == "gb200-nvl72"
    assert (scenario["cluster"]["nodes"], scenario["cluster"]["gpus_per_rack"]) == (2, 72)
    with pytest.raises(DeploymentError, match="ep 4 with tp 2 and dp 1"):
        documents(point(ep=4).launch)


@pytest.mark.parametrize(
    ("model", "precision", "name"),
    [
        ("MiniMaxAI/MiniMax-M2.5", "fp8", "minimax-m2.5"),
        ("MiniMaxAI/MiniMax-M2.5", "fp4", "minimax-m2.5-nvfp4"),
        ("Qwen/Qwen3-32B", "bf16", "qwen3-32b"),
        ("Qwen/Qwen3-32B", "fp8", "qwen3-32b-fp8"),
        ("Qwen/Qwen3-235B-A22B-FP8", "fp8", "qwen3-235b-a22b-fp8"),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "fp8", "llama-3.1-8b-instruct-fp8"),
        ("meta-llama/Llama-3.1-70B", "fp4", "llama-3.1-70b-instruct-nvfp4"),
    ],
)
def test_model_names(model: str, precision: str, name: str) -> None:
    assert model_of(point(model=model, precision=precision).launch) == name


def test_unknown_precisions_and_kernels_are_refused() -> None:
    with pytest.raises(DeploymentError, match="precision 'int3'"):
        model_of(point(precision="int3").launch)
    with pytest.raises(DeploymentError, match="experts_law 'a/b' is not <weights>/<kernel>"):
        experts_of(point(experts_law="a/b").launch)


def test_a_launch_is_opened_from_its_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    def open_documents(path: Path) -> Any:
        opened.extend(yaml.safe_load_all(Path(path).read_text(encoding="utf-8")))
        return SimpleNamespace(
            resolution=SimpleNamespace(
                settings=SimpleNamespace(max_num_batched_tokens=16384), widths=SimpleNamespace(dp=1)
            )
        )

    monkeypatch.setattr(steppe, "open", open_documents, raising=False)
    monkeypatch.setattr(steppe, "Batch", SimpleNamespace, raising=False)
    assert build(point().launch).token_budget == 8192
    assert opened == documents(point().launch)
    assert build(point(token_budget=None).launch).token_budget == 16384


@pytest.mark.skipif(not POINTS.is_file(), reason=f"{POINTS} is not there")
def test_every_published_row_maps_to_documents() -> None:
    points = read_points(POINTS)
    assert len(points) == 658
    assert sum(p.clean for p in points) == 548
    assert sum(p.clean and not p.fault for p in points) == 512
    models = {documents(p.launch)[0]["model"] for p in points}
    parts = {documents(p.launch)[0]["cluster"]["hardware"] for p in points}
    assert parts == {"h100", "h200", "b200", "b300"}
    for part in parts:
        assert (CATALOG / "hardware" / f"{part}.yaml").is_file()
    if (CATALOG / "models").is_dir():
        known = {path.name for path in (CATALOG / "models").iterdir()}
        assert models <= known


@pytest.mark.skipif(not POINTS.is_file(), reason=f"{POINTS} is not there")
def test_the_other_models_published_error_is_reproduced() -> None:
    """What the file says of AISimulate: MAPE 12.6, median 7.6; without a fault 9.9 and 7.0."""
    rows = [Row(p, p.measured_tpot_ms, None) for p in read_points(POINTS)]
    found = summary(rows)
    assert found["clean"]["aisimulate"]["mape"] == pytest.approx(12.6, abs=0.06)
    assert found["clean"]["aisimulate"]["median"] == pytest.approx(7.6, abs=0.06)
    assert found["without_fault"]["aisimulate"]["mape"] == pytest.approx(9.9, abs=0.06)
    assert found["without_fault"]["aisimulate"]["median"] == pytest.approx(7.0, abs=0.06)
    assert found["clean"]["mape"] == 0
