"""Attention backends of vLLM 0.31.0: what each serves, and the order the engine tries them in."""

from __future__ import annotations

from dataclasses import dataclass

_SIXTEEN = ("auto", "float16", "bfloat16")
_FP8 = ("fp8", "fp8_e4m3")


@dataclass(frozen=True, slots=True)
class Backend:
    """One attention backend: the parts, caches, blocks and layouts it accepts.

    `majors` are compute-capability majors. `blocks`: the framework's block must be a multiple of one of them. `heads`:
    accepted head sizes, empty for any. `threshold` is the longest query taken as a decode, None where prefill and
    decode rows share one launch. `spec`: a verification of 1 + k tokens counts as a decode. `dcp_threshold`: keeps its
    threshold under decode context parallelism ("always", "stripe_1" at an interleave of 1 only, "never").
    """

    name: str
    majors: tuple[int, ...]
    cache_dtypes: tuple[str, ...]
    blocks: tuple[int, ...]
    source: str
    latent: bool = False
    sparse: bool = False
    heads: tuple[int, ...] = ()
    dcp: bool = True
    pcp_dcp: bool = True
    threshold: int | None = 1
    spec: bool = True
    dcp_threshold: str = "never"


_TABLE = (
    Backend(
        "FLASH_ATTN",
        (8, 9, 10, 11, 12),
        (*_SIXTEEN, *_FP8),
        (16,),
        "vllm/v1/attention/backends/flash_attn.py:286-294, 355-363, 421-452",
        threshold=None,
    ),
    Backend(
        "FLASHINFER",
        (8, 9, 10, 11, 12),
        (*_SIXTEEN, *_FP8, "fp8_e5m2", "nvfp4", "nvfp4_4over6"),
        (16, 32, 64),
        "vllm/v1/attention/backends/flashinfer.py:417-522, 863-876",
        heads=(64, 128, 256, 512),
    ),
    Backend(
        "TRITON_ATTN",
        (7, 8, 9, 10, 11, 12),
        (*_SIXTEEN, *_FP8, "fp8_e5m2"),
        (16,),
        "vllm/v1/attention/backends/triton_attn.py:294-377",
        dcp=False,
        threshold=None,
    ),
    Backend(
        "FLASH_ATTN_MLA",
        (9,),
        _SIXTEEN,
        (16,),
        "vllm/v1/attention/backends/mla/flashattn_mla.py:43-128",
        latent=True,
        heads=(320, 512, 576),
        threshold=512,
        dcp_threshold="stripe_1",
    ),
    Backend(
        "FLASHMLA",
        (9, 10),
        (*_SIXTEEN, *_FP8),
        (64,),
        "vllm/v1/attention/backends/mla/flashmla.py:47-113",
        latent=True,
        heads=(320, 512, 576),
        threshold=128,
    ),
    Backend(
        "FLASHINFER_MLA",
        (10,),
        (*_SIXTEEN, *_FP8),
        (32, 64),
        "vllm/v1/attention/backends/mla/flashinfer_mla.py:136-257",
        latent=True,
        heads=(320, 512, 576),
        dcp_threshold="always",
    ),
    Backend(
        "CUTLASS_MLA",
        (10,),
        (*_SIXTEEN, *_FP8),
        (128,),
        "vllm/v1/attention/backends/mla/cutlass_mla.py:31-136",
        latent=True,
        heads=(320, 512, 576),
        spec=False,
    ),
    Backend(
        "TRITON_MLA",
        (7, 8, 9, 10, 11, 12),
        (*_SIXTEEN, *_FP8),
        (16,),
        "vllm/v1/attention/backends/mla/triton_mla.py:51-149",
        latent=True,
    ),
    Backend(
        "FLASH_ATTN_MLA_SPARSE",
        (9,),
        _SIXTEEN,
        (64,),
        "vllm/v1/attention/backends/mla/flashattn_mla_sparse.py:36-132",
        latent=True,
        sparse=True,
        dcp=False,
    ),
    Backend(
        "FLASHMLA_SPARSE",
        (9, 10),
        ("auto", "bfloat16", "fp8_ds_mla", "fp8", "nvfp4_ds_mla"),
        (64,),
        "vllm/v1/attention/backends/mla/flashmla_sparse.py:130-223, 745-751",
        latent=True,
        sparse=True,
        heads=(576,),
        dcp_threshold="stripe_1",
    ),
    Backend(
        "FLASHINFER_MLA_SPARSE_SM90",
        (9,),
        ("auto", "bfloat16", *_FP8),
        (64,),
        "vllm/v1/attention/backends/mla/flashinfer_mla_sparse_sm90.py:139-213",
        latent=True,
        sparse=True,
        heads=(512, 576),
        dcp=False,
    ),
    Backend(
        "FLASHINFER_MLA_SPARSE",
        (10,),
        (*_SIXTEEN, *_FP8),
        (32, 64),
        "vllm/v1/attention/backends/mla/flashinfer_mla_sparse.py:72-155, 242-269",
        latent=True,
        sparse=True,
        heads=(512, 576),
        pcp_dcp=False,
        dcp_threshold="always",
    ),
    Backend(
        "FLASHINFER_MLA_SPARSE_SM120",
        (12,),
        ("auto", "fp8", "fp8_e4m3", "fp8_ds_mla"),
        (64, 256),
        "vllm/v1/attention/backends/mla/flashinfer_mla_sparse.py:158-234",
        latent=True,
        sparse=True,
        heads=(512, 576),
    ),
)
BACKENDS = {backend.name: backend for backend in _TABLE}


