"""Attention geometry per rank: which node is the layer's own attention, what a cached token weighs, what DCP shards."""

from __future__ import annotations

from steppe.documents import LayerKind, Node
from steppe.resolve.precision import cache_width
from steppe.resolve.resolved import Resolution


def is_latent(node: Node) -> bool:
    """Latent attention: one compressed vector a token, no value tensor."""
    return node.kind in ("mla", "sparse_mla")


def shards_context(node: Node) -> bool:
    """Kinds whose cache decode-context parallelism shards; windows and recurrent state never do."""
    return node.kind in ("gqa", "mla", "sparse_mla")


def primary_attention(kind: LayerKind) -> Node | None:
    """The attention node without a role, else the last one; the others are index scorers beside it."""
    nodes = [node for node in kind.nodes if node.op == "Attention"]
    plain = [node for node in nodes if not node.role]
    found = plain or nodes
    return found[-1] if found else None


def cache_bytes_per_token(r: Resolution, node: Node) -> float:
    """Bytes one layer keeps of one token on one rank: page over block."""
    dtype = r.settings.cache_dtype
    d_h = node.d_h or 0
    if is_latent(node):
        return 656.0 if dtype == "fp8_ds_mla" else 352.0 if dtype == "nvfp4_ds_mla" else d_h * cache_width(dtype)
    heads = max(1, (node.n_kv or 1) // r.widths.tp)
    return 2.0 * heads * d_h * cache_width(dtype)
