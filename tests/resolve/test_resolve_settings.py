"""Settings decided: backends, caches, graphs, runners, experts."""

from __future__ import annotations

from typing import Any

import pytest
from resolve_cases import CHIPS, DSA, GQA, INDEX, MODELS, bundle_of, graph_of

from steppe.engine.v0_31 import attention as backends
from steppe.resolve.choices import resolve, resolved
from steppe.resolve.resolved import Settings


def settings(*args: Any, **kwargs: Any) -> Settings:
    return resolve(bundle_of(*args, **kwargs)).settings


def head(size: int) -> Any:
    return graph_of([{**GQA, "d_h": size}])


@pytest.mark.parametrize(
    ("model", "chip", "dtype", "block", "expected"),
    [
        ("gqa", "ampere", "", 0, "FLASH_ATTN"),
        ("gqa", "ampere", "fp8", 0, "FLASHINFER"),  # FlashAttention 2 reads no 8-bit cache
        ("gqa", "hopper", "", 0, "FLASH_ATTN"),
        ("gqa", "hopper", "fp8", 0, "FLASH_ATTN"),
        ("gqa", "hopper", "fp8_e5m2", 0, "FLASHINFER"),
        ("gqa", "blackwell", "", 0, "FLASHINFER"),
        ("gqa", "blackwell", "nvfp4", 0, "FLASHINFER"),
        ("gqa", "workstation", "", 0, "FLASH_ATTN"),
        (head(96), "blackwell", "", 0, "FLASH_ATTN"),  # FlashInfer has no kernel for the head
        ("mla", "ampere", "", 0, "TRITON_MLA"),
        ("mla", "ampere", "fp8", 0, "TRITON_MLA"),
        ("mla", "hopper", "", 0, "FLASH_ATTN_MLA"),
        ("mla", "hopper", "fp8", 0, "FLASHMLA"),
        ("mla", "hopper", "fp8", 16, "TRITON_MLA"),  # FlashMLA takes blocks of 64
        ("mla", "blackwell", "", 0, "FLASHINFER_MLA"),
        ("mla", "blackwell", "", 48, "TRITON_MLA"),
        ("mla", "workstation", "", 0, "TRITON_MLA"),
        ("dsa", "hopper", "", 0, "FLASH_ATTN_MLA_SPARSE"),
        ("dsa", "hopper", "fp8", 0, "FLASHMLA_SPARSE"),
        ("dsa", "hopper", "fp8_ds_mla", 0, "FLASHMLA_SPARSE"),
        ("dsa", "hopper", "fp8_e4m3", 0, "FLASHINFER_MLA_SPARSE_SM90"),
        ("dsa", "blackwell", "", 0, "FLASHINFER_MLA_SPARSE"),  # 16 heads a rank
        ("dsa", "blackwell", "fp8", 0, "FLASHINFER_MLA_SPARSE"),
        ("dsa", "blackwell", "fp8_ds_mla", 0, "FLASHMLA_SPARSE"),
        ("dsa", "blackwell", "nvfp4_ds_mla", 0, "FLASHMLA_SPARSE"),
        ("dsa", "workstation", "", 0, "FLASHINFER_MLA_SPARSE_SM120"),
        ("pooled", "hopper", "", 0, "FLASHMLA_SPARSE_DSV4"),
        ("pooled_v41", "blackwell", "", 0, "FLASHMLA_SPARSE_DSV41"),
        ("mla_gdn", "hopper", "", 0, "FLASH_ATTN_MLA"),
        ("no_attention", "hopper", "", 0, ""),
    ],
)
def test_the_first_backend_that_serves_the_model(model: Any, chip: str, dtype: str, block: int, expected: str) -> None:
    engine: dict[str, Any] = {"cache_dtype": dtype, "block_size": block}
    found = settings(model, chip, tp=8, engine=engine)
    assert found.attention_backend == expected
    assert found.sparse_mla_backend == (expected if "SPARSE" in expected else "")


def test_many_heads_a_rank_prefer_flashmla_on_blackwell() -> None:
    assert settings("dsa", "blackwell", tp=4).sparse_mla_backend == "FLASHMLA_SPARSE"
    assert (
        settings("dsa", "blackwell", tp=4, engine={"cache_dtype": "fp8"}).sparse_mla_backend == "FLASHINFER_MLA_SPARSE"
    )


