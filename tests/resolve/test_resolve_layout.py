"""Placements against the engine's own group construction, rank by rank."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from resolve_cases import CHIPS, bundle_of

from steppe.documents import Chip
from steppe.resolve.choices import resolve
from steppe.resolve.layout import (
    Machines,
    machines_of,
    nodes_spanned,
    placements_of,
    rack_is_one_domain,
    ranks_per_node,
)
from steppe.resolve.resolved import Widths


def engine_groups(widths: Widths) -> dict[str, list[list[int]]]:
    """Groups as the engine builds them (vllm/distributed/parallel_state.py:2051-2241), transcribed."""
    world = widths.dp * widths.pp * widths.pcp * widths.tp
    ranks = np.arange(world).reshape(-1, widths.dp, widths.pp, widths.pcp, widths.tp)
    dcp = ranks.swapaxes(-1, -2) if widths.dcp > 1 else ranks
    whole = widths.dp * widths.pcp * widths.tp
    return {
        "tp": ranks.reshape(-1, widths.tp).tolist(),
        "dcp": dcp.reshape(-1, widths.dcp).tolist(),
        "pcp": ranks.swapaxes(3, 4).reshape(-1, widths.pcp).tolist(),
        "dp": ranks.swapaxes(1, 4).reshape(-1, widths.dp).tolist(),
        "expert": ranks.swapaxes(1, 2).reshape(-1, whole).tolist(),
    }


def layouts() -> list[tuple[int, Widths]]:
    """Every layout of tp 1-8, pcp 1-4, dp 1-2 with every dcp the engine admits, on nodes of 4 and 8."""
    found = []
    for gpus in (4, 8):
        for tp in range(1, 9):
            for pcp in range(1, 5):
                for dp in (1, 2):
                    dcps = [d for d in range(1, tp + 1) if tp % d == 0] if pcp == 1 else sorted({1, pcp, tp * pcp})
                    found += [(gpus, Widths(tp, 1, dp, pcp, dcp, dp * pcp * tp)) for dcp in dcps]
    return found


LAYOUTS = layouts()


def launched(gpus: int, widths: Widths) -> tuple[Machines, int]:
    """A pool with as many nodes as the launch needs, and the ranks on each full node."""
    machines = Machines(nodes=64, gpus_per_node=gpus, rack=0)
    return machines, ranks_per_node(widths, machines)


def test_the_sweep_covers_what_it_says() -> None:
    assert len(LAYOUTS) == len(set(LAYOUTS)) == 356


@pytest.mark.parametrize("group", ["tp", "dcp", "pcp", "dp", "expert"])
def test_a_group_crosses_nodes_exactly_when_its_ranks_do(group: str) -> None:
    for gpus, widths in LAYOUTS:
        machines, per_node = launched(gpus, widths)
        placement = placements_of(widths, machines, has_experts=True)[group]
        groups = engine_groups(widths)[group]
        nodes = [{rank // per_node for rank in ranks} for ranks in groups]
        assert placement.width == len(groups[0]), (gpus, widths)
        assert placement.crosses == any(len(seen) > 1 for seen in nodes), (gpus, widths)


@pytest.mark.parametrize("group", ["tp", "pcp", "dp", "expert"])
def test_the_stride_is_the_distance_between_neighbours(group: str) -> None:
    for gpus, widths in LAYOUTS:
        machines, _ = launched(gpus, widths)
        placement = placements_of(widths, machines, has_experts=True)[group]
        for ranks in engine_groups(widths)[group]:
            assert {b - a for a, b in pairwise(ranks)} <= {placement.stride}, (gpus, widths)


def test_the_decode_group_steps_over_tp_only_along_the_prefill_axis() -> None:
    for gpus, widths in LAYOUTS:
        machines, _ = launched(gpus, widths)
        placement = placements_of(widths, machines, has_experts=True)["dcp"]
        first = engine_groups(widths)["dcp"][0]
        if widths.dcp == widths.tp * widths.pcp:
            assert sorted(first) == list(range(widths.dcp))
        elif widths.dcp > 1:
            assert first[1] - first[0] == placement.stride, (gpus, widths)


def test_a_node_holds_as_many_ranks_of_a_group_as_the_placement_says() -> None:
    for gpus, widths in LAYOUTS:
        machines, per_node = launched(gpus, widths)
        for group, placement in placements_of(widths, machines, has_experts=True).items():
            if widths.dcp == widths.tp * widths.pcp and group == "dcp":
                continue  # one set of ranks in two orders; the law reads the inner one
            counts = [
                max(np.unique(np.array(ranks) // per_node, return_counts=True)[1])
                for ranks in engine_groups(widths)[group]
            ]
            assert placement.per_node <= max(counts), (group, gpus, widths)
            if placement.crosses and max(counts) < placement.width:
                assert placement.per_node == max(counts), (group, gpus, widths)


@pytest.mark.parametrize(
    ("widths", "gpus", "nodes", "local", "expected"),
    [
        (Widths(4, 1, 2, 1, 1, 1), 8, 1, None, 8),  # two replicas share a node
        (Widths(4, 1, 2, 1, 1, 1), 8, 2, 1, 4),  # unless one a node is stated
        (Widths(3, 1, 4, 1, 1, 1), 8, 2, None, 6),  # a replica is not split
        (Widths(3, 1, 5, 1, 1, 1), 8, 2, None, 8),  # too few nodes: without gaps
        (Widths(3, 1, 1, 4, 1, 1), 8, 2, None, 6),  # a tensor-parallel group is not split
        (Widths(16, 1, 1, 1, 1, 1), 8, 2, None, 8),
    ],
)
def test_ranks_on_a_node(widths: Widths, gpus: int, nodes: int, local: int | None, expected: int) -> None:
    assert ranks_per_node(widths, Machines(nodes, gpus, 0), local) == expected


def test_a_group_split_by_a_node_edge_has_a_hop_outside() -> None:
    widths = Widths(3, 1, 5, 1, 1, 1)
    placement = placements_of(widths, Machines(2, 8, 0), has_experts=False)["tp"]
    assert placement.crosses
    assert placement.per_node == 2


def test_a_rack_of_one_domain_keeps_wide_groups_inside() -> None:
    outside = resolve(bundle_of("gqa_moe", "rack", tp=8, nodes=2, gpus_per_node=4, cluster={"gpus_per_rack": 4}))
    inside = resolve(bundle_of("gqa_moe", "rack", tp=8, nodes=2, gpus_per_node=4))
    assert outside.placements["tp"].crosses
    assert not inside.placements["tp"].crosses
    assert (outside.nodes_spanned, inside.nodes_spanned) == (2, 1)
    assert inside.one_nvlink_domain
    assert inside.rack_gpus == 72


def test_the_cluster_states_a_smaller_rack_than_the_chip() -> None:
    bundle = bundle_of("gqa_moe", "rack", tp=4, dp=8, ep=True, nodes=8, gpus_per_node=4, cluster={"gpus_per_rack": 16})
    placements = resolve(bundle).placements
    assert placements["expert"].crosses
    assert not placements["tp"].crosses


def test_a_rack_with_slower_links_is_no_domain() -> None:
    slow = Chip.model_validate({"Provenance": "derived", **CHIPS["rack"], "IntraRackBwGBps": 400})
    silent = Chip.model_validate(
        {"Provenance": "derived", **{k: v for k, v in CHIPS["rack"].items() if "Rack" not in k}}
    )
    assert not rack_is_one_domain(slow)
    assert not rack_is_one_domain(silent)
    cluster = bundle_of(gpus_per_node=4).scenario.cluster
    assert machines_of(slow, cluster, 2).rack == 0


def test_a_dense_model_has_no_expert_group() -> None:
    widths = Widths(4, 1, 4, 1, 1, 1)
    machines = Machines(2, 8, 0)
    dense = placements_of(widths, machines, has_experts=False)
    sparse = placements_of(widths, machines, has_experts=True)
    assert (dense["expert"].width, sparse["expert"].width) == (1, 16)
    assert (nodes_spanned(widths, dense, machines), nodes_spanned(widths, sparse, machines)) == (1, 2)
