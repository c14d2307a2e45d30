"""Docstrings of the compiled core for the API pages: stubs give the types, the extension itself the text."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import griffe

MODULE = "steppe._core"


class CompiledDocs(griffe.Extension):
    """Take the docstring of a stub's object from the object that runs."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called once an object is loaded: fill in its text where the stub has none."""
        if obj.docstring or not obj.path.startswith(f"{MODULE}."):
            return
        found: Any = importlib.import_module(MODULE)
        for name in obj.path.removeprefix(f"{MODULE}.").split("."):
            found = getattr(found, name, None)
        text = inspect.getdoc(found) if found is not None else None
        if text:
            obj.docstring = griffe.Docstring(_without_signature(text), parent=obj)


def _without_signature(text: str) -> str:
    """Without the line the binding library puts first: the stub's signature says it better."""
    first, _, rest = text.partition("\n")
    return rest.strip() if " -> " in first else text
