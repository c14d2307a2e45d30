"""The refined plan: every kernel a step launches, priced by the fitted laws; other families as the reference plan does.

Which family of laws prices a kernel follows from the entries in scope: where a fitted law of the family is there, it is
used, otherwise the reference law. Refined kernels run one after another on a stream, so they add up inside a layer.
"""

from __future__ import annotations

from typing import Any

from steppe.documents import LayerKind, Node
from steppe.plan.builder import (
    DECODE_TOKENS,
    DECODES,
    HBM,
    MAX_CHUNK,
    MAX_CONTEXT,
    PADDED,
    PREFILL_TOKENS,
    PREFILLS,
    SAMPLED,
    SM,
    TOKENS,
    UNPADDED,
    US,
    FeatureRef,
    PlanBuilder,
    pair,
)
from steppe.plan.reference import ReferencePlan
from steppe.plan.refined_collectives import RefinedCollectives
from steppe.plan.refined_experts import RefinedExperts
from steppe.plan.refined_latent import LatentBlocks
from steppe.plan.refined_laws import STORED_BYTES, RefinedLaws, gemm_key, number
from steppe.plan.refined_recurrent import emit_mixer
from steppe.resolve.coefficients import Coefficients
from steppe.resolve.geometry import is_latent, primary_attention
from steppe.resolve.precision import served_dtype
from steppe.resolve.resolved import Resolution

# Row-parallel layers shard their inputs, the others their outputs; replicated ones neither.
ROW_ROLES = frozenset({"out", "down", "shared_down", "out_b"})
# Small kernels over heads or an inner width, which tensor parallelism shards; norms run whole on every rank.
SHARDED_ROLES = frozenset({"rope", "qk_norm", "activation", "attn_gate", "norm_gate"})
# Modules the engine loads as one product; other neighbours on the same input are launches of their own.
MERGED_ROLES = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "gate_up", "up": "gate_up", "q_a": "qkv_a", "kv_a": "qkv_a"}
NORMS_WITH_RESIDUAL = frozenset({"norm_in", "norm_mid"})  # read x and the residual, write both


