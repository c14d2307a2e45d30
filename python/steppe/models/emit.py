"""Writing a graph in the style the catalog keeps: one node a line, keys in the order documents list them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./+-]*")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def to_yaml(graph: Mapping[str, Any], *, comments: list[str] | None = None) -> str:
    """The graph as YAML text, ending in a newline, with `comments` above it."""
    lines = [f"# {comment}" for comment in comments or []]
    for key, value in graph.items():
        if key == "layer_kinds":
            lines.append("layer_kinds:")
            for kind in value:
                lines += [f"  - id: {_scalar(kind['id'])}", "    nodes:"]
                lines += [f"      - {_flow(node)}" for node in kind["nodes"]]
                lines.append(f"    edges: {_flow(kind['edges'])}")
        elif isinstance(value, list):
            lines.append(f"{key}:")
            lines += [f"  - {_flow(item)}" for item in value]
        elif isinstance(value, Mapping):
            lines.append(f"{key}:")
            lines += [line for k, v in value.items() for line in _entry(k, v)]
        else:
            lines.append(f"{key}: {_scalar(value)}")
    return "\n".join(lines) + "\n"


def _entry(key: str, value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [f"  {key}:", *(f"    {k}: {_flow(v)}" for k, v in value.items())]
    return [f"  {key}: {_flow(value)}"]


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(v) for v in value) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS and len(text) != 64:
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
