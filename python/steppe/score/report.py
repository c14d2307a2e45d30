"""What a person reads of a score: tables for a terminal, pictures, and the tables of docs/research/accuracy.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from steppe.errors import Error
from steppe.score.points import Row
from steppe.score.stats import cells, faultless, ours, summary, theirs

Figures = dict[str, Any]


def number(value: float | None, form: str = ".1f") -> str:
    """A figure as text, a dash where there is none."""
    return "-" if value is None else format(value, form)


def _figures(f: Figures) -> list[str]:
    """Rows and errors of our predictions, then of the other model's."""
    return [text for one in (f, f["aisimulate"]) for text in (str(one["rows"]), *_errors(one))]


def _errors(f: Figures) -> list[str]:
    return [number(f["mape"]), number(f["median"]), number(f["bias"], "+.1f")]


HEADINGS = ("rows", "MAPE %", "median %", "bias %", "AISim rows", "AISim MAPE", "AISim median", "AISim bias")


def _lines(rows: Sequence[Row]) -> list[tuple[list[str], Figures, bool]]:
    """First two cells, figures, and whether the line is a total: the cells, then the totals."""
    lines = [([c["model"], c["gpu"]], c["without_fault"], False) for c in cells(rows)]
    total = summary(rows)
    lines.append((["clean, no fault", ""], total["without_fault"], True))
    lines.append((["all clean rows", ""], total["clean"], True))
    return lines


def terminal(rows: Sequence[Row]) -> Group:
    """Cells and totals, then what was refused and why, for `rich.print`."""
    table = Table(
        title="Error of the predicted time per output token (%), clean rows without a fault",
        caption="MAPE / median / bias; AISimulate's over the rows it predicts",
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
    )
    table.add_column("model", overflow="fold")
    table.add_column("GPU")
    for heading in ("rows", "this library", "AISimulate"):
        table.add_column(heading, justify="right", no_wrap=True)
    lines = _lines(rows)
    for i, (names, f, total) in enumerate(lines):
        both = (" / ".join(_errors(one)) for one in (f, f["aisimulate"]))
        table.add_row(
            *names, str(f["rows"]), *both, style="bold" if total else None, end_section=not total and lines[i + 1][2]
        )
    facts = summary(rows)
    both = facts["without_fault"]
    notes = [
        f"{facts['answered']} of {facts['rows']} rows answered; within 30 %: {number(both['within_30'])} % of rows, "
        f"Spearman {number(both['spearman'], '.3f')}"
    ]
    if facts["worst_cell"]:
        worst = facts["worst_cell"]
        notes.append(
            f"worst cell of 20 rows or more: {worst['model']} on {worst['gpu']}, median {worst['median']:.1f} %"
        )
    notes += [f"refused {count}: {reason}" for reason, count in facts["refused"].items()]
    return Group(table, *(Text(note) for note in notes))


def markdown(rows: Sequence[Row]) -> str:
    """The same tables as Markdown, for the accuracy page."""
    out = ["| " + " | ".join(("model", "GPU", *HEADINGS)) + " |", "|---|---|" + "---:|" * len(HEADINGS)]
    for names, f, total in _lines(rows):
        line = [*names, *_figures(f)]
        out.append("| " + " | ".join(f"**{text}**" if total and text else text for text in line) + " |")
    facts = summary(rows)
    without = facts["without_fault"]
    out += [
        "",
        f"{facts['answered']} of {facts['rows']} rows answered. Clean rows without a fault: within 30 % on "
        f"{number(without['within_30'])} %, Spearman {number(without['spearman'], '.3f')}.",
    ]
    out += [f"Refused ({count} rows): {reason}" for reason, count in facts["refused"].items()]
    return "\n".join(out) + "\n"


def plots(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Save a parity plot and the distribution of errors of the clean, faultless rows; returns the files.

    Needs matplotlib (`pip install 'steppe[plot]'`); raises Error without it or when there is nothing to show.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise Error("plots need matplotlib: pip install 'steppe[plot]'") from error
    matplotlib.use("Agg")
    chosen = [row for row in faultless(rows) if row.tpot_ms is not None]
    if not chosen:
        raise Error("no clean row was answered; there is nothing to plot")
    folder.mkdir(parents=True, exist_ok=True)
    return [_parity(chosen, folder / "parity.png"), _distribution(chosen, folder / "error_cdf.png")]


def _parity(rows: Sequence[Row], path: Path) -> Path:
    """Predicted over measured, one colour a model, with lines at 10 and 30 percent."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 6.0), layout="constrained")
    for model in sorted({row.point.launch.cell[0] for row in rows}):
        mine = ours(row for row in rows if row.point.launch.cell[0] == model)
        axes.scatter([m for _, m in mine], [p for p, _ in mine], s=9, alpha=0.7, label=f"{model} ({len(mine)})")
    measured = [row.point.measured_tpot_ms for row in rows]
    ends = [0.8 * min(measured), 1.25 * max(measured)]
    for share, style in ((0.0, "-"), (0.1, "--"), (0.3, ":")):
        for factor in {1 + share, 1 - share}:
            axes.plot(ends, [factor * x for x in ends], style, color="0.5", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="measured TPOT (ms)", ylabel="predicted TPOT (ms)")
    axes.set_title("Predicted against measured; lines at 0, 10 and 30 %")
    axes.legend(fontsize="small", frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def _distribution(rows: Sequence[Row], path: Path) -> Path:
    """Share of rows within an error, ours and AISimulate's."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for name, pairs in (("Steppe", ours(rows)), ("AISimulate", theirs(rows))):
        errors = sorted(100 * abs(p / m - 1) for p, m in pairs)
        if errors:
            shares = [100 * (i + 1) / len(errors) for i in range(len(errors))]
            axes.step(errors, shares, where="post", label=f"{name} ({len(errors)} rows)")
    axes.set(xlim=(0, 50), ylim=(0, 100), xlabel="absolute error (%)", ylabel="rows within it (%)")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path
