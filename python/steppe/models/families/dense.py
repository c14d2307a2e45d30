"""Dense grouped-query decoders: Llama, Mistral, Yi, Qwen2, Qwen2.5, Qwen3.

Shapes: fused qkv of (heads + 2 kv heads)·head_dim rows, gate and up fused
(vllm/model_executor/models/llama.py:82-119, 121-230; qwen2.py; qwen3.py:63-171). Every layer launches input norm,
qkv, [q/k norm], rope, attention, out, reduction, norm, gate_up, SiLU·mul, down, reduction (llama.py:300-330).
"""

from __future__ import annotations

from steppe.models.architecture import Architecture, Block, Layer, Source
from steppe.models.config import heads
from steppe.models.head import head, layer_count, tied, window_of
from steppe.models.mixers import Gqa, attention, mlp


def llama(source: Source) -> Architecture:
    return _dense(source, qk_norm=False)


def qwen2(source: Source) -> Architecture:
    """As Llama, with biases on qkv, which move nothing worth counting. `sliding_window` is inert unless switched on."""
    return _dense(source, qk_norm=False, window_opt_in=True)


def qwen3(source: Source) -> Architecture:
    """As Qwen2, with RMS norms over each head of q and k (vllm/model_executor/models/qwen3.py:150-170)."""
    return _dense(source, qk_norm=True, window_opt_in=True)


def _dense(source: Source, *, qk_norm: bool, window_opt_in: bool = False) -> Architecture:
    config = source.config
    hidden, vocab = config.positive("hidden_size"), config.positive("vocab_size")
    inner = config.positive("intermediate_size")
    n_q, n_kv, d_h = heads(config)
    count = layer_count(source)
    windowed = not window_opt_in or config.flag("use_sliding_window")
    layers = []
    for i in range(count):
        window = window_of(source, i, count) if windowed else None
        block = Block(source.quant)
        block.norm("norm_in")
        attention(block, Gqa(f"layers.{i}.self_attn", hidden, n_q, n_kv, d_h, qk_norm=qk_norm, window=window))
        block.norm("norm_mid")
        mlp(block, f"layers.{i}.mlp", hidden, inner)
        layers.append(Layer("window_dense" if window else "full_dense", block.nodes))
    return Architecture(hidden, vocab, tied(source), layers, head(source, hidden, vocab))
