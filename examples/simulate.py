"""The loop of simulate.cpp in Python: the same traffic, the same steps, the same simulated time.

python examples/simulate.py KERNEL [STEPS [REQUESTS_A_SECOND]]
"""

from __future__ import annotations

import heapq
import math
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import steppe

TOKEN_BUDGET, MAX_REQUESTS = 2048, 256
MASK = (1 << 64) - 1


class Traffic:
    """Poisson arrivals of random prompts and outputs, those of workload.h."""

    def __init__(self, rate: float) -> None:
        self.state, self.rate, self.at_ns = 1, rate, 0
        self.next()

    def random(self) -> int:
        """splitmix64."""
        self.state = z = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def next(self) -> None:
        """Move on to the next arrival."""
        uniform = ((self.random() >> 11) + 1) / 9007199254740993.0
        self.at_ns += int(-math.log(uniform) / self.rate * 1e9)
        self.prompt, self.output = 64 + self.random() % 1985, 16 + self.random() % 497


@dataclass(slots=True)
class Request:
    """One request on its way."""

    id: int
    prompt: int
    output: int
    blocks: int = 0  # admitted with
    computed: int = 0  # of the prompt


class Simulation:
    """Arrive, be admitted while KV blocks are free, prefill in chunks beside the decodes, decode, leave."""

    def __init__(self, kernel: steppe.PricingKernel, rate: float) -> None:
        assert kernel.caches is not None, "the kernel carries no caches to count"
        self.kernel, self.pool, self.traffic = kernel, kernel.caches, Traffic(rate)
        self.decoding = kernel.running_batch()
        self.free_blocks = kernel.caches.capacity([kernel.kv_bytes]).usable_blocks
        self.waiting: deque[Request] = deque()
        self.prefilling: list[Request] = []
        self.leaving: list[tuple[int, int, Request]] = []  # by the step after which a request leaves
        self.ids: dict[int, None] = {}
        self.step = self.now = self.tokens = self.arrived = self.finished = 0

    def run(self, steps: int) -> None:
        """Simulate so many steps."""
        while self.step < steps:
            self.take_arrivals()
            self.admit()
            if self.prefilling:
                self.mixed_step()
            elif self.ids:
                self.decode_run(steps - self.step)
            else:
                self.now = max(self.now, self.traffic.at_ns)
            self.finish()

    def take_arrivals(self) -> None:
        """Queue what has arrived by now."""
        while self.traffic.at_ns <= self.now:
            self.waiting.append(Request(self.arrived, self.traffic.prompt, self.traffic.output))
            self.arrived += 1
            self.traffic.next()

    def admit(self) -> None:
        """Take in requests while the blocks of their whole length are free."""
        while self.waiting and len(self.ids) + len(self.prefilling) < MAX_REQUESTS:
            request = self.waiting[0]
            request.blocks = self.pool.admission_blocks(request.prompt + request.output)
            if request.blocks > self.free_blocks:
                return
            self.free_blocks -= request.blocks
            self.prefilling.append(self.waiting.popleft())

    def mixed_step(self) -> None:
        """The decodes, and as much of the prompts as the budget holds."""
        budget = TOKEN_BUDGET - len(self.ids)
        scheduled = [1] * len(self.ids)
        computed = [self.decoding.computed(request) for request in self.ids]
        chunks = []
        for request in self.prefilling:
            chunk = min(budget, request.prompt - request.computed)
            if chunk <= 0:
                break
            budget -= chunk
            chunks.append(chunk)
            scheduled.append(chunk)
            computed.append(request.computed)
        e = self.kernel.step_time(steppe.Batch(scheduled, computed))
        self.take(1, e.no_overlap, e.tokens)
        self.decoding.advance()
        for chunk in chunks:
            request = self.prefilling[0]
            request.computed += chunk
            if request.computed < request.prompt:
                break
            self.decoding.add(request.id, request.prompt)
            self.ids[request.id] = None
            heapq.heappush(self.leaving, (self.step + request.output, request.id, request))
            self.prefilling.pop(0)

    def decode_run(self, left: int) -> None:
        """Decode steps until someone finishes or arrives."""
        steps = min(left, self.leaving[0][0] - self.step)
        if self.waiting or steps == 1:
            self.take(steps, self.decoding.run_total(steps)[0], steps * len(self.ids))
            return
        for _ in range(steps):
            if self.now >= self.traffic.at_ns:
                return
            self.take(1, self.decoding.run_total(1)[0], len(self.ids))

    def finish(self) -> None:
        """Let go of requests whose output is complete."""
        while self.leaving and self.leaving[0][0] <= self.step:
            _, _, request = heapq.heappop(self.leaving)
            self.decoding.remove(request.id)
            del self.ids[request.id]
            self.free_blocks += request.blocks
            self.finished += 1

    def take(self, steps: int, ns: int, tokens: int) -> None:
        """Move the clock."""
        self.step += steps
        self.now += ns
        self.tokens += tokens


def main() -> None:
    """Simulate and say how fast."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    kernel = steppe.Kernel.from_bytes(Path(sys.argv[1]).read_bytes())
    simulation = Simulation(kernel, float(sys.argv[3]) if len(sys.argv) > 3 else 8)
    start = time.perf_counter()
    simulation.run(int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
    seconds = time.perf_counter() - start
    running = len(simulation.ids) + len(simulation.prefilling)
    print(
        f"{simulation.step} steps, {simulation.finished} requests finished, {simulation.tokens} tokens "
        f"in {simulation.now / 1e9:.1f} simulated s; {running} running, {len(simulation.waiting)} waiting"
    )
    each = seconds / simulation.step
    print(f"{1e-6 / each:.2f} million steps a second ({each * 1e9:.0f} ns a step)")


if __name__ == "__main__":
    main()
