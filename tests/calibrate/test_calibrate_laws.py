"""The laws themselves: published test vectors, limits that must hold, and agreement with the compiled core."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steppe
from steppe.calibrate import laws

SETS = Path(steppe.__file__).parent / "catalog" / "data" / "coefficients"


def shipped(part: str) -> dict[tuple[str, str], dict[str, Any]]:
    document = json.loads((SETS / f"{part}-refined.json").read_text())
    return {(law["law"], law["key"]): law["params"] for law in document["laws"]}


H100 = shipped("h100")
B200 = shipped("b200")
PARTS = sorted(p.name.removesuffix("-refined.json") for p in SETS.glob("*-refined.json"))


# -------------------------------------------------------------------------------------------------- test vectors
# (part, type, m, n, k, cold us, warm us), computed by hand from parameters of four digits
GEMM_VECTORS = [
    ("h100", "bfloat16", 1, 4096, 4096, 15.25, 15.25),
    ("h100", "fp8", 64, 16384, 5120, 38.01, 38.01),
    ("h100", "fp8_block", 128, 4096, 7168, 21.25, 19.69),
    ("h100", "fp8_block", 4097, 7168, 2048, 122.28, 121.77),
    ("b200", "bfloat16", 256, 6144, 4096, 15.01, 15.01),
    ("b200", "fp8", 2048, 10240, 8192, 133.82, 133.82),
    ("b200", "fp8_block", 33, 7168, 2048, 17.65, 16.74),
    ("b200", "nvfp4", 16, 7168, 16384, 22.18, 18.15),
    ("b200", "nvfp4", 16384, 16384, 7168, 879.99, 879.12),
]


@pytest.mark.parametrize(("part", "dtype", "m", "n", "k", "cold", "warm"), GEMM_VECTORS)
def test_gemm_vectors(part: str, dtype: str, m: int, n: int, k: int, cold: float, warm: float) -> None:
    p = shipped(part)["gemm", dtype]
    assert float(laws.gemm(p, m, n, k)) == pytest.approx(cold, rel=3e-3)
    assert float(laws.gemm(p, m, n, k, warm=True)) == pytest.approx(warm, rel=3e-3)


# (part, key, tokens, topk, experts, ep, hidden, width, pairs, touched, us), uniform load, no concentration
MOE_VECTORS = [
    ("h100", "fp8_block/fp8moe_triton", 1, 8, 128, 1, 4096, 1536, 8.00, 7.76, 79.38),
    ("h100", "fp8_block/fp8moe_flashinfer_cutlass", 256, 8, 256, 8, 7168, 2048, 278.61, 31.99, 539.56),
    ("b200", "nvfp4/expertsmonolithic", 64, 8, 256, 8, 6144, 2048, 75.31, 28.96, 115.18),
    ("b200", "nvfp4/expertsmonolithic", 8192, 8, 256, 8, 6144, 2048, 8319.92, 32.00, 354.03),
]


@pytest.mark.parametrize(("part", "key", "t", "k", "e", "ep", "h", "i", "pairs", "touched", "us"), MOE_VECTORS)
def test_moe_vectors(part: str, key: str, t: int, k: int, e: int, ep: int, h: int, i: int, pairs: float, touched: float,
                     us: float) -> None:  # fmt: skip
    p = shipped(part)["moe", key]
    busiest = laws.busiest_rank(t, e, k, ep)
    assert float(busiest) == pytest.approx(pairs, rel=1e-3)
    assert float(laws.touched_experts(busiest, e, k, ep, 1e-6)) == pytest.approx(touched, rel=1e-3)
    assert float(laws.moe(p, t, h, i, k, e / ep, 3, pairs, touched)) == pytest.approx(us, rel=3e-3)


# --------------------------------------------------------------------------------------------------------- properties
@pytest.mark.parametrize("part", PARTS)
def test_gemm_is_finite_positive_and_never_cheaper_with_more_rows(part: str) -> None:
    rng = np.random.default_rng(1)
    m = np.unique(np.rint(np.exp(np.linspace(0, np.log(2e5), 1500))))
    n, k = (np.exp(rng.uniform(np.log(32), np.log(1e5), 40))[:, None] for _ in "nk")
    for (law, key), p in shipped(part).items():
        if law == "gemm":
            t = laws.gemm(p, m[None, :], n, k, padded=True)
            assert np.isfinite(t).all(), key
            assert (t > 0).all(), key
            assert (np.diff(t, axis=1) >= -1e-9 * t[:, 1:]).all(), key


@pytest.mark.parametrize("part", PARTS)
def test_attention_grows_with_context_and_heads(part: str) -> None:
    context = np.unique(np.rint(2.0 ** np.arange(0, 20.01, 0.5)))
    for (law, key), p in shipped(part).items():
        windowed = "/swa" in key
        for n, g in ((8, 8), (32, 8), (64, 4)):
            if law == "attention_decode":
                t = laws.attention_decode(p, 16, 16 * context, context, n, g, 128, windowed=windowed)
            elif law == "attention_prefill":
                t = laws.attention_prefill(p, 2, 2 * context, context**2, context, context, n, g, 128)
            else:
                continue
            assert np.isfinite(t).all(), key
            assert (t > 0).all(), key
            assert (np.diff(t) >= -1e-9 * t[1:]).all(), key


def test_cold_weights_cost_at_least_what_warm_ones_do() -> None:
    for (law, key), p in {**H100, **B200}.items():
        if law == "gemm":
            assert (laws.gemm(p, 8, 4096, np.arange(256, 8192, 256)) >= laws.gemm(p, 8, 4096, np.arange(256, 8192, 256),
                    warm=True) - 1e-9).all(), key  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_collectives_grow_with_bytes(part: str) -> None:
    b = 2.0 ** np.arange(0, 34, 0.25)
    for (law, key), p in shipped(part).items():
        if law == "collective":
            t = laws.collective(p, b)
            assert np.isfinite(t).all(), key
            assert (np.diff(t) >= 0).all(), key


def test_a_curve_passes_through_its_points_and_is_proportional_beyond() -> None:
    p = next(p for (law, _), p in H100.items() if law == "all_reduce_curve")
    assert laws.all_reduce_curve(p, np.array(p["bytes"], float)) == pytest.approx(p["us"])
    last = p["bytes"][-1]
    assert float(laws.all_reduce_curve(p, 4 * last)) == pytest.approx(4 * p["us"][-1])
    assert float(laws.all_reduce_curve(p, 1)) == pytest.approx(p["us"][0])


@given(st.integers(1, 10**5), st.sampled_from([1, 2, 4, 8]), st.floats(0, 1))
def test_routing_stays_within_what_is_possible(tokens: int, ep: int, v: float) -> None:
    pairs = float(laws.busiest_rank(tokens, 128, 8, ep, 0.0))
    touched = float(laws.touched_experts(pairs, 128, 8, ep, v))
    local = 128 / ep
    assert 0 < touched <= min(local, pairs) * (1 + 1e-12)
    assert pairs <= tokens * min(8, local) * (1 + 1e-12)


def test_a_query_selects_what_its_family_allows() -> None:
    assert laws.selected("dsa", 100, 2048) == 100
    assert laws.selected("dsa", 9000, 2048) == 2048
    assert laws.selected("csa", 4096, 512) == 128 + 512
    assert laws.selected("hca", 12800, 512) == 128 + 100
    x = np.arange(1, 20001)
    for family, topk in (("dsa", 2048), ("csa", 512), ("hca", 512)):
        exact = laws.selected(family, x, topk).sum()
        assert float(laws.selected_sum(family, 20000.0, topk)) == pytest.approx(exact, rel=2e-3)


# --------------------------------------------------------------------------------------------------- the compiled core
try:
    from steppe import _core as core
except ImportError:  # the pure-Python tree is enough for the rest
    core = None  # type: ignore[assignment]


def _price(law: str, params: dict[str, float], inputs: list[int], features: Any, batch: Any) -> float:
    """One term priced by the core, microseconds."""
    names, _ = core.LAWS[law]
    term = core.Term(name=law, law=law, params=[float(params.get(n, 0.0)) for n in names], inputs=inputs,
                     resource=core.Resource.sm, stage=0)  # fmt: skip
    plan = core.Plan(features=features, passes=[core.Pass()], stages=[core.Stage(name="all")], terms=[term], sm_count=0)
    return float(core.Kernel(plan).step_time(batch).no_overlap / 1e3)


@pytest.mark.skipif(core is None, reason="the compiled core is not installed")
@settings(deadline=None, max_examples=60)
@given(st.integers(1, 20000), st.integers(64, 30000), st.integers(64, 30000),
       st.sampled_from(["h100", "b200", "l40s", "rtx-pro-6000"]),
       st.sampled_from(["bfloat16", "fp8", "fp8_block", "nvfp4"]))  # fmt: skip
def test_core_prices_gemm_alike(m: int, n: int, k: int, part: str, dtype: str) -> None:
    p = shipped(part)["gemm", dtype]
    flat = {**{a: b for a, b in p.items() if not isinstance(b, (list, str))}, "bw": p["bw_Bps"], "n": n, "k": k,
            "ladder": p["tiles"] == "ladder"}  # fmt: skip
    for i, tile in enumerate(p["tile_list"]):
        flat |= dict(
            zip((f"m{i + 1}", f"tm{i + 1}", f"tn{i + 1}"), tile if len(tile) == 3 else [0, *tile], strict=True)
        )
    f = core.FEATURES
    batch = core.Batch([m], [0])
    got = _price("gemm", flat, [f["tokens"], f["unpadded"]], core.FeaturePlan(reads=[], pairs=[]), batch)
    assert got == pytest.approx(float(laws.gemm(p, m, n, k, padded=False)), rel=1e-6, abs=2e-3)


@pytest.mark.skipif(core is None, reason="the compiled core is not installed")
@settings(deadline=None, max_examples=60)
@given(st.integers(1, 2**29), st.sampled_from(["h100", "b200", "gb300"]))
def test_core_prices_collectives_alike(nbytes: int, part: str) -> None:
    laws_of = shipped(part)
    f, features, batch = core.FEATURES, core.FeaturePlan(reads=[], pairs=[]), core.Batch([1], [0])
    p = laws_of["collective", "nccl/all_gather/4"]
    got = _price("two_protocol", {**p, "bytes": nbytes}, [f["tokens"]], features, batch)
    assert got == pytest.approx(float(laws.collective(p, nbytes)), rel=1e-6, abs=2e-3)


@pytest.mark.skipif(core is None, reason="the compiled core is not installed")
@settings(deadline=None, max_examples=80)
@given(st.lists(st.integers(1, 30000), min_size=1, max_size=64), st.sampled_from([(32, 8), (8, 8), (64, 4), (16, 1)]),
       st.sampled_from([64, 128]), st.sampled_from(["h100", "b200"]), st.sampled_from(["bfloat16", "fp8"]))  # fmt: skip
def test_core_prices_decode_attention_alike(
    contexts: list[int], heads: tuple[int, int], d: int, part: str, kv: str
) -> None:
    path = "fa3" if part == "h100" else "trtllm"
    p = shipped(part)["attention_decode", f"{path}/{kv}/full"]
    n, g = heads
    flat = {**{a: b for a, b in p.items() if not isinstance(b, str)}, "bw": p["bw_Bps"], "n": n, "g": g, "d": d,
            "wide": path == "trtllm" and n / g > 16}  # fmt: skip
    f = core.FEATURES
    features = core.FeaturePlan(reads=[core.ReadClass()], pairs=[])
    first_class = len(f)
    batch = core.Batch([1] * len(contexts), [c - 1 for c in contexts])
    inputs = [f["decodes"], first_class, f["max_context"], f["decode_tokens"], f["prefills"]]
    got = _price("attention_decode", flat, inputs, features, batch)
    want = laws.attention_decode(p, len(contexts), sum(contexts), max(contexts), n, g, d)
    assert got == pytest.approx(float(want), rel=1e-6, abs=2e-3)


def test_rows_are_ranked_only_between_top_k_and_the_small_kernel_s_limit() -> None:
    assert float(laws.ranked_sum(4 * 512.0, 512)) == 0
    assert float(laws.ranked_sum(1e6, 512)) == float(laws.ranked_sum(8192.0, 512))
    v = np.arange(1, 8193)
    n = v / 4
    exact = (n**2 * ((n > 1024) & (n <= 2048))).sum()
    assert float(laws.ranked_sum(8192.0, 1024)) == pytest.approx(exact, rel=1e-3)


def test_a_token_goes_to_every_expert_s_rank_or_to_each_rank_once() -> None:
    assert float(laws.copies(8, 8, once_a_rank=False)) == 7
    assert float(laws.copies(1, 8, once_a_rank=True)) == pytest.approx(7 / 8)
    assert float(laws.copies(8, 4, once_a_rank=True)) < 3


def _numbers(p: dict[str, Any], **more: float) -> dict[str, float]:
    """A law's numeric parameters under the names the core uses."""
    flat = {a: float(b) for a, b in p.items() if isinstance(b, (int, float))}
    return {**flat, **({"bw": p["bw_Bps"]} if "bw_Bps" in p else {}), **more}


