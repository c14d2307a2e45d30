"""Random stacks and requests against the engine's rules written out in `engine_rules`."""

from __future__ import annotations

import random

import engine_rules as rules

from steppe import _core
from steppe.memory.groups import bytes_per_block, form_groups
from steppe.memory.pool import build_pool
from steppe.memory.specs import CacheSpec

STACKS = 20_000
REQUESTS = 6_000


def _layer(rng: random.Random, what: str, mode: str) -> tuple[CacheSpec, rules.Layer]:
    block = rng.choice([16, 16, 32, 64])
    if what == "state":
        inner, heads = rng.choice([64, 128, 6144]), rng.choice([2, 8, 32])
        spare = rng.choice([0, 0, 2])
        spec = CacheSpec(
            "mamba", block, shapes=((3, inner), (heads, 64, 128)), dtypes=("bfloat16", "float32"), mode=mode,
            speculative_blocks=spare,
        )  # fmt: skip
        page = 3 * inner * 2 + heads * 64 * 128 * 4
        return spec, rules.Layer("state", block, page, spare=spare, mode=mode, heads=heads, dim=inner)
    heads, dim, width = rng.choice([1, 2, 4, 8]), rng.choice([64, 96, 128, 256]), rng.choice([1, 2])
    span = {"window": rng.choice([128, 1024]), "chunked": 8192}.get(what, 0)
    spec = CacheSpec(
        what, block, heads=heads, head_dim=dim, head_dim_v=dim, dtype="bfloat16" if width == 2 else "uint8",
        window=span if what == "window" else None, chunk=span if what == "chunked" else None,
    )  # fmt: skip
    return spec, rules.Layer(what, block, heads * block * 2 * dim * width, span, heads, dim, width)


def _stack(rng: random.Random) -> tuple[list[CacheSpec], list[rules.Layer]] | None:
    kinds = rng.choice([["full"], ["full", "window"], ["full", "chunked"], ["full", "state"], ["window", "state"]])
    mode = rng.choice(["none", "align", "all"])
    distinct = [_layer(rng, rng.choice(kinds), mode) for _ in range(rng.randint(1, 4))]
    order = [i % len(distinct) for i in range(rng.choice([1, 2, 5, 12, 31]))] if rng.random() < 0.5 else []
    order = order or [i for i in range(len(distinct)) for _ in range(rng.choice([1, 2, 3, 4, 6, 9]))]
    stack = [distinct[i] for i in order]
    return [s for s, _ in stack], [r for _, r in stack]


def _is_one_type(layers: list[rules.Layer]) -> bool:
    """One uniform-type group: pages of any size, the same block and the same kind of slots."""
    first = layers[0]
    if any(layer.block != first.block or layer.what != first.what for layer in layers):
        return False
    if first.what == "state":
        return all((x.spare, x.page) == (first.spare, first.page) for x in layers)
    return all(x.span == first.span for x in layers)


def test_stacks() -> None:
    rng = random.Random(20240731)
    split = 0
    for _ in range(STACKS):
        specs, layers = _stack(rng)
        want = [(list(range(len(layers))), layers[0].block, 0)] if _is_one_type(layers) else rules.groups(layers)
        got = form_groups(specs)
        assert [(list(g.layers), g.lead.block_size) for g in got] == [(names, block) for names, block, _ in want]
        widest = max(sum(page or layers[i].page for i in names) for names, _, page in want)
        assert bytes_per_block(got) == widest
        split += len(want) > 1

        max_len, flight = rng.choice([1000, 8192, 131072]), rng.choice([2048, 16384])
        extra = rng.choice([0, 0, 2])
        dcp = rng.choice([1, 1, 2, 8]) if all(layer.what == "full" for layer in layers) else 1
        limits = _core.CacheLimits(max_model_len=max_len, max_in_flight_tokens=flight, extra_retained_tokens=extra)
        cut = rng.randint(1, len(layers))
        stages = [(0, cut), (cut, len(layers))] if cut < len(layers) else [(0, cut)]
        pool = build_pool(got, limits, dcp=dcp, stages=stages)
        sizes = [
            max(sum(page or layers[i].page for i in names if a <= i < b) for names, _, page in want) for a, b in stages
        ]
        assert pool.bytes_per_block == sizes
        lead = [(layers[names[0]], block) for names, block, _ in want]
        assert pool.startup_blocks() == sum(rules.startup(x, b, max_len, flight, extra, dcp) for x, b in lead)
        tokens = rng.randint(1, max_len)
        assert pool.admission_blocks(tokens) == sum(
            rules.admission(x, b, tokens, max_len, flight, extra, dcp) for x, b in lead
        )
        budget = rng.randint(0, 40) * sizes[0] * max(1, pool.startup_blocks()) // 7
        _check_capacity(pool, [budget] * len(stages), lead, (flight, extra, dcp))
    assert split > STACKS // 4


