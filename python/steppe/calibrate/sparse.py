"""Fits of attention over selected keys: DSA (top-k with an indexer), block-sparse MSA, DeepSeek-V4 CSA and HCA.

The tables time whole attention modules; one formula separates selected read, indexer and projections. Held out: head
counts
4, 32 and 48 (where they are not an end of the range), and a context range.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steppe.calibrate import laws
from steppe.calibrate.attention import report, two_stage
from steppe.calibrate.fit import Fitted, Params
from steppe.calibrate.holdout import inner_values
from steppe.calibrate.mla import present, projection_bounds, projections
from steppe.calibrate.parts import Part
from steppe.calibrate.tables import Frame, Tables, median_by

HEADS = (4, 32, 48)
HELD = "head counts 4, 32, 48, and a context range"
BOUNDS = {
    "k0": (1e-5, 1e-10, 1.0),
    "k1": (1e-6, 1e-11, 0.1),
    "kc": (1e-3, 1e-6, 0.2),
    "ts": (0.1, 1e-6, 20.0),
    "F1": (1.0, 1e-3, 40.0),
    "Fi": (20.0, 1e-3, 300.0),
    "i0": (0.01, 1e-7, 5.0),
    "i1": (1e-5, 1e-9, 0.1),
    "i2": (1e-5, 1e-10, 0.1),
}
RANK = (2e-7, 1e-12, 1e-2)  # j1, us per squared index key


@dataclass(frozen=True, slots=True)
class Module:
    """Geometry of a measured module: hidden size and keys selected. `base`: its law also stands for the family, because
    its table separates the indexer from the rest (DSA) or because it is the narrower of two (CSA, HCA)."""

    hidden: int
    topk: int
    base: bool


# (family, model of the table): what was measured
MODULES = {
    ("dsa", "DeepSeek-V3.2"): Module(7168, 2048, False),
    ("dsa", "GLM-5.2"): Module(6144, 2048, True),
    ("msa", ""): Module(6144, 2048, True),
    ("csa", "DeepSeek-V4-Flash"): Module(4096, 512, True),
    ("csa", "DeepSeek-V4-Pro"): Module(7168, 1024, False),
    ("hca", "DeepSeek-V4-Flash"): Module(4096, 512, True),
    ("hca", "DeepSeek-V4-Pro"): Module(7168, 1024, False),
}
TABLE = {
    "dsa": ("sparse_attention", "dsa"),
    "msa": ("msa", "msa"),
    "csa": ("sparse_attention", "dsv4_csa"),
    "hca": ("sparse_attention", "dsv4_hca"),
}


def module_of(family: str, model: str) -> Module | None:
    """The measured module a table's model name stands for."""
    for (f, prefix), module in MODULES.items():
        if f == family and (not prefix or model.split("/")[-1].startswith(prefix)):
            return module
    return None


def arguments(family: str, x: Frame, topk: int, *, decode: bool) -> dict[str, Any]:
    """Arguments of the sparse laws for the uniform batches of a module table."""
    batch, heads, isl, step = (x[c].to_numpy(dtype=float) for c in ("batch_size", "num_heads", "isl", "step"))
    ratio = laws.INDEX_RATIO[family]
    if decode:
        longest = step + (0 if family == "dsa" else 1)
        queries, reads, scanned = batch, batch * laws.selected(family, longest, topk), batch * longest * ratio
        ranked = np.zeros(len(x))
    else:
        longest = step + isl
        queries = batch * isl
        reads = batch * (laws.selected_sum(family, longest, topk) - laws.selected_sum(family, step, topk))
        scanned = batch * (step * isl + isl * isl / 2) * ratio
        ranked = batch * (laws.ranked_sum(longest, topk) - laws.ranked_sum(step, topk))
    with_indexer = (~x.op_name.str.contains("skip_indexer")).to_numpy(dtype=float) * (family != "hca")
    return {"requests": batch, "queries": queries, "reads": reads, "longest": longest, "heads": heads,
            "longest_read": laws.selected(family, longest, topk), "scanned": scanned,
            "longest_scan": longest * ratio if ratio else longest,
            "indexer": with_indexer, "ranked": ranked}  # fmt: skip


def evaluate(p: Any, a: dict[str, Any], dtype: Any, dtypes: list[str], *, decode: bool) -> Any:
    """A whole module: selected attention, indexer where the row has it, projections."""
    t = laws.sparse(p, a["requests"], a["reads"], a["longest_read"], a["longest"], a["heads"], decode=decode)
    t = t + a["indexer"] * laws.sparse_indexer(p, a["queries"], a["scanned"], a["longest_scan"], a["ranked"])
    return t + projections(p, dtype, dtypes, a["queries"], a["heads"])


