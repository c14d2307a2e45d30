"""Cache groups, formed the way the engine forms them (vllm/v1/core/kv_cache_utils.py:2300-2397).

The order of decisions: promote local attention when the hybrid manager is off; one group when every layer merges; one
group when all need the same number of slots; packed groups under a block-outer layout; else equal pages and equal
group widths. A group is a list of positions in the layer list with one spec each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, lcm

from steppe.memory.packed_groups import packed_groups
from steppe.memory.specs import (
    FULL_FAMILY,
    MLA_FAMILY,
    WINDOW_FAMILY,
    CacheSpec,
    GroupingError,
    dtype_bytes,
    merge,
    round_up,
    uniform_type,
)


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers that share one block table. `specs[i]` is the cache of layer `layers[i]`."""

    layers: tuple[int, ...]
    specs: tuple[CacheSpec, ...]

    @property
    def lead(self) -> CacheSpec:
        """The spec the scheduler manages the group by."""
        return self.specs[0]

    def page_bytes(self, first: int = 0, end: int | None = None) -> int:
        """Bytes of one block of this group, over the layers in [first, end)."""
        return sum(
            spec.page_bytes
            for layer, spec in zip(self.layers, self.specs, strict=True)
            if layer >= first and (end is None or layer < end)
        )


def form_groups(
    specs: Sequence[CacheSpec],
    *,
    block_outer: bool = False,
    hybrid_manager: bool = True,
    extra_retained_tokens: int = 0,
) -> list[LayerGroup]:
    """Groups of the layers `specs`, in registration order.

    Raises GroupingError where the engine refuses. No layers give no groups.
    """
    layers = [
        replace(spec, extra_retained=extra_retained_tokens) if spec.kind in WINDOW_FAMILY else spec for spec in specs
    ]
    if not hybrid_manager:
        layers = _without_hybrid_manager(layers)
    if not layers:
        return []
    everything = list(range(len(layers)))
    merged = merge(layers)
    if merged is not None:
        return [LayerGroup(tuple(everything), (merged,) * len(layers))]
    if uniform_type(layers):
        return [LayerGroup(tuple(everything), tuple(layers))]

    hidden = [i for i in everything if layers[i].kind == "hidden_state"]
    others = [i for i in everything if layers[i].kind != "hidden_state"]
    if block_outer and len({layers[i].page_bytes for i in others}) > 1:
        chosen = packed_groups([layers[i] for i in others])
        groups = [_group([others[i] for i in members], layers) for members in chosen]
        return groups + [_group([i], layers) for i in hidden]
    try:
        unified = _with_equal_pages([layers[i] for i in others])
    except _LatentPageError:
        fallback = _all_full(layers)
        if fallback is None:
            raise
        return [LayerGroup(tuple(everything), tuple(fallback))]
    groups = _equal_width_groups(others, unified)
    return _with_hidden_states(groups, [(i, layers[i]) for i in hidden]) if hidden else groups


def bytes_per_block(groups: Sequence[LayerGroup], first: int = 0, end: int | None = None) -> int:
    """Bytes one block id costs on the stage that holds the layers [first, end): the widest group's pages, rounded to
    every block alignment there (vllm/v1/core/kv_cache_utils.py:1606-1632)."""
    alignments = [
        spec.block_stride_alignment or 1
        for group in groups
        for layer, spec in zip(group.layers, group.specs, strict=True)
        if layer >= first and (end is None or layer < end)
    ]
    return round_up(max(group.page_bytes(first, end) for group in groups), lcm(*alignments))


def _group(members: Sequence[int], layers: Sequence[CacheSpec]) -> LayerGroup:
    return LayerGroup(tuple(members), tuple(layers[i] for i in members))


# --- hybrid manager off -------------------------------------------------------------------------------------------


def _without_hybrid_manager(layers: list[CacheSpec]) -> list[CacheSpec]:
    """Replicated and sharded caches are each made uniform (vllm/v1/core/kv_cache_utils.py:1940-1963)."""
    out = list(layers)
    for replicated in (False, True):
        members = [i for i, spec in enumerate(layers) if (spec.kind != "mamba" and not spec.dcp_sharded) is replicated]
        if members:
            for i, spec in zip(members, _promoted([layers[i] for i in members]), strict=True):
                out[i] = spec
    return out


def _promoted(layers: list[CacheSpec]) -> list[CacheSpec]:
    """Local attention kept as full attention, where full attention stands beside it (:1831-1903)."""
    if merge(layers) is not None or uniform_type(layers):
        return layers
    out = list(layers)
    full_blocks = {s.block_size for s in layers if s.kind in FULL_FAMILY}
    local = any(s.kind in WINDOW_FAMILY or s.kind == "chunked" for s in layers)
    if full_blocks and local:
        block = full_blocks.pop() if len(full_blocks) == 1 else None
        out = [_promote(spec, block or spec.block_size) for spec in layers]
    if merge(out) is None and not uniform_type(out):
        raise GroupingError(
            "promotion_not_uniform",
            "with the hybrid KV-cache manager off every layer must fit one kind of cache, and these do not "
            f"({', '.join(sorted({s.kind for s in out}))}); leave the manager on",
        )
    return out


