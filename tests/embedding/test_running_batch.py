"""A running batch prices what the same batch prices from scratch, to the nanosecond, whatever happens to it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import steppe

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 40), st.integers(0, 120_000)),
        st.tuples(st.just("add"), st.integers(0, 40), st.integers(0, 300)),
        st.tuples(st.just("remove"), st.integers(0, 40), st.just(0)),
        st.tuples(st.just("advance"), st.just(0), st.one_of(st.integers(0, 3), st.integers(0, 5000))),
        st.tuples(st.just("run"), st.just(0), st.integers(0, 12)),
    ),
    max_size=40,
)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "width": st.integers(1, 4),
        "sm_budget": st.sampled_from([0, 40, 200]),
        "pad_tokens": st.integers(0, 40),
        "group_tokens": st.integers(0, 600),
    },
)


def from_scratch(kernel: steppe.Kernel, requests: dict[int, int], given: dict[str, int]) -> tuple[int, ...]:
    """Every figure of the batch priced as a plain `Batch`."""
    width = given.get("width", 1)
    others = {name: value for name, value in given.items() if name != "width"}
    batch = steppe.Batch([width] * len(requests), list(requests.values()), decode_threshold=width, **others)
    return figures(kernel.step_time(batch))


def figures(e: steppe.StepEstimate) -> tuple[int, ...]:
    """An estimate as one comparable value."""
    bottleneck = steppe.RESOURCES.index(e.bottleneck)
    resources = [e.per_resource[name] for name in steppe.RESOURCES]
    return (e.no_overlap, e.overlap, *resources, e.draft, e.tokens, bottleneck)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=OPERATIONS, given_settings=SETTINGS)
def test_random_lives_equal_from_scratch(
    kernel: steppe.Kernel, operations: list[tuple[str, int, int]], given_settings: dict[str, int]
) -> None:
    running = kernel.running_batch(**given_settings)
    requests: dict[int, int] = {}
    for what, request, tokens in operations:
        if what == "add" and request not in requests:
            running.add(request, tokens)
            requests[request] = tokens
        elif what == "remove" and request in requests:
            running.remove(request)
            del requests[request]
        elif what == "advance":
            running.advance(tokens)
            requests = {name: past + tokens for name, past in requests.items()}
        elif what == "run":
            for row in running.price_run(tokens):
                assert tuple(row.tolist()) == from_scratch(kernel, requests, given_settings)
                requests = {name: past + 1 for name, past in requests.items()}
        assert figures(running.price()) == from_scratch(kernel, requests, given_settings)
        assert len(running) == len(requests)
    assert all(running.computed(request) == tokens for request, tokens in requests.items())


def test_a_run_is_its_steps(kernel: steppe.Kernel) -> None:
    one, other = kernel.running_batch(), kernel.running_batch()
    for batch in (one, other):
        for request in range(30):
            batch.add(request, 97 * request)
    steps = one.price_run(300)
    assert steps.dtype == steppe.ESTIMATE_DTYPE
    assert other.run_total(300) == (steps["no_overlap"].sum(), steps["overlap"].sum())
    assert one.computed(3) == other.computed(3) == 291 + 300


def test_a_caller_gives_the_room(kernel: steppe.Kernel) -> None:
    batch = kernel.running_batch()
    batch.add(1, 10)
    out = np.zeros(5, steppe.ESTIMATE_DTYPE)
    assert batch.price_run(5, out=out) is out
    assert (out["tokens"] == 1).all()
    with pytest.raises(steppe.Error, match="5 entries for 6"):
        batch.price_run(6, out=out)


def test_refusals_name_the_request_and_the_step() -> None:
    kernel = steppe.Kernel.build(model="llama-3.1-8b-instruct", hardware="h100", max_model_len=1000)
    batch = kernel.running_batch()
    batch.add(7, 990)
    with pytest.raises(steppe.Error, match=r"request 7: .* already"):
        batch.add(7, 3)
    with pytest.raises(steppe.Error, match=r"request 8: .* no request"):
        batch.remove(8)
    with pytest.raises(steppe.Error, match=r"request 8"):
        batch.computed(8)
    with pytest.raises(steppe.Error, match=r"request 9: .*negative"):
        batch.add(9, -1)
    with pytest.raises(steppe.Error, match="negative"):
        batch.advance(-1)
    with pytest.raises(steppe.Error, match="steps"):
        batch.price_run(-1)
    with pytest.raises(steppe.Error, match=r"step 10: .*max_model_len"):
        batch.price_run(20)
    assert 7 in batch
    assert batch.computed(7) == 1000
    with pytest.raises(steppe.Error, match="width"):
        kernel.running_batch(width=0)


def test_a_running_step_has_no_breakdown(kernel: steppe.Kernel) -> None:
    batch = kernel.running_batch()
    batch.add(1, 10)
    with pytest.raises(steppe.Error, match="price its requests as a Batch"):
        _ = batch.price().rows


def test_the_kernel_outlives_its_last_name() -> None:
    batch = steppe.Kernel.build(model="llama-3.1-8b-instruct", hardware="h100").running_batch()
    batch.add(1, 10)
    assert batch.price().no_overlap > 0
