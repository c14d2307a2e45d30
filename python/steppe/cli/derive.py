"""`steppe derive`: a ModelGraph from a Hugging Face config.json, or the whole embedded catalog anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from steppe.errors import DocumentError
from steppe.models import catalog as models_catalog
from steppe.models.catalog_entries import ENTRIES
from steppe.models.derive import Graph, derive_file
from steppe.models.emit import to_yaml
from steppe.models.parameters import parameters


def register(app: typer.Typer) -> None:
    """Add the `derive` command to `app`."""
    app.command(name="derive")(command)


def command(
    config: Annotated[
        Path | None,
        typer.Argument(help="A config.json, or a folder that holds one (with its hf_quant_config.json, if any)."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the graph; default: the folder's, in lower case.")] = None,
    source: Annotated[
        str | None, typer.Option(help="Where the config comes from, kept in `derived_from`; default: its path.")
    ] = None,
    target_layers: Annotated[
        int | None, typer.Option(help="Layers of the target, for a draft that does not say which of them it reads.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here; a folder gets <name>/graph.yaml.")
    ] = None,
    catalog: Annotated[
        Path | None,
        typer.Option(help="A folder of configs: derive every model of the embedded catalog from it, in place."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the graph as JSON.")] = False,
) -> None:
    """Derive the graph of a model from its Hugging Face config.json.

    The graph states every operation one forward pass launches, with the shapes vLLM gives them. It is printed as YAML,
    ready for a catalog; `-o` writes it to a file.
    """
    if catalog is not None:
        rebuild(catalog)
        return
    if config is None:
        raise DocumentError("derive: give a config.json, or --catalog with a folder of configs")
    file = config / "config.json" if config.is_dir() else config
    graph = derive_file(file, name=name, path=source, target_layers=target_layers)
    text = json.dumps(graph, indent=2) + "\n" if as_json else to_yaml(graph)
    if output is None:
        typer.echo(text, nl=False)
        return
    target = write(graph, text, output)
    typer.echo(summary(graph, target), err=True)


def rebuild(configs: Path) -> None:
    """Write the embedded catalog anew from a folder of configs, and say what was written and what had no config."""
    written = models_catalog.write(configs)
    missing = [entry.name for entry in ENTRIES if entry.name not in written]
    typer.echo(f"{len(written)} graphs written to {models_catalog.CATALOG}")
    if missing:
        typer.echo(f"{len(missing)} left as they are, their config is not in {configs}: {', '.join(missing)}")


def write(graph: Graph, text: str, output: Path) -> Path:
    """The file the graph was written to: `output`, or <name>/graph.yaml in it where it is a folder."""
    folder = output.is_dir() or output.suffix not in (".yaml", ".yml", ".json")
    target = output / str(graph["name"]) / "graph.yaml" if folder else output
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DocumentError(f"{target}: {error.strerror or error}") from error
    return target


def summary(graph: Graph, target: Path) -> str:
    layers = len(graph["layer_kinds"])
    return f"{target}: {parameters(graph) / 1e9:.2f} B parameters, {layers} kinds of layer"
