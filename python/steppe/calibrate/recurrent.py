"""Fits of recurrent mixers (gated delta net, Kimi delta attention, mamba2's convolution), one per part and kernel.

Held out: a third of the head geometries, and a range of token counts (batch sizes in decode).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steppe.calibrate import laws
from steppe.calibrate.attention import report, two_stage
from steppe.calibrate.fit import Fitted, Params
from steppe.calibrate.holdout import hash_fraction
from steppe.calibrate.parts import Part
from steppe.calibrate.tables import Frame, Tables, version_key

CHUNK = 64.0
HELD = "a third of head geometries, and a range of token counts"
# mixer: (table family, backend, table name). mamba2 has no vLLM table, and only its convolution is measured.
SOURCES = {
    "gdn": ("linear_attention", "vllm", "gdn_perf"),
    "kda": ("kda", "vllm", "kda_perf"),
    "mamba2": ("linear_attention", "trtllm", "mamba2_perf"),
}
# Which kernel stands for the role when several were measured: what the engine runs comes first.
PREFERRED = [
    "causal_conv1d_fn",
    "causal_conv1d_update",
    "chunk_gated_delta_rule_flashinfer",
    "chunk_gated_delta_rule_triton",
    "fused_recurrent_gated_delta_rule_packed_decode",
    "flashkda_fwd",
    "chunk_kda_with_fused_gate",
    "fused_recurrent_kda_packed_decode",
    "fused_recurrent_kda",
    "fused_kda_decode",
]
HOST_BOUND = {"causal_conv1d_fn_qkv3"}  # 430-900 us of host metadata inside the timed loop
PHASES = {"context": "context", "generation": "decode", "verify": "verify"}
L2_START = {"a100_sxm": 3e7, "h100_sxm": 4e7, "h200_sxm": 4e7, "l40s": 8e7, "rtx_pro_6000_server": 1.1e8}


def _bounds(form: str, part: Part) -> tuple[dict[str, tuple[float, float, float]], list[dict[str, float]]]:
    """Bounds and starting points of one form."""
    c = L2_START.get(part.folder, 9e7)
    bounds: dict[str, dict[str, tuple[float, float, float]]] = {
        "lin": {
            "F": (3, 0.3, 900),
            "tn": (1e-5, 1e-9, 1e-2),
            "tq": (2e-6, 1e-9, 1e-2),
            "t2": (1e-9, 1e-10, 1e-4),
            "v": (2, 0.2, 100),
            "C": (c, 1e7, 1e9),
        },
        "memc": {"F": (2, 0.3, 60), "u": (0.7, 0.05, 1.5), "r": (2, 0.05, 50), "C": (c, 1e5, 4e8)},
        "scan_ctx": {
            "F": (12, 1, 200),
            "ts": (0.02, 1e-6, 2),
            "tc": (0.05, 1e-5, 2),
            "tw": (4e-4, 1e-7, 0.1),
            "w0": (1e-5, 1e-9, 1),
            "v": (2, 0.02, 100),
            "C": (c, 1e6, 1e9),
        },
        "mem": {"F": (3, 0.5, 60), "ts": (1e-3, 1e-6, 1), "u": (0.85, 0.2, 1.2), "r": (2, 0.3, 50), "C": (c, 1e6, 4e8)},
    }
    starts = {"lin": [{}, {"F": 400.0}, {"v": 0.8}], "scan_ctx": [{}, {"v": 0.3, "C": c / 2}]}
    return bounds[form], starts.get(form, [{}])


def form_of(kernel: str, phase: str) -> str:
    """The formula a kernel follows."""
    if "conv" in kernel:
        return "lin" if phase == "context" else "memc"
    return "scan_ctx" if phase == "context" else "mem"


def evaluate(p: Any, x: dict[str, Any]) -> Any:
    """A kernel's law over rows (L2-warm where the form knows it)."""
    form = p["form"]
    if form == "lin":
        return laws.conv_context(p, x["requests"], x["queries"], x["channels"])
    if form == "memc":
        return laws.conv_decode(p, x["queries"], x["channels"], warm=True)
    if form == "scan_ctx":
        return laws.scan_context(p, x["requests"], x["queries"], x["rounded"], x["longest"], x["k_heads"], x["v_heads"])
    return laws.scan_decode(p, x["requests"], x["v_heads"], 128 * 128 * 4 * x["drafts"], warm=True)


def arguments(x: Frame, kernel: str, phase: str) -> dict[str, Any]:
    """Arguments of the recurrent laws for uniform batches."""
    requests, v_heads, k_heads = (x[c].to_numpy(dtype=float) for c in ("batch_size", "v_heads", "k_heads"))
    tokens = np.maximum(x.seq_len.fillna(1).to_numpy(dtype=float), 1)
    rounded = np.maximum(tokens, CHUNK) if "chunk" in kernel or "flashkda" in kernel else tokens
    return {"requests": requests, "queries": requests * tokens, "rounded": requests * rounded, "longest": rounded,
            "channels": x.channels.to_numpy(dtype=float), "k_heads": k_heads, "v_heads": v_heads, "tokens": tokens,
            "drafts": tokens if phase == "verify" else np.ones(len(x))}  # fmt: skip


