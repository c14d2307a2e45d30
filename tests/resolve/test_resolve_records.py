"""What a resolution assumes and overrides: every row of the tables, and what is recorded beside it."""

from __future__ import annotations

from typing import Any

import pytest
from resolve_cases import CHIPS, GQA, MODELS, bundle_of, graph_of, long_model, scaled_cache

from steppe.provenance import Ledger
from steppe.resolve.choices import resolve, resolved
from steppe.resolve.resolved import Resolution
from steppe.resolve.rules import ASSUMPTIONS, OVERRIDES

LONG = long_model(8192)
SCALED = scaled_cache("fp8")

NGRAM = {"method": "ngram", "num_spec_tokens": 3}
MTP = {"method": "mtp", "num_spec_tokens": 1}
CHUNKED = graph_of(
    MODELS["gqa"], caches=[{"id": "c", "kind": "chunked", "layers": 4, "heads": 8, "head_dim": 128, "window": 8192}]
)


def assumed(resolution: Resolution) -> dict[str, Any]:
    return {item.name: item.value for item in resolution.ledger.assumptions}


def reason(resolution: Resolution, name: str) -> str:
    return next(item.reason for item in resolution.ledger.assumptions if item.name == name)


def numbered(cases: list[Any]) -> list[str]:
    return [f"{case[0]}-{index}" for index, case in enumerate(cases)]


def overridden(resolution: Resolution) -> list[tuple[str, Any, Any]]:
    return [(item.field, item.requested, item.resolved) for item in resolution.ledger.overrides]


