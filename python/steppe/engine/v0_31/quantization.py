"""Quantization methods of vLLM 0.31.0 and the weight width each serves."""

from __future__ import annotations

# vllm/model_executor/layers/quantization/__init__.py:14-49
METHODS = (
    "awq",
    "auto_awq",
    "fp8",
    "fbgemm_fp8",
    "fp_quant",
    "modelopt",
    "modelopt_fp4",
    "modelopt_mxfp8",
    "modelopt_mixed",
    "auto_gptq",
    "gptq",
    "gptq_marlin",
    "awq_marlin",
    "humming",
    "compressed-tensors",
    "experts_int8",
    "quark",
    "moe_wna16",
    "torchao",
    "inc",
    "mxfp4",
    "gpt_oss_mxfp4",
    "deepseek_v4_fp8",
    "online",
    "fp8_per_tensor",
    "fp8_per_block",
    "fp8_per_channel",
    "int8_per_channel_weight_only",
    "nvfp4_per_token",
    "mxfp8",
)

# Methods whose name alone says the width of every linear layer's weights.
SERVED_DTYPE = {
    "fp8": "fp8",  # vllm/model_executor/layers/quantization/fp8.py:90-140
    "fbgemm_fp8": "fp8",
    "modelopt": "fp8",
    "modelopt_mxfp8": "fp8",
    "mxfp8": "fp8",
    "fp8_per_tensor": "fp8",
    "fp8_per_block": "fp8",
    "fp8_per_channel": "fp8",
    "modelopt_fp4": "nvfp4",
    "nvfp4_per_token": "nvfp4",
    "mxfp4": "mxfp4",
    "int8_per_channel_weight_only": "int8",
    "awq": "int4",
    "auto_awq": "int4",
    "awq_marlin": "int4",
    "gptq": "int4",
    "gptq_marlin": "int4",
    "auto_gptq": "int4",
}

# Methods whose widths are written in the checkpoint, layer by layer: priced only as the graph states them.
FROM_CHECKPOINT = (
    "compressed-tensors",
    "modelopt_mixed",
    "experts_int8",
    "moe_wna16",
    "gpt_oss_mxfp4",
    "deepseek_v4_fp8",
)
