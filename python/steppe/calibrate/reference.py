"""Fits the reference laws: one ramp a GEMM width, one floor and rate a kind of attention, one knee a collective.

The refined laws are what the shipped sets price with; these coarse ones exist so that every part also has a set in the
plain vocabulary (`gemm_eps_max_*`, `attention_*`, `collective_*`), to compare against and to fall back on. Forms:

    GEMM        max(2mnk / (peak eps_max m/(m+m_half)), bytes / (hbm_derate HBM))
    decode      floor + bytes read / rate
    prefill     floor + FLOPs / (peak eff(tokens) work_scale), eff the bf16 GEMM ramp
    collective  max(floor + b / transition_rate, b / peak_rate)

Run: python -m steppe.calibrate.reference --data UNPACKED_WHEEL --out COEFFICIENTS_FOLDER [PART...]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from steppe.calibrate.fit import Array, Bounds, Params, robust_fit
from steppe.calibrate.parts import KNOWN, Part, lane, load_part
from steppe.calibrate.tables import Tables

Mask = npt.NDArray[np.bool_]

HBM_DERATE = 0.8  # the engine sets' literature value; fixed so that the ramp absorbs nothing of it
SERVED = {"bf16": ("bfloat16", 2.0), "fp8": ("fp8", 1.0), "nvfp4": ("nvfp4", 0.5625)}
SCRIPT = "python -m steppe.calibrate.reference"
WIDE_HEAD = 512  # head dims of this size run on other kernels
SKIPPED_NCCL = ("2.30.7",)  # an eager all-reduce-only lane with a 27 us floor


@dataclass(frozen=True, slots=True)
class Entry:
    """One fitted coefficient and what it rests on. `held_out` is a geometric error, 1 = exact."""

    name: str
    value: float
    units: str
    data: str
    rows: int
    held_out: float

    def text(self, part: str) -> str:
        """The entry as one item of a set's `coefficients` list."""
        why = f"{SCRIPT}; {self.rows} rows; geometric error on held-out rows {self.held_out:.2f}."
        return (
            f"  - {self.name}:\n      value: {self.value:.5g}\n      units: {self.units}\n      method: measured\n"
            f"      fitted: true\n      scope: {{hardware: [{part}]}}\n"
            f'      sources: [{{kind: publication, cite: "NVIDIA aisimulate, {self.data}", role: primary}}]\n'
            f'      rationale: "{why}"\n'
        )


def geometric(law: Array, us: Array) -> float:
    """exp of the mean absolute log ratio."""
    return float(np.exp(np.mean(np.abs(np.log(law / us))))) if len(us) else float("nan")


def _fit(law: Any, bounds: Bounds, frame: Any, held: Mask) -> tuple[Params, float]:
    """Parameters over all rows, and the error on `held` rows of a fit that did not see them."""
    seen = frame[~held]
    blind = robust_fit(lambda p: law(p, seen), bounds, seen.us.to_numpy(float))
    error = geometric(law(blind, frame[held]), frame[held].us.to_numpy(float))
    return robust_fit(lambda p: law(p, frame), bounds, frame.us.to_numpy(float)), error


def gemm(part: Part, tables: Tables) -> tuple[list[Entry], Params]:
    """Ramps of every width the part serves, and the bf16 one for attention to reuse. Held out: whole k values."""
    path = tables.path(part.folder, "gemm", "vllm", lane(part.folder), "gemm_perf")
    table = tables.read(path)
    table = table[(table.n >= 512) & (table.k >= 512)]
    entries: list[Entry] = []
    bf16: Params = {}
    for suffix, (dtype, width) in SERVED.items():
        rows = table[table.gemm_dtype == dtype].groupby(["m", "n", "k"], as_index=False).us.median()
        if rows.empty:
            continue
        peak = part.peak[dtype]

        def law(p: Params, f: Any, peak: float = peak, width: float = width) -> Array:
            m, n, k = (f[c].to_numpy(float) for c in "mnk")
            work = 2 * m * n * k / (peak * p["eps"] * m / (m + p["half"]))
            us: Array = np.maximum(work, width * n * k / (HBM_DERATE * part.hbm))
            return us

        ks = sorted(rows.k.unique())
        held = rows.k.isin(ks[2::4]).to_numpy()
        found, error = _fit(law, {"eps": (0.7, 0.05, 1.0), "half": (100.0, 1.0, 2000.0)}, rows, held)
        if suffix == "bf16":
            bf16 = found
        entries += [
            Entry(f"gemm_eps_max_{suffix}", found["eps"], "dimensionless", path, len(rows), error),
            Entry(f"gemm_m_half_{suffix}", found["half"], "tokens", path, len(rows), error),
        ]
    return entries, bf16