def dense_order(major: int) -> tuple[str, ...]:
    """Backends tried for layers that keep keys and values, in order (vllm/platforms/cuda.py:155-179)."""
    if major == 10:
        return ("FLASHINFER", "FLASH_ATTN", "TRITON_ATTN")
    return ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN")


def latent_order(major: int) -> tuple[str, ...]:
    """Backends tried for latent layers, in order (vllm/platforms/cuda.py:98-153).

    TOKENSPEED_MLA, second on the 10.x parts, needs a package the release does not install
    (vllm/v1/attention/backends/mla/tokenspeed_mla.py:125-134) and is left out.
    """
    if major == 10:
        return ("FLASHINFER_MLA", "CUTLASS_MLA", "FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA")
    if major == 12:
        return ("TRITON_MLA",)
    return ("FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "TRITON_MLA")


def sparse_order(major: int, heads_per_rank: int, quantized_cache: bool, head_size: int) -> tuple[str, ...]:
    """Backends tried for sparse latent layers, in order (vllm/platforms/cuda.py:99-153)."""
    if major == 10:
        pair = ("FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE")
        return pair if quantized_cache or heads_per_rank <= 16 else pair[::-1]
    if major == 12:
        return ("FLASHINFER_MLA_SPARSE_SM120",)
    tail = ("FLASH_ATTN_MLA_SPARSE", "FLASHMLA_SPARSE")
    flashinfer = "FLASHINFER_MLA_SPARSE_SM90"
    return (flashinfer, *tail) if head_size == 512 else (*tail, flashinfer)


# The oldest part with a sparse latent backend is Hopper (the table's `majors`).
SPARSE_MIN_MAJOR = 9

# DeepSeek-V4's own backends, by part. vllm/models/deepseek_v4/sparse_mla.py:288-296,
# vllm/models/deepseek_v4/nvidia/flashinfer_sparse.py:120-176
COMPRESSED_BACKEND = "FLASHMLA_SPARSE_DSV4"
COMPRESSED_V41_BACKEND = "FLASHMLA_SPARSE_DSV41"

# FlashMLA-sparse under decode context parallelism (vllm/v1/attention/backends/mla/flashmla_sparse.py:409-464).
# The mixed-batch path, the only one that returns every row's LSE, serves fewer heads a rank than this (line 73).
MIXED_BATCH_HEADS = 32


def padded_heads(heads: int) -> int:
    """Heads FlashMLA's 8-bit decode kernel runs (vllm/v1/attention/backends/mla/flashmla_sparse.py:684-687)."""
    return 64 if heads <= 64 else 128


# Longest query the sparse backends take as a decode, by query heads a rank.
# vllm/v1/attention/backends/mla/flashmla_sparse.py:335-340
_SPARSE_THRESHOLD_MAJOR_10 = {8: 128, 16: 128, 32: 128, 64: 256, 128: 1024}
_SPARSE_THRESHOLD = {16: 128, 32: 128, 64: 256, 128: 256}


def sparse_threshold(name: str, major: int, heads: int) -> int:
    """Longest query taken as a decode by the sparse backend `name`, for `heads` query heads a rank.

    The FlashInfer backends use the 10.x table on every part
    (vllm/v1/attention/backends/mla/flashinfer_mla_sparse.py:259-269).
    """
    if major == 10 or name.startswith("FLASHINFER"):
        return _SPARSE_THRESHOLD_MAJOR_10.get(heads, 1024)
    return _SPARSE_THRESHOLD.get(heads, 256)


def flash_attention_version(major: int) -> int:
    """FA3 on Hopper, FA4 on the 10.x parts, FA2 elsewhere (vllm/v1/attention/backends/fa_utils.py:97-106)."""
    return {9: 3, 10: 4}.get(major, 2)


# FLASH_ATTN reads an 8-bit cache with FA3 on Hopper or FA4 on 10.x only.
# vllm/v1/attention/backends/flash_attn.py:473-491
FLASH_ATTN_FP8_MAJORS = (9, 10)
# FlashInfer reads a 4-bit cache on the 10.x parts only. vllm/v1/attention/backends/flashinfer.py:497-506
FLASHINFER_NVFP4_MAJORS = (10,)
# FlashMLA-sparse reads the 4-bit record on the 10.x parts only.
# vllm/v1/attention/backends/mla/flashmla_sparse.py:218-222
NVFP4_DS_MLA_MAJORS = (10,)
# FLASHINFER_MLA_SPARSE_SM120 takes this top-k only. vllm/v1/attention/backends/mla/flashinfer_mla_sparse.py:229-233
SM120_INDEX_TOPK = 2048
