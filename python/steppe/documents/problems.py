"""Problems of documents: where each is, what is wrong, what to do; and the errors that list all of them at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from steppe.errors import DeploymentError, DocumentError

KeyPath = tuple[str | int, ...]

MAX_LISTED = 200  # problems written out in one message; the rest are counted


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with one document. `line` counts from 1; None where the file could not be parsed that far."""

    file: str
    line: int | None
    path: KeyPath
    message: str

    @property
    def key(self) -> str:
        """The key path as text, e.g. `pools[0].parallel.tp`; empty for the whole document."""
        return path_text(self.path)

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.key}: {self.message}" if self.path else f"{place}: {self.message}"


class InvalidDocument(DocumentError):
    """Documents are malformed or do not fit together; `problems` holds every one found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return listing(self.problems)


class InvalidDeployment(DeploymentError):
    """Documents are well formed, but the engine would refuse the layout; `problems` holds every one found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return listing(self.problems)


def listing(problems: Sequence[Problem]) -> str:
    """All problems, one a line, headed by their number when there are several."""
    lines = [str(problem) for problem in problems[:MAX_LISTED]]
    if len(problems) > MAX_LISTED:
        lines.append(f"... and {len(problems) - MAX_LISTED} more")
    return lines[0] if len(problems) == 1 else "\n  ".join([f"{len(problems)} problems:", *lines])


def path_text(path: KeyPath) -> str:
    """Write a key path: `("pools", 0, "parallel", "tp")` becomes `pools[0].parallel.tp`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def suggestion(word: str, known: Iterable[str], *, limit: int = 15) -> str:
    """What to write instead of `word`: the nearest known words, and all of them where they are few."""
    names = sorted(known)
    plain = {name.lower(): name for name in names}
    asked = word.lower().rsplit("/", 1)[-1]  # a hub name states its owner
    near = [plain[each] for each in difflib.get_close_matches(asked, plain, n=3, cutoff=0.6)]
    if not near and len(word) > 2:
        near = [name for name in names if word.lower() in name.lower()][:3]
    hint = f"did you mean {' or '.join(near)}?" if near else ""
    if len(names) <= limit or not near:
        shown = ", ".join(names[:limit]) + (f", ... ({len(names)} in all)" if len(names) > limit else "")
        hint = f"{hint} there are {shown}".strip() if names else "there are none"
    return hint