def _attention(tables: Tables, part: Part, name: str) -> tuple[Any, str]:
    path = tables.path(part.folder, "attention", "vllm", lane(part.folder), name)
    table = tables.read(path)
    if "window_size" not in table:
        table["window_size"] = 0
    return table[table.head_dim < WIDE_HEAD].reset_index(drop=True), path


def decode(part: Part, tables: Tables) -> Iterator[Entry]:
    """Floor and rate of full and windowed reads. Held out: contexts 1024, 2048 and from 65536 up."""
    table, path = _attention(tables, part, "generation_attention_perf")
    table["ctx"] = table.step + (0 if part.folder == "a100_sxm" else 1)

    def law(p: Params, f: Any) -> Array:
        ctx, window = f.ctx.to_numpy(float), f.window_size.to_numpy(float)
        read = np.where(window > 0, np.minimum(ctx, window), ctx)
        width = np.where(f.kv_cache_dtype == "fp8", 1.0, 2.0)
        size = f.batch_size.to_numpy(float) * f.num_key_value_heads.to_numpy(float) * f.head_dim.to_numpy(float)
        result: Array = p["floor"] + size * read * 2 * width / p["rate"]
        return result

    for suffix, rows in (("", table[table.window_size == 0]), ("_swa", table[table.window_size > 0])):
        if rows.empty:
            continue
        held = (rows.ctx.between(1024, 2048) | (rows.ctx >= 65536)).to_numpy()
        start = {"floor": (8.0, 1.0, 200.0), "rate": (0.5 * part.hbm, 0.01 * part.hbm, part.hbm)}
        found, error = _fit(law, start, rows, held)
        yield Entry(f"attention_decode_floor{suffix}", found["floor"], "us_per_transfer", path, len(rows), error)
        yield Entry(f"attention_decode_rate{suffix}", found["rate"], "bytes_per_us", path, len(rows), error)


def prefill(part: Part, tables: Tables, ramp: Params) -> Iterator[Entry]:
    """Floor and work scale over the bf16 token ramp. Held out: lengths 1536-3072 and from 10240 up."""
    table, path = _attention(tables, part, "context_attention_perf")
    rows = table[~table.kernel_source.str.contains("decode")]
    held = (rows.isl.between(1536, 3072) | (rows.isl >= 10240)).to_numpy()

    def law(p: Params, f: Any) -> Array:
        q, window = f.isl.to_numpy(float), f.window_size.to_numpy(float)
        pairs = np.where((window > 0) & (q > window), window**2 / 2 + (q - window) * window, q**2 / 2)
        tokens = f.batch_size.to_numpy(float) * q
        flops = 4 * f.num_heads.to_numpy(float) * f.head_dim.to_numpy(float) * f.batch_size.to_numpy(float) * pairs
        eff = ramp["eps"] * tokens / (tokens + ramp["half"])
        result: Array = p["floor"] + flops / (part.peak["bfloat16"] * eff * p["scale"])
        return result

    found, error = _fit(law, {"floor": (12.0, 1.0, 500.0), "scale": (0.5, 0.01, 3.0)}, rows, held)
    yield Entry("attention_prefill_floor", found["floor"], "us_per_transfer", path, len(rows), error)
    yield Entry("attention_prefill_work_scale", found["scale"], "dimensionless", path, len(rows), error)


