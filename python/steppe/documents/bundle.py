"""A bundle: scenario, deployment and every document they name, loaded and checked against each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from steppe.catalog import Catalog
from steppe.documents.base import Document
from steppe.documents.coefficients import CoefficientSet
from steppe.documents.deployment import Deployment, Pool
from steppe.documents.graph import ModelGraph
from steppe.documents.hardware import Chip, Fabric, StorageDevice
from steppe.documents.load import Loaded, PathLike, identity, placed, validate
from steppe.documents.problems import InvalidDeployment, InvalidDocument, KeyPath, Problem, suggestion
from steppe.documents.reading import read
from steppe.documents.rules import Breach, cluster_breaches, engine_breaches
from steppe.documents.scenario import Scenario
from steppe.documents.warnings import warnings_of

V = TypeVar("V")
Roots = PathLike | Catalog | None


@dataclass(frozen=True, slots=True)
class Bundle:
    """Everything a resolution reads, for one pool of a deployment. `sets` keep the scenario's order."""

    scenario: Scenario
    deployment: Deployment
    pool_index: int
    graph: ModelGraph
    chip: Chip
    fabric: Fabric | None
    storage: dict[str, StorageDevice]
    sets: list[CoefficientSet]
    model_name: str
    chip_name: str
    warnings: tuple[str, ...] = ()

    @property
    def pool(self) -> Pool:
        """The pool the bundle was opened for."""
        return self.deployment.pools[self.pool_index]


@dataclass(slots=True)
class Findings:
    """What checking a bundle found: malformed documents, layouts the engine refuses, and warnings."""

    problems: list[Problem] = field(default_factory=list)
    refusals: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def take(self, loaded: Loaded[V] | None) -> V | None:
        """Collect what was found about one document and return it."""
        if loaded is None:
            return None
        self.problems += loaded.problems
        self.warnings += loaded.warnings
        return loaded.value

    def raise_for_problems(self) -> None:
        """Raise DocumentError, or DeploymentError where every document is well formed, listing everything found."""
        if self.problems:
            raise InvalidDocument([*self.problems, *self.refusals])
        if self.refusals:
            raise InvalidDeployment(self.refusals)


@dataclass(frozen=True, slots=True)
class Part:
    """One document of a scenario file and its position there."""

    index: int
    loaded: Loaded[Any]
    kind: str


def load_bundle(path: PathLike, *, pool: int = 0, catalog: Roots = None, registry: Roots = None) -> Bundle:
    """Load the scenario and deployment of a file, and the documents they name.

    `catalog` and `registry` are a `Catalog`, the root folder of one, or None for the embedded data. Raises
    DocumentError listing every problem of every document; DeploymentError where the engine would not start the layout.
    """
    bundle, findings = check_bundle(path, pool=pool, catalog=catalog, registry=registry)
    findings.raise_for_problems()
    assert bundle is not None
    return bundle


def check_bundle(
    path: PathLike, *, pool: int = 0, catalog: Roots = None, registry: Roots = None
) -> tuple[Bundle | None, Findings]:
    """Like `load_bundle`, but returns what it found instead of raising. The bundle is None where documents lack."""
    findings = Findings()
    parts = _parts(identity(path))
    scenario_part, deployment_part = _take_parts(Path(path), parts, findings)
    scenario: Scenario | None = scenario_part.loaded.value if scenario_part else None
    deployment: Deployment | None = deployment_part.loaded.value if deployment_part else None
    if deployment is not None and not 0 <= pool < len(deployment.pools):
        message = f"pool {pool} is asked for; there are pools 0 to {len(deployment.pools) - 1}"
        findings.problems.append(Problem(str(path), None, ("pools",), message))
    if scenario is None or scenario_part is None:
        return None, findings
    bundle = _named_documents(Path(path), scenario_part, scenario, catalog, registry, findings)
    if deployment is None or deployment_part is None:
        return None, findings
    breaches = list(cluster_breaches(scenario, deployment))
    if bundle["graph"] is not None:
        breaches += engine_breaches(deployment, bundle["graph"])
    _file_breaches(Path(path), breaches, scenario_part.index, deployment_part.index, findings)
    if findings.problems or findings.refusals:
        return None, findings
    warnings = tuple(str(problem) for problem in findings.warnings)
    return Bundle(scenario=scenario, deployment=deployment, pool_index=pool, warnings=warnings, **bundle), findings


