"""The golden vectors as tests read them: where they lie, what a file holds, what its `skip` list leaves out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import steppe

ROOT = Path(os.environ.get("STEPPE_GOLDEN", Path(__file__).resolve().parents[3] / "shared" / "golden"))
ABSENT = f"no golden vectors at {ROOT}: set STEPPE_GOLDEN to their folder"
CATALOG, REGISTRY = ROOT / "documents" / "catalog", ROOT / "documents" / "registry"
RESOURCES = ("sm", "hbm", "nvlink", "nic", "host")


def names() -> list[str]:
    """Every expected file of a deployment that builds."""
    return sorted(path.stem for path in (ROOT / "expected").glob("*.json") if path.stem != "refusals")


def refusals() -> list[dict[str, Any]]:
    """Deployments that must be refused."""
    path = ROOT / "expected" / "refusals.json"
    return json.loads(path.read_text()) if path.exists() else []


@dataclass(frozen=True)
class Golden:
    """One expected file and the kernel of its deployment."""

    data: dict[str, Any]
    kernel: steppe.Kernel
    skipped: frozenset[str]

    def skips(self, field: str) -> bool:
        """Whether `skip` names the field or something above it (`batches.x` is the field x of every batch)."""
        parts = field.split(".")
        return any(".".join(parts[: i + 1]) in self.skipped for i in range(len(parts)))

    def batches(self) -> Iterator[tuple[dict[str, Any], steppe.Batch]]:
        """Each case with its batch; `reqs` is run-length coded."""
        for case in self.data["batches"]:
            scheduled = [tokens for count, tokens, _, _ in case["reqs"] for _ in range(count)]
            computed = [past for count, _, past, _ in case["reqs"] for _ in range(count)]
            settings = {"decode_threshold": case["decode_threshold"], "sm_budget": case["sm_budget"]}
            yield case, steppe.Batch(scheduled, computed, **settings)


@cache
def load(name: str) -> Golden:
    """Read an expected file and build its kernel."""
    data = json.loads((ROOT / "expected" / f"{name}.json").read_text())
    kernel = open_golden(data["documents"]["scenario"], data["pool"])
    return Golden(data, kernel, frozenset(each["field"] for each in data["skip"]))


def open_golden(scenario: str, pool: int = 0) -> steppe.Kernel:
    """Open a scenario of the golden documents."""
    return steppe.open(ROOT / scenario, pool or 0, catalog=CATALOG, registry=REGISTRY)


def within(got: int, want: int, nanoseconds: int) -> bool:
    """The rule of the golden README: 1e-9 relative plus a number of nanoseconds."""
    return abs(got - want) <= 1e-9 * abs(want) + nanoseconds
