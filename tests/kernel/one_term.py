"""Plans of a single term, to price one law on chosen inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from steppe import _core

FIXED = _core.FEATURES
READ = len(FIXED)  # the first read class; pair classes follow the reads


def plan(
    law: str,
    params: Mapping[str, float] | Sequence[float],
    inputs: Sequence[int | str],
    *,
    reads: Sequence[dict[str, Any]] = (),
    pairs: Sequence[dict[str, Any]] = (),
    sm_count: int = 0,
    resource: str = "sm",
    count: float = 1.0,
    serial: bool = True,
    derate: bool = False,
    layers: float = 1.0,
    **features: Any,
) -> Any:
    """A plan of one stage and one term. Inputs are names of fixed features or indices of classes."""
    names, _ = _core.LAWS[law]
    numbers = list(params) if not isinstance(params, Mapping) else [float(params[name]) for name in names]
    term = _core.Term(
        name="the term",
        law=law,
        params=numbers,
        inputs=[FIXED[each] if isinstance(each, str) else each for each in inputs],
        resource=getattr(_core.Resource, resource),
        stage=0,
        count=count,
        serial=serial,
        derate=derate,
    )
    return _core.Plan(
        features=_core.FeaturePlan(
            reads=[_core.ReadClass(**each) for each in reads],
            pairs=[_core.PairClass(**each) for each in pairs],
            **features,
        ),
        passes=[_core.Pass()],
        stages=[_core.Stage(name="layer", layers=layers)],
        terms=[term],
        sm_count=sm_count,
    )


def seconds(kernel: Any, batch: _core.Batch) -> float:
    """What the single term costs, unrounded, both resources together."""
    ((_, _, _, own, hbm, _, _),) = kernel.step_time(batch).rows
    return float(own + hbm) * 1e-9


def microseconds(law: str, params: Any, inputs: Sequence[int | str], batch: _core.Batch, **settings: Any) -> float:
    """Price one term on one batch."""
    return seconds(_core.Kernel(plan(law, params, inputs, **settings)), batch) * 1e6
