"""The catalog's draft checkpoints, counted layer by layer."""

from __future__ import annotations

from steppe.documents import load_graph
from steppe.models.catalog import CATALOG


def test_eagle3_of_llama_3_1_8b() -> None:
    """One Llama layer whose qkv reads two hidden states, and a head over 32 000 words: 0.37 B with the head, of the
    0.4 B its checkpoint holds together with the projection of three captured states."""
    graph = load_graph(CATALOG / "eagle3-llama-3.1-8b-instruct" / "graph.yaml")
    assert graph.speculator is not None
    assert graph.speculator.hidden_taps == (2, 16, 29)
    assert graph.speculator.own_lm_head
    layer = sum((n.n or 0) * (n.k or 0) for n in graph.layer_kinds[0].nodes)
    head = sum((n.n or 0) * (n.k or 0) for n in graph.head)
    assert layer == 6144 * 8192 + 4096 * 4096 + 3 * 4096 * 14336
    assert head == 32000 * 4096
    assert round((layer + head + 3 * 4096 * 4096) / 1e9, 1) == 0.4
