"""`steppe calibrate`: fit the refined laws from measured tables and write coefficient sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def _fail(message: str) -> typer.Exit:
    typer.echo(f"steppe: {message}", err=True)
    return typer.Exit(2)


def calibrate(
    data: Annotated[Path, typer.Option(help="Folder of an unpacked aisimulate wheel.")],
    out: Annotated[Path, typer.Option(help="Folder the coefficient sets are written to.")],
    part: Annotated[list[str] | None, typer.Option(help="Fit this part only (may be repeated). Default: all.")] = None,
    jobs: Annotated[int, typer.Option(help="Worker processes; 0 = one a core. The result does not depend on it.")] = 0,
    report: Annotated[Path | None, typer.Option(help="Also refresh the error tables of this Markdown file.")] = None,
) -> None:
    """Fit the refined cost laws to NVIDIA's per-operator measurements and write one coefficient set per part."""
    import importlib.util

    missing = [name for name in ("pandas", "pyarrow", "scipy") if importlib.util.find_spec(name) is None]
    if missing:
        raise _fail(f"calibrate needs {', '.join(missing)}: pip install 'steppe[calibrate]'")
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from steppe.calibrate.report import refresh, summary
    from steppe.calibrate.run import calibrate as fit_all
    from steppe.calibrate.write import write_set
    from steppe.errors import Error

    console = Console(stderr=True)
    columns = (
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    try:
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("reading tables", total=None)

            def advance(label: str, done: int, total: int) -> None:
                bar.update(task, description=f"{label:<32}", completed=done, total=total)

            done = fit_all(data, part or None, jobs=jobs, progress=advance)
        for name, laws in done.laws.items():
            path = write_set(out, name, laws)
            assumed = sum(f.method != "measured" for f in laws)
            typer.echo(f"{path}: {len(laws) - assumed} measured laws, {assumed} assumed")
        if done.unmeasured:
            typer.echo(f"no table, so not measured: {', '.join(done.unmeasured)}")
        if report is not None:
            refresh(report, done)
            typer.echo(f"{report}: error tables refreshed")
    except Error as error:
        raise _fail(str(error)) from None
    Console().print(summary(done.laws))


def register(app: typer.Typer) -> None:
    """Add the command to the `steppe` application."""
    app.command("calibrate")(calibrate)
