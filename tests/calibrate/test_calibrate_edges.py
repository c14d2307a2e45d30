"""Edges of the fits: tables too small for a law, symmetric optima, padded shapes, a job run by itself."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas
import pytest
from synthetic_modules import a_part, grid, timed
from synthetic_wheel import DESCRIPTOR, put

from steppe.calibrate import all_to_all, collectives, laws, moe, routing, sparse
from steppe.calibrate.fit import Params
from steppe.calibrate.parts import SYSTEMS, load_part
from steppe.calibrate.run import THREADS, Job, _workers, execute
from steppe.calibrate.tables import Tables


def test_the_low_latency_protocol_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 2.0 ** np.arange(8, 24)
    truth = {"a1": 12.0, "R1": 4e4, "a2": 40.0, "R2": 2.9e5}
    us = laws.collective(truth, size)
    swapped: Params = {"a1": 40.0, "R1": 2.9e5, "a2": 12.0, "R2": 4e4}  # the same curve, the other way round
    assert laws.collective(swapped, size) == pytest.approx(us)
    monkeypatch.setattr(collectives, "robust_fit", lambda *_, **__: swapped)
    assert collectives.fit_curve(size, us) == truth


def test_too_few_rows_make_no_law(tmp_path: Path) -> None:
    part, tables = a_part(), Tables(tmp_path)
    far = grid(hidden_size=[6144], topk=[4, 8], num_tokens=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
    far = far.assign(comm_backend="deepep_ht", phase="dispatch", comm_dtype="fp8", ep_size=8, node_num=1, num_experts=8)
    put(tmp_path, "h100_sxm/comm/vllm/0.24.0/moe_a2a_perf.parquet", far.assign(latency=50.0))
    assert all_to_all.fit_part(tables, part) == []  # every row is held out
    module = grid(num_heads=[8, 16], batch_size=[1, 4], step=[15, 255, 4095], isl=[1])
    module = module.assign(kernel_source="K", mla_dtype="bfloat16", kv_cache_dtype="fp8", gemm_type="fp8", latency=0.1)
    put(tmp_path, "h100_sxm/msa/vllm/0.25.0/msa_generation_module_perf.parquet", module)
    assert sparse.fit_family(tables, part, "msa", decode=True) == []


@pytest.mark.parametrize(("given", "built"), [((2880, 2880), (3072, 2944)), ((2800, 2700), (2816, 2816))])
def test_padded_experts_cost_what_the_padded_shape_costs(given: tuple[int, int], built: tuple[int, int]) -> None:
    p = {"t0": 14.0, "t_ramp": 5.0, "c_dim": 0.5, "c_tok": 1.0, "c_route": 0.5, "c_row": 1.0, "c_act": 1.0,
         "eff": 0.6, "bw_eff": 0.85, "tile0": 16.0, "bw_Bps": 8e12, "l2_B": 1e8, "peak_flops": 4e15,
         "w_bytes": 0.53125, "pairs": "local", "pad": 128}  # fmt: skip
    padded = laws.moe({**p, "pad_hidden": 256}, 64, *given, 4, 128, 3, 256, 100)
    by_hand = laws.moe({**p, "pad": 1}, 64, *built, 4, 128, 3, 256, 100)
    assert float(padded) == pytest.approx(float(by_hand), rel=1e-12)
    assert float(padded) > float(laws.moe(p, 64, *given, 4, 128, 3, 256, 100))


def test_a_small_kernel_is_its_floor_and_its_bytes() -> None:
    p = {"floor_us": 2.0, "hbm_fraction": 0.5, "bw_Bps": 2e12}
    assert laws.elementwise(p, [0, 1e6]).tolist() == [2.0, 3.0]


def test_a_job_of_experts_runs_by_itself(tmp_path: Path) -> None:
    """MXFP4 experts on Blackwell: the hidden size of the weights is padded, and the set says so."""
    (kernel,) = (k for k in moe.BLACKWELL if k.pad_hidden > 1)
    x = grid(num_tokens=[1, 4, 16, 64, 256, 1024, 4096], hidden_size=[2048, 4096], inter_size=[1024, 2048], topk=[4],
             num_experts=[32, 128], moe_tp_size=[1], moe_ep_size=[1, 2, 4],
             distribution=["balanced", "power_law_1.2"])  # fmt: skip
    x = x.assign(moe_dtype=kernel.dtype, kernel_source=f"vllm_{kernel.name}")
    us = 12 + 0.02 * x.num_tokens + 1e-6 * x.hidden_size * x.inter_size * np.minimum(x.num_tokens, 16) / x.moe_ep_size
    put(tmp_path, "b200_sxm/moe/vllm/0.25.0/moe_perf.parquet", timed(x, us))
    (tmp_path / SYSTEMS / "b200_sxm.yaml").write_text(DESCRIPTOR)
    keys = moe.routing_keys(Tables(tmp_path), [load_part(tmp_path, "b200")])
    assert len(keys) == 7 * 2 * 3 * 2
    (fitted,) = execute(tmp_path, Job("moe", "b200", kernel), routing.emulate_many(keys))
    assert fitted.key == kernel.key
    assert fitted.params["pad_hidden"] == 256
    assert fitted.params["c_loc"] > 0  # its cost grows with the local experts
    assert fitted.held_out == "whole geometries (8), 5 folds"
    assert execute(tmp_path, Job("moe", "b200", moe.HOPPER[0]), routing.emulate_many(keys)) == []


def test_workers_leave_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(THREADS[0], "7")
    monkeypatch.delenv(THREADS[1], raising=False)
    with _workers(1):
        assert [os.environ[name] for name in THREADS] == ["1"] * 3
    assert os.environ[THREADS[0]] == "7"
    assert THREADS[1] not in os.environ


def test_rows_of_two_kernels_stay_apart(tmp_path: Path) -> None:
    x = grid(num_heads=[8, 16, 32, 64, 128], batch_size=[1, 2, 4], isl=[64, 256, 1024, 4096], step=[0, 1024])
    x = x.assign(op_name="dsa", model="zai-org/GLM-5.2", kernel_source="FLASHMLA_SPARSE", mla_dtype="bfloat16",
                 kv_cache_dtype="fp8", gemm_type="fp8", latency=0.1)  # fmt: skip
    one_token = x.head(6).assign(isl=1)
    put(
        tmp_path, "h100_sxm/sparse_attention/vllm/0.25.0/dsa_context_module_perf.parquet", pandas.concat([x, one_token])
    )
    found = sparse.load(Tables(tmp_path), a_part(), "dsa", decode=False)
    assert found is not None
    d = found[1]
    assert len(d) == len(x)  # one-token prompts take the decode kernels
    assert set(d[d.heads_class == "h<32"].num_heads) == {8, 16}
    assert set(d[d.heads_class == ""].num_heads) == {32, 64, 128}
