"""The Deployment document: pools of engine replicas, how each is parallelised and configured.

A setting left out, or a count of 0 where 0 means unset, reads as None: the engine's default, decided by the resolution.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from steppe.documents.base import (
    Broken,
    Bytes,
    Count,
    Document,
    OptionalBytes,
    OptionalCount,
    OptionalFraction,
    Positive,
    SomeItems,
    Text,
    duplicates,
)
from steppe.documents.vocabulary import (
    All2AllBackend,
    AllReduceBackend,
    MambaCacheMode,
    OffloadSpec,
    Role,
    Runner,
    SchedulingPolicy,
    SpeculativeMethod,
)


class Parallel(Document):
    """Group widths in GPUs. There is no ep key: see `ep_width`."""

    tp: Positive
    pp: Positive
    dp: Positive
    dp_local: OptionalCount = None
    enable_expert_parallel: bool = False
    pcp: OptionalCount = None
    dcp: OptionalCount = None

    @property
    def ranks(self) -> int:
        """GPUs all replicas of the pool occupy together."""
        return self.tp * self.pp * self.dp * (self.pcp or 1)

    @property
    def ep_width(self) -> int:
        """Expert-parallel width: tp*pcp*dp when enabled, else 1."""
        return self.tp * (self.pcp or 1) * self.dp if self.enable_expert_parallel else 1

    def broken_rules(self) -> Iterator[Broken]:
        """Yield widths that contradict each other."""
        if self.dp_local and self.dp_local > self.dp:
            yield (
                ("dp_local",),
                f"{self.dp_local} exceeds dp {self.dp}; a node holds at most all replicas",
            )
        if not self.dcp or self.dcp == 1:
            return
        pcp = self.pcp or 1
        if pcp == 1 and self.tp % self.dcp:
            yield ("dcp",), f"{self.dcp} does not divide tp {self.tp}; use a divisor of tp"
        elif pcp > 1 and self.dcp not in (pcp, self.tp * pcp):
            yield ("dcp",), f"{self.dcp} is neither 1, pcp ({pcp}) nor tp*pcp ({self.tp * pcp}); use one of these"


class Dbo(Document):
    """Dual-batch overlap. Thresholds in tokens; None is the engine's default."""

    enable_dbo: bool = False
    dbo_decode_token_threshold: Count | None = None
    dbo_prefill_token_threshold: Count | None = None


class Eplb(Document):
    """Expert load balancing: extra physical experts over the logical ones."""

    enable_eplb: bool = False
    num_redundant_experts: Count = 0
    window_size: int | None = None
    step_interval: int | None = None


class Speculative(Document):
    """Speculative decoding. `draft` names the draft model where the method has its own checkpoint."""

    method: SpeculativeMethod
    num_spec_tokens: Positive
    draft: str = ""
    parallel_drafting: bool | None = None


class Engine(Document):
    """Engine settings as stated; names and meanings are the engine's.

    Names of graph modes, cache dtypes, quantizations and decode-context backends are kept as stated: which of them a
    release accepts is the resolution's to say.
    """

    all2all_backend: Literal[All2AllBackend, ""] = ""
    disable_custom_all_reduce: bool | None = None
    allreduce_backend: Literal[AllReduceBackend, ""] = ""
    cudagraph_mode: str = ""
    async_scheduling: bool | None = None
    disable_cascade_attn: bool | None = None
    enable_prefix_caching: bool | None = None
    block_size: OptionalCount = None
    max_num_batched_tokens: OptionalCount = None
    max_num_seqs: OptionalCount = None
    max_model_len: OptionalCount = None
    quantization: str = ""
    cache_dtype: str = ""
    mamba_cache_dtype: str = ""
    mamba_ssm_cache_dtype: str = ""
    mamba_cache_mode: Literal[MambaCacheMode, ""] = ""
    gpu_memory_utilization: OptionalFraction = None
    scheduling_policy: Literal[SchedulingPolicy, ""] = ""
    dbo: Dbo | None = None
    eplb: Eplb | None = None
    speculative: Speculative | None = None
    dcp_comm_backend: str = ""
    dcp_q_replicate: bool | None = None
    cp_kv_cache_interleave_size: OptionalCount = None
    runner: Literal[Runner, ""] = ""
    disable_hybrid_kv_cache_manager: bool | None = None
    kv_cache_memory_bytes: OptionalBytes = None
    moe_backend: str = ""
    attention_backend: str = ""
    max_cudagraph_capture_size: OptionalCount = None
    fuse_allreduce_rms: bool | None = None
    synchronous_host: bool = False

    def broken_rules(self) -> Iterator[Broken]:
        """Yield settings that contradict each other."""
        if self.disable_custom_all_reduce and self.allreduce_backend == "custom":
            yield (
                ("allreduce_backend",),
                "custom is asked for while disable_custom_all_reduce is true; drop one of the two",
            )


class Pool(Document):
    """Replicas of one role on `nodes` whole nodes."""

    role: Role
    nodes: Positive
    parallel: Parallel
    engine: Engine = Engine()


class Tier(Document):
    """A place KV blocks are offloaded to: a storage device of the catalog and its size in bytes."""

    tier: Text
    bytes: Bytes


class Offload(Document):
    """KV offloading. `prefetch_depth` in blocks."""

    tiers: SomeItems[Tier]
    eviction_policy: str = ""
    prefetch_depth: Count = 0
    connector: str = ""
    spec: Literal[OffloadSpec, ""] = ""

    def broken_rules(self) -> Iterator[Broken]:
        """Yield tiers named twice."""
        for name in duplicates(tier.tier for tier in self.tiers):
            yield ("tiers",), f"tier '{name}' is listed twice; list each tier once"


class PdTransfer(Document):
    """How KV moves from prefill to decode pools."""

    connector: Text


class Deployment(Document):
    """Pools, and what they share: offloading and prefill-to-decode transfer."""

    kind: Literal["Deployment"]
    name: Text
    pools: SomeItems[Pool]
    offload: Offload | None = None
    pd_transfer: PdTransfer | None = None

    def broken_rules(self) -> Iterator[Broken]:
        """Yield roles that do not make a deployment."""
        roles = {pool.role for pool in self.pools}
        if "colocated" in roles and len(roles) > 1:
            yield ("pools",), "a colocated pool stands beside prefill or decode pools; use one scheme"
        if "prefill" in roles and "decode" not in roles and "colocated" not in roles:
            yield ("pools",), "a prefill pool without a decode pool; add one of role decode"
        if "decode" in roles and "prefill" not in roles and "colocated" not in roles:
            yield ("pools",), "a decode pool without a prefill pool; add one of role prefill"
        if "prefill" in roles and self.pd_transfer is None:
            yield (
                ("pd_transfer",),
                "required beside a prefill pool; state it, e.g. {connector: NixlConnector}",
            )
