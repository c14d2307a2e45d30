"""Coefficients in scope of one deployment: which entry of which set wins, and what the kernel read.

Sets are listed by the scenario in order. An entry applies when every key of its scope admits the deployment; an entry
of a later set replaces one of the same name, an earlier set only fills what later ones leave out. Inside a set the
entry with the narrowest scope wins, then the later one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from steppe.documents import Coefficient, CoefficientSet, Law
from steppe.errors import CoefficientError
from steppe.provenance import Ledger, Used


@dataclass(frozen=True, slots=True)
class Scope:
    """What a coefficient's scope is compared with."""

    hardware: str
    model: str
    tp: int
    ep: int
    nodes_spanned: int

    def admits(self, scope: Mapping[str, Iterable[Any]]) -> bool:
        """True when every key of `scope` lists this deployment's value."""
        return all(getattr(self, key) in values for key, values in scope.items())


def _scope_of(entry: Coefficient | Law) -> dict[str, list[Any]]:
    stated: Mapping[str, Any] = entry.scope
    return {key: list(values) for key, values in stated.items() if values}


def _sources(entry: Coefficient | Law) -> tuple[str, ...]:
    return tuple(source if isinstance(source, str) else source.cite for source in entry.sources or ())


class Coefficients:
    """The entries that apply to a deployment, read through a ledger so that provenance is what was really used."""

    def __init__(self, sets: Iterable[CoefficientSet], scope: Scope, ledger: Ledger) -> None:
        self.scope = scope
        self._ledger = ledger
        self._entries: dict[str, tuple[str, Coefficient]] = {}
        self._laws: dict[tuple[str, str], tuple[str, Law]] = {}
        self._elsewhere: set[str] = set()  # names that exist, but for another deployment
        for each in sets:
            self._admit(each)

    def _admit(self, each: CoefficientSet) -> None:
        narrowest: dict[Any, int] = {}
        entries: list[Coefficient | Law] = [*each.coefficients, *each.laws]
        for entry in entries:
            scope = _scope_of(entry)
            key: Any = (entry.law, entry.key) if isinstance(entry, Law) else entry.name
            if not self.scope.admits(scope):
                if isinstance(entry, Coefficient):
                    self._elsewhere.add(entry.name)
                continue
            if narrowest.get(key, -1) > len(scope):
                continue
            narrowest[key] = len(scope)
            if isinstance(entry, Law):
                self._laws[(entry.law, entry.key)] = (each.name, entry)
            else:
                self._entries[entry.name] = (each.name, entry)

    def get(self, name: str) -> float | None:
        """The value of `name` in the units its entry states, or None where no set carries it for this deployment."""
        found = self._entries.get(name)
        if found is None or found[1].method == "not_charged":
            return None
        set_name, entry = found
        self._ledger.use(
            Used(
                name,
                set_name,
                entry.method,
                _scope_of(entry),
                _sources(entry),
                value=entry.value,
                units=entry.units,
                rationale=entry.rationale,
            )
        )
        return entry.value

    def need(self, name: str, purpose: str) -> float:
        """The value of `name`; raises `CoefficientError` where it is missing or out of scope."""
        value = self.get(name)
        if value is None:
            where = "is out of scope" if name in self._elsewhere else "is missing"
            raise CoefficientError(
                f"coefficient {name} {where} for {self.describe()}: {purpose} cannot be priced without it. "
                f"List a coefficient set that carries it for this deployment."
            )
        return value

    def optional(self, name: str, without: str) -> float | None:
        """The value of `name`; where it is absent, records the assumption `without` under the coefficient's name."""
        value = self.get(name)
        if value is None:
            self._ledger.assume(name, "absent", without)
        return value

    def law(self, family: str, key: str) -> Law | None:
        """The fitted law `key` of `family`, or None where no set carries it for this deployment."""
        found = self._laws.get((family, key))
        if found is None:
            return None
        set_name, law = found
        fit = dict(law.fit or {})
        scope, sources = _scope_of(law), _sources(law)
        self._ledger.use(
            Used(f"{family}:{key}", set_name, law.method, scope, sources, fit=fit, rationale=law.rationale)
        )
        return law

    def has_law(self, family: str, key: str) -> bool:
        """Whether a law is in scope, without recording a use."""
        return (family, key) in self._laws

    def assume(self, name: str, value: Any, reason: str) -> None:
        """Record an assumption about how something is priced."""
        self._ledger.assume(name, value, reason)

    def laws(self, family: str) -> dict[str, Law]:
        """Every law of `family` in scope by key, without recording a use."""
        return {key: law for (name, key), (_, law) in self._laws.items() if name == family}

    def names(self, prefix: str) -> list[str]:
        """Names in scope that start with `prefix`."""
        return [name for name in self._entries if name.startswith(prefix)]

    def describe(self) -> str:
        """The deployment as an error names it."""
        s = self.scope
        return f"hardware {s.hardware}, model {s.model}, tp {s.tp}, ep {s.ep}, nodes spanned {s.nodes_spanned}"
