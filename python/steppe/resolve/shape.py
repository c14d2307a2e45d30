"""What the rules need to know of a model's layers, read off its graph once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from steppe.documents import ModelGraph, Node
from steppe.engine.v0_31 import caches as engine_caches

LATENT_KINDS = ("mla", "sparse_mla")


@dataclass(frozen=True, slots=True)
class Shape:
    """The target's attention, recurrent and expert nodes, one of each distinct kind of layer.

    `attentions` are the primary ones: a node with a role beyond the empty one scores for another and is in `indexers`.
    """

    attentions: tuple[Node, ...]
    indexers: tuple[Node, ...]
    recurrents: tuple[Node, ...]
    experts: tuple[Node, ...]
    chunked: bool
    stored_dtypes: frozenset[str]

    @property
    def has_latent(self) -> bool:
        """Some layer caches one latent vector a token."""
        return any(node.kind in LATENT_KINDS for node in self.attentions)

    @property
    def has_window(self) -> bool:
        """Some layer attends within a window."""
        return any(node.kind == "swa" for node in self.attentions)

    @property
    def indexed(self) -> tuple[Node, ...]:
        """Layers of sparse latent attention that pick their tokens by an index over every token (DSA)."""
        return tuple(n for n in self.attentions if n.kind == "sparse_mla" and n.index_topk and not n.compress_ratio)

    @property
    def compressed(self) -> tuple[Node, ...]:
        """Layers of sparse latent attention over pooled states."""
        return tuple(n for n in self.attentions if n.kind == "sparse_mla" and n.compress_ratio)

    @property
    def compressed_v41(self) -> bool:
        """Every pooled layer pools one or two tokens a state, as only DeepSeek-V4.1 does."""
        ratios = {node.compress_ratio for node in self.compressed}
        return bool(ratios) and ratios <= set(engine_caches.V41_RATIOS)

    @property
    def query_heads(self) -> int:
        """Query heads of the widest primary attention; 0 without attention."""
        return max((node.n_q or 0 for node in self.attentions), default=0)

    @property
    def expert_count(self) -> int:
        """Routed experts of the layer with fewest, which runs out first; 0 for a dense model."""
        return min((node.experts or 0 for node in self.experts), default=0)


def shape_of(graph: ModelGraph) -> Shape:
    """Collect the nodes the rules read from the layer kinds the stack uses."""
    nodes = list(_distinct(graph))
    attentions = [node for node in nodes if node.op == "Attention"]
    stored = {str(graph.globals_.weight_dtype), *(str(node.weight_dtype) for node in nodes if node.weight_dtype)}
    return Shape(
        attentions=tuple(node for node in attentions if not node.role),
        indexers=tuple(node for node in attentions if node.role),
        recurrents=tuple(node for node in nodes if node.op == "RecurrentUpdate"),
        experts=tuple(node for node in nodes if node.op == "GroupedGEMM"),
        chunked=any(cache.kind == "chunked" for cache in graph.caches),
        stored_dtypes=frozenset(stored),
    )


def _distinct(graph: ModelGraph) -> Iterator[Node]:
    seen: list[Node] = []
    for name in graph.stack.counts():
        for node in graph.layer_kind(name).nodes:
            if node not in seen:
                seen.append(node)
                yield node
