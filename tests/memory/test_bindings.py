"""The compiled queries refuse bad input with an error; they neither crash nor wrap."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from steppe import _core
from steppe.errors import Error

BIG = 2**63 - 1
ODD = [16, 1, 17, 15, 0, 128, 4096, -1, 2**31 - 1, 2**31, 2**32, 2**53, BIG, -BIG - 1]


@pytest.fixture
def pool() -> _core.CachePool:
    groups = [
        _core.CacheGroup("full", 16),
        _core.CacheGroup("window", 16, span=128),
        _core.CacheGroup("window", 16, span=128),
        _core.CacheGroup("chunked", 16, span=512),
        _core.CacheGroup("state_align", 528, speculative=2),
        _core.CacheGroup("ring", 8),
    ]
    limits = _core.CacheLimits(max_model_len=131072, max_in_flight_tokens=16384, lookahead_tokens=2)
    return _core.CachePool(groups, [1 << 20, 3 << 20], limits)


def test_bulk_equals_one_by_one(pool: _core.CachePool) -> None:
    tokens = np.arange(-3, 4000, 7)
    for stage in (0, 1):
        assert pool.growing_bytes(tokens, stage).tolist() == [pool.bytes(pool.growing_blocks(t), stage) for t in tokens]
        assert pool.bounded_bytes(tokens, stage).tolist() == [pool.bytes(pool.bounded_blocks(t), stage) for t in tokens]
        assert pool.admission_bytes(tokens, stage).tolist() == [
            pool.bytes(pool.admission_blocks(t), stage) for t in tokens
        ]
    computed = np.arange(1, 2000, 13)
    ones = np.ones_like(computed)
    assert pool.held_bytes(computed, ones, ones).tolist() == [
        pool.bytes(pool.held_blocks(int(c), 1, 1)) for c in computed
    ]


def test_the_memoryless_step_equals_a_followed_request(pool: _core.CachePool) -> None:
    request = _core.RequestBlocks()
    computed = 0
    for scheduled, in_flight in [(600, 0), *[(1, 0)] * 5]:
        request.schedule(pool, computed, scheduled, in_flight)
        assert pool.held_blocks(computed, scheduled, in_flight) == request.held(pool)
        computed += scheduled


def test_non_positive_counts_hold_nothing(pool: _core.CachePool) -> None:
    for n in (0, -1, -BIG - 1):
        assert pool.growing_blocks(n) == pool.bounded_blocks(n) == pool.admission_blocks(n) == 0


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32, np.uint64])
def test_any_integer_type_is_read(pool: _core.CachePool, dtype: Any) -> None:
    tokens = np.array([1, 17, 100], dtype=dtype)
    assert pool.growing_bytes(tokens).tolist() == pool.growing_bytes(tokens.astype(np.int64)).tolist()


def test_views_and_lists_are_read(pool: _core.CachePool) -> None:
    tokens = np.arange(100, dtype=np.int64)
    assert pool.growing_bytes(tokens[::-3]).tolist() == pool.growing_bytes(tokens[::-3].copy()).tolist()
    assert pool.growing_bytes([5, 6]).tolist() == pool.growing_bytes(np.array([5, 6])).tolist()
    assert pool.growing_bytes(tokens.astype(">i8")).tolist() == pool.growing_bytes(tokens).tolist()
    assert pool.growing_bytes([]).tolist() == []
    assert pool.growing_bytes(np.empty(0)).tolist() == []


BAD = [
    np.array([1.0, 2.0]),
    np.array([np.nan]),
    np.array([True, False]),
    np.array(["a"]),
    np.array([object()]),
    np.array([1 + 2j]),
    np.zeros((2, 2), dtype=np.int64),
    np.array(3),
    np.array([2**64 - 1], dtype=np.uint64),
    np.array([BIG]),
    np.array([131073]),
    [[1], [2, 3]],
    [2**70],
    "text",
    None,
    {1: 2},
]


@pytest.mark.parametrize("tokens", BAD, ids=[f"bad{i}" for i in range(len(BAD))])
def test_bad_arrays_are_refused(pool: _core.CachePool, tokens: Any) -> None:
    for query in (pool.growing_bytes, pool.bounded_bytes, pool.admission_bytes):
        with pytest.raises((TypeError, ValueError)):
            query(tokens)
    with pytest.raises((TypeError, ValueError)):
        pool.held_bytes(tokens, [1], [0])


@pytest.mark.parametrize("bad", [1.5, float("nan"), float("inf"), "1", None, 2**63, -(2**63) - 1, [1]], ids=repr)
def test_bad_scalars_are_refused(pool: _core.CachePool, bad: Any) -> None:
    for query in (pool.growing_blocks, pool.bounded_blocks, pool.admission_blocks, pool.bytes):
        with pytest.raises((TypeError, ValueError)):
            query(bad)


def test_outputs_are_written_in_place_or_refused(pool: _core.CachePool) -> None:
    out = np.empty(3, dtype=np.int64)
    assert pool.growing_bytes([1, 2, 3], out=out) is out
    frozen = np.empty(3, dtype=np.int64)
    frozen.flags.writeable = False
    for bad in (np.empty(2, dtype=np.int64), np.empty(3), np.empty(6, dtype=np.int64)[::2], frozen, [0, 0, 0], "x"):
        with pytest.raises((TypeError, ValueError)):
            pool.growing_bytes([1, 2, 3], out=bad)


def test_lengths_must_agree_and_stages_exist(pool: _core.CachePool) -> None:
    with pytest.raises(ValueError, match="length"):
        pool.held_bytes([1, 2], [1], [0, 0])
    with pytest.raises(Error):
        pool.growing_bytes([1], stage=2)
    with pytest.raises(TypeError):
        pool.growing_bytes([1], stage=-1)
    with pytest.raises(Error):
        pool.bytes(1, 7)
    with pytest.raises(ValueError, match="budget"):
        pool.capacity([1 << 30])


def test_a_failing_position_is_named(pool: _core.CachePool) -> None:
    with pytest.raises(ValueError, match="at position 1: token count 999999 is above max_model_len 131072"):
        pool.growing_bytes([1, 999999, 2])


@pytest.mark.parametrize(
    "step", [(-1, 1, 0), (1, -1, 0), (1, 1, -1), (1, 1, 2), (131072, 1, 0), (BIG, BIG, 0), (1, BIG, 0)], ids=repr
)
def test_impossible_steps_are_refused(pool: _core.CachePool, step: tuple[int, int, int]) -> None:
    with pytest.raises(Error):
        pool.held_blocks(*step)
    with pytest.raises(Error):
        _core.RequestBlocks().schedule(pool, *step)


def test_products_never_wrap() -> None:
    limits = _core.CacheLimits(max_model_len=2**53, max_in_flight_tokens=2**53)
    pool = _core.CachePool([_core.CacheGroup("full", 1)], [2**40], limits)
    assert pool.growing_blocks(2**53) == 2**53
    with pytest.raises(Error, match="64 bits"):
        pool.growing_bytes([2**53])
    with pytest.raises(Error, match="64 bits"):
        pool.bytes(2**53)
    with pytest.raises(Error):
        _core.max_in_flight_tokens(BIG, True, BIG)
    with pytest.raises(Error):
        pool.capacity([BIG])


@pytest.mark.parametrize(
    ("kind", "block", "more"),
    [
        ("nothing", 16, {}),
        ("full", 0, {}),
        ("full", -1, {}),
        ("full", 2**60, {}),
        ("full", 16, {"shards": 0}),
        ("full", 2**50, {"shards": 2**10}),
        ("window", 16, {}),
        ("window", 16, {"span": -5}),
        ("chunked", 16, {"span": 0}),
        ("state_none", 16, {"speculative": -1}),
        ("state_all", 16, {"shards": 2}),
        ("state_all", 16, {"speculative": BIG}),
    ],
)
def test_impossible_groups_are_refused(kind: str, block: int, more: dict[str, int]) -> None:
    limits = _core.CacheLimits(max_model_len=100, max_in_flight_tokens=100)
    with pytest.raises(ValueError):  # noqa: PT011 - every message differs
        _core.CachePool([_core.CacheGroup(kind, block, **more)], [1], limits)


@pytest.mark.parametrize(
    "more",
    [
        {"max_model_len": 0},
        {"max_model_len": 2**54},
        {"max_in_flight_tokens": -1},
        {"extra_retained_tokens": -1},
        {"lookahead_tokens": -1},
        {"max_encoder_tokens": -1},
    ],
    ids=repr,
)
def test_impossible_limits_are_refused(more: dict[str, int]) -> None:
    limits = _core.CacheLimits(**{"max_model_len": 100, "max_in_flight_tokens": 100, **more})
    with pytest.raises(ValueError, match=next(iter(more))):
        _core.CachePool([], [1], limits)


def test_random_garbage_never_crashes() -> None:
    """Any value either answers with a count >= 0 or raises."""
    rng = random.Random(3)
    kinds = ["full", "window", "chunked", "state_none", "state_align", "state_all", "ring", "cross", "reference_window"]
    answered = refused = 0
    for _ in range(20_000):
        sane = rng.random() < 0.3
        values = ODD[:7] if sane else ODD
        try:
            group = _core.CacheGroup(
                rng.choice(kinds), rng.choice(values), shards=rng.choice([1, 1, 2, *values]), span=rng.choice(values),
                speculative=rng.choice([0, 0, *values]), checkpoint=rng.choice([0, *values]),
            )  # fmt: skip
            limits = _core.CacheLimits(
                max_model_len=rng.choice(values), max_in_flight_tokens=rng.choice(values),
                extra_retained_tokens=rng.choice([0, *values]), lookahead_tokens=rng.choice([0, *values]),
            )  # fmt: skip
            pool = _core.CachePool([group] * rng.randint(0, 3), [rng.choice(values)], limits)
            n, c, s, f = (rng.choice(values) for _ in range(4))
            counts = [pool.startup_blocks(), pool.admission_blocks(n), pool.growing_blocks(n), pool.bounded_blocks(n)]
            counts += [pool.bytes(count) for count in counts]
            counts.append(pool.held_blocks(c, s, f))
            assert min(counts) >= 0
            answered += 1
        except Error:
            refused += 1
    assert answered > 100
    assert refused > 100