@pytest.mark.skipif(core is None, reason="the compiled core is not installed")
@settings(deadline=None, max_examples=80)
@given(st.integers(1, 30000), st.sampled_from([1, 4, 8]), st.sampled_from([0.0, 0.5, 1.0]),
       st.sampled_from([("h100", "fp8_block/fp8moe_triton"), ("b200", "nvfp4/expertsmonolithic"),
                        ("h200", "fp8/modeloptfp8moe_flashinfer_cutlass")]))  # fmt: skip
def test_core_prices_experts_alike(tokens: int, ep: int, v: float, which: tuple[str, str]) -> None:
    p = shipped(which[0])["moe", which[1]]
    flat = _numbers(p, experts=128, top_k=8, ep=ep, hidden=4096, inner=1500, matrices=3,
                    all_pairs=p["pairs"] == "all", concentration=v)  # fmt: skip
    f = core.FEATURES
    got = _price("experts", flat, [f["tokens"]], core.FeaturePlan(reads=[], pairs=[]), core.Batch([tokens], [0]))
    pairs = laws.busiest_rank(tokens, 128, 8, ep)
    touched = laws.touched_experts(pairs, 128, 8, ep, v)
    want = laws.moe(p, tokens, 4096, 1500, 8, 128 / ep, 3, pairs, touched)
    assert got == pytest.approx(float(want), rel=1e-6, abs=2e-3)


