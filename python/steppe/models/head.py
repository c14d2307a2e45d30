"""What every decoder ends in, and the facts about it that stand outside the layers."""

from __future__ import annotations

from steppe.models.architecture import Block, Node, Source


def head(source: Source, hidden: int, vocab: int) -> list[Node]:
    """The final norm and the head. A tied head reads the embedding, which the engine keeps at 16 bits."""
    block = Block(source.quant)
    block.norm("norm_out")
    weight = source.quant.plain if tied(source) else source.quant.lm_head()
    block.gemm("lm_head", vocab, hidden, weight)
    return block.nodes


def tied(source: Source) -> bool:
    return source.config.flag("tie_word_embeddings")


def layer_count(source: Source) -> int:
    """`num_hidden_layers`, or the length of the per-layer vector of a config that states none."""
    config = source.config
    for vector in ("layer_types", "block_configs", "layers_block_type"):
        if not config.has("num_hidden_layers") and config.has(vector):
            return len(config.items(vector))
    return config.positive("num_hidden_layers")


def window_of(source: Source, layer: int, layers: int) -> int | None:
    """The sliding window of a layer, or None for full attention.

    `layer_types` decides where it is stated (vllm/model_executor/models/llama.py:186-207); without it a
    `sliding_window` holds for all layers (vllm/engine/arg_utils.py:2191-2215), unless `use_sliding_window` is false.
    """
    config = source.config
    if not config.count("sliding_window", default=0) or not config.flag("use_sliding_window", True):
        return None
    if not config.has("layer_types"):
        return config.positive("sliding_window")
    kind = config.per_layer("layer_types", layers)[layer]
    return config.positive("sliding_window") if kind == "sliding_attention" else None
