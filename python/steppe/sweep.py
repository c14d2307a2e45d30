"""Sweeps: one deployment over many batch sizes and contexts, here, on a process pool or on a Dask cluster.

A point is a step of `concurrency` decodes at `context` computed tokens each, beside one prefill chunk of `prefill`
tokens (0 = none). Points are split into chunks; every way of running them gives the same rows in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from importlib import import_module
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from steppe.errors import DeploymentError, Error

if TYPE_CHECKING:
    from steppe.kernel import Kernel
    from steppe.pricing import PricingKernel

Rows = npt.NDArray[np.void]
Progress = Callable[[int, int], None]  # points done, of how many

CHUNK_REQUESTS = 1 << 20  # requests priced at once, so that a chunk stays in memory
RETRIES = 5  # times a chunk may lose its Dask worker
COUNTS = ("concurrency", "context", "prefill")
POINT = np.dtype([(name, "i8") for name in COUNTS])
FIGURES = ("no_overlap", "overlap", "sm", "hbm", "nvlink", "nic", "host", "draft")  # nanoseconds
ROW = np.dtype([*((name, "i8") for name in (*COUNTS, *FIGURES)), ("bottleneck", "u1"), ("fits", "?")])


def numbers(text: str) -> list[int]:
    """Counts as a person writes them: `1,8,64`, `1:256` (doubling), `100:500:50` (by a step), joined by commas.

    Raises `steppe.Error` for anything else.
    """
    out: list[int] = []
    for part in text.split(","):
        try:
            words = [int(word) for word in part.split(":")]
        except ValueError:
            raise Error(f"{text!r}: write counts as 1,8,64 or START:STOP (doubling) or START:STOP:STEP") from None
        out += _span(words, text)
    if not out or min(out) < 0:
        raise Error(f"{text!r}: counts are 0 or more")
    return list(dict.fromkeys(out))


def _span(words: list[int], text: str) -> list[int]:
    if len(words) == 1:
        return words
    start, stop = words[0], words[1]
    if start > stop or len(words) > 3:
        raise Error(f"{text!r}: a range is START:STOP or START:STOP:STEP, START no more than STOP")
    if len(words) == 3:
        if words[2] < 1:
            raise Error(f"{text!r}: the step of a range is 1 or more")
        return list(range(start, stop + 1, words[2]))
    if start < 1:
        raise Error(f"{text!r}: doubling starts from 1 or more")
    doubled = [start]
    while doubled[-1] * 2 <= stop:
        doubled.append(doubled[-1] * 2)
    return doubled if doubled[-1] == stop else [*doubled, stop]


def grid(concurrency: Sequence[int], context: Sequence[int], prefill: Sequence[int] = (0,)) -> Rows:
    """Every combination, the context turning fastest; an array of POINT."""
    points = [(n, tokens, chunk) for chunk in prefill for n in concurrency for tokens in context]
    return np.array(points, dtype=POINT)


def sweep(
    kernel: Kernel,
    points: Rows,
    *,
    workers: int = 1,
    scheduler: str = "",
    progress: Progress | None = None,
) -> Rows:
    """Price every point (an array of POINT, see `grid`) and return an array of ROW in the same order.

    `workers` processes share the points, or the workers of the Dask cluster at `scheduler` (tcp://host:port, extra
    `dask`). Times are nanoseconds a step on one rank, `bottleneck` indexes `steppe.RESOURCES`, and `fits` tells whether
    the KV cache holds so many requests of that length. Raises `steppe.Error` for a point the deployment cannot run.
    """
    if workers < 1:
        raise Error("workers must be at least 1")
    chunks = _chunks(points, 4 * workers if workers > 1 or scheduler else 1)
    done: dict[int, Rows] = {}
    count = 0
    for index, rows in _run(kernel, chunks, workers, scheduler):
        done[index] = rows
        count += len(rows)
        if progress:
            progress(count, len(points))
    out = np.concatenate([done[i] for i in range(len(chunks))]) if chunks else np.zeros(0, ROW)
    out["fits"] = _fits(kernel, points)
    return out


def _run(kernel: Kernel, chunks: list[Rows], workers: int, scheduler: str) -> Iterator[tuple[int, Rows]]:
    if scheduler:
        yield from _on_dask(kernel.to_bytes(), chunks, scheduler)
    elif workers == 1:
        for i, chunk in enumerate(chunks):
            yield i, price_points(kernel, chunk)
    else:
        data = kernel.to_bytes()
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            futures = {pool.submit(price_chunk, data, chunk): i for i, chunk in enumerate(chunks)}
            for future in as_completed(futures):
                yield futures[future], future.result()


def _on_dask(data: bytes, chunks: list[Rows], scheduler: str) -> Iterator[tuple[int, Rows]]:
    try:
        distributed: Any = import_module("distributed")  # untyped
    except ImportError:
        raise Error("a Dask cluster needs the package distributed: pip install 'steppe[dask]'") from None
    try:
        client = distributed.Client(scheduler, timeout="20s")
    except (OSError, ValueError, TimeoutError) as error:
        raise Error(f"no Dask scheduler answers at {scheduler}: {error}") from error
    with client:
        kernel = client.scatter(data, broadcast=True)
        # A lost worker's chunks run again elsewhere; pricing has no side effects.
        futures = {
            client.submit(price_chunk, kernel, chunk, pure=False, retries=RETRIES): i for i, chunk in enumerate(chunks)
        }
        for future in distributed.as_completed(list(futures)):
            yield futures[future], future.result()


def _chunks(points: Rows, least: int) -> list[Rows]:
    """Runs of points of about equal requests: at least `least` of them where there are as many points."""
    if not len(points):
        return []
    requests = np.cumsum(points["concurrency"] + 1)
    parts = max(least, -(-int(requests[-1]) // CHUNK_REQUESTS))
    cuts = np.searchsorted(requests, requests[-1] * np.arange(1, parts) / parts)
    return [part for part in np.split(points, np.unique(cuts)) if len(part)]


@lru_cache(maxsize=4)
def _kernel_of(data: bytes) -> PricingKernel:
    from steppe.pricing import PricingKernel

    return PricingKernel.from_bytes(data)


def price_chunk(data: bytes, points: Rows) -> Rows:
    """What a worker does: price some points of a kernel that came as bytes."""
    return price_points(_kernel_of(data), points)


def price_points(kernel: PricingKernel, points: Rows) -> Rows:
    """Price points here; an array of ROW whose `fits` is not set."""
    chunked = points["prefill"] > 0
    sizes = points["concurrency"] + chunked
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    scheduled = np.ones(offsets[-1], np.int32)
    computed = np.repeat(points["context"], sizes).astype(np.int32)
    last = offsets[1:][chunked] - 1  # a point's prefill follows its decodes
    scheduled[last] = points["prefill"][chunked]
    computed[last] = 0
    estimates = kernel.step_times(offsets, scheduled, computed)
    out = np.zeros(len(points), ROW)
    for name in COUNTS:
        out[name] = points[name]
    for name in (*FIGURES, "bottleneck"):
        out[name] = estimates[name]
    return out


def _fits(kernel: Kernel, points: Rows) -> Any:
    """Whether the blocks of so many requests of that length are there."""
    pool = kernel.caches
    if pool is None:
        return True
    try:
        usable = kernel.kv_capacity().usable_blocks
    except DeploymentError:
        return False
    lengths, place = np.unique(points["context"], return_inverse=True)
    longest = kernel.caches.limits.max_model_len if kernel.caches else 0
    blocks = [pool.admission_blocks(int(tokens)) if tokens <= longest else usable + 1 for tokens in lengths]
    return points["concurrency"] * np.array(blocks, np.int64)[place.reshape(-1)] <= usable
