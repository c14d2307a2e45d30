"""The refined laws, written out once in numpy: what the fits evaluate and what the compiled core must reproduce.

Every function takes a law's parameters as they stand in a coefficient set and plain numbers or arrays that
broadcast, and
returns microseconds. Heads, experts and shapes are per rank. Tables of measurements are L2-warm; `warm=True` reproduces
them and is for fitting, the default (cold) is what serving pays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Law = Mapping[str, Any]
Number = Any  # float or array
Array = npt.NDArray[np.float64]

PADS = (16, 32, 64, 128)  # row paddings of grouped-GEMM tiles


def _warm_weights(p: Law, nbytes: Number, copies: float = 1.0) -> Number:
    """Weight bytes that still reach HBM when a benchmark loop leaves some of them in L2."""
    if "l2_frac" not in p:
        return nbytes
    f = (nbytes * copies / (p["l2_frac"] * p["l2_B"])) ** 4
    return nbytes * (f / (1 + f) + 1 / (1 + f) / p["l2_gain"])


# ----------------------------------------------------------------------------------------------------------------- GEMM
def gemm(p: Law, m: Number, n: Number, k: Number, *, warm: bool = False, padded: bool = False) -> Array:
    """One linear layer of `m` rows, `n` outputs, `k` inputs, with the activation-quantisation kernel of quantised
    types.

    `padded`: the rows are padded to a captured graph size, so the unaligned-rows cost never applies.
    """
    m, n, k = (np.asarray(v, dtype=np.float64) for v in (m, n, k))
    sms, peak, theta = p["sms"], p["peak_flops"] / 1e6, p["theta"]
    u0 = p.get("u0_ns", 0.0) * 1e-3

    def rate(tm: float, tn: float) -> Number:  # us per unit of k, one tile on one SM
        return u0 + 2.0 * tm * tn * sms / (peak * p["eff"])

    def waves(x: Number) -> Number:
        return np.maximum(1.0, theta * np.ceil(x) + (1 - theta) * x)

    def tile(tm: float, tn: float) -> Number:
        x = np.ceil(m / tm) * np.ceil(n / tn) / sms
        u, edge = rate(tm, tn), p["tile_us"] * (tm * tn / 16384.0)
        t = waves(x) * (k * u + edge)
        if "split_us" in p:  # split-K spreads a short grid over every SM for a fixed fee
            t = np.minimum(t, p["split_us"] + k * u * np.maximum(x, 1 / 32.0) + edge)
        return t

    tiles = p["tile_list"]
    if p["tiles"] == "ladder":  # the engine's dispatch on m; the rung below at its own top m keeps the steps upward
        tc = tile(*tiles[-1][1:])
        for top, tm, tn in reversed(tiles[:-1]):
            at = np.ceil(top / tm) * np.ceil(n / tn) / sms
            rung = waves(at) * (k * rate(tm, tn) + p["tile_us"] * (tm * tn / 16384.0))
            tc = np.where(m <= top, tile(tm, tn), np.maximum(tc, rung))
    else:
        tc = tile(*tiles[0])
        for tm, tn in tiles[1:]:
            tc = np.minimum(tc, tile(tm, tn))
    if "thr" in p:
        tc = tc * (1 + p["thr"] * tc / (tc + p["thr_us"]))
    weights = p["w_bytes"] * n * k
    if warm:
        weights = _warm_weights(p, weights, p.get("copies", 1))
    acts = p["a_bytes"] * m * k + 2.0 * m * n
    if p.get("act_gain", 1.0) != 1.0:  # activations stay in a very large L2
        f = (acts / (0.5 * p["l2_B"])) ** 2
        acts = acts * (f / (1 + f) + 1 / (1 + f) / p["act_gain"])
    tm_ = (weights + acts) / (p["bw_Bps"] / 1e6 * p["bw_eff"])
    chunk = p["chunk"]
    quant = m * (p.get("q_row_us", 0.0) + p.get("q_col_us", 0.0) * (np.ceil(k / chunk) * chunk / 2048.0))
    extra = p.get("multi_us", 0.0) * (m > 1)
    if not padded:
        extra = extra + p.get("align_us", 0.0) * ((m % 4 != 0) & (m >= p["mis_from"]))
    return np.asarray(p["t0"] + extra + quant + np.sqrt(tc * tc + tm_ * tm_))


# ---------------------------------------------------------------------------------------------------------------
# experts
def busiest_rank(tokens: Number, experts: Number, topk: Number, ep: Number, v_load: Number = 0.0) -> Number:
    """Token-expert pairs on the busiest expert-parallel rank. `v_load`: squared variation of expert popularity."""
    local, mean = experts / ep, tokens * topk / experts
    spread = 0.62 * np.log2(np.maximum(ep, 1)) ** 0.75  # mean of the largest of `ep` normals
    load = 1 + spread * np.sqrt(v_load / local + ep / (tokens * topk))
    return np.clip(load * mean * local, 1.0, tokens * np.minimum(topk, local))


def touched_experts(pairs: Number, experts: Number, topk: Number, ep: Number, v_touch: float = 0.5) -> Number:
    """Local experts with at least one row. `v_touch` 0: uniform routing; larger: tokens concentrate on fewer
    experts."""
    local = experts / ep
    if v_touch <= 0:
        return np.minimum(pairs, local * (1 - (1 - topk / experts) ** (pairs * experts / (topk * local))))
    # local * (1 - (1 + v*pairs/local)^(-1/v)), kept exact as v goes to 0
    return np.minimum(pairs, -local * np.expm1(-np.log1p(v_touch * pairs / local) / v_touch))


def padded_rows(pairs: Number, touched: Number, tile: float) -> Number:
    """Rows once every touched expert's rows are rounded up to a tile."""
    return np.maximum(touched * tile, pairs + 0.5 * touched * (tile - 1))


