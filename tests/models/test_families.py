"""Families whose shapes are counted by hand at chosen widths: graphs of few layers, and what each family refuses."""

from __future__ import annotations

import pytest
from tests.models import small
from tests.models.test_shapes import attention, derived, kind, node, roles, weights

from steppe.errors import DeploymentError, DocumentError
from steppe.models.parameters import parameters
from steppe.models.stack import unfold

GLM_4 = small.of(
    "Glm4MoeForCausalLM",
    head_dim=16,
    use_qk_norm=True,
    first_k_dense_replace=1,
    n_routed_experts=6,
    n_shared_experts=1,
    num_experts_per_tok=2,
    moe_intermediate_size=40,
    num_nextn_predict_layers=1,
)
GLM_5_NEXT = small.of(
    "Glm5NextForCausalLM",
    small.LATENT,
    layer_types=["linear_attention", "linear_attention", "linear_attention", "deepseek_sparse_attention"],
    mhc=True,
    hc_mult=3,
    linear_attn_config={"num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4},
    index_n_heads=4,
    index_head_dim=128,
    index_topk=32,
    index_kpool=4,
    num_nextn_predict_layers=1,
)
MIMO = small.of("MiMoForCausalLM", num_nextn_predict_layers=2)
MIMO_V2 = small.of(
    "MiMoV2FlashForCausalLM",
    head_dim=16,
    v_head_dim=12,
    swa_num_attention_heads=4,
    swa_num_key_value_heads=4,
    swa_head_dim=24,
    swa_v_head_dim=20,
    sliding_window_size=32,
    hybrid_layer_pattern=[0, 1, 1, 0],
    moe_layer_freq=[0, 1, 1, 1],
    n_routed_experts=6,
    num_experts_per_tok=2,
    moe_intermediate_size=40,
)
MUSE = small.of("MuseGlimmerForCausalLM", head_dim=16, sliding_window=32, no_rope_layers=[1, 1, 1, 0])
NO_OP = {"no_op": True, "n_heads_in_group": None, "replace_with_linear": False}
DECILM = small.of(
    "DeciLMForCausalLM",
    num_key_value_heads=None,
    intermediate_size=None,
    block_configs=[
        {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 1.5}},
        {"attention": NO_OP, "ffn": {"intermediate_size": 48}},
        {"attention": {"n_heads_in_group": 8}, "ffn": {"no_op": True}},
        {"attention": NO_OP, "ffn": {"no_op": True}},
    ],
)
DEEPSEEK_V41 = small.of(
    "DeepseekV41ForCausalLM",
    small.LATENT,
    head_dim=32,
    o_groups=2,
    o_lora_rank=10,
    compress_ratios=[0, 1, 2, 2, 0],
    kv_source_layer_ids=[1, 2],
    index_source_layer_ids=[1, 2],
    engram_layer_ids=[1],
    engram_max_ngram_size=3,
    engram_n_heads=2,
    engram_head_dim=6,
    sliding_window=16,
    hc_mult=4,
    index_n_heads=4,
    index_head_dim=128,
    index_topk=32,
    n_mtp_layers=1,
    dspark_block_size=5,
    dspark_target_layer_ids=[0, 2, 3],
    dspark_markov_rank=7,
    dspark_n_routed_experts=4,
    dspark_num_experts_per_tok=1,
)
GEMMA_2 = small.of("Gemma2ForCausalLM", head_dim=16, sliding_window=16, final_logit_softcapping=30.0)
GEMMA_4 = small.of(
    "Gemma4ForCausalLM",
    head_dim=16,
    global_head_dim=32,
    num_global_key_value_heads=1,
    sliding_window=16,
    layer_types=["sliding_attention", "full_attention"] * 2,
    tie_word_embeddings=None,
)

GATED, HEAD = 3, 1000 * 64


def experts(routed: int, shared: int, inner: int, hidden: int = 64) -> int:
    return GATED * (routed + shared) * inner * hidden


