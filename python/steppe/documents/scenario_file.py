"""The file a bundle starts from: a Scenario and a Deployment, each a document of its own, in either order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from steppe.documents.base import Document
from steppe.documents.deployment import Deployment
from steppe.documents.load import Loaded, PathLike, identity, placed, validate
from steppe.documents.messages import Found
from steppe.documents.problems import Problem, suggestion
from steppe.documents.reading import read
from steppe.documents.scenario import Scenario
from steppe.documents.warnings import warnings_of

MODELS: dict[str, type[Document]] = {"Scenario": Scenario, "Deployment": Deployment}


@dataclass(frozen=True, slots=True)
class Part:
    """One document of a scenario file. `index` is its position there; None for one made in memory."""

    kind: str
    loaded: Loaded[Any]
    index: int | None = None

    def place(self, found: Iterable[Found]) -> tuple[Problem, ...]:
        """Problems of this document, with the lines of its file."""
        if self.index is None:
            return tuple(Problem(self.loaded.file, None, path, message) for path, message in found)
        return placed(Path(self.loaded.file), self.index, found)


def parts_of(path: PathLike) -> tuple[Part, ...]:
    """Every document of a scenario file, validated by its kind. Cached as long as the file does not change."""
    return _parts(identity(path))


@lru_cache(maxsize=256)
def _parts(key: tuple[str, int, int, int]) -> tuple[Part, ...]:
    path = Path(key[0])
    reading = read(path)
    parts = [Part("", Loaded(key[0], None, tuple(reading.problems)))] if reading.problems else []
    return (*parts, *(_part(path, index, data) for index, data in reading.documents))


def _part(path: Path, index: int, data: Any) -> Part:
    kind = data.get("kind") if isinstance(data, dict) else None
    model = MODELS.get(kind) if isinstance(kind, str) else None
    if model is None:
        found: Found = ((), "states no kind; it must be Scenario or Deployment")
        if kind is not None:
            found = (("kind",), f"{kind!r} does not belong here; {suggestion(str(kind), MODELS)}")
        return Part(str(kind), Loaded(str(path), None, placed(path, index, [found])), index)
    value, problems = validate(model, data)
    warned = placed(path, index, warnings_of(value)) if value is not None else ()
    return Part(str(kind), Loaded(str(path), value, placed(path, index, problems), warned), index)


def one_of_each(path: PathLike, parts: Sequence[Part]) -> tuple[Part | None, Part | None, list[Problem]]:
    """The Scenario and the Deployment among `parts`, and what is wrong with their number."""
    problems: list[Problem] = []
    chosen: dict[str, Part] = {}
    for part in parts:
        if part.kind in chosen and part.kind in MODELS:
            problems += part.place([(("kind",), f"a second {part.kind} in one file; keep one")])
        chosen.setdefault(part.kind, part)
    # a document that is damaged or of a misspelt kind may be the one missing; it is reported already
    unclear = any(part.kind not in MODELS for part in parts)
    for kind in MODELS:
        if kind not in chosen and not unclear:
            message = f"holds no {kind}; add it as a second document after a line '---'"
            problems.append(Problem(str(path), None, (), message))
    return chosen.get("Scenario"), chosen.get("Deployment"), problems
