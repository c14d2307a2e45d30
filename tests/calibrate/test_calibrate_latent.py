"""Latent and selected-key attention: modules made from known laws are predicted where the fit had not looked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_modules import a_part, data_path, grid, timed
from synthetic_wheel import put

from steppe.calibrate import laws, mla, sparse
from steppe.calibrate.tables import Tables
from steppe.calibrate.write import render

PROJECTION = {"F": 45.0, "w1": 0.4, "c0": 0.02, "c1": 0.004}
DECODE = {"F1": 6.0, "L1": 700.0, "k0": 2e-5, "k1": 2e-6, "u": 0.85, "r": 6e4, "S": 32.0, "C": 4e7}
CONTEXT = {"F1": 6.0, "al": 1.1e-6, "ts": 0.02, "tc": 0.006}
SPARSE = {"k0": 3e-5, "k1": 2e-6, "kc": 2e-3, "ts": 0.2, "F1": 0.0, "Fi": 15.0, "i0": 0.01, "i1": 2e-5, "i2": 2e-5}
HEADS = [4, 8, 16, 24, 32, 64, 128]


def projected(*dtypes: str) -> dict[str, float]:
    return {f"{n}_{t}": v * (1 + i / 4) for i, t in enumerate(dtypes) for n, v in PROJECTION.items()}


def mla_decode_table() -> Any:
    x = grid(gemm_type=["bfloat16", "fp8_block"], num_heads=HEADS, batch_size=[1, 8, 64, 256],
             step=[16, 256, 1024, 4096, 16384, 65536])  # fmt: skip
    b, s, h = (x[c].to_numpy(float) for c in ("batch_size", "step", "num_heads"))
    p = {**DECODE, **projected("bfloat16", "fp8_block"), "sms": 132, "bw_Bps": 3.35e12, "e": 1}
    us = laws.mla_decode(p, b, b * s, s, h, warm=True)
    us = us + mla.projections(p, x.gemm_type.to_numpy(), ["bfloat16", "fp8_block"], b, h)
    return timed(x.assign(kernel_source="FLASHMLA", kv_cache_dtype="fp8"), us)


def mla_context_table() -> Any:
    x = grid(
        num_heads=HEADS, batch_size=[1, 2, 4, 8, 16, 32], isl=[1, 64, 256, 512, 1024, 2048, 4096, 8192, 12288, 16384]
    )
    b, q, h = (x[c].to_numpy(float) for c in ("batch_size", "isl", "num_heads"))
    p = {**CONTEXT, **projected("bfloat16")}
    us = laws.mla_context(p, b, b * q * q / 2, q, h) + laws.projection(p, "bfloat16", b * q, h)
    x = x.assign(
        kernel_source="FLASH_ATTN", mla_dtype="bfloat16", kv_cache_dtype="bfloat16", step=0, gemm_type="bfloat16"
    )
    return timed(x, us)


def sparse_table(family: str, model: str, topk: int, *, decode: bool) -> Any:
    steps = [1, 128, 1023, 4095, 16383, 65535] if decode else [0, 4096]
    isl = [1] if decode else [1, 128, 512, 1024, 2048, 4096, 8192, 16384]
    x = grid(op_name=["dsa", "dsa_skip_indexer"] if family == "dsa" else [family], num_heads=[8, 16, 32, 64],
             batch_size=[1, 4, 16, 64, 256] if decode else [1, 2, 4], isl=isl, step=steps)  # fmt: skip
    x = x.assign(
        model=model, kernel_source="KERNEL", mla_dtype="bfloat16", kv_cache_dtype="bfloat16", gemm_type="fp8_block"
    )
    a = sparse.arguments(family, x, topk, decode=decode)
    p = {**SPARSE, **projected("fp8_block"), "topk": topk}
    if family == "hca":
        p["F1"] = 3.0
    us = sparse.evaluate(p, a, x.gemm_type.to_numpy(), ["fp8_block"], decode=decode)
    return timed(x if family != "msa" else x.drop(columns=["model", "op_name"]), us)


def test_latent_decode_is_recovered(tmp_path: Path) -> None:
    put(tmp_path, "h100_sxm/mla/vllm/0.25.0/mla_generation_module_perf.parquet", mla_decode_table())
    (fitted,) = mla.fit_decode(Tables(tmp_path), a_part())
    assert fitted.key == "FLASHMLA/fp8"
    assert fitted.params["e"] == 1
    assert fitted.train_error is not None
    assert fitted.held_out_error is not None
    assert fitted.train_error < 1.02
    assert fitted.held_out_error < 1.05
    assert set(fitted.extra) == {"held_out_heads", "held_out_range"}
    assert fitted.held_out == mla.HELD
    assert fitted.data == (data_path("h100_sxm/mla/vllm/0.25.0/mla_generation_module_perf.parquet"),)
    assert fitted.params["F_bfloat16"] == pytest.approx(45, rel=0.1)
    assert fitted.params["F_fp8_block"] == pytest.approx(45 * 1.25, rel=0.1)


def test_latent_prefill_is_recovered_and_repeatable(tmp_path: Path) -> None:
    table = mla_context_table()
    short = table.head(100).assign(kernel_source="TOO_FEW_ROWS")
    small = table.assign(kernel_source="FLASHMLA")  # short prompts of the decode backend
    import pandas

    put(tmp_path, "h100_sxm/mla/vllm/0.25.0/mla_context_module_perf.parquet", pandas.concat([table, short, small]))
    one, two = (mla.fit_context(Tables(tmp_path), a_part()) for _ in "12")
    assert render("h100", one) == render("h100", two)
    assert [f.key for f in one] == ["FLASH_ATTN/bfloat16"]
    assert one[0].rows == len(table)
    assert one[0].held_out_error is not None
    assert one[0].held_out_error < 1.05
    assert one[0].params["al"] == pytest.approx(CONTEXT["al"], rel=0.05)


def test_no_module_table_no_law(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    assert mla.fit_decode(tables, a_part()) == mla.fit_context(tables, a_part()) == []
    for family in ("dsa", "msa", "csa", "hca"):
        assert sparse.fit_family(tables, a_part(), family, decode=True) == []


@pytest.mark.parametrize(
    ("family", "model", "topk", "decode", "keys"),
    [
        ("dsa", "zai-org/GLM-5.2", 2048, True, ["dsa/KERNEL/bfloat16", "dsa/KERNEL/bfloat16/hidden6144"]),
        ("dsa", "deepseek-ai/DeepSeek-V3.2", 2048, False, ["dsa/KERNEL/bfloat16/hidden7168"]),
        ("msa", "", 2048, True, ["msa/KERNEL/bfloat16"]),
        ("hca", "x/DeepSeek-V4-Pro", 1024, False, ["hca/KERNEL/bfloat16/hidden7168"]),
        ("csa", "x/DeepSeek-V4-Flash", 512, False,
         [f"csa/KERNEL/bfloat16{r}{h}" for r in ("", "/ranked") for h in ("", "/hidden4096")]),
    ],
)  # fmt: skip
def test_selected_attention_is_recovered(
    tmp_path: Path, family: str, model: str, topk: int, decode: bool, keys: list[str]
) -> None:
    folder, prefix = sparse.TABLE[family]
    name = f"{prefix}_{'generation' if decode else 'context'}_module_perf.parquet"
    put(tmp_path, f"h100_sxm/{folder}/vllm/0.25.0/{name}", sparse_table(family, model, topk, decode=decode))
    fitted = sparse.fit_family(Tables(tmp_path), a_part(), family, decode=decode)
    assert [f.key for f in fitted] == keys
    for f in fitted:
        assert f.law == ("sparse_decode" if decode else "sparse_context")
        assert f.params["topk"] == topk
        assert f.train_error is not None
        assert f.held_out_error is not None
        assert f.train_error < 1.03
        assert f.held_out_error < 1.08
        assert ("j1" in f.params) == ("ranked" in f.key)
        if decode:
            assert f.params["ts"] == 0  # a term of prefill only
        if family == "hca":
            assert f.params["Fi"] == f.params["i1"] == 0  # no indexer
        else:
            assert f.params["F1"] == 0


def test_a_model_nobody_described_has_no_module() -> None:
    assert sparse.module_of("dsa", "org/GLM-5.2-Air") == sparse.MODULES["dsa", "GLM-5.2"]
    assert sparse.module_of("dsa", "org/Other") is None
    assert sparse.module_of("msa", "anything") == sparse.MODULES["msa", ""]


def test_the_indexer_adds_time_to_the_rows_that_have_it() -> None:
    table = sparse_table("dsa", "zai-org/GLM-5.2", 2048, decode=True)
    with_it = table[table.op_name == "dsa"].latency.to_numpy()
    without = table[table.op_name != "dsa"].latency.to_numpy()
    assert (np.log(with_it / without) > 0.05).mean() > 0.9
