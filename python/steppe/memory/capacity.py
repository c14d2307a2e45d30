"""From a part's memory to the blocks, tokens and requests that fit beside the model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from steppe.errors import DeploymentError
from steppe.memory.notebook import GIB, in_gib, table


@dataclass(frozen=True, slots=True)
class KvCapacity:
    """What the KV cache of one rank holds. Bytes, blocks and tokens; the null block is in `num_blocks` only."""

    budget_bytes: int  # what the engine may use of the part, less what is fixed
    kv_bytes: int  # num_blocks whole blocks
    bytes_per_block: int
    num_blocks: int
    usable_blocks: int
    tokens: int  # as the engine logs them: maximum concurrency x max_model_len
    max_model_len: int  # stated, else the longest request that fits
    full_length_requests: int  # whole requests of max_model_len that fit at once
    max_concurrency: float  # as the engine logs it, the null block not subtracted
    startup_blocks: int  # blocks one request of max_model_len is charged
    startup_bytes: int
    estimated_max_len: int  # longest request the blocks could serve

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)

    def _repr_html_(self) -> str:
        rows = (
            ("GiB for the KV cache", in_gib(self.kv_bytes)),
            ("blocks", f"{self.num_blocks:,} of {self.bytes_per_block:,} bytes"),
            ("tokens", f"{self.tokens:,}"),
            (f"requests of {self.max_model_len:,} tokens", f"{self.max_concurrency:,.2f}"),
        )
        return table(("KV cache of each rank", ""), rows)


class DoesNotFit(DeploymentError):
    """The model, or one longest request, does not fit the part. Bytes: `budget`, `need`, `shortfall`."""

    def __init__(self, message: str, *, budget: int, need: int) -> None:
        super().__init__(message)
        self.budget = budget
        self.need = need
        self.shortfall = need - budget


def gib(size: float) -> str:
    """Bytes as GiB with two decimals, as the engine prints them."""
    return f"{size / GIB:.2f} GiB"


def no_room(*, part: str, usable: int, utilization: float, fixed: int, outside: int) -> DoesNotFit:
    """The fixed part alone exceeds what the engine may use."""
    need = fixed - outside
    return DoesNotFit(
        f"the model does not fit {part}: at gpu_memory_utilization {utilization:g} the engine may use {gib(usable)}, "
        f"and weights, activations, graphs and buffers take {gib(need)} of it ({gib(fixed)} in all, {gib(outside)} "
        f"before the engine counts): {gib(need - usable)} short. Raise tp, quantize the weights, lower "
        f"max_num_batched_tokens, or take a part with more memory.",
        budget=usable,
        need=need,
    )


def no_request(*, part: str, budget: int, need: int, length: int, estimated: int) -> DoesNotFit:
    """One request of max_model_len does not fit beside the model."""
    advice = (
        f"Lower max_model_len to at most {estimated}"
        if estimated
        else "Not even one token fits: raise tp or quantize the weights"
    )
    return DoesNotFit(
        f"one request of max_model_len {length} does not fit {part}: it needs {gib(need)} of KV cache, and "
        f"{gib(budget)} are left: {gib(need - budget)} short. {advice}, or raise gpu_memory_utilization.",
        budget=budget,
        need=need,
    )
