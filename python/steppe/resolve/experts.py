"""Experts: expert parallelism, load balancing, and the all-to-all backend."""

from __future__ import annotations

from steppe.engine.v0_31 import parallel as facts
from steppe.resolve.case import Case
from steppe.resolve.rules import refuse


def redundant_experts(case: Case) -> int:
    """Extra physical experts of the load balancer. Refuses what the engine would not place."""
    eplb, widths = case.engine.eplb, case.widths
    redundant = eplb.num_redundant_experts if eplb else 0
    if case.parallel.enable_expert_parallel and not case.shape.experts:
        refuse("ep_dense")
    if eplb and eplb.enable_eplb:
        if widths.ep == 1:
            refuse("eplb_without_ep")
        for node in case.shape.experts:
            if ((node.experts or 0) + redundant) % widths.ep:
                refuse("eplb_uneven", experts=node.experts, redundant=redundant, ep=widths.ep)
    elif redundant:
        refuse("redundant_without_eplb", redundant=redundant)
    if case.shape.experts and widths.ep > case.shape.expert_count + redundant:
        refuse("ep_width", ep=widths.ep, experts=case.shape.expert_count + redundant)
    return redundant


def check_expert_slices(case: Case) -> None:
    """Without expert parallelism every expert is cut over all ranks of the stage."""
    widths = case.widths
    if widths.ep > 1:
        return
    shards = widths.dp * widths.pcp * widths.tp
    for node in case.shape.experts:
        if (node.n or 0) % shards:
            refuse("experts_tp", inner=node.n, shards=shards)


def all2all_backend(case: Case) -> str:
    """The all-to-all backend the engine runs; "" where the expert group is one rank."""
    stated = case.engine.all2all_backend
    if stated and stated not in facts.ALL2ALL_BACKENDS:
        refuse("all2all_unknown", name=stated, known=", ".join(facts.ALL2ALL_BACKENDS))
    if not case.shape.experts or case.widths.moe_group == 1:
        return ""
    if not stated:
        case.record.assume("all2all_backend", facts.DEFAULT_ALL2ALL, why="the engine's default")
        return facts.DEFAULT_ALL2ALL
    if stated in facts.REMOVED_ALL2ALL:
        case.record.assume("all2all_backend", facts.DEFAULT_ALL2ALL, why=f"'{stated}' was removed and falls back to it")
        return facts.DEFAULT_ALL2ALL
    if stated in facts.ALL2ALL_ALIASES:
        name = facts.ALL2ALL_ALIASES[stated]
        case.record.assume("all2all_backend", name, why=f"'{stated}' is an alias of it")
        return name
    return stated


def sequence_parallel_moe(case: Case, backend: str) -> bool:
    """Whether experts take tokens split over tp (vllm/config/parallel.py:718-735)."""
    widths = case.widths
    return backend in facts.SEQUENCE_PARALLEL_ALL2ALL and widths.ep > 1 and widths.tp > 1 and widths.dp > 1


def note_ungraphed_all2all(case: Case, backend: str, cudagraph_mode: str) -> None:
    """Record an all-to-all under which the release would turn CUDA graphs off."""
    if backend in facts.UNGRAPHED_ALL2ALL and case.widths.dp > 1 and cudagraph_mode != "NONE":
        case.record.assume("deepep_high_throughput_graphs", cudagraph_mode)
