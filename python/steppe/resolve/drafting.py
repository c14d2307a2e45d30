"""A drafter with a checkpoint of its own: its graph resolved beside the target, on the target's ranks."""

from __future__ import annotations

from dataclasses import replace

from steppe.documents import ModelGraph
from steppe.engine.v0_31.attention import flash_attention_version
from steppe.engine.v0_31.speculation import PARALLEL_BLOCK_METHODS
from steppe.provenance import Ledger
from steppe.resolve import attention, caching
from steppe.resolve.case import Case
from steppe.resolve.resolved import Resolution, Settings
from steppe.resolve.rules import Recorder
from steppe.resolve.shape import Shape, shape_of


def draft_resolution(case: Case, target: Resolution, graph: ModelGraph) -> Resolution:
    """The drafter of `graph`: the target's ranks and scheduler, and attention backends of its own.

    The engine shards a drafter over the target's live tensor-parallel group whatever `draft_tensor_parallel_size` says
    (vllm/distributed/parallel_state.py:2356-2358). A parallel-block drafter that is not latent runs without
    decode-context shards (vllm/v1/worker/gpu/spec_decode/dflash/speculator.py:43-51). What is stated for the target's
    weights and attention is not the drafter's.
    """
    shape = shape_of(graph)
    whole = target.settings.spec_method in PARALLEL_BLOCK_METHODS and not shape.has_latent
    widths = replace(target.widths, dcp=1) if whole else target.widths
    drafted = replace(
        case,
        graph=graph,
        shape=shape,
        widths=widths,
        pool=case.pool.model_copy(update={"engine": case.engine.model_copy(update={"attention_backend": ""})}),
        record=Recorder(Ledger()),
    )
    attention.check_heads(drafted)
    chosen = _backends(drafted, target.settings, shape)
    flash = "FLASH_ATTN" in chosen.backend
    settings = replace(
        target.settings,
        attention_backend=chosen.backend,
        sparse_mla_backend=chosen.sparse,
        cache_dtype=chosen.cache_dtype,
        decode_threshold=chosen.decode_threshold,
        one_kernel_attention=chosen.one_kernel,
        flash_attention_version=flash_attention_version(case.major) if flash else 0,
        interleave=target.settings.interleave if widths.dcp > 1 else 1,
        served_dtype="",
        quantization="",
        moe_backend="",
    )
    return replace(target, model_name=graph.name, graph=graph, widths=widths, settings=settings)


def _backends(case: Case, target: Settings, shape: Shape) -> attention.Chosen:
    """What serves the drafter's layers with the target's cache dtype, the record of a sparse target aside."""
    dtype = target.cache_dtype if shape.has_latent else caching.cache_dtype(case)
    return attention.choose(case, dtype, target.interleave, target.dcp_comm_backend)
