"""Exact relations: one number changed moves exactly the step times that rest on it, by exactly what the law says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import made_documents as made
import pytest
from made_documents import Setup, kernel, setup

import steppe
from steppe import Batch

DECODE = Batch([1] * 8, [500 * i for i in range(1, 9)])
PREFILL = Batch([700, 50], [0, 300])
MIXED = Batch([1, 1, 1, 640], [900, 80, 5000, 200])
BATCHES = {"decode": DECODE, "prefill": PREFILL, "mixed": MIXED}
RESOURCES = ("sm", "hbm", "nvlink", "nic", "host")


def moved(before: Setup, after: Setup, batch: Batch) -> dict[str, int]:
    """Nanoseconds each resource gained; resources that did not move are left out."""
    old, new = kernel(before).step_time(batch).per_resource, kernel(after).step_time(batch).per_resource
    return {name: new[name] - old[name] for name in RESOURCES if abs(new[name] - old[name]) > 1}


def terms(s: Setup, batch: Batch) -> dict[str, float]:
    """Nanoseconds of every term of a step by stage and name, unrounded."""
    out: dict[str, float] = {}
    for stage, name, _, own, hbm, _, _ in kernel(s).step_time(batch).rows:
        out[f"{stage}: {name}"] = out.get(f"{stage}: {name}", 0.0) + own + hbm
    return out


def ratios(before: Setup, after: Setup, batch: Batch) -> dict[str, float]:
    """How much every term that moved grew; terms that did not are left out."""
    old, new = terms(before, batch), terms(after, batch)
    assert old.keys() == new.keys()
    return {k: new[k] / old[k] for k in old if abs(new[k] - old[k]) > 1e-9 * abs(old[k])}


def near(got: float, want: float) -> bool:
    return abs(got - want) <= 2 + 1e-9 * abs(want)


# -- arithmetic and memory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_efficiency_divides_every_product_and_nothing_else(batch: Batch) -> None:
    s = setup("mixture")
    eps = s.numbers["gemm_eps_max_bf16"]
    faster = ratios(s, s.number(gemm_eps_max_bf16=eps * 2), batch)
    products = {"q+k+v", "out", "router", "experts", "shared experts", "lm_head"}
    assert {name.split(": ")[1] for name in faster} - {"attention prefill"} == products
    for name, ratio in faster.items():
        if "attention" not in name:
            assert ratio == pytest.approx(0.5)
    assert ("full_moe: attention prefill" in faster) == (batch is not DECODE)


def test_half_saturation_adds_its_rows_to_every_product() -> None:
    s = setup("plain")
    half, m = s.numbers["gemm_m_half_bf16"], 690
    grown = ratios(s, s.number(gemm_m_half_bf16=half + 100), Batch([m], [0]))
    assert grown["head: lm_head"] == pytest.approx((m + half + 100) / (m + half))
    assert grown["full_dense: qkv"] == pytest.approx((m + half + 100) / (m + half))
    assert set(moved(s, s.number(gemm_m_half_bf16=half + 100), DECODE)) == {"sm"}


@pytest.mark.parametrize("suffix", ["n", "k"])
def test_shape_ramp_costs_half_extents_a_product(suffix: str) -> None:
    plain, ramped = setup("plain", tp=4), setup("plain", shape=True, tp=4)
    other = {"n": "k", "k": "n"}[suffix]
    ramped = ramped.number(**{f"gemm_{other}_half_bf16": 1e-9})
    half = ramped.numbers[f"gemm_{suffix}_half_bf16"]
    grown = ratios(plain, ramped, DECODE)
    shapes = {"qkv": (2560 / 4, 1536), "out": (1536, 1536 / 4), "gate_up": (8192 / 4, 1536), "down": (1536, 4096 / 4)}
    assert set(grown) == {f"full_dense: {name}" for name in shapes}  # the head keeps the token ramp
    for name, shape in shapes.items():
        extent = shape["nk".index(suffix)]
        assert grown[f"full_dense: {name}"] == pytest.approx((extent + half) / extent, rel=1e-6)


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_hbm_derate_divides_weights_and_norms_not_measured_reads(batch: Batch) -> None:
    s = setup("mixture")
    slower = ratios(s, s.number(hbm_derate=s.numbers["hbm_derate"] / 2), batch)
    assert all(ratio == pytest.approx(2) for ratio in slower.values())
    names = {name.split(": ")[1] for name in slower}
    assert {"norm_in", "norm_mid", "q weights", "experts weights", "shared experts weights", "lm_head weights"} <= names
    assert not any("attention" in name for name in names)
    assert set(moved(s, s.number(hbm_derate=s.numbers["hbm_derate"] / 2), batch)) == {"hbm"}


def test_memory_rate_of_the_part_does_what_its_derate_does() -> None:
    s = setup("mixture")
    chip = {**s.chip, "BwPeakTBs": s.chip["BwPeakTBs"] / 2}
    halved = s.number(hbm_derate=s.numbers["hbm_derate"] / 2)
    assert kernel(replace(s, chip=chip)).step_time(MIXED).no_overlap == kernel(halved).step_time(MIXED).no_overlap


def test_imbalance_scales_routed_arithmetic_alone() -> None:
    s = setup("mixture")
    grown = ratios(s, s.number(moe_routing_imbalance_median=s.numbers["moe_routing_imbalance_median"] * 1.5), MIXED)
    assert grown == {"full_moe: experts": pytest.approx(1.5)}


# -- attention ---------------------------------------------------------------------------------------------------------

ATTENTION = [
    ("plain", "attention_decode", {"full_dense": 21}),
    ("windows", "attention_decode", {"far": 9}),
    ("windows", "attention_decode_{}_swa", {"near": 19}),
    ("latent", "attention_decode_{}_mla", {"latent_dense": 2, "latent_moe": 31}),
    ("indexed", "attention_decode_{}_sparse_mla", {"indexed_dense": 1, "indexed_moe": 25}),
]


def decode_name(pattern: str, what: str) -> str:
    return pattern.format(what) if "{}" in pattern else f"{pattern}_{what}"


@pytest.mark.parametrize(("model", "pattern", "layers"), ATTENTION)
def test_decode_floor_is_paid_once_a_layer_of_its_kind(model: str, pattern: str, layers: dict[str, int]) -> None:
    s = setup(model)
    name = decode_name(pattern, "floor")
    more = s.number(**{name: s.numbers[name] + 2.0})
    gained = moved(s, more, DECODE)
    assert set(gained) == {"hbm"}
    assert near(gained["hbm"], 2000 * sum(layers.values()))
    assert moved(s, more, Batch([900], [0])) == {}  # no decode, no floor


@pytest.mark.parametrize(("model", "pattern", "layers"), ATTENTION)
def test_decode_rate_divides_the_read_of_its_kind(model: str, pattern: str, layers: dict[str, int]) -> None:
    s = setup(model)
    name, floor = decode_name(pattern, "rate"), s.numbers[decode_name(pattern, "floor")] * 1e3
    half = s.number(**{name: s.numbers[name] / 2})
    old, new = terms(s, DECODE), terms(half, DECODE)
    changed = {key for key in old if abs(new[key] - old[key]) > 1}
    assert changed == {f"{stage}: attention decode" for stage in layers}
    for stage, count in layers.items():
        key = f"{stage}: attention decode"
        assert near(new[key] - floor * count, 2 * (old[key] - floor * count))


def test_index_scorer_pays_the_floor_of_its_own_kind() -> None:
    s = setup("indexed")
    more = s.number(attention_decode_floor=s.numbers["attention_decode_floor"] + 3.0)
    assert moved(s, more, DECODE) == {"hbm": pytest.approx(3000 * 26, abs=2)}


def test_prefill_floor_and_scale() -> None:
    s = setup("plain")
    more = s.number(attention_prefill_floor=s.numbers["attention_prefill_floor"] + 4.0)
    assert moved(s, more, PREFILL) == {"sm": pytest.approx(4000 * 21, abs=2)}
    assert moved(s, more, DECODE) == {}
    floor = s.numbers["attention_prefill_floor"] * 1e3 * 21
    half = s.number(attention_prefill_work_scale=s.numbers["attention_prefill_work_scale"] / 2)
    old, new = (terms(each, PREFILL)["full_dense: attention prefill"] for each in (s, half))
    assert near(new - floor, 2 * (old - floor))


@pytest.mark.parametrize("smaller", ["decode", "prefill"])
def test_mixed_step_pays_the_smaller_floor_once(smaller: str) -> None:
    """On a one-kernel backend; on data-centre Blackwell both floors are paid."""
    low, high = 2.0, 11.0
    floors = (low, high) if smaller == "decode" else (high, low)
    for part, credit in (("part-nine", low), ("part-ten", 0.0)):
        s = setup("plain", part).number(attention_decode_floor=floors[0], attention_prefill_floor=floors[1])
        free = s.number(attention_decode_floor=0.0, attention_prefill_floor=0.0)
        gained = {"hbm": 0, "sm": 0} | moved(free, s, MIXED)
        assert gained == {
            "hbm": pytest.approx(1e3 * 21 * (floors[0] - (credit if smaller == "decode" else 0)), abs=2),
            "sm": pytest.approx(1e3 * 21 * (floors[1] - (credit if smaller == "prefill" else 0)), abs=2),
        }


def test_missing_attention_numbers_are_recorded_and_fall_back() -> None:
    s = setup("windows")
    kinds = s.without("attention_decode_rate_swa")
    wide = s.number(
        attention_decode_rate_swa=s.numbers["attention_decode_rate"],
        attention_decode_floor_swa=s.numbers["attention_decode_floor"],
    )
    assert kernel(kinds).step_time(DECODE).no_overlap == kernel(wide).step_time(DECODE).no_overlap
    none = s.without("attention_decode_rate", "attention_decode_rate_swa")
    built = kernel(none)
    assumed = {each["name"]: each for each in built.provenance()["assumptions"]}
    assert assumed["attention_decode_rate"]["value"] == "absent"
    rate = s.chip["BwPeakTBs"] * 1e12 * s.numbers["hbm_derate"]
    context = sum(DECODE.computed) + len(DECODE)
    read = terms(none, DECODE)["far: attention decode"]
    assert near(read, 9 * context * 2 * 8 * 64 * 2 / rate * 1e9)


# -- recurrent mixers, host, collectives -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "kind", "layers"), [("delta", "gdn", 21), ("scan", "mamba2", 7), ("keyed", "kda", 17)]
)
def test_recurrent_floor_and_rate(model: str, kind: str, layers: int) -> None:
    s = setup(model)
    floor, rate = f"recurrent_decode_floor_{kind}", f"recurrent_decode_rate_{kind}"
    for batch, rows in ((DECODE, 8), (PREFILL, 750), (MIXED, 643)):
        assert moved(s, s.number(**{floor: s.numbers[floor] + 1.0}), batch) == {
            "sm": pytest.approx(1000 * layers, abs=2)
        }
        slower = s.number(**{rate: s.numbers[rate] / 2})
        assert moved(s, slower, batch) == {"sm": pytest.approx(1e3 * layers * rows / s.numbers[rate], abs=2)}


@pytest.mark.parametrize(
    ("mode", "batch", "replays", "eager_layers"),
    [
        ("FULL", "decode", 1, 0), ("FULL", "mixed", 1, 0),
        ("PIECEWISE", "decode", 22, 0), ("PIECEWISE", "mixed", 22, 0),
        ("FULL_AND_PIECEWISE", "decode", 1, 0), ("FULL_AND_PIECEWISE", "mixed", 22, 0),
        ("FULL_DECODE_ONLY", "decode", 1, 0), ("FULL_DECODE_ONLY", "mixed", 0, 21),
        ("NONE", "decode", 0, 21), ("NONE", "mixed", 0, 21),
    ],
)  # fmt: skip
def test_host_terms_by_graph_mode(mode: str, batch: str, replays: int, eager_layers: int) -> None:
    s = setup("plain").run_with(cudagraph_mode=mode)
    small = Batch([1, 1, 1, 40], [900, 80, 5000, 200])
    step = DECODE if batch == "decode" else small
    more = s.number(host_replay_graph_per_step=s.numbers["host_replay_graph_per_step"] + 1)
    assert near(moved(s, more, step).get("host", 0), 1000 * replays)
    more = s.number(host_launch_eager_per_layer=s.numbers["host_launch_eager_per_layer"] + 1)
    assert near(moved(s, more, step).get("host", 0), 1000 * eager_layers)
    more = s.number(host_launch_per_kernel=s.numbers["host_launch_per_kernel"] + 1)
    # qkv, out, gate_up, down, two norms, two of attention a layer; a norm and a product in the head
    assert moved(s, more, step) == {"host": pytest.approx(1000 * (21 * 8 + 2), abs=2)}


def test_an_empty_step_costs_its_replay_alone() -> None:
    for mode, replays, layers in (("FULL", 1, 0), ("PIECEWISE", 22, 0), ("FULL_AND_PIECEWISE", 1, 0), ("NONE", 0, 21)):
        s = setup("plain").run_with(cudagraph_mode=mode)
        estimate = kernel(s).step_time(Batch([], []))
        want = replays * s.numbers["host_replay_graph_per_step"] + layers * s.numbers["host_launch_eager_per_layer"]
        assert estimate.per_resource == {**dict.fromkeys(RESOURCES, 0), "host": estimate.no_overlap}
        assert near(estimate.no_overlap, want * 1e3)
        assert estimate.overlap == estimate.no_overlap
        assert estimate.tokens == 0


@pytest.mark.parametrize(
    ("engine", "part", "ceiling"),
    [
        ({"max_num_seqs": 64}, "part-nine", 128),
        ({"max_num_seqs": 1000}, "part-nine", 512),
        ({"max_num_seqs": 1000}, "part-ten", 1024),
        ({"max_num_seqs": 64, "speculative": {"method": "ngram", "num_spec_tokens": 2}}, "part-nine", 384),
        ({"max_num_seqs": 100, "max_num_batched_tokens": 150}, "part-nine", 150),
        ({"max_cudagraph_capture_size": 40}, "part-nine", 40),
        ({"cudagraph_mode": "NONE"}, "part-nine", 0),
    ],
)
def test_steps_above_the_capture_ceiling_run_eagerly(engine: dict[str, Any], part: str, ceiling: int) -> None:
    s = setup("plain", part).run_with(**engine)
    built = kernel(s)
    assert built.resolved()["capture_ceiling"] == ceiling
    more = kernel(s.number(host_launch_eager_per_layer=s.numbers["host_launch_eager_per_layer"] + 1))

    def eager(tokens: int) -> bool:
        step = Batch([tokens], [0])
        return more.step_time(step).per_resource["host"] != built.step_time(step).per_resource["host"]

    assert eager(ceiling + 1)
    if ceiling:
        assert not eager(ceiling)


def test_speculative_width_decides_what_uniform_is() -> None:
    s = setup("plain").run_with(speculative={"method": "ngram", "num_spec_tokens": 3})
    replay = s.numbers["host_replay_graph_per_step"] * 1e3
    built = kernel(s)
    host = {
        name: built.step_time(Batch(scheduled, [100] * len(scheduled), decode_threshold=4)).per_resource["host"]
        for name, scheduled in {"uniform": [4, 4, 4], "narrow": [1, 1, 1], "ragged": [4, 4, 3]}.items()
    }
    assert near(host["narrow"] - host["uniform"], 21 * replay)
    assert host["ragged"] == host["narrow"]


COLLECTIVES = [
    ("all_reduce", "plain", {"tp": 4}, 4, 2 * 21),
    ("alltoall", "mixture", {"tp": 2, "dp": 2, "enable_expert_parallel": True}, 4, 27),
    ("all_gather", "latent", {"tp": 4, "dcp": 4}, 4, 2 * 33),
    ("reduce_scatter", "latent", {"tp": 4, "dcp": 4}, 4, 33),
]


@pytest.mark.parametrize(("op", "model", "layout", "ranks", "count"), COLLECTIVES)
def test_collective_floor_is_paid_by_each(op: str, model: str, layout: dict[str, Any], ranks: int, count: int) -> None:
    s = setup(model, **layout)
    name = f"collective_floor_{op}_fp16_{ranks}rank_part_nine"
    assert moved(s, s.number(**{name: s.numbers[name] + 1.0}), DECODE) == {"nvlink": pytest.approx(1000 * count, abs=2)}


@pytest.mark.parametrize(("op", "model", "layout", "ranks", "count"), COLLECTIVES)
def test_collective_is_the_slower_of_two_pieces(
    op: str, model: str, layout: dict[str, Any], ranks: int, count: int
) -> None:
    s = setup(model, **layout)
    key = f"{op}_fp16_{ranks}rank_part_nine"
    slow_peak = s.number(**{f"collective_peak_rate_{key}": 1e-3})
    slow_both = slow_peak.number(**{f"collective_peak_rate_{key}": 0.5e-3})
    old, new = (kernel(each).step_time(DECODE).per_resource["nvlink"] for each in (slow_peak, slow_both))
    others = kernel(s.number(**{f"collective_floor_{key}": 0.0, f"collective_peak_rate_{key}": 1e30,
                                f"collective_transition_rate_{key}": 1e30})).step_time(DECODE)  # fmt: skip
    rest = others.per_resource["nvlink"]
    assert near(new - rest, 2 * (old - rest))  # far below the knee only the peak rate counts
    assert moved(slow_peak, slow_peak.number(**{f"collective_floor_{key}": 0.0}), DECODE) == {}


# -- layouts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_tensor_parallelism_divides_products_weights_and_norms(tp: int) -> None:
    one, many = terms(setup("plain"), PREFILL), terms(setup("plain", tp=tp), PREFILL)
    for name in ("qkv", "out", "gate_up", "down", "qkv weights", "down weights", "norm_in"):
        assert many[f"full_dense: {name}"] == pytest.approx(one[f"full_dense: {name}"] / tp)
    assert many["head: lm_head"] == pytest.approx(one["head: lm_head"] / tp)
    floor = setup("plain").numbers["attention_prefill_floor"] * 1e3 * 21
    key = "full_dense: attention prefill"
    assert many[key] - floor == pytest.approx((one[key] - floor) / tp)


def test_key_value_heads_are_copied_beyond_their_number() -> None:
    floor = setup("plain").numbers["attention_decode_floor"] * 1e3 * 21
    reads = {}
    for tp in (1, 2, 4, 8):
        s = setup("plain", tp=tp)
        for node in s.graph["layer_kinds"][0]["nodes"]:
            if node["op"] == "Attention":
                node["n_kv"] = 2
        reads[tp] = terms(s, DECODE)["full_dense: attention decode"] - floor
    assert reads[2] == pytest.approx(reads[1] / 2)
    assert reads[4] == pytest.approx(reads[2])
    assert reads[8] == pytest.approx(reads[2])


def test_experts_are_cut_without_and_dealt_with_expert_parallelism() -> None:
    big = Batch([512], [0])  # every expert is touched
    whole = terms(setup("mixture"), big)["full_moe: experts weights"]
    cut = terms(setup("mixture", tp=4), big)["full_moe: experts weights"]
    dealt = terms(setup("mixture", tp=4, enable_expert_parallel=True), big)["full_moe: experts weights"]
    assert cut == pytest.approx(whole / 4)
    assert dealt == pytest.approx(whole * 15 / 60)


def test_data_parallel_ranks_meet_at_the_experts() -> None:
    """dp ranks' rows reach one rank's experts, of which it has a dp-th part; touched experts grow with all rows."""
    step = Batch([1] * 4, [100] * 4)
    apart = terms(setup("mixture"), step)
    spread = terms(setup("mixture", dp=4, enable_expert_parallel=True), step)
    assert spread["full_moe: experts"] == pytest.approx(apart["full_moe: experts"])
    touched = lambda rows: 1 - (54 / 60) ** rows  # noqa: E731
    ratio = touched(16) / touched(4) / 4
    assert spread["full_moe: experts weights"] == pytest.approx(apart["full_moe: experts weights"] * ratio)


def test_layers_count() -> None:
    s = setup("plain")
    more = setup("plain")
    more.graph["stack"]["repeat"] = 42
    old, new = terms(s, MIXED), terms(more, MIXED)
    for name, value in old.items():
        assert (
            new[name] == pytest.approx(value * (2 if name.startswith("full_dense") else 1)) or name == "host: launches"
        )


# -- settings of a step ------------------------------------------------------------------------------------------------


def test_sm_budget_slows_arithmetic_but_no_floor_and_no_mixer() -> None:
    s, sms = setup("delta"), 126
    for budget in (1, 63, 100, 125):
        slow = terms(s, Batch([1, 900], [50, 0], sm_budget=budget))
        full = terms(s, Batch([1, 900], [50, 0]))
        floor = s.numbers["attention_prefill_floor"] * 1e3 * 7
        for name, value in full.items():
            if any(part in name for part in ("weights", "norm", "mixer", "decode", "launch")):
                assert slow[name] == pytest.approx(value)
            elif "prefill" in name:
                assert slow[name] - floor == pytest.approx((value - floor) * sms / budget)
            else:
                assert slow[name] == pytest.approx(value * sms / budget), name


@pytest.mark.parametrize("budget", [0, 126, 127, 100000])
def test_a_budget_of_all_sms_changes_nothing(budget: int) -> None:
    built = kernel(setup("plain"))
    assert built.step_time(Batch([700], [0], sm_budget=budget)).no_overlap == built.step_time(PREFILL_ALONE).no_overlap


PREFILL_ALONE = Batch([700], [0])


def test_padding_adds_rows_to_layers_but_no_requests() -> None:
    s = setup("mixture", tp=2)
    plain, padded = terms(s, DECODE), terms(s, Batch([1] * 8, [500 * i for i in range(1, 9)], pad_tokens=24))
    half = s.numbers["gemm_m_half_bf16"]
    assert padded["full_moe: out"] / plain["full_moe: out"] == pytest.approx((32 + half) / (8 + half))
    assert padded["full_moe: norm_in"] / plain["full_moe: norm_in"] == pytest.approx(4)
    assert padded["full_moe: attention decode"] == plain["full_moe: attention decode"]
    estimate = kernel(s).step_time(Batch([1] * 8, [9] * 8, pad_tokens=24))
    assert estimate.tokens == 8


def test_reference_experts_do_not_read_group_tokens() -> None:
    """`group_tokens` states the rows that meet at refined experts; the reference law multiplies this rank's by dp."""
    built = kernel(setup("mixture", dp=2, enable_expert_parallel=True))
    assert built.step_time(Batch([1], [9], group_tokens=500)).no_overlap == built.step_time(Batch([1], [9])).no_overlap


