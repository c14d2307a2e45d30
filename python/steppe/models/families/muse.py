"""Muse-Glimmer: window attention with rope and full attention without, an output gate, norms after each block too.

Shapes: vllm/model_executor/models/muse_glimmer.py:1075-1300. q and k are normalised without a weight before rope; the
output gate is a projection of the layer's input.
"""

from __future__ import annotations

from steppe.models.architecture import Architecture, Block, Layer, Source
from steppe.models.config import Config, heads
from steppe.models.families.moe import kv_cache
from steppe.models.head import head, layer_count, tied
from steppe.models.mixers import Gqa, attend, mlp


def muse_glimmer(source: Source) -> Architecture:
    config = source.config
    hidden, vocab, count = config.positive("hidden_size"), config.positive("vocab_size"), layer_count(source)
    layers = []
    for i in range(count):
        window = config.positive("sliding_window") if _slides(config, i, count) else None
        block = Block(source.quant)
        block.norm("norm_in")
        _attention(block, config, f"layers.{i}.self_attn", window)
        block.norm("norm_post_attn")
        block.norm("norm_mid")
        mlp(block, f"layers.{i}.mlp", hidden, config.positive("intermediate_size"))
        block.norm("norm_post_mlp")
        _, n_kv, d_h = heads(config)
        layers.append(Layer("window_dense" if window else "full_dense", block.nodes, [kv_cache(n_kv, d_h, window)]))
    return Architecture(hidden, vocab, tied(source), layers, head(source, hidden, vocab))


def _slides(config: Config, i: int, count: int) -> bool:
    """Layers with rope attend within the window (muse_glimmer.py:1144-1146, 1197-1198)."""
    if config.has("layer_types"):
        return bool(config.per_layer("layer_types", count)[i] == "sliding_attention")
    return bool(config.per_layer("no_rope_layers", count)[i])


def _attention(block: Block, config: Config, module: str, window: int | None) -> None:
    n_q, n_kv, d_h = heads(config)
    hidden = config.positive("hidden_size")
    weight = block.quant.linear(*(f"{module}.{name}" for name in ("q_proj", "k_proj", "v_proj")))
    block.gemm("qkv", (n_q + 2 * n_kv) * d_h, hidden, weight)
    block.elementwise("qk_norm", 4 * (n_q + n_kv) * d_h)
    if window:
        block.elementwise("rope", 4 * (n_q + n_kv) * d_h)
    attend(block, Gqa(module, hidden, n_q, n_kv, d_h, window=window))
    block.gemm("attn_gate_proj", n_q * d_h, hidden, block.quant.linear(f"{module}.output_gate_proj"))
    block.elementwise("attn_gate", 6 * n_q * d_h)
    block.gemm("out", hidden, n_q * d_h, block.quant.linear(f"{module}.o_proj"))
    block.reduce("reduce_mixer")
