"""Checking any file by itself: which kind of document it is, and everything wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steppe.documents.base import Document
from steppe.documents.bundle import check_bundle
from steppe.documents.coefficients import CoefficientSet
from steppe.documents.graph import ModelGraph
from steppe.documents.hardware import Chip, Fabric
from steppe.documents.load import PathLike, load_devices, load_file
from steppe.documents.problems import Problem
from steppe.documents.reading import read
from steppe.documents.scenario import Workload
from steppe.documents.scenario_file import MODELS, parts_of

if TYPE_CHECKING:
    from steppe.documents.bundle import Roots

BUNDLE = "bundle"
_BY_KIND: dict[str, type[Document]] = {"ModelGraph": ModelGraph, "CoefficientSet": CoefficientSet}
# documents without a `kind` are told by the keys only they have
_BY_KEY: dict[str, type[Document]] = {
    "TFlopsPeak": Chip,
    "SMCount": Chip,
    "InterNodeBwGBps": Fabric,
    "prompt": Workload,
    "output": Workload,
}


@dataclass(frozen=True, slots=True)
class Inspection:
    """What one file is, and what was found. `refusals` are layouts the engine would not start."""

    file: str
    kind: str
    problems: tuple[Problem, ...] = ()
    refusals: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        """True when nothing but warnings was found."""
        return not self.problems and not self.refusals


def inspect_file(path: PathLike, *, catalog: Roots = None, registry: Roots = None) -> Inspection:
    """Check one file, without raising. A Scenario with its Deployment is checked with all it names."""
    reading = read(Path(path))
    if reading.problems:
        return Inspection(reading.file, "unknown", tuple(reading.problems))
    kinds = {str(data.get("kind")) for _, data in reading.documents if isinstance(data, dict)}
    if kinds & MODELS.keys():
        return _scenario_file(path, kinds, catalog, registry)
    data: Any = reading.documents[0][1] if reading.documents else None
    model = _model_of(data)
    if model is not None:
        loaded = load_file(model, path)
        return Inspection(reading.file, model.__name__, loaded.problems, (), loaded.warnings)
    if isinstance(data, dict) and any(isinstance(facts, dict) and "read_bandwidth" in facts for facts in data.values()):
        return Inspection(reading.file, "StorageDevices", load_devices(path).problems)
    message = f"is no document this package knows; state a kind: {', '.join([*MODELS, *_BY_KIND])}"
    return Inspection(reading.file, "unknown", (Problem(reading.file, None, (), message),))


def _model_of(data: Any) -> type[Document] | None:
    if not isinstance(data, dict):
        return None
    kind = data.get("kind")
    if isinstance(kind, str) and kind in _BY_KIND:
        return _BY_KIND[kind]
    return next((model for key, model in _BY_KEY.items() if key in data), None)


def _scenario_file(path: PathLike, kinds: set[str], catalog: Roots, registry: Roots) -> Inspection:
    if kinds == set(MODELS):
        _, found = check_bundle(path, catalog=catalog, registry=registry)
        return Inspection(str(path), BUNDLE, tuple(found.problems), tuple(found.refusals), tuple(found.warnings))
    parts = parts_of(path)
    problems = tuple(problem for part in parts for problem in part.loaded.problems)
    warnings = tuple(problem for part in parts for problem in part.loaded.warnings)
    return Inspection(str(path), " and ".join(sorted(kinds)), problems, (), warnings)
