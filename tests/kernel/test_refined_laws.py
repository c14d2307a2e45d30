"""Every refined law of the core equals its numpy formula, for every parameter set the package ships.

The formulas are `steppe.calibrate.laws`, which the fits evaluate; parameters reach the core through the same code that
builds plans. Shapes and batches are drawn at random from a fixed seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from one_term import READ, microseconds

from steppe._core import Batch, PairFigure
from steppe.calibrate import laws as formula
from steppe.catalog import Catalog
from steppe.documents import Law, load_coefficient_set
from steppe.plan.refined_laws import RefinedLaws, number

RELATIVE = 1e-9
SHAPES = 6  # drawn for each parameter set


def sets() -> list[str]:
    folder = Catalog(None).root / "coefficients"
    return sorted(path.stem for path in folder.glob("*-refined.json"))


@cache
def laws_of(set_name: str) -> tuple[Law, ...]:
    return tuple(load_coefficient_set(Catalog(None).root / "coefficients" / f"{set_name}.json").laws)


def entries(family: str) -> list[Any]:
    return [
        pytest.param(law, id=f"{name.removesuffix('-refined')}:{law.key}")
        for name in sets()
        for law in laws_of(name)
        if law.law == family
    ]


def rng(law: Law) -> np.random.Generator:
    return np.random.default_rng(sum(map(ord, law.key)))


def refined(*found: Law, **settings: Any) -> RefinedLaws:
    """The code that turns laws into parameters, over these laws alone."""
    resolution = SimpleNamespace(
        widths=SimpleNamespace(tp=1),
        routing_concentration=settings.pop("concentration", 0.5),
        settings=SimpleNamespace(one_kernel_attention=settings.pop("one_launch", False)),
        chip=SimpleNamespace(compute_capability=9.0),
    )
    by_key = {(law.law, law.key): law for law in found}
    scope = SimpleNamespace(law=lambda family, key: by_key.get((family, key)), assume=lambda *_: None)
    return RefinedLaws(resolution, scope)  # type: ignore[arg-type]


def near(got: float, want: Any) -> None:
    assert got == pytest.approx(float(want), rel=RELATIVE)


# -- linear layers -----------------------------------------------------------------------------------------------------


def shapes(law: Law) -> Iterator[tuple[int, int, int]]:
    chance = rng(law)
    for _ in range(SHAPES):
        yield tuple(int(2 ** chance.uniform(0, top)) for top in (14, 15, 14))  # type: ignore[misc]
    yield from ((1, 4096, 4096), (64, 7168, 2048), (65, 128, 512), (256, 24576, 1536), (257, 512, 7168))


@pytest.mark.parametrize("law", entries("gemm"))
def test_gemm(law: Law) -> None:
    for m, n, k in shapes(law):
        params = refined(law).gemm(law.key, n, k)
        eager = microseconds("gemm", params, ("tokens", "unpadded"), Batch([m], [0]))
        near(eager, formula.gemm(law.params, m, n, k))
        graph = microseconds(
            "gemm", params, ("tokens", "unpadded"), Batch([m], [0]), pad_to_capture=True, capture_sizes=[m]
        )
        near(graph, formula.gemm(law.params, m, n, k, padded=True))


def test_split_products_on_oblong_tiles() -> None:
    """No shipped set splits k on tiles that are not square; the law does not care."""
    (law,) = (law for law in laws_of("h100-refined") if (law.law, law.key) == ("gemm", "bfloat16"))
    oblong = law.model_copy(update={"params": {**law.params, "tile_list": [[16, 256], [128, 64]], "tile_us": 9.0}})
    for m, n, k in shapes(law):
        params = refined(oblong).gemm(law.key, n, k)
        got = microseconds(
            "gemm", params, ("tokens", "unpadded"), Batch([m], [0]), pad_to_capture=True, capture_sizes=[m]
        )
        near(got, formula.gemm(oblong.params, m, n, k, padded=True))


# -- experts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("concentration", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("law", entries("moe"))
def test_experts(law: Law, concentration: float) -> None:
    chance = rng(law)
    for _ in range(SHAPES // 2):
        ep = int(2 ** chance.integers(0, 6))
        experts = ep * int(chance.integers(1, 40))
        top_k, tokens = int(chance.integers(1, min(experts, 12) + 1)), int(2 ** chance.uniform(0, 14))
        inner, hidden = float(chance.integers(64, 8000)), float(chance.integers(256, 8000))
        node: Any = SimpleNamespace(top_k=top_k, gated=bool(chance.integers(0, 2)))
        params = refined(law, concentration=concentration).experts(node, law.key, ep, inner, hidden, experts)
        pairs = formula.busiest_rank(tokens, experts, top_k, ep)
        touched = formula.touched_experts(pairs, experts, top_k, ep, concentration)
        mats = 3 if node.gated else 2
        want = formula.moe(law.params, tokens, hidden, inner, top_k, experts / ep, mats, pairs, touched)
        near(microseconds("experts", params, ("tokens",), Batch([tokens], [0])), want)


# -- attention ---------------------------------------------------------------------------------------------------------


def head_shapes(chance: np.random.Generator) -> tuple[int, int, int]:
    g = int(2 ** chance.integers(0, 4))
    return g * int(chance.choice([1, 2, 4, 5, 8, 16, 24])), g, int(chance.choice([64, 96, 128, 192, 256, 512]))


def decodes(chance: np.random.Generator) -> list[int]:
    """Context lengths, this step's token included."""
    count = int(2 ** chance.uniform(0, 9))
    return [int(2 ** chance.uniform(0, 16)) + 1 for _ in range(count)]


