"""The kernel: one pool of a deployment, resolved once, that prices steps and sizes memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steppe import _core
from steppe._core import Batch, StepEstimate


class Kernel:
    """Prices the steps of one pool of a deployment. Immutable; safe to share between threads.

    Build one with `Kernel.build(model=..., hardware=..., tp=...)` or `steppe.open(path)`.
    """

    def __init__(self, resolution: Any, coefficients: Any, plan: Any) -> None:
        self._resolution = resolution
        self._coefficients = coefficients
        self._core = _core.Kernel(plan)
        self.step_time = self._core.step_time
