"""Deployments that draft, built from catalog graphs and drafters made for the tests."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from typing import Any

import steppe
from steppe import _core
from steppe.catalog import Catalog
from steppe.documents import CoefficientSet, Deployment, ModelGraph, Scenario
from steppe.documents.bundle import make_bundle
from steppe.plan.draft_passes import DraftPass, draft_passes
from steppe.plan.drafter import drafter_of

REFERENCE, REFINED = ("reference", "engine"), ("reference", "engine", "refined")


@cache
def _catalog_graph(name: str) -> dict[str, Any]:
    return Catalog().model(name).model_dump(mode="json", by_alias=True, exclude_defaults=True)


def graph(name: str, **changes: Any) -> ModelGraph:
    """A catalog graph with some sections replaced."""
    return ModelGraph.model_validate({**copy.deepcopy(_catalog_graph(name)), **changes})


def dense_draft(
    method: str, layers: int = 2, *, fuse: bool = False, dtype: str = "bf16", **speculator: Any
) -> ModelGraph:
    """A drafter of Llama 3.1 8B layers with a checkpoint of its own."""
    raw = copy.deepcopy(_catalog_graph("llama-3.1-8b-instruct"))
    kind = raw["layer_kinds"][0]
    if fuse:
        join = {"op": "GEMM", "role": "fuse", "n": 4096, "k": 8192, "replicated": True}
        kind["nodes"] = [join, *kind["nodes"]]
        kind["edges"] = []
    raw["global"]["weight_dtype"] = dtype
    stack = {"pattern": [kind["id"]], "repeat": layers}
    section = {"method": method, "num_spec_tokens": speculator.pop("num_spec_tokens", 3), "stack": stack, **speculator}
    return ModelGraph.model_validate({**raw, "name": "draft", "stack": stack, "speculator": section})


def modules(count: int) -> ModelGraph:
    """DeepSeek-V3 with `count` prediction modules."""
    stack = {"pattern": ["mtp_mla_moe"], "repeat": count}
    return graph("deepseek-v3", speculator={"method": "mtp", "num_spec_tokens": count, "stack": stack})


def kernel(
    method: str = "",
    tokens: int = 3,
    *,
    target: str | ModelGraph = "llama-3.1-8b-instruct",
    draft: ModelGraph | None = None,
    hardware: str = "h100",
    sets: tuple[str, ...] = REFINED,
    speculative: dict[str, Any] | None = None,
    engine: dict[str, Any] | None = None,
    numbers: dict[str, float] | None = None,
    **parallel: Any,
) -> steppe.Kernel:
    """A kernel of one pool; `parallel` are widths (`ep=True` spreads experts), `numbers` coefficients to replace."""
    layout: dict[str, Any] = {"tp": 1, "pp": 1, "dp": 1, **parallel}
    layout["enable_expert_parallel"] = layout.pop("ep", False)
    stated = dict(engine or {})
    if method:
        stated["speculative"] = {"method": method, "num_spec_tokens": tokens, **(speculative or {})}
    name = target if isinstance(target, str) else target.name
    scenario = {
        "kind": "Scenario",
        "name": "drafting",
        "model": name,
        "coefficients": [f"{hardware}-{each}" for each in sets],
        "engine_version": "0.31.0",
        "cluster": {"hardware": hardware, "nodes": 1, "gpus_per_node": 8},
    }
    deployment = {
        "kind": "Deployment",
        "name": "drafting",
        "pools": [{"role": "colocated", "nodes": 1, "parallel": layout, "engine": stated}],
    }
    bundle = make_bundle(
        Scenario.model_validate(scenario),
        Deployment.model_validate(deployment),
        graph=None if isinstance(target, str) else target,
    )
    bundle = replace(bundle, draft=draft) if draft is not None else bundle
    if numbers:
        bundle = replace(bundle, sets=[_renumbered(each, numbers) for each in bundle.sets])
    return steppe.Kernel.from_bundle(bundle)


def _renumbered(each: CoefficientSet, numbers: dict[str, float]) -> CoefficientSet:
    entries = tuple(
        entry.model_copy(update={"value": numbers[entry.name], "method": "assumed"}) if entry.name in numbers else entry
        for entry in each.coefficients
    )
    return each.model_copy(update={"coefficients": entries})


def passes(k: steppe.Kernel) -> list[tuple[DraftPass, Any]]:
    """The draft passes of a kernel, as planned and as the core holds them."""
    drafter = drafter_of(k.resolution, k._coefficients)
    if drafter is None:
        return []
    planned = draft_passes(drafter.drafting)
    held = k._core.plan.passes[1:]
    assert len(planned) == len(held)
    return list(zip(planned, held, strict=True))


def features(k: steppe.Kernel, batch: steppe.Batch, run: int = 0) -> list[dict[str, Any]]:
    """Features of run `run` of every draft pass."""
    return [_core.draft_features(k._core.plan.features, held, batch, run) for _, held in passes(k)]


def graph_mode(k: steppe.Kernel, planned: DraftPass, batch: steppe.Batch, f: dict[str, Any]) -> str:
    """FULL, PIECEWISE or EAGER: what the pass is charged under."""
    if f["unpadded"]:
        return "EAGER"
    if planned.graph == "own":
        return "FULL"
    full = k.resolution.settings.cudagraph_mode in ("FULL", "FULL_AND_PIECEWISE")
    target = _core.features(k._core.plan.features, batch)
    return "FULL" if full and target["uniform"] and planned.graph == "target" else "PIECEWISE"


def draft_rows(estimate: Any) -> list[tuple[str, str, str, float, float, float, float]]:
    """The breakdown's draft part."""
    return [row for row in estimate.rows if row[0].startswith("draft")]
