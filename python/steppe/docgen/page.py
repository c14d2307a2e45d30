"""The page: notes put together with their summaries."""

from __future__ import annotations

import html
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from steppe.docgen.notes import KINDS, DocgenError, Note

INTRODUCTION = """# Known divergences

Where this library prices or sizes something differently from the engine, knowingly. Three kinds:

* **divergence**: the engine does something this library prices differently on purpose;
* **over-charge**: a term known to be charged too high, kept because removing it makes measured accuracy worse;
* **coverage limit**: engine behaviour that is not modelled, with what is charged instead.

This page is written by `python -m steppe.docgen` from the notes beside the code and from `divergence_summaries.yaml`;
do not edit it. Citations `vllm/<path>:<lines>` mean vLLM v0.31.0.
"""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a reader who does not know the code is told about one note."""

    title: str
    summary: str


@dataclass(frozen=True, slots=True)
class Closed:
    """A note of an earlier release that no longer stands, with the test that pins the behaviour."""

    title: str
    kind: str
    closed_in: str
    test: str


@dataclass(frozen=True, slots=True)
class Summaries:
    """The summary file: by function, in page order; several notes of one function share its list in source order."""

    notes: dict[str, list[Summary]]
    closed: list[Closed]


def _entry(cls: type[Any], value: Any, where: str) -> Any:
    fields = tuple(cls.__dataclass_fields__)
    if not isinstance(value, dict) or set(value) != set(fields) or not all(isinstance(v, str) for v in value.values()):
        raise DocgenError(f"{where}: expected the keys {', '.join(fields)}, each a text")
    return cls(**{k: v.strip() for k, v in value.items()})


def load_summaries(path: Path) -> Summaries:
    """Read the summary file. Raises DocgenError when it is missing or malformed."""
    if not path.is_file():
        raise DocgenError(f"{path}: no summary file")
    data = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    if not isinstance(data, dict) or not set(data) <= {"notes", "closed"}:
        raise DocgenError(f"{path}: expected the keys notes and closed")
    notes: dict[str, list[Summary]] = {}
    for function, value in (data.get("notes") or {}).items():
        entries = value if isinstance(value, list) else [value]
        notes[str(function)] = [_entry(Summary, e, f"{path}: {function}") for e in entries]
    closed = [_entry(Closed, e, f"{path}: closed") for e in data.get("closed") or []]
    return Summaries(notes, closed)


def _paired(notes: list[Note], summaries: Summaries) -> list[tuple[Note, Summary]]:
    """Each note with its summary, in the order of the summary file."""
    found: dict[str, list[Note]] = defaultdict(list)
    for note in notes:
        # a summary may name the function with its class, where the bare name is not enough
        found[note.qualified if note.qualified in summaries.notes else note.function].append(note)
    problems = []
    for function, group in found.items():
        where = ", ".join(f"{n.path}:{n.line}" for n in group)
        have = len(summaries.notes.get(function, []))
        if not have:
            problems.append(f"{where}: the note in {function} has no summary")
        elif have < len(group):
            problems.append(f"{where}: {len(group)} notes in {function} but {have} summaries")
    for function, entries in summaries.notes.items():
        if len(entries) > len(found.get(function, [])):
            problems.append(f"summary of {function}: no note stands there")
    if problems:
        raise DocgenError("\n".join(problems))
    return [
        pair for function, entries in summaries.notes.items() for pair in zip(found[function], entries, strict=True)
    ]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def render(notes: list[Note], summaries: Summaries) -> str:
    """The page as Markdown. Raises DocgenError when notes and summaries do not match one to one."""
    pairs = _paired(notes, summaries)
    out = [INTRODUCTION]
    for number, (note, summary) in enumerate(pairs, 1):
        text = html.escape(note.text, quote=False)
        out.append(
            f"## {number}. {summary.title}\n\n"
            f"*{note.kind}* in [`{note.qualified}`](../../{note.path}#L{note.line}), "
            f"`{note.path}` line {note.line}\n\n"
            f"{summary.summary}\n\n"
            f"<details><summary>The note in the source</summary>\n\n<pre>\n{text}\n</pre>\n\n</details>\n"
        )
    out.append("## Closed\n")
    if summaries.closed:
        rows = [
            f"| {_cell(c.title)} | {_cell(c.kind)} | {_cell(c.closed_in)} | `{_cell(c.test)}` |"
            for c in summaries.closed
        ]
        out.append("\n".join(["| what | kind | closed in | pinned by |", "|---|---|---|---|", *rows]) + "\n")
    else:
        out.append("None yet.\n")
    counts = Counter(note.kind for note, _ in pairs)
    listed = ", ".join(f"{kind} {counts[kind]}" for kind in KINDS.values())
    out.append(f"{len(pairs)} notes: {listed}.\n")
    return "\n".join(out)
