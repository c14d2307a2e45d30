"""From a resolution and its coefficients to a plan the core evaluates."""

from __future__ import annotations

from typing import Any

from steppe.engine.v0_31.graphs import capture_sizes
from steppe.resolve.builder import HOST, REQUESTS, SCHEDULED, US, PlanBuilder
from steppe.resolve.coefficients import Coefficients
from steppe.resolve.geometry import primary_attention
from steppe.resolve.plan_experts import moe_dp_funnel
from steppe.resolve.plan_reference import ReferencePlan
from steppe.resolve.plan_refined import RefinedPlan
from steppe.resolve.resolved import Resolution


def build_plan(r: Resolution, coefficients: Coefficients) -> Any:
    """The plan of one pool (`steppe._core.Plan`)."""
    builder = PlanBuilder()
    refined = bool(coefficients.laws("gemm"))
    plan = RefinedPlan(r, coefficients, builder) if refined else ReferencePlan(r, coefficients, builder)
    plan.emit()
    builder.open_stage("host", 1)
    if refined:
        refined_host_terms(r, coefficients, builder)
    else:
        host_terms(r, coefficients, builder, plan.kernels)
    return builder.build(
        sm_count=r.chip.sm_count,
        pcp=r.widths.pcp,
        replicate_short_chunks=r.widths.pcp > 1 and r.widths.dcp > 1,
        capture_sizes=list(graph_sizes(r)),
        pad_to_capture=refined and r.settings.cudagraph_mode != "NONE",
        funnel=moe_dp_funnel(r),
        capture_ceiling=r.settings.capture_ceiling,
        uniform_width=1 + r.settings.spec_tokens,
        max_model_len=r.settings.max_model_len or 0,
    )


def graph_sizes(r: Resolution) -> tuple[int, ...]:
    """Token counts the deployment captures graphs at."""
    s = r.settings
    return capture_sizes(
        s.capture_ceiling,
        s.max_num_batched_tokens,
        s.max_num_seqs,
        1 + s.spec_tokens,
        r.compute_capability[0],
        stated=bool(r.pool.engine.max_cudagraph_capture_size),
    )


def piecewise_splits(r: Resolution) -> int:
    """Places where a piecewise graph leaves the graph: one a layer, one more for a sparse layer's index scorer."""
    kinds = {kind.id: kind for kind in r.graph.layer_kinds}
    splits = 0
    for name, layers in r.graph.stack.counts().items():
        primary = primary_attention(kinds[name])
        scorers = sum(1 for node in kinds[name].nodes if node.op == "Attention" and node is not primary)
        extra = 1 if primary is not None and primary.kind == "sparse_mla" and scorers else 0
        splits += layers * (1 + extra)
    return splits


def host_terms(r: Resolution, c: Coefficients, b: PlanBuilder, kernels: float) -> None:
    """Host time by graph mode (laws.md 9): a replay, a replay a piece, or eager launches; plus launches a kernel."""
    without = "host time is not charged"
    replay = (c.optional("host_replay_graph_per_step", without) or 0.0) * US
    eager = (c.optional("host_launch_eager_per_layer", without) or 0.0) * US * r.graph.stack.layers
    per_kernel = (c.optional("host_launch_per_kernel", without) or 0.0) * US
    cost = {"FULL": replay, "PIECEWISE": replay * (piecewise_splits(r) + 1), "NONE": eager}
    uniform, mixed = {
        "NONE": ("NONE", "NONE"),
        "PIECEWISE": ("PIECEWISE", "PIECEWISE"),
        "FULL": ("FULL", "FULL"),
        "FULL_DECODE_ONLY": ("FULL", "NONE"),
        "FULL_AND_PIECEWISE": ("FULL", "PIECEWISE"),
    }[r.settings.cudagraph_mode]
    params = {
        "uniform_decode": cost[uniform],
        "mixed": cost[mixed],
        "eager": eager,
        "kernels": kernels * per_kernel,
        "ceiling": float(r.settings.capture_ceiling),
    }
    b.term("launches", "host_launch", (SCHEDULED,), params, HOST)


SYNCHRONOUS_STEP_US, SYNCHRONOUS_REQUEST_US = (
    1000.0,
    36.0,
)  # engine 0.12 without asynchronous scheduling (composition.md 6)


def refined_host_terms(r: Resolution, c: Coefficients, b: PlanBuilder) -> None:
    """Host time beside refined laws: none with asynchronous scheduling, else so much a step and a request."""
    if r.settings.synchronous_host:
        c.assume("synchronous_host", SYNCHRONOUS_STEP_US, "1 ms a step and 36 us a request, as engine 0.12 shows")
        slope, constant = SYNCHRONOUS_REQUEST_US * US, SYNCHRONOUS_STEP_US * US
        b.affine("synchronous host", HOST, REQUESTS, slope, constant=constant)
