"""What a note is, and how the notes of a source tree are collected."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from steppe.docgen.cpp_source import read_cpp
from steppe.docgen.passages import Source
from steppe.docgen.python_source import read_python
from steppe.errors import Error

# Joined here so that the phrases stand nowhere in the sources but in notes.
KINDS = {
    " ".join(("KNOWN", "DIVERGENCE")): "divergence",
    " ".join(("KNOWN", "over-charge")): "over-charge",
    " ".join(("COVERAGE", "LIMIT")): "coverage limit",
}
CPP_SUFFIXES = (".cpp", ".hpp", ".h", ".cc", ".cxx", ".hxx", ".inl", ".ipp")


class DocgenError(Error):
    """One or more notes or summaries are not in order; the message lists them all."""


@dataclass(frozen=True, slots=True)
class Note:
    """One note: path relative to the repository root, first line, kind, the function or class, and its text."""

    path: str
    line: int
    kind: str
    function: str
    qualified: str
    text: str


def markers(text: str) -> list[str]:
    """Kinds whose phrase occurs in `text`, once an occurrence; a phrase may be broken over lines."""
    flat = re.sub(r"\s+", " ", text)
    return [kind for phrase, kind in KINDS.items() for _ in range(flat.count(phrase))]


def notes_of(path: str, source: Source) -> tuple[list[Note], list[str]]:
    """Notes of one file, and what is wrong with it."""
    notes: list[Note] = []
    problems: list[str] = []
    for passage in source.passages:
        kinds = markers(passage.text)
        where = f"{path}:{passage.line}"
        if len(kinds) > 1:
            problems.append(f"{where}: {len(kinds)} marker phrases in one note; give each its own block")
        elif kinds and passage.owner is None:
            problems.append(f"{where}: a marker stands in no function or class")
        elif kinds and passage.owner is not None:
            owner = passage.owner
            notes.append(Note(path, passage.line, kinds[0], owner.name, owner.qualified, passage.text))
    for line, text in source.strings:
        if markers(text):
            problems.append(f"{path}:{line}: a marker phrase in a string; it may stand in notes only")
    return notes, problems


def sources(root: Path) -> Iterator[Path]:
    """Source files under `cpp/` and `python/`, sorted, without tests and build output."""
    found: list[Path] = []
    for top in ("cpp", "python"):
        for path in (root / top).rglob("*"):
            parts = path.relative_to(root).parts
            if path.suffix in (*CPP_SUFFIXES, ".py", ".pyi") and not {"tests", "test", "build", "__pycache__"} & {
                *parts
            }:
                found.append(path)
    yield from sorted(found)


def scan(root: Path, files: Iterable[Path] | None = None) -> list[Note]:
    """Every note under `root`, by path and line. Raises DocgenError listing every marker that is out of place."""

    notes: list[Note] = []
    problems: list[str] = []
    for path in sources(root) if files is None else files:
        name = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        if not markers(re.sub(r"(?m)^\s*(//[/!]?|#|\*)", "", text)):  # cheap: most files hold none
            continue
        reader = read_cpp if path.suffix in CPP_SUFFIXES else read_python
        try:
            source = reader(text)
        except (SyntaxError, ValueError) as error:
            problems.append(f"{name}: cannot be read: {error}")
            continue
        found, wrong = notes_of(name, source)
        notes += found
        problems += wrong
    if problems:
        raise DocgenError("\n".join(problems))
    return notes
