"""The kernel: one pool of a deployment, resolved once, that prices steps and sizes memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from numpy.typing import ArrayLike

from steppe import _core
from steppe._core import Batch, StepEstimate
from steppe.documents import Deployment, ModelGraph, Parallel, Scenario, parse
from steppe.documents.bundle import Bundle, load_bundle, make_bundle
from steppe.errors import DeploymentError
from steppe.explanation import Explanation
from steppe.memory import FixedBytes, KvCapacity, Memory
from steppe.plan.build import build_plan
from steppe.pricing import PricingKernel
from steppe.resolve.choices import resolve
from steppe.resolve.coefficients import Coefficients, Scope
from steppe.resolve.resolved import Resolution
from steppe.transfer import Transfers, transfer_time

DEFAULT_SETS = ("{chip}-reference", "{chip}-engine", "{chip}-refined")
PathLike = str | os.PathLike[str]


class Kernel(PricingKernel):
    """Prices the steps of one pool of a deployment. Immutable; safe to share between threads.

    Build one with `Kernel.build(model=..., hardware=..., tp=...)` or `steppe.open(path)`.

    `step_time(batch)` returns a `StepEstimate` (integer nanoseconds on one rank) and raises `steppe.Error` for a batch
    the deployment could never run (tokens beyond max_model_len).
    """

    def __init__(self, resolution: Resolution, coefficients: Coefficients, plan: Any) -> None:
        self._resolution = resolution
        self._coefficients = coefficients
        self._memory = Memory(resolution, coefficients)
        super().__init__(_core.Kernel(plan), caches=self._memory.pool)
        self._fixed = self._memory.fixed_bytes()  # here, so that a missing magnitude is refused at once
        self._transfers = Transfers(resolution, coefficients, self._memory)

    @classmethod
    def build(
        cls,
        *,
        model: PathLike,
        hardware: str,
        tp: int = 1,
        dp: int = 1,
        pcp: int = 1,
        dcp: int = 1,
        enable_expert_parallel: bool = False,
        nodes: int | None = None,
        gpus_per_node: int | None = None,
        fabric: str = "",
        coefficients: Sequence[str] | None = None,
        engine_version: str = "0.31.0",
        routing_concentration: float = 0.5,
        catalog: PathLike | None = None,
        registry: PathLike | None = None,
        **engine: Any,
    ) -> Kernel:
        """Build a one-pool kernel without writing documents.

        `model` is a catalog name or the path of a Hugging Face config.json; `hardware` a catalog chip. `engine` takes
        any key of the deployment document's engine section (max_num_seqs, cache_dtype, speculative, ...). Raises
        `DocumentError`, `DeploymentError` or `CoefficientError`.
        """
        bundle = _bundle(
            model,
            hardware,
            {"tp": tp, "pp": 1, "dp": dp, "pcp": pcp, "dcp": dcp, "enable_expert_parallel": enable_expert_parallel},
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            fabric=fabric,
            coefficients=coefficients,
            engine_version=engine_version,
            routing_concentration=routing_concentration,
            catalog=catalog,
            registry=registry,
            engine=engine,
        )
        return cls.from_bundle(bundle)

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Kernel:
        """Resolve and plan the bundle's pool."""
        resolution = resolve(bundle, bundle.pool_index)
        scope = Scope(
            resolution.chip_name,
            resolution.model_name,
            resolution.widths.tp,
            resolution.widths.ep,
            resolution.nodes_spanned,
        )
        coefficients = Coefficients(bundle.sets, scope, resolution.ledger)
        return cls(resolution, coefficients, build_plan(resolution, coefficients))

    def explain(self, batch: Batch) -> Explanation:
        """Every term of one step, as a table a person can read."""
        return Explanation(f"{str(self)[8:-1]}: {batch!r}"[:120], self.step_time(batch))

    # -- memory -------------------------------------------------------------------------------------------------

    @property
    def memory(self) -> Memory:
        """Everything about memory: cache groups, holdings, admission, capacity."""
        return self._memory

    def fixed_bytes(self) -> FixedBytes:
        """Bytes a rank holds whatever it serves: weights, activations, graphs, buffers; `total` is their sum."""
        return self._fixed

    def pre_snapshot_bytes(self) -> int:
        """Bytes in place before the engine's memory snapshot, outside its budget."""
        return self._memory.pre_snapshot_bytes()

    def sequence_variable_bytes(self, tokens: int | ArrayLike) -> Any:
        """Bytes of the caches that grow with a request, for one token count or an array of them."""
        return self._memory.sequence_variable_bytes(tokens)

    def sequence_bounded_bytes_at(self, tokens: int | ArrayLike) -> Any:
        """Bytes of window and chunked caches at so many computed tokens, for one count or an array."""
        return self._memory.sequence_bounded_bytes_at(tokens)

    def sequence_fixed_bytes(self) -> int:
        """Bytes a request holds at any length: recurrent state in modes none and align, rings."""
        return self._memory.sequence_fixed_bytes()

    def sequence_admission_bytes(self, tokens: int | ArrayLike) -> Any:
        """Bytes the admission gate charges a waiting request, for one token count or an array."""
        return self._memory.sequence_admission_bytes(tokens)

    def kv_capacity(self) -> KvCapacity:
        """Blocks, tokens and requests that fit; raises `DeploymentError` with the shortfall when the model does not."""
        return self._memory.kv_capacity()

    # -- around a step --------------------------------------------------------------------------------------------

    @property
    def role(self) -> str:
        """Which part of a request the pool serves: colocated, prefill or decode."""
        return self._resolution.pool.role

    def admission_overhead(self, prompt: int) -> int:
        """Host nanoseconds to take in a request of `prompt` tokens; 0 for none."""
        return self._transfers.admission_overhead(prompt)

    def output_token_overhead(self) -> int:
        """Host nanoseconds of each output token."""
        return self._transfers.output_token_overhead()

    def completion_overhead(self) -> int:
        """Host nanoseconds to finish a request."""
        return self._transfers.completion_overhead()

    def tier_time(self, tier: str, direction: str, bytes: int, depth: int = 1) -> int:
        """Nanoseconds to move `bytes` `to_tier` or `from_tier` while `depth` transfers share the tier.

        Raises `steppe.Error` for a tier the deployment does not offload to (without offloading: for one the cluster,
        or else the catalog, does not have) and for another direction.
        """
        return self._transfers.tier_time(tier, direction, bytes, depth)

    def pd_transfer_bytes(self, tokens: int) -> int:
        """Bytes of a request of `tokens` tokens that one rank of this pool moves or pulls."""
        return self._transfers.pd_transfer_bytes(tokens)

    def pd_transfer_time(
        self, tokens: int, source: tuple[int, int], target: tuple[int, int], *, to: Kernel | None = None
    ) -> int:
        """Nanoseconds to move a request of `tokens` tokens from one place to another, each a (rack, node).

        Ask the kernel of the pool that prefilled, and name the pool that decodes in `to`: a pull moves what the pulling
        rank holds. Without `to` the other side is taken to hold what this one does. Raises `DeploymentError` where the
        pools stand the wrong way round or belong to two deployments, and where the places need a network the scenario
        does not name.
        """
        return transfer_time(self, tokens, source, target, to)

    # -- embedding ------------------------------------------------------------------------------------------------

    @property
    def kv_bytes(self) -> int:
        """Bytes a rank has left for caches; -1 where the model keeps none or does not fit."""
        return max(-1, self._memory.kv_budget_bytes()) if self._caches is not None else -1

    # -- what was decided ---------------------------------------------------------------------------------------

    @property
    def resolution(self) -> Resolution:
        """Everything the resolution decided, as plain facts."""
        return self._resolution

    def resolved(self) -> dict[str, Any]:
        """Widths, backends and overrides as they are priced."""
        from steppe.resolve.choices import resolved

        return resolved(self._resolution)

    def deployment(self) -> dict[str, Any]:
        """The pool as stated (a copy)."""
        return self._resolution.pool.model_dump(exclude_defaults=True)

    def provenance(self) -> dict[str, list[dict[str, Any]]]:
        """Every coefficient and law the kernel reads, every assumption and every override."""
        ledger = self._resolution.ledger
        assumed = [
            {"name": each.name, "set": "steppe", "method": "assumed", "value": each.value, "reason": each.reason}
            for each in ledger.assumptions
        ]
        return {
            "coefficients": [asdict(each) for each in ledger.used.values()],
            "assumptions": assumed,
            "overrides": [asdict(each) for each in ledger.overrides],
        }

    def evidence(self) -> dict[str, Any]:
        """How many numbers rest on what: counts by method, of how many, and the names of the assumed ones."""
        ledger = self._resolution.ledger
        methods: dict[str, int] = {}
        for used in ledger.used.values():
            methods[used.method] = methods.get(used.method, 0) + 1
        assumed = [each.name for each in ledger.used.values() if each.method == "assumed"]
        return {
            "total": len(ledger.used) + len(ledger.assumptions),
            "by_method": methods,
            "assumed": assumed + [each.name for each in ledger.assumptions],
        }

    def __repr__(self) -> str:
        r = self._resolution
        w = r.widths
        layout = " ".join(
            f"{k} {v}" for k, v in (("tp", w.tp), ("dp", w.dp), ("ep", w.ep), ("pcp", w.pcp), ("dcp", w.dcp)) if v > 1
        )
        return f"<Kernel {r.model_name} on {r.chip_name}{', ' + layout if layout else ''}>"


