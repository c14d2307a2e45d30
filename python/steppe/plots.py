"""Pictures of what a deployment costs. Needs matplotlib: `pip install 'steppe[plot]'`.

Every function returns a `matplotlib.figure.Figure`; `save` writes it as PNG or SVG. Colours are told apart by readers
with colour vision deficiencies and in grey (each segment is also outlined and, where it is wide, named by the legend in
stacking order). `dark=True` draws for a dark page; the default prints.

    figure = steppe.plots.step_breakdown(kernel, [(f"{n}", f"{n}@2048") for n in (1, 16, 64, 256)], xlabel="decodes")
    steppe.plots.save(figure, "step.svg")
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steppe.errors import Error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from steppe._core import Batch, StepEstimate
    from steppe.kernel import Kernel

RESOURCES = {"sm": "SM (arithmetic)", "hbm": "HBM (memory)", "nvlink": "NVLink", "nic": "network", "host": "host"}
PALETTE = ("#4477AA", "#EE9944", "#44AA77", "#AA4477", "#88CCEE", "#BBAA33", "#8866BB", "#CC6677")
OTHER = "#999999"
GIB = float(1 << 30)

_INK = {False: "#222222", True: "#DDDDDD"}
_PAPER = {False: "#FFFFFF", True: "#1E2129"}


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure as its name says (.png, .svg, .pdf) and return the path; the same figure gives the same SVG."""
    target = Path(path)
    if target.suffix not in (".png", ".svg", ".pdf"):
        raise Error(f"{target}: end the name of a picture with .png, .svg or .pdf")
    matplotlib = _matplotlib()
    metadata = {"Date": None} if target.suffix == ".svg" else None
    with matplotlib.rc_context({"svg.hashsalt": target.stem}):
        figure.savefig(target, dpi=160, metadata=metadata, facecolor=figure.get_facecolor())
    return target


def step_breakdown(
    kernel: Kernel,
    steps: Sequence[tuple[str, Batch | str]],
    *,
    by: str = "resource",
    xlabel: str = "",
    title: str = "",
    dark: bool = False,
) -> Figure:
    """Stacked bars of step time, one bar a step.

    `steps` are (label, batch) pairs; a batch may be text such as `64@2048+p512`. `by` is "resource" (what the time is
    spent on) or "term" (the kernels that take most, the rest as one). Raises `steppe.Error` as `Kernel.step_time` does.
    """
    estimates = [(label, kernel.step_time(_batch(step))) for label, step in steps]
    return _bars(estimates, by=by, xlabel=xlabel, title=title or _name(kernel), dark=dark)


def step_breakdowns(
    bars: Sequence[tuple[str, Kernel, Batch | str]],
    *,
    by: str = "resource",
    title: str = "",
    dark: bool = False,
) -> Figure:
    """Stacked bars of step time where each bar is its own deployment and step: (label, kernel, batch) triples."""
    estimates = [(label, kernel.step_time(_batch(step))) for label, kernel, step in bars]
    return _bars(estimates, by=by, xlabel="", title=title, dark=dark)


def compare(
    kernels: Mapping[str, Kernel],
    step: Batch | str,
    *,
    by: str = "resource",
    title: str = "",
    dark: bool = False,
) -> Figure:
    """Stacked bars of one step on several deployments side by side; `kernels` maps a label to each."""
    batch = _batch(step)
    estimates = [(label, kernel.step_time(batch)) for label, kernel in kernels.items()]
    shown = title or (f"one step of {step}" if isinstance(step, str) else f"one step, {batch!r}")
    return _bars(estimates, by=by, xlabel="", title=shown, dark=dark)


def step_curves(
    kernels: Mapping[str, Kernel],
    steps: Sequence[tuple[float, Batch | str]],
    *,
    xlabel: str,
    title: str = "",
    log: bool = True,
    dark: bool = False,
) -> Figure:
    """Step time over one quantity, such as the batch or the context; one line a deployment.

    `steps` are (x, batch) pairs; the same steps are priced on each of `kernels`.
    """
    with _figure(dark, (6.4, 3.8)) as (figure, axes):
        for index, (label, kernel) in enumerate(kernels.items()):
            times = [kernel.step_time(_batch(step)).no_overlap / 1e6 for _, step in steps]
            axes.plot([x for x, _ in steps], times, marker="o", markersize=4, color=PALETTE[index], label=label)
        axes.set(xlabel=xlabel, ylabel="step time (ms)")
        _title(figure, title)
        if log:
            _log_x(axes, [x for x, _ in steps])
        axes.set_ylim(bottom=0)
        if len(kernels) > 1:
            axes.legend()
    return figure


