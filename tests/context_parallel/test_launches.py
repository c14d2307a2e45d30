"""Which collectives a layout launches and how often: one coefficient's floor is raised in a copy of the documents, and
what NVLink and the network are charged more, divided by the raise, is the number of launches of a step."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from golden_files import ABSENT, CATALOG, REGISTRY, ROOT

import steppe
from steppe.documents.bundle import Bundle, load_bundle

pytestmark = [pytest.mark.golden, pytest.mark.skipif(not (ROOT / "documents").is_dir(), reason=ABSENT)]

RAISE_US = 1000.0
BATCHES = {
    "decode": steppe.Batch([1, 1], [100, 200]),
    "mixed": steppe.Batch([1, 64], [100, 300]),  # a decode and a chunk on a cached prefix
    "fresh": steppe.Batch([64], [0]),
    "empty": steppe.Batch([], []),
}

# Launches of one step: batch -> (collective and measured width, link) -> layers x launches a layer.
Launches = dict[tuple[str, str], int]


def every(*kinds: str, **launches: int) -> dict[str, Launches]:
    """The same launches on every batch of `kinds` (all that run by default)."""
    table = {tuple(name.split("__")): count for name, count in launches.items()}
    return dict.fromkeys(kinds or ("decode", "mixed", "fresh"), table)  # type: ignore[misc]


def table(**by_batch: dict[str, int]) -> dict[str, Launches]:
    """Launches by batch, collective and link written `op_width__link`."""
    return {kind: {tuple(n.split("__")): c for n, c in launches.items()} for kind, launches in by_batch.items()}  # type: ignore[misc]


# mla-a has 61 latent layers of which 58 have experts; d64 and dsa 48 and 61 sparse ones; moe-a 48, d70-a 80.
TP8 = {"all_reduce_8__nvlink": 2 * 61}
EXPECTED: dict[str, dict[str, Launches]] = {
    # tensor parallelism: the mixer's sum and the MLP's
    "d70-a-tp4": every(all_reduce_4__nvlink=2 * 80),
    "d70-a-tp16-2n": every(all_reduce_16__nic=2 * 80),
    "moe-a-tp4": every(all_reduce_4__nvlink=2 * 48),
    # expert parallelism: one dispatch and combine a layer; sequence-parallel experts drop the second sum
    "moe-a-tp4-ep": every(all_reduce_4__nvlink=2 * 48, alltoall_4__nvlink=48),
    "moe-a-tp4dp2-ep": every(all_reduce_4__nvlink=48, alltoall_8__nvlink=48),
    "moe-a-tp4dp2-ep-deepep": every(all_reduce_4__nvlink=48, alltoall_8__nvlink=48),
    "moe-a-tp4dp2": every(all_reduce_4__nvlink=2 * 48, alltoall_8__nvlink=48),
    "moe-a-tp1dp8-ep": every(alltoall_8__nvlink=48),
    "mu-a-tp4dp5-ep-3n": every(all_reduce_4__nvlink=24, alltoall_16__nic=24),
    # decode context, latent: query and LSE gathers and a reduce-scatter for the decodes, a gather of the cached context
    # for a chunk that has one
    "mla-a-tp8-dcp8": table(
        decode={**TP8, "all_gather_8__nvlink": 2 * 61, "reduce_scatter_8__nvlink": 61},
        mixed={**TP8, "all_gather_8__nvlink": 3 * 61, "reduce_scatter_8__nvlink": 61},
        fresh=TP8,
    ),
    "mla-a-tp8-dcp2": table(
        decode={**TP8, "all_gather_2__nvlink": 2 * 61, "reduce_scatter_2__nvlink": 61},
        mixed={**TP8, "all_gather_2__nvlink": 3 * 61, "reduce_scatter_2__nvlink": 61},
        fresh=TP8,
    ),
    "mla-a-tp8-dcp8-a2a": table(
        decode={**TP8, "all_gather_8__nvlink": 61, "alltoall_8__nvlink": 61},
        mixed={**TP8, "all_gather_8__nvlink": 2 * 61, "alltoall_8__nvlink": 61},
        fresh=TP8,
    ),
    "mla-a-tp16-dcp16-2n": table(
        decode={"all_reduce_16__nic": 2 * 61, "all_gather_16__nic": 2 * 61, "reduce_scatter_16__nic": 61},
        mixed={"all_reduce_16__nic": 2 * 61, "all_gather_16__nic": 3 * 61, "reduce_scatter_16__nic": 61},
        fresh={"all_reduce_16__nic": 2 * 61},
    ),
    "dsa-a-tp8-kvfp8-dcp4": table(
        decode={**TP8, "all_gather_4__nvlink": 2 * 61, "reduce_scatter_4__nvlink": 61},
        mixed={**TP8, "all_gather_4__nvlink": 3 * 61, "reduce_scatter_4__nvlink": 61},
        fresh=TP8,
    ),
    # decode context, full attention: all rows of a step that has any context, none of a fresh one
    "moe-a-tp8-dcp2": table(
        decode={"all_reduce_8__nvlink": 96, "all_gather_2__nvlink": 96, "reduce_scatter_2__nvlink": 48},
        mixed={"all_reduce_8__nvlink": 96, "all_gather_2__nvlink": 96, "reduce_scatter_2__nvlink": 48},
        fresh={"all_reduce_8__nvlink": 96},
    ),
    "moe-a-tp8-dcp2-a2a": table(
        decode={"all_reduce_8__nvlink": 96, "all_gather_2__nvlink": 48, "alltoall_2__nvlink": 48},
        mixed={"all_reduce_8__nvlink": 96, "all_gather_2__nvlink": 48, "alltoall_2__nvlink": 48},
        fresh={"all_reduce_8__nvlink": 96},
    ),
    # prefill context: what a chunk wrote is gathered, the latent and its rope part apart, an index key besides
    "mla-a-tp4-pcp2": table(
        decode={"all_reduce_4__nvlink": 2 * 61},
        mixed={"all_reduce_4__nvlink": 2 * 61, "all_gather_2__nvlink": 2 * 61},
        fresh={"all_reduce_4__nvlink": 2 * 61, "all_gather_2__nvlink": 2 * 61},
    ),
    "mla-a-tp4-pcp2-ep": table(
        decode={"all_reduce_4__nvlink": 2 * 61, "alltoall_8__nvlink": 58},
        mixed={"all_reduce_4__nvlink": 2 * 61, "alltoall_8__nvlink": 58, "all_gather_2__nvlink": 2 * 61},
        fresh={"all_reduce_4__nvlink": 2 * 61, "alltoall_8__nvlink": 58, "all_gather_2__nvlink": 2 * 61},
    ),
    "mla-a-tp8-pcp2-2n": table(
        decode={"all_reduce_8__nvlink": 2 * 61},
        mixed={"all_reduce_8__nvlink": 2 * 61, "all_gather_2__nic": 2 * 61},
        fresh={"all_reduce_8__nvlink": 2 * 61, "all_gather_2__nic": 2 * 61},
    ),
    # both: outputs are all-reduced over the shards; the query is gathered over tp only where every rank is a shard
    "d64-a-tp4-pcp2-dcp2-kvfp8": table(
        decode={"all_reduce_4__nvlink": 2 * 48, "all_gather_2__nvlink": 48, "all_reduce_2__nvlink": 48},
        mixed={"all_reduce_4__nvlink": 2 * 48, "all_gather_2__nvlink": (1 + 1 + 3) * 48, "all_reduce_2__nvlink": 48},
        fresh={"all_reduce_4__nvlink": 2 * 48, "all_gather_2__nvlink": 3 * 48},
    ),
    "d64-a-tp4-pcp2-dcp8-kvfp8": table(
        decode={
            "all_reduce_4__nvlink": 2 * 48,
            "all_gather_4__nvlink": 48,
            "all_gather_8__nvlink": 48,
            "all_reduce_8__nvlink": 48,
        },
        mixed={
            "all_reduce_4__nvlink": 2 * 48,
            "all_gather_4__nvlink": 48,
            "all_gather_8__nvlink": 2 * 48,
            "all_gather_2__nvlink": 3 * 48,
            "all_reduce_8__nvlink": 48,
        },
        fresh={"all_reduce_4__nvlink": 2 * 48, "all_gather_2__nvlink": 3 * 48},
    ),
}


@cache
def bundle(name: str) -> Bundle:
    return load_bundle(ROOT / "documents" / "scenarios" / f"{name}.yaml", catalog=CATALOG, registry=REGISTRY)


@cache
def raised(name: str) -> dict[str, steppe.Kernel]:
    """A kernel for each collective the part's sets measure, its floor raised; "" is the untouched one."""
    base = bundle(name)
    chip = base.chip_name.replace("-", "_")
    kernels = {"": steppe.Kernel.from_bundle(base)}
    names = {entry.name for each in base.sets for entry in each.coefficients if entry.name.endswith(f"rank_{chip}")}
    for floor in sorted(n for n in names if n.startswith("collective_floor_")):
        short = floor.removeprefix("collective_floor_").removesuffix(f"rank_{chip}").replace("_fp16", "")
        kernels[short] = steppe.Kernel.from_bundle(replace(base, sets=[_raise(each, floor) for each in base.sets]))
    return kernels