def open(path: PathLike, pool: int = 0, *, catalog: PathLike | None = None, registry: PathLike | None = None) -> Kernel:
    """Open one pool of a scenario and deployment file (see docs/documents). Roots default to the embedded catalog."""
    return Kernel.from_bundle(load_bundle(path, pool=pool, catalog=catalog, registry=registry))


def _bundle(
    model: PathLike,
    hardware: str,
    parallel: dict[str, Any],
    *,
    nodes: int | None,
    gpus_per_node: int | None,
    fabric: str,
    coefficients: Sequence[str] | None,
    engine_version: str,
    routing_concentration: float,
    catalog: PathLike | None,
    registry: PathLike | None,
    engine: dict[str, Any],
) -> Bundle:
    from steppe.catalog import Catalog

    graph = None
    name = os.fspath(model)
    if name.endswith(".json"):
        from steppe.models.derive import derive_file

        graph = ModelGraph.model_validate(derive_file(name))
        name = graph.name
    source = "Kernel.build"
    if isinstance(coefficients, str):
        raise DeploymentError(f"coefficients is a list of set names, not one name: write [{coefficients!r}]")
    chip = Catalog(catalog).chip(hardware)
    per_node = gpus_per_node or chip.gpus_per_node or 8
    ranks = parse(Parallel, parallel, source=source).ranks
    if nodes is None:
        nodes = max(1, -(-ranks // per_node))
    scenario: dict[str, Any] = {
        "kind": "Scenario",
        "name": name,
        "model": name,
        "coefficients": list(coefficients or (each.format(chip=hardware) for each in DEFAULT_SETS)),
        "engine_version": engine_version,
        "workload": {"routing_concentration": routing_concentration},
        "cluster": {"hardware": hardware, "nodes": nodes, "gpus_per_node": per_node, "fabric": fabric},
    }
    if chip.gpus_per_rack and chip.gpus_per_rack % per_node == 0:
        scenario["cluster"]["gpus_per_rack"] = chip.gpus_per_rack
    if not fabric and nodes > 1:
        raise DeploymentError(
            f"fabric: {ranks} ranks need {nodes} nodes of {per_node} GPUs; name the network between them "
            f"(fabric=..., on the command line --fabric)"
        )
    deployment = {
        "kind": "Deployment",
        "name": name,
        "pools": [{"role": "colocated", "nodes": nodes, "parallel": parallel, "engine": engine}],
    }
    return make_bundle(
        parse(Scenario, scenario, source=source),
        parse(Deployment, deployment, source=source),
        catalog=catalog,
        registry=registry,
        graph=graph,
        source=source,
    )


__all__ = ["Batch", "Kernel", "StepEstimate", "open"]
