"""What a fit may not see. Hold-outs cross a dimension the law must generalise over; never random rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from steppe.calibrate.fit import Array

Mask = npt.NDArray[np.bool_]


def hash_fraction(*columns: Any) -> Array:
    """A number in [0, 1) per row that depends only on the row's values: rows of one geometry fall on one side."""
    h = np.zeros(len(columns[0]), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for i, column in enumerate(columns):
            v = np.asarray(column).astype(np.int64).astype(np.uint64)
            h = h * np.uint64(1000003) + v * np.uint64(2654435761) + np.uint64(97 * i + 13)
            h ^= h >> np.uint64(17)
            h *= np.uint64(0x9E3779B97F4A7C15)
            h ^= h >> np.uint64(29)
    return (h >> np.uint64(11)).astype(np.float64) / 2.0**53


def value_folds(values: Any, folds: int) -> npt.NDArray[np.int64]:
    """Fold of each row such that all rows of one value share it; neighbouring values fall in different folds."""
    order = {v: i % folds for i, v in enumerate(sorted(set(np.asarray(values).tolist())))}
    return np.array([order[v] for v in np.asarray(values).tolist()], dtype=np.int64)


def group_folds(values: Any, folds: int) -> npt.NDArray[np.int64]:
    """As `value_folds`, over a fixed shuffle of the values (for groups without a natural order)."""
    groups = sorted(set(np.asarray(values).tolist()))
    order = np.random.default_rng(0).permutation(len(groups))
    fold = {groups[j]: i % folds for i, j in enumerate(order)}
    return np.array([fold[v] for v in np.asarray(values).tolist()], dtype=np.int64)


def subsample(rows: npt.NDArray[np.int64], count: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """At most `count` of `rows`, drawn with a fixed seed and kept in order: fits need no more."""
    if len(rows) <= count:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, count, replace=False))


def inner_values(values: Any, wanted: tuple[int, ...]) -> list[int]:
    """Those of `wanted` that occur but are neither the smallest nor the largest value."""
    present = sorted({int(v) for v in values})
    return [v for v in wanted if v in present and v not in (present[0], present[-1])]
