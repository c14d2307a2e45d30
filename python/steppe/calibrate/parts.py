"""The accelerators the tables were measured on: what the laws need to know about each of them.

Rates come from the part descriptors of the measurement package (`aisimulate_core/systems/<folder>.yaml`). SM counts
and L2
sizes are not in it; they are the vendors' published figures.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from steppe.errors import DocumentError

SYSTEMS = "aisimulate_core/systems"


@dataclass(frozen=True, slots=True)
class Part:
    """One accelerator. Rates are per microsecond: `peak` FLOP/us by dtype, `hbm` bytes/us; `l2` bytes."""

    name: str
    folder: str
    sms: int
    l2: float
    hbm: float
    peak: dict[str, float]

    @property
    def hopper(self) -> bool:
        return self.folder.startswith("h")

    @property
    def large_l2(self) -> bool:
        """GDDR parts, whose L2 holds the activations of a whole layer."""
        return self.folder in ("l40s", "rtx_pro_6000_server")


# catalog name: (data folder, SMs, L2 MB)
KNOWN = {
    "h100": ("h100_sxm", 132, 50),
    "h200": ("h200_sxm", 132, 50),
    "b200": ("b200_sxm", 148, 126),
    "b300": ("b300_sxm", 148, 126),
    "gb200-nvl72": ("gb200", 152, 126),
    "gb300": ("gb300", 152, 126),
    "a100-sxm": ("a100_sxm", 108, 40),
    "l40s": ("l40s", 142, 96),
    "rtx-pro-6000": ("rtx_pro_6000_server", 188, 128),
}

# vLLM lane of the GEMM, MoE and attention tables; the others follow the newest lane that holds the family.
LANES = {"a100_sxm": "0.14.0", "l40s": "0.24.0", "rtx_pro_6000_server": "0.24.0"}
LANE = "0.25.0"


def lane(folder: str) -> str:
    """vLLM version whose dense tables are used for a part."""
    return LANES.get(folder, LANE)


def load_part(data: Path, name: str) -> Part:
    """Facts of one part, from its descriptor under `data`. Raises DocumentError when the descriptor is missing."""
    if name not in KNOWN:
        raise DocumentError(f"unknown part {name!r}: choose among {', '.join(KNOWN)}")
    folder, sms, l2 = KNOWN[name]
    path = data / SYSTEMS / f"{folder}.yaml"
    if not path.is_file():
        raise DocumentError(f"{path}: no part descriptor; --data must be an unpacked aisimulate wheel")
    text = path.read_text(encoding="utf-8")

    def rate(key: str) -> float | None:
        found = re.search(rf"^\s+{key}:\s*([0-9.e+]+)", text, re.MULTILINE)
        return float(found.group(1)) / 1e6 if found else None

    hbm, bf16 = rate("mem_bw"), rate("bfloat16_tc_flops")
    if hbm is None or bf16 is None:
        raise DocumentError(f"{path}: mem_bw and bfloat16_tc_flops are needed")
    fp8 = rate("fp8_tc_flops") or bf16
    fp4 = rate("fp4_tc_flops") or fp8
    return Part(name, folder, sms, l2 * 1e6, hbm, {"bfloat16": bf16, "fp8": fp8, "nvfp4": fp4})
