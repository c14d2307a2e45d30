"""Decide everything a deployment leaves open: refuse, assume, override. The result is a `Resolution`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from steppe.documents import Bundle, Pool
from steppe.engine import v0_31
from steppe.engine.v0_31.attention import flash_attention_version
from steppe.engine.v0_31.speculation import PARALLEL_BLOCK_METHODS
from steppe.provenance import Ledger
from steppe.resolve import attention, caching, collectives, context, experts, layout, quantization, scheduling
from steppe.resolve.case import Case, capability_of
from steppe.resolve.drafting import draft_resolution
from steppe.resolve.resolved import Resolution, Settings
from steppe.resolve.rules import Recorder, refuse
from steppe.resolve.shape import shape_of

DEFAULT_ROUTING_CONCENTRATION = 0.5


def resolve(bundle: Bundle, pool_index: int = 0) -> Resolution:
    """Decide one pool of a deployment.

    Raises `DeploymentError` (a `Refused`, which carries the rule's code) where the engine would not start the pool or
    this library would not price it truthfully. What was assumed and overridden is in the result's `ledger`.
    """
    pools = bundle.deployment.pools
    if not 0 <= pool_index < len(pools):
        refuse("pool_index", index=pool_index, pools=len(pools), last=len(pools) - 1)
    case = _case(bundle, pools[pool_index])
    settings = _settings(case)
    target = Resolution(
        scenario=bundle.scenario,
        deployment=bundle.deployment,
        pool=case.pool,
        pool_index=pool_index,
        model_name=bundle.model_name,
        chip_name=bundle.chip_name,
        graph=bundle.graph,
        chip=bundle.chip,
        fabric=bundle.fabric,
        storage=bundle.storage,
        widths=case.widths,
        settings=settings,
        placements=case.placements,
        nodes_spanned=layout.nodes_spanned(case.widths, case.placements, case.machines),
        one_nvlink_domain=case.machines.rack > 0,
        engine_version=bundle.scenario.engine_version,
        routing_concentration=_routing_concentration(case),
        ledger=case.record.ledger,
        compute_capability=case.capability,
        rack_gpus=case.machines.rack,
    )
    if bundle.draft is None:
        return target
    return replace(target, draft=draft_resolution(case, target, bundle.draft))


def resolved(resolution: Resolution) -> dict[str, Any]:
    """What was decided, as plain data: widths, the main choices, and overrides as [field, resolved value]."""
    widths, settings = resolution.widths, resolution.settings
    return {
        "tp": widths.tp,
        "pp": widths.pp,
        "dp": widths.dp,
        "ep": widths.ep,
        "pcp": widths.pcp,
        "dcp": widths.dcp,
        "all_reduce_backend": settings.all_reduce_backend,
        "all2all_backend": settings.all2all_backend,
        "sequence_parallel_moe": settings.sequence_parallel_moe,
        "async_scheduling": settings.async_scheduling,
        "cascade_attention": settings.cascade_attention,
        "attention_backend": settings.attention_backend,
        "moe_backend": settings.moe_backend,
        "cache_dtype": settings.cache_dtype,
        "cudagraph_mode": settings.cudagraph_mode,
        "capture_ceiling": settings.capture_ceiling,
        "runner": settings.runner,
        "decode_threshold": settings.decode_threshold,
        "overrides": [[item.field, str(item.resolved)] for item in resolution.ledger.overrides],
    }


def _case(bundle: Bundle, pool: Pool) -> Case:
    record = Recorder(Ledger())
    stated = bundle.scenario.engine_version
    if stated.removeprefix("v") != v0_31.VERSION:
        record.assume("engine_version", v0_31.VERSION, rules=v0_31.VERSION, stated=stated)
    widths = layout.widths_of(pool.parallel)
    if widths.pp > 1:
        refuse("pipeline", pp=widths.pp)
    machines = layout.machines_of(bundle.chip, bundle.scenario.cluster, pool.nodes)
    shape = shape_of(bundle.graph)
    return Case(
        scenario=bundle.scenario,
        deployment=bundle.deployment,
        pool=pool,
        graph=bundle.graph,
        chip=bundle.chip,
        shape=shape,
        widths=widths,
        machines=machines,
        placements=layout.placements_of(widths, machines, bool(shape.experts), pool.parallel.dp_local),
        capability=capability_of(bundle.chip, record),
        record=record,
    )


def _settings(case: Case) -> Settings:
    engine, spec = case.engine, case.engine.speculative
    attention.check_heads(case)
    caching.check_recurrent_heads(case)
    scheduling.check_policy(case)
    scheduling.check_speculation(case)
    scheduling.note_dual_batch(case)
    redundant = experts.redundant_experts(case)
    experts.check_expert_slices(case)

    graph_mode = scheduling.cudagraph_mode(case)
    context.check_prefill_context(case, graph_mode)
    dcp_comm = context.dcp_backend(case)
    context.check_decode_context(case)

    stated_dtype = caching.cache_dtype(case)
    block = caching.block_size(case)
    stripe = context.interleave(case, block)
    chosen = attention.choose(case, stated_dtype, stripe, dcp_comm)
    prefix_caching = caching.prefix_caching(case)
    mamba_mode = caching.mamba_cache_mode(case, prefix_caching)
    conv_dtype, state_dtype = caching.mamba_dtypes(case)

    tokens, seqs = scheduling.batch_limits(case)
    asynchronous = scheduling.async_scheduling(case)
    all2all = experts.all2all_backend(case)
    experts.note_ungraphed_all2all(case, all2all, graph_mode)
    flash = "FLASH_ATTN" in chosen.backend
    return Settings(
        block_size=block,
        max_num_batched_tokens=tokens,
        max_num_seqs=seqs,
        max_model_len=scheduling.max_model_len(case),
        cudagraph_mode=graph_mode,
        capture_ceiling=scheduling.capture_ceiling(case, graph_mode, tokens, seqs),
        async_scheduling=asynchronous,
        cascade_attention=scheduling.cascade_attention(case, asynchronous),
        enable_prefix_caching=prefix_caching,
        gpu_memory_utilization=caching.memory_utilization(case),
        all_reduce_backend=collectives.all_reduce_backend(case),
        all2all_backend=all2all,
        sequence_parallel_moe=experts.sequence_parallel_moe(case, all2all),
        quantization=engine.quantization,
        cache_dtype=chosen.cache_dtype,
        mamba_cache_mode=mamba_mode,
        mamba_cache_dtype=conv_dtype,
        mamba_ssm_cache_dtype=state_dtype,
        spec_method=case.spec_method,
        spec_tokens=case.spec_tokens,
        dcp_comm_backend=dcp_comm,
        interleave=stripe,
        mla_context_chunk=caching.context_chunk(case, block, stripe, seqs),
        sparse_mla_backend=chosen.sparse,
        attention_backend=chosen.backend,
        moe_backend=engine.moe_backend,
        fuse_allreduce_rms=collectives.fused_all_reduce_norm(case),
        synchronous_host=engine.synchronous_host,
        redundant_experts=redundant,
        hybrid_kv_cache_manager=caching.hybrid_manager(case),
        runner=scheduling.runner(case, mamba_mode),
        kv_cache_memory_bytes=engine.kv_cache_memory_bytes,
        one_kernel_attention=chosen.one_kernel,
        decode_threshold=chosen.decode_threshold,
        served_dtype=quantization.served_dtype(case),
        flash_attention_version=flash_attention_version(case.major) if flash else 0,
        spec_draft=spec.draft if spec else "",
        parallel_drafting=bool(spec and (spec.parallel_drafting or spec.method in PARALLEL_BLOCK_METHODS)),
    )


def _routing_concentration(case: Case) -> float:
    """How skewed routing to experts is, 0 uniform to 1 the measured power law."""
    workload = case.scenario.workload
    if workload and "routing_concentration" in workload.model_fields_set:
        return workload.routing_concentration
    if case.shape.experts:
        case.record.assume("routing_concentration", DEFAULT_ROUTING_CONCENTRATION)
    return DEFAULT_ROUTING_CONCENTRATION
