"""Memory of one pool: what a rank holds, what a request adds, and how many requests fit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from steppe import _core
from steppe.engine.v0_31.speculation import EAGLE_METHODS, MTP_METHODS, PARALLEL_BLOCK_METHODS
from steppe.errors import DeploymentError, Error
from steppe.memory.cache_layers import cache_layers, longest, uses_graph_draft
from steppe.memory.capacity import KvCapacity, no_request, no_room
from steppe.memory.fixed import FixedBytes, Lookup, compute_fixed_bytes, pre_snapshot_bytes
from steppe.memory.groups import LayerGroup
from steppe.memory.pool import pipeline_stages, pool_of
from steppe.resolve.resolved import Resolution

_OWN_CHECKPOINT = (*MTP_METHODS, *EAGLE_METHODS, *PARALLEL_BLOCK_METHODS, "draft_model", "medusa")
_LOOKAHEAD_METHODS = (*MTP_METHODS, *EAGLE_METHODS, "dspark", "draft_model")


def _sized(pool: _core.CachePool | None, kind: str, tokens: int | ArrayLike) -> Any:
    """An int for one token count, an int64 array for several; `kind` names the pool's query."""
    one = isinstance(tokens, int | np.integer) and not isinstance(tokens, bool)
    if isinstance(tokens, float | bool | str):
        raise Error(f"tokens must be whole numbers, not {tokens!r}")
    if pool is None:
        return 0 if one else np.zeros(np.shape(tokens), dtype=np.int64)
    if one:
        return pool.bytes(getattr(pool, f"{kind}_blocks")(tokens))
    return getattr(pool, f"{kind}_bytes")(tokens)