def _promote(spec: CacheSpec, block: int) -> CacheSpec:
    if spec.kind == "window_mla":
        raise GroupingError(
            "promotion_bounded_replay",
            "this release cannot promote sliding-window latent caches with the hybrid KV-cache manager off; "
            "leave the manager on",
        )
    if spec.kind not in WINDOW_FAMILY and spec.kind != "chunked":
        return spec
    padded = spec.page_bytes_padded
    if padded is not None:
        padded = max(padded, spec.unpadded_page_bytes * block // spec.block_size)
    return replace(spec, kind="full", block_size=block, page_bytes_padded=padded, extra_retained=0)


def _all_full(layers: list[CacheSpec]) -> list[CacheSpec] | None:
    """Latent layers beside ordinary windows whose pages cannot be unified: all allocated in full (:1906-1937)."""
    kinds = {spec.kind for spec in layers}
    if kinds & {"hidden_state", "window_mla", "chunked"} or "mla" not in kinds or not kinds & WINDOW_FAMILY:
        return None
    try:
        promoted = _promoted(layers)
    except GroupingError:
        return None
    return promoted if uniform_type(promoted) else None


# --- equal pages and equal widths ---------------------------------------------------------------------------------


def _with_equal_pages(layers: list[CacheSpec]) -> list[CacheSpec]:
    """Every page made as large as the largest: more tokens where it divides, padding elsewhere (:1383-1445)."""
    target = max(spec.page_bytes for spec in layers)
    out = []
    for spec in layers:
        scaled = spec
        if spec.kind != "mamba" and target % spec.page_bytes == 0:
            scaled = spec.with_block(spec.block_size * (target // spec.page_bytes))
        elif spec.page_bytes != target and spec.kind in MLA_FAMILY:
            raise _LatentPageError(
                "pages_not_unifiable",
                f"a latent cache page of {spec.page_bytes} bytes neither divides the largest page, {target} bytes, nor "
                "may be padded",
            )
        elif spec.page_bytes != target:
            scaled = replace(spec, page_bytes_padded=target)
        if scaled.page_bytes != target:
            raise GroupingError(
                "pages_not_unifiable",
                f"a cache page of {spec.page_bytes} bytes cannot be made the largest page, {target} bytes, because its "
                "own alignment or stated size holds it",
            )
        out.append(scaled)
    return out


class _LatentPageError(GroupingError):
    """The one failure of page unification the engine has a fallback for."""


def _equal_width_groups(members: list[int], layers: list[CacheSpec]) -> list[LayerGroup]:
    """Buckets of mergeable layers, cut into groups of one width; strided, so that stages stay level (:1453-1593)."""
    by_spec: dict[CacheSpec, list[int]] = defaultdict(list)
    for i, spec in zip(members, layers, strict=True):
        by_spec[spec].append(i)
    buckets: list[tuple[list[int], list[CacheSpec]]] = []
    for spec, positions in by_spec.items():
        for names, distinct in buckets:
            if _would_merge([*distinct, spec]):
                names.extend(positions)
                distinct.append(spec)
                break
        else:
            buckets.append((list(positions), [spec]))

    smallest = min(len(names) for names, _ in buckets)
    largest = max(len(names) for names, _ in buckets)
    width = largest if largest < 1.5 * smallest else smallest
    spec_of = dict(zip(members, layers, strict=True))
    groups = []
    for names, _ in buckets:
        count = -(-len(names) // width)
        for i in range(count):
            chosen = names[i::count]
            merged = merge([spec_of[j] for j in chosen])
            assert merged is not None
            groups.append(LayerGroup(tuple(chosen), (merged,) * len(chosen)))
    return groups


def _would_merge(specs: list[CacheSpec]) -> bool:
    try:
        return merge(specs) is not None
    except GroupingError:
        return False


# --- hidden states ------------------------------------------------------------------------------------------------


def _with_hidden_states(groups: list[LayerGroup], hidden: list[tuple[int, CacheSpec]]) -> list[LayerGroup]:
    """Hidden-state caches get groups of their own with the common page (:2261-2297,2368-2388)."""
    common = groups[0].lead.page_bytes
    per_token = {i: spec.heads * spec.head_dim * dtype_bytes(spec.dtype) for i, spec in hidden}
    scale = -(-max(per_token.values()) // common)
    if scale > 1:
        common *= scale
        groups = [LayerGroup(g.layers, (_scaled(g.lead, scale),) * len(g.layers)) for g in groups]
    block = gcd(*(g.lead.block_size for g in groups))
    out = list(groups)
    for i, spec in hidden:
        limit = max(common // per_token[i], 1)
        size = next(b for b in range(min(block, limit), 0, -1) if block % b == 0)
        out.append(LayerGroup((i,), (replace(spec, block_size=size, page_bytes_padded=common),)))
    return out


def _scaled(spec: CacheSpec, scale: int) -> CacheSpec:
    padded = None if spec.page_bytes_padded is None else spec.page_bytes_padded * scale
    return replace(spec, block_size=spec.block_size * scale, page_bytes_padded=padded)
