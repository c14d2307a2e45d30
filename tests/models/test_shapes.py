"""Per-layer shapes, transcribed by hand from the engine's model files at v0.31.0 and not from the deriver."""

from __future__ import annotations

from typing import Any

from tests.models import small

from steppe.models.derive import derive
from steppe.models.stack import unfold

Node = dict[str, Any]


def derived(config: small.Config, **options: Any) -> dict[str, Any]:
    return derive(config, name="test", **options)


def kind(graph: dict[str, Any], name: str) -> list[Node]:
    return next(k["nodes"] for k in graph["layer_kinds"] if k["id"] == name)


def weights(nodes: list[Node]) -> dict[str, tuple[int, int]]:
    return {node["role"]: (node["n"], node["k"]) for node in nodes if "k" in node and "n" in node}


def node(nodes: list[Node], role: str) -> Node:
    return next(n for n in nodes if n.get("role") == role)


def attention(nodes: list[Node]) -> Node:
    return next(n for n in nodes if n["op"] == "Attention" and "role" not in n)


def roles(nodes: list[Node]) -> list[str]:
    return [n.get("role") or n["op"] for n in nodes]


def test_llama() -> None:
    """llama.py:91-110 (gate and up merged), 153-179 (qkv of q + 2 kv heads, o), head_dim = hidden / heads (150-151)."""
    graph = derived(small.LLAMA)
    nodes = kind(graph, "full_dense")
    assert weights(nodes) == {"qkv": (64 + 2 * 16, 64), "out": (64, 64), "gate_up": (192, 64), "down": (64, 96)}
    assert attention(nodes) == {"op": "Attention", "kind": "gqa", "n_q": 8, "n_kv": 2, "d_h": 8}
    assert roles(nodes) == [
        "norm_in", "qkv", "rope", "Attention", "out", "reduce_mixer",
        "norm_mid", "gate_up", "activation", "down", "reduce_mlp",
    ]  # fmt: skip
    assert graph["stack"] == {"pattern": ["full_dense"], "repeat": 4}
    assert weights(graph["head"]) == {"lm_head": (1000, 64)}


def test_qwen3_normalises_q_and_k_and_states_its_head_size() -> None:
    """qwen3.py:100-107 (head_dim), 150-170 (norms over each head before rope)."""
    nodes = kind(derived(small.QWEN3), "full_dense")
    assert weights(nodes)["qkv"] == (8 * 16 + 2 * 2 * 16, 64)
    assert weights(nodes)["out"] == (64, 128)
    assert roles(nodes)[1:5] == ["qkv", "qk_norm", "rope", "Attention"]
    assert node(nodes, "qk_norm")["bytes_per_token"] == 2 * 2 * (8 + 2) * 16


def test_qwen2_windows_are_inert_unless_switched_on() -> None:
    stated = small.of("Qwen2ForCausalLM", sliding_window=16, max_window_layers=2)
    assert attention(kind(derived(stated), "full_dense"))["kind"] == "gqa"
    on = small.of("Qwen2ForCausalLM", sliding_window=16, use_sliding_window=True)
    assert attention(kind(derived(on), "window_dense")) == {
        "op": "Attention", "kind": "swa", "n_q": 8, "n_kv": 2, "d_h": 8, "window": 16,
    }  # fmt: skip


def test_layer_types_decide_which_layers_slide() -> None:
    """llama.py:186-207."""
    types = ["sliding_attention", "full_attention"] * 2
    graph = derived(small.of("MistralForCausalLM", sliding_window=16, layer_types=types))
    assert graph["stack"] == {"pattern": ["window_dense", "full_dense"], "repeat": 2}


def test_mixtral() -> None:
    """mixtral.py:107-135: a 16-bit replicated gate, experts of two merged matrices and one."""
    nodes = kind(derived(small.MIXTRAL), "full_moe")
    assert node(nodes, "router") == {"op": "GEMM", "role": "router", "n": 6, "k": 64, "replicated": True}
    experts = node(nodes, "experts")
    assert (experts["n"], experts["k"], experts["experts"], experts["top_k"]) == (96, 64, 6, 2)
    assert node(nodes, "reduce_mlp")["emit"] == "tensor_parallel_unless_sp_moe"
    assert node(nodes, "dispatch_combine")["emit"] == "expert_parallel"


