"""Work that context parallelism adds to a layer: decode-context gathers and combines, prefill-context gathers.

docs/research/reference_laws.md, Context parallelism; vllm/v1/attention/ops/common.py (cp_lse_ag_out_rs and its kin),
vllm/model_executor/layers/attention/mla_attention.py:1922-2080, 2297-2320.
"""

from __future__ import annotations

from typing import Any

from steppe.documents import Node
from steppe.plan.builder import CONTEXT_ROWS, DECODE_TOKENS, PREFILL_TOKENS, PREFILLS, FeatureRef, PlanBuilder
from steppe.plan.collectives import Collectives
from steppe.resolve.geometry import is_latent, shards_context
from steppe.resolve.resolved import Resolution


class ContextParallel:
    """Emits the context-parallel terms of attention nodes."""

    def __init__(self, r: Resolution, collectives: Collectives, builder: PlanBuilder) -> None:
        self.r = r
        self.k = collectives
        self.b = builder

    def read_class(self, node: Node) -> FeatureRef:
        """The decode read of a layer: bounded by its selection where it is sparse, sharded where DCP shards it."""
        spec: dict[str, Any] = {}
        if node.kind == "sparse_mla":
            limit = node.index_topk or node.window
            if limit:
                spec["limit"] = limit
                if node.compress_ratio:
                    spec["tail_ratio"] = node.compress_ratio
        if self.r.widths.dcp > 1 and shards_context(node):
            spec |= {"dcp": self.r.widths.dcp, "interleave": self.r.settings.interleave}
        return self.b.read_class(**spec)

    def emit(self, node: Node) -> None:
        """Emit what the layer's context parallelism launches."""
        if self.r.widths.dcp > 1 and shards_context(node):
            self._decode_context(node)
            if is_latent(node):
                self._latent_context(node)
        if self.r.widths.pcp > 1:
            self._prefill_context(node)

    def _decode_context(self, node: Node) -> None:
        w, dcp = self.r.widths, self.r.widths.dcp
        group = self.r.placements["dcp"]
        latent = is_latent(node)
        rows = DECODE_TOKENS if latent else CONTEXT_ROWS
        heads = (node.n_q or 1) / w.tp  # query heads of one rank before the gather
        q_width = node.d_h or 0
        out_width = (node.kv_lora_rank or q_width) if latent else q_width

        def launch(name: str, op: str, placement: Any, per_row: float) -> None:
            self.k.emit(name, op, placement, rows, rows, per_row)

        if w.pcp == 1:
            launch("dcp query gather", "all_gather", group, heads * dcp * q_width * 2)
            gathered = heads * dcp
            if self.r.settings.dcp_comm_backend == "a2a":
                launch("dcp output exchange", "alltoall", group, gathered * (out_width + 2) * 2)
            else:
                launch("dcp lse gather", "all_gather", group, dcp * gathered * 4)
                launch("dcp output combine", "reduce_scatter", group, gathered * out_width * 2)
            return
        gathered = heads
        if dcp == w.tp * w.pcp:
            gathered = heads * w.tp
            if w.tp > 1:  # one rank has every head already
                launch("dcp query gather", "all_gather", self.r.placements["tp"], gathered * q_width * 2)
        launch("dcp lse gather", "all_gather", group, dcp * gathered * 4)
        launch("dcp output combine", "all_reduce", group, gathered * out_width * 2)

    def _latent_context(self, node: Node) -> None:
        """A latent prefill gathers its cached context in workspace chunks."""
        group = self.r.placements["dcp"]
        floor, transition, peak = self.k.rates("all_gather", group.width)
        size = (node.d_h or 0) * 2 * self.k.span("all_gather", group)
        params = {
            "floor": floor,
            "transition_slope": size / transition,
            "peak_slope": size / peak,
            "chunk": self.r.settings.mla_context_chunk,
        }
        self.b.term("dcp context gather", "context_gather", (PREFILLS,), params, self.k.resource(group))

    def emit_index_key(self, node: Node) -> None:
        """An index scorer's keys are gathered over the prefill-context ranks like any cache entry."""
        if self.r.widths.pcp > 1:
            self._gather_written("pcp index key gather", (node.n_kv or 1) * (node.d_h or 0))

    def _prefill_context(self, node: Node) -> None:
        """Each rank gathers what the others wrote into the cache: a launch a tensor."""
        if is_latent(node):
            rope = node.qk_rope_head_dim or 0
            rank = node.kv_lora_rank or (node.d_h or 0) - rope
            widths = [("pcp latent gather", rank), ("pcp rope gather", rope or (node.d_h or 0) - rank)]
        else:
            size = (node.n_kv or 1) * (node.d_h or 0)
            widths = [("pcp key gather", size), ("pcp value gather", size)]
        for name, width in widths:
            self._gather_written(name, width)

    def _gather_written(self, name: str, width: int) -> None:
        if width:
            size = float(self.r.widths.pcp * width * 2)
            self.k.emit(name, "all_gather", self.r.placements["pcp"], PREFILLS, PREFILL_TOKENS, size)
