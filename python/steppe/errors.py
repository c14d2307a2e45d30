"""The errors a caller can meet. All of them are `ValueError`s that name what is wrong and what to change."""

from __future__ import annotations


class Error(ValueError):
    """Base of every error this package raises on purpose."""


class DocumentError(Error):
    """A document is malformed: the message lists every problem with file, line and key path."""


class DeploymentError(Error):
    """The engine would not start this deployment, or this library would not price it truthfully."""


class CoefficientError(Error):
    """A required coefficient is missing, out of scope, or not measured at the width asked for."""