def test_qwen3_moe_skips_the_layers_it_names() -> None:
    """qwen3_moe.py:395-425: sparse where (i + 1) is a multiple of the step and i is not in mlp_only_layers."""
    graph = derived({**small.QWEN3_MOE, "decoder_sparse_step": 2, "mlp_only_layers": [3]})
    assert unfold(graph["stack"]) == ["full_dense", "full_moe", "full_dense", "full_dense"]
    assert weights(kind(graph, "full_dense"))["gate_up"] == (192, 64)


def test_minimax_m2_reduces_a_norm_over_ranks_and_casts_for_its_gate() -> None:
    """minimax_m2.py:104-112 (fp32 gate), 186-225 (norms over the heads of all ranks)."""
    nodes = kind(derived(small.MINIMAX_M2), "full_moe")
    assert roles(nodes)[1:6] == ["qkv", "qk_norm", "qk_norm_reduce", "rope", "Attention"]
    assert node(nodes, "qk_norm")["launches"] == 2
    reduce = node(nodes, "qk_norm_reduce")
    assert (reduce["op"], reduce["bytes_per_token"], reduce["emit"]) == ("AllReduce", 8, "tensor_parallel")
    assert node(nodes, "router")["weight_dtype"] == node(nodes, "router")["compute_dtype"] == "fp32"
    assert roles(nodes)[roles(nodes).index("router") - 1] == "gate"


def test_gpt_oss_windows_every_other_layer() -> None:
    """gpt_oss.py:157-180: even layers slide; caches follow."""
    graph = derived(small.GPT_OSS)
    assert graph["stack"] == {"pattern": ["window_moe", "full_moe"], "repeat": 2}
    assert graph["caches"] == [
        {"id": "window_16", "kind": "window", "layer_kinds": ["window_moe"], "heads": 2, "head_dim": 16, "window": 16},
        {"id": "full", "kind": "full", "layer_kinds": ["full_moe"], "heads": 2, "head_dim": 16},
    ]


def test_deepseek() -> None:
    """deepseek_v2.py:952-1011 (projections), 288-372 (shared experts of n·inner), 1296-1301 (dense first)."""
    graph = derived(small.DEEPSEEK)
    nodes = kind(graph, "mla_moe")
    assert weights(nodes) == {
        "qkv_a": (24 + 32 + 8, 64),
        "q_b": (8 * 24, 24),
        "kv_b": (8 * 28, 32),
        "out": (64, 96),
        "router": (10, 64),
        "experts": (40, 64),
    }
    assert node(nodes, "qkv_a")["replicated"]
    assert node(nodes, "experts")["shared_experts"] == 2
    assert attention(nodes) == {
        "op": "Attention", "kind": "mla", "n_q": 8, "n_kv": 1, "d_h": 40, "kv_lora_rank": 32, "qk_rope_head_dim": 8,
    }  # fmt: skip
    assert graph["stack"] == {"prologue": ["mla_dense"], "pattern": ["mla_moe"], "repeat": 3}
    assert graph["speculator"] == {
        "method": "mtp", "num_spec_tokens": 1, "stack": {"pattern": ["mtp_mla_moe"], "repeat": 1},
    }  # fmt: skip
    assert weights(kind(graph, "mtp_mla_moe"))["fuse"] == (64, 128)


def test_deepseek_without_a_rank_for_q() -> None:
    """deepseek_v2.py:960-967, 991-998: q by head, kv_a replicated."""
    nodes = kind(derived({**small.DEEPSEEK, "q_lora_rank": None}), "mla_moe")
    assert weights(nodes)["q"] == (8 * 24, 64)
    assert weights(nodes)["kv_a"] == (40, 64)
    assert "norm_q_a" not in roles(nodes)


