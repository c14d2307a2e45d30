"""The rows behind `rules`: refusals, assumptions and overrides, each with its reason and where the engine does it.

Texts in braces are filled in with the deployment's own numbers when a row applies.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason not to price a deployment.

    `layer`: "engine" (the engine would not start it), "unpriced" (it would run, but not as this library could price it).
    """

    code: str
    layer: str
    setting: str
    reason: str
    change: str
    source: str


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
_FLASHMLA_SPARSE = "vllm/v1/attention/backends/mla/flashmla_sparse.py"

REFUSALS: tuple[Refusal, ...] = (
    # -- the engine would not start it: parallelism ------------------------------------------------------------------
    Refusal(
        "pool_index",
        "engine",
        "pools",
        "there is no pool {index}; the deployment has {pools}",
        "Ask for a pool from 0 to {last}",
        "the deployment document",
    ),
    Refusal(
        "heads_tp",
        "engine",
        "parallel.tp",
        "{heads} {what} heads do not divide over tp {tp}",
        "Use a tp that divides {heads}",
        "vllm/config/model.py:1502-1509, vllm/model_executor/layers/linear.py:1046-1057",
    ),
    Refusal(
        "mamba_groups_tp",
        "engine",
        "parallel.tp",
        "{groups} Mamba groups do not divide over tp {tp}",
        "Use a tp that divides {groups}, the engine widens a single group only",
        "vllm/model_executor/layers/mamba/mamba_mixer2.py:307-310",
    ),
    Refusal(
        "experts_tp",
        "engine",
        "parallel",
        "an expert's inner size {inner} does not divide over {shards} ranks (dp x pcp x tp)",
        "Use widths whose product divides {inner}, or enable expert parallelism",
        "vllm/model_executor/layers/fused_moe/config.py:1321-1323",
    ),
    Refusal(
        "ep_dense",
        "engine",
        "parallel.enable_expert_parallel",
        "the model has no experts",
        "Leave expert parallelism off",
        "vllm/config/model.py:1450-1456",
    ),
    Refusal(
        "ep_width",
        "engine",
        "parallel",
        "an expert group of {ep} ranks for {experts} physical experts leaves ranks without any",
        "Use an expert group of at most {experts} ranks",
        "vllm/model_executor/layers/fused_moe/expert_map_manager.py:62-69",
    ),
    Refusal(
        "eplb_without_ep",
        "engine",
        "engine.eplb.enable_eplb",
        "expert load balancing needs expert parallelism over more than one rank",
        "Enable expert parallelism, or drop eplb",
        "vllm/config/parallel.py:533-554",
    ),
    Refusal(
        "redundant_without_eplb",
        "engine",
        "engine.eplb.num_redundant_experts",
        "{redundant} redundant experts without expert load balancing",
        "Set enable_eplb, or state no redundant experts",
        "vllm/config/parallel.py:555-562",
    ),
    Refusal(
        "eplb_uneven",
        "engine",
        "engine.eplb.num_redundant_experts",
        "{experts} experts and {redundant} redundant ones do not divide over {ep} ranks",
        "Use a number of redundant experts that makes the sum a multiple of {ep}",
        "vllm/model_executor/layers/fused_moe/layer.py:257-266",
    ),
    Refusal(
        "all2all_unknown",
        "engine",
        "engine.all2all_backend",
        "the release has no all-to-all backend '{name}'",
        "Use one of {known}",
        "vllm/config/parallel.py:44-58",
    ),
    # -- the engine would not start it: context parallelism ----------------------------------------------------------
    Refusal(
        "pcp_dp",
        "engine",
        "parallel.pcp",
        "prefill context parallelism (pcp {pcp}) together with data parallelism (dp {dp})",
        "Use dp 1, or pcp 1",
        "the release's rule layer; vllm/v1/worker/gpu/pcp_manager.py:122-194 validates single-replica layouts",
    ),
    Refusal(
        "pcp_layers",
        "engine",
        "parallel.pcp",
        "prefill context parallelism serves models whose layers are all latent; this one has {what}",
        "Use pcp 1",
        f"{_PCP}:133-134, vllm/v1/attention/backend.py:843",
    ),
    Refusal(
        "pcp_dcp_layers",
        "engine",
        "parallel.dcp",
        "dcp {dcp} together with pcp {pcp} serves sparse latent attention with an indexer only",
        "Use dcp 1, or pcp 1",
        f"{_PCP}:166-169",
    ),
    Refusal(
        "pcp_a2a",
        "engine",
        "engine.dcp_comm_backend",
        "a2a together with pcp {pcp}",
        "Use ag_rs",
        f"{_PCP}:186-193",
    ),
    Refusal(
        "pcp_graph_full",
        "engine",
        "engine.cudagraph_mode",
        "FULL graphs of mixed batches together with pcp {pcp}",
        "Use FULL_AND_PIECEWISE, FULL_DECODE_ONLY, PIECEWISE or NONE",
        f"{_PCP}:178-185",
    ),
    Refusal(
        "pcp_speculation",
        "engine",
        "engine.speculative.method",
        "'{method}' drafts together with pcp {pcp}",
        "Use a single-module MTP or dspark, or pcp 1",
        f"{_PCP}:146-163",
    ),
    Refusal(
        "dcp_tp",
        "engine",
        "parallel.dcp",
        "dcp {dcp} does not divide tp {tp}",
        "Use a dcp that divides tp",
        "vllm/config/parallel.py:566-570",
    ),
    Refusal(
        "dcp_width",
        "engine",
        "parallel.dcp",
        "dcp {dcp} is neither 1, pcp ({pcp}) nor tp x pcp ({full})",
        "Use one of these",
        "vllm/config/parallel.py:571-577",
    ),
    Refusal(
        "dcp_backend",
        "engine",
        "engine.dcp_comm_backend",
        "the release has no decode-context backend '{name}'",
        "Use ag_rs or a2a",
        "vllm/config/parallel.py:40",
    ),
    Refusal(
        "dcp_kv_heads",
        "engine",
        "parallel.dcp",
        "decode context parallelism needs more tp ranks ({tp}) than key-value heads ({kv_heads})",
        "Use a wider tp, or dcp 1",
        "vllm/config/model.py:1524-1532",
    ),
    Refusal(
        "dcp_too_wide",
        "engine",
        "parallel.dcp",
        "dcp {dcp} exceeds the {limit} tp ranks that share a key-value head",
        "Use dcp up to {limit}",
        "vllm/config/model.py:1534-1542",
    ),
    Refusal(
        "dcp_query_groups",
        "engine",
        "parallel.dcp",
        "{group} query heads per key-value head do not divide over dcp {dcp}",
        "Use a dcp that divides {group}",
        "vllm/config/model.py:1544-1552",
    ),
    Refusal(
        "interleave_block",
        "engine",
        "engine.cp_kv_cache_interleave_size",
        "a stripe of {interleave} tokens does not divide the block of {block}",
        "Use a divisor of {block}",
        "vllm/config/vllm.py:3393-3405",
    ),
    Refusal(
        "interleave_multi_connector",
        "engine",
        "engine.cp_kv_cache_interleave_size",
        "unstated under MultiConnector: the engine pins the stripe to the block when one of the connector's children is "
        "NIXL, which the documents do not say",
        "State the stripe, or name the connector itself",
        "vllm/config/vllm.py:3357-3380, vllm/config/kv_transfer.py:156-163",
    ),
    # -- the engine would not start it: sparse latent attention ------------------------------------------------------
    Refusal(
        "sparse_part",
        "engine",
        "cluster.hardware",
        "compute capability {capability} has no sparse latent attention backend",
        "Use a Hopper part or a newer one",
        "vllm/platforms/cuda.py:98-153",
    ),
    Refusal(
        "sparse_block",
        "engine",
        "engine.block_size",
        "{block} is not a multiple of the indexer's page of {page} tokens",
        "Use a multiple of {page}, or leave it out",
        "vllm/v1/attention/backends/mla/indexer.py:203-204",
    ),
    Refusal(
        "sparse_backend",
        "engine",
        "engine.cache_dtype",
        "no sparse latent backend takes a '{dtype}' cache on this part and layout ({reasons})",
        "Use auto or fp8, or a layout one of them takes",
        "vllm/platforms/cuda.py:98-153, 477-493",
    ),
    Refusal(
        "flashmla_dcp_comm",
        "engine",
        "engine.dcp_comm_backend",
        "a2a on FlashMLA-sparse",
        "Use ag_rs",
        f"{_FLASHMLA_SPARSE}:416-422",
    ),
    Refusal(
        "flashmla_dcp_cache",
        "engine",
        "engine.cache_dtype",
        "FlashMLA-sparse under dcp {dcp} needs an 8-bit cache, not '{dtype}'",
        "Use cache_dtype fp8",
        f"{_FLASHMLA_SPARSE}:423-427, 745-751",
    ),
    Refusal(
        "flashmla_dcp_heads",
        "engine",
        "parallel.tp",
        "FlashMLA-sparse under dcp {dcp} needs fewer than {limit} query heads a rank, not {heads}",
        "Use a wider tp",
        f"{_FLASHMLA_SPARSE}:428-435",
    ),
    Refusal(
        "flashmla_dcp_padding",
        "engine",
        "parallel.dcp",
        "FlashMLA-sparse pads {heads} heads a rank to {padded} but the {gathered} gathered ones to {gathered_padded}",
        "Use a narrower dcp",
        f"{_FLASHMLA_SPARSE}:436-464",
    ),
    # -- the engine would not start it: caches and attention ---------------------------------------------------------
    Refusal(
        "cache_dtype_unknown",
        "engine",
        "engine.cache_dtype",
        "the release has no cache dtype '{dtype}'",
        "Use one of {known}",
        "vllm/config/cache.py:39-58",
    ),
    Refusal(
        "cache_dtype_gaudi",
        "engine",
        "engine.cache_dtype",
        "no CUDA backend reads a '{dtype}' cache",
        "Use fp8",
        "vllm/platforms/cuda.py:477-493",
    ),
    Refusal(
        "cache_ds_mla",
        "engine",
        "engine.cache_dtype",
        "'{dtype}' is a record of sparse latent attention, which the model does not have",
        "Use fp8",
        "vllm/model_executor/layers/attention/mla_attention.py:1358-1363, vllm/platforms/cuda.py:477-493",
    ),
    Refusal(
        "cache_nvfp4_latent",
        "engine",
        "engine.cache_dtype",
        "'{dtype}' on latent attention",
        "Use fp8, or nvfp4_ds_mla with sparse latent attention",
        "vllm/config/vllm.py:3413-3430",
    ),
    Refusal(
        "attention_backend",
        "engine",
        "engine.cache_dtype",
        "no attention backend of this part takes head size {head}, a '{dtype}' cache and the stated block ({reasons})",
        "Use another cache dtype or block size",
        "vllm/platforms/cuda.py:477-493",
    ),
    Refusal(
        "attention_backend_stated",
        "engine",
        "engine.attention_backend",
        "{name} does not serve this deployment ({reason})",
        "Leave it out, or name another backend",
        "vllm/platforms/cuda.py:448-474",
    ),
    Refusal(
        "mamba_dtype",
        "engine",
        "engine.mamba_cache_dtype",
        "the release has no recurrent-state dtype '{dtype}'",
        "Use one of {known}",
        "vllm/config/cache.py:61",
    ),
    Refusal(
        "mamba_mode",
        "engine",
        "engine.mamba_cache_mode",
        "the release has no recurrent cache mode '{mode}'",
        "Use one of {known}",
        "vllm/config/cache.py:62",
    ),
    # -- the engine would not start it: scheduling, graphs, speculation ----------------------------------------------
    Refusal(
        "graph_mode",
        "engine",
        "engine.cudagraph_mode",
        "the release has no CUDA graph mode '{mode}'",
        "Use one of {known}",
        "vllm/config/compilation.py:53-66",
    ),
    Refusal(
        "scheduling_policy",
        "engine",
        "engine.scheduling_policy",
        "the release has no scheduling policy '{policy}'",
        "Use one of {known}",
        "vllm/config/scheduler.py:22",
    ),
    Refusal(
        "tokens_below_seqs",
        "engine",
        "engine.max_num_batched_tokens",
        "{tokens} tokens a step are fewer than the {seqs} sequences",
        "Raise it, or lower max_num_seqs",
        "vllm/config/scheduler.py:315-358",
    ),
    Refusal(
        "speculative_method",
        "engine",
        "engine.speculative.method",
        "the release does not serve the method '{method}'",
        "Use one of {known}",
        "vllm/config/speculative.py:38-84, vllm/v1/worker/gpu_model_runner.py:604-676",
    ),
    Refusal(
        "async_speculative",
        "engine",
        "engine.async_scheduling",
        "asked for together with '{method}' drafts",
        "Leave it out, or set it to false",
        "vllm/config/vllm.py:1544-1566",
    ),
    Refusal(
        "runner_v1",
        "engine",
        "engine.runner",
        "the v1 runner does not serve {features}",
        "Use v2, or drop what it does not serve",
        "vllm/config/vllm.py:3105-3149",
    ),
    Refusal(
        "runner_v2",
        "engine",
        "engine.runner",
        "the v2 runner does not serve {features}",
        "Use v1, or drop what it does not serve",
        "vllm/config/vllm.py:3051-3103",
    ),
    Refusal(
        "runner_none",
        "engine",
        "engine",
        "no runner serves {v1} together with {v2}",
        "Drop one of the two",
        "vllm/config/vllm.py:3051-3149",
    ),
    # -- it runs, but not as priced here -----------------------------------------------------------------------------
    Refusal(
        "pipeline",
        "unpriced",
        "parallel.pp",
        "pipeline parallelism (pp {pp}) is not priced yet",
        "Use pp 1",
        "vllm/v1/worker/gpu/pp_utils.py",
    ),
    Refusal(
        "query_replicate",
        "unpriced",
        "engine.dcp_q_replicate",
        "a query projection replicated over dcp {dcp} is not priced yet",
        "Leave it off",
        "vllm/model_executor/layers/linear.py:632-660",
    ),
    Refusal(
        "cache_scaled_slots",
        "unpriced",
        "engine.cache_dtype",
        "'{dtype}' keeps scales or transformed codes in the page, whose reads no measurement here covers",
        "Use auto or fp8",
        "vllm/v1/attention/backends/triton_attn.py:276-304, vllm/v1/attention/backends/turboquant_attn.py:133-187",
    ),
    Refusal(
        "quantization_unknown",
        "unpriced",
        "engine.quantization",
        "the weight width '{name}' serves is not known here",
        "Use one of {known}, or a model graph that states its widths",
        "vllm/model_executor/layers/quantization/__init__.py:19-55",
    ),
)

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
        "dcp > 1, latent layers and engine.max_model_len unstated",
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
        "dcp > 1 on a stack with window layers",
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
        "vllm/distributed/device_communicators/custom_all_reduce.py:120, 208-233",
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
