"""CUDA graph modes and capture sizes of vLLM 0.31.0."""

from __future__ import annotations

# vllm/config/compilation.py:53-66
MODES = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
# Optimization level 2, the default. vllm/config/vllm.py:300-330, 442
DEFAULT_MODE = "FULL_AND_PIECEWISE"

# Largest captured token count, by device family. vllm/config/vllm.py:2453-2455
CEILING = 512
CEILING_MAJOR_10 = 1024


def capture_ceiling(max_num_seqs: int, query_len: int, max_num_batched_tokens: int, major: int) -> int:
    """Largest token count a default capture covers.

    `query_len` is 1 + speculative tokens, `major` the compute capability's first digit. The engine also rounds down to
    its 8- or 16-token stride; the ceiling is priced unrounded. Source: vllm/config/vllm.py:2449-2460, 2541-2542.
    """
    limit = CEILING_MAJOR_10 if major == 10 else CEILING
    return min(max_num_seqs * query_len * 2, limit, max_num_batched_tokens)
