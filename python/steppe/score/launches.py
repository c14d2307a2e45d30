"""From a logged start-up to what was launched, and to the launches it may have been where something is not stated.

Rules, for every file alike:

* a setting no column or note gives is the engine's default, as the engine picks it for the part, model and release;
* a setting a note says was given but not seen (a cut-off speculative config, a cache dtype "not seen" or "assumed") is
  missing, and the row answers nothing that needs it;
* a release, a part or a number of drafted tokens that is not stated may be any, and a hybrid before 0.28 may have been
  told to cache prefixes, for which a file has no column: what comes out the same for all of them (within 1 %) is
  answered, the rest is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from steppe.engine.releases import (
    GRAPHS_IN_BUDGET,
    HYBRID_PREFIX_CACHING,
    NEWEST,
    SETTLED_WINDOWS,
    Release,
    default_runner,
    parse_release,
)
from steppe.engine.v0_31.speculation import V2_METHODS
from steppe.errors import DeploymentError
from steppe.score.checkpoints import Checkpoint, checkpoint_of, drafter_of
from steppe.score.gpus import UNKNOWN, Part, part_of
from steppe.score.starts import Start

BEFORE_GRAPHS: Final[Release] = (0, 16, 0)
"""Stands for a release that only a note's budget dates: one that leaves graphs out of it."""
ANY_RELEASE: Final = (BEFORE_GRAPHS, (0, 25, 0), (0, 27, 0), NEWEST)
ANY_TOKENS: Final = (1, 3, 8)
_DTYPES: Final = {"bf16": "bfloat16", "fp16": "float16", "half": "float16"}
_DTYPE_UNSEEN: Final = r"(kv|cache)[ -](cache )?dtype[^;|]*not (seen|stated)"
_DTYPE_ASSUMED: Final = r"assuming [^;|]*(fp8|bf16|int8)"
_DRAFT_UNSEEN: Final = r"speculat\w*[^;|]*(not (seen|stated)|cut off)"
_DRAFT_ASSUMED: Final = r"assuming [^;|]*\b(mtp|eagle|draft)"
_BUDGET: Final = r"\bbudget [^=|]*\bweights\b[^=|]*\bact\b"
_BUDGET_WITH_GRAPHS: Final = r"\bbudget [^=|]*\bgraphs?\b"
_NO_DRAFT: Final = ("", "none", "no", "off", "false")


@dataclass(frozen=True, slots=True)
class World:
    """One launch a row may stand for: the release and part it ran on, its drafted tokens (0 without a drafter), and
    whether it caches prefixes."""

    release: Release
    part: Part
    tokens: int
    caches_prefixes: bool = True


@dataclass(frozen=True, slots=True)
class Launch:
    """What a row says was launched. `worlds` are the launches it may be, the most likely first."""

    start: Start
    checkpoint: Checkpoint
    parallel: dict[str, Any]
    engine: dict[str, Any]
    method: str
    draft: str
    worlds: tuple[World, ...]
    assumed: tuple[str, ...]
    drafter_weighed: bool = True

    @property
    def release(self) -> Release | None:
        """The release, None where it may be any."""
        releases = {world.release for world in self.worlds}
        return releases.pop() if len(releases) == 1 else None

    @property
    def part(self) -> Part | None:
        """The part, None where it may be any."""
        parts = {world.part for world in self.worlds}
        return parts.pop() if len(parts) == 1 else None

    def engine_of(self, world: World) -> dict[str, Any]:
        """The engine section of the deployment in one world: what is stated, and that release's defaults."""
        engine = dict(self.engine)
        if world.release < SETTLED_WINDOWS:
            engine["async_scheduling"] = False  # sizes windows for one batch, as those releases do
        if not world.caches_prefixes:
            engine["enable_prefix_caching"] = False
        if self.method and world.tokens:
            engine["speculative"] = {"method": self.method, "num_spec_tokens": world.tokens}
            if self.draft:
                engine["speculative"]["draft"] = self.draft
        if self.method not in V2_METHODS:
            engine["runner"] = default_runner(world.release, plain=self.plain)
        return engine

    @property
    def plain(self) -> bool:
        """Whether the model has neither experts nor recurrent layers."""
        return not (_has(self.checkpoint, "RecurrentUpdate") or _has(self.checkpoint, "GroupedGEMM"))


def launch_of(start: Start) -> Launch:
    """What was launched. Raises DeploymentError with the reason where a row does not say enough."""
    checkpoint = checkpoint_of(start.model, start.text("quantization"))
    _check_seen(start)
    if start.tp is None:
        raise DeploymentError("tp is not stated, nor one GPU")
    assumed: list[str] = []
    method, tokens, named = speculation_of(start)
    draft, weighed = "", True
    if method:
        method, draft, weighed = _drafter(method, named, checkpoint)
    if start.noted("language-model-only"):
        checkpoint = _text_alone(checkpoint)
    release = _release(start, assumed)
    part = part_of(start.text("gpu"))
    recurrent = _has(checkpoint, "RecurrentUpdate")
    worlds = tuple(_worlds(release, part, tokens if method else 0, recurrent))
    parallel = {
        "tp": start.tp,
        "pp": start.count("pp") or 1,
        "dp": start.count("dp") or 1,
        "enable_expert_parallel": start.text("ep").lower() not in ("", "no", "off", "false", "0", "1"),
    }
    if start.dcp > 1:
        parallel["dcp"] = start.dcp
    engine = _engine(start)
    checkpoint = _of_length(checkpoint, engine.get("max_model_len"))
    return Launch(start, checkpoint, parallel, engine, method, draft, worlds, tuple(assumed), weighed)


