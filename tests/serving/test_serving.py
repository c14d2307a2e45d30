"""The closed-loop estimate: against the published formula, in its limits, and through a kernel."""

from __future__ import annotations

import ast
import math
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import steppe
from steppe.errors import DeploymentError
from steppe.serving import Chunk, kernel_step, steady_state

GOLDEN = Path(os.environ.get("STEPPE_GOLDEN", Path(__file__).parents[2] / "../shared/golden"))
PROTOTYPE = GOLDEN.parent / "tools/compose.py"


def synthetic(decodes: int, context: float, chunks: Sequence[Chunk]) -> float:
    """A smooth step price: a floor, a read, and prompt work that grows with what was computed before. Seconds."""
    tokens = sum(new for new, _ in chunks)
    pairs = sum(new * cached + new * new / 2 for new, cached in chunks)
    return (3000 + 0.002 * decodes * context + 4 * decodes + 30 * tokens**0.95 + 2e-3 * pairs) * 1e-6


def prototype_tpot() -> Any:
    """`tpot` of the published prototype, with its step replaced by the synthetic one (microseconds there)."""
    if not PROTOTYPE.is_file():
        pytest.skip(f"{PROTOTYPE} is not there")
    tree = ast.parse(PROTOTYPE.read_text(encoding="utf-8"))
    tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "tpot"]
    names: dict[str, Any] = {
        "math": math,
        "PART": {"h100": "h100_sxm"},
        "ar_lane": lambda *_: "",
        "recipe": lambda row, o: {"rr": 1.0, "budget": row["budget"], "fi": False},
        "step": lambda part, mdl, R, tp, dp, ep, D, ctx, reqs, o, detail=None: synthetic(D, ctx, reqs) * 1e6,
    }
    exec(compile(tree, str(PROTOTYPE), "exec"), names)  # the function alone: importing the module needs fitted files
    return names["tpot"]


@pytest.mark.parametrize("dp", [1, 4])
@pytest.mark.parametrize("budget", [2048, 8192, 16384])
@pytest.mark.parametrize(("isl", "osl"), [(1024, 1024), (8192, 1024), (1024, 8192), (8192, 128), (100, 16)])
@pytest.mark.parametrize("concurrency", [1, 2, 4, 16, 64, 256, 1024])
def test_the_published_formula_is_reproduced(concurrency: int, isl: int, osl: int, budget: int, dp: int) -> None:
    tpot = prototype_tpot()
    row = {"system": "h100", "engine_version": "", "model": "m", "tp": 1, "dp": dp, "ep": 1, "inferencex": True}
    row |= {"isl": isl, "osl": osl, "concurrency_per_replica": concurrency, "budget": budget}
    want, decode, _ = tpot(row, {"recipes": True, "wave": 1.0})
    have = steady_state(synthetic, isl=isl, osl=osl, concurrency=concurrency, token_budget=budget, dp=dp)
    assert have.tpot * 1e3 == pytest.approx(want, rel=1e-12)
    assert have.decode_step * 1e3 == pytest.approx(decode, rel=1e-12)


def test_one_request_decodes_alone() -> None:
    state = steady_state(synthetic, isl=1000, osl=500, concurrency=1, token_budget=8192)
    assert state.tpot == synthetic(1, 1250, ())
    assert state.mixed_share == 0
    assert state.output_rate == pytest.approx(1 / state.tpot, rel=0.2)


def test_other_prompts_are_paid_for_between_two_tokens() -> None:
    alone, beside = (
        steady_state(synthetic, isl=4096, osl=512, concurrency=32, token_budget=8192, dp=dp) for dp in (1, 4)
    )
    assert alone.decode_step < alone.tpot < alone.mixed_step
    assert beside.tpot > alone.tpot  # any rank's prompt holds up the group


def test_a_prompt_beyond_the_budget_runs_in_chunks() -> None:
    seen: list[Sequence[Chunk]] = []

    def step(decodes: int, context: float, chunks: Sequence[Chunk]) -> float:
        seen.append(chunks)
        return synthetic(decodes, context, chunks)

    state = steady_state(step, isl=20000, osl=4000, concurrency=8, token_budget=8192, rounds=1)
    mixed = [c for c in seen if c]
    assert state.chunks == len(mixed) == 3
    assert [cached for ((_, cached),) in mixed] == pytest.approx([0, 20000 / 3, 40000 / 3], rel=0.01)
    assert sum(new for ((new, _),) in mixed) == pytest.approx(20000, rel=0.01)
    assert all(new <= 8192 - 8 for ((new, _),) in mixed)


def test_saturation_is_bounded_by_the_token_budget() -> None:
    state = steady_state(synthetic, isl=8192, osl=16, concurrency=512, token_budget=4096)
    assert state.mixed_share > 1
    assert state.decodes < 512
    assert state.tpot > state.mixed_step


@pytest.mark.parametrize("name", ["isl", "osl", "concurrency", "dp", "rounds"])
def test_nothing_may_be_empty(name: str) -> None:
    settings = {"isl": 10, "osl": 10, "concurrency": 2, "token_budget": 100, "dp": 1, "rounds": 4, name: 0}
    with pytest.raises(DeploymentError, match=f"{name} must be positive"):
        steady_state(synthetic, **settings)


def test_the_budget_must_leave_room_for_prompts() -> None:
    with pytest.raises(DeploymentError, match="token_budget 64 leaves no prompt token beside 64 decodes"):
        steady_state(synthetic, isl=10, osl=10, concurrency=64, token_budget=64)


def test_a_kernel_is_asked_for_whole_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steppe, "Batch", SimpleNamespace, raising=False)
    asked: list[Any] = []

    def step_time(batch: Any) -> Any:
        asked.append(batch)
        return SimpleNamespace(no_overlap=2_500_000)

    alone = SimpleNamespace(widths=SimpleNamespace(dp=1))
    price = kernel_step(SimpleNamespace(step_time=step_time, resolution=alone))
    assert price(2, 1500.4, [(700.6, 0.0), (0.2, 31.7)]) == pytest.approx(2.5e-3)
    assert asked[0].scheduled == [1, 1, 701, 1]
    assert asked[0].computed == [1499, 1499, 0, 32]