# --- GLM -------------------------------------------------------------------------------------------------------------


def test_glm_4_counts_a_dense_layer_expert_layers_and_a_prediction_module() -> None:
    """glm4_moe.py:120-320: an fp32 router after a cast, one shared expert, q/k norms where stated."""
    graph = derived(GLM_4)
    assert graph["stack"] == {"prologue": ["full_dense"], "pattern": ["full_moe"], "repeat": 3}
    mixer = 64 * (8 + 2 * 2) * 16 + 64 * 8 * 16
    dense, sparse = mixer + GATED * 64 * 96, mixer + 6 * 64 + experts(6, 1, 40)
    assert parameters(graph) == dense + 3 * sparse + 2 * HEAD
    assert parameters(graph, speculator=True) == parameters(graph) + sparse + 64 * 128
    nodes = kind(graph, "full_moe")
    assert "qk_norm" in roles(nodes)
    assert node(nodes, "router")["weight_dtype"] == "fp32"
    assert graph["speculator"]["stack"] == {"pattern": ["mtp_full_moe"], "repeat": 1}


def test_glm_4_without_norms_or_modules() -> None:
    graph = derived({**GLM_4, "use_qk_norm": False, "num_nextn_predict_layers": 0, "first_k_dense_replace": 0})
    assert graph["stack"] == {"pattern": ["full_moe"], "repeat": 4}
    assert "qk_norm" not in roles(kind(graph, "full_moe"))
    assert "speculator" not in graph


def test_glm_5_next_is_delta_layers_and_sparse_layers_over_mixed_streams() -> None:
    """glm5next/common/model.py:278-460, kda.py:190-300, attention.py:60-470."""
    graph = derived(GLM_5_NEXT)
    assert unfold(graph["stack"]) == ["kda_dense", "kda_moe", "kda_moe", "dsa_moe"]
    delta, sparse = kind(graph, "kda_moe"), kind(graph, "dsa_moe")
    assert weights(delta)["in_proj"] == (3 * 64 + 4 + 2 * 16, 64)
    assert weights(delta)["decay_up"] == weights(delta)["gate_up_rank"] == (64, 16)
    assert node(delta, "mixer")["recurrent_kind"] == "kda"
    assert weights(sparse)["qkv_a"] == (24 + 32 + 8, 64)
    assert weights(sparse)["index_q"] == (4 * 128, 24)
    assert weights(sparse)["index_k"] == (128 + 4, 64)
    assert weights(sparse)["index_gate"] == (128, 64)
    assert node(sparse, "index_scores")["compress_ratio"] == 4
    assert attention(sparse)["index_topk"] == 32
    assert weights(sparse)["hyper_mix"] == ((2 + 3) * 3, 3 * 64)
    assert "hyper_mix" not in roles(kind(graph, "mtp_dsa_moe"))


def test_glm_5_next_keeps_a_latent_an_index_key_a_pool_and_a_state() -> None:
    caches = {cache["id"]: cache for cache in derived(GLM_5_NEXT)["caches"]}
    assert caches["recurrent"]["state_bytes"] == 2 * 3 * 3 * 16 + 4 * 16 * 16
    assert caches["recurrent"]["heads"] == 4
    assert caches["latent"]["head_dim"] == 32 + 8
    assert (caches["index"]["state_bytes"], caches["index"]["tokens_per_state"]) == (128 + 4, 4)
    assert (caches["pool_tail"]["kind"], caches["pool_tail"]["block_size"]) == ("ring", 4)
    assert caches["draft_latent"]["draft"] is True