def _curves(part: Part, tables: Tables) -> Iterator[tuple[str, int, Any, str]]:
    """(operation, ranks, rows with `bytes` and `us`, path): NCCL, and for all-reduce the engine's own dispatch."""
    own = tables.newest(part.folder, "comm", "vllm", "custom_allreduce_perf")
    covered: set[int] = set()
    if own:
        table = tables.read(own)
        table = table[table.backend.str.contains("graph")]
        for ranks, rows in table.groupby("num_gpus"):
            covered.add(int(ranks))
            yield "all_reduce", int(ranks), rows, own
    paths = [tables.newest(part.folder, "comm", "nccl", "nccl_perf", SKIPPED_NCCL)]
    if part.folder == "gb200":  # only this older lane measures 8 and 16 ranks over the rack
        paths.append(tables.path("gb200", "comm", "nccl", "2.23", "nccl_perf"))
    done: set[tuple[str, int]] = set()
    for path in filter(None, paths):
        table = tables.read(path)
        for (op, ranks), rows in table[table.nccl_dtype == "half"].groupby(["op_name", "num_gpus"]):
            if (op, ranks) in done or (op == "all_reduce" and ranks in covered):
                continue
            done.add((op, ranks))
            yield str(op), int(ranks), rows, path


def collectives(part: Part, tables: Tables) -> Iterator[Entry]:
    """Floor, transition and peak rate by operation and width. Held out: every third size."""
    tag = part.name.replace("-", "_")

    def law(p: Params, f: Any) -> Array:
        b = f.bytes.to_numpy(float)
        us: Array = np.maximum(p["floor"] + b / p["transition"], b / p["peak"])
        return us

    for op, ranks, rows, path in _curves(part, tables):
        curve = rows.groupby("message_size", as_index=False).us.median()
        curve["bytes"] = curve.message_size * 2  # sizes count 16-bit elements
        top = float(curve.bytes.max() / curve.us.iloc[-1])
        start = {
            "floor": (float(curve.us.min()), 0.5, 1e4),
            "transition": (0.5 * top, 1.0, 1e7),
            "peak": (top, 1.0, 1e7),
        }
        found, error = _fit(law, start, curve, np.arange(len(curve)) % 3 == 1)
        base = f"{op}_fp16_{ranks}rank_{tag}"
        for key, units in (("floor", "us_per_transfer"), ("peak", "bytes_per_us"), ("transition", "bytes_per_us")):
            name = "floor" if key == "floor" else f"{key}_rate"
            yield Entry(f"collective_{name}_{base}", found[key], units, path, len(curve), error)


def reference_set(part: Part, tables: Tables) -> str:
    """The part's set as the text of its file."""
    entries, ramp = gemm(part, tables)
    entries += [*decode(part, tables), *prefill(part, tables, ramp), *collectives(part, tables)]
    head = (
        f"# Reference laws of {part.name}, fitted to NVIDIA aisimulate's measured tables (Apache-2.0).\n"
        f"# Written by {SCRIPT}; do not edit.\n"
        f"kind: CoefficientSet\nname: {part.name}-reference\ncoefficients:\n"
    )
    return head + "".join(entry.text(part.name) for entry in entries)


def main() -> None:
    """Command line: fit the named parts, or all, and write `<part>-reference.yaml` into --out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="an unpacked aisimulate wheel")
    parser.add_argument("--out", type=Path, required=True, help="folder the sets are written to")
    parser.add_argument("part", nargs="*", help=f"default: {', '.join(KNOWN)}")
    options = parser.parse_args()
    tables = Tables(options.data)
    for name in options.part or KNOWN:
        text = reference_set(load_part(options.data, name), tables)
        (options.out / f"{name}-reference.yaml").write_text(text, encoding="utf-8")
        print(name, text.count("value:"), "entries")


if __name__ == "__main__":
    main()