def test_sparse_latent_layers_share_an_indexer() -> None:
    """deepseek_v32/attention.py:68-90 (wq_b, wk with head weights, both replicated), 139-160 (who scores)."""
    graph = derived({**small.DSA, "index_topk_freq": 2, "index_skip_topk_offset": 2, "num_hidden_layers": 6})
    assert unfold(graph["stack"]) == [
        "dsa_dense", "dsa_moe", "dsa_shared_moe", "dsa_moe", "dsa_shared_moe", "dsa_moe",
    ]  # fmt: skip
    nodes = kind(graph, "dsa_moe")
    assert weights(nodes)["index_q"] == (4 * 8, 24)
    assert weights(nodes)["index_k"] == (8 + 4, 64)
    assert node(nodes, "index_scores")["n_q"] == 4
    assert attention(nodes)["index_topk"] == 32
    assert "index_scores" not in roles(kind(graph, "dsa_shared_moe"))
    assert "index_scores" in roles(kind(graph, "mtp_dsa_moe"))


def test_qwen3_next() -> None:
    """qwen_gdn_linear_attn.py:410-507 and qwen3_next.py:241-320 (gate as wide as q, shared expert with a gate)."""
    graph = derived(small.QWEN3_NEXT)
    gdn, full = kind(graph, "gdn_moe"), kind(graph, "full_moe")
    assert weights(gdn)["in_proj"] == (2 * 2 * 16 + 2 * 4 * 8, 64)
    assert weights(gdn)["in_proj_ba"] == (2 * 4, 64)
    assert weights(gdn)["out"] == (64, 32)
    mixer = node(gdn, "mixer")
    assert (mixer["n_heads"], mixer["n_groups"], mixer["state_size"], mixer["d_h"]) == (4, 2, 16, 8)
    assert weights(full)["qkv"] == ((2 * 8 + 2 * 2) * 16, 64)
    assert node(full, "experts")["shared_intermediate_size"] == 56
    assert weights(full)["shared_gate"] == (1, 64)
    assert graph["stack"] == {"pattern": ["gdn_moe", "full_moe"], "repeat": 2}
    fuse = roles(kind(graph, "mtp_full_moe"))
    assert fuse[:4] == ["norm_embed", "norm_hidden", "fuse", "fuse_gather"]


def test_nemotron() -> None:
    """nemotron_h.py:122-270, 395-440; mamba_mixer2.py (in_proj of 2·inner + 2·groups·state + heads)."""
    graph = derived(small.NEMOTRON)
    assert unfold(graph["stack"]) == ["mamba", "latent_moe", "full", "dense"]
    assert weights(kind(graph, "mamba")) == {"in_proj": (2 * 64 + 2 * 2 * 8 + 4, 64), "out": (64, 64)}
    latent = kind(graph, "latent_moe")
    assert weights(latent) == {
        "router": (6, 64),
        "latent_down": (20, 64),
        "shared_up": (48, 64),
        "shared_down": (64, 48),
        "experts": (40, 20),
        "latent_up": (64, 20),
    }
    assert node(latent, "experts")["gated"] is False
    assert "rope" not in roles(kind(graph, "full"))
    assert weights(kind(graph, "dense")) == {"up": (96, 64), "down": (64, 96)}
    assert node(kind(graph, "mamba"), "mixer")["state_dtype"] == "fp32"


def test_llama_4() -> None:
    """llama4.py:186-230 (no rope, no chunk every fourth layer), 330-345 (experts every step-th layer)."""
    graph = derived(small.LLAMA_4)
    assert unfold(graph["stack"]) == ["chunked_dense", "chunked_moe", "chunked_dense", "full_moe"]
    assert "rope" not in roles(kind(graph, "full_moe"))
    assert "qk_norm" in roles(kind(graph, "chunked_moe"))
    assert weights(kind(graph, "chunked_dense"))["gate_up"] == (256, 64)
    assert [(c["kind"], c.get("window")) for c in graph["caches"]] == [("chunked", 32), ("full", None)]


def test_gemma_3_norms_after_each_block_and_ties_its_head() -> None:
    """gemma3.py:200-290."""
    graph = derived(small.GEMMA_3)
    nodes = kind(graph, "window_dense")
    assert [r for r in roles(nodes) if r.startswith("norm")] == [
        "norm_in", "norm_post_attn", "norm_mid", "norm_post_mlp",
    ]  # fmt: skip
    assert graph["stack"] == {"pattern": ["window_dense", "full_dense"], "repeat": 2}
    assert graph["global"]["tie_word_embeddings"]