def test_glm_5_next_with_one_key_a_token_and_one_stream() -> None:
    graph = derived({**GLM_5_NEXT, "index_kpool": 1, "mhc": False, "num_nextn_predict_layers": 0})
    nodes = kind(graph, "dsa_moe")
    assert node(nodes, "index_scores")["kind"] == "gqa"
    assert "compress_ratio" not in node(nodes, "index_scores")
    assert [cache["id"] for cache in graph["caches"]] == ["recurrent", "latent", "index"]
    assert "tokens_per_state" not in graph["caches"][2]
    assert "hyper_mix" not in roles(nodes)
    assert "speculator" not in graph


# --- MiMo ------------------------------------------------------------------------------------------------------------


def test_mimo_drafts_with_dense_layers_of_its_own_shape() -> None:
    """mimo_mtp.py:50-90."""
    graph = derived(MIMO)
    layer = 64 * (8 + 2 * 2) * 8 + 64 * 64 + GATED * 64 * 96
    assert parameters(graph) == 4 * layer + 2 * HEAD
    assert parameters(graph, speculator=True) == parameters(graph) + 2 * (layer + 64 * 128)
    assert graph["speculator"]["num_spec_tokens"] == 2
    assert "speculator" not in derived({**MIMO, "num_nextn_predict_layers": 0})


def test_mimo_v2_gives_window_layers_heads_of_their_own() -> None:
    """mimo_v2.py:100-420, mimo_v2_mtp.py:55-130."""
    graph = derived(MIMO_V2)
    assert unfold(graph["stack"]) == ["full_dense", "window_moe", "window_moe", "full_moe"]
    window, full = kind(graph, "window_moe"), kind(graph, "full_moe")
    assert weights(window)["qkv"] == ((4 + 4) * 24 + 4 * 20, 64)
    assert weights(window)["out"] == (64, 4 * 20)
    assert weights(full)["qkv"] == ((8 + 2) * 16 + 2 * 12, 64)
    assert weights(full)["out"] == (64, 8 * 12)
    assert attention(window) == {"op": "Attention", "kind": "swa", "n_q": 4, "n_kv": 4, "d_h": 24, "window": 32}
    assert node(full, "router")["weight_dtype"] == "fp32"
    caches = {cache["id"]: cache for cache in graph["caches"]}
    assert (caches["window_32"]["head_dim"], caches["window_32"]["head_dim_v"]) == (24, 20)
    assert (caches["full"]["head_dim"], caches["full"]["head_dim_v"]) == (16, 12)
    assert weights(kind(graph, "mtp_window_dense"))["gate_up"] == (2 * 96, 64)


def test_mimo_v2_routers_in_the_models_own_dtype_and_values_as_wide_as_keys() -> None:
    graph = derived({**MIMO_V2, "moe_router_dtype": "bfloat16", "v_head_dim": None})
    full = kind(graph, "full_moe")
    assert "weight_dtype" not in node(full, "router")
    assert weights(full)["out"] == (64, 8 * 16)
    assert "head_dim_v" not in next(cache for cache in graph["caches"] if cache["id"] == "full")


# --- Muse ------------------------------------------------------------------------------------------------------------


def test_muse_slides_where_it_rotates_and_gates_its_output() -> None:
    """muse_glimmer.py:1075-1300."""
    graph = derived(MUSE)
    assert unfold(graph["stack"]) == ["window_dense"] * 3 + ["full_dense"]
    window, full = kind(graph, "window_dense"), kind(graph, "full_dense")
    assert "rope" in roles(window)
    assert "rope" not in roles(full)
    assert weights(full)["attn_gate_proj"] == (8 * 16, 64)
    assert [r for r in roles(full) if r.startswith("norm")] == [
        "norm_in", "norm_post_attn", "norm_mid", "norm_post_mlp",
    ]  # fmt: skip
    layer = 64 * (8 + 2 * 2) * 16 + 2 * 64 * 8 * 16 + GATED * 64 * 96
    assert parameters(graph) == 4 * layer + 2 * HEAD


