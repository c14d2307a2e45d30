"""Fits of latent attention (MLA). The tables time whole attention modules; the fit separates attention from
projections.

Held out: the head counts 4, 24, 48 and 96, and a context range.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steppe.calibrate import laws
from steppe.calibrate.attention import report, two_stage
from steppe.calibrate.fit import Fitted, Params
from steppe.calibrate.parts import Part
from steppe.calibrate.tables import Frame, Tables, median_by

DTYPES = ["bfloat16", "fp8", "fp8_block", "nvfp4"]
HEADS = [4, 24, 48, 96]
HELD = "head counts 4, 24, 48, 96, and a context range"
ATTENTION = {
    "F1": (5.0, 1e-3, 60.0),
    "L1": (500.0, 30.0, 2e4),
    "k0": (1e-5, 1e-9, 1.0),
    "k1": (1e-6, 1e-9, 1.0),
    "u": (0.85, 0.4, 0.98),
    "r": (6e4, 1e3, 1e6),
    "S": (32.0, 1.0, 256.0),
    "C": (4e7, 1e6, 4e8),
}
GEOMETRY = {"hidden": 7168, "q_lora_rank": 1536, "kv_lora_rank": 512, "rope_dim": 64}  # of the measured module


def projection_bounds(dtypes: list[str], start: Any, low: Any, high: Any) -> dict[str, tuple[float, float, float]]:
    """Bounds of F, w1, c0 and c1 of each GEMM type."""
    return {
        f"{name}_{t}": (start[i], low[i], high[i]) for t in dtypes for i, name in enumerate(("F", "w1", "c0", "c1"))
    }


def projections(p: Any, dtype: Any, dtypes: list[str], tokens: Any, heads: Any) -> Any:
    """The projection part of each row by its GEMM type."""
    out = np.zeros(len(tokens))
    for t in dtypes:
        rows = dtype == t
        out[rows] = laws.projection(p, t, tokens[rows], heads[rows])
    return out


def present(x: Frame) -> tuple[list[str], Any]:
    """GEMM types of a table, and the type of each row."""
    column = x.gemm_type.astype(str).to_numpy()
    return [t for t in DTYPES if (column == t).any()], column


def fit_decode(tables: Tables, part: Part) -> list[Fitted]:
    """Decode laws of a part, one per kernel and cache type."""
    path = tables.newest(part.folder, "mla", "vllm", "mla_generation_module_perf")
    if path is None:
        return []
    columns = ["kernel_source", "kv_cache_dtype", "gemm_type", "num_heads", "batch_size", "step"]
    out = []
    for (kernel, kv), x in median_by(tables.read(path), columns).groupby(["kernel_source", "kv_cache_dtype"]):
        dtypes, dtype = present(x)
        us, batch, heads, context = (x[c].to_numpy(dtype=float) for c in ("us", "batch_size", "num_heads", "step"))
        base = {"sms": part.sms, "bw_Bps": part.hbm * 1e6, "e": 1 if kv == "fp8" else 2, **GEOMETRY}

        def law(q: Params, rows: Any, base: Any = base, dtype: Any = dtype, dtypes: Any = dtypes, b: Any = batch,
                h: Any = heads, c: Any = context) -> Any:  # fmt: skip
            p = {**base, **q}
            t = laws.mla_decode(p, b[rows], b[rows] * c[rows], c[rows], h[rows], warm=True)
            return t + projections(p, dtype[rows], dtypes, b[rows], h[rows])

        bounds = {
            **ATTENTION,
            **projection_bounds(dtypes, (40, 0.5, 0.01, 0.002), (3, 1e-4, 1e-6, 1e-7), (150, 50, 2, 1)),
        }
        held = x.num_heads.isin(HEADS).to_numpy()
        contexts = x.step.isin([1024, 2048]).to_numpy() | (x.step >= 65536).to_numpy()
        starts = [{}, {"r": 2e5, "L1": 3000.0, "F1": 10.0}]
        first, final = two_stage(law, bounds, us, ~held & ~contexts, fixed=None, starts=starts, max_nfev=150)
        out.append(report("mla_decode", f"{kernel}/{kv}", part, base, first, final, law, us,
                          {"heads": held, "range": contexts}, HELD, path))  # fmt: skip
    return out


def fit_context(tables: Tables, part: Part) -> list[Fitted]:
    """Prefill laws of a part, one per kernel and cache type."""
    path = tables.newest(part.folder, "mla", "vllm", "mla_context_module_perf")
    if path is None:
        return []
    columns = ["kernel_source", "mla_dtype", "kv_cache_dtype", "gemm_type", "num_heads", "batch_size", "isl", "step"]
    groups = median_by(tables.read(path), columns).groupby(["kernel_source", "mla_dtype", "kv_cache_dtype"])
    out = []
    for (kernel, query, kv), x in groups:
        if len(x) < 400 or kernel in ("FLASH_ATTN_MLA", "FLASHMLA"):
            continue  # short prompts, which vLLM sends to the decode backend
        dtypes, dtype = present(x)
        us, batch, heads, q = (x[c].to_numpy(dtype=float) for c in ("us", "batch_size", "num_heads", "isl"))
        base = {"query": query, **GEOMETRY}

        def law(f: Params, rows: Any, base: Any = base, dtype: Any = dtype, dtypes: Any = dtypes, b: Any = batch,
                h: Any = heads, q: Any = q) -> Any:  # fmt: skip
            p = {**base, **f}
            t = laws.mla_context(p, b[rows], b[rows] * q[rows] * q[rows] / 2, q[rows], h[rows])
            return t + projections(p, dtype[rows], dtypes, b[rows] * q[rows], h[rows])

        bounds = {
            "F1": (5.0, 1e-3, 60.0),
            "al": (640 / part.peak["bfloat16"] * 1.6, 1e-8, 1e-2),
            "ts": (0.01, 1e-6, 1.0),
            "tc": (0.005, 1e-6, 0.2),
            **projection_bounds(dtypes, (60, 0.5, 0.05, 0.004), (3, 1e-4, 1e-6, 1e-7), (300, 50, 5, 1)),
        }
        held = x.num_heads.isin(HEADS).to_numpy()
        lengths = x.isl.isin([1536, 2048, 3072]).to_numpy() | (x.isl >= 12288).to_numpy()
        first, final = two_stage(law, bounds, us, ~held & ~lengths, fixed=None, starts=({},), max_nfev=200)
        out.append(report("mla_context", f"{kernel}/{kv}", part, base, first, final, law, us,
                          {"heads": held, "range": lengths}, HELD, path))  # fmt: skip
    return out
