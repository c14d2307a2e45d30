"""Steppe: how long one forward pass of a deployment takes on vLLM, and how much GPU memory it and each request need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steppe.errors import CoefficientError, DeploymentError, DocumentError, Error

if TYPE_CHECKING:
    from steppe._core import ESTIMATE_DTYPE, RESOURCES, Batch, RunningBatch, StepEstimate
    from steppe.kernel import Kernel, open
    from steppe.package import get_cmake_dir, get_include, get_library
    from steppe.pricing import PricingKernel

__version__ = "0.1.0"
__all__ = [
    "ESTIMATE_DTYPE",
    "RESOURCES",
    "Batch",
    "CoefficientError",
    "DeploymentError",
    "DocumentError",
    "Error",
    "Kernel",
    "PricingKernel",
    "RunningBatch",
    "StepEstimate",
    "get_cmake_dir",
    "get_include",
    "get_library",
    "open",
]

_LAZY = {
    "ESTIMATE_DTYPE": "steppe._core",
    "RESOURCES": "steppe._core",
    "Batch": "steppe._core",
    "RunningBatch": "steppe._core",
    "StepEstimate": "steppe._core",
    "Kernel": "steppe.kernel",
    "PricingKernel": "steppe.pricing",
    "get_cmake_dir": "steppe.package",
    "get_include": "steppe.package",
    "get_library": "steppe.package",
    "open": "steppe.kernel",
}


def __getattr__(name: str) -> Any:
    """Import the kernel, and with it the schema library, at first use: `import steppe` stays light."""
    if name not in _LAZY:
        raise AttributeError(f"module 'steppe' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
