"""Architectures of well-known checkpoints as their publishers describe them: models whose config file is not at hand.

Each holds the keys of its config.json that decide a shape, and no more. A graph derived from one says `format: stated`
in `derived_from`, and its SHA-256 is that of these keys. The published parameter counts test them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

Stated = dict[str, Any]


def _dense(
    architecture: str,
    hidden: int,
    inner: int,
    layers: int,
    heads: tuple[int, int],
    vocab: int,
    *,
    tied: bool = False,
    **more: Any,
) -> Stated:
    return {
        "architectures": [architecture],
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "vocab_size": vocab,
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        **more,
    }


_llama = partial(_dense, "LlamaForCausalLM")
_mistral = partial(_dense, "MistralForCausalLM")
_qwen2 = partial(_dense, "Qwen2ForCausalLM")
_qwen3 = partial(_dense, "Qwen3ForCausalLM", head_dim=128)
_gemma2 = partial(
    _dense,
    "Gemma2ForCausalLM",
    tied=True,
    sliding_window=4096,
    max_position_embeddings=8192,
    final_logit_softcapping=30.0,
)


def _gemma3(hidden: int, inner: int, layers: int, heads: tuple[int, int], d_h: int) -> Stated:
    text = _dense("Gemma3ForCausalLM", hidden, inner, layers, heads, 262208, tied=True)
    nested = {
        **text,
        "head_dim": d_h,
        "sliding_window": 1024,
        "sliding_window_pattern": 6,
        "max_position_embeddings": 131072,
    }
    return {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": nested}


_DEEPSEEK_V2_LITE: Stated = {
    **_dense("DeepseekV2ForCausalLM", 2048, 10944, 27, (16, 16), 102400),
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1408,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "max_position_embeddings": 163840,
}

_DEEPSEEK_V2: Stated = {
    **_DEEPSEEK_V2_LITE,
    **_dense("DeepseekV2ForCausalLM", 5120, 12288, 60, (128, 128), 102400),
    "q_lora_rank": 1536,
    "n_routed_experts": 160,
    "moe_intermediate_size": 1536,
}

_QWEN3_NEXT: Stated = {
    **_dense("Qwen3NextForCausalLM", 2048, 5120, 48, (16, 2), 151936),
    "head_dim": 256,
    "max_position_embeddings": 262144,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_nextn_predict_layers": 1,
}

_KIMI_LINEAR: Stated = {
    **_dense("KimiLinearForCausalLM", 2304, 9216, 27, (32, 32), 163840),
    "model_max_length": 1048576,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_experts": 256,
    "num_experts_per_token": 8,
    "num_shared_experts": 1,
    "moe_intermediate_size": 1024,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "linear_attn_config": {
        "num_heads": 32,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
        "kda_layers": [i for i in range(1, 28) if i % 4 and i != 27],
    },
}

_GLM_4: Stated = {
    "head_dim": 128,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "num_nextn_predict_layers": 1,
}

_GLM_45_AIR: Stated = {
    **_dense("Glm4MoeForCausalLM", 4096, 10944, 46, (96, 8), 151552),
    **_GLM_4,
    "max_position_embeddings": 131072,
    "n_routed_experts": 128,
    "moe_intermediate_size": 1408,
    "first_k_dense_replace": 1,
}

_GLM_46: Stated = {
    **_dense("Glm4MoeForCausalLM", 5120, 12288, 92, (96, 8), 151552),
    **_GLM_4,
    "max_position_embeddings": 202752,
    "use_qk_norm": True,
    "n_routed_experts": 160,
    "moe_intermediate_size": 1536,
    "first_k_dense_replace": 3,
}


def _mistral_small_32() -> Stated:
    text = {**_dense("MistralForCausalLM", 5120, 32768, 40, (32, 8), 131072), "head_dim": 128}
    vision = {
        "model_type": "pixtral",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "patch_size": 14,
    }
    text["max_position_embeddings"] = 131072
    return {
        "architectures": ["Mistral3ForConditionalGeneration"],
        "tie_word_embeddings": False,
        "text_config": text,
        "vision_config": vision,
    }


def _gemma4_small(hidden: int, inner: int, layers: int, n_kv: int, shared: int, every: int, wide: bool) -> Stated:
    """Gemma 4 E2B and E4B: full attention every `every` layers, the last `shared` layers read earlier caches."""
    text = {
        **_dense("Gemma4ForCausalLM", hidden, inner, layers, (8, n_kv), 262144, tied=True),
        "head_dim": 256,
        "global_head_dim": 512,
        "hidden_size_per_layer_input": 256,
        "vocab_size_per_layer_input": 262144,
        "num_kv_shared_layers": shared,
        "use_double_wide_mlp": wide,
        "sliding_window": 512,
        "layer_types": ["full_attention" if (i + 1) % every == 0 else "sliding_attention" for i in range(layers)],
        "final_logit_softcapping": 30.0,
        "max_position_embeddings": 131072,
    }
    vision = {
        "model_type": "gemma4_vision",
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 16,
        "patch_size": 16,
        "position_embedding_size": 10240,
    }
    return {"architectures": ["Gemma4ForConditionalGeneration"], "text_config": text, "vision_config": vision}


_QWEN3_CODER_30B: Stated = {
    **_dense("Qwen3MoeForCausalLM", 2048, 5472, 48, (32, 4), 151936),
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "max_position_embeddings": 262144,
}

#: By checkpoint.
STATED: dict[str, Stated] = {
    "meta-llama/Meta-Llama-3-8B-Instruct": _llama(4096, 14336, 32, (32, 8), 128256, max_position_embeddings=8192),
    "meta-llama/Meta-Llama-3-70B-Instruct": _llama(8192, 28672, 80, (64, 8), 128256, max_position_embeddings=8192),
    "meta-llama/Llama-3.2-1B-Instruct": _llama(
        2048, 8192, 16, (32, 8), 128256, tied=True, head_dim=64, max_position_embeddings=131072
    ),
    "meta-llama/Llama-3.2-3B-Instruct": _llama(
        3072, 8192, 28, (24, 8), 128256, tied=True, head_dim=128, max_position_embeddings=131072
    ),
    "meta-llama/Llama-3.3-70B-Instruct": _llama(8192, 28672, 80, (64, 8), 128256, max_position_embeddings=131072),
    "meta-llama/Llama-2-7b-chat-hf": _llama(4096, 11008, 32, (32, 32), 32000, max_position_embeddings=4096),
    "meta-llama/Llama-2-13b-chat-hf": _llama(5120, 13824, 40, (40, 40), 32000, max_position_embeddings=4096),
    "meta-llama/Llama-2-70b-chat-hf": _llama(8192, 28672, 80, (64, 8), 32000, max_position_embeddings=4096),
    "01-ai/Yi-34B-Chat": _llama(7168, 20480, 60, (56, 8), 64000, max_position_embeddings=4096),
    "mistralai/Mistral-7B-Instruct-v0.3": _mistral(4096, 14336, 32, (32, 8), 32768, max_position_embeddings=32768),
    "mistralai/Mistral-Large-Instruct-2407": _mistral(
        12288, 28672, 88, (96, 8), 32768, head_dim=128, max_position_embeddings=131072
    ),
    "mistralai/Mistral-Small-24B-Instruct-2501": _mistral(
        5120, 32768, 40, (32, 8), 131072, head_dim=128, max_position_embeddings=32768
    ),
    "microsoft/phi-4": _dense("Phi3ForCausalLM", 5120, 17920, 40, (40, 10), 100352, max_position_embeddings=16384),
    "Qwen/Qwen2.5-0.5B-Instruct": _qwen2(896, 4864, 24, (14, 2), 151936, tied=True, max_position_embeddings=32768),
    "Qwen/Qwen2.5-1.5B-Instruct": _qwen2(1536, 8960, 28, (12, 2), 151936, tied=True, max_position_embeddings=32768),
    "Qwen/Qwen2.5-3B-Instruct": _qwen2(2048, 11008, 36, (16, 2), 151936, tied=True, max_position_embeddings=32768),
    "Qwen/Qwen2.5-7B-Instruct": _qwen2(3584, 18944, 28, (28, 4), 152064, max_position_embeddings=32768),
    "Qwen/Qwen2.5-14B-Instruct": _qwen2(5120, 13824, 48, (40, 8), 152064, max_position_embeddings=32768),
    "Qwen/Qwen2.5-32B-Instruct": _qwen2(5120, 27648, 64, (40, 8), 152064, max_position_embeddings=32768),
    "Qwen/Qwen2.5-72B-Instruct": _qwen2(8192, 29568, 80, (64, 8), 152064, max_position_embeddings=32768),
    "Qwen/Qwen3-4B": _qwen3(2560, 9728, 36, (32, 8), 151936, tied=True, max_position_embeddings=40960),
    "Qwen/Qwen3-4B-Instruct-2507": _qwen3(2560, 9728, 36, (32, 8), 151936, tied=True, max_position_embeddings=262144),
    "Qwen/Qwen3-14B": _qwen3(5120, 17408, 40, (40, 8), 151936, max_position_embeddings=40960),
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": _QWEN3_CODER_30B,
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506": _mistral_small_32(),
    "google/gemma-4-E2B-it": _gemma4_small(1536, 6144, 35, 1, 20, 5, True),
    "google/gemma-4-E4B-it": _gemma4_small(2560, 10240, 42, 2, 18, 6, False),
    "Qwen/Qwen3-Next-80B-A3B-Instruct": _QWEN3_NEXT,
    "google/gemma-2-9b-it": _gemma2(3584, 14336, 42, (16, 8), 256000, head_dim=256),
    "google/gemma-2-27b-it": _gemma2(4608, 36864, 46, (32, 16), 256000, head_dim=128),
    "google/gemma-3-4b-it": _gemma3(2560, 10240, 34, (8, 4), 256),
    "google/gemma-3-12b-it": _gemma3(3840, 15360, 48, (16, 8), 256),
    "google/gemma-3-27b-it": _gemma3(5376, 21504, 62, (32, 16), 128),
    "deepseek-ai/DeepSeek-V2-Lite-Chat": _DEEPSEEK_V2_LITE,
    "deepseek-ai/DeepSeek-V2-Chat": _DEEPSEEK_V2,
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": _KIMI_LINEAR,
    "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B": _dense(
        "LlamaForCausalLMEagle3", 4096, 14336, 1, (32, 8), 128256, draft_vocab_size=32000
    ),
    "yuhuili/EAGLE-LLaMA3.1-Instruct-8B": _dense("EagleLlamaForCausalLM", 4096, 14336, 1, (32, 8), 128256),
    "zai-org/GLM-4.5-Air": _GLM_45_AIR,
    "zai-org/GLM-4.6": _GLM_46,
}
