"""From a Hugging Face config.json to a ModelGraph document.

Two rules: a node exists when it launches GPU work, and a shape is derived the way the engine derives it. The result is
a plain dict with the keys of a ModelGraph document, the same for the same input.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steppe.errors import DeploymentError, DocumentError
from steppe.models import quantized
from steppe.models.architecture import Architecture, Cache, Layer, Node, Source
from steppe.models.config import Config
from steppe.models.context import context_length
from steppe.models.extras import encoder_parameters, per_layer_columns
from steppe.models.families import FAMILIES
from steppe.models.quantization import Quantization
from steppe.models.stack import fold

#: Raised whenever the same config derives another graph.
DERIVER_VERSION = 2

Graph = dict[str, Any]


def derive(
    config: Mapping[str, Any],
    *,
    name: str,
    path: str = "config.json",
    sha256: str | None = None,
    quantization_config: Mapping[str, Any] | None = None,
    source_format: str = "huggingface",
    target_layers: int | None = None,
) -> Graph:
    """The graph of the checkpoint whose config.json is `config`.

    Args:
        name: name of the graph, as a catalog lists it.
        path: where the config comes from, kept in `derived_from` and shown in errors.
        sha256: of the config file's bytes; of the canonical JSON of `config` when not given.
        quantization_config: a `hf_quant_config.json` beside a config that states no quantization.
        source_format: what `config` is: a checkpoint's `huggingface` config, or `stated`, its keys as somebody wrote
            them down.
        target_layers: layers of the model that a draft checkpoint drafts for; only for drafts that do not say which
            of its hidden states they read.

    Raises:
        DeploymentError: an architecture or a quantization method that is not known, by name, with the known ones.
        DocumentError: a key is missing, ill-typed or contradicts another; the message names it.
    """
    if not isinstance(config, Mapping):
        raise DocumentError(f"{path}: a config must be a map, not {type(config).__name__}")
    outer = Config(config, path=path)
    text, nested = outer.text()
    architecture = architecture_of(outer, text)
    quant = quantized.read(text, quantization_config)
    derived = FAMILIES[architecture](Source(text, quant, target_layers))
    source = _source(config, path, sha256, source_format)
    graph = assemble(derived, quant, name=name, source=source, multimodal=nested)
    length = context_length(text)
    if length is not None:
        graph["global"]["max_position_embeddings"] = length
    beside = {"per_layer_embedding": per_layer_columns(text), "encoder_parameters": encoder_parameters(outer, text)}
    graph["global"] |= {key: value for key, value in beside.items() if value}
    return graph


def derive_file(
    file: str | Path, *, name: str | None = None, path: str | None = None, target_layers: int | None = None
) -> Graph:
    """`derive` of a config.json on disk, with the `hf_quant_config.json` beside it if there is one.

    Raises:
        DocumentError: the file cannot be read or is not JSON; besides what `derive` raises.
    """
    file = Path(file)
    beside = file.with_name("hf_quant_config.json")
    quant = json.loads(beside.read_bytes()) if beside.exists() else None
    raw = _read(file)
    return derive(
        _parse(raw, file),
        name=name or file.resolve().parent.name.lower(),
        path=path or str(file),
        sha256=hashlib.sha256(raw).hexdigest(),
        quantization_config=quant,
        target_layers=target_layers,
    )


def architecture_of(outer: Config, text: Config) -> str:
    """The first stated architecture a family derives; the text decoder's own where the outer one is a wrapper."""
    stated = [str(a) for config in (outer, text) for a in config.items("architectures", default=[])]
    for architecture in stated:
        if architecture in FAMILIES:
            return architecture
    known = ", ".join(sorted(FAMILIES))
    named = ", ".join(dict.fromkeys(stated)) or "(none stated)"
    raise DeploymentError(f"{outer.path}: unknown architecture {named}; known: {known}")


