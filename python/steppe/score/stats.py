"""Error figures of scored rows: percentages of absolute error, bias, rank correlation, by cell and over all."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from steppe.score.points import Row

WITHIN = 0.30  # the share of rows whose error is at most this
CELL_ROWS = 20  # a cell of fewer rows is listed, not judged

Pair = tuple[float, float]  # predicted, measured


def figures(pairs: Sequence[Pair]) -> dict[str, float | int | None]:
    """Rows, MAPE, median APE and mean signed error in percent, share within 30 %, Spearman's rank correlation."""
    if not pairs:
        return {"rows": 0, "mape": None, "median": None, "bias": None, "within_30": None, "spearman": None}
    errors = [predicted / measured - 1 for predicted, measured in pairs]
    sizes = [abs(e) for e in errors]
    return {
        "rows": len(pairs),
        "mape": 100 * statistics.fmean(sizes),
        "median": 100 * statistics.median(sizes),
        "bias": 100 * statistics.fmean(errors),
        "within_30": 100 * sum(e <= WITHIN for e in sizes) / len(sizes),
        "spearman": spearman(pairs),
    }


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1, the mean rank for equal values."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        stop = start
        while stop < len(order) and values[order[stop]] == values[order[start]]:
            stop += 1
        for i in order[start:stop]:
            ranks[i] = (start + stop + 1) / 2
        start = stop
    return ranks


def spearman(pairs: Sequence[Pair]) -> float | None:
    """Rank correlation of predicted and measured; None below two rows or where one side is constant."""
    if len(pairs) < 2:
        return None
    a, b = (_ranks(side) for side in zip(*pairs, strict=True))
    mean = (len(pairs) + 1) / 2
    products = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    size = sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b)
    return products / size**0.5 if size else None


def ours(rows: Iterable[Row]) -> list[Pair]:
    """(predicted, measured) of the rows that were answered."""
    return [(row.tpot_ms, row.point.measured_tpot_ms) for row in rows if row.tpot_ms is not None]


def theirs(rows: Iterable[Row]) -> list[Pair]:
    """The same for the other model's predictions in the file."""
    found = ((row.point.other_tpot_ms, row.point.measured_tpot_ms) for row in rows)
    return [(predicted, measured) for predicted, measured in found if predicted is not None]


def compared(rows: Sequence[Row]) -> dict[str, Any]:
    """Figures of our predictions, with the refusals, and of the other model's over the rows it has."""
    refused = sum(row.refused is not None for row in rows)
    return {**figures(ours(rows)), "refused": refused, "aisimulate": figures(theirs(rows))}


def faultless(rows: Iterable[Row]) -> list[Row]:
    """Clean rows without a known fault."""
    return [row for row in rows if row.point.clean and not row.point.fault]


def cells(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Figures of the clean rows of every (model, GPU) cell, all of them and those without a fault; by name."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row.point.clean:
            groups[row.point.launch.cell].append(row)
    return [
        {
            "model": model,
            "gpu": gpu,
            "clean": compared(group),
            "without_fault": compared(faultless(group)),
        }
        for (model, gpu), group in sorted(groups.items())
    ]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Figures over all clean rows and those without a fault, the worst judged cell, and why rows were refused."""
    clean = [row for row in rows if row.point.clean]
    judged = [c for c in cells(rows) if c["without_fault"]["rows"] >= CELL_ROWS]
    worst = max(judged, key=lambda c: float(c["without_fault"]["median"]), default=None)
    reasons: dict[str, int] = defaultdict(int)
    for row in rows:
        if row.refused is not None:
            reasons[row.refused] += 1
    return {
        "rows": len(rows),
        "answered": len(rows) - sum(reasons.values()),
        "clean": compared(clean),
        "without_fault": compared(faultless(rows)),
        "worst_cell": worst and {"model": worst["model"], "gpu": worst["gpu"], **worst["without_fault"]},
        "refused": dict(sorted(reasons.items(), key=lambda item: -item[1])),
    }
