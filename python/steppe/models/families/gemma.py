"""Gemma 2, 3 and 4: window and full attention in turn, norms before and after each block, tied embeddings.

Shapes: vllm/model_executor/models/gemma2.py, gemma3.py:90-240, gemma4.py:380-640. The norm after a block precedes the
next one's, so a layer launches four of hidden width. Gemma 3 and 4 normalise q and k (Gemma 4 v too); Gemma 4's full
layers have their own head size and key-value heads, its last layers may read earlier layers' caches, its expert layers
run a dense block and experts side by side, and its small models add an embedding of its own to every layer.
"""

from __future__ import annotations

from dataclasses import replace

from steppe.errors import DocumentError
from steppe.models.architecture import Architecture, Block, Layer, Node, Source
from steppe.models.config import Config, heads
from steppe.models.families.moe import kv_cache
from steppe.models.head import head, layer_count
from steppe.models.mixers import Gqa, Moe, attend, attention, mlp, moe

#: What transformers' Gemma3TextConfig fills in where a checkpoint's config is silent.
_GEMMA3_DEFAULTS = {
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window_pattern": 6,
    "sliding_window": 4096,
}
_GEMMA2_DEFAULTS = {"sliding_window_pattern": 2, "sliding_window": 4096, "head_dim": 256}


def gemma2(source: Source) -> Architecture:
    return _gemma(source, _GEMMA2_DEFAULTS, qk_norm=False)


def gemma3(source: Source) -> Architecture:
    return _gemma(source, _GEMMA3_DEFAULTS, qk_norm=True)


def _gemma(source: Source, defaults: dict[str, int], *, qk_norm: bool) -> Architecture:
    source = _with_defaults(source, defaults)
    config = source.config
    hidden, vocab, count = config.positive("hidden_size"), config.positive("vocab_size"), layer_count(source)
    n_q, n_kv, d_h = heads(config)
    layers = []
    for i in range(count):
        window = config.positive("sliding_window") if _slides(config, i, count) else None
        block = Block(source.quant)
        block.norm("norm_in")
        attention(block, Gqa(f"layers.{i}.self_attn", hidden, n_q, n_kv, d_h, qk_norm=qk_norm, window=window))
        block.norm("norm_post_attn")
        block.norm("norm_mid")
        mlp(block, f"layers.{i}.mlp", hidden, config.positive("intermediate_size"))
        block.norm("norm_post_mlp")
        caches = [kv_cache(n_kv, d_h, window)]
        layers.append(Layer("window_dense" if window else "full_dense", block.nodes, caches))
    return Architecture(hidden, vocab, config.flag("tie_word_embeddings"), layers, _head(source, hidden, vocab))


def _with_defaults(source: Source, defaults: dict[str, int]) -> Source:
    """Gemma checkpoints leave out what their config class fills in; embeddings are tied unless said otherwise."""
    stated = {k: v for k, v in source.config.data.items() if v is not None}
    data = {"tie_word_embeddings": True, **defaults, **stated}
    return replace(source, config=Config(data, path=source.config.path))


def _slides(config: Config, i: int, count: int) -> bool:
    if config.has("layer_types"):
        return bool(config.per_layer("layer_types", count)[i] == "sliding_attention")
    return (i + 1) % config.positive("sliding_window_pattern") != 0


def _head(source: Source, hidden: int, vocab: int) -> list[Node]:
    """The head; a soft cap is a division, a tanh and a product over the gathered logits
    (vllm/model_executor/layers/logits_processor.py)."""
    nodes = head(source, hidden, vocab)
    if source.config.has("final_logit_softcapping"):
        block = Block(source.quant)
        block.elementwise("activation", 12 * vocab, launches=3, replicated=True)
        nodes += block.nodes
    return nodes


def gemma4(source: Source) -> Architecture:
    source = _with_defaults(source, {})
    config = source.config
    hidden, vocab, count = config.positive("hidden_size"), config.positive("vocab_size"), layer_count(source)
    if not config.has("layer_types"):
        raise DocumentError(f"{config.path}: missing key 'layer_types'")
    layers = [_gemma4_layer(source, i, count) for i in range(count)]
    if config.count("hidden_size_per_layer_input", default=0):
        _per_layer_inputs(source, layers[0], count)
    return Architecture(hidden, vocab, config.flag("tie_word_embeddings"), layers, _head(source, hidden, vocab))


