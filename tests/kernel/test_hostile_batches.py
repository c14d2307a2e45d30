"""Whatever is passed for a batch, the answer is a price or one clear `steppe.Error`; the interpreter survives."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_term import plan

import steppe
from steppe import Batch, _core


class Subclass(np.ndarray):  # type: ignore[type-arg]
    pass


class Liar:
    """Says it has a length, then does not."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        raise RuntimeError("no items here")


class Exploding:
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no array here")


class Index:
    def __index__(self) -> int:
        return 2


BAD_TOKENS: dict[str, Any] = {
    "negative": [-1],
    "negative int64": np.array([-(2**63)]),
    "beyond 2^30": [2**30 + 1],
    "beyond 2^31": [2**31],
    "beyond 2^63": [2**63],
    "beyond 2^64": [2**70],
    "largest uint64": np.array([2**64 - 1], dtype=np.uint64),
    "float": [1.0],
    "float array": np.array([1.0]),
    "half": np.array([1], np.float16),
    "NaN": [float("nan")],
    "infinity": [float("inf")],
    "complex": [1j],
    "bool": [True],
    "bool array": np.array([True]),
    "text": ["1"],
    "bytes": b"\x01",
    "string": "1",
    "None": None,
    "None inside": [None],
    "object array": np.array([1], dtype=object),
    "ragged": [[1], [1, 2]],
    "two-dimensional": [[1]],
    "two-dimensional empty": np.zeros((0, 2), np.int32),
    "three-dimensional": np.zeros((1, 1, 1), np.int32),
    "scalar": 1,
    "zero-dimensional": np.array(1),
    "dates": np.array(["2026-01-01"], "datetime64[D]"),
    "durations": np.array([1], "timedelta64[s]"),
    "structured": np.array([(1,)], dtype=[("a", "i4")]),
    "void": np.zeros(1, "V4"),
    "dict": {1: 1},
    "set": {1},
    "generator": (1 for _ in range(1)),
    "liar": Liar(),
    "exploding": Exploding(),
    "type": int,
    "module": np,
}


@pytest.mark.parametrize("value", BAD_TOKENS.values(), ids=BAD_TOKENS)
@pytest.mark.parametrize("place", ["scheduled", "computed"])
def test_tokens_that_are_no_counts(place: str, value: Any) -> None:
    given = {"scheduled": [1], "computed": [1], place: value}
    with pytest.raises(steppe.Error) as caught:
        Batch(**given)
    assert place in str(caught.value) or "entries" in str(caught.value)
    assert len(str(caught.value)) < 300


BAD_SETTINGS: dict[str, Any] = {
    "negative": -1,
    "float": 1.0,
    "NaN": float("nan"),
    "text": "1",
    "None": None,
    "beyond 2^31": 2**31,
    "beyond 2^63": 2**63,
    "list": [1],
    "numpy float": np.float64(1),
}


@pytest.mark.parametrize("value", BAD_SETTINGS.values(), ids=BAD_SETTINGS)
@pytest.mark.parametrize("name", ["decode_threshold", "sm_budget", "pad_tokens", "group_tokens"])
def test_settings_that_are_no_counts(name: str, value: Any) -> None:
    with pytest.raises(steppe.Error, match=name):
        Batch([1], [1], **{name: value})


def test_settings_take_anything_that_is_an_index() -> None:
    batch = Batch([1], [1], decode_threshold=Index(), sm_budget=np.int16(7), pad_tokens=True)
    assert (batch.decode_threshold, batch.sm_budget, batch.pad_tokens) == (2, 7, 1)


@pytest.mark.parametrize(("scheduled", "computed"), [([1], []), ([], [1]), ([1, 1], [1]), ([1] * 3, [1] * 4)])
def test_lengths_that_differ(scheduled: list[int], computed: list[int]) -> None:
    with pytest.raises(steppe.Error, match="one entry a request"):
        Batch(scheduled, computed)