class RefinedPlan(ReferencePlan):
    """Emits refined terms where fitted laws are in scope."""

    def __init__(self, r: Resolution, coefficients: Coefficients, builder: PlanBuilder) -> None:
        self.laws = RefinedLaws(r, coefficients)
        super().__init__(r, coefficients, builder)
        self.refined = self.laws.has("gemm")
        self.small = coefficients.law("elementwise", "default")
        self.moe = RefinedExperts(self)
        self.latent = LatentBlocks(self)

    def _collectives(self) -> RefinedCollectives:
        self.refined_collectives = RefinedCollectives(self.r, self.c, self.b, self.laws)
        return self.refined_collectives

    def emit(self) -> None:
        """Emit every stage; with refined laws also what a step runs once: embedding, logits, sampler."""
        super().emit()
        if self.small is not None:
            self._once()

    # -- small kernels -----------------------------------------------------------------------------------------

    def ew(self, name: str, x: FeatureRef, bytes_per_row: float, launches: float = 1.0) -> None:
        """One small kernel: a measured floor a launch and its bytes at a fraction of the HBM rate."""
        assert self.small is not None
        p = self.small.params
        rate = number(p["hbm_fraction"]) * number(p["bw_Bps"])
        floor = number(p["floor_us"]) * US
        self.b.affine(name, HBM, x, bytes_per_row / rate, constant=floor * launches, serial=True)

    @property
    def ew_floor_us(self) -> float:
        """Floor of one small kernel, microseconds."""
        return number(self.small.params["floor_us"]) if self.small is not None else 0.0

    def _elementwise(self, node: Node) -> float:
        if self.small is None:
            return super()._elementwise(node)
        hidden = self.r.graph.globals_.hidden_size
        size = float(node.bytes_per_token or (8 if node.role in NORMS_WITH_RESIDUAL else 4) * hidden)
        if node.role in SHARDED_ROLES and not node.replicated:
            size /= self.tp
        launches = float(node.launches)
        if node.role == "qk_norm" and self._reduces_qk_norm:
            launches = 5.0  # two variances, their concatenation, two scalings around the cross-rank sum
        self.ew(node.role or "elementwise", PADDED, size, launches)
        return launches

    # -- one layer ---------------------------------------------------------------------------------------------

    def layer(self, kind: LayerKind) -> float:
        self._reduces_qk_norm = self.tp > 1 and any(node.role == "qk_norm_reduce" for node in kind.nodes)
        latent, shared = self.latent.absorbed(kind), self.moe.absorbed(kind)
        rest = tuple(node for node in kind.nodes if id(node) not in latent | shared)
        if latent:
            primary = primary_attention(kind)
            assert primary is not None
            self.latent.emit(kind, primary)
        return super().layer(kind.model_copy(update={"nodes": rest})) + (2 if latent else 0)

    def _gemm_group(self, group: list[Node]) -> None:
        if not self.refined:
            super()._gemm_group(group)
            return
        launches: dict[tuple[str, str, bool, str], list[Node]] = {}
        for node in group:
            module = MERGED_ROLES.get(node.role) or node.role or str(id(node))
            kernel = (module, gemm_key(self.r, node), node.replicated, served_dtype(self.r, node))
            launches.setdefault(kernel, []).append(node)
        for (_, key, _, _), nodes in launches.items():
            first = nodes[0]
            n, k = float(sum(node.n or 0 for node in nodes)), float(first.k or 0)
            self.linear("+".join(node.role or "gemm" for node in nodes), first, key, *self.shard(first, n, k), PADDED)

    def dense(self, node: Node, rows: FeatureRef = TOKENS) -> None:
        """A linear layer by itself; over the pass's rows, those its graph pads to."""
        if not self.refined:
            super().dense(node, rows)
            return
        n, k = self.shard(node, float(node.n or 0), float(node.k or 0))
        self.linear(node.role or "gemm", node, gemm_key(self.r, node), n, k, PADDED if rows == TOKENS else rows)

    def shard(self, node: Node, n: float, k: float) -> tuple[float, float]:
        """Per-rank shape of a linear layer."""
        if node.replicated:
            return n, k
        return (n, k / self.tp) if node.role in ROW_ROLES else (n / self.tp, k)

    def linear(self, name: str, node: Node, key: str, n: float, k: float, rows: FeatureRef) -> int:
        """One linear layer, its activation quantiser included; an fp32 product runs as TF32, twice the bytes and k."""
        if node.compute_dtype == "fp32" or served_dtype(self.r, node) == "fp32":
            params = self.laws.gemm("bfloat16", n, 2 * k)
        else:
            stored = None
            if key == "bfloat16":
                stored = STORED_BYTES.get(served_dtype(self.r, node))
            params = self.laws.gemm(key, n, k, stored)
        assert params is not None
        return self.b.term(name, "gemm", (rows, UNPADDED), params, SM, serial=True, derate=True)

    # -- experts -----------------------------------------------------------------------------------------------

    def _experts(self, node: Node) -> None:
        if not self.moe.emit(node):
            super()._experts(node)

    # -- attention ---------------------------------------------------------------------------------------------

    def _attention(self, node: Node) -> None:
        keys = self.laws.attention_keys(node)
        decode = None if is_latent(node) else self.laws.first("attention_decode", keys, "decode attention")
        prefill = None if is_latent(node) else self.laws.first("attention_prefill", keys, "prefill attention")
        if decode is None or prefill is None:
            super()._attention(node)
            return
        window = node.window or 0
        spec: dict[str, Any] = {"limit": window + self.laws.window_slack(decode)} if window else {}
        if self.r.widths.dcp > 1 and node.kind == "gqa":
            spec |= {"dcp": self.r.widths.dcp, "interleave": self.r.settings.interleave}
        params = self.laws.attention_decode(node, decode)
        inputs = (DECODES, self.b.read_class(**spec), MAX_CONTEXT, DECODE_TOKENS, PREFILLS)
        name = "attention decode" + (f" (window {window})" if window else "")
        self.b.term(name, "attention_decode", inputs, params, SM, serial=True)
        name = "attention prefill" + (f" (window {window})" if window else "")
        self.b.term(
            name,
            "attention_prefill",
            (PREFILLS, PREFILL_TOKENS, *self.prefill_features(window), MAX_CHUNK, self._cached_keys(window)),
            self.laws.attention_prefill(node, prefill, params["e"]),
            SM,
            serial=True,
            derate=True,
        )
        self.context.emit(node)

    def prefill_features(self, window: int) -> tuple[FeatureRef, FeatureRef]:
        """(causal pairs, longest visible context) under a window (0 = full)."""
        visible = self.b.pair_class(figure=pair("visible"), window=window, slack=128 if window else 0)
        return self.b.pair_class(window=window), visible

    def _cached_keys(self, window: int) -> FeatureRef:
        return self.b.pair_class(figure=pair("context"), window=window, slack=128 if window else 0)

    # -- the rest ----------------------------------------------------------------------------------------------

    def _recurrent(self, node: Node) -> None:
        if not emit_mixer(self, node):
            super()._recurrent(node)

    def head(self, node: Node) -> float:
        if not self.refined or node.op != "GEMM":
            return (
                self._elementwise(node) if node.op == "Elementwise" and self.small is not None else super().head(node)
            )
        n, k = self.shard(node, float(node.n or 0), float(node.k or 0))
        self.linear(node.role or "lm_head", node, gemm_key(self.r, node), n, k, self.sampled_rows())
        return 1

    def sampled_rows(self) -> FeatureRef:
        """Rows the head sees: every decode token and the last row of every prefill."""
        return SAMPLED

    def _once(self) -> None:
        """Embedding and its all-reduce, gather of the logits, sampler (fp32 copy and the passes of an argmax)."""
        hidden, vocab = self.r.graph.globals_.hidden_size, self.r.graph.globals_.vocab_size
        rows = self.sampled_rows()
        self.b.open_stage("once", 1)
        self.ew("embedding", TOKENS, 4.0 * hidden)
        self.refined_collectives.tensor_all_reduce("embedding reduce", 2.0 * hidden, PADDED)
        self.refined_collectives.tensor_gather("logits gather", 2.0 * vocab, rows)
        self.ew("sampler", rows, 14.0 * vocab, launches=6)