class Memory:
    """Sizes of one pool on one rank, in bytes. Built once; queries are compiled and allocate nothing per token count.

    `resolution` decides the deployment, `lookup` holds the coefficients in scope. Raises `DeploymentError` where the
    caches cannot be formed. Token counts are tokens of one request: at or below 0 they take 0 bytes, above a stated
    max_model_len they are an error. Every `sequence_...` method takes one int or a 1-D integer array.
    """

    def __init__(self, resolution: Resolution, lookup: Lookup) -> None:
        self._resolution = resolution
        self._lookup = lookup
        settings = resolution.settings
        layers = cache_layers(resolution)
        self._block_size = layers.block_size
        _note_draft(resolution)
        extra = _extra_retained(resolution)
        self._limits = _core.CacheLimits(
            max_model_len=longest(resolution),
            max_in_flight_tokens=_core.max_in_flight_tokens(
                resolution.widths.pp, settings.async_scheduling, settings.max_num_batched_tokens
            ),
            extra_retained_tokens=extra,
            lookahead_tokens=_lookahead(resolution),
        )
        self._groups: list[LayerGroup] = []
        self._pool: _core.CachePool | None = None
        if layers.specs:
            self._groups, self._pool = pool_of(
                layers.specs,
                self._limits,
                stages=pipeline_stages(layers.layer_of, resolution.graph.stack.layers, resolution.widths.pp),
                dcp=layers.dcp,
                block_outer=layers.block_outer,
                hybrid_manager=settings.hybrid_kv_cache_manager,
                extra_retained_tokens=extra,
            )

    # -- layout ------------------------------------------------------------------------------------------------------

    @property
    def pool(self) -> _core.CachePool | None:
        """The compiled pool a simulator asks step by step; None for a model without caches."""
        return self._pool

    @property
    def groups(self) -> list[LayerGroup]:
        """Cache groups, in the engine's order."""
        return list(self._groups)

    @property
    def block_size(self) -> int:
        """Tokens a block of full-attention layers, after the alignment of hybrids."""
        return self._block_size

    @property
    def bytes_per_block(self) -> int:
        """What one block id costs: the widest group's pages, on the stage that holds most. 0 without caches."""
        return max(self._pool.bytes_per_block) if self._pool is not None else 0

    # -- fixed -------------------------------------------------------------------------------------------------------

    def fixed_bytes(self) -> FixedBytes:
        """Weights, activations, CUDA graphs, communication and engine buffers, EPLB replicas and their total."""
        return compute_fixed_bytes(self._resolution, self._lookup)

    def pre_snapshot_bytes(self) -> int:
        """Bytes in place before the engine's memory snapshot, outside its budget."""
        return pre_snapshot_bytes(self._resolution, self._lookup)

    # -- a request ---------------------------------------------------------------------------------------------------

    def sequence_variable_bytes(self, tokens: int | ArrayLike) -> Any:
        """Bytes of the caches that grow with a request: full, latent, index, recurrent in mode all.

        COVERAGE LIMIT: decode context parallelism shards these only where every layer that holds keys is one it shards.
        A stack that mixes window or chunked layers with full ones is charged whole; the engine refuses it under its
        default cache manager (vllm/v1/kv_cache_interface.py:868-872), and shards it with the manager off.
        """
        return _sized(self._pool, "growing", tokens)

    def sequence_bounded_bytes_at(self, tokens: int | ArrayLike) -> Any:
        """Bytes of window and chunked caches once a request has `tokens` computed tokens.

        KNOWN over-charge: a window is charged ceil(min(tokens, window) / block) + 1 blocks. A young ring begins on a
        block edge and holds no trailing page until it has slid past its window
        (vllm/v1/core/single_type_kv_cache_manager.py:719-725,1185-1188). Measured on the engine's own manager: every
        one of 117 requests within their window is charged one page too many; beyond it a decoding request under
        asynchronous scheduling is charged exactly what it holds, and under synchronous scheduling one page too many at
        one position of a block. Without the page a grown ring would be one short. The exact count, step by step, is
        `RequestBlocks`.
        """
        return _sized(self._pool, "bounded", tokens)

    def sequence_fixed_bytes(self) -> int:
        """Bytes a request holds at any length: recurrent state in modes none and align, rings."""
        return self._pool.bytes(self._pool.constant_blocks()) if self._pool is not None else 0

    def sequence_admission_bytes(self, tokens: int | ArrayLike) -> Any:
        """Bytes the admission gate charges a waiting request of `tokens` known tokens, all caches together."""
        return _sized(self._pool, "admission", tokens)

    def sequence_startup_bytes(self) -> int:
        """Bytes the engine's start-up check charges one request of max_model_len, which its concurrency divides by."""
        return self._pool.startup_blocks() * self.bytes_per_block if self._pool is not None else 0

    # -- capacity ----------------------------------------------------------------------------------------------------

    def kv_budget_bytes(self) -> int:
        """Bytes left for KV: ceil(memory x gpu_memory_utilization) less what is fixed inside the budget.

        A stated kv_cache_memory_bytes replaces it. May be negative; `kv_capacity` turns that into an error.
        """
        stated = self._resolution.settings.kv_cache_memory_bytes
        if stated:
            return stated
        return self._usable_bytes() - (self.fixed_bytes().total - self.pre_snapshot_bytes())

    def kv_capacity(self) -> KvCapacity:
        """Blocks, tokens and full-length requests that fit.

        Raises `DoesNotFit` (a `DeploymentError` with budget, need and shortfall) when the model leaves no room for KV
        or one request of max_model_len does not fit, as the engine's start-up does.
        """
        r = self._resolution
        if self._pool is None:
            raise DeploymentError(f"{r.model_name} keeps no cache; there is no KV capacity to size")
        budget = self.kv_budget_bytes()
        if budget < 0:
            raise no_room(
                part=r.chip_name,
                usable=self._usable_bytes(),
                utilization=r.settings.gpu_memory_utilization,
                fixed=self.fixed_bytes().total,
                outside=self.pre_snapshot_bytes(),
            )
        return self.capacity_of(budget)

    def capacity_of(self, budget: int) -> KvCapacity:
        """The same for a KV budget in bytes, whatever the part."""
        assert self._pool is not None
        r, pool = self._resolution, self._pool
        got = pool.capacity([budget] * len(pool.bytes_per_block))
        length = r.settings.max_model_len or got.auto_fit_max_len
        if not got.fits and (r.settings.max_model_len or not length):
            raise no_request(
                part=r.chip_name,
                budget=max(0, budget - self.bytes_per_block),
                need=got.startup_bytes,
                length=r.settings.max_model_len or 1,
                estimated=got.estimated_max_len,
            )
        blocks = pool.startup_blocks_at(length)
        concurrency = got.num_blocks / blocks
        return KvCapacity(
            budget_bytes=budget,
            kv_bytes=got.num_blocks * self.bytes_per_block,
            bytes_per_block=self.bytes_per_block,
            num_blocks=got.num_blocks,
            usable_blocks=got.usable_blocks,
            tokens=int(concurrency * length),
            max_model_len=length,
            full_length_requests=got.usable_blocks // blocks,
            max_concurrency=concurrency,
            startup_blocks=blocks,
            startup_bytes=blocks * self.bytes_per_block,
            estimated_max_len=got.auto_fit_max_len,
        )

    def _usable_bytes(self) -> int:
        r = self._resolution
        return math.ceil(int(r.chip.memory_gib * (1 << 30)) * r.settings.gpu_memory_utilization)


def _note_draft(r: Resolution) -> None:
    """Record that a draft with a checkpoint of its own adds neither weights nor caches here."""
    if r.settings.spec_method in _OWN_CHECKPOINT and r.draft is None and not uses_graph_draft(r):
        reason = (
            f"the draft of {r.settings.spec_method} is a checkpoint of its own: its weights and caches are not sized"
        )
        r.ledger.assume("draft_memory", 0, reason)


def _extra_retained(r: Resolution) -> int:
    """Tokens kept below a window for MTP with several modules (vllm/config/vllm.py:656-677)."""
    if not uses_graph_draft(r) or r.graph.speculator is None:
        return 0
    k = r.settings.spec_tokens
    return k - 1 if min(r.graph.speculator.stack.layers, k) > 1 else 0


def _lookahead(r: Resolution) -> int:
    """Slots a drafter writes past the scheduled tokens (vllm/config/vllm.py:629-654)."""
    method, k = r.settings.spec_method, r.settings.spec_tokens
    if method == "dflash":
        return k + 1
    return k if method in _LOOKAHEAD_METHODS or method in PARALLEL_BLOCK_METHODS else 0
