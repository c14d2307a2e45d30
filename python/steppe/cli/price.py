"""`steppe price` and `steppe explain`: what steps of a deployment cost, and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steppe.breakdown import RESOURCES
from steppe.cli.deployment import of_deployment
from steppe.errors import Error

if TYPE_CHECKING:
    from steppe._core import StepEstimate
    from steppe.kernel import Kernel

NARROW = 72  # columns below which the resources are left out
WIDE = 100  # columns from which the table also names the largest terms
TYPICAL = ("1@1024", "16@1024", "64@2048", "256@2048", "p2048", "p8192", "64@2048+p2048")

DECODE = Annotated[
    list[str] | None, typer.Option("--decode", metavar="N@CTX", help="N decodes at CTX computed tokens.")
]
PREFILL = Annotated[
    list[str] | None, typer.Option("--prefill", metavar="TOKENS[@CACHED]", help="One prefill chunk of TOKENS.")
]
STEP = Annotated[
    list[str] | None, typer.Option("--step", metavar="SPEC", help="Any step, e.g. 64@2048+p2048. All are repeatable.")
]
JSON = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def register(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("price")(price)
    app.command("explain")(explain)


def steps_of(decode: list[str] | None, prefill: list[str] | None, step: list[str] | None) -> list[str]:
    """Step texts of the options, in the order decode, prefill, step; typical ones where none is given."""
    return [*(decode or []), *(f"p{each}" for each in prefill or []), *(step or [])]


@of_deployment
def price(
    kernel: Kernel,
    decode: DECODE = None,
    prefill: PREFILL = None,
    step: STEP = None,
    json_output: JSON = False,
) -> None:
    """Price steps: a table of time, breakdown and bottleneck. Without steps, some typical ones."""
    from steppe.steps import parse_step

    given = steps_of(decode, prefill, step)
    priced: list[tuple[str, StepEstimate]] = []
    budget = kernel.resolution.settings.max_num_batched_tokens
    for text in given or TYPICAL:
        try:
            estimate = kernel.step_time(parse_step(text))
        except Error:
            if given:
                raise  # a typical step may exceed the deployment's max_model_len; one asked for may not
            continue
        if given or estimate.tokens <= budget:
            priced.append((text, estimate))
    if json_output:
        typer.echo(
            json.dumps({"deployment": kernel.resolved(), "steps": [_as_json(t, e) for t, e in priced]}, indent=2)
        )
        return
    _print_prices(kernel, priced)


def _as_json(text: str, e: StepEstimate) -> dict[str, Any]:
    return {
        "step": text,
        "tokens": e.tokens,
        "no_overlap_ns": e.no_overlap,
        "overlap_ns": e.overlap,
        "draft_ns": e.draft,
        "bottleneck": e.bottleneck,
        "per_resource_ns": e.per_resource,
    }


def _print_prices(kernel: Kernel, priced: list[tuple[str, StepEstimate]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    used = [name for name in RESOURCES if any(e.per_resource[name] for _, e in priced)]
    console = Console()
    wide = console.width >= WIDE
    if console.width < NARROW:
        used = []  # never cut a number: the time alone, and what it waits for
    table = Table(title=str(kernel)[1:-1], caption="milliseconds on one rank", title_justify="left", box=SIMPLE_HEAD)
    for name, side in (("step", "left"), ("tokens", "right"), ("ms", "right")):
        table.add_column(name, justify=side, no_wrap=True)  # type: ignore[arg-type]
    for name in used:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("bottleneck", no_wrap=True)
    if wide:
        table.add_column("most of it", no_wrap=True)
    for text, e in priced:
        resources = [f"{e.per_resource[name] / 1e6:.2f}" if e.per_resource[name] else "-" for name in used]
        most = [largest_terms(e)] if wide else []
        table.add_row(text, f"{e.tokens:,}", f"{e.no_overlap / 1e6:.2f}", *resources, e.bottleneck, *most)
    console.print(table)
    console.print(rests_on(kernel))
    if shortfall := does_not_fit(kernel):
        console.print(f"[bold]Note:[/] {shortfall}", highlight=False)


def does_not_fit(kernel: Kernel) -> str:
    """Why the deployment would not start for want of memory; "" where it would."""
    from steppe.memory import DoesNotFit

    try:
        kernel.kv_capacity()
    except DoesNotFit as error:
        return f"{error} (steppe memory shows the parts)"
    except Error:
        pass  # a model without caches has no capacity to size
    return ""


def largest_terms(e: StepEstimate, most: int = 2) -> str:
    """Names and shares of the terms that take most of a step."""
    from steppe.breakdown import by_stage

    sums: dict[str, int] = {}
    for terms in by_stage(e).values():
        for name, ns in terms.items():
            sums[name] = sums.get(name, 0) + ns
    top = sorted(sums.items(), key=lambda item: -item[1])[:most]
    return ", ".join(f"{name} {100 * ns / max(1, e.no_overlap):.0f}%" for name, ns in top)


def rests_on(kernel: Kernel) -> str:
    """One paragraph on the evidence behind a kernel's numbers."""
    evidence = kernel.evidence()
    methods = ", ".join(f"{count} {method}" for method, count in sorted(evidence["by_method"].items()))
    assumed = evidence["assumed"]
    shown = ", ".join(assumed[:6]) + (f" and {len(assumed) - 6} more" if len(assumed) > 6 else "")
    return (
        f"Rests on {evidence['total']} entries: {methods}. Assumed: {shown or 'nothing'}. (steppe provenance lists all)"
    )


@of_deployment
def explain(
    kernel: Kernel,
    step: Annotated[str, typer.Argument(metavar="STEP", help="A step, e.g. 64@2048 or 64@2048+p2048.")],
    json_output: JSON = False,
) -> None:
    """Explain one step: every term, layer kind by layer kind."""

    from steppe.steps import parse_step

    batch = parse_step(step)
    if json_output:
        e = kernel.step_time(batch)
        terms = [{"stage": t.stage, "term": t.name, "resource": t.resource, "ns": t.ns} for t in e.terms]
        typer.echo(json.dumps({**_as_json(step, e), "terms": terms}, indent=2))
        return
    from rich.console import Console

    Console().print(kernel.explain(batch).table())