def moe(
    p: Law, tokens: Number, hidden: Number, inter: Number, topk: Number, local: Number, mats: Number,
    pairs: Number, touched: Number, *, rows: Mapping[int, Number] | None = None, warm: bool = False,
) -> Array:  # fmt: skip
    """The experts of one layer on one rank: routing, quantise, permute, two grouped GEMMs, combine; no all-to-all.

    `inter` is this rank's expert width, `local` its experts, `mats` 3 for gated experts and 2 otherwise, `pairs` and
    `touched` its routing. `rows` gives exact padded rows by tile where they are known.
    """
    inter = np.ceil(inter / p["pad"]) * p["pad"]
    if "pad_hidden" in p:
        hidden = np.ceil(hidden / p["pad_hidden"]) * p["pad_hidden"]
    padded = rows if rows is not None else {t: padded_rows(pairs, touched, t) for t in PADS}
    work = np.min(np.stack(np.broadcast_arrays(*(padded[t] * (1 + p["tile0"] / t) for t in PADS))), axis=0)
    tc = work * 2 * mats * inter * hidden / (p["peak_flops"] / 1e6 * p["eff"])
    weights = touched * mats * inter * hidden * p["w_bytes"]
    if warm:
        weights = _warm_weights(p, weights)
    tm = weights / (p["bw_Bps"] / 1e6 * p["bw_eff"])
    moved_pairs = pairs if p["pairs"] == "local" else tokens * topk
    fixed = (p["t0"] + p["t_ramp"] * tokens / (tokens + 16)
             + p["c_dim"] * 1e-3 * (hidden + inter) + p.get("c_loc", 0.0) * local)  # fmt: skip
    moved = 1e-6 * (p["c_tok"] * tokens * hidden + p["c_row"] * moved_pairs * hidden
                    + p["c_act"] * moved_pairs * inter * (mats - 1)) + 1e-3 * p["c_route"] * tokens * topk  # fmt: skip
    return np.asarray(fixed + moved + np.sqrt(tc * tc + tm * tm))


# -------------------------------------------------------------------------------------------------------------
# attention
def _read_time(p: Law, nbytes: Number, unique: Number, ctas: Number, warm: bool) -> Number:
    """Time to stream `nbytes` with `ctas` readers: the smaller of their joint rate and the achieved HBM rate,
    smoothly."""
    readers = p["r"] * ctas
    rate = ((1 / (p["u"] * (p["bw_Bps"] / 1e6))) ** 4 + (1 / readers) ** 4) ** -0.25
    t = nbytes / rate
    if warm:
        hot = 1 / (1 + (unique / p["C"]) ** 6)
        t = t * (1 - hot) + hot * nbytes / readers
    return t


