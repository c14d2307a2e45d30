"""Which experts the MoE benchmark's tokens reached: an emulation of its generator, to give the law true row counts.

The benchmark draws expert popularity from a bounded power law (or spreads it evenly), repairs it to whole tokens,
and times
the most loaded expert-parallel rank. Serving uses the closed forms of `laws` instead.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from steppe.calibrate.laws import PADS

Counts = npt.NDArray[np.int64]
KEY = ["num_tokens", "num_experts", "topk", "moe_ep_size", "distribution", "groups"]
COLUMNS = ["P", "A", *(f"R{t}" for t in PADS)]
KEPT_GROUPS = 4  # groups a group-limited router keeps (DeepSeek-V3)


def _level(c: Counts, n: Counts, cap: int) -> Counts:
    """Raise the lowest counts of each row by `n` in all, none above `cap`."""
    lo = np.zeros(len(c), np.int64)
    hi = np.full(len(c), cap, np.int64)
    while (lo < hi).any():
        mid = (lo + hi + 1) // 2
        fits = np.maximum(mid[:, None] - c, 0).sum(1) <= n
        lo = np.where(fits, mid, lo)
        hi = np.where(fits, hi, mid - 1)
    filled = np.maximum(c, lo[:, None])
    rest = n - (filled - c).sum(1)
    can = (filled == lo[:, None]) & (filled < cap)
    return np.asarray(filled + (can & (np.cumsum(can, 1) <= rest[:, None])), dtype=np.int64)


def _repair(c: Counts, n: int, tokens: int, up: bool) -> Counts:
    """Add (or remove) `n` token-expert pairs, shared evenly by the ranks that have room."""
    while n > 0:
        room = (tokens - c).sum(1) if up else c.sum(1)
        able = room > 0
        count = int(able.sum())
        if count == 0:
            break
        base, extra = divmod(int(n), count)
        quota = np.minimum(np.where(able, base + (np.cumsum(able) <= extra), 0), room)
        c = _level(c, quota, tokens) if up else tokens - _level(tokens - c, quota, tokens)
        n -= int(quota.sum())
    return c


def power_law_counts(tokens: int, experts: int, topk: int, ep: int, alpha: float, rng: np.random.Generator) -> Counts:
    """Tokens per expert under the bounded power law, most loaded rank first."""
    low, high = (1.0, tokens * 0.8) if tokens * topk > experts else (0.01, 2.0)
    a = 1 - alpha
    x = ((high**a - low**a) * rng.random(experts) + low**a) ** (1 / a)
    c = np.rint(x / x.sum() * tokens * topk).astype(np.int64)
    over = int(np.maximum(c - tokens, 0).sum())
    c = np.minimum(c, tokens).reshape(ep, experts // ep)
    if over:
        c = _repair(c, over, tokens, True)
    missing = tokens * topk - int(c.sum())
    if missing:
        c = _repair(c, abs(missing), tokens, missing > 0)
    worst = int(np.argmax(c.sum(1)))
    if worst:
        c[[0, worst]] = c[[worst, 0]]
    return np.asarray(c.reshape(-1), dtype=np.int64)


def _group_limited(ids: Counts, experts: int, topk: int, groups: int) -> Counts:
    """Group-limited top-k over the benchmark's one-hot logits; ties go to the lowest index."""
    tokens = len(ids)
    chosen = np.zeros((tokens, experts), bool)
    chosen[np.arange(tokens)[:, None], ids] = True
    score = np.minimum(chosen.reshape(tokens, groups, experts // groups).sum(2), 2)
    keep = np.zeros((tokens, groups), bool)
    keep[np.arange(tokens)[:, None], np.argsort(-score, axis=1, kind="stable")[:, :KEPT_GROUPS]] = True
    s = np.where(np.repeat(keep, experts // groups, 1), chosen.astype(np.int8), -1)
    return np.asarray(np.argsort(-s, axis=1, kind="stable")[:, :topk], dtype=np.int64)


def _balanced(tokens: int, experts: int, topk: int, groups: int) -> Counts:
    stride = -(-experts // topk)
    t, i = np.arange(tokens)[:, None], np.arange(topk)[None, :]
    spread: Any = (t + i * stride) if tokens >= stride else np.floor(t * stride / tokens + i * stride)
    ids = (spread % experts).astype(np.int64)
    if groups > 1:
        ids = _group_limited(ids, experts, topk, groups)
    return np.asarray(np.bincount(ids.ravel(), minlength=experts), dtype=np.int64)


def emulate(
    tokens: int, experts: int, topk: int, ep: int, distribution: str, groups: int, draws: int = 8
) -> npt.NDArray[np.float64]:
    """Mean over draws of the timed rank's pairs, touched experts and rows padded to 16, 32, 64 and 128."""
    seed = zlib.crc32(f"{tokens},{experts},{topk},{ep},{distribution},{groups}".encode())
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(1 if distribution == "balanced" else draws):
        if distribution == "balanced":
            c = _balanced(tokens, experts, topk, groups)
        else:
            c = power_law_counts(tokens, experts, topk, ep, float(distribution.split("_")[-1]), rng)
            if groups > 1:
                order = np.argsort(-c, kind="stable")
                ids = np.repeat(order, c[order]).reshape(topk, tokens).T
                c = np.bincount(_group_limited(ids, experts, topk, groups).ravel(), minlength=experts)
        c = c[: experts // ep]
        out.append([c.sum(), (c > 0).sum(), *((-(-c // p) * p).sum() for p in PADS)])
    return np.asarray(np.mean(out, 0), dtype=np.float64)


def emulate_many(keys: list[tuple[Any, ...]]) -> list[list[Any]]:
    """`emulate` for rows of KEY values; large group-limited cases take fewer draws."""
    out: list[list[Any]] = []
    for tokens, experts, topk, ep, distribution, groups in keys:
        counts = emulate(tokens, experts, topk, ep, distribution, groups, 3 if groups > 1 and tokens > 2000 else 8)
        out.append([tokens, experts, topk, ep, distribution, groups, *counts])
    return out
