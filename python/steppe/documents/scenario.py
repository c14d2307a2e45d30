"""The Scenario document: which model on which cluster, with which coefficients; and the workload it names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from annotated_types import Ge
from pydantic import Field

from steppe.documents.base import (
    Broken,
    Count,
    Document,
    Fraction,
    Items,
    Number,
    OptionalCount,
    Positive,
    Sha256,
    SomeItems,
    Text,
    duplicates,
)

TimeUnit = Literal["ns", "nanoseconds", "us", "microseconds", "ms", "milliseconds", "s", "seconds"]


class Cluster(Document):
    """The machines: `nodes` x `gpus_per_node` GPUs of one chip. `gpus_per_rack` None means no rack tier."""

    hardware: Text
    fabric: str = ""
    nodes: Positive
    gpus_per_node: Positive
    gpus_per_rack: OptionalCount = None
    storage: Items[Text] = ()

    def broken_rules(self) -> Iterator[Broken]:
        """Yield what does not fit inside the cluster."""
        if self.nodes > 1 and not self.fabric.strip():
            yield ("fabric",), "required when nodes > 1; name a network of the catalog"
        if self.gpus_per_rack and self.gpus_per_rack % self.gpus_per_node:
            yield (
                ("gpus_per_rack",),
                f"{self.gpus_per_rack} is not a multiple of gpus_per_node {self.gpus_per_node}; "
                "a rack holds whole nodes",
            )
        for name in duplicates(self.storage):
            yield ("storage",), f"'{name}' is listed twice; list each device once"


class TraceServer(Document):
    """The server a trace was recorded on."""

    type: str = ""
    model: str = ""
    tensor_parallel: OptionalCount = None
    max_num_seqs: OptionalCount = None
    block_size: OptionalCount = None
    gpu_memory_utilization: Fraction | None = None
    max_model_len: OptionalCount = None


class SloTarget(Document):
    """Latency targets of one request class, in milliseconds; 0 means none."""

    ttft_ms: Annotated[Number, Ge(0)] = 0.0
    itl_ms: Annotated[Number, Ge(0)] = 0.0
    e2e_ms: Annotated[Number, Ge(0)] = 0.0

    def broken_rules(self) -> Iterator[Broken]:
        """Yield a target that asks for nothing."""
        if not (self.ttft_ms or self.itl_ms or self.e2e_ms):
            yield (), "states no target; set ttft_ms, itl_ms or e2e_ms above 0"


class TraceHeader(Document):
    """What a trace says about itself."""

    trace_version: Positive
    time_unit: TimeUnit
    mode: Literal["real", "generated", "replayed"]
    workload_seed: int | None = None
    server: TraceServer | None = None
    goodput_slo_targets: dict[str, SloTarget] = Field(default_factory=dict)


class Trace(Document):
    """A recorded or generated request trace."""

    data: Text
    sha256: Sha256 | None = None
    rows: Count | None = None
    header: TraceHeader


class ScenarioWorkload(Document):
    """Where requests come from: a named shape or a trace; and how skewed routing to experts is.

    `routing_concentration`: 0 is uniform, 1 the power law of the measured expert timings.
    """

    shape: str = ""
    trace: Trace | None = None
    routing_concentration: Fraction = 0.5

    def broken_rules(self) -> Iterator[Broken]:
        """Yield when the source of requests is ambiguous or missing."""
        if self.shape and self.trace:
            yield ("trace",), "shape and trace are both stated; keep one"
        if not self.shape and not self.trace and "routing_concentration" not in self.model_fields_set:
            yield (), "states neither shape nor trace; state one"


class Scenario(Document):
    """Model, cluster, workload, coefficient sets (in order) and the engine release meant."""

    kind: Literal["Scenario"]
    name: Text
    model: Text
    coefficients: SomeItems[Text]
    engine_version: Text
    workload: ScenarioWorkload | None = None
    cluster: Cluster


class Lengths(Document):
    """Token lengths of prompts or outputs. Mean `tokens`, optional spread and bounds."""

    tokens: Positive
    tokens_stdev: OptionalCount = None
    tokens_min: OptionalCount = None
    tokens_max: OptionalCount = None

    def broken_rules(self) -> Iterator[Broken]:
        """Yield bounds that do not enclose the mean."""
        if self.tokens_min and self.tokens_min > self.tokens:
            yield ("tokens_min",), f"{self.tokens_min} is above the mean {self.tokens}; lower it"
        if self.tokens_max and self.tokens_max < self.tokens:
            yield ("tokens_max",), f"{self.tokens_max} is below the mean {self.tokens}; raise it"


class Workload(Document):
    """A workload shape: a shared prefix, prompt and output lengths, in tokens."""

    prefix_tokens: Count = 0
    prompt: Lengths
    output: Lengths

    def broken_rules(self) -> Iterator[Broken]:
        """Yield a prefix longer than the prompt it starts."""
        if self.prefix_tokens > self.prompt.tokens:
            yield (
                ("prefix_tokens",),
                f"{self.prefix_tokens} exceeds prompt.tokens {self.prompt.tokens}; a prefix is part of the prompt",
            )