def test_muse_reads_layer_types_first() -> None:
    types = ["full_attention", "sliding_attention"] * 2
    graph = derived({**MUSE, "layer_types": types})
    assert graph["stack"] == {"pattern": ["full_dense", "window_dense"], "repeat": 2}


# --- DeciLM ----------------------------------------------------------------------------------------------------------


def test_pruned_layers_keep_what_their_block_config_keeps() -> None:
    """nemotron_nas.py:60-260: width 2/3 of 1.5 · 64 = 64 is rounded up to 256; a layer of nothing is dropped."""
    graph = derived(DECILM)
    assert unfold(graph["stack"]) == ["full_dense", "none_dense", "full"]
    assert weights(kind(graph, "full_dense")) == {
        "qkv": ((8 + 2 * 2) * 8, 64), "out": (64, 64), "gate_up": (2 * 256, 64), "down": (64, 256),
    }  # fmt: skip
    assert weights(kind(graph, "none_dense")) == {"gate_up": (96, 64), "down": (64, 48)}
    assert weights(kind(graph, "full")) == {"qkv": ((8 + 2) * 8, 64), "out": (64, 64)}


@pytest.mark.parametrize("part", ["attention", "ffn"])
def test_pruned_blocks_replaced_by_a_linear_are_refused(part: str) -> None:
    blocks = [{"attention": NO_OP, "ffn": {"no_op": True}, part: {"replace_with_linear": True}}]
    with pytest.raises(DeploymentError, match=rf"block_configs\[0\]: {part}: replace_with_linear"):
        derived({**DECILM, "num_hidden_layers": 1, "block_configs": blocks})


def test_pruned_heads_come_in_whole_groups() -> None:
    blocks = [{"attention": {"n_heads_in_group": 3}, "ffn": {"no_op": True}}]
    with pytest.raises(DocumentError, match="n_heads_in_group 3 does not divide 8 heads"):
        derived({**DECILM, "num_hidden_layers": None, "block_configs": blocks})


# --- DeepSeek-V4.1 ---------------------------------------------------------------------------------------------------


def test_deepseek_v41_writes_and_scores_only_at_its_sources() -> None:
    """deepseek_v41/attention.py:286-345, 1261-1330; common/engram.py:890-966."""
    graph = derived(DEEPSEEK_V41)
    assert unfold(graph["stack"]) == [
        "window_moe", "csa1_owner_scorer_moe", "csa2_owner_scorer_moe", "csa2_moe",
    ]  # fmt: skip
    one, two, reader = (kind(graph, name) for name in ("csa1_owner_scorer_moe", "csa2_owner_scorer_moe", "csa2_moe"))
    assert weights(one)["compress"] == (32, 64)
    assert weights(two)["compress"] == (2 * 32, 64)
    assert weights(two)["index_k"] == (128, 32)
    assert weights(two)["index_q"] == (4 * 128, 24)
    assert node(two, "block_index_scores")["compress_ratio"] == 2
    assert attention(reader)["index_topk"] == 32
    assert not {"compress", "index_k", "index_q", "block_index_scores"} & set(roles(reader))
    assert attention(kind(graph, "window_moe"))["kind"] == "swa"
    assert weights(one)["engram"] == ((4 + 1) * 64, (3 - 1) * 2 * 6)
    assert node(one, "engram_gather")["bytes_per_token"] == 2 * 5 * 64
    assert "engram" not in roles(two)


def test_deepseek_v41_caches_stand_with_their_owners() -> None:
    caches = {cache["id"]: cache for cache in derived(DEEPSEEK_V41)["caches"]}
    assert caches["compressed_2"]["layer_kinds"] == ["csa2_owner_scorer_moe"]
    assert caches["compressed_2"]["tokens_per_state"] == 2
    assert caches["index_1"]["state_bytes"] == 128 + 4
    assert caches["state_2"]["state_bytes"] == 8 * 32
    assert "state_1" not in caches
    assert len(caches["window"]["layer_kinds"]) == 4
    assert caches["draft_window"]["layer_kinds"] == ["dspark_window_moe"]


