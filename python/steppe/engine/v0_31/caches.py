"""Cache dtypes, block sizes and recurrent-state modes of vLLM 0.31.0."""

from __future__ import annotations

# vllm/config/cache.py:39-58
CACHE_DTYPES = (
    "auto",
    "float16",
    "bfloat16",
    "fp8",
    "fp8_e4m3",
    "fp8_e5m2",
    "fp8_inc",
    "fp8_ds_mla",
    "nvfp4_ds_mla",
    "turboquant_k8v4",
    "turboquant_4bit_nc",
    "turboquant_k3v4_nc",
    "turboquant_3bit_nc",
    "int4_per_token_head",
    "int8_per_token_head",
    "fp8_per_token_head",
    "nvfp4",
    "nvfp4_4over6",
)
SIXTEEN_BIT = ("auto", "float16", "bfloat16")
# Gaudi's format: no CUDA backend lists it (see `attention.BACKENDS`).
GAUDI_ONLY = ("fp8_inc",)
# Records of 656 and 352 bytes that only a sparse latent cache uses.
# vllm/model_executor/layers/attention/mla_attention.py:1358-1363
DS_MLA = ("fp8_ds_mla", "nvfp4_ds_mla")
# vllm/config/vllm.py:3413-3430
PLAIN_NVFP4 = ("nvfp4", "nvfp4_4over6")
# Formats whose scales lie in the page. vllm/model_executor/layers/quantization/turboquant/config.py:128-175,
# vllm/v1/attention/backends/triton_attn.py:276-304
SCALED_SLOTS = tuple(d for d in CACHE_DTYPES if d.startswith("turboquant_") or d.endswith("_per_token_head"))

# vllm/config/cache.py:61-62
MAMBA_DTYPES = ("auto", "float32", "float16", "bfloat16")
MAMBA_MODES = ("all", "align", "none")
# Kinds whose models lack mode `all` and fall back to `align` (no `SupportsMambaPrefixCaching` among their bases).
# vllm/model_executor/models/config.py:649-658, vllm/model_executor/models/interfaces.py:1127-1165
NO_MODE_ALL = ("gdn", "kda")

# vllm/config/cache.py:71
DEFAULT_BLOCK = 16
# The V3.2 indexer takes pages of 64 tokens only. vllm/v1/attention/backends/mla/indexer.py:203-204
INDEXER_BLOCK = 64
# DeepSeek-V4's packed backends. vllm/models/deepseek_v4/sparse_mla.py:60-61
COMPRESSED_BLOCK = 256
# DeepSeek-V4.1's, by capability. vllm/models/deepseek_v41/sparse_mla.py:88-90
COMPRESSED_V41_BLOCK = 128
COMPRESSED_V41_BLOCK_MAJOR_9 = 64
# V4.1 pools one or two tokens a state, V4 four or 128. vllm/models/deepseek_v41/attention.py:294-311
V41_RATIOS = (1, 2)

# Rows of a latent prefill's context workspace: 8 full requests or 4 pages a sequence, at most this many.
# vllm/model_executor/layers/attention/mla_attention.py:2297-2322
CONTEXT_CHUNK_LIMIT = 64 * 1024


def is_quantized(cache_dtype: str) -> bool:
    """vllm/utils/torch_utils.py:78-83."""
    return cache_dtype.startswith(("fp8", "nvfp4")) or cache_dtype.endswith("per_token_head")


def context_chunk(max_model_len: int | None, max_num_seqs: int, block_size: int, alignment: int) -> int:
    """Tokens a latent prefill gathers at once; `alignment` rounds it up to whole (virtual) blocks.

    Source: vllm/model_executor/layers/attention/mla_attention.py:2297-2322. Without a stated model length the limit
    itself, which any length above 8192 reaches.
    """
    if max_model_len is None:
        rows = CONTEXT_CHUNK_LIMIT
    else:
        rows = min(max(8 * max_model_len, 4 * max_num_seqs * block_size), CONTEXT_CHUNK_LIMIT)
    return -(-rows // alignment) * alignment
