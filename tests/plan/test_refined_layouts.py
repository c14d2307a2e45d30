"""What refined plans charge for layouts: which collective of which law, its bytes, its link, and what is recorded."""

from __future__ import annotations

from typing import Any

import pytest

import steppe
from steppe import Batch
from steppe.catalog import Catalog
from steppe.documents import Law, load_coefficient_set


def law(part: str, family: str, key: str) -> Law:
    found = load_coefficient_set(Catalog(None).root / "coefficients" / f"{part}-refined.json")
    return next(each for each in found.laws if (each.law, each.key) == (family, key))


def build(**deployment: Any) -> steppe.Kernel:
    return steppe.Kernel.build(**deployment)


def terms(kernel: steppe.Kernel, name: str) -> list[Any]:
    found = [term for term in kernel._core.plan.terms if term.name == name]
    assert found, f"no term {name!r}"
    return found


def link(term: Any) -> str:
    return str(term.resource).split(".")[1]


def assumed(kernel: steppe.Kernel) -> dict[str, Any]:
    return {each["name"]: each["value"] for each in kernel.provenance()["assumptions"]}


MOE = {"model": "qwen3-235b-a22b-fp8", "hardware": "h200"}
HIDDEN, EXPERTS, TOP_K = 4096, 128, 8


def test_all_reduce_on_a_node_is_the_measured_curve_of_the_release() -> None:
    kernel = build(model="llama-3.1-70b-instruct", hardware="h100", tp=4, engine_version="0.19.0")
    curve = law("h100", "all_reduce_curve", "0.19.0/4")
    (term,) = terms(kernel, "reduce_mixer")
    assert (term.law, link(term)) == ("curve", "nvlink")
    assert term.params[0] == 2 * 8192
    assert term.params[6::2] == [float(each) for each in curve.params["bytes"]]
    assert term.params[7::2] == [float(each) for each in curve.params["us"]]
    assert "all_reduce_lane" not in assumed(kernel)


def test_a_release_that_was_not_measured_takes_the_next_one_that_was() -> None:
    kernel = build(model="llama-3.1-70b-instruct", hardware="h100", tp=4, engine_version="0.15.2")
    assert assumed(kernel)["all_reduce_lane"] > "0.15"
    newest = build(model="llama-3.1-70b-instruct", hardware="h100", tp=4, engine_version="0.99.0")
    assert assumed(newest)["all_reduce_lane"] == max(
        key.split("/")[0]
        for key in (each.key for each in load_coefficient_set(
            Catalog(None).root / "coefficients" / "h100-refined.json").laws if each.law == "all_reduce_curve")
        if key.endswith("/4")
    )  # fmt: skip


def test_without_the_custom_kernel_nccl_reduces() -> None:
    kernel = build(model="llama-3.1-70b-instruct", hardware="h100", tp=4, disable_custom_all_reduce=True)
    nccl = law("h100", "collective", "nccl/all_reduce/4").params
    (term,) = terms(kernel, "reduce_mixer")
    assert (term.law, link(term)) == ("two_protocol", "nvlink")
    assert term.params == [2.0 * 8192, *(float(nccl[name]) for name in ("a1", "R1", "a2", "R2"))]


def test_a_group_over_two_nodes_crosses_by_the_share_of_its_hops() -> None:
    """16 ranks of 8 a node: one hop of 15 crosses, at the network's rate; the time is the network card's."""
    kernel = build(model="llama-3.1-70b-instruct", hardware="h100", tp=16, fabric="ib-ndr-400")
    chip, fabric = Catalog(None).chip("h100"), Catalog(None).fabric("ib-ndr-400")
    ratio = chip.intra_node_bw_gbps / fabric.inter_node_bw_gbps
    (term,) = terms(kernel, "reduce_mixer")
    assert (term.law, link(term)) == ("two_protocol", "nic")
    assert term.params[0] == pytest.approx(2 * 8192 * (1 + (ratio - 1) / 15))
    assert kernel.step_time(Batch([1], [9])).per_resource["nic"] > 0


def test_widths_that_were_not_measured_take_the_next_wider() -> None:
    kernel = build(model="llama-3.1-70b-instruct", hardware="h100", tp=16, fabric="ib-ndr-400")
    names = {name for name in assumed(kernel) if name.startswith("collective:nccl/")}
    assert {"collective:nccl/all_reduce/16", "collective:nccl/all_gather/16"} <= names


def test_rows_are_gathered_for_experts_and_summed_back() -> None:
    kernel = build(**MOE, dp=4, enable_expert_parallel=True)
    (dispatch,), (combine,) = terms(kernel, "dispatch gather"), terms(kernel, "combine scatter")
    assert dispatch.params[0] == HIDDEN * (1 + 4 / 128) + 4 * EXPERTS
    assert combine.params[0] == 2 * HIDDEN
    gather = law("h200", "collective", "nccl/all_gather/4").params
    assert dispatch.params[1] == gather["a1"]


def test_rows_sent_point_to_point_go_once_to_each_other_rank() -> None:
    """8 draws from 4 ranks reach (1 - (3/4)^8) of the three others."""
    kernel = build(**MOE, dp=4, enable_expert_parallel=True, all2all_backend="flashinfer_nvlink_two_sided")
    (dispatch,), (combine,) = terms(kernel, "dispatch"), terms(kernel, "combine")
    copies = 3 * (1 - 0.75**TOP_K)
    assert dispatch.params[0] == pytest.approx(HIDDEN * (1 + 4 / 128) * copies)
    assert combine.params[0] == pytest.approx(2 * HIDDEN * copies)