def removed(family: str, a: dict[str, Any], *, decode: bool) -> dict[str, float]:
    """Terms the family or table does not have, held at a value that removes them."""
    fixed: dict[str, float] = {}
    if decode:
        fixed["ts"] = 1e-6
    if family != "hca":
        fixed["F1"] = 1e-3
    else:
        fixed.update(Fi=1e-3, i0=1e-7, i1=1e-9, i2=1e-10)
    if family != "hca" and a["indexer"].min() == a["indexer"].max():
        fixed.update(Fi=1e-3, i0=1e-7)  # the indexer is in every row: its constant and per-token cost sit in F and c0
    return fixed


def load(tables: Tables, part: Part, family: str, *, decode: bool) -> tuple[str, Frame] | None:
    folder, prefix = TABLE[family]
    name = f"{prefix}_{'generation' if decode else 'context'}_module_perf"
    path = tables.newest(part.folder, folder, "vllm", name)
    if path is None:
        return None
    d = tables.read(path)
    d["op_name"] = d.get("op_name", name)
    d["model"] = d.get("model", "")
    if not decode:
        d = d[d.isl > 1]  # one-token prompts take the decode kernels
    few = (d.kernel_source == "FLASHMLA_SPARSE") & (d.kv_cache_dtype == "fp8") & (d.num_heads < 32) & (not decode)
    d = d.assign(heads_class=np.where(few, "h<32", ""))  # another prefill kernel below 32 heads
    columns = ["heads_class", "op_name", "model", "kernel_source", "mla_dtype", "kv_cache_dtype", "gemm_type",
               "num_heads", "batch_size", "isl", "step"]  # fmt: skip
    return path, median_by(d, columns)


def fit_family(tables: Tables, part: Part, family: str, *, decode: bool) -> list[Fitted]:
    """Every law of one family and phase on a part. The base module's law appears under the family's own key too."""
    found = load(tables, part, family, decode=decode)
    if found is None:
        return []
    path, d = found
    groups = ["model", "kernel_source", "kv_cache_dtype", "heads_class"] if family != "msa" else [
        "kernel_source", "kv_cache_dtype"]  # fmt: skip
    out: list[Fitted] = []
    for key, x in d.groupby(groups):
        model = key[0] if family != "msa" else ""
        kernel, kv = key[1:3] if family != "msa" else key
        module = module_of(family, model)
        if len(x) < 120 or module is None:
            continue
        dtypes, dtype = present(x)
        us, a = x.us.to_numpy(dtype=float), arguments(family, x, module.topk, decode=decode)
        base = {"topk": module.topk, "hidden": module.hidden}

        def law(q: Params, rows: Any, base: Any = base, a: Any = a, dtype: Any = dtype, dtypes: Any = dtypes) -> Any:
            return evaluate({**base, **q}, {n: v[rows] for n, v in a.items()}, dtype[rows], dtypes, decode=decode)

        held = x.num_heads.isin(inner_values(x.num_heads, HEADS)).to_numpy()
        if decode:
            far = x.step.isin([1023, 1024, 1536, 2047, 2048]).to_numpy() | (x.step >= 65535).to_numpy()
        else:
            far = x.isl.isin([1536, 2048, 3072]).to_numpy() | (x.isl >= 12288).to_numpy()
        fixed = removed(family, a, decode=decode)
        name = f"{family}/{kernel}/{kv}" + (f"/{key[3]}" if family != "msa" and key[3] else "")
        # prefill selection is fitted with and without the ranking term; the plain form keeps the family's own key
        for ranked in (False, True) if family == "csa" and not decode else (False,):
            bounds = {
                **BOUNDS,
                **({"j1": RANK} if ranked else {}),
                **projection_bounds(dtypes, (60, 0.5, 0.02, 0.003), (3, 1e-4, 1e-7, 1e-8), (400, 50, 5, 2)),
            }
            first, final = two_stage(law, bounds, us, ~held & ~far, fixed=fixed, starts=({},), max_nfev=150)
            stem = f"{name}/ranked" if ranked else name
            keys = [stem] if family == "msa" else [*([stem] if module.base else []), f"{stem}/hidden{module.hidden}"]
            one = report("sparse_decode" if decode else "sparse_context", keys[0], part, base, first, final, law, us,
                         {"heads": held, "range": far}, HELD, path, list(fixed))  # fmt: skip
            out += [replace(one, key=k) for k in keys]
    return out
