"""Fits of the point-to-point exchanges of expert parallelism (DeepEP), one node, one per backend, direction and width.

Held out: one hidden size (or 30 % of the geometries), and a range of token counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steppe.calibrate import laws
from steppe.calibrate.attention import report, two_stage
from steppe.calibrate.fit import Fitted, Params
from steppe.calibrate.holdout import hash_fraction
from steppe.calibrate.parts import Part
from steppe.calibrate.tables import Tables, median_by

HELD = "one hidden size, and a range of token counts"
BOUNDS = {"a": (50.0, 1.0, 1e3), "c": (1e-3, 1e-7, 1.0), "R": (1e5, 1e2, 1e7)}
BYTES = {"bfloat16": 2.0, "default": 2.0, "fp8": 1 + 4 / 128, "nvfp4": 0.5625, "fp4": 0.5625}
BACKENDS = ("deepep_ht", "deepep_ll")  # deepep_v2 is one eager run with 30 % scatter


def fit_part(tables: Tables, part: Part) -> list[Fitted]:
    """Every exchange measured on a part."""
    path = tables.newest(part.folder, "comm", "vllm", "moe_a2a_perf")
    if path is None:
        return []
    d = tables.read(path)
    d["us"] = d.latency  # this family alone stores microseconds
    out = []
    groups = d.groupby(["comm_backend", "phase", "comm_dtype", "ep_size", "node_num"])
    for (backend, phase, dtype, ranks, nodes), x in groups:
        x = median_by(x, ["hidden_size", "topk", "num_experts", "num_tokens"])
        if backend not in BACKENDS or nodes != 1 or len(x) < 20:
            continue
        us, tokens, hidden, topk = (x[c].to_numpy(dtype=float) for c in ("us", "num_tokens", "hidden_size", "topk"))
        once = backend == "deepep_ht"
        moved = tokens * hidden * BYTES[dtype] * laws.copies(topk, ranks, once_a_rank=once)

        def law(q: Params, rows: Any, tokens: Any = tokens, moved: Any = moved) -> Any:
            return laws.moe_exchange(q, tokens[rows], moved[rows])

        wide = x.hidden_size.to_numpy() == 6144
        geometry = wide if wide.any() else hash_fraction(x.hidden_size, x.topk, x.num_experts) < 0.3
        size = np.isin(tokens, [16, 24, 512, 1024]) | (tokens >= (32768 if once else 256))
        train = ~geometry & ~size
        if train.sum() < 8:
            continue
        starts = [{}, {"c": 1e-2}, {"c": 1e-4}, {"R": 3e4}]
        first, final = two_stage(law, BOUNDS, us, train, fixed=None, starts=starts, max_nfev=200)
        base = {"bytes": BYTES[dtype], "once_a_rank": once}
        key = f"{backend}/{phase}/{dtype}/{int(ranks)}"
        out.append(report("moe_exchange", key, part, base, first, final, law, us,
                          {"geometry": geometry, "range": size}, HELD, path))  # fmt: skip
    return out