@pytest.mark.skipif(core is None, reason="the compiled core is not installed")
@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.integers(2, 9000), min_size=1, max_size=8),
    st.sampled_from([(32, 8), (64, 4), (16, 1)]),
    st.sampled_from([("h100", "fa3/bfloat16/full"), ("b200", "trtllm/fp8/full"), ("l40s", "fa2/bfloat16/full")]),
)
def test_core_prices_prefill_attention_alike(
    lengths: list[int], heads: tuple[int, int], which: tuple[str, str]
) -> None:
    p = shipped(which[0])["attention_prefill", which[1]]
    n, g = heads
    f = core.FEATURES
    figure = core.PairFigure
    classes = [core.PairClass(), core.PairClass(figure=figure.visible), core.PairClass(figure=figure.context)]
    features = core.FeaturePlan(reads=[], pairs=classes)
    first = len(f)
    inputs = [f["prefills"], f["prefill_tokens"], first, first + 1, f["max_chunk"], first + 2]
    flat = _numbers(p, n=n, g=g, d=128, e=2)
    got = _price("attention_prefill", flat, inputs, features, core.Batch(lengths, [0] * len(lengths)))
    q = np.array(lengths, float)
    want = laws.attention_prefill(p, len(q), q.sum(), (q * q / 2).sum(), q.max(), q.max(), n, g, 128)
    assert got == pytest.approx(float(want), rel=1e-6, abs=2e-3)


@pytest.mark.skipif(core is None, reason="the compiled core is not installed")
@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 30000), min_size=1, max_size=40), st.sampled_from([8, 16, 128]))
def test_core_prices_latent_decode_alike(contexts: list[int], h: int) -> None:
    laws_of = shipped("h200")
    p = laws_of["mla_decode", "FLASH_ATTN_MLA/bfloat16"]
    flat = _numbers(p, h=h, **{n: p[f"{n}_bfloat16"] for n in ("F", "w1", "c0", "c1")})
    f = core.FEATURES
    features = core.FeaturePlan(reads=[core.ReadClass()], pairs=[core.PairClass(), core.PairClass()])
    k = len(f)
    inputs = [f["tokens"], f["decodes"], k, f["max_context"], f["decode_tokens"], f["prefills"], k + 1, k + 2]
    got = _price("mla", flat, inputs, features, core.Batch([1] * len(contexts), [c - 1 for c in contexts]))
    want = laws.mla_decode(p, len(contexts), sum(contexts), max(contexts), h) + laws.projection(
        p, "bfloat16", len(contexts), h
    )
    assert got == pytest.approx(float(want), rel=1e-6, abs=2e-3)
