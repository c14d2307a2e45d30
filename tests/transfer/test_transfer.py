"""Transfers, tiers and host overheads: laws, errors, and pools that stand the right way round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import steppe
from steppe import _core
from steppe.errors import DeploymentError, Error

SETS = ["h100-reference", "h100-engine", "h100-refined"]


def documents(**changes: Any) -> list[dict[str, Any]]:
    """A prefill pool of tp 2 and a decode pool of tp 4 on two nodes."""
    cluster = {"hardware": "h100", "nodes": 2, "gpus_per_node": 8, "fabric": "ib-ndr-400", **changes.pop("cluster", {})}
    scenario = {
        "kind": "Scenario",
        "name": "two pools",
        "model": changes.pop("model", "llama-3.1-8b-instruct"),
        "coefficients": SETS,
        "engine_version": "0.31.0",
        "cluster": cluster,
    }
    engine = changes.pop("engine", {})
    pools = [
        {"role": role, "nodes": 1, "parallel": {"tp": tp, "pp": 1, "dp": 1}, "engine": engine}
        for role, tp in zip(("prefill", "decode"), changes.pop("tp", (2, 4)), strict=True)
    ]
    deployment = {
        "kind": "Deployment",
        "name": changes.pop("name", "two pools"),
        "pools": pools,
        "pd_transfer": {"connector": "NixlConnector"},
        **changes,
    }
    return [scenario, deployment]


@pytest.fixture
def opened(tmp_path: Path) -> Any:
    def open_pools(**changes: Any) -> tuple[steppe.Kernel, steppe.Kernel]:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"
        path.write_text(yaml.safe_dump_all(documents(**changes)))
        return steppe.open(path, 0), steppe.open(path, 1)

    return open_pools


HERE, NEXT = (0, 0), (0, 1)


def test_roles_of_pools(opened: Any) -> None:
    prefill, decode = opened()
    assert (prefill.role, decode.role) == ("prefill", "decode")
    alone = steppe.Kernel.build(model="qwen3-8b", hardware="h100")
    assert alone.role == "colocated"


def test_a_pull_moves_what_the_pulling_rank_holds(opened: Any) -> None:
    """Eight heads of 128 over tp 2 and tp 4, 32 layers, 16 bits: the decode side holds half as much a rank."""
    prefill, decode = opened()
    per_token = 2 * 8 * 128 * 2 * 32
    assert prefill.pd_transfer_bytes(1000) == per_token // 2 * 1000
    assert decode.pd_transfer_bytes(1000) == per_token // 4 * 1000
    rate = prefill.resolution.fabric.inter_node_bw_gbps
    alone = prefill.pd_transfer_time(100_000, HERE, NEXT)
    pulled = prefill.pd_transfer_time(100_000, HERE, NEXT, to=decode)
    assert alone == pytest.approx(per_token / 2 * 1e5 / rate, rel=1e-6)
    assert pulled == pytest.approx(per_token / 4 * 1e5 / rate, rel=1e-6)


def test_a_wider_decode_pool_is_charged_one_payload(opened: Any) -> None:
    """The limit the note states: a prefill link that serves two decode ranks is charged one pull's time."""
    narrow, wide = opened(tp=(2, 2)), opened(tp=(2, 4))
    one = narrow[0].pd_transfer_time(100_000, HERE, NEXT, to=narrow[1])
    two = wide[0].pd_transfer_time(100_000, HERE, NEXT, to=wide[1])
    assert one == pytest.approx(2 * two, rel=1e-6)


def test_the_wrong_way_round_is_an_error(opened: Any) -> None:
    prefill, decode = opened()
    with pytest.raises(DeploymentError, match="a decode pool does not send to a prefill pool"):
        decode.pd_transfer_time(10, HERE, NEXT, to=prefill)
    with pytest.raises(DeploymentError, match="a decode pool does not send to a decode pool"):
        decode.pd_transfer_time(10, HERE, NEXT, to=decode)
    with pytest.raises(DeploymentError, match="a prefill pool does not send to a prefill pool"):
        prefill.pd_transfer_time(10, HERE, NEXT, to=prefill)


