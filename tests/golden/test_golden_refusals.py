"""Deployments one setting away from a good one are refused with one clear message; the good one builds."""

from __future__ import annotations

from typing import Any

import golden_files
import pytest

import steppe

CASES = golden_files.refusals()
pytestmark = [pytest.mark.golden, pytest.mark.skipif(not CASES, reason=golden_files.ABSENT)]

# A limit of the reference kernel alone (golden README, "Refusals"): what this package does instead is stated here.
BUILDS_HERE = {
    "r-engine-version": "rules of other 0.x releases are those of 0.31, recorded as an assumption",
}
BY_LAYER = {
    "documents": (steppe.DocumentError, steppe.DeploymentError, steppe.CoefficientError),
    "coefficients": (steppe.CoefficientError,),
    "engine": (steppe.DeploymentError, steppe.DocumentError),
    "unpriced": (steppe.Error,),
    "reference": (steppe.Error,),
    "rules": (steppe.DeploymentError, steppe.DocumentError),
}


def refused(case: dict[str, Any]) -> None:
    """Do what must raise: open the deployment and, where a magnitude of memory is missing, size it."""
    kernel = golden_files.open_golden(case["scenario"])
    if case["name"] in ("r-no-memory", "r-no-capture"):
        if not hasattr(kernel, "fixed_bytes"):
            pytest.skip("this kernel sizes no memory yet")
        kernel.fixed_bytes()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_refused(case: dict[str, Any]) -> None:
    if case["name"] in BUILDS_HERE:
        golden_files.open_golden(case["scenario"])
        return
    with pytest.raises(steppe.Error) as caught:
        refused(case)
    assert isinstance(caught.value, BY_LAYER[case["layer"]]), f"{type(caught.value).__name__}: {caught.value}"
    message = str(caught.value)
    assert 20 <= len(message) <= 1500, message
    assert "Traceback" not in message


@pytest.mark.parametrize("name", sorted({case["sibling"] for case in CASES}))
def test_sibling_builds(name: str) -> None:
    kernel = golden_files.open_golden(f"documents/scenarios/{name}.yaml")
    assert kernel.step_time(steppe.Batch([1] * 4, [100] * 4)).no_overlap > 0
