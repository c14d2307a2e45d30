"""The catalog: models, chips, networks, storage devices and coefficient sets by name.

`Catalog()` is the embedded data; `Catalog(root)` a folder of the same layout (`hardware/`, `networks/`,
`devices/storage.yaml`, `models/<name>/graph.yaml`, `coefficients/`), a blis-catalog or blis-registry checkout for one.
Listing names needs no schema library; loading a document imports it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steppe.errors import DocumentError

if TYPE_CHECKING:
    from steppe.documents.coefficients import CoefficientSet
    from steppe.documents.graph import ModelGraph
    from steppe.documents.hardware import Chip, Fabric, StorageDevice
    from steppe.documents.load import Loaded

__all__ = ["EMBEDDED", "Catalog"]

EMBEDDED = Path(__file__).parent / "data"
SUFFIXES = (".yaml", ".yml", ".json")

_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
_FOLDERS = {"chip": "hardware", "fabric": "networks", "model": "models", "coefficient set": "coefficients"}


class Catalog:
    """Documents of one root folder, by name. Lookups read the files as they are now; parsed documents are cached."""

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = EMBEDDED if root is None else Path(root)
        if not self.root.is_dir():
            raise DocumentError(f"{self.root}: no such folder; give the root of a catalog, or none at all")

    def described(self) -> str:
        """The catalog as an error names it."""
        return "the embedded catalog" if self.root == EMBEDDED else str(self.root)

    def __repr__(self) -> str:
        return f"Catalog({str(self.root)!r})"

    def chips(self) -> list[str]:
        """Names of the chips."""
        return self.names("chip")

    def fabrics(self) -> list[str]:
        """Names of the networks."""
        return self.names("fabric")

    def models(self) -> list[str]:
        """Names of the models."""
        return self.names("model")

    def coefficient_sets(self) -> list[str]:
        """Names of the coefficient sets."""
        return self.names("coefficient set")

    def chip(self, name: str) -> Chip:
        """Return a chip. Raises DocumentError for an unknown name or a malformed document; so do the others."""
        return self._get("chip", name)  # type: ignore[no-any-return]

    def fabric(self, name: str) -> Fabric:
        """Return a network."""
        return self._get("fabric", name)  # type: ignore[no-any-return]

    def model(self, name: str) -> ModelGraph:
        """Return the graph of a model."""
        return self._get("model", name)  # type: ignore[no-any-return]

    def coefficient_set(self, name: str) -> CoefficientSet:
        """Return a coefficient set."""
        return self._get("coefficient set", name)  # type: ignore[no-any-return]

    def storage(self) -> dict[str, StorageDevice]:
        """Return the storage devices by name; empty where the root has none."""
        return dict(self.devices().get())

    def names(self, kind: str) -> list[str]:
        """Names of one kind (`chip`, `fabric`, `model`, `coefficient set`), sorted."""
        folder = self.root / _FOLDERS[kind]
        if not folder.is_dir():
            return []
        if kind == "model":
            return sorted(entry.name for entry in folder.iterdir() if _graph_file(entry) is not None)
        return sorted({entry.stem for entry in folder.iterdir() if entry.suffix in SUFFIXES and entry.is_file()})

    def path(self, kind: str, name: str) -> Path | None:
        """The file of a document, or None where there is none by that name."""
        if not _SAFE_NAME.fullmatch(name):
            return None
        folder = self.root / _FOLDERS[kind]
        if kind == "model":
            return _graph_file(folder / name)
        return next((file for suffix in SUFFIXES if (file := folder / f"{name}{suffix}").is_file()), None)

    def find(self, kind: str, name: str) -> tuple[Loaded[Any] | None, str]:
        """Load a document without raising: what was loaded, or None and why there is no such document."""
        from steppe.documents import load, problems
        from steppe.documents.coefficients import CoefficientSet
        from steppe.documents.graph import ModelGraph
        from steppe.documents.hardware import Chip, Fabric

        path = self.path(kind, name)
        if path is None:
            hint = problems.suggestion(name, self.names(kind))
            return None, f"unknown {kind} '{name}' in {self.described()}; {hint}"
        models: dict[str, Any] = {
            "chip": Chip,
            "fabric": Fabric,
            "model": ModelGraph,
            "coefficient set": CoefficientSet,
        }
        return load.load_file(models[kind], path), ""

    def devices(self) -> Loaded[dict[str, StorageDevice]]:
        """The storage devices, with the problems of their file."""
        from steppe.documents import load

        files = (self.root / "devices" / f"storage{suffix}" for suffix in SUFFIXES)
        path = next((file for file in files if file.is_file()), None)
        return load.Loaded(str(self.root), {}) if path is None else load.load_devices(path)

    def _get(self, kind: str, name: str) -> Any:
        loaded, message = self.find(kind, name)
        if loaded is None:
            raise DocumentError(message)
        return loaded.get()


def _graph_file(folder: Path) -> Path | None:
    return next((file for suffix in SUFFIXES if (file := folder / f"graph{suffix}").is_file()), None)
