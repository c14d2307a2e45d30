"""The ModelGraph document: layer kinds as small graphs of priced operations, and how layers stack.

Integers a node leaves out (or states as 0) read as None, strings as "". Shapes are those of the whole model, before any
sharding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from annotated_types import Ge, Le
from pydantic import Field, Strict, StringConstraints

from steppe.documents.base import (
    Broken,
    Count,
    Document,
    Items,
    OptionalCount,
    Positive,
    PositiveNumber,
    Sha256,
    SomeItems,
    Text,
    duplicates,
)
from steppe.documents.vocabulary import (
    COLLECTIVES,
    AttentionKind,
    CacheKind,
    Dtype,
    Op,
    RecurrentKind,
)

MAX_REPEAT = 10_000  # layers a stack may repeat: far above any model, far below what would exhaust memory

WeightBlock = Annotated[str, StringConstraints(pattern=r"^(?:[1-9][0-9]{0,5}x[1-9][0-9]{0,5})?$")]

_ONLY_FOR: dict[str, frozenset[str]] = {
    "n": frozenset({"GEMM", "GroupedGEMM"}),
    "k": frozenset({"GEMM", "GroupedGEMM"}),
    "weight_dtype": frozenset({"GEMM", "GroupedGEMM"}),
    "weight_block": frozenset({"GEMM", "GroupedGEMM"}),
    "compute_dtype": frozenset({"GEMM", "GroupedGEMM"}),
    "experts": frozenset({"GroupedGEMM"}),
    "top_k": frozenset({"GroupedGEMM"}),
    "shared_experts": frozenset({"GroupedGEMM"}),
    "shared_intermediate_size": frozenset({"GroupedGEMM"}),
    "latent_size": frozenset({"GroupedGEMM"}),
    "kind": frozenset({"Attention"}),
    "window": frozenset({"Attention"}),
    "index_topk": frozenset({"Attention"}),
    "compress_ratio": frozenset({"Attention"}),
    "recurrent_kind": frozenset({"RecurrentUpdate"}),
    "state_dtype": frozenset({"RecurrentUpdate"}),
    "emit": COLLECTIVES,
    "bytes_per_token": COLLECTIVES | {"Elementwise"},
    "launches": frozenset({"Elementwise"}),
}
_REQUIRED: dict[str, tuple[str, ...]] = {
    "GEMM": ("n", "k"),
    "GroupedGEMM": ("n", "k", "experts", "top_k"),
    "Attention": ("kind", "n_q", "n_kv", "d_h"),
    "RecurrentUpdate": ("recurrent_kind", "n_heads", "state_size"),
    "Elementwise": (),
    **dict.fromkeys(COLLECTIVES, ("emit",)),
}


class Node(Document):
    """One operation of a layer: a flat union, read by `op`."""

    op: Op
    role: str = ""
    emit: str = ""
    n: OptionalCount = None
    k: OptionalCount = None
    weight_dtype: Literal[Dtype, ""] = ""
    experts: OptionalCount = None
    top_k: OptionalCount = None
    shared_experts: OptionalCount = None
    shared_intermediate_size: OptionalCount = None
    latent_size: OptionalCount = None
    kind: Literal[AttentionKind, ""] = ""
    n_q: OptionalCount = None
    n_kv: OptionalCount = None
    d_h: OptionalCount = None
    kv_lora_rank: OptionalCount = None
    qk_rope_head_dim: OptionalCount = None
    window: OptionalCount = None
    index_topk: OptionalCount = None
    compress_ratio: OptionalCount = None
    recurrent_kind: Literal[RecurrentKind, ""] = ""
    n_heads: OptionalCount = None
    state_size: OptionalCount = None
    n_groups: OptionalCount = None
    conv_kernel: OptionalCount = None
    intermediate_size: OptionalCount = None
    state_dtype: Literal[Dtype, ""] = ""
    bytes_per_token: OptionalCount = None
    gated: bool = True
    replicated: bool = False
    launches: Positive = 1
    weight_block: WeightBlock = ""
    compute_dtype: Literal[Dtype, ""] = ""

    def broken_rules(self) -> Iterator[Broken]:
        """Yield keys the operation lacks, keys of another operation, and shapes that cannot be."""
        for key in _REQUIRED[self.op]:
            if not getattr(self, key):
                yield (key,), f"required for {self.op}; state it"
        for key in self.model_fields_set:
            allowed = _ONLY_FOR.get(key)
            if allowed and self.op not in allowed and getattr(self, key):
                yield (key,), f"does not belong to {self.op}; remove it (for {', '.join(sorted(allowed))})"
        if self.op == "GroupedGEMM":
            yield from self._broken_experts()
        elif self.op == "Attention":
            yield from self._broken_attention()
        elif self.recurrent_kind == "mamba2":
            for key in ("n_groups", "conv_kernel", "intermediate_size"):
                if not getattr(self, key):
                    yield (key,), "required for mamba2; state it"

    def _broken_experts(self) -> Iterator[Broken]:
        if self.experts and self.top_k and self.top_k > self.experts:
            yield ("top_k",), f"{self.top_k} exceeds experts {self.experts}; lower it"
        if self.shared_intermediate_size and not self.shared_experts:
            yield ("shared_intermediate_size",), "stated without shared_experts; state how many there are"

    def _broken_attention(self) -> Iterator[Broken]:
        latent = self.kind in ("mla", "sparse_mla")
        if self.n_q and self.n_kv and self.n_kv > self.n_q:
            yield ("n_kv",), f"{self.n_kv} exceeds n_q {self.n_q}; key-value heads are at most the query heads"
        if latent and self.n_kv and self.n_kv != 1:
            yield ("n_kv",), f"must be 1 for {self.kind}, not {self.n_kv}; latent attention holds one head"
        if self.kind == "swa" and not self.window:
            yield ("window",), "required for swa; state the window in tokens"
        if self.kind == "sparse_mla" and not self.index_topk and not self.compress_ratio:
            yield ("index_topk",), "sparse_mla needs index_topk or compress_ratio; state one"
        if self.compress_ratio and not latent:
            yield ("compress_ratio",), f"does not belong to {self.kind or 'this'} attention; only mla, sparse_mla"


class LayerKind(Document):
    """A layer: operations, and edges [from, to] between their indices."""

    id: Text
    nodes: SomeItems[Node]
    edges: Items[Annotated[tuple[int, int], Strict(False)]] = ()

    def broken_rules(self) -> Iterator[Broken]:
        """Yield edges that leave the layer, and a cycle."""
        inside = True
        for index, edge in enumerate(self.edges):
            for end in edge:
                if not 0 <= end < len(self.nodes):
                    inside = False
                    yield ("edges", index), f"{list(edge)} names node {end}; there are nodes 0 to {len(self.nodes) - 1}"
        if inside and (cycle := _cycle(len(self.nodes), self.edges)):
            yield ("edges",), f"nodes {cycle} form a cycle; remove an edge that points backwards"


class Stack(Document):
    """Layer kinds in order: prologue once, pattern `repeat` times, epilogue once."""

    prologue: Items[Text] = ()
    pattern: Items[Text] = ()
    repeat: Annotated[int, Ge(0), Le(MAX_REPEAT)] = 0
    epilogue: Items[Text] = ()

    @property
    def layers(self) -> int:
        """Number of layers in all."""
        return len(self.prologue) + len(self.pattern) * self.repeat + len(self.epilogue)

    def counts(self) -> dict[str, int]:
        """Layers of each kind, in order of first appearance."""
        counted: dict[str, int] = {}
        for ids, times in ((self.prologue, 1), (self.pattern, self.repeat), (self.epilogue, 1)):
            for name in ids:
                counted[name] = counted.get(name, 0) + times
        return counted

    def broken_rules(self) -> Iterator[Broken]:
        """Yield a stack without layers or with half a pattern."""
        if bool(self.pattern) != bool(self.repeat):
            key = "repeat" if self.pattern else "pattern"
            yield (key,), "pattern and repeat go together; state both or neither"
        elif not self.layers:
            yield (), "holds no layer; state a pattern and repeat"


class Speculator(Document):
    """The draft part a checkpoint carries, as a stack of its own over the same layer kinds.

    `hidden_taps`: target layers whose hidden states are captured. `block`: query rows a request.
    """

    method: Text
    num_spec_tokens: Positive
    stack: Stack
    hidden_taps: Items[Count] = ()
    block: OptionalCount = None
    markov_rank: OptionalCount = None
    draft_vocab_size: OptionalCount = None
    own_lm_head: bool | None = None

    def broken_rules(self) -> Iterator[Broken]:
        """Yield a draft without layers."""
        if not self.stack.pattern:
            yield ("stack", "pattern"), "a speculator needs pattern and repeat; state both"


class CacheSpec(Document):
    """One cache as the engine registers it, for `layers` layers or for each layer of `layer_kinds`.

    Heads and dims are those of the whole model. `state_bytes` replaces heads x dims x dtype. Windows and blocks are
    tokens. `tokens_per_state` above 1 compresses; below 1 holds several states a token.
    """

    id: Text
    kind: CacheKind
    layer_kinds: Items[Text] = ()
    layers: OptionalCount = None
    heads: OptionalCount = None
    head_dim: OptionalCount = None
    head_dim_v: Count | None = None
    state_bytes: OptionalCount = None
    dtype: str = ""
    tokens_per_state: PositiveNumber = 1
    window: OptionalCount = None
    block_size: OptionalCount = None
    alignment: OptionalCount = None
    dcp_sharded: bool | None = None
    draft: bool = False

    def broken_rules(self) -> Iterator[Broken]:
        """Yield a cache without layers, without a size, or without the window its kind implies."""
        if bool(self.layer_kinds) == bool(self.layers):
            yield ("layers",), "state exactly one of layers and layer_kinds"
        if not self.state_bytes and not self.head_dim:
            yield ("head_dim",), "a cache needs head_dim or state_bytes; state one"
        if self.kind in ("window", "chunked") and not self.window:
            yield ("window",), f"required for a {self.kind} cache; state it in tokens"


class Global(Document):
    """Facts of the whole model.

    `weight_block`: the tile one scale covers, e.g. "128x128"; a node that states its own `weight_dtype` inherits none.
    `max_position_embeddings`: the engine's default max_model_len, tokens, rotary scaling included.
    `embedding_dtype`: of the embeddings, where it is not `weight_dtype`. `kv_cache_dtype`: what the checkpoint wants.
    `per_layer_embedding`: columns of a second embedding table. `encoder_parameters`: of encoders beside the decoder.
    Both are kept at the embedding's dtype.
    """

    hidden_size: Positive
    vocab_size: Positive
    tie_word_embeddings: bool
    weight_dtype: Dtype
    weight_block: WeightBlock = ""
    embedding_dtype: Literal[Dtype, ""] = ""
    kv_cache_dtype: str = ""
    max_position_embeddings: OptionalCount = None
    per_layer_embedding: OptionalCount = None
    encoder_parameters: OptionalCount = None


class DerivedFrom(Document):
    """What the graph was made from."""

    format: Text
    path: Text
    sha256: Sha256
    deriver_version: Positive


class ModelGraph(Document):
    """A model as the operations one forward pass launches."""

    kind: Literal["ModelGraph"]
    name: Text
    modality: Literal["text_only", "text_decoder_of_multimodal", ""] = ""
    derived_from: DerivedFrom
    globals_: Global = Field(alias="global")
    layer_kinds: SomeItems[LayerKind]
    stack: Stack
    head: Items[Node] = ()
    speculator: Speculator | None = None
    caches: Items[CacheSpec] = ()

    def layer_kind(self, name: str) -> LayerKind:
        """Return the layer kind called `name`. Raises KeyError when there is none."""
        for kind in self.layer_kinds:
            if kind.id == name:
                return kind
        raise KeyError(name)

    def broken_rules(self) -> Iterator[Broken]:
        """Yield names that are used twice or lead nowhere."""
        ids = {kind.id for kind in self.layer_kinds}
        for name in duplicates(kind.id for kind in self.layer_kinds):
            yield ("layer_kinds",), f"id '{name}' is used twice; ids are unique"
        yield from _unknown_ids(("stack",), self.stack, ids)
        if self.speculator:
            yield from _unknown_ids(("speculator", "stack"), self.speculator.stack, ids)
        for name in duplicates(cache.id for cache in self.caches):
            yield ("caches",), f"id '{name}' is used twice; ids are unique"
        for index, cache in enumerate(self.caches):
            for name in cache.layer_kinds:
                if name not in ids:
                    yield ("caches", index, "layer_kinds"), _no_such_kind(name, ids)


def _unknown_ids(path: tuple[str, ...], stack: Stack, ids: set[str]) -> Iterator[Broken]:
    for key in ("prologue", "pattern", "epilogue"):
        for index, name in enumerate(getattr(stack, key)):
            if name not in ids:
                yield (*path, key, index), _no_such_kind(name, ids)


def _no_such_kind(name: str, ids: Iterable[str]) -> str:
    return f"'{name}' is no layer kind; there are {', '.join(sorted(ids))}"


def _cycle(nodes: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Nodes left over by a topological sort: those on a cycle or behind one. Empty for an acyclic graph."""
    after: list[list[int]] = [[] for _ in range(nodes)]
    waiting = [0] * nodes
    for source, target in edges:
        after[source].append(target)
        waiting[target] += 1
    ready = [node for node in range(nodes) if not waiting[node]]
    for node in ready:
        for target in after[node]:
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    return sorted(set(range(nodes)) - set(ready))
