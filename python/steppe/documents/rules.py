"""Rules between documents: does the deployment fit the scenario's cluster, the model and the catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from steppe.documents.base import duplicates
from steppe.documents.deployment import Deployment, Eplb, Pool
from steppe.documents.graph import ModelGraph
from steppe.documents.hardware import Chip, StorageDevice
from steppe.documents.problems import KeyPath, suggestion
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


def device_breaches(
    scenario: Scenario, deployment: Deployment, devices: Mapping[str, StorageDevice]
) -> Iterator[Breach]:
    """Offload tiers must be devices of the cluster, or of the catalog where the cluster lists none."""
    listed = scenario.cluster.storage
    for index, tier in enumerate(deployment.offload.tiers if deployment.offload else ()):
        path: KeyPath = ("offload", "tiers", index, "tier")
        if listed and tier.tier not in listed:
            message = f"'{tier.tier}' is not in cluster.storage ({', '.join(listed)}); list it there or drop the tier"
            yield Breach("deployment", path, message)
        elif not listed and tier.tier not in devices:
            yield Breach("deployment", path, f"unknown device '{tier.tier}'; {suggestion(tier.tier, devices)}")


def naming_breaches(scenario: Scenario, graph: ModelGraph | None, chip: Chip | None) -> Iterator[Breach]:
    """What a scenario says of its model and part without meaning it, probably."""
    if graph is not None and graph.name != scenario.model:
        message = f"the graph of '{scenario.model}' calls itself '{graph.name}'; one of the two is misnamed"
        yield Breach("scenario", ("model",), message, "warning")
    stated = scenario.cluster.gpus_per_node
    if chip is not None and chip.gpus_per_node and stated > chip.gpus_per_node:
        message = f"{stated} GPUs in a node of a part that comes {chip.gpus_per_node} to the node"
        yield Breach("scenario", ("cluster", "gpus_per_node"), message, "warning")
    for name in duplicates(scenario.coefficients):
        yield Breach("scenario", ("coefficients",), f"'{name}' is listed twice; once is enough", "warning")


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
        yield from _eplb_breaches(pool, here)
        for experts in expert_counts if pool.parallel.ep_width > 1 else ():
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
    physical = experts + (eplb.num_redundant_experts if eplb.enable_eplb else 0)
    if width > physical:
        message = f"the expert group of {width} is wider than the {physical} experts; lower tp, pcp or dp"
        yield Breach("deployment", (*here, "parallel"), message, "engine")
    elif eplb.enable_eplb and physical % width:
        least = -experts % width
        message = (
            f"{experts} + {eplb.num_redundant_experts} experts do not divide over {width} ranks; "
            f"use {least}, {least + width}, {least + 2 * width}, ..."
        )
        yield Breach("deployment", (*here, "engine", "eplb", "num_redundant_experts"), message, "engine")
    elif physical % width:
        message = f"{physical} experts do not divide over {width} ranks; the fullest rank decides"
        yield Breach("deployment", (*here, "parallel"), message, "warning")


def _eplb_breaches(pool: Pool, here: KeyPath) -> Iterator[Breach]:
    """Balancing needs an expert group, and replicas need balancing (vllm/config/parallel.py:530-562)."""
    eplb = pool.engine.eplb or Eplb()
    path: KeyPath = (*here, "engine", "eplb")
    if eplb.enable_eplb and pool.parallel.ep_width == 1:
        message = "needs enable_expert_parallel and tp, pcp or dp above 1; set them or drop eplb"
        yield Breach("deployment", (*path, "enable_eplb"), message, "engine")
    if eplb.num_redundant_experts and not eplb.enable_eplb:
        message = "replicas without enable_eplb; enable it or set 0"
        yield Breach("deployment", (*path, "num_redundant_experts"), message, "engine")
