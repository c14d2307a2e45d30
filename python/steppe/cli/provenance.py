"""`steppe provenance`: what a deployment's numbers rest on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steppe.cli.deployment import of_deployment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from steppe.kernel import Kernel

JSON = Annotated[bool, typer.Option("--json", help="Print JSON instead of a list.")]


def register(app: typer.Typer) -> None:
    """Register the command."""
    app.command("provenance")(provenance)


@of_deployment
def provenance(
    kernel: Kernel,
    json_output: JSON = False,
) -> None:
    """List what a deployment's numbers rest on: coefficients, laws, assumptions, overrides."""
    found = kernel.provenance()
    if json_output:
        typer.echo(json.dumps(found, indent=2, default=str))
        return
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    _list(console, "Coefficients and laws", map(_used, found["coefficients"]))
    _list(console, "Assumptions", map(_assumed, found["assumptions"]))
    _list(console, "Overrides", map(_overridden, found["overrides"]))


def _used(each: dict[str, Any]) -> tuple[str, list[str]]:
    """Name and value of a coefficient or law, then its evidence."""
    value = "" if each["value"] is None else f" = {each['value']:,.10g} {each['units']}"
    data, error = each["fit"].get("data"), each["fit"].get("held_out_error")
    basis = [*each["sources"], *([str(data)] if data else []), each["rationale"]]
    fitted = f", held-out error x{error:.2f}" if error else ""
    return each["name"] + value, [f"{each['method']}, {each['set']}{fitted}", *filter(None, basis)]


def _assumed(each: dict[str, Any]) -> tuple[str, list[str]]:
    return f"{each['name']} = {each['value']}", [each["reason"]]


def _overridden(each: dict[str, Any]) -> tuple[str, list[str]]:
    return f"{each['field']}: {each['requested']} stated, {each['resolved']} priced", [each["reason"]]


def _list(console: Console, title: str, entries: Iterable[tuple[str, list[str]]]) -> None:
    from rich.padding import Padding

    shown = list(entries)
    if not shown:
        return
    console.print(f"{title} ({len(shown)})\n")
    for name, lines in shown:
        console.print(Padding(name, (0, 0, 0, 2)))
        for line in lines:
            console.print(Padding(line, (0, 0, 0, 6)))
    console.print()
