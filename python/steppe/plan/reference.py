"""The reference plan: the terms that a BLIS coefficient set prices. Everything per rank.

docs/research/reference_laws.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from steppe.documents import LayerKind, Node
from steppe.errors import CoefficientError
from steppe.plan.builder import (
    DECODES,
    HBM,
    PREFILLS,
    SM,
    TOKENS,
    US,
    FeatureRef,
    PlanBuilder,
)
from steppe.plan.collectives import Collectives
from steppe.plan.context_parallel import ContextParallel
from steppe.plan.experts import plan_experts
from steppe.resolve.coefficients import Coefficients
from steppe.resolve.geometry import cache_bytes_per_token, is_latent, primary_attention, shards_context
from steppe.resolve.precision import WEIGHT_BYTES, peak_flops, served_dtype
from steppe.resolve.resolved import Resolution

# Small kernels a derived graph lists that the reference laws leave out.
UNPRICED_ROLES = frozenset({"rope", "qk_norm", "gate", "activation", "attn_gate"})
KIND_SUFFIX = {"gqa": "", "swa": "_swa", "mla": "_mla", "sparse_mla": "_sparse_mla"}


@dataclass(frozen=True, slots=True)
class Gemm:
    """Efficiency and peak of one precision: eff(m) = eps_max * m/(m + m_half), with an optional shape ramp."""

    peak: float  # FLOP/s
    eps_max: float
    m_half: float  # tokens
    n_half: float | None
    k_half: float | None

    def shape_factor(self, n: float, k: float) -> float:
        """How much longer work takes at per-rank shape (n, k): the inverse of n/(n+n_half) * k/(k+k_half)."""
        if self.n_half is None or self.k_half is None:
            return 1.0
        return (n + self.n_half) / n * (k + self.k_half) / k


class ReferencePlan:
    """Emits the terms of every layer kind of one resolution."""

    def __init__(self, r: Resolution, coefficients: Coefficients, builder: PlanBuilder) -> None:
        self.r = r
        self.c = coefficients
        self.b = builder
        self.tp = r.widths.tp
        derate = coefficients.need("hbm_derate", "every read of weights and activations")
        self.hbm = r.chip.bw_peak_tbs * 1e12 * derate  # bytes/s
        self._gemms: dict[str, Gemm] = {}
        self.collectives = self._collectives()
        self.context = ContextParallel(r, self.collectives, builder)
        self.kernels = 0.0  # launches a step, for the host law

    def _collectives(self) -> Collectives:
        return Collectives(self.r, self.c, self.b)

    def emit(self) -> None:
        """Emit every stage: layer kinds in order of appearance, then the head."""
        self.price_layers()
        if self.r.graph.head:
            self.b.open_stage("head", 1)
            self.kernels += sum(self.head(node) for node in self.r.graph.head)

    def price_layers(self) -> None:
        """Emit the target's layers, a stage a kind.

        KNOWN over-charge: without expert parallelism a rank holds one slice of every expert and multiplies by that
        slice alone (vllm/model_executor/layers/fused_moe/config.py:1195-1209, 1321-1323). Here the bytes it reads are
        divided by the slices, its routed arithmetic only by those beyond the tensor-parallel ones. Dividing it fully
        does not make measured serving points closer: with the reference sets alone, on the 259 clean rows without a
        fault whose experts are sliced, MAPE / median / bias are 23.9 / 15.0 / +21.1 % as charged and 24.0 / 22.6 /
        -20.0 % divided; on all 370 rows of models with experts 22.4 / 15.3 / +16.0 % and 22.4 / 20.1 / -12.7 %
        (bench/routed_arithmetic.py). The over-charge stands in for what the reference law leaves out, the fixed cost of
        an experts launch and its quantisation. The refined MoE law charges both and takes the sliced width.
        """
        for name, layers in self.r.graph.stack.counts().items():
            self.b.open_stage(name, layers)
            self.kernels += layers * self.layer(self.r.graph.layer_kind(name))

    # -- one layer ---------------------------------------------------------------------------------------------

    def layer(self, kind: LayerKind) -> float:
        """Emit one layer kind and return the kernels it launches."""
        launches = 0.0
        for group in fused_gemms(kind.nodes, self.r.graph.globals_.hidden_size):
            self._gemm_group(group)
            launches += len(group)
        primary = primary_attention(kind)
        for node in kind.nodes:
            launches += self.node(node, primary)
        return launches

    def node(self, node: Node, primary: Node | None = None) -> float:
        """Emit one node and return the kernels it launches; GEMMs are emitted by fusion group."""
        if node.op == "GroupedGEMM":
            self._experts(node)
            return 4
        if node.op == "Attention":
            assert primary is not None
            if node.role and node is not primary:
                self._secondary(node, primary)
            else:
                self._attention(node)
            return 2
        if node.op == "RecurrentUpdate":
            self._recurrent(node)
            return 2
        if node.op == "Elementwise":
            return self._elementwise(node)
        if node.op == "GEMM":
            return 0  # counted with its fusion group
        return self.collectives.node(node)

    def head(self, node: Node) -> float:
        """Emit one node of the head and return the kernels it launches."""
        if node.op == "GEMM":
            self.matmul(node.role or "head", self.gemm(), 2.0 * node.n * node.k / self.tp)  # type: ignore[operator]
            self._weights(node)
            return 1
        if node.op == "Elementwise":
            return 1  # launched, not charged
        return self.collectives.launches(node)

    # -- dense -------------------------------------------------------------------------------------------------

    def gemm(self, dtype: str = "") -> Gemm:
        """The efficiency of `dtype`'s arithmetic on this part.

        By default the deployment's served dtype: a node's own weight_dtype changes the bytes it reads, not the units it
        multiplies on.
        """
        dtype = dtype or served_dtype(self.r)
        peak, suffix = peak_flops(self.r.chip, dtype)
        found = self._gemms.get(dtype)
        if found is None:
            n_half, k_half = self.c.get(f"gemm_n_half_{suffix}"), self.c.get(f"gemm_k_half_{suffix}")
            if (n_half is None) != (k_half is None):
                missing = "gemm_n_half_" if n_half is None else "gemm_k_half_"
                raise CoefficientError(
                    f"coefficient {missing}{suffix} is missing: the shape ramp needs both gemm_n_half_{suffix} and "
                    f"gemm_k_half_{suffix}; list a set that carries both, or neither"
                )
            eps = self.c.need(f"gemm_eps_max_{suffix}", f"{dtype} matrix products")
            m_half = self.c.need(f"gemm_m_half_{suffix}", f"{dtype} matrix products")
            found = self._gemms[dtype] = Gemm(peak, eps, m_half, n_half, k_half)
        return found

    def matmul(
        self,
        name: str,
        gemm: Gemm,
        flops_per_token: float,
        factor: float = 1.0,
        rows: FeatureRef = TOKENS,
        **flags: Any,
    ) -> None:
        """m*W/(peak*eff(m)) = W/(peak*eps)*(m + m_half) seconds of arithmetic over m rows."""
        slope = flops_per_token / (gemm.peak * gemm.eps_max) * factor
        self.b.affine(name, SM, rows, slope, constant=slope * gemm.m_half, derate=True, **flags)

    def dense(self, node: Node, rows: FeatureRef = TOKENS) -> None:
        """A linear layer by itself over `rows`: its outputs sharded, or whole on each rank where it is replicated."""
        n, k, shards = float(node.n or 0), float(node.k or 0), 1 if node.replicated else self.tp
        gemm, name = self.gemm(), node.role or "gemm"
        self.matmul(name, gemm, 2.0 * n * k / shards, gemm.shape_factor(n / shards, k), rows)
        size = n * k * WEIGHT_BYTES[served_dtype(self.r, node)] / shards
        self.b.affine(f"{name} weights", HBM, rows, 0.0, constant=size / self.hbm)

    def _weights(self, node: Node) -> None:
        width = WEIGHT_BYTES[served_dtype(self.r, node)]
        size = node.n * node.k * width / self.tp  # type: ignore[operator]
        self.b.affine(f"{node.role or 'gemm'} weights", HBM, TOKENS, 0.0, constant=size / self.hbm)

    def _gemm_group(self, group: list[Node]) -> None:
        """One launch: column-parallel nodes on the same input shard their summed n, others their k."""
        for node in group:
            self._weights(node)
        total_n = sum(node.n for node in group if node.n)
        k = group[0].k or 0
        column = is_column_parallel(group[0], self.r.graph.globals_.hidden_size)
        n_rank, k_rank = (total_n / self.tp, k) if column else (total_n, k / self.tp)
        gemm = self.gemm()
        name = "+".join(node.role or "gemm" for node in group)
        self.matmul(name, gemm, 2.0 * total_n * k / self.tp, gemm.shape_factor(n_rank, k_rank))

    def _experts(self, node: Node) -> None:
        plan_experts(self, node)

    # -- attention ---------------------------------------------------------------------------------------------

    def _decode_rate(self, kind: str) -> tuple[float, float] | None:
        """(floor s, rate bytes/s) of a kind; a kind without a rate takes the part-wide pair, without any: None."""
        suffix = KIND_SUFFIX[kind]
        rate, floor = self.c.get(f"attention_decode_rate{suffix}"), self.c.get(f"attention_decode_floor{suffix}")
        if rate is None:
            rate, floor = self.c.get("attention_decode_rate"), self.c.get("attention_decode_floor")
        elif floor is None:
            floor = self.c.get("attention_decode_floor")
        return None if rate is None else ((floor or 0.0) * US, rate / US)

    def _attention(self, node: Node) -> None:
        decode_floor = self._decode(node, self.context.read_class(node))
        prefill_floor = self._prefill(node)
        self.context.emit(node)
        one_launch = self.r.settings.one_kernel_attention and self.r.widths.dcp == 1 and not is_latent(node)
        if one_launch and decode_floor is not None and prefill_floor is not None:
            # One varlen launch serves both: the smaller floor is charged once.
            amount, resource = min((decode_floor, 1, HBM), (prefill_floor, 0, SM))[::2]
            self.b.term("attention one launch", "both", (DECODES, PREFILLS), {"amount": -amount}, resource)

    def _decode(self, node: Node, read: Any) -> float | None:
        """Emit the decode read and return its floor where the kind has a measured rate."""
        size = cache_bytes_per_token(self.r, node)
        found = self._decode_rate(node.kind)
        if found is None:
            self.c.optional(
                "attention_decode_rate", "decode attention reads its cache at the HBM rate, without a floor"
            )
            self.b.affine("attention decode", HBM, read, size / self.hbm, gate=DECODES)
            return None
        floor, rate = found
        self.b.affine("attention decode", HBM, read, size / rate, constant=floor, gate=DECODES)
        return floor

    def _prefill(self, node: Node) -> float | None:
        """Emit the causal arithmetic under the served dtype's ramp; return its floor where a scale is measured."""
        gemm = self.gemm()
        scale = self.c.optional(
            "attention_prefill_work_scale", "prefill attention runs at the plain GEMM ramp, no floor"
        )
        floor = None if scale is None else (self.c.get("attention_prefill_floor") or 0.0) * US
        work = 4.0 * node.n_q * node.d_h / self.tp / (gemm.peak * gemm.eps_max * (scale or 1.0))  # type: ignore[operator]
        pairs = self.b.pair_class(window=node.window or 0)
        params = {"floor": floor or 0.0, "work": work, "m_half": gemm.m_half}
        self.b.term("attention prefill", "ramped_prefill", (PREFILLS, pairs, TOKENS), params, SM, derate=True)
        return floor

    def _secondary(self, node: Node, primary: Node) -> None:
        """An index scorer reads its own key cache, scaled from the primary's by its head geometry."""
        ratio = (node.n_kv * node.d_h) / (primary.n_kv * primary.d_h)  # type: ignore[operator]
        size = cache_bytes_per_token(self.r, primary) * ratio
        dcp = self.r.widths.dcp if shards_context(node) else 1
        spec: dict[str, Any] = {"divide": node.compress_ratio or 1}
        if node.window:
            spec["limit"] = node.window
        if dcp > 1:
            spec |= {"dcp": dcp, "interleave": self.r.settings.interleave, "shard_sum": True}
        read = self.b.read_class(**spec)
        floor, rate = self._decode_rate(node.kind) or (0.0, self.hbm)
        self.b.affine(node.role, HBM, read, size / rate, constant=floor, gate=DECODES)
        self.context.emit_index_key(node)

    # -- the rest ----------------------------------------------------------------------------------------------

    def _recurrent(self, node: Node) -> None:
        kind = node.recurrent_kind
        rate = self.c.optional(f"recurrent_decode_rate_{kind}", f"{kind} mixers are not charged")
        if rate is None:
            return
        floor = self.c.get(f"recurrent_decode_floor_{kind}") or 0.0
        self.b.affine(f"{kind} mixer", SM, TOKENS, US / rate, constant=floor * US)

    def _elementwise(self, node: Node) -> float:
        if node.role in UNPRICED_ROLES:
            return 0
        moved = node.bytes_per_token or self.r.graph.globals_.hidden_size * 2 * 2  # read and write at 16 bits
        self.b.affine(node.role or "elementwise", HBM, TOKENS, moved / self.tp / self.hbm)
        return 1


def is_column_parallel(node: Node, hidden: int) -> bool:
    """Whether the node shards its outputs: by role for a square product, else its k is the hidden size and n is not."""
    if node.n == node.k:
        return node.role in COLUMN_ROLES
    return node.k == hidden


COLUMN_ROLES = frozenset({"qkv", "q", "k", "v", "gate_up", "gate", "up", "in_proj", "shared_gate_up", "shared_up"})


def fused_gemms(nodes: tuple[Node, ...], hidden: int) -> list[list[Node]]:
    """GEMM nodes as launches: consecutive column-parallel ones on the same k are one."""
    groups: list[list[Node]] = []
    previous: Node | None = None
    for node in nodes:
        if node.op == "GEMM":
            joins = (
                previous is not None
                and previous.op == "GEMM"
                and is_column_parallel(previous, hidden)
                and is_column_parallel(node, hidden)
                and previous.k == node.k
            )
            if joins:
                groups[-1].append(node)
            else:
                groups.append([node])
        previous = node
    return groups
