"""Xiaomi MiMo: MiMo-7B, a Qwen2 with a prediction module, and MiMo-V2, window and full attention over experts with
values narrower than keys.

Shapes: vllm/model_executor/models/mimo_mtp.py:50-90; mimo_v2.py:100-420 (an fp32 router after a cast; window layers
have heads of their own), mimo_v2_mtp.py:55-130 (one dense window layer, its output projection at 16 bits).
"""

from __future__ import annotations

from dataclasses import dataclass

from steppe.models.architecture import Architecture, Block, Layer, Source
from steppe.models.config import Config
from steppe.models.families import dense
from steppe.models.families.deepseek import predictor, routed_experts
from steppe.models.families.moe import kv_cache
from steppe.models.head import head, layer_count, tied
from steppe.models.mixers import mlp, moe
from steppe.models.weights import Weight


def mimo(source: Source) -> Architecture:
    """MiMo-7B: its prediction module is one dense layer of the model's own shape."""
    derived = dense.qwen2(source)
    modules = source.config.count("num_nextn_predict_layers", default=0)
    if modules:
        derived.speculator = predictor(source, derived.layers[-1:] * modules)
    return derived


@dataclass(frozen=True)
class _Heads:
    """Heads of one kind of layer; keys and values differ in size."""

    n_q: int
    n_kv: int
    d: int
    d_v: int
    window: int | None


def mimo_v2(source: Source) -> Architecture:
    config = source.config
    hidden, vocab, count = config.positive("hidden_size"), config.positive("vocab_size"), layer_count(source)
    windowed = config.per_layer("hybrid_layer_pattern", count)
    sparse = config.per_layer("moe_layer_freq", count)

    def layer(i: int) -> Layer:
        h = _heads(config, windowed=bool(windowed[i]))
        block = Block(source.quant)
        block.norm("norm_in")
        module = f"layers.{i}.self_attn"
        _attention(block, h, hidden, module, source.quant.linear(f"{module}.o_proj"))
        block.norm("norm_mid")
        if sparse[i]:
            fp32 = str(config.get("moe_router_dtype", "float32")) == "float32"
            moe(block, routed_experts(config, f"layers.{i}.mlp", fp32_router=fp32))
        else:
            mlp(block, f"layers.{i}.mlp", hidden, config.positive("intermediate_size"))
        kind = f"{'window' if h.window else 'full'}_{'moe' if sparse[i] else 'dense'}"
        return Layer(kind, block.nodes, [kv_cache(h.n_kv, h.d, h.window, d_v=h.d_v)])

    layers = [layer(i) for i in range(count)]
    speculator = predictor(source, [_drafted(source)])
    return Architecture(hidden, vocab, tied(source), layers, head(source, hidden, vocab), speculator)


def _drafted(source: Source) -> Layer:
    config = source.config
    hidden, h, block = config.positive("hidden_size"), _heads(config, windowed=True), Block(source.quant)
    block.norm("norm_in")
    _attention(block, h, hidden, "mtp.layers.0.self_attn", source.quant.plain)
    block.norm("norm_mid")
    mlp(block, "mtp.layers.0.mlp", hidden, config.positive("intermediate_size"))
    return Layer("window_dense", block.nodes, [kv_cache(h.n_kv, h.d, h.window, d_v=h.d_v)])


def _heads(config: Config, *, windowed: bool) -> _Heads:
    swa = "swa_" if windowed else ""
    d = config.positive(f"{swa}head_dim")
    window = config.positive("sliding_window_size", "sliding_window") if windowed else None
    return _Heads(
        config.positive(f"{swa}num_attention_heads"),
        config.positive(f"{swa}num_key_value_heads"),
        d,
        config.positive(f"{swa}v_head_dim", default=d),
        window,
    )


def _attention(block: Block, h: _Heads, hidden: int, module: str, out: Weight) -> None:
    weight = block.quant.linear(*(f"{module}.{name}" for name in ("q_proj", "k_proj", "v_proj")))
    block.gemm("qkv", (h.n_q + h.n_kv) * h.d + h.n_kv * h.d_v, hidden, weight)
    block.elementwise("rope", 4 * (h.n_q + h.n_kv) * h.d)
    kind = "swa" if h.window else "gqa"
    block.add("Attention", kind=kind, n_q=h.n_q, n_kv=h.n_kv, d_h=h.d, window=h.window)
    block.gemm("out", hidden, h.n_q * h.d_v, out)
    block.reduce("reduce_mixer")
