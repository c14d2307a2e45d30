"""Where ranks lie: group widths, how each communication group falls on nodes, and which groups leave NVLink."""

from __future__ import annotations

from dataclasses import dataclass

from steppe.documents import Chip, Cluster, Parallel
from steppe.resolve.resolved import Placement, Widths


@dataclass(frozen=True, slots=True)
class Machines:
    """The nodes of one pool, in GPUs. `rack`: the size of one NVLink domain beyond the node, 0 without one."""

    nodes: int
    gpus_per_node: int
    rack: int


def widths_of(parallel: Parallel) -> Widths:
    """Widths of a pool, unset ones as 1."""
    return Widths(
        tp=parallel.tp,
        pp=parallel.pp,
        dp=parallel.dp,
        pcp=parallel.pcp or 1,
        dcp=parallel.dcp or 1,
        ep=parallel.ep_width,
    )


def rack_is_one_domain(chip: Chip) -> bool:
    """Whether NVLink joins the chip's whole rack: its rack links are as fast as those inside a node."""
    return bool(chip.gpus_per_rack) and (chip.intra_rack_bw_gbps or 0.0) >= chip.intra_node_bw_gbps


def machines_of(chip: Chip, cluster: Cluster, nodes: int) -> Machines:
    """The machines of a pool of `nodes` nodes. The cluster's rack size goes before the chip's own."""
    rack = (cluster.gpus_per_rack or chip.gpus_per_rack or 0) if rack_is_one_domain(chip) else 0
    return Machines(nodes, cluster.gpus_per_node, rack)


def ranks_per_node(widths: Widths, machines: Machines, dp_local: int | None = None) -> int:
    """Ranks the launcher puts on each full node, in GPUs.

    A replica that fits a node is not split, and a tensor-parallel group that fits is not either; where the pool has
    too few nodes for that, ranks fill the nodes without gaps.
    """
    replica = widths.pp * widths.pcp * widths.tp
    gpus = machines.gpus_per_node
    if replica <= gpus:
        ranks = (dp_local or gpus // replica) * replica
    elif widths.tp <= gpus:
        ranks = gpus // widths.tp * widths.tp
    else:
        ranks = gpus
    if ranks > gpus or ranks * machines.nodes < replica * widths.dp:
        return gpus
    return ranks


def placements_of(
    widths: Widths, machines: Machines, has_experts: bool, dp_local: int | None = None
) -> dict[str, Placement]:
    """Placement of each group in the engine's rank order, DP x PP x PCP x TP with TP moving fastest.

    Keys are tp, expert, pcp, dcp and dp. Source: vllm/distributed/parallel_state.py:2045-2241.
    """
    per_node = ranks_per_node(widths, machines, dp_local)
    replica = widths.pp * widths.pcp * widths.tp
    world = widths.dp * replica
    plane = widths.pcp * widths.tp
    along_pcp = widths.pcp > 1 and widths.dcp <= widths.pcp
    groups = {
        # name: width, stride, and the aligned run of ranks each group lies in
        "tp": (widths.tp, 1, widths.tp),
        "expert": (widths.moe_group if has_experts else 1, 1, world),
        "pcp": (widths.pcp, widths.tp, plane),
        "dcp": (widths.dcp, widths.tp if along_pcp else 1, plane if widths.pcp > 1 else widths.dcp),
        "dp": (widths.dp, replica, world),
    }
    return {
        name: _place(width, stride, run, world, per_node, machines.rack)
        for name, (width, stride, run) in groups.items()
    }


def _place(width: int, stride: int, run: int, world: int, per_node: int, rack: int) -> Placement:
    together = min(width, max(1, per_node // stride))
    splits = width > 1 and world > per_node and (run > per_node or per_node % run != 0)
    if splits and together == width:
        # The group would fit a node but starts in the middle of one.
        together = width - 1
    return Placement(width, stride, together, splits and not 0 < width * stride <= rack)


def nodes_spanned(widths: Widths, placements: dict[str, Placement], machines: Machines) -> int:
    """Nodes the widest of the tp, expert and tp x pcp groups reaches; 1 inside one NVLink rack."""
    widest = max(widths.tp, placements["expert"].width, widths.tp * widths.pcp)
    return 1 if widest <= machines.rack else -(-widest // machines.gpus_per_node)
