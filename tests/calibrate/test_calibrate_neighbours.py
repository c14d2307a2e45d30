"""Stand-ins: what replaces a law nobody measured, and what carrying a kernel to another part must preserve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steppe
from steppe.calibrate import laws, transfer
from steppe.calibrate.fit import Fitted, geometric
from steppe.calibrate.neighbours import RULES, stand_ins
from steppe.calibrate.parts import KNOWN, Part

SETS = Path(steppe.__file__).parent / "catalog" / "data" / "coefficients"
SHIPPED = {p: json.loads((SETS / f"{p}-refined.json").read_text())["laws"] for p in KNOWN}


def a_part(name: str) -> Part:
    return Part(name, KNOWN[name][0], 100, 5e7, 2e6, {"bfloat16": 4e8, "fp8": 8e8, "nvfp4": 16e8})


def params(part: str, law: str, key: str) -> dict[str, Any]:
    return next(x["params"] for x in SHIPPED[part] if (x["law"], x["key"]) == (law, key))


def test_a_stand_in_from_another_part_takes_this_part_s_rates() -> None:
    source = Fitted("moe", "fp8_block/fp8moe_triton", "b200",
                    {"t0": 3.0, "eff": 0.5, "peak_flops": 1.0, "bw_Bps": 2.0, "l2_B": 3.0, "pairs": "all"})  # fmt: skip
    made = stand_ins([source], [a_part("b300")])
    found = next(f for f in made if f.key == source.key)
    assert found.part == "b300"
    assert found.params == {"t0": 3.0, "eff": 0.5, "peak_flops": 8e14, "bw_Bps": 2e12, "l2_B": 5e7, "pairs": "all"}
    assert found.method == "assumed"
    assert "of b200" in found.rationale


def test_a_measured_law_is_never_replaced() -> None:
    measured = [Fitted("gemm", k, "a100-sxm", {"w_bytes": 2.0, "t0": t}) for k, t in (("bfloat16", 1.0), ("fp8", 9.0))]
    made = {f.key: f for f in stand_ins(measured, [a_part("a100-sxm")]) if f.law == "gemm"}
    assert "fp8" not in made
    assert made["int4_wo"].params == {"w_bytes": 0.5625, "t0": 1.0}


def test_every_rule_says_why_and_what_would_replace_it() -> None:
    for rule in RULES:
        assert len(rule.why) > 20, rule
        assert "table" in rule.replaced_by, rule
        assert set(rule.parts) <= set(KNOWN), rule


@pytest.mark.parametrize("part", list(KNOWN))
def test_shipped_laws_are_measured_with_figures_or_assumed_with_a_rationale(part: str) -> None:
    for law in SHIPPED[part]:
        if law["method"] == "measured":
            assert law["fit"]["rows"] > 0
            assert law["fit"]["held_out"]
        else:
            assert law["method"] == "assumed"
            assert "would replace it" in law["rationale"]


@pytest.mark.parametrize(("source", "target"), [("l40s", "rtx-pro-6000"), ("rtx-pro-6000", "l40s")])
def test_carrying_marlin_between_two_measured_parts_lands_near_the_measured_law(source: str, target: str) -> None:
    sister, goal = params(source, "moe", transfer.SISTER), params(target, "moe", transfer.SISTER)
    rates = {k: goal[k] for k in ("bw_Bps", "l2_B", "peak_flops")}
    factor = transfer.scales(sister, goal, rates)
    law = params(source, "moe", transfer.CARRIED)
    moved = {**law, **rates, **{n: law[n] * f for n, f in factor.items()}}
    tokens = np.unique(np.round(2.0 ** np.arange(0, 14.01, 0.5)))
    pairs = laws.busiest_rank(tokens, 128, 4, 1)
    touched = laws.touched_experts(pairs, 128, 4, 1)
    times = [
        laws.moe(p, tokens, 2880, 2880, 4, 128, 3, pairs, touched)
        for p in (moved, params(target, "moe", transfer.CARRIED))
    ]
    assert geometric(*times) < 1.15


def test_carrying_a_kernel_to_its_own_part_changes_nothing() -> None:
    sister = params("l40s", "moe", transfer.SISTER)
    assert transfer.scales(sister, sister, {}) == pytest.approx(dict.fromkeys(transfer.SCALED, 1.0), abs=1e-6)
