"""The little Markdown the generated reference pages are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

WRITTEN = "<!-- Written by python -m steppe.docgen from the package itself; do not edit. -->\n"


def cell(text: str) -> str:
    """Text as it may stand in a table: on one line, with its bars escaped."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Text as inline code, empty for nothing."""
    return f"`{cell(text)}`" if text else ""


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = ()) -> str:
    """A table; columns whose index is in `right` are aligned to the right."""
    numbers = set(right)
    rule = ["---:" if index in numbers else "---" for index in range(len(headings))]
    lines = [headings, rule, *([cell(text) for text in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def page(*parts: str) -> str:
    """Parts of a page with a blank line between them."""
    return "\n".join([WRITTEN, *(part.rstrip("\n") + "\n" for part in parts)])
