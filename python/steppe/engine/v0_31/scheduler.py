"""Batch limits, asynchronous scheduling and the runner of vLLM 0.31.0."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Defaults of the API server: tokens a step, sequences a step."""

    max_num_batched_tokens: int
    max_num_seqs: int


# vllm/engine/arg_utils.py:2855-2885. The engine tells the A100 by device name; capability 8.0 is that part.
LARGE_MEMORY_GIB = 160
MEDIUM_MEMORY_GIB = 70
LARGE = BatchLimits(16384, 1024)
MEDIUM = BatchLimits(8192, 1024)
SMALL = BatchLimits(2048, 256)
SMALL_CAPABILITY = (8, 0)

# vllm/config/cache.py:103
GPU_MEMORY_UTILIZATION = 0.92

SCHEDULING_POLICIES = ("fcfs", "priority")  # vllm/config/scheduler.py:22

# Cascade attention is off unless asked for. vllm/config/model.py:284
DISABLE_CASCADE_ATTENTION = True
