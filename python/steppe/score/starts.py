"""Logged start-ups as a CSV states them: settings as text, figures as numbers, and what a note says in plain words.

Blank means not stated. A setting is taken from its column, else from the note where the note names it outright; never
from the figures the start-up is judged by.
"""

from __future__ import annotations

import csv
import os
import re
from dataclasses import dataclass
from pathlib import Path

from steppe.errors import DocumentError

REQUIRED = ("model", "gpu", "available_kv_gib")


@dataclass(frozen=True, slots=True)
class Start:
    """One logged start-up, as far as it is stated."""

    line: int
    model: str
    values: dict[str, str]

    def text(self, name: str) -> str:
        """A cell, empty where blank."""
        return self.values.get(name, "").strip()

    def number(self, name: str) -> float | None:
        """A figure, None where blank. Raises DocumentError when the cell is not a number."""
        text = self.text(name)
        if not text:
            return None
        try:
            return float(text)
        except ValueError:
            raise DocumentError(f"line {self.line}: column {name} must be a number, not {text!r}") from None

    def count(self, name: str) -> int | None:
        """A whole number, None where blank."""
        value = self.number(name)
        return None if value is None else int(value)

    def noted(self, pattern: str) -> str | None:
        """What the note says under `pattern`: its first group, or the whole match; None where it says nothing."""
        found = re.search(pattern, self.text("note"), re.IGNORECASE)
        return None if found is None else (found.group(1) if found.groups() else found.group(0))

    # -- settings ----------------------------------------------------------------------------------------------------

    @property
    def gpus(self) -> int | None:
        """GPUs the part's cell counts (`2x L4`, `RTX 3090 x2`, `16 GPUs ...`); 1 for a part without a count, None where
        no part is stated."""
        gpu = self.text("gpu").lower()
        if not gpu:
            return None
        for pattern in (r"^(\d+) ?[x×*] ?(?!\d)", r"\b[x×*] ?(\d+)\b", r"^(\d{1,2}) (?=[a-z])"):
            if found := re.search(pattern, gpu):
                return int(found.group(1))
        return 1

    @property
    def tp(self) -> int | None:
        """Stated width; else the engine's default of 1 for a log of one GPU. None for several, or no, stated GPUs."""
        stated = self.count("tp")
        if stated is not None:
            return stated
        return 1 if self.gpus == 1 else None

    @property
    def dcp(self) -> int:
        """Decode-context width, which has no column: as a note names it."""
        return int(self.noted(r"(?<!no )(?<!non-)\bDCP(?:[ _-]?size)?[ =:]*(\d+)") or 1)

    @property
    def max_num_seqs(self) -> int | None:
        """Sequences a step, which have no column: as a note names them."""
        found = self.noted(r"max[_-]num[_-]seqs[ =:]*(\d+)")
        return int(found) if found else None

    @property
    def block_size(self) -> int | None:
        """Tokens a block as given at launch, which have no column: `block size 128`. A block a log reports, as in
        `block 1568`, is a result."""
        found = self.noted(r"(?<!mamba[- _])\bblock[- _]size[ =:]*(\d+)")
        return int(found) if found else None

    # -- figures only a note has -------------------------------------------------------------------------------------

    @property
    def refused(self) -> bool:
        """The engine refused to start: one request did not fit."""
        return self.noted(r"start (?:was )?(?:refused|failed)") is not None

    @property
    def needed_gib(self) -> float | None:
        """Cache one longest request needs, as a refusal prints it."""
        found = self.noted(r"(?:needed|needs) (\d+(?:\.\d+)?) GiB") or self.noted(r"(\d+(?:\.\d+)?) GiB needed")
        return float(found) if found else None

    @property
    def estimated_len(self) -> int | None:
        """The longest length a refusal (or a warning) says would fit."""
        found = self.noted(r"estimated? (?:max(?:imum)? (?:len\w*|model len\w*) |printed )(\d+)")
        return int(found) if found else None

    @property
    def kv_by_bytes(self) -> bool:
        """The cache was sized by a stated number of bytes, so that it says nothing about the part."""
        return self.noted(r"KV set by bytes|\bKV budget\b") is not None


def read_starts(path: str | os.PathLike[str]) -> list[Start]:
    """Start-ups of a CSV file. Raises DocumentError when it cannot be read or is not of the layout."""
    file = Path(path)
    try:
        reader = csv.DictReader(file.read_text(encoding="utf-8-sig").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError(f"{file}: cannot be read: {error}") from error
    missing = [name for name in REQUIRED if name not in (reader.fieldnames or ())]
    if missing:
        raise DocumentError(f"{file}: no column {', '.join(missing)}; a file of start-ups needs them")
    return [Start(reader.line_num, row["model"] or "", {k: v or "" for k, v in row.items() if k}) for row in reader]
