"""Start-ups the engine's own logs describe fully, to the block.

Every figure is from a public log; what a log leaves out (a cache dtype, drafting) is stated in the test with the row.
"""

from __future__ import annotations

import pytest
from deployments import memory

GIB = float(1 << 30)


def logged(sized: int, gib: float, concurrency: float) -> None:
    """The logged concurrency is the memory over what one longest request is charged, to the rounding of the log."""
    assert sized / GIB == pytest.approx(gib / concurrency, rel=0.006 / concurrency + 0.006 / gib)


@pytest.mark.parametrize(
    ("model", "tp", "length", "gib", "concurrency"),
    [
        ("qwen3-14b", 1, 40960, 11.57, 1.85),
        ("qwen3-14b", 1, 32768, 6.51, 1.3),
        ("qwen3-32b", 2, 40960, 33.66, 6.73),
        ("qwen3-30b-a3b", 4, 32768, 23.74, 31.65),
        ("minimax-m2.5", 4, 196608, 23.62, 2.03),
    ],
)
def test_plain_attention(model: str, tp: int, length: int, gib: float, concurrency: float) -> None:
    logged(memory(model, parallel={"tp": tp}, max_model_len=length).sequence_startup_bytes(), gib, concurrency)


def test_delta_net_hybrid_without_prefix_caching() -> None:
    """A 27B hybrid on one part: 8.18 GiB for the longest request, an estimate of 112,896 tokens, and two pools."""
    sized = memory("qwen3.5-27b", max_model_len=131072, enable_prefix_caching=False)
    assert f"{sized.sequence_startup_bytes() / GIB:.2f}" == "8.18"
    for gib, tokens in ((8.82, 141036), (9.75, 155600)):
        assert sized.capacity_of(round(gib * GIB)).tokens == tokens
    assert sized.pool is not None
    assert sized.pool.estimated_max_model_len(round(7.04 * GIB)) == 112896


@pytest.mark.parametrize(("tp", "tokens_a_block"), [(2, 1568)])
def test_block_of_an_eight_bit_hybrid(tp: int, tokens_a_block: int) -> None:
    sized = memory("qwen3.5-27b", parallel={"tp": tp}, cache_dtype="fp8", max_model_len=131072)
    assert sized.block_size == tokens_a_block
    logged(sized.sequence_startup_bytes(), 4.99, 2.31)


@pytest.mark.parametrize(
    ("tp", "k", "length", "gib", "concurrency"),
    [(2, 3, 262144, 11.05, 2.38), (2, 3, 262144, 5.33, 1.15), (1, 8, 262144, 22.72, 2.24)],
)
def test_drafting_hybrid(tp: int, k: int, length: int, gib: float, concurrency: float) -> None:
    """With an 8-bit cache and k drafted tokens (stated in the third log, not in the first two)."""
    speculative = {"method": "mtp", "num_spec_tokens": k}
    sized = memory("qwen3.5-27b", parallel={"tp": tp}, cache_dtype="fp8", max_model_len=length, speculative=speculative)
    logged(sized.sequence_startup_bytes(), gib, concurrency)


@pytest.mark.parametrize(("gib", "concurrency"), [(5.98, 4.33), (6.01, 4.35)])
def test_moe_hybrid(gib: float, concurrency: float) -> None:
    sized = memory("qwen3.6-35b-a3b-nvfp4", hardware="rtx-pro-6000", cache_dtype="fp8", max_model_len=131072)
    logged(sized.sequence_startup_bytes(), gib, concurrency)


def test_windows_admit_two_batches_in_flight() -> None:
    """50 window layers and 10 full ones at tp 2 with an 8-bit cache: 3.949 GiB a request (logged 16 GiB, 4.05x)."""
    from deployments import graph

    from steppe.documents.graph import ModelGraph

    window = {
        "id": "w",
        "nodes": [{"op": "Attention", "kind": "swa", "n_q": 32, "n_kv": 16, "d_h": 256, "window": 1024}],
    }
    full = {"id": "f", "nodes": [{"op": "Attention", "kind": "gqa", "n_q": 32, "n_kv": 4, "d_h": 512}]}
    model: ModelGraph = graph([window, full], {"pattern": ["w"] * 5 + ["f"], "repeat": 10})
    sized = memory(model, parallel={"tp": 2}, cache_dtype="fp8", max_model_len=32768, max_num_batched_tokens=8192)
    logged(sized.sequence_startup_bytes(), 16.0, 4.05)
    assert sized.bytes_per_block == 655360


@pytest.mark.parametrize(
    ("model", "tp", "gib"),
    [
        ("llama-3.1-8b-instruct", 1, 14.99),
        ("llama-3.1-70b-instruct-fp8", 1, 67.72),
        ("llama-3.1-70b-instruct-fp8", 2, 33.88),
        ("qwen3-32b", 2, 30.59),
        ("qwen3-14b", 1, 27.52),
        ("minimax-m2.5", 4, 53.75),
    ],
)
def test_loaded_weights(model: str, tp: int, gib: float) -> None:
    assert memory(model, parallel={"tp": tp}).fixed_bytes().weights / GIB == pytest.approx(gib, rel=0.004)
