"""Latent-attention layers by the module laws: MLA and the sparse selections, projections included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.documents import Law, LayerKind, Node
from steppe.plan.builder import (
    DECODE_TOKENS,
    DECODES,
    MAX_CONTEXT,
    PADDED,
    PREFILL_TOKENS,
    PREFILLS,
    SM,
    TOKENS,
    US,
    pair,
)
from steppe.plan.refined_laws import gemm_key, number
from steppe.resolve.geometry import primary_attention

if TYPE_CHECKING:
    from steppe.plan.refined import RefinedPlan

LINEAR_RANKING_TOKENS = 8192  # from here a query's index keys are selected by a kernel of linear cost
MIXED_US = 15.0  # assumed: the small kernels of a second module in a mixed step
# What a module law times besides the attention itself.
MODULE_ROLES = frozenset(
    {"qkv_a", "q_a", "kv_a", "q", "q_b", "kv_b", "norm_q_a", "norm_kv_a", "norm_index_k", "rope", "out_a", "out", "qkv"}
)


class LatentBlocks:
    """Emits module laws for a `RefinedPlan`."""

    def __init__(self, plan: RefinedPlan) -> None:
        self.plan = plan

    def absorbed(self, kind: LayerKind) -> set[int]:
        """Identities of the nodes a module law covers; empty where none applies to the layer."""
        primary = primary_attention(kind)
        if primary is None or self._laws(kind, primary) is None:
            return set()
        inside = set()
        for node in kind.nodes:
            if node.op == "Attention" or node.role in MODULE_ROLES or node.role.startswith(("index_", "compress")):
                inside.add(id(node))
            if node.op == "AllReduce":
                break  # the block ends where its output is summed
        return inside

    def emit(self, kind: LayerKind, node: Node) -> None:
        """Emit the block of one layer kind."""
        laws = self._laws(kind, node)
        assert laws is not None
        if node.kind == "mla":
            self._mla(kind, node, *laws)
        else:
            self._sparse(kind, node, *laws)
        self.plan.context.emit(node)

    def _laws(self, kind: LayerKind, node: Node) -> tuple[Law, Law] | None:
        laws, cache = self.plan.laws, self.plan.laws.cache_kind()
        other = "bfloat16" if cache == "fp8" else "fp8"
        if node.kind == "mla":
            backend = self.plan.r.settings.attention_backend
            names = dict.fromkeys((backend, "FLASHINFER_MLA", "FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA"))
            decode = laws.first("mla_decode", [f"{n}/{d}" for d in (cache, other) for n in names], "MLA decode")
            context = laws.first("mla_context", [f"FLASH_ATTN/{d}" for d in (cache, other)], "MLA prefill")
            return (decode, context) if decode and context else None
        family = self._family(node)
        if not family:
            return None
        decode = laws.first("sparse_decode", self._sparse_keys("sparse_decode", family, node), f"{family} decode")
        context = laws.first("sparse_context", self._sparse_keys("sparse_context", family, node), f"{family} prefill")
        return (decode, context) if decode and context else None

    def _family(self, node: Node) -> str:
        if node.kind == "sparse_mla":
            if node.compress_ratio:
                return "csa" if node.index_topk else "hca"
            return "dsa"
        return "msa" if node.index_topk else ""

    def _sparse_keys(self, law: str, family: str, node: Node) -> list[str]:
        """Keys in scope, best first: the resolved backend, the cache width, then the model's own geometry."""
        r = self.plan.r
        cache, hidden = self.plan.laws.cache_kind(), r.graph.globals_.hidden_size
        few_heads = (node.n_q or 1) / r.widths.tp < 32

        def distance(key: str) -> tuple[int, ...]:
            parts = key.split("/")
            tail = parts[3:]
            geometry = 0 if f"hidden{hidden}" in tail else 1 if not any(t.startswith("hidden") for t in tail) else 2
            return (
                int(parts[2] != cache),
                int(parts[1] != r.settings.sparse_mla_backend),
                int("ranked" not in tail),
                int(("h<32" in tail) != (few_heads and cache == "fp8")),
                geometry,
            )

        keys = [key for key in self.plan.c.laws(law) if key.split("/")[0] == family]
        return sorted(keys, key=lambda key: (distance(key), key))

    def _projection_dtype(self, kind: LayerKind) -> str:
        out = [node for node in kind.nodes if node.op == "GEMM" and node.role == "out"]
        return gemm_key(self.plan.r, out[0]) if out else "bfloat16"

    def _mla(self, kind: LayerKind, node: Node, decode: Law, context: Law) -> None:
        plan, d, c = self.plan, decode.params, context.params
        dtype = self._projection_dtype(kind)
        f, w1, c0, c1 = plan.laws.projections(decode, dtype)
        cf, cw1, cc0, cc1 = plan.laws.projections(context, dtype)
        params = {
            "h": (node.n_q or 1) / plan.tp,
            "e": number(d["e"]),
            "sms": number(d["sms"]),
            "bw": number(d["bw_Bps"]),
            **{name: number(d[name]) for name in ("F1", "L1", "k0", "k1", "u", "r", "S")},
            "F": f,
            "w1": w1,
            "c0": c0,
            "c1": c1,
            **{"c" + name: number(c[name]) for name in ("F1", "al", "ts", "tc")},
            "cF": cf,
            "cw1": cw1,
            "cc0": cc0,
            "cc1": cc1,
            "mixed_us": MIXED_US,
        }
        keys = plan.context.read_class(node)
        inputs = (TOKENS, DECODES, keys, MAX_CONTEXT, DECODE_TOKENS, PREFILLS, *plan.prefill_features(0))
        plan.b.term("latent attention", "mla", inputs, params, SM, serial=True, derate=True)

    def _sparse(self, kind: LayerKind, node: Node, decode: Law, context: Law) -> None:
        """sel(v) and idx(v) of laws_attention_comm.md 2.5, a module for the decodes and one for the prefills."""
        plan, b = self.plan, self.plan.b
        family, dtype = self._family(node), self._projection_dtype(kind)
        ratio, topk = node.compress_ratio or 1, node.index_topk or 0
        window = (node.window or 128) if family in ("csa", "hca") else 0
        limit, limit2 = float(window or topk), float(topk if family == "csa" else 2**40)
        ratio2 = float(ratio) if family in ("csa", "hca") else 0.0
        scored_ratio = {"dsa": 1.0, "msa": 1.0, "csa": float(ratio), "hca": 0.0}[family]
        span = topk * ratio if family == "csa" else 2**40
        divide = {"divide": ratio} if ratio2 else {}

        def params(law: Law, alone: bool) -> dict[str, float]:
            f, w1, c0, c1 = plan.laws.projections(law, dtype)
            names = ("k0", "k1", "kc", "ts", "F1", "Fi", "i0", "i1", "i2")
            return {
                "h": (node.n_q or 1) / plan.tp,
                **{name: number(law.params.get(name, 0.0)) for name in names},
                "F": f,
                "w1": w1,
                "c0": c0,
                "c1": c1,
                "limit": limit,
                "limit2": limit2,
                "ratio2": ratio2,
                "ratio_scored": scored_ratio,
                "projects": float(alone),
            }

        shard = {"dcp": plan.r.widths.dcp, "interleave": plan.r.settings.interleave} if plan.r.widths.dcp > 1 else {}
        selected = b.read_class(limit=int(limit), **shard)
        selected2 = b.read_class(limit=min(span, 2**40), **divide, **shard) if ratio2 else selected
        scored = b.read_class(**({"divide": ratio} if family == "csa" else {}), **shard)
        inputs = (DECODES, PADDED, DECODE_TOKENS, selected, selected2, scored, MAX_CONTEXT, PREFILLS)
        b.term("sparse attention decode", "sparse", inputs, params(decode, True), SM, serial=True)
        pairs = b.pair_class(window=int(limit))
        pairs2 = b.pair_class(window=span if span < 2**40 else 0, ratio=ratio) if ratio2 else pairs
        scores = b.pair_class(ratio=ratio if family == "csa" else 1)
        visible = b.pair_class(figure=pair("visible"))
        if context.params.get("j1"):
            ranked = b.pair_class(figure=pair("ranked"), select=4 * topk, window=LINEAR_RANKING_TOKENS)
            slope = number(context.params["j1"]) * US
            b.affine("sparse attention ranking", SM, ranked, slope, serial=True, derate=True)
        inputs = (PREFILLS, TOKENS, PREFILL_TOKENS, pairs, pairs2, scores, visible, DECODES)
        b.term("sparse attention prefill", "sparse", inputs, params(context, False), SM, serial=True, derate=True)
