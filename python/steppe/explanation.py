"""What a person reads about one step: every term of every stage, with its share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steppe.breakdown import by_stage, html

if TYPE_CHECKING:
    from steppe._core import StepEstimate


@dataclass(frozen=True, slots=True)
class Explanation:
    """A step's estimate as a table; prints as text, shows as HTML in a notebook."""

    title: str
    estimate: StepEstimate

    def table(self) -> Any:
        """The table as a `rich` renderable."""
        from rich.table import Table

        e = self.estimate
        layers = {stage: count for stage, _, _, _, _, count, _ in e.rows}
        table = Table(
            title=self.title,
            title_justify="left",
            caption=f"{e.no_overlap / 1e6:.3f} ms ({e.overlap / 1e6:.3f} ms overlapped), bottleneck {e.bottleneck}",
        )
        for name, side in (
            ("stage", "left"),
            ("term", "left"),
            ("us a layer", "right"),
            ("us", "right"),
            ("share", "right"),
        ):
            table.add_column(name, justify=side)  # type: ignore[arg-type]
        for stage, terms in by_stage(e).items():
            first = f"{stage} x {layers[stage]:g}"
            for name, ns in terms.items():
                share = f"{100 * ns / max(1, e.no_overlap):.1f} %"
                table.add_row(first, name, f"{ns / 1e3 / layers[stage]:,.2f}", f"{ns / 1e3:,.1f}", share)
                first = ""
            table.add_section()
        return table

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=110, record=False, file=None, no_color=True)
        with console.capture() as captured:
            console.print(self.table())
        return captured.get()

    def _repr_html_(self) -> str:
        return html(self.estimate)