def attention_decode(
    p: Law, requests: Number, read: Number, longest: Number, n: Number, g: Number, d: Number,
    *, windowed: bool = False, warm: bool = False,
) -> Array:  # fmt: skip
    """Paged decode attention with its KV write. `read` = sum over requests of visible tokens, `longest` their maximum.

    Visible tokens are the context, or min(context, window + p["wp"]) on a windowed layer. `n` query heads, `g` KV
    heads,
    `d` head size.
    """
    group, path = n / g, p["path"]
    fa2 = path == "fa2"
    unpacked = fa2 and windowed  # FlashAttention 2 neither packs query heads nor splits a windowed context
    items = requests * n if unpacked else requests * g
    packed = 1.0 if unpacked else group
    if fa2:
        whole = np.broadcast_to(np.asarray(windowed | (group == 1)), np.shape(items))
    elif path == "triton":
        whole = np.asarray(items > 128)
    else:
        whole = np.zeros(np.shape(items), dtype=bool)
    segments = np.where(whole, 1.0, 16.0) if path == "triton" else 1.0
    unique = 2 * read * g * d * p["e"]
    nbytes = unique * (group if unpacked else 1.0)
    split = np.minimum(p["S"], 1 + read / (128.0 * requests))
    ctas = np.minimum(p["sms"], items * np.where(whole, 1.0, split))
    t_mem = _read_time(p, nbytes, unique, ctas, warm)
    alone = longest * 2 * d * p["e"] / (p["r"] * np.where(whole, 1.0, np.minimum(p["S"], 1 + longest / 128.0)))
    t_mem = np.maximum(t_mem, alone) if not warm else t_mem  # one long request among short ones
    t_item = items * (segments * (p["t0"] + p["t1"] * d) + p["t2"] * d * packed + p["tq"] * requests)
    sat = np.where(whole, 0.0, longest**2 / (longest**2 + 300.0**2))
    wide = ((group > 1) if not windowed else False) if fa2 else group > 16
    swap = fa2 and not windowed
    swap = (group > 1) & (g > 1) & (requests > 1) if swap else False
    fixed = p["F"] + p["F1"] * sat + p["F2"] * np.asarray(wide, float) + p["F3"] * np.asarray(swap, float)
    return np.asarray(fixed + p["tb"] * requests + np.sqrt(t_item**2 + t_mem**2))


def attention_prefill(
    p: Law, requests: Number, queries: Number, pairs: Number, longest: Number, longest_query: Number,
    n: Number, g: Number, d: Number,
) -> Array:  # fmt: skip
    """Prefill attention with its KV write. `pairs` = (query, key) pairs over all requests; `longest` visible tokens of
    the longest request (window + 128 at most), `longest_query` its new tokens."""
    work = n * (pairs * (p["a0"] + p["a1"] * d) + queries * (p["r0"] + p["r1"] * d)) + requests * (
        p["tg"] * g + p["tn"] * n
    )
    chain = longest * (p["tc0"] + p["tc1"] * d)
    io = queries * d * (4 * n + 8 * g)
    t_io = io / (p["v"] * (p["bw_Bps"] / 1e6)) / (1 + (p["C"] / io) ** 4)
    fixed = p["F"] + p["F1"] * longest_query**2 / (longest_query**2 + 256.0**2)
    return np.asarray(fixed + p["rk"] * queries * g * d + t_io + (work**1.5 + chain**1.5) ** (1 / 1.5))


# ------------------------------------------------------------------------------------------------------- latent
# attention
def projection(p: Law, dtype: str, tokens: Number, heads: Number) -> Array:
    """Everything of a measured attention module but the attention: projections, norms, rope, cache write."""
    weights = p[f"w1_{dtype}"] * heads
    work = tokens * (p[f"c0_{dtype}"] + p[f"c1_{dtype}"] * heads)
    return np.asarray(p[f"F_{dtype}"] + np.sqrt(weights**2 + work**2))


