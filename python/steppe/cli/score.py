"""`steppe score`: predictions against measured serving points."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

MEMORY_WIDTH = 100

FileArgument = Annotated[Path, typer.Argument(help="CSV of serving points (docs/research/accuracy.md)")]
MemoryOption = Annotated[bool, typer.Option("--memory", help="FILE holds start-ups: score memory instead")]
JsonOption = Annotated[bool, typer.Option("--json", help="print rows, cells and summary as JSON")]
PlotOption = Annotated[Path | None, typer.Option("--plot", help="folder for a parity plot and the error distribution")]
ReportOption = Annotated[Path | None, typer.Option("--report", help="write the tables as Markdown")]


def score(
    file: FileArgument,
    memory: MemoryOption = False,
    json_output: JsonOption = False,
    plot: PlotOption = None,
    report: ReportOption = None,
) -> None:
    """Score predictions on measured serving points, or on measured start-ups with --memory.

    Rows that are refused are listed with their reason. Nothing is fitted to the file.
    """
    rows, made, table, text = _memory(file) if memory else _serving(file)
    console = Console(stderr=True)
    if plot is not None:
        if memory:
            raise typer.BadParameter("--plot draws serving points; leave it out with --memory")
        from steppe.score.report import plots

        for path in plots(rows, plot):
            console.print(f"wrote {path}")
    if report is not None:
        report.write_text(text, encoding="utf-8")
        console.print(f"wrote {report}")
    if json_output:
        typer.echo(json.dumps(made, indent=2))
    else:
        out = Console()
        # Output that is no terminal counts as 80 columns, too few for the table of start-ups.
        (out if out.is_terminal or not memory else Console(width=MEMORY_WIDTH)).print(table)


def _serving(file: Path) -> tuple[list[Any], dict[str, object], Any, str]:
    from steppe.score.points import read_points
    from steppe.score.predict import predict, rows_json
    from steppe.score.report import markdown, terminal

    points = read_points(file)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("pricing", total=len(points))
        rows = predict(points, progress=lambda _: bar.advance(task))
    return rows, rows_json(rows), terminal(rows), markdown(rows)


def _memory(file: Path) -> tuple[list[Any], dict[str, object], Any, str]:
    from steppe.score.memory import measure, report_json
    from steppe.score.memory_tables import terminal, to_markdown
    from steppe.score.starts import read_starts

    rows = measure(read_starts(file))
    return rows, report_json(rows), terminal(rows), to_markdown(rows)


def register(app: typer.Typer) -> None:
    """Register the command."""
    app.command("score")(score)
