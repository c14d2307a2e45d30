"""Memory of a deployment: layers from a graph, fixed parts, requests, capacity, and its errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from deployments import MAGNITUDES, graph, memory, resolution

from steppe.documents import ModelGraph
from steppe.errors import CoefficientError, DeploymentError
from steppe.memory import DoesNotFit
from steppe.memory.cache_layers import attention_spec, cache_layers, kv_bytes_per_token
from steppe.memory.weights import rank_weights

GIB = 1 << 30


def dense_layer(name: str = "full", **attention: Any) -> dict[str, Any]:
    node = {"op": "Attention", "kind": "gqa", "n_q": 32, "n_kv": 8, "d_h": 128, **attention}
    return {"id": name, "nodes": [{"op": "GEMM", "role": "qkv", "n": 6144, "k": 4096}, node]}


def dense(layers: int = 32, **more: Any) -> ModelGraph:
    return graph([dense_layer()], {"pattern": ["full"], "repeat": layers}, **more)


WINDOWED = graph(
    [dense_layer("window", kind="swa", window=128), dense_layer("full")], {"pattern": ["window", "full"], "repeat": 16}
)
SCAN = {"op": "RecurrentUpdate", "recurrent_kind": "gdn", "n_heads": 32, "n_groups": 16, "state_size": 128, "d_h": 128}
HYBRID = graph(
    [{"id": "gdn", "nodes": [{**SCAN, "conv_kernel": 4, "state_dtype": "fp32"}]}, dense_layer("full", n_kv=2, d_h=256)],
    {"pattern": ["gdn", "gdn", "gdn", "full"], "repeat": 12},
)


# --- caches of a graph ----------------------------------------------------------------------------------------------


def test_dense_layers_are_one_group() -> None:
    sized = memory(dense())
    assert len(sized.groups) == 1
    assert sized.bytes_per_block == 32 * 16 * 8 * 256 * 2
    assert sized.sequence_variable_bytes(17) == 2 * sized.bytes_per_block
    assert sized.sequence_bounded_bytes_at(17) == sized.sequence_fixed_bytes() == 0


@pytest.mark.parametrize(("tp", "heads"), [(1, 8), (4, 2), (8, 1), (16, 1)])
def test_heads_are_divided_and_then_replicated(tp: int, heads: int) -> None:
    r = resolution(dense(), parallel={"tp": tp})
    assert cache_layers(r).specs[0].heads == heads


@pytest.mark.parametrize(("dtype", "per_token"), [("auto", 4096), ("fp8", 2048)])
def test_cache_dtypes(dtype: str, per_token: int) -> None:
    r = resolution(dense(), cache_dtype=dtype)
    assert kv_bytes_per_token(r, r.graph.layer_kinds[0].nodes[1]) == per_token


def test_four_bit_caches_carry_their_scales() -> None:
    r = resolution(dense(), hardware="b200", cache_dtype="nvfp4")
    assert kv_bytes_per_token(r, r.graph.layer_kinds[0].nodes[1]) == 2 * 8 * 72


def test_windows_are_bounded_by_their_window() -> None:
    sized = memory(WINDOWED)
    assert [group.lead.kind for group in sized.groups] == ["window", "full"]
    grown = sized.sequence_bounded_bytes_at(100_000)
    assert grown == sized.sequence_bounded_bytes_at(128) == 9 * sized.bytes_per_block
    assert sized.sequence_variable_bytes(16) == sized.bytes_per_block


def test_latent_and_index_caches_of_v32() -> None:
    sized = memory("deepseek-v3.2", hardware="h200", parallel={"tp": 8}, cache_dtype="fp8_ds_mla")
    pages = {spec.page_bytes for spec in sized.groups[0].specs}
    assert pages == {64 * 656, 64 * 132}
    assert sized.bytes_per_block == 61 * 64 * (656 + 132)
    r = resolution("deepseek-v3.2", hardware="h200", parallel={"tp": 8})
    assert cache_layers(r).block_size == 64


def test_hybrid_block_covers_a_state() -> None:
    sized = memory(HYBRID)
    assert sized.block_size == 1056
    assert {spec.page_bytes for group in sized.groups for spec in group.specs} == {2162688}
    assert sized.sequence_fixed_bytes() == 3 * 2 * 25952256
    assert sized.sequence_variable_bytes(1057) == 2 * 25952256


def test_state_modes() -> None:
    none = memory(HYBRID, enable_prefix_caching=False)
    assert none.sequence_fixed_bytes() == 3 * none.bytes_per_block
    every = memory(HYBRID, mamba_cache_mode="all")
    assert every.sequence_fixed_bytes() == 0
    blocks = -(-5000 // every.block_size)
    assert every.sequence_variable_bytes(5000) == 4 * blocks * every.bytes_per_block


@pytest.mark.parametrize(("stated", "temporal"), [("auto", 4), ("bfloat16", 2), ("float32", 4)])
def test_temporal_dtype(stated: str, temporal: int) -> None:
    sized = memory(HYBRID, mamba_ssm_cache_dtype=stated)
    state = next(spec for group in sized.groups for spec in group.specs if spec.kind == "mamba")
    assert state.unpadded_page_bytes == 3 * 8192 * 2 + 32 * 128 * 128 * temporal


def test_stated_caches_win() -> None:
    stated = [
        {"id": "c", "kind": "full", "layers": 3, "heads": 4, "head_dim": 64},
        {"id": "w", "kind": "window", "layers": 3, "heads": 4, "head_dim": 64, "window": 512},
    ]
    sized = memory(dense(caches=stated))
    assert [len(group.layers) for group in sized.groups] == [3, 3]
    assert sized.bytes_per_block == 3 * 16 * 4 * 128 * 2
    chunked = [{"id": "c", "kind": "chunked", "layers": 3, "heads": 4, "head_dim": 64, "window": 512}]
    sized = memory(dense(caches=chunked))
    assert sized.sequence_bounded_bytes_at(9999) == 32 * sized.bytes_per_block


def test_packed_caches_of_v4() -> None:
    r = resolution("deepseek-v4-flash", hardware="h200", parallel={"tp": 8}, enable_prefix_caching=True)
    layers = cache_layers(r)
    assert layers.block_outer
    pages = {spec.page_bytes for spec in layers.specs}
    assert pages == {37440, 1728, 8640, 32832}


def test_a_latent_predictor_is_sharded_with_its_target() -> None:
    plain = cache_layers(resolution("deepseek-v3", hardware="h200", parallel={"tp": 8, "dcp": 8}))
    assert (plain.dcp, len(plain.specs)) == (8, 61)
    speculative = {"method": "mtp", "num_spec_tokens": 1}
    drafted = cache_layers(
        resolution("deepseek-v3", hardware="h200", parallel={"tp": 8, "dcp": 8}, speculative=speculative)
    )
    assert [spec.dcp_sharded for spec in drafted.specs] == [True] * 62


def test_dcp_divides_tokens_before_paging() -> None:
    one = memory("deepseek-v3", hardware="h200", parallel={"tp": 8})
    eight = memory("deepseek-v3", hardware="h200", parallel={"tp": 8, "dcp": 8})
    assert eight.bytes_per_block == one.bytes_per_block
    assert eight.sequence_variable_bytes(129) == 2 * one.bytes_per_block == one.sequence_variable_bytes(32)


# --- divergences, pinned --------------------------------------------------------------------------------------------


def test_in_flight_tokens_of_the_older_runner() -> None:
    """Both numbers: with two stages pp + 1 = 3 batches are charged; the older runner holds 2."""
    from steppe import _core

    charged = _core.max_in_flight_tokens(2, True, 8192)
    older = 2 * 8192
    window = _core.CacheGroup("window", 16, span=128)

    def blocks(in_flight: int) -> int:
        limits = _core.CacheLimits(max_model_len=131072, max_in_flight_tokens=in_flight)
        return _core.CachePool([window], [1], limits).admission_blocks(131072)

    assert (charged, blocks(charged), blocks(older)) == (24576, 1545, 1033)


@pytest.mark.parametrize(
    "dtype", ["int8_per_token_head", "fp8_per_token_head", "int4_per_token_head", "turboquant_k8v4"]
)
def test_scaled_slots_are_refused(dtype: str) -> None:
    from dataclasses import replace

    with pytest.raises(DeploymentError):
        resolution(dense(), cache_dtype=dtype)
    r = resolution(dense())
    r = replace(r, settings=replace(r.settings, cache_dtype=dtype))
    with pytest.raises(DeploymentError, match=dtype):
        attention_spec(r, r.graph.layer_kinds[0].nodes[1], 16)


def test_compressed_layers_without_stated_caches_are_one_full_cache() -> None:
    node = {"kind": "sparse_mla", "n_q": 64, "n_kv": 1, "d_h": 512, "compress_ratio": 4, "index_topk": 512}
    plain = graph([dense_layer("csa", **node)], {"pattern": ["csa"], "repeat": 4})
    r = resolution(plain, hardware="h200", cache_dtype="auto")
    assert [spec.kind for spec in cache_layers(r).specs] == ["mla"] * 4
    assert kv_bytes_per_token(r, plain.layer_kinds[0].nodes[1]) == 1024


def test_a_young_window_is_charged_a_trailing_page() -> None:
    sized = memory(WINDOWED)
    held = [sized.pool.held_blocks(tokens - 1, 1) - -(-tokens // 16) for tokens in (1, 17, 100)]
    assert held == [1, 2, 7]
    charged = (sized.sequence_bounded_bytes_at([1, 17, 100]) // sized.bytes_per_block).tolist()
    assert charged == [2, 3, 8]


def test_a_mixed_stack_is_not_sharded_by_dcp() -> None:
    """A stack of windows and full layers is charged whole whatever dcp is."""
    from dataclasses import replace

    from deployments import Magnitudes

    from steppe.memory import Memory

    r = resolution(WINDOWED, parallel={"tp": 8})
    wide = replace(r, widths=replace(r.widths, dcp=2))
    assert cache_layers(wide).dcp == 1
    sized = Memory(wide, Magnitudes(MAGNITUDES))
    assert sized.sequence_variable_bytes(33) == 3 * sized.bytes_per_block


def test_the_whole_workspace_lies_before_the_snapshot() -> None:
    one = memory(dense())
    assert one.pre_snapshot_bytes() == one.fixed_bytes().comm_buffers == 3 * GIB
    two = memory(dense(), parallel={"tp": 2})
    assert two.pre_snapshot_bytes() == two.fixed_bytes().comm_buffers == 3 * GIB + (300 << 20)
    usable = math.ceil(int(resolution(dense()).chip.memory_gib * GIB) * 0.92)
    fixed = one.fixed_bytes()
    assert one.kv_budget_bytes() == usable - (fixed.total - 3 * GIB)


def test_v4_buffers_are_added_to_the_activation_scratch() -> None:
    """The prefill gather and the index logits stand beside the scratch; the engine would hold the larger of each."""
    sized = memory("deepseek-v4-flash", hardware="h200", parallel={"tp": 8}, max_model_len=65536)
    fixed = sized.fixed_bytes()
    tokens = sized._resolution.settings.max_num_batched_tokens
    gather = 4 * (65536 // 4 + 128 + tokens) * 512 * 2 + tokens * 640 * 4 + tokens * 4
    index = 40 * 65536 // 4 * 132 + (1 << 20)
    assert fixed.engine_buffers == max(gather, index) + (512 << 20)
    assert fixed.total >= fixed.activations + fixed.engine_buffers


def test_v41_with_experts_spread_is_charged_its_weights_alone() -> None:
    """What the engine loads beyond the weights there (about 9 GiB a rank) is in no part."""
    expert = {"op": "GroupedGEMM", "role": "experts", "n": 2048, "k": 4096, "experts": 256, "top_k": 6}
    layer = {"id": "moe", "nodes": [*dense_layer()["nodes"], expert]}
    model = graph([layer], {"pattern": ["moe"], "repeat": 4})
    whole = rank_weights(resolution(model, parallel={"tp": 8}))
    spread = rank_weights(resolution(model, parallel={"tp": 8, "enable_expert_parallel": True}))
    assert spread.experts == whole.experts == 4 * 256 * 3 * 2048 * 4096 * 2 // 8
    sized = memory(model, parallel={"tp": 8, "enable_expert_parallel": True})
    assert sized.fixed_bytes().weights == spread.total


# --- weights --------------------------------------------------------------------------------------------------------


def test_tied_embeddings_count_once() -> None:
    head = [{"op": "GEMM", "role": "lm_head", "n": 32000, "k": 4096}]
    apart = rank_weights(resolution(dense(head=head)))
    tied = rank_weights(resolution(dense(head=head, tied=True)))
    assert (apart.embedding, apart.head) == (32000 * 4096 * 2,) * 2
    assert (tied.embedding, tied.head) == (32000 * 4096 * 2, 0)


def test_replicated_nodes_are_not_divided() -> None:
    def layers(replicated: bool) -> ModelGraph:
        node = {"op": "GEMM", "role": "router", "n": 128, "k": 4096, "replicated": replicated}
        return graph([{"id": "x", "nodes": [node, dense_layer()["nodes"][1]]}], {"pattern": ["x"], "repeat": 1})

    whole, split = (rank_weights(resolution(layers(flag), parallel={"tp": 4})).layers for flag in (True, False))
    assert (whole, split) == (128 * 4096 * 2, 128 * 4096 * 2 // 4)


@pytest.mark.parametrize(
    ("dtype", "block", "derived", "plain"),
    [
        ("nvfp4", "", 0.5625, 0.5),
        ("mxfp4", "", 0.53125, 0.5),
        ("fp8", "128x128", 1 + 4 / 16384, 1.0),
        ("int4", "1x32", 0.5625, 0.5),
        ("bf16", "", 2.0, 2.0),
    ],
)
def test_scales_of_a_checkpoint(dtype: str, block: str, derived: float, plain: float) -> None:
    """A graph derived from a checkpoint counts block scales; another is weighed at plain widths."""
    for form, width in (("huggingface", derived), ("hand_written", plain)):
        model = dense(
            1, format=form, weight_dtype=dtype, embedding_dtype="bf16", **({"weight_block": block} if block else {})
        )
        got = rank_weights(resolution(model, hardware="b200")).layers
        assert got == round(6144 * 4096 * width), form


def test_latent_up_projection_keeps_a_sixteen_bit_copy_when_quantized() -> None:
    layers = 61
    fp8 = rank_weights(resolution("deepseek-v3", hardware="h200", parallel={"tp": 8}))
    nodes = [
        n for k in resolution("deepseek-v3", hardware="h200", parallel={"tp": 8}).graph.layer_kinds for n in k.nodes
    ]
    kv_b = next(n for n in nodes if n.role == "kv_b")
    copies = layers * kv_b.n * kv_b.k * 2 // 8
    assert copies == 244 << 20
    assert fp8.layers > copies


def test_expert_replicas_are_moved_out_of_weights() -> None:
    expert = {"op": "GroupedGEMM", "role": "experts", "n": 1024, "k": 4096, "experts": 64, "top_k": 4}
    model = graph([{"id": "moe", "nodes": [*dense_layer()["nodes"], expert]}], {"pattern": ["moe"], "repeat": 2})
    parallel = {"tp": 1, "dp": 8, "enable_expert_parallel": True}
    plain = memory(model, parallel=parallel).fixed_bytes()
    spare = memory(model, parallel=parallel, eplb={"enable_eplb": True, "num_redundant_experts": 16}).fixed_bytes()
    assert spare.weights == plain.weights
    assert spare.eplb_replicas == 2 * 2 * 3 * 1024 * 4096 * 2


# --- coefficients ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "missing", ["engine_workspace_bytes", "activation_scratch_floor_bytes", "cudagraph", "nccl", "activation_buffer"]
)
def test_a_missing_magnitude_is_an_error(missing: str) -> None:
    kept = {name: value for name, value in MAGNITUDES.items() if not name.startswith(missing)}
    sized = memory(dense(), parallel={"tp": 2}, magnitudes=kept)
    with pytest.raises(CoefficientError, match=missing):
        sized.fixed_bytes()


def test_one_rank_needs_no_communicator() -> None:
    kept = {name: value for name, value in MAGNITUDES.items() if not name.startswith("nccl")}
    assert memory(dense(), magnitudes=kept).fixed_bytes().comm_buffers == 3 * GIB


def test_widths_snap_to_what_is_declared() -> None:
    kept = {**MAGNITUDES, "nccl_communicator_bytes_8rank": 7.0}
    assert memory(dense(), parallel={"tp": 8}, magnitudes=kept).pre_snapshot_bytes() == 3 * GIB + 7
    wide = memory(dense(), parallel={"tp": 16}, magnitudes=kept)
    assert wide.pre_snapshot_bytes() == 3 * GIB + 7
    data = memory(graph([dense_layer()], {"pattern": ["full"], "repeat": 1}), parallel={"dp": 4}, magnitudes=kept)
    assert data.pre_snapshot_bytes() == 3 * GIB + (300 << 20)


# --- requests and capacity ------------------------------------------------------------------------------------------


def test_counts_out_of_range() -> None:
    sized = memory(dense(), max_model_len=8192)
    for query in (sized.sequence_variable_bytes, sized.sequence_bounded_bytes_at, sized.sequence_admission_bytes):
        assert query(0) == query(-7) == 0
        assert query([0, -7]).tolist() == [0, 0]
        with pytest.raises(ValueError, match="max_model_len 8192"):
            query(8193)
    assert sized.sequence_variable_bytes(8192) == 512 * sized.bytes_per_block


def test_arrays_and_scalars_agree() -> None:
    sized = memory(WINDOWED)
    tokens = np.arange(1, 3000, 17)
    for query in (sized.sequence_variable_bytes, sized.sequence_bounded_bytes_at, sized.sequence_admission_bytes):
        got = query(tokens)
        assert got.dtype == np.int64
        assert got.tolist() == [query(int(t)) for t in tokens]
        with pytest.raises((TypeError, ValueError)):
            query(1.5)
        with pytest.raises((TypeError, ValueError)):
            query(True)


def test_admission_is_all_caches_together() -> None:
    sized = memory(WINDOWED, max_num_batched_tokens=8192, max_model_len=131072)
    assert sized.sequence_admission_bytes(20_000) == 2283 * sized.bytes_per_block
    assert sized.sequence_startup_bytes() == 9225 * sized.bytes_per_block


def test_capacity() -> None:
    sized = memory(dense(8), max_model_len=8192)
    got = sized.kv_capacity()
    assert got.num_blocks == sized.kv_budget_bytes() // sized.bytes_per_block
    assert got.kv_bytes == got.num_blocks * sized.bytes_per_block
    assert got.usable_blocks == got.num_blocks - 1
    assert got.startup_blocks == 512
    assert got.max_concurrency == got.num_blocks / 512
    assert got.tokens == int(got.max_concurrency * 8192)
    assert got.full_length_requests == got.usable_blocks // 512
    assert got.as_dict()["num_blocks"] == got.num_blocks


def test_stated_cache_memory_replaces_the_budget() -> None:
    got = memory(dense(8), kv_cache_memory_bytes=10 * GIB).kv_capacity()
    assert got.budget_bytes == 10 * GIB


def test_an_unstated_length_is_the_longest_that_fits() -> None:
    got = memory(dense(8), kv_cache_memory_bytes=1 * GIB).kv_capacity()
    assert got.max_model_len == got.estimated_max_len == got.usable_blocks * 16


def test_a_model_that_does_not_fit() -> None:
    big = graph([dense_layer()], {"pattern": ["full"], "repeat": 1}, hidden_size=4096, vocab_size=20_000_000)
    sized = memory(big)
    with pytest.raises(DoesNotFit, match="GiB short") as error:
        sized.kv_capacity()
    assert error.value.shortfall == -sized.kv_budget_bytes() > 0
    assert error.value.need - error.value.budget == error.value.shortfall
    assert sized.sequence_variable_bytes(16) > 0  # a request can still be sized


def test_a_request_that_does_not_fit() -> None:
    sized = memory(dense(8), max_model_len=100_000, kv_cache_memory_bytes=1 * GIB)
    with pytest.raises(DoesNotFit, match="max_model_len 100000") as error:
        sized.kv_capacity()
    longest = int(str(error.value).split("to at most ")[1].split(",")[0])
    assert memory(dense(8), max_model_len=longest, kv_cache_memory_bytes=1 * GIB).kv_capacity().max_concurrency >= 1
    with pytest.raises(DoesNotFit):
        memory(dense(8), max_model_len=longest + 16, kv_cache_memory_bytes=1 * GIB).kv_capacity()


def test_every_catalog_model_is_sized() -> None:
    from steppe.catalog import Catalog

    names = Catalog(None).models() if hasattr(Catalog(None), "models") else []
    sized = 0
    for name in names:
        try:
            made = memory(name, hardware="b200", parallel={"tp": 8})
        except DeploymentError:
            continue
        assert made.bytes_per_block > 0
        assert made.fixed_bytes().weights > 0
        sized += 1
    assert sized >= len(names) * 3 // 4


def test_a_draft_of_its_own_is_recorded_as_not_sized() -> None:
    speculative = {"method": "eagle3", "num_spec_tokens": 3}
    r = resolution(dense(), speculative=speculative)
    from deployments import Magnitudes

    from steppe.memory import Memory

    Memory(r, Magnitudes(MAGNITUDES))
    assert any(each.name == "draft_memory" for each in r.ledger.assumptions)


def test_a_draft_with_a_graph_adds_its_layers() -> None:
    speculative = {"method": "eagle3", "num_spec_tokens": 3, "draft": "eagle3-llama-3.1-8b-instruct"}
    plain = memory("llama-3.1-8b-instruct")
    drafted = memory("llama-3.1-8b-instruct", speculative=speculative)
    assert drafted.bytes_per_block * 32 == plain.bytes_per_block * 33
    assert drafted.fixed_bytes().weights > plain.fixed_bytes().weights


@pytest.mark.parametrize(
    ("layers", "stages", "ranges"),
    [
        (40, 1, None),
        (40, 2, [(0, 20), (20, 40)]),
        (43, 3, [(0, 14), (14, 29), (29, 43)]),
        (6, 4, [(0, 1), (1, 3), (3, 5), (5, 6)]),
    ],
)
def test_pipeline_stages_take_layers_as_the_engine_deals_them(layers: int, stages: int, ranges: Any) -> None:
    from steppe.memory.pool import pipeline_stages

    assert pipeline_stages(range(layers), layers, stages) == ranges


def test_caches_of_a_stage_stand_with_their_layers() -> None:
    """Two caches a layer, and a draft's behind the last layer, on the last stage."""
    from steppe.memory.pool import pipeline_stages

    assert pipeline_stages([0, 0, 1, 1, 2, 2, 3, 3, 4], 4, 2) == [(0, 4), (4, 9)]


def test_buffers_of_an_unstated_length_are_an_assumption() -> None:
    from steppe.catalog import Catalog
    from steppe.memory.fixed import engine_buffer_bytes

    graph = Catalog().model("deepseek-v3.2")
    unstated = graph.globals_.model_copy(update={"max_position_embeddings": None})
    silent = graph.model_copy(update={"globals_": unstated})
    r = resolution(silent, hardware="h200", parallel={"tp": 8}, cache_dtype="fp8")

    size = engine_buffer_bytes(r)
    assert any(each.name == "engine_buffers_max_model_len" for each in r.ledger.assumptions)
    stated = resolution("deepseek-v3.2", hardware="h200", parallel={"tp": 8}, cache_dtype="fp8", max_model_len=163840)
    assert engine_buffer_bytes(stated) == size