def concurrency(
    kernels: Mapping[str, Kernel],
    *,
    isl: int,
    osl: int,
    levels: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256),
    title: str = "",
    dark: bool = False,
) -> Figure:
    """Time per output token, and output tokens a second a GPU, over the requests in flight a data-parallel rank.

    The steady state of a closed loop with prompts of `isl` and outputs of `osl` tokens (`steppe.serving`); one line a
    deployment. Levels a deployment's token budget has no room for are left out.
    """
    with _figure(dark, (8.6, 3.8), columns=2) as (figure, both):
        for index, (label, kernel) in enumerate(kernels.items()):
            rows = _steady(kernel, isl, osl, levels)
            at = [level for level, _, _ in rows]
            for axes, values in zip(both, ([r[1] for r in rows], [r[2] for r in rows]), strict=True):
                axes.plot(at, values, marker="o", markersize=4, color=PALETTE[index], label=label)
        for axes, ylabel in zip(both, ("time per output token (ms)", "output tokens/s per GPU"), strict=True):
            axes.set(xlabel="requests in flight", ylabel=ylabel)
            axes.set_ylim(bottom=0)
            _log_x(axes, levels)
        _title(figure, title or f"prompts of {isl:,}, outputs of {osl:,} tokens")
        if len(kernels) > 1:
            both[0].legend()
    return figure


def _steady(kernel: Kernel, isl: int, osl: int, levels: Sequence[int]) -> list[tuple[int, float, float]]:
    """(requests in flight, TPOT in ms, output tokens/s a GPU) at each level the deployment can hold."""
    from steppe.serving import kernel_step, steady_state

    widths = kernel.resolution.widths
    budget = kernel.resolution.settings.max_num_batched_tokens
    step = kernel_step(kernel)
    rows = []
    for level in levels:
        if level < budget:
            state = steady_state(step, isl=isl, osl=osl, concurrency=level, token_budget=budget, dp=widths.dp)
            rows.append((level, state.tpot * 1e3, state.output_rate / (widths.tp * widths.pcp)))
    return rows


def memory_bar(
    kernel: Kernel,
    contexts: Sequence[int] = (),
    *,
    requests: int = 16,
    title: str = "",
    dark: bool = False,
) -> Figure:
    """Stacked bars of one rank's memory, one bar a context: what is held whatever is served, and the KV cache of
    `requests` requests of that many tokens. The line is what the engine may use.

    Contexts default to powers of four up to the longest request. Raises `steppe.Error` for contexts beyond a stated
    max_model_len.
    """
    memory, settings = kernel.memory, kernel.resolution.settings
    longest = settings.max_model_len or 262_144
    lengths = list(contexts) or [length for length in (1024, 4096, 16384, 65536, 262144) if length <= longest]
    fixed = kernel.fixed_bytes()
    held = {
        "weights": fixed.weights,
        "redundant experts": fixed.eplb_replicas,
        "activations": fixed.activations,
        "CUDA graphs": fixed.cuda_graphs,
        "communication, buffers": fixed.comm_buffers + fixed.engine_buffers,
    }
    bars = []
    for length in lengths:
        each = memory.sequence_variable_bytes(length) + memory.sequence_bounded_bytes_at(length)
        cache = requests * (each + memory.sequence_fixed_bytes())
        parts = {name: size / GIB for name, size in held.items() if size}
        bars.append((f"{length:,}", parts | {f"KV cache of {requests}": cache / GIB}))
    usable = kernel.resolution.chip.memory_gib * settings.gpu_memory_utilization + kernel.pre_snapshot_bytes() / GIB
    return stacked(
        bars,
        ylabel="GiB on one rank",
        xlabel=f"tokens of each of {requests} requests",
        title=title or _name(kernel),
        limit=(f"the engine may use {usable:.1f} GiB", usable),
        dark=dark,
    )


def stacked(
    bars: Sequence[tuple[str, Mapping[str, float]]],
    *,
    ylabel: str,
    xlabel: str = "",
    title: str = "",
    limit: tuple[str, float] | None = None,
    form: str = "{:,.1f}",
    dark: bool = False,
) -> Figure:
    """Stacked bars of any parts: (label, {part: value}) pairs; parts keep the order they first occur in.

    `limit` draws a labelled line, such as a GPU's memory. `form` formats the total over each bar.
    """
    parts = list(dict.fromkeys(part for _, values in bars for part in values))
    with _figure(dark, (_width([label for label, _ in bars]), 4.0)) as (figure, axes):
        _stack(axes, [label for label, _ in bars], parts, [dict(values) for _, values in bars], PALETTE, dark, form)
        axes.set(ylabel=ylabel, xlabel=xlabel)
        _title(figure, title)
        if limit is not None:
            axes.axhline(limit[1], color=_INK[dark], linewidth=1, linestyle="--")
            axes.annotate(limit[0], (0.01, limit[1]), xycoords=("axes fraction", "data"), va="bottom", fontsize="small")
            axes.set_ylim(top=max(axes.get_ylim()[1], 1.08 * limit[1]))
        _legend_beside(axes)
    return figure


