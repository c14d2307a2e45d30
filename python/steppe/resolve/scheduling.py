"""Batch limits, CUDA graphs, asynchronous scheduling, and which runner serves the pool."""

from __future__ import annotations

from steppe.engine.v0_31 import graphs, parallel, scheduler, speculation
from steppe.resolve.case import Case
from steppe.resolve.rules import refuse


def max_model_len(case: Case) -> int | None:
    """Longest sequence, tokens; refuses one the checkpoint does not reach (vllm/config/model.py:2575-2622)."""
    stated, own = case.engine.max_model_len, case.graph.globals_.max_position_embeddings
    if stated is None and own is not None:
        case.record.assume("max_model_len", own)
    if stated is not None and own is not None and stated > own:
        refuse("model_length", stated=stated, own=own)
    return case.max_model_len


def batch_limits(case: Case) -> tuple[int, int]:
    """Tokens a step and sequences a step, as stated or as the API server defaults them.

    Defaults follow memory and compute capability (vllm/engine/arg_utils.py:2858-2885, 3047-3115).
    """
    engine, memory = case.engine, case.chip.memory_gib
    limits = _default_limits(memory, case.capability)
    facts = {"memory": memory, "capability": case.capability_text}
    seqs = engine.max_num_seqs or limits.max_num_seqs
    tokens = engine.max_num_batched_tokens
    if tokens is None:
        tokens = limits.max_num_batched_tokens
        if case.max_model_len:
            tokens = min(tokens, seqs * case.max_model_len)
        case.record.assume("max_num_batched_tokens", tokens, note=_batched_note(case), **facts)
    if engine.max_num_seqs is None:
        seqs = min(seqs, tokens)
        case.record.assume("max_num_seqs", seqs, **facts)
    if tokens < seqs:
        refuse("tokens_below_seqs", tokens=tokens, seqs=seqs)
    return tokens, seqs


def _default_limits(memory_gib: float, capability: tuple[int, int]) -> scheduler.BatchLimits:
    if memory_gib >= scheduler.LARGE_MEMORY_GIB:
        return scheduler.LARGE
    if memory_gib >= scheduler.MEDIUM_MEMORY_GIB and capability != scheduler.SMALL_CAPABILITY:
        return scheduler.MEDIUM
    return scheduler.SMALL


def _batched_note(case: Case) -> str:
    """The engine starts far lower with a per-expert all-to-all; priced at the part's default all the same."""
    if case.engine.all2all_backend in parallel.BATCHED_ALL2ALL and case.widths.ep > 1 and case.widths.dp > 1:
        return f"; the release itself starts at {parallel.BATCHED_ALL2ALL_TOKENS} with {case.engine.all2all_backend}"
    return ""


def cudagraph_mode(case: Case) -> str:
    """Graph mode as stated or by default. Refuses a mode the release does not have."""
    mode = case.engine.cudagraph_mode
    if not mode:
        mode = graphs.DEFAULT_MODE
        case.record.assume("cudagraph_mode", mode)
    if mode not in graphs.MODES:
        refuse("graph_mode", mode=mode, known=", ".join(graphs.MODES))
    return mode


def capture_ceiling(case: Case, mode: str, max_num_batched_tokens: int, max_num_seqs: int) -> int:
    """Largest token count a graph covers; 0 without graphs."""
    if mode == "NONE":
        return 0
    stated = case.engine.max_cudagraph_capture_size
    if stated is not None:
        if stated > max_num_batched_tokens:
            case.record.override(
                "max_cudagraph_capture_size", stated, max_num_batched_tokens, limit=max_num_batched_tokens
            )
        return min(stated, max_num_batched_tokens)
    ceiling = graphs.capture_ceiling(max_num_seqs, case.query_len, max_num_batched_tokens, case.major)
    limit = graphs.CEILING_MAJOR_10 if case.major == 10 else graphs.CEILING
    case.record.assume("max_cudagraph_capture_size", ceiling, seqs=max_num_seqs, query=case.query_len, limit=limit)
    return ceiling


