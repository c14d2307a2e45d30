"""What the reference kernel resolves, and what must be refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from steppe.documents import load_bundle
from steppe.errors import DeploymentError, Error
from steppe.resolve.choices import resolve, resolved
from steppe.resolve.resolved import Resolution

ROOT = Path(os.environ.get("STEPPE_GOLDEN", Path(__file__).parents[2] / ".." / "shared" / "golden"))
EXPECTED = ROOT / "expected"
FILES = sorted(p.name for p in EXPECTED.glob("*.json") if p.name != "refusals.json")
REFUSALS: list[dict[str, Any]] = (
    json.loads((EXPECTED / "refusals.json").read_text()) if (EXPECTED / "refusals.json").exists() else []
)
# Layers that end before a coefficient is read; the others belong to the plan.
HERE = ("documents", "engine", "unpriced", "rules")

pytestmark = [
    pytest.mark.golden,
    pytest.mark.skipif(not FILES, reason=f"no golden vectors in {ROOT}; set STEPPE_GOLDEN to their folder"),
]


def opened(scenario: str, pool: int = 0) -> Resolution:
    documents = ROOT / "documents"
    bundle = load_bundle(ROOT / scenario, pool=pool, catalog=documents / "catalog", registry=documents / "registry")
    return resolve(bundle, pool)


@pytest.mark.parametrize("name", FILES)
def test_resolves_as_the_reference(name: str) -> None:
    expected = json.loads((EXPECTED / name).read_text())
    got = resolved(opened(expected["documents"]["scenario"], expected["pool"]))
    skipped = {skip["field"] for skip in expected["skip"]}
    compared = {key: value for key, value in expected["resolved"].items() if f"resolved.{key}" not in skipped}
    assert compared
    assert {key: got[key] for key in compared} == compared


@pytest.mark.parametrize("case", [c for c in REFUSALS if c["layer"] in HERE], ids=lambda c: c["name"])
def test_refuses_and_its_sibling_resolves(case: dict[str, Any]) -> None:
    with pytest.raises(Error) as caught:
        opened(case["scenario"])
    if case["layer"] in ("engine", "unpriced"):
        assert isinstance(caught.value, DeploymentError)
    assert opened(f"documents/scenarios/{case['sibling']}.yaml").settings.block_size > 0


@pytest.mark.parametrize("case", [c for c in REFUSALS if c["layer"] == "reference"], ids=lambda c: c["name"])
def test_limits_of_the_reference_alone_resolve(case: dict[str, Any]) -> None:
    assert opened(case["scenario"]).settings.max_num_seqs > 0
