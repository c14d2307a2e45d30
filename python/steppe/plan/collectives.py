"""Collectives by the reference law: t(b) = max(floor + b/transition_rate, b/peak_rate).

docs/research/reference_laws.md, Collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steppe.documents import Node
from steppe.errors import CoefficientError
from steppe.plan.builder import NIC, NVLINK, TOKENS, US, FeatureRef, PlanBuilder
from steppe.resolve.coefficients import Coefficients
from steppe.resolve.resolved import Placement, Resolution

OPS = {"AllReduce": "all_reduce", "AllGather": "all_gather", "ReduceScatter": "reduce_scatter", "All2All": "alltoall"}
WIDEST_EXTRAPOLATED = 16  # a group wider than this takes the widest measured width
# All-to-all backends that move each token's copies point to point (vllm/distributed/device_communicators/all2all.py).
POINT_TO_POINT = frozenset(
    {
        "pplx",
        "deepep_high_throughput",
        "deepep_low_latency",
        "deepep_v2",
        "flashinfer_all2allv",
        "flashinfer_nvlink_one_sided",
        "flashinfer_nvlink_two_sided",
        "mori_high_throughput",
        "mori_low_latency",
        "nixl_ep",
    }
)


class Collectives:
    """Prices collectives over the deployment's groups and emits them as terms."""

    def __init__(self, r: Resolution, coefficients: Coefficients, builder: PlanBuilder) -> None:
        self.r = r
        self.c = coefficients
        self.b = builder
        fabric = r.fabric.inter_node_bw_gbps if r.fabric else None
        ratio = r.chip.intra_node_bw_gbps / fabric if fabric else 1.0
        self.ratio = max(1.0, ratio)  # on-node over inter-node bandwidth

    def node(self, node: Node) -> float:
        """Emit a graph collective where its condition holds; return the kernels it launches."""
        launches = self.launches(node)
        if launches:
            expert = node.emit == "expert_parallel"
            placement = self.r.placements["expert" if expert else "tp"]
            width = node.bytes_per_token or self._width(node)
            copies = self.top_k_of(node) if node.op == "All2All" else 1
            self.emit(node.role or OPS[node.op], OPS[node.op], placement, TOKENS, TOKENS, float(width * copies))
        return launches

    def launches(self, node: Node) -> float:
        """Kernels the collective launches: 0 where its group is one rank or the engine drops it."""
        widths, emit = self.r.widths, node.emit
        if emit == "expert_parallel":
            on = widths.moe_group > 1
        elif emit == "tensor_parallel_unless_sp_moe":
            on = widths.tp > 1 and not self.r.settings.sequence_parallel_moe
        else:
            on = widths.tp > 1
        if not on:
            return 0
        return 2 if node.op == "All2All" else 1

    def _width(self, node: Node) -> int:
        """Bytes a token crosses with: the hidden state at 16 bits, the latent one where experts are latent."""
        hidden = self.r.graph.globals_.hidden_size
        if node.op == "All2All":
            for kind in self.r.graph.layer_kinds:
                if any(each is node for each in kind.nodes):
                    return activation_bytes(kind.nodes, hidden)
        return hidden * 2

    def top_k_of(self, node: Node) -> int:
        """Copies of a token that are sent: top_k on a point-to-point backend with experts spread, else one."""
        if self.r.widths.ep == 1 or self.r.settings.all2all_backend not in POINT_TO_POINT:
            return 1
        for kind in self.r.graph.layer_kinds:
            if any(each is node for each in kind.nodes):
                return max((each.top_k or 1) for each in kind.nodes if each.op == "GroupedGEMM")
        return 1

    def emit(
        self,
        name: str,
        op: str,
        placement: Placement,
        gate: FeatureRef,
        x: FeatureRef,
        bytes_per_x: float,
        *,
        count: float = 1.0,
    ) -> None:
        """Emit one collective of `bytes_per_x` per unit of feature x."""
        floor, transition, peak = self.rates(op, placement.width)
        span = self.span(op, placement)
        params = {
            "floor": floor,
            "transition_slope": bytes_per_x * span / transition,
            "peak_slope": bytes_per_x * span / peak,
        }
        self.b.term(name, "two_piece", (gate, x), params, self.resource(placement), count=count)

    def resource(self, placement: Placement) -> Any:
        """The link the collective waits for."""
        return NIC if placement.crosses else NVLINK

    def span(self, op: str, placement: Placement) -> float:
        """How crossing nodes scales the bytes: 1 + (ratio - 1) * cross/total hops."""
        if not placement.crosses:
            return 1.0
        width, per_node = placement.width, placement.per_node
        total = width - 1
        if op == "alltoall" and self.r.settings.all2all_backend in POINT_TO_POINT:
            cross = width - per_node
        else:
            cross = width // per_node - 1 if width % per_node == 0 else total
        return 1.0 + (self.ratio - 1.0) * cross / total

    def rates(self, op: str, ranks: int) -> tuple[float, float, float]:
        """(floor s, transition bytes/s, peak bytes/s) of the nearest admissible measured width."""
        chip = self.r.chip_name.replace("-", "_")
        prefix = f"collective_floor_{op}_fp16_"
        suffix = f"rank_{chip}"
        measured = sorted(
            int(name[len(prefix) : -len(suffix)])
            for name in self.c.names(prefix)
            if name.endswith(suffix) and name[len(prefix) : -len(suffix)].isdigit()
        )
        width = _measured_width(measured, ranks)
        if width is None:
            have = ", ".join(map(str, measured)) or "none"
            raise CoefficientError(
                f"coefficient {prefix}{ranks}{suffix} is missing: {op} over {ranks} ranks is not measured "
                f"(measured widths: {have}); list a set that carries it or choose a measured width"
            )
        key = f"{op}_fp16_{width}rank_{chip}"
        purpose = f"{op} over {ranks} ranks"
        return (
            self.c.need(f"collective_floor_{key}", purpose) * US,
            self.c.need(f"collective_transition_rate_{key}", purpose) / US,
            self.c.need(f"collective_peak_rate_{key}", purpose) / US,
        )


def activation_bytes(nodes: Sequence[Node], hidden: int) -> int:
    """Bytes a token takes on its way to the experts of a layer, the latent width where they work at one.

    COVERAGE LIMIT: 16 bits a value, whatever the experts take in. The engine quantizes a row before it is sent unless
    the experts kernel asks for it as it is (`expects_unquantized_inputs`,
    vllm/model_executor/layers/fused_moe/modular_kernel.py:505-513, 1210-1219; the widths,
    vllm/model_executor/layers/fused_moe/utils.py:357-428), so a block-FP8 deployment on a backend that does not defer
    sends half of what is charged here and an NVFP4 one less than a third. The way back is 16 bits in both. The refined
    laws charge the quantized row and its scales (`RefinedCollectives.dispatch`).
    """
    latent = [node.latent_size for node in nodes if node.latent_size]
    return (latent[0] if latent else hidden) * 2


def _measured_width(measured: list[int], ranks: int) -> int | None:
    if not measured:
        return None
    if ranks in measured:
        return ranks
    if ranks < measured[0]:
        return measured[0]
    if ranks > WIDEST_EXTRAPOLATED:
        return measured[-1]
    return None