def _gemma4_layer(source: Source, i: int, count: int) -> Layer:
    config = source.config
    hidden = config.positive("hidden_size")
    n_q, n_kv, d_h = heads(config)
    window = config.positive("sliding_window") if _slides(config, i, count) else None
    if window is None:
        d_h = config.positive("global_head_dim", default=d_h)
        n_kv = config.positive("num_global_key_value_heads", default=n_kv)
    # The last layers read the cache of the last unshared layer of their own type (gemma4.py:470-500).
    reads = i >= count - config.count("num_kv_shared_layers", default=0)
    block = Block(source.quant)
    block.norm("norm_in")
    a = Gqa(f"layers.{i}.self_attn", hidden, n_q, n_kv, d_h, window=window)
    _gemma4_attention(block, a, reads)
    block.norm("norm_post_attn", 6 * hidden)
    block.norm("norm_mid")
    wide = 2 if reads and config.flag("use_double_wide_mlp") else 1
    mlp(block, f"layers.{i}.mlp", hidden, wide * config.positive("intermediate_size"))
    experts = config.flag("enable_moe_block")
    if experts:
        block.norm("norm_post_dense")
        block.norm("norm_experts")
        block.norm("norm_router")
        moe(
            block,
            Moe(
                f"layers.{i}",
                hidden,
                config.positive("moe_intermediate_size", "expert_intermediate_size"),
                config.positive("num_experts"),
                config.positive("top_k_experts"),
            ),
        )
        block.norm("norm_post_experts", 6 * hidden)
    block.norm("norm_post_mlp", 6 * hidden)
    own = config.count("hidden_size_per_layer_input", default=0)
    if own:
        _per_layer_output(block, f"layers.{i}", hidden, own)
    kind = ("window" if window else "full") + ("_moe" if experts else "_dense") + ("_reads" if reads else "")
    return Layer(kind, block.nodes, [] if reads else [kv_cache(n_kv, d_h, window)])


def _per_layer_inputs(source: Source, first: Layer, count: int) -> None:
    """Ahead of the first layer: a token's embeddings for every layer, out of a table of their own
    (`per_layer_embedding`) and out of the hidden state by a column-parallel projection whose output is gathered,
    normalised and added (gemma4.py:866-925, 1010-1055)."""
    hidden, width = source.config.positive("hidden_size"), source.config.positive("hidden_size_per_layer_input")
    block = Block(source.quant)
    block.gemm("per_layer_in", width * count, hidden, source.quant.linear("per_layer_model_projection"))
    block.add("AllGather", role="per_layer_gather", emit="tensor_parallel", bytes_per_token=2 * width * count)
    block.norm("norm_per_layer", 6 * width * count, replicated=True)
    first.nodes[:0] = block.nodes
    first.kind = f"first_{first.kind}"


def _per_layer_output(block: Block, module: str, hidden: int, width: int) -> None:
    """Behind a layer: gate, product with the layer's own embedding, projection and norm, whole on every rank
    (gemma4.py:677-710, 763-775)."""
    block.gemm("per_layer_gate", width, hidden, block.quant.linear(f"{module}.per_layer_input_gate"), replicated=True)
    block.elementwise("activation", 6 * width, replicated=True)
    block.gemm("per_layer_out", hidden, width, block.quant.linear(f"{module}.per_layer_projection"), replicated=True)
    block.norm("norm_per_layer_out", 6 * hidden)


def _gemma4_attention(block: Block, a: Gqa, reads: bool) -> None:
    """Norms of q, k and v, rope on q and k. Where keys double as values the engine still projects both from copies of
    one weight (gemma4.py:95-130, 440-455)."""
    names = ("q_proj",) if reads or block.quant.default == block.quant.plain else ("q_proj", "k_proj")
    rows = a.n_q if reads else a.n_q + 2 * a.n_kv
    block.gemm("qkv", rows * a.d_h, a.hidden, block.quant.linear(*(f"{a.module}.{name}" for name in names)))
    block.elementwise("qk_norm", 4 * rows * a.d_h)
    block.elementwise("rope", 4 * (rows if reads else a.n_q + a.n_kv) * a.d_h)
    attend(block, a)
    block.gemm("out", a.hidden, a.n_q * a.d_h, block.quant.linear(f"{a.module}.o_proj"))
    block.reduce("reduce_mixer")
