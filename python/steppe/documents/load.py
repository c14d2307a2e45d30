"""Loading one file into a document. Results are cached by path, size and time of change.

The `load_*` functions raise `DocumentError` listing every problem of the file; `load_file` returns them instead.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import yaml
from pydantic import ValidationError

from steppe.documents.base import Document
from steppe.documents.coefficients import CoefficientSet
from steppe.documents.graph import ModelGraph
from steppe.documents.hardware import Chip, Fabric, StorageDevice
from steppe.documents.messages import Found, explain, key_path
from steppe.documents.problems import InvalidDocument, KeyPath, Problem
from steppe.documents.reading import read
from steppe.documents.scenario import Workload
from steppe.documents.warnings import warnings_of
from steppe.documents.yaml_nodes import compose, line_of

D = TypeVar("D", bound=Document)
V = TypeVar("V")
PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Loaded(Generic[V]):
    """One document of a file: its value, or None and the problems; and warnings, which do not stand in the way."""

    file: str
    value: V | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()

    def get(self) -> V:
        """Return the value. Raises DocumentError listing the problems when there are any."""
        if self.value is None or self.problems:
            raise InvalidDocument(self.problems)
        return self.value


def validate(model: type[D], data: Any) -> tuple[D | None, list[Found]]:
    """Check plain data against a document model: the document, or None and (key path, message) of every problem."""
    cleaned, found = _prepare(model, data)
    try:
        document = model.model_validate(cleaned)
    except ValidationError as error:
        without = _without_nulls(error, cleaned)
        if without is not None:
            value, more = validate(model, without)
            return value if not found else None, found + more
        return None, found + explain(error, model, cleaned)
    return (None, found) if found else (document, [])


def _prepare(model: type[Document], data: Any) -> tuple[Any, list[Found]]:
    """Drop comment keys of hardware documents, and refuse Python names where the document's key is another."""
    if not isinstance(data, dict):
        return data, []
    found: list[Found] = []
    if model in (Chip, Fabric, StorageDevice):
        data = {key: value for key, value in data.items() if key != "_comment" and not key.startswith("_comment_")}
    for name, info in model.model_fields.items():
        if info.alias and info.alias != name and name in data:
            found.append(((name,), f"unknown key; write {info.alias}"))
            data = {key: value for key, value in data.items() if key != name}
    return data, found


def _without_nulls(error: ValidationError, data: Any) -> Any:
    """A key without a value is a key left out. Return the data without those that failed for it, or None."""
    nulls = [
        path
        for item in error.errors()
        if item["input"] is None
        and item["type"] not in ("extra_forbidden", "missing")
        and (path := key_path(data, item["loc"]))
        and isinstance(path[-1], str)
    ]
    if not nulls:
        return None
    cleaned = copy.deepcopy(data)
    for path in nulls:
        _delete(cleaned, path)
    return cleaned


def _delete(data: Any, path: KeyPath) -> None:
    *parents, last = path
    for part in parents:
        data = data[part]
    data.pop(last, None)


def placed(path: Path, index: int, found: Iterable[Found]) -> tuple[Problem, ...]:
    """Give problems of the file's `index`-th document their lines."""
    found = list(found)
    root = _root(path, index) if found else None
    return tuple(
        Problem(str(path), line_of(root, where) if root is not None else None, where, message)
        for where, message in found
    )


def _root(path: Path, index: int) -> Any:
    """Compose the file once more, for its lines. None where it cannot be (again) read as YAML."""
    try:
        return compose(path.read_text("utf-8-sig"))[index]
    except (OSError, ValueError, IndexError, yaml.YAMLError):
        return None


def identity(path: PathLike) -> tuple[str, int, int, int]:
    """What must stay the same for a cached document to be current. Zeros where there is no such file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return str(path), 0, 0, 0
    return str(path), status.st_mtime_ns, status.st_size, status.st_ino


def load_file(model: type[D], path: PathLike) -> Loaded[D]:
    """Load the one document of a file, without raising."""
    return _load_one(model, identity(path))


def load_devices(path: PathLike) -> Loaded[dict[str, StorageDevice]]:
    """Load a map of storage devices, without raising."""
    return _load_devices(identity(path))


@lru_cache(maxsize=1024)
def _load_one(model: type[Any], key: tuple[str, int, int, int]) -> Loaded[Any]:
    path = Path(key[0])
    reading = read(path)
    if reading.problems:
        return Loaded(key[0], None, tuple(reading.problems))
    if len(reading.documents) != 1:
        return Loaded(key[0], None, (_not_one(key[0], len(reading.documents)),))
    (index, data) = reading.documents[0]
    value, found = validate(model, data)
    warned = placed(path, index, warnings_of(value)) if value is not None else ()
    return Loaded(key[0], value, placed(path, index, found), warned)


def _not_one(file: str, documents: int) -> Problem:
    message = f"the file holds {documents} documents; split it, one a file"
    return Problem(file, None, (), message if documents else "the file is empty; it must hold one document")


@lru_cache(maxsize=64)
def _load_devices(key: tuple[str, int, int, int]) -> Loaded[dict[str, StorageDevice]]:
    path = Path(key[0])
    reading = read(path)
    if reading.problems:
        return Loaded(key[0], None, tuple(reading.problems))
    if len(reading.documents) != 1:
        return Loaded(key[0], None, (_not_one(key[0], len(reading.documents)),))
    (_, data) = reading.documents[0]
    if not isinstance(data, dict):
        return Loaded(key[0], None, placed(path, 0, [((), "must be a map from device names to their facts")]))
    devices: dict[str, StorageDevice] = {}
    problems: list[tuple[KeyPath, str]] = []
    for name, facts in data.items():
        if name == "_comment" or name.startswith("_comment_"):
            continue
        # BLIS accepts a `name` beside the key and overwrites it
        stated = {k: v for k, v in facts.items() if k != "name"} if isinstance(facts, dict) else facts
        device, found = validate(StorageDevice, stated)
        problems += [((name, *where), message) for where, message in found]
        if device is not None:
            devices[name] = device
    return Loaded(key[0], None if problems else devices, placed(path, 0, problems))


def load_graph(path: PathLike) -> ModelGraph:
    """Load a ModelGraph file. Raises DocumentError listing every problem."""
    return load_file(ModelGraph, path).get()


def load_chip(path: PathLike) -> Chip:
    """Load a chip file. Raises DocumentError listing every problem."""
    return load_file(Chip, path).get()


def load_fabric(path: PathLike) -> Fabric:
    """Load a network file. Raises DocumentError listing every problem."""
    return load_file(Fabric, path).get()


def load_storage(path: PathLike) -> dict[str, StorageDevice]:
    """Load a file of storage devices by name. Raises DocumentError listing every problem."""
    return load_devices(path).get()


def load_coefficient_set(path: PathLike) -> CoefficientSet:
    """Load a coefficient set, YAML or JSON. Raises DocumentError listing every problem."""
    return load_file(CoefficientSet, path).get()


def load_workload(path: PathLike) -> Workload:
    """Load a workload shape. Raises DocumentError listing every problem."""
    return load_file(Workload, path).get()


def parse(model: type[D], data: Any, *, source: str = "<data>") -> D:
    """Check plain data, as a file would hold it, against a document model. Raises DocumentError naming `source`."""
    value, found = validate(model, data)
    if value is None:
        raise InvalidDocument(Problem(source, None, path, message) for path, message in found)
    return value
