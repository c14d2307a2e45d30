"""From a model as a log names it to a graph: the catalog's own, or one of the same architecture stored otherwise.

A name is matched by the words of the catalog's names, whatever the organisation, case, punctuation and the suffixes
that leave an architecture as it is. A word that may change it (a pruned or merged model) matches nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from steppe.catalog import Catalog
from steppe.documents import ModelGraph
from steppe.errors import DeploymentError
from steppe.models.requantize import KINDS, follows_one_recipe, requantized

_NEUTRAL: Final = re.compile(
    r"instruct|it|chat|base|thinking|hf|text|only|v?\d+|abliterated|uncensored|heretic|finetune|sft|"
    r"fp8|fp4|fp16|bf16|nvfp4|mxfp4|mxfp8|int4|int8|w\d+a\d+|\dbit|bit|awq|gptq|auto|autoround|round|ct|qat|"
    r"quantized|dynamic|static|block|per|tensor|pertensor|channel|g\d+|compressed|tensors|modelopt|marlin|"
    r"dspark|dflash|mtp|eagle3?"
)
"""Suffixes that leave an architecture as it is: tuning stages, dates, storage formats, the drafter beside it."""

_STORED: Final = (
    ("nvfp4", r"nvfp4|(?<!mx)fp4"),
    ("mxfp4", r"mxfp4"),
    ("fp8", r"fp8"),
    ("int4", r"awq|gptq|int4|w4a16|auto[_-]?round|4-?bit"),
    ("int8", r"int8|w8a8|w8a16"),
    ("", r"\bnone\b|bf16|bfloat16|unquantized"),
)
"""Words of a quantization, and how it stores a linear; "" is the published checkpoint."""

_ALIASES: Final = (
    # Releases that publish another's architecture under a name of their own.
    (r"distill-llama-70b", "llama-3.3-70b"),
    (r"distill-llama-8b", "llama-3.1-8b"),
    (r"distill-qwen-(1\.5|7|14|32)b", r"qwen2.5-\1b"),
    (r"qwq-32b", "qwen2.5-32b"),
    (r"qwen2\.5-(?:coder|math|vl)-(0\.5|1\.5|3|7|14|32|72)b", r"qwen2.5-\1b"),
    (r"qwen3-coder-next", "qwen3-next-80b-a3b"),
    (r"qwen3-30b-a3b-(?:instruct|thinking)-2507", "qwen3-coder-30b-a3b"),
    (r"glm-4\.(?:5|7)(?!\.|-air|-flash|v)", "glm-4.6"),
    (r"minimax-m2(?:\.1)?(?![\w.])", "minimax-m2.5"),
    (r"kimi-k2-thinking", "kimi-k2.5"),
    (r"(?:mistral-small-3\.1|devstral-small|magistral-small)(?:-24b)?", "mistral-small-3.2-24b"),
    (r"gpt-oss-safeguard-(20|120)b", r"gpt-oss-\1b"),
)

_SUFFIX: Final = re.compile(
    r"-(instruct|instruct-24\d\d|instruct-250[1-6]|it|chat|base|nvfp4|fp8|fp8-dynamic|fp8-static|awq)$"
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The graph of a log's model. `weighed`: its weights are stored as the log's are, so that they can be compared."""

    name: str
    graph: ModelGraph
    weighed: bool


def checkpoint_of(model: str, quantization: str) -> Checkpoint:
    """The graph of a model as a log names and quantizes it. Raises DeploymentError where the catalog has none like it.

    A quantization that the catalog has an entry for is that entry; one whose recipes agree is applied to the 16-bit
    graph; any other leaves a graph of the right geometry that is not weighed.
    """
    entries = _families()[family_of(model)]
    kind = _kind(quantization) if quantization else (_kind(_words(model)) or "")
    own = next((name for name, kinds in entries.items() if kind in kinds), None)
    if own is not None:
        return Checkpoint(own, _own_cache(own, model, kind or ""), True)
    base = next(iter(entries))
    graph = _plain_cache(_graph(base))
    if kind in KINDS and "" in entries[base] and graph.globals_.weight_dtype in ("bf16", "fp16"):
        return Checkpoint(f"{base} as {kind}", requantized(graph, kind), follows_one_recipe(graph, kind))
    return Checkpoint(base, graph, False)


