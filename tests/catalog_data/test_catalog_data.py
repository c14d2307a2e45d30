"""The shipped parts, networks, devices and coefficient sets: they load, hang together and say where they come from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from steppe.catalog import EMBEDDED, Catalog

CATALOG = Catalog()
PARTS = ["a100-sxm", "b200", "b300", "gb200-nvl72", "gb300", "h100", "h200", "l40s", "rtx-pro-6000"]
NVIDIA_SMI_MIB = {  # what nvidia-smi prints for the part
    "a100-sxm": 81920,
    "h100": 81559,
    "h200": 143771,
    "b200": 183359,
    "b300": 275040,
    "gb200-nvl72": 189471,
    "gb300": 284208,
    "l40s": 46068,
    "rtx-pro-6000": 97887,
}
MEMORY = [
    *(f"activation_buffer_count_{kind}_{ranks}rank" for kind in ("dense", "moe") for ranks in (1, 2, 4, 8)),
    "activation_scratch_floor_bytes",
    *(f"sampler_bytes_per_logit_{sampler}" for sampler in ("v1", "v1_sorted", "v2")),
    "request_state_bytes_per_logit_v2",
    *(f"cudagraph_capture_bytes_{m}" for m in ("none", "piecewise", "full", "full_decode_only", "full_and_piecewise")),
    *(f"nccl_communicator_bytes_{ranks}rank" for ranks in (2, 4, 8)),
    "engine_workspace_bytes",
]
HOST = [
    "host_admission_per_request",
    "host_admission_per_token",
    "host_completion",
    "host_launch_eager_per_layer",
    "host_launch_per_kernel",
    "host_link_bandwidth",
    "host_output_token",
    "host_replay_graph_per_step",
]


def raw(kind: str, name: str) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((EMBEDDED / kind / f"{name}.yaml").read_text(encoding="utf-8"))
    return data


def entries(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for item in raw("coefficients", name)["coefficients"]:
        yield from item.items()


def values(name: str) -> dict[str, float]:
    return {key: entry["value"] for key, entry in entries(name)}


def test_the_parts_are_these() -> None:
    assert CATALOG.chips() == PARTS


@pytest.mark.parametrize("part", PARTS)
def test_a_part_loads_and_is_ordered(part: str) -> None:
    chip = CATALOG.chip(part)
    assert chip.compute_capability is not None
    assert chip.l2_mb
    if chip.tflops_fp8:
        assert 1.9 < chip.tflops_fp8 / chip.tflops_peak < 2.1
    if chip.tflops_nvfp4:
        assert chip.tflops_nvfp4 > chip.tflops_fp8
        assert chip.compute_capability >= 10
    assert bool(chip.tflops_nvfp4) == (chip.compute_capability >= 10)


@pytest.mark.parametrize("part", PARTS)
def test_memory_is_what_the_driver_gives_a_process(part: str) -> None:
    """A little less than nvidia-smi's total, never the marketing number."""
    shown = NVIDIA_SMI_MIB[part] / 1024
    assert 0.3 < shown - CATALOG.chip(part).memory_gib < 1.1
    assert f"{NVIDIA_SMI_MIB[part]} MiB" in raw("hardware", part)["_comment_memory"]


@pytest.mark.parametrize("part", PARTS)
def test_every_figure_of_a_part_has_its_source(part: str) -> None:
    data = raw("hardware", part)
    for key in ("peaks", "bandwidth", "memory", "links", "sm_l2"):
        assert len(data[f"_comment_{key}"]) > 20
    assert str(data["SMCount"]) in data["_comment_sm_l2"]
    assert str(data["L2MB"]) in data["_comment_sm_l2"]


@pytest.mark.parametrize("name", CATALOG.fabrics())
def test_a_network_rate_is_its_name(name: str) -> None:
    fabric = CATALOG.fabric(name)
    assert fabric.inter_node_bw_gbps * 8 == int(re.search(r"\d+$", name).group())  # type: ignore[union-attr]
    assert fabric.rdma == (not name.startswith("tcp"))
    assert raw("networks", name)["_comment"]


