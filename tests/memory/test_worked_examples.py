"""Sizes worked out with the engine's own classes, number by number."""

from __future__ import annotations

from fractions import Fraction

import pytest

from steppe import _core
from steppe.memory import packing, states
from steppe.memory.blocks import KernelBlocks, hybrid_blocks
from steppe.memory.groups import bytes_per_block, form_groups
from steppe.memory.pool import build_pool, pool_of
from steppe.memory.specs import CacheSpec, GroupingError

GIB = 1 << 30
IN_FLIGHT = 16384  # 2 batches of 8192 tokens
MULTIPLE_OF_16 = KernelBlocks(multiples=(16,))


def limits(max_model_len: int, in_flight: int = IN_FLIGHT, **more: int) -> _core.CacheLimits:
    return _core.CacheLimits(max_model_len=max_model_len, max_in_flight_tokens=in_flight, **more)


def full(heads: int, dim: int, block: int = 16, **more: object) -> CacheSpec:
    return CacheSpec("full", block, heads=heads, head_dim=dim, head_dim_v=dim, **more)  # type: ignore[arg-type]


def window(heads: int, dim: int, size: int, block: int = 16, **more: object) -> CacheSpec:
    return CacheSpec("window", block, heads=heads, head_dim=dim, head_dim_v=dim, window=size, **more)  # type: ignore[arg-type]


# --- packed formats -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "width", "page"),
    [
        ("auto", 2, 65536),
        ("fp8", 1, 32768),
        ("int8_per_token_head", 1, 33792),
        ("fp8_per_token_head", 1, 33792),
        ("int4_per_token_head", 1, 17408),
        ("nvfp4", 1, 18432),
        ("turboquant_k8v4", 1, 25088),
        ("turboquant_4bit_nc", 1, 17152),
        ("turboquant_k3v4_nc", 1, 15104),
        ("turboquant_3bit_nc", 1, 13056),
    ],
)
def test_eight_heads_of_128(dtype: str, width: int, page: int) -> None:
    cell = packing.packed(dtype, 8, 128, 128, width)
    spec = full(8, 128, head_slots=cell.head_slots, state_bytes=cell.state_bytes)
    assert spec.page_bytes == page == 16 * cell.bytes_per_token


@pytest.mark.parametrize(("dim", "slots"), [(64, (100, 70, 62, 54)), (256, (388, 262, 230, 198))])
def test_turboquant_slots(dim: int, slots: tuple[int, ...]) -> None:
    assert tuple(packing.packed(name, 1, dim, dim, 1).state_bytes for name in packing.TURBOQUANT_BITS) == slots


@pytest.mark.parametrize(("dim", "side"), [(64, 36), (80, 45), (96, 54), (128, 72), (256, 144)])
def test_nvfp4_sides(dim: int, side: int) -> None:
    assert packing.packed("nvfp4", 1, dim, dim, 1) == packing.Packed(2, side)


@pytest.mark.parametrize(
    ("dtype", "state", "page"),
    [("bfloat16", None, 73728), ("uint8", None, 36864), ("uint8", 656, 41984), ("uint8", 352, 22528)],
)
def test_latent_pages_of_64(dtype: str, state: int | None, page: int) -> None:
    assert CacheSpec("mla", 64, head_dim=576, dtype=dtype, state_bytes=state).page_bytes == page


# --- index and compressed caches ------------------------------------------------------------------------------------


def compressed(block: int, ratio: int, state: int, alignment: int) -> CacheSpec:
    return CacheSpec(
        "mla", block, head_dim=512, dtype="uint8", state_bytes=state, tokens_per_state=ratio, alignment=alignment
    )


@pytest.mark.parametrize(
    ("spec", "unpadded", "page"),
    [
        (compressed(256, 4, 584, 576), 37376, 37440),
        (compressed(256, 128, 584, 576), 1168, 1728),
        (compressed(256, 4, 132, 576), 8448, 8640),
        (CacheSpec("window_mla", 64, head_dim=512, state_bytes=584, window=128, alignment=576), 37376, 37440),
        (CacheSpec("window_mla", 4, head_dim=2048, dtype="float32", window=8, alignment=576), 32768, 32832),
        (CacheSpec("window_mla", 8, head_dim=1024, dtype="float32", window=128, alignment=576), 32768, 32832),
        (CacheSpec("window_mla", 4, head_dim=512, dtype="float32", window=8, alignment=576), 8192, 8640),
        # V4.1 on a Hopper part, blocks of 64
        (CacheSpec("window_mla", 32, head_dim=512, state_bytes=584, window=128, alignment=576), 18688, 19008),
        (compressed(64, 2, 584, 576), 18688, 19008),
        (compressed(64, 1, 584, 576), 37376, 37440),
        (compressed(64, 2, 132, 576), 4224, 4608),
        (compressed(64, 1, 132, 576), 8448, 8640),
        (CacheSpec("ring", 8, heads=1, head_dim=1024, dtype="float32"), 32768, 32768),
        # V4.1 on a Blackwell part, blocks of 128
        (CacheSpec("window_mla", 32, head_dim=512, state_bytes=528, window=128, alignment=512), 16896, 16896),
        (compressed(128, 2, 528, 512), 33792, 33792),
        (compressed(128, 1, 528, 512), 67584, 67584),
        (compressed(128, 2, 132, 512), 8448, 8704),
        (compressed(128, 1, 132, 512), 16896, 16896),
    ],
)
def test_aligned_pages(spec: CacheSpec, unpadded: int, page: int) -> None:
    assert (spec.unpadded_page_bytes, spec.page_bytes) == (unpadded, page)


