"""Collects the terms of a plan, and the features they read, for the core to evaluate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from steppe import _core

US = 1e-6  # microseconds, the unit of coefficients, in seconds, the unit of terms

SM, HBM, NVLINK, NIC, HOST = (getattr(_core.Resource, name) for name in ("sm", "hbm", "nvlink", "nic", "host"))


@dataclass(frozen=True, slots=True)
class FeatureRef:
    """A feature by its place in its list; classes get their number when the plan is built."""

    kind: str  # fixed | read | pair
    index: int


def fixed(name: str) -> FeatureRef:
    """The feature every plan has under this name."""
    return FeatureRef("fixed", _core.FEATURES[name])


TOKENS = fixed("tokens")
PADDED = fixed("padded_tokens")
SCHEDULED = fixed("scheduled")
REQUESTS = fixed("requests")
DECODES = fixed("decodes")
DECODE_TOKENS = fixed("decode_tokens")
PREFILLS = fixed("prefills")
PREFILL_TOKENS = fixed("prefill_tokens")
CONTEXT_ROWS = fixed("context_rows")
UNPADDED = fixed("unpadded")
MAX_CONTEXT = fixed("max_context")
MAX_CHUNK = fixed("max_chunk")
SAMPLED = fixed("sampled_rows")
GROUP_ROWS = fixed("group_rows")


def pair(figure: str) -> Any:
    """The `PairFigure` of this name."""
    return getattr(_core.PairFigure, figure)


@dataclass(slots=True)
class PlanBuilder:
    """Terms in the making. Stages are opened in order; a term belongs to the stage that is open."""

    _reads: dict[tuple[tuple[str, Any], ...], int] = field(default_factory=dict)
    _pairs: dict[tuple[tuple[str, Any], ...], int] = field(default_factory=dict)
    _stages: list[dict[str, Any]] = field(default_factory=list)
    _terms: list[dict[str, Any]] = field(default_factory=list)
    _passes: list[dict[str, Any]] = field(default_factory=lambda: [{}])

    def read_class(self, **spec: Any) -> FeatureRef:
        """The feature of a decode read (see `ReadClass`), shared by every term that asks for the same one."""
        key = tuple(sorted(spec.items()))
        return FeatureRef("read", self._reads.setdefault(key, len(self._reads)))

    def pair_class(self, **spec: Any) -> FeatureRef:
        """The feature of a prefill figure (see `PairClass`), shared likewise."""
        key = tuple(sorted(spec.items()))
        return FeatureRef("pair", self._pairs.setdefault(key, len(self._pairs)))

    def open_stage(self, name: str, layers: float, pass_: int = 0) -> None:
        """Start a stage of `layers` equal layers; terms that follow belong to it."""
        self._stages.append({"name": name, "layers": float(layers), "pass_": pass_})

    def add_pass(self, **spec: Any) -> int:
        """Add a draft pass (see `Pass`) and return its number."""
        self._passes.append(spec)
        return len(self._passes) - 1

    @property
    def next_term(self) -> int:
        """Index the next term will have."""
        return len(self._terms)

    def term(
        self,
        name: str,
        law: str,
        inputs: Sequence[FeatureRef],
        params: Mapping[str, float],
        resource: Any,
        *,
        count: float = 1.0,
        serial: bool = False,
        derate: bool = False,
    ) -> int:
        """Add a term to the open stage and return its index. `params` holds exactly the law's parameters by name."""
        names, _ = _core.LAWS[law]
        if set(names) != set(params):
            raise AssertionError(f"law {law} takes {names}, not {tuple(params)}")
        self._terms.append(
            {
                "name": name,
                "law": law,
                "inputs": tuple(inputs),
                "params": [float(params[each]) for each in names],
                "resource": resource,
                "stage": len(self._stages) - 1,
                "count": float(count),
                "serial": serial,
                "derate": derate,
            }
        )
        return len(self._terms) - 1

    def curve(self, name: str, x: FeatureRef, params: Sequence[float], resource: Any) -> None:
        """Add a measured curve: its head of six numbers, then (bytes, us) points."""
        self._terms.append(
            {
                "name": name,
                "law": "curve",
                "inputs": (x,),
                "params": list(params),
                "resource": resource,
                "stage": len(self._stages) - 1,
                "count": 1.0,
                "serial": True,
                "derate": False,
            }
        )

    def affine(
        self,
        name: str,
        resource: Any,
        x: FeatureRef,
        slope: float,
        *,
        constant: float = 0.0,
        gate: FeatureRef | None = None,
        **flags: Any,
    ) -> int:
        """Add `constant + slope*x` seconds, charged while `gate` (default x) is not 0."""
        return self.term(name, "affine", (gate or x, x), {"constant": constant, "slope": slope}, resource, **flags)

    def build(self, *, sm_count: int, **features: Any) -> Any:
        """The finished `_core.Plan`; `features` are the remaining settings of its `FeaturePlan`."""
        base = len(_core.FEATURES)
        offset = {"fixed": 0, "read": base, "pair": base + len(self._reads)}
        terms = [
            _core.Term(**{**each, "inputs": [offset[ref.kind] + ref.index for ref in each["inputs"]]})
            for each in self._terms
        ]
        plan = _core.FeaturePlan(
            reads=[_core.ReadClass(**dict(key)) for key in self._reads],
            pairs=[_core.PairClass(**dict(key)) for key in self._pairs],
            **features,
        )
        return _core.Plan(
            features=plan,
            passes=[_core.Pass(**each) for each in self._passes],
            stages=[_core.Stage(**each) for each in self._stages],
            terms=terms,
            sm_count=sm_count,
        )
