"""Weights of one rank, in bytes: dense matrices over tp, experts of the fullest rank, embedding and head.

A matrix is n x k elements of its stored dtype. Norms and biases are left out. Source: vllm/model_executor/layers/
linear.py:718,1051-1064, vllm/model_executor/layers/vocab_parallel_embedding.py:250-302,
vllm/model_executor/layers/fused_moe/config.py:1089-1229.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from steppe.documents import ModelGraph, Node
from steppe.memory.cache_layers import uses_graph_draft
from steppe.resolve.precision import WEIGHT_BYTES, served_dtype
from steppe.resolve.resolved import Resolution, Widths

VOCABULARY_PADDING: Final = 64  # rows (vllm/model_executor/layers/vocab_parallel_embedding.py:35)
ABSORBED_BYTES: Final = 2  # the 16-bit copies latent attention multiplies with

_FIXED_TILES: Final = {"nvfp4": (Fraction(1, 16), 1), "mxfp4": (Fraction(1, 32), 1)}
"""Scales a format itself fixes: how many an element has, and their bytes."""
_SCALE_BYTES: Final = {"fp8": 4, "int8": 4, "int4": 2}
"""Bytes of a scale over a stated tile: fp32 for 8-bit weights, 16 bits for grouped integers
(vllm/model_executor/layers/quantization/fp8.py:329-339)."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of one rank. `replicas` are the redundant experts, which are not in `experts`."""

    layers: int
    experts: int
    replicas: int
    embedding: int
    head: int
    draft: int
    extra: int = 0  # encoders and further embedding tables

    @property
    def total(self) -> int:
        """Everything but the replicas."""
        return self.layers + self.experts + self.embedding + self.head + self.draft + self.extra


def has_checkpoint_scales(graph: ModelGraph) -> bool:
    """Whether block scales are counted: a graph derived from a checkpoint's config, or from keys of one, knows them.

    A graph written otherwise is weighed at plain widths, as its writer counted it.
    """
    return graph.derived_from.format in ("huggingface", "stated")


def element_bytes(r: Resolution, node: Node) -> Fraction:
    """Bytes of one stored weight of `node`, its share of a scale included."""
    dtype = served_dtype(r, node)
    width = Fraction(WEIGHT_BYTES[dtype])
    if not has_checkpoint_scales(r.graph):
        return width
    if dtype in _FIXED_TILES:
        share, size = _FIXED_TILES[dtype]
        return width + share * size
    block = node.weight_block or ("" if node.weight_dtype else r.graph.globals_.weight_block)
    if not block or dtype not in _SCALE_BYTES or (r.settings.served_dtype and not node.weight_dtype):
        return width
    rows, columns = (int(part) for part in block.split("x"))
    # One byte a scale where a tile is a single row of 32: the MX formats.
    size = 1 if (rows, columns) == (1, 32) and dtype == "fp8" else _SCALE_BYTES[dtype]
    return width + Fraction(size, rows * columns)


def rank_weights(r: Resolution) -> Weights:
    """Weights of the fullest rank of `r`, the draft's included where the deployment speculates with one."""
    layers, experts, replicas = _stack(r, r.graph.stack.counts())
    draft = 0
    speculator = r.graph.speculator
    if speculator is not None and uses_graph_draft(r):
        parts = _stack(r, speculator.stack.counts())
        draft = parts[0] + parts[1]
        replicas += parts[2]
    elif r.draft is not None:
        draft = _own_draft(r.draft)
    embedding, head = _vocabulary(r)
    return Weights(layers, experts, replicas, embedding, head, draft, _extra(r))


def _own_draft(r: Resolution) -> int:
    """Layers of a drafter with a checkpoint of its own, and its head where its vocabulary is its own; the embedding is
    the target's (vllm/v1/worker/gpu/spec_decode/eagle/utils.py:38-60)."""
    dense, experts, _ = _stack(r, r.graph.stack.counts())
    speculator = r.graph.speculator
    own_head = speculator is not None and bool(speculator.own_lm_head or speculator.draft_vocab_size)
    return dense + experts + (_vocabulary(r)[1] if own_head else 0)


