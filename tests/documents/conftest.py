"""A small set of documents on disk, to be damaged one key at a time."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from steppe.documents import (
    Chip,
    CoefficientSet,
    Deployment,
    Fabric,
    ModelGraph,
    Scenario,
    StorageDevice,
    Workload,
)
from steppe.documents.base import Document

CHIP = {
    "_comment": "synthetic",
    "Provenance": "derived",
    "TFlopsPeak": 1000,
    "TFlopsFP8": 2000,
    "BwPeakTBs": 4.8,
    "MemoryGiB": 140,
    "IntraNodeBwGBps": 450,
    "SMCount": 132,
    "GPUsPerNode": 8,
}
FABRIC = {"Provenance": "derived", "InterNodeBwGBps": 50, "RDMA": True}
DEVICES = {
    "host-dram": {"read_bandwidth": 50000, "write_bandwidth": 40000, "base_latency": 5, "name": "overwritten"},
    "local-nvme": {"read_bandwidth": 12000, "write_bandwidth": 6000, "base_latency": 80},
}
GRAPH: dict[str, Any] = {
    "kind": "ModelGraph",
    "name": "tiny-moe",
    "derived_from": {"format": "hand_written", "path": "none.json", "sha256": "0" * 64, "deriver_version": 1},
    "global": {"hidden_size": 256, "vocab_size": 1000, "tie_word_embeddings": False, "weight_dtype": "bf16"},
    "layer_kinds": [
        {
            "id": "moe",
            "nodes": [
                {"op": "Elementwise", "role": "norm_in"},
                {"op": "GEMM", "role": "qkv", "n": 512, "k": 256},
                {"op": "Attention", "kind": "gqa", "n_q": 8, "n_kv": 2, "d_h": 32},
                {"op": "GEMM", "role": "out", "n": 256, "k": 256},
                {"op": "AllReduce", "role": "reduce_mixer", "emit": "tensor_parallel"},
                {"op": "GroupedGEMM", "role": "experts", "n": 64, "k": 256, "experts": 16, "top_k": 2},
                {"op": "All2All", "role": "dispatch_combine", "emit": "expert_parallel"},
            ],
            "edges": [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 6]],
        }
    ],
    "stack": {"pattern": ["moe"], "repeat": 4},
    "head": [{"op": "GEMM", "role": "lm_head", "n": 1000, "k": 256}],
}
ENTRY = {
    "value": 0.8,
    "units": "dimensionless",
    "method": "assumed",
    "fitted": False,
    "scope": {"hardware": ["chip-x"]},
    "rationale": "round",
}
SET: dict[str, Any] = {"kind": "CoefficientSet", "name": "hbm", "coefficients": [{"hbm_derate": ENTRY}]}
SCENARIO: dict[str, Any] = {
    "kind": "Scenario",
    "name": "tiny",
    "model": "tiny-moe",
    "engine_version": "0.31.0",
    "coefficients": ["hbm"],
    "cluster": {"hardware": "chip-x", "nodes": 1, "gpus_per_node": 8},
}
DEPLOYMENT: dict[str, Any] = {
    "kind": "Deployment",
    "name": "tiny",
    "pools": [{"role": "colocated", "nodes": 1, "parallel": {"tp": 2, "pp": 1, "dp": 1}, "engine": {}}],
}

DOCUMENTS: dict[str, tuple[type[Document], dict[str, Any]]] = {
    "chip": (Chip, CHIP),
    "fabric": (Fabric, FABRIC),
    "device": (StorageDevice, DEVICES["local-nvme"]),
    "graph": (ModelGraph, GRAPH),
    "set": (CoefficientSet, SET),
    "scenario": (Scenario, SCENARIO),
    "deployment": (Deployment, DEPLOYMENT),
    "workload": (Workload, {"prompt": {"tokens": 100}, "output": {"tokens": 10}}),
}
DROP = object()


def put(data: Any, path: str, value: Any) -> Any:
    """A copy of `data` with the value at `path` (a.b.0.c) replaced, added or dropped."""
    data = copy.deepcopy(data)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    here = data
    for part in parents:
        here = here.setdefault(part, {}) if isinstance(here, dict) else here[part]
    if value is DROP:
        del here[last]
    else:
        here[last] = value
    return data


class Tree:
    """A catalog, a registry and a scenario file under one folder, written from plain data."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.chip, self.fabric, self.devices = copy.deepcopy((CHIP, FABRIC, DEVICES))
        self.graph, self.set = copy.deepcopy((GRAPH, SET))
        self.scenario, self.deployment = copy.deepcopy((SCENARIO, DEPLOYMENT))

    @property
    def pool(self) -> dict[str, Any]:
        return self.deployment["pools"][0]  # type: ignore[no-any-return]

    def write(self) -> Path:
        dump(self.root / "catalog/hardware/chip-x.yaml", self.chip)
        dump(self.root / "catalog/networks/net-x.yaml", self.fabric)
        dump(self.root / "catalog/devices/storage.yaml", self.devices)
        dump(self.root / "catalog/models/tiny-moe/graph.yaml", self.graph)
        dump(self.root / "registry/coefficients/hbm.yaml", self.set)
        return dump(self.root / "scenario.yaml", self.scenario, self.deployment)

    def roots(self) -> dict[str, Path]:
        return {"catalog": self.root / "catalog", "registry": self.root / "registry"}


def dump(path: Path, *documents: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".json":
        path.write_text(json.dumps(documents[0]))
    else:
        path.write_text(yaml.safe_dump_all(documents, sort_keys=False, default_flow_style=None))
    return path


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write text or bytes to a file of a given name and return its path."""

    def write(content: str | bytes, name: str = "document.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write