def test_storage_is_ordered_by_speed() -> None:
    storage = CATALOG.storage()
    order = ["host-dram-nvlink-c2c", "host-dram", "host-dram-pcie4", "local-nvme-gen5", "local-nvme", "object-store"]
    rates = [storage[name].read_bandwidth for name in order]
    assert rates == sorted(rates, reverse=True)
    latencies = [storage[name].base_latency for name in order]
    assert latencies == sorted(latencies)
    assert all(device.write_bandwidth <= device.read_bandwidth for device in storage.values())


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", ["engine", "reference"])
def test_a_set_loads_and_is_of_its_part(part: str, kind: str) -> None:
    name = f"{part}-{kind}"
    loaded = CATALOG.coefficient_set(name)
    assert loaded.name == name
    assert all(entry["scope"] == {"hardware": [part]} for _, entry in entries(name))


@pytest.mark.parametrize("part", PARTS)
def test_the_engine_set_has_what_memory_and_host_need(part: str) -> None:
    have = values(f"{part}-engine")
    assert sorted(have) == sorted([*MEMORY, *HOST, "hbm_derate", "moe_routing_imbalance_median"])


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", ["engine", "reference"])
def test_every_entry_says_how_it_was_come_by(part: str, kind: str) -> None:
    for key, entry in entries(f"{part}-{kind}"):
        method = entry["method"]
        assert entry["rationale"], key
        if method == "not_charged":
            assert entry["value"] == 0, key
        if method == "assumed":
            assert re.search(r"[Rr]eplace|Derived|Sum of", entry["rationale"]), key
        if method in ("literature", "vendor_spec", "measured"):
            assert entry["sources"], key
        assert entry["fitted"] == (method == "measured"), key


@pytest.mark.parametrize("part", PARTS)
def test_memory_magnitudes_are_plausible(part: str) -> None:
    have = values(f"{part}-engine")
    for kind in ("dense", "moe"):
        counts = [have[f"activation_buffer_count_{kind}_{ranks}rank"] for ranks in (1, 2, 4, 8)]
        assert counts == sorted(counts, reverse=True)
    both = have["cudagraph_capture_bytes_full_and_piecewise"]
    assert have["cudagraph_capture_bytes_none"] == 0
    for mode in ("piecewise", "full", "full_decode_only"):
        assert 0 < have[f"cudagraph_capture_bytes_{mode}"] < both
    chip = CATALOG.chip(part).memory_gib * 2**30
    assert have["engine_workspace_bytes"] + have["nccl_communicator_bytes_8rank"] < 0.05 * chip


@pytest.mark.parametrize("part", PARTS)
def test_reference_laws_stay_within_the_part(part: str) -> None:
    have, chip = values(f"{part}-reference"), CATALOG.chip(part)
    served = {"bf16", *(["fp8"] if chip.tflops_fp8 else []), *(["nvfp4"] if chip.tflops_nvfp4 else [])}
    assert {key.rsplit("_", 1)[1] for key in have if key.startswith("gemm_eps_max")} == served
    assert all(0 < have[f"gemm_eps_max_{s}"] <= 1 for s in served)
    assert have["attention_decode_rate"] < chip.bw_peak_tbs * 1e6
    assert have["attention_decode_floor"] < 30
    tag = part.replace("-", "_")
    for op in ("all_reduce", "all_gather", "reduce_scatter", "alltoall"):
        floors = [have.get(f"collective_floor_{op}_fp16_{n}rank_{tag}") for n in (2, 4, 8)]
        known = [f for f in floors if f is not None]
        assert len(known) >= 2
        assert max(known) < 100
    assert len({key.rsplit("_fp16_", 1)[1] for key in have if key.startswith("collective")}) <= 4


def test_sets_lie_where_the_catalog_looks() -> None:
    files = {path.stem for path in Path(EMBEDDED / "coefficients").glob("*.yaml")}
    assert files <= set(CATALOG.coefficient_sets())
