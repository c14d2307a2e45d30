"""Recurrent mixers, expert exchanges, small kernels and prefill attention, each from a table made by its law."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from synthetic_modules import a_part, data_path, grid, timed
from synthetic_wheel import put

from steppe.calibrate import all_to_all, attention, laws, recurrent, small
from steppe.calibrate.fit import Fitted
from steppe.calibrate.tables import Tables
from steppe.calibrate.write import render

HBM = 3.35e6
TRUTH = {
    "lin": {"F": 3.0, "tn": 2e-5, "tq": 3e-6, "t2": 0.0, "v": 2.0, "C": 4e7},
    "memc": {"F": 2.5, "u": 0.7, "r": 2.0, "C": 4e7},
    "scan_ctx": {"F": 14.0, "ts": 0.02, "tc": 0.05, "tw": 5e-4, "w0": 1e-4, "v": 2.0, "C": 4e7},
    "mem": {"F": 3.5, "ts": 1e-3, "u": 0.8, "r": 2.0, "C": 4e7},
}
GEOMETRIES = [(16, 16), (16, 32), (16, 64), (8, 8), (8, 32), (4, 8), (32, 32), (12, 24)]


def rows(kernel: str, phase: str, *, sequences: list[int] | None = None) -> Any:
    prefill = phase == "context"
    x = grid(geometry=GEOMETRIES, batch_size=[1, 2, 8] if prefill else [1, 4, 16, 32, 64, 256, 1024],
             seq_len=sequences or ([1, 64, 256, 1024, 4096, 16384] if prefill else [1]))  # fmt: skip
    x["k_heads"], x["v_heads"] = [g[0] for g in x.geometry], [g[1] for g in x.geometry]
    x["channels"] = 2 * x.k_heads * 128 + x.v_heads * 128
    form = recurrent.form_of(kernel, phase)
    us = recurrent.evaluate({"form": form, "bw_Bps": HBM * 1e6, **TRUTH[form]}, recurrent.arguments(x, kernel, phase))
    x = x.rename(columns={"k_heads": "num_k_heads", "v_heads": "num_v_heads"}).drop(columns=["geometry", "channels"])
    return timed(x.assign(kernel_source=kernel, phase=phase), us)


def good(f: Fitted, bar: float = 1.06) -> None:
    assert f.train_error is not None
    assert f.held_out_error is not None
    assert f.train_error < 1.02, f.key
    assert f.held_out_error < bar, f.key
    assert f.median_ape is not None
    assert f.held_out


@pytest.fixture(scope="module")
def gdn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("gdn")
    frames = [
        rows("causal_conv1d_fn", "context"),
        rows("causal_conv1d_update", "generation"),
        rows("causal_conv1d_update", "context", sequences=[1, 64])[:40],  # a decode kernel on a few short prompts
        rows("causal_conv1d_fn_qkv3", "context"),  # host-bound
        rows("chunk_gated_delta_rule_triton", "context"),
        rows("chunk_gated_delta_rule_flashinfer", "context"),
        rows("fused_recurrent_gated_delta_rule_packed_decode", "generation"),
        rows("fused_recurrent_gated_delta_rule", "verify", sequences=[2, 4]),
        rows("chunk_gated_delta_rule_other", "generation").head(10),  # too few rows
    ]
    put(root, "h100_sxm/linear_attention/vllm/0.25.0/gdn_perf.parquet", pandas.concat(frames))
    sparse = rows("causal_conv1d_fn", "context").head(30)
    put(root, "h100_sxm/linear_attention/vllm/0.31.0/gdn_perf.parquet", sparse.assign(latency=5.0))
    return root


def test_recurrent_laws_are_recovered(gdn: Path) -> None:
    fitted = recurrent.fit_mixer(Tables(gdn), a_part(), "gdn")
    found = {f.key: f for f in fitted}
    assert set(found) == {
        "conv/gdn/context", "conv/gdn/decode", "scan/gdn/context", "scan/gdn/context/chunk_gated_delta_rule_triton",
        "scan/gdn/decode", "scan/gdn/verify",
    }  # fmt: skip
    for f in fitted:
        good(f)
        assert f.data == (data_path("h100_sxm/linear_attention/vllm/0.25.0/gdn_perf.parquet"),)  # the denser lane
    assert found["scan/gdn/context"].params["kernel"] == "chunk_gated_delta_rule_flashinfer"  # what the engine prefers
    assert found["conv/gdn/context"].params["t2"] == 0
    assert found["conv/gdn/context"].params["F"] == pytest.approx(3.0, rel=0.05)
    assert found["scan/gdn/decode"].params["F"] == pytest.approx(3.5, rel=0.05)
    assert found["scan/gdn/decode"].params["u"] == pytest.approx(0.8, rel=0.05)
    again = recurrent.fit_mixer(Tables(gdn), a_part(), "gdn")
    assert render("h100", again) == render("h100", fitted)


def test_the_convolution_of_mamba2_counts_its_own_channels(tmp_path: Path) -> None:
    x = grid(nheads=[32, 64, 128], batch_size=[1, 2, 8], seq_len=[1, 64, 256, 1024, 4096], head_dim=[64])
    x = x.assign(n_groups=8, d_state=128, d_model=4096)
    channels = x.nheads * 64 + 2 * 8 * 128
    p = {**TRUTH["lin"], "bw_Bps": HBM * 1e6}
    us = laws.conv_context(
        p, x.batch_size.to_numpy(float), (x.batch_size * x.seq_len).to_numpy(float), channels.to_numpy(float)
    )
    x = timed(x.assign(kernel_source="causal_conv1d_fn", phase="context"), us)
    put(tmp_path, "h100_sxm/linear_attention/trtllm/1.0.0/mamba2_perf.parquet", x)
    (fitted,) = recurrent.fit_mixer(Tables(tmp_path), a_part(), "mamba2")
    assert fitted.key == "conv/mamba2/context"
    good(fitted)


def test_one_geometry_is_never_held_out_whole() -> None:
    x = pandas.DataFrame({"k_heads": [8] * 12, "v_heads": [8] * 6 + [16] * 6})
    for frame in (x, x[:6]):
        tokens = np.full(len(frame), 64.0)
        geometry, size, train = recurrent.masks(frame, tokens, tokens, "context")
        assert not size.any()
        assert train.sum() >= 6
        if len(set(frame.v_heads)) == 2:
            assert 0 < geometry.sum() < len(frame)


def test_absent_tables_make_no_law(tmp_path: Path) -> None:
    tables, part = Tables(tmp_path), a_part()
    for mixer in recurrent.SOURCES:
        assert recurrent.fit_mixer(tables, part, mixer) == []
    assert all_to_all.fit_part(tables, part) == []
    assert small.fit_elementwise(tables, part) == []
    assert attention.fit_decode(tables, part) == attention.fit_prefill(tables, part) == []


def test_expert_exchanges_are_recovered(tmp_path: Path) -> None:
    truth = {"a": 60.0, "c": 2e-3, "R": 2e5}
    x = grid(comm_backend=["deepep_ht", "deepep_ll", "deepep_v2"], phase=["dispatch"], ep_size=[8], node_num=[1, 2],
             hidden_size=[3072, 6144, 7168], topk=[4, 8], num_tokens=[1, 4, 16, 64, 128, 512, 2048, 8192])  # fmt: skip
    x = x.assign(comm_dtype="fp8", num_experts=256)
    tokens, hidden, topk = (x[c].to_numpy(float) for c in ("num_tokens", "hidden_size", "topk"))
    once = (x.comm_backend == "deepep_ht").to_numpy()
    sent = np.where(once, laws.copies(topk, 8, once_a_rank=True), laws.copies(topk, 8, once_a_rank=False))
    us = laws.moe_exchange(truth, tokens, tokens * hidden * all_to_all.BYTES["fp8"] * sent)
    x = timed(x, us)
    x["latency"] *= 1e3  # this family alone stores microseconds
    few = x[x.comm_backend == "deepep_ht"].head(10).assign(phase="combine")
    put(tmp_path, "h100_sxm/comm/vllm/0.24.0/moe_a2a_perf.parquet", pandas.concat([x, few]))
    fitted = all_to_all.fit_part(Tables(tmp_path), a_part())
    assert [f.key for f in fitted] == ["deepep_ht/dispatch/fp8/8", "deepep_ll/dispatch/fp8/8"]
    for f in fitted:
        good(f)
        assert f.params["a"] == pytest.approx(60, rel=0.03)
        assert f.params["R"] == pytest.approx(2e5, rel=0.05)
    assert [f.params["once_a_rank"] for f in fitted] == [True, False]


def test_the_floor_of_small_kernels_is_recovered(tmp_path: Path) -> None:
    truth = {"F": 2.2, "hot": 3.0, "cold": 1.2, "C": 5e7, "tm": 1e-4}
    x = grid(m=[1, 16, 64, 256, 1024, 4096, 16384, 65536], k=[512, 1024, 2048, 4096, 5120, 7168, 8192, 16384])
    m, k = x.m.to_numpy(float), x.k.to_numpy(float)
    x = timed(x, small.quantiser(truth, m, 3 * m * k, HBM))
    x.loc[0, "latency"] = 0.0  # a failed point
    put(tmp_path, "h100_sxm/quantize/vllm/0.24.0/scale_matrix_perf.parquet", x)
    (fitted,) = small.fit_elementwise(Tables(tmp_path), a_part())
    assert (fitted.law, fitted.key) == ("elementwise", "default")
    good(fitted, 1.10)
    assert fitted.rows == len(x) - 1
    assert fitted.params["floor_us"] == pytest.approx(2.2, rel=0.03)
    assert fitted.params["hbm_fraction"] == pytest.approx(1 / (1 / 3.0 + 1 / 1.2), rel=0.1)


PREFILL = {"F": 9.0, "F1": 3.0, "a0": 6e-8, "a1": 6e-9, "r0": 1e-6, "r1": 2e-6, "tg": 0.01, "tn": 0.0, "tc0": 1e-3,
           "tc1": 5e-5, "rk": 2e-6, "v": 2.0, "C": 5e7}  # fmt: skip


def test_prefill_attention_is_recovered(tmp_path: Path) -> None:
    heads = [
        (32, 8, 128),
        (16, 4, 128),
        (8, 8, 128),
        (64, 8, 64),
        (28, 4, 128),
        (40, 8, 128),
        (16, 2, 256),
        (12, 4, 64),
    ]
    x = grid(head=heads, batch_size=[1, 4, 16], window_size=[0, 1024],
             isl=[1, 64, 256, 1024, 1536, 4096, 8192, 16384])  # fmt: skip
    for i, name in enumerate(("num_heads", "num_key_value_heads", "head_dim")):
        x[name] = [h[i] for h in x["head"]]
    x = x.drop(columns=["head"]).assign(kv_cache_dtype="bfloat16", kernel_source="vllm_flash_attn_fa3")
    us = laws.attention_prefill({**PREFILL, "bw_Bps": HBM * 1e6}, **attention.prefill_args(x))
    x = timed(x, us)
    misnamed = x[x.isl == 64].assign(kernel_source="flashinfer_decode")
    put(tmp_path, "h100_sxm/attention/vllm/0.25.0/context_attention_perf.parquet", pandas.concat([x, misnamed]))
    fitted = attention.fit_prefill(Tables(tmp_path), a_part())
    assert [f.key for f in fitted] == ["fa3/bfloat16/full", "fa3/bfloat16/swa"]
    for f in fitted:
        good(f)
        assert f.rows == 8 * 3 * 7  # one-token prompts are decodes
        assert f.params["tn"] == 0
    no_windows = x[x.window_size == 0].drop(columns=["window_size"])
    put(tmp_path, "h100_sxm/attention/vllm/0.25.0/context_attention_perf.parquet", no_windows)
    (alone,) = attention.fit_prefill(Tables(tmp_path), a_part())
    assert alone.params == fitted[0].params


@pytest.mark.parametrize(
    ("kernel", "path"),
    [("vllm_flash_attn_fa3", "fa3"), ("fa4", "fa4"), ("triton_attn", "triton"), ("flashinfer_trtllm", "trtllm"),
     ("flashinfer", "fi"), ("vllm_flash_attn", "fa2")],
)  # fmt: skip
def test_a_decode_law_is_recovered_on_every_path(tmp_path: Path, kernel: str, path: str) -> None:
    assert attention.path_of(kernel) == path
    heads = [
        (32, 8, 128),
        (16, 4, 128),
        (8, 8, 128),
        (64, 2, 64),
        (28, 4, 128),
        (40, 8, 128),
        (16, 2, 256),
        (12, 4, 64),
    ]
    x = grid(head=heads, batch_size=[1, 4, 16, 64, 256, 1024], step=[15, 255, 1023, 4095, 16383, 65535])
    for i, name in enumerate(("num_heads", "num_key_value_heads", "head_dim")):
        x[name] = [h[i] for h in x["head"]]
    x = x.drop(columns=["head"]).assign(kv_cache_dtype="fp8", kernel_source=kernel)
    full = x.assign(window_size=0, context=x.step + 1)
    args, _ = attention.decode_args(full, path)
    truth = {"F": 11.0, "F1": 2.5, "F2": 0.0, "F3": 0.0, "t0": 0.013, "t1": 8e-5, "t2": 1e-6, "tb": 0.0, "tq": 0.0,
             "u": 0.87, "r": 5e4, "S": 16.0, "C": 4e7}  # fmt: skip
    law = {**attention.decode_base(a_part(), path, "fp8", kernel), **truth}
    x = timed(x, laws.attention_decode(law, **args, warm=True))
    put(tmp_path, "h100_sxm/attention/vllm/0.25.0/generation_attention_perf.parquet", x)
    (fitted,) = attention.fit_decode(Tables(tmp_path), a_part())
    assert fitted.key == f"{path}/fp8/full"
    assert fitted.rows == (8 * 5 * 6 if path == "fa4" else 8 * 6 * 6)  # fa4 changes path at a thousand requests
    good(fitted)
    assert fitted.params["e"] == 1
    assert fitted.params["F"] == pytest.approx(11, rel=0.05)
