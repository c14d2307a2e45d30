"""Step times equal a literal transcription of the reference laws, over deployments and batches drawn at random."""

from __future__ import annotations

from typing import Any

import made_documents as made
import pytest
import random_setups
import reference_oracle as oracle
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import steppe

TOLERANCE_NS = 1.0  # the estimate is rounded to whole nanoseconds


def compare(setup: made.Setup, kernel: steppe.Kernel, step: oracle.Step) -> None:
    """Assert that the kernel's estimate is the oracle's, to a nanosecond."""
    want = oracle.price(made.deployed(setup), step)
    batch = steppe.Batch(
        [s for s, _ in step.requests],
        [c for _, c in step.requests],
        decode_threshold=step.threshold,
        sm_budget=step.sm_budget,
        pad_tokens=step.pad,
    )
    got = kernel.step_time(batch)
    wrong = {
        name: (got.per_resource[name], seconds * 1e9)
        for name, seconds in want.resource.items()
        if abs(got.per_resource[name] - seconds * 1e9) > TOLERANCE_NS + 1e-9 * abs(seconds * 1e9)
    }
    assert not wrong, wrong
    assert abs(got.no_overlap - want.total * 1e9) <= 5 * TOLERANCE_NS + 1e-9 * want.total * 1e9
    assert abs(got.overlap - want.overlap * 1e9) <= 5 * TOLERANCE_NS + 1e-9 * want.overlap * 1e9


@pytest.mark.parametrize("model", made.MODELS)
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_random_deployments(model: str, data: st.DataObject) -> None:
    setup = data.draw(random_setups.setups((model,)))
    kernel = made.kernel(setup)
    for step in data.draw(st.lists(random_setups.steps(), min_size=1, max_size=4)):
        compare(setup, kernel, step)


STEPS = [
    oracle.Step([]),
    oracle.Step([(1, 700)]),
    oracle.Step([(1, 100 * i) for i in range(1, 33)]),
    oracle.Step([(1, 4000)] * 250),
    oracle.Step([(4, 900), (4, 17)], threshold=4),
    oracle.Step([(2048, 0)]),
    oracle.Step([(512, 3000), (64, 0), (200, 100), (1, 50), (1, 5000)]),
    oracle.Step([(512, 3000), (1, 50), (1, 5000)], sm_budget=40),
]


@pytest.mark.parametrize("model", made.MODELS)
@pytest.mark.parametrize("part", made.PARTS)
@pytest.mark.parametrize("tp", [1, 4])
def test_documents_as_they_stand(model: str, part: str, tp: int) -> None:
    if part == "part-eight" and model in ("indexed", "pooled"):
        pytest.skip("no backend for sparse latent layers before capability 9.0")
    setup = made.setup(model, part, tp=tp)
    kernel = made.kernel(setup)
    for step in STEPS:
        compare(setup, kernel, step)


LAYOUTS = {
    "experts over two nodes, point to point": (
        "mixture", {"tp": 4, "dp": 4, "enable_expert_parallel": True}, {"all2all_backend": "deepep_low_latency"}),
    "experts over two nodes, gathered": ("latent", {"tp": 8, "dp": 2, "enable_expert_parallel": True}, {}),
    "experts that do not divide": ("mixture", {"tp": 8, "enable_expert_parallel": True}, {}),
    "experts cut over data parallel ranks": ("delta", {"tp": 2, "dp": 4}, {}),
    "latent experts sent": (
        "scan", {"tp": 2, "dp": 4, "enable_expert_parallel": True}, {"all2all_backend": "flashinfer_nvlink_two_sided"}),
    "tensor parallel over two nodes": ("windows", {"tp": 16}, {}),
    "context sharded": ("latent", {"tp": 8, "dcp": 4}, {"cp_kv_cache_interleave_size": 16}),
    "context sharded, one exchange": ("latent", {"tp": 8, "dcp": 8}, {"dcp_comm_backend": "a2a"}),
    "context of grouped heads sharded": ("plain", {"tp": 8, "dcp": 2}, {}),
    "prefills split": ("latent", {"tp": 4, "pcp": 2}, {}),
    "prefills split, context sharded": (
        "indexed", {"tp": 2, "pcp": 2, "dcp": 4}, {"cache_dtype": "fp8_ds_mla"}),
}  # fmt: skip


@pytest.mark.parametrize(("model", "parallel", "engine"), LAYOUTS.values(), ids=LAYOUTS)
def test_layouts(model: str, parallel: dict[str, Any], engine: dict[str, Any]) -> None:
    setup = made.setup(model, **parallel).run_with(**engine)
    if "dcp" in parallel and model == "plain":  # more ranks than key-value heads
        for node in setup.graph["layer_kinds"][0]["nodes"]:
            if node["op"] == "Attention":
                node["n_kv"] = 2
    kernel = made.kernel(setup)
    for step in STEPS:
        compare(setup, kernel, step)


@pytest.mark.parametrize(("name", "setup"), [
    ("plain", made.setup("plain", tp=2)),
    ("latent-two-nodes", made.setup("latent", tp=8, dp=2, enable_expert_parallel=True)
     .run_with(all2all_backend="deepep_low_latency")),
])  # fmt: skip
def test_documents_opened_from_files(name: str, setup: made.Setup) -> None:
    """`steppe.open` on a scenario file prices what the same documents price in memory."""
    kernel = steppe.open(
        made.DATA / "scenarios" / f"{name}.yaml", catalog=made.DATA / "catalog", registry=made.DATA / "registry"
    )
    limits = {"max_num_seqs": 128, "max_num_batched_tokens": 8192, "block_size": 16}
    for step in STEPS:
        compare(setup.run_with(**limits), kernel, step)
