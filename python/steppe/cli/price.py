"""`steppe price` and `steppe explain`: step times of a deployment from a shell."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Register the commands."""
