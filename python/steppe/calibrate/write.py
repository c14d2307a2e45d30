"""Coefficient sets on disk: one JSON file a part, one law a line, the same bytes for the same fits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from steppe.calibrate.fit import Fitted, number, tidy

SCRIPT = "steppe calibrate"
FAMILIES = [
    "gemm",
    "moe",
    "attention_decode",
    "attention_prefill",
    "mla_decode",
    "mla_context",
    "sparse_decode",
    "sparse_context",
    "recurrent",
    "collective",
    "all_reduce_curve",
    "moe_exchange",
    "elementwise",
]
DIGITS = 5


def _numbers(key: str) -> list[Any]:
    """Order keys so that widths and versions sort as numbers."""
    return [(0, int(x), "") if x.isdigit() else (1, 0, x) for x in key.replace("/", ".").split(".")]


def order(fitted: list[Fitted]) -> list[Fitted]:
    """Laws in the order of the file: by family, then key."""
    return sorted(fitted, key=lambda f: (FAMILIES.index(f.law), _numbers(f.key)))


def _params(fitted: Fitted) -> dict[str, Any]:
    out = {k: tidy(v, DIGITS) for k, v in fitted.params.items()}
    if fitted.law == "all_reduce_curve":  # sizes are integers and are not rounded
        out["bytes"] = [int(x) for x in fitted.params["bytes"]]
    return out


def law_document(fitted: Fitted) -> dict[str, Any]:
    """One entry of `laws:`."""
    fit: dict[str, Any] = {"script": SCRIPT}
    if fitted.data:
        fit["data"] = fitted.data[0] if len(fitted.data) == 1 else list(fitted.data)
    if fitted.method == "measured":
        fit["rows"] = fitted.rows
        fit["held_out"] = fitted.held_out
        for name in ("train_error", "held_out_error"):
            if (value := getattr(fitted, name)) is not None:
                fit[name] = number(value, 4)
        if fitted.median_ape is not None:
            fit["median_ape"] = number(fitted.median_ape, 3)
    fit |= {k: tidy(v, 4) for k, v in fitted.extra.items()}
    document: dict[str, Any] = {
        "law": fitted.law,
        "key": fitted.key,
        "scope": {"hardware": [fitted.part]},
        "params": _params(fitted),
        "method": fitted.method,
        "fit": fit,
    }
    if fitted.rationale:
        document["rationale"] = fitted.rationale
    return document


def render(part: str, fitted: list[Fitted]) -> str:
    """The text of one part's coefficient set."""
    lines = [json.dumps(law_document(f), separators=(",", ":"), allow_nan=False) for f in order(fitted)]
    head = json.dumps({"kind": "CoefficientSet", "name": f"{part}-refined", "coefficients": []}, separators=(",", ":"))
    return head[:-1] + ',"laws":[\n' + ",\n".join(lines) + "\n]}\n"


def write_set(out: Path, part: str, fitted: list[Fitted]) -> Path:
    """Write `<out>/<part>-refined.json` and return its path."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{part}-refined.json"
    path.write_text(render(part, fitted), encoding="utf-8")
    return path
