"""Which fitted law prices a kernel of this deployment, and its numbers in the order the core takes them.

A kernel without a fitted law of its own falls back to a named neighbour, recorded as an assumption.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from steppe.documents import Law, Node
from steppe.resolve.coefficients import Coefficients
from steppe.resolve.precision import served_dtype
from steppe.resolve.resolved import Resolution

Params = dict[str, float]

# Bytes a weight takes with its scales: nvfp4 one byte for 16 values, mxfp4 one for 32, int4 two for 32.
STORED_BYTES = {"nvfp4": 0.5625, "mxfp4": 0.53125, "int4": 0.5625, "fp8": 1.0, "int8": 1.0, "bf16": 2.0, "fp32": 4.0}
_GEMM_ZEROS = ("q_row_us", "q_col_us", "multi_us", "align_us", "split_us", "thr")
_NEIGHBOURS = {"fp8_block": ("fp8", "bfloat16"), "fp8": ("fp8_block", "bfloat16"), "nvfp4": ("bfloat16",)}


def number(value: Any) -> float:
    """A parameter of a law as a float; laws hold numbers where the core reads them."""
    if not isinstance(value, int | float):
        raise TypeError(f"a law's parameter must be a number, not {value!r}")
    return float(value)


def gemm_key(r: Resolution, node: Node) -> str:
    """The GEMM variant a node runs: by its served weights and the arithmetic they multiply in."""
    dtype = served_dtype(r, node)
    weight_only = node.compute_dtype in ("bf16", "fp16") or dtype in ("int4", "mxfp4")
    if dtype in ("bf16", "fp16", "fp32") or weight_only:
        return "bfloat16"
    if dtype == "fp8":
        block = node.weight_block if node.weight_dtype else r.graph.globals_.weight_block
        online = r.settings.served_dtype == "fp8" and not node.weight_dtype
        return "fp8_block" if block and not online else "fp8"
    return "nvfp4" if dtype == "nvfp4" else "fp8"


class RefinedLaws:
    """Looks laws up in the sets in scope and turns them into the core's parameters."""

    def __init__(self, r: Resolution, coefficients: Coefficients) -> None:
        self.r = r
        self.c = coefficients

    def has(self, family: str) -> bool:
        """Whether any law of the family is in scope."""
        return bool(self.c.laws(family))

    def first(self, family: str, keys: Sequence[str], purpose: str) -> Law | None:
        """The law of the first key in scope; another than the first is recorded as an assumption."""
        for key in keys:
            law = self.c.law(family, key)
            if law is not None:
                if key != keys[0]:
                    self.c.assume(f"{family}:{keys[0]}", key, f"{purpose}: no fitted law on this part, priced as {key}")
                return law
        return None

    # -- GEMM --------------------------------------------------------------------------------------------------

    def gemm(self, key: str, n: float, k: float, stored_bytes: float | None = None) -> Params | None:
        """Parameters of a linear layer n x k (per rank) of variant `key`; None where no GEMM law is in scope."""
        law = self.first("gemm", (key, *_NEIGHBOURS.get(key, ())), f"{key} matrix products")
        if law is None:
            return None
        p: Mapping[str, Any] = law.params
        tiles = p["tile_list"]
        ladder = p["tiles"] == "ladder"
        out: Params = {
            "n": n,
            "k": k,
            "sms": number(p["sms"]),
            "bw": number(p["bw_Bps"]),
            "l2_B": number(p.get("l2_B", 1.0)),
            "peak_flops": number(p["peak_flops"]),
            "w_bytes": number(p["w_bytes"]) if stored_bytes is None else stored_bytes,
            "a_bytes": number(p["a_bytes"]),
            "act_gain": number(p.get("act_gain", 1.0)),
            "eff": number(p["eff"]),
            "bw_eff": number(p["bw_eff"]),
            "tile_us": number(p["tile_us"]),
            "u0_ns": number(p.get("u0_ns", 0.0)),
            "theta": number(p["theta"]),
            "thr_us": number(p.get("thr_us", 1.0)),
            "t0": number(p["t0"]),
            "chunk": number(p.get("chunk", 1)),
            "mis_from": number(p.get("mis_from", 2)),
            "ladder": float(ladder),
        }
        out |= {name: number(p.get(name, 0.0)) for name in _GEMM_ZEROS}
        for i in range(3):
            tile = tiles[i] if i < len(tiles) else (0, 0, 0) if ladder else (0, 0)
            top, tm, tn = tile if ladder else (0, *tile)
            out |= {f"m{i + 1}": number(top), f"tm{i + 1}": number(tm), f"tn{i + 1}": number(tn)}
        return out

    # -- experts -----------------------------------------------------------------------------------------------

    def experts(self, node: Node, key: str, ep: int, inner: float, hidden: float, experts: int) -> Params | None:
        """Parameters of one layer's routed experts on one rank; None where the kernel has no law here."""
        law = self.c.law("moe", key)
        if law is None:
            return None
        p: Mapping[str, Any] = law.params
        names = ("t0", "t_ramp", "c_dim", "c_loc", "c_tok", "c_route", "c_row", "c_act", "eff", "bw_eff", "tile0")
        step = number(p.get("pad_hidden", 1))  # the engine rounds hidden up for this kernel
        hidden = math.ceil(hidden / step) * step
        return {
            "experts": float(experts),
            "top_k": float(node.top_k or 1),
            "ep": float(ep),
            "hidden": hidden,
            "inner": inner,
            "matrices": 3.0 if node.gated else 2.0,
            "bw": number(p["bw_Bps"]),
            "peak_flops": number(p["peak_flops"]),
            "w_bytes": number(p["w_bytes"]),
            "pad": number(p["pad"]),
            "all_pairs": float(p["pairs"] == "all"),
            "concentration": self.r.routing_concentration,
            **{name: number(p.get(name, 0.0)) for name in names},
        }

    # -- attention ---------------------------------------------------------------------------------------------

    def cache_kind(self) -> str:
        """bfloat16 or fp8: the cache width attention laws are keyed by."""
        return "fp8" if self.r.settings.cache_dtype.startswith(("fp8", "nvfp4", "int8")) else "bfloat16"

    def attention_keys(self, node: Node) -> list[str]:
        """Keys of the kernel that runs a node, best first: its path and cache, then its neighbours on the part."""
        cache, window = self.cache_kind(), node.window or 0
        kind = "swa" if window else "full"
        wide = "/d512" if (node.d_h or 0) > 256 else ""
        other = "bfloat16" if cache == "fp8" else "fp8"
        paths = (*self._paths(wide), "trtllm", "fa3", "fi", "fa2", "triton")
        tails = dict.fromkeys((kind + wide, kind, "full"))
        keys = (f"{path}/{dtype}/{tail}" for tail in tails for dtype in (cache, other) for path in paths)
        return list(dict.fromkeys(keys))

    def _paths(self, wide: str) -> tuple[str, ...]:
        backend = self.r.settings.attention_backend
        if backend == "FLASHINFER":
            return ("trtllm",) if self.r.compute_capability[0] == 10 else ("fi",)
        if backend == "TRITON_ATTN":
            return ("triton",)
        version = self.r.settings.flash_attention_version
        if wide and version >= 3:
            return ("fa4",)
        return ("fa3",) if version >= 3 else ("fa2",)

    def attention_decode(self, node: Node, law: Law) -> Params:
        """Parameters of the decode law for a node's per-rank heads."""
        p, tp = law.params, self.r.widths.tp
        n, g = (node.n_q or 1) / tp, max(1.0, (node.n_kv or 1) / tp)
        path, window = str(p["path"]), node.window or 0
        fa2 = path == "fa2"
        names = ("F", "F1", "F2", "F3", "t0", "t1", "t2", "tb", "tq", "u", "r", "S")
        return {
            "n": n,
            "g": g,
            "d": float(node.d_h or 0),
            "e": number(p["e"]),
            "sms": number(p["sms"]),
            "bw": number(p["bw_Bps"]),
            "wide": float((n / g > 16 and path in ("trtllm", "fi")) or (fa2 and not window and n > g)),
            "swaps": float(fa2 and not window and n > g and g > 1),
            "unpacked": float(fa2 and window > 0),
            "never_splits": float(fa2 and (window > 0 or n == g)),
            "triton": float(path == "triton"),
            "window": float(window + self.window_slack(law)) if window else 0.0,
            "one_launch": float(self.r.settings.one_kernel_attention),
            **{name: number(p.get(name, 0.0)) for name in names},
        }

    def window_slack(self, law: Law) -> int:
        """Keys a window kernel reads beyond the window."""
        return int(number(law.params.get("wp", 0)))

    def attention_prefill(self, node: Node, law: Law, element_bytes: float) -> Params:
        """Parameters of the prefill law for a node's per-rank heads."""
        p, tp = law.params, self.r.widths.tp
        names = ("F", "F1", "a0", "a1", "r0", "r1", "tg", "tn", "tc0", "tc1", "rk", "v", "C")
        return {
            "n": (node.n_q or 1) / tp,
            "g": max(1.0, (node.n_kv or 1) / tp),
            "d": float(node.d_h or 0),
            "e": element_bytes,
            "bw": number(p["bw_Bps"]),
            **{name: number(p.get(name, 0.0)) for name in names},
        }

    @staticmethod
    def projections(law: Law, dtype: str) -> tuple[float, float, float, float]:
        """(F, w1, c0, c1) of a module's projections at the weights' dtype, else at 16 bits, else at any measured."""
        stored = [name[2:] for name in law.params if name.startswith("F_")]
        use = dtype if dtype in stored else "bfloat16" if "bfloat16" in stored else stored[0]
        f, w1, c0, c1 = (number(law.params[f"{name}_{use}"]) for name in ("F", "w1", "c0", "c1"))
        return f, w1, c0, c1
