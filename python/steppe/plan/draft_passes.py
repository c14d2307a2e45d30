"""The passes a drafter runs after the target's forward, by method: which rows, how often, under which graphs.

Source: the proposers of vllm/v1/worker/gpu/spec_decode/ (default runner) and vllm/v1/spec_decode/ (older runner).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from steppe import _core
from steppe.engine.v0_31 import speculation
from steppe.errors import DeploymentError
from steppe.resolve.resolved import Settings

Part = Literal["combine", "context", "layers", "medusa", "markov"]
Rows = Literal["batch", "one_a_request", "block_a_request", "context"]
Graph = Literal["eager", "target", "piecewise", "own"]


@dataclass(frozen=True, slots=True)
class DraftPass:
    """One pass: what it runs, over which rows of the step, and under which graphs.

    `rows` `batch` are the target's own (rejected ones kept) plus `extra` a request; `block` rows a request otherwise.
    `head_rows` a request see the draft head. `ahead`: tokens by which the context has grown when the pass first runs,
    its own rows included where it does not run the target's. `grows`: each of `count` runs sees a context one token
    longer. `graph` `piecewise` follows the target's ceiling but never runs a full graph.
    """

    name: str
    part: Part
    rows: Rows
    graph: Graph
    count: int = 1
    head_rows: int = 0
    block: int = 1
    extra: int = 0
    ahead: int = 0
    grows: bool = False
    width: int = 1

    def core(self, settings: Settings) -> dict[str, Any]:
        """The fields of the core's `Pass`."""
        full = settings.cudagraph_mode in ("FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
        own = "own" if full else "eager"
        graph = {"eager": "eager", "target": "target", "piecewise": "target", "own": own}[self.graph]
        return {
            "rows": getattr(_core.PassRows, self.rows),
            "graph": getattr(_core.PassGraph, graph),
            "block": self.block,
            "extra": self.extra,
            "head_rows": self.head_rows,
            "count": self.count,
            "ahead": self.ahead,
            "grows": self.grows,
            "width": self.width,
            "ceiling": settings.capture_ceiling,
            "max_requests": settings.max_num_seqs if full and self.graph != "piecewise" else 0,
            "max_rows": settings.max_num_batched_tokens,
        }


@dataclass(frozen=True, slots=True)
class Drafting:
    """What sets a drafter's passes apart besides its method.

    `modules`: prediction modules a chain of passes runs in turn. `anchor_block`: whether a parallel block holds k rows
    (the anchor is sampled from too) instead of k + 1. `combines`: whether captured hidden states are joined first.
    """

    method: str
    tokens: int
    modules: int = 1
    anchor_block: bool = True
    combines: bool = False
    parallel: bool = False
    runner: str = "v2"


def draft_passes(d: Drafting) -> list[DraftPass]:
    """The passes of one step, in order; none for drafts found on the host.

    Raises `DeploymentError` for methods whose passes are not known here.
    """
    method, k = d.method, d.tokens
    if method in speculation.HOST_METHODS:
        return []
    if method in speculation.PARALLEL_BLOCK_METHODS:
        return _parallel_block(d)
    if method == "draft_model":
        return _parallel_drafts(d, k) if d.parallel else _draft_model(d)
    if method == "medusa":
        return [DraftPass("draft heads", "medusa", "one_a_request", "eager", head_rows=k)]
    if speculation.is_mtp(method) and d.modules > 1 and k > 1:
        # Every pass runs the target's rows again (multi_module_mtp/speculator.py:406-419).
        return [DraftPass("draft", "layers", "batch", "target", count=k, head_rows=1)]
    if speculation.is_mtp(method) or method in ("eagle", "eagle3"):
        return _parallel_drafts(d, k - 1) if d.parallel else _autoregressive(d)
    raise DeploymentError(
        f"engine.speculative.method: '{method}' runs passes that are not priced; "
        "use a method that drafts, or leave speculative out"
    )


def _combine(d: Drafting) -> list[DraftPass]:
    """Captured hidden states joined on every row, outside any graph (autoregressive/speculator.py:239-245)."""
    return [DraftPass("draft combine", "combine", "batch", "eager")] if d.combines else []


def _autoregressive(d: Drafting) -> list[DraftPass]:
    """Pass 0 over the target's rows, then one row a request (autoregressive/speculator.py:279-383, 853-864)."""
    passes = [*_combine(d), DraftPass("draft", "layers", "batch", "target", head_rows=1)]
    if d.tokens > 1:
        later = DraftPass("draft later", "layers", "one_a_request", "target", d.tokens - 1, 1, ahead=1, grows=True)
        passes.append(later)
    return passes


def _draft_model(d: Drafting) -> list[DraftPass]:
    """A model of its own: one correction token more a request in pass 0 (draft_model/speculator.py:155-337).

    The default runner captures no graph for it; the older one runs it piecewise.
    """
    graph: Graph = "piecewise" if d.runner == "v1" else "eager"
    passes = [DraftPass("draft", "layers", "batch", graph, head_rows=1, extra=1)]
    if d.tokens > 1:
        passes.append(DraftPass("draft later", "layers", "one_a_request", graph, d.tokens - 1, 1, ahead=2, grows=True))
    return passes


def _parallel_drafts(d: Drafting, extra: int) -> list[DraftPass]:
    """All tokens in one pass of the older runner, `extra` slots a request.

    Source: vllm/v1/spec_decode/llm_base_proposer.py:114-120.
    """
    return [*_combine(d), DraftPass("draft", "layers", "batch", "piecewise", head_rows=d.tokens, extra=extra)]


def _parallel_block(d: Drafting) -> list[DraftPass]:
    """Context rows projected into the drafter's cache, one pass over a block a request, and for DSpark the chain that
    corrects each token by the one before it (dflash/speculator.py:337-520, dspark/speculator.py:165-190)."""
    k = d.tokens
    block = k if d.method == "dspark" and d.anchor_block else k + 1
    graph: Graph = "piecewise" if d.runner == "v1" else "own"
    passes = [
        *_combine(d),
        DraftPass(
            "draft context", "context", "context", "eager" if d.runner == "v1" else "own", block=k + 1, width=block
        ),
        DraftPass("draft", "layers", "block_a_request", graph, 1, k, block=block, ahead=block, width=block),
    ]
    if d.method == "dspark":
        passes.append(DraftPass("draft markov", "markov", "one_a_request", graph, k, 1, width=block))
    return passes
