"""Speculative decoding of vLLM 0.31.0: methods, what each allows."""

from __future__ import annotations

# vllm/config/speculative.py:38-66
MTP_METHODS = (
    "deepseek_mtp",
    "dots3_note_mtp",
    "mimo_mtp",
    "mimo_v2_mtp",
    "glm4_moe_mtp",
    "glm4_moe_lite_mtp",
    "glm_ocr_mtp",
    "ernie_mtp",
    "nemotron_h_mtp",
    "exaone_moe_mtp",
    "exaone4_5_mtp",
    "qwen3_next_mtp",
    "qwen4_exp_mtp",
    "qwen3_5_mtp",
    "longcat_flash_mtp",
    "bailing_hybrid_v3_mtp",
    "minimax_m3_mtp",
    "bailing_hybrid_mtp",
    "mtp",
    "kimi_k3_mtp",
    "pangu_ultra_moe_mtp",
    "step3p5_mtp",
    "hy_v3_mtp",
    "hy_v4_mtp",
    "gemma4_mtp",
    "inkling_mtp",
    "glm5_next_mtp",
)
# vllm/config/speculative.py:70-84
EAGLE_METHODS = ("eagle", "eagle3", "extract_hidden_states")
PARALLEL_BLOCK_METHODS = ("dflash", "dspark")
METHODS = (
    *MTP_METHODS,
    *EAGLE_METHODS,
    *PARALLEL_BLOCK_METHODS,
    "draft_model",
    "ngram",
    "ngram_gpu",
    "suffix",
    "medusa",
    "mlp_speculator",
    "custom_class",
)

# Methods asynchronous scheduling works with; any other turns it off, or is an error where it was asked for.
# vllm/config/vllm.py:1555-1566, 1587-1601
ASYNC_METHODS = (*MTP_METHODS, *EAGLE_METHODS, *PARALLEL_BLOCK_METHODS, "draft_model", "ngram_gpu")

# Methods only the older runner serves. vllm/config/vllm.py:3073-3083
V1_METHODS = ("ngram", "ngram_gpu", "suffix", "medusa", "mlp_speculator", "custom_class")
# Methods only the default runner serves. vllm/config/vllm.py:3126-3129
V2_METHODS = ("dspark",)
# Drafts found without a model: on the host, or by one scan over the tokens.
# vllm/v1/spec_decode/ngram_proposer.py:1-295, ngram_proposer_gpu.py:221-235, suffix_decoding.py:1-103
HOST_METHODS = ("ngram", "ngram_gpu", "suffix")
# Served by neither: the V1 runner does not know it and the model is not registered.
# vllm/v1/worker/gpu_model_runner.py:604-676, vllm/model_executor/models/registry.py:705-707
UNSERVED_METHODS = ("mlp_speculator",)

# Prefill context parallelism drafts with these only. vllm/v1/worker/gpu/pcp_manager.py:146-163
PCP_METHODS = (*MTP_METHODS, "dspark")

# Target layers an EAGLE3 drafter reads where its checkpoint names none: an early, a middle and a late one.
# vllm/model_executor/models/interfaces.py:1703-1730
DEFAULT_EAGLE3_TAPS = 3


def is_mtp(method: str) -> bool:
    """Whether the engine rewrites `method` to `mtp` (vllm/config/speculative.py:1135-1139)."""
    return method in MTP_METHODS
