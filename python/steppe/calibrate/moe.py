"""Fits of the routed experts, one per part, weight type and kernel. Whole expert geometries are held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from steppe.calibrate import laws
from steppe.calibrate.fit import Fitted, Params, geometric, median_ape, robust_fit
from steppe.calibrate.holdout import group_folds, subsample, value_folds
from steppe.calibrate.laws import PADS
from steppe.calibrate.parts import Part, lane
from steppe.calibrate.routing import COLUMNS, KEY
from steppe.calibrate.tables import Frame, Tables

GEOMETRY = ["hidden_size", "inter_size", "topk", "num_experts"]
GROUP_LIMITED = (7168, 2048, 8, 256)  # DeepSeek-V3: 8 groups, 4 kept
NOT_GATED = {(1024, 2688, 22, 512), (2048, 5120, 22, 512), (2688, 1856, 6, 128)}  # Nemotron relu2: two matrices

BOUNDS = {
    "t0": (15.0, 0.5, 200.0),
    "t_ramp": (5.0, 0.01, 60.0),
    "c_dim": (0.5, 1e-3, 6.0),
    "c_loc": (0.02, 1e-5, 5.0),
    "c_tok": (1.0, 1e-5, 1e3),
    "c_route": (0.5, 1e-5, 1e3),
    "c_row": (1.0, 1e-5, 1e3),
    "c_act": (1.0, 1e-5, 1e3),
    "eff": (0.6, 0.02, 1.2),
    "bw_eff": (0.85, 0.05, 1.05),
    "tile0": (16.0, 0.05, 128.0),
    "l2_frac": (0.6, 0.02, 4.0),
    "l2_gain": (3.0, 1.0, 8.0),
}
# bytes per weight, and the type the tensor cores multiply in
WEIGHTS = {
    "bfloat16": (2.0, "bfloat16"),
    "fp8": (1.0, "fp8"),
    "fp8_block": (1.0, "fp8"),
    "nvfp4": (0.5625, "nvfp4"),
    "int4_wo": (0.5625, "bfloat16"),
    "w4a16_mxfp4": (0.53125, "bfloat16"),
    "w4a8_mxfp4_mxfp8": (0.53125, "fp8"),
}


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel family: substring of the table's kernel name ('$' anchors its end), expert-width padding, whether the
    kernel walks only local pairs, whether its cost grows with the number of local experts; the lane that measured it
    and
    the name it goes by in newer lanes, where they differ from the part's."""

    dtype: str
    name: str
    pad: int = 1
    pairs: str = "local"
    per_expert: bool = False
    lane: str = ""
    alias: str = ""
    gated: bool = False  # its benchmark built three matrices for every geometry
    pad_hidden: int = 1  # the engine rounds the hidden size of its weights up to a multiple of this
    sliced_only: bool = False  # rows of expert-parallel ranks come from a routing generator we cannot emulate

    @property
    def key(self) -> str:
        return f"{self.dtype}/{self.alias or self.name.replace('$', '')}"


def _trtllm(dtype: str, name: str) -> Kernel:
    return Kernel(dtype, name, pad=128)


def _cutlass(dtype: str, name: str) -> Kernel:
    return Kernel(dtype, name, pad=128, per_expert=True)


def _triton(dtype: str, name: str) -> Kernel:
    return Kernel(dtype, name, pairs="all")  # the Triton kernel touches remote pairs too


def _older_triton(dtype: str, alias: str, lane: str = "", *, sliced_only: bool = False) -> Kernel:
    """The same Triton kernel under its name in older lanes.

    On H200, where both names were measured, 0.19.0's `vllm_fused_moe` and 0.24.0's `fp8moe_triton` agree within 1 %.
    """
    return Kernel(dtype, "vllm_fused_moe", pairs="all", lane=lane, alias=alias, gated=True, sliced_only=sliced_only)