def test_a_rope_free_head_prefers_flashinfer_on_hopper() -> None:
    narrow = graph_of([INDEX, {**DSA, "d_h": 512, "qk_rope_head_dim": 0}])
    assert settings(narrow, tp=8).sparse_mla_backend == "FLASHINFER_MLA_SPARSE_SM90"


def test_pcp_with_dcp_leaves_flashinfer() -> None:
    engine = {"cache_dtype": "fp8"}
    assert settings("dsa64", "blackwell", tp=4, engine=engine).sparse_mla_backend == "FLASHINFER_MLA_SPARSE"
    assert settings("dsa64", "blackwell", tp=4, pcp=2, dcp=2, engine=engine).sparse_mla_backend == "FLASHMLA_SPARSE"


def test_a_wide_dcp_gathers_every_head_under_pcp() -> None:
    found = settings("dsa64", tp=4, pcp=2, dcp=8, engine={"cache_dtype": "fp8"})
    assert (found.cache_dtype, found.interleave) == ("fp8_ds_mla", 1)


def test_the_workstation_backend_takes_one_top_k() -> None:
    other = graph_of([INDEX, {**DSA, "index_topk": 512}])
    with pytest.raises(ValueError, match="no top-512"):
        resolve(bundle_of(other, "workstation", tp=8))


def test_a_stated_backend_is_taken() -> None:
    found = settings(engine={"attention_backend": "TRITON_ATTN"})
    assert found.attention_backend == "TRITON_ATTN"
    assert not found.one_kernel_attention


@pytest.mark.parametrize(
    ("args", "one_kernel", "version"),
    [
        ({"chip": "hopper"}, True, 3),
        ({"chip": "ampere"}, True, 2),
        ({"chip": "blackwell"}, False, 0),
        ({"model": "mla", "tp": 8}, False, 3),
        ({"model": "wide_gqa", "tp": 8, "dcp": 2}, False, 3),
    ],
)
def test_one_kernel_attention(args: dict[str, Any], one_kernel: bool, version: int) -> None:
    found = settings(**args)
    assert (found.one_kernel_attention, found.flash_attention_version) == (one_kernel, version)


MTP3 = {"speculative": {"method": "mtp", "num_spec_tokens": 3}}


@pytest.mark.parametrize(
    ("args", "threshold"),
    [
        ({}, 1),
        ({"engine": MTP3}, 4),
        ({"chip": "blackwell", "engine": MTP3}, 4),
        ({"model": "mla", "tp": 8}, 512),
        ({"model": "mla", "tp": 8, "engine": {"cache_dtype": "fp8"}}, 128),
        ({"model": "mla", "tp": 8, "dcp": 8}, 512),
        ({"model": "mla", "tp": 8, "dcp": 8, "engine": {"cp_kv_cache_interleave_size": 16}}, 1),
        ({"model": "mla", "tp": 8, "dcp": 8, "engine": {"cache_dtype": "fp8"}}, 1),
        ({"model": "mla", "tp": 8, "chip": "blackwell", "engine": MTP3}, 4),
        ({"model": "mla", "tp": 8, "dcp": 8, "chip": "blackwell", "engine": MTP3}, 4),
        ({"model": "dsa", "tp": 8, "engine": {"cache_dtype": "fp8"}}, 128),
        ({"model": "dsa", "tp": 2, "engine": {"cache_dtype": "fp8"}}, 256),
        ({"model": "dsa", "tp": 1, "chip": "blackwell"}, 1024),
        ({"model": "dsa", "tp": 1, "engine": {"cache_dtype": "fp8_e4m3"}}, 1024),
        ({"chip": "blackwell", "engine": {"speculative": {**MTP3["speculative"], "parallel_drafting": True}}}, 7),
        ({"model": "no_attention"}, 1),
    ],
)
def test_decode_threshold(args: dict[str, Any], threshold: int) -> None:
    assert settings(**args).decode_threshold == threshold


def test_no_spec_decode_on_cutlass() -> None:
    engine = {**MTP3, "attention_backend": "CUTLASS_MLA"}
    assert settings("mla", "blackwell", tp=8, engine=engine).decode_threshold == 1


