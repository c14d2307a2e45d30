"""Documents: what a scenario, a deployment, a model graph, a part and a coefficient set may say.

Importing this package imports pydantic; `import steppe` does not.
"""

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
    "Global",
    "Law",
    "LayerKind",
    "Lengths",
    "ModelGraph",
    "Node",
    "Offload",
    "Parallel",
    "PdTransfer",
    "Pool",
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
]
