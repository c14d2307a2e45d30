"""Where experts live and how many token-expert pairs reach the fullest rank.

docs/research/reference_laws.md, Experts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steppe.documents import Node
from steppe.plan.builder import HBM, TOKENS
from steppe.resolve.precision import WEIGHT_BYTES, served_dtype
from steppe.resolve.resolved import Resolution

if TYPE_CHECKING:
    from steppe.plan.reference import ReferencePlan


@dataclass(frozen=True, slots=True)
class Experts:
    """One layer's routed experts on the fullest rank."""

    physical: int  # experts of the layer, redundant copies included
    top_k: int
    n: int  # expert width
    k: int  # model width the experts see (the latent width where there is one)
    local_experts: int  # physical experts the fullest rank holds
    shards: int  # ranks that share each expert's weights
    funnel: int  # data-parallel ranks whose tokens reach this rank's experts
    pairs_per_token: float  # token-expert pairs of the fullest rank per token of this rank
    dp_slice: float  # ranks that split an expert's arithmetic beyond tensor parallelism


def moe_dp_funnel(r: Resolution) -> int:
    """Ranks whose tokens reach one rank's experts: dp, whenever the expert group is wider than one.

    COVERAGE LIMIT: the prefill-context width is left out. Under pcp each rank routes its own share of a prompt, and the
    engine gathers tokens over the whole expert group (vllm/model_executor/layers/fused_moe/runner/moe_runner.py), so
    with pcp > 1 and experts spread over it the tokens of pcp ranks meet; here only those of dp ranks are charged.
    """
    return r.widths.dp if r.widths.moe_group > 1 and r.widths.dp > 1 else 1


def lift_experts(r: Resolution, node: Node) -> Experts:
    """Place the experts of `node`.

    With expert parallelism a rank owns whole experts, the fullest one ceil((experts + redundant)/ep) of them. Without
    it every rank holds every expert, sliced over tp*dp.

    COVERAGE LIMIT: without expert parallelism and with pcp > 1 each rank is charged 1/(dp*tp) of every expert. The
    engine flattens dp, pcp and tp into one tensor group and holds 1/(dp*pcp*tp)
    (vllm/model_executor/layers/fused_moe/config.py), but then runs a reduction over the prefill-context ranks that is
    not priced.
    """
    experts, top_k, n, k = node.experts or 1, node.top_k or 1, node.n or 1, node.k or 1
    funnel = moe_dp_funnel(r)
    physical = experts + (r.settings.redundant_experts if r.widths.ep > 1 else 0)
    if r.widths.ep > 1:
        local, shards, share, dp_slice = math.ceil(physical / r.widths.ep), 1, 0.0, 1.0
        share = local / physical
    else:
        local, shards, share = experts, r.widths.tp * r.widths.dp, 1.0
        dp_slice = shards / r.widths.tp
    return Experts(
        physical=physical,
        top_k=top_k,
        n=n,
        k=node.latent_size or k,
        local_experts=local,
        shards=shards,
        funnel=funnel,
        pairs_per_token=funnel * top_k * share,
        dp_slice=dp_slice,
    )


def plan_experts(plan: ReferencePlan, node: Node) -> None:
    """Emit a layer's experts: routed ones add arithmetic and reads, shared ones are dense.

    COVERAGE LIMIT: every expert is priced as gated, with three matrices of n x k. One that is not has two, up and down
    (Nemotron-H with its squared ReLU, vllm/model_executor/models/nemotron_h.py:230-245, 703-708), so its arithmetic and
    its weight reads are over-stated by half. The graph says which experts these are (`gated: false`); the refined MoE
    law charges them two matrices.
    """
    e = lift_experts(plan.r, node)
    gemm, hbm = plan.gemm(), plan.hbm
    imbalance = plan.c.optional("moe_routing_imbalance_median", "experts are charged as if routed evenly") or 1.0
    width = WEIGHT_BYTES[served_dtype(plan.r, node)]
    flops = e.pairs_per_token * 6.0 * e.n * e.k * imbalance / e.dp_slice
    plan.matmul(node.role or "experts", gemm, flops, serial=True)
    whole = 3.0 * e.n * e.k * width / e.shards * e.local_experts / hbm
    if e.top_k >= e.physical:
        plan.b.affine("experts weights", HBM, TOKENS, 0.0, constant=whole, serial=True)
    else:
        params = {"whole": whole, "log_miss": math.log((e.physical - e.top_k) / e.physical), "funnel": e.funnel}
        plan.b.term("experts weights", "touched_experts", (TOKENS,), params, HBM, serial=True)
    if node.shared_experts:
        inner = node.shared_intermediate_size or e.n
        size = inner * (node.k or 0) * node.shared_experts
        plan.matmul("shared experts", gemm, 6.0 * size / plan.tp)
        plan.b.affine("shared experts weights", HBM, TOKENS, 0.0, constant=3.0 * size * width / plan.tp / hbm)
