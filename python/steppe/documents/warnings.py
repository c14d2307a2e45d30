"""What a document may say but should not go unnoticed. Warnings never stop a load; bundles collect them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from steppe.documents.coefficients import CoefficientSet
from steppe.documents.deployment import Deployment, Pool
from steppe.documents.graph import ModelGraph, Node
from steppe.documents.problems import KeyPath, suggestion
from steppe.documents.vocabulary import COLLECTIVES, EMIT_CONDITIONS, EVICTION_POLICIES
from steppe.engine.v0_31.caches import CACHE_DTYPES
from steppe.engine.v0_31.parallel import CUSTOM_ALL_REDUCE_WIDTHS
from steppe.engine.v0_31.quantization import METHODS as QUANTIZATIONS
from steppe.engine.v0_31.transfer import CONNECTORS

Found = tuple[KeyPath, str]


def warnings_of(document: Any) -> list[Found]:
    """Warnings of one document by itself: (key path, message)."""
    if isinstance(document, CoefficientSet):
        return list(_of_coefficients(document))
    if isinstance(document, ModelGraph):
        return list(_of_graph(document))
    if isinstance(document, Deployment):
        return list(_of_deployment(document))
    return []


def _of_coefficients(document: CoefficientSet) -> Iterator[Found]:
    for index, entry in enumerate(document.coefficients):
        if entry.method == "assumed" and not entry.rationale.strip():
            yield ("coefficients", index, entry.name, "rationale"), "missing on an assumed value; say why it was chosen"


def _of_graph(graph: ModelGraph) -> Iterator[Found]:
    for index, kind in enumerate(graph.layer_kinds):
        for position, node in enumerate(kind.nodes):
            yield from _of_node(node, ("layer_kinds", index, "nodes", position))
    for position, node in enumerate(graph.head):
        yield from _of_node(node, ("head", position))


def _of_node(node: Node, path: KeyPath) -> Iterator[Found]:
    if node.op in COLLECTIVES and node.emit not in EMIT_CONDITIONS:
        yield (*path, "emit"), f"'{node.emit}' is no known condition; {suggestion(node.emit, EMIT_CONDITIONS)}"


def _of_deployment(deployment: Deployment) -> Iterator[Found]:
    for index, pool in enumerate(deployment.pools):
        for path, message in _of_pool(pool):
            yield ("pools", index, *path), message
    if deployment.offload:
        policy, connector = deployment.offload.eviction_policy, deployment.offload.connector
        if policy and policy not in EVICTION_POLICIES:
            yield ("offload", "eviction_policy"), f"'{policy}' is unknown; {suggestion(policy, EVICTION_POLICIES)}"
        if connector and connector not in CONNECTORS:
            yield ("offload", "connector"), f"'{connector}' is unknown; {suggestion(connector, CONNECTORS)}"
    if deployment.pd_transfer and deployment.pd_transfer.connector not in CONNECTORS:
        connector = deployment.pd_transfer.connector
        yield ("pd_transfer", "connector"), f"'{connector}' is unknown; {suggestion(connector, CONNECTORS)}"


def _of_pool(pool: Pool) -> Iterator[Found]:
    engine, tp = pool.engine, pool.parallel.tp
    if engine.quantization and engine.quantization not in QUANTIZATIONS:
        hint = suggestion(engine.quantization, QUANTIZATIONS)
        yield ("engine", "quantization"), f"'{engine.quantization}' is unknown to the engine; {hint}"
    if engine.cache_dtype and engine.cache_dtype not in CACHE_DTYPES:
        hint = suggestion(engine.cache_dtype, CACHE_DTYPES)
        yield ("engine", "cache_dtype"), f"'{engine.cache_dtype}' is unknown to the engine; {hint}"
    dbo = engine.dbo
    if dbo and dbo.enable_dbo and (dbo.dbo_decode_token_threshold is None or dbo.dbo_prefill_token_threshold is None):
        yield ("engine", "dbo"), "states no threshold; the engine's 32 decode and 512 prefill tokens hold"
    if engine.allreduce_backend == "custom" and tp > 1 and tp not in CUSTOM_ALL_REDUCE_WIDTHS:
        yield ("engine", "allreduce_backend"), f"custom all-reduce does not run at tp {tp}; NCCL runs instead"