def test_pools_of_two_deployments_are_an_error(opened: Any) -> None:
    prefill, _ = opened()
    _, other = opened(name="another")
    with pytest.raises(DeploymentError, match="two deployments"):
        prefill.pd_transfer_time(10, HERE, NEXT, to=other)


def test_links_by_place(opened: Any) -> None:
    """NVLink on one node; the network to another node, and to a node of the same number in another rack."""
    prefill, _ = opened()
    near = prefill.pd_transfer_time(50_000, HERE, HERE)
    far = prefill.pd_transfer_time(50_000, HERE, NEXT)
    chip, fabric = prefill.resolution.chip, prefill.resolution.fabric
    assert far / near == pytest.approx(chip.intra_node_bw_gbps / fabric.inter_node_bw_gbps, rel=1e-6)
    assert prefill.pd_transfer_time(50_000, (0, 0), (1, 0)) == far


def test_one_nvlink_rack_is_one_node() -> None:
    rack = {"model": "llama-3.1-8b-instruct", "hardware": "gb200-nvl72", "tp": 4, "nodes": 2, "fabric": "ib-ndr-400"}
    kernel = steppe.Kernel.build(**rack)  # type: ignore[arg-type]
    inside = kernel.pd_transfer_time(50_000, (0, 0), (0, 1))
    assert inside == kernel.pd_transfer_time(50_000, (0, 0), (0, 0))
    assert kernel.pd_transfer_time(50_000, (0, 0), (1, 1)) > inside


def test_no_network_no_transfer_to_another_node() -> None:
    kernel = steppe.Kernel.build(model="qwen3-8b", hardware="h100")
    assert kernel.pd_transfer_time(1000, HERE, HERE) > 0
    with pytest.raises(DeploymentError, match=r"cluster\.fabric"):
        kernel.pd_transfer_time(1000, HERE, NEXT)


def test_decode_context_shards_do_not_divide_a_transfer() -> None:
    whole = steppe.Kernel.build(model="deepseek-v3", hardware="h200", tp=8)
    sharded = steppe.Kernel.build(model="deepseek-v3", hardware="h200", tp=8, dcp=8)
    assert sharded.sequence_variable_bytes(4096) < whole.sequence_variable_bytes(4096)
    assert sharded.pd_transfer_bytes(4096) == whole.pd_transfer_bytes(4096)
    assert sharded.pd_transfer_time(4096, HERE, HERE) == whole.pd_transfer_time(4096, HERE, HERE)


def test_windows_and_states_travel_once() -> None:
    """A window reaches back so far and no further; a recurrent layer's state is one of those a request holds."""
    windows = steppe.Kernel.build(model="gpt-oss-20b", hardware="h100")
    grown = windows.pd_transfer_bytes(40_000) - windows.pd_transfer_bytes(20_000)
    assert grown == pytest.approx(windows.sequence_variable_bytes(40_000) - windows.sequence_variable_bytes(20_000))
    assert windows.pd_transfer_bytes(20_000) > windows.sequence_variable_bytes(20_000)
    hybrid = steppe.Kernel.build(model="qwen3.5-35b-a3b", hardware="h200")
    state = hybrid.pd_transfer_bytes(64_000) - hybrid.sequence_variable_bytes(64_000)
    assert 0 < state < hybrid.sequence_fixed_bytes()


def test_nothing_to_move_takes_no_time(opened: Any) -> None:
    prefill, decode = opened()
    assert prefill.pd_transfer_bytes(0) == 0
    assert prefill.pd_transfer_time(0, HERE, NEXT, to=decode) == 0
    assert prefill.admission_overhead(0) == 0
    assert prefill.tier_time("host-dram", "to_tier", 0) == 0


@pytest.mark.parametrize("tokens", [-1, 1.5, True, "ten", None])
def test_token_counts_are_whole_and_not_negative(opened: Any, tokens: Any) -> None:
    prefill, _ = opened()
    for ask in (
        prefill.admission_overhead,
        prefill.pd_transfer_bytes,
        lambda n: prefill.pd_transfer_time(n, HERE, NEXT),
        lambda n: prefill.tier_time("host-dram", "to_tier", n),
        lambda n: prefill.tier_time("host-dram", "to_tier", 1, n),
    ):
        with pytest.raises(Error):
            ask(tokens)


