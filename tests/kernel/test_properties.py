"""What holds of every estimate whatever the deployment: sums, bounds, monotony, and what a price may not depend on."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steppe
from steppe import Batch

RESOURCES = ("sm", "hbm", "nvlink", "nic", "host")
# One of every family, priced by the sets the package ships: refined laws where a part has them.
DEPLOYMENTS: dict[str, dict[str, Any]] = {
    "dense": {"model": "llama-3.1-8b-instruct", "hardware": "h100"},
    "dense fp8": {"model": "llama-3.1-70b-instruct-fp8", "hardware": "b200", "tp": 4},
    "windows": {"model": "gpt-oss-120b", "hardware": "h200", "tp": 2},
    "experts": {"model": "minimax-m2.5", "hardware": "h200", "dp": 4, "enable_expert_parallel": True},
    "latent": {"model": "kimi-k2.5-nvfp4", "hardware": "b200", "tp": 4},
    "latent dcp": {"model": "deepseek-r1", "hardware": "h200", "tp": 8, "dcp": 8},
    "sparse": {"model": "deepseek-v3.2", "hardware": "h200", "tp": 8},
    "hybrid": {"model": "qwen3-next-80b-a3b-instruct", "hardware": "h200", "tp": 4},
    "mamba": {"model": "nemotron-3-nano-30b-a3b", "hardware": "h100"},
    "reference": {
        "model": "llama-3.1-8b-instruct",
        "hardware": "a100-sxm",
        "coefficients": ["a100-sxm-reference", "a100-sxm-engine"],
    },
}


@cache
def build(name: str) -> steppe.Kernel:
    return steppe.Kernel.build(**DEPLOYMENTS[name])


requests = st.lists(
    st.tuples(
        st.one_of(st.just(1), st.just(1), st.integers(0, 40), st.sampled_from((512, 2048))),
        st.one_of(st.just(0), st.integers(0, 30), st.integers(0, 9000)),
    ),
    max_size=40,
)


def batch_of(pairs: list[tuple[int, int]], **given: Any) -> Batch:
    return Batch([s for s, _ in pairs], [c for _, c in pairs], **given)


few = settings(max_examples=40, deadline=None)


def each(test: Any) -> Any:
    return pytest.mark.parametrize("deployment", DEPLOYMENTS)(test)


@each
@few
@given(requests, st.sampled_from((0, 1, 1, 8)), st.sampled_from((0, 1, 50, 1000)), st.sampled_from((0, 0, 13)))
def test_sums_and_bounds(deployment: str, pairs: list[tuple[int, int]], threshold: int, budget: int, pad: int) -> None:
    """Whole finite numbers; terms sum to resources, resources to `no_overlap`, which bounds `overlap`."""
    kernel = build(deployment)
    batch = batch_of(pairs, decode_threshold=threshold, sm_budget=budget, pad_tokens=pad)
    e = kernel.step_time(batch)
    assert all(isinstance(value, int) and value >= 0 for value in e.per_resource.values())
    assert tuple(e.per_resource) == RESOURCES
    assert e.no_overlap == sum(e.per_resource.values())
    assert 0 <= e.overlap <= e.no_overlap < 10**13
    assert e.tokens == sum(s for s, _ in pairs)
    assert e.per_resource[e.bottleneck] == max(e.per_resource.values())
    sums = dict.fromkeys(RESOURCES, 0)
    for term in e.terms:
        sums[term.resource] += term.ns
    assert sums == e.per_resource
    assert all(np.isfinite(own) and np.isfinite(hbm) for _, _, _, own, hbm, _, _ in e.rows)


@each
@few
@given(requests, st.randoms(use_true_random=False))
def test_order_of_requests_does_not_matter(deployment: str, pairs: list[tuple[int, int]], chance: Any) -> None:
    """Requests are a set, but for the runs of context gathered under decode-context parallelism (ascending chunks)."""
    kernel, shuffled = build(deployment), list(pairs)
    chance.shuffle(shuffled)
    if deployment == "latent dcp":  # stable by chunk: requests of one chunk length keep their order
        lengths = [s for s, _ in pairs]
        order = sorted(range(len(pairs)), key=lambda i: (lengths[i] % 7, lengths[i]))
        shuffled = [pairs[i] for i in order]
    one, other = kernel.step_time(batch_of(pairs)), kernel.step_time(batch_of(shuffled))
    for resource in RESOURCES:  # prefill figures are summed as doubles, in the order given
        assert abs(one.per_resource[resource] - other.per_resource[resource]) <= 1 + 1e-12 * one.per_resource[resource]


@each
@few
@given(requests, st.lists(st.integers(0, 9000), min_size=1, max_size=5), st.integers(0, 40))
def test_requests_that_schedule_nothing_cost_nothing(
    deployment: str, pairs: list[tuple[int, int]], idle: list[int], at: int
) -> None:
    kernel = build(deployment)
    at = min(at, len(pairs))
    waiting = [(0, computed) for computed in idle]
    with_idle = kernel.step_time(batch_of([*pairs[:at], *waiting, *pairs[at:]]))
    assert with_idle.per_resource == kernel.step_time(batch_of(pairs)).per_resource


INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)


@few
@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 127)), min_size=1, max_size=30), st.sampled_from(INTEGERS)
)
def test_any_integer_array_prices_the_same(pairs: list[tuple[int, int]], dtype: Any) -> None:
    kernel = build("dense")
    scheduled, computed = [s for s, _ in pairs], [c for _, c in pairs]
    want = kernel.step_time(Batch(scheduled, computed)).per_resource
    wide = np.zeros((len(pairs), 3), dtype=dtype)
    wide[:, 1] = scheduled
    frozen = np.array(computed, dtype=dtype)
    frozen.flags.writeable = False
    forms = [
        (np.array(scheduled, dtype=dtype), frozen),
        (wide[:, 1], np.array(computed, dtype=dtype)[::-1][::-1]),
        (tuple(scheduled), computed),
        (np.array(scheduled, dtype=dtype).astype(np.dtype(dtype).newbyteorder(">")), computed),
    ]
    for first, second in forms:
        assert kernel.step_time(Batch(first, second)).per_resource == want


def test_the_batch_copies_what_it_is_given() -> None:
    scheduled, computed = np.ones(4, np.int32), np.full(4, 100, np.int32)
    batch = Batch(scheduled, computed)
    before = build("dense").step_time(batch).no_overlap
    scheduled[:], computed[:] = 500, 9000
    assert build("dense").step_time(batch).no_overlap == before
    batch.scheduled[:] = 7  # and hands out copies
    assert list(batch.scheduled) == [1, 1, 1, 1]


# -- monotony ----------------------------------------------------------------------------------------------------------
# Costs grow with work, with three stated exceptions of measured laws. A product or collective dispatches on size, so a
# larger one may take a faster kernel (the ladder of tiles, the steps of an all-reduce); a step no graph holds runs
# unpadded, and pays for row counts that are not a multiple of 4; and a request more lets a split decode kernel use more
# of the part. Comparisons stay inside one captured size and allow for the second and third by SLACK.
SLACK = 0.02


def total(deployment: str, pairs: list[tuple[int, int]]) -> int:
    return build(deployment).step_time(batch_of(pairs)).no_overlap


@each
@few
@given(st.integers(1, 64), st.integers(0, 20000), st.integers(1, 20000))
def test_longer_contexts_never_cost_less(deployment: str, count: int, context: int, more: int) -> None:
    before = total(deployment, [(1, context)] * count)
    assert total(deployment, [(1, context + more)] * count) >= before


@each
@few
@given(st.integers(1, 31), st.integers(1, 20000))
def test_more_decodes_in_one_captured_size_cost_no_less(deployment: str, step: int, context: int) -> None:
    """8n - 1 and 8n rows run the same graph: one more context to read, everything else alike."""
    rows = 8 * step
    fewer, more = (total(deployment, [(1, context)] * count) for count in (rows - 1, rows))
    assert more >= fewer * (1 - SLACK)


@each
@few
@given(st.integers(1, 60), st.integers(1, 60), st.sampled_from((0, 0, 5000)))
def test_longer_chunks_never_cost_less(deployment: str, chunk: int, more: int, past: int) -> None:
    """In multiples of 128 rows above every capture ceiling, where tiles are full and nothing is padded."""
    chunk, more = 1024 + 128 * chunk, 128 * more
    assert total(deployment, [(chunk + more, past)]) >= total(deployment, [(chunk, past)]) * (1 - SLACK)


@each
def test_an_added_prefill_costs(deployment: str) -> None:
    decodes = [(1, 1000)] * 16
    assert total(deployment, [*decodes, (2048, 0)]) > total(deployment, decodes)


@pytest.mark.parametrize("model", ["plain", "mixture"])
def test_wider_weights_cost_more_memory_time_only(model: str) -> None:
    import made_documents as made

    slim, wide = made.setup(model), made.setup(model)
    for kind in wide.graph["layer_kinds"]:
        for node in kind["nodes"]:
            if node["op"] == "GEMM":
                node["weight_dtype"] = "fp32"
    step = Batch([1] * 8, [900] * 8)
    before, after = (made.kernel(each).step_time(step).per_resource for each in (slim, wide))
    assert after["hbm"] > before["hbm"]
    assert {k: v for k, v in after.items() if k != "hbm"} == {k: v for k, v in before.items() if k != "hbm"}
