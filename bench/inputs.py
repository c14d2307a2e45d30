"""What the benchmarks price: kernels of shipped and of golden sets, and their batches."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import steppe

GOLDEN = Path(os.environ.get("STEPPE_GOLDEN", Path(__file__).resolve().parents[2] / "shared" / "golden"))
GOLDEN_NAMES = ("d8-a-tp1", "d70-a-tp4", "wm-a-tp4", "mla-a-tp8", "mla-a-tp8-dcp8")
SHIPPED: dict[str, dict[str, Any]] = {
    "llama-3.1-8b h100": {"model": "llama-3.1-8b-instruct", "hardware": "h100"},
    "gpt-oss-120b h200": {"model": "gpt-oss-120b", "hardware": "h200"},
    "deepseek-v3 b200 tp8": {"model": "deepseek-v3", "hardware": "b200", "tp": 8},
}
CASES = ("decode_1", "decode_32_mixed", "decode_256", "prefill_with_decodes")
Requests = list[tuple[int, int]]  # (scheduled, computed)


def kernels() -> dict[str, steppe.Kernel]:
    """Every kernel by name: reference sets first, where the golden documents are there."""
    documents = GOLDEN / "documents"
    found: dict[str, steppe.Kernel] = {}
    for name in GOLDEN_NAMES:
        path = documents / "scenarios" / f"{name}.yaml"
        if path.exists():
            found[name] = steppe.open(path, catalog=documents / "catalog", registry=documents / "registry")
    for name, given in SHIPPED.items():
        found[name] = steppe.Kernel.build(**given)
    return found


def batches(name: str) -> dict[str, tuple[int, int, Requests]]:
    """(decode_threshold, sm_budget, requests) of each case: the golden file's own, else contexts about 4,096."""
    made = {
        "decode_1": (1, 0, [(1, 4096)]),
        "decode_32_mixed": (1, 0, [(1, 256 * (i + 1)) for i in range(32)]),
        "decode_64": (1, 0, [(1, 4096)] * 64),
        "decode_256": (1, 0, [(1, 4096)] * 256),
        "decode_1024": (1, 0, [(1, 4096)] * 1024),
        "prefill_with_decodes": (1, 0, [(2048, 0), *[(1, 4096)] * 64]),
    }
    path = GOLDEN / "expected" / f"{name}.json"
    if name in GOLDEN_NAMES and path.exists():
        for case in json.loads(path.read_text())["batches"]:
            if case["name"] in CASES:
                requests = [(tokens, past) for count, tokens, past, _ in case["reqs"] for _ in range(count)]
                made[case["name"]] = (case["decode_threshold"], case["sm_budget"], requests)
    return made


def write(name: str, kernel: steppe.Kernel, folder: Path) -> tuple[Path, Path]:
    """The kernel's bytes and its batches as files of the C++ program."""
    stem = name.replace(" ", "_")
    kernel_path, batch_path = folder / f"{stem}.bin", folder / f"{stem}.txt"
    kernel_path.write_bytes(kernel.to_bytes())
    lines = [
        f"{case} {threshold} {budget} " + " ".join(f"{scheduled}:{computed}" for scheduled, computed in requests)
        for case, (threshold, budget, requests) in batches(name).items()
    ]
    batch_path.write_text("\n".join(lines) + "\n")
    return kernel_path, batch_path
