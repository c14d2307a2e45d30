"""Robust fitting of closed-form laws to measured times, and the error figures reported for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Params = dict[str, float]
Bounds = Mapping[str, tuple[float, float, float]]  # name: (start, low, high), all positive


def robust_fit(
    law: Callable[[Params], Array],
    bounds: Bounds,
    us: Array,
    *,
    fixed: Mapping[str, float] | None = None,
    starts: Sequence[Mapping[str, float]] = ({},),
    scale: float = 0.08,
    max_nfev: int = 150,
    diff_step: float | None = None,
) -> Params:
    """Least squares of log(law/us) with a soft-L1 loss, every parameter positive and searched in log space.

    `fixed` parameters keep their value; each entry of `starts` overrides the starting point, the best end wins.
    Deterministic: no random restarts.
    """
    from scipy.optimize import least_squares

    fixed = fixed or {}
    free = [name for name in bounds if name not in fixed]
    low = np.log([bounds[n][1] for n in free])
    high = np.log([bounds[n][2] for n in free])
    target = np.log(us)

    def full(x: Array) -> Params:
        found = dict(zip(free, np.exp(x).tolist(), strict=True))
        return {n: fixed[n] if n in fixed else found[n] for n in bounds}

    best: Any = None
    for start in starts:
        x0 = np.log([start.get(n, bounds[n][0]) for n in free])
        x0 = np.clip(x0, low + 1e-6, high - 1e-6)
        end = least_squares(
            lambda x: np.log(law(full(x))) - target,
            x0,
            loss="soft_l1",
            f_scale=scale,
            bounds=(low, high),
            max_nfev=max_nfev,
            diff_step=diff_step,
        )
        if best is None or end.cost < best.cost:
            best = end
    return full(best.x)


def restart(bounds: Bounds, params: Mapping[str, float]) -> dict[str, tuple[float, float, float]]:
    """The same bounds, started from an earlier fit."""
    return {n: (params[n], lo, hi) for n, (_, lo, hi) in bounds.items()}


def geometric(predicted: Array, us: Array) -> float:
    """exp of the mean absolute log ratio: 1.10 means 10 % off on a typical row. NaN without rows."""
    return float(np.exp(np.abs(np.log(predicted / us)).mean())) if len(us) else float("nan")


def median_ape(predicted: Array, us: Array) -> float:
    """Median absolute percentage error, in percent. NaN without rows."""
    return float(100 * np.median(np.abs(predicted / us - 1))) if len(us) else float("nan")


@dataclass(frozen=True, slots=True)
class Fitted:
    """One law of one part: its key, rounded parameters, and how well it held where it had not looked."""

    law: str
    key: str
    part: str
    params: dict[str, Any]
    data: tuple[str, ...] = ()
    rows: int = 0
    held_out: str = ""
    train_error: float | None = None
    held_out_error: float | None = None
    median_ape: float | None = None
    method: str = "measured"
    rationale: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


def number(value: float, digits: int = 5) -> float | int:
    """`value` to a fixed number of significant digits; whole numbers come back as ints."""
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded == int(rounded) and abs(rounded) < 1e15 else rounded


def tidy(value: Any, digits: int = 5) -> Any:
    """`number` over nested lists and dicts; strings and booleans pass."""
    if isinstance(value, (bool, str)) or value is None:
        return value
    if isinstance(value, dict):
        return {k: tidy(v, digits) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [tidy(v, digits) for v in value]
    return number(float(value), digits)
