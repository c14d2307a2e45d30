"""What dividing routed arithmetic by the tensor shards does to measured accuracy, under the reference laws.

    python bench/routed_arithmetic.py ../shared/accuracy/serving_points.csv

Scores every mixture-of-experts row of a serving-point file twice with the `<part>-reference` and `<part>-engine` sets:
as priced (a rank's slice of an expert is charged the whole expert's arithmetic), and with that arithmetic divided by
the ranks that share the expert. Evaluation only: nothing is chosen from it.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from steppe.resolve import plan_experts
from steppe.score import build as score_build
from steppe.score.points import Point, Row, read_points
from steppe.score.predict import predict
from steppe.score.stats import figures

KINDS = ("reference", "engine")


def reference_documents(launch: Any) -> list[dict[str, Any]]:
    """The launch's documents with the reference sets alone; options only refined laws know are left out."""
    scenario, deployment = ORIGINAL_DOCUMENTS(launch)
    part = scenario["cluster"]["hardware"]
    return [{**scenario, "coefficients": [f"{part}-{kind}" for kind in KINDS]}, deployment]


def divided(r: Any, node: Any) -> Any:
    """Experts whose arithmetic is divided by every rank that shares them."""
    experts = ORIGINAL_LIFT(r, node)
    return replace(experts, dp_slice=float(experts.shards))


ORIGINAL_DOCUMENTS, ORIGINAL_LIFT = score_build.documents, plan_experts.lift_experts


def score(points: list[Point], lift: Any) -> list[Row]:
    """Rows scored with `lift` placing the experts."""
    plan_experts.lift_experts = lift
    try:
        return predict(points)
    finally:
        plan_experts.lift_experts = ORIGINAL_LIFT


def main() -> None:
    """Print the figures of both, over the rows whose experts are sliced and over all mixture-of-experts rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    file = parser.parse_args().file
    score_build.documents = reference_documents
    clean = [point for point in read_points(file) if point.clean and not point.fault]
    experts = [point for point in clean if has_experts(point)]
    whole, sliced = score(experts, ORIGINAL_LIFT), score(experts, divided)
    cut = [point.launch.tp > 1 and point.launch.ep == 1 for point in experts]
    for name, chosen in (("experts sliced (tp > 1, no EP)", cut), ("all rows with experts", [True] * len(cut))):
        for label, rows in (("as priced", whole), ("divided", sliced)):
            pairs = [
                (row.tpot_ms, row.point.measured_tpot_ms)
                for row, take in zip(rows, chosen, strict=True)
                if take and row.tpot_ms is not None
            ]
            print(f"{name}: {label}: {json.dumps(figures(pairs))}")
    refused = sorted({row.refused for row in whole if row.refused})
    print(f"refused: {sum(row.refused is not None for row in whole)}", *refused, sep="\n  ")


def has_experts(point: Point) -> bool:
    """Whether the point's model has routed experts."""
    from steppe.catalog import Catalog

    graph = Catalog().model(score_build.model_of(point.launch))
    return any(node.op == "GroupedGEMM" for kind in graph.layer_kinds for node in kind.nodes)


if __name__ == "__main__":
    main()
