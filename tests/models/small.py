"""Small configs, one a family, with every key their family reads; sizes are tiny and unlike each other."""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]

COMMON: Config = {
    "hidden_size": 64,
    "vocab_size": 1000,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}

LATENT: Config = {
    **COMMON,
    "num_key_value_heads": 8,
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "n_routed_experts": 10,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 40,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
}


def of(architecture: str, base: Config = COMMON, **more: Any) -> Config:
    """`base` with `more`, for one architecture; None removes a key."""
    merged = {**base, "architectures": [architecture], **more}
    return {key: value for key, value in merged.items() if value is not None}


LLAMA = of("LlamaForCausalLM")
QWEN3 = of("Qwen3ForCausalLM", head_dim=16)
MIXTRAL = of("MixtralForCausalLM", num_local_experts=6, num_experts_per_tok=2)
QWEN3_MOE = of("Qwen3MoeForCausalLM", head_dim=16, num_experts=12, num_experts_per_tok=4, moe_intermediate_size=40)
MINIMAX_M2 = of("MiniMaxM2ForCausalLM", head_dim=16, num_local_experts=6, num_experts_per_tok=2)
GPT_OSS = of("GptOssForCausalLM", head_dim=16, sliding_window=16, num_local_experts=6, num_experts_per_tok=2)
DEEPSEEK = of("DeepseekV3ForCausalLM", LATENT, num_nextn_predict_layers=1)
DSA = of("GlmMoeDsaForCausalLM", LATENT, index_n_heads=4, index_head_dim=8, index_topk=32, num_nextn_predict_layers=1)
QWEN3_NEXT = of(
    "Qwen3NextForCausalLM",
    head_dim=16,
    full_attention_interval=2,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=16,
    linear_value_head_dim=8,
    linear_conv_kernel_dim=4,
    num_experts=12,
    num_experts_per_tok=4,
    moe_intermediate_size=40,
    shared_expert_intermediate_size=56,
    num_nextn_predict_layers=1,
)
NEMOTRON = of(
    "NemotronHForCausalLM",
    head_dim=16,
    hybrid_override_pattern="ME*-",
    mamba_num_heads=4,
    mamba_head_dim=16,
    n_groups=2,
    ssm_state_size=8,
    conv_kernel=4,
    n_routed_experts=6,
    num_experts_per_tok=2,
    moe_intermediate_size=40,
    moe_latent_size=20,
    n_shared_experts=1,
    moe_shared_expert_intermediate_size=48,
    num_nextn_predict_layers=1,
)
LLAMA_4 = of(
    "Llama4ForCausalLM",
    head_dim=8,
    attention_chunk_size=32,
    interleave_moe_layer_step=2,
    intermediate_size_mlp=128,
    num_local_experts=6,
    num_experts_per_tok=1,
)
GEMMA_3 = of("Gemma3ForCausalLM", head_dim=16, sliding_window=16, sliding_window_pattern=2, tie_word_embeddings=True)
KIMI_LINEAR = of(
    "KimiLinearForCausalLM",
    LATENT,
    q_lora_rank=None,
    n_routed_experts=None,
    n_shared_experts=None,
    num_experts=10,
    num_experts_per_token=3,
    num_shared_experts=1,
    linear_attn_config={"num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4, "kda_layers": [1, 2, 4]},
)
DEEPSEEK_V4 = of(
    "DeepseekV4ForCausalLM",
    LATENT,
    model_type="deepseek_v4",
    head_dim=32,
    o_groups=2,
    o_lora_rank=10,
    compress_ratios=[0, 4, 128, 4],
    sliding_window=16,
    hc_mult=4,
    index_n_heads=4,
    index_head_dim=128,
    index_topk=32,
    num_nextn_predict_layers=1,
)
MINIMAX_M3 = of(
    "MiniMaxM3SparseForCausalLM",
    head_dim=16,
    dense_intermediate_size=112,
    num_local_experts=6,
    num_experts_per_tok=2,
    n_shared_experts=1,
    moe_layer_freq=[0, 1, 1, 1],
    num_mtp_modules=1,
    sparse_attention_config={
        "sparse_attention_freq": [0, 1, 1, 1],
        "sparse_num_index_heads": 2,
        "sparse_index_dim": 16,
        "sparse_topk_blocks": 4,
        "sparse_block_size": 8,
    },
)
FAMILIES: dict[str, Config] = {
    "llama": LLAMA,
    "qwen3": QWEN3,
    "mixtral": MIXTRAL,
    "qwen3_moe": QWEN3_MOE,
    "minimax_m2": MINIMAX_M2,
    "gpt_oss": GPT_OSS,
    "deepseek": DEEPSEEK,
    "dsa": DSA,
    "qwen3_next": QWEN3_NEXT,
    "nemotron": NEMOTRON,
    "llama_4": LLAMA_4,
    "gemma_3": GEMMA_3,
    "kimi_linear": KIMI_LINEAR,
    "deepseek_v4": DEEPSEEK_V4,
    "minimax_m3": MINIMAX_M3,
}
