"""A miniature measurement package: a handful of tables generated from known parameters."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from steppe.calibrate import gemm, laws
from steppe.calibrate.attention import decode_base
from steppe.calibrate.parts import SYSTEMS, Part, load_part

DESCRIPTOR = """\
gpu:
  mem_bw: 3350000000000
  bfloat16_tc_flops: 989000000000000
  fp8_tc_flops: 1978000000000000
"""

GEMM_TRUTH = {"t0": 2.6, "eff": 0.88, "bw_eff": 0.87, "tile_us": 0.42, "u0_ns": 0.2, "thr": 0.06, "thr_us": 1900.0,
              "split_us": 3.3}  # fmt: skip
DECODE_TRUTH = {"F": 11.4, "F1": 2.75, "F2": 0.0, "F3": 0.0, "t0": 0.0133, "t1": 8.7e-5, "t2": 1.3e-6, "tb": 0.0088,
                "tq": 0.0, "u": 0.87, "r": 5e4, "S": 28.0, "C": 3.9e7}  # fmt: skip
CURVE_TRUTH = {"a1": 12.0, "R1": 4e4, "a2": 40.0, "R2": 2.9e5}


def gemm_frame(base: dict[str, Any]) -> Any:
    """Times of a grid of shapes under the known GEMM law."""
    grid = itertools.product([1, 8, 64, 128, 512, 2048, 8192], [512, 1536, 4096, 14336], [512, 1024, 2048, 4096, 8192])
    m, n, k = (np.array(v, float) for v in zip(*grid, strict=True))
    us = laws.gemm({**base, **GEMM_TRUTH}, m, n, k, warm=True)
    return pandas.DataFrame({"gemm_dtype": "bfloat16", "m": m, "n": n, "k": k, "latency": us / 1e3,
                             "kernel_source": "linear"})  # fmt: skip


def decode_frame(part: Part) -> Any:
    """Times of uniform decode batches under the known attention law."""
    heads = [
        (32, 8, 128),
        (16, 4, 128),
        (8, 8, 128),
        (64, 8, 64),
        (28, 4, 128),
        (40, 8, 128),
        (16, 2, 256),
        (12, 4, 64),
    ]
    rows = itertools.product(heads, [1, 4, 16, 64, 256], [15, 255, 1023, 4095, 16383, 65535])
    table = pandas.DataFrame(
        [(n, g, d, b, s) for (n, g, d), b, s in rows],
        columns=["num_heads", "num_key_value_heads", "head_dim", "batch_size", "step"],
    )
    n, g, d, b = (table[c].to_numpy(float) for c in ("num_heads", "num_key_value_heads", "head_dim", "batch_size"))
    context = table.step.to_numpy(float) + 1
    law = {**decode_base(part, "fa3", "bfloat16", "fa3"), **DECODE_TRUTH}
    us = laws.attention_decode(law, b, b * context, context, n, g, d, warm=True)
    return table.assign(kernel_source="vllm_flash_attn_fa3", kv_cache_dtype="bfloat16", window_size=0, latency=us / 1e3)


def nccl_frame() -> Any:
    """Times of one collective under the known two-protocol law."""
    size = 2.0 ** np.arange(7, 29)
    us = laws.collective(CURVE_TRUTH, 2 * size)
    return pandas.DataFrame({"nccl_dtype": "half", "op_name": "all_gather", "num_gpus": 8, "message_size": size,
                             "latency": us / 1e3})  # fmt: skip


def put(root: Path, where: str, frame: Any) -> None:
    path = root / SYSTEMS / "data" / where
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(path)


def build(root: Path) -> Path:
    """An unpacked measurement wheel for one part, whose serving points cannot be opened."""
    systems = root / SYSTEMS
    systems.mkdir(parents=True)
    (systems / "h100_sxm.yaml").write_text(DESCRIPTOR)
    (systems / "silicon_sample.csv").mkdir()  # a folder: whoever opens it fails
    part = load_part(root, "h100")
    base, _ = gemm.structure(part, "bfloat16")
    put(root, "h100_sxm/gemm/vllm/0.25.0/gemm_perf.parquet", gemm_frame(base))
    put(root, "h100_sxm/attention/vllm/0.25.0/generation_attention_perf.parquet", decode_frame(part))
    put(root, "h100_sxm/comm/nccl/2.29.2/nccl_perf.parquet", nccl_frame())
    points = pandas.DataFrame({"backend": "vllm_graph", "num_gpus": 2, "message_size": [128, 4096, 1048576],
                               "latency": [0.003, 0.004, 0.02]})  # fmt: skip
    put(root, "h100_sxm/comm/vllm/0.31.0/custom_allreduce_perf.parquet", points)
    return root
