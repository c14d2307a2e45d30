"""Which attention backend serves the target's layers, and what it makes of the cache dtype."""

from __future__ import annotations

from dataclasses import dataclass

from steppe.documents import Node
from steppe.engine.v0_31 import attention as facts
from steppe.engine.v0_31 import caches, speculation
from steppe.resolve.case import Case
from steppe.resolve.rules import refuse


@dataclass(frozen=True, slots=True)
class Chosen:
    """The backends chosen, the cache dtype they run with, and the longest query they take as a decode."""

    backend: str
    sparse: str
    cache_dtype: str
    decode_threshold: int
    one_kernel: bool


def check_heads(case: Case) -> None:
    """Refuse attention heads that do not divide over tp (a shared key-value head is copied, not divided)."""
    tp = case.widths.tp
    for node in case.shape.attentions:
        queries, keys = node.n_q or 1, node.n_kv or 1
        if queries % tp:
            refuse("heads_tp", heads=queries, what="query", tp=tp)
        if node.kind in ("gqa", "swa") and max(keys, tp) % min(keys, tp):
            refuse("heads_tp", heads=keys, what="key-value", tp=tp)


def choose(case: Case, cache_dtype: str, interleave: int, dcp_comm: str) -> Chosen:
    """Backends of the target for a cache dtype, in the engine's order of preference.

    Records the choice, the record a sparse backend repacks the cache into, and refuses what none of them takes.
    """
    sparse, dtype = "", cache_dtype
    if case.shape.indexed or case.shape.compressed:
        sparse, dtype = sparse_mla_backend(case, cache_dtype, dcp_comm)
    backend = sparse or _dense_backend(case, dtype)
    threshold = _decode_threshold(case, backend, interleave)
    _note_stripes(case, backend, interleave)
    return Chosen(backend, sparse, dtype, threshold, _one_kernel(case, backend))


def sparse_mla_backend(case: Case, cache_dtype: str, dcp_comm: str) -> tuple[str, str]:
    """Backend of the sparse latent layers and the cache dtype it keeps.

    COVERAGE LIMIT: the engine's choice also reads things the graph and the documents do not state. A checkpoint may
    carry a KV quantization that turns an `auto` cache into fp8 (vllm/utils/torch_utils.py:448-521); here `auto` is
    16-bit. FlashInfer's Hopper backend needs FlashInfer 0.6.18 (flashinfer_mla_sparse_sm90.py:192-197); here it is
    there. Its 10.x backend needs a qk_nope_head_dim of 128 or 192 (flashinfer_mla_sparse.py:126-152); here every model
    has one. DeepSeek-V4's own backends are named by the pooling alone. No part with compute capability 12 has been
    measured; its one backend is chosen all the same. What is charged follows the backend named here.
    """
    if case.major < facts.SPARSE_MIN_MAJOR:
        refuse("sparse_part", capability=case.capability_text)
    if not case.shape.indexed:
        v41 = case.shape.compressed_v41
        return (facts.COMPRESSED_V41_BACKEND if v41 else facts.COMPRESSED_BACKEND), cache_dtype
    node = case.shape.indexed[0]
    heads = (node.n_q or 1) // case.widths.tp
    order = facts.sparse_order(case.major, heads, caches.is_quantized(cache_dtype), node.d_h or 0)
    name = _first(case, node, cache_dtype, order, "sparse_backend")
    if name == "FLASHINFER_MLA_SPARSE_SM90":
        case.record.assume("sparse_mla_backend", name)
    kept = _kept_cache(name, cache_dtype)
    if kept != cache_dtype:
        case.record.override("cache_dtype", cache_dtype, kept, backend=name)
    if name == "FLASHMLA_SPARSE" and case.widths.dcp > 1:
        _check_flashmla_dcp(case, kept, heads, dcp_comm)
    return name, kept


def _kept_cache(name: str, cache_dtype: str) -> str:
    """The record a sparse backend keeps (vllm/model_executor/layers/attention/mla_attention.py:358-375)."""
    if name == "FLASHMLA_SPARSE" and caches.is_quantized(cache_dtype) and cache_dtype != "nvfp4_ds_mla":
        return "fp8_ds_mla"
    if name == "FLASHINFER_MLA_SPARSE_SM120" and cache_dtype in ("auto", "fp8", "fp8_e4m3"):
        return "fp8_ds_mla"
    return cache_dtype


def _check_flashmla_dcp(case: Case, cache_dtype: str, heads: int, dcp_comm: str) -> None:
    """What FlashMLA-sparse asks of decode context parallelism (flashmla_sparse.py:409-464, 745-751)."""
    tp, pcp, dcp = case.widths.tp, case.widths.pcp, case.widths.dcp
    if dcp_comm != "ag_rs":
        refuse("flashmla_dcp_comm")
    if not caches.is_quantized(cache_dtype) or (pcp > 1 and cache_dtype != "fp8_ds_mla"):
        refuse("flashmla_dcp_cache", dcp=dcp, dtype=cache_dtype)
    if pcp == 1 and heads >= facts.MIXED_BATCH_HEADS:
        refuse("flashmla_dcp_heads", dcp=dcp, limit=facts.MIXED_BATCH_HEADS, heads=heads)
    gathered = heads * dcp if pcp == 1 else heads * tp if dcp > pcp else heads
    if facts.padded_heads(heads) != facts.padded_heads(gathered):
        refuse(
            "flashmla_dcp_padding",
            heads=heads,
            padded=facts.padded_heads(heads),
            gathered=gathered,
            gathered_padded=facts.padded_heads(gathered),
        )