def _raise(each: Any, name: str) -> Any:
    coefficients = tuple(
        entry.model_copy(update={"value": entry.value + RAISE_US}) if entry.name == name else entry
        for entry in each.coefficients
    )
    return each.model_copy(update={"coefficients": coefficients})


def launches(name: str, batch: steppe.Batch) -> Launches:
    """Launches of one step, by collective and link."""
    kernels = raised(name)
    before = kernels[""].step_time(batch)
    found: Launches = {}
    for collective, kernel in kernels.items():
        after = kernel.step_time(batch)
        for link in ("nvlink", "nic"):
            more = (after.per_resource[link] - before.per_resource[link]) / (RAISE_US * 1000)
            assert more == pytest.approx(round(more), abs=1e-5), (collective, link)  # whole launches
            if round(more):
                found[collective, link] = round(more)
        for resource in ("sm", "hbm", "host"):
            assert after.per_resource[resource] == before.per_resource[resource]
    return found


@pytest.mark.parametrize(
    ("name", "batch"), [(name, batch) for name in EXPECTED for batch in EXPECTED[name]], ids=lambda value: str(value)
)
def test_launches(name: str, batch: str) -> None:
    assert launches(name, BATCHES[batch]) == EXPECTED[name][batch]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_an_empty_step_launches_nothing(name: str) -> None:
    assert launches(name, BATCHES["empty"]) == {}
