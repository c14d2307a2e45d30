"""Hyper-connections: several residual streams, mixed before and after each block by small fp32 functions."""

from __future__ import annotations

from steppe.models.architecture import Block
from steppe.models.weights import FP32


def mixed_norm(block: Block, role: str, hidden: int, streams: int) -> None:
    """What stands where other models have a norm: the previous block's output is spread over the streams, the streams'
    mixing weights are computed from all of them, and their mix is normalised
    (vllm/models/deepseek_v4/nvidia/model.py:1220-1420; one fused kernel besides the fp32 product)."""
    block.gemm("hyper_mix", (2 + streams) * streams, streams * hidden, FP32, replicated=True)
    block.norm(role, 2 * hidden * (2 * streams + 2), replicated=True)
