"""What the core counts for a draft pass, against a transcription request by request, and the drafters' own graphs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import steppe
from steppe import _core
from steppe.engine.v0_31.graphs import capture_sizes

READS = [
    {},
    {"limit": 64},
    {"limit": 100, "tail_ratio": 4},
    {"divide": 4},
    {"dcp": 4, "interleave": 8},
    {"limit": 128, "dcp": 2},
    {"divide": 4, "dcp": 4, "shard_sum": True},
]
PAIRS = [{}, {"window": 50}, {"window": 50, "slack": 16, "figure": "visible"}, {"figure": "context"}, {"ratio": 4}]
SIZES = [1, 2, 4, 8, 16, 24, 32, 48, 64]


def plan(**settings: Any) -> Any:
    reads = [_core.ReadClass(**each) for each in READS]
    pairs = [
        _core.PairClass(
            **{**each, **({"figure": getattr(_core.PairFigure, each["figure"])} if "figure" in each else {})}
        )
        for each in PAIRS
    ]
    return _core.FeaturePlan(
        reads=reads, pairs=pairs, pad_to_capture=True, capture_ceiling=SIZES[-1], capture_sizes=SIZES, **settings
    )


def shard(tokens: int, dcp: int, interleave: int) -> int:
    """Tokens of the rank that holds most, counted stripe by stripe."""
    held = [0] * dcp
    for start in range(0, tokens, interleave):
        held[start // interleave % dcp] += min(interleave, tokens - start)
    return max(held)


def read(contexts: list[int], spec: dict[str, Any]) -> float:
    limit, tail, divide = spec.get("limit", 10**9), spec.get("tail_ratio", 0), spec.get("divide", 1)
    dcp, interleave = spec.get("dcp", 1), spec.get("interleave", 1)
    each = [(min(c, limit) + (max(0, c - limit) / tail if tail else 0)) / divide for c in contexts]
    if dcp == 1:
        return sum(each)
    if spec.get("shard_sum"):
        return shard(int(sum(each) + 0.5), dcp, interleave)
    return sum(shard(max(1, int(c + 0.5)), dcp, interleave) for c in each)


def pairs(chunks: list[tuple[int, int]], spec: dict[str, Any]) -> float:
    """Over (tokens, tokens before) of the prefills."""
    window, slack = spec.get("window", 0), spec.get("slack", 0)
    visible = [min(s + c, window + slack) if window else s + c for s, c in chunks]
    if spec.get("figure") == "visible":
        return max(visible, default=0)
    if spec.get("figure") == "context":
        return sum(v for v, (_, c) in zip(visible, chunks, strict=True) if c)
    # Every query sees what lies before it and half of itself, up to the window.
    total = 0.0
    for s, c in chunks:
        for q in range(s):
            before = c + q + 0.5
            total += min(before, window) if window and c + q >= window else before
    return total / spec.get("ratio", 1)


requests = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 400)), min_size=1, max_size=8)
kinds = st.sampled_from(["one_a_request", "block_a_request", "extra"])


@given(requests, kinds, st.integers(1, 5), st.integers(0, 4), st.integers(0, 2))
def test_rows_of_a_pass_request_by_request(
    reqs: list[tuple[int, int]], kind: str, block: int, ahead: int, run: int
) -> None:
    """Rows, decodes, contexts, reads and causal pairs, for passes that do not run the target's own rows."""
    spec: dict[str, Any] = {"ahead": ahead, "count": 3, "grows": True, "head_rows": 2}
    if kind == "extra":
        pass_ = _core.Pass(rows=_core.PassRows.batch, extra=block, **spec)
    else:
        pass_ = _core.Pass(rows=getattr(_core.PassRows, kind), block=block, **spec)
    batch = steppe.Batch([s for s, _ in reqs], [c for _, c in reqs], decode_threshold=4)
    f = _core.draft_features(plan(), pass_, batch, run)

    running = [(s, c) for s, c in reqs if s > 0]
    width = {"one_a_request": 1, "block_a_request": block}
    rows = [s + block if kind == "extra" else width[kind] for s, _ in running]
    contexts = [c + s + ahead + run + (block if kind == "extra" else 0) for s, c in running]
    is_decode = [kind != "extra" or r <= 4 + block for r in rows]
    decodes = [c for c, d in zip(contexts, is_decode, strict=True) if d]
    chunks = [(r, c - r) for r, c, d in zip(rows, contexts, is_decode, strict=True) if not d]
    assert f["tokens"] == f["padded_tokens"] == sum(rows)  # an eager pass is not padded
    assert f["unpadded"] == 1
    assert f["decodes"] == len(decodes)
    assert f["prefills"] == len(chunks)
    assert f["decode_tokens"] == sum(r for r, d in zip(rows, is_decode, strict=True) if d)
    assert f["prefill_tokens"] == sum(r for r, _ in chunks)
    assert f["max_context"] == max(decodes, default=0)
    assert f["max_chunk"] == max((r for r, _ in chunks), default=0)
    assert f["sampled_rows"] == 2 * len(running)
    assert f["reads"] == pytest.approx([read(decodes, each) if decodes else 0 for each in READS])
    assert f["pairs"] == pytest.approx([pairs(chunks, each) for each in PAIRS])


