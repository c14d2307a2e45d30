"""Nemotron-NAS (DeciLM): a Llama whose layers were each given their own heads and width, or dropped.

Shapes: vllm/model_executor/models/nemotron_nas.py:60-260; the width of a feed-forward block is two thirds of its
multiple of the hidden size, rounded up to a multiple of 256.
"""

from __future__ import annotations

from typing import Any

from steppe.errors import DeploymentError, DocumentError
from steppe.models.architecture import Architecture, Block, Layer, Source
from steppe.models.config import Config, heads
from steppe.models.head import head, layer_count, tied
from steppe.models.mixers import Gqa, attention, mlp


def decilm(source: Source) -> Architecture:
    config = source.config
    hidden, vocab, count = config.positive("hidden_size"), config.positive("vocab_size"), layer_count(source)
    blocks = config.per_layer("block_configs", count)
    layers = [
        _layer(source, i, Config(stated, path=f"{config.path}: block_configs[{i}]")) for i, stated in enumerate(blocks)
    ]
    layers = [layer for layer in layers if layer.nodes]
    return Architecture(hidden, vocab, tied(source), layers, head(source, hidden, vocab))


def _layer(source: Source, i: int, stated: Config) -> Layer:
    config = source.config
    hidden = config.positive("hidden_size")
    n_q, _, d_h = heads(config)
    mixer, width = stated.section("attention"), stated.section("ffn")
    for part in (mixer, width):
        if part.flag("replace_with_linear"):
            raise DeploymentError(f"{part.path}: replace_with_linear is not covered")
    block = Block(source.quant)
    name = "full"
    if mixer.flag("no_op"):
        name = "none"
    else:
        group = mixer.positive("n_heads_in_group")
        if n_q % group:
            raise DocumentError(f"{mixer.path}: n_heads_in_group {group} does not divide {n_q} heads")
        block.norm("norm_in")
        attention(block, Gqa(f"layers.{i}.self_attn", hidden, n_q, n_q // group, d_h))
    if not width.flag("no_op"):
        block.norm("norm_mid")
        mlp(block, f"layers.{i}.mlp", hidden, _inner(width, hidden))
        name += "_dense"
    return Layer(name, block.nodes)


def _inner(width: Config, hidden: int) -> int:
    multiple: Any = width.get("ffn_mult")
    if multiple is None:
        return width.positive("intermediate_size")
    inner = int(2 * float(multiple) * hidden / 3)
    return -(-inner // 256) * 256
