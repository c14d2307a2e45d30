"""Fits of the dense linear layers, one per part and weight type. Whole values of k are held out."""

from __future__ import annotations

from typing import Any

import numpy as np

from steppe.calibrate import laws
from steppe.calibrate.fit import Fitted, Params, geometric, median_ape, robust_fit
from steppe.calibrate.holdout import subsample, value_folds
from steppe.calibrate.parts import Part, lane
from steppe.calibrate.tables import Frame, Tables

WEIGHT_BYTES = {"bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625}  # scales included
COPIES = {"bfloat16": 6, "fp8": 6, "fp8_block": 1, "nvfp4": 1}  # weight copies the benchmark loop cycles through
FOLDS = 4

BOUNDS = {
    "t0": (5.0, 0.3, 60.0),
    "eff": (0.8, 0.05, 2.5),
    "bw_eff": (0.85, 0.2, 1.1),
    "tile_us": (0.6, 1e-3, 20.0),
    "u0_ns": (0.3, 1e-3, 5.0),
    "split_us": (3.0, 0.05, 30.0),
    "q_row_us": (1e-3, 1e-6, 1.0),
    "q_col_us": (2e-3, 1e-8, 1.0),
    "l2_frac": (0.6, 0.05, 3.0),
    "l2_gain": (3.0, 1.0, 20.0),
    "align_us": (3.0, 0.01, 30.0),
    "multi_us": (1.0, 0.01, 10.0),
    "thr": (0.3, 0.01, 1.5),
    "thr_us": (2000.0, 50.0, 3e4),
}
TILES = [[64, 64], [128, 128]]
# vLLM's CUTLASS fp8 dispatch on m: (m up to, tile rows, tile columns)
LADDER_SM90 = [[64, 64, 64], [128, 64, 128], [10**9, 128, 128]]
LADDER_SM100 = [[64, 64, 64], [256, 128, 64], [10**9, 128, 128]]


def dtypes(part: Part) -> list[str]:
    """Weight types with a table that holds graph-replayed timings.

    Block-fp8 tables of L40S and RTX PRO 6000 are launch-bound eager runs (180-425 us flat) and are left out.
    """
    if part.folder == "a100_sxm":
        return ["bfloat16"]
    if part.folder == "l40s":
        return ["bfloat16", "fp8"]
    if part.folder == "rtx_pro_6000_server":
        return ["bfloat16", "fp8", "nvfp4"]
    return ["bfloat16", "fp8", "fp8_block"] + ([] if part.hopper else ["nvfp4"])


def structure(part: Part, dtype: str) -> tuple[dict[str, Any], list[str]]:
    """Constants of one law (tile rule, byte widths, rates) and the names of its fitted parameters."""
    base: dict[str, Any] = {
        "sms": part.sms,
        "bw_Bps": part.hbm * 1e6,
        "l2_B": part.l2,
        "peak_flops": part.peak["fp8" if dtype == "fp8_block" else dtype] * 1e6,
        "w_bytes": WEIGHT_BYTES[dtype],
        "a_bytes": WEIGHT_BYTES[dtype],
        "copies": COPIES[dtype],
        "tiles": "min",
        "tile_list": TILES,
        "theta": 0.5,
        "chunk": 1,
        "mis_from": 2,
        "act_gain": 1.0,
    }
    names = ["t0", "eff", "bw_eff", "tile_us", "u0_ns", "thr", "thr_us"]
    if dtype == "bfloat16":
        names += ["split_us"]
    elif dtype == "fp8":
        names += ["q_row_us", "q_col_us"]
        base.update(chunk=2048, theta=1.0, tiles="ladder", tile_list=LADDER_SM90 if part.hopper else LADDER_SM100)
    elif dtype == "fp8_block":
        names += ["q_col_us", "l2_frac", "l2_gain", "align_us", "multi_us"]
        base["mis_from"] = 32 if part.hopper else 2
    else:
        names += ["q_row_us", "q_col_us", "l2_frac", "l2_gain"]
    if part.large_l2:
        names += [x for x in ("l2_frac", "l2_gain") if x not in names]
        if dtype != "nvfp4" and not (part.folder == "l40s" and dtype == "fp8"):
            base["act_gain"] = 4.0
    return base, names


def load(tables: Tables, part: Part, dtype: str) -> tuple[str, Frame] | None:
    """Measured shapes of one weight type: one row per (m, n, k). None without a table."""
    path = tables.path(part.folder, "gemm", "vllm", lane(part.folder), "gemm_perf")
    if not tables.exists(path):
        return None
    d = tables.read(path, ["gemm_dtype", "m", "n", "k", "latency"])
    d = d[(d.gemm_dtype == dtype) & (d.latency > 0)].drop_duplicates(["m", "n", "k"]).reset_index(drop=True)
    if dtype == "fp8_block":  # the rest runs a CUTLASS fallback no model of this engine reaches
        d = d[(d.n >= 64) & (d.k >= 128) & (d.n % 64 == 0) & (d.k % 128 == 0)].reset_index(drop=True)
    return path, d


def fit_frame(frame: Frame, base: dict[str, Any], names: list[str], *, sizes: tuple[int, int] = (6000, 12000)) -> Any:
    """Parameters over all rows of `frame` (m, n, k, us), and the prediction of each row by the fold that left it
    out."""
    m, n, k = (frame[c].to_numpy(dtype=float) for c in "mnk")
    us = frame.us.to_numpy(dtype=float)
    bounds = {name: BOUNDS[name] for name in names}

    def run(rows: Any) -> Params:
        return robust_fit(
            lambda q: laws.gemm({**base, **q}, m[rows], n[rows], k[rows], warm=True),
            bounds, us[rows], scale=0.1, max_nfev=120, diff_step=1e-3,
        )  # fmt: skip

    fold = value_folds(k, FOLDS)
    held = np.full(len(us), np.nan)
    for f in range(FOLDS):
        train, test = np.where(fold != f)[0], np.where(fold == f)[0]
        q = run(subsample(train, sizes[0], f))
        held[test] = laws.gemm({**base, **q}, m[test], n[test], k[test], warm=True)
    params = run(subsample(np.arange(len(us)), sizes[1]))
    return params, held, laws.gemm({**base, **params}, m, n, k, warm=True)


def fit_part(tables: Tables, part: Part, dtype: str) -> list[Fitted]:
    """The law of one weight type on one part; nothing without a table."""
    found = load(tables, part, dtype)
    if found is None or len(found[1]) == 0:
        return []
    path, frame = found
    base, names = structure(part, dtype)
    params, held, seen = fit_frame(frame, base, names)
    us = frame.us.to_numpy(dtype=float)
    decode = frame.m.to_numpy() <= 512
    return [
        Fitted(
            "gemm", dtype, part.name, {**base, **params}, (path,), len(us),
            "whole k values, 4 folds", geometric(seen, us), geometric(held, us), median_ape(held, us),
            extra={"held_out_decode": geometric(held[decode], us[decode]),
                   "held_out_prefill": geometric(held[~decode], us[~decode])},
        )
    ]  # fmt: skip
