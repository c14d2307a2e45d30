"""Fits of full and sliding-window attention, decode and prefill, one per part, kernel path, cache type and kind.

Held out: 35 % of the head geometries (a hash of head size, heads, KV heads and window) at every context, and a
context range
(1024, 2048 and 64 k up in decode; 1.5-3 k and 10 k up in prefill) at every geometry.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steppe.calibrate import laws
from steppe.calibrate.fit import Fitted, Params, geometric, median_ape, restart, robust_fit
from steppe.calibrate.holdout import hash_fraction
from steppe.calibrate.parts import Part
from steppe.calibrate.tables import Frame, Tables

WINDOW_PAD = {"fa3": 128, "fa4": 128, "fa2": 0, "trtllm": 64, "fi": 16, "triton": 64}
L2_START = {"a100_sxm": 3e7, "h100_sxm": 4e7, "h200_sxm": 4e7, "l40s": 8e7, "rtx_pro_6000_server": 1.1e8}
HELD = "35 % of head geometries, and a context range"

DECODE = {
    "F": (10.0, 1.0, 80.0),
    "F1": (2.0, 1e-3, 40.0),
    "F2": (0.5, 1e-3, 30.0),
    "F3": (1.0, 1e-3, 30.0),
    "t0": (0.01, 1e-5, 3.0),
    "t1": (5e-5, 1e-9, 1e-2),
    "t2": (1e-6, 1e-10, 1e-3),
    "tb": (1e-3, 1e-7, 0.2),
    "tq": (1e-8, 1e-9, 1.0),
    "u": (0.85, 0.4, 0.98),
    "r": (4e4, 1e3, 1e6),
    "S": (32.0, 1.0, 128.0),
    "C": (9e7, 1e6, 4e8),
}


def path_of(kernel: str) -> str:
    """Kernel path of a table's kernel name."""
    for path, mark in (
        ("fa3", "fa3"),
        ("fa4", "fa4"),
        ("triton", "triton"),
        ("trtllm", "trtllm"),
        ("fi", "flashinfer"),
    ):
        if mark in kernel:
            return path
    return "fa2"


def _groups(d: Frame) -> Any:
    """Group a table by kernel, cache type, kind and head-size class (512 and up has kernels of its own)."""
    if "window_size" not in d:
        d["window_size"] = 0
    d["kind"] = np.where(d.window_size > 0, "swa", "full")
    d["head_class"] = np.where(d.head_dim >= 512, "d512", "")
    return d.groupby(["kernel_source", "kv_cache_dtype", "kind", "head_class"])


def _key(path: str, kv: str, kind: str, head_class: str) -> str:
    return f"{path}/{kv}/{kind}" + (f"/{head_class}" if head_class else "")


def _floats(x: Frame, *names: str) -> list[Any]:
    return [x[n].to_numpy(dtype=float) for n in names]


def decode_args(x: Frame, path: str) -> tuple[dict[str, Any], bool]:
    """Arguments of the decode law for uniform batches, and whether the layer is windowed."""
    window, context, batch, g, n, d = _floats(
        x, "window_size", "context", "batch_size", "num_key_value_heads", "num_heads", "head_dim"
    )
    seen = np.where(window > 0, np.minimum(context, window + WINDOW_PAD[path]), context)
    args = {"requests": batch, "read": batch * seen, "longest": seen, "n": n, "g": g, "d": d}
    return args, bool((window > 0).any())


def decode_fixed(path: str, args: dict[str, Any]) -> dict[str, float]:
    """Terms a path does not have, or no row of `args` shows, held at a value that removes them."""
    fixed: dict[str, float] = {}
    group = args["n"] / args["g"]
    if path != "fa2":
        fixed["F3"] = 1e-3
    if path in ("fa3", "fa4", "triton") or not (group > (1 if path == "fa2" else 16)).any():
        fixed["F2"] = 1e-3
    if path not in ("fa3", "fa4", "triton"):
        fixed["tb"] = 1e-7
    if path != "fa4":
        fixed["tq"] = 1e-9
    if path == "triton":
        fixed["S"] = 16.0
    return fixed


