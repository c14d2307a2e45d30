"""One cache of one layer on one rank: its geometry, its page, and which specs the engine merges.

A page is what one block of one layer takes: heads x states x bytes a state, rounded up where a layout asks for it
(vllm/v1/kv_cache_interface.py:295-311,503-536). Sizes are bytes, lengths tokens, everything per rank.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod
from typing import Final

from steppe.errors import DeploymentError

DTYPE_BYTES: Final[dict[str, int]] = {
    "bfloat16": 2,
    "float16": 2,
    "float32": 4,
    "uint8": 1,
    "int8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}
"""Bytes of an element, by storage type."""

FULL_FAMILY: Final = frozenset({"full", "mla", "rswa", "hidden_state"})
MLA_FAMILY: Final = frozenset({"mla", "hidden_state"})
WINDOW_FAMILY: Final = frozenset({"window", "window_mla", "kpool_tail"})
ONE_VECTOR: Final = frozenset({"mla", "window_mla", "hidden_state"})
"""Kinds that store one vector a state and no value tensor."""
KINDS: Final = FULL_FAMILY | WINDOW_FAMILY | {"chunked", "mamba", "ring", "cross"}


class GroupingError(DeploymentError):
    """The engine cannot form cache groups from these layers. `reason` is a short stable name."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element of a storage type."""
    try:
        return DTYPE_BYTES[dtype]
    except KeyError:
        raise DeploymentError(
            f"unknown cache storage type {dtype!r}; known: {', '.join(sorted(DTYPE_BYTES))}"
        ) from None


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `value`."""
    return -(-value // multiple) * multiple


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """The cache of one layer, as the engine's spec classes describe it.

    `kind` is full, mla (latent or index keys: one vector, no value), window, window_mla, chunked, mamba (any recurrent
    state), ring, kpool_tail, rswa, cross or hidden_state. `head_slots` and `state_bytes` replace the heads and the
    bytes of a state where a layout packs its own. `tokens_per_state` above 1 compresses, a fraction stores several
    states a token. `alignment` rounds the page, `block_stride_alignment` the whole block. The identity fields at the
    end have no size; layers that differ in one do not merge.
    """

    kind: str
    block_size: int
    heads: int = 1
    head_dim: int = 0
    head_dim_v: int = 0
    dtype: str = "bfloat16"
    head_slots: int | None = None
    state_bytes: int | None = None
    tokens_per_state: Fraction | int = 1
    alignment: int | None = None
    page_bytes_padded: int | None = None
    block_stride_alignment: int | None = None
    window: int | None = None  # tokens; on a full spec: the window of a promoted layer, which only decides merging
    chunk: int | None = None
    rswa_window: int | None = None
    extra_retained: int = 0
    dcp_sharded: bool = True
    # recurrent states of one layer on one rank
    shapes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    mode: str = "none"
    speculative_blocks: int = 0
    checkpoint_blocks: int = 0
    checkpoint_alignment: int | None = None
    # identity only
    kv_quant: str = ""
    cache_dtype: str | None = None
    role: str = "sparse"
    index_group_leader: bool = False
    model_version: str | None = None
    bounded_replay: bool = False
    page_bytes: int = field(init=False, compare=False, default=0)

    def __post_init__(self) -> None:
        self._check()
        padded = self.page_bytes_padded
        unpadded = self.unpadded_page_bytes
        if self.alignment is not None and self.kind in ONE_VECTOR:
            aligned = round_up(unpadded, self.alignment)
            if aligned != unpadded:
                padded = aligned
        if padded is not None and padded < unpadded:
            raise DeploymentError(f"a stated page of {padded} bytes is smaller than its content, {unpadded} bytes")
        object.__setattr__(self, "page_bytes_padded", padded)
        object.__setattr__(self, "page_bytes", unpadded if padded is None else padded)

    def _check(self) -> None:
        if self.kind not in KINDS:
            raise DeploymentError(f"unknown cache kind {self.kind!r}; known: {', '.join(sorted(KINDS))}")
        if self.block_size < 1:
            raise DeploymentError(f"a cache block holds at least one token, not {self.block_size}")
        needs = {"window": "window", "window_mla": "window", "chunked": "chunk", "rswa": "rswa_window"}.get(self.kind)
        if needs is not None and not (getattr(self, needs) or 0) >= 1:
            raise DeploymentError(f"a {self.kind} cache needs `{needs}` >= 1 token")
        if self.kind == "mamba":
            object.__setattr__(self, "dcp_sharded", False)
            if self.mode not in ("none", "align", "all"):
                raise DeploymentError(f"unknown recurrent cache mode {self.mode!r}; known: none, align, all")

    @property
    def states_per_block(self) -> int:
        """States one block stores, rounded down."""
        return 1 if self.kind == "mamba" else int(self.block_size // self.tokens_per_state)

    @property
    def state_content_bytes(self) -> int:
        """Bytes of one state of one head slot; of the whole state of a layer for `mamba`."""
        if self.kind == "mamba":
            return sum(prod(shape) * dtype_bytes(t) for shape, t in zip(self.shapes, self.dtypes, strict=True))
        if self.state_bytes is not None:
            return self.state_bytes
        value = 0 if self.kind in ONE_VECTOR else self.head_dim_v
        return (self.head_dim + value) * dtype_bytes(self.dtype)

    @property
    def unpadded_page_bytes(self) -> int:
        """The page before alignment or padding."""
        if self.kind == "mamba":
            return self.state_content_bytes
        slots = self.heads if self.head_slots is None else self.head_slots
        return slots * self.states_per_block * self.state_content_bytes

    @property
    def bytes_per_token(self) -> Fraction:
        """Page over block: what one more token costs in this layer, on average."""
        return Fraction(self.page_bytes, self.block_size)

    def with_block(self, block_size: int) -> CacheSpec:
        """The same cache with blocks of another size; a stated page is kept, an alignment is applied again."""
        return replace(self, block_size=block_size)


def _agree(specs: list[CacheSpec], names: tuple[str, ...]) -> bool:
    first = specs[0]
    return all(getattr(spec, name) == getattr(first, name) for spec in specs for name in names)


_ATTENTION_FIELDS: Final = (
    "block_size",
    "dcp_sharded",
    "block_stride_alignment",
    "heads",
    "head_dim",
    "head_dim_v",
    "dtype",
    "kv_quant",
    "page_bytes_padded",
    "head_slots",
    "state_bytes",
    "tokens_per_state",
)
_LATENT_FIELDS: Final = ("cache_dtype", "tokens_per_state", "model_version", "role", "index_group_leader")
_WINDOW_LATENT_FIELDS: Final = (
    "cache_dtype",
    "tokens_per_state",
    "model_version",
    "window",
    "extra_retained",
    "bounded_replay",
    "block_stride_alignment",
    "dcp_sharded",
)


def merge(specs: list[CacheSpec]) -> CacheSpec | None:
    """One spec for all, as the first spec's class merges them, or None where it refuses.

    Raises GroupingError where the engine raises instead of refusing: full layers promoted from windows (or chunks) of
    different length (vllm/v1/kv_cache_interface.py:585-649,682-735,929-1012).
    """
    first = specs[0]
    if first.kind in MLA_FAMILY:
        mergeable = all(s.kind in MLA_FAMILY for s in specs) and _agree(specs, _LATENT_FIELDS)
        return first if mergeable and _agree(specs, _ATTENTION_FIELDS) else None
    if first.kind == "window_mla":
        same = all(s.kind == "window_mla" for s in specs) and _agree(specs, _WINDOW_LATENT_FIELDS)
        return first if same else None
    if first.kind in ("full", "rswa"):
        return _merge_full(specs)
    return first if all(spec == first for spec in specs[1:]) else None


def _merge_full(specs: list[CacheSpec]) -> CacheSpec | None:
    first = specs[0]
    if any(spec.kind not in ("full", "rswa") for spec in specs):
        return None
    if first.kind == "rswa" and not _agree(specs, ("kind", "rswa_window")):
        return None
    windows = {s.window for s in specs if s.window is not None}
    chunks = {s.chunk for s in specs if s.chunk is not None}
    if len(windows) > 1 or len(chunks) > 1:
        raise GroupingError(
            "promotion_window_sizes_differ",
            "with the hybrid KV-cache manager off the engine cannot put layers with windows of different lengths "
            f"({', '.join(map(str, sorted(windows | chunks)))} tokens) in one cache; leave the manager on",
        )
    if not _agree(specs, _ATTENTION_FIELDS) or (windows and chunks):
        return None
    return replace(first, window=next(iter(windows), None), chunk=next(iter(chunks), None))


def uniform_type(specs: list[CacheSpec]) -> bool:
    """Whether all need the same number of token slots, so that one group holds them and their pages add.

    vllm/v1/kv_cache_interface.py:1290-1315, with each class's own rule.
    """
    first = specs[0]
    if not _agree(specs, ("block_size", "dcp_sharded")):
        return False
    if first.kind in FULL_FAMILY:
        return all(s.kind in FULL_FAMILY for s in specs)
    if first.kind == "window":
        return all(s.kind in WINDOW_FAMILY for s in specs) and _agree(specs, ("window",))
    if first.kind == "window_mla":
        return _agree(specs, ("kind", "window", "bounded_replay"))
    if first.kind == "chunked":
        return _agree(specs, ("kind", "chunk"))
    if first.kind == "mamba":
        return _agree(specs, ("kind", "speculative_blocks", "checkpoint_blocks", "checkpoint_alignment", "page_bytes"))
    return _agree(specs, ("kind",))
