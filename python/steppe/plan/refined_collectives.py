"""Collectives by the fitted laws: the engine release's own all-reduce curve, two-protocol NCCL for the rest."""

from __future__ import annotations

from collections.abc import Sequence

from steppe.documents import Law, Node
from steppe.plan.builder import GROUP_ROWS, NVLINK, PADDED, TOKENS, US, FeatureRef, PlanBuilder
from steppe.plan.collectives import OPS, POINT_TO_POINT, Collectives
from steppe.plan.refined_laws import RefinedLaws, number
from steppe.resolve.coefficients import Coefficients
from steppe.resolve.resolved import Placement, Resolution

# Bytes an element is dispatched at by the experts' stored weights: a byte and a 4-byte scale for 128, half a byte and a
# byte for 16.
DISPATCH_BYTES = {"fp8_block": 1 + 4 / 128, "nvfp4": 0.5625}
# Point-to-point backends with a measured exchange law.
EXCHANGES = {"deepep_high_throughput": "deepep_ht", "deepep_low_latency": "deepep_ll"}
# All-reduces up to this size are fused with the norm behind them: MiB by ranks, by compute capability
# (vllm/compilation/passes/fusion/allreduce_rms_fusion.py:104-129).
FUSED_LIMIT_MIB = {(10, 0): {2: 64.0, 4: 32.0, 8: 1.0, 16: 64.0}, (10, 3): {2: 64.0, 4: 64.0, 8: 4.0, 16: 64.0}}