# (assumption, deployment that records it, its value, deployment beside it that does not)
ASSUMED: list[tuple[str, dict[str, Any], Any, dict[str, Any]]] = [
    ("engine_version", {"scenario": {"engine_version": "0.29.0"}}, "0.31.0", {}),
    ("engine_version", {"scenario": {"engine_version": "0.32.0"}}, "0.31.0",
     {"scenario": {"engine_version": "v0.31.0"}}),
    ("compute_capability", {"chip": "ampere"}, "8.0", {"chip": "hopper"}),
    ("block_size", {}, 16, {"engine": {"block_size": 32}}),
    ("block_size", {"model": "dsa", "tp": 8}, 64, {"model": "dsa", "tp": 8, "engine": {"block_size": 64}}),
    ("block_size", {"model": "pooled", "tp": 8}, 256, {"model": "pooled", "tp": 8, "engine": {"block_size": 256}}),
    ("block_size", {"model": "pooled_v41", "tp": 8}, 64, {"model": "pooled", "tp": 8, "engine": {"block_size": 64}}),
    ("block_size", {"model": "pooled_v41", "tp": 8, "chip": "blackwell"}, 128, {"engine": {"block_size": 64}}),
    ("cache_dtype", {"model": SCALED}, "fp8", {"model": SCALED, "engine": {"cache_dtype": "bfloat16"}}),
    ("cache_dtype", {"model": SCALED, "engine": {"cache_dtype": "auto"}}, "fp8", {"engine": {"cache_dtype": "auto"}}),
    ("max_model_len", {"model": LONG}, 8192, {"model": LONG, "engine": {"max_model_len": 4096}}),
    ("max_num_batched_tokens", {"chip": "blackwell"}, 16384, {"engine": {"max_num_batched_tokens": 4096}}),
    ("max_num_batched_tokens", {"chip": "hopper"}, 8192, {"engine": {"max_num_batched_tokens": 4096}}),
    ("max_num_batched_tokens", {"chip": "ampere"}, 2048, {"engine": {"max_num_batched_tokens": 4096}}),
    ("max_num_batched_tokens", {"chip": {**CHIPS["hopper"], "MemoryGiB": 48}}, 2048,
     {"engine": {"max_num_batched_tokens": 4096}}),
    ("max_num_batched_tokens", {"engine": {"max_num_seqs": 4, "max_model_len": 1024}}, 4096,
     {"engine": {"max_num_seqs": 4, "max_model_len": 1024, "max_num_batched_tokens": 8192}}),
    ("max_num_seqs", {"chip": "hopper"}, 1024, {"engine": {"max_num_seqs": 8}}),
    ("max_num_seqs", {"chip": "ampere"}, 256, {"engine": {"max_num_seqs": 8}}),
    ("max_num_seqs", {"engine": {"max_num_batched_tokens": 100}}, 100,
     {"engine": {"max_num_batched_tokens": 100, "max_num_seqs": 100}}),
    ("cudagraph_mode", {}, "FULL_AND_PIECEWISE", {"engine": {"cudagraph_mode": "FULL"}}),
    ("max_cudagraph_capture_size", {}, 512, {"engine": {"max_cudagraph_capture_size": 256}}),
    ("max_cudagraph_capture_size", {"chip": "blackwell"}, 1024, {"engine": {"cudagraph_mode": "NONE"}}),
    ("max_cudagraph_capture_size", {"engine": {"max_num_seqs": 16}}, 32,
     {"engine": {"max_num_seqs": 16, "max_cudagraph_capture_size": 32}}),
    ("max_cudagraph_capture_size", {"engine": {"max_num_seqs": 16, "speculative": NGRAM}}, 128,
     {"engine": {"cudagraph_mode": "NONE"}}),
    ("max_cudagraph_capture_size", {"engine": {"max_num_seqs": 64, "max_num_batched_tokens": 100}}, 100,
     {"engine": {"cudagraph_mode": "NONE"}}),
    ("async_scheduling", {}, True, {"engine": {"async_scheduling": True}}),
    ("async_scheduling", {"engine": {"speculative": NGRAM}}, False,
     {"engine": {"speculative": NGRAM, "async_scheduling": False}}),
    ("async_scheduling", {"engine": {"speculative": MTP}}, True, {"engine": {"async_scheduling": False}}),
    ("enable_prefix_caching", {}, True, {"engine": {"enable_prefix_caching": False}}),
    ("gpu_memory_utilization", {}, 0.92, {"engine": {"gpu_memory_utilization": 0.9}}),
    ("all2all_backend", {"model": "mla", "tp": 4, "dp": 2, "ep": True}, "allgather_reducescatter",
     {"model": "mla", "tp": 8}),
    ("all2all_backend", {"model": "mla", "tp": 4, "dp": 2, "ep": True, "engine": {"all2all_backend": "pplx"}},
     "allgather_reducescatter",
     {"model": "mla", "tp": 4, "dp": 2, "ep": True, "engine": {"all2all_backend": "nixl_ep"}}),
    ("all2all_backend",
     {"model": "mla", "tp": 4, "dp": 2, "ep": True, "engine": {"all2all_backend": "flashinfer_all2allv"}},
     "flashinfer_nvlink_two_sided",
     {"model": "gqa", "tp": 4, "dp": 2}),
    ("mamba_cache_mode", {"model": "mamba"}, "align", {"model": "mamba", "engine": {"mamba_cache_mode": "align"}}),
    ("mamba_cache_mode", {"model": "mamba", "engine": {"enable_prefix_caching": False}}, "none", {"model": "gqa"}),
    ("dcp_comm_backend", {"model": "mla", "tp": 8, "dcp": 8}, "ag_rs", {"model": "mla", "tp": 8}),
    ("mla_context_chunk", {"model": "mla", "tp": 8, "dcp": 8}, 65536,
     {"model": "mla", "tp": 8, "dcp": 8, "engine": {"max_model_len": 4096}}),
    ("sparse_mla_backend", {"model": "dsa", "tp": 8, "engine": {"cache_dtype": "fp8_e4m3"}},
     "FLASHINFER_MLA_SPARSE_SM90", {"model": "dsa", "tp": 8, "engine": {"cache_dtype": "fp8"}}),
    ("attention_backend", {}, "FLASH_ATTN", {"engine": {"attention_backend": "TRITON_ATTN"}}),
    ("fuse_allreduce_rms", {"tp": 2}, True, {"tp": 2, "engine": {"fuse_allreduce_rms": False}}),
    ("fuse_allreduce_rms", {"tp": 2, "chip": "ampere"}, False, {"tp": 1}),
    ("routing_concentration", {"model": "mla", "tp": 8}, 0.5, {"model": "gqa"}),
    ("routing_concentration", {"model": "mla", "tp": 8}, 0.5,
     {"model": "mla", "tp": 8, "scenario": {"workload": {"routing_concentration": 0.25}}}),
    ("pcp_sparse_graphs", {"model": "dsa64", "tp": 4, "pcp": 2, "engine": {"cache_dtype": "fp8"}}, "FULL_AND_PIECEWISE",
     {"model": "dsa64", "tp": 4, "pcp": 2, "engine": {"cache_dtype": "fp8", "cudagraph_mode": "NONE"}}),
    ("deepep_high_throughput_graphs",
     {"model": "mla", "tp": 4, "dp": 2, "ep": True, "engine": {"all2all_backend": "deepep_high_throughput"}},
     "FULL_AND_PIECEWISE",
     {"model": "mla", "tp": 4, "dp": 2, "ep": True,
      "engine": {"all2all_backend": "deepep_high_throughput", "cudagraph_mode": "NONE"}}),
    ("pcie_all_reduce", {"tp": 4, "chip": "workstation"}, "custom", {"tp": 2, "chip": "workstation"}),
    ("nixl_dcp_width", {"model": "mla", "tp": 8, "dcp": 2, "pd": "NixlConnector"}, 2,
     {"model": "mla", "tp": 8, "dcp": 8, "pd": "NixlConnector"}),
    ("nixl_dcp_width", {"model": "wide_gqa", "tp": 8, "dcp": 4, "offload": "NixlConnector"}, 4,
     {"model": "wide_gqa", "tp": 8, "dcp": 4, "offload": "OffloadingConnector"}),
    ("flashinfer_mla_stripe",
     {"model": "mla", "chip": "blackwell", "tp": 8, "dcp": 8, "engine": {"cp_kv_cache_interleave_size": 16}}, 16,
     {"model": "mla", "chip": "hopper", "tp": 8, "dcp": 8, "engine": {"cp_kv_cache_interleave_size": 16}}),
    ("window_dcp", {"model": graph_of([{**MODELS["window"][0], "n_q": 64, "n_kv": 2}]), "tp": 8, "dcp": 2}, 2,
     {"model": "wide_gqa", "tp": 8, "dcp": 2}),
    ("window_dcp", {"model": "pooled", "tp": 8, "dcp": 2}, 2, {"model": "pooled", "tp": 8}),
    ("mamba_mode_without_prefix_caching",
     {"model": "mamba", "engine": {"mamba_cache_mode": "align", "enable_prefix_caching": False}}, "align",
     {"model": "mamba", "engine": {"mamba_cache_mode": "none", "enable_prefix_caching": False}}),
    ("mamba_mode_all", {"model": "gdn", "engine": {"mamba_cache_mode": "all"}}, "all",
     {"model": "mamba", "engine": {"mamba_cache_mode": "all"}}),
    ("dual_batch_overlap", {"model": "mla", "tp": 8, "engine": {"dbo": {"enable_dbo": True}}}, False,
     {"model": "mla", "tp": 8, "engine": {"dbo": {"enable_dbo": False}}}),
    ("speculative_stripe",
     {"model": "mla", "tp": 8, "dcp": 8, "engine": {"cp_kv_cache_interleave_size": 16, "speculative": MTP}}, 16,
     {"model": "dsa", "tp": 8, "dcp": 4,
      "engine": {"cache_dtype": "fp8", "cp_kv_cache_interleave_size": 16, "speculative": MTP}}),
]  # fmt: skip

