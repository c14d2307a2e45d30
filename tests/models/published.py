"""Published parameter counts of the catalog's models, as their publishers print them.

`figure` is quoted as printed, so that its rounding shows: "70.6B" stands for anything from 70.55 to 70.65 billion.
`speculator`: the figure counts the prediction module stored with the checkpoint. `outside` billions of parameters the
figure counts but a text decoder does not have (a vision tower), taken from the checkpoint's own vision config.
"""

from __future__ import annotations

from typing import NamedTuple

CARD = "model card on huggingface.co"
BADGE = "parameter badge on huggingface.co (sum over safetensors)"


class Published(NamedTuple):
    figure: str
    source: str
    speculator: bool = False
    outside: float = 0.0


LLAMA_8B = Published("8.03B", BADGE)
LLAMA_70B = Published("70.6B", BADGE)
QWEN3_32B = Published("32.8B", CARD)
QWEN3_235B = Published("235B", CARD)
QWEN3_30B = Published("30.5B", CARD)
KIMI_K2 = Published("1T", BADGE)
LLAMA_33 = Published("70.6B", BADGE)
QWEN3_4B = Published("4.0B", CARD)
QWEN3_14B = Published("14.8B", CARD)
QWEN25_7B = Published("7.61B", CARD)
GLM_53_FLASH = Published("321B", "parameter badge of the checkpoint on huggingface.co", speculator=True)
MINIMAX_M2 = Published("229B", BADGE)
DEEPSEEK_V3 = Published("671B", "DeepSeek-V3 technical report, arXiv 2412.19437, section 4.2")
DEEPSEEK_V32 = Published("685B", BADGE, speculator=True)
GLM_5 = Published("744B", "zai-org/GLM-5 model card")
GLM_5_MTP = Published("753B", "parameter badge of zai-org/GLM-5.2 on huggingface.co", speculator=True)
NEMOTRON_NANO = Published("31.6B", "NVIDIA Nemotron 3 Nano technical report")
QWEN35_397B = Published("397B", CARD)
QWEN35_122B = Published("122B", CARD)
QWEN35_35B = Published("35B", CARD)
QWEN35_27B = Published("27B", CARD)
QWEN38 = Published("2.4T", CARD)
GEMMA4_26B = Published("25.2B", CARD)
GEMMA4_31B = Published("30.7B", CARD)
V4_FLASH = Published("291B", "parameter badge of deepseek-ai/DeepSeek-V4-Flash on huggingface.co", speculator=True)
V4_PRO = Published("1.6T", "parameter badge of deepseek-ai/DeepSeek-V4-Pro on huggingface.co", speculator=True)
MINIMAX_M3 = Published("428B", "docs.nvidia.com/nemo/megatron-bridge, models/minimax/minimax-m3")

