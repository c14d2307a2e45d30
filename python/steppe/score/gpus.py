"""Parts a log may name: what sizing reads of them, and the catalog's chip where there is one.

Sizing a request reads two facts of a part: its memory, which decides the engine's default batch limits, and its compute
capability, which decides attention backends. What fills the rest of the memory needs a coefficient set.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Part:
    """A part as a log names it. `chip`: its name in the catalog, empty where the catalog has none."""

    name: str
    memory_gib: float
    capability: float
    chip: str = ""


_PARTS: Final = (
    # Pattern, part. First match decides: GH200 and GB200 before H200 and B200.
    (r"\bGH200\b", Part("GH200", 94.5, 9.0)),
    (r"\bGB300\b", Part("GB300", 275.0, 10.3, "gb300")),
    (r"\bGB200\b", Part("GB200", 184.0, 10.0, "gb200-nvl72")),
    (r"\bB300\b", Part("B300", 268.0, 10.3, "b300")),
    (r"\bB200\b", Part("B200", 178.0, 10.0, "b200")),
    (r"\bH200\b", Part("H200", 139.8, 9.0, "h200")),
    (r"\bH100\b(?!.*\bNVL\b)", Part("H100", 79.2, 9.0, "h100")),
    (r"\bH100\b", Part("H100 NVL", 93.1, 9.0)),
    (r"\bH800\b", Part("H800", 79.2, 9.0)),
    (r"\bH20\b", Part("H20", 95.1, 9.0)),
    (r"\bA100\b.*\b80", Part("A100 80 GB", 79.2, 8.0, "a100-sxm")),
    (r"\bA100\b", Part("A100, size not stated", 39.4, 8.0)),
    (r"\bA10G?\b", Part("A10", 22.1, 8.6)),
    (r"\bA40\b", Part("A40", 44.4, 8.6)),
    (r"\bA6000\b", Part("RTX A6000", 47.4, 8.6)),
    (r"\bL40S\b", Part("L40S", 44.4, 8.9, "l40s")),
    (r"\bL40\b", Part("L40", 44.4, 8.9)),
    (r"\bL4\b", Part("L4", 22.0, 8.9)),
    (r"\bT4\b", Part("T4", 14.6, 7.5)),
    (r"\bV100\b.*\b32", Part("V100 32 GB", 31.7, 7.0)),
    (r"\bRTX ?PRO ?6000", Part("RTX PRO 6000", 95.0, 12.0, "rtx-pro-6000")),
    (r"\b97,?887 ?MiB", Part("a part of 97,887 MiB", 95.0, 12.0)),
    (r"\b5090\b", Part("RTX 5090", 31.4, 12.0)),
    (r"\b5080\b|\b5070 ?Ti\b", Part("RTX 5080", 15.5, 12.0)),
    (r"\b4090\b", Part("RTX 4090", 23.5, 8.9)),
    (r"\b4080\b", Part("RTX 4080", 15.6, 8.9)),
    (r"\b3090\b", Part("RTX 3090", 23.6, 8.6)),
    (r"\bGB10\b|\bDGX Spark\b", Part("GB10", 119.6, 12.1)),
    (r"\bThor\b", Part("Jetson Thor", 122.8, 11.0)),
    (r"\bOrin\b", Part("Jetson AGX Orin", 61.4, 8.7)),
    (r"\bSM ?120\b", Part("a part of capability 12.0", 95.0, 12.0)),
    (r"\bMI300X?\b", Part("MI300X", 191.7, 9.0)),
    (r"\bMI325X?\b", Part("MI325X", 255.7, 9.0)),
    (r"\bMI3[56]5X?\b|\bMI350X?\b", Part("MI350X", 287.7, 9.0)),
    (r"\bL20\b", Part("L20", 44.4, 8.9)),
    (r"\b6000 ?Ada\b", Part("RTX 6000 Ada", 47.4, 8.9)),
    (r"\bRTX ?PRO ?5000\b", Part("RTX PRO 5000", 47.0, 12.0)),
    (r"\bRTX ?PRO ?4[05]00\b", Part("RTX PRO 4500", 31.4, 12.0)),
    (r"\b4070\b|\b4060\b", Part("RTX 4070", 11.6, 8.9)),
    (r"\b30[678]0\b", Part("RTX 3080", 9.8, 8.6)),
    (r"\bR9700\b", Part("Radeon AI PRO R9700", 31.9, 8.9)),
    (r"\bB70\b|\bArc\b", Part("Intel Arc", 31.9, 8.9)),
)
"""Memory as the driver reports it. Parts of other makers stand under a capability whose default blocks and backends are
theirs: 16 tokens, keys and values (vllm/platforms/rocm.py, vllm/platforms/xpu.py)."""

UNKNOWN: Final = (
    Part("an older part", 23.6, 8.6),
    Part("a Hopper part", 79.2, 9.0, "h100"),
    Part("a Blackwell part", 178.0, 10.0, "b200"),
)
"""What a part that is not stated may be: where their answers differ, the row does not say enough."""


def part_of(gpu: str) -> Part | None:
    """The part a cell names, None where it names none that is known."""
    name = re.sub(r"^\d+ ?[x×*] ?", "", gpu.strip())
    return next((part for pattern, part in _PARTS if re.search(pattern, name, re.IGNORECASE)), None)
