"""What a family hands to the assembler: layers in order, each a list of nodes, and what surrounds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from steppe.models.config import Config
from steppe.models.quantization import Quantization
from steppe.models.weights import Weight

Node = dict[str, Any]
Cache = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """One checkpoint as a family reads it: the text decoder's config and how its weights are stored.

    `target_layers`: of the model a draft checkpoint drafts for, where the caller knows it.
    """

    config: Config
    quant: Quantization
    target_layers: int | None = None


@dataclass
class Layer:
    """One decoder layer: the name of its kind, its nodes in launch order, and the caches it holds, where stated."""

    kind: str
    nodes: list[Node]
    caches: list[Cache] = field(default_factory=list)


@dataclass
class Speculator:
    """A drafter that lives in the target's checkpoint or stands alone: its layers and what sets them apart."""

    method: str
    num_spec_tokens: int
    layers: list[Layer]
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class Architecture:
    """A derived model before kinds are named and the stack folded."""

    hidden_size: int
    vocab_size: int
    tied: bool
    layers: list[Layer]
    head: list[Node]
    speculator: Speculator | None = None


Family = Callable[[Source], Architecture]


class Block:
    """Builds the nodes of one layer, in launch order.

    Bytes per token are those of all ranks together, as every count in a graph is; an Elementwise node without bytes
    moves the norm's default, twice the hidden state at 16 bits.
    """

    def __init__(self, quant: Quantization) -> None:
        self.quant = quant
        self.nodes: list[Node] = []

    def add(self, op: str, **keys: Any) -> None:
        self.nodes.append({"op": op, **{k: v for k, v in keys.items() if v is not None}})

    def norm(self, role: str, bytes_per_token: int | None = None, *, replicated: bool = False) -> None:
        self.elementwise(role, bytes_per_token, replicated=replicated)

    def elementwise(
        self, role: str, bytes_per_token: int | None = None, *, launches: int = 1, replicated: bool = False
    ) -> None:
        self.add(
            "Elementwise",
            role=role,
            bytes_per_token=bytes_per_token,
            launches=launches if launches > 1 else None,
            replicated=True if replicated else None,
        )

    def gemm(self, role: str, n: int, k: int, weight: Weight, *, replicated: bool = False) -> None:
        keys = weight.keys(self.quant.default)
        self.add("GEMM", role=role, n=n, k=k, replicated=True if replicated else None, **keys)

    def experts(self, n: int, k: int, weight: Weight, **keys: Any) -> None:
        self.add("GroupedGEMM", role="experts", n=n, k=k, **keys, **weight.keys(self.quant.default))

    def reduce(self, role: str, emit: str = "tensor_parallel", bytes_per_token: int | None = None) -> None:
        self.add("AllReduce", role=role, emit=emit, bytes_per_token=bytes_per_token)
