"""What a notebook shows of sizes: tables of two columns."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

GIB = float(1 << 30)


def table(headings: tuple[str, str], rows: Iterable[tuple[str, str]]) -> str:
    """An HTML table of names and values."""
    head = "".join(f"<th>{escape(text)}</th>" for text in headings)
    body = "".join(f"<tr><td>{escape(a)}</td><td style='text-align:right'>{escape(b)}</td></tr>" for a, b in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def in_gib(size: float) -> str:
    """Bytes as GiB."""
    return f"{size / GIB:,.2f}"
