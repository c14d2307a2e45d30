"""The `steppe` command: one module a subcommand, registered here."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated

import typer

from steppe.errors import Error

COMMANDS = ("price", "provenance", "memory", "catalog", "derive", "validate", "calibrate", "score", "sweep")

app = typer.Typer(
    name="steppe",
    help="How long one forward pass takes on vLLM, and how much GPU memory a deployment needs.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from steppe import __version__
        from steppe.engine import v0_31

        typer.echo(f"steppe {__version__}, engine rules vLLM {v0_31.VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print core and engine versions.")
    ] = False,
) -> None:
    """How long one forward pass takes on vLLM, and how much GPU memory a deployment needs."""


for _name in COMMANDS:
    import_module(f"steppe.cli.{_name}").register(app)


def main() -> None:
    """Run the command; an error of the package ends it with one message and exit code 2, never a traceback."""
    try:
        app()
    except Error as error:
        sys.stderr.write(f"steppe: {str(error).replace('Kernel.build: ', '')}\n")
        sys.exit(2)