class RefinedCollectives(Collectives):
    """Emits fitted collectives where the sets in scope carry them, the reference law otherwise."""

    def __init__(self, r: Resolution, coefficients: Coefficients, builder: PlanBuilder, laws: RefinedLaws) -> None:
        super().__init__(r, coefficients, builder)
        self.laws = laws
        self.fitted = laws.has("collective")

    # -- graph collectives -------------------------------------------------------------------------------------

    def node(self, node: Node) -> float:
        """Emit a graph collective. Dispatch and combine belong to the experts node."""
        if not self.fitted or not self.laws.has("moe"):
            return super().node(node)
        launches = self.launches(node)
        if node.op == "All2All" and node.emit == "expert_parallel":
            return launches
        if not launches:
            self._sequence_parallel(node)
            return 0
        size = float(node.bytes_per_token or self.r.graph.globals_.hidden_size * 2)
        if node.op == "AllReduce":
            self.tensor_all_reduce(node.role or "all-reduce", size, PADDED)
        else:
            self.emit(node.role or node.op, OPS[node.op], self.r.placements["tp"], PADDED, PADDED, size)
        return launches

    def _sequence_parallel(self, node: Node) -> None:
        """Sequence-parallel experts leave their rows split over tp: the engine gathers them instead of summing.

        vllm/model_executor/layers/fused_moe/runner/moe_runner.py.
        """
        if node.emit == "tensor_parallel_unless_sp_moe" and self.r.widths.tp > 1:
            size = float(self.r.graph.globals_.hidden_size * 2)
            self.emit("sequence-parallel gather", "all_gather", self.r.placements["tp"], PADDED, PADDED, size)

    def tensor_all_reduce(self, name: str, bytes_per_row: float, rows: FeatureRef) -> None:
        """All-reduce over the tensor-parallel group."""
        group = self.r.placements["tp"]
        if group.width <= 1:
            return
        if not self.fitted:
            self.emit(name, "all_reduce", group, rows, rows, bytes_per_row)
            return
        curve = None if self.r.settings.all_reduce_backend == "nccl" or group.crosses else self._curve(group.width)
        if curve is None:
            self.emit(name, "all_reduce", group, rows, rows, bytes_per_row)
            return
        params = self._curve_params(curve, bytes_per_row, group.width)
        self.b.curve(name, rows, params, self.resource(group))

    def tensor_gather(self, name: str, bytes_per_row: float, rows: FeatureRef) -> None:
        """All-gather over the tensor-parallel group."""
        if self.r.widths.tp > 1:
            self.emit(name, "all_gather", self.r.placements["tp"], rows, rows, bytes_per_row)

    # -- experts -----------------------------------------------------------------------------------------------

    def dispatch(self, node: Node, kernel: str) -> None:
        """Rows travel to their experts: gathered whole with the router's output, or sent point to point."""
        if not self._spreads():
            return
        hidden, group = float(node.latent_size or node.k or 0), self.r.placements["expert"]
        element = DISPATCH_BYTES.get(kernel.split("/")[0], 2.0)
        if self.r.settings.all2all_backend in POINT_TO_POINT:
            if not self._exchange("dispatch", node, hidden):
                self.emit("dispatch", "alltoall", group, TOKENS, TOKENS, hidden * element * self._copies(node))
        else:
            size = hidden * element + 4.0 * (node.experts or 0)
            self.emit("dispatch gather", "all_gather", group, GROUP_ROWS, GROUP_ROWS, size)

    def combine(self, node: Node) -> None:
        """Expert outputs travel back at 16 bits."""
        if not self._spreads():
            return
        hidden, group = float(node.latent_size or node.k or 0), self.r.placements["expert"]
        if self.r.settings.all2all_backend in POINT_TO_POINT:
            if not self._exchange("combine", node, hidden):
                self.emit("combine", "alltoall", group, TOKENS, TOKENS, hidden * 2 * self._copies(node))
        else:
            self.emit("combine scatter", "reduce_scatter", group, GROUP_ROWS, GROUP_ROWS, hidden * 2)

    def _exchange(self, half: str, node: Node, hidden: float) -> bool:
        """DeepEP by its own law where it is measured at this width: t = a + c*T + T*hidden*bytes*D/R, one node only.

        D counts the ranks a token goes to: each once (high throughput), or once a copy (low latency).
        """
        group = self.r.placements["expert"]
        kind = EXCHANGES.get(self.r.settings.all2all_backend)
        law = self.c.law("moe_exchange", f"{kind}/{half}/default/{group.width}") if kind and not group.crosses else None
        if law is None:
            return False
        p = law.params
        far = self._copies(node) if p["once_a_rank"] else (node.top_k or 1) * (group.width - 1) / group.width
        slope = number(p["c"]) + hidden * number(p["bytes"]) * far / number(p["R"])
        self.b.affine(half, NVLINK, TOKENS, slope * US, constant=number(p["a"]) * US, serial=True)
        return True

    def _spreads(self) -> bool:
        """Whether rows of several ranks meet: with one data-parallel rank the tensor group's sum does it all."""
        return self.r.widths.moe_group > 1 and self.r.widths.dp > 1

    def _copies(self, node: Node) -> float:
        """Ranks besides its own a token is sent to, copies to one rank deduplicated."""
        p = self.r.placements["expert"].width
        return (p - 1) * (1 - (1 - 1 / p) ** (node.top_k or 1))

    # -- laws --------------------------------------------------------------------------------------------------

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
        """Emit one NCCL collective by its fitted law; a crossing group's bytes are scaled as in the reference law."""
        law = self._nccl(op, placement.width) if self.fitted else None
        if law is None:
            super().emit(name, op, placement, gate, x, bytes_per_x, count=count)
            return
        params = {"bytes": bytes_per_x * self.span(op, placement), **_protocols(law)}
        self.b.term(name, "two_protocol", (x,), params, self.resource(placement), count=count, serial=True)

    def _nccl(self, op: str, ranks: int) -> Law | None:
        law = self.c.law("collective", f"nccl/{op}/{ranks}")
        if law is not None:
            return law
        measured = sorted(
            int(key.rsplit("/", 1)[1]) for key in self.c.laws("collective") if key.startswith(f"nccl/{op}/")
        )
        if not measured:
            return None
        nearest = min((w for w in measured if w >= ranks), default=measured[-1])
        self.c.assume(f"collective:nccl/{op}/{ranks}", nearest, f"{op} over {ranks} ranks is priced as over {nearest}")
        return self.c.law("collective", f"nccl/{op}/{nearest}")

    def _curve(self, ranks: int) -> Law | None:
        """The custom all-reduce of the stated release: the nearest measured release at or above it."""
        lanes = {
            _release(key.split("/")[0]): key for key in self.c.laws("all_reduce_curve") if key.endswith(f"/{ranks}")
        }
        if not lanes:
            return None
        stated = _release(self.r.engine_version)
        later = [lane for lane in sorted(lanes) if lane >= stated]
        lane = later[0] if later else max(lanes)
        if lane != stated:
            text = ".".join(map(str, lane))
            self.c.assume(
                "all_reduce_lane", text, f"all-reduce of engine {self.r.engine_version} is priced as measured on {text}"
            )
        return self.c.law("all_reduce_curve", lanes[lane])

    def _curve_params(self, curve: Law, bytes_per_row: float, ranks: int) -> list[float]:
        sizes, times = curve.params["bytes"], curve.params["us"]
        assert isinstance(sizes, Sequence)
        assert isinstance(times, Sequence)
        head = [bytes_per_row, 0.0, 0.0, 1.0, 0.0, 1.0]
        smooth = self.c.law("collective", f"vllm_graph/all_reduce/{ranks}") if self._fuses() else None
        if smooth is not None:
            protocols = _protocols(smooth)
            limits = FUSED_LIMIT_MIB.get(self.r.compute_capability, {})
            head = [bytes_per_row, limits.get(ranks, 0.0) * 2.0**20, *protocols.values()]
        return head + [number(value) for point in zip(sizes, times, strict=True) for value in point]

    def _fuses(self) -> bool:
        """Fused all-reduce and norm on data-centre Blackwell does not take the dispatch step of the measured curve."""
        return self.r.settings.fuse_allreduce_rms and self.r.compute_capability in FUSED_LIMIT_MIB


def _protocols(law: Law) -> dict[str, float]:
    return {name: number(law.params[name]) for name in ("a1", "R1", "a2", "R2")}


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