@pytest.mark.parametrize(
    ("backend", "kind"), [("deepep_high_throughput", "deepep_ht"), ("deepep_low_latency", "deepep_ll")]
)
def test_deepep_by_its_own_law_where_it_is_measured(backend: str, kind: str) -> None:
    kernel = build(model="deepseek-r1", hardware="h200", dp=8, enable_expert_parallel=True, all2all_backend=backend)
    found = load_coefficient_set(Catalog(None).root / "coefficients" / "h200-refined.json").laws
    measured = [each.key for each in found if each.law == "moe_exchange" and each.key.endswith("/dispatch/default/8")]
    if not measured:
        pytest.skip("no measured exchange over eight ranks on this part")
    (term,) = terms(kernel, "dispatch")
    assert term.law == "affine"
    p = next(each.params for each in found if each.law == "moe_exchange" and each.key == term_key(backend, measured))
    assert term.params[0] == pytest.approx(1e-6 * float(p["a"]))
    far = 7 * (1 - (7 / 8) ** 8) if p["once_a_rank"] else 8 * 7 / 8
    assert term.params[1] == pytest.approx(1e-6 * (p["c"] + 7168 * p["bytes"] * far / p["R"]))


def term_key(backend: str, measured: list[str]) -> str:
    """The measured key of a backend."""
    from steppe.plan.refined_collectives import EXCHANGES

    return next(key for key in measured if key.startswith(f"{EXCHANGES[backend]}/"))


def test_sequence_parallel_experts_gather_their_rows_instead_of_a_sum() -> None:
    kernel = build(**MOE, tp=2, dp=2, enable_expert_parallel=True)
    assert kernel.resolved()["sequence_parallel_moe"] is True
    (gather,) = terms(kernel, "sequence-parallel gather")
    assert gather.params[0] == 2 * HIDDEN
    assert not [term for term in kernel._core.plan.terms if term.name == "reduce_mlp"]
    assert terms(kernel, "reduce_mixer")


def test_fused_all_reduce_and_norm_skip_the_dispatch_step() -> None:
    """On data-centre Blackwell, up to the fusion's limit, the curve is capped by the smooth fit."""
    fused = build(model="llama-3.1-70b-instruct-fp8", hardware="b200", tp=8)
    apart = build(model="llama-3.1-70b-instruct-fp8", hardware="b200", tp=8, fuse_allreduce_rms=False)
    (with_limit,), (without,) = terms(fused, "reduce_mixer"), terms(apart, "reduce_mixer")
    assert with_limit.params[1] == 2**20
    assert without.params[1] == 0
    steps = [fused.step_time(Batch([1] * rows, [100] * rows)).no_overlap for rows in (16, 32)]
    others = [apart.step_time(Batch([1] * rows, [100] * rows)).no_overlap for rows in (16, 32)]
    assert all(a <= b for a, b in zip(steps, others, strict=True))


def test_synchronous_host_pays_a_step_and_each_request() -> None:
    plain, waits = (build(model="qwen3-32b", hardware="h100", tp=2, synchronous_host=flag) for flag in (False, True))
    for requests in (1, 7, 64):
        batch = Batch([1] * requests, [100] * requests)
        difference = waits.step_time(batch).per_resource["host"] - plain.step_time(batch).per_resource["host"]
        assert difference == pytest.approx(1_000_000 + 36_000 * requests, abs=2)
    assert "synchronous_host" in assumed(waits)


def test_stated_experts_kernel_is_priced_or_its_stand_in_recorded() -> None:
    exact = build(model="gpt-oss-120b", hardware="h200", tp=2, moe_backend="w4a16_mxfp4/oaitriton")
    names = {each["name"] for each in exact.provenance()["coefficients"]}
    assert "moe:w4a16_mxfp4/oaitriton" in names
    other = build(model="minimax-m2.5", hardware="h200", tp=4, moe_backend="flashinfer_trtllm")
    assert assumed(other)["moe_backend"].startswith("fp8_block/")


def test_weights_without_a_law_of_their_own_take_a_neighbours_arithmetic_and_their_own_bytes() -> None:
    whole = build(model="qwen2.5-7b-instruct", hardware="h100")
    awq = build(model="qwen2.5-7b-instruct-awq", hardware="h100")
    names = ("n", "k", "w_bytes")
    from steppe._core import LAWS

    at = {name: LAWS["gemm"][0].index(name) for name in names}
    (full,), (four,) = terms(whole, "qkv"), terms(awq, "qkv")
    assert [four.params[at[name]] for name in ("n", "k")] == [full.params[at[name]] for name in ("n", "k")]
    assert full.params[at["w_bytes"]] == 2.0
    assert four.params[at["w_bytes"]] == 0.5625  # two bytes of scale for 32 values
    batch = Batch([1] * 4, [100] * 4)
    assert awq.step_time(batch).no_overlap < whole.step_time(batch).no_overlap


def test_reference_sets_price_refined_models_too() -> None:
    """A part's reference set alone: the same graph, the laws of the reference, no term of a fitted family."""
    kernel = build(model="qwen3-32b", hardware="h100", tp=4, coefficients=["h100-reference", "h100-engine"])
    laws = {term.law for term in kernel._core.plan.terms}
    assert laws <= {"affine", "two_piece", "touched_experts", "ramped_prefill", "both", "host_launch", "context_gather"}
    assert kernel.step_time(Batch([1] * 8, [100] * 8)).no_overlap > 0
