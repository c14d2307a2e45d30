"""Fixed occupancy and per-request bytes of the reference kernel, part by part."""

from __future__ import annotations

import json
from typing import Any

import pytest
from engine_golden import ROOT

from steppe.documents import load_bundle
from steppe.memory import Memory
from steppe.resolve.choices import resolve
from steppe.resolve.coefficients import Coefficients, Scope

FILES = sorted(p for p in (ROOT / "expected").glob("*.json") if p.stem != "refusals")
TOLERANCE = 2  # bytes

pytestmark = [
    pytest.mark.golden,
    pytest.mark.skipif(not FILES, reason=f"golden vectors not found in {ROOT}; set STEPPE_GOLDEN"),
]

PARTS = {
    "weights": "weights",
    "activation_peak": "activations",
    "cuda_graphs": "cuda_graphs",
    "comm_buffers": "comm_buffers",
    "eplb_replicas": "eplb_replicas",
}


def _open(case: dict[str, Any]) -> Memory:
    documents = ROOT / "documents"
    bundle = load_bundle(
        ROOT / case["documents"]["scenario"],
        pool=case.get("pool", 0),
        catalog=documents / "catalog",
        registry=documents / "registry",
    )
    r = resolve(bundle, case.get("pool", 0))
    scope = Scope(r.chip_name, r.model_name, r.widths.tp, r.widths.ep, r.nodes_spanned)
    return Memory(r, Coefficients(bundle.sets, scope, r.ledger))


def _skipped(case: dict[str, Any]) -> set[str]:
    return {entry["field"] for entry in case.get("skip", [])}


@pytest.mark.parametrize("file", FILES, ids=lambda p: p.stem)
def test_memory(file: Any) -> None:
    case = json.loads(file.read_text())
    memory, want, skip = _open(case), case["memory"], _skipped(case)
    fixed = memory.fixed_bytes()
    for theirs, ours in PARTS.items():
        assert abs(getattr(fixed, ours) - want["fixed_bytes"][theirs]) <= TOLERANCE, theirs
    assert fixed.total == sum(getattr(fixed, ours) for ours in PARTS.values()) + fixed.engine_buffers
    if "memory.sequence_fixed_bytes" not in skip:
        assert abs(memory.sequence_fixed_bytes() - want["sequence_fixed_bytes"]) <= TOLERANCE
    if "memory.sequence_variable_bytes" not in skip:
        tokens = [t for t, _ in want["sequence_variable_bytes"]]
        got = memory.sequence_variable_bytes(tokens).tolist()
        for have, (_, bytes_) in zip(got, want["sequence_variable_bytes"], strict=True):
            assert abs(have - bytes_) <= TOLERANCE


def test_what_is_compared() -> None:
    """How many deployments each figure is compared on, so that a growing skip list is noticed."""
    cases = [json.loads(p.read_text()) for p in FILES]
    skips = [_skipped(case) for case in cases]
    compared = {
        name: sum(f"memory.{name}" not in skip for skip in skips)
        for name in ("fixed_bytes", "sequence_fixed_bytes", "sequence_variable_bytes")
    }
    print(compared)
    assert compared["fixed_bytes"] == len(cases)
    assert compared["sequence_variable_bytes"] >= 2 * len(cases) // 3


@pytest.mark.parametrize(
    ("name", "slots"), [("gdn-a-tp4", 2), ("gdn-a-tp4-nopc", 1), ("gdn-a-tp4-spec3", 5), ("gdn-a-tp4-all", 0)]
)
def test_state_slots(name: str, slots: int) -> None:
    """The reference sizes a state otherwise, but counts the same slots: 1 + s, 2 + s or none."""
    file = ROOT / "expected" / f"{name}.json"
    case = json.loads(file.read_text())
    memory = _open(case)
    states = sum(group.lead.kind == "mamba" for group in memory.groups)
    assert memory.sequence_fixed_bytes() == slots * states * memory.bytes_per_block
    one = json.loads((ROOT / "expected" / "gdn-a-tp4-nopc.json").read_text())["memory"]["sequence_fixed_bytes"]
    assert case["memory"]["sequence_fixed_bytes"] == slots * one