def load(tables: Tables, part: Part, mixer: str) -> tuple[dict[str, str], Frame] | None:
    """All versions of a mixer's table, one row per version and shape; and the path of each version."""
    import pandas

    family, backend, name = SOURCES[mixer]
    versions = tables.lanes(part.folder, family, backend, name)
    if not versions:
        return None
    paths = {v: tables.path(part.folder, family, backend, v, name) for v in versions}
    frames = [tables.read(paths[v]).assign(lane=v) for v in versions]
    d = pandas.concat(frames, ignore_index=True)
    if mixer == "mamba2":
        d["v_heads"], d["k_heads"] = d.nheads, d.n_groups
        d["channels"] = d.v_heads * d.head_dim + 2 * d.k_heads * d.d_state
        shape = ["d_state", "head_dim", "d_model"]
    else:
        d["v_heads"], d["k_heads"] = d.num_v_heads, d.num_k_heads
        d["channels"] = 2 * d.k_heads * 128 + d.v_heads * 128
        shape = []
    columns = ["kernel_source", "phase", "k_heads", "v_heads", "batch_size", "seq_len", *shape, "channels", "lane"]
    d["order"] = [version_key(v) for v in d.lane]
    d = d.sort_values("order", kind="stable").groupby(columns, as_index=False, sort=False, dropna=False).us.median()
    return paths, d


def masks(x: Frame, tokens: Any, requests: Any, phase: str) -> tuple[Any, Any, Any]:
    """Held-out geometries, held-out sizes, and the rows a fit may see."""
    geometry = hash_fraction(x.k_heads, x.v_heads) < 0.34
    if geometry.all() or not geometry.any():
        heads = sorted(set(x.v_heads))
        geometry = (x.v_heads == heads[len(heads) // 2]).to_numpy()
    if phase == "context":
        size = np.isin(tokens, [512, 1024]) | (tokens >= 16384)
    else:
        size = np.isin(requests, [32, 64]) | (requests >= 1024)
    train = ~geometry & ~size
    return geometry, size, train if train.sum() >= 6 else ~size


def fit_kernel(part: Part, mixer: str, kernel: str, phase: str, x: Frame, path: str) -> Fitted | None:
    """The law of one kernel in one phase, from the rows of one lane."""
    if len(x) < 20:
        return None
    form, a = form_of(kernel, phase), arguments(x, kernel, phase)
    us = x.us.to_numpy(dtype=float)
    geometry, size, train = masks(x, a["tokens"], a["requests"], phase)
    base = {"form": form, "kernel": kernel, "bw_Bps": part.hbm * 1e6}
    # one kernel of one lane pays more per token once a batch holds several sequences
    fixed = {"t2": 1e-10} if form == "lin" and not (mixer == "kda" and "/0.31.0/" in path) else {}
    bounds, starts = _bounds(form, part)

    def law(q: Params, rows: Any) -> Any:
        return evaluate({**base, **q}, {n: v[rows] for n, v in a.items()})

    first, final = two_stage(law, bounds, us, train, fixed=fixed, starts=starts, max_nfev=200)
    role = "conv" if "conv" in kernel else "scan"
    return report("recurrent", f"{role}/{mixer}/{PHASES[phase]}", part, base, first, final, law, us,
                  {"heads": geometry, "range": size}, HELD, path, list(fixed))  # fmt: skip


def fit_mixer(tables: Tables, part: Part, mixer: str) -> list[Fitted]:
    """Every kernel of a mixer: the one the engine prefers under the role's key, the others with their name appended."""
    from dataclasses import replace

    found = load(tables, part, mixer)
    if found is None:
        return []
    paths, d = found
    fitted: dict[str, list[Fitted]] = {}
    for (kernel, phase), x in d.groupby(["kernel_source", "phase"]):
        if kernel in HOST_BOUND:
            continue
        counts = x.lane.value_counts()
        # the densest lane of this kernel; the first among equals is the one that timed the other kernels too
        best = max(sorted(set(x.lane), key=version_key), key=lambda v: counts[v])
        rows = x[x.lane == best]
        if phase == "context" and len(rows) < 100 and kernel in ("causal_conv1d_update", "fused_recurrent_kda"):
            continue  # a decode kernel timed on a handful of short prompts
        one = fit_kernel(part, mixer, kernel, phase, rows, paths[best])
        if one is not None:
            fitted.setdefault(one.key, []).append(one)
    out = []
    for key, ones in fitted.items():
        ones.sort(key=lambda f: PREFERRED.index(f.params["kernel"]) if f.params["kernel"] in PREFERRED else 99)
        out.append(ones[0])
        out += [replace(f, key=f"{key}/{f.params['kernel']}") for f in ones[1:]]
    return out
