"""What experts and their dispatch are charged where the engine does something else: the numbers behind the notes."""

from __future__ import annotations

from typing import Any

import pytest

import steppe
from steppe.catalog import Catalog
from steppe.documents import ModelGraph, Node
from steppe.plan.collectives import activation_bytes
from steppe.plan.experts import lift_experts, moe_dp_funnel

REFERENCE = ("h200-reference", "h200-engine")
REFINED = (*REFERENCE, "h200-refined")


def kernel(model: str = "deepseek-v3", sets: tuple[str, ...] = REFERENCE, **layout: Any) -> steppe.Kernel:
    ranks = layout.get("tp", 1) * layout.get("dp", 1) * layout.get("pcp", 1)
    more: dict[str, Any] = {"fabric": "ib-ndr-400"} if ranks > 8 else {}
    return steppe.Kernel.build(model=model, hardware="h200", coefficients=sets, **layout, **more)


def terms(k: steppe.Kernel, name: str) -> list[Any]:
    return [term for term in k._core.plan.terms if term.name == name]


def experts_of(model: str) -> tuple[ModelGraph, Node]:
    graph = Catalog().model(model)
    return graph, next(n for kind in graph.layer_kinds for n in kind.nodes if n.op == "GroupedGEMM")


def test_routed_arithmetic_is_not_divided_by_the_tensor_shards() -> None:
    """One rank's arithmetic is the whole expert's at any tp; its bytes are divided."""
    found = {tp: (terms(kernel(tp=tp), "experts")[0], terms(kernel(tp=tp), "experts weights")[0]) for tp in (1, 2, 8)}
    for tp in (2, 8):
        assert found[tp][0].params == found[1][0].params
        assert found[tp][1].params[0] == pytest.approx(found[1][1].params[0] / tp, rel=1e-12)
    # Beyond tp, data-parallel shards do divide it, and their tokens come back through the funnel.
    spread = terms(kernel(tp=4, dp=2), "experts")[0]
    assert spread.params == pytest.approx(found[1][0].params, rel=1e-12)


def test_refined_experts_take_the_sliced_width() -> None:
    place = list(steppe._core.LAWS["experts"][0]).index("inner")
    widths = [terms(kernel(sets=REFINED, tp=tp), "experts")[0].params[place] for tp in (1, 8)]
    assert widths == [2048, 256]


def test_dispatch_is_charged_sixteen_bits_a_value() -> None:
    """Whatever the weights: an FP8 model's rows are charged twice what its quantized ones weigh."""
    for model in ("deepseek-v3", "qwen3-235b-a22b", "qwen3-235b-a22b-fp8"):
        graph, _ = experts_of(model)
        kind = next(kind for kind in graph.layer_kinds if any(n.op == "GroupedGEMM" for n in kind.nodes))
        assert activation_bytes(kind.nodes, graph.globals_.hidden_size) == 2 * graph.globals_.hidden_size
    graph, node = experts_of("nemotron-3-ultra-550b-a55b")
    kind = next(kind for kind in graph.layer_kinds if node in kind.nodes)
    assert node.latent_size
    assert (
        activation_bytes(kind.nodes, graph.globals_.hidden_size)
        == 2 * node.latent_size
        < 2 * graph.globals_.hidden_size
    )


def test_the_payload_reaches_the_collective() -> None:
    """A token is charged once where rows are gathered, top-k times where they are sent point to point."""
    gathered = terms(kernel(tp=8, dp=1, enable_expert_parallel=True), "dispatch_combine")[0]
    routed = terms(
        kernel(tp=4, dp=2, enable_expert_parallel=True, all2all_backend="deepep_low_latency"), "dispatch_combine"
    )[0]
    slope = list(steppe._core.LAWS["two_piece"][0]).index("peak_slope")
    assert routed.params[slope] == pytest.approx(8 * gathered.params[slope], rel=1e-12)


def test_refined_dispatch_carries_the_quantized_row() -> None:
    """A block-FP8 row is a byte a value and a scale a 128, a 16-bit one two bytes; both with their router's output."""
    sizes = {}
    for model in ("qwen3-235b-a22b-fp8", "qwen3-235b-a22b"):
        k = kernel(model, REFINED, tp=4, dp=2, enable_expert_parallel=True)
        place = list(steppe._core.LAWS["two_protocol"][0]).index("bytes")
        sizes[model] = terms(k, "dispatch gather")[0].params[place]
    graph, node = experts_of("qwen3-235b-a22b")
    hidden, scores = graph.globals_.hidden_size, 4.0 * (node.experts or 0)
    assert sizes["qwen3-235b-a22b"] == pytest.approx(2 * hidden + scores)
    assert sizes["qwen3-235b-a22b-fp8"] == pytest.approx((1 + 4 / 128) * hidden + scores)


def test_experts_without_a_gate_are_charged_one() -> None:
    """Nemotron-H's experts hold two matrices; the reference charges three, half as much again."""
    model = "nemotron-3-nano-30b-a3b"
    _, node = experts_of(model)
    assert not node.gated
    k = kernel(model, tp=1)
    imbalance = k._coefficients.get("moe_routing_imbalance_median")
    eps, peak = k._coefficients.get("gemm_eps_max_bf16"), k.resolution.chip.tflops_peak * 1e12
    assert imbalance is not None
    assert eps is not None
    slope = terms(k, "experts")[0].params[1]
    width = node.latent_size or node.k or 0
    assert slope == pytest.approx(6.0 * (node.n or 0) * width * (node.top_k or 0) * imbalance / (peak * eps), rel=1e-9)
    matrices = list(steppe._core.LAWS["experts"][0]).index("matrices")
    assert terms(kernel(model, REFINED, tp=1), "experts")[0].params[matrices] == 2


def test_the_funnel_counts_data_parallel_ranks_only() -> None:
    resolution = kernel(tp=2, pcp=4, enable_expert_parallel=True).resolution
    assert resolution.widths.moe_group == 8
    assert moe_dp_funnel(resolution) == 1
    assert moe_dp_funnel(kernel(tp=1, dp=8, enable_expert_parallel=True).resolution) == 8
    assert moe_dp_funnel(kernel(tp=1, dp=8).resolution) == 8
    assert moe_dp_funnel(kernel(tp=8).resolution) == 1


def test_prefill_context_ranks_do_not_divide_experts() -> None:
    """Without expert parallelism a rank is charged 1/(dp*tp) of each expert, the engine holds 1/(dp*pcp*tp)."""
    _, node = experts_of("deepseek-v3")
    assert lift_experts(kernel(tp=4).resolution, node).shards == 4
    assert lift_experts(kernel(tp=4, pcp=2).resolution, node).shards == 4
    assert lift_experts(kernel(tp=4, dp=2).resolution, node).shards == 8
    spread = lift_experts(kernel(tp=4, pcp=2, enable_expert_parallel=True).resolution, node)
    assert (spread.shards, spread.local_experts) == (1, 32)
