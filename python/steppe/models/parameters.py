"""Counting the parameters a graph states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steppe.models.stack import unfold


def parameters(graph: Mapping[str, Any], *, speculator: bool = False) -> int:
    """Weights of the target in matrices: layers, head and embedding; norms and biases are left out.

    Args:
        speculator: add the drafter's layers.
    """
    kinds = {kind["id"]: sum(_of(node) for node in kind["nodes"]) for kind in graph["layer_kinds"]}
    total: int = sum(kinds[name] for name in unfold(graph["stack"]))
    if speculator and "speculator" in graph:
        total += sum(kinds[name] for name in unfold(graph["speculator"]["stack"]))
    shared = graph["global"]
    total += shared["hidden_size"] * shared["vocab_size"]
    head = sum(_of(node) for node in graph.get("head", []))
    return total + (0 if shared["tie_word_embeddings"] else head)


def _of(node: Mapping[str, Any]) -> int:
    size = int(node.get("n", 0)) * int(node.get("k", 0))
    if node["op"] == "GEMM":
        return size
    if node["op"] != "GroupedGEMM":
        return 0
    matrices = 3 if node.get("gated", True) else 2
    shared = node.get("shared_experts", 0)
    inner = node.get("shared_intermediate_size") or shared * node["n"]
    return matrices * (size * int(node["experts"]) + int(inner) * int(node["k"]) * (1 if shared else 0))
