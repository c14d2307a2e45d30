"""Context parallelism: what the engine accepts of pcp and dcp, and the stripe decode caches are cut in."""

from __future__ import annotations

from steppe.engine.v0_31 import parallel as facts
from steppe.engine.v0_31 import speculation, transfer
from steppe.resolve.case import Case
from steppe.resolve.rules import refuse


def check_prefill_context(case: Case, cudagraph_mode: str) -> None:
    """Refuse a pcp the engine would not start."""
    widths, shape = case.widths, case.shape
    if widths.pcp == 1:
        return
    if widths.dp > 1:
        refuse("pcp_dp", pcp=widths.pcp, dp=widths.dp)
    if shape.recurrents:
        refuse("pcp_layers", what="recurrent layers")
    for node in shape.attentions:
        if node.kind not in ("mla", "sparse_mla"):
            refuse("pcp_layers", what=f"{node.kind} layers")
    if widths.dcp > 1 and len(shape.indexed) < len(shape.attentions):
        refuse("pcp_dcp_layers", dcp=widths.dcp, pcp=widths.pcp)
    if cudagraph_mode == "FULL":
        refuse("pcp_graph_full", pcp=widths.pcp)
    if case.spec_method and case.spec_method not in speculation.PCP_METHODS:
        refuse("pcp_speculation", pcp=widths.pcp, method=case.spec_method)
    if shape.indexed and widths.dcp == 1 and cudagraph_mode != "NONE":
        case.record.assume("pcp_sparse_graphs", cudagraph_mode)


def dcp_backend(case: Case) -> str:
    """How decode-context partials are combined, "" with dcp 1. Refuses a name the release does not have."""
    stated = case.engine.dcp_comm_backend
    if stated and stated not in facts.DCP_COMM_BACKENDS:
        refuse("dcp_backend", name=stated)
    if stated == "a2a" and case.widths.pcp > 1:
        refuse("pcp_a2a", pcp=case.widths.pcp)
    if case.widths.dcp == 1:
        return ""
    if not stated:
        case.record.assume("dcp_comm_backend", facts.DCP_COMM_BACKENDS[0])
    return stated or facts.DCP_COMM_BACKENDS[0]


def check_decode_context(case: Case) -> None:
    """Refuse a dcp the engine would not start, or one whose query projection is not priced."""
    tp, pcp, dcp = case.widths.tp, case.widths.pcp, case.widths.dcp
    if dcp == 1:
        return
    if pcp == 1 and tp % dcp:
        refuse("dcp_tp", dcp=dcp, tp=tp)
    if pcp > 1 and dcp not in (pcp, tp * pcp):
        refuse("dcp_width", dcp=dcp, pcp=pcp, full=tp * pcp)
    if case.shape.has_latent:
        if case.engine.dcp_q_replicate:
            refuse("query_replicate", dcp=dcp)
    else:
        _check_grouped_heads(case)
    if case.shape.has_window or case.shape.compressed:
        case.record.assume("window_dcp", dcp)
    if case.nixl and (dcp != max(tp, pcp) or not case.shape.has_latent):
        case.record.assume("nixl_dcp_width", dcp)


def _check_grouped_heads(case: Case) -> None:
    """The engine shards a key-value cache only over the ranks that hold copies of one head."""
    tp, dcp = case.widths.tp, case.widths.dcp
    for node in case.shape.attentions:
        queries, keys = node.n_q or 1, node.n_kv or 1
        if tp <= keys:
            refuse("dcp_kv_heads", tp=tp, kv_heads=keys)
        if dcp > tp // keys:
            refuse("dcp_too_wide", dcp=dcp, limit=tp // keys)
        if (queries // keys) % dcp:
            refuse("dcp_query_groups", group=queries // keys, dcp=dcp)


def interleave(case: Case, block_size: int) -> int:
    """Tokens of one stripe of the decode-context cache; 1 with dcp 1.

    Refuses a stripe that does not divide the block, which NIXL alone is spared (vllm/config/vllm.py:3387-3405). A
    hybrid's block is widened before the engine checks, so there the stated one proves nothing.
    """
    stated = case.engine.cp_kv_cache_interleave_size
    if case.widths.dcp == 1:
        return 1
    if stated is None:
        if transfer.MULTI in case.connectors:
            refuse("interleave_multi_connector")
        if not case.nixl:
            return 1
        if block_size != 1:
            case.record.override("cp_kv_cache_interleave_size", 1, block_size)
        return block_size
    if not case.nixl and not case.shape.recurrents and block_size % stated:
        refuse("interleave_block", interleave=stated, block=block_size)
    return stated
