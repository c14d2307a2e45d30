"""Small measured tables made from known laws, for the families the miniature package leaves out."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas

from steppe.calibrate.parts import KNOWN, SYSTEMS, Part


def a_part(name: str = "h100") -> Part:
    folder, sms, l2 = KNOWN[name]
    return Part(name, folder, sms, l2 * 1e6, 3.35e6, {"bfloat16": 9.89e8, "fp8": 1.978e9, "nvfp4": 3.956e9})


def grid(**columns: list[Any]) -> Any:
    """A frame of every combination."""
    return pandas.DataFrame(list(itertools.product(*columns.values())), columns=list(columns))


def timed(frame: Any, us: Any, seed: int = 5) -> Any:
    """`frame` with times in milliseconds, one per cent of noise on them."""
    noise = np.exp(np.random.default_rng(seed).normal(0, 0.01, len(frame)))
    return frame.assign(latency=np.asarray(us, float) * noise / 1e3)


def data_path(where: str) -> str:
    return f"{SYSTEMS}/data/{where}"