def expert_replicas(widths: Widths, experts: int, redundant: int) -> tuple[Fraction, Fraction]:
    """(experts, redundant copies) of one layer the fullest rank holds, in experts; shards of one count as a part.

    The fullest rank holds ceil((experts + redundant) / ep) whole experts under expert parallelism. What it would hold
    without redundancy is the first number; the rest are replicas.
    """
    if widths.ep > 1:
        whole = -(-experts // widths.ep)
        return Fraction(whole), Fraction(max(0, -(-(experts + redundant) // widths.ep) - whole))
    return Fraction(experts, widths.tp * widths.dp), Fraction(0)


def _stack(r: Resolution, counts: dict[str, int]) -> tuple[int, int, int]:
    """(dense, experts, replicas) bytes of layers counted by kind."""
    dense = experts = replicas = Fraction(0)
    for name, times in counts.items():
        for node in r.graph.layer_kind(name).nodes:
            if node.op == "GEMM":
                dense += times * _gemm(r, node)
            elif node.op == "GroupedGEMM":
                shared, own, copies = _grouped(r, node)
                dense += times * shared
                experts += times * own
                replicas += times * copies
    return round(dense), round(experts), round(replicas)


def _gemm(r: Resolution, node: Node) -> Fraction:
    size = (node.n or 0) * (node.k or 0) * element_bytes(r, node)
    total = size if node.replicated else size / r.widths.tp
    return total + _absorbed(r, node)


def _absorbed(r: Resolution, node: Node) -> Fraction:
    """16-bit copies of a quantized latent up-projection, which stay beside the stored weight; a 16-bit one is viewed
    (vllm/model_executor/layers/attention/mla_attention.py:1258-1330)."""
    if node.role != "kv_b" or not has_checkpoint_scales(r.graph) or served_dtype(r, node) in ("bf16", "fp16"):
        return Fraction(0)
    return Fraction((node.n or 0) * (node.k or 0) * ABSORBED_BYTES, r.widths.tp)


def _grouped(r: Resolution, node: Node) -> tuple[Fraction, Fraction, Fraction]:
    """(shared experts, routed experts, replicas) of one layer."""
    matrices = 3 if node.gated else 2
    width = element_bytes(r, node)
    k = node.k or 0
    one = matrices * width * _stored_elements(r, node, node.n or 0, node.latent_size or k)
    held, copies = expert_replicas(r.widths, node.experts or 0, r.settings.redundant_experts)
    shared = Fraction(0)
    if node.shared_experts:
        inner = node.shared_intermediate_size or node.shared_experts * (node.n or 0)
        shared = matrices * inner * k * width
        if not (r.settings.sequence_parallel_moe and has_checkpoint_scales(r.graph)):
            shared /= r.widths.tp
    return shared, held * one, copies * one


def _stored_elements(r: Resolution, node: Node, inner: int, hidden: int) -> Fraction:
    """Elements of one matrix of a routed expert, over its tensor shards: MXFP4 kernels want each side a multiple of
    their tile and the engine pads to it (vllm/model_executor/layers/fused_moe/oracle/mxfp4.py:731-800). Triton, which
    serves Hopper, pads the inner width to 64; Marlin and TensorRT-LLM to 128, and the hidden width to 256."""
    if served_dtype(r, node) != "mxfp4" or not has_checkpoint_scales(r.graph):
        return Fraction(inner * hidden)
    inner_tile, hidden_tile = (64, 1) if r.compute_capability[0] == 9 else (128, 256)
    shards = 1 if r.widths.ep > 1 else r.widths.tp * r.widths.dp
    a_shard = -(-inner // (shards * inner_tile)) * inner_tile
    return Fraction(a_shard * shards * (-(-hidden // hidden_tile) * hidden_tile))


def _extra(r: Resolution) -> int:
    """What the graph says is loaded beside the decoder, divided by tp."""
    shape = r.graph.globals_
    size = Fraction(WEIGHT_BYTES[shape.embedding_dtype or shape.weight_dtype])
    parameters = (shape.encoder_parameters or 0) + (shape.per_layer_embedding or 0) * shape.vocab_size
    return round(parameters * size / r.widths.tp)


def _vocabulary(r: Resolution) -> tuple[int, int]:
    """(embedding, head) bytes: the table at the checkpoint's width over tp; a tied head adds nothing."""
    shape = r.graph.globals_
    padding = VOCABULARY_PADDING if has_checkpoint_scales(r.graph) else 1
    rows = -(-shape.vocab_size // padding) * padding
    dtype = shape.embedding_dtype or shape.weight_dtype
    table = Fraction(rows * shape.hidden_size, r.widths.tp) * Fraction(WEIGHT_BYTES[dtype])
    head = Fraction(0)
    for node in r.graph.head:
        if node.op == "GEMM" and not shape.tie_word_embeddings:
            head += _gemm(r, node)
    return round(table), round(head)