def test_deepseek_v41_drafts_with_experts_of_their_own_number() -> None:
    graph = derived(DEEPSEEK_V41)
    drafter = graph["speculator"]
    assert (drafter["method"], drafter["num_spec_tokens"], drafter["markov_rank"]) == ("dspark", 5, 7)
    assert drafter["stack"] == {"pattern": ["dspark_window_moe"], "repeat": 1}
    assert drafter["hidden_taps"] == [0, 2, 3]
    assert drafter["draft_vocab_size"] == 1000
    own, target = kind(graph, "dspark_window_moe"), kind(graph, "window_moe")
    assert (node(own, "experts")["experts"], node(own, "experts")["top_k"]) == (4, 1)
    assert (node(target, "experts")["experts"], node(target, "experts")["top_k"]) == (10, 3)
    assert weights(own)["router"] == (4, 64)


def test_deepseek_v41_without_a_drafter_or_with_the_targets_experts() -> None:
    assert "speculator" not in derived({**DEEPSEEK_V41, "dspark_block_size": None})
    same = derived({**DEEPSEEK_V41, "dspark_n_routed_experts": None, "dspark_num_experts_per_tok": None})
    assert node(kind(same, "dspark_window_moe"), "experts")["experts"] == 10


def test_deepseek_v41_refuses_ratios_by_name() -> None:
    with pytest.raises(DocumentError, match="compress_ratios has 2 entries for 4 layers"):
        derived({**DEEPSEEK_V41, "compress_ratios": [0, 1]})
    with pytest.raises(DeploymentError, match="compress_ratios holds 4; known: 0, 1, 2"):
        derived({**DEEPSEEK_V41, "compress_ratios": [0, 4, 0, 0]})


# --- Gemma -----------------------------------------------------------------------------------------------------------


def test_gemma_2_caps_its_logits_and_slides_every_other_layer() -> None:
    graph = derived(GEMMA_2)
    assert graph["stack"] == {"pattern": ["window_dense", "full_dense"], "repeat": 2}
    assert "qk_norm" not in roles(kind(graph, "full_dense"))
    assert graph["head"][-1] == {
        "op": "Elementwise", "role": "activation", "bytes_per_token": 12 * 1000, "launches": 3, "replicated": True,
    }  # fmt: skip
    assert derived({**GEMMA_2, "final_logit_softcapping": None})["head"][-1]["role"] == "lm_head"


def test_gemma_4_full_layers_have_heads_of_their_own() -> None:
    graph = derived(GEMMA_4)
    assert weights(kind(graph, "window_dense"))["qkv"] == ((8 + 2 * 2) * 16, 64)
    assert weights(kind(graph, "full_dense"))["qkv"] == ((8 + 2 * 1) * 32, 64)
    assert weights(kind(graph, "full_dense"))["out"] == (64, 8 * 32)
    assert graph["global"]["tie_word_embeddings"] is True
    assert parameters(graph) == 2 * (12 * 16 * 64 + 128 * 64) + 2 * (10 * 32 * 64 + 256 * 64) + 12 * 64 * 96 + HEAD


def test_gemma_4_last_layers_read_earlier_caches_and_may_be_twice_as_wide() -> None:
    graph = derived({**GEMMA_4, "num_kv_shared_layers": 2, "use_double_wide_mlp": True})
    assert unfold(graph["stack"]) == ["window_dense", "full_dense", "window_dense_reads", "full_dense_reads"]
    reader = kind(graph, "window_dense_reads")
    assert weights(reader)["qkv"] == (8 * 16, 64)
    assert weights(reader)["gate_up"] == (2 * 2 * 96, 64)
    assert weights(kind(graph, "window_dense"))["gate_up"] == (2 * 96, 64)
    assert all("reads" not in name for cache in graph["caches"] for name in cache["layer_kinds"])


