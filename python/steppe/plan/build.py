"""From a resolution and its coefficients to a plan the core evaluates."""

from __future__ import annotations

from typing import Any

from steppe.engine.v0_31.graphs import capture_sizes
from steppe.plan.builder import PlanBuilder
from steppe.plan.draft import plan_drafts
from steppe.plan.experts import moe_dp_funnel
from steppe.plan.host import host_terms, refined_host_terms
from steppe.plan.reference import ReferencePlan
from steppe.plan.refined import RefinedPlan
from steppe.resolve.coefficients import Coefficients
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
    plan_drafts(r, coefficients, builder, plan)
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
