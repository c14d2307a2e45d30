"""Pricing without a deployment's documents: what a kernel does once it is planned, and what travels as bytes."""

from __future__ import annotations

import json
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from steppe import _core
from steppe._core import Batch, RunningBatch, StepEstimate

Counts = npt.ArrayLike


class PricingKernel:
    """Prices steps. `Kernel` is one that also knows its deployment; `Kernel.from_bytes` gives a bare one.

    Immutable and safe to share between threads; pickles through `to_bytes`, so that a process pool may price with it.
    """

    def __init__(
        self, core: _core.Kernel, *, provenance: str = "", caches: _core.CachePool | None = None, kv_bytes: int = -1
    ) -> None:
        self._core = core
        self._provenance = provenance
        self._caches = caches
        self._kv_bytes = kv_bytes

    def step_time(self, batch: Batch) -> StepEstimate:
        """The cost of one step, integer nanoseconds on one rank.

        Raises `steppe.Error` for a batch the deployment could never run (tokens beyond max_model_len).
        """
        return self._core.step_time(batch)

    def step_times(
        self,
        offsets: Counts,
        scheduled: Counts,
        computed: Counts,
        *,
        decode_threshold: Counts = 1,
        sm_budget: Counts = 0,
        pad_tokens: Counts = 0,
        group_tokens: Counts = 0,
        out: npt.NDArray[np.void] | None = None,
        threads: int = 1,
    ) -> npt.NDArray[np.void]:
        """Price many batches: batch i holds requests offsets[i] to offsets[i+1]-1 of `scheduled` and `computed`.

        `offsets` has one entry more than there are batches (int64); the two arrays one a request (int32 is read in
        place). Settings are one number, or one a batch. Returns an array of `steppe.ESTIMATE_DTYPE`, one entry a batch,
        in nanoseconds (`bottleneck` indexes `steppe.RESOURCES`), bit for bit what `step_time` gives; or fills `out`.
        The interpreter lock is released. Raises `steppe.Error` naming the first batch that cannot be priced.
        """
        return _core.step_times(
            self._core,
            offsets,
            scheduled,
            computed,
            decode_threshold=decode_threshold,
            sm_budget=sm_budget,
            pad_tokens=pad_tokens,
            group_tokens=group_tokens,
            out=out,
            threads=threads,
        )

    def running_batch(
        self, *, width: int = 1, sm_budget: int = 0, pad_tokens: int = 0, group_tokens: int = 0
    ) -> RunningBatch:
        """An empty decode batch to keep from step to step (see `RunningBatch`)."""
        return RunningBatch(
            self._core, width=width, sm_budget=sm_budget, pad_tokens=pad_tokens, group_tokens=group_tokens
        )

    @property
    def caches(self) -> _core.CachePool | None:
        """The compiled cache pool; None for a model without caches."""
        return self._caches

    @property
    def kv_bytes(self) -> int:
        """Bytes a rank has left for caches; -1 where that is not known."""
        return self._kv_bytes

    def to_bytes(self) -> bytes:
        """The kernel as versioned, checksummed bytes: steps, cache pool and provenance, not the documents."""
        return _core.kernel_to_bytes(self._core, self._caches, self.kv_bytes, json.dumps(self.provenance()))

    @staticmethod
    def from_bytes(data: bytes) -> PricingKernel:
        """The kernel `to_bytes` wrote. Raises `steppe.Error` for bytes that are damaged or of another version."""
        core, caches, kv_bytes, provenance = _core.kernel_from_bytes(data)
        return PricingKernel(core, provenance=provenance, caches=caches, kv_bytes=kv_bytes)

    def provenance(self) -> dict[str, list[dict[str, Any]]]:
        """Every coefficient and law the kernel reads, every assumption and every override."""
        return cast("dict[str, list[dict[str, Any]]]", json.loads(self._provenance or "{}"))

    def __repr__(self) -> str:
        return f"<PricingKernel of {len(self._core.plan.terms)} terms>"

    def __reduce__(self) -> tuple[Any, ...]:
        return PricingKernel.from_bytes, (self.to_bytes(),)
