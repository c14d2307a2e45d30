"""Host time of a step and of its draft passes: launches by CUDA-graph mode.

docs/research/reference_laws.md, Host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steppe.documents import ModelGraph
from steppe.plan.builder import HOST, REQUESTS, SCHEDULED, US, PlanBuilder
from steppe.resolve.coefficients import Coefficients
from steppe.resolve.geometry import primary_attention
from steppe.resolve.resolved import Resolution

# (graph of a uniform decode batch, graph of any other) by the engine's mode.
GRAPHS = {
    "NONE": ("NONE", "NONE"),
    "PIECEWISE": ("PIECEWISE", "PIECEWISE"),
    "FULL": ("FULL", "FULL"),
    "FULL_DECODE_ONLY": ("FULL", "NONE"),
    "FULL_AND_PIECEWISE": ("FULL", "PIECEWISE"),
}
# Engine 0.12 without asynchronous scheduling.
SYNCHRONOUS_STEP_US, SYNCHRONOUS_REQUEST_US = 1000.0, 36.0


@dataclass(frozen=True, slots=True)
class Launches:
    """Host seconds of one forward by graph, and of each kernel it launches."""

    full: float
    piecewise: float
    eager: float
    per_kernel: float

    def of(self, graph: str) -> float:
        """Host time under a graph: FULL, PIECEWISE or NONE."""
        return {"FULL": self.full, "PIECEWISE": self.piecewise, "NONE": self.eager}[graph]


def piecewise_splits(graph: ModelGraph, counts: Mapping[str, int]) -> int:
    """Places where a piecewise graph leaves the graph: one a layer, one more for a sparse layer's index scorer."""
    splits = 0
    for name, layers in counts.items():
        kind = graph.layer_kind(name)
        primary = primary_attention(kind)
        scorers = sum(1 for node in kind.nodes if node.op == "Attention" and node is not primary)
        extra = 1 if primary is not None and primary.kind == "sparse_mla" and scorers else 0
        splits += layers * (1 + extra)
    return splits


def launches_of(c: Coefficients, layers: float, splits: float) -> Launches:
    """Launch costs of a forward of `layers` layers with `splits` places where a piecewise graph is left."""
    without = "host time is not charged"
    replay = (c.optional("host_replay_graph_per_step", without) or 0.0) * US
    eager = (c.optional("host_launch_eager_per_layer", without) or 0.0) * US
    per_kernel = (c.optional("host_launch_per_kernel", without) or 0.0) * US
    return Launches(replay, replay * (splits + 1), eager * layers, per_kernel)


def host_terms(r: Resolution, c: Coefficients, b: PlanBuilder, kernels: float) -> None:
    """Host time by graph mode: a replay, a replay a piece, or eager launches; plus launches a kernel."""
    stack = r.graph.stack
    cost = launches_of(c, stack.layers, piecewise_splits(r.graph, stack.counts()))
    uniform, mixed = GRAPHS[r.settings.cudagraph_mode]
    params = {
        "uniform_decode": cost.of(uniform),
        "mixed": cost.of(mixed),
        "eager": cost.eager,
        "kernels": kernels * cost.per_kernel,
        "ceiling": float(r.settings.capture_ceiling),
    }
    b.term("launches", "host_launch", (SCHEDULED,), params, HOST)


def refined_host_terms(r: Resolution, c: Coefficients, b: PlanBuilder) -> None:
    """Host time beside refined laws: none with asynchronous scheduling, else so much a step and a request."""
    if r.settings.synchronous_host:
        c.assume("synchronous_host", SYNCHRONOUS_STEP_US, "1 ms a step and 36 us a request, as engine 0.12 shows")
        slope, constant = SYNCHRONOUS_REQUEST_US * US, SYNCHRONOUS_STEP_US * US
        b.affine("synchronous host", HOST, REQUESTS, slope, constant=constant)