PUBLISHED: dict[str, Published] = {
    "llama-3.1-8b-instruct": LLAMA_8B,
    "llama-3.1-8b-instruct-fp8": LLAMA_8B,
    "llama-3.1-70b-instruct": LLAMA_70B,
    "llama-3.1-70b-instruct-fp8": LLAMA_70B,
    "llama-3.1-70b-instruct-nvfp4": LLAMA_70B,
    "llama-3.1-405b-instruct": Published("406B", BADGE),
    "qwen3-0.6b": Published("0.6B", CARD),
    "qwen3-1.7b": Published("1.7B", CARD),
    "qwen3-8b": Published("8.2B", CARD),
    "qwen3-32b": QWEN3_32B,
    "qwen3-32b-fp8": QWEN3_32B,
    "qwen3-32b-fp8-static": QWEN3_32B,
    "qwen3-30b-a3b": QWEN3_30B,
    "qwen3-30b-a3b-fp8": QWEN3_30B,
    "qwen3-235b-a22b": QWEN3_235B,
    "qwen3-235b-a22b-fp8": QWEN3_235B,
    "qwen3-235b-a22b-nvfp4": QWEN3_235B,
    "qwen3-coder-480b-a35b-instruct": Published("480B", CARD),
    "qwen3-vl-2b-instruct": Published("1.7B", "card of Qwen3-1.7B, its text decoder"),
    "qwen3-vl-4b-instruct": Published("4.0B", "card of Qwen3-4B, its text decoder"),
    "qwen3-vl-8b-instruct": Published("8.2B", "card of Qwen3-8B, its text decoder"),
    "qwen3-vl-32b-instruct": QWEN3_32B,
    "qwen3-vl-30b-a3b-instruct": QWEN3_30B,
    "qwen3-vl-235b-a22b-instruct": QWEN3_235B,
    "mixtral-8x7b-instruct": Published("46.7B", "mistral.ai/news/mixtral-of-experts"),
    "mixtral-8x22b-instruct": Published("141B", "mistral.ai/news/mixtral-8x22b"),
    "minimax-m2.5": MINIMAX_M2,
    "minimax-m2.5-nvfp4": MINIMAX_M2,
    "minimax-m2.7": MINIMAX_M2,
    "minimax-m2.7-nvfp4": MINIMAX_M2,
    "gpt-oss-20b": Published("20.91B", "gpt-oss model card, arXiv 2508.10925, table 1"),
    "gpt-oss-120b": Published("116.83B", "gpt-oss model card, arXiv 2508.10925, table 1"),
    "deepseek-v3": DEEPSEEK_V3,
    "deepseek-r1": DEEPSEEK_V3,
    "deepseek-v3.1-nvfp4": DEEPSEEK_V3,
    "kimi-k2-instruct": KIMI_K2,
    "kimi-k2.5": KIMI_K2,
    "kimi-k2.5-nvfp4": KIMI_K2,
    "kimi-k2.6-nvfp4": KIMI_K2,
    "kimi-k2.7-code-nvfp4": KIMI_K2,
    "deepseek-v3.2": DEEPSEEK_V32,
    "deepseek-v3.2-nvfp4": DEEPSEEK_V32,
    "glm-5": GLM_5,
    "glm-5-fp8": GLM_5,
    "glm-5-nvfp4": GLM_5,
    "glm-5.1-fp8": GLM_5,
    "glm-5.2": GLM_5_MTP,
    "glm-5.2-fp8": GLM_5_MTP,
    "glm-5.2-nvfp4": GLM_5_MTP,
    "glm-5.3": GLM_5_MTP,
    "glm-5.3-fp8": GLM_5_MTP,
    "glm-5.3-nvfp4": GLM_5_MTP,
    "qwen3.5-27b": QWEN35_27B,
    "qwen3.5-35b-a3b": QWEN35_35B,
    "qwen3.5-122b-a10b": QWEN35_122B,
    "qwen3.5-122b-a10b-nvfp4": QWEN35_122B,
    "qwen3.5-397b-a17b": QWEN35_397B,
    "qwen3.5-397b-a17b-nvfp4": QWEN35_397B,
    "qwen3.6-27b-nvfp4": QWEN35_27B,
    "qwen3.6-35b-a3b-nvfp4": QWEN35_35B,
    "qwen3.8-2.4t-a95b": QWEN38,
    "qwen3.8-2.4t-a95b-fp8": QWEN38,
    "nemotron-h-56b-base": Published("56B", CARD),
    "nemotron-3-nano-30b-a3b": NEMOTRON_NANO,
    "nemotron-3-nano-30b-a3b-nvfp4": NEMOTRON_NANO,
    "nemotron-3-ultra-550b-a55b": Published("550B", CARD),
    "nemotron-3.5-lightning-30b-a3b-nvfp4": NEMOTRON_NANO,
    "gemma-4-26b-a4b": GEMMA4_26B,
    "gemma-4-26b-a4b-nvfp4": GEMMA4_26B,
    "gemma-4-31b-it-nvfp4": GEMMA4_31B,
    "llama-4-scout-17b-16e-instruct": Published("109B", CARD, outside=0.87),
    "llama-4-maverick-17b-128e-instruct": Published("402B", BADGE, outside=0.87),
    "minimax-m3": MINIMAX_M3,
    "minimax-m3-nvfp4": MINIMAX_M3,
    "kimi-k3": Published("2.8T", "parameter badge of moonshotai/Kimi-K3 on huggingface.co"),
    "deepseek-v4-flash": V4_FLASH,
    "deepseek-v4-flash-nvfp4": V4_FLASH,
    "deepseek-v4-pro": V4_PRO,
    "deepseek-v4-pro-nvfp4": V4_PRO,
    # Two tables of 384 million hashed n-grams of 256 values live on the host; the vision tower is 0.4 B.
    "deepseek-v4.1-flash": Published("763B", BADGE, speculator=True, outside=196.6 + 0.4),
    "glm-5.3-flash": GLM_53_FLASH,
    "glm-5.3-flash-nvfp4": GLM_53_FLASH,
    "mimo-7b-base": Published("7.83B", BADGE, speculator=True),
    "mimo-v2-flash": Published("309B", "docs.vllm.ai/projects/recipes, MiMo-V2-Flash"),
    "llama-3.3-nemotron-super-49b": Published("49.9B", BADGE),
    "nemotron-3-super-120b-a12b": Published("120B", CARD),
    "muse-glimmer-30b": Published("29.6B", "docs.tenstorrent.com, Muse-Glimmer-30B, vision included", outside=1.85),
    "llama-2-7b-chat": Published("6.74B", BADGE),
    "llama-2-13b-chat": Published("13B", BADGE),
    "llama-2-70b-chat": Published("69B", BADGE),
    "llama-3-8b-instruct": LLAMA_8B,
    "llama-3-70b-instruct": LLAMA_70B,
    "llama-3.2-1b-instruct": Published("1.24B", BADGE),
    "llama-3.2-3b-instruct": Published("3.21B", BADGE),
    "llama-3.3-70b-instruct": LLAMA_33,
    "llama-3.3-70b-instruct-fp8-dynamic": LLAMA_33,
    "yi-34b-chat": Published("34.4B", BADGE),
    "mistral-7b-instruct-v0.3": Published("7.25B", BADGE),
    "mistral-large-instruct-2407": Published("123B", CARD),
    "mistral-small-24b-instruct-2501": Published("23.6B", BADGE),
    "phi-4": Published("14.7B", BADGE),
    "qwen2.5-0.5b-instruct": Published("0.49B", CARD),
    "qwen2.5-1.5b-instruct": Published("1.54B", CARD),
    "qwen2.5-3b-instruct": Published("3.09B", CARD),
    "qwen2.5-7b-instruct": QWEN25_7B,
    "qwen2.5-7b-instruct-awq": QWEN25_7B,
    "qwen2.5-14b-instruct": Published("14.7B", CARD),
    "qwen2.5-32b-instruct": Published("32.5B", CARD),
    "qwen2.5-72b-instruct": Published("72.7B", CARD),
    "qwen3-4b": QWEN3_4B,
    "qwen3-14b": QWEN3_14B,
    "qwen3-14b-awq": QWEN3_14B,
    "qwen3-next-80b-a3b-instruct": Published("81B", BADGE, speculator=True),
    "gemma-2-9b-it": Published("9.24B", BADGE),
    "gemma-2-27b-it": Published("27.2B", BADGE),
    # The vision tower of the larger Gemma 3 models is SigLIP, 0.42 B.
    "gemma-3-4b-it": Published("4.3B", BADGE, outside=0.42),
    "gemma-3-12b-it": Published("12.2B", BADGE, outside=0.42),
    "gemma-3-27b-it": Published("27.4B", BADGE, outside=0.42),
    "deepseek-v2-lite-chat": Published("15.7B", CARD),
    "deepseek-v2-chat": Published("236B", CARD),
    "kimi-linear-48b-a3b-instruct": Published("49B", BADGE),
    "qwen3-4b-instruct-2507": QWEN3_4B,
    "qwen3-4b-instruct-2507-fp8": QWEN3_4B,
    "qwen3-4b-fp8": QWEN3_4B,
    "qwen3-8b-fp8": Published("8.2B", CARD),
    "qwen3-14b-fp8": QWEN3_14B,
    "qwen3-vl-4b-instruct-fp8": Published("4.0B", "card of Qwen3-4B, its text decoder"),
    "qwen3-vl-30b-a3b-instruct-fp8": QWEN3_30B,
    "qwen3-coder-30b-a3b-instruct": QWEN3_30B,
    "qwen3.6-27b": QWEN35_27B,
    "qwen3.6-35b-a3b": QWEN35_35B,
    "qwen3.8-27b": QWEN35_27B,
    "qwen3.8-27b-fp8": QWEN35_27B,
    "mistral-small-3.2-24b-instruct-2506": Published("24.0B", BADGE, outside=0.44),
    # Per-layer embeddings (35 and 42 layers of 256 columns), a vision tower of 0.17 B and an audio tower of 0.3 B.
    "gemma-4-e2b-it": Published("5.1B", CARD, outside=2.35 + 0.47),
    "gemma-4-e4b-it": Published("8B", CARD, outside=2.82 + 0.47),
    "gemma-4-31b-it": GEMMA4_31B,
    "gemma-4-31b-it-fp8-dynamic": GEMMA4_31B,
    "glm-4.5-air": Published("106B", CARD),
    "glm-4.6": Published("357B", BADGE, speculator=True),
}


def billions(figure: str) -> float:
    """The number a figure prints, in billions."""
    return float(figure[:-1]) * {"B": 1.0, "T": 1000.0}[figure[-1]]


def half_digit(figure: str) -> float:
    """Half a unit of the figure's last printed digit, in billions: what rounding alone may hide. At most three per
    cent of the figure, so that one printed as "1T" still says something."""
    number = figure[:-1]
    digits = len(number.split(".")[1]) if "." in number else 0
    return min(0.5 * 10.0**-digits * {"B": 1.0, "T": 1000.0}[figure[-1]], 0.03 * billions(figure))
