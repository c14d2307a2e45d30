"""Groups under a block-outermost layout, where a block packs layers with pages of different size.

The engine looks for a repeating pattern (one layer of each page size) and gives every group the same number of repeats
(vllm/v1/core/kv_cache_utils.py:1966-2126). DeepSeek-V4 and V4.1 are grouped this way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from steppe.memory.specs import CacheSpec, GroupingError, uniform_type


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Layers that need the same slots; `sizes` maps a page size to the layers that have it."""

    members: list[int]
    lead: CacheSpec
    sizes: dict[int, list[int]]

    @property
    def balanced(self) -> bool:
        return len({len(names) for names in self.sizes.values()}) == 1

    @property
    def repeats(self) -> int:
        return max(len(names) for names in self.sizes.values())

    def widest(self, groups: int) -> int:
        """Bytes of the widest of `groups` groups this bucket is cut into."""
        return sum(-(-len(names) // groups) * page for page, names in self.sizes.items())


def packed_groups(layers: Sequence[CacheSpec]) -> list[list[int]]:
    """Positions in `layers`, group by group."""
    buckets = _buckets(layers)
    mixed = [b.repeats for b in buckets if b.balanced and len(b.sizes) > 1]
    repeats = _least_padding([b.repeats for b in buckets if b.balanced], max(mixed)) if mixed else None

    def groups_for(bucket: _Bucket) -> int:
        return -(-bucket.repeats // repeats) if bucket.balanced and repeats is not None else 1

    def is_state(bucket: _Bucket) -> bool:
        return bucket.lead.kind in ("mamba", "ring") or (
            repeats is None and bucket.lead.kind in ("window", "window_mla", "kpool_tail")
        )

    # What a block holds however the state buckets are cut: they can go down to one layer a group.
    anchor = max(b.widest(len(b.members) if is_state(b) else groups_for(b)) for b in buckets)
    out = []
    for bucket in buckets:
        count = groups_for(bucket)
        if is_state(bucket):
            states = max(anchor // bucket.lead.page_bytes, 1)
            count = max(count, -(-len(bucket.members) // states))
        if count == 1:
            out.append(bucket.members)
            continue
        pattern = list(zip(*bucket.sizes.values(), strict=False))
        if count > len(pattern):
            raise GroupingError(
                "packed_group_empty",
                f"{len(bucket.members)} {bucket.lead.kind} layers with {len(bucket.sizes)} page sizes cannot be cut "
                f"into {count} groups of the block-outer layout",
            )
        out.extend([layer for repeat in pattern[i::count] for layer in repeat] for i in range(count))
    return out


def _buckets(layers: Sequence[CacheSpec]) -> list[_Bucket]:
    members: list[list[int]] = []
    for i, spec in enumerate(layers):
        for bucket in members:
            if uniform_type([*(layers[j] for j in bucket), spec]):
                bucket.append(i)
                break
        else:
            members.append([i])
    out = []
    for bucket in members:
        sizes: dict[int, list[int]] = defaultdict(list)
        for i in bucket:
            sizes[layers[i].page_bytes].append(i)
        out.append(_Bucket(bucket, layers[bucket[0]], dict(sizes)))
    return out


def _least_padding(counts: Sequence[int], least: int) -> int:
    """The width d >= least that rounds `counts` up to multiples of d with the least padding; the largest of equals."""
    widths = range(max(1, least), max(counts) + 1)
    return min(widths, key=lambda d: (sum(-n % d for n in counts), -d), default=max(1, least))
