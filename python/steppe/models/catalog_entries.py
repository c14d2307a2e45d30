"""The models of the embedded catalog: a name, and the checkpoint whose config it is derived from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One catalog model.

    `quantization` stands in for the quantization config of a quantized checkpoint of the same architecture whose own
    config is not at hand; `quantization_source` says where its content comes from.
    """

    name: str
    checkpoint: str
    quantization: Mapping[str, Any] | None = None
    quantization_source: str = ""


_MODELOPT_FP8 = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}
_MODELOPT_NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}

ENTRIES: tuple[Entry, ...] = (
    Entry("llama-3.1-8b-instruct", "meta-llama/Meta-Llama-3.1-8B"),
    Entry(
        "llama-3.1-8b-instruct-fp8",
        "meta-llama/Meta-Llama-3.1-8B",
        _MODELOPT_FP8,
        "as hf_quant_config.json of nvidia/Llama-3.1-70B-Instruct-FP8 states it for the same architecture",
    ),
    Entry("llama-3.1-70b-instruct", "meta-llama/Meta-Llama-3.1-70B"),
    Entry("llama-3.1-70b-instruct-fp8", "nvidia/Llama-3.1-70B-Instruct-FP8"),
    Entry(
        "llama-3.1-70b-instruct-nvfp4",
        "meta-llama/Meta-Llama-3.1-70B",
        _MODELOPT_NVFP4,
        "modelopt's NVFP4 export of a Llama: every linear but lm_head (exclude_modules of nvidia/Qwen3-235B-A22B-NVFP4 "
        "lists the router besides)",
    ),
    Entry("llama-3.1-405b-instruct", "meta-llama/Meta-Llama-3.1-405B"),
    Entry("qwen3-0.6b", "Qwen/Qwen3-0.6B"),
    Entry("qwen3-1.7b", "Qwen/Qwen3-1.7B"),
    Entry("qwen3-8b", "Qwen/Qwen3-8B"),
    Entry("qwen3-32b", "Qwen/Qwen3-32B"),
    Entry("qwen3-32b-fp8", "Qwen/Qwen3-32B-FP8"),
    Entry("qwen3-32b-fp8-static", "Qwen/Qwen3-32B-FP8-Static-PerTensor"),
)