def check_speculation(case: Case) -> None:
    """Refuse a draft method the release does not serve."""
    method = case.spec_method
    if method and (method not in speculation.METHODS or method in speculation.UNSERVED_METHODS):
        known = ", ".join(m for m in speculation.METHODS if m not in speculation.UNSERVED_METHODS)
        refuse("speculative_method", method=method, known=known)
    speculator = case.graph.speculator
    if speculation.is_mtp(method) and speculator:
        modules = speculator.num_spec_tokens
        if case.spec_tokens > modules and case.spec_tokens % modules:
            refuse("spec_tokens_modules", tokens=case.spec_tokens, modules=modules)


def async_scheduling(case: Case) -> bool:
    """Whether steps are scheduled ahead of their results."""
    stated, method = case.engine.async_scheduling, case.spec_method
    works = not method or method in speculation.ASYNC_METHODS
    if stated is None:
        why = "on unless something rules it out" if works else f"'{method}' drafts need the step's result first"
        case.record.assume("async_scheduling", works, why=why)
        return works
    if stated and not works:
        refuse("async_speculative", method=method)
    return stated


def cascade_attention(case: Case, asynchronous: bool) -> bool:
    """Whether a prefix shared by a batch is attended to once."""
    if case.engine.disable_cascade_attn is not False:
        return not scheduler.DISABLE_CASCADE_ATTENTION
    if case.spec_method and asynchronous:
        case.record.override("disable_cascade_attn", False, True)
        return False
    return True


def runner(case: Case, mamba_cache_mode: str) -> str:
    """The runner that serves the pool: v2 unless a feature is only in v1 (vllm/config/vllm.py:701-761)."""
    only_v1, only_v2 = _only_v1(case, mamba_cache_mode), _only_v2(case)
    stated = case.engine.runner
    if stated == "v1" and only_v2:
        refuse("runner_v1", features=", ".join(only_v2))
    if stated == "v2" and only_v1:
        refuse("runner_v2", features=", ".join(only_v1))
    if only_v1 and only_v2:
        refuse("runner_none", v1=", ".join(only_v1), v2=", ".join(only_v2))
    return stated or ("v1" if only_v1 else "v2")


def _only_v1(case: Case, mamba_cache_mode: str) -> list[str]:
    """Features the default runner lacks (vllm/config/vllm.py:3051-3103)."""
    features = []
    spec = case.engine.speculative
    if spec and spec.method in speculation.V1_METHODS:
        features.append(f"'{spec.method}' drafts")
    elif spec and spec.parallel_drafting and spec.method not in speculation.PARALLEL_BLOCK_METHODS:
        features.append("parallel drafting")
    if case.engine.dbo and case.engine.dbo.enable_dbo:
        features.append("dual-batch overlap")
    if mamba_cache_mode == "all":
        features.append("mamba_cache_mode all")
    return features


def _only_v2(case: Case) -> list[str]:
    """Features the older runner lacks (vllm/config/vllm.py:3105-3149)."""
    features = []
    if case.widths.pcp > 1:
        features.append("prefill context parallelism")
    if case.spec_method in speculation.V2_METHODS:
        features.append(f"'{case.spec_method}' drafts")
    return features


def note_dual_batch(case: Case) -> None:
    """Record that two overlapped half batches are priced as one."""
    if case.engine.dbo and case.engine.dbo.enable_dbo:
        served = case.engine.all2all_backend in parallel.DUAL_BATCH_ALL2ALL
        note = "" if served else f"; the release needs one of {', '.join(parallel.DUAL_BATCH_ALL2ALL)}"
        case.record.assume("dual_batch_overlap", False, note=note)


def check_policy(case: Case) -> None:
    """Refuse a scheduling policy the release does not have."""
    policy = case.engine.scheduling_policy
    if policy and policy not in scheduler.SCHEDULING_POLICIES:
        refuse("scheduling_policy", policy=policy, known=", ".join(scheduler.SCHEDULING_POLICIES))
