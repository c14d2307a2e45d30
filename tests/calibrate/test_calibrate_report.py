"""What is said about the fits: tables against the bars, markers in a document, and the facts of a part."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pytest
import typer
from rich.console import Console
from synthetic_modules import a_part, data_path, grid, timed
from synthetic_wheel import put
from typer.testing import CliRunner

from steppe.calibrate import collectives, gemm, laws, report, transfer
from steppe.calibrate.fit import Fitted, tidy
from steppe.calibrate.parts import SYSTEMS, Part, lane, load_part
from steppe.calibrate.run import Calibration, Job
from steppe.calibrate.tables import Tables, median_by, version_key
from steppe.cli.calibrate import register
from steppe.errors import DocumentError


def law(key: str, error: float, part: str = "h100", family: str = "gemm") -> Fitted:
    return Fitted(family, key, part, {"a": 1.0}, ("t",), 100, "k", 1.01, error, 3.25)


@pytest.fixture
def results() -> report.Results:
    assumed = replace(law("int4_wo", 1.0), method="assumed", rationale="Parameters of gemm bfloat16 of h100; a table.")
    other = replace(assumed, part="h200", rationale="Parameters of gemm bfloat16 of h200; a table.")
    unjudged = replace(law("0.1/2", 1.0, family="all_reduce_curve"), held_out_error=None, median_ape=None)
    exchange = replace(law("x/8", 9.0, family="moe_exchange"), median_ape=None)
    return {"h100": [law("fp8", 1.30), law("bfloat16", 1.05), assumed, unjudged, exchange],
            "h200": [law("bfloat16", 1.11, "h200"), other]}  # fmt: skip


def test_a_family_is_judged_by_its_measured_laws(results: report.Results) -> None:
    rows = report.family_rows(results)
    assert rows == [
        ("gemm", 3, 300, 1.05, 1.11, 1.30, 1),  # one over the bar of 1.12
        ("moe_exchange", 1, 100, 9.0, 9.0, 9.0, 0),  # a family without a bar is over none
    ]
    assert [f.key for _, f, _ in report.scored(results, "gemm")] == ["bfloat16", "fp8", "bfloat16"]


def test_the_summary_shows_bars_and_errors(results: report.Results) -> None:
    out = io.StringIO()
    Console(width=160, file=out).print(report.summary(results))
    text = out.getvalue()
    assert "over the bar" in text
    (line,) = [line for line in text.splitlines() if "gemm" in line]
    assert "1.300" in line
    assert "1.12" in line


def test_markdown_marks_what_is_over_and_groups_the_assumed(results: report.Results) -> None:
    text = report.tables(results, ["h100 msa decode"])
    assert "| gemm | 3 | 300 | 1.050 | 1.110 | 1.300 | 1.12 | 1 |" in text
    assert "| bfloat16 | 1.050 (3.2 %) | 1.110 (3.2 %) |" in text
    assert "| fp8 | **1.300 (3.2 %)** |  |" in text
    assert "| x/8 | 9.000 |  |" in text
    assert "| gemm | int4_wo | h100, h200 | Parameters of gemm bfloat16; a table. |" in text
    assert "No table in the wheel: h100 msa decode." in text
    assert "Without a table" not in report.tables(results, [])


def test_only_what_stands_between_the_markers_is_replaced(results: report.Results, tmp_path: Path) -> None:
    page = tmp_path / "book.md"
    done = Calibration(results, [])
    with pytest.raises(DocumentError, match="markers"):
        report.refresh(page, done)
    page.write_text(f"before {report.END}")
    with pytest.raises(DocumentError, match="markers"):
        report.refresh(page, done)
    page.write_text(f"before\n{report.BEGIN}\nold numbers\n{report.END}\nafter\n")
    report.refresh(page, done)
    once = page.read_text()
    assert once.startswith(f"before\n{report.BEGIN}")
    assert once.endswith(f"{report.END}\nafter\n")
    assert "old numbers" not in once
    assert "**1.300 (3.2 %)**" in once
    report.refresh(page, done)
    assert page.read_text() == once


def test_the_command_refreshes_a_report(wheel: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    page = tmp_path / "book.md"
    page.write_text(f"{report.BEGIN}\n{report.END}\n")
    arguments = ["calibrate", "--data", str(wheel), "--out", str(tmp_path), "--part", "h100", "--jobs", "1"]
    result = CliRunner().invoke(app, [*arguments, "--report", str(page)])
    assert result.exit_code == 0, result.output
    assert "error tables refreshed" in result.output
    assert "| nccl/all_gather/8 |" in page.read_text()
    assert "h100 msa decode" in page.read_text()  # a table the package lacks is named
    page.write_text("no markers")
    result = CliRunner().invoke(app, [*arguments, "--report", str(page)])
    assert result.exit_code == 2
    assert "Traceback" not in result.output


# ------------------------------------------------------------------------------------------------------ parts, tables
def test_a_descriptor_gives_rates_per_microsecond_and_falls_back_to_wider_types(tmp_path: Path) -> None:
    path = tmp_path / SYSTEMS / "h100_sxm.yaml"
    path.parent.mkdir(parents=True)
    with pytest.raises(DocumentError, match="no part descriptor"):
        load_part(tmp_path, "h100")
    path.write_text("gpu:\n  mem_bw: 3.0e12\n")
    with pytest.raises(DocumentError, match="bfloat16_tc_flops"):
        load_part(tmp_path, "h100")
    path.write_text("gpu:\n  mem_bw: 3.0e12\n  bfloat16_tc_flops: 1.0e15\n")
    part = load_part(tmp_path, "h100")
    assert part.hbm == 3e6
    assert part.peak == {"bfloat16": 1e9, "fp8": 1e9, "nvfp4": 1e9}
    assert part.l2 == 50e6
    assert (lane("h100_sxm"), lane("a100_sxm")) == ("0.25.0", "0.14.0")


def test_versions_sort_as_numbers_and_odd_ones_first(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"latency": [0.001]})
    for version in ("0.9.0", "0.31.0", "0.25.0rc1", "nightly"):
        put(tmp_path, f"x/gemm/vllm/{version}/t.parquet", frame)
    tables = Tables(tmp_path)
    assert tables.lanes("x", "gemm", "vllm", "t") == ["nightly", "0.9.0", "0.25.0rc1", "0.31.0"]
    assert version_key("nightly") == (0,)
    assert tables.newest("x", "gemm", "vllm", "t", ("0.31.0",)) == data_path("x/gemm/vllm/0.25.0rc1/t.parquet")
    assert tables.newest("x", "gemm", "vllm", "other") is None
    assert tables.read(data_path("x/gemm/vllm/0.9.0/t.parquet")).us.tolist() == [1.0]
    repeated = pandas.DataFrame({"m": [1, 1, 1, 2], "us": [1.0, 2.0, 9.0, 4.0]})
    assert median_by(repeated, ["m"]).us.tolist() == [2.0, 4.0]


def test_jobs_are_named_for_progress_and_for_what_is_missing() -> None:
    assert Job("nccl", "h100").label == "h100 nccl"
    assert Job("gemm", "h100", "fp8").label == "h100 gemm fp8"
    assert Job("sparse", "h100", ("dsa", False)).label == "h100 dsa context"


def test_numbers_are_rounded_through_nested_values() -> None:
    assert tidy({"a": [1.234567, 2.0], "b": (3.00001, True), "c": "x", "d": None}, 3) == {
        "a": [1.23, 2], "b": [3, True], "c": "x", "d": None,
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------- gemm
@pytest.mark.parametrize(
    ("name", "dtypes"),
    [
        ("a100-sxm", ["bfloat16"]),
        ("l40s", ["bfloat16", "fp8"]),
        ("rtx-pro-6000", ["bfloat16", "fp8", "nvfp4"]),
        ("h200", ["bfloat16", "fp8", "fp8_block"]),
        ("b300", ["bfloat16", "fp8", "fp8_block", "nvfp4"]),
    ],
)
def test_the_types_measured_on_each_part(name: str, dtypes: list[str]) -> None:
    assert gemm.dtypes(a_part(name)) == dtypes


TRUTH = {"t0": 5.0, "eff": 0.8, "bw_eff": 0.85, "tile_us": 0.5, "u0_ns": 0.3, "thr": 0.06, "thr_us": 1900.0,
         "split_us": 3.0, "q_row_us": 1e-3, "q_col_us": 2e-3, "l2_frac": 0.6, "l2_gain": 3.0, "align_us": 3.0,
         "multi_us": 1.0}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "dtype"), [("h100", "fp8"), ("h100", "fp8_block"), ("b200", "nvfp4"), ("rtx-pro-6000", "bfloat16")]
)
def test_every_dense_type_is_recovered(tmp_path: Path, name: str, dtype: str) -> None:
    part = a_part(name)
    base, names = gemm.structure(part, dtype)
    x = grid(m=[1, 7, 64, 130, 512, 2048], n=[512, 1536, 4096, 14336], k=[512, 1024, 2048, 4096, 8192])
    m, n, k = (x[c].to_numpy(float) for c in "mnk")
    us = laws.gemm({**base, **{p: TRUTH[p] for p in names}}, m, n, k, warm=True)
    x = timed(x, us).assign(gemm_dtype=dtype)
    odd = x.head(20).assign(n=100, k=100, latency=9.0)  # a fallback of block types only
    frames = [x, odd] if dtype == "fp8_block" else [x]
    put(tmp_path, f"{part.folder}/gemm/vllm/{lane(part.folder)}/gemm_perf.parquet", pandas.concat(frames))
    (fitted,) = gemm.fit_part(Tables(tmp_path), part, dtype)
    assert fitted.rows == len(x)
    assert fitted.held_out_error is not None
    assert fitted.held_out_error < 1.06
    assert set(fitted.extra) == {"held_out_decode", "held_out_prefill"}
    assert fitted.params["t0"] == pytest.approx(5, rel=0.15)
    assert (fitted.params["act_gain"] == 4.0) == part.large_l2
    assert gemm.fit_part(Tables(tmp_path), part, "absent") == []


def test_a_part_without_dense_tables_gets_no_dense_law(tmp_path: Path) -> None:
    assert gemm.fit_part(Tables(tmp_path), a_part(), "bfloat16") == []


# -------------------------------------------------------------------------------------------- collectives and carrying
def points(ranks: int, factor: float) -> pandas.DataFrame:
    size = 2.0 ** np.arange(8, 24)
    us = factor * laws.collective({"a1": 12.0, "R1": 4e4, "a2": 40.0, "R2": 2.9e5}, 2 * size)
    return pandas.DataFrame({"backend": "vllm_graph", "num_gpus": ranks, "message_size": size, "latency": us / 1e3})


@pytest.mark.parametrize("with_h100", [True, False])
def test_the_outlying_curve_of_h200_gives_way_to_h100_s(tmp_path: Path, with_h100: bool) -> None:
    name = "comm/vllm/0.14.0/custom_allreduce_perf.parquet"
    put(tmp_path, f"h200_sxm/{name}", pandas.concat([points(4, 1.0), points(8, 3.0)]))
    put(tmp_path, f"h100_sxm/{name}", points(8 if with_h100 else 2, 1.0))
    found = {(f.law, f.key): f for f in collectives.fit_vllm(Tables(tmp_path), a_part("h200"))}
    outlier, own = found["all_reduce_curve", "0.14.0/8"], found["all_reduce_curve", "0.14.0/4"]
    assert own.method == "measured"
    if not with_h100:
        assert outlier.method == "measured"
        return
    assert outlier.method == "assumed"
    assert outlier.data == (data_path(f"h100_sxm/{name}"),)
    assert outlier.params["us"] == pytest.approx(own.params["us"])
    assert "H100's curve" in outlier.rationale


def test_a_kernel_is_carried_by_what_its_sister_does_on_both_parts() -> None:
    rates = {"bw_Bps": 1e12, "l2_B": 96e6, "peak_flops": 3.6e14}
    shape = {"w_bytes": 0.5625, "pad": 1, "pairs": "local"}
    values = {"t0": 15.0, "t_ramp": 5.0, "c_dim": 0.5, "c_tok": 1.0, "c_route": 0.5, "c_row": 1.0, "c_act": 1.0,
              "eff": 0.6, "bw_eff": 0.85, "tile0": 16.0, "l2_frac": 0.6, "l2_gain": 3.0}  # fmt: skip
    slower = {**values, "t0": 30.0, "bw_eff": 0.425}

    def fitted(key: str, part: str, params: dict[str, float]) -> Fitted:
        return Fitted("moe", key, part, {**rates, **shape, **params}, ("t",))

    have = {(f.part, "moe", f.key): f for f in (
        fitted(transfer.SISTER, "l40s", values), fitted(transfer.SISTER, "h100", slower),
        fitted(transfer.CARRIED, "l40s", {**values, "t0": 20.0}),
    )}  # fmt: skip
    parts: list[Part] = [a_part("l40s"), a_part("h100"), a_part("h200")]
    (made,) = transfer.carried(have, parts)  # neither where it is measured, nor where the sister is not
    assert (made.part, made.key, made.method) == ("h100", transfer.CARRIED, "assumed")
    assert made.params["bw_eff"] == pytest.approx(0.425, rel=0.05)
    assert made.params["t0"] > 28
    assert made.extra["scaled_by"] == f"moe {transfer.SISTER}"
    same = transfer.scales(
        have["l40s", "moe", transfer.SISTER].params, have["l40s", "moe", transfer.SISTER].params, rates
    )
    assert list(same.values()) == pytest.approx([1.0] * len(same), abs=1e-6)
    assert transfer.carried({}, parts) == []