def _bars(estimates: Sequence[tuple[str, StepEstimate]], *, by: str, xlabel: str, title: str, dark: bool) -> Figure:
    if by not in ("resource", "term"):
        raise Error(f"by={by!r}: break a step down by 'resource' or by 'term'")
    parts = [_resources(e) for _, e in estimates] if by == "resource" else _largest([e for _, e in estimates])
    names = list(dict.fromkeys(name for part in parts for name in part))
    if by == "resource":
        names = [label for label in RESOURCES.values() if label in names]
        colours = tuple(PALETTE[list(RESOURCES.values()).index(name)] for name in names)
    else:
        colours = tuple(OTHER if name == "other" else PALETTE[i % len(PALETTE)] for i, name in enumerate(names))
    with _figure(dark, (_width([label for label, _ in estimates]), 4.0)) as (figure, axes):
        _stack(axes, [label for label, _ in estimates], names, parts, colours, dark)
        axes.set(ylabel="step time (ms)", xlabel=xlabel)
        _title(figure, title)
        _legend_beside(axes)
    return figure


def _resources(e: StepEstimate) -> dict[str, float]:
    return {RESOURCES[name]: ns / 1e6 for name, ns in e.per_resource.items() if ns}


def _largest(estimates: Sequence[StepEstimate], most: int = 7) -> list[dict[str, float]]:
    """Milliseconds by term name: the terms largest over all steps, then "other"."""
    from steppe.breakdown import by_stage

    each: list[dict[str, float]] = []
    for e in estimates:
        sums: dict[str, float] = {}
        for terms in by_stage(e).values():
            for name, ns in terms.items():
                sums[name] = sums.get(name, 0.0) + ns / 1e6
        each.append(sums)
    shares: dict[str, float] = {}
    for sums in each:
        total = sum(sums.values()) or 1.0
        for name, ms in sums.items():
            shares[name] = shares.get(name, 0.0) + ms / total
    kept = sorted(shares, key=lambda name: -shares[name])[:most]
    out = []
    for sums in each:
        other = sum(ms for name, ms in sums.items() if name not in kept)
        out.append({name: sums.get(name, 0.0) for name in kept} | ({"other": other} if other else {}))
    return out


def _stack(
    axes: Axes,
    labels: Sequence[str],
    parts: Sequence[str],
    bars: Sequence[Mapping[str, float]],
    colours: Sequence[str],
    dark: bool,
    form: str = "{:,.1f}",
) -> None:
    bottom = [0.0] * len(bars)
    for part, colour in zip(parts, _repeated(colours, len(parts)), strict=True):
        heights = [bar.get(part, 0.0) for bar in bars]
        axes.bar(
            range(len(bars)),
            heights,
            0.7,
            bottom=bottom,
            color=colour,
            label=part,
            edgecolor=_PAPER[dark],
            linewidth=0.6,
        )
        bottom = [low + high for low, high in zip(bottom, heights, strict=True)]
    axes.set_xticks(range(len(labels)), labels)
    for index, top in enumerate(bottom):
        axes.annotate(form.format(top), (index, top), ha="center", va="bottom", fontsize="small")
    axes.margins(y=0.08)


def _repeated(colours: Sequence[str], count: int) -> list[str]:
    return [colours[i % len(colours)] for i in range(count)]


def _width(labels: Sequence[str]) -> float:
    """Inches a figure of labelled bars needs: room for the longest line under each bar, and for the legend."""
    longest = max((len(line) for label in labels for line in label.split("\n")), default=0)
    return max(5.6, 2.6 + max(0.6, 0.1 * longest) * len(labels))


def _title(figure: Figure, text: str) -> None:
    """Over the whole figure, not the axes: beside a legend these are too narrow for a sentence."""
    if text:
        figure.suptitle(text, x=0.01, ha="left", fontsize="medium")


def _legend_beside(axes: Axes) -> None:
    """The legend right of the bars, in stacking order from the top."""
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _log_x(axes: Axes, values: Sequence[float]) -> None:
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log", base=2)
    axes.set_xticks(list(values), [f"{value:g}" for value in values])
    axes.xaxis.set_minor_locator(NullLocator())


@contextmanager
def _figure(dark: bool, size: tuple[float, float], columns: int = 1) -> Iterator[tuple[Figure, Any]]:
    """A figure in this module's style, off pyplot's books: nothing to close, no backend chosen for the caller."""
    matplotlib = _matplotlib()
    from matplotlib.figure import Figure

    ink, paper = _INK[dark], _PAPER[dark]
    style = {
        "figure.facecolor": paper,
        "axes.facecolor": paper,
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "grid.alpha": 0.25,
        "legend.fontsize": "small",
        "legend.facecolor": paper,
        "legend.edgecolor": paper,
        "legend.framealpha": 0.9,
        **dict.fromkeys(
            ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color"), ink
        ),
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=size, layout="constrained")
        yield figure, figure.subplots(1, columns)


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise Error("pictures need matplotlib: pip install 'steppe[plot]'") from None
    return matplotlib


def _batch(step: Batch | str) -> Batch:
    from steppe.steps import parse_step

    return parse_step(step) if isinstance(step, str) else step


def _name(kernel: Kernel) -> str:
    return repr(kernel)[len("<Kernel ") : -1]
