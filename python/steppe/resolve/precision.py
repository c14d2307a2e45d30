"""Served precisions: the width of a node's weights, the peak of its arithmetic, the width of the cache."""

from __future__ import annotations

from steppe.documents import Chip, Node
from steppe.errors import DeploymentError
from steppe.resolve.resolved import Resolution

WEIGHT_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "nvfp4": 0.5, "mxfp4": 0.5, "int4": 0.5, "int8": 1.0, "fp32": 4.0}


def served_dtype(r: Resolution, node: Node | None = None) -> str:
    """The weight dtype `node` is served at: its own, else the stated quantization's, else the graph's."""
    if node is not None and node.weight_dtype:
        return node.weight_dtype
    return r.settings.served_dtype or r.graph.globals_.weight_dtype


def peak_flops(chip: Chip, dtype: str) -> tuple[float, str]:
    """Peak in FLOP/s of `dtype`'s arithmetic on the part, and the coefficient suffix that goes with it.

    A dtype the part has no units for runs at the next wider one; int4 weights multiply at 16 bits (W4A16).
    """
    tera = 1e12
    if dtype in ("nvfp4", "mxfp4") and chip.tflops_nvfp4:
        return chip.tflops_nvfp4 * tera, "nvfp4"
    if dtype == "int8" and chip.tops_int8:
        return chip.tops_int8 * tera, "fp8"
    if dtype in ("fp8", "int8", "nvfp4", "mxfp4") and chip.tflops_fp8:
        return chip.tflops_fp8 * tera, "fp8"
    if dtype == "int8":
        raise DeploymentError(
            "weight_dtype int8: this part states neither an FP8 nor an INT8 peak; add TOpsINT8 to its chip document"
        )
    return chip.tflops_peak * tera, "bf16"


def cache_width(cache_dtype: str) -> float:
    """Bytes of one cached element at 16, 8 or 4 bits."""
    if cache_dtype.startswith("nvfp4"):
        return 0.5625  # 4-bit values and one FP8 scale for 16 of them
    return 1.0 if cache_dtype.startswith(("fp8", "int8")) else 2.0