def mla_decode(p: Law, requests: Number, read: Number, longest: Number, heads: Number, *, warm: bool = False) -> Array:
    """Latent decode attention above an empty context (576 cached numbers a token); its floor is in `projection`."""
    nbytes = read * 576 * p["e"]
    ctas = np.minimum(p["sms"], np.ceil(heads / 128) * np.minimum(p["S"] * requests, requests + read / 64.0))
    t_mem = _read_time(p, nbytes, nbytes, ctas, warm)
    grow = p["F1"] * longest**2 / (longest**2 + p["L1"] ** 2)
    return np.asarray(grow + np.sqrt(t_mem**2 + (read * (p["k0"] + p["k1"] * heads)) ** 2))


def mla_context(p: Law, requests: Number, pairs: Number, longest: Number, heads: Number) -> Array:
    """Latent prefill attention on expanded heads (192 / 128)."""
    work = heads * (pairs * p["al"] + requests * p["ts"])
    grow = p["F1"] * longest**2 / (longest**2 + 256.0**2)
    return np.asarray(grow + (work**1.5 + (longest * p["tc"]) ** 1.5) ** (1 / 1.5))


# ------------------------------------------------------------------------------------------------------- sparse
# attention
def capped_sum(x: Number, cap: float) -> Number:
    """Integral of min(v, cap) over v in (0, x]."""
    return np.where(x <= cap, x * x / 2, cap * cap / 2 + cap * (x - cap))


def selected(family: str, x: Number, topk: float) -> Number:
    """Keys one query with `x` visible keys attends to."""
    if family == "csa":
        return np.minimum(x, 128.0) + np.minimum(x / 4, topk)
    if family == "hca":
        return np.minimum(x, 128.0) + x / 128
    return np.minimum(x, topk)


def selected_sum(family: str, x: Number, topk: float) -> Number:
    """Integral of `selected` over (0, x]: keys read by the first `x` queries of a request."""
    if family == "csa":
        return capped_sum(x, 128.0) + capped_sum(x, 4 * topk) / 4
    if family == "hca":
        return capped_sum(x, 128.0) + x * x / 256
    return capped_sum(x, topk)


RANKED_UP_TO = 2048  # index keys of a query the small top-k kernel ranks; longer rows take another kernel


def ranked_sum(x: Number, topk: float) -> Number:
    """Sum over the first `x` queries of a request of n^2, n = visible keys / 4, for topk < n <= 2048 (CSA prefill).

    A row no longer than top-k is not ranked at all; one of more than 2048 index keys takes a kernel of linear cost.
    """
    low, high = 4.0 * topk, 4.0 * RANKED_UP_TO
    v = np.clip(x, low, high)
    return (v**3 - low**3) / 48.0


INDEX_RATIO = {"dsa": 1.0, "msa": 1.0, "csa": 0.25, "hca": 0.0}  # index keys scanned per visible key


def sparse(
    p: Law, requests: Number, reads: Number, longest_read: Number, longest: Number, heads: Number, *, decode: bool
) -> Array:
    """Attention over selected keys. `reads` = selected keys summed over all queries, `longest_read` those of the last
    query of the longest request, `longest` its visible tokens."""
    grow = p["F1"] * longest**2 / (longest**2 + 64.0**2)
    per_request = 0.0 if decode else requests * p["ts"]
    return np.asarray(
        grow + per_request + np.sqrt((reads * (p["k0"] + p["k1"] * heads)) ** 2 + (longest_read * p["kc"]) ** 2)
    )


def sparse_indexer(p: Law, queries: Number, scanned: Number, longest_scan: Number, ranked: Number = 0.0) -> Array:
    """The indexer: `scanned` = index keys over all queries, `longest_scan` those of the longest request's last query,
    `ranked` = `ranked_sum` over all requests (new less cached tokens), read by laws that carry j1."""
    scan = np.sqrt((scanned * p["i1"]) ** 2 + (longest_scan * p["i2"]) ** 2)
    return np.asarray(p["Fi"] + queries * p["i0"] + scan + p.get("j1", 0.0) * ranked)


