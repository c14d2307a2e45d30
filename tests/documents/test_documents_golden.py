"""The golden documents: every deployment loads, every malformed one is refused, its sibling is not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from steppe.documents import load_bundle
from steppe.errors import DeploymentError, DocumentError, Error

GOLDEN = Path(os.environ.get("STEPPE_GOLDEN") or Path(__file__).parents[2] / "../shared/golden").resolve()
ROOTS = {"catalog": GOLDEN / "documents/catalog", "registry": GOLDEN / "documents/registry"}
# the engine's own refusals that follow from the documents alone, and are refused while loading
EARLY = {"r-ep-too-wide", "r-rule-eplb", "r-rule-pcp-dp"}

pytestmark = [
    pytest.mark.golden,
    pytest.mark.skipif(not (GOLDEN / "expected").is_dir(), reason=f"no golden vectors at {GOLDEN}; set STEPPE_GOLDEN"),
]


def refusals() -> list[Any]:
    path = GOLDEN / "expected/refusals.json"
    return json.loads(path.read_text()) if path.is_file() else []  # type: ignore[no-any-return]


def deployments() -> list[str]:
    return sorted(path.stem for path in GOLDEN.glob("expected/*.json") if path.stem != "refusals")


def head(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / f"expected/{name}.json").read_text())  # type: ignore[no-any-return]


def sibling(name: str) -> str:
    """A sibling is named by deployment; one of several pools has a file for each."""
    return name if (GOLDEN / f"expected/{name}.json").is_file() else f"{name}.pool0"


@pytest.mark.parametrize("name", deployments())
def test_a_golden_deployment_loads(name: str) -> None:
    expected = head(name)
    documents = expected["documents"]
    bundle = load_bundle(GOLDEN / documents["scenario"], pool=expected["pool"], **ROOTS)
    assert bundle.model_name == Path(documents["model"]).parent.name == bundle.graph.name
    assert bundle.chip_name == Path(documents["chip"]).stem
    assert (bundle.fabric is None) == (not documents.get("fabric"))
    assert [Path(path).stem for path in documents["coefficients"]] == [one.name for one in bundle.sets]


@pytest.mark.parametrize("refusal", refusals(), ids=lambda refusal: refusal["name"])
def test_a_golden_refusal(refusal: dict[str, Any]) -> None:
    path = GOLDEN / refusal["scenario"]
    if refusal["name"] in EARLY:
        with pytest.raises(DeploymentError):
            load_bundle(path, **ROOTS)
    elif refusal["layer"] in ("documents", "rules"):
        with pytest.raises(DocumentError, match=r"\.yaml") as caught:
            load_bundle(path, **ROOTS)
        assert len(str(caught.value).splitlines()) <= 3
    else:
        assert load_bundle(path, **ROOTS).scenario.name == refusal["name"]


@pytest.mark.parametrize("refusal", refusals(), ids=lambda refusal: refusal["name"])
def test_the_sibling_of_a_refusal_loads(refusal: dict[str, Any]) -> None:
    expected = head(sibling(refusal["sibling"]))
    try:
        load_bundle(GOLDEN / expected["documents"]["scenario"], **ROOTS)
    except Error as error:
        pytest.fail(str(error))
