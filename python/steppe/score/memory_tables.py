"""Start-ups as tables: one for a terminal of 100 columns, one for the page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from steppe.score.memory import QUESTIONS, Row, totals

HEADINGS = ("line", "model", "sized / logged", "why not answered")
WIDTH = 100
_COLUMNS = (4, 24, 38, 24)
_NAMES = {
    "request_gib": ("request", " GiB", 2),
    "needed_gib": ("request", " GiB", 2),
    "max_len": ("longest", " tokens", 0),
    "weights_gib": ("weights", " GiB", 2),
    "available_kv_gib": ("cache", " GiB", 2),
    "max_concurrency": ("cache", " requests", 2),
}


def terminal(rows: Sequence[Row]) -> Any:
    """Sized / logged of every row, then totals, for `rich.print` at 100 columns."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Memory on measured start-ups: sized / logged, ! where outside the bar")
    for heading, width in zip(HEADINGS, _COLUMNS, strict=True):
        table.add_column(heading, overflow="fold", width=width)
    for row in rows:
        table.add_row(*(Text(cell) for cell in _cells(row)))
    return Group(table, *(Text(line) for line in summary_lines(rows)))


def to_markdown(rows: Sequence[Row]) -> str:
    """The same as Markdown, for the page."""
    out = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    for row in rows:
        cells = [cell.replace("|", "/").replace("\n", "<br>") for cell in _cells(row)]
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join([*out, "", *(f"* {line}" for line in summary_lines(rows))]) + "\n"


def summary_lines(rows: Sequence[Row]) -> list[str]:
    """Totals, one line a question, of all rows and of those whose own figures agree."""
    answered = sum(row.main is not None for row in rows)
    lines = [f"{answered} of {len(rows)} rows answer a question"]
    for title, checked in (("all rows", False), ("rows that check", True)):
        for question, t in totals(rows, checked=checked).items():
            if t["answered"]:
                errors = f", median error {100 * t['median_error']:.2f} %, largest {100 * t['largest_error']:.1f} %"
                lines.append(f"{question}, {title}: {t['passed']} of {t['answered']} within the bar{errors}")
    return lines


def _cells(row: Row) -> list[str]:
    model = re.sub(r"\(.*?\)", "", row.start.model).strip().rsplit("/", 1)[-1]
    answers = "\n".join(_answer(row, question) for question in QUESTIONS if question in row.answers)
    return [str(row.start.line), model, answers or "-", row.unanswered or ""]


def _answer(row: Row, question: str) -> str:
    name = row.answers[question]
    predicted, measured = row.figures[name]
    words, unit, digits = _NAMES[name]
    mark = "" if row.passes(question) else " !"
    return f"{words} {predicted:.{digits}f}/{measured:.{digits}f}{unit} {100 * row.error(question):+.1f} %{mark}"