@pytest.mark.parametrize("law", entries("attention_decode"))
def test_attention_decode(law: Law) -> None:
    chance, swa = rng(law), law.key.split("/")[2] == "swa"
    for _ in range(SHAPES):
        n, g, d = head_shapes(chance)
        window, contexts = int(chance.integers(16, 5000)) if swa else 0, decodes(chance)
        node: Any = SimpleNamespace(n_q=n, n_kv=g, d_h=d, window=window)
        laws = refined(law)
        span = window + laws.window_slack(law) if swa else 2**40
        visible = [min(each, span) for each in contexts]
        got = microseconds(
            "attention_decode",
            laws.attention_decode(node, law),
            ("decodes", READ, "max_context", "decode_tokens", "prefills"),
            Batch([1] * len(contexts), [each - 1 for each in contexts]),
            reads=[{"limit": span}],
        )
        want = formula.attention_decode(law.params, len(contexts), sum(visible), max(visible), n, g, d, windowed=swa)
        near(got, want)


@pytest.mark.parametrize("law", entries("attention_decode")[::9])
def test_attention_decode_shares_the_launch_of_prefills(law: Law) -> None:
    """On a one-kernel backend a mixed step pays no decode floor; otherwise both."""
    node: Any = SimpleNamespace(n_q=8, n_kv=8, d_h=128, window=0)  # as many heads: no layout extras
    inputs = ("decodes", READ, "max_context", "decode_tokens", "prefills")
    alone, mixed = Batch([1], [4095]), Batch([1, 100], [4095, 0])
    shared, own = (refined(law, one_launch=flag).attention_decode(node, law) for flag in (True, False))
    cost = lambda params, batch: microseconds("attention_decode", params, inputs, batch, reads=[{}])  # noqa: E731
    splits = (
        0 if law.params["path"] == "fa2" else 4096**2 / (4096**2 + 300**2)
    )  # FlashAttention 2 splits wide groups only
    floor = number(law.params["F"]) + number(law.params.get("F1", 0)) * splits
    near(cost(own, mixed), cost(own, alone))
    near(cost(shared, alone), cost(own, alone))
    assert cost(own, mixed) - cost(shared, mixed) == pytest.approx(floor, rel=1e-6)


def prefills(chance: np.random.Generator) -> list[tuple[int, int]]:
    """(new tokens, cached tokens) of each chunk: fresh ones, whose prefix the law's own form covers."""
    return [(int(2 ** chance.uniform(1, 13)) + 1, 0) for _ in range(int(chance.integers(1, 6)))]


@pytest.mark.parametrize("law", entries("attention_prefill"))
def test_attention_prefill(law: Law) -> None:
    chance, swa = rng(law), law.key.split("/")[2] == "swa"
    for _ in range(SHAPES):
        n, g, d = head_shapes(chance)
        window, chunks = int(chance.integers(64, 5000)) if swa else 0, prefills(chance)
        node: Any = SimpleNamespace(n_q=n, n_kv=g, d_h=d, window=window)
        visible = [min(s, window + 128) if swa else s for s, _ in chunks]
        triangle = [s * s / 2 for s, _ in chunks]
        if swa:  # queries inside the window see a triangle, the others a full window
            triangle = [s * s / 2 if s <= window else window * window / 2 + (s - window) * window for s, _ in chunks]
        got = microseconds(
            "attention_prefill",
            refined(law).attention_prefill(node, law, 2.0),
            ("prefills", "prefill_tokens", READ, READ + 1, "max_chunk", READ + 2),
            Batch([s for s, _ in chunks], [c for _, c in chunks]),
            pairs=[
                {"window": window},
                {"figure": PairFigure.visible, "window": window, "slack": 128 if window else 0},
                {"figure": PairFigure.context, "window": window},
            ],
        )
        queries = sum(s for s, _ in chunks)
        longest = max(s for s, _ in chunks)
        want = formula.attention_prefill(
            law.params, len(chunks), queries, sum(triangle), max(visible), longest, n, g, d
        )
        near(got, want)


