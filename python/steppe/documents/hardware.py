"""Chips, networks and storage devices. Their names are those of their files (devices: their keys)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from steppe.documents.base import Broken, Document, OptionalCount, OptionalNumber, Positive, PositiveNumber

Provenance = Literal["vendor_spec", "derived"]


class Chip(Document):
    """A GPU. Rates are dense: `tflops_*` in TFLOP/s, `bw_peak_tbs` in TB/s, link rates in GB/s per GPU, one way."""

    provenance: Provenance = Field(alias="Provenance")
    tflops_peak: PositiveNumber = Field(alias="TFlopsPeak")
    tflops_fp8: OptionalNumber = Field(default=None, alias="TFlopsFP8")
    tflops_nvfp4: OptionalNumber = Field(default=None, alias="TFlopsNVFP4")
    tops_int8: OptionalNumber = Field(default=None, alias="TOpsINT8")
    bw_peak_tbs: PositiveNumber = Field(alias="BwPeakTBs")
    memory_gib: PositiveNumber = Field(alias="MemoryGiB")
    intra_node_bw_gbps: PositiveNumber = Field(alias="IntraNodeBwGBps")
    sm_count: Positive = Field(alias="SMCount")
    gpus_per_node: OptionalCount = Field(default=None, alias="GPUsPerNode")
    gpus_per_rack: OptionalCount = Field(default=None, alias="GPUsPerRack")
    intra_rack_bw_gbps: OptionalNumber = Field(default=None, alias="IntraRackBwGBps")
    compute_capability: OptionalNumber = Field(default=None, alias="ComputeCapability")
    l2_mb: OptionalNumber = Field(default=None, alias="L2MB")

    def broken_rules(self) -> Iterator[Broken]:
        """Yield rates and sizes that contradict each other."""
        if self.tflops_fp8 is not None and self.tflops_fp8 <= self.tflops_peak:
            yield (
                ("TFlopsFP8",),
                f"{self.tflops_fp8:g} is not above TFlopsPeak {self.tflops_peak:g}; leave it out if none",
            )
        if self.gpus_per_rack and self.gpus_per_node and self.gpus_per_rack % self.gpus_per_node:
            yield ("GPUsPerRack",), f"{self.gpus_per_rack} is not a multiple of GPUsPerNode {self.gpus_per_node}"
        if self.intra_rack_bw_gbps and not self.gpus_per_rack:
            yield ("IntraRackBwGBps",), "stated without GPUsPerRack; state how many GPUs a rack holds"


class Fabric(Document):
    """A network between nodes: nominal GB/s per GPU, one way."""

    provenance: Provenance = Field(alias="Provenance")
    inter_node_bw_gbps: PositiveNumber = Field(alias="InterNodeBwGBps")
    rdma: bool = Field(default=False, alias="RDMA")


class StorageDevice(Document):
    """A place KV blocks go to: bandwidths in MB/s, `base_latency` in microseconds."""

    read_bandwidth: PositiveNumber
    write_bandwidth: PositiveNumber
    base_latency: PositiveNumber