HOPPER = [
    _triton("bfloat16", "unquantizedfusedmoe_triton"),
    _cutlass("fp8", "modeloptfp8moe_flashinfer_cutlass"),
    _triton("fp8_block", "fp8moe_triton"),
    _cutlass("fp8_block", "fp8moe_flashinfer_cutlass"),
    Kernel("int4_wo", "marlin"),
    Kernel("w4a16_mxfp4", "oaitriton"),
    Kernel("w4a16_mxfp4", "marlinexperts_situ"),
]
BLACKWELL = [
    _trtllm("bfloat16", "trtllmbf16experts$"),
    _cutlass("bfloat16", "flashinfer_cutlass"),
    _trtllm("fp8", "trtllmfp8expertsmonolithic"),
    _cutlass("fp8", "flashinfer_cutlass"),
    _trtllm("fp8_block", "expertsmonolithic"),
    _trtllm("fp8_block", "expertsmodular"),
    _trtllm("nvfp4", "expertsmonolithic"),
    _trtllm("nvfp4", "expertsmodular"),
    Kernel("int4_wo", "marlin"),
    _trtllm("w4a16_mxfp4", "trtllmmxfp4"),
    Kernel("w4a16_mxfp4", "marlinexperts_situ"),
    # vllm/model_executor/layers/fused_moe/oracle/mxfp4.py:758-760; the measured sizes are multiples of 256 already
    Kernel("w4a8_mxfp4_mxfp8", "modular", pad=128, per_expert=True, pad_hidden=256),
]
KERNELS = {
    "a100_sxm": [_older_triton("bfloat16", "unquantizedfusedmoe_triton", sliced_only=True)],
    "h100_sxm": HOPPER,
    "h200_sxm": [*HOPPER, _older_triton("fp8", "modeloptfp8moe_triton", "0.19.0")],
    "b200_sxm": [
        *BLACKWELL,
        _older_triton("bfloat16", "unquantizedfusedmoe_triton", "0.22.0"),
        _older_triton("fp8", "modeloptfp8moe_triton", "0.22.0"),
        _older_triton("fp8_block", "fp8moe_triton", "0.22.0"),
    ],
    "b300_sxm": BLACKWELL,
    "gb200": BLACKWELL,
    "gb300": BLACKWELL,
    "l40s": [
        _triton("bfloat16", "unquantizedfusedmoe_triton"),
        _triton("fp8", "modeloptfp8moe_triton"),
        _triton("fp8_block", "fp8moe_triton"),
        Kernel("int4_wo", "marlin"),
        Kernel("w4a16_mxfp4", "marlin"),
    ],
    "rtx_pro_6000_server": [
        _cutlass("bfloat16", "flashinfer_cutlass"),
        _cutlass("fp8", "flashinfer_cutlass"),
        _cutlass("nvfp4", "flashinfer_cutlass"),
        Kernel("int4_wo", "marlin"),
        Kernel("w4a16_mxfp4", "marlin"),
    ],
}


def load(tables: Tables, part: Part, version: str = "") -> tuple[str, Frame] | None:
    """All MoE rows of a part (of its own lane unless another is named), with what the routing and the law need."""
    path = tables.path(part.folder, "moe", "vllm", version or lane(part.folder), "moe_perf")
    if not tables.exists(path):
        return None
    d = tables.read(path)
    geometry = list(map(tuple, d[GEOMETRY].to_numpy().tolist()))
    d["groups"] = [8 if g == GROUP_LIMITED else 1 for g in geometry]
    d["mats"] = [2.0 if g in NOT_GATED else 3.0 for g in geometry]
    d["geometry"] = [str(g) for g in geometry]
    d["inter"] = d.inter_size / d.moe_tp_size
    d["local"] = d.num_experts / d.moe_ep_size
    return path, d


def routing_keys(tables: Tables, parts: list[Part]) -> list[tuple[Any, ...]]:
    """Every distinct routing the tables of `parts` hold."""
    keys: set[tuple[Any, ...]] = set()
    for part in parts:
        for version in sorted({k.lane for k in KERNELS.get(part.folder, [])}):
            if (found := load(tables, part, version)) is not None:
                keys |= set(map(tuple, found[1][KEY].drop_duplicates().to_numpy().tolist()))
    return sorted(keys)


def with_routing(frame: Frame, routing: list[list[Any]]) -> Frame:
    """`frame` joined with the emulated routing of its rows."""
    import pandas

    return frame.merge(pandas.DataFrame(routing, columns=[*KEY, *COLUMNS]), on=KEY, how="left")


def evaluate(p: dict[str, Any], d: Frame, *, closed: bool = False) -> Any:
    """The law over a frame: with the true routing of each row, or with the closed forms a simulator uses."""
    c = {
        n: d[n].to_numpy(dtype=float) for n in ("num_tokens", "hidden_size", "inter", "topk", "local", "mats", "P", "A")
    }
    pairs, touched, rows = c["P"], c["A"], {t: d[f"R{t}"].to_numpy(dtype=float) for t in PADS}
    if closed:
        pairs, touched = closed_routing(d)
    return laws.moe(p, c["num_tokens"], c["hidden_size"], c["inter"], c["topk"], c["local"], c["mats"], pairs, touched,
                    rows=None if closed else rows, warm=True)  # fmt: skip


