"""Steppe: how long one forward pass of a deployment takes on vLLM, and how much GPU memory it and each request need."""

from steppe.errors import CoefficientError, DeploymentError, DocumentError, Error

__all__ = ["CoefficientError", "DeploymentError", "DocumentError", "Error"]
__version__ = "0.1.0"
