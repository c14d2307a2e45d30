"""Every refusal, beside a sibling that differs in the setting at fault only and builds."""

from __future__ import annotations

from typing import Any

import pytest
from resolve_cases import EXPERTS, GQA, MAMBA, MODELS, bundle_of, graph_of, long_model

from steppe.errors import DeploymentError
from steppe.resolve.choices import resolve
from steppe.resolve.rules import REFUSALS, Refused

EPLB = {"enable_eplb": True, "num_redundant_experts": 32}
DRAFT = {"method": "mtp", "num_spec_tokens": 1}
LONG = long_model(8192)
THREE_MODULES = graph_of(
    MODELS["mla"], speculator={"method": "mtp", "num_spec_tokens": 3, "stack": {"pattern": ["layer"], "repeat": 3}}
)
PCP_SPARSE = {"model": "dsa64", "tp": 4, "pcp": 2, "dcp": 2}
SPARSE_DCP = {"model": "dsa", "tp": 8, "dcp": 4}
STATED_ALL = {"engine": {"cache_dtype": "fp8"}}

Case = tuple[str, dict[str, Any], dict[str, Any]]

CASES: list[Case] = [
    # (code, refused, sibling)
    ("heads_tp", {"tp": 3}, {"tp": 4}),
    ("heads_tp", {"model": graph_of([{**GQA, "n_q": 24, "n_kv": 6}]), "tp": 4},
     {"model": graph_of([{**GQA, "n_q": 24, "n_kv": 6}]), "tp": 3}),
    ("heads_tp", {"model": "gdn", "tp": 64, "nodes": 8}, {"model": "gdn", "tp": 32, "nodes": 8}),
    ("heads_tp", {"model": graph_of([{**MAMBA, "n_groups": 1, "n_heads": 12}, GQA]), "tp": 8},
     {"model": graph_of([{**MAMBA, "n_groups": 1, "n_heads": 12}, GQA]), "tp": 4}),
    ("mamba_groups_tp", {"model": "mamba", "tp": 16, "nodes": 2}, {"model": "mamba", "tp": 8, "nodes": 2}),
    ("experts_tp", {"model": graph_of([GQA, {**EXPERTS, "n": 1440}]), "tp": 4, "dp": 16, "nodes": 8},
     {"model": graph_of([GQA, {**EXPERTS, "n": 1440}]), "tp": 4, "dp": 16, "nodes": 8, "ep": True}),
    ("ep_dense", {"tp": 2, "ep": True}, {"tp": 2}),
    ("ep_width", {"model": graph_of([GQA, {**EXPERTS, "experts": 60}]), "tp": 4, "dp": 16, "nodes": 8, "ep": True},
     {"model": graph_of([GQA, {**EXPERTS, "experts": 64}]), "tp": 4, "dp": 16, "nodes": 8, "ep": True}),
    ("eplb_without_ep", {"model": "mla", "tp": 8, "engine": {"eplb": EPLB}},
     {"model": "mla", "tp": 8, "ep": True, "engine": {"eplb": EPLB}}),
    ("redundant_without_eplb",
     {"model": "mla", "tp": 8, "ep": True, "engine": {"eplb": {"enable_eplb": False, "num_redundant_experts": 32}}},
     {"model": "mla", "tp": 8, "ep": True, "engine": {"eplb": {"enable_eplb": False}}}),
    ("eplb_uneven",
     {"model": "mla", "tp": 8, "ep": True, "engine": {"eplb": {"enable_eplb": True, "num_redundant_experts": 30}}},
     {"model": "mla", "tp": 8, "ep": True, "engine": {"eplb": {"enable_eplb": True, "num_redundant_experts": 32}}}),
    ("pcp_dp", {"model": "mla", "tp": 2, "pcp": 2, "dp": 2}, {"model": "mla", "tp": 2, "pcp": 2, "dp": 1}),
    ("pcp_layers", {"model": "gqa", "tp": 4, "pcp": 2}, {"model": "mla", "tp": 4, "pcp": 2}),
    ("pcp_layers", {"model": "window", "tp": 4, "pcp": 2}, {"model": "window", "tp": 4}),
    ("pcp_layers", {"model": "mla_gdn", "tp": 4, "pcp": 2}, {"model": "mla_gdn", "tp": 4}),
    ("pcp_dcp_layers", {"model": "mla", "tp": 4, "pcp": 2, "dcp": 2}, {"model": "mla", "tp": 4, "pcp": 2}),
    ("pcp_a2a", {**PCP_SPARSE, "engine": {"cache_dtype": "fp8", "dcp_comm_backend": "a2a"}},
     {**PCP_SPARSE, "engine": {"cache_dtype": "fp8", "dcp_comm_backend": "ag_rs"}}),
    ("pcp_graph_full", {"model": "mla", "tp": 4, "pcp": 2, "engine": {"cudagraph_mode": "FULL"}},
     {"model": "mla", "tp": 4, "pcp": 2, "engine": {"cudagraph_mode": "FULL_DECODE_ONLY"}}),
    ("pcp_speculation", {"model": "mla", "tp": 4, "pcp": 2,
                         "engine": {"speculative": {"method": "eagle3", "num_spec_tokens": 1}}},
     {"model": "mla", "tp": 4, "pcp": 2, "engine": {"speculative": DRAFT}}),
    ("dcp_backend", {"model": "mla", "tp": 8, "dcp": 8, "engine": {"dcp_comm_backend": "ring"}},
     {"model": "mla", "tp": 8, "dcp": 8, "engine": {"dcp_comm_backend": "a2a"}}),
    ("dcp_kv_heads", {"model": "gqa", "tp": 8, "dcp": 2}, {"model": "wide_gqa", "tp": 8, "dcp": 2}),
    ("dcp_too_wide", {"model": "wide_gqa", "tp": 8, "dcp": 8}, {"model": "wide_gqa", "tp": 8, "dcp": 4}),
    ("dcp_query_groups", {"model": graph_of([{**GQA, "n_q": 24, "n_kv": 4}]), "tp": 24, "dcp": 4, "nodes": 3},
     {"model": graph_of([{**GQA, "n_q": 24, "n_kv": 4}]), "tp": 24, "dcp": 6, "nodes": 3}),
    ("interleave_block", {"model": "mla", "tp": 8, "dcp": 8,
                          "engine": {"block_size": 64, "cp_kv_cache_interleave_size": 24}},
     {"model": "mla", "tp": 8, "dcp": 8, "engine": {"block_size": 64, "cp_kv_cache_interleave_size": 16}}),
    ("interleave_block", {"model": "mla", "tp": 8, "dcp": 8, "engine": {"cp_kv_cache_interleave_size": 32}},
     {"model": "mla", "tp": 8, "dcp": 8, "pd": "NixlConnector", "engine": {"cp_kv_cache_interleave_size": 32}}),
    ("interleave_multi_connector", {"model": "mla", "tp": 8, "dcp": 8, "offload": "MultiConnector"},
     {"model": "mla", "tp": 8, "dcp": 8, "offload": "MultiConnector", "engine": {"cp_kv_cache_interleave_size": 16}}),
    ("sparse_part", {"model": "dsa", "tp": 8, "chip": "ampere"}, {"model": "dsa", "tp": 8, "chip": "hopper"}),
    ("sparse_part", {"model": "pooled", "tp": 8, "chip": "ampere"}, {"model": "pooled", "tp": 8, "chip": "blackwell"}),
    ("sparse_block", {"model": "dsa", "tp": 8, "engine": {"block_size": 16}},
     {"model": "dsa", "tp": 8, "engine": {"block_size": 128}}),
    ("sparse_backend", {"model": "dsa", "tp": 8, "engine": {"cache_dtype": "fp8_e5m2"}},
     {"model": "dsa", "tp": 8, "engine": {"cache_dtype": "fp8_e4m3"}}),
    ("sparse_backend", {"model": "dsa", "tp": 8, "engine": {"cache_dtype": "nvfp4_ds_mla"}},
     {"model": "dsa", "tp": 8, "chip": "blackwell", "engine": {"cache_dtype": "nvfp4_ds_mla"}}),
    ("sparse_backend", {"model": "dsa", "tp": 8, "dcp": 4, "engine": {"cache_dtype": "fp8_e4m3"}},
     {"model": "dsa", "tp": 8, "engine": {"cache_dtype": "fp8_e4m3"}}),
    ("flashmla_dcp_comm", {**SPARSE_DCP, "engine": {"cache_dtype": "fp8", "dcp_comm_backend": "a2a"}},
     {**SPARSE_DCP, "engine": {"cache_dtype": "fp8", "dcp_comm_backend": "ag_rs"}}),
    ("flashmla_dcp_cache", SPARSE_DCP, {**SPARSE_DCP, "engine": {"cache_dtype": "fp8"}}),
    ("flashmla_dcp_cache", {**PCP_SPARSE, "chip": "blackwell", "engine": {"cache_dtype": "nvfp4_ds_mla"}},
     {**PCP_SPARSE, "chip": "blackwell", "engine": {"cache_dtype": "fp8_ds_mla"}}),
    ("flashmla_dcp_heads", {"model": "dsa", "tp": 4, "dcp": 4, **STATED_ALL},
     {"model": "dsa", "tp": 8, "dcp": 4, **STATED_ALL}),
    ("flashmla_dcp_padding", {"model": "dsa", "tp": 8, "dcp": 8, **STATED_ALL},
     {"model": "dsa", "tp": 8, "dcp": 4, **STATED_ALL}),
    ("cache_dtype_unknown", {"engine": {"cache_dtype": "fp6"}}, {"engine": {"cache_dtype": "fp8"}}),
    ("cache_dtype_gaudi", {"engine": {"cache_dtype": "fp8_inc"}}, {"engine": {"cache_dtype": "fp8"}}),
    ("cache_ds_mla", {"engine": {"cache_dtype": "fp8_ds_mla"}}, {"engine": {"cache_dtype": "fp8"}}),
    ("cache_ds_mla", {"model": "mla", "tp": 8, "engine": {"cache_dtype": "fp8_ds_mla"}},
     {"model": "dsa", "tp": 8, "engine": {"cache_dtype": "fp8_ds_mla"}}),
    ("cache_nvfp4_latent", {"model": "mla", "tp": 8, "chip": "blackwell", "engine": {"cache_dtype": "nvfp4"}},
     {"model": "gqa", "tp": 8, "chip": "blackwell", "engine": {"cache_dtype": "nvfp4"}}),
    ("attention_backend", {"chip": "hopper", "engine": {"cache_dtype": "nvfp4"}},
     {"chip": "blackwell", "engine": {"cache_dtype": "nvfp4"}}),
    ("attention_backend", {"engine": {"block_size": 24}}, {"engine": {"block_size": 48}}),
    ("attention_backend_stated", {"engine": {"attention_backend": "FLASHMLA"}},
     {"engine": {"attention_backend": "FLASHINFER"}}),
    ("attention_backend_stated", {"engine": {"attention_backend": "XFORMERS"}}, {}),
    ("mamba_dtype", {"model": "gdn", "engine": {"mamba_cache_dtype": "fp8"}},
     {"model": "gdn", "engine": {"mamba_cache_dtype": "bfloat16"}}),
    ("mamba_dtype", {"model": "gdn", "engine": {"mamba_ssm_cache_dtype": "fp8"}},
     {"model": "gdn", "engine": {"mamba_ssm_cache_dtype": "float32"}}),
    ("graph_mode", {"engine": {"cudagraph_mode": "PIECES"}}, {"engine": {"cudagraph_mode": "PIECEWISE"}}),
    ("model_length", {"model": LONG, "engine": {"max_model_len": 8193}},
     {"model": LONG, "engine": {"max_model_len": 8192}}),
    ("tokens_below_seqs", {"engine": {"max_num_batched_tokens": 256, "max_num_seqs": 512}},
     {"engine": {"max_num_batched_tokens": 512, "max_num_seqs": 512}}),
    ("speculative_method", {"engine": {"speculative": {"method": "mlp_speculator", "num_spec_tokens": 2}}},
     {"engine": {"speculative": {"method": "medusa", "num_spec_tokens": 2}}}),
    ("spec_tokens_modules",
     {"model": THREE_MODULES, "tp": 8, "engine": {"speculative": {"method": "mtp", "num_spec_tokens": 4}}},
     {"model": THREE_MODULES, "tp": 8, "engine": {"speculative": {"method": "mtp", "num_spec_tokens": 6}}}),
    ("async_speculative",
     {"engine": {"async_scheduling": True, "speculative": {"method": "ngram", "num_spec_tokens": 2}}},
     {"engine": {"async_scheduling": True, "speculative": {"method": "ngram_gpu", "num_spec_tokens": 2}}}),
    ("runner_v1", {"model": "mla", "tp": 4, "pcp": 2, "engine": {"runner": "v1"}},
     {"model": "mla", "tp": 4, "pcp": 2, "engine": {"runner": "v2"}}),
    ("runner_v1", {"engine": {"runner": "v1", "speculative": {"method": "dspark", "num_spec_tokens": 4}}},
     {"engine": {"speculative": {"method": "dspark", "num_spec_tokens": 4}}}),
    ("runner_v2", {"model": "mamba", "engine": {"runner": "v2", "mamba_cache_mode": "all"}},
     {"model": "mamba", "engine": {"runner": "v1", "mamba_cache_mode": "all"}}),
    ("runner_v2", {"engine": {"runner": "v2", "speculative": {"method": "eagle3", "num_spec_tokens": 4,
                                                              "parallel_drafting": True}}},
     {"engine": {"runner": "v2", "speculative": {"method": "eagle3", "num_spec_tokens": 4}}}),
    ("runner_none", {"model": "mla", "tp": 4, "pcp": 2, "engine": {"dbo": {"enable_dbo": True}}},
     {"model": "mla", "tp": 4, "engine": {"dbo": {"enable_dbo": True}}}),
    ("pipeline", {"tp": 2, "pp": 2}, {"tp": 2, "pp": 1}),
    ("query_replicate", {"model": "mla", "tp": 8, "dcp": 8, "engine": {"dcp_q_replicate": True}},
     {"model": "mla", "tp": 8, "engine": {"dcp_q_replicate": True}}),
    ("query_replicate", {"model": "mla", "tp": 8, "dcp": 8, "engine": {"dcp_q_replicate": True}},
     {"model": "wide_gqa", "tp": 8, "dcp": 4, "engine": {"dcp_q_replicate": True}}),
    ("cache_scaled_slots", {"engine": {"cache_dtype": "turboquant_k8v4"}}, {"engine": {"cache_dtype": "fp8"}}),
    ("cache_scaled_slots", {"engine": {"cache_dtype": "int8_per_token_head"}}, {"engine": {"cache_dtype": "fp8"}}),
    ("quantization_unknown", {"engine": {"quantization": "quark"}}, {"engine": {"quantization": "fp8"}}),
    ("quantization_unknown", {"engine": {"quantization": "compressed-tensors"}},
     {"model": graph_of([GQA], dtype="int4"), "engine": {"quantization": "compressed-tensors"}}),
]  # fmt: skip