@pytest.mark.parametrize("law", entries("attention_prefill")[::9])
def test_attention_prefill_reads_the_cached_prefix(law: Law) -> None:
    """Chunks that continue a prefix read its keys once more, at 85 % of the HBM rate, beside arithmetic and chain."""
    node: Any = SimpleNamespace(n_q=32, n_kv=4, d_h=128, window=0)
    params = refined(law).attention_prefill(node, law, 2.0)
    inputs = ("prefills", "prefill_tokens", READ, READ + 1, "max_chunk", READ + 2)
    pairs = [{}, {"figure": PairFigure.visible}, {"figure": PairFigure.context}]
    got = microseconds("attention_prefill", params, inputs, Batch([50, 30], [20000, 0]), pairs=pairs)
    p, hbm = law.params, number(law.params["bw_Bps"]) / 1e6
    work = 32 * ((50 * 20000 + 1250 + 450) * (p["a0"] + p["a1"] * 128) + 80 * (p["r0"] + p["r1"] * 128))
    work += 2 * (p["tg"] * 4 + p["tn"] * 32)
    chain, memory = 20050 * (p["tc0"] + p["tc1"] * 128), 2 * 20050 * 4 * 128 * 2.0 / (0.85 * hbm)
    moved = 80 * 128 * (4 * 32 + 8 * 4)
    fixed = p["F"] + p["F1"] * 2500 / (2500 + 65536) + p["rk"] * 80 * 4 * 128
    fixed += moved / (p["v"] * hbm) / (1 + (p["C"] / moved) ** 4)
    near(got, fixed + (work**1.5 + chain**1.5 + memory**1.5) ** (2 / 3))


# -- latent and sparse blocks ------------------------------------------------------------------------------------------


def contexts_of(set_name: str, family: str) -> list[Law]:
    return [law for law in laws_of(set_name) if law.law == family]


def mla_params(decode: Law, context: Law, dtype: str, heads: float) -> dict[str, float]:
    projections = zip(("F", "w1", "c0", "c1"), RefinedLaws.projections(decode, dtype), strict=True)
    of_context = zip(("F", "w1", "c0", "c1"), RefinedLaws.projections(context, dtype), strict=True)
    return {
        "h": heads,
        "e": number(decode.params["e"]),
        "sms": number(decode.params["sms"]),
        "bw": number(decode.params["bw_Bps"]),
        **{name: number(decode.params[name]) for name in ("F1", "L1", "k0", "k1", "u", "r", "S")},
        **{"c" + name: number(context.params[name]) for name in ("F1", "al", "ts", "tc")},
        **dict(projections),
        **{"c" + name: value for name, value in of_context},
        "mixed_us": 15.0,
    }


MLA_INPUTS = ("tokens", "decodes", READ, "max_context", "decode_tokens", "prefills", READ + 1, READ + 2)
MLA_CLASSES: dict[str, Any] = {"reads": [{}], "pairs": [{}, {"figure": PairFigure.visible}]}


@pytest.mark.parametrize(
    ("decode", "context"),
    [
        pytest.param(decode, context, id=f"{name.removesuffix('-refined')}:{decode.key}:{context.key}")
        for name in sets()
        for decode in contexts_of(name, "mla_decode")
        for context in contexts_of(name, "mla_context")[:1]
    ],
)
def test_mla(decode: Law, context: Law) -> None:
    chance = rng(decode)
    for _ in range(SHAPES):
        heads = int(2 ** chance.integers(2, 8))
        lengths, chunks = decodes(chance), prefills(chance)
        params = mla_params(decode, context, "bfloat16", heads)
        near(
            microseconds("mla", params, MLA_INPUTS, Batch([1] * len(lengths), [x - 1 for x in lengths]), **MLA_CLASSES),
            formula.projection(decode.params, "bfloat16", len(lengths), heads)
            + formula.mla_decode(decode.params, len(lengths), sum(lengths), max(lengths), heads),
        )
        rows = sum(s for s, _ in chunks)
        attended = formula.mla_context(
            context.params, len(chunks), sum(s * s / 2 for s, _ in chunks), max(s for s, _ in chunks), heads
        )
        near(
            microseconds("mla", params, MLA_INPUTS, Batch([s for s, _ in chunks], [0] * len(chunks)), **MLA_CLASSES),
            formula.projection(context.params, "bfloat16", rows, heads) + attended,
        )
        both = Batch([1] * len(lengths) + [s for s, _ in chunks], [x - 1 for x in lengths] + [0] * len(chunks))
        near(
            microseconds("mla", params, MLA_INPUTS, both, **MLA_CLASSES),
            formula.projection(context.params, "bfloat16", rows + len(lengths), heads)
            + attended
            + formula.mla_decode(decode.params, len(lengths), sum(lengths), max(lengths), heads)
            + 15.0,
        )