# --------------------------------------------------------------------------------------------------------------
# recurrent
def conv_context(p: Law, requests: Number, queries: Number, channels: Number) -> Array:
    """Causal convolution over new tokens (form `lin`)."""
    io = 4 * queries * channels
    t_io = io / (p["v"] * (p["bw_Bps"] / 1e6)) / (1 + (p["C"] / io) ** 4)
    several = np.asarray(requests > 1, float)
    return np.asarray(
        p["F"] + p["tn"] * requests * channels + queries * channels * (p["tq"] + p["t2"] * several) + t_io
    )


def _state_time(p: Law, nbytes: Number, warm: bool) -> Number:
    hbm = p["bw_Bps"] / 1e6
    t = nbytes / (p["u"] * hbm)
    if warm:
        hot = 1 / (1 + (nbytes / p["C"]) ** 4)
        t = t * (1 - hot) + hot * nbytes / (p["r"] * hbm)
    return t


def conv_decode(p: Law, queries: Number, channels: Number, *, warm: bool = False) -> Array:
    """Convolution-state update of decode tokens (form `memc`): 20 bytes a channel."""
    return np.asarray(p["F"] + _state_time(p, queries * channels * 20.0, warm))


def scan_context(
    p: Law, requests: Number, queries: Number, rounded: Number, longest: Number, k_heads: Number, v_heads: Number
) -> Array:
    """Chunked scan (form `scan_ctx`). `rounded` = sum of max(new tokens, 64), `longest` the largest such term."""
    io = queries * (k_heads * 2 + v_heads * 2.0) * 128 * 2.0
    t_io = io / (p["v"] * (p["bw_Bps"] / 1e6)) / (1 + (p["C"] / io) ** 4)
    chain, work = p["tc"] * longest, p["tw"] * v_heads * rounded
    return np.asarray(
        p["F"] + p["ts"] * requests * v_heads + (chain**1.5 + work**1.5) ** (1 / 1.5) + p["w0"] * rounded + t_io
    )


def scan_decode(
    p: Law, requests: Number, v_heads: Number, state_bytes: Number = 128 * 128 * 4, *, warm: bool = False
) -> Array:
    """State update of decode tokens (form `mem`): `state_bytes` a head are read and written (times the draft width when
    several tokens are verified)."""
    nbytes = requests * v_heads * state_bytes * 2.0
    return np.asarray(p["F"] + p["ts"] * requests * v_heads + _state_time(p, nbytes, warm))


# ------------------------------------------------------------------------------------------- collectives and small
# kernels
def collective(p: Law, nbytes: Number) -> Array:
    """A collective of `nbytes` total payload: a low-latency and a bandwidth protocol, the faster one smoothly."""
    slow, fast = p["a1"] + nbytes / p["R1"], p["a2"] + nbytes / p["R2"]
    return np.asarray((slow**-3 + fast**-3) ** (-1 / 3.0))


def copies(topk: Number, ranks: Number, *, once_a_rank: bool) -> Number:
    """Ranks besides its own a token is sent to: each expert's, or each rank once."""
    if once_a_rank:
        return (ranks - 1) * (1 - (1 - 1 / ranks) ** topk)
    return topk * (ranks - 1) / ranks


def moe_exchange(p: Law, tokens: Number, nbytes: Number) -> Array:
    """A point-to-point exchange of experts: `tokens` of this rank, `nbytes` = tokens * hidden * p["bytes"] * copies."""
    return np.asarray(p["a"] + p["c"] * tokens + nbytes / p["R"])


def all_reduce_curve(p: Law, nbytes: Number) -> Array:
    """vLLM's own all-reduce as measured: log-log between points, flat below the first, proportional above the last."""
    x, y = np.log(np.asarray(p["bytes"], float)), np.log(np.asarray(p["us"], float))
    at = np.log(np.maximum(nbytes, 1e-9))
    return np.asarray(np.exp(np.interp(at, x, y) + np.maximum(at - x[-1], 0.0)))


def elementwise(p: Law, nbytes: Number) -> Array:
    """One small kernel (norm, rope, activation, cast) that moves `nbytes`."""
    return np.asarray(p["floor_us"] + np.asarray(nbytes, float) / (p["hbm_fraction"] * p["bw_Bps"] / 1e6))
