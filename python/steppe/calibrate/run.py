"""Running a calibration: independent jobs in worker processes, results put together in a fixed order."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steppe.calibrate import all_to_all, attention, collectives, gemm, mla, moe, recurrent, routing, small, sparse
from steppe.calibrate.fit import Fitted
from steppe.calibrate.neighbours import stand_ins
from steppe.calibrate.parts import KNOWN, Part, load_part
from steppe.calibrate.tables import Tables
from steppe.errors import DocumentError

CHUNKS = 64  # routing emulation is cut into this many pieces
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
Progress = Callable[[str, int, int], None]  # label, done, total


@dataclass(frozen=True, slots=True)
class Job:
    """One unit of work: a family on a part, with what selects inside it."""

    family: str
    part: str
    choice: Any = None

    @property
    def label(self) -> str:
        if self.choice is None:
            return f"{self.part} {self.family}"
        if isinstance(self.choice, tuple):  # sparse: family and phase
            return f"{self.part} {self.choice[0]} {'decode' if self.choice[1] else 'context'}"
        return f"{self.part} {self.family} {getattr(self.choice, 'key', self.choice)}"


def plan(parts: list[Part]) -> list[Job]:
    """Every job of a calibration but the experts (they wait for the routing), longest first."""
    jobs: list[Job] = []
    for family in ("attention_decode", "attention_prefill"):
        jobs += [Job(family, p.name) for p in parts]
    for p in parts:
        jobs += [Job("gemm", p.name, dtype) for dtype in gemm.dtypes(p)]
    for family in ("dsa", "msa", "csa", "hca"):
        jobs += [Job("sparse", p.name, (family, decode)) for p in parts for decode in (True, False)]
    for family in ("mla_decode", "mla_context", "gdn", "kda", "mamba2", "nccl", "vllm", "exchange", "elementwise"):
        jobs += [Job(family, p.name) for p in parts]
    return jobs


def execute(data: Path, job: Job, extra: Any = None) -> list[Fitted]:
    """Run one job; called inside a worker."""
    tables, part = Tables(data), load_part(data, job.part)
    if job.family == "gemm":
        return gemm.fit_part(tables, part, job.choice)
    if job.family == "moe":
        return moe.fit_part(tables, part, job.choice, extra)
    if job.family == "sparse":
        return sparse.fit_family(tables, part, job.choice[0], decode=job.choice[1])
    if job.family in recurrent.SOURCES:
        return recurrent.fit_mixer(tables, part, job.family)
    run = {
        "attention_decode": attention.fit_decode,
        "attention_prefill": attention.fit_prefill,
        "mla_decode": mla.fit_decode,
        "mla_context": mla.fit_context,
        "nccl": collectives.fit_nccl,
        "vllm": collectives.fit_vllm,
        "exchange": all_to_all.fit_part,
        "elementwise": small.fit_elementwise,
    }[job.family]
    return run(tables, part)


@contextmanager
def _workers(count: int) -> Iterator[Executor]:
    """Fresh worker processes with single-threaded linear algebra: threads would change the last bits."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool:
            yield pool
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@dataclass(frozen=True, slots=True)
class Calibration:
    """Every law by part, stand-ins included, and the jobs whose table the wheel does not hold."""

    laws: dict[str, list[Fitted]]
    unmeasured: list[str]


def calibrate(
    data: Path, names: list[str] | None = None, *, jobs: int = 0, progress: Progress | None = None
) -> Calibration:
    """Fit every law of the named parts (all known parts when None) from the tables under `data`.

    The result does not depend on `jobs`. Stand-ins from parts that are not named are left out.
    Raises DocumentError for a folder that is not an unpacked aisimulate wheel.
    """
    wanted = list(KNOWN) if names is None else names
    if not (data / "aisimulate_core" / "systems" / "data").is_dir():
        raise DocumentError(
            f"{data}: no aisimulate_core/systems/data; unpack the aisimulate wheel there (see calibrate.md)"
        )
    parts = [load_part(data, n) for n in wanted]
    todo = plan(parts)
    experts = [Job("moe", p.name, k) for p in parts for k in moe.KERNELS.get(p.folder, [])]
    keys = moe.routing_keys(Tables(data), parts)
    total = len(todo) + len(experts) + CHUNKS
    done = 0
    results: dict[Job, list[Fitted]] = {}

    def tick(label: str) -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(label, done, total)

    with _workers(jobs or os.cpu_count() or 1) as pool:
        pieces = [pool.submit(routing.emulate_many, keys[i::CHUNKS]) for i in range(CHUNKS)]
        running: dict[Future[list[Fitted]], Job] = {pool.submit(execute, data, j): j for j in todo}
        table: list[list[Any]] = []
        for piece in pieces:
            table += piece.result()
            tick("expert routing")
        table.sort()
        running |= {pool.submit(execute, data, j, table): j for j in experts}
        for future in as_completed(running):
            results[running[future]] = future.result()
            tick(running[future].label)
    measured = [f for job in [*todo, *experts] for f in results[job]]
    everything = measured + stand_ins(measured, parts)
    laws = {p.name: [f for f in everything if f.part == p.name] for p in parts}
    return Calibration(laws, [job.label for job in [*todo, *experts] if not results[job]])