def sparse_params(law: Law, family: str, dtype: str, heads: float, topk: int, *, alone: bool) -> dict[str, float]:
    """As the plan states them: sel(v) and idx(v) by family."""
    ratio = {"csa": 4, "hca": 128}.get(family, 1)
    names = ("k0", "k1", "kc", "ts", "F1", "Fi", "i0", "i1", "i2")
    return {
        "h": heads,
        **{name: number(law.params.get(name, 0.0)) for name in names},
        **dict(zip(("F", "w1", "c0", "c1"), RefinedLaws.projections(law, dtype), strict=True)),
        "limit": 128.0 if family in ("csa", "hca") else float(topk),
        "limit2": float(topk if family == "csa" else 2**40),
        "ratio2": float(ratio) if family in ("csa", "hca") else 0.0,
        "ratio_scored": {"dsa": 1.0, "msa": 1.0, "csa": 4.0, "hca": 0.0}[family],
        "projects": float(alone),
    }


def stored(law: Law) -> str:
    return next(name[2:] for name in law.params if name.startswith("F_"))


@pytest.mark.parametrize("law", entries("sparse_decode"))
def test_sparse_decode(law: Law) -> None:
    chance, family, dtype = rng(law), law.key.split("/")[0], stored(law)
    ratio = {"csa": 4, "hca": 128}.get(family, 1)
    for _ in range(SHAPES):
        heads, topk, lengths = int(2 ** chance.integers(2, 8)), int(chance.choice([512, 1024, 2048])), decodes(chance)
        limit = 128 if family in ("csa", "hca") else topk
        reads = [{"limit": limit}, {"limit": min(topk * 4, 2**40) if family == "csa" else 2**40, "divide": ratio},
                 {"divide": 4 if family == "csa" else 1}]  # fmt: skip
        got = microseconds(
            "sparse",
            sparse_params(law, family, dtype, heads, topk, alone=True),
            ("decodes", "tokens", "decode_tokens", READ, READ + 1, READ + 2, "max_context", "prefills"),
            Batch([1] * len(lengths), [x - 1 for x in lengths]),
            reads=reads,
        )
        total = sum(float(formula.selected(family, x, topk)) for x in lengths)
        scanned = formula.INDEX_RATIO[family]
        want = (
            formula.projection(law.params, dtype, len(lengths), heads)
            + formula.sparse(
                law.params, len(lengths), total, formula.selected(family, max(lengths), topk), max(lengths), heads,
                decode=True,
            )
            + formula.sparse_indexer(law.params, len(lengths), scanned * sum(lengths), scanned * max(lengths))
        )  # fmt: skip
        near(got, want)


@pytest.mark.parametrize("law", entries("sparse_context"))
def test_sparse_context(law: Law) -> None:
    chance, family, dtype = rng(law), law.key.split("/")[0], stored(law)
    ratio = {"csa": 4, "hca": 128}.get(family, 1)
    for _ in range(SHAPES):
        heads, topk, chunks = int(2 ** chance.integers(2, 8)), int(chance.choice([512, 1024, 2048])), prefills(chance)
        limit = 128 if family in ("csa", "hca") else topk
        got = microseconds(
            "sparse",
            sparse_params(law, family, dtype, heads, topk, alone=False),
            ("prefills", "tokens", "prefill_tokens", READ, READ + 1, READ + 2, READ + 3, "decodes"),
            Batch([s for s, _ in chunks], [0] * len(chunks)),
            pairs=[
                {"window": limit},
                {"window": topk * ratio if family == "csa" else 0, "ratio": ratio},
                {"ratio": 4 if family == "csa" else 1},
                {"figure": PairFigure.visible},
            ],
        )
        queries, longest = sum(s for s, _ in chunks), max(s for s, _ in chunks)
        scanned = formula.INDEX_RATIO[family]
        want = (
            formula.projection(law.params, dtype, queries, heads)
            + formula.sparse(
                law.params,
                len(chunks),
                sum(float(formula.selected_sum(family, s, topk)) for s, _ in chunks),
                formula.selected(family, longest, topk),
                longest,
                heads,
                decode=False,
            )
            + formula.sparse_indexer(
                law.params, queries, scanned * sum(s * s / 2 for s, _ in chunks), scanned * longest
            )
        )
        near(got, want)


