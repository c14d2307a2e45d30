"""The ledger of a resolution: what was assumed, what was overridden, which coefficients a kernel rests on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Assumption:
    """A setting or coefficient the documents left out, with the value filled in and the reason."""

    name: str
    value: Any
    reason: str


@dataclass(frozen=True, slots=True)
class Override:
    """A setting the engine would not run as stated: what was asked for, what is priced, and why."""

    field: str
    requested: Any
    resolved: Any
    reason: str


@dataclass(frozen=True, slots=True)
class Used:
    """A coefficient or fitted law a kernel reads. `value` is None for a law, whose parameters stay in its set."""

    name: str
    set: str
    method: str
    scope: dict[str, list[Any]]
    sources: tuple[str, ...] = ()
    value: float | None = None
    units: str = ""
    fit: dict[str, Any] = field(default_factory=dict)
    rationale: str = ""


@dataclass(slots=True)
class Ledger:
    """Collected while a deployment is resolved; frozen into the kernel's provenance afterwards."""

    assumptions: list[Assumption] = field(default_factory=list)
    overrides: list[Override] = field(default_factory=list)
    used: dict[tuple[str, str], Used] = field(default_factory=dict)

    def assume(self, name: str, value: Any, reason: str) -> None:
        """Record an assumption once per name."""
        if all(item.name != name for item in self.assumptions):
            self.assumptions.append(Assumption(name, value, reason))

    def override(self, field: str, requested: Any, resolved: Any, reason: str) -> None:
        """Record that `field` is priced as `resolved` although `requested` was stated."""
        self.overrides.append(Override(field, requested, resolved, reason))

    def use(self, entry: Used) -> None:
        """Record that the kernel reads this coefficient or law."""
        self.used[(entry.name, entry.set)] = entry
