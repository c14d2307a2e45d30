"""Many batches in one call: what `step_time` gives, into memory the caller owns, on as many threads as asked for."""

from __future__ import annotations

import sys
import threading
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import steppe


def made(seed: int, batches: int = 400) -> dict[str, Any]:
    """Random batches in compressed rows, prefills and empty ones among them."""
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 40, batches)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    scheduled = np.where(random.random(offsets[-1]) < 0.1, random.integers(0, 3000, offsets[-1]), 1).astype(np.int32)
    computed = random.integers(0, 20_000, offsets[-1]).astype(np.int32)
    return {"offsets": offsets, "scheduled": scheduled, "computed": computed}


def one_by_one(kernel: steppe.Kernel, offsets: Any, scheduled: Any, computed: Any, **settings: Any) -> Any:
    """The same rows through `step_time`."""
    out = np.zeros(len(offsets) - 1, steppe.ESTIMATE_DTYPE)
    for i, (start, stop) in enumerate(pairwise(offsets)):
        own = {name: int(value if np.isscalar(value) else value[i]) for name, value in settings.items()}
        e = kernel.step_time(steppe.Batch(scheduled[start:stop], computed[start:stop], **own))
        resources = [e.per_resource[name] for name in steppe.RESOURCES]
        bottleneck = steppe.RESOURCES.index(e.bottleneck)
        out[i] = (e.no_overlap, e.overlap, *resources, e.draft, e.tokens, bottleneck)
    return out


def test_equals_single_pricing(kernel: steppe.Kernel) -> None:
    rows = made(1)
    n = len(rows["offsets"]) - 1
    random = np.random.default_rng(2)
    settings = {
        "decode_threshold": random.integers(0, 5, n),
        "sm_budget": random.choice([0, 0, 60], n),
        "pad_tokens": random.integers(0, 9, n),
        "group_tokens": random.choice([0, 100], n),
    }
    for given in ({}, settings, {"decode_threshold": 4}):
        expected = one_by_one(kernel, **rows, **given)
        assert (kernel.step_times(**rows, **given) == expected).all()


def test_threads_change_nothing(kernel: steppe.Kernel) -> None:
    rows = made(3, batches=9000)
    alone = kernel.step_times(**rows)
    for threads in (2, 5):
        assert (kernel.step_times(**rows, threads=threads) == alone).all()


def test_any_integers_will_do(kernel: steppe.Kernel) -> None:
    rows = made(4, batches=50)
    expected = kernel.step_times(**rows)
    assert (kernel.step_times(**{name: value.astype(np.uint64) for name, value in rows.items()}) == expected).all()
    assert (kernel.step_times(**{name: value.tolist() for name, value in rows.items()}) == expected).all()
    spread = {name: np.repeat(value, 2)[::2] for name, value in rows.items()}
    assert (kernel.step_times(**spread) == expected).all()


def test_into_given_memory(kernel: steppe.Kernel) -> None:
    rows = made(5, batches=30)
    out = np.zeros(30, steppe.ESTIMATE_DTYPE)
    assert kernel.step_times(**rows, out=out) is out
    assert (out == kernel.step_times(**rows)).all()
    read_only = out.copy()
    read_only.setflags(write=False)
    for wrong, why in (
        (np.zeros(29, steppe.ESTIMATE_DTYPE), "29 entries for 30"),
        (np.zeros(30, np.int64), "ESTIMATE_DTYPE"),
        (np.zeros(60, steppe.ESTIMATE_DTYPE)[::2], "contiguous"),
        (read_only, "writeable"),
        ([0] * 30, "numpy array"),
    ):
        with pytest.raises(steppe.Error, match=why):
            kernel.step_times(**rows, out=wrong)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_first_failing_batch_is_named(threads: int) -> None:
    kernel = steppe.Kernel.build(model="llama-3.1-8b-instruct", hardware="h100", max_model_len=30_000)
    rows = made(6, batches=6000)
    for batch in (5500, 4321):
        start = rows["offsets"][batch]
        if start == rows["offsets"][batch + 1]:
            start = rows["offsets"][batch := batch + 1]
        rows["computed"][start] = 40_000
        with pytest.raises(steppe.Error, match=f"batch {batch}: .*max_model_len"):
            kernel.step_times(**rows, threads=threads)
    wide = rows | {"computed": rows["computed"].astype(np.int64)}
    wide["computed"][rows["offsets"][10]] = -(2**40)
    with pytest.raises(steppe.Error, match=r"batch 10: .*negative"):
        kernel.step_times(**wide, threads=threads)


def test_refusals() -> None:
    kernel = steppe.Kernel.build(model="llama-3.1-8b-instruct", hardware="h100")
    for offsets, scheduled, computed, more, why in (
        ([], [1], [1], {}, "one entry more"),
        ([0, 2], [1], [1], {}, "beyond"),
        ([-1, 1], [1], [1], {}, "negative"),
        ([0, 1, 0], [1], [1], {}, "ascend"),
        ([0, 1], [1, 1], [1], {}, "lengths differ"),
        ([0, 1], [1.5], [1], {}, "integers"),
        ([0, 1], [[1]], [1], {}, "one-dimensional"),
        ([0, 1], [1], [1], {"threads": 0}, "threads"),
        ([0, 1], [1], [1], {"pad_tokens": [1, 2]}, "one a batch"),
        ([0, 1], [1], [1], {"pad_tokens": -1}, "pad_tokens"),
        ([0, 1], [1], [1], {"sm_budget": [-1]}, "batch 0"),
    ):
        with pytest.raises(steppe.Error, match=why):
            kernel.step_times(offsets, scheduled, computed, **more)


def test_no_batches_are_no_work() -> None:
    kernel = steppe.Kernel.build(model="llama-3.1-8b-instruct", hardware="h100")
    assert kernel.step_times([0], [], []).shape == (0,)
    assert kernel.step_times([0, 0], [], [])["tokens"].tolist() == [0]


def test_the_interpreter_lock_is_released() -> None:
    """With no thread ever asked to switch, another one runs during the call only where the call lets go."""
    kernel = steppe.Kernel.build(model="llama-3.1-8b-instruct", hardware="h100")
    batches = 300_000
    offsets = np.arange(batches + 1, dtype=np.int64) * 8
    scheduled, computed = np.ones(batches * 8, np.int32), np.full(batches * 8, 1000, np.int32)
    out = np.zeros(batches, steppe.ESTIMATE_DTYPE)
    started, done = threading.Event(), threading.Event()

    def price() -> None:
        started.set()
        kernel.step_times(offsets, scheduled, computed, out=out)
        done.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        thread = threading.Thread(target=price)
        thread.start()
        started.wait()
        assert not done.is_set()
    finally:
        sys.setswitchinterval(interval)
        thread.join()
    assert done.is_set()