def assemble(derived: Architecture, quant: Quantization, *, name: str, source: Graph, multimodal: bool) -> Graph:
    """Name the kinds, fold the stack and write the document in the order documents are read."""
    kinds = _Kinds()
    stack = fold([kinds.name(layer) for layer in derived.layers])
    speculator = None
    if derived.speculator:
        s = derived.speculator
        drafted = fold([kinds.name(_drafted(layer)) for layer in s.layers])
        speculator = {"method": s.method, "num_spec_tokens": s.num_spec_tokens, "stack": drafted, **s.extra}
    graph: Graph = {
        "kind": "ModelGraph",
        "name": name,
        "modality": "text_decoder_of_multimodal" if multimodal else "text_only",
        "derived_from": source,
        "global": _globals(derived, quant),
        "layer_kinds": kinds.document(),
        "stack": stack,
        "head": derived.head,
    }
    if speculator:
        graph["speculator"] = speculator
    caches = kinds.caches()
    if caches:
        graph["caches"] = caches
    return graph


def _drafted(layer: Layer) -> Layer:
    """The layer with its caches marked as the drafter's, which exist only while it drafts."""
    caches = [{**cache, "id": f"draft_{cache['id']}", "draft": True} for cache in layer.caches]
    return Layer(layer.kind, layer.nodes, caches)


def _globals(derived: Architecture, quant: Quantization) -> Graph:
    keys: Graph = {
        "hidden_size": derived.hidden_size,
        "vocab_size": derived.vocab_size,
        "tie_word_embeddings": derived.tied,
        "weight_dtype": quant.default.dtype,
    }
    if quant.default.block:
        keys["weight_block"] = quant.default.block
    if quant.default.dtype != quant.plain.dtype:
        keys["embedding_dtype"] = quant.plain.dtype
    latent = any(node.get("kind") in ("mla", "sparse_mla") for layer in derived.layers for node in layer.nodes)
    if quant.kv_cache and not (latent and quant.kv_cache_skips_latent):
        keys["kv_cache_dtype"] = quant.kv_cache
    return keys


class _Kinds:
    """Layers of the same nodes and caches are one kind; two kinds that ask for one name are told apart by a number."""

    def __init__(self) -> None:
        self._layers: dict[str, Layer] = {}

    def name(self, layer: Layer) -> str:
        base, number = layer.kind, 1
        while True:
            name = base if number == 1 else f"{base}_{number}"
            known = self._layers.get(name)
            if known is None:
                self._layers[name] = layer
                return name
            if known.nodes == layer.nodes and known.caches == layer.caches:
                return name
            number += 1

    def document(self) -> list[Node]:
        return [
            {"id": name, "nodes": layer.nodes, "edges": [[i, i + 1] for i in range(len(layer.nodes) - 1)]}
            for name, layer in self._layers.items()
        ]

    def caches(self) -> list[Cache]:
        """The stated caches, one entry for all kinds that hold the same one."""
        entries: list[Cache] = []
        for name, layer in self._layers.items():
            for cache in layer.caches:
                for entry in entries:
                    if {k: v for k, v in entry.items() if k != "layer_kinds"} == cache:
                        entry["layer_kinds"].append(name)
                        break
                else:
                    head = {"id": cache["id"], "kind": cache["kind"], "layer_kinds": [name]}
                    entries.append({**head, **cache})
        return entries


def _source(config: Mapping[str, Any], path: str, sha256: str | None, source_format: str) -> Graph:
    canonical = json.dumps(config, sort_keys=True, separators=(",", ":")).encode()
    return {
        "format": source_format,
        "path": path,
        "sha256": sha256 or hashlib.sha256(canonical).hexdigest(),
        "deriver_version": DERIVER_VERSION,
    }


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise DocumentError(f"{file}: {error.strerror or error}") from error


def _parse(raw: bytes, file: Path) -> Any:
    try:
        return json.loads(raw)
    except ValueError as error:
        raise DocumentError(f"{file}: not JSON: {error}") from error
