"""What happens around a step: a request's cache moves between pools and tiers, and the host takes requests in.

docs/research/reference_laws.md, Around a step. Times are integer nanoseconds of one rank, sizes bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from steppe import _core
from steppe.errors import CoefficientError, DeploymentError, Error
from steppe.plan.builder import PlanBuilder
from steppe.plan.collectives import Collectives
from steppe.resolve.coefficients import Coefficients
from steppe.resolve.resolved import Resolution

if TYPE_CHECKING:
    from steppe.kernel import Kernel
    from steppe.memory import Memory

GB, MB, US = 1e9, 1e6, 1e-6
DIRECTIONS = ("to_tier", "from_tier")


class Place(NamedTuple):
    """Where a replica runs: a node, counted inside its rack."""

    rack: int
    node: int


class Transfers:
    """Transfers and host overheads of one pool. Built with its kernel; see the methods of the same names there."""

    def __init__(self, resolution: Resolution, coefficients: Coefficients, memory: Memory) -> None:
        self._r = resolution
        self._c = coefficients
        self._memory = memory
        self._whole: Callable[[int], int] | None = None
        without = "host overheads around a step are not charged"
        self._host_s = {
            name: (coefficients.optional(name, without) or 0.0) * US
            for name in (
                "host_admission_per_request",
                "host_admission_per_token",
                "host_output_token",
                "host_completion",
            )
        }

    # -- the host ----------------------------------------------------------------------------------------------

    def admission_overhead(self, prompt: int) -> int:
        """Host nanoseconds to take in a request of `prompt` tokens; 0 for none."""
        per_request, per_token = self._host_s["host_admission_per_request"], self._host_s["host_admission_per_token"]
        return _core.admission_ns(_count(prompt, "prompt"), per_request_s=per_request, per_token_s=per_token)

    def output_token_overhead(self) -> int:
        """Host nanoseconds of each output token: sampling results out, detokenising, streaming."""
        return _core.admission_ns(1, per_request_s=self._host_s["host_output_token"], per_token_s=0.0)

    def completion_overhead(self) -> int:
        """Host nanoseconds to finish a request."""
        return _core.admission_ns(1, per_request_s=self._host_s["host_completion"], per_token_s=0.0)

    # -- tiers -------------------------------------------------------------------------------------------------

    def tier_time(self, tier: str, direction: str, bytes: int, depth: int = 1) -> int:
        """Nanoseconds to move `bytes` to or from an offload tier while `depth` transfers share it."""
        if direction not in DIRECTIONS:
            raise Error(f"direction: '{direction}' is none; use {' or '.join(DIRECTIONS)}")
        device = self._r.storage.get(tier)
        allowed = self._tiers()
        if device is None or tier not in allowed:
            known = ", ".join(sorted(allowed)) or "none"
            raise DeploymentError(f"tier: '{tier}' is no tier of this deployment; there are: {known}")
        rate = device.write_bandwidth if direction == "to_tier" else device.read_bandwidth
        without = "a tier runs at its device's rate, whatever the link to the host"
        return _core.tier_ns(
            _count(bytes, "bytes"),
            _count(depth, "depth"),
            latency_s=device.base_latency * US,
            device_bytes_per_s=rate * MB,
            host_bytes_per_s=(self._c.optional("host_link_bandwidth", without) or 0.0) / US,
        )

    def _tiers(self) -> set[str]:
        """Tiers the deployment offloads to; those of its cluster, else of the catalog, where it states none."""
        offload = self._r.deployment.offload
        if offload:
            return {each.tier for each in offload.tiers}
        return set(self._r.scenario.cluster.storage or self._r.storage)

    # -- prefill to decode -------------------------------------------------------------------------------------

    def pd_transfer_bytes(self, tokens: int) -> int:
        """Bytes one rank holds of a request of `tokens` tokens, and another pulls.

        The whole cache of the rank: decode-context shards do not divide it, window caches count as far as they reach
        back, a recurrent layer's state once.

        COVERAGE LIMIT: each pull is one rank's transfer over one rank's link. In the engine decode rank d of D reads
        from prefill rank d*P/D of P (vllm/distributed/kv_transfer/kv_connector/v1/nixl/tp_mapping.py:88-98), and a
        prefill rank frees its blocks after D/P notifications
        (vllm/distributed/kv_transfer/kv_connector/utils.py:579-596).
        With a decode pool of wider tensor parallelism a prefill link therefore carries D/P payloads one beside the
        other and takes D/P times as long as charged here.
        """
        if _count(tokens, "tokens") == 0:
            return 0
        if self._whole is None:
            self._whole = _whole_cache(self._r, self._c, self._memory)
        return self._whole(tokens)

    def pd_transfer_time(self, size: int, source: Place, target: Place) -> int:
        """Nanoseconds to move `size` bytes from one rank to another at the rate of the link between their places."""
        return _core.transfer_ns(size, floor_s=self._floor_s(), bytes_per_s=self._rate(source, target))

    def _rate(self, source: Place, target: Place) -> float:
        """NVLink on one node or in one NVLink rack, else the network."""
        r = self._r
        if source == target or (r.one_nvlink_domain and source.rack == target.rack):
            return r.chip.intra_node_bw_gbps * GB
        if r.fabric is None:
            raise DeploymentError(
                f"cluster.fabric: a transfer from {tuple(source)} to {tuple(target)} leaves the node and the scenario "
                "names no network; name one in cluster.fabric"
            )
        return r.fabric.inter_node_bw_gbps * GB

    def _floor_s(self) -> float:
        """Least time of a transfer: the floor of an all-to-all over the expert group."""
        collectives = Collectives(self._r, self._c, PlanBuilder())
        try:
            return collectives.rates("alltoall", self._r.widths.moe_group)[0]
        except CoefficientError:
            self._c.assume("pd_transfer_floor", "absent", "a transfer costs its bytes alone: no all-to-all is measured")
            return 0.0


def transfer_time(
    kernel: Kernel, tokens: int, source: tuple[int, int], target: tuple[int, int], to: Kernel | None
) -> int:
    """`Kernel.pd_transfer_time`: the pools stand the right way round, the bytes are those of the pulling side."""
    transfers, pulling = kernel._transfers, kernel._transfers
    if to is not None:
        _check_pools(kernel, to)
        pulling = to._transfers
    return transfers.pd_transfer_time(
        pulling.pd_transfer_bytes(tokens), place(source, "source"), place(target, "target")
    )


def _check_pools(sender: Kernel, puller: Kernel) -> None:
    if sender.role == "decode" or puller.role == "prefill":
        raise DeploymentError(
            f"pd_transfer_time: a {sender.role} pool does not send to a {puller.role} pool; "
            "ask the prefill pool's kernel and name the decode pool's in `to`"
        )
    ours, theirs = sender.resolution, puller.resolution
    if (ours.deployment, ours.scenario) != (theirs.deployment, theirs.scenario):
        raise DeploymentError(
            f"pd_transfer_time: the pools are of two deployments, {ours.deployment.name} and {theirs.deployment.name}; "
            "open both from one file"
        )


def _whole_cache(r: Resolution, c: Coefficients, memory: Memory) -> Callable[[int], int]:
    """Bytes of a request's cache on one rank, as if decode-context parallelism did not divide it."""
    from steppe.memory import Memory
    from steppe.provenance import Ledger

    if r.widths.dcp > 1:
        memory = Memory(replace(r, widths=replace(r.widths, dcp=1), ledger=Ledger()), c)
    # The engine moves one state of the several a request may hold (nixl/base_scheduler.py:250-297).
    states = {"none": 1, "align": 2}.get(r.settings.mamba_cache_mode, 0) + r.settings.spec_tokens
    held = memory.sequence_fixed_bytes()
    state = held // states if r.settings.mamba_cache_mode in ("none", "align") else held

    # By the token: the engine moves whole blocks, up to one a group more.
    span = math.lcm(*(group.block_size for group in memory.pool.groups)) if memory.pool is not None else 1
    longest = r.settings.max_model_len or span
    growing = int(memory.sequence_variable_bytes(span)) if span <= longest else 0

    def sequence_bytes(tokens: int) -> int:
        grown = int(memory.sequence_variable_bytes(tokens))  # refuses a count above max_model_len
        if growing:
            grown = -(-growing * tokens // span)
        return grown + int(memory.sequence_bounded_bytes_at(tokens)) + state

    return sequence_bytes


def place(value: object, name: str) -> Place:
    """`value` as a (rack, node) pair; raises `Error` naming the argument."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise Error(f"{name}: {value!r} is no place; state (rack, node)")
    return Place(*(_count(part, f"{name} {what}") for part, what in zip(value, ("rack", "node"), strict=True)))


def _count(value: object, name: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise Error(f"{name}: {value!r} is not an integer")
    number = int(value.__index__())
    if number < 0:
        raise Error(f"{name}: {number} is negative; state 0 or more")
    return number
