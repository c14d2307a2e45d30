"""Llama 4: chunked attention with rope, full attention without it every fourth layer, experts in every step-th layer.

Shapes (vllm/model_executor/models/llama4.py): one shared expert as wide as a routed one (85-140); full layers drop
rope, q/k norm and the chunk (160-260); dense layers are `intermediate_size_mlp` wide (320-360). A chunked layer's
attention node states its chunk as a window: a row reads at most that many tokens, on average half.
"""

from __future__ import annotations

from steppe.models.architecture import Architecture, Block, Layer, Source
from steppe.models.config import Config, heads
from steppe.models.families.moe import kv_cache
from steppe.models.head import head, layer_count, tied
from steppe.models.mixers import Gqa, Moe, attention, mlp, moe


def llama4(source: Source) -> Architecture:
    config = source.config
    hidden, vocab, count = config.positive("hidden_size"), config.positive("vocab_size"), layer_count(source)
    n_q, n_kv, d_h = heads(config)
    step, chunk = config.count("interleave_moe_layer_step", default=1), config.count("attention_chunk_size", default=0)
    roped = _rope_layers(config, count)
    layers = []
    for i in range(count):
        rope = roped[i]
        window = chunk if rope and chunk else None
        block = Block(source.quant)
        block.norm("norm_in")
        qk_norm = rope and config.flag("use_qk_norm", True)
        module = f"layers.{i}.self_attn"
        attention(block, Gqa(module, hidden, n_q, n_kv, d_h, qk_norm=qk_norm, rope=rope, window=window))
        block.norm("norm_mid")
        sparse = step > 0 and (i + 1) % step == 0
        if sparse:
            moe(block, _experts(config, f"layers.{i}.feed_forward"))
        else:
            mlp(block, f"layers.{i}.feed_forward", hidden, config.positive("intermediate_size_mlp"))
        cache = kv_cache(n_kv, d_h)
        if window:
            cache = {**cache, "id": f"chunked_{window}", "kind": "chunked", "window": window}
        layers.append(Layer(f"{'chunked' if window else 'full'}_{'moe' if sparse else 'dense'}", block.nodes, [cache]))
    return Architecture(hidden, vocab, tied(source), layers, head(source, hidden, vocab))


def _rope_layers(config: Config, count: int) -> list[bool]:
    """`no_rope_layers` (1: rope), or rope in all but every fourth layer (transformers' Llama4TextConfig)."""
    if config.items("no_rope_layers", default=[]):
        return [bool(flag) for flag in config.per_layer("no_rope_layers", count)]
    interval = config.positive("no_rope_layer_interval", default=4)
    return [(i + 1) % interval != 0 for i in range(count)]


def _experts(config: Config, module: str) -> Moe:
    return Moe(
        module,
        config.positive("hidden_size"),
        config.positive("intermediate_size"),
        config.positive("num_local_experts"),
        config.positive("num_experts_per_tok"),
        shared=1,
        shared_name="shared_expert",
    )
