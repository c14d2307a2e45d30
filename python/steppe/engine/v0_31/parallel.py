"""Ranks, groups and collectives of vLLM 0.31.0."""

from __future__ import annotations

# Global rank order, outermost first; the tensor-parallel index moves fastest.
# vllm/distributed/parallel_state.py:2045-2060
RANK_ORDER = ("dp", "pp", "pcp", "tp")

# Sizes the custom all-reduce serves; any other width, or a group across nodes without multi-node NVLink, runs on NCCL.
# vllm/distributed/device_communicators/custom_all_reduce.py:121, 208-216, 228-233
CUSTOM_ALL_REDUCE_WIDTHS = (2, 4, 6, 8, 16)

# More than this many GPUs must be fully joined by NVLink.
# vllm/distributed/device_communicators/custom_all_reduce.py:249-270
CUSTOM_ALL_REDUCE_PCIE_WIDTH = 2
# One way, per GPU: a sixteen-lane PCIe 5 slot. No NVLink of a supported part is as slow.
PCIE_BANDWIDTH_GBPS = 64.0

# vllm/config/parallel.py:44-58
ALL2ALL_BACKENDS = (
    "naive",
    "pplx",
    "deepep_high_throughput",
    "deepep_low_latency",
    "deepep_v2",
    "mori_high_throughput",
    "mori_low_latency",
    "moonep",
    "nixl_ep",
    "allgather_reducescatter",
    "flashinfer_all2allv",
    "flashinfer_nvlink_two_sided",
    "flashinfer_nvlink_one_sided",
)
# vllm/config/parallel.py:202
DEFAULT_ALL2ALL = "allgather_reducescatter"
# Names still accepted and rewritten to the default. vllm/config/parallel.py:507-513
REMOVED_ALL2ALL = ("naive", "pplx")
# vllm/config/parallel.py:55
ALL2ALL_ALIASES = {"flashinfer_all2allv": "flashinfer_nvlink_two_sided"}

# Backends whose experts take a sequence-parallel input, with expert, tensor and data parallelism all on.
# vllm/config/parallel.py:718-735
SEQUENCE_PARALLEL_ALL2ALL = (
    "allgather_reducescatter",
    "deepep_high_throughput",
    "deepep_low_latency",
    "deepep_v2",
    "flashinfer_nvlink_one_sided",
    "mori_high_throughput",
    "mori_low_latency",
    "nixl_ep",
)

# Backends with a per-expert batch; with expert and data parallelism they shrink the default token budget.
# vllm/config/parallel.py:745-755
BATCHED_ALL2ALL = ("deepep_low_latency", "nixl_ep")
# vllm/config/scheduler.py:43, vllm/engine/arg_utils.py:3047-3051
BATCHED_ALL2ALL_TOKENS = 256

# Not capturable: with dp > 1 the engine turns CUDA graphs off. vllm/config/compilation.py:1237-1253
UNGRAPHED_ALL2ALL = ("deepep_high_throughput",)

# Dual-batch overlap runs on these only. vllm/config/vllm.py:2181-2194
DUAL_BATCH_ALL2ALL = ("deepep_low_latency", "deepep_high_throughput", "nixl_ep")

# Fused all-reduce + RMSNorm is on by default with tp > 1 on capability 9.0 and on the 10.x family.
# vllm/config/vllm.py:178-202, 300-305
FUSED_ALL_REDUCE_NORM_MAJORS = (9, 10)

# Decode-context collectives; unstated is the first. vllm/config/parallel.py:40, 581-594
DCP_COMM_BACKENDS = ("ag_rs", "a2a")
