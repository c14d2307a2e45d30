"""Plans that cannot be evaluated are refused when the kernel is built, naming the term at fault."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_term import FIXED, plan

import steppe
from steppe import _core

LAWS = {name: (params, inputs) for name, (params, inputs) in _core.LAWS.items()}


def good(law: str) -> tuple[list[float], list[int]]:
    """Parameters and inputs a law accepts."""
    params, inputs = LAWS[law]
    numbers = [1.0] * len(params)
    if law == "curve":
        numbers = [1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1024.0, 5.0]
    if law == "touched_experts":
        numbers = [1.0, -1.0, 1.0]  # the logarithm of a share missed
    return numbers, [FIXED["tokens"]] * len(inputs)


def build(law: str, numbers: Any, inputs: Any, **settings: Any) -> Any:
    return _core.Kernel(plan(law, numbers, inputs, **settings))


SINGLE = [law for law in LAWS if law != "hidden_behind"]


@pytest.mark.parametrize("law", SINGLE)
def test_every_law_takes_its_own_parameters(law: str) -> None:
    numbers, inputs = good(law)
    kernel = build(law, numbers, inputs)
    estimate = kernel.step_time(_core.Batch([1, 30], [7, 5]))
    assert estimate.no_overlap >= 0 or law == "both"


@pytest.mark.parametrize("law", SINGLE)
def test_a_parameter_too_few_or_too_many(law: str) -> None:
    numbers, inputs = good(law)
    for wrong in (numbers[:-1], [*numbers, 1.0], []):
        with pytest.raises(steppe.Error, match=f"the term.*{law}"):
            build(law, wrong, inputs)


@pytest.mark.parametrize("law", SINGLE)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_parameters_that_are_not_finite(law: str, value: float) -> None:
    numbers, inputs = good(law)
    for at in range(len(numbers)):
        wrong = [*numbers[:at], value, *numbers[at + 1 :]]
        with pytest.raises(steppe.Error, match="not finite"):
            build(law, wrong, inputs)


@pytest.mark.parametrize("law", SINGLE)
def test_inputs_too_few_too_many_or_out_of_range(law: str) -> None:
    numbers, inputs = good(law)
    for wrong in (inputs[:-1], [*inputs, 0]):
        with pytest.raises(steppe.Error, match="features"):
            build(law, numbers, wrong)
    for place in range(len(inputs)):
        with pytest.raises(steppe.Error, match="out of range"):
            build(law, numbers, [*inputs[:place], len(FIXED), *inputs[place + 1 :]])


def test_an_unknown_law() -> None:
    with pytest.raises(steppe.Error, match="no such law"):
        _core.Kernel(many([term(0, law="affinity")], stages=1))


@pytest.mark.parametrize("law", SINGLE)
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_absurd_numbers_give_a_number(law: str, data: st.DataObject) -> None:
    """Finite parameters outside a law's domain are refused, or price something meaningless, whole and in range."""
    numbers, inputs = good(law)
    absurd = st.one_of(st.just(0.0), st.floats(-1e300, 1e300), st.floats(-5, 5))
    changed = [data.draw(st.one_of(st.just(x), absurd)) for x in numbers]
    try:
        kernel = build(law, changed, inputs, derate=True, sm_count=100)
    except steppe.Error:
        return
    estimate = kernel.step_time(_core.Batch([1, 30], [7, 5], sm_budget=3))
    assert abs(estimate.no_overlap) <= 5 * 10**18


@pytest.mark.parametrize("count", [-1.0, math.nan, math.inf])
def test_counts_that_are_none(count: float) -> None:
    numbers, inputs = good("affine")
    with pytest.raises(steppe.Error, match="count"):
        build("affine", numbers, inputs, count=count)


def term(stage: int, **changed: Any) -> Any:
    given = {"name": f"term of {stage}", "law": "affine", "params": [0.0, 1.0], "inputs": [0, 0], "stage": stage}
    return _core.Term(**{**given, "resource": _core.Resource.sm, **changed})


def many(terms: list[Any], stages: int = 2, **features: Any) -> Any:
    return _core.Plan(
        features=_core.FeaturePlan(reads=[], pairs=[], **features),
        passes=[_core.Pass()],
        stages=[_core.Stage(name=f"stage {i}") for i in range(stages)],
        terms=terms,
        sm_count=0,
    )


def test_stages_out_of_order_or_missing() -> None:
    with pytest.raises(steppe.Error, match="order of their stages"):
        _core.Kernel(many([term(1), term(0)]))
    with pytest.raises(steppe.Error, match="stage out of range"):
        _core.Kernel(many([term(0), term(2)]))
    with pytest.raises(steppe.Error, match="no stages"):
        _core.Kernel(many([], stages=0))


def test_too_many_terms_or_classes() -> None:
    with pytest.raises(steppe.Error, match="too many terms"):
        _core.Kernel(many([term(0)] * 5000))
    crowded = _core.Plan(
        features=_core.FeaturePlan(reads=[_core.ReadClass(limit=i + 1) for i in range(200)], pairs=[]),
        passes=[_core.Pass()],
        stages=[_core.Stage(name="s")],
        terms=[term(0)],
        sm_count=0,
    )
    with pytest.raises(steppe.Error, match="too many feature classes"):
        _core.Kernel(crowded)


@pytest.mark.parametrize("numbers", [[0, 0, 5, 256, 1], [1, 0, 0, 256, 1], [0, 9, 0, 256, 1], [2, 2, 0, 256, 1]])
def test_references_to_terms_that_do_not_come_before(numbers: list[float]) -> None:
    behind = term(0, law="hidden_behind", params=[float(x) for x in numbers], inputs=[0])
    with pytest.raises(steppe.Error, match="come before"):
        _core.Kernel(many([term(0), term(0), behind]))


def test_work_hidden_behind_other_work() -> None:
    """Up to the limit the smaller of the two is taken off and the fee added; beyond it nothing happens."""
    first, second = term(0, params=[3e-6, 0.0]), term(0, params=[10e-6, 0.0])
    hidden = term(0, law="hidden_behind", params=[0.0, 0.0, 1.0, 4.0, 0.5], inputs=[0], serial=True)
    kernel = _core.Kernel(many([first, second, hidden], stages=1))
    assert kernel.step_time(_core.Batch([4], [0])).no_overlap == pytest.approx(10500, abs=1)
    assert kernel.step_time(_core.Batch([5], [0])).no_overlap == pytest.approx(13000, abs=1)
    longer = term(0, law="hidden_behind", params=[1.0, 1.0, 0.0, 4.0, 0.5], inputs=[0], serial=True)
    assert _core.Kernel(many([first, second, longer], stages=1)).step_time(
        _core.Batch([4], [0])
    ).no_overlap == pytest.approx(10500, abs=1)


@pytest.mark.parametrize("arguments", [
    {"law": 5}, {"params": "x"}, {"params": [None]}, {"inputs": [-1]}, {"inputs": [2**20]}, {"stage": -1},
    {"resource": "sm"}, {"name": None}, {"count": "1"},
])  # fmt: skip
def test_terms_of_the_wrong_type(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        term(0, **arguments)


def test_plans_are_not_built_from_anything_else() -> None:
    for wrong in (None, {}, "plan", 7):
        with pytest.raises(TypeError):
            _core.Kernel(wrong)


def test_laws_describe_themselves() -> None:
    for name, (params, inputs) in LAWS.items():
        assert len(set(params)) == len(params), name
        assert inputs, name