@pytest.mark.parametrize("topk", [512, 1024])
def test_ranking_of_index_keys(topk: int) -> None:
    """What laws with `j1` charge per squared index key, for queries that rank more than top-k and no more than 2048."""
    chance = np.random.default_rng(3)
    for _ in range(40):
        chunks = [(int(2 ** chance.uniform(1, 14)) + 1, int(chance.choice([0, 900, 3000]))) for _ in range(4)]
        got = microseconds(
            "affine",
            {"constant": 0.0, "slope": 1e-12},
            (READ, READ),
            Batch([s for s, _ in chunks], [c for _, c in chunks]),
            pairs=[{"figure": PairFigure.ranked, "select": 4 * topk, "window": 8192}],
        )
        want = sum(formula.ranked_sum(s + c, topk) - formula.ranked_sum(c, topk) for s, c in chunks)
        assert got == pytest.approx(1e-6 * float(want), rel=1e-9, abs=1e-15)


# -- recurrent mixers --------------------------------------------------------------------------------------------------


def recurrent(part: str, phase: str) -> list[Any]:
    return [each for each in entries("recurrent") if f":{part}/" in each.id and each.id.endswith(f"/{phase}")]


@pytest.mark.parametrize("law", recurrent("conv", "context"))
def test_convolution_of_prefills(law: Law) -> None:
    chance = rng(law)
    for _ in range(SHAPES):
        chunks, channels = prefills(chance), float(chance.integers(256, 20000))
        names = ("F", "tn", "tq", "t2", "v", "C")
        params = {"channels": channels, "bw": law.params["bw_Bps"], **{n: law.params.get(n, 0.0) for n in names}}
        batch = Batch([s for s, _ in chunks], [0] * len(chunks))
        got = microseconds("conv_context", params, ("prefills", "prefill_tokens"), batch)
        near(got, formula.conv_context(law.params, len(chunks), sum(s for s, _ in chunks), channels))


@pytest.mark.parametrize("law", recurrent("scan", "context"))
def test_scan_of_prefills(law: Law) -> None:
    chance = rng(law)
    for _ in range(SHAPES):
        chunks, heads, groups = prefills(chance), int(chance.integers(2, 100)), int(chance.integers(1, 40))
        names = ("F", "ts", "tc", "tw", "w0", "v", "C")
        params = {
            "heads": heads,
            "row_bytes": 2.0 * 128 * (groups * 2 + heads * 2.0),
            "bw": law.params["bw_Bps"],
            **{name: law.params.get(name, 0.0) for name in names},
        }
        got = microseconds(
            "scan_context",
            params,
            ("prefills", "prefill_tokens", READ, "max_chunk"),
            Batch([s for s, _ in chunks], [0] * len(chunks)),
            pairs=[{"figure": PairFigure.chunked, "slack": 64}],
        )
        rounded = [max(s, 64) for s, _ in chunks]
        queries = sum(s for s, _ in chunks)
        want = formula.scan_context(law.params, len(chunks), queries, sum(rounded), max(rounded), groups, heads)
        near(got, want)


# -- collectives -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", entries("collective"))
def test_two_protocols(law: Law) -> None:
    chance = rng(law)
    for _ in range(SHAPES):
        rows, size = int(2 ** chance.uniform(0, 14)), float(chance.integers(2, 40000))
        params = {"bytes": size, **{name: law.params[name] for name in ("a1", "R1", "a2", "R2")}}
        near(
            microseconds("two_protocol", params, ("tokens",), Batch([rows], [0])),
            formula.collective(law.params, rows * size),
        )


@pytest.mark.parametrize("law", entries("all_reduce_curve"))
def test_measured_curves(law: Law) -> None:
    chance = rng(law)
    points = [x for point in zip(law.params["bytes"], law.params["us"], strict=True) for x in point]
    for rows in [1, *(int(2 ** chance.uniform(0, 17)) for _ in range(SHAPES)), 1 << 20]:
        size = float(chance.integers(2, 40000))
        got = microseconds("curve", [size, 0, 0, 1, 0, 1, *points], ("tokens",), Batch([rows], [0]))
        near(got, formula.all_reduce_curve(law.params, rows * size))
    for at, us in zip(law.params["bytes"], law.params["us"], strict=True):  # a point of the table is met exactly
        near(microseconds("curve", [float(at), 0, 0, 1, 0, 1, *points], ("tokens",), Batch([1], [0])), us)