@pytest.mark.parametrize(
    ("quantization", "served"),
    [("", ""), ("fp8", "fp8"), ("modelopt_fp4", "nvfp4"), ("mxfp4", "mxfp4"), ("gptq_marlin", "int4"),
     ("int8_per_channel_weight_only", "int8")],
)  # fmt: skip
def test_served_dtype(quantization: str, served: str) -> None:
    found = settings(engine={"quantization": quantization})
    assert (found.quantization, found.served_dtype) == (quantization, served)


def test_a_checkpoint_format_serves_what_the_graph_states() -> None:
    mixed = graph_of([{**MODELS["gqa"][1], "weight_dtype": "nvfp4"}, GQA])
    assert settings(mixed, engine={"quantization": "modelopt_mixed"}).served_dtype == ""


@pytest.mark.parametrize(
    ("stated", "backend", "sequence_parallel"),
    [
        ("allgather_reducescatter", "allgather_reducescatter", True),
        ("deepep_low_latency", "deepep_low_latency", True),
        ("nixl_ep", "nixl_ep", True),
        ("flashinfer_nvlink_two_sided", "flashinfer_nvlink_two_sided", False),
        ("naive", "allgather_reducescatter", True),
        ("", "allgather_reducescatter", True),
    ],
)
def test_all_to_all(stated: str, backend: str, sequence_parallel: bool) -> None:
    found = settings("mla", tp=4, dp=2, ep=True, engine={"all2all_backend": stated})
    assert (found.all2all_backend, found.sequence_parallel_moe) == (backend, sequence_parallel)


@pytest.mark.parametrize(
    "args", [{"tp": 8, "ep": True}, {"tp": 1, "dp": 8, "ep": True}, {"tp": 4, "dp": 2}, {"tp": 4, "pcp": 2, "ep": True}]
)
def test_sequence_parallel_experts_need_all_three(args: dict[str, Any]) -> None:
    assert not settings("mla", engine={"all2all_backend": "deepep_low_latency"}, **args).sequence_parallel_moe


def test_a_dense_model_has_no_all_to_all() -> None:
    assert settings("gqa", tp=4, dp=2, engine={"all2all_backend": "deepep_v2"}).all2all_backend == ""


@pytest.mark.parametrize(
    ("method", "runner", "asynchronous"),
    [
        ("ngram", "v1", False),
        ("ngram_gpu", "v1", True),
        ("suffix", "v1", False),
        ("medusa", "v1", False),
        ("eagle", "v2", True),
        ("eagle3", "v2", True),
        ("mtp", "v2", True),
        ("deepseek_mtp", "v2", True),
        ("draft_model", "v2", True),
        ("dflash", "v2", True),
        ("dspark", "v2", True),
    ],
)
def test_a_draft_method_decides_runner_and_async(method: str, runner: str, asynchronous: bool) -> None:
    found = settings(engine={"speculative": {"method": method, "num_spec_tokens": 2, "draft": "small"}})
    assert (found.runner, found.async_scheduling) == (runner, asynchronous)
    assert (found.spec_method, found.spec_tokens, found.spec_draft) == (method, 2, "small")
    assert found.parallel_drafting == (method in ("dflash", "dspark"))


def test_parallel_drafting_is_kept() -> None:
    spec = {"method": "eagle3", "num_spec_tokens": 4, "parallel_drafting": True}
    found = settings(engine={"speculative": spec})
    assert (found.parallel_drafting, found.runner) == (True, "v1")


def test_graphs_off_have_no_ceiling() -> None:
    assert settings(engine={"cudagraph_mode": "NONE"}).capture_ceiling == 0
    assert settings(engine={"max_cudagraph_capture_size": 300}).capture_ceiling == 300


@pytest.mark.parametrize(
    ("engine", "chunk"),
    [
        ({}, 65536),
        ({"max_model_len": 4096, "max_num_seqs": 64}, 32768),
        ({"max_model_len": 64, "max_num_seqs": 64}, 4096),
        ({"max_model_len": 131072, "max_num_seqs": 64}, 65536),
        ({"block_size": 48, "max_model_len": 1000, "max_num_seqs": 1}, 8016),  # whole blocks
        ({"block_size": 48, "cp_kv_cache_interleave_size": 48, "max_model_len": 1000, "max_num_seqs": 1}, 8064),
    ],
)
def test_context_chunk(engine: dict[str, Any], chunk: int) -> None:
    assert settings("mla", tp=8, dcp=8, engine=engine).mla_context_chunk == chunk


