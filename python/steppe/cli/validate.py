"""`steppe validate`: check document files, or print the JSON Schema of a kind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steppe.errors import Error

if TYPE_CHECKING:
    from steppe.documents.inspection import Inspection
    from steppe.documents.problems import Problem

EXIT_PROBLEMS = 2


def validate_files(
    files: Sequence[Path], *, catalog: Path | None = None, registry: Path | None = None
) -> list[Inspection]:
    """Check each file. Bundles are checked with the documents they name, from the given or the embedded roots."""
    from steppe.documents.inspection import inspect_file

    return [inspect_file(file, catalog=catalog, registry=registry) for file in files]


def as_data(inspections: Sequence[Inspection]) -> dict[str, Any]:
    """Inspections as plain data: `ok`, and for each file its kind, problems, refusals and warnings."""
    return {
        "ok": all(inspection.ok for inspection in inspections),
        "files": [
            {
                "file": inspection.file,
                "kind": inspection.kind,
                "ok": inspection.ok,
                "problems": [_problem(item) for item in inspection.problems],
                "refusals": [_problem(item) for item in inspection.refusals],
                "warnings": [_problem(item) for item in inspection.warnings],
            }
            for inspection in inspections
        ],
    }


def _problem(problem: Problem) -> dict[str, Any]:
    return {"file": problem.file, "line": problem.line, "key": problem.key, "message": problem.message}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""

    @app.command()
    def validate(
        files: Annotated[
            list[Path] | None, typer.Argument(help="Documents; bundles of scenario and deployment.")
        ] = None,
        catalog: Annotated[Path | None, typer.Option(help="Root of a catalog; the embedded one by default.")] = None,
        registry: Annotated[
            Path | None, typer.Option(help="Root of a coefficient registry; embedded by default.")
        ] = None,
        schema: Annotated[str | None, typer.Option(metavar="KIND", help="Print the JSON Schema of a kind.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    ) -> None:
        """Check documents: every problem with its file, line and key. Exits with 2 when there is one."""
        try:
            if schema is not None:
                _print_schema(schema)
                return
            if not files:
                raise Error("no file given; name documents to check, or --schema KIND")
            inspections = validate_files(files, catalog=catalog, registry=registry)
        except Error as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(EXIT_PROBLEMS) from None
        if as_json:
            typer.echo(json.dumps(as_data(inspections), indent=2))
        else:
            for inspection in inspections:
                _print(inspection)
        if not all(inspection.ok for inspection in inspections):
            raise typer.Exit(EXIT_PROBLEMS)


def _print_schema(kind: str) -> None:
    from steppe.documents.schema import json_schema

    typer.echo(json.dumps(json_schema(kind), indent=2))


def _print(inspection: Inspection) -> None:
    wrong = [*inspection.problems, *inspection.refusals]
    verdict = f"{len(wrong)} problem{'s' if len(wrong) != 1 else ''}" if wrong else "ok"
    typer.secho(f"{inspection.file} ({inspection.kind}): {verdict}", bold=True)
    for problem in wrong:
        typer.echo(f"  error: {problem}")
    for problem in inspection.warnings:
        typer.echo(f"  warning: {problem}")
