"""Scores predictions on measured serving points: points in, one prediction or refusal a row out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from steppe.errors import Error
from steppe.score import build as score_build
from steppe.score.points import Build, Built, Launch, Point, Row
from steppe.score.stats import cells, summary
from steppe.serving import steady_state


def predict(
    points: Iterable[Point],
    build: Build | None = None,
    *,
    progress: Callable[[Point], None] | None = None,
) -> list[Row]:
    """Predict every point with the steady-state estimate; deployments are built once a launch.

    `build` defaults to `score_build.build`, the embedded catalog and its coefficient sets. A point whose launch or
    load is refused (steppe.Error) becomes a row with the reason; any other exception is a fault and passes through.
    """
    build = build or score_build.build
    known: dict[Launch, Built | str] = {}
    rows: list[Row] = []
    for point in points:
        if progress:
            progress(point)
        if point.launch not in known:
            try:
                known[point.launch] = build(point.launch)
            except Error as error:
                known[point.launch] = str(error)
        built = known[point.launch]
        rows.append(Row(point, None, built) if isinstance(built, str) else _priced(point, built))
    return rows


def _priced(point: Point, built: Built) -> Row:
    try:
        state = steady_state(
            built.step,
            isl=point.isl,
            osl=point.osl,
            concurrency=point.concurrency,
            token_budget=built.token_budget,
            dp=point.launch.dp,
        )
    except Error as error:
        return Row(point, None, str(error))
    return Row(point, state.tpot * 1e3, None)


def rows_json(rows: Sequence[Row]) -> dict[str, object]:
    """The report as JSON: `rows`, `cells` and `summary`."""
    return {"rows": [row.json() for row in rows], "cells": cells(rows), "summary": summary(rows)}
