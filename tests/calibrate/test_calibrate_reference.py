"""The reference laws: ramps, floors and rates come back from tables made with them, and the set repeats."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import yaml
from synthetic_modules import a_part, grid, timed
from synthetic_wheel import put

from steppe.calibrate import reference
from steppe.calibrate.parts import SYSTEMS
from steppe.calibrate.tables import Tables

DESCRIPTOR = """\
gpu:
  mem_bw: 3350000000000
  bfloat16_tc_flops: 989000000000000
  fp8_tc_flops: 1978000000000000
"""
HBM, PEAK = 3.35e6, {"bfloat16": 9.89e8, "fp8": 1.978e9}
EPS, HALF = 0.72, 90.0
FLOOR, RATE = 9.0, 1.4e6
SCALE = 0.6


def gemm_table() -> Any:
    frames = []
    for dtype, width in (("bfloat16", 2.0), ("fp8", 1.0)):
        x = grid(m=[1, 16, 64, 128, 512, 2048, 8192], n=[256, 1024, 4096, 8192], k=[512, 1024, 2048, 4096, 8192, 16384])
        m, n, k = (x[c].to_numpy(float) for c in "mnk")
        work = 2 * m * n * k / (PEAK[dtype] * EPS * m / (m + HALF))
        us = np.maximum(work, width * n * k / (reference.HBM_DERATE * HBM))
        frames.append(timed(x.assign(gemm_dtype=dtype), us))
    return pandas.concat(frames)


def decode_table(rate: float = RATE) -> Any:
    x = grid(num_key_value_heads=[2, 8], head_dim=[64, 128, 512], batch_size=[1, 16, 128], window_size=[0, 512],
             kv_cache_dtype=["bfloat16", "fp8"], step=[15, 255, 1023, 4095, 16383, 65535])  # fmt: skip
    context = x.step.to_numpy(float) + 1
    window = x.window_size.to_numpy(float)
    read = np.where(window > 0, np.minimum(context, window), context)
    size = x.batch_size * x.num_key_value_heads * x.head_dim * np.where(x.kv_cache_dtype == "fp8", 2, 4)
    us = FLOOR + size.to_numpy(float) * read / rate
    return timed(x, np.where(x.head_dim >= 512, 1e5, us))  # wide heads run elsewhere and must not count


def prefill_table() -> Any:
    x = grid(num_heads=[8, 32], head_dim=[64, 128], batch_size=[1, 4], window_size=[0, 512],
             isl=[64, 256, 1024, 2048, 4096, 8192, 16384], kernel_source=["fa3", "fi_decode"])  # fmt: skip
    q, w, b, n, d = (x[c].to_numpy(float) for c in ("isl", "window_size", "batch_size", "num_heads", "head_dim"))
    pairs = np.where((w > 0) & (q > w), w * w / 2 + (q - w) * w, q * q / 2)
    us = 14 + 4 * n * d * b * pairs / (PEAK["bfloat16"] * EPS * b * q / (b * q + HALF) * SCALE)
    return timed(x, np.where(x.kernel_source == "fa3", us, 1e5))


def curve(op: str, ranks: int, **more: Any) -> Any:
    size = 2.0 ** np.arange(7, 28)
    us = np.maximum(20 + 2 * size / 1e5, 2 * size / 3e5)
    return timed(pandas.DataFrame({"op_name": op, "num_gpus": ranks, "message_size": size, **more}), us)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("reference")
    put(root, "h100_sxm/gemm/vllm/0.25.0/gemm_perf.parquet", gemm_table())
    (root / SYSTEMS / "h100_sxm.yaml").write_text(DESCRIPTOR)
    put(root, "h100_sxm/attention/vllm/0.25.0/generation_attention_perf.parquet", decode_table())
    put(root, "h100_sxm/attention/vllm/0.25.0/context_attention_perf.parquet", prefill_table())
    nccl = pandas.concat([curve(op, 8, nccl_dtype="half") for op in ("all_reduce", "all_gather")])
    put(root, "h100_sxm/comm/nccl/2.29.2/nccl_perf.parquet", nccl)
    put(root, "h100_sxm/comm/nccl/2.30.7/nccl_perf.parquet", nccl.assign(latency=99.0))  # the eager lane: skipped
    own = curve("all_reduce", 8, backend="vllm_graph").drop(columns=["op_name"])
    own["latency"] *= 0.5
    eager = own.assign(backend="vllm_eager", latency=50.0)
    put(root, "h100_sxm/comm/vllm/0.31.0/custom_allreduce_perf.parquet", pandas.concat([own, eager]))
    return root


def entries(data: Path) -> dict[str, dict[str, Any]]:
    document = yaml.safe_load(reference.reference_set(a_part(), Tables(data)))
    assert document["kind"] == "CoefficientSet"
    assert document["name"] == "h100-reference"
    found: dict[str, dict[str, Any]] = {}
    for item in document["coefficients"]:
        found |= item
    return found


def test_every_reference_law_is_recovered(data: Path) -> None:
    found = {name: e["value"] for name, e in entries(data).items()}
    for suffix in ("bf16", "fp8"):
        assert found[f"gemm_eps_max_{suffix}"] == pytest.approx(EPS, rel=0.02)
        assert found[f"gemm_m_half_{suffix}"] == pytest.approx(HALF, rel=0.03)
    assert "gemm_eps_max_nvfp4" not in found  # no such rows
    assert found["attention_decode_floor"] == pytest.approx(FLOOR, rel=0.02)
    assert found["attention_decode_rate"] == pytest.approx(RATE, rel=0.03)
    assert found["attention_decode_floor_swa"] == pytest.approx(FLOOR, rel=0.02)
    assert found["attention_prefill_floor"] == pytest.approx(14, rel=0.03)
    assert found["attention_prefill_work_scale"] == pytest.approx(SCALE, rel=0.03)
    assert found["collective_floor_all_gather_fp16_8rank_h100"] == pytest.approx(20, rel=0.05)
    assert found["collective_peak_rate_all_gather_fp16_8rank_h100"] <= 3.2e5


def test_the_engine_s_own_all_reduce_is_preferred(data: Path) -> None:
    found = entries(data)
    own = found["collective_floor_all_reduce_fp16_8rank_h100"]
    assert own["value"] == pytest.approx(10, rel=0.05)  # half of NCCL's, and nothing of the eager rows
    assert "custom_allreduce_perf" in own["sources"][0]["cite"]
    other = found["collective_floor_all_gather_fp16_8rank_h100"]
    assert "2.29.2/nccl_perf" in other["sources"][0]["cite"]


def test_every_entry_carries_its_origin(data: Path) -> None:
    for name, entry in entries(data).items():
        assert entry["method"] == "measured", name
        assert entry["fitted"] is True
        assert entry["scope"] == {"hardware": ["h100"]}
        assert entry["value"] > 0
        error = float(entry["rationale"].rsplit(" ", 1)[1].rstrip("."))
        assert 1.0 <= error < 1.1, name


def test_the_command_writes_the_same_set_twice(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = []
    for folder in ("a", "b"):
        out = tmp_path / folder
        out.mkdir()
        monkeypatch.setattr(sys, "argv", ["reference", "--data", str(data), "--out", str(out), "h100"])
        reference.main()
        texts.append((out / "h100-reference.yaml").read_bytes())
    assert texts[0] == texts[1]
    count = texts[0].count(b"value:")
    assert capsys.readouterr().out == f"h100 {count} entries\n" * 2
    assert not list(tmp_path.glob("*/*l40s*"))


def test_held_out_rows_do_not_reach_the_error_s_fit(data: Path) -> None:
    frame = pandas.DataFrame({"us": [10.0, 10.0, 10.0, 40.0]})
    held = np.array([False, False, False, True])
    found, error = reference._fit(lambda p, f: np.full(len(f), p["a"]), {"a": (5.0, 1.0, 100.0)}, frame, held)
    assert error == pytest.approx(4.0, rel=1e-3)  # the blind fit says 10 where 40 was measured
    assert found["a"] > 10.01
    assert np.isnan(reference.geometric(np.array([]), np.array([])))


def test_an_older_table_without_windows_and_gb200_s_rack(tmp_path: Path) -> None:
    older = decode_table()
    older = older[older.window_size == 0].drop(columns=["window_size"])
    put(tmp_path, "gb200/attention/vllm/0.25.0/generation_attention_perf.parquet", older)
    part, tables = a_part("gb200-nvl72"), Tables(tmp_path)
    names = [e.name for e in reference.decode(part, tables)]
    assert names == ["attention_decode_floor", "attention_decode_rate"]  # no windowed rows, no windowed law
    put(tmp_path, "gb200/comm/nccl/2.27.3/nccl_perf.parquet", curve("all_gather", 4, nccl_dtype="half"))
    rack = pandas.concat([curve("all_gather", n, nccl_dtype="half") for n in (4, 16)])
    put(tmp_path, "gb200/comm/nccl/2.23/nccl_perf.parquet", rack)
    found = [(ranks, path.split("/")[-2]) for _, ranks, _, path in reference._curves(part, tables)]
    assert found == [(4, "2.27.3"), (16, "2.23")]
    assert {e.name for e in reference.collectives(part, tables)} == {
        f"collective_{k}_all_gather_fp16_{n}rank_gb200_nvl72"
        for k in ("floor", "peak_rate", "transition_rate")
        for n in (4, 16)
    }


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gemm_perf\.parquet"):
        reference.reference_set(a_part(), Tables(tmp_path))