# (field, requested, resolved, deployment, deployment beside it that runs as stated)
OVERRIDDEN: list[tuple[str, Any, Any, dict[str, Any], dict[str, Any]]] = [
    ("allreduce_backend", "custom", "nccl", {"model": graph_of([{**GQA, "n_q": 24, "n_kv": 3}]), "tp": 3},
     {"model": "gqa", "tp": 4}),
    ("allreduce_backend", "custom", "nccl", {"tp": 16, "nodes": 2},
     {"tp": 16, "nodes": 4, "gpus_per_node": 4, "chip": "rack"}),
    ("cache_dtype", "fp8", "fp8_ds_mla", {"model": "dsa", "tp": 8, "engine": {"cache_dtype": "fp8"}},
     {"model": "dsa", "tp": 8, "chip": "blackwell", "engine": {"cache_dtype": "fp8"}}),
    ("cache_dtype", "auto", "fp8_ds_mla", {"model": "dsa", "tp": 8, "chip": "workstation"},
     {"model": "dsa", "tp": 8, "chip": "hopper"}),
    ("cp_kv_cache_interleave_size", 1, 16, {"model": "mla", "tp": 8, "dcp": 8, "pd": "NixlConnector"},
     {"model": "mla", "tp": 8, "dcp": 8, "pd": "NixlConnector", "engine": {"cp_kv_cache_interleave_size": 4}}),
    ("cp_kv_cache_interleave_size", 1, 64,
     {"model": "mla", "tp": 8, "dcp": 8, "offload": "NixlConnector", "engine": {"block_size": 64}},
     {"model": "mla", "tp": 8, "dcp": 8, "offload": "OffloadingConnector", "engine": {"block_size": 64}}),
    ("mamba_cache_mode", "none", "align", {"model": "mamba", "engine": {"mamba_cache_mode": "none"}},
     {"model": "mamba", "engine": {"mamba_cache_mode": "none", "enable_prefix_caching": False}}),
    ("disable_hybrid_kv_cache_manager", True, True,
     {"model": "window", "engine": {"disable_hybrid_kv_cache_manager": True}},
     {"model": "gqa", "engine": {"disable_hybrid_kv_cache_manager": True}}),
    ("disable_hybrid_kv_cache_manager", None, True, {"model": "window", "offload": "LMCacheConnectorV1"},
     {"model": "window", "offload": "OffloadingConnector"}),
    ("disable_hybrid_kv_cache_manager", None, True, {"model": CHUNKED}, {"model": "gqa"}),
    ("disable_cascade_attn", False, True, {"engine": {"disable_cascade_attn": False, "speculative": MTP}},
     {"engine": {"disable_cascade_attn": False}}),
    ("max_cudagraph_capture_size", 4096, 2048,
     {"engine": {"max_cudagraph_capture_size": 4096, "max_num_batched_tokens": 2048}},
     {"engine": {"max_cudagraph_capture_size": 2048, "max_num_batched_tokens": 2048}}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "case", "value", "beside"), ASSUMED, ids=numbered(ASSUMED))
