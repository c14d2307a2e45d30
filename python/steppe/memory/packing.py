"""What one token takes in a cache layout that packs its own records: head slots and bytes a slot."""

from __future__ import annotations

from dataclasses import dataclass

from steppe.errors import DeploymentError

SCALED_PER_TOKEN_HEAD = frozenset({"int4_per_token_head", "int8_per_token_head", "fp8_per_token_head"})
TURBOQUANT_BITS = {
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
}
"""Bits of a key and of a value element (vllm/model_executor/layers/quantization/turboquant/config.py:20-41)."""

DS_MLA_BYTES = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
"""Bytes a token of the packed latent records of the V3.2 family: 512 fp8 + 16 scales + 128 rope, and 256 + 64 + 32
(vllm/model_executor/layers/attention/mla_attention.py:1358-1363,
vllm/v1/attention/backends/mla/flashmla_sparse.py:75-121)."""


@dataclass(frozen=True, slots=True)
class Packed:
    """`head_slots` cells a state, each of `state_bytes` bytes."""

    head_slots: int
    state_bytes: int

    @property
    def bytes_per_token(self) -> int:
        return self.head_slots * self.state_bytes


def packed(cache_dtype: str, heads: int, head_dim: int, head_dim_v: int, width: int) -> Packed:
    """The cell of an attention cache of `heads` heads a rank.

    `width` is the bytes of an element where the layout does not pack. A layout that needs equal key and value heads
    raises DeploymentError otherwise.
    """
    if cache_dtype.startswith("nvfp4") and cache_dtype != "nvfp4_ds_mla":
        return _nvfp4(heads, head_dim, head_dim_v)
    if cache_dtype in SCALED_PER_TOKEN_HEAD:
        # Two fp32 scales, one for the key and one for the value, for every token and head
        # (vllm/v1/attention/backends/triton_attn.py:276-287).
        k, v = (head_dim // 2, head_dim_v // 2) if cache_dtype.startswith("int4") else (head_dim, head_dim_v)
        return Packed(heads, k + v + 8)
    if cache_dtype in TURBOQUANT_BITS:
        return Packed(heads, _turboquant_slot(cache_dtype, head_dim))
    return Packed(heads, (head_dim + head_dim_v) * width)


def _nvfp4(heads: int, head_dim: int, head_dim_v: int) -> Packed:
    """Key and value in slots of their own: half a byte an element and one scale byte for 16 of them
    (vllm/v1/attention/backends/flashinfer.py:401-415)."""
    if head_dim != head_dim_v:
        raise DeploymentError("cache_dtype nvfp4 needs key and value heads of one size")
    return Packed(2 * heads, head_dim // 2 + head_dim // 16)


def _turboquant_slot(cache_dtype: str, head_dim: int) -> int:
    """Key and value of one head, rounded up to an even number of bytes
    (vllm/model_executor/layers/quantization/turboquant/config.py:128-175)."""
    key_bits, value_bits = TURBOQUANT_BITS[cache_dtype]
    key = head_dim if key_bits == 8 else -(-head_dim * key_bits // 8) + 2
    value = -(-head_dim * value_bits // 8) + 4
    return key + value + (key + value) % 2


def index_key_bytes(head_dim: int, four_bit: bool = False) -> int:
    """Bytes a token of an index scorer's keys: fp8 with an fp32 scale for every 128 elements, or 4 bits with a scale
    byte for every 32 (vllm/model_executor/models/deepseek_v2.py:657-665,
    vllm/v1/attention/backends/mla/indexer.py:58-73)."""
    return head_dim // 2 + head_dim // 32 if four_bit else head_dim + head_dim // 128 * 4
