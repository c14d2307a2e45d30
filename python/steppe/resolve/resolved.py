"""What a resolution decides: plain facts, no behaviour, everything per rank.

`resolve()` (in `choices.py`) fills these in from the documents; the plan, the caches and the memory law only read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from steppe.documents import Chip, Deployment, Fabric, ModelGraph, Pool, Scenario, StorageDevice
from steppe.provenance import Ledger


@dataclass(frozen=True, slots=True)
class Widths:
    """Parallel group widths in GPUs. `ep` is tp*pcp*dp with expert parallelism on, else 1."""

    tp: int
    pp: int
    dp: int
    pcp: int
    dcp: int
    ep: int

    @property
    def moe_group(self) -> int:
        """GPUs that share one layer's experts: ep when on; tp*pcp*dp with EP off and dp > 1; else 1."""
        if self.ep > 1:
            return self.ep
        return self.tp * self.pcp * self.dp if self.dp > 1 else 1


@dataclass(frozen=True, slots=True)
class Placement:
    """How a communication group of `width` ranks lies on nodes, in the engine's rank order.

    `per_node` ranks of the group share a node; `crosses` is true when some hop leaves the NVLink domain.
    """

    width: int
    stride: int
    per_node: int
    crosses: bool


@dataclass(frozen=True, slots=True)
class Settings:
    """Engine settings after defaults, assumptions and overrides. Token counts are tokens, sizes bytes."""

    block_size: int
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int | None
    cudagraph_mode: str  # NONE PIECEWISE FULL FULL_DECODE_ONLY FULL_AND_PIECEWISE
    capture_ceiling: int  # largest captured token count
    async_scheduling: bool
    cascade_attention: bool
    enable_prefix_caching: bool
    gpu_memory_utilization: float
    all_reduce_backend: str  # custom | nccl
    all2all_backend: str  # resolved name; "" when the MoE group is 1
    sequence_parallel_moe: bool
    quantization: str  # "" = as the checkpoint stores it
    cache_dtype: str  # auto | bfloat16 | fp8 | fp8_ds_mla | nvfp4 | ...  after overrides
    mamba_cache_mode: str  # none | align | all ("" without recurrent layers)
    mamba_cache_dtype: str
    mamba_ssm_cache_dtype: str
    spec_method: str  # "" = no speculation
    spec_tokens: int
    dcp_comm_backend: str  # "" | ag_rs | a2a
    interleave: int  # decode-context stripe in tokens (1 when dcp is 1)
    mla_context_chunk: int  # tokens gathered at once for a latent prefill under dcp; 0 = not applicable
    sparse_mla_backend: str  # "" | FLASHMLA_SPARSE | FLASHINFER_MLA_SPARSE | ...
    attention_backend: str  # by the engine's name, e.g. FLASH_ATTN, FLASHINFER, FLASH_ATTN_MLA
    moe_backend: str  # as stated, "" = what the engine picks
    fuse_allreduce_rms: bool
    synchronous_host: bool
    redundant_experts: int
    hybrid_kv_cache_manager: bool
    runner: str  # v1 | v2
    kv_cache_memory_bytes: int | None
    one_kernel_attention: bool  # prefill and decode rows share one launch (FlashAttention backends)
    decode_threshold: int = 1  # longest query the attention backend takes as a decode
    served_dtype: str = ""  # replaces the graph's global weight dtype; "" = as stored
    flash_attention_version: int = 0  # 2, 3 or 4 on FlashAttention backends, else 0
    spec_draft: str = ""  # the draft's model name, for methods with their own checkpoint
    parallel_drafting: bool = False  # the draft proposes all tokens in one pass


@dataclass(frozen=True, slots=True)
class Resolution:
    """One pool of a deployment, decided. Everything below reads this and nothing above it."""

    scenario: Scenario
    deployment: Deployment
    pool: Pool
    pool_index: int
    model_name: str
    chip_name: str
    graph: ModelGraph
    chip: Chip
    fabric: Fabric | None
    storage: dict[str, StorageDevice]
    widths: Widths
    settings: Settings
    placements: dict[str, Placement]  # tp, expert, pcp, dcp, dp
    nodes_spanned: int  # for the scope of coefficients
    one_nvlink_domain: bool  # the rack is one NVLink domain
    engine_version: str  # as stated by the scenario
    routing_concentration: float
    ledger: Ledger = field(compare=False)
    compute_capability: tuple[int, int] = (9, 0)  # (major, minor), read off the rates where the chip states none
    rack_gpus: int = 0  # GPUs of one NVLink domain beyond the node; 0 = none
    draft: Resolution | None = None  # the drafter, where it has a checkpoint and a graph of its own