def test_kimi_linear() -> None:
    """kimi_gdn_linear_attn.py:150-252: q, k, v, beta and the decay's low-rank gate in one, its own gate in two."""
    graph = derived(small.KIMI_LINEAR)
    assert unfold(graph["stack"]) == ["kda_dense", "kda_moe", "mla_moe", "kda_moe"]
    kda = weights(kind(graph, "kda_moe"))
    assert kda["in_proj"] == (3 * 64 + 16 + 4, 64)
    assert kda["decay_up"] == (64, 16)
    assert (kda["gate_down"], kda["gate_up_rank"]) == ((16, 64), (64, 16))
    assert "rope" not in roles(kind(graph, "mla_moe"))


def test_deepseek_v4() -> None:
    """deepseek_v4/attention.py:206-287, compressor.py:139-180, 235-260."""
    graph = derived(small.DEEPSEEK_V4)
    assert unfold(graph["stack"]) == ["window_moe", "csa4_moe", "hca128_moe", "csa4_moe"]
    csa = weights(kind(graph, "csa4_moe"))
    assert csa["qkv_a"] == (24 + 32, 64)
    assert csa["out_a"] == (2 * 10, 8 * 32 // 2)
    assert csa["compress"] == (2 * 2 * 32, 64)
    assert csa["index_k"] == (2 * 2 * 128, 64)
    assert weights(kind(graph, "hca128_moe"))["compress"] == (2 * 32, 64)
    assert csa["hyper_mix"] == ((2 + 4) * 4, 4 * 64)
    states = {c["id"]: (c["state_bytes"], c.get("window"), c.get("block_size")) for c in graph["caches"]}
    assert states["state_4"] == (2 * 2 * 32 * 4, 8, 4)
    assert states["state_128"] == (2 * 32 * 4, 128, 8)
    assert states["index"] == (132, None, 256)
    assert next(c for c in graph["caches"] if c["id"] == "draft_window")["draft"] is True


def test_minimax_m3() -> None:
    """minimax_m3/nvidia/model.py:425-450: q, k, v, index q a kv head and one index key in one projection."""
    graph = derived(small.MINIMAX_M3)
    assert unfold(graph["stack"]) == ["full_dense", "sparse_moe", "sparse_moe", "sparse_moe"]
    sparse = kind(graph, "sparse_moe")
    assert weights(sparse)["qkv"] == ((8 + 4) * 16 + 3 * 16, 64)
    assert attention(sparse)["index_topk"] == 4 * 8
    assert weights(kind(graph, "full_dense"))["gate_up"] == (224, 64)
    assert all(c["block_size"] == 128 for c in graph["caches"])


def test_eagle3_reads_embedding_and_state_side_by_side() -> None:
    """llama_eagle3.py:85-98, 190-215; default taps interfaces.py:1703-1723."""
    config = small.of("LlamaForCausalLMEagle3", num_hidden_layers=1, draft_vocab_size=500)
    graph = derived(config, target_layers=32)
    assert weights(kind(graph, "eagle3_first_dense"))["qkv"] == (96, 128)
    assert graph["speculator"]["hidden_taps"] == [2, 16, 29]
    assert graph["speculator"]["draft_vocab_size"] == 500
    assert weights(graph["head"])["lm_head"] == (500, 64)


def test_dspark_states_block_rank_and_taps() -> None:
    config = small.of(
        "Qwen3DSparkModel", head_dim=16, block_size=7, markov_rank=32, target_layer_ids=[1, 5, 9], num_hidden_layers=2
    )
    speculator = derived(config)["speculator"]
    assert speculator["method"] == "dspark"
    assert (speculator["block"], speculator["markov_rank"], speculator["hidden_taps"]) == (7, 32, [1, 5, 9])
    assert speculator["stack"] == {"pattern": ["full_dense"], "repeat": 2}


def test_a_nested_text_config_is_a_decoder_of_a_multimodal_model() -> None:
    nested = {"architectures": ["Qwen3VLForConditionalGeneration"], "text_config": small.QWEN3}
    graph = derived(nested)
    assert graph["modality"] == "text_decoder_of_multimodal"
    assert graph["layer_kinds"] == derived(small.QWEN3)["layer_kinds"]
