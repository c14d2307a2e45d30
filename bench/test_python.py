"""Python's side of pricing, with pytest-benchmark: `pytest bench/test_python.py --benchmark-only`."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from inputs import SHIPPED

import steppe


@pytest.fixture(scope="module", params=list(SHIPPED))
def kernel(request: pytest.FixtureRequest) -> steppe.Kernel:
    """Shipped sets."""
    return steppe.Kernel.build(**SHIPPED[request.param])


@pytest.mark.parametrize("size", [1, 64, 256])
def test_step_time(benchmark: Any, kernel: steppe.Kernel, size: int) -> None:
    batch = steppe.Batch([1] * size, [4096] * size)
    benchmark(kernel.step_time, batch)


@pytest.mark.parametrize("size", [64, 256])
def test_new_batch(benchmark: Any, size: int) -> None:
    scheduled, computed = np.ones(size, np.int32), np.full(size, 4096, np.int32)
    benchmark(steppe.Batch, scheduled, computed)


def test_step_times_100k_batches_of_64(benchmark: Any, kernel: steppe.Kernel) -> None:
    offsets = np.arange(100_001, dtype=np.int64) * 64
    scheduled = np.ones(6_400_000, np.int32)
    computed = np.random.default_rng(0).integers(100, 8000, 6_400_000).astype(np.int32)
    out = np.zeros(100_000, steppe.ESTIMATE_DTYPE)
    benchmark(lambda: kernel.step_times(offsets, scheduled, computed, out=out))


def test_running_batch_1000_steps_of_256(benchmark: Any, kernel: steppe.Kernel) -> None:
    batch = kernel.running_batch()
    for request in range(256):
        batch.add(request, 13 * request)
    benchmark.pedantic(lambda: batch.run_total(1000), rounds=40, warmup_rounds=1)


@pytest.mark.parametrize("name", list(SHIPPED))
def test_construction(benchmark: Any, name: str) -> None:
    steppe.Kernel.build(**SHIPPED[name])  # the catalog is warm
    benchmark(lambda: steppe.Kernel.build(**SHIPPED[name]))


def test_bytes_back_to_a_kernel(benchmark: Any, kernel: steppe.Kernel) -> None:
    data = kernel.to_bytes()
    benchmark(steppe.Kernel.from_bytes, data)


IMPORT = "import time; t = time.perf_counter(); import steppe; print((time.perf_counter() - t) * 1e3)"
# The kernel's own figure: getrusage also counts what the process was before it became this program.
PEAK = """
import steppe
steppe.Kernel.build(model="deepseek-v3", hardware="b200", tp=8).step_time(steppe.Batch([1], [100]))
print(next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def alone(program: str, runs: int = 7) -> float:
    """The least number a program prints, each run in a process of its own."""
    command = [sys.executable, "-c", program]
    return min(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(runs))


def test_import_ms(benchmark: Any) -> None:
    benchmark.extra_info["ms"] = alone(IMPORT)
    benchmark.pedantic(lambda: None, rounds=1)


def test_peak_memory_mib(benchmark: Any) -> None:
    benchmark.extra_info["mib"] = alone(PEAK, runs=3)
    benchmark.pedantic(lambda: None, rounds=1)
