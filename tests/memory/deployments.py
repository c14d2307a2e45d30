"""Small deployments for the memory tests: the shipped catalog, or a graph written in the test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steppe.documents import Deployment, ModelGraph, Scenario
from steppe.documents.bundle import make_bundle
from steppe.errors import CoefficientError
from steppe.memory import Memory
from steppe.resolve.choices import resolve
from steppe.resolve.resolved import Resolution

MAGNITUDES = {
    "activation_scratch_floor_bytes": 64 << 20,
    **{f"activation_buffer_count_{kind}_{n}rank": 10.0 for kind in ("dense", "moe") for n in (1, 2, 4, 8)},
    **{
        f"cudagraph_capture_bytes_{mode}": 1 << 30
        for mode in ("none", "piecewise", "full", "full_decode_only", "full_and_piecewise")
    },
    **{f"nccl_communicator_bytes_{n}rank": 300 << 20 for n in (2, 4, 8)},
    "engine_workspace_bytes": 3 << 30,
}
"""Round magnitudes, so that a test depends on no shipped coefficient."""


class Magnitudes:
    """A lookup over a plain mapping."""

    def __init__(self, values: Mapping[str, float]) -> None:
        self.values = dict(values)

    def need(self, name: str, purpose: str) -> float:
        if name not in self.values:
            raise CoefficientError(f"coefficient {name} is missing: {purpose} cannot be sized without it")
        return self.values[name]

    def names(self, prefix: str) -> list[str]:
        return [name for name in self.values if name.startswith(prefix)]


def graph(layer_kinds: list[dict[str, Any]], stack: dict[str, Any], **more: Any) -> ModelGraph:
    """A model graph of 4096 channels unless `hidden_size` says otherwise."""
    shape = {
        "hidden_size": more.pop("hidden_size", 4096),
        "vocab_size": more.pop("vocab_size", 32000),
        "tie_word_embeddings": more.pop("tied", False),
        "weight_dtype": more.pop("weight_dtype", "bf16"),
    }
    for key in ("weight_block", "embedding_dtype"):
        if key in more:
            shape[key] = more.pop(key)
    return ModelGraph.model_validate(
        {
            "kind": "ModelGraph",
            "name": "made-up",
            "derived_from": {
                "format": more.pop("format", "hand_written"),
                "path": "none.json",
                "sha256": "0" * 64,
                "deriver_version": 1,
            },
            "global": shape,
            "layer_kinds": layer_kinds,
            "stack": stack,
            **more,
        }
    )


def resolution(
    model: str | ModelGraph,
    *,
    hardware: str = "h100",
    parallel: Mapping[str, Any] | None = None,
    **engine: Any,
) -> Resolution:
    """One colocated pool. `parallel` adds to tp = pp = dp = 1."""
    widths = {"tp": 1, "pp": 1, "dp": 1, **(parallel or {})}
    nodes = -(-widths["tp"] * widths["dp"] * (widths.get("pcp") or 1) // 8)
    made = model if isinstance(model, ModelGraph) else None
    name = made.name if made is not None else str(model)
    cluster: dict[str, Any] = {"hardware": hardware, "nodes": nodes, "gpus_per_node": 8}
    if nodes > 1:
        cluster["fabric"] = "ib-ndr-400"
    bundle = make_bundle(
        Scenario.model_validate(
            {
                "kind": "Scenario",
                "name": name,
                "model": name,
                "coefficients": [f"{hardware}-engine"],
                "engine_version": "0.31.0",
                "cluster": cluster,
            }
        ),
        Deployment.model_validate(
            {
                "kind": "Deployment",
                "name": name,
                "pools": [{"role": "colocated", "nodes": nodes, "parallel": widths, "engine": engine}],
            }
        ),
        graph=made,
        source="test",
    )
    return resolve(bundle, 0)


def memory(model: str | ModelGraph, *, magnitudes: Mapping[str, float] = MAGNITUDES, **more: Any) -> Memory:
    """Memory of one colocated pool under round magnitudes."""
    return Memory(resolution(model, **more), Magnitudes(magnitudes))
