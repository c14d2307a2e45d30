"""Documents: what a scenario, a deployment, a model graph, a part and a coefficient set may say.

Importing this package imports pydantic; `import steppe` does not.
"""

from steppe.documents.bundle import Bundle, Findings, check_bundle, load_bundle, make_bundle
from steppe.documents.coefficients import Coefficient, CoefficientSet, Law, Scope, Source
from steppe.documents.deployment import (
    Dbo,
    Deployment,
    Engine,
    Eplb,
    Offload,
    Parallel,
    PdTransfer,
    Pool,
    Speculative,
    Tier,
)
from steppe.documents.graph import (
    CacheSpec,
    DerivedFrom,
    Global,
    LayerKind,
    ModelGraph,
    Node,
    Speculator,
    Stack,
)
from steppe.documents.hardware import Chip, Fabric, StorageDevice
from steppe.documents.load import (
    load_chip,
    load_coefficient_set,
    load_fabric,
    load_graph,
    load_storage,
    load_workload,
    parse,
)
from steppe.documents.problems import InvalidDeployment, InvalidDocument, Problem
from steppe.documents.scenario import (
    Cluster,
    Lengths,
    Scenario,
    ScenarioWorkload,
    Trace,
    TraceHeader,
    Workload,
)

__all__ = [
    "Bundle",
    "CacheSpec",
    "Chip",
    "Cluster",
    "Coefficient",
    "CoefficientSet",
    "Dbo",
    "Deployment",
    "DerivedFrom",
    "Engine",
    "Eplb",
    "Fabric",
    "Findings",
    "Global",
    "InvalidDeployment",
    "InvalidDocument",
    "Law",
    "LayerKind",
    "Lengths",
    "ModelGraph",
    "Node",
    "Offload",
    "Parallel",
    "PdTransfer",
    "Pool",
    "Problem",
    "Scenario",
    "ScenarioWorkload",
    "Scope",
    "Source",
    "Speculative",
    "Speculator",
    "Stack",
    "StorageDevice",
    "Tier",
    "Trace",
    "TraceHeader",
    "Workload",
    "check_bundle",
    "load_bundle",
    "load_chip",
    "load_coefficient_set",
    "load_fabric",
    "load_graph",
    "load_storage",
    "load_workload",
    "make_bundle",
    "parse",
]
