"""What drafts: the layers a draft pass runs and the shapes around them, from the target's or the draft's own graph."""

from __future__ import annotations

from dataclasses import dataclass

from steppe.documents import Node, Speculator
from steppe.documents.graph import Stack
from steppe.engine.v0_31 import speculation
from steppe.errors import DeploymentError
from steppe.plan.draft_passes import Drafting
from steppe.resolve.coefficients import Coefficients
from steppe.resolve.resolved import Resolution


@dataclass(frozen=True, slots=True)
class Drafter:
    """A drafter ready to plan. `r` prices its layers; `layers` are those one run of a pass goes through, by kind.

    `taps` x `target_hidden` is the width joined by the combine projection; `rank` that of DSpark's Markov head; `head`
    the projection to the draft vocabulary, `norms` what runs before it; `scatters_to` the target's vocabulary where
    logits of a smaller one are spread over it, else 0.
    """

    r: Resolution
    drafting: Drafting
    layers: dict[str, float]
    taps: int
    target_hidden: int
    rank: int
    head: Node
    norms: tuple[Node, ...]
    scatters_to: int

    @property
    def hidden(self) -> int:
        """Width of the drafter's hidden state."""
        return self.r.graph.globals_.hidden_size


def drafter_of(r: Resolution, c: Coefficients) -> Drafter | None:
    """The drafter of a deployment; None where none runs a model.

    Raises `DeploymentError` where the method needs layers, taps or a rank that no graph states.
    """
    s = r.settings
    if not s.spec_method or s.spec_method in speculation.HOST_METHODS:
        return None
    own = r.draft is not None
    base = r.draft or r
    spec = _speculator(r)
    modules, runs = _modules(r, spec)
    block = spec.block if spec else None
    taps = _taps(r, spec, c)
    drafting = Drafting(
        method=s.spec_method,
        tokens=s.spec_tokens,
        modules=modules,
        # A block one row wider than what it was trained to draft keeps its anchor apart (dspark/speculator.py:46-55).
        anchor_block=not (spec and block and block > spec.num_spec_tokens),
        combines=taps > 0,
        parallel=s.parallel_drafting,
        runner=s.runner,
    )
    rank = (spec.markov_rank if spec else None) or 0
    if s.spec_method == "dspark" and not rank:
        raise _unstated(base, "markov_rank", "the rank of the drafter's Markov head")
    head = _head(r, spec, own)
    vocab = r.graph.globals_.vocab_size
    scatters = vocab if s.spec_method == "eagle3" and (head.n or vocab) < vocab else 0
    norms = tuple(node for node in base.graph.head if node.op == "Elementwise")
    return Drafter(base, drafting, runs, taps, r.graph.globals_.hidden_size, rank, head, norms, scatters)


def _speculator(r: Resolution) -> Speculator | None:
    """The speculator section that describes the drafter: of its own graph, else of the target's."""
    method = r.settings.spec_method
    if r.draft is not None:
        return r.draft.graph.speculator
    if method == "medusa":
        return None
    stated = r.graph.speculator
    if stated is None or not _same_family(stated.method, method):
        has = f"states a speculator of method {stated.method}" if stated else "states no speculator"
        raise DeploymentError(
            f"engine.speculative.method: '{method}' drafts with layers, and the graph of {r.model_name} {has}; "
            "name the draft's graph in engine.speculative.draft, or use a method the checkpoint carries"
        )
    return stated


def _same_family(stated: str, method: str) -> bool:
    return stated == method or (speculation.is_mtp(stated) and speculation.is_mtp(method))


def _modules(r: Resolution, spec: Speculator | None) -> tuple[int, dict[str, float]]:
    """(modules a chain of passes takes in turn, layers of one run by kind).

    A checkpoint whose layers divide over the tokens it predicts holds one module a token; pass s runs module s mod n
    (vllm/v1/worker/gpu/spec_decode/multi_module_mtp/speculator.py:406-419), or module 0 every time where only one token
    is drafted (vllm/config/speculative.py:1973-1979).
    """
    if r.settings.spec_method == "medusa":
        return 1, {}
    stack = spec.stack if spec else (r.draft or r).graph.stack
    layers, k = _unfold(stack), r.settings.spec_tokens
    modules = spec.num_spec_tokens if spec and speculation.is_mtp(r.settings.spec_method) else 1
    if modules < 2 or len(layers) % modules or r.settings.runner == "v1":
        return 1, _counted(layers, 1)
    size = len(layers) // modules
    if k == 1:
        return 1, _counted(layers[:size], 1)
    used = [name for i in range(k) for name in layers[i % modules * size : (i % modules + 1) * size]]
    return modules, _counted(used, k)


def _unfold(stack: Stack) -> list[str]:
    return [*stack.prologue, *stack.pattern * stack.repeat, *stack.epilogue]


def _counted(layers: list[str], runs: int) -> dict[str, float]:
    return {name: layers.count(name) / runs for name in dict.fromkeys(layers)}


def _taps(r: Resolution, spec: Speculator | None, c: Coefficients) -> int:
    """Target layers whose hidden states the drafter reads; 0 for methods that read the last one only."""
    method = r.settings.spec_method
    if method not in ("eagle3", *speculation.PARALLEL_BLOCK_METHODS):
        return 0
    stated = len(spec.hidden_taps) if spec else 0
    if stated:
        return stated
    if method == "eagle3":
        taps = speculation.DEFAULT_EAGLE3_TAPS
        c.assume("hidden_taps", taps, "the draft's graph names no target layers: an early, a middle and a late one")
        return taps
    raise _unstated(r.draft or r, "hidden_taps", "the target layers whose hidden states the drafter reads")


def _unstated(r: Resolution, key: str, what: str) -> DeploymentError:
    return DeploymentError(
        f"engine.speculative.method: {r.settings.spec_method} needs {what}; state speculator.{key} in the graph of "
        f"{r.model_name}"
    )


def _head(r: Resolution, spec: Speculator | None, own: bool) -> Node:
    """The projection to the draft vocabulary: the draft's own where it has one, else the target's."""
    base = r.draft or r
    heads = [node for node in (base if own else r).graph.head if node.op == "GEMM"]
    heads = heads or [node for node in r.graph.head if node.op == "GEMM"]
    hidden = base.graph.globals_.hidden_size
    vocab = (spec.draft_vocab_size if spec else None) or (heads[-1].n if heads else r.graph.globals_.vocab_size)
    like = heads[-1] if heads else Node(op="GEMM", role="lm_head", n=vocab, k=hidden)
    return like.model_copy(update={"role": "draft lm_head", "n": vocab, "k": hidden})
