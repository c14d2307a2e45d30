"""A kernel as bytes: the same prices and caches on the other side, and nothing but a refusal for damaged bytes."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import steppe

BATCH = ([1, 1, 900], [4000, 20, 512])


def price(kernel: steppe.PricingKernel) -> tuple[int, dict[str, int]]:
    """Some figures of one batch; at module level, so that another process can call it."""
    e = kernel.step_time(steppe.Batch(*BATCH))
    return e.no_overlap, e.per_resource


def test_prices_and_caches_come_back(kernel: steppe.Kernel) -> None:
    bare = steppe.Kernel.from_bytes(kernel.to_bytes())
    assert price(bare) == price(kernel)
    assert bare.provenance() == json.loads(json.dumps(kernel.provenance()))
    assert bare.to_bytes() == kernel.to_bytes()
    assert kernel.caches is not None
    assert bare.caches is not None
    assert bare.caches.admission_blocks(3000) == kernel.caches.admission_blocks(3000)


def test_pickles(kernel: steppe.Kernel) -> None:
    back = pickle.loads(pickle.dumps(kernel))
    assert price(back) == price(kernel)
    assert price(pickle.loads(pickle.dumps(back))) == price(kernel)


def test_another_process_prices_the_same() -> None:
    kernel = steppe.Kernel.build(model="llama-3.1-8b-instruct", hardware="h100")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(price, kernel).result(timeout=120) == price(kernel)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_is_refused(data: st.DataObject) -> None:
    whole = WHOLE
    if data.draw(st.booleans()):
        broken = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        at = data.draw(st.integers(0, len(whole) - 1))
        byte = data.draw(st.integers(0, 255).filter(lambda value: value != whole[at]))
        broken = whole[:at] + bytes([byte]) + whole[at + 1 :]
    with pytest.raises(steppe.Error, match="not a serialized kernel"):
        steppe.Kernel.from_bytes(broken)


WHOLE = steppe.Kernel.build(model="gpt-oss-120b", hardware="h200").to_bytes()


@given(st.binary(max_size=200))
def test_bytes_of_anything_else_are_refused(noise: bytes) -> None:
    with pytest.raises(steppe.Error, match="not a serialized kernel"):
        steppe.Kernel.from_bytes(noise)


def test_what_is_not_bytes_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        steppe.Kernel.from_bytes("text")  # type: ignore[arg-type]
