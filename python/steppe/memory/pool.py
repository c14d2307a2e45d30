"""From layer caches to the compiled pool that answers queries."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from steppe import _core
from steppe.memory.groups import LayerGroup, bytes_per_block, form_groups
from steppe.memory.specs import WINDOW_FAMILY, CacheSpec, GroupingError

_SHARED_KINDS = {
    "full": "full",
    "mla": "full",
    "hidden_state": "full",
    "window": "window",
    "window_mla": "window",
    "kpool_tail": "ring",
    "chunked": "chunked",
    "ring": "ring",
    "rswa": "reference_window",
    "cross": "cross",
}


def core_group(spec: CacheSpec, dcp: int = 1) -> _core.CacheGroup:
    """How blocks of `spec`'s group come and go when `dcp` ranks share the token positions.

    Raises GroupingError for a window DCP would shard, as the engine's start-up figure does
    (vllm/v1/kv_cache_interface.py:868-872).
    """
    if spec.kind == "mamba":
        return _core.CacheGroup(
            f"state_{spec.mode}",
            spec.block_size,
            speculative=spec.speculative_blocks,
            checkpoint=spec.checkpoint_blocks,
        )
    sharded = dcp > 1 and spec.dcp_sharded
    if sharded and spec.kind in WINDOW_FAMILY:
        raise GroupingError(
            "window_sharded_by_dcp",
            "decode context parallelism cannot shard a sliding-window cache; set dcp to 1, or disable the hybrid "
            "KV-cache manager where full-attention layers stand beside the windows",
        )
    span = spec.window if spec.kind in ("window", "window_mla") else spec.chunk if spec.kind == "chunked" else 0
    if spec.kind == "rswa":
        span = spec.rswa_window
    return _core.CacheGroup(
        _SHARED_KINDS[spec.kind],
        spec.block_size,
        shards=dcp if sharded else 1,
        span=span or 0,
    )


def build_pool(
    groups: Sequence[LayerGroup],
    limits: _core.CacheLimits,
    *,
    dcp: int = 1,
    stages: Sequence[tuple[int, int]] | None = None,
) -> _core.CachePool:
    """The pool of `groups`; `stages` are the layer ranges of the pipeline stages (absent: one stage)."""
    sizes = [bytes_per_block(groups, first, end) for first, end in stages] if stages else [bytes_per_block(groups)]
    return _core.CachePool([core_group(group.lead, dcp) for group in groups], sizes, limits)


def pool_of(
    specs: Sequence[CacheSpec],
    limits: _core.CacheLimits,
    *,
    stages: Sequence[tuple[int, int]] | None = None,
    dcp: int = 1,
    block_outer: bool = False,
    hybrid_manager: bool = True,
    extra_retained_tokens: int = 0,
) -> tuple[list[LayerGroup], _core.CachePool]:
    """Groups of `specs` and their pool; `stages` are ranges of `specs`, one a pipeline stage (absent: one stage)."""
    groups = form_groups(
        specs,
        block_outer=block_outer,
        hybrid_manager=hybrid_manager,
        extra_retained_tokens=extra_retained_tokens,
    )
    return groups, build_pool(groups, limits, dcp=dcp, stages=stages)


def pipeline_stages(layer_of: Sequence[int], layers: int, pp: int) -> list[tuple[int, int]] | None:
    """Ranges of caches by pipeline stage, None for one stage. `layer_of` is the decoder layer of each cache.

    Layers are dealt evenly; what is left over goes one each to stages from the last but one backwards
    (vllm/distributed/utils.py:131-173). Caches behind the last layer, a draft's, are the last stage's.
    """
    if pp <= 1:
        return None
    counts = [layers // pp] * pp
    for i in range(2, layers % pp + 2):
        counts[-i] += 1
    ends = [sum(counts[: stage + 1]) for stage in range(pp)]
    stage_of = [next((s for s, end in enumerate(ends) if layer < end), pp - 1) for layer in layer_of]
    bounds = [sum(stage < s for stage in stage_of) for s in range(pp + 1)]
    return list(pairwise(bounds))