def _dense_backend(case: Case, cache_dtype: str) -> str:
    """Backend of a model without sparse latent layers; "" where it has no attention at all."""
    if not case.shape.attentions:
        return ""
    latent = case.shape.has_latent
    node = next(n for n in case.shape.attentions if (n.kind in ("mla", "sparse_mla")) == latent)
    order = facts.latent_order(case.major) if latent else facts.dense_order(case.major)
    return _first(case, node, cache_dtype, order, "attention_backend")


def _first(case: Case, node: Node, cache_dtype: str, order: tuple[str, ...], code: str) -> str:
    """The stated backend if it serves the layer, else the first of `order` that does."""
    stated = case.engine.attention_backend
    if stated:
        reason = "unknown to this release" if stated not in facts.BACKENDS else ""
        reason = reason or _objection(case, facts.BACKENDS[stated], node, cache_dtype)
        if reason:
            refuse("attention_backend_stated", name=stated, reason=reason)
        return stated
    reasons = []
    for name in order:
        reason = _objection(case, facts.BACKENDS[name], node, cache_dtype)
        if not reason:
            case.record.assume("attention_backend", name, capability=case.capability_text)
            return name
        reasons.append(f"{name}: {reason}")
    refuse(code, dtype=cache_dtype, head=node.d_h, reasons="; ".join(reasons))


def _objection(case: Case, backend: facts.Backend, node: Node, cache_dtype: str) -> str:
    """Why `backend` does not serve a layer; "" where it does (vllm/v1/attention/backend.py:278-368)."""
    widths, major, block = case.widths, case.major, case.engine.block_size
    latent, sparse = node.kind in ("mla", "sparse_mla"), node.kind == "sparse_mla"
    if (backend.latent, backend.sparse) != (latent, sparse):
        return "another kind of attention"
    if major not in backend.majors:
        return f"not on compute capability {case.capability_text}"
    if cache_dtype not in backend.cache_dtypes or not _reads(backend.name, major, cache_dtype):
        return f"no {cache_dtype} cache"
    if backend.heads and node.d_h not in backend.heads:
        return f"no head size {node.d_h}"
    if block is not None and all(block % size for size in backend.blocks):
        return f"no block of {block}"
    if widths.dcp > 1 and not backend.dcp:
        return "no dcp"
    if widths.dcp > 1 and widths.pcp > 1 and not backend.pcp_dcp:
        return "no pcp with dcp"
    if backend.name == "FLASHINFER_MLA_SPARSE_SM120" and node.index_topk != facts.SM120_INDEX_TOPK:
        return f"no top-{node.index_topk}"
    return ""


def _reads(name: str, major: int, cache_dtype: str) -> bool:
    """Cache dtypes a backend lists but reads on some parts only."""
    if name == "FLASH_ATTN" and caches.is_quantized(cache_dtype):
        return major in facts.FLASH_ATTN_FP8_MAJORS
    if name == "FLASHINFER" and cache_dtype.startswith("nvfp4"):
        return major in facts.FLASHINFER_NVFP4_MAJORS
    if cache_dtype == "nvfp4_ds_mla":
        return major in facts.NVFP4_DS_MLA_MAJORS
    return True


def _decode_threshold(case: Case, name: str, interleave: int) -> int:
    """Longest query the backend takes as a decode; backends that do not split: the uniform decode length.

    Source: vllm/v1/attention/backend.py:579-596, 666-691.
    """
    backend = facts.BACKENDS.get(name)
    if backend is None or backend.threshold is None:
        return case.query_len
    own = backend.threshold
    if backend.sparse:
        own = facts.sparse_threshold(name, case.major, case.shape.query_heads // case.widths.tp)
    keeps = backend.dcp_threshold == "always" or (backend.dcp_threshold == "stripe_1" and interleave == 1)
    if case.widths.dcp > 1 and not keeps:
        return 1
    return max(own, _verified(case)) if backend.spec else own


def _verified(case: Case) -> int:
    """Longest verification query: the older runner appends a mask slot for every token drafted in parallel."""
    spec = case.engine.speculative
    masks = spec and spec.parallel_drafting and spec.method not in speculation.PARALLEL_BLOCK_METHODS
    return case.query_len + (case.spec_tokens if masks else 0)


def _note_stripes(case: Case, backend: str, interleave: int) -> None:
    """Record stripes the release would decline."""
    if case.widths.dcp == 1 or interleave == 1:
        return
    if backend == "FLASHINFER_MLA":
        case.record.assume("flashinfer_mla_stripe", interleave)
    if case.spec_method and backend != "FLASHMLA_SPARSE":
        case.record.assume("speculative_stripe", interleave)


def _one_kernel(case: Case, backend: str) -> bool:
    """Whether prefill and decode rows share one launch.

    FlashAttention takes both in one call (vllm/v1/attention/backends/flash_attn.py:1326-1478); with decode context
    parallelism it runs the cached and the new part apart.
    """
    return backend == "FLASH_ATTN" and case.widths.dcp == 1