def test_a_batch_of_more_tokens_than_fit() -> None:
    """Each entry is in range, their sum is not."""
    kernel = _core.Kernel(plan("affine", {"constant": 0, "slope": 1e-9}, ("tokens", "tokens")))
    with pytest.raises(steppe.Error, match="more than 2\\^31"):
        kernel.step_time(Batch([2**30 - 1] * 3, [0] * 3))
    with pytest.raises(steppe.Error, match="more than 2\\^31"):
        kernel.step_time(Batch([2**30 - 1], [0], pad_tokens=2**31 - 1))
    assert kernel.step_time(Batch([2**30 - 1], [2**30 - 1])).no_overlap > 0


def test_requests_beyond_a_stated_length() -> None:
    kernel = steppe.Kernel.build(model="llama-3.1-8b-instruct", hardware="h100", max_model_len=4096)
    assert kernel.step_time(Batch([1], [4095])).no_overlap > 0
    for scheduled, computed in ((1, 4096), (4097, 0), (0, 5000)):
        with pytest.raises(steppe.Error, match="max_model_len"):
            kernel.step_time(Batch([scheduled], [computed]))


@pytest.mark.parametrize("value", [None, 1, "batch", [1], object(), np.zeros(3)])
def test_what_is_no_batch(value: Any) -> None:
    with pytest.raises(TypeError, match="Batch"):
        llama().step_time(value)


anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(anything, anything, anything)
def test_anything_at_all(scheduled: Any, computed: Any, setting: Any) -> None:
    with contextlib.suppress(steppe.Error):
        batch = Batch(scheduled, computed, decode_threshold=setting)
        assert llama().step_time(batch).no_overlap >= 0


def test_empty_and_unusual_arrays_that_are_fine() -> None:
    kernel = llama()
    empty = kernel.step_time(Batch([], [])).per_resource
    for nothing in ((), np.array([]), np.array([], np.float64), np.zeros(0, np.uint8)):
        assert kernel.step_time(Batch(nothing, nothing)).per_resource == empty
    want = kernel.step_time(Batch([1, 1], [5, 6])).per_resource
    sub = np.array([1, 1], np.int32).view(Subclass)
    masked = np.ma.masked_array([1, 1], mask=[False, False])
    reversed_view = np.array([6, 5], np.int64)[::-1]
    for scheduled in (sub, masked, memoryview(np.array([1, 1], np.int32)), (1, 1)):
        assert kernel.step_time(Batch(scheduled, reversed_view)).per_resource == want


def llama() -> steppe.Kernel:
    global _llama
    if _llama is None:
        _llama = steppe.Kernel.build(model="llama-3.1-8b-instruct", hardware="h100", tp=2)
    return _llama


_llama: steppe.Kernel | None = None


def test_threads_price_as_one_does() -> None:
    """One kernel and the same batches from eight threads: every answer is the serial one."""
    kernel = llama()
    chance = np.random.default_rng(7)
    batches = [
        Batch(chance.integers(1, 40, size), chance.integers(0, 5000, size)) for size in chance.integers(1, 200, 200)
    ]
    serial = [(e.no_overlap, e.overlap, tuple(e.per_resource.values())) for e in map(kernel.step_time, batches)]
    barrier = threading.Barrier(8)

    def price(worker: int) -> list[Any]:
        barrier.wait()
        order = np.random.default_rng(worker).permutation(len(batches))
        out: list[Any] = [None] * len(batches)
        for at in order:
            e = kernel.step_time(batches[at])
            assert sum(term.ns for term in e.terms) == e.no_overlap
            out[at] = (e.no_overlap, e.overlap, tuple(e.per_resource.values()))
        return out

    with ThreadPoolExecutor(8) as pool:
        for result in pool.map(price, range(8)):
            assert result == serial


def test_threads_build_kernels_side_by_side() -> None:
    def build(tp: int) -> int:
        built = steppe.Kernel.build(model="qwen3-32b", hardware="h100", tp=tp)
        return built.step_time(Batch([1] * 8, [100] * 8)).no_overlap

    widths = [1, 2, 4, 8] * 2
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(build, widths)) == [build(tp) for tp in widths]


def test_an_estimate_outlives_its_kernel_and_batch() -> None:
    estimate = steppe.Kernel.build(model="llama-3.1-8b-instruct", hardware="h100").step_time(Batch([1], [10]))
    assert sum(term.ns for term in estimate.terms) == estimate.no_overlap
    assert "ms" in estimate._repr_html_()
    assert "ns" in repr(estimate)
