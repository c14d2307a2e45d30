"""Every method's passes, step by step: rows, rows under the graph, rows of the draft head, graph."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from drafting import dense_draft, features, graph, graph_mode, kernel, modules, passes

import steppe
from steppe import _core
from steppe.errors import DeploymentError

K = 3
TAPS = {"hidden_taps": [1, 2, 3]}
EAGLE3 = "eagle3-llama-3.1-8b-instruct"
Expected = tuple[str, int, int, int, int, str]  # pass, runs, rows, rows under the graph, head rows, graph

STEPS = {
    # three verifications of 1 + k rows; two and a chunk of a prompt; two chunks; more rows than a graph holds
    "decode": steppe.Batch([4, 4, 4], [50, 60, 70], decode_threshold=4),
    "mixed": steppe.Batch([4, 4, 100], [50, 60, 0], decode_threshold=4),
    "prefill": steppe.Batch([100, 60], [0, 20], decode_threshold=4),
    "wide": steppe.Batch([4] * 200, [50] * 200, decode_threshold=4),
}
METHODS: dict[str, Callable[[], steppe.Kernel]] = {
    "eagle": lambda: kernel("eagle", draft=dense_draft("eagle", fuse=True)),
    "eagle3": lambda: kernel("eagle3", draft=graph(EAGLE3)),
    "mtp": lambda: kernel("mtp", target="deepseek-v3", hardware="h200", tp=8),
    "mtp_modules": lambda: kernel("mtp", target=modules(3), hardware="h200", tp=8),
    "draft_model": lambda: kernel("draft_model", draft=graph("qwen3-0.6b")),
    "dflash": lambda: kernel("dflash", draft=dense_draft("dflash", **TAPS)),
    "dspark": lambda: kernel("dspark", draft=dense_draft("dspark", markov_rank=64, **TAPS)),
    "dspark_anchor_apart": lambda: kernel("dspark", draft=dense_draft("dspark", markov_rank=64, block=4, **TAPS)),
    "pard": lambda: kernel("draft_model", draft=graph("qwen3-0.6b"), speculative={"parallel_drafting": True}),
    "p_eagle": lambda: kernel("eagle3", draft=graph(EAGLE3), speculative={"parallel_drafting": True}),
    "medusa": lambda: kernel("medusa"),
}
AUTOREGRESSIVE: dict[str, list[Expected]] = {
    "decode": [("draft", 1, 12, 16, 4, "FULL"), ("draft later", 2, 3, 4, 4, "FULL")],
    "mixed": [("draft", 1, 108, 112, 3, "PIECEWISE"), ("draft later", 2, 3, 4, 4, "PIECEWISE")],
    "prefill": [("draft", 1, 160, 160, 2, "PIECEWISE"), ("draft later", 2, 2, 2, 2, "PIECEWISE")],
    "wide": [("draft", 1, 800, 800, 200, "EAGER"), ("draft later", 2, 200, 200, 200, "EAGER")],
}
COMBINE: dict[str, Expected] = {
    step: ("draft combine", 1, rows, rows, 0, "EAGER")
    for step, rows in (("decode", 12), ("mixed", 108), ("prefill", 160), ("wide", 800))
}
TABLE: dict[str, dict[str, list[Expected]]] = {
    "eagle": AUTOREGRESSIVE,
    "eagle3": {step: [COMBINE[step], *rows] for step, rows in AUTOREGRESSIVE.items()},
    "mtp": AUTOREGRESSIVE,
    "mtp_modules": {
        "decode": [("draft", 3, 12, 16, 4, "FULL")],
        "mixed": [("draft", 3, 108, 112, 3, "PIECEWISE")],
        "prefill": [("draft", 3, 160, 160, 2, "PIECEWISE")],
        "wide": [("draft", 3, 800, 800, 200, "EAGER")],
    },
    "draft_model": {
        "decode": [("draft", 1, 15, 15, 3, "EAGER"), ("draft later", 2, 3, 3, 3, "EAGER")],
        "mixed": [("draft", 1, 111, 111, 3, "EAGER"), ("draft later", 2, 3, 3, 3, "EAGER")],
        "prefill": [("draft", 1, 162, 162, 2, "EAGER"), ("draft later", 2, 2, 2, 2, "EAGER")],
        "wide": [("draft", 1, 1000, 1000, 200, "EAGER"), ("draft later", 2, 200, 200, 200, "EAGER")],
    },
    "dflash": {
        "decode": [COMBINE["decode"], ("draft context", 1, 12, 16, 0, "FULL"), ("draft", 1, 12, 16, 12, "FULL")],
        "mixed": [COMBINE["mixed"], ("draft context", 1, 108, 108, 0, "FULL"), ("draft", 1, 12, 16, 12, "FULL")],
        "prefill": [COMBINE["prefill"], ("draft context", 1, 160, 160, 0, "FULL"), ("draft", 1, 8, 8, 6, "FULL")],
        "wide": [COMBINE["wide"], ("draft context", 1, 800, 800, 0, "EAGER"), ("draft", 1, 800, 800, 600, "EAGER")],
    },
    "dspark": {
        "decode": [
            COMBINE["decode"],
            ("draft context", 1, 12, 12, 0, "FULL"),
            ("draft", 1, 9, 9, 9, "FULL"),
            ("draft markov", 3, 3, 3, 3, "FULL"),
        ],
        "mixed": [
            COMBINE["mixed"],
            ("draft context", 1, 108, 108, 0, "FULL"),
            ("draft", 1, 9, 9, 9, "FULL"),
            ("draft markov", 3, 3, 3, 3, "FULL"),
        ],
        "prefill": [
            COMBINE["prefill"],
            ("draft context", 1, 160, 160, 0, "FULL"),
            ("draft", 1, 6, 6, 6, "FULL"),
            ("draft markov", 3, 2, 2, 2, "FULL"),
        ],
        "wide": [
            COMBINE["wide"],
            ("draft context", 1, 800, 800, 0, "EAGER"),
            ("draft", 1, 600, 600, 600, "EAGER"),
            ("draft markov", 3, 200, 200, 200, "EAGER"),
        ],
    },
    "dspark_anchor_apart": {
        "decode": [
            COMBINE["decode"],
            ("draft context", 1, 12, 16, 0, "FULL"),
            ("draft", 1, 12, 16, 12, "FULL"),
            ("draft markov", 3, 3, 4, 4, "FULL"),
        ],
    },
    "pard": {
        "decode": [("draft", 1, 21, 24, 9, "PIECEWISE")],
        "mixed": [("draft", 1, 117, 120, 9, "PIECEWISE")],
        "prefill": [("draft", 1, 166, 168, 6, "PIECEWISE")],
    },
    "p_eagle": {
        "decode": [COMBINE["decode"], ("draft", 1, 18, 24, 9, "PIECEWISE")],
        "mixed": [COMBINE["mixed"], ("draft", 1, 114, 120, 9, "PIECEWISE")],
        "prefill": [COMBINE["prefill"], ("draft", 1, 164, 168, 6, "PIECEWISE")],
    },
    "medusa": {
        "decode": [("draft heads", 1, 3, 3, 9, "EAGER")],
        "prefill": [("draft heads", 1, 2, 2, 6, "EAGER")],
    },
}
CASES = [(method, step) for method, steps in TABLE.items() for step in steps]


@pytest.fixture(scope="module")
def built() -> dict[str, steppe.Kernel]:
    return {method: build() for method, build in METHODS.items()}


@pytest.mark.parametrize(("method", "step"), CASES, ids=[f"{m}-{s}" for m, s in CASES])
def test_passes(built: dict[str, steppe.Kernel], method: str, step: str) -> None:
    k, batch = built[method], STEPS[step]
    found = [
        (
            planned.name,
            planned.count,
            int(f["tokens"]),
            int(f["padded_tokens"]),
            int(f["sampled_rows"]),
            graph_mode(k, planned, batch, f),
        )
        for (planned, _), f in zip(passes(k), features(k, batch), strict=True)
    ]
    assert found == TABLE[method][step]


CONTEXTS = {
    # longest context of 70 + 4 tokens: pass 0 as the target; one row, a block or the correction token beyond it
    "eagle3": {"draft": [74], "draft later": [75, 76]},
    "mtp_modules": {"draft": [74, 74, 74]},
    "draft_model": {"draft": [75], "draft later": [76, 77]},
    "dflash": {"draft": [78]},
    "dspark": {"draft": [77]},
    "pard": {"draft": [77]},
}


@pytest.mark.parametrize("method", sorted(CONTEXTS))
def test_contexts(built: dict[str, steppe.Kernel], method: str) -> None:
    """Positions attention reads in each run of a pass that has attention."""
    k, batch = built[method], STEPS["decode"]
    found = {
        planned.name: [int(features(k, batch, run)[i]["max_context"]) for run in range(planned.count)]
        for i, (planned, _) in enumerate(passes(k))
        if planned.part == "layers"
    }
    assert found == CONTEXTS[method]


@pytest.mark.parametrize("method", ["ngram", "ngram_gpu", "suffix"])
def test_methods_that_run_no_model_cost_no_pass(method: str) -> None:
    k = kernel(method)
    assert passes(k) == []
    estimate = k.step_time(STEPS["mixed"])
    assert estimate.draft == 0
    assert not [row for row in estimate.rows if row[0].startswith("draft")]
    # What remains of speculation is the target's own width of 1 + k rows a decode.
    assert _core.features(k._core.plan.features, STEPS["decode"])["uniform"]
    assert not _core.features(k._core.plan.features, steppe.Batch([K], [10], decode_threshold=4))["uniform"]


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_drafter_costs_something_on_every_step_that_runs(method: str, built: dict[str, steppe.Kernel]) -> None:
    for batch in STEPS.values():
        estimate = built[method].step_time(batch)
        assert 0 < estimate.draft < estimate.no_overlap
    assert built[method].step_time(steppe.Batch([], [])).draft == 0


def test_one_draft_token_runs_pass_zero_alone() -> None:
    for k in (
        kernel("eagle3", 1, draft=graph(EAGLE3)),
        kernel("mtp", 1, target=modules(3), hardware="h200", tp=8),
        kernel("draft_model", 1, draft=graph("qwen3-0.6b")),
    ):
        assert [planned.name for planned, _ in passes(k) if planned.part == "layers"] == ["draft"]


def test_prediction_modules_take_turns() -> None:
    """Two modules and four tokens: four passes over both, each twice; the older runner knows the first only."""
    four = kernel("mtp", 4, target=modules(2), hardware="h200", tp=8)
    assert [(planned.rows, planned.count) for planned, _ in passes(four)] == [("batch", 4)]
    older = kernel("mtp", 4, target=modules(2), hardware="h200", tp=8, engine={"runner": "v1"})
    assert [planned.rows for planned, _ in passes(older)] == ["batch", "one_a_request"]


@pytest.mark.parametrize(
    ("method", "draft", "what"),
    [
        ("eagle3", None, "states no speculator"),
        ("mtp", None, "states no speculator"),
        ("draft_model", None, "states no speculator"),
        ("dflash", dense_draft("dflash"), "hidden_taps"),
        ("dspark", dense_draft("dspark", **TAPS), "markov_rank"),
        ("extract_hidden_states", dense_draft("eagle"), "not priced"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_drafter_nothing_is_known_of_is_refused(method: str, draft: object, what: str) -> None:
    with pytest.raises(DeploymentError, match=what):
        kernel(method, draft=draft)  # type: ignore[arg-type]


def test_a_draft_of_unknown_name_is_refused() -> None:
    with pytest.raises(steppe.Error, match="no-such-draft"):
        steppe.Kernel.build(
            model="llama-3.1-8b-instruct",
            hardware="h100",
            speculative={"method": "eagle3", "num_spec_tokens": 3, "draft": "no-such-draft"},
        )
