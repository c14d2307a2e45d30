"""`refusals.md` and `assumptions.md`: the resolver's own tables, for a reader."""

from __future__ import annotations

import re
from collections import Counter

from steppe.docgen.markdown import code, page, table
from steppe.resolve.refusals import Refusal
from steppe.resolve.rules import ASSUMPTIONS, OVERRIDES, REFUSALS

LAYERS = {
    "engine": (
        "The engine would not start it",
        "vLLM itself raises for these deployments, or its documentation rules them out. The source is where it does.",
    ),
    "unpriced": (
        "The engine would run it, and it is not priced",
        "These deployments run. Their cost is not modelled, and a number that ignores the setting would mislead.",
    ),
}


def _blank(text: str) -> str:
    """A template as a reader sees it: `{name:g}` is the deployment's own number, shown as *name*."""
    return re.sub(r"\{(\w+)[^}]*\}", r"*\1*", text)


def _refusal(rule: Refusal) -> tuple[str, ...]:
    return (
        f'<span id="{rule.code}"></span>`{rule.code}`',
        code(rule.setting),
        _blank(rule.reason),
        _blank(rule.change),
        rule.source,
    )


def refusals() -> str:
    """The page of everything that is refused."""
    parts = [
        "# Refusals",
        "A deployment is refused, never priced with a guess, when the engine would not start it or when this release "
        "cannot price it truthfully. A refusal is a `steppe.DeploymentError` that names the setting, the reason and "
        "what to change; the code in brackets at its end is the one in these tables. Words in *italics* are filled in "
        "with the deployment's own numbers. Malformed documents are refused before any of this, with every problem's "
        "file, line and key; a coefficient that is needed and missing is a `steppe.CoefficientError`.",
    ]
    for layer, (title, text) in LAYERS.items():
        rows = [_refusal(rule) for rule in REFUSALS if rule.layer == layer]
        parts += [f"## {title}", text, table(("code", "setting", "why", "what to change", "source"), rows)]
    counts = Counter(rule.layer for rule in REFUSALS)
    parts.append(f"{len(REFUSALS)} reasons: {counts['engine']} of the engine, {counts['unpriced']} of this release.")
    return page(*parts)


def assumptions() -> str:
    """The page of everything that is filled in or overridden."""
    filled = [(code(a.name), a.when, _blank(a.reason), a.source) for a in ASSUMPTIONS]
    changed = [(code(o.field), o.when, _blank(o.reason), o.source) for o in OVERRIDES]
    return page(
        "# Assumptions and overrides",
        "What the documents leave open is filled in with what the engine would choose, and what they state but the "
        "engine would not run as stated is priced as it would run. Both are recorded: `kernel.provenance()` and "
        "`steppe provenance` list the ones that apply to a deployment, with the value.",
        "Citations `vllm/<path>:<lines>` mean vLLM v0.31.0.",
        "## Assumptions",
        "A deployment that states every setting carries almost none of these. Entries that say *priced as stated* are "
        "caveats: the release would decline or change the setting, and the note says how.",
        table(("name", "when", "reason recorded", "source"), filled),
        "Coefficients that are optional and absent are assumptions too, named for the coefficient, with the value "
        "`absent` and what was priced without it as the reason. So is a fitted law that stands in for one no "
        "measurement covers: its entry names the law it was copied from.",
        "## Overrides",
        table(("setting", "when", "reason recorded", "source"), changed),
    )
