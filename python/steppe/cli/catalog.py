"""`steppe catalog list` and `steppe catalog show`: what the catalog holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steppe.errors import DocumentError, Error

if TYPE_CHECKING:
    from steppe.catalog import Catalog

EXIT_PROBLEMS = 2
KINDS = {"models": "model", "chips": "chip", "fabrics": "fabric", "coefficients": "coefficient set"}


def listing(root: Path | None = None) -> dict[str, list[str]]:
    """Names the catalog holds, by kind: models, chips, fabrics, storage, coefficients."""
    from steppe.catalog import Catalog

    catalog = Catalog(root)
    names = {title: catalog.names(kind) for title, kind in KINDS.items()}
    return {**names, "storage": sorted(catalog.storage())}


def entry(name: str, *, kind: str | None = None, root: Path | None = None) -> dict[str, Any]:
    """One document of the catalog as plain data: `kind`, `name`, `file` and `document`.

    `kind` (model, chip, fabric, storage, "coefficient set") settles a name used twice. Raises DocumentError for an
    unknown name, with the nearest known ones.
    """
    from steppe.catalog import Catalog

    catalog = Catalog(root)
    kinds = [kind] if kind else [*KINDS.values(), "storage"]
    for candidate in kinds:
        found = _document(catalog, candidate, name)
        if found is not None:
            return found
    raise DocumentError(_unknown(catalog, kinds, name))


def _document(catalog: Catalog, kind: str, name: str) -> dict[str, Any] | None:
    if kind == "storage":
        devices = catalog.devices()
        device = devices.get().get(name)
        return None if device is None else _data(kind, name, devices.file, device)
    if kind not in KINDS.values():
        raise DocumentError(f"unknown kind '{kind}'; there are {', '.join([*KINDS.values(), 'storage'])}")
    loaded, _ = catalog.find(kind, name)
    return None if loaded is None else _data(kind, name, loaded.file, loaded.get())


def _data(kind: str, name: str, file: str, document: Any) -> dict[str, Any]:
    data = document.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if kind == "coefficient set" and "coefficients" in data:  # as a file writes them: {name: {value: ...}}
        data["coefficients"] = [{item.pop("name"): item} for item in data["coefficients"]]
    return {"kind": kind, "name": name, "file": file, "document": data}


def _unknown(catalog: Catalog, kinds: list[str], name: str) -> str:
    from steppe.documents.problems import suggestion

    known = {other for kind in kinds if kind != "storage" for other in catalog.names(kind)}
    if "storage" in kinds:
        known |= set(catalog.storage())
    return f"'{name}' is not in {catalog.described()}; {suggestion(name, known)}"


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    commands = typer.Typer(help="What the catalog holds: models, parts, networks, coefficients.", no_args_is_help=True)
    app.add_typer(commands, name="catalog")

    @commands.command("list")
    def list_(
        kind: Annotated[str | None, typer.Argument(help="models, chips, fabrics, storage or coefficients.")] = None,
        catalog: Annotated[Path | None, typer.Option(help="Root of a catalog; the embedded one by default.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    ) -> None:
        """List names by kind."""
        try:
            names = listing(catalog)
            if kind is not None:
                names = {kind: _of_kind(names, kind)}
        except Error as error:
            _fail(error)
        if as_json:
            typer.echo(json.dumps(names, indent=2))
            return
        for title, entries in names.items():
            typer.secho(f"{title} ({len(entries)})", bold=True)
            for name in entries:
                typer.echo(f"  {name}")

    @commands.command("show")
    def show(
        name: Annotated[str, typer.Argument(help="Name of a document.")],
        kind: Annotated[str | None, typer.Option(help="model, chip, fabric, storage or 'coefficient set'.")] = None,
        catalog: Annotated[Path | None, typer.Option(help="Root of a catalog; the embedded one by default.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    ) -> None:
        """Show one document."""
        try:
            found = entry(name, kind=kind, root=catalog)
        except Error as error:
            _fail(error)
        if as_json:
            typer.echo(json.dumps(found, indent=2))
        else:
            _print(found)


def _of_kind(names: dict[str, list[str]], kind: str) -> list[str]:
    from steppe.documents.problems import suggestion

    if kind not in names:
        raise DocumentError(f"unknown kind '{kind}'; {suggestion(kind, names)}")
    return names[kind]


def _fail(error: Error) -> Any:
    typer.echo(f"steppe: {error}", err=True)
    raise typer.Exit(EXIT_PROBLEMS) from None


def _print(found: dict[str, Any]) -> None:
    import yaml

    typer.secho(f"{found['kind']} {found['name']}", bold=True)
    typer.echo(f"# {found['file']}")
    typer.echo(yaml.safe_dump(found["document"], sort_keys=False, default_flow_style=None, width=120).rstrip())
