"""The tensor-parallel all-reduce: which kernel runs it, and whether the norm behind it is fused in."""

from __future__ import annotations

from steppe.engine.v0_31 import parallel as facts
from steppe.resolve.case import Case


def all_reduce_backend(case: Case) -> str:
    """custom or nccl. Falls back to nccl, recorded, where the custom kernel does not serve the group.

    No document says whether GPUs are joined by PCIe alone, which the custom kernel declines beyond two: links no
    faster than PCIe are only noted.
    """
    engine, group = case.engine, case.placements["tp"]
    if engine.disable_custom_all_reduce or engine.allreduce_backend == "nccl":
        return "nccl"
    if group.width == 1:
        return "custom"
    why = ""
    if group.width not in facts.CUSTOM_ALL_REDUCE_WIDTHS:
        why = f"{group.width} ranks"
    elif group.crosses:
        why = "a group across nodes without multi-node NVLink"
    if not why:
        slow = case.chip.intra_node_bw_gbps <= facts.PCIE_BANDWIDTH_GBPS
        if slow and group.width > facts.CUSTOM_ALL_REDUCE_PCIE_WIDTH:
            case.record.assume("pcie_all_reduce", "custom", bandwidth=case.chip.intra_node_bw_gbps)
        return "custom"
    case.record.override("allreduce_backend", "custom", "nccl", why=why)
    return "nccl"


def fused_all_reduce_norm(case: Case) -> bool:
    """Whether the all-reduce and the norm after it are one kernel (vllm/config/vllm.py:178-202)."""
    stated = case.engine.fuse_allreduce_rms
    if stated is not None:
        return stated
    if case.widths.tp == 1:
        return False
    fused = case.major in facts.FUSED_ALL_REDUCE_NORM_MAJORS
    case.record.assume("fuse_allreduce_rms", fused, capability=case.capability_text)
    return fused