@lru_cache(maxsize=256)
def _parts(key: tuple[str, int, int, int]) -> tuple[Part, ...]:
    """Every document of a scenario file, validated by its kind."""
    path = Path(key[0])
    reading = read(path)
    parts = [Part(-1, Loaded(key[0], None, tuple(reading.problems)), "")] if reading.problems else []
    for index, data in enumerate(reading.documents):
        kind = data.get("kind") if isinstance(data, dict) else None
        parts.append(Part(index, _part(path, index, data, kind), str(kind)))
    return tuple(parts)


def _part(path: Path, index: int, data: Any, kind: Any) -> Loaded[Any]:
    models: dict[str, type[Document]] = {"Scenario": Scenario, "Deployment": Deployment}
    model = models.get(kind) if isinstance(kind, str) else None
    if model is None:
        if kind is None:
            found: tuple[KeyPath, str] = (), "states no kind; it must be Scenario or Deployment"
        else:
            found = ("kind",), f"{kind!r} does not belong here; {suggestion(str(kind), models)}"
        return Loaded(str(path), None, placed(path, index, [found]))
    value, problems = validate(model, data)
    warned = placed(path, index, warnings_of(value)) if value is not None else ()
    return Loaded(str(path), value, placed(path, index, problems), warned)


def _take_parts(path: Path, parts: Iterable[Part], findings: Findings) -> tuple[Part | None, Part | None]:
    chosen: dict[str, Part] = {}
    damaged = False
    for part in parts:
        findings.take(part.loaded)
        damaged |= bool(part.loaded.problems)
        if part.kind in chosen:
            found = ("kind",), f"a second {part.kind} in one file; keep one"
            findings.problems += placed(path, part.index, [found])
        chosen.setdefault(part.kind, part)
    for kind in ("Scenario", "Deployment"):
        # a document of a misspelt kind may be the one missing; it is reported already
        if kind not in chosen and not damaged:
            message = f"holds no {kind}; add it as a second document after a line '---'"
            findings.problems.append(Problem(str(path), None, (), message))
    return chosen.get("Scenario"), chosen.get("Deployment")


def _named_documents(
    path: Path, part: Part, scenario: Scenario, catalog: Roots, registry: Roots, findings: Findings
) -> dict[str, Any]:
    """Load what the scenario names. Unknown names and their documents' problems go to `findings`."""
    parts = catalog if isinstance(catalog, Catalog) else Catalog(catalog)
    numbers = registry if isinstance(registry, Catalog) else Catalog(registry)
    unknown: list[tuple[KeyPath, str]] = []

    def load(where: Catalog, kind: str, name: str, *key: str | int) -> Any:
        loaded, message = where.find(kind, name)
        if message:
            unknown.append((key, message))
        return findings.take(loaded)

    cluster = scenario.cluster
    graph = load(parts, "model", scenario.model, "model")
    chip = load(parts, "chip", cluster.hardware, "cluster", "hardware")
    fabric = load(parts, "fabric", cluster.fabric, "cluster", "fabric") if cluster.fabric else None
    storage = findings.take(parts.devices()) or {}
    for index, name in enumerate(cluster.storage):
        if name not in storage:
            unknown.append((("cluster", "storage", index), f"unknown device '{name}'; {suggestion(name, storage)}"))
    sets = [
        load(numbers, "coefficient set", name, "coefficients", index)
        for index, name in enumerate(scenario.coefficients)
    ]
    findings.problems += placed(path, part.index, unknown)
    return {
        "graph": graph,
        "chip": chip,
        "fabric": fabric,
        "storage": storage,
        "sets": sets,
        "model_name": scenario.model,
        "chip_name": cluster.hardware,
    }


def _file_breaches(path: Path, breaches: list[Breach], scenario: int, deployment: int, findings: Findings) -> None:
    places = {"scenario": scenario, "deployment": deployment}
    filed = {"document": findings.problems, "engine": findings.refusals, "warning": findings.warnings}
    for breach in breaches:
        filed[breach.level] += placed(path, places[breach.about], [(breach.path, breach.message)])
