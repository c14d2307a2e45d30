"""The models of the embedded catalog: a name, and the checkpoint whose config it is derived from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One catalog model.

    `quantization` stands in for the quantization config of a quantized checkpoint of the same architecture whose own
    config is not at hand; `quantization_source` says where its content comes from. `plain` leaves out a
    hf_quant_config.json beside the config, for the checkpoint it was made from. `target_layers`: of the model a draft
    checkpoint drafts for.

    An empty `quantization` stands for none: the 16-bit checkpoint a quantized one was made from. Releases that keep an
    architecture share a config: Qwen3.6-27B and Qwen3.8-27B are Qwen3.5-27B's, Qwen3.6-35B-A3B is Qwen3.5-35B-A3B's.
    """

    name: str
    checkpoint: str
    quantization: Mapping[str, Any] | None = None
    quantization_source: str = ""
    plain: bool = False
    target_layers: int | None = None


_FP8_CACHE = {"kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}}
_MODELOPT_FP8 = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"], **_FP8_CACHE}
_MODELOPT_NVFP4 = {**_MODELOPT_FP8, "quant_algo": "NVFP4", "group_size": 16}

_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True}
_AWQ_SOURCE = "the publisher's AWQ export: 4 bits, groups of 128, every linear but lm_head"
_FP8_DYNAMIC = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "dynamic": False},
            "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True},
        }
    },
    "ignore": ["lm_head"],
}
_FP8_BLOCK = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]}
_FP8_BLOCK_SOURCE = "Qwen's FP8 exports: every linear but lm_head, tiles of 128x128, as Qwen/Qwen3-32B-FP8 has it"
_FP8_HYBRID = {**_FP8_BLOCK, "modules_to_not_convert": ["lm_head", "mtp.fc", "re:.*linear_attn\\.in_proj_[ab]$"]}
_FP8_HYBRID_SOURCE = "Qwen's FP8 exports of hybrids: besides lm_head, the small a and b projections stay at 16 bits"
_PLAIN: dict[str, Any] = {}
_FP8_DYNAMIC_SOURCE = "llm-compressor's FP8_DYNAMIC scheme, as RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic uses it"

