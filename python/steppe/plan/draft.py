"""The draft plan: what each draft pass launches, by the same laws as the target's forward.

docs/research/reference_laws.md, Draft passes; the passes themselves are in `draft_passes`.
"""

from __future__ import annotations

from steppe.documents import LayerKind, Node
from steppe.errors import CoefficientError
from steppe.plan.builder import HOST, PADDED, REQUESTS, SAMPLED, SCHEDULED, TOKENS, PlanBuilder
from steppe.plan.draft_passes import DraftPass, draft_passes
from steppe.plan.drafter import Drafter, drafter_of
from steppe.plan.host import GRAPHS, launches_of, piecewise_splits
from steppe.plan.reference import ReferencePlan
from steppe.plan.refined import RefinedPlan
from steppe.resolve.coefficients import Coefficients
from steppe.resolve.geometry import is_latent, primary_attention
from steppe.resolve.precision import served_dtype
from steppe.resolve.resolved import Resolution

# Nodes that join the embedding with the previous hidden state in front of a module.
JOIN_ROLES = frozenset({"norm_embed", "norm_hidden", "fuse", "fuse_hidden", "fuse_gather"})


def plan_drafts(r: Resolution, c: Coefficients, b: PlanBuilder, plan: ReferencePlan) -> None:
    """Emit every draft pass of a deployment after the target's stages. Raises `DeploymentError` for what it lacks."""
    drafter = drafter_of(r, c)
    if drafter is None:
        return
    layers = plan if drafter.r is r else type(plan)(drafter.r, c, b)
    draft = DraftPlan(drafter, c, b, layers)
    for each in draft_passes(drafter.drafting):
        draft.emit(each)