def closed_routing(d: Frame) -> tuple[Any, Any]:
    """Pairs and touched experts of the benchmark's distributions in closed form."""
    tokens, experts, topk, ep = (
        d[n].to_numpy(dtype=float) for n in ("num_tokens", "num_experts", "topk", "moe_ep_size")
    )
    balanced = (d.distribution == "balanced").to_numpy()
    alpha = np.array([1.5 if b else float(s.split("_")[-1]) for b, s in zip(balanced, d.distribution, strict=True)])
    top = np.where(tokens * topk > experts, np.maximum(0.8 * tokens, 1.5), 200.0)

    def moment(j: int) -> Any:
        return (1 - alpha) / (j + 1 - alpha) * (top ** (j + 1 - alpha) - 1) / (top ** (1 - alpha) - 1)

    pairs = laws.busiest_rank(tokens, experts, topk, ep, moment(2) / moment(1) ** 2 - 1)
    touched = laws.touched_experts(pairs, experts, topk, ep, 1.0)
    even = np.maximum(1.0, tokens * topk / ep)
    local = experts / ep
    return (np.where(balanced, even, pairs),
            np.where(balanced, np.minimum(local, even), np.maximum(touched, np.minimum(1.0, pairs))))  # fmt: skip


def folds(d: Frame) -> tuple[Any, int, str]:
    """Fold of each row, their number and a sentence on what is held out."""
    count = d.geometry.nunique()
    if count >= 4:
        n = min(count, 5)
        return group_folds(d.geometry, n), n, f"whole geometries ({count}), {n} folds"
    if count >= 2:
        return value_folds(d.geometry, count), count, f"whole geometries ({count}), leave one out"
    return value_folds(d.num_tokens, 3), 3, "token counts (one geometry only), 3 folds"


def fit_frame(d: Frame, base: dict[str, Any], names: list[str], *, sizes: tuple[int, int] = (4000, 8000)) -> Any:
    """Parameters over all rows, held-out predictions (true and closed routing), in-sample predictions, the hold-out."""
    us = d.us.to_numpy(dtype=float)
    bounds = {n: BOUNDS[n] for n in names}

    def run(rows: Any, max_nfev: int) -> Params:
        part = d.iloc[rows]
        return robust_fit(lambda q: evaluate({**base, **q}, part), bounds, us[rows],
                          scale=0.1, max_nfev=max_nfev, diff_step=1e-3)  # fmt: skip

    fold, count, sentence = folds(d)
    held, closed = np.full(len(d), np.nan), np.full(len(d), np.nan)
    for f in range(count):
        train, test = np.where(fold != f)[0], np.where(fold == f)[0]
        p = {**base, **run(subsample(train, sizes[0], f), 80)}
        held[test] = evaluate(p, d.iloc[test])
        closed[test] = evaluate(p, d.iloc[test], closed=True)
    params = run(subsample(np.arange(len(d)), sizes[1]), 120)
    return params, held, closed, evaluate({**base, **params}, d), sentence


def usable(d: Frame, kernel: Kernel) -> Frame:
    """The rows of a kernel's table a law can describe."""
    if kernel.gated:
        d = d.assign(mats=3.0)
    if kernel.sliced_only:
        d = d[d.moe_ep_size == 1]
    if kernel.dtype == "fp8" and kernel.pairs == "all":
        d = d[d.inter % 16 == 0]  # a Triton tile over fewer bytes than a vector load: 10 to 50 times slower
    return d.reset_index(drop=True)


def fit_part(tables: Tables, part: Part, kernel: Kernel, routing: list[list[Any]]) -> list[Fitted]:
    """The law of one kernel on one part; nothing when its table has fewer than 300 rows."""
    table = load(tables, part, kernel.lane)
    if table is None:
        return []
    path, frame = table
    found = (frame.moe_dtype == kernel.dtype) & frame.kernel_source.str.contains(kernel.name)
    d = usable(with_routing(frame, routing)[found.to_numpy()], kernel)
    if len(d) < 300:
        return []
    width, multiplied = WEIGHTS[kernel.dtype]
    base = {"bw_Bps": part.hbm * 1e6, "l2_B": part.l2, "peak_flops": part.peak[multiplied] * 1e6,
            "w_bytes": width, "pad": kernel.pad, "pairs": kernel.pairs}  # fmt: skip
    if kernel.pad_hidden > 1:
        base["pad_hidden"] = kernel.pad_hidden
    names = [n for n in BOUNDS if n != "c_loc" or kernel.per_expert]
    params, held, closed, seen, sentence = fit_frame(d, base, names)
    us, plain = d.us.to_numpy(dtype=float), (d.groups == 1).to_numpy()
    return [
        Fitted(
            "moe", kernel.key, part.name, {**base, **params}, (path,), len(d),
            sentence, geometric(seen, us), geometric(held, us), median_ape(held, us),
            extra={"held_out_closed_routing": geometric(closed[plain], us[plain])},
        )
    ]  # fmt: skip
