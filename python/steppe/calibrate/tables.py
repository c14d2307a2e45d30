"""Reading the measured tables of an unpacked aisimulate wheel. Times leave this module in microseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steppe.calibrate.parts import SYSTEMS

Frame = Any  # pandas.DataFrame; pandas is imported lazily


def version_key(version: str) -> tuple[int, ...]:
    """Sort key of a lane's folder name; unparsable versions sort first."""
    try:
        return tuple(int(x) for x in version.replace("rc", ".").replace("dev", "").split(".")[:3])
    except ValueError:
        return (0,)


class Tables:
    """The measured tables under one wheel. Paths handed out are relative to the wheel, as recorded in the fits."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def lanes(self, folder: str, family: str, backend: str, name: str) -> list[str]:
        """Versions that hold a table, oldest first."""
        base = self.data / SYSTEMS / "data" / folder / family / backend
        found = [p.parent.name for p in base.glob(f"*/{name}.parquet")]
        return sorted(found, key=lambda v: (version_key(v), v))

    def path(self, folder: str, family: str, backend: str, version: str, name: str) -> str:
        return f"{SYSTEMS}/data/{folder}/{family}/{backend}/{version}/{name}.parquet"

    def newest(self, folder: str, family: str, backend: str, name: str, skip: tuple[str, ...] = ()) -> str | None:
        """Path of the newest lane's table, or None when the part has none."""
        lanes = [v for v in self.lanes(folder, family, backend, name) if v not in skip]
        return self.path(folder, family, backend, lanes[-1], name) if lanes else None

    def read(self, path: str, columns: list[str] | None = None) -> Frame:
        """One table with a `us` column added (every family read here stores `latency` in milliseconds)."""
        import pandas

        frame = pandas.read_parquet(self.data / path, columns=columns)
        frame["us"] = frame.latency * 1e3
        return frame

    def exists(self, path: str) -> bool:
        return (self.data / path).is_file()


def median_by(frame: Frame, columns: list[str]) -> Frame:
    """One row per combination of `columns`, with the median time of its repetitions."""
    return frame.groupby(columns, as_index=False).us.median()