class DraftPlan:
    """Emits the passes of one drafter; `layers` is the plan its layers are priced by."""

    def __init__(self, drafter: Drafter, c: Coefficients, b: PlanBuilder, layers: ReferencePlan) -> None:
        self.d = drafter
        self.c = c
        self.b = b
        self.plan = layers
        self.small = layers if isinstance(layers, RefinedPlan) and layers.small is not None else None

    def emit(self, each: DraftPass) -> None:
        """Emit one pass: its GPU work, then what the host spends on it."""
        number = self.b.add_pass(**each.core(self.d.r.settings))
        parts = {
            "combine": self._combine,
            "context": self._context,
            "layers": self._layers,
            "medusa": self._medusa,
            "markov": self._markov,
        }
        kernels = parts[each.part](each, number)
        if self.small is None:
            self.b.open_stage(f"{each.name} host", 1, number)
            self._host(each, kernels)

    # -- parts -------------------------------------------------------------------------------------------------

    def _combine(self, each: DraftPass, number: int) -> float:
        """Captured hidden states of every row joined by one projection, whole on each rank."""
        self.b.open_stage(each.name, 1, number)
        width = self.d.taps * self.d.target_hidden
        if self.small is not None:
            self.small.ew("gather taps", PADDED, 4.0 * width)
        self.plan.dense(self._plain("combine", self.d.hidden, width))
        return 1

    def _layers(self, each: DraftPass, number: int) -> float:
        """The drafter's layers, then the draft head on the rows that are sampled from."""
        kernels = 0.0
        if self.small is not None:
            self.b.open_stage(f"{each.name} inputs", 1, number)
            self.small.ew("draft inputs", REQUESTS, 0.0)
            self.small.ew("draft embedding", TOKENS, 4.0 * self.d.hidden)
            self.small.refined_collectives.tensor_all_reduce("draft embedding reduce", 2.0 * self.d.hidden, PADDED)
        if self.d.drafting.method == "eagle" and not self._joins():
            self.b.open_stage(f"{each.name} join", 1, number)
            self.plan.dense(self._plain("fuse", self.d.hidden, 2 * self.d.hidden))
            kernels += 1
        for name, layers in self.d.layers.items():
            self.b.open_stage(f"{each.name} {name}", layers, number)
            kernels += layers * self._layer(self.d.r.graph.layer_kind(name))
        return kernels + self._head(each, number)

    def _layer(self, kind: LayerKind) -> float:
        """One draft layer, the projection that joins its inputs first: it may be whole on each rank."""
        kernels = 0.0
        for node in kind.nodes:
            if node.role not in JOIN_ROLES:
                continue
            if node.op == "GEMM":
                self.plan.dense(node)
                kernels += 1
            else:
                kernels += self.plan.node(node)
        rest = tuple(node for node in kind.nodes if node.role not in JOIN_ROLES)
        return kernels + self.plan.layer(kind.model_copy(update={"nodes": rest}))

    def _joins(self) -> bool:
        kinds = (self.d.r.graph.layer_kind(name) for name in self.d.layers)
        return any(node.role in JOIN_ROLES and node.op == "GEMM" for kind in kinds for node in kind.nodes)

    def _head(self, each: DraftPass, number: int) -> float:
        """Logits of the rows that are sampled, gathered over the tensor group, and the largest of each."""
        self.b.open_stage(f"{each.name} head", 1, number)
        launches = 1 + sum(self.plan.head(node) for node in self.d.norms)
        self.plan.dense(self.d.head, SAMPLED)
        vocab = float(self.d.head.n or 0)
        launches += self._gather_logits(2.0 * vocab)
        if self.small is not None:
            # A reduced vocabulary is scattered into the target's before the largest is taken.
            wide = float(self.d.scatters_to)
            self.small.ew("draft sampler", SAMPLED, 2.0 * vocab + 4.0 * wide, launches=3 if wide else 1)
        return launches

    def _gather_logits(self, bytes_per_row: float) -> float:
        if self.plan.tp == 1:
            return 0
        group = self.plan.r.placements["tp"]
        try:
            self.plan.collectives.emit("draft logits gather", "all_gather", group, SAMPLED, SAMPLED, bytes_per_row)
        except CoefficientError:
            self.c.assume("draft_logits_gather", "absent", f"all_gather over {group.width} ranks is not measured")
        return 1

    def _context(self, each: DraftPass, number: int) -> float:
        """Keys and values of every drafter layer, projected from the joined rows: no query, attention or MLP.

        One matrix product for all layers; a quantized grouped-query drafter runs each layer's whole projection instead
        (vllm/model_executor/models/qwen3_dflash.py:581-619).
        """
        self.b.open_stage(each.name, 1, number)
        width, kernels = 0, 0.0
        for name, layers in self.d.layers.items():
            kind = self.d.r.graph.layer_kind(name)
            attention = primary_attention(kind)
            if attention is None:
                continue
            latent, count = is_latent(attention), round(layers)
            written = attention.d_h or 0 if latent else 2 * (attention.n_kv or 1) * (attention.d_h or 0)
            width += count * written
            qkv = [node for node in kind.nodes if node.op == "GEMM" and node.role == "qkv"]
            if not latent and qkv and served_dtype(self.d.r, qkv[0]) not in ("bf16", "fp16", "fp32"):
                for _ in range(count):
                    self.plan.dense(qkv[0])
                kernels += count
        latent = any(is_latent(node) for name in self.d.layers for node in self._attentions(name))
        if not kernels:
            node = self._plain("context kv", width, self.d.hidden, replicated=latent)
            self.plan.dense(node)
            kernels = 1
        if self.small is not None:
            self.small.ew("context cache write", PADDED, 4.0 * width / (1 if latent else self.plan.tp))
        return kernels

    def _attentions(self, name: str) -> list[Node]:
        attention = primary_attention(self.d.r.graph.layer_kind(name))
        return [] if attention is None else [attention]

    def _markov(self, each: DraftPass, number: int) -> float:
        """One step of the chain: the last token's embedding projected to the vocabulary, added to its logits, sampled.

        Whole on every rank (vllm/model_executor/models/qwen3_dspark.py:48-93).
        """
        self.b.open_stage(each.name, 1, number)
        vocab = self.d.head.n or 0
        self.plan.dense(self._plain("markov", vocab, self.d.rank))
        if self.small is not None:
            self.small.ew("markov step", PADDED, 6.0 * vocab, launches=5)
        return 1

    def _medusa(self, each: DraftPass, number: int) -> float:
        """Heads over the last hidden state, one a token: a residual layer and the projection to the vocabulary."""
        k = self.d.drafting.tokens
        self.c.assume("medusa_hidden_layers", 1, "each head holds one hidden layer, the published default")
        self.b.open_stage(each.name, k, number)
        self.plan.dense(self._plain("medusa layer", self.d.hidden, self.d.hidden))
        self.plan.dense(self.d.head)
        return 2.0 * k + self._gather_logits(2.0 * float(self.d.head.n or 0))

    @staticmethod
    def _plain(role: str, n: int, k: int, *, replicated: bool = True) -> Node:
        return Node(op="GEMM", role=role, n=n, k=k, weight_dtype="bf16", replicated=replicated)

    # -- host --------------------------------------------------------------------------------------------------

    def _host(self, each: DraftPass, kernels: float) -> None:
        """Host time of one run: a graph replay or eager launches of the drafter's layers, and launches a kernel.

        Projections beside the layers (combine, context, Markov steps) share the layers' graph or stand alone: they
        launch kernels only.
        """
        s, runs_layers = self.d.r.settings, each.part == "layers"
        layers = sum(self.d.layers.values()) if runs_layers else 0.0
        cost = launches_of(self.c, layers, self._splits() if runs_layers else 0.0)
        launched = kernels * cost.per_kernel
        uniform, mixed = GRAPHS[s.cudagraph_mode]
        if each.graph == "own":
            uniform = mixed = "FULL" if uniform == "FULL" else "NONE"
        elif each.graph == "piecewise":
            uniform = mixed = "NONE" if s.cudagraph_mode == "NONE" else "PIECEWISE"
        if not runs_layers or each.graph == "eager" or (uniform, mixed) == ("NONE", "NONE"):
            eager = cost.eager if runs_layers else 0.0
            self.b.affine("draft launches", HOST, REQUESTS, 0.0, constant=eager + launched)
            return
        params = {
            "uniform_decode": cost.of(uniform),
            "mixed": cost.of(mixed),
            "eager": cost.eager,
            "kernels": launched,
            # Under its own graphs the core states 1 row while one fits and too many otherwise.
            "ceiling": 1.0 if each.graph == "own" else float(s.capture_ceiling),
        }
        self.b.term("draft launches", "host_launch", (SCHEDULED,), params, HOST)

    def _splits(self) -> float:
        graph = self.d.r.graph
        return sum(layers * piecewise_splits(graph, {name: 1}) for name, layers in self.d.layers.items())
