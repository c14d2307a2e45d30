"""Decode-context shards and prefill-context splits, against transcriptions of the engine rank by rank."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steppe
from steppe import _core

WIDTHS = (1, 2, 3, 4, 6, 8, 16, 32)
STRIPES = (1, 2, 3, 7, 16, 64, 256)
LONGEST = 700


def test_every_shard_length_rank_by_rank() -> None:
    """39,200 (dcp, interleave, length) cases: token i lies on rank i // interleave % dcp; the fullest rank counts."""
    cases = 0
    for dcp in WIDTHS:
        for interleave in STRIPES:
            owner = np.arange(LONGEST) // interleave % dcp
            held = np.cumsum(owner[:, None] == np.arange(dcp)[None, :], axis=0).max(axis=1)
            for length in range(1, LONGEST + 1):
                assert _core.shard_tokens(length, dcp, interleave) == held[length - 1], (dcp, interleave, length)
                cases += 1
    assert cases == len(WIDTHS) * len(STRIPES) * LONGEST >= 18_000


def local_length(length: int, rank: int, dcp: int, interleave: int) -> int:
    """A rank's share as the engine computes it (vllm/v1/attention/backends/utils.py, get_dcp_local_seq_lens)."""
    base = length // interleave // dcp * interleave
    return base + min(max(length - base * dcp - rank * interleave, 0), interleave)


@given(st.integers(1, 2**30), st.sampled_from(WIDTHS), st.sampled_from(STRIPES))
def test_long_contexts_by_the_engine_s_own_formula(length: int, dcp: int, interleave: int) -> None:
    shares = [local_length(length, rank, dcp, interleave) for rank in range(dcp)]
    assert sum(shares) == length
    assert _core.shard_tokens(length, dcp, interleave) == max(shares) == shares[0]


def test_nothing_is_nothing() -> None:
    assert _core.shard_tokens(0, 8, 16) == 0
    assert _core.shard_tokens(5, 1, 1) == 5


# -- prefill context ---------------------------------------------------------------------------------------------------


def chunks_of(rank: int, pcp: int, dcp: int, tokens: int, decode: bool) -> list[tuple[int, int]]:
    """(offset, length) of what a rank runs of one request, as vllm/v1/worker/gpu/pcp_manager.py:222-273 cuts it."""
    num_chunks = 2 * pcp
    replicated = decode
    if dcp > 1:
        replicated = replicated or (num_chunks - 1) * ((tokens + num_chunks - 1) // num_chunks) >= tokens
    if replicated:
        size, indices = tokens, (0,)
    else:
        size, indices = (tokens + num_chunks - 1) // num_chunks, (rank, num_chunks - 1 - rank)  # type: ignore[assignment]
    found = []
    for index in indices:
        offset = index * size
        length = min(size, tokens - offset)
        if length > 0:
            found.append((offset, length))
    return found


def pairs_of(offset: int, length: int, computed: int, window: int) -> float:
    """(query, key) pairs of a run of queries, query by query: what lies before it, half of itself, up to the window."""
    position = computed + offset + np.arange(length)
    seen = position + 0.5
    return float(np.where(position >= window, window, seen).sum()) if window else float(seen.sum())


request = st.tuples(
    st.one_of(st.integers(1, 40), st.integers(41, 3000)), st.one_of(st.just(0), st.integers(1, 5000)), st.booleans()
)


@settings(max_examples=300)
@given(st.lists(request, min_size=1, max_size=6), st.sampled_from([2, 3, 4, 8]), st.booleans(), st.integers(0, 4))
def test_prefill_splits_rank_by_rank(
    reqs: list[tuple[int, int, bool]], pcp: int, with_dcp: bool, threshold: int
) -> None:
    """Rows and causal pairs of the busiest rank, a request at a time; decodes are whole on every rank."""
    windows = (0, 37, 1024)
    plan = _core.FeaturePlan(
        reads=[], pairs=[_core.PairClass(window=w) for w in windows], pcp=pcp, replicate_short_chunks=with_dcp
    )
    scheduled = [1 if is_decode else tokens for tokens, _, is_decode in reqs]
    computed = [past for _, past, _ in reqs]
    f = _core.features(plan, steppe.Batch(scheduled, computed, decode_threshold=threshold))
    rows, pairs = 0, [0.0] * len(windows)
    for tokens, past in zip(scheduled, computed, strict=True):
        decode = tokens <= threshold
        runs = [chunks_of(rank, pcp, 2 if with_dcp else 1, tokens, decode) for rank in range(pcp)]
        covered = sorted({token for run in runs for offset, length in run for token in range(offset, offset + length)})
        assert covered == list(range(tokens))
        rows += max(sum(length for _, length in run) for run in runs)
        if decode:
            continue
        for i, window in enumerate(windows):
            pairs[i] += max(sum(pairs_of(offset, length, past, window) for offset, length in run) for run in runs)
    assert f["tokens"] == rows
    assert f["scheduled"] == sum(scheduled)
    assert f["pairs"] == pytest.approx(pairs, rel=1e-12)


@pytest.mark.parametrize("pcp", [2, 4, 8])
def test_a_full_chunk_is_split_evenly(pcp: int) -> None:
    """2*pcp equal pieces, one early and one late a rank: rows and pairs of every rank are the same."""
    tokens = 2 * pcp * 100
    plan = _core.FeaturePlan(reads=[], pairs=[_core.PairClass()], pcp=pcp)
    whole = _core.FeaturePlan(reads=[], pairs=[_core.PairClass()])
    batch = steppe.Batch([tokens], [0])
    split, alone = _core.features(plan, batch), _core.features(whole, batch)
    assert split["tokens"] * pcp == alone["tokens"] == tokens
    assert split["pairs"][0] * pcp == alone["pairs"][0]


def test_short_chunks_are_whole_on_every_rank_under_dcp_only() -> None:
    for tokens in range(1, 40):
        plain = _core.FeaturePlan(reads=[], pairs=[], pcp=4)
        dcp = _core.FeaturePlan(reads=[], pairs=[], pcp=4, replicate_short_chunks=True)
        batch = steppe.Batch([tokens], [0], decode_threshold=0)
        piece = -(-tokens // 8)
        expected = (
            tokens
            if 7 * piece >= tokens
            else max(sum(length for _, length in chunks_of(rank, 4, 2, tokens, False)) for rank in range(4))
        )
        assert _core.features(dcp, batch)["tokens"] == expected
        assert _core.features(plain, batch)["tokens"] <= expected
