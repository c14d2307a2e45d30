"""`steppe memory`: what a rank holds, what is left for the KV cache, and what fits."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steppe.cli.deployment import of_deployment
from steppe.errors import DeploymentError

if TYPE_CHECKING:
    from steppe.kernel import Kernel
    from steppe.memory.groups import LayerGroup
    from steppe.memory.specs import CacheSpec

GIB = float(1 << 30)
PARTS = {
    "weights": "weights",
    "activations": "activations at the largest step",
    "cuda_graphs": "CUDA graphs",
    "comm_buffers": "communicator and workspace",
    "engine_buffers": "engine buffers",
    "eplb_replicas": "redundant experts",
}
LENGTHS = (1024, 8192, 32768, 131072)

CONTEXT = Annotated[
    list[int] | None,
    typer.Option("--context", metavar="TOKENS", min=1, help="Length of a request to size. Repeatable."),
]
JSON = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
PLOT = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Save a stacked bar as PNG or SVG.")]


def register(app: typer.Typer) -> None:
    """Register the command."""
    app.command("memory")(memory)


@of_deployment
def memory(
    kernel: Kernel,
    context: CONTEXT = None,
    json_output: JSON = False,
    plot: PLOT = None,
) -> None:
    """Size GPU memory: what a rank holds, what a request adds, how many fit. Exit code 1 when the model does not."""
    report = sizes(kernel, context)
    if plot is not None:
        from steppe.plots import memory_bar, save

        save(memory_bar(kernel), plot)
    if json_output:
        typer.echo(json.dumps(report, indent=2))
    else:
        _print(kernel, report)
    if report["does_not_fit"]:
        raise typer.Exit(1)


def sizes(kernel: Kernel, lengths: list[int] | None = None) -> dict[str, Any]:
    """Everything the command prints, as plain data; bytes of one rank."""
    fixed, r = kernel.fixed_bytes(), kernel.resolution
    out: dict[str, Any] = {
        "deployment": kernel.resolved(),
        "part_bytes": int(r.chip.memory_gib * GIB),
        "gpu_memory_utilization": r.settings.gpu_memory_utilization,
        "fixed_bytes": {name: getattr(fixed, name) for name in PARTS} | {"total": fixed.total},
        "pre_snapshot_bytes": kernel.pre_snapshot_bytes(),
        "block_size_tokens": kernel.memory.block_size,
        "bytes_per_block": kernel.memory.bytes_per_block,
        "cache_groups": [_group(group) for group in kernel.memory.groups],
        "kv_budget_bytes": kernel.memory.kv_budget_bytes(),
        "capacity": None,
        "does_not_fit": None,
    }
    try:
        out["capacity"] = kernel.kv_capacity().as_dict()
    except DeploymentError as error:
        out["does_not_fit"] = str(error)
    most = r.settings.max_model_len
    asked = lengths or [length for length in LENGTHS if not most or length <= most]
    out["requests"] = [_request(kernel, tokens, out["capacity"]) for tokens in asked]
    return out


def _group(group: LayerGroup) -> dict[str, Any]:
    """Layers that share block ids: what they keep, and what one block of the group is."""
    kinds = Counter(_cache(spec) for spec in group.specs)
    return {
        "layers": len(group.specs),
        "caches": [f"{count} x {name}" if count > 1 else name for name, count in kinds.items()],
        "block_tokens": group.specs[0].block_size,
        "page_bytes": sum(spec.page_bytes for spec in group.specs),
    }


def _cache(spec: CacheSpec) -> str:
    """A layer's cache in a few words: its kind and what bounds it."""
    name = {"mamba": "recurrent state", "mla": "latent", "window_mla": "window, latent"}.get(spec.kind, spec.kind)
    bound = spec.window or spec.chunk
    pooled = f", {spec.tokens_per_state} tokens a state" if spec.tokens_per_state not in (1, None) else ""
    role = f" ({spec.role})" if spec.role == "indexer" else ""
    return f"{name}{role}{f' {bound}' if bound else ''}{pooled}"


def _request(kernel: Kernel, tokens: int, capacity: dict[str, Any] | None) -> dict[str, Any]:
    admission = int(kernel.sequence_admission_bytes(tokens))
    held = (
        int(kernel.sequence_variable_bytes(tokens))
        + int(kernel.sequence_bounded_bytes_at(tokens))
        + kernel.sequence_fixed_bytes()
    )
    usable = capacity["usable_blocks"] * capacity["bytes_per_block"] if capacity else 0
    return {
        "tokens": tokens,
        "held_bytes": held,
        "admission_bytes": admission,
        "requests_that_fit": usable // admission if admission else None,
    }


def _print(kernel: Kernel, report: dict[str, Any]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console, part = Console(), report["part_bytes"]
    table = Table(title=f"{str(kernel)[8:-1]}: one rank", title_justify="left", box=SIMPLE_HEAD)
    for name, side in (("", "left"), ("GiB", "right"), ("of the part", "right")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]

    def row(name: str, size: float, **style: Any) -> None:
        table.add_row(name, f"{size / GIB:,.2f}", f"{100 * size / part:.1f} %", **style)

    row("memory the driver reports", part)
    row(f"the engine may use ({report['gpu_memory_utilization']:g})", part * report["gpu_memory_utilization"])
    table.add_section()
    for key, name in PARTS.items():
        if report["fixed_bytes"][key]:
            row(name, report["fixed_bytes"][key])
    row("held whatever is served", report["fixed_bytes"]["total"], style="bold")
    if report["pre_snapshot_bytes"]:
        row("  of it outside the engine's budget", report["pre_snapshot_bytes"])
    table.add_section()
    row("left for the KV cache", report["kv_budget_bytes"], style="bold")
    console.print(table)
    if report["does_not_fit"]:
        console.print(f"[bold red]{report['does_not_fit']}[/]", highlight=False)
        return
    capacity = report["capacity"]
    console.print(
        f"{capacity['num_blocks']:,} blocks of {report['bytes_per_block']:,} bytes in "
        f"{len(report['cache_groups'])} group(s): {capacity['tokens']:,} tokens, "
        f"{capacity['max_concurrency']:.2f}x requests of {capacity['max_model_len']:,}.",
        highlight=False,
    )
    if len(report["cache_groups"]) > 1:
        console.print(_groups_table(report["cache_groups"]))
    requests = Table(box=SIMPLE_HEAD, title="One request", title_justify="left")
    for name in ("tokens", "holds MiB", "admission MiB", "fit at once"):
        requests.add_column(name, justify="right")
    for each in report["requests"]:
        fit = each["requests_that_fit"]
        sizes_mib = (f"{each[name] / 2**20:,.1f}" for name in ("held_bytes", "admission_bytes"))
        requests.add_row(f"{each['tokens']:,}", *sizes_mib, "-" if fit is None else f"{fit:,}")
    console.print(requests)


def _groups_table(groups: list[dict[str, Any]]) -> Any:
    """Cache groups; a block id belongs to one of them and costs the widest group's pages."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, title="Cache groups", title_justify="left")
    for name, side in (("layers", "right"), ("caches", "left"), ("tokens a block", "right"), ("pages MiB", "right")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    same = Counter((g["layers"], "; ".join(g["caches"]), g["block_tokens"], g["page_bytes"]) for g in groups)
    for (layers, caches, tokens, pages), times in same.items():
        count = f"{times} x {layers}" if times > 1 else str(layers)
        table.add_row(count, caches, f"{tokens:,}", f"{pages / 2**20:,.3f}")
    return table
