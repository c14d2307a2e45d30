"""The picture of a sweep: step time over the quantity that varies most, one line for each of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steppe.plots import PALETTE, _figure, _log_x, _title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from steppe.sweep import Rows

LABELS = {"concurrency": "decodes a step", "context": "context of each decode", "prefill": "prefill chunk, tokens"}


def sweep_figure(rows: Rows, *, title: str = "", dark: bool = False) -> Figure:
    """Step time of rows of `steppe.sweep.sweep`; points whose KV cache does not fit are hollow."""
    across = max(LABELS, key=lambda name: len(np.unique(rows[name])))
    others = [name for name in LABELS if name != across]
    lines = np.unique(rows[others])
    varying = [name for name in others if len(np.unique(lines[name])) > 1]
    with _figure(dark, (6.4, 3.8)) as (figure, axes):
        for index, line in enumerate(lines):
            part = np.sort(rows[rows[others] == line], order=across)
            label = ", ".join(f"{LABELS[name]} {line[name]:,}" for name in varying)
            colour = PALETTE[index % len(PALETTE)]
            times = part["no_overlap"] / 1e6
            style = ("-", "--", ":")[index // len(PALETTE) % 3]
            axes.plot(part[across], times, color=colour, linestyle=style, label=label)
            for fits, fill in ((True, colour), (False, "none")):
                chosen = part["fits"] == fits
                axes.plot(
                    part[across][chosen], times[chosen], "o", markersize=4, markeredgecolor=colour, markerfacecolor=fill
                )
        axes.set(xlabel=LABELS[across], ylabel="step time (ms)")
        axes.set_ylim(bottom=0)
        _title(figure, title)
        values = [int(value) for value in np.unique(rows[across])]
        if values[0] > 0:
            _log_x(axes, values)
        if varying:
            axes.legend()
    return figure
