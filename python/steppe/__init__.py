"""Steppe: how long one forward pass of a deployment takes on vLLM, and how much GPU memory it and each request need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steppe.errors import CoefficientError, DeploymentError, DocumentError, Error

if TYPE_CHECKING:
    from steppe._core import Batch, StepEstimate
    from steppe.kernel import Kernel, open

__version__ = "0.1.0"
__all__ = [
    "Batch",
    "CoefficientError",
    "DeploymentError",
    "DocumentError",
    "Error",
    "Kernel",
    "StepEstimate",
    "open",
]

_LAZY = {"Batch": "steppe._core", "StepEstimate": "steppe._core", "Kernel": "steppe.kernel", "open": "steppe.kernel"}


def __getattr__(name: str) -> Any:
    """Import the kernel, and with it the schema library, at first use: `import steppe` stays light."""
    if name not in _LAZY:
        raise AttributeError(f"module 'steppe' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
