"""What a notebook shows of sizes: tables whose cells are the sizes themselves."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from steppe.memory.capacity import KvCapacity
from steppe.memory.fixed import FixedBytes
from steppe.memory.notebook import in_gib, table

GIB = 1 << 30
FIXED = FixedBytes(
    weights=40 * GIB,
    activations=3 * GIB // 2,
    cuda_graphs=GIB,
    comm_buffers=0,
    engine_buffers=GIB // 4,
    eplb_replicas=0,
)
CAPACITY = KvCapacity(
    budget_bytes=21 * GIB,
    kv_bytes=20 * GIB,
    bytes_per_block=2_097_152,
    num_blocks=10_240,
    usable_blocks=10_239,
    tokens=163_824,
    max_model_len=8192,
    full_length_requests=19,
    max_concurrency=19.998,
    startup_blocks=512,
    startup_bytes=GIB,
    estimated_max_len=163_824,
)


def rows(html: str) -> list[list[str]]:
    """Texts of the cells, heading row first; raises where the markup is not well-formed."""
    return [["".join(cell.itertext()) for cell in row] for row in ElementTree.fromstring(html).iter("tr")]


def test_gib_have_two_decimals_and_thousands() -> None:
    assert [in_gib(size) for size in (0, GIB, 1.5 * GIB, 2048 * GIB)] == ["0.00", "1.00", "1.50", "2,048.00"]


def test_cells_are_escaped() -> None:
    html = table(("a < b", "&"), [("<script>", "1 > 0")])
    assert "<script>" not in html
    assert rows(html) == [["a < b", "&"], ["<script>", "1 > 0"]]


def test_fixed_bytes_list_what_is_held_and_end_in_its_total() -> None:
    assert rows(FIXED._repr_html_()) == [
        ["held on each rank", "GiB"],
        ["weights", "40.00"],
        ["activations", "1.50"],
        ["cuda graphs", "1.00"],
        ["engine buffers", "0.25"],
        ["total", "42.75"],
    ]


def test_a_capacity_states_blocks_tokens_and_requests() -> None:
    assert rows(CAPACITY._repr_html_()) == [
        ["KV cache of each rank", ""],
        ["GiB for the KV cache", "20.00"],
        ["blocks", "10,240 of 2,097,152 bytes"],
        ["tokens", "163,824"],
        ["requests of 8,192 tokens", "20.00"],
    ]


def test_numbers_stand_at_the_right() -> None:
    assert len(re.findall("text-align:right", CAPACITY._repr_html_())) == 4
