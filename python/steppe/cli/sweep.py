"""`steppe sweep`: step times over batch sizes and contexts, as a table, CSV, JSON or a picture."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steppe.cli.deployment import of_deployment

if TYPE_CHECKING:
    from steppe.kernel import Kernel
    from steppe.sweep import Progress, Rows

SHAPE = "COUNTS"
CONCURRENCY = Annotated[
    str, typer.Option("--concurrency", "-n", metavar=SHAPE, help="Decodes a step: 1,8,64 or 1:256 or 16:64:16.")
]
CONTEXT = Annotated[str, typer.Option("--context", "-c", metavar=SHAPE, help="Computed tokens of each decode.")]
PREFILL = Annotated[str, typer.Option("--prefill", metavar=SHAPE, help="Tokens of a prefill chunk in the step.")]
WORKERS = Annotated[int, typer.Option("--workers", metavar="N", help="Processes to share the points.")]
SCHEDULER = Annotated[str, typer.Option("--scheduler", metavar="TCP", help="Dask cluster, tcp://host:port.")]
CSV_FILE = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the rows as CSV.")]
PLOT = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Save a picture as PNG or SVG.")]
JSON = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def register(app: typer.Typer) -> None:
    """Register the command."""
    app.command("sweep")(sweep)


@of_deployment
def sweep(
    kernel: Kernel,
    concurrency: CONCURRENCY = "1:256",
    context: CONTEXT = "2048",
    prefill: PREFILL = "0",
    workers: WORKERS = 1,
    scheduler: SCHEDULER = "",
    csv_file: CSV_FILE = None,
    plot: PLOT = None,
    json_output: JSON = False,
) -> None:
    """Sweep batch size, context or prefill chunk: every combination priced, and whether its KV cache fits."""
    from steppe import sweep as sweeps

    points = sweeps.grid(sweeps.numbers(concurrency), sweeps.numbers(context), sweeps.numbers(prefill))
    with _shown(len(points)) as progress:
        rows = sweeps.sweep(kernel, points, workers=workers, scheduler=scheduler, progress=progress)
    records = [_record(row) for row in rows]
    if csv_file:
        with csv_file.open("w", newline="") as out:
            writer = csv.DictWriter(out, list(records[0]))
            writer.writeheader()
            writer.writerows(records)
    if plot:
        from steppe.plots import save
        from steppe.sweep_plot import sweep_figure

        save(sweep_figure(rows, title=str(kernel)[8:-1]), plot)
    if json_output:
        typer.echo(json.dumps({"deployment": kernel.resolved(), "points": records}, indent=2))
    else:
        _print(str(kernel)[8:-1], rows)


def _record(row: Any) -> dict[str, Any]:
    """A row by name, as CSV and JSON carry it."""
    from steppe import RESOURCES
    from steppe.sweep import COUNTS, FIGURES

    counts = {name: int(row[name]) for name in COUNTS}
    times = {f"{name}_ns": int(row[name]) for name in FIGURES}
    rate = round(float(tokens_per_second(row)), 3)
    return {
        **counts,
        **times,
        "decode_tokens_per_s": rate,
        "bottleneck": RESOURCES[row["bottleneck"]],
        "fits": bool(row["fits"]),
    }


def tokens_per_second(row: Any) -> Any:
    """Decode tokens a second of all requests together, one token each a step."""
    return row["concurrency"] / row["no_overlap"] * 1e9 if row["no_overlap"] else 0.0


def _print(title: str, rows: Rows) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from steppe import RESOURCES

    prefills = bool((rows["prefill"] > 0).any())
    console = Console()
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, caption="one step on one rank")
    names = ("decodes", "context", *(("prefill",) if prefills else ()), "ms", "tokens/s", "bottleneck", "KV fits")
    for name in names:
        table.add_column(name, justify="left" if name == "bottleneck" else "right", no_wrap=True)
    for row in rows:
        table.add_row(
            f"{row['concurrency']:,}",
            f"{row['context']:,}",
            *((f"{row['prefill']:,}",) if prefills else ()),
            f"{row['no_overlap'] / 1e6:.3f}",
            f"{tokens_per_second(row):,.0f}",
            RESOURCES[row["bottleneck"]],
            "yes" if row["fits"] else "no",
        )
    console.print(table)


class _shown:
    """Progress on the terminal, where there is one and the sweep is long enough to wait for."""

    def __init__(self, points: int) -> None:
        self._points = points
        self._bar: Any = None

    def __enter__(self) -> Progress | None:
        if self._points < 2000 or not sys.stderr.isatty():
            return None
        from rich.console import Console
        from rich.progress import Progress as Bar

        self._bar = Bar(console=Console(stderr=True), transient=True)
        self._bar.start()
        task = self._bar.add_task("pricing", total=self._points)
        return lambda done, _: self._bar.update(task, completed=done)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