ENTRIES: tuple[Entry, ...] = (
    Entry("llama-3.1-8b-instruct", "meta-llama/Meta-Llama-3.1-8B"),
    Entry(
        "llama-3.1-8b-instruct-fp8",
        "meta-llama/Meta-Llama-3.1-8B",
        _MODELOPT_FP8,
        "as hf_quant_config.json of nvidia/Llama-3.1-70B-Instruct-FP8 has it for the same architecture",
    ),
    Entry("llama-3.1-70b-instruct", "meta-llama/Meta-Llama-3.1-70B"),
    Entry("llama-3.1-70b-instruct-fp8", "nvidia/Llama-3.1-70B-Instruct-FP8"),
    Entry(
        "llama-3.1-70b-instruct-nvfp4",
        "meta-llama/Meta-Llama-3.1-70B",
        _MODELOPT_NVFP4,
        "modelopt's NVFP4 export as nvidia/Qwen3-235B-A22B-NVFP4 has it: every linear but lm_head, fp8 cache",
    ),
    Entry("llama-3.1-405b-instruct", "meta-llama/Meta-Llama-3.1-405B"),
    Entry("qwen3-0.6b", "Qwen/Qwen3-0.6B"),
    Entry("qwen3-1.7b", "Qwen/Qwen3-1.7B"),
    Entry("qwen3-8b", "Qwen/Qwen3-8B"),
    Entry("qwen3-32b", "Qwen/Qwen3-32B"),
    Entry("qwen3-32b-fp8", "Qwen/Qwen3-32B-FP8"),
    Entry("qwen3-32b-fp8-static", "Qwen/Qwen3-32B-FP8-Static-PerTensor"),
    Entry("qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B"),
    Entry("qwen3-30b-a3b-fp8", "Qwen/Qwen3-30B-A3B-FP8"),
    Entry("qwen3-235b-a22b", "Qwen/Qwen3-235B-A22B"),
    Entry("qwen3-235b-a22b-fp8", "Qwen/Qwen3-235B-A22B-FP8"),
    Entry("qwen3-235b-a22b-nvfp4", "nvidia/Qwen3-235B-A22B-NVFP4"),
    Entry("qwen3-coder-480b-a35b-instruct", "Qwen/Qwen3-Coder-480B-A35B-Instruct"),
    Entry("qwen3-vl-2b-instruct", "Qwen/Qwen3-VL-2B-Instruct"),
    Entry("qwen3-vl-4b-instruct", "Qwen/Qwen3-VL-4B-Instruct"),
    Entry("qwen3-vl-8b-instruct", "Qwen/Qwen3-VL-8B-Instruct"),
    Entry("qwen3-vl-32b-instruct", "Qwen/Qwen3-VL-32B-Instruct"),
    Entry("qwen3-vl-30b-a3b-instruct", "Qwen/Qwen3-VL-30B-A3B-Instruct"),
    Entry("qwen3-vl-235b-a22b-instruct", "Qwen/Qwen3-VL-235B-A22B-Instruct"),
    Entry("mixtral-8x7b-instruct", "mistralai/Mixtral-8x7B-v0.1"),
    Entry("mixtral-8x22b-instruct", "mistralai/Mixtral-8x22B-v0.1"),
    Entry("minimax-m2.5", "MiniMaxAI/MiniMax-M2.5"),
    Entry("minimax-m2.5-nvfp4", "nvidia/MiniMax-M2.5-NVFP4"),
    Entry("minimax-m2.7", "MiniMaxAI/MiniMax-M2.7"),
    Entry("minimax-m2.7-nvfp4", "nvidia/MiniMax-M2.7-NVFP4"),
    Entry("gpt-oss-20b", "openai/gpt-oss-20b"),
    Entry("gpt-oss-120b", "openai/gpt-oss-120b"),
    Entry("deepseek-v3", "deepseek-ai/DeepSeek-V3"),
    Entry("deepseek-r1", "deepseek-ai/DeepSeek-R1"),
    Entry("deepseek-v3.1-nvfp4", "nvidia/DeepSeek-V3.1-NVFP4"),
    Entry("kimi-k2-instruct", "moonshotai/Kimi-K2-Instruct"),
    Entry("kimi-k2.5", "moonshotai/Kimi-K2.5"),
    Entry("kimi-k2.5-nvfp4", "nvidia/Kimi-K2.5-NVFP4"),
    Entry("kimi-k2.6-nvfp4", "nvidia/Kimi-K2.6-NVFP4"),
    Entry("kimi-k2.7-code-nvfp4", "nvidia/Kimi-K2.7-Code-NVFP4"),
    Entry("deepseek-v3.2", "deepseek-ai/DeepSeek-V3.2"),
    Entry("deepseek-v3.2-nvfp4", "nvidia/DeepSeek-V3.2-NVFP4"),
    Entry("glm-5", "zai-org/GLM-5"),
    Entry("glm-5-fp8", "zai-org/GLM-5-FP8"),
    Entry("glm-5-nvfp4", "nvidia/GLM-5-NVFP4"),
    Entry("glm-5.1-fp8", "zai-org/GLM-5.1-FP8"),
    Entry("glm-5.2", "zai-org/GLM-5.2"),
    Entry("glm-5.2-fp8", "zai-org/GLM-5.2-FP8"),
    Entry("glm-5.2-nvfp4", "nvidia/GLM-5.2-NVFP4"),
    Entry("glm-5.3", "zai-org/GLM-5.3"),
    Entry("glm-5.3-fp8", "zai-org/GLM-5.3-FP8"),
    Entry("glm-5.3-nvfp4", "nvidia/GLM-5.3-NVFP4"),
    Entry("qwen3.5-27b", "Qwen/Qwen3.5-27B"),
    Entry("qwen3.5-35b-a3b", "Qwen/Qwen3.5-35B-A3B"),
    Entry("qwen3.5-122b-a10b", "Qwen/Qwen3.5-122B-A10B"),
    Entry("qwen3.5-122b-a10b-nvfp4", "nvidia/Qwen3.5-122B-A10B-NVFP4"),
    Entry("qwen3.5-397b-a17b", "Qwen/Qwen3.5-397B-A17B"),
    Entry("qwen3.5-397b-a17b-nvfp4", "nvidia/Qwen3.5-397B-A17B-NVFP4"),
    Entry("qwen3.6-27b-nvfp4", "nvidia/Qwen3.6-27B-NVFP4"),
    Entry("qwen3.6-35b-a3b-nvfp4", "nvidia/Qwen3.6-35B-A3B-NVFP4"),
    Entry("qwen3.8-2.4t-a95b", "Qwen/Qwen3.8-2.4T-A95B"),
    Entry("qwen3.8-2.4t-a95b-fp8", "Qwen/Qwen3.8-2.4T-A95B-FP8"),
    Entry("nemotron-h-56b-base", "nvidia/Nemotron-H-56B-Base-8K"),
    Entry("nemotron-3-nano-30b-a3b", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"),
    Entry("nemotron-3-nano-30b-a3b-nvfp4", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4"),
    Entry("nemotron-3-ultra-550b-a55b", "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16"),
    Entry("nemotron-3.5-lightning-30b-a3b-nvfp4", "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4"),
    Entry("gemma-4-26b-a4b", "google/gemma-4-26B-A4B"),
    Entry("gemma-4-26b-a4b-nvfp4", "nvidia/Gemma-4-26B-A4B-NVFP4"),
    Entry("gemma-4-31b-it-nvfp4", "nvidia/Gemma-4-31B-IT-NVFP4"),
    Entry("llama-4-scout-17b-16e-instruct", "meta-llama/Llama-4-Scout-17B-16E-Instruct"),
    Entry("llama-4-maverick-17b-128e-instruct", "meta-llama/Llama-4-Maverick-17B-128E-Instruct"),
    Entry("minimax-m3", "MiniMaxAI/MiniMax-M3"),
    Entry("minimax-m3-nvfp4", "nvidia/MiniMax-M3-NVFP4"),
    Entry("kimi-k3", "moonshotai/Kimi-K3"),
    Entry("deepseek-v4-flash", "deepseek-ai/DeepSeek-V4-Flash"),
    Entry("deepseek-v4-flash-nvfp4", "nvidia/DeepSeek-V4-Flash-NVFP4"),
    Entry("deepseek-v4-pro", "deepseek-ai/DeepSeek-V4-Pro"),
    Entry("deepseek-v4-pro-nvfp4", "nvidia/DeepSeek-V4-Pro-NVFP4"),
    Entry("deepseek-v4.1-flash", "deepseek-ai/DeepSeek-V4.1-Flash"),
    Entry("glm-5.3-flash", "zai-org/GLM-5.3-Flash"),
    Entry("glm-5.3-flash-nvfp4", "nvidia/GLM-5.3-Flash-NVFP4"),
    Entry("mimo-7b-base", "XiaomiMiMo/MiMo-7B-Base"),
    Entry("mimo-v2-flash", "XiaomiMiMo/MiMo-V2-Flash"),
    Entry("llama-3.3-nemotron-super-49b", "nvidia/Llama-3_3-Nemotron-Super-49B-v1"),
    Entry("nemotron-3-super-120b-a12b", "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", plain=True),
    Entry("muse-glimmer-30b", "meta-models/Muse-Glimmer-30B"),
    Entry("llama-2-7b-chat", "meta-llama/Llama-2-7b-chat-hf"),
    Entry("llama-2-13b-chat", "meta-llama/Llama-2-13b-chat-hf"),
    Entry("llama-2-70b-chat", "meta-llama/Llama-2-70b-chat-hf"),
    Entry("llama-3-8b-instruct", "meta-llama/Meta-Llama-3-8B-Instruct"),
    Entry("llama-3-70b-instruct", "meta-llama/Meta-Llama-3-70B-Instruct"),
    Entry("llama-3.2-1b-instruct", "meta-llama/Llama-3.2-1B-Instruct"),
    Entry("llama-3.2-3b-instruct", "meta-llama/Llama-3.2-3B-Instruct"),
    Entry("llama-3.3-70b-instruct", "meta-llama/Llama-3.3-70B-Instruct"),
    Entry("llama-3.3-70b-instruct-fp8-dynamic", "meta-llama/Llama-3.3-70B-Instruct", _FP8_DYNAMIC, _FP8_DYNAMIC_SOURCE),
    Entry("yi-34b-chat", "01-ai/Yi-34B-Chat"),
    Entry("mistral-7b-instruct-v0.3", "mistralai/Mistral-7B-Instruct-v0.3"),
    Entry("mistral-large-instruct-2407", "mistralai/Mistral-Large-Instruct-2407"),
    Entry("mistral-small-24b-instruct-2501", "mistralai/Mistral-Small-24B-Instruct-2501"),
    Entry("phi-4", "microsoft/phi-4"),
    Entry("qwen2.5-0.5b-instruct", "Qwen/Qwen2.5-0.5B-Instruct"),
    Entry("qwen2.5-1.5b-instruct", "Qwen/Qwen2.5-1.5B-Instruct"),
    Entry("qwen2.5-3b-instruct", "Qwen/Qwen2.5-3B-Instruct"),
    Entry("qwen2.5-7b-instruct", "Qwen/Qwen2.5-7B-Instruct"),
    Entry("qwen2.5-7b-instruct-awq", "Qwen/Qwen2.5-7B-Instruct", _AWQ, _AWQ_SOURCE),
    Entry("qwen2.5-14b-instruct", "Qwen/Qwen2.5-14B-Instruct"),
    Entry("qwen2.5-32b-instruct", "Qwen/Qwen2.5-32B-Instruct"),
    Entry("qwen2.5-72b-instruct", "Qwen/Qwen2.5-72B-Instruct"),
    Entry("qwen3-4b", "Qwen/Qwen3-4B"),
    Entry("qwen3-14b", "Qwen/Qwen3-14B"),
    Entry("qwen3-14b-awq", "Qwen/Qwen3-14B", _AWQ, _AWQ_SOURCE),
    Entry("qwen3-next-80b-a3b-instruct", "Qwen/Qwen3-Next-80B-A3B-Instruct"),
    Entry("gemma-2-9b-it", "google/gemma-2-9b-it"),
    Entry("gemma-2-27b-it", "google/gemma-2-27b-it"),
    Entry("gemma-3-4b-it", "google/gemma-3-4b-it"),
    Entry("gemma-3-12b-it", "google/gemma-3-12b-it"),
    Entry("gemma-3-27b-it", "google/gemma-3-27b-it"),
    Entry("deepseek-v2-lite-chat", "deepseek-ai/DeepSeek-V2-Lite-Chat"),
    Entry("deepseek-v2-chat", "deepseek-ai/DeepSeek-V2-Chat"),
    Entry("kimi-linear-48b-a3b-instruct", "moonshotai/Kimi-Linear-48B-A3B-Instruct"),
    Entry("glm-4.5-air", "zai-org/GLM-4.5-Air"),
    Entry("glm-4.6", "zai-org/GLM-4.6"),
    Entry("eagle-llama-3.1-8b-instruct", "yuhuili/EAGLE-LLaMA3.1-Instruct-8B", target_layers=32),
    Entry("qwen3-4b-instruct-2507", "Qwen/Qwen3-4B-Instruct-2507"),
    Entry("qwen3-4b-instruct-2507-fp8", "Qwen/Qwen3-4B-Instruct-2507", _FP8_BLOCK, _FP8_BLOCK_SOURCE),
    Entry("qwen3-4b-fp8", "Qwen/Qwen3-4B", _FP8_BLOCK, _FP8_BLOCK_SOURCE),
    Entry("qwen3-8b-fp8", "Qwen/Qwen3-8B", _FP8_BLOCK, _FP8_BLOCK_SOURCE),
    Entry("qwen3-14b-fp8", "Qwen/Qwen3-14B", _FP8_BLOCK, _FP8_BLOCK_SOURCE),
    Entry("qwen3-vl-4b-instruct-fp8", "Qwen/Qwen3-VL-4B-Instruct", _FP8_BLOCK, _FP8_BLOCK_SOURCE),
    Entry("qwen3-vl-30b-a3b-instruct-fp8", "Qwen/Qwen3-VL-30B-A3B-Instruct", _FP8_BLOCK, _FP8_BLOCK_SOURCE),
    Entry("qwen3-coder-30b-a3b-instruct", "Qwen/Qwen3-Coder-30B-A3B-Instruct"),
    Entry("qwen3.6-27b", "Qwen/Qwen3.5-27B"),
    Entry("qwen3.6-35b-a3b", "Qwen/Qwen3.5-35B-A3B"),
    Entry("qwen3.8-27b", "Qwen/Qwen3.5-27B"),
    Entry("qwen3.8-27b-fp8", "Qwen/Qwen3.5-27B", _FP8_HYBRID, _FP8_HYBRID_SOURCE),
    Entry("mistral-small-3.2-24b-instruct-2506", "mistralai/Mistral-Small-3.2-24B-Instruct-2506"),
    Entry("gemma-4-e2b-it", "google/gemma-4-E2B-it"),
    Entry("gemma-4-e4b-it", "google/gemma-4-E4B-it"),
    Entry("gemma-4-31b-it", "nvidia/Gemma-4-31B-IT-NVFP4", _PLAIN, plain=True),
    Entry("gemma-4-31b-it-fp8-dynamic", "nvidia/Gemma-4-31B-IT-NVFP4", _FP8_DYNAMIC, _FP8_DYNAMIC_SOURCE, plain=True),
    Entry("eagle3-llama-3.1-8b-instruct", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", target_layers=32),
)
