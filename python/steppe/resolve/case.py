"""One pool of one deployment as the rules see it: the documents, and facts read off them once."""

from __future__ import annotations

from dataclasses import dataclass

from steppe.documents import Chip, Deployment, Engine, ModelGraph, Parallel, Pool, Scenario
from steppe.engine.v0_31 import transfer
from steppe.resolve.layout import Machines
from steppe.resolve.resolved import Placement, Widths
from steppe.resolve.rules import Recorder
from steppe.resolve.shape import Shape


@dataclass(frozen=True, slots=True)
class Case:
    """What every rule may read. `capability` is (major, minor) of the chip's compute capability."""

    scenario: Scenario
    deployment: Deployment
    pool: Pool
    graph: ModelGraph
    chip: Chip
    shape: Shape
    widths: Widths
    machines: Machines
    placements: dict[str, Placement]
    capability: tuple[int, int]
    record: Recorder

    @property
    def engine(self) -> Engine:
        """The pool's engine settings as stated."""
        return self.pool.engine

    @property
    def parallel(self) -> Parallel:
        """The pool's widths as stated."""
        return self.pool.parallel

    @property
    def max_model_len(self) -> int | None:
        """Longest sequence in tokens: as stated, else the checkpoint's own; None where neither says."""
        return self.engine.max_model_len or self.graph.globals_.max_position_embeddings

    @property
    def major(self) -> int:
        """Major compute capability."""
        return self.capability[0]

    @property
    def capability_text(self) -> str:
        """Compute capability as it is written, e.g. 9.0."""
        return f"{self.capability[0]}.{self.capability[1]}"

    @property
    def spec_tokens(self) -> int:
        """Draft tokens a request; 0 without speculation."""
        return self.engine.speculative.num_spec_tokens if self.engine.speculative else 0

    @property
    def spec_method(self) -> str:
        """Draft method as stated; empty without speculation."""
        return self.engine.speculative.method if self.engine.speculative else ""

    @property
    def query_len(self) -> int:
        """Tokens a request schedules in a uniform decode batch (vllm/config/vllm.py:680-698)."""
        return 1 + self.spec_tokens

    @property
    def connectors(self) -> tuple[str, ...]:
        """KV connectors of the deployment that this pool runs."""
        names = []
        if self.deployment.pd_transfer and self.pool.role != "colocated":
            names.append(self.deployment.pd_transfer.connector)
        if self.deployment.offload and self.deployment.offload.connector:
            names.append(self.deployment.offload.connector)
        return tuple(names)

    @property
    def nixl(self) -> bool:
        """Whether one of the connectors is the one the engine treats apart."""
        return transfer.NIXL in self.connectors


def capability_of(chip: Chip, record: Recorder) -> tuple[int, int]:
    """Compute capability of the chip; where unstated, read off its rates and recorded.

    Native FP4 means 10.0, FP8 without it 9.0, neither 8.0.
    """
    if chip.compute_capability is not None:
        major, minor = f"{chip.compute_capability:.1f}".split(".")
        return int(major), int(minor)
    if chip.tflops_nvfp4:
        found, why = (10, 0), "native NVFP4"
    elif chip.tflops_fp8:
        found, why = (9, 0), "FP8 without NVFP4"
    else:
        found, why = (8, 0), "no FP8"
    record.assume("compute_capability", f"{found[0]}.{found[1]}", why=why)
    return found
