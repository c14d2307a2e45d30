"""A bundle: scenario, deployment and every document they name, loaded and checked against each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from steppe.catalog import Catalog
from steppe.documents.coefficients import CoefficientSet
from steppe.documents.deployment import Deployment, Pool
from steppe.documents.graph import ModelGraph
from steppe.documents.hardware import Chip, Fabric, StorageDevice
from steppe.documents.load import Loaded, PathLike
from steppe.documents.messages import Found
from steppe.documents.problems import InvalidDeployment, InvalidDocument, Problem, suggestion
from steppe.documents.rules import Breach, cluster_breaches, device_breaches, engine_breaches, naming_breaches
from steppe.documents.scenario import Scenario
from steppe.documents.scenario_file import Part, one_of_each, parts_of
from steppe.documents.warnings import warnings_of

V = TypeVar("V")
Roots = PathLike | Catalog | None


@dataclass(frozen=True, slots=True)
class Bundle:
    """Everything a resolution reads, for one pool of a deployment.

    `sets` keep the scenario's order; `storage` holds every device of the catalog; `warnings` are for a person to read.
    """

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
    draft: ModelGraph | None = None  # the drafter's graph, where the pool names one

    @property
    def pool(self) -> Pool:
        """The pool the bundle was opened for."""
        return self.deployment.pools[self.pool_index]


@dataclass(slots=True)
class Findings:
    """What checking documents found: malformed ones, layouts the engine refuses, and warnings."""

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
    """Like `load_bundle`, but return what was found instead of raising. The bundle is None where anything is wrong."""
    findings = Findings()
    parts = parts_of(path)
    for part in parts:
        findings.take(part.loaded)
    scenario, deployment, problems = one_of_each(path, parts)
    findings.problems += problems
    bundle = _assemble(scenario, deployment, pool, catalog, registry, None, findings)
    return bundle, findings


def make_bundle(
    scenario: Scenario,
    deployment: Deployment,
    *,
    pool: int = 0,
    catalog: Roots = None,
    registry: Roots = None,
    graph: ModelGraph | None = None,
    source: str = "<built>",
) -> Bundle:
    """Like `load_bundle`, for a scenario and a deployment made in memory.

    `graph` stands in for the catalog's model, e.g. one just derived. Problems are reported as those of `source`.
    """
    findings = Findings()
    parts = [
        Part("Scenario", Loaded(source, scenario)),
        Part("Deployment", Loaded(source, deployment)),
    ]
    findings.warnings += parts[1].place(warnings_of(deployment))
    bundle = _assemble(parts[0], parts[1], pool, catalog, registry, graph, findings)
    findings.raise_for_problems()
    assert bundle is not None
    return bundle


def _assemble(
    scenario_part: Part | None,
    deployment_part: Part | None,
    pool: int,
    catalog: Roots,
    registry: Roots,
    graph: ModelGraph | None,
    findings: Findings,
) -> Bundle | None:
    """Load what the scenario names and hold every rule that can be held; None where anything is wrong."""
    scenario: Scenario | None = scenario_part.loaded.value if scenario_part else None
    deployment: Deployment | None = deployment_part.loaded.value if deployment_part else None
    if deployment_part and deployment and not 0 <= pool < len(deployment.pools):
        message = f"pool {pool} is asked for; there are pools 0 to {len(deployment.pools) - 1}"
        findings.problems += deployment_part.place([(("pools",), message)])
    if not scenario_part or not scenario:
        return None
    named = _named_documents(scenario_part, scenario, catalog, registry, graph, findings)
    if deployment_part and deployment and 0 <= pool < len(deployment.pools):
        named["draft"] = _draft_graph(deployment_part, deployment.pools[pool], pool, catalog, findings)
    breaches = list(naming_breaches(scenario, named["graph"], named["chip"]))
    if deployment_part and deployment:
        breaches += cluster_breaches(scenario, deployment)
        breaches += device_breaches(scenario, deployment, named["storage"])
        if named["graph"] is not None:
            breaches += engine_breaches(deployment, named["graph"])
    _file_breaches(breaches, {"scenario": scenario_part, "deployment": deployment_part}, findings)
    if findings.problems or findings.refusals or not deployment:
        return None
    warnings = tuple(str(problem) for problem in findings.warnings)
    return Bundle(scenario=scenario, deployment=deployment, pool_index=pool, warnings=warnings, **named)


def _named_documents(
    part: Part,
    scenario: Scenario,
    catalog: Roots,
    registry: Roots,
    graph: ModelGraph | None,
    findings: Findings,
) -> dict[str, Any]:
    """Load what the scenario names. Unknown names and their documents' problems go to `findings`."""
    parts = catalog if isinstance(catalog, Catalog) else Catalog(catalog)
    numbers = registry if isinstance(registry, Catalog) else Catalog(registry)
    unknown: list[Found] = []

    def load(where: Catalog, kind: str, name: str, *key: str | int) -> Any:
        loaded, message = where.find(kind, name)
        if message:
            unknown.append((key, message))
        return findings.take(loaded)

    cluster = scenario.cluster
    storage = findings.take(parts.devices()) or {}
    named = {
        "graph": graph if graph is not None else load(parts, "model", scenario.model, "model"),
        "chip": load(parts, "chip", cluster.hardware, "cluster", "hardware"),
        "fabric": load(parts, "fabric", cluster.fabric, "cluster", "fabric") if cluster.fabric else None,
        "storage": storage,
        "sets": [load(numbers, "coefficient set", n, "coefficients", i) for i, n in enumerate(scenario.coefficients)],
        "model_name": scenario.model,
        "chip_name": cluster.hardware,
    }
    for index, name in enumerate(cluster.storage):
        if name not in storage:
            unknown.append((("cluster", "storage", index), f"unknown device '{name}'; {suggestion(name, storage)}"))
    findings.problems += part.place(unknown)
    return named


def _draft_graph(part: Part, pool: Pool, index: int, catalog: Roots, findings: Findings) -> ModelGraph | None:
    """The graph of the drafter a pool names, None where it names none."""
    name = pool.engine.speculative.draft if pool.engine.speculative else ""
    if not name:
        return None
    parts = catalog if isinstance(catalog, Catalog) else Catalog(catalog)
    loaded, message = parts.find("model", name)
    if message:
        findings.problems += part.place([(("pools", index, "engine", "speculative", "draft"), message)])
    return findings.take(loaded)


def _file_breaches(breaches: list[Breach], parts: dict[str, Part | None], findings: Findings) -> None:
    filed = {"document": findings.problems, "engine": findings.refusals, "warning": findings.warnings}
    for breach in breaches:
        part = parts[breach.about]
        if part is not None:
            filed[breach.level] += part.place([(breach.path, breach.message)])
