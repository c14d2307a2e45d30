"""Everything a resolution may refuse, assume or override, as tables a program (and the documentation) can read.

The resolver raises and records through these tables only, so that no rule exists outside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from steppe.errors import DeploymentError
from steppe.provenance import Ledger
from steppe.resolve.assumptions import ASSUMPTIONS, OVERRIDES, Assumed, Overridden
from steppe.resolve.refusals import REFUSALS, Refusal

__all__ = ["ASSUMPTIONS", "OVERRIDES", "REFUSALS", "Recorder", "Refused", "refuse"]

_REFUSALS: dict[str, Refusal] = {rule.code: rule for rule in REFUSALS}
_ASSUMPTIONS: dict[str, Assumed] = {rule.name: rule for rule in ASSUMPTIONS}
_OVERRIDES: dict[str, Overridden] = {rule.field: rule for rule in OVERRIDES}


class Refused(DeploymentError):
    """A deployment that is not priced. `code` is the row of `REFUSALS`; `setting` the key at fault."""

    def __init__(self, rule: Refusal, reason: str, change: str) -> None:
        super().__init__(f"{rule.setting}: {reason}. {change}. [{rule.code}; {rule.source}]")
        self.code = rule.code
        self.layer = rule.layer
        self.setting = rule.setting
        self.reason = reason
        self.change = change


def refuse(code: str, **facts: Any) -> NoReturn:
    """Raise the refusal `code`, its texts filled in with `facts`."""
    rule = _REFUSALS[code]
    raise Refused(rule, rule.reason.format(**facts), rule.change.format(**facts))


@dataclass(frozen=True, slots=True)
class Recorder:
    """Writes assumptions and overrides of one resolution to its ledger, with the tables' reasons."""

    ledger: Ledger

    def assume(self, name: str, value: Any, **facts: Any) -> None:
        """Record the assumption `name`; `facts` fill in its reason."""
        self.ledger.assume(name, value, _ASSUMPTIONS[name].reason.format(value=value, **facts))

    def override(self, field: str, requested: Any, resolved: Any, **facts: Any) -> None:
        """Record that `field` is priced as `resolved`; `facts` fill in its reason."""
        reason = _OVERRIDES[field].reason.format(requested=requested, resolved=resolved, **facts)
        self.ledger.override(field, requested, resolved, reason)
