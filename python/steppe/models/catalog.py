"""Writing the embedded catalog: `python -m steppe.models.catalog CONFIGS` derives every listed model anew.

CONFIGS is a folder of config files named `<org>--<model>_config.json`, with `<org>--<model>_hf_quant_config.json`
beside those that have one; `<org>/<model>/config.json` is found too. Configs are not kept in this repository: a graph
states the checkpoint's id and the SHA-256 of the config file it was derived from.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steppe.errors import DocumentError
from steppe.models.catalog_entries import ENTRIES, Entry
from steppe.models.derive import Graph, derive
from steppe.models.emit import to_yaml
from steppe.models.stated import STATED

CATALOG = Path(__file__).resolve().parent.parent / "catalog" / "data" / "models"


@dataclass(frozen=True)
class Files:
    """The files of one checkpoint in a folder of configs."""

    config: Path
    quant: Path | None


def find(configs: Path, checkpoint: str) -> Files | None:
    """The config of `org/model` under `configs`, or None."""
    flat = configs / f"{checkpoint.replace('/', '--')}_config.json"
    nested = configs / checkpoint / "config.json"
    for config, quant in (
        (flat, flat.with_name(flat.name.replace("_config.json", "_hf_quant_config.json"))),
        (nested, nested.with_name("hf_quant_config.json")),
    ):
        if config.exists():
            return Files(config, quant if quant.exists() else None)
    return None


def derive_entry(entry: Entry, configs: Path | None) -> Graph | None:
    """The graph of one catalog entry; None where its config is not under `configs`.

    An entry of `STATED` needs no file.
    """
    if entry.checkpoint in STATED:
        config: Any = STATED[entry.checkpoint]
        return derive(
            _quantized(config, entry),
            name=entry.name,
            path=entry.checkpoint,
            source_format="stated",
            target_layers=entry.target_layers,
        )
    files = find(configs, entry.checkpoint) if configs else None
    if files is None:
        return None
    raw = files.config.read_bytes()
    beside = json.loads(files.quant.read_bytes()) if files.quant and not entry.plain else None
    return derive(
        _quantized(json.loads(raw), entry),
        name=entry.name,
        path=f"{entry.checkpoint}/config.json",
        sha256=hashlib.sha256(raw).hexdigest(),
        quantization_config=beside,
        target_layers=entry.target_layers,
    )


def _quantized(config: Mapping[str, Any], entry: Entry) -> Mapping[str, Any]:
    return config if entry.quantization is None else {**config, "quantization_config": entry.quantization}


def text_of(entry: Entry, graph: Graph) -> str:
    """The catalog file of an entry: its graph under a comment that says where it comes from."""
    stated = entry.checkpoint in STATED
    of = f"{'keys stated for' if stated else 'the config of'} {entry.checkpoint}"
    comments = [f"Derived from {of} by `python -m steppe.models.catalog`; not edited by hand."]
    if entry.quantization:
        comments.append(f"Quantization stated by the catalog: {entry.quantization_source}.")
    if entry.plain:
        comments.append("The architecture alone, at 16 bits: the quantization beside that config is left out.")
    return to_yaml(graph, comments=comments)


def write(configs: Path, catalog: Path = CATALOG) -> list[str]:
    """Derive every entry that states its keys or whose config is under `configs` into `catalog`; the names written.

    Raises:
        DocumentError: `configs` holds none of the configs.
    """
    if not any(find(configs, entry.checkpoint) for entry in ENTRIES):
        raise DocumentError(f"{configs}: none of the configs of the catalog is there")
    written = []
    for entry in ENTRIES:
        graph = derive_entry(entry, configs)
        if graph is None:
            continue
        folder = catalog / entry.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "graph.yaml").write_text(text_of(entry, graph), encoding="utf-8")
        written.append(entry.name)
    return written


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    names = write(Path(sys.argv[1]))
    print(f"{len(names)} of {len(ENTRIES)} graphs written to {CATALOG}")