def _check_capacity(
    pool: _core.CachePool,
    budgets: list[int],
    lead: list[tuple[rules.Layer, int]],
    limits: tuple[int, int, int],
) -> None:
    got = pool.capacity(budgets)
    need = pool.startup_blocks()
    assert got.num_blocks == min(b // size for b, size in zip(budgets, pool.bytes_per_block, strict=True))
    usable = [b - size for b, size in zip(budgets, pool.bytes_per_block, strict=True)]
    fits = [u > 0 and need * size <= u for u, size in zip(usable, pool.bytes_per_block, strict=True)]
    assert got.fits is all(fits)
    longest = got.auto_fit_max_len
    if longest:
        for u, size in zip(usable, pool.bytes_per_block, strict=True):
            assert sum(rules.startup(x, b, longest, *limits) for x, b in lead) * size <= u
    if longest < pool.limits.max_model_len:
        over = sum(rules.startup(x, b, longest + 1, *limits) for x, b in lead)
        assert any(over * size > u for u, size in zip(usable, pool.bytes_per_block, strict=True))


def test_requests_step_by_step() -> None:
    """Blocks held, against a block table kept entry by entry."""
    rng = random.Random(7)
    steps = 0
    for _ in range(REQUESTS):
        what = rng.choice(["full", "window", "chunked", "state", "state"])
        block, span = rng.choice([4, 16, 64]), rng.choice([8, 100, 128])
        mode, spare = rng.choice(["none", "align", "all"]), rng.choice([0, 0, 3])
        max_len, extra = rng.choice([300, 2000]), rng.choice([0, 0, 2])
        lookahead = rng.choice([0, 0, 3])
        layer = rules.Layer(what, block, 1, span, spare=spare if what == "state" else 0, mode=mode)
        table = rules.Table(layer, block, max_len, extra, lookahead)
        kind = f"state_{mode}" if what == "state" else what
        group = _core.CacheGroup(kind, block, span=span if what != "state" else 0, speculative=layer.spare)
        limits = _core.CacheLimits(
            max_model_len=max_len, max_in_flight_tokens=4096, extra_retained_tokens=extra, lookahead_tokens=lookahead
        )
        pool = _core.CachePool([group], [1], limits)
        request = _core.RequestBlocks()
        depth, chunk, prompt = rng.randint(0, 3), rng.choice([block, 64, 150]), rng.randint(1, max_len // 2)
        chunk = min(chunk, block) if mode == "align" and what == "state" else chunk
        flying: list[int] = []
        computed = 0
        for _ in range(40):
            flying = flying[-depth:] if depth else []
            scheduled = min(chunk, prompt - computed) if computed < prompt else 1 + rng.choice([0, layer.spare])
            if computed + scheduled > max_len:
                break
            request.schedule(pool, computed, scheduled, sum(flying))
            assert request.held(pool) == table.step(computed, scheduled, sum(flying))
            computed += scheduled
            flying.append(scheduled)
            steps += 1
    assert steps > 100_000
