"""Measured serving points: what a CSV of them holds, and the row a prediction of one becomes.

The layout of the file is that of the published points (docs/research/accuracy.md): what was run, how it was launched,
and what was measured, with another model's prediction beside it. Nothing here is fitted to such points.
"""

from __future__ import annotations

import csv
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from steppe.errors import DocumentError
from steppe.serving import Step

REQUIRED = ("id", "model", "system", "precision", "isl", "osl", "concurrency_per_dp_rank", "tp", "tpot_ms")


@dataclass(frozen=True, slots=True)
class Launch:
    """What was started: model, part, layout and options. Empty text and None mean not stated: the engine's choice."""

    model: str
    system: str
    precision: str
    engine_version: str
    tp: int
    dp: int
    ep: int
    kv_cache_dtype: str
    attention_path: str
    experts_law: str
    token_budget: int | None
    capture_limit: int | None
    fused_all_reduce_norm: bool | None
    all_reduce_lane: str
    synchronous_host: bool

    @property
    def cell(self) -> tuple[str, str]:
        """The (model, GPU) cell the launch is reported under."""
        return self.model.rsplit("/", 1)[-1], self.system


@dataclass(frozen=True, slots=True)
class Point:
    """One measured serving point. `concurrency` is requests in flight per data-parallel rank."""

    id: str
    launch: Launch
    isl: int
    osl: int
    concurrency: int
    measured_tpot_ms: float
    other_tpot_ms: float | None  # AISimulate's own prediction, where the file has one
    queued: bool
    duplicate: bool
    fault: str

    @property
    def clean(self) -> bool:
        """Neither queued at the server nor a repetition of another row."""
        return not (self.queued or self.duplicate)


@dataclass(frozen=True, slots=True)
class Built:
    """A deployment that can be priced: seconds a step, and the token budget it runs with."""

    step: Step
    token_budget: int


class Build(Protocol):
    """Turns a launch into a priced deployment. Raises steppe.Error to refuse it."""

    def __call__(self, launch: Launch, /) -> Built: ...


@dataclass(frozen=True, slots=True)
class Row:
    """One scored point: the predicted time per output token, or the reason it was refused."""

    point: Point
    tpot_ms: float | None
    refused: str | None

    def json(self) -> dict[str, object]:
        """The row as the report's JSON states it."""
        return {
            "id": self.point.id,
            "tpot_ms": self.tpot_ms,
            "measured_tpot_ms": self.point.measured_tpot_ms,
            "refused": self.refused,
            "clean": self.point.clean,
            "fault": self.point.fault,
        }


class _Cells:
    """The cells of one CSV line, each read as what it must be; names the column when it is not."""

    def __init__(self, values: dict[str, str | None], where: str) -> None:
        self.values, self.where = values, where

    def text(self, name: str) -> str:
        return (self.values.get(name) or "").strip()

    def stated(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise DocumentError(f"{self.where}: column {name} is blank; state it")
        return value

    def positive(self, name: str) -> float:
        value = self.stated(name)
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number > 0):
            raise DocumentError(f"{self.where}: column {name} must be a positive number, not {value!r}")
        return number

    def count(self, name: str) -> int:
        number = self.positive(name)
        if number != int(number):
            raise DocumentError(f"{self.where}: column {name} must be a whole number, not {number}")
        return int(number)

    def count_or(self, name: str, default: int | None) -> int | None:
        return self.count(name) if self.text(name) else default

    def flag(self, name: str) -> bool | None:
        value = self.text(name).lower()
        if value in ("", "0", "1", "true", "false"):
            return None if not value else value in ("1", "true")
        raise DocumentError(f"{self.where}: column {name} must be 0 or 1, not {value!r}")


def _point(cells: _Cells) -> Point:
    launch = Launch(
        model=cells.stated("model"),
        system=cells.stated("system"),
        precision=cells.stated("precision"),
        engine_version=cells.text("engine_version"),
        tp=cells.count("tp"),
        dp=cells.count_or("dp", 1) or 1,
        ep=cells.count_or("ep", 1) or 1,
        kv_cache_dtype=cells.text("kv_cache_dtype"),
        attention_path=cells.text("attention_path"),
        experts_law=cells.text("experts_law"),
        token_budget=cells.count_or("token_budget", None),
        capture_limit=cells.count_or("capture_limit", None),
        fused_all_reduce_norm=cells.flag("fused_all_reduce_norm"),
        all_reduce_lane=cells.text("all_reduce_lane"),
        synchronous_host=bool(cells.flag("synchronous_host")),
    )
    return Point(
        id=cells.stated("id"),
        launch=launch,
        isl=cells.count("isl"),
        osl=cells.count("osl"),
        concurrency=cells.count("concurrency_per_dp_rank"),
        measured_tpot_ms=cells.positive("tpot_ms"),
        other_tpot_ms=cells.positive("aisimulate_tpot_ms") if cells.text("aisimulate_tpot_ms") else None,
        queued=bool(cells.flag("queued")),
        duplicate=bool(cells.flag("duplicate")),
        fault=cells.text("fault"),
    )


def read_points(path: str | os.PathLike[str]) -> list[Point]:
    """Points of a CSV file, in its order.

    Columns other than `REQUIRED` may be missing or blank. Raises DocumentError naming file, line and column.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError(f"{file}: cannot be read: {error}") from error
    reader = csv.DictReader(text.splitlines())
    missing = [name for name in REQUIRED if name not in (reader.fieldnames or ())]
    if missing:
        raise DocumentError(f"{file}: no column {', '.join(missing)}; a file of serving points needs them")
    return [_point(_Cells(values, f"{file}:{reader.line_num}")) for values in reader]
