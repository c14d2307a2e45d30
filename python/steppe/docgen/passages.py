"""What the readers of both languages hand over: passages of text and where they sit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Owner:
    """The function or class a passage sits in: its own name, and with the names around it."""

    name: str
    qualified: str


@dataclass(frozen=True, slots=True)
class Passage:
    """Comment block or docstring paragraph: first line (1-based), text without comment marks, where it sits."""

    line: int
    text: str
    owner: Owner | None


@dataclass(frozen=True, slots=True)
class Source:
    """What a language's reader hands over: the passages that may hold notes, and the other strings (line, text)."""

    passages: list[Passage]
    strings: list[tuple[int, str]]
