"""What is held out stays out: no fit may move when only the rows it may not see change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from steppe.calibrate import gemm
from steppe.calibrate.attention import two_stage
from steppe.calibrate.holdout import group_folds, hash_fraction, inner_values, subsample, value_folds
from steppe.calibrate.parts import Part
from steppe.calibrate.tables import Tables


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=200), st.integers(2, 6))
def test_rows_of_one_value_share_a_fold(values: list[int], folds: int) -> None:
    for assign in (value_folds, group_folds):
        fold = assign(values, folds)
        assert set(fold.tolist()) <= set(range(folds))
        for v in set(values):
            assert len({f for f, w in zip(fold, values, strict=True) if w == v}) == 1


@given(st.lists(st.tuples(st.integers(1, 512), st.integers(1, 128)), min_size=1, max_size=100))
def test_a_geometry_falls_on_one_side_of_the_hash(rows: list[tuple[int, int]]) -> None:
    a, b = zip(*rows, strict=True)
    h = hash_fraction(np.array(a), np.array(b))
    assert ((h >= 0) & (h < 1)).all()
    again = hash_fraction(np.array(a)[::-1], np.array(b)[::-1])[::-1]
    assert (h == again).all()  # of the row alone, not of its place


def test_the_hash_holds_out_about_its_share_of_geometries() -> None:
    n, g = np.meshgrid(np.arange(1, 65), np.arange(1, 33))
    assert 0.30 < (hash_fraction(n.ravel(), g.ravel()) < 0.35).mean() < 0.40


def test_a_subsample_is_ordered_unique_and_repeatable() -> None:
    rows = np.arange(1000)
    one = subsample(rows, 100, 3)
    assert (one == subsample(rows, 100, 3)).all()
    assert len(set(one.tolist())) == 100
    assert (np.diff(one) > 0).all()
    assert (subsample(rows, 5000) == rows).all()


def test_end_values_are_never_held_out() -> None:
    assert inner_values([4, 8, 16, 32], (4, 32, 8, 7)) == [8]


def test_held_out_rows_do_not_touch_the_first_fit() -> None:
    x = np.linspace(1, 50, 60)
    us = 3 + 0.5 * x
    train = np.arange(60) % 3 != 0
    bounds = {"a": (1.0, 0.1, 100.0), "b": (1.0, 0.01, 100.0)}
    spoiled = np.where(train, us, us * 7)

    def fit(y: np.ndarray) -> tuple[dict[str, float], dict[str, float]]:
        return two_stage(lambda q, r: q["a"] + q["b"] * x[r], bounds, y, train, fixed=None, starts=({},), max_nfev=100)

    (first, final), (first_spoiled, final_spoiled) = fit(us), fit(spoiled)
    assert first == first_spoiled
    assert final != final_spoiled


def test_a_fold_s_prediction_ignores_that_fold_s_times(wheel: Path, part: Part) -> None:
    found = gemm.load(Tables(wheel), part, "bfloat16")
    assert found is not None
    frame = found[1]
    base, names = gemm.structure(part, "bfloat16")
    fold = value_folds(frame.k, gemm.FOLDS)
    spoiled = frame.assign(us=np.where(fold == 1, frame.us * 3, frame.us))
    _, held, _ = gemm.fit_frame(frame, base, names)
    _, held_spoiled, _ = gemm.fit_frame(spoiled, base, names)
    assert (held[fold == 1] == held_spoiled[fold == 1]).all()
    assert (held[fold == 0] != held_spoiled[fold == 0]).any()
