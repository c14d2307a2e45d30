"""A 16-bit graph as a quantized checkpoint of it is usually stored, where that checkpoint's config is not at hand."""

from __future__ import annotations

from typing import Final

from steppe.documents import ModelGraph, Node
from steppe.errors import DeploymentError

KINDS: Final = {"fp8": ("fp8", "128x128"), "int4": ("int4", "1x128"), "int8": ("int8", "")}
"""Stored dtype and the tile of a scale: FP8 exports in tiles, 4-bit integers in groups of 128 along k."""

_KEPT: Final = frozenset({"router", "shared_gate", "in_proj_ba", "index_weights"})
"""Roles every recipe leaves at 16 bits: routers and gates of a few rows (vllm/model_executor/layers/fused_moe/router,
qwen3_next.py)."""


def requantized(graph: ModelGraph, kind: str) -> ModelGraph:
    """`graph` with every linear of its layers stored as `kind`; routers, gates, embedding and head keep their width.

    Raises DeploymentError for a kind that has no usual form (4-bit floats: recipes differ in what they leave out).
    """
    if kind not in KINDS:
        raise DeploymentError(f"quantization {kind}: known recipes are {', '.join(KINDS)}")
    kinds = [
        layer.model_copy(update={"nodes": tuple(_stored(node, kind) for node in layer.nodes)})
        for layer in graph.layer_kinds
    ]
    return graph.model_copy(update={"layer_kinds": tuple(kinds)})


def follows_one_recipe(graph: ModelGraph, kind: str) -> bool:
    """Whether recipes agree on what they quantize: FP8 always, integers in plain decoders only. Recipes for experts,
    recurrent layers and per-layer embeddings differ in what they leave at 16 bits."""
    ops = {node.op for layer in graph.layer_kinds for node in layer.nodes}
    plain = not graph.globals_.per_layer_embedding and not ops & {"GroupedGEMM", "RecurrentUpdate"}
    return kind == "fp8" or (kind in KINDS and plain)


def _stored(node: Node, kind: str) -> Node:
    if node.op not in ("GEMM", "GroupedGEMM") or node.role in _KEPT or node.weight_dtype == "fp32":
        return node
    dtype, block = KINDS[kind]
    return node.model_copy(update={"weight_dtype": dtype, "weight_block": block})
