"""The words a document may use, each set in one place. Cache dtypes, connectors and quantizations are the engine's own
(`steppe.engine`): a name outside those is the engine's to refuse, not the document's.

Engine words cite vLLM v0.31.0; the words it has since removed stay accepted, because documents written for earlier
releases carry them and the resolution records what runs instead.
"""

from __future__ import annotations

from typing import Literal

Op = Literal[
    "GEMM",
    "GroupedGEMM",
    "Attention",
    "RecurrentUpdate",
    "Elementwise",
    "AllReduce",
    "AllGather",
    "ReduceScatter",
    "All2All",
]
COLLECTIVES = frozenset({"AllReduce", "AllGather", "ReduceScatter", "All2All"})
EMIT_CONDITIONS = frozenset({"tensor_parallel", "expert_parallel", "tensor_parallel_unless_sp_moe"})

Dtype = Literal["bf16", "fp16", "fp8", "nvfp4", "mxfp4", "int8", "int4", "fp32"]
AttentionKind = Literal["gqa", "mla", "sparse_mla", "swa"]
RecurrentKind = Literal["mamba2", "kda", "gdn"]
CacheKind = Literal["full", "window", "chunked", "latent", "index", "compressed", "recurrent", "ring"]
Role = Literal["colocated", "prefill", "decode"]

# vllm/config/parallel.py:44-58; `pplx` and `naive` are kept for older documents.
All2AllBackend = Literal[
    "naive",
    "pplx",
    "allgather_reducescatter",
    "deepep_high_throughput",
    "deepep_low_latency",
    "deepep_v2",
    "flashinfer_all2allv",
    "flashinfer_nvlink_one_sided",
    "flashinfer_nvlink_two_sided",
    "mori_high_throughput",
    "mori_low_latency",
    "moonep",
    "nixl_ep",
]
AllReduceBackend = Literal["custom", "nccl"]
MambaCacheMode = Literal["none", "align", "all"]  # vllm/config/cache.py:62
SchedulingPolicy = Literal["fcfs", "priority"]  # vllm/config/scheduler.py:22
Runner = Literal["v1", "v2"]

# vllm/config/speculative.py:39-84.
SpeculativeMethod = Literal[
    "ngram",
    "ngram_gpu",
    "suffix",
    "eagle",
    "eagle3",
    "medusa",
    "mlp_speculator",
    "draft_model",
    "extract_hidden_states",
    "custom_class",
    "dflash",
    "dspark",
    "mtp",
    "bailing_hybrid_mtp",
    "bailing_hybrid_v3_mtp",
    "deepseek_mtp",
    "dots3_note_mtp",
    "ernie_mtp",
    "exaone4_5_mtp",
    "exaone_moe_mtp",
    "gemma4_mtp",
    "glm4_moe_lite_mtp",
    "glm4_moe_mtp",
    "glm_ocr_mtp",
    "hy_v3_mtp",
    "hy_v4_mtp",
    "inkling_mtp",
    "kimi_k3_mtp",
    "longcat_flash_mtp",
    "mimo_mtp",
    "mimo_v2_mtp",
    "minimax_m3_mtp",
    "nemotron_h_mtp",
    "pangu_ultra_moe_mtp",
    "qwen3_5_mtp",
    "qwen3_next_mtp",
    "qwen4_exp_mtp",
    "step3p5_mtp",
]

EVICTION_POLICIES = frozenset({"lru", "arc"})
OffloadSpec = Literal["CPUOffloadingSpec", "TieringOffloadingSpec"]

Units = Literal[
    "dimensionless",
    "us_per_layer",
    "us_per_request",
    "us_per_step",
    "us_per_hop",
    "bytes_per_us",
    "bytes_per_rank",
    "us_per_load",
    "us_per_transfer",
    "tokens",
    "sm_count",
    "us_per_token",
]
Method = Literal["measured", "literature", "vendor_spec", "copied", "assumed", "not_charged"]
LawMethod = Literal["measured", "literature", "assumed"]
SourceKind = Literal["discussion", "publication", "datasheet", "model", "vendor_doc", "dataset", "source_code"]
SourceRole = Literal["primary", "supporting", "upper_bound"]