def decode_bounds(part: Part) -> dict[str, tuple[float, float, float]]:
    return {**DECODE, "C": (L2_START.get(part.folder, 9e7), 1e6, 4e8)}


def decode_base(part: Part, path: str, kv: str, kernel: str) -> dict[str, Any]:
    return {"path": path, "kernel": kernel, "sms": part.sms, "bw_Bps": part.hbm * 1e6, "wp": WINDOW_PAD[path],
            "e": 1 if kv == "fp8" else 2}  # fmt: skip


def two_stage(law: Any, bounds: Any, us: Any, train: Any, *, fixed: Any, starts: Any, max_nfev: int) -> Any:
    """Fit the training rows from several starts, then all rows from that end. Returns both parameter sets.

    `law(params, rows)` evaluates selected rows; `train` is a mask.
    """
    first: Params = robust_fit(
        lambda q: law(q, train), bounds, us[train], fixed=fixed, starts=starts, max_nfev=max_nfev
    )
    every = np.ones(len(us), dtype=bool)
    final: Params = robust_fit(lambda q: law(q, every), restart(bounds, first), us, fixed=fixed, max_nfev=max_nfev)
    return first, final


def report(
    law: str, key: str, part: Part, base: dict[str, Any], first: Params, final: Params, evaluate: Any, us: Any,
    masks: dict[str, Any], held_out: str, path: str, drop: Any = (),
) -> Fitted:  # fmt: skip
    """A Fitted whose held-out figures come from `first`, its parameters from `final`."""
    every = np.ones(len(us), dtype=bool)
    predicted = evaluate(first, every)
    held = np.logical_or.reduce(list(masks.values()))
    extra = {f"held_out_{n}": geometric(predicted[m], us[m]) for n, m in masks.items() if m.any()}
    kept = {n: (0.0 if n in drop else v) for n, v in final.items()}
    return Fitted(
        law, key, part.name, {**base, **kept}, (path,), len(us), held_out,
        geometric(evaluate(final, every), us), geometric(predicted[held], us[held]),
        median_ape(predicted[held], us[held]), extra=extra,
    )  # fmt: skip


def fit_decode(tables: Tables, part: Part) -> list[Fitted]:
    """Every decode law of a part."""
    path = tables.newest(part.folder, "attention", "vllm", "generation_attention_perf")
    if path is None:
        return []
    d = tables.read(path)
    d["context"] = d.step + (0 if part.folder == "a100_sxm" else 1)  # its older collector counted the new token
    out = []
    for (kernel, kv, kind, head_class), x in _groups(d):
        kernel_path = path_of(kernel)
        if kernel_path == "fa4":
            x = x[x.batch_size < 1000]  # its scheduler changes path there
        args, windowed = decode_args(x, kernel_path)
        us = x.us.to_numpy(dtype=float)
        base = decode_base(part, kernel_path, kv, kernel)

        def law(q: Params, rows: Any, base: Any = base, args: Any = args, windowed: bool = windowed) -> Any:
            picked = {n: v[rows] for n, v in args.items()}
            return laws.attention_decode({**base, **q}, **picked, windowed=windowed, warm=True)

        heads = hash_fraction(x.head_dim, x.num_heads, x.num_key_value_heads, x.window_size) < 0.35
        contexts = x.context.isin([1023, 1024, 2047, 2048]).to_numpy() | (x.context >= 65535).to_numpy()
        fixed = decode_fixed(kernel_path, args)
        starts = [{}, {"r": 8e4, "S": 16.0}, {"r": 2e4, "S": 64.0}]
        first, final = two_stage(
            law, decode_bounds(part), us, ~heads & ~contexts, fixed=fixed, starts=starts, max_nfev=120
        )
        drop = [n for n in fixed if n != "S"]
        out.append(report("attention_decode", _key(kernel_path, kv, kind, head_class), part, base, first, final, law,
                          us, {"heads": heads, "range": contexts}, HELD, path, drop))  # fmt: skip
    return out


