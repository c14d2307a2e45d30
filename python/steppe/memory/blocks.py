"""Tokens a block: the engine's default, the alignment of hybrids, and a window layer's own block.

A backend states the kernel block sizes it runs, exact ones and multiples. The block the manager hands out only has to
be one every backend accepts (vllm/platforms/interface.py:615-1018).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import lcm

from steppe.errors import DeploymentError

DEFAULT_BLOCK_SIZE = 16
"""Tokens (vllm/config/cache.py:71)."""


@dataclass(frozen=True, slots=True)
class KernelBlocks:
    """Kernel block sizes of one attention backend, in tokens.

    `multiples`: any multiple of each runs; `sizes`: these run. A manager block is accepted when some size divides it,
    unless `exact`: then it must be one of `sizes`. `preferred` overrides the choice when nothing is stated.
    """

    sizes: tuple[int, ...] = ()
    multiples: tuple[int, ...] = ()
    exact: bool = False
    preferred: int | None = None

    def accepts(self, block: int) -> bool:
        """Whether the manager may hand out blocks of this size (vllm/v1/attention/backend.py:120-141)."""
        if self.exact:
            return block in self.sizes
        return not self.bases or any(block % base == 0 for base in self.bases)

    @property
    def bases(self) -> tuple[int, ...]:
        return self.sizes + self.multiples

    def choose(self, default: int) -> int:
        """The block of a model with this backend alone (vllm/v1/attention/backend.py:154-162 and overrides)."""
        if self.preferred is not None:
            return default if self.exact and default in self.sizes else self.preferred
        return default if self.accepts(default) else min(self.bases)


def default_block_size(backends: Sequence[KernelBlocks], default: int = DEFAULT_BLOCK_SIZE) -> int:
    """The block size when none is stated: the default if every backend takes it, else the smallest all take.

    Raises DeploymentError when the backends share none (vllm/platforms/interface.py:615-664).
    """
    if len(backends) == 1:
        return backends[0].choose(default)
    if all(b.accepts(default) for b in backends):
        return default
    for candidate in sorted({lcm(*sizes) for sizes in product(*[b.bases or (1,) for b in backends])}):
        if all(b.accepts(candidate) for b in backends):
            return candidate
    raise DeploymentError("the attention backends of this model share no KV-cache block size; state another backend")


@dataclass(frozen=True, slots=True)
class HybridBlocks:
    """The blocks of a stack with recurrent layers. `state_block` is None in mode none: max_model_len tokens."""

    block_size: int
    state_block: int | None
    state_page_padded: int | None


def hybrid_blocks(
    *,
    block_size: int,
    state_page: int,
    attention_bytes: int,
    kernel: KernelBlocks,
    latent: bool,
    mode: str,
    chunk: int | None = None,
    state_block_stated: int | None = None,
) -> HybridBlocks:
    """Raise the block until an attention page covers a recurrent page; pad the latter to match.

    `block_size` is the block so far (stated or default), `state_page` bytes of one recurrent layer, `attention_bytes`
    of one token in one attention layer, `kernel` of the model's first backend, `chunk` the model's scan chunk (mode
    all). Source: vllm/platforms/interface.py:834-1018.
    """
    if state_page == 0:
        return HybridBlocks(block_size, state_block_stated, None)
    granule = max(min(kernel.bases), block_size)
    if latent:
        granule = max(granule, 128)  # decode kernels want 128 tokens of blocks together
    state_block = state_block_stated
    if mode == "all":
        base = state_block_stated or chunk
        if base is None:
            raise DeploymentError("mamba_cache_mode all needs the model's scan chunk")
        step = lcm(base, granule)
        tokens = -(-state_page // attention_bytes)
        needed = step * -(-tokens // step)
        state_block = needed
    else:
        needed = granule * -(-state_page // (granule * attention_bytes))
    block = max(block_size, needed)
    if mode == "align":
        state_block = block
    elif mode == "none":
        state_block = None
    page = block * attention_bytes
    return HybridBlocks(block, state_block, page if page != state_page else None)


def skip_layer_block(
    *,
    block_size: int,
    quantized_bytes: int,
    plain_bytes: int,
    kernel: KernelBlocks,
    state_page_padded: int | None = None,
) -> tuple[int, int | None]:
    """(block size, page of the unquantized layers) where some layers keep a 16-bit cache beside a quantized one.

    Bytes are of one token in one layer. The block is raised until a quantized page covers one smallest kernel block of
    the plain one, to which the plain layers are padded; None where pages agree already
    (vllm/platforms/interface.py:710-821).
    """
    if plain_bytes == quantized_bytes:
        return block_size, None
    smallest = min(kernel.bases)
    granule = max(smallest, block_size)
    required = max(plain_bytes * smallest, state_page_padded or 0)
    block = max(block_size, granule * -(-required // (granule * quantized_bytes)))
    return block, block * quantized_bytes


def window_block(*, bytes_per_token: int, page_budget: int, kernel: KernelBlocks, fallback: int) -> int:
    """A window layer's own block: the largest kernel block whose page fits the budget, else the smallest.

    vllm/model_executor/layers/attention/attention.py:101-130. Pages are unified afterwards.
    """
    fitting = page_budget // bytes_per_token
    candidates = [*kernel.sizes, *(max(base, fitting // base * base) for base in kernel.multiples)]
    if not candidates:
        return fallback
    return max((b for b in candidates if b * bytes_per_token <= page_budget), default=min(candidates))