def test_no_context_chunk_without_a_latent_cache_or_dcp() -> None:
    assert settings("mla", tp=8).mla_context_chunk == 0
    assert settings("wide_gqa", tp=8, dcp=2).mla_context_chunk == 0


def test_cascade_attention_only_when_asked_for() -> None:
    assert not settings().cascade_attention
    assert settings(engine={"disable_cascade_attn": False}).cascade_attention
    asked = {"disable_cascade_attn": False, "speculative": {"method": "ngram", "num_spec_tokens": 2}}
    assert settings(engine=asked).cascade_attention  # not asynchronous


def test_recurrent_settings() -> None:
    found = settings("gdn", engine={"mamba_cache_dtype": "bfloat16", "mamba_ssm_cache_dtype": "float32"})
    assert (found.mamba_cache_dtype, found.mamba_ssm_cache_dtype) == ("bfloat16", "float32")
    assert found.mamba_cache_mode == "align"
    assert settings("gqa").mamba_cache_mode == ""
    assert settings("mamba", engine={"mamba_cache_mode": "all"}).runner == "v1"


def test_passes_through_what_nothing_decides() -> None:
    engine = {
        "moe_backend": "triton",
        "synchronous_host": True,
        "kv_cache_memory_bytes": 1 << 33,
        "max_model_len": 8192,
    }
    found = settings(engine=engine)
    assert (found.moe_backend, found.synchronous_host) == ("triton", True)
    assert (found.kv_cache_memory_bytes, found.max_model_len) == (1 << 33, 8192)


def test_hybrid_manager() -> None:
    assert settings("window").hybrid_kv_cache_manager
    assert settings("window", engine={"disable_hybrid_kv_cache_manager": False}).hybrid_kv_cache_manager
    assert not settings("gqa", engine={"disable_hybrid_kv_cache_manager": True}).hybrid_kv_cache_manager


def test_redundant_experts() -> None:
    eplb = {"enable_eplb": True, "num_redundant_experts": 32}
    assert settings("mla", tp=8, ep=True, engine={"eplb": eplb}).redundant_experts == 32


def test_a_hybrid_is_spared_the_stripe_check() -> None:
    engine = {"cp_kv_cache_interleave_size": 32}
    assert settings("mla_gdn", tp=8, dcp=8, engine=engine).interleave == 32


def test_nixl_on_blocks_of_one_token_changes_nothing() -> None:
    found = resolve(bundle_of("no_attention", tp=8, dcp=8, offload="NixlConnector", engine={"block_size": 1}))
    assert found.settings.interleave == 1
    assert found.ledger.overrides == []


@pytest.mark.parametrize(
    ("stated", "rates", "expected"),
    [
        (10.3, {}, (10, 3)),
        (8.9, {}, (8, 9)),
        (None, {"TFlopsFP8": 1979, "TFlopsNVFP4": 4000}, (10, 0)),
        (None, {"TFlopsFP8": 1979}, (9, 0)),
        (None, {}, (8, 0)),
    ],
)
def test_compute_capability(stated: float | None, rates: dict[str, float], expected: tuple[int, int]) -> None:
    chip = {**CHIPS["ampere"], "TFlopsPeak": 989, **rates}
    if stated:
        chip["ComputeCapability"] = stated
    assert resolve(bundle_of(chip=chip)).compute_capability == expected


def test_resolved_names_widths_and_choices() -> None:
    found = resolved(resolve(bundle_of("mla", tp=4, dp=2, ep=True, engine={"all2all_backend": "deepep_low_latency"})))
    assert {key: found[key] for key in ("tp", "pp", "dp", "ep", "pcp", "dcp")} == {
        "tp": 4, "pp": 1, "dp": 2, "ep": 8, "pcp": 1, "dcp": 1,
    }  # fmt: skip
    assert found["attention_backend"] == "FLASH_ATTN_MLA"
    assert found["overrides"] == []


def test_the_backend_table_is_consistent() -> None:
    for major in (8, 9, 10, 12):
        names = [*backends.dense_order(major), *backends.latent_order(major)]
        names += [
            name for heads in (16, 64) for q in (False, True) for name in backends.sparse_order(major, heads, q, 576)
        ]
        assert set(names) <= set(backends.BACKENDS)
    assert all(backend.majors and backend.blocks and backend.source for backend in backends.BACKENDS.values())