# Refused by the documents before a resolution sees them; the rows guard documents built in memory.
GUARDS = {"pool_index", "all2all_unknown", "dcp_tp", "dcp_width", "scheduling_policy", "mamba_mode"}


@pytest.mark.parametrize(("code", "refused", "sibling"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_refuses_beside_a_sibling_that_builds(code: str, refused: dict[str, Any], sibling: dict[str, Any]) -> None:
    with pytest.raises(Refused) as caught:
        resolve(bundle_of(**refused))
    error = caught.value
    assert error.code == code
    assert isinstance(error, DeploymentError)
    assert "{" not in str(error)
    assert error.setting in str(error)
    assert error.change in str(error)
    resolve(bundle_of(**sibling))


def test_every_refusal_has_a_case() -> None:
    assert {case[0] for case in CASES} | GUARDS == {rule.code for rule in REFUSALS}
    assert len({rule.code for rule in REFUSALS}) == len(REFUSALS)


def test_every_refusal_says_where_and_what_to_change() -> None:
    for rule in REFUSALS:
        assert rule.layer in ("engine", "unpriced")
        assert rule.setting
        assert rule.reason
        assert rule.change
        assert rule.source


def test_what_is_not_priced_yet_is_a_short_list() -> None:
    unpriced = [rule.code for rule in REFUSALS if rule.layer == "unpriced"]
    assert unpriced == ["pipeline", "query_replicate", "cache_scaled_slots", "quantization_unknown"]


@pytest.mark.parametrize("index", [-1, 1])
def test_a_pool_that_is_not_there(index: int) -> None:
    with pytest.raises(Refused, match="there is no pool") as caught:
        resolve(bundle_of(), index)
    assert caught.value.code == "pool_index"
    assert resolve(bundle_of(), 0).pool_index == 0


@pytest.mark.parametrize(
    ("code", "part", "key", "value", "good"),
    [
        ("all2all_unknown", "engine", "all2all_backend", "teleport", "deepep_low_latency"),
        ("scheduling_policy", "engine", "scheduling_policy", "lifo", "priority"),
        ("mamba_mode", "engine", "mamba_cache_mode", "sometimes", "align"),
        ("dcp_tp", "parallel", "dcp", 3, 4),
        ("dcp_width", "parallel", "dcp", 4, 8),
        ("speculative_method", "engine", "speculative", "guess", None),
    ],
)
def test_guards_for_documents_built_in_memory(code: str, part: str, key: str, value: Any, good: Any) -> None:
    pcp = 2 if code == "dcp_width" else 1
    model = "dsa64" if pcp > 1 else "mla"
    bundle = bundle_of(model, tp=4 if pcp > 1 else 8, pcp=pcp, engine={"cache_dtype": "fp8"})
    pool = bundle.deployment.pools[0]
    for stated, fails in ((value, True), (good, False)):
        if key == "speculative" and stated:
            spec = bundle_of(engine={"speculative": {"method": "ngram", "num_spec_tokens": 1}}).deployment.pools[0]
            stated = spec.engine.speculative.model_copy(update={"method": stated})  # type: ignore[union-attr]
        changed = getattr(pool, part).model_copy(update={key: stated})
        other = pool.model_copy(update={part: changed})
        deployment = bundle.deployment.model_copy(update={"pools": (other,)})
        altered = type(bundle)(**{**{f: getattr(bundle, f) for f in bundle.__slots__}, "deployment": deployment})
        if fails:
            with pytest.raises(Refused) as caught:
                resolve(altered)
            assert caught.value.code == code
        else:
            resolve(altered)
