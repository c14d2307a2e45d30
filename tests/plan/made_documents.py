"""The hand-made documents of tests/data as plain maps, and deployments built from such maps in memory.

`Setup` holds one deployment's documents. Tests change copies of the maps and compare `kernel(setup)` with what the
reference oracle makes of `deployed(setup)`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from reference_oracle import Deployed

import steppe
from steppe.documents import (
    Bundle,
    Chip,
    CoefficientSet,
    Deployment,
    Fabric,
    ModelGraph,
    Scenario,
    load_coefficient_set,
)

DATA = Path(__file__).parent.parent / "data"
MODELS = ("plain", "mixture", "windows", "latent", "indexed", "pooled", "delta", "scan", "keyed")
PARTS = ("part-nine", "part-ten", "part-eight", "part-rack")
NETWORK = 37.5  # GB/s, as net-300 states


@cache
def _read(path: Path) -> Any:
    with path.open() as stream:
        return yaml.load(stream, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def graph_of(name: str) -> dict[str, Any]:
    """A copy of a model's document."""
    return copy.deepcopy(_read(DATA / "catalog" / "models" / name / "graph.yaml"))


def chip_of(name: str) -> dict[str, Any]:
    """A copy of a part's document."""
    return copy.deepcopy(_read(DATA / "catalog" / "hardware" / f"{name}.yaml"))


@cache
def _numbers(set_name: str, part: str) -> dict[str, tuple[float, str]]:
    found = {}
    for entry in _read(DATA / "registry" / "coefficients" / f"{set_name}.yaml")["coefficients"]:
        for name, body in entry.items():
            if part in body["scope"]["hardware"]:
                found[name] = (float(body["value"]), body["units"])
    return found


def numbers_of(part: str, *, shape: bool = False) -> dict[str, float]:
    """Coefficients in scope of a part by name; `shape` adds the shape ramp."""
    names = ("steps", "shape") if shape else ("steps",)
    return {name: value for each in names for name, (value, _) in _numbers(each, part).items()}


@dataclass(frozen=True)
class Setup:
    """One deployment's documents as plain maps."""

    model: str = "plain"
    part: str = "part-nine"
    graph: dict[str, Any] = field(default_factory=dict, repr=False)
    chip: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict, repr=False)
    parallel: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)

    def number(self, **changed: float) -> Setup:
        """A copy with coefficients replaced."""
        return replace(self, numbers={**self.numbers, **changed})

    def without(self, *names: str) -> Setup:
        """A copy without these coefficients."""
        return replace(self, numbers={name: value for name, value in self.numbers.items() if name not in names})

    def laid_out(self, **parallel: Any) -> Setup:
        """A copy with parallel widths replaced."""
        return replace(self, parallel={**self.parallel, **parallel})

    def run_with(self, **engine: Any) -> Setup:
        """A copy with engine settings replaced."""
        return replace(self, engine={**self.engine, **engine})


ENGINE = {
    "max_num_seqs": 256,
    "max_num_batched_tokens": 16384,
    "block_size": 64,
    "cudagraph_mode": "FULL_AND_PIECEWISE",
}


def setup(model: str = "plain", part: str = "part-nine", *, shape: bool = False, **parallel: Any) -> Setup:
    """The documents of a hand-made model on a hand-made part."""
    return Setup(
        model, part, graph_of(model), chip_of(part), numbers_of(part, shape=shape),
        {"tp": 1, "pp": 1, "dp": 1} | parallel,
        dict(ENGINE),
    )  # fmt: skip


@cache
def _sizes() -> CoefficientSet:
    """What a rank's memory holds, which a kernel sizes when it is built."""
    return load_coefficient_set(DATA / "registry" / "coefficients" / "sizes.yaml")


def ranks(s: Setup) -> int:
    """GPUs of the deployment."""
    p = s.parallel
    return int(p["tp"] * p["dp"] * p.get("pcp", 1))


def bundle(s: Setup) -> Bundle:
    """The documents as the package reads them."""
    per_node = int(s.chip["GPUsPerNode"])
    nodes = max(1, -(-ranks(s) // per_node))
    units = {name: unit for each in ("steps", "shape") for name, (_, unit) in _numbers(each, s.part).items()}
    entries = [
        {
            name: {
                "value": value,
                "units": units[name],
                "method": "assumed",
                "fitted": False,
                "scope": {"hardware": [s.part]},
                "rationale": "made up",
            }
        }
        for name, value in s.numbers.items()
    ]
    cluster = {"hardware": s.part, "nodes": nodes, "gpus_per_node": per_node, "fabric": "net-300" if nodes > 1 else ""}
    scenario = {
        "kind": "Scenario",
        "name": "made",
        "model": s.model,
        "engine_version": "0.31.0",
        "coefficients": ["made"],
        "cluster": cluster,
    }
    pool = {"role": "colocated", "nodes": nodes, "parallel": s.parallel, "engine": s.engine}
    return Bundle(
        scenario=Scenario.model_validate(scenario),
        deployment=Deployment.model_validate({"kind": "Deployment", "name": "made", "pools": [pool]}),
        pool_index=0,
        graph=ModelGraph.model_validate(s.graph),
        chip=Chip.model_validate(s.chip),
        fabric=Fabric.model_validate({"Provenance": "derived", "InterNodeBwGBps": NETWORK}) if nodes > 1 else None,
        storage={},
        sets=[
            CoefficientSet.model_validate({"kind": "CoefficientSet", "name": "made", "coefficients": entries}),
            _sizes(),
        ],
        model_name=s.model,
        chip_name=s.part,
    )


def kernel(s: Setup) -> steppe.Kernel:
    """The kernel of the documents."""
    return steppe.Kernel.from_bundle(bundle(s))


def deployed(s: Setup) -> Deployed:
    """The documents as the oracle reads them."""
    p = s.parallel
    return Deployed(
        graph=s.graph,
        chip=s.chip,
        chip_name=s.part,
        numbers=s.numbers,
        tp=p["tp"],
        dp=p["dp"],
        pcp=p.get("pcp", 1),
        dcp=p.get("dcp", 1),
        expert_parallel=p.get("enable_expert_parallel", False),
        gpus_per_node=int(s.chip["GPUsPerNode"]),
        network=NETWORK if ranks(s) > int(s.chip["GPUsPerNode"]) else 0.0,
        engine=s.engine,
    )