@pytest.mark.parametrize("place", [3, (0,), (0, 1, 2), (0, -1), (0, 1.5), "ab"])
def test_a_place_is_a_rack_and_a_node(opened: Any, place: Any) -> None:
    prefill, _ = opened()
    with pytest.raises(Error, match="target"):
        prefill.pd_transfer_time(1, HERE, place)


def test_tiers_are_those_the_deployment_offloads_to(opened: Any) -> None:
    tiers = {"tiers": [{"tier": "host-dram", "bytes": 1 << 40}]}
    offloading, _ = opened(offload=tiers)
    assert offloading.tier_time("host-dram", "from_tier", 1 << 30) > 0
    with pytest.raises(DeploymentError, match="'local-nvme' is no tier of this deployment; there are: host-dram"):
        offloading.tier_time("local-nvme", "from_tier", 1 << 30)
    listed, _ = opened(cluster={"storage": ["local-nvme"]})
    assert listed.tier_time("local-nvme", "to_tier", 1 << 30) > 0
    with pytest.raises(DeploymentError, match="host-dram"):
        listed.tier_time("host-dram", "to_tier", 1 << 30)
    anything, _ = opened()
    assert anything.tier_time("object-store", "to_tier", 1 << 30) > 0
    with pytest.raises(DeploymentError, match="'tape'"):
        anything.tier_time("tape", "to_tier", 1)


@pytest.mark.parametrize("direction", ["", "to", "TO_TIER", "from"])
def test_there_are_two_directions(opened: Any, direction: str) -> None:
    prefill, _ = opened()
    with pytest.raises(Error, match="use to_tier or from_tier"):
        prefill.tier_time("host-dram", direction, 1)


def test_the_tier_law() -> None:
    """Device rate by direction, capped by the link, shared by what is in flight, never below the device's latency."""
    law: Any = {"latency_s": 80e-6, "device_bytes_per_s": 6e9}
    assert _core.tier_ns(6e9, 1, host_bytes_per_s=0, **law) == 1_000_000_000
    assert _core.tier_ns(6e9, 1, host_bytes_per_s=3e9, **law) == 2_000_000_000
    assert _core.tier_ns(6e9, 4, host_bytes_per_s=0, **law) == 4_000_000_000
    assert _core.tier_ns(6e9, 0, host_bytes_per_s=0, **law) == 1_000_000_000
    assert _core.tier_ns(1, 1, host_bytes_per_s=0, **law) == 80_000
    assert _core.tier_ns(0, 1, host_bytes_per_s=0, **law) == 0


def test_the_transfer_law() -> None:
    assert _core.transfer_ns(0, floor_s=5e-6, bytes_per_s=1e9) == 0
    assert _core.transfer_ns(1, floor_s=5e-6, bytes_per_s=1e9) == 5_000
    assert _core.transfer_ns(1e9, floor_s=5e-6, bytes_per_s=1e9) == 1_000_000_000
    assert _core.transfer_ns(1e30, floor_s=0.0, bytes_per_s=1.0) > 0  # saturates, never wraps


def test_the_admission_law() -> None:
    assert _core.admission_ns(0, per_request_s=1e-3, per_token_s=1e-6) == 0
    assert _core.admission_ns(10, per_request_s=1e-3, per_token_s=1e-6) == 1_010_000


def test_a_link_slower_than_the_device_caps_the_tier() -> None:
    """A drive is bound by itself, memory that reads faster than the link by the link."""
    kernel = steppe.Kernel.build(model="qwen3-8b", hardware="h100")
    link = kernel._coefficients.get("host_link_bandwidth")
    assert link == 64_000  # bytes a microsecond
    fast = kernel.resolution.storage["host-dram-nvlink-c2c"]
    assert fast.read_bandwidth > 64_000
    assert kernel.tier_time("host-dram-nvlink-c2c", "from_tier", 64_000_000_000) == pytest.approx(1e9, abs=1)
    nvme = kernel.resolution.storage["local-nvme"]
    expected = 1e12 / (nvme.read_bandwidth * 1e6)
    assert kernel.tier_time("local-nvme", "from_tier", 1_000_000) == pytest.approx(expected * 1e3, abs=1)
