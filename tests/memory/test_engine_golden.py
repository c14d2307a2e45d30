"""Every value of the engine's golden vectors, integer for integer.

Where this library departs on purpose the test states both numbers; rows no document can reach are counted and listed.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import gcd, prod
from typing import Any

import pytest
from engine_golden import engine_batches, extra_retained, kernels, limits_of, load, needs_golden, spec_of

from steppe import _core
from steppe.errors import DeploymentError
from steppe.memory import blocks, packing, states
from steppe.memory.groups import form_groups
from steppe.memory.pool import build_pool, core_group
from steppe.memory.specs import GroupingError, dtype_bytes

pytestmark = [pytest.mark.engine_golden, needs_golden]

GROUP_CASES = load("groups").get("cases", [])
BY_CASE = {case["case"]: case for case in GROUP_CASES}


# --- pages ----------------------------------------------------------------------------------------------------------


def test_pages() -> None:
    for row in load("pages")["cases"]:
        spec = spec_of(row["spec"])
        got = (spec.page_bytes, spec.unpadded_page_bytes, spec.bytes_per_token)
        assert got == (row["page_size_bytes"], row["unpadded_page_bytes"], Fraction(*row["bytes_per_token"])), row
        if spec.kind != "mamba":
            slots = spec.heads if spec.head_slots is None else spec.head_slots
            assert (slots, spec.state_content_bytes, spec.states_per_block) == (
                row["head_slots"],
                row["state_bytes"],
                row["states_per_block"],
            ), row


def test_packed_layouts_reproduce_the_backends_cells() -> None:
    """Cells of the layouts a backend packs itself, from dtype and heads alone."""
    seen = 0
    for row in load("pages")["cases"]:
        raw, backend = row["spec"], row.get("backend")
        if backend in ("FLASHINFER", "TRITON_ATTN", "TURBOQUANT"):
            cell = packing.packed(row["cache_dtype"], raw["num_kv_heads"], raw["head_size"], raw["head_size_v"], 1)
            assert (cell.head_slots, cell.state_bytes) == (row["head_slots"], row["state_bytes"]), row
            seen += 1
        elif row["group"] == "ds_mla":
            assert packing.DS_MLA_BYTES[row["cache_dtype"]] == row["state_bytes"]
            seen += 1
    assert seen == 150


@pytest.mark.parametrize("kind", ["mamba2", "gdn", "kda"])
def test_recurrent_states(kind: str) -> None:
    """Mamba-2 groups are not widened (divergence); everything else is the engine's page."""
    widened = 0
    for row in load("pages")["cases"]:
        if row.get("state_kind") != kind:
            continue
        g, s, tp = row["geometry"], row["speculative_tokens"], row["tp"]
        dtypes = tuple(row["spec"]["dtypes"])
        if kind == "mamba2":
            inner = g["heads"] * g["head_dim"]
            state = states.mamba2_state(
                inner=inner, groups=g["groups"], heads=g["heads"], head_dim=g["head_dim"], state=g["state"],
                conv=g["conv_kernel"], s=s, dtypes=dtypes,
            )  # fmt: skip
        elif kind == "gdn":
            state = states.gdn_state(
                k_heads=g["k_heads"], v_heads=g["v_heads"], k_dim=g["head_dim_k"], v_dim=g["head_dim_v"],
                conv=g["conv_kernel"], s=s, dtypes=dtypes,
            )  # fmt: skip
        else:
            state = states.kda_state(
                heads=g["heads"], head_dim=g["head_dim"], conv=g["conv_kernel"], s=s, dtypes=dtypes
            )
        charged = states.recurrent_rank_bytes(state, tp)
        if row.get("widened"):
            widened += 1
            num, den = row["unwidened_bytes"]
            assert charged == -(-num // den) < row["unpadded_page_bytes"]
        else:
            assert charged == row["unpadded_page_bytes"], row
    assert (widened > 0) is (kind == "mamba2")


# --- start-up -------------------------------------------------------------------------------------------------------


def test_startup() -> None:
    v1_pipelined = refused = 0
    for row in load("startup")["cases"]:
        config = row["config"]
        dcp = config.get("decode_context_parallel", 1)
        specs = [spec_of(raw, row["extra_retained_tokens"]) for raw in row["specs"]]
        batches = engine_batches(config)
        assert (batches, extra_retained(config)) == (row["batches_in_flight"], row["extra_retained_tokens"])
        limits = limits_of(config)
        if config.get("runner") == "v1" and config.get("pipeline_parallel", 1) > 1:
            v1_pipelined += 1  # recorded with synchronous scheduling, where both runners hold pp batches
        assert limits.max_in_flight_tokens == row["max_in_flight_tokens"]
        if row.get("refused"):
            refused += 1
            with pytest.raises(GroupingError) as error:
                core_group(specs[0], dcp)
            assert error.value.reason == "window_sharded_by_dcp"
            pool = _core.CachePool([core_group(specs[0], 1)], [1], limits)
            assert pool.startup_blocks() == row["unsharded_blocks"]
            continue
        page = sum(spec.page_bytes for spec in specs)
        pool = _core.CachePool([core_group(specs[0], dcp)], [page], limits)
        assert page == row["page_size_bytes"]
        assert pool.startup_blocks() == row["startup_blocks"], row
        assert pool.bytes(pool.startup_blocks()) == row["startup_bytes"]
        if row["admission_cap_blocks"] is not None and specs[0].kind != "kpool_tail" and dcp == 1:
            longest = pool.admission_blocks(config["max_model_len"])
            own = -(-config["max_model_len"] // specs[0].block_size)
            assert longest == min(row["admission_cap_blocks"], own)
    assert (refused, v1_pipelined > 0) == (69, True)


# --- groups ---------------------------------------------------------------------------------------------------------


def _specs(case: dict[str, Any]) -> list[Any]:
    distinct = [spec_of(raw) for raw in case["specs"]]
    for raw, spec in zip(case["specs"], distinct, strict=True):
        assert spec.page_bytes == raw["page_size_bytes"]
    return [distinct[i] for i in case["caches"]]


def _groups(case: dict[str, Any]) -> Any:
    config = case["config"]
    return form_groups(
        _specs(case),
        block_outer=config.get("layout") == "block_outer",
        hybrid_manager=config.get("hybrid_manager", True),
        extra_retained_tokens=extra_retained(config),
    )


def _pool(case: dict[str, Any], dcp: int) -> _core.CachePool:
    stages = [tuple(s) for s in case["stages"]] if "stages" in case else None
    return build_pool(_groups(case), limits_of(case["config"]), dcp=dcp, stages=stages)


@pytest.mark.parametrize("case", [c for c in GROUP_CASES if "refused" not in c], ids=lambda c: c["case"])
def test_groups(case: dict[str, Any]) -> None:
    groups = _groups(case)
    pool = _pool(case, case["config"].get("decode_context_parallel", 1))
    assert len(groups) == len(case["groups"])
    stages = case.get("stages") or [[0, len(case["caches"])]]
    by_group = pool.startup_blocks_by_group()
    for group, blocks_, want in zip(groups, by_group, case["groups"], strict=True):
        assert list(group.layers) == want["caches"]
        assert {s.kind for s in group.specs} == set(want["kinds"])
        assert group.lead.block_size == want["block_size"]
        pages = want["layer_page_bytes"]
        assert [s.page_bytes for s in group.specs] == (
            pages if isinstance(pages, list) else [pages] * len(group.layers)
        )
        assert group.page_bytes() == want["page_bytes"]
        if "stage_page_bytes" in want:
            assert [group.page_bytes(a, b) for a, b in stages] == want["stage_page_bytes"]
        assert blocks_ == want["startup_blocks"]
    assert pool.bytes_per_block == case["bytes_per_block"]
    assert pool.startup_blocks() == case["startup_blocks"]
    assert [pool.bytes(pool.startup_blocks(), i) for i in range(len(stages))] == case["startup_bytes"]


@pytest.mark.parametrize("case", [c for c in GROUP_CASES if "budgets" in c], ids=lambda c: c["case"])
def test_capacity(case: dict[str, Any]) -> None:
    pool = _pool(case, case["config"].get("decode_context_parallel", 1))
    override = case["config"].get("num_gpu_blocks_override")
    for row in case["budgets"]:
        available = row["available_bytes"]
        if override is not None:
            available = [override * size for size in pool.bytes_per_block]
        got = pool.capacity(available)
        assert got.fits is row["fits"]
        if row["fits"]:
            assert (got.num_blocks, got.usable_blocks) == (row["num_blocks"], row["usable_blocks"])
            assert got.max_concurrency == row["max_concurrency"]
            assert got.capacity_tokens == row["capacity_tokens"]
            assert [pool.bytes(got.num_blocks, i) for i in range(len(available))] == row["allocated_bytes"]
        else:
            assert got.failing_stage == row["failing_rank"]
            assert got.num_blocks == row["num_blocks_without_check"]
            assert got.auto_fit_max_len == row["auto_fit_max_len"]
            assert got.no_memory is row.get("no_memory", False)
            if not got.no_memory:
                assert got.estimated_max_len == row["estimated_max_len"]


@pytest.mark.parametrize("case", [c for c in GROUP_CASES if "refused" in c], ids=lambda c: c["case"])
def test_refused_groups(case: dict[str, Any]) -> None:
    with pytest.raises(GroupingError) as error:
        _pool(case, case["config"].get("decode_context_parallel", 1))
    assert error.value.reason == case["reason"]


@pytest.mark.parametrize("case", [c for c in GROUP_CASES if "unsharded" in c], ids=lambda c: c["case"])
def test_mixed_stacks_under_dcp_are_charged_unsharded(case: dict[str, Any]) -> None:
    """Both numbers: the engine refuses or shards, this library charges the cache whole."""
    pool = _pool(case, 1)
    assert pool.bytes_per_block == case["unsharded"]["bytes_per_block"]
    assert pool.startup_blocks() == case["unsharded"]["startup_blocks"]
    if "refused" not in case:
        assert pool.startup_blocks() > case["startup_blocks"]


# --- held by a running request --------------------------------------------------------------------------------------


def _follow(sequence: dict[str, Any]) -> list[list[int]]:
    dcp = sequence.get("decode_context_parallel", 1)
    specs = [spec_of(raw) for raw in sequence["groups"]]
    limits = _core.CacheLimits(
        max_model_len=sequence["max_model_len"],
        max_in_flight_tokens=sequence["max_in_flight_tokens"],
        extra_retained_tokens=sequence["extra_retained_tokens"],
        lookahead_tokens=sequence["lookahead_tokens"],
    )
    pool = _core.CachePool([core_group(s, dcp) for s in specs], [1], limits)
    request = _core.RequestBlocks(sequence["prompt"], sequence.get("encoder_tokens", 0))
    held: list[list[int]] = [[] for _ in specs]
    for step in zip(sequence["computed"], sequence["scheduled"], sequence["in_flight"], strict=True):
        request.schedule(pool, *step)
        for g, row in enumerate(held):
            row.append(request.held_of(pool, g))
        assert request.held(pool) == sum(row[-1] for row in held)
    return held


def test_held_blocks() -> None:
    """Every step of every sequence; checkpointing sequences hold one block more on a few steps, counted here."""
    steps = checkpoint_steps = 0
    listed: Counter[str] = Counter()
    for sequence in load("holdings")["sequences"]:
        held = _follow(sequence)
        steps += len(sequence["computed"])
        if sequence["id"].startswith("mamba_align_checkpoint"):
            # No document states a prefill checkpoint (one model with one kernel exports it): not modelled.
            for ours, engine in zip(held[0], sequence["held"][0], strict=True):
                assert engine - ours in (0, 1)
                checkpoint_steps += engine - ours
            listed[sequence["id"]] += 1
            continue
        assert held == sequence["held"], sequence["id"]
    print(f"{steps} steps; not reachable from documents: {sorted(listed)}, {checkpoint_steps} steps differ")
    assert (steps, len(listed)) == (10071, 4)
    assert 0 < checkpoint_steps < 20


def test_young_window_is_charged_one_page_more() -> None:
    """Both numbers: the engine's and this library's, for a window alone."""
    apart = 0
    for row in load("holdings")["young_window"]:
        group = _core.CacheGroup("window", row["block_size"], span=row["window"])
        limits = _core.CacheLimits(max_model_len=1 << 24, max_in_flight_tokens=0)
        pool = _core.CachePool([group], [1], limits)
        assert pool.bounded_blocks(row["tokens"]) == row["first_release_blocks"]
        assert pool.held_blocks(row["tokens"] - 1, 1) == row["engine_blocks"]
        apart += row["first_release_blocks"] != row["engine_blocks"]
    assert apart > 100


# --- admission ------------------------------------------------------------------------------------------------------


def test_admission() -> None:
    chunked_under_dcp = 0
    for row in load("admission")["cases"]:
        case = BY_CASE[row["case"]]
        dcp = case["config"].get("decode_context_parallel", 1)
        chunked_under_dcp += dcp > 1 and any("chunked" in g["kinds"] for g in case["groups"])
        pool = _pool(case, dcp)
        got = pool.admission_blocks_by_group(row["tokens"], row.get("encoder_tokens", 0))
        assert got == row["blocks"], row
        total = pool.admission_blocks(row["tokens"], row.get("encoder_tokens", 0))
        assert total == row["total_blocks"]
        assert [pool.bytes(total, i) for i in range(len(row["bytes"]))] == row["bytes"]
    assert chunked_under_dcp > 0


# --- block sizes ----------------------------------------------------------------------------------------------------


def test_default_blocks() -> None:
    known = kernels()
    for row in load("blocks")["default_block"]:
        chosen = [known[name] for name in row["backends"]]
        if row.get("refused"):
            with pytest.raises(DeploymentError):
                blocks.default_block_size(chosen)
        else:
            assert blocks.default_block_size(chosen) == row["block_size"], row


def test_window_blocks() -> None:
    known = kernels()
    for row in load("blocks")["window_block"]:
        got = blocks.window_block(
            bytes_per_token=row["bytes_per_token"],
            page_budget=row["page_budget_bytes"],
            kernel=known[row["backend"]],
            fallback=row["primary_block_size"],
        )
        assert got == row["window_block_size"], row


def _cell_bytes(row: dict[str, Any], cache_dtype: str, width: int) -> int:
    heads, dim = row["kv_heads"], row["head_size"]
    return packing.packed(cache_dtype, heads, dim, dim, width).bytes_per_token


def test_skip_layer_blocks() -> None:
    known = kernels()
    for row in load("blocks")["skip_layers"]:
        kernel = known[row["backend"]]
        got = blocks.skip_layer_block(
            block_size=row["block_size_stated"] or kernel.choose(blocks.DEFAULT_BLOCK_SIZE),
            quantized_bytes=_cell_bytes(row, row["cache_dtype"], 1),
            plain_bytes=_cell_bytes(row, "auto", 2),
            kernel=kernel,
        )
        assert got == (row["block_size"], row["skip_page_bytes_padded"]), row


def test_hybrid_blocks() -> None:
    known = kernels()
    turboquant = 0
    for row in load("blocks")["hybrid"]:
        kernel = known[row["backend"]]
        width = 2 if row["cache_dtype"] == "auto" else 1
        if row["use_mla"]:
            per_token = row["kv_heads"] * row["head_size"] * width
        else:
            per_token = _cell_bytes(row, row["cache_dtype"], width)
        plain = _cell_bytes(row, "auto", 2)
        aligned = per_token
        if row["cache_dtype"].startswith("turboquant") and row["skip_layers"]:
            turboquant += 1
            aligned = per_token * plain // gcd(per_token, plain)
        page = sum(dtype_bytes(t) * prod(shape) for shape, t in zip(row["shapes"], row["dtypes"], strict=True))
        assert page == row["mamba_page_bytes"]
        got = blocks.hybrid_blocks(
            block_size=row["block_size_stated"] or kernel.choose(blocks.DEFAULT_BLOCK_SIZE),
            state_page=page,
            attention_bytes=aligned,
            kernel=kernel,
            latent=row["use_mla"],
            mode=row["mamba_cache_mode"],
            chunk=row["mamba_chunk_size"],
            state_block_stated=row["mamba_block_size_stated"],
        )
        block, skip_page, padded = got.block_size, None, got.state_page_padded
        if row["skip_layers"]:
            block, skip_page = blocks.skip_layer_block(
                block_size=block,
                quantized_bytes=per_token,
                plain_bytes=plain,
                kernel=kernel,
                state_page_padded=padded,
            )
            padded = skip_page if padded is not None and skip_page is not None else padded
        assert block == row["block_size"], row
        assert got.state_block == row["mamba_block_size"], row
        assert padded == row["mamba_page_bytes_padded"], row
        assert skip_page == row["skip_page_bytes_padded"], row
    assert turboquant > 0