def test_index_key_records() -> None:
    assert (packing.index_key_bytes(128), packing.index_key_bytes(128, four_bit=True)) == (132, 68)


# --- admission ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "block", "in_flight", "max_len", "extra", "cap"),
    [
        (128, 16, 16384, 131072, 0, 1033),
        (128, 16, 8192, 131072, 0, 521),
        (128, 16, 3 * 8192, 131072, 0, 1545),
        (128, 16, 32768, 131072, 0, 2057),
        (128, 16, 16384, 131072, 2, 1034),
        (128, 16, 16384, 4096, 0, 257),
        (1024, 16, 16384, 131072, 0, 1089),
        (128, 32, 16384, 131072, 0, 517),
        (128, 64, 16384, 131072, 0, 259),
        (8, 4, 16384, 131072, 0, 4099),
        (128, 8, 16384, 131072, 0, 2065),
    ],
)
def test_window_caps(size: int, block: int, in_flight: int, max_len: int, extra: int, cap: int) -> None:
    group = _core.CacheGroup("window", block, span=size)
    pool = _core.CachePool([group], [1], limits(max_len, in_flight, extra_retained_tokens=extra))
    assert pool.startup_blocks() == cap
    assert pool.admission_blocks(max_len) == min(cap, -(-max_len // block))


@pytest.mark.parametrize(("tokens", "blocks"), [(100, 14), (1000, 126), (20_000, 2283), (131_072, 9225)])
def test_gate_of_one_window_and_one_full_group(tokens: int, blocks: int) -> None:
    groups = [_core.CacheGroup("window", 16, span=128), _core.CacheGroup("full", 16)]
    assert _core.CachePool(groups, [1], limits(131072)).admission_blocks(tokens) == blocks


@pytest.mark.parametrize(
    ("pp", "asynchronous", "batches"), [(1, True, 2), (1, False, 1), (2, True, 3), (4, True, 5), (4, False, 4)]
)
def test_batches_in_flight(pp: int, asynchronous: bool, batches: int) -> None:
    assert _core.max_in_flight_tokens(pp, asynchronous, 8192) == batches * 8192


# --- grouping -------------------------------------------------------------------------------------------------------


def widths(specs: list[CacheSpec]) -> list[int]:
    return [len(group.layers) for group in form_groups(specs)]


def test_group_widths() -> None:
    small, large = full(8, 64), window(8, 64, 128)
    assert widths([large, small] * 18) == [18, 18]
    assert widths([window(16, 128, 1024)] * 52 + [full(16, 128)] * 10) == [9, 9, 9, 9, 8, 8, 10]
    assert widths([large] * 12 + [small] * 13) == [12, 13]
    assert widths([small] * 8 + [large]) == [1] * 9
    # The rule is strict: 3 layers against 2 are half as many again, so the smaller bucket sets the width.
    assert widths([large] * 3 + [small] * 2) == [2, 1, 2]


def test_pages_are_unified() -> None:
    groups = form_groups([full(4, 512), window(16, 256, 1024)])
    assert [(g.lead.block_size, g.lead.page_bytes) for g in groups] == [(32, 262144), (16, 262144)]
    groups = form_groups([full(8, 128), window(3, 128, 1024)])
    assert window(3, 128, 1024).page_bytes == 24576
    assert [(g.lead.block_size, g.lead.page_bytes) for g in groups] == [(16, 65536), (16, 65536)]


def test_a_window_page_that_does_not_divide_is_padded() -> None:
    """A window layer with blocks of 64 next to a 1056-token page stays at 64, its page padded 17 times over."""
    groups = form_groups([full(2, 256, block=1056), window(2, 256, 128, block=64)])
    assert [(g.lead.block_size, g.lead.page_bytes) for g in groups] == [(1056, 2162688), (64, 2162688)]


def test_latent_beside_a_window_that_cannot_be_unified_falls_back_to_full() -> None:
    latent = CacheSpec("mla", 16, head_dim=576)
    groups = form_groups([latent] * 3 + [window(8, 128, 1024)])
    assert [len(g.layers) for g in groups] == [4]
    assert {s.kind for s in groups[0].specs} == {"mla", "full"}


def test_stages_share_block_ids() -> None:
    specs = [window(8, 64, 128), full(8, 64)] * 18
    pool = build_pool(form_groups(specs), limits(131072), stages=[(0, 19), (19, 36)])
    assert pool.bytes_per_block == [327680, 294912]
    assert pool.capacity([50 * GIB, 40 * GIB]).num_blocks == 145635


def test_hybrid_manager_off() -> None:
    specs = [window(8, 64, 128), full(8, 64)] * 18
    on, off = pool_of(specs, limits(131072))[1], pool_of(specs, limits(131072), hybrid_manager=False)[1]
    assert (on.bytes_per_block, on.startup_blocks(), on.bytes(9225)) == ([589824], 9225, 5441126400)
    assert (off.bytes_per_block, off.startup_blocks(), off.bytes(8192)) == ([1179648], 8192, 9663676416)
    with pytest.raises(GroupingError, match="leave the manager on"):
        form_groups([window(8, 64, 128), window(8, 64, 1024), full(8, 64)], hybrid_manager=False)


# --- whole models ---------------------------------------------------------------------------------------------------


def test_gpt_oss_120b() -> None:
    specs = [window(8, 64, 128), full(8, 64)] * 18
    _, pool = pool_of(specs, limits(131072))
    assert specs[0].page_bytes == 32768
    assert pool.bytes_per_block == [589824]
    assert pool.capacity([40 * GIB]).num_blocks == 72817
    assert pool.startup_blocks_by_group() == [1033, 8192]
    held = pool.held_blocks(computed=20_000, scheduled=1, in_flight=1)
    assert (held, pool.bytes(held)) == (1260, 743178240)
    _, eighth = pool_of([window(1, 64, 128), full(1, 64)] * 18, limits(131072))
    assert (eighth.bytes_per_block, eighth.startup_blocks()) == ([73728], 9225)


def test_five_windows_to_one_full() -> None:
    specs = ([window(16, 128, 1024)] * 5 + [full(16, 128)]) * 10 + [window(16, 128, 1024)] * 2
    groups, pool = pool_of(specs, limits(131072))
    assert sorted(len(g.layers) for g in groups) == [8, 8, 9, 9, 9, 9, 10]
    assert pool.bytes_per_block == [1310720]
    assert (pool.startup_blocks(), pool.bytes(14726)) == (14726, 19301662720)
    assert pool.held_blocks(computed=100_000, scheduled=1, in_flight=1) == 6 * 65 + 6251


def gdn(block: int, tp: int = 1, k: int = 0, temporal: str = "float32", mode: str = "align") -> CacheSpec:
    conv = 2 * 128 * 16 + 128 * 32
    return CacheSpec(
        "mamba",
        block,
        shapes=((3 + k, conv // tp), (32 // tp, 128, 128)),
        dtypes=("bfloat16", temporal),
        mode=mode,
        speculative_blocks=k,
    )


def test_gated_delta_net_hybrid() -> None:
    state = gdn(1056)
    assert state.page_bytes == 2146304
    chosen = hybrid_blocks(
        block_size=16,
        state_page=2146304,
        attention_bytes=2 * 512 * 2,
        kernel=MULTIPLE_OF_16,
        latent=False,
        mode="align",
    )
    assert (chosen.block_size, chosen.state_page_padded) == (1056, 2162688)
    specs = ([gdn(1056)] * 3 + [full(2, 256, block=1056)]) * 12
    groups, pool = pool_of(specs, limits(262144))
    assert [len(g.layers) for g in groups] == [12, 12, 12, 12]
    assert pool.bytes_per_block == [25952256]
    assert pool.capacity([100 * GIB]).num_blocks == 4137
    assert pool.startup_blocks_by_group() == [2, 2, 2, 249]
    assert pool.held_blocks(computed=50_000, scheduled=1) == 1 + 1 + 1 + 48
    plain = [gdn(262144, mode="none")] * 36 + [full(2, 256, block=1056)] * 12
    assert pool_of(plain, limits(262144))[1].startup_blocks_by_group() == [1, 1, 1, 249]


def test_gated_delta_net_with_a_draft_layer() -> None:
    specs = ([gdn(1072, k=2)] * 3 + [full(2, 256, block=1072)]) * 12 + [full(2, 256, block=1072)]
    groups, pool = pool_of(specs, limits(262144))
    assert [len(g.layers) for g in groups] == [12, 12, 12, 13]
    assert groups[0].lead.page_bytes == 2195456
    assert pool.bytes_per_block == [28540928]
    assert pool.startup_blocks_by_group() == [4, 4, 4, 245]


def nemotron(block: int) -> CacheSpec:
    return CacheSpec("mamba", block, shapes=((3, 6144), (64, 64, 128)), dtypes=("bfloat16", "float32"), mode="align")


def test_mamba2_hybrid() -> None:
    assert nemotron(16).page_bytes == 2134016
    specs = [nemotron(2096)] * 23 + [full(2, 128, block=2096)] * 6
    groups, pool = pool_of(specs, limits(262144))
    assert [len(g.layers) for g in groups] == [6, 6, 6, 5, 6]
    assert groups[0].lead.page_bytes == 2146304
    assert pool.bytes_per_block == [12877824]
    assert pool.startup_blocks_by_group() == [2, 2, 2, 2, 126]


@pytest.mark.parametrize(("dtype", "block", "size"), [("bfloat16", 16, 1124352), ("uint8", 64, 2248704)])
def test_deepseek_v3(dtype: str, block: int, size: int) -> None:
    specs = [CacheSpec("mla", block, head_dim=576, dtype=dtype)] * 61
    assert bytes_per_block(form_groups(specs)) == size


# --- recurrent states -----------------------------------------------------------------------------------------------


def test_state_bytes() -> None:
    mixed, plain = ("bfloat16", "float32"), ("bfloat16", "bfloat16")

    def delta(k: int, dtypes: tuple[str, str]) -> states.RecurrentState:
        return states.gdn_state(k_heads=16, v_heads=32, k_dim=128, v_dim=128, conv=4, s=k, dtypes=dtypes)

    assert states.recurrent_rank_bytes(delta(0, plain), 1) == 1097728
    assert states.recurrent_rank_bytes(delta(0, mixed), 1) == 2146304
    assert states.recurrent_rank_bytes(delta(0, mixed), 2) == 1073152
    assert states.recurrent_rank_bytes(delta(2, mixed), 1) == 2179072
    mamba = states.mamba2_state(inner=4096, groups=8, heads=64, head_dim=64, state=128, conv=4, s=0, dtypes=mixed)
    assert (states.recurrent_rank_bytes(mamba, 1), states.recurrent_rank_bytes(mamba, 8)) == (2134016, 266752)
    assert (
        states.recurrent_rank_bytes(states.kda_state(heads=32, head_dim=128, conv=4, s=0, dtypes=mixed), 1) == 2170880
    )
    assert states.recurrent_rank_bytes(states.RecurrentState(2048, 2, 0, "bfloat16", "bfloat16"), 1) == 8192
    assert states.recurrent_rank_bytes(states.RecurrentState(8192, 3, 8192 * 16, *plain), 1) == 311296


def test_groups_are_not_widened_where_tp_exceeds_them() -> None:
    """Charged: the single group divided by tp, where the engine keeps one whole group a rank."""
    one_group = states.mamba2_state(
        inner=4096, groups=1, heads=64, head_dim=64, state=128, conv=4, s=0, dtypes=("bfloat16", "float32")
    )
    engine = 3 * (4096 + 2 * 8 * 128) // 8 * 2 + 8 * 64 * 128 * 4
    assert states.recurrent_rank_bytes(one_group, 8) == engine - 3 * 2 * 2 * 128 * 7 // 8


# --- hybrid blocks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "per_token", "latent", "mode", "block"),
    [
        (1097728, 2048, False, "align", 544),
        (1097728 // 2, 1024, False, "align", 544),
        (1097728 // 4, 1024, False, "align", 272),
        (2146304, 2048, False, "align", 1056),
        (2146304 // 4, 1024, False, "align", 528),
        (2179072, 2048, False, "align", 1072),
        (2134016, 1024, False, "align", 2096),
        (2134016 // 2, 512, False, "align", 2096),
        (2134016 // 4, 512, False, "align", 1056),
        (2134016 // 8, 512, False, "align", 528),
        (2134016, 1024, False, "all", 2176),
        (2170880, 1152, True, "align", 1920),
    ],
)
def test_hybrid_alignment(page: int, per_token: int, latent: bool, mode: str, block: int) -> None:
    got = hybrid_blocks(
        block_size=16,
        state_page=page,
        attention_bytes=per_token,
        kernel=MULTIPLE_OF_16,
        latent=latent,
        mode=mode,
        chunk=128,
    )
    assert got.block_size == block


def test_bytes_per_token_is_the_page_over_the_block() -> None:
    assert full(8, 128).bytes_per_token == 4096
    assert nemotron(2096).bytes_per_token == Fraction(2134016, 2096)