def test_assumes(name: str, case: dict[str, Any], value: Any, beside: dict[str, Any]) -> None:
    found = resolve(bundle_of(**case))
    assert assumed(found)[name] == value
    assert "{" not in reason(found, name)
    assert name not in assumed(resolve(bundle_of(**beside)))


def test_every_assumption_has_a_case() -> None:
    assert {case[0] for case in ASSUMED} == {rule.name for rule in ASSUMPTIONS}
    assert all(rule.when and rule.reason and rule.source for rule in ASSUMPTIONS)


@pytest.mark.parametrize(
    ("field", "requested", "became", "case", "beside"),
    OVERRIDDEN,
    ids=numbered(OVERRIDDEN),
)
def test_overrides(field: str, requested: Any, became: Any, case: dict[str, Any], beside: dict[str, Any]) -> None:
    found = resolve(bundle_of(**case))
    assert overridden(found) == [(field, requested, became)]
    assert resolved(found)["overrides"] == [[field, str(became)]]
    assert all("{" not in item.reason for item in found.ledger.overrides)
    assert overridden(resolve(bundle_of(**beside))) == []


def test_every_override_has_a_case() -> None:
    assert {case[0] for case in OVERRIDDEN} == {rule.field for rule in OVERRIDES}
    assert all(rule.when and rule.reason and rule.source for rule in OVERRIDES)


def test_a_deployment_that_states_everything_assumes_nothing() -> None:
    engine = {
        "allreduce_backend": "custom",
        "all2all_backend": "deepep_low_latency",
        "attention_backend": "FLASHMLA",
        "async_scheduling": True,
        "block_size": 64,
        "cache_dtype": "fp8",
        "cp_kv_cache_interleave_size": 1,
        "cudagraph_mode": "FULL",
        "dcp_comm_backend": "ag_rs",
        "disable_cascade_attn": True,
        "enable_prefix_caching": True,
        "fuse_allreduce_rms": True,
        "gpu_memory_utilization": 0.9,
        "max_cudagraph_capture_size": 512,
        "max_model_len": 32768,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 256,
    }
    scenario = {"workload": {"routing_concentration": 0.5}}
    found = resolve(bundle_of("mla", tp=8, dp=2, dcp=8, ep=True, nodes=2, engine=engine, scenario=scenario))
    assert found.ledger == Ledger()


def test_an_override_is_recorded_with_its_reason() -> None:
    found = resolve(bundle_of(tp=16, nodes=2))
    assert "across nodes" in found.ledger.overrides[0].reason
    assert found.settings.all_reduce_backend == "nccl"


def test_one_gpu_reduces_nothing_and_reports_nothing() -> None:
    found = resolve(bundle_of(tp=1))
    assert found.settings.all_reduce_backend == "custom"
    assert found.ledger.overrides == []
    assert resolve(bundle_of(tp=1, engine={"disable_custom_all_reduce": True})).settings.all_reduce_backend == "nccl"


def test_the_batched_all_to_all_is_named_where_the_default_hides_it() -> None:
    engine = {"all2all_backend": "deepep_low_latency"}
    found = resolve(bundle_of("mla", tp=4, dp=2, ep=True, engine=engine))
    assert "starts at 256 with deepep_low_latency" in reason(found, "max_num_batched_tokens")
    alone = resolve(bundle_of("mla", tp=8, ep=True, engine=engine))
    assert "starts at" not in reason(alone, "max_num_batched_tokens")


def test_auto_is_the_cache_the_checkpoint_asks_for() -> None:
    stored, plain = resolve(bundle_of(SCALED)), resolve(bundle_of())
    assert resolved(stored)["cache_dtype"] == "fp8"
    assert resolved(plain)["cache_dtype"] == "auto"
    assert resolved(resolve(bundle_of(SCALED, engine={"cache_dtype": "bfloat16"})))["cache_dtype"] == "bfloat16"
