"""What a closed loop of requests sees: the steady state of one deployment at a fixed concurrency.

A closed-form estimate over step prices, for scoring and for a first look; a discrete-event simulator does better. It
assumes that

* `concurrency` requests are always in the system on each data-parallel rank; a finished one is replaced at once;
* every prompt has `isl` tokens and every output `osl`; decoding requests sit at the mean context `isl + osl/2`;
* prompts of other requests arrive at random (Poisson) among the steps, so a step of the rank holds at least one with
  probability `1 - exp(-a)`, a step of the lock-step group of `dp` ranks with `1 - exp(-a dp)`;
* a prompt longer than what the token budget leaves beside the decodes runs in chunks of equal size, and every one of
  them delays the decoding requests;
* prefix caching never hits, no request is preempted, and a step follows the one before without a gap.

The formula stands in docs/research/accuracy.md; it was chosen on kernel measurements and composition, and nothing in it
is fitted to serving points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from steppe.errors import DeploymentError

ROUNDS = 4  # of the fixed point; it moves by less than a decode row after three
Chunk = tuple[float, float]  # new tokens, tokens computed before them


class Step(Protocol):
    """Seconds of one step with `decodes` requests at mean `context` tokens and the prefill `chunks`."""

    def __call__(self, decodes: int, context: float, chunks: Sequence[Chunk], /) -> float: ...


@dataclass(frozen=True, slots=True)
class SteadyState:
    """The loop in equilibrium. Times in seconds; per data-parallel rank."""

    tpot: float  # between two tokens of a request, on average
    ttft: float  # from arrival to the first token: the request's own chunks and half a step of waiting
    decode_step: float  # a step without a prompt
    mixed_step: float  # a step with one chunk
    mixed_share: float  # chunks a step; above 1 every step is mixed
    decodes: float  # requests decoding at a time, the rest are in prefill
    chunks: int  # steps a prompt (or the prompts that meet in a step) is spread over

    @property
    def output_rate(self) -> float:
        """Output tokens a second of one rank."""
        return self.decodes / self.tpot


def steady_state(
    step: Step,
    *,
    isl: float,
    osl: float,
    concurrency: int,
    token_budget: int,
    dp: int = 1,
    rounds: int = ROUNDS,
) -> SteadyState:
    """Mean time per output token, and what it is made of, at a fixed concurrency.

    `isl` and `osl` are prompt and output tokens, `concurrency` the requests in flight **per data-parallel rank**,
    `token_budget` the engine's max_num_batched_tokens, `dp` the ranks that step together (1 for dense models).
    Raises DeploymentError when a length or width is not positive, the budget leaves no room for a prompt token, or a
    step price is not a positive time.
    """
    for name, value in (("isl", isl), ("osl", osl), ("concurrency", concurrency), ("dp", dp), ("rounds", rounds)):
        if not value > 0:
            raise DeploymentError(f"{name} must be positive, not {value}")
    if token_budget <= concurrency:
        raise DeploymentError(f"token_budget {token_budget} leaves no prompt token beside {concurrency} decodes")
    state = _balance(step, float(concurrency), isl, osl, concurrency, token_budget, dp)
    decodes = _decoding(state, osl, concurrency)
    for _ in range(rounds - 1):
        state = _balance(step, decodes, isl, osl, concurrency, token_budget, dp)
        decodes = 0.5 * decodes + 0.5 * _decoding(state, osl, concurrency)  # damped: the map overshoots in deep queues
    return state


def _decoding(state: SteadyState, osl: float, concurrency: int) -> float:
    """Requests past their first token, of those in flight: the share of its life a request decodes."""
    return concurrency * osl / (osl + state.ttft / state.tpot)


def _balance(
    step: Step, decodes: float, isl: float, osl: float, concurrency: int, token_budget: int, dp: int
) -> SteadyState:
    """One round: prices at a number of decoding requests."""
    rows = max(1, round(decodes))
    context = isl + osl / 2
    decode_step = step(rows, context, ())
    if not (math.isfinite(decode_step) and decode_step > 0):
        raise DeploymentError(f"the price of a step of {rows} decodes is {decode_step} s; it must be a positive time")
    room = token_budget - rows
    arrivals = rows * (concurrency - 1) / concurrency / osl  # prompts of other requests per step of this rank
    group = arrivals * dp
    mixed = 1 - math.exp(-group) if group > 1e-9 else 0.0
    together = arrivals / (1 - math.exp(-arrivals)) if arrivals > 1e-9 else 1.0  # prompts that meet in a mixed step
    tokens = together * isl
    chunks = max(1, math.ceil(tokens / room - 1e-9))
    size = tokens / chunks

    def mixed_step(new: float, cached: float) -> float:
        count = max(1, round(new / min(isl, new)))
        return step(rows, context, [(new / count, cached)] * count)

    extra = 0.0
    for i in range(chunks):
        cached = 0.0 if isl <= room else min(i * size, max(0.0, isl - size))
        extra += mixed_step(size, cached) - decode_step
    share = mixed * chunks
    if share <= 1:
        tpot, one = decode_step + mixed * extra, decode_step + extra / chunks
    else:  # prompts arrive faster than steps pass: every step carries its share of their tokens
        new = min(arrivals * isl, room)
        one = mixed_step(new, 0.0 if isl <= room else isl / 2 - new / 2) if new >= 1 else decode_step
        tpot = max(one, decode_step) * max(1.0, arrivals * isl / room)
    if not (math.isfinite(tpot) and tpot > 0):
        raise DeploymentError(f"the price of a step with {tokens:.0f} prompt tokens is not a positive time")
    ttft = chunks * one + tpot / 2
    return SteadyState(tpot, ttft, decode_step, one, share, decodes, chunks)


def kernel_step(kernel: Any) -> Step:
    """Step prices of a `steppe.Kernel`: the sum over resources without overlap.

    Decoding requests schedule one token at a context of `context` tokens, the new one included; fractional chunks are
    rounded to whole tokens, at least one. The other data-parallel ranks of the lockstep run as many decodes and no
    prompt.
    """
    from steppe import Batch

    others = kernel.resolution.widths.dp - 1

    def price(decodes: int, context: float, chunks: Sequence[Chunk], /) -> float:
        new = [max(1, round(size)) for size, _ in chunks]
        cached = [max(0, round(before)) for _, before in chunks]
        scheduled = [1] * decodes + new
        computed = [max(0, round(context) - 1)] * decodes + cached
        together = sum(scheduled) + others * decodes if others else 0
        return (
            float(kernel.step_time(Batch(scheduled=scheduled, computed=computed, group_tokens=together)).no_overlap)
            * 1e-9
        )

    return price
