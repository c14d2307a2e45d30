"""Reading the engine's golden vectors into this library's objects."""

from __future__ import annotations

import json
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from steppe import _core
from steppe.memory.blocks import KernelBlocks
from steppe.memory.specs import ONE_VECTOR, CacheSpec

ROOT = Path(os.environ.get("STEPPE_GOLDEN", Path(__file__).resolve().parents[3] / "shared" / "golden"))
FOLDER = ROOT / "engine"

needs_golden = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"engine golden vectors not found in {FOLDER}; set STEPPE_GOLDEN"
)


def load(name: str) -> dict[str, Any]:
    """One golden file, or an empty one where the folder is absent (the tests are skipped then)."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def spec_of(raw: dict[str, Any], extra: int = 0) -> CacheSpec:
    """A golden `spec` as a CacheSpec."""
    kind = raw["kind"]
    per_state = raw.get("tokens_per_state", 1)
    if isinstance(per_state, str):
        per_state = Fraction(per_state)
    if kind == "mamba":
        return CacheSpec(
            "mamba",
            raw["block_size"],
            shapes=tuple(tuple(s) for s in raw["shapes"]),
            dtypes=tuple(raw["dtypes"]),
            mode=raw["mode"],
            speculative_blocks=raw["speculative_blocks"],
            checkpoint_blocks=raw.get("checkpoint_blocks", 0),
            checkpoint_alignment=raw.get("checkpoint_alignment"),
            page_bytes_padded=raw.get("page_bytes_padded"),
        )
    return CacheSpec(
        kind,
        raw["block_size"],
        heads=raw["num_kv_heads"],
        head_dim=raw["head_size"],
        head_dim_v=0 if kind in ONE_VECTOR else raw["head_size_v"],
        dtype=raw["dtype"],
        head_slots=raw.get("head_slots"),
        state_bytes=raw.get("state_bytes"),
        tokens_per_state=per_state,
        alignment=raw.get("alignment"),
        page_bytes_padded=raw.get("page_bytes_padded"),
        block_stride_alignment=raw.get("block_stride_alignment"),
        window=raw.get("window"),
        chunk=raw.get("chunk"),
        rswa_window=raw.get("rswa_window"),
        dcp_sharded=raw.get("dcp_sharded", True),
        extra_retained=extra,
        kv_quant=raw.get("kv_quant", ""),
        cache_dtype=raw.get("cache_dtype"),
        role=raw.get("role", "sparse"),
        index_group_leader=raw.get("index_group_leader", False),
        model_version=raw.get("model_version"),
        bounded_replay=raw.get("bounded_replay", False),
    )


def extra_retained(config: dict[str, Any]) -> int:
    """Tokens kept below a window: k - 1 for MTP with several modules."""
    speculative = config.get("speculative")
    if not speculative or speculative["method"] != "mtp":
        return 0
    k = speculative["num_speculative_tokens"]
    return k - 1 if min(speculative["mtp_modules"], k) > 1 else 0


def engine_batches(config: dict[str, Any]) -> int:
    """Batches in flight of the engine, the older runner included."""
    pp = config.get("pipeline_parallel", 1)
    if not config.get("async_scheduling", True):
        return pp
    return pp + 1 if config.get("runner", "v2") == "v2" else max(pp, 2)


def limits_of(config: dict[str, Any], **more: int) -> _core.CacheLimits:
    """The limits of a configuration, in flight as this library counts it."""
    budget = config["max_num_batched_tokens"]
    return _core.CacheLimits(
        max_model_len=config["max_model_len"],
        max_in_flight_tokens=_core.max_in_flight_tokens(
            config.get("pipeline_parallel", 1), config.get("async_scheduling", True), budget
        ),
        extra_retained_tokens=extra_retained(config),
        max_encoder_tokens=config.get("max_encoder_tokens", 0),
        **more,
    )


_SPECIAL = {
    "CPU_MLA": {"exact": True},
    "B12X": {"exact": True, "preferred": 128},
    "DEEPSEEK_SPARSE_SWA": {"preferred": 256},
    "ROCM_AITER_UNIFIED_ATTN": {"preferred": 64},
}
"""Backends that override which blocks they accept or prefer."""


def kernels() -> dict[str, KernelBlocks]:
    """Kernel blocks of every backend the vectors name."""
    out = {}
    for row in load("blocks").get("backends", []):
        sizes = row["kernel_block_sizes"]
        exact = tuple(s for s in sizes if isinstance(s, int))
        multiples = tuple(s[1] for s in sizes if not isinstance(s, int))
        out[row["backend"]] = KernelBlocks(exact, multiples, **_SPECIAL.get(row["backend"], {}))
    return out
