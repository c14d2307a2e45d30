"""A fit on data made by a known law gives that law back, also where it had not looked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from synthetic_wheel import CURVE_TRUTH, DECODE_TRUTH, GEMM_TRUTH

from steppe.calibrate import attention, collectives, gemm, laws
from steppe.calibrate.fit import geometric, robust_fit
from steppe.calibrate.parts import Part
from steppe.calibrate.tables import Tables


def test_gemm_law_is_recovered(wheel: Path, part: Part) -> None:
    (fitted,) = gemm.fit_part(Tables(wheel), part, "bfloat16")
    assert fitted.held_out_error is not None
    assert fitted.held_out_error < 1.01
    for name in ("t0", "eff", "bw_eff"):
        assert fitted.params[name] == pytest.approx(GEMM_TRUTH[name], rel=0.03)


def test_decode_attention_law_is_recovered(wheel: Path, part: Part) -> None:
    (fitted,) = attention.fit_decode(Tables(wheel), part)
    assert fitted.key == "fa3/bfloat16/full"
    assert fitted.held_out_error is not None
    assert fitted.held_out_error < 1.02
    for name in ("F", "t0", "u"):
        assert fitted.params[name] == pytest.approx(DECODE_TRUTH[name], rel=0.05)
    assert fitted.params["F2"] == fitted.params["F3"] == fitted.params["tq"] == 0  # this path has no such terms


def test_collective_law_is_recovered(wheel: Path, part: Part) -> None:
    (fitted,) = collectives.fit_nccl(Tables(wheel), part)
    assert fitted.key == "nccl/all_gather/8"
    assert fitted.params["a1"] == pytest.approx(CURVE_TRUTH["a1"], rel=0.02)
    assert fitted.params["R2"] == pytest.approx(CURVE_TRUTH["R2"], rel=0.02)
    assert fitted.held_out_error == pytest.approx(1.0, abs=0.01)


def test_measured_curves_are_kept_as_points_with_bytes_twice_the_elements(wheel: Path, part: Part) -> None:
    curves = [f for f in collectives.fit_vllm(Tables(wheel), part) if f.law == "all_reduce_curve"]
    assert [f.key for f in curves] == ["0.31.0/2"]
    assert curves[0].params["bytes"] == [256, 8192, 2097152]
    assert curves[0].params["us"] == pytest.approx([3.0, 4.0, 20.0])


def test_outliers_do_not_drag_a_robust_fit() -> None:
    x = np.linspace(1, 100, 200)
    us = 5 + 2 * x
    us[::20] *= 10
    p = robust_fit(lambda q: q["a"] + q["b"] * x, {"a": (1.0, 0.1, 100.0), "b": (1.0, 0.1, 100.0)}, us)
    assert p["a"] == pytest.approx(5, rel=0.05)
    assert p["b"] == pytest.approx(2, rel=0.02)


def test_fixed_parameters_stay_and_the_best_start_wins() -> None:
    x = np.linspace(1, 1000, 300)
    us = laws.collective(CURVE_TRUTH, x * 1e4)
    bounds = {"a1": (1.0, 0.5, 1e4), "R1": (1e5, 1.0, 1e7), "a2": (1.0, 0.5, 1e4), "R2": (1e5, 1.0, 1e7)}
    p = robust_fit(lambda q: laws.collective(q, x * 1e4), bounds, us, fixed={"R2": CURVE_TRUTH["R2"]},
                   starts=[{}, {"a1": 10.0, "a2": 30.0, "R1": 1e4}])  # fmt: skip
    assert p["R2"] == CURVE_TRUTH["R2"]
    assert geometric(laws.collective(p, x * 1e4), us) < 1.01