# ----------------------------------------------------------------------------------------------------------- prefill
def prefill_bounds(part: Part) -> dict[str, tuple[float, float, float]]:
    peak, hbm = part.peak["bfloat16"] * 0.65, part.hbm
    l2 = {"l40s": 1e8, "rtx_pro_6000_server": 1.3e8, "a100_sxm": 4e7, "h100_sxm": 5e7, "h200_sxm": 5e7}
    return {
        "F": (10.0, 1.0, 80.0),
        "F1": (3.0, 1e-3, 60.0),
        "a0": (40 / peak, 1e-12, 1e-3),
        "a1": (4 / peak, 1e-12, 1e-3),
        "r0": (800 / peak, 1e-12, 1e-2),
        "r1": (1600 / peak, 1e-12, 1e-2),
        "tg": (0.01, 1e-8, 1.0),
        "tn": (0.001, 1e-8, 1.0),
        "tc0": (1e-3, 1e-7, 1.0),
        "tc1": (5e-5, 1e-9, 1e-2),
        "rk": (6 / hbm, 1e-9, 1e-3),
        "v": (2.0, 0.2, 100.0),
        "C": (l2.get(part.folder, 1.2e8), 1e7, 1e9),
    }


def prefill_args(x: Frame) -> dict[str, Any]:
    """Arguments of the prefill law for uniform batches without a cached prefix."""
    q, window, batch, g, n, d = _floats(
        x, "isl", "window_size", "batch_size", "num_key_value_heads", "num_heads", "head_dim"
    )
    pairs = np.where((window > 0) & (q > window), window * window / 2 + (q - window) * window, q * q / 2)
    longest = np.where(window > 0, np.minimum(q, window + 128), q)
    return {"requests": batch, "queries": batch * q, "pairs": batch * pairs, "longest": longest, "longest_query": q,
            "n": n, "g": g, "d": d}  # fmt: skip


def fit_prefill(tables: Tables, part: Part) -> list[Fitted]:
    """Every prefill law of a part."""
    path = tables.newest(part.folder, "attention", "vllm", "context_attention_perf")
    if path is None:
        return []
    d = tables.read(path)
    if "window_size" not in d:
        d["window_size"] = 0
    keys = [c for c in d.columns if c not in ("us", "latency")]
    d = d.drop(columns=["latency"]).groupby(keys, as_index=False).us.median()
    d = d[d.isl > 1]  # the engine runs one-token prompts as decodes
    out = []
    for (kernel, kv, kind, head_class), x in _groups(d):
        if "decode" in kernel:
            continue  # FlashInfer names its decode kernel on short prompts
        kernel_path, args = path_of(kernel), prefill_args(x)
        us = x.us.to_numpy(dtype=float)
        base = {"path": kernel_path, "kernel": kernel, "bw_Bps": part.hbm * 1e6}

        def law(q: Params, rows: Any, base: Any = base, args: Any = args) -> Any:
            return laws.attention_prefill({**base, **q}, **{n: v[rows] for n, v in args.items()})

        heads = hash_fraction(x.head_dim, x.num_heads, x.num_key_value_heads, x.window_size) < 0.35
        lengths = ((x.isl >= 1536) & (x.isl <= 3072)).to_numpy() | (x.isl >= 10240).to_numpy()
        fixed = {"tn": 1e-8} if kernel_path in ("fa3", "fa4") else {"tg": 1e-8} if kernel_path == "trtllm" else {}
        starts = [{}, {"tc0": 1e-2, "tc1": 1e-5}]
        first, final = two_stage(
            law, prefill_bounds(part), us, ~heads & ~lengths, fixed=fixed, starts=starts, max_nfev=150
        )
        out.append(report("attention_prefill", _key(kernel_path, kv, kind, head_class), part, base, first, final, law,
                          us, {"heads": heads, "range": lengths}, HELD, path, list(fixed)))  # fmt: skip
    return out