def _has(checkpoint: Checkpoint, op: str) -> bool:
    return any(node.op == op for kind in checkpoint.graph.layer_kinds for node in kind.nodes)


def _check_seen(start: Start) -> None:
    """Refuse what a note says was given but not seen."""
    if not start.text("kv_cache_dtype") and (start.noted(_DTYPE_UNSEEN) or start.noted(_DTYPE_ASSUMED)):
        raise DeploymentError("cache dtype given but not seen")
    if not start.text("speculative") and (start.noted(_DRAFT_UNSEEN) or start.noted(_DRAFT_ASSUMED)):
        raise DeploymentError("speculation given but not seen")


def speculation_of(start: Start) -> tuple[str, int | None, str]:
    """(method, drafted tokens or None, what stands in parentheses) of the row's cell; ("", 0, "") without a drafter."""
    text = start.text("speculative").lower()
    if text in _NO_DRAFT:
        return "", 0, ""
    named = re.search(r"\((.*?)\)", text)
    plain = re.sub(r"\(.*?\)", " ", text)
    method = re.match(r"eagle3|[a-z]+(?:_[a-z]+)*", plain)
    counts = re.findall(r"\d+", plain[method.end() :]) if method else []
    if not method or len(counts) > 1:
        raise DeploymentError(f"speculation '{text}' is not read")
    return method.group(), int(counts[0]) if counts else None, named.group(1).strip() if named else ""


def _drafter(method: str, named: str, checkpoint: Checkpoint) -> tuple[str, str, bool]:
    """(method, catalog name of the drafter, whether its weights are known) as sized."""
    speculator = checkpoint.graph.speculator
    if method in ("ngram", "suffix", "ngram_gpu"):
        return method, "", True
    predicts = method.endswith("mtp")
    if speculator and (speculator.method == method or (predicts and speculator.method.endswith("mtp"))):
        return method, "", True
    if predicts and checkpoint.name.startswith("gemma-4"):
        # Its assistant reads the target's cache and keeps none (vllm/model_executor/models/gemma4_mtp.py:1-20).
        return "", "", False
    if predicts:
        raise DeploymentError("the model's graph has no predictor")
    draft = drafter_of(method, checkpoint, named)
    if draft is None:
        raise DeploymentError(f"the {method} drafter's checkpoint is not stated")
    return method, draft, True


def _release(start: Start, assumed: list[str]) -> Release | None:
    stated = start.text("engine_version")
    if stated:
        return parse_release(stated)
    if start.noted(_BUDGET) and not start.noted(_BUDGET_WITH_GRAPHS):
        assumed.append(f"a release before {GRAPHS_IN_BUDGET[0]}.{GRAPHS_IN_BUDGET[1]}: its budget leaves graphs out")
        return BEFORE_GRAPHS
    return None


def _worlds(release: Release | None, part: Part | None, tokens: int | None, recurrent: bool) -> Iterator[World]:
    """The launch as stated and by default, then, one at a time, what it may have been instead."""
    releases = (release,) if release else ANY_RELEASE[::-1]
    parts = (part,) if part else UNKNOWN
    counts = ANY_TOKENS if tokens is None else (tokens,)

    def on(release: Release) -> bool:
        return not recurrent or release >= HYBRID_PREFIX_CACHING

    first = World(releases[0], parts[0] if part else UNKNOWN[1], counts[0], on(releases[0]))
    yield first
    yield from (replace(first, release=other, caches_prefixes=on(other)) for other in releases[1:])
    yield from (replace(first, part=other) for other in parts if other != first.part)
    yield from (replace(first, tokens=other) for other in counts[1:])
    if not first.caches_prefixes:
        yield replace(first, caches_prefixes=True)


def _engine(start: Start) -> dict[str, Any]:
    engine: dict[str, Any] = {}
    dtype = re.split(r"[ (,]", start.text("kv_cache_dtype").lower())[0]
    if dtype not in ("", "auto"):
        engine["cache_dtype"] = _DTYPES.get(dtype, dtype)
    for key in ("max_model_len", "max_num_batched_tokens"):
        if (value := start.count(key)) is not None:
            engine[key] = value
    if start.max_num_seqs:
        engine["max_num_seqs"] = start.max_num_seqs
    if start.block_size:
        engine["block_size"] = start.block_size
    if (utilization := start.number("gpu_memory_utilization")) is not None:
        engine["gpu_memory_utilization"] = utilization
    if start.text("enforce_eager").lower() in ("true", "yes", "1", "on"):
        engine["cudagraph_mode"] = "NONE"
    if state := start.noted(r"\bssm cache dtype (\w+)"):
        engine["mamba_ssm_cache_dtype"] = _DTYPES.get(state, state)
    return engine


def _text_alone(checkpoint: Checkpoint) -> Checkpoint:
    graph = checkpoint.graph
    shape = graph.globals_.model_copy(update={"encoder_parameters": None})
    return replace(checkpoint, graph=graph.model_copy(update={"globals_": shape}))


def _of_length(checkpoint: Checkpoint, stated: int | None) -> Checkpoint:
    """A log that started with a longer length than the checkpoint's own was told to allow it."""
    graph, own = checkpoint.graph, checkpoint.graph.globals_.max_position_embeddings
    if stated is None or own is None or stated <= own:
        return checkpoint
    shape = graph.globals_.model_copy(update={"max_position_embeddings": stated})
    return replace(checkpoint, graph=graph.model_copy(update={"globals_": shape}))