def test_gemma_4_runs_experts_beside_its_dense_block() -> None:
    more = {"enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 40}
    graph = derived({**GEMMA_4, **more})
    nodes = kind(graph, "window_moe")
    assert weights(nodes)["experts"] == (40, 64)
    assert weights(nodes)["down"] == (64, 96)
    assert {"norm_post_dense", "norm_experts", "norm_router", "norm_post_experts"} <= set(roles(nodes))
    assert derived(GEMMA_4)["stack"]["pattern"] == ["window_dense", "full_dense"]


def test_gemma_4_needs_its_layer_types() -> None:
    with pytest.raises(DocumentError, match="missing key 'layer_types'"):
        derived({**GEMMA_4, "layer_types": None})


# --- Kimi ------------------------------------------------------------------------------------------------------------


def test_kimi_k3_has_a_full_gate_latent_experts_and_mixed_residuals() -> None:
    """kimi_k3/nvidia/kda.py:536-600, mla.py:140-240, model.py:517-700, 999-1061."""
    kda = {"num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4, "kda_layers": [1, 2, 3]}
    config = small.of(
        "KimiK3ForConditionalGeneration",
        {**small.KIMI_LINEAR, "architectures": None},
        q_lora_rank=24,
        mla_use_output_gate=True,
        attn_res_block_size=2,
        routed_expert_hidden_size=20,
        latent_moe_use_norm=True,
        linear_attn_config={**kda, "use_full_rank_gate": True},
        num_nextn_predict_layers=1,
    )
    graph = derived(config)
    assert unfold(graph["stack"]) == ["kda_dense", "kda_moe", "kda_moe", "mla_moe"]
    delta, latent = kind(graph, "kda_moe"), kind(graph, "mla_moe")
    assert weights(delta)["in_proj"] == (4 * 64 + 16 + 4, 64)
    assert "gate_down" not in roles(delta)
    assert weights(latent)["qkv_a"] == (24 + 32 + 8, 64)
    assert weights(latent)["attn_gate_proj"] == (8 * 12, 64)
    assert "attn_gate" in roles(latent)
    assert (weights(latent)["latent_down"], weights(latent)["latent_up"]) == ((20, 64), (64, 20))
    assert (weights(latent)["shared_gate_up"], weights(latent)["shared_down"]) == ((80, 64), (64, 40))
    assert weights(latent)["experts"] == (40, 20)
    assert node(latent, "reduce_mlp")["bytes_per_token"] == 2 * (20 + 64)
    assert node(latent, "norm_latent")["bytes_per_token"] == 4 * 20
    assert node(latent, "norm_in")["bytes_per_token"] == 2 * 64 * (3 + 1)
    drafted = kind(graph, "mtp_mla_moe")
    assert "bytes_per_token" not in node(drafted, "norm_in")


# --- Nemotron --------------------------------------------------------------------------------------------------------


def test_nemotron_lists_its_blocks_by_name_and_widths_a_dense_layer() -> None:
    listed = ["mamba", "mlp", "attention", "mlp", "moe"]
    config = {**small.NEMOTRON, "hybrid_override_pattern": None, "layers_block_type": listed, "moe_latent_size": None}
    graph = derived({**config, "num_hidden_layers": None, "intermediate_size": [96, 112], "n_shared_experts": 0})
    assert unfold(graph["stack"]) == ["mamba", "dense", "full", "dense_2", "moe"]
    assert weights(kind(graph, "dense"))["up"] == (96, 64)
    assert weights(kind(graph, "dense_2"))["up"] == (112, 64)
    assert weights(kind(graph, "moe")) == {"router": (6, 64), "experts": (40, 64)}
    one = derived({**config, "num_hidden_layers": None, "intermediate_size": [80]})
    assert weights(kind(one, "dense"))["down"] == (64, 80)
    with pytest.raises(DocumentError, match="fewer than dense layers"):
        derived({**config, "num_hidden_layers": 6, "layers_block_type": [*listed, "mlp"], "intermediate_size": [96, 8]})


def test_nemotron_refuses_block_names_and_drafts_as_its_pattern_says() -> None:
    with pytest.raises(DocumentError, match="layers_block_type holds 'rnn'; known: mamba, attention, mlp, moe"):
        derived({**small.NEMOTRON, "hybrid_override_pattern": None, "layers_block_type": ["rnn"] * 4})
    drafting = derived({**small.NEMOTRON, "mtp_hybrid_override_pattern": "*"})
    assert drafting["speculator"]["stack"] == {"pattern": ["mtp_full"], "repeat": 1}
    assert "speculator" not in derived({**small.NEMOTRON, "num_nextn_predict_layers": 0})


# --- MiniMax-M3 ------------------------------------------------------------------------------------------------------


def test_minimax_m3_has_experts_everywhere_unless_it_lists_them() -> None:
    graph = derived({**small.MINIMAX_M3, "moe_layer_freq": None, "num_mtp_modules": 0})
    assert graph["stack"] == {"prologue": ["full_moe"], "pattern": ["sparse_moe"], "repeat": 3}
    assert "speculator" not in graph
    qkv = weights(kind(graph, "sparse_moe"))["qkv"]
    assert qkv == ((8 + 2 * 2) * 16 + (2 + 1) * 16, 64)


def test_glm_5_next_refuses_layer_types_it_does_not_know_and_indexers_without_a_latent_of_q() -> None:
    with pytest.raises(DocumentError, match="layer_types holds 'mamba'; known: linear_attention, deepseek_sparse"):
        derived({**GLM_5_NEXT, "layer_types": ["mamba"] * 4})
    with pytest.raises(DocumentError, match="q_lora_rank is required"):
        derived({**GLM_5_NEXT, "q_lora_rank": None})


# --- layers told apart by lists and patterns -------------------------------------------------------------------------


def test_an_indexer_pattern_says_who_scores_whatever_the_frequency() -> None:
    graph = derived({**small.DSA, "index_topk_pattern": "FSSF", "index_topk_freq": 1, "num_nextn_predict_layers": 0})
    assert unfold(graph["stack"]) == ["dsa_dense", "dsa_shared_moe", "dsa_shared_moe", "dsa_moe"]


def test_indexer_types_must_agree_with_the_frequency() -> None:
    stated = {**small.DSA, "index_topk_freq": 2, "index_skip_topk_offset": 2}
    types = ["full", "full", "shared", "full"]
    agreeing = {**stated, "indexer_types": types}
    assert derived(agreeing)["stack"] == derived(stated)["stack"]
    with pytest.raises(DocumentError, match="indexer_types contradicts index_topk_freq and its offset at layer 2"):
        derived({**stated, "indexer_types": ["full"] * 4})


def test_delta_net_layers_are_where_layer_types_puts_them() -> None:
    types = ["full_attention", "linear_attention", "linear_attention", "full_attention"]
    graph = derived({**small.QWEN3_NEXT, "layer_types": types})
    assert unfold(graph["stack"]) == ["full_moe", "gdn_moe", "gdn_moe", "full_moe"]


def test_an_encoder_that_states_no_size_is_not_counted() -> None:
    outer = {"architectures": ["Qwen3VLForConditionalGeneration"], "text_config": small.QWEN3}
    silent = {**outer, "vision_config": {"model_type": "qwen3_vl", "hidden_size": 8, "depth": 2}}
    assert "encoder_parameters" not in derived(silent)["global"]
    assert derived(silent)["modality"] == "text_decoder_of_multimodal"


def test_lists_must_be_lists() -> None:
    with pytest.raises(DocumentError, match="kv_source_layer_ids must be a list, not int"):
        derived({**DEEPSEEK_V41, "kv_source_layer_ids": 1})
