"""Sizing a launch in one world: a resolution without a part's rates, and memory with or without its magnitudes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from steppe.catalog import Catalog
from steppe.documents import Chip, Deployment, Scenario
from steppe.documents.bundle import Bundle
from steppe.engine.releases import GRAPHS_IN_BUDGET
from steppe.errors import CoefficientError, DeploymentError
from steppe.memory import Memory
from steppe.memory.fixed import built_with_layers_bytes
from steppe.memory.weights import rank_weights
from steppe.resolve.choices import resolve
from steppe.resolve.coefficients import Coefficients, Scope
from steppe.resolve.resolved import Resolution
from steppe.score.gpus import Part
from steppe.score.launches import Launch, World

GIB = float(1 << 30)
GPUS_PER_NODE = 8


class NoMagnitudes:
    """A lookup for what needs no magnitude: sizing a request, or weights. Asking it is an error."""

    def need(self, name: str, purpose: str) -> float:
        """Never has one."""
        raise CoefficientError(f"coefficient {name}: {purpose} is not sized without a part")

    def names(self, prefix: str) -> list[str]:
        """None."""
        return []


@dataclass(frozen=True, slots=True)
class Sized:
    """A launch sized in one world. Everything per rank; bytes."""

    resolution: Resolution
    memory: Memory

    @property
    def request_bytes(self) -> int:
        """Cache the start-up check charges one request of max_model_len."""
        return self.memory.sequence_startup_bytes()

    @property
    def weights(self) -> int:
        """Weights as the log counts them: with the buffers that layers reserve as they are built."""
        return rank_weights(self.resolution).total + built_with_layers_bytes(self.resolution)

    @property
    def length(self) -> int | None:
        """Tokens of the longest request, None where nothing states it."""
        return self.resolution.settings.max_model_len

    def concurrency(self, available: float) -> float:
        """Longest requests in so many bytes, as the engine logs it: whole blocks over the blocks of a request."""
        pool = self.memory.pool
        assert pool is not None
        blocks: int = pool.startup_blocks()
        return int(available) // self.memory.bytes_per_block / blocks

    def longest(self, available: float) -> int:
        """Tokens of the longest request that fits so many bytes, at most max_model_len."""
        pool = self.memory.pool
        assert pool is not None
        return int(pool.capacity([int(available)] * len(pool.bytes_per_block)).auto_fit_max_len)

    @property
    def groups(self) -> int:
        """Cache groups."""
        return len(self.memory.groups)


def size(launch: Launch, world: World) -> Sized:
    """Size a launch. Raises DeploymentError where the engine would refuse it or this library does not size it."""
    resolution = _resolution(launch, world)
    memory = Memory(resolution, NoMagnitudes())
    if memory.pool is None:
        raise DeploymentError("the model keeps no cache")
    return Sized(resolution, memory)


def left_for_cache(launch: Launch, world: World) -> float:
    """Bytes of a part's budget that nothing but the cache takes; negative where the model does not fit.

    Raises DeploymentError where the part has no coefficient set. Releases before 0.21 do not take graphs off.
    """
    if not world.part.chip:
        raise DeploymentError(f"no coefficient set for {world.part.name}")
    r = _resolution(launch, world)
    scope = Scope(r.chip_name, r.model_name, r.widths.tp, r.widths.ep, r.nodes_spanned)
    sets = [Catalog().coefficient_set(f"{world.part.chip}-engine")]
    memory = Memory(r, Coefficients(sets, scope, r.ledger))
    fixed, outside = memory.fixed_bytes(), memory.pre_snapshot_bytes()
    graphs = fixed.cuda_graphs if world.release < GRAPHS_IN_BUDGET else 0
    budget = math.ceil(int(r.chip.memory_gib * (1 << 30)) * r.settings.gpu_memory_utilization)
    return float(budget - (fixed.total - outside) + graphs)


def _resolution(launch: Launch, world: World) -> Resolution:
    """The launch decided. Pipeline stages are put back after the rules, which price none: their caches are sized."""
    parallel = launch.parallel
    stages = parallel["pp"]
    ranks = parallel["tp"] * parallel["dp"]
    per_node = max(GPUS_PER_NODE, ranks)  # one machine: where ranks lie changes no size
    release = ".".join(map(str, world.release))
    name = launch.checkpoint.name
    scenario = {
        "kind": "Scenario",
        "name": name,
        "model": name,
        "coefficients": ["none"],
        "engine_version": release,
        "cluster": {"hardware": world.part.name, "nodes": 1, "gpus_per_node": per_node},
    }
    pool = {
        "role": "colocated",
        "nodes": 1,
        "parallel": {**parallel, "pp": 1},
        "engine": launch.engine_of(world),
    }
    bundle = Bundle(
        scenario=Scenario.model_validate(scenario),
        deployment=Deployment.model_validate({"kind": "Deployment", "name": name, "pools": [pool]}),
        pool_index=0,
        graph=launch.checkpoint.graph,
        chip=_chip(world.part),
        fabric=None,
        storage={},
        sets=[],
        model_name=name,
        chip_name=world.part.chip or world.part.name,
        draft=Catalog().model(launch.draft) if launch.draft else None,
    )
    resolution = resolve(bundle)
    return replace(resolution, widths=replace(resolution.widths, pp=stages)) if stages > 1 else resolution


def _chip(part: Part) -> Chip:
    """The catalog's chip, else one with that part's memory and compute capability: nothing else is read."""
    if part.chip:
        return Catalog().chip(part.chip)
    facts = {"memory_gib": part.memory_gib, "compute_capability": part.capability}
    return Catalog().chip("h100").model_copy(update=facts)