def test_a_drafted_position_stops_at_the_longest_context() -> None:
    pass_ = _core.Pass(rows=_core.PassRows.one_a_request, ahead=1, count=8, grows=True)
    batch = steppe.Batch([1, 1], [96, 10])
    found = [_core.draft_features(plan(max_model_len=100), pass_, batch, run)["max_context"] for run in range(5)]
    assert found == [98, 99, 100, 100, 100]


def test_the_target_s_rows_are_taken_over_without_the_pad() -> None:
    pass_ = _core.Pass(rows=_core.PassRows.batch, head_rows=1)
    batch = steppe.Batch([4, 4, 40], [50, 60, 7], decode_threshold=4)
    padded = steppe.Batch([4, 4, 40], [50, 60, 7], decode_threshold=4, pad_tokens=9)
    target, drafted = _core.features(plan(), batch), _core.draft_features(plan(), pass_, padded)
    assert drafted["tokens"] == target["tokens"] == 48
    assert (drafted["reads"], drafted["pairs"]) == (target["reads"], target["pairs"])
    assert drafted["sampled_rows"] == 3


# Most requests graphs hold, by max_num_seqs, k and ceiling: verification, DFlash (k + 1 rows), DSpark (k rows).
CEILINGS = [
    (1024, 3, 512, 128, 128, 166),
    (1024, 3, 1024, 256, 256, 336),
    (1024, 5, 512, 83, 83, 100),
    (1024, 5, 1024, 168, 168, 202),
    (1024, 7, 512, 64, 64, 71),
    (1024, 7, 1024, 128, 128, 144),
    (100, 3, 512, 100, 100, 96),
]


@pytest.mark.parametrize(("seqs", "k", "ceiling", "verify", "dflash", "dspark"), CEILINGS)
def test_the_ceiling_of_a_drafter_s_own_graphs(
    seqs: int, k: int, ceiling: int, verify: int, dflash: int, dspark: int
) -> None:
    """Sizes are rounded up to whole requests and dropped above the ceiling (vllm/v1/worker/gpu/cudagraph_utils.py)."""
    sizes = list(capture_sizes(ceiling, 8192, seqs, 1 + k, 10 if ceiling == 1024 else 9, stated=False))

    def largest(width: int) -> int:
        pass_ = _core.Pass(
            rows=_core.PassRows.block_a_request,
            graph=_core.PassGraph.own,
            block=width,
            width=width,
            ceiling=ceiling,
            max_requests=seqs,
        )
        held = [n for n in range(1, seqs + 1) if _core.captured_requests(n, pass_, sizes)]
        assert held == list(range(1, len(held) + 1))
        for n in held:
            fits = _core.captured_requests(n, pass_, sizes)
            candidates = [-(-size // width) for size in sizes]
            whole = [c for c in candidates if c * width <= ceiling and c <= seqs]
            assert fits == min(c for c in whole if c >= n)
        return len(held)

    assert largest(1 + k) in (dflash, verify)
    assert largest(k) == dspark
