"""The named breakdown of a step: one line a term, integer nanoseconds that sum exactly to the estimate's resources."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steppe._core import StepEstimate

RESOURCES = ("sm", "hbm", "nvlink", "nic", "host")


@dataclass(frozen=True, slots=True)
class TermCost:
    """One term's share of a resource over all layers of its stage, nanoseconds; credits are negative."""

    stage: str
    name: str
    resource: str
    ns: int
    layers: float


def terms_of(estimate: StepEstimate) -> list[TermCost]:
    """Terms of a step, largest remainder rounded, so that each resource's terms sum to its total.

    A kernel bound by both arithmetic and memory has two lines, one on each resource.
    """
    exact: dict[str, list[tuple[str, str, float, float]]] = {name: [] for name in RESOURCES}
    for stage, name, resource, own, hbm, layers, _ in estimate.rows:
        if own:
            exact[resource].append((stage, name, own, layers))
        if hbm:
            exact["hbm"].append((stage, name, hbm, layers))
    totals = estimate.per_resource
    lines = []
    for resource, rows in exact.items():
        for (stage, name, _, layers), ns in zip(
            rows, _rounded([row[2] for row in rows], totals[resource]), strict=True
        ):
            lines.append(TermCost(stage, name, resource, ns, layers))
    return lines


def _rounded(values: list[float], total: int) -> list[int]:
    """Whole numbers next to `values` that sum to `total` (which lies within one of each of them)."""
    floors = [int(value // 1) for value in values]
    by_remainder = sorted(range(len(values)), key=lambda i: values[i] - floors[i], reverse=True)
    missing = total - sum(floors)
    for i in by_remainder[: max(0, missing)]:
        floors[i] += 1
    return floors


def by_stage(estimate: StepEstimate) -> dict[str, dict[str, int]]:
    """Nanoseconds by stage and term name, both resources of a kernel together, in plan order."""
    out: dict[str, dict[str, int]] = {}
    order = [(stage, name) for stage, name, *_ in estimate.rows]
    sums: dict[tuple[str, str], int] = dict.fromkeys(order, 0)
    for term in estimate.terms:
        sums[term.stage, term.name] += term.ns
    for (stage, name), ns in sums.items():
        if ns:
            out.setdefault(stage, {})[name] = ns
    return out


def html(estimate: StepEstimate) -> str:
    """A notebook's view of an estimate: totals, then the terms that take at least 1 % of the step."""
    total = max(1, estimate.no_overlap)
    rows = "".join(
        f"<tr><td>{escape(stage)}</td><td>{escape(name)}</td><td style='text-align:right'>{ns / 1e3:,.1f}</td>"
        f"<td style='text-align:right'>{100 * ns / total:.1f} %</td></tr>"
        for stage, terms in by_stage(estimate).items()
        for name, ns in terms.items()
        if abs(ns) >= 0.01 * total
    )
    resources = ", ".join(f"{name} {ns / 1e3:,.1f}" for name, ns in estimate.per_resource.items() if ns)
    return (
        f"<p><b>{estimate.no_overlap / 1e6:.3f} ms</b> a step ({estimate.overlap / 1e6:.3f} ms overlapped), "
        f"bottleneck {estimate.bottleneck}; us on {resources}</p>"
        f"<table><tr><th>stage</th><th>term</th><th>us</th><th>share</th></tr>{rows}</table>"
    )
