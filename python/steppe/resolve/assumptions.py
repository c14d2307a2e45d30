"""Every setting a resolution fills in, every caveat it records, and every stated setting it overrides.

Texts in braces are filled in with the deployment's own numbers when a row applies.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Assumed:
    """One setting filled in, or one caveat recorded, when the documents leave it open."""

    name: str
    when: str
    reason: str
    source: str


@dataclass(frozen=True, slots=True)
class Overridden:
    """One stated setting the engine would not run as stated."""

    field: str
    when: str
    reason: str
    source: str


_PCP = "vllm/v1/worker/gpu/pcp_manager.py"

ASSUMPTIONS: tuple[Assumed, ...] = (
    Assumed(
        "engine_version",
        "the scenario states another release",
        "the rules priced are those of vLLM {rules}; the scenario states {stated}",
        "vLLM v0.31.0",
    ),
    Assumed(
        "compute_capability",
        "the chip states none",
        "taken from the rates the chip states ({why})",
        "the chip document",
    ),
    Assumed(
        "block_size",
        "engine.block_size unstated",
        "{why}",
        "vllm/config/cache.py:71, vllm/v1/attention/backends/mla/indexer.py:203-204",
    ),
    Assumed(
        "cache_dtype",
        "engine.cache_dtype is unstated or auto and the checkpoint stores scales for its cache",
        "what the checkpoint's quantization asks for",
        "vllm/utils/torch_utils.py:448-521, vllm/model_executor/layers/attention/attention.py:281-297",
    ),
    Assumed(
        "max_model_len",
        "engine.max_model_len unstated and the graph states max_position_embeddings",
        "the checkpoint's own length, rotary scaling included",
        "vllm/config/model.py:2471-2591",
    ),
    Assumed(
        "max_num_batched_tokens",
        "engine.max_num_batched_tokens unstated",
        "the API server's default on {memory:g} GiB, compute capability {capability}{note}",
        "vllm/engine/arg_utils.py:2858-2885",
    ),
    Assumed(
        "max_num_seqs",
        "engine.max_num_seqs unstated",
        "the API server's default on {memory:g} GiB, compute capability {capability}",
        "vllm/engine/arg_utils.py:2858-2885",
    ),
    Assumed(
        "cudagraph_mode",
        "engine.cudagraph_mode unstated",
        "the default at the default optimization level",
        "vllm/config/vllm.py:300-316, 442",
    ),
    Assumed(
        "max_cudagraph_capture_size",
        "engine.max_cudagraph_capture_size unstated and graphs on",
        "min({seqs} sequences x {query} x 2, {limit}) tokens, at most max_num_batched_tokens",
        "vllm/config/vllm.py:2449-2460, 2541-2542",
    ),
    Assumed(
        "async_scheduling",
        "engine.async_scheduling unstated",
        "{why}",
        "vllm/config/vllm.py:1576-1635",
    ),
    Assumed(
        "enable_prefix_caching",
        "engine.enable_prefix_caching unstated",
        "on for generative models",
        "vllm/engine/arg_utils.py:2953-2960, vllm/config/model.py:2178-2225",
    ),
    Assumed(
        "gpu_memory_utilization",
        "engine.gpu_memory_utilization unstated",
        "the engine's default",
        "vllm/config/cache.py:103",
    ),
    Assumed(
        "all2all_backend",
        "the expert group is wider than one and engine.all2all_backend is unstated, an alias or a removed name",
        "{why}",
        "vllm/config/parallel.py:55, 202, 507-513",
    ),
    Assumed(
        "mamba_cache_mode",
        "recurrent layers and engine.mamba_cache_mode unstated",
        "prefix caching is {caching}",
        "vllm/model_executor/models/config.py:640-677",
    ),
    Assumed(
        "dcp_comm_backend",
        "dcp > 1 and engine.dcp_comm_backend unstated",
        "the default of all models but GLM-5, which asks for a2a and a replicated query projection",
        "vllm/config/parallel.py:581-594, vllm/model_executor/models/config.py:43-50",
    ),
    Assumed(
        "mla_context_chunk",
        "dcp > 1, latent layers and no max_model_len stated by engine or graph",
        "the limit of the context workspace, which any model length above 8192 reaches",
        "vllm/model_executor/layers/attention/mla_attention.py:2297-2322",
    ),
    Assumed(
        "sparse_mla_backend",
        "FlashInfer's Hopper backend is chosen",
        "it needs FlashInfer 0.6.18 or later; an older one has no backend for this deployment",
        "vllm/v1/attention/backends/mla/flashinfer_mla_sparse_sm90.py:192-197",
    ),
    Assumed(
        "attention_backend",
        "engine.attention_backend unstated",
        "first of the engine's order for compute capability {capability} that serves the model",
        "vllm/platforms/cuda.py:83-179",
    ),
    Assumed(
        "fuse_allreduce_rms",
        "tp > 1 and engine.fuse_allreduce_rms unstated",
        "compute capability {capability}, FlashInfer installed",
        "vllm/config/vllm.py:178-202, 305",
    ),
    Assumed(
        "routing_concentration",
        "experts and no workload.routing_concentration stated",
        "between uniform routing (0) and the measured power law (1)",
        "the scenario document",
    ),
    # Caveats: priced as stated, although the release would decline or change it. Each names what the release does.
    Assumed(
        "pcp_sparse_graphs",
        "pcp > 1 on sparse latent attention with dcp 1 and CUDA graphs on",
        "priced as stated; the release starts this only with cudagraph_mode NONE",
        f"{_PCP}:170-177",
    ),
    Assumed(
        "deepep_high_throughput_graphs",
        "deepep_high_throughput with dp > 1 and CUDA graphs on",
        "priced as stated; the release turns CUDA graphs off",
        "vllm/config/compilation.py:1237-1253",
    ),
    Assumed(
        "pcie_all_reduce",
        "tp > 2 on links no faster than PCIe",
        "priced with the {value} kernel; where the {bandwidth:g} GB/s links are PCIe alone the release uses NCCL",
        "vllm/distributed/device_communicators/custom_all_reduce.py:249-270",
    ),
    Assumed(
        "nixl_dcp_width",
        "NIXL with dcp neither 1 nor max(tp, pcp), or on a model that is not latent",
        "priced as stated; the release hands over latent caches either whole or over all transfer ranks",
        "vllm/config/vllm.py:1464-1482",
    ),
    Assumed(
        "flashinfer_mla_stripe",
        "FLASHINFER_MLA under dcp with a stripe above 1",
        "priced as stated; the release takes a stripe of 1 only",
        "vllm/v1/attention/backends/mla/flashinfer_mla.py:153-163",
    ),
    Assumed(
        "window_dcp",
        "dcp > 1 on a stack with window layers or pooled caches (which keep a window)",
        "priced as stated; the release declines window layers under its default cache manager",
        "vllm/v1/kv_cache_interface.py:868-872",
    ),
    Assumed(
        "mamba_mode_without_prefix_caching",
        "a mode other than none stated with prefix caching off",
        "priced as stated; the release falls back to none",
        "vllm/model_executor/models/config.py:668-673",
    ),
    Assumed(
        "mamba_mode_all",
        "mode all stated on recurrent layers of a kind whose models do not support it",
        "priced as stated; the release falls back to align for {kinds}",
        "vllm/model_executor/models/config.py:649-658",
    ),
    Assumed(
        "dual_batch_overlap",
        "engine.dbo.enable_dbo stated",
        "priced without overlap of two half batches{note}",
        "vllm/config/vllm.py:2181-2194",
    ),
    Assumed(
        "speculative_stripe",
        "speculation under dcp with a stripe above 1 on a backend without support for it",
        "priced as stated; the release needs FlashMLA-sparse for this",
        "vllm/v1/worker/cp_utils.py:45-50",
    ),
)

OVERRIDES: tuple[Overridden, ...] = (
    Overridden(
        "allreduce_backend",
        "tp > 1 at a width, or across nodes, that the custom all-reduce does not serve",
        "the custom all-reduce does not serve {why}",
        "vllm/distributed/device_communicators/custom_all_reduce.py:121, 208-233",
    ),
    Overridden(
        "cache_dtype",
        "a sparse latent backend with its own record",
        "{backend} keeps a quantized cache in this record",
        "vllm/model_executor/layers/attention/mla_attention.py:358-375",
    ),
    Overridden(
        "cp_kv_cache_interleave_size",
        "dcp > 1 under NIXL with the stripe unstated",
        "NIXL hands over whole blocks, so the stripe is the block",
        "vllm/config/vllm.py:3357-3380",
    ),
    Overridden(
        "mamba_cache_mode",
        "none stated with prefix caching on",
        "prefix caching keeps states at block boundaries",
        "vllm/model_executor/models/config.py:640-648",
    ),
    Overridden(
        "disable_hybrid_kv_cache_manager",
        "window or chunked layers and the hybrid manager off",
        "{why}; window layers are cached as full attention",
        "vllm/config/vllm.py:2213-2284, vllm/v1/core/kv_cache_utils.py:2300-2397",
    ),
    Overridden(
        "disable_cascade_attn",
        "cascade attention asked for with speculation under asynchronous scheduling",
        "cascade attention does not work with asynchronous speculation",
        "vllm/config/vllm.py:1650-1660",
    ),
    Overridden(
        "max_cudagraph_capture_size",
        "stated above max_num_batched_tokens",
        "a step holds at most {limit} tokens",
        "vllm/config/vllm.py:2541-2542",
    ),
)
