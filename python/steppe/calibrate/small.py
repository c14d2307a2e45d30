"""Small kernels: the floor and the achieved memory rate of one element-wise kernel inside a graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from steppe.calibrate.attention import two_stage
from steppe.calibrate.fit import Fitted, Params, geometric, median_ape
from steppe.calibrate.holdout import hash_fraction
from steppe.calibrate.parts import Part
from steppe.calibrate.tables import Tables, median_by

BOUNDS = {
    "F": (2.0, 0.05, 20.0),
    "hot": (3.0, 0.1, 50.0),
    "cold": (1.5, 0.1, 100.0),
    "C": (5e7, 1e6, 5e8),
    "tm": (1e-4, 1e-8, 0.1),
}


def quantiser(p: Any, m: Any, nbytes: Any, hbm: float) -> Any:
    """Static-scale quantisation of `m` rows: a floor, a cost a row, L2-hot bytes and what falls out of L2."""
    cold = (1 / (p["cold"] * hbm)) / (1 + (p["C"] / nbytes) ** 4)
    return (p["F"] + p["tm"] * m) + nbytes * (1 / (p["hot"] * hbm) + cold)


def fit_elementwise(tables: Tables, part: Part) -> list[Fitted]:
    """The floor and the HBM share of a small kernel, read off the static quantisation table (one read, one write, no
    arithmetic): the share is that of tensors too large for L2.

    Held out: 30 % of the widths, and row counts 256-257, 1024-1025 and 16 k up.
    """
    path = tables.newest(part.folder, "quantize", "vllm", "scale_matrix_perf")
    if path is None:
        return []
    d = tables.read(path)
    d = median_by(d[d.us > 0], ["m", "k"])
    us, m, k = (d[c].to_numpy(dtype=float) for c in ("us", "m", "k"))

    def law(q: Params, rows: Any) -> Any:
        return quantiser(q, m[rows], m[rows] * k[rows] * 3.0, part.hbm)

    widths = hash_fraction(d.k) < 0.3
    counts = np.isin(m, [256, 257, 1024, 1025]) | (m >= 16384)
    first, final = two_stage(law, BOUNDS, us, ~widths & ~counts, fixed=None, starts=({},), max_nfev=200)
    held = widths | counts
    predicted = law(first, held)
    share = 1 / (1 / final["hot"] + 1 / final["cold"])
    params = {"floor_us": final["F"], "hbm_fraction": share, "bw_Bps": part.hbm * 1e6}
    return [
        Fitted("elementwise", "default", part.name, params, (path,), len(us), "30 % of widths, and row counts",
               geometric(law(final, slice(None)), us), geometric(predicted, us[held]), median_ape(predicted, us[held]),
               extra={"note": "errors are of the fuller form, which also has an L2-hot rate and a cost a row"})
    ]  # fmt: skip
