"""Rules between documents: does the deployment fit the scenario's cluster, the model and the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from steppe.documents.deployment import Deployment, Eplb, Pool
from steppe.documents.graph import ModelGraph
from steppe.documents.problems import KeyPath
from steppe.documents.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Breach:
    """A broken rule. `about` names the document at fault.

    `level` is `document` where documents contradict each other, `engine` where the engine would not start the layout,
    `warning` where it would.
    """

    about: Literal["scenario", "deployment"]
    path: KeyPath
    message: str
    level: Literal["document", "engine", "warning"] = "document"


def cluster_breaches(scenario: Scenario, deployment: Deployment) -> Iterator[Breach]:
    """Rules between a deployment and the machines it runs on."""
    cluster = scenario.cluster
    nodes = sum(pool.nodes for pool in deployment.pools)
    if nodes != cluster.nodes:
        yield Breach(
            "deployment",
            ("pools",),
            f"pools take {nodes} nodes while cluster.nodes is {cluster.nodes}; make them equal",
        )
    for index, pool in enumerate(deployment.pools):
        for path, message in _pool_fit(pool, cluster.gpus_per_node):
            yield Breach("deployment", ("pools", index, *path), message)
    if deployment.offload and cluster.storage:
        for index, tier in enumerate(deployment.offload.tiers):
            if tier.tier not in cluster.storage:
                listed = ", ".join(cluster.storage)
                yield Breach(
                    "deployment",
                    ("offload", "tiers", index, "tier"),
                    f"'{tier.tier}' is not in cluster.storage ({listed}); list it there or drop the tier",
                )


def _pool_fit(pool: Pool, gpus_per_node: int) -> Iterator[tuple[KeyPath, str]]:
    parallel = pool.parallel
    gpus = pool.nodes * gpus_per_node
    if parallel.ranks > gpus:
        yield (
            ("parallel",),
            f"pp*tp*pcp*dp is {parallel.ranks} ranks on {gpus} GPUs ({pool.nodes} nodes of {gpus_per_node}); "
            "lower a width or add nodes",
        )
    local = parallel.dp_local
    if not local:
        return
    if gpus_per_node % local:
        yield ("parallel", "dp_local"), f"{local} does not divide gpus_per_node {gpus_per_node}; use a divisor"
    per_replica = parallel.ranks // parallel.dp
    # one replica wider than a node spans nodes; several on one node must fit it
    if local > 1 and local * per_replica > gpus_per_node:
        yield (
            ("parallel", "dp_local"),
            f"{local} replicas of {per_replica} GPUs do not fit a node of {gpus_per_node}; lower dp_local",
        )


def engine_breaches(deployment: Deployment, graph: ModelGraph) -> Iterator[Breach]:
    """Rules between a deployment and the model which the engine enforces at start-up."""
    expert_counts = sorted({node.experts for kind in graph.layer_kinds for node in kind.nodes if node.experts})
    recurrent = any(node.op == "RecurrentUpdate" for kind in graph.layer_kinds for node in kind.nodes)
    for index, pool in enumerate(deployment.pools):
        here: KeyPath = ("pools", index)
        if (pool.parallel.pcp or 1) > 1 and pool.parallel.dp > 1:
            yield Breach(
                "deployment",
                (*here, "parallel", "pcp"),
                f"pcp {pool.parallel.pcp} with dp {pool.parallel.dp}; the engine runs one or the other, set one to 1",
                "engine",
            )
        for experts in expert_counts:
            yield from _expert_breaches(pool, experts, here)
        if pool.engine.mamba_cache_mode and not recurrent:
            yield Breach(
                "deployment",
                (*here, "engine", "mamba_cache_mode"),
                "is stated for a model without recurrent layers; it has no effect",
                "warning",
            )


def _expert_breaches(pool: Pool, experts: int, here: KeyPath) -> Iterator[Breach]:
    width = pool.parallel.ep_width
    eplb = pool.engine.eplb or Eplb()
    if width == 1:
        return
    redundant = eplb.num_redundant_experts if eplb.enable_eplb else 0
    physical = experts + redundant
    if width > physical:
        yield Breach(
            "deployment",
            (*here, "parallel"),
            f"the expert group of {width} is wider than the {physical} experts; lower tp, pcp or dp",
            "engine",
        )
    elif eplb.enable_eplb and physical % width:
        wanted = -(-experts // width) * width - experts
        yield Breach(
            "deployment",
            (*here, "engine", "eplb", "num_redundant_experts"),
            f"{experts} + {redundant} experts do not divide over {width} ranks; use {wanted} or more by {width}",
            "engine",
        )
    elif physical % width:
        yield Breach(
            "deployment",
            (*here, "parallel"),
            f"{physical} experts do not divide over {width} ranks; the fullest rank decides",
            "warning",
        )