def drafter_of(method: str, target: Checkpoint, named: str) -> str | None:
    """The catalog's drafter of a method for a target: the one a log names, else the published one of that method."""
    models = Catalog().models()
    if named.lower() in models:
        return named.lower()
    base = target.name.split(" ")[0]
    return next((name for name in models if name == f"{method}-{base}"), None)


def family_of(model: str) -> str:
    """The family of catalog models a name belongs to: the longest whose words it holds. Raises DeploymentError."""
    name = _words(model)
    for pattern, family in _ALIASES:
        name = re.sub(rf"(?<![\w.]){pattern}", family, name)
    best, rest = "", ""
    for family in _families():
        found = re.search(rf"(?<![\w.]){re.escape(family).replace(re.escape('-'), '-?')}(?![\w.])(.*)$", name)
        if found and len(family) > len(best):
            best, rest = family, found.group(1)
    if not best:
        raise DeploymentError("the catalog has no model of that name")
    odd = [word for word in re.split(r"[-+]", rest) if word and not _NEUTRAL.fullmatch(word)]
    if odd:
        raise DeploymentError(f"'{'-'.join(odd)}' after {best} may change its architecture")
    return best


def _words(model: str) -> str:
    """Lower case, one hyphen between words, without parentheses and path."""
    name = re.sub(r"\(.*?\)", " ", model).strip().rsplit("/", 1)[-1]
    name = re.sub(r"(?<=\d)_(?=\d)", ".", name)  # 3_3 for 3.3
    return re.sub(r"[\s_-]+", "-", name.lower()).strip("-")


def _kind(text: str) -> str | None:
    """How a quantization stores a linear, None where its words are not known."""
    return next((kind for kind, pattern in _STORED if re.search(pattern, text.lower())), None)


@cache
def _families() -> dict[str, dict[str, frozenset[str]]]:
    """Entries of every family of the catalog, published ones first, with the words each answers to."""
    found: dict[str, dict[str, frozenset[str]]] = {}
    for name in Catalog().models():
        if re.match(r"eagle3?-|dflash-|dspark-", name):
            continue
        family = name
        while (shorter := _SUFFIX.sub("", family)) != family:
            family = shorter
        found.setdefault(family, {})[name] = _kinds(name)
    order = {f: sorted(e.items(), key=lambda item: ("" not in item[1], len(item[0]))) for f, e in found.items()}
    return {family: dict(entries) for family, entries in order.items()}


def _kinds(name: str) -> frozenset[str]:
    """A stored format in the entry's name; else "" and the formats its own weights are published in."""
    named = next((kind for kind, pattern in _STORED if kind and re.search(rf"-(?:{pattern})", name)), None)
    if named:
        return frozenset({named})
    graph = _graph(name)
    nodes = [node for kind in graph.layer_kinds for node in kind.nodes if node.op in ("GEMM", "GroupedGEMM")]
    dtypes = {node.weight_dtype or graph.globals_.weight_dtype for node in nodes}
    return frozenset({""} | (dtypes - {"bf16", "fp16", "fp32"}))


@cache
def _graph(name: str) -> ModelGraph:
    return Catalog().model(name)


def _own_cache(name: str, model: str, kind: str) -> ModelGraph:
    """The entry's graph; what it says of its cache holds for its publisher's FP8 export and for NVFP4 exports."""
    graph = _graph(name)
    publisher = graph.derived_from.path.split("/")[0].lower()
    kept = kind in ("", "nvfp4") or publisher in model.lower()
    return graph if kept else _plain_cache(graph)


def _plain_cache(graph: ModelGraph) -> ModelGraph:
    return graph.model_copy(update={"globals_": graph.globals_.model_copy(update={"kv_cache_dtype": ""})})
