"""What draft passes cost: the same laws as the target's forward, on the rows each pass runs."""

from __future__ import annotations

from typing import Any

import pytest
from drafting import REFERENCE, REFINED, dense_draft, draft_rows, graph, kernel

import steppe
from steppe.documents import ModelGraph

SETS = pytest.mark.parametrize("sets", [REFERENCE, REFINED], ids=["reference", "refined"])
STEP = steppe.Batch([4, 4, 100, 4], [500, 60, 30, 1200], decode_threshold=4)
DECODES = steppe.Batch([4] * 8, [700] * 8, decode_threshold=4)


def costs(estimate: Any, stage: str) -> dict[str, tuple[float, float]]:
    """(ns on its resource, ns bound by memory) of each term of a stage; terms of one name add up."""
    out: dict[str, tuple[float, float]] = {}
    for name, term, _, own, hbm, _, _ in estimate.rows:
        if name == stage:
            before = out.get(term, (0.0, 0.0))
            out[term] = (before[0] + own, before[1] + hbm)
    return out


def added(*each: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    return {term: (sum(e[term][0] for e in each), sum(e[term][1] for e in each)) for term in each[0]}


def same(a: dict[str, tuple[float, float]], b: dict[str, tuple[float, float]]) -> bool:
    return a.keys() == b.keys() and all(a[term] == pytest.approx(b[term], rel=1e-12) for term in a)


@SETS
def test_a_draft_model_costs_what_it_costs_alone(sets: tuple[str, ...]) -> None:
    """Pass 0 over one row more a request, then one row a request at contexts one, two, ... tokens on; no graph."""
    drafting = kernel("draft_model", 3, draft=graph("qwen3-0.6b"), sets=sets)
    alone = kernel(target="qwen3-0.6b", sets=sets, engine={"max_cudagraph_capture_size": 1})
    estimate = drafting.step_time(STEP)
    first = alone.step_time(steppe.Batch([5, 5, 101, 5], [500, 60, 30, 1200], decode_threshold=5))
    layer = graph("qwen3-0.6b").layer_kinds[0].id
    assert same(costs(estimate, f"draft {layer}"), costs(first, layer))
    later = [costs(alone.step_time(steppe.Batch([1] * 4, [504 + s, 64 + s, 130 + s, 1204 + s])), layer) for s in (1, 2)]
    assert same(costs(estimate, f"draft later {layer}"), added(*later))


@SETS
def test_a_prediction_module_costs_what_its_layer_costs(sets: tuple[str, ...]) -> None:
    """Later passes equal a model of the module alone; the projection in front of it is whole on every rank."""
    where: dict[str, Any] = {"hardware": "h200", "tp": 8, "sets": sets}
    whole = graph("deepseek-v3")
    stack = {"pattern": ["mtp_mla_moe"], "repeat": 1}
    alone = kernel(target=graph("deepseek-v3", stack=stack, speculator=None), **where)
    estimate = kernel("mtp", 3, target=whole, **where).step_time(DECODES)
    later = [costs(alone.step_time(steppe.Batch([1] * 8, [703 + s] * 8)), "mtp_mla_moe") for s in (1, 2)]
    found, expected = costs(estimate, "draft later mtp_mla_moe"), added(*later)
    joined = [term for term in expected if term.startswith(("norm_embed", "norm_hidden", "fuse"))]
    assert same(
        {t: c for t, c in found.items() if t not in joined}, {t: c for t, c in expected.items() if t not in joined}
    )
    one = kernel("mtp", 3, target=whole, **{**where, "tp": 4}).step_time(DECODES)
    assert found["fuse"] == pytest.approx(costs(one, "draft later mtp_mla_moe")["fuse"], rel=1e-12)


@SETS
@pytest.mark.parametrize("method", ["eagle3", "dflash", "dspark", "draft_model"])
def test_the_share_of_drafts_is_the_sum_of_their_terms(method: str, sets: tuple[str, ...]) -> None:
    taps = {"hidden_taps": [1, 2, 3], "markov_rank": 64}
    draft = graph("qwen3-0.6b") if method == "draft_model" else dense_draft(method, **taps)
    k = kernel(method, 3, draft=draft, tp=2, sets=sets)
    for batch in (STEP, DECODES):
        estimate = k.step_time(batch)
        share = sum(own + hbm for _, _, _, own, hbm, _, _ in draft_rows(estimate))
        assert estimate.draft == pytest.approx(share, abs=2)
        whole = sum(own + hbm for _, _, _, own, hbm, _, _ in estimate.rows)
        assert estimate.no_overlap == pytest.approx(whole, abs=6)
        plain = kernel("ngram", 3, tp=2, sets=sets, engine={"async_scheduling": False}).step_time(batch)
        assert estimate.no_overlap - estimate.draft == pytest.approx(plain.no_overlap, abs=8)
        assert estimate.overlap <= estimate.no_overlap


def test_the_combine_projection_is_whole_on_every_rank() -> None:
    """taps x target width to draft width over the step's rows: 2*A*H_t*H FLOPs a row, divided by nothing."""
    taps = {"hidden_taps": [1, 2, 3, 4]}
    found = []
    for tp in (1, 2, 4):
        k = kernel("dflash", 3, draft=dense_draft("dflash", **taps), tp=tp, sets=REFERENCE)
        found.append(costs(k.step_time(STEP), "draft combine"))
    assert found[0] == found[1] == found[2]
    gemm = {name: k._coefficients.get(f"gemm_{name}_bf16") for name in ("eps_max", "m_half")}
    flops = 2 * 4 * 4096 * 4096
    peak = k.resolution.chip.tflops_peak * 1e12
    expected = flops * (112 + gemm["m_half"]) / (peak * gemm["eps_max"])
    assert found[0]["combine"][0] == pytest.approx(expected * 1e9, rel=1e-9)


def test_the_markov_chain_is_sequential_and_whole() -> None:
    """k steps of 2*rank*V FLOPs a row, one row a request, whole on every rank."""
    draft = dense_draft("dspark", hidden_taps=[1], markov_rank=64)
    steps = {}
    for tokens in (2, 4):
        k = kernel("dspark", tokens, draft=draft, tp=2, sets=REFERENCE)
        steps[tokens] = costs(k.step_time(STEP), "draft markov")["markov"][0]
    assert steps[4] == pytest.approx(2 * steps[2], rel=1e-12)
    eps, half = k._coefficients.get("gemm_eps_max_bf16"), k._coefficients.get("gemm_m_half_bf16")
    peak = k.resolution.chip.tflops_peak * 1e12
    assert steps[4] == pytest.approx(4 * 2 * 64 * 128256 * (4 + half) / (peak * eps) * 1e9, rel=1e-9)


@SETS
def test_the_draft_head_sees_one_row_a_request(sets: tuple[str, ...]) -> None:
    """Prompt chunks of any length leave the draft head's cost alone; a parallel block asks for k rows a request."""
    k = kernel("eagle3", 1, draft=graph("eagle3-llama-3.1-8b-instruct"), sets=sets)
    short, long = (k.step_time(steppe.Batch([n, n], [0, 0])) for n in (700, 4000))
    head = [term for _, term, *_ in draft_rows(short) if term.startswith("draft lm_head")]
    assert head
    for term in head:
        assert costs(short, "draft head")[term] == costs(long, "draft head")[term]


def test_context_rows_run_no_attention_and_no_mlp() -> None:
    k = kernel("dflash", 3, draft=dense_draft("dflash", hidden_taps=[1]))
    terms = {term for name, term, *_ in k.step_time(STEP).rows if name == "draft context"}
    assert terms == {"context kv", "context cache write"}
    quantized = kernel("dflash", 3, draft=dense_draft("dflash", 3, dtype="fp8", hidden_taps=[1]))
    rows = [term for name, term, *_ in quantized.step_time(STEP).rows if name == "draft context"]
    assert rows.count("qkv") == 3


def test_the_drafter_s_width_follows_the_tensor_group() -> None:
    """Layers are divided over tp and summed over it, whatever the draft is."""
    draft = dense_draft("eagle", fuse=True)
    one, four = (kernel("eagle", 2, draft=draft, tp=tp).step_time(DECODES) for tp in (1, 4))
    stage = next(name for name, *_ in draft_rows(one) if name.startswith("draft later ") and "head" not in name)
    layer = "draft " + draft.layer_kinds[0].id
    assert stage
    assert {"reduce_mixer", "reduce_mlp"} <= costs(four, layer).keys()
    assert not {"reduce_mixer", "reduce_mlp"} & costs(one, layer).keys()
    assert costs(four, layer)["gate_up"][0] < costs(one, layer)["gate_up"][0]
    assert costs(four, layer)["fuse"] == costs(one, layer)["fuse"]


@SETS
def test_lockstep_pad_is_the_target_s_alone(sets: tuple[str, ...]) -> None:
    """Pad rows run through the target's forward exactly as scheduled rows without a request would; drafts take none."""
    k = kernel("mtp", 2, target="deepseek-v3", hardware="h200", tp=8, sets=sets)
    scheduled, computed = [3] * 6, [400] * 6
    bare = k.step_time(steppe.Batch(scheduled, computed, decode_threshold=3))
    padded = k.step_time(steppe.Batch(scheduled, computed, decode_threshold=3, pad_tokens=200))
    assert padded.draft == bare.draft > 0
    assert padded.no_overlap > bare.no_overlap
    assert padded.tokens == bare.tokens == 18
    assert draft_rows(padded) == draft_rows(bare)


def test_pad_rows_cost_what_rows_cost() -> None:
    """Reference laws: every term that counts rows counts the pad's; reads and causal work do not."""
    k = kernel(target="deepseek-v3", hardware="h200", tp=8, sets=REFERENCE)
    bare = k.step_time(steppe.Batch([1] * 10, [400] * 10))
    padded = k.step_time(steppe.Batch([1] * 10, [400] * 10, pad_tokens=30))
    wide = k.step_time(steppe.Batch([1] * 40, [400] * 40))
    for row, more, full in zip(bare.rows, padded.rows, wide.rows, strict=True):
        reads = "attention decode" in row[1]
        assert more[3:5] == (row[3:5] if reads else full[3:5]), row[:2]


def test_verification_is_a_decode_of_one_and_k_rows() -> None:
    """The target's own step: 1 + k rows are a decode under the threshold the backend takes, uniform, one graph."""
    plain, drafting = kernel(), kernel("ngram", 3, engine={"async_scheduling": False})
    assert drafting.resolution.settings.decode_threshold == 4
    assert plain.resolution.settings.decode_threshold == 1
    small = {"max_num_seqs": 16}
    assert kernel(engine=small).resolution.settings.capture_ceiling == 16 * 2
    with_drafts = kernel("ngram", 3, engine={**small, "async_scheduling": False})
    assert with_drafts.resolution.settings.capture_ceiling == 16 * 4 * 2
    from steppe import _core

    def uniform(widths: list[int]) -> bool:
        batch = steppe.Batch(widths, [100] * len(widths), decode_threshold=4)
        return bool(_core.features(drafting._core.plan.features, batch)["uniform"])

    assert uniform([4, 4, 4])
    assert not uniform([1, 1, 1])
    assert not uniform([4, 4, 40])


def test_a_drafter_of_other_attention_gets_a_backend_of_its_own() -> None:
    """A grouped-query drafter beside a latent target is not run by the target's latent backend."""
    draft: ModelGraph = dense_draft("eagle3", 1, hidden_taps=[1, 2, 3])
    k = kernel("eagle3", 3, target="deepseek-v3", draft=draft, hardware="h200", tp=8)
    assert "MLA" in k.resolution.settings.attention_backend
    assert k.resolution.draft is not None
    assert "MLA" not in k.resolution.draft.settings.attention_backend
    assert k.step_time(DECODES).draft > 0


def test_a_parallel_block_drafter_runs_without_decode_context_shards() -> None:
    draft = dense_draft("dspark", hidden_taps=[1, 2], markov_rank=16)
    k = kernel("dspark", 3, target="deepseek-v3", draft=draft, hardware="h200", tp=8, dcp=8)
    assert k.resolution.widths.dcp == 8
    assert k.resolution.draft is not None
    assert k.resolution.draft.widths.dcp == 1
    assert not [term for _, term, *_ in draft_rows(k.step_time(STEP)) if term.startswith("dcp")]


HOST = {"host_replay_graph_per_step": 100.0, "host_launch_eager_per_layer": 1000.0, "host_launch_per_kernel": 0.0}
WIDE = steppe.Batch([4] * 200, [50] * 200, decode_threshold=4)


def draft_host_us(k: steppe.Kernel, batch: steppe.Batch) -> float:
    """Host microseconds of the draft passes."""
    return sum(own for _, _, resource, own, *_ in draft_rows(k.step_time(batch)) if resource == "host") / 1e3


def test_an_autoregressive_drafter_s_host_time_follows_the_target() -> None:
    """Three runs of one layer: a replay each under full graphs, two each piecewise, eager above the ceiling."""
    k = kernel("eagle3", 3, draft=graph("eagle3-llama-3.1-8b-instruct"), sets=REFERENCE, numbers=HOST)
    mixed = steppe.Batch([4, 100], [500, 0], decode_threshold=4)
    assert draft_host_us(k, DECODES) == pytest.approx(3 * 100)
    assert draft_host_us(k, mixed) == pytest.approx(3 * 2 * 100)
    assert draft_host_us(k, WIDE) == pytest.approx(3 * 1000)
    assert draft_host_us(k, steppe.Batch([], [])) == 0


def test_a_parallel_block_drafter_s_host_time_follows_its_own_graphs() -> None:
    """One replay for context, block and Markov steps, prompts in the step or not; eager above its own ceiling only."""
    draft = dense_draft("dspark", 5, hidden_taps=[1], markov_rank=64)
    k = kernel("dspark", 3, draft=draft, sets=REFERENCE, numbers=HOST)
    mixed = steppe.Batch([4, 3000], [500, 0], decode_threshold=4)
    assert draft_host_us(k, DECODES) == pytest.approx(100)
    assert draft_host_us(k, mixed) == pytest.approx(100)  # the target runs eagerly here, the drafter does not
    target_eager = steppe.Batch([4] * 150, [50] * 150, decode_threshold=4)
    assert k.resolution.settings.capture_ceiling < 600
    assert draft_host_us(k, target_eager) == pytest.approx(100)  # 450 rows of its own
    assert draft_host_us(k, WIDE) == pytest.approx(5 * 1000)  # 600 rows of its own


def test_a_draft_model_is_launched_eagerly_and_kernels_are_counted() -> None:
    k = kernel("draft_model", 2, draft=graph("qwen3-0.6b"), sets=REFERENCE, numbers=HOST)
    layers = graph("qwen3-0.6b").stack.layers
    assert draft_host_us(k, DECODES) == pytest.approx(2 * 1000 * layers)
    per_kernel = {**HOST, "host_launch_eager_per_layer": 0.0, "host_launch_per_kernel": 1.0}
    counted = kernel("draft_model", 2, draft=graph("qwen3-0.6b"), sets=REFERENCE, numbers=per_kernel)
    alone = kernel(target="qwen3-0.6b", sets=REFERENCE, numbers={**per_kernel, "host_replay_graph_per_step": 0.0})
    kernels = alone.step_time(DECODES).per_resource["host"] / 1e3
    assert draft_host_us(counted, DECODES) == pytest.approx(2 * kernels)
