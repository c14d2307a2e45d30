"""Fits of collectives (two protocols per operation and width) and vLLM's own all-reduce as measured per engine version.

Held out for a fit: every third message size. Bytes are the total payload: twice the table's element count.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from steppe.calibrate import laws
from steppe.calibrate.fit import Fitted, Params, geometric, median_ape, robust_fit
from steppe.calibrate.parts import Part
from steppe.calibrate.tables import Tables, version_key

BOUNDS = {"a1": (0.5, 1e4), "R1": (1.0, 1e7), "a2": (0.5, 1e4), "R2": (1.0, 1e7)}
EAGER_LANE = "2.30.7"  # a small all-reduce-only lane timed eagerly, 27 us floor
HELD = "every third message size"


def fit_curve(nbytes: Any, us: Any) -> Params:
    """Two-protocol parameters of one curve."""
    rate, floor = nbytes.max() / us.max(), us.min()
    guesses = [(floor, rate * 0.3, floor * 3, rate), (floor, rate * 0.1, floor * 2, rate),
               (floor, rate * 0.6, floor * 6, rate * 1.1), (floor, rate * 0.05, floor * 1.5, rate)]  # fmt: skip
    starts = []
    for guess in guesses:
        clipped = np.clip(guess, [lo * 1.001 for lo, _ in BOUNDS.values()], [hi * 0.999 for _, hi in BOUNDS.values()])
        starts.append(dict(zip(BOUNDS, clipped.tolist(), strict=True)))
    bounds = {n: (starts[0][n], lo, hi) for n, (lo, hi) in BOUNDS.items()}
    p = robust_fit(lambda q: laws.collective(q, nbytes), bounds, us, starts=starts, scale=0.05, max_nfev=3000)
    if p["a1"] > p["a2"]:  # the formula is symmetric: the protocol of low latency comes first
        p = {"a1": p["a2"], "R1": p["R2"], "a2": p["a1"], "R2": p["R1"]}
    return p


def fit_law(part: Part, key: str, path: str, nbytes: Any, us: Any) -> Fitted:
    """One curve with its held-out error."""
    out = np.arange(len(us)) % 3 == 1
    first, final = fit_curve(nbytes[~out], us[~out]), fit_curve(nbytes, us)
    predicted = laws.collective(first, nbytes[out])
    return Fitted(
        "collective", key, part.name, {**final, "bmin": float(nbytes.min()), "bmax": float(nbytes.max())}, (path,),
        len(us), HELD, geometric(laws.collective(final, nbytes), us), geometric(predicted, us[out]),
        median_ape(predicted, us[out]),
    )  # fmt: skip


def _curves(d: Any, by: list[str]) -> list[tuple[Any, Any, Any]]:
    out = []
    for key, x in d.groupby(by):
        z = x.groupby("message_size").us.median()
        out.append((key, z.index.to_numpy(dtype=float) * 2.0, z.to_numpy(dtype=float)))
    return out


def fit_nccl(tables: Tables, part: Part) -> list[Fitted]:
    """NCCL operations at every measured width; an older lane fills widths the newest lacks (GB200 over its rack)."""
    lanes = [v for v in tables.lanes(part.folder, "comm", "nccl", "nccl_perf") if v != EAGER_LANE]
    fitted: dict[str, Fitted] = {}
    use = lanes[-1:] + (["2.23"] if part.folder == "gb200" and "2.23" in lanes[:-1] else [])
    for version in use:
        path = tables.path(part.folder, "comm", "nccl", version, "nccl_perf")
        d = tables.read(path)
        for (op, ranks), nbytes, us in _curves(d[d.nccl_dtype == "half"], ["op_name", "num_gpus"]):
            key = f"nccl/{op}/{int(ranks)}"
            if key not in fitted:
                fitted[key] = fit_law(part, key, path, nbytes, us)
    return list(fitted.values())


def fit_vllm(tables: Tables, part: Part) -> list[Fitted]:
    """vLLM's all-reduce inside a graph: measured points of every engine version, and a smooth law of the newest."""
    versions = tables.lanes(part.folder, "comm", "vllm", "custom_allreduce_perf")
    out: list[Fitted] = []
    smooth: dict[str, Fitted] = {}
    for version in sorted(versions, key=version_key, reverse=True):
        path = tables.path(part.folder, "comm", "vllm", version, "custom_allreduce_perf")
        d = tables.read(path)
        for (ranks,), nbytes, us in _curves(d[d.backend == "vllm_graph"], ["num_gpus"]):
            key = f"vllm_graph/all_reduce/{int(ranks)}"
            if key not in smooth:  # newest version that has this width
                smooth[key] = fit_law(part, key, path, nbytes, us)
            out.append(_curve(part, version, int(ranks), path, nbytes, us))
    return [_replaced(tables, law) for law in list(smooth.values()) + out]


def _curve(part: Part, version: str, ranks: int, path: str, nbytes: Any, us: Any) -> Fitted:
    points = {"bytes": nbytes.tolist(), "us": us.tolist()}
    held_out = "nothing: measured points"
    return Fitted("all_reduce_curve", f"{version}/{ranks}", part.name, points, (path,), len(us), held_out)


def _replaced(tables: Tables, law: Fitted) -> Fitted:
    """The law, or H100's where H200's own table of 0.14.0 over 8 ranks stands: an outlier.

    Its points of 0.5 to 4 MB are two to three times those of the same part in 0.18.0 and later, and of H100 in the same
    release, whose kernel and link are the same.
    """
    if (law.part, law.law, law.key) != ("h200", "all_reduce_curve", "0.14.0/8"):
        return law
    path = tables.path("h100_sxm", "comm", "vllm", "0.14.0", "custom_allreduce_perf")
    d = tables.read(path)
    for (ranks,), nbytes, us in _curves(d[d.backend == "vllm_graph"], ["num_gpus"]):
        if int(ranks) == 8:
            points = {"bytes": nbytes.tolist(), "us": us.tolist()}
            why = (
                "H100's curve of the same release: the part's own points of 0.5-4 MB are two to three times those of "
                "every later release; a repeated collection on it would replace it"
            )
            return replace(law, params=points, data=(path,), method="assumed", rationale=why)
    return law
