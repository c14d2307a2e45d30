"""Cache settings: dtypes, block size, prefix caching, recurrent-state modes, the hybrid cache manager."""

from __future__ import annotations

import math

from steppe.engine.v0_31 import caches as facts
from steppe.engine.v0_31 import transfer
from steppe.engine.v0_31.scheduler import GPU_MEMORY_UTILIZATION
from steppe.resolve.case import Case
from steppe.resolve.rules import refuse


def cache_dtype(case: Case) -> str:
    """The cache dtype as stated, else what the checkpoint asks for, else "auto": 16 bits.

    Refuses what no backend reads or what is not priced. What a sparse latent backend makes of it is decided with the
    backend.
    """
    dtype, own = case.engine.cache_dtype or "auto", case.graph.globals_.kv_cache_dtype
    if dtype == "auto" and own:
        case.record.assume("cache_dtype", own)
        dtype = own
    if dtype not in facts.CACHE_DTYPES:
        refuse("cache_dtype_unknown", dtype=dtype, known=", ".join(facts.CACHE_DTYPES))
    if dtype in facts.GAUDI_ONLY:
        refuse("cache_dtype_gaudi", dtype=dtype)
    if dtype in facts.SCALED_SLOTS:
        refuse("cache_scaled_slots", dtype=dtype)
    sparse = bool(case.shape.indexed or case.shape.compressed)
    if dtype in facts.DS_MLA and not sparse:
        refuse("cache_ds_mla", dtype=dtype)
    if dtype in facts.PLAIN_NVFP4 and case.shape.has_latent:
        refuse("cache_nvfp4_latent", dtype=dtype)
    return dtype


def block_size(case: Case) -> int:
    """Tokens of one cache block, as stated or as the model's layers need it.

    A hybrid's block is widened later, when the caches are laid out, so that its attention page covers a state page.
    """
    shape, stated = case.shape, case.engine.block_size
    if stated is not None:
        if shape.indexed and stated % facts.INDEXER_BLOCK:
            refuse("sparse_block", block=stated, page=facts.INDEXER_BLOCK)
        return stated
    if shape.indexed:
        size, why = facts.INDEXER_BLOCK, "the indexer's page"
    elif shape.compressed_v41:
        size = facts.COMPRESSED_V41_BLOCK_MAJOR_9 if case.major == 9 else facts.COMPRESSED_V41_BLOCK
        why = "the page of the pooled caches on this part"
    elif any((node.compress_ratio or 0) > max(facts.V41_RATIOS) for node in shape.compressed):
        size, why = facts.COMPRESSED_BLOCK, "the page of the pooled caches"
    else:
        size, why = facts.DEFAULT_BLOCK, "the engine's default"
    case.record.assume("block_size", size, why=why)
    return size


def prefix_caching(case: Case) -> bool:
    """Whether finished blocks are kept for later prompts."""
    stated = case.engine.enable_prefix_caching
    if stated is None:
        case.record.assume("enable_prefix_caching", True)
        return True
    return stated


def mamba_cache_mode(case: Case, caching: bool) -> str:
    """How many states a request keeps: none, align or all; "" without recurrent layers."""
    stated = case.engine.mamba_cache_mode
    if stated and stated not in facts.MAMBA_MODES:
        refuse("mamba_mode", mode=stated, known=", ".join(facts.MAMBA_MODES))
    if not case.shape.recurrents:
        return ""
    if not stated:
        mode = "align" if caching else "none"
        case.record.assume("mamba_cache_mode", mode, caching="on" if caching else "off")
        return mode
    if stated == "none" and caching:
        case.record.override("mamba_cache_mode", "none", "align")
        return "align"
    kinds = {node.recurrent_kind for node in case.shape.recurrents} & set(facts.NO_MODE_ALL)
    if stated == "all" and kinds:
        case.record.assume("mamba_mode_all", stated, kinds=", ".join(sorted(kinds)))
    if stated != "none" and not caching:
        case.record.assume("mamba_mode_without_prefix_caching", stated)
    return stated


def mamba_dtypes(case: Case) -> tuple[str, str]:
    """Dtypes of the convolution and temporal parts of a recurrent state, "auto" when unstated."""
    stated = (case.engine.mamba_cache_dtype or "auto", case.engine.mamba_ssm_cache_dtype or "auto")
    for dtype in stated:
        if dtype not in facts.MAMBA_DTYPES:
            refuse("mamba_dtype", dtype=dtype, known=", ".join(facts.MAMBA_DTYPES))
    return stated


def check_recurrent_heads(case: Case) -> None:
    """Refuse recurrent layers whose heads or groups do not divide over tp."""
    tp = case.widths.tp
    for node in case.shape.recurrents:
        if (node.n_heads or 0) % tp:
            refuse("heads_tp", heads=node.n_heads, what="recurrent", tp=tp)
        groups = node.n_groups or 1
        if node.recurrent_kind == "mamba2" and groups % tp and groups != 1:
            refuse("mamba_groups_tp", groups=groups, tp=tp)


def hybrid_manager(case: Case) -> bool:
    """Whether layers of different caches are managed apart; off, window layers are cached as full attention.

    Source: vllm/config/vllm.py:2213-2284.
    """
    windows = case.shape.has_window or case.shape.chunked
    why = ""
    if case.engine.disable_hybrid_kv_cache_manager:
        why = "the hybrid cache manager is stated off"
    elif case.engine.disable_hybrid_kv_cache_manager is None:
        without = [name for name in case.connectors if name in transfer.WITHOUT_HYBRID_MANAGER]
        if without:
            why = f"{without[0]} does not support the hybrid cache manager"
        elif case.shape.chunked:
            why = "chunked attention turns the hybrid cache manager off"
    if not why:
        return True
    if windows:
        stated = case.engine.disable_hybrid_kv_cache_manager
        case.record.override("disable_hybrid_kv_cache_manager", stated, True, why=why)
    return False


def context_chunk(case: Case, block: int, stripe: int, max_num_seqs: int) -> int:
    """Tokens a latent prefill gathers at once under dcp; 0 where nothing is gathered.

    Rounded up to whole blocks that start on a stripe of every rank.
    Source: vllm/model_executor/layers/attention/mla_attention.py:1993-2005, 2297-2322.
    """
    dcp = case.widths.dcp
    if dcp == 1 or not case.shape.has_latent:
        return 0
    chunk = facts.context_chunk(case.max_model_len, max_num_seqs, block, math.lcm(block, dcp * stripe))
    if case.max_model_len is None:
        case.record.assume("mla_context_chunk", chunk)
    return chunk


def memory_utilization(case: Case) -> float:
    """Share of the GPU's memory the engine may use."""
    stated = case.engine.gpu_memory_utilization
    if stated is None:
        case.record.assume("gpu_memory_utilization", GPU_MEMORY_UTILIZATION)
        return GPU_MEMORY_UTILIZATION
    return stated
