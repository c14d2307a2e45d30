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


def capture_sizes(
    ceiling: int, max_num_batched_tokens: int, max_num_seqs: int, query_len: int, major: int, *, stated: bool
) -> tuple[int, ...]:
    """Token counts graphs are captured at, ascending (vllm/config/vllm.py:2455-2596).

    1, 2, 4, multiples of 8 below 256 and of 16 from there, up to the ceiling; the token budget where it lies below;
    and, unless the ceiling was stated, the uniform decode batches: `max_num_seqs` alone at one token a request, a grid
    of request counts times `query_len` at more.
    """
    top = min(ceiling, max_num_batched_tokens)
    sizes = {size for size in (1, 2, 4) if size <= top}
    sizes.update(range(8, min(top + 1, 256), 8))
    sizes.update(range(256, top + 1, 16))
    if max_num_batched_tokens <= top:
        sizes.add(max_num_batched_tokens)
    if not stated:
        decodes = _uniform_decodes(ceiling, max_num_seqs, query_len, major)
        sizes.update(size for size in decodes if size <= max_num_batched_tokens)
    return tuple(sorted(sizes))


def _uniform_decodes(ceiling: int, max_num_seqs: int, query_len: int, major: int) -> list[int]:
    if query_len == 1:
        return [max_num_seqs] if max_num_seqs <= ceiling else []
    most = min(max_num_seqs, CEILING_MAJOR_10 if major == 10 else CEILING)
    counts = {n for n in (1, 2, 4, most) if n <= most}
    counts.update(range(8, min(most + 1, 256), 8))
    counts.update(range(256, most + 1, 16))
    return [n * query_len for n in sorted(counts) if n * query_len <= ceiling]