def test_group_tokens_are_the_rows_refined_experts_run() -> None:
    built = steppe.Kernel.build(model="qwen3-30b-a3b", hardware="h100", dp=4, enable_expert_parallel=True)

    def experts(batch: Batch) -> int:
        return sum(term.ns for term in built.step_time(batch).terms if term.name == "experts")

    alone = Batch([1] * 16, [100] * 16)
    assert experts(alone) == experts(Batch([1] * 16, [100] * 16, group_tokens=64))
    assert experts(Batch([1] * 16, [100] * 16, group_tokens=4000)) > experts(alone)
    assert experts(Batch([1] * 16, [100] * 16, group_tokens=16)) < experts(alone)
    # a rank runs its own rows at least
    assert experts(Batch([1] * 16, [100] * 16, group_tokens=3)) == experts(Batch([1] * 16, [100] * 16, group_tokens=16))


def test_decode_threshold_moves_requests_between_the_two_attentions() -> None:
    built = kernel(setup("plain"))
    step = {"scheduled": [1, 4, 9], "computed": [50, 60, 70]}
    for threshold, decodes in ((0, 0), (1, 1), (3, 1), (4, 2), (8, 2), (9, 3), (10**6, 3)):
        rows = built.step_time(Batch(**step, decode_threshold=threshold)).rows
        read = next(own + hbm for _, name, _, own, hbm, _, _ in rows if name == "attention decode")
        pairs = next(own for _, name, _, own, _, _, _ in rows if name == "attention prefill")
        assert (read > 0) == (decodes > 0)
        assert (pairs > 0) == (decodes < 3)


def test_pools_of_other_models_share_nothing() -> None:
    """A kernel is its documents' alone: building others beside it changes no price."""
    built = kernel(setup("plain"))
    before = built.step_time(MIXED).per_resource
    for model in made.MODELS:
        kernel(setup(model))
    assert built.step_time(MIXED).per_resource == before
