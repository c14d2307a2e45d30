"""What `steppe memory` prints: a table of one rank, what fits, and exit code 1 where nothing does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command import Ran, steppe

import steppe as package

GIB = 1 << 30
SMALL = ("--model", "llama-3.1-8b-instruct", "--hardware", "h100")
TOO_LARGE = ("--model", "llama-3.1-70b-instruct-fp8", "--hardware", "l40s")


def data(ran: Ran) -> Any:
    return json.loads(ran.out)


@pytest.fixture(scope="module")
def kernel() -> package.Kernel:
    return package.Kernel.build(model="llama-3.1-8b-instruct", hardware="h100")


def test_json_is_the_kernels_own_sizes(kernel: package.Kernel) -> None:
    ran = steppe("memory", *SMALL, "--context", 100, "--context", 5000, "--json")
    assert ran.code == 0
    found = data(ran)
    assert found["fixed_bytes"]["total"] == kernel.fixed_bytes().total
    assert found["capacity"] == kernel.kv_capacity().as_dict()
    assert [each["tokens"] for each in found["requests"]] == [100, 5000]
    usable = kernel.kv_capacity().usable_blocks * kernel.kv_capacity().bytes_per_block
    for each in found["requests"]:
        assert each["admission_bytes"] == kernel.sequence_admission_bytes(each["tokens"])
        assert each["requests_that_fit"] == usable // each["admission_bytes"]
        assert 0 < each["held_bytes"] <= each["admission_bytes"]
    assert found["cache_groups"] == [
        {"layers": 32, "caches": ["32 x full"], "block_tokens": 16, "page_bytes": 32 * 16 * 8 * 256 * 2}
    ]


def test_the_table_shows_the_same(kernel: package.Kernel) -> None:
    ran = steppe("memory", *SMALL)
    assert ran.code == 0
    text = " ".join(ran.out.split())
    capacity = kernel.kv_capacity()
    assert "llama-3.1-8b-instruct on h100" in text
    assert re.search(rf"weights {kernel.fixed_bytes().weights / GIB:,.2f} ", text)
    assert re.search(rf"held whatever is served {kernel.fixed_bytes().total / GIB:,.2f} ", text)
    assert f"{capacity.num_blocks:,} blocks of {capacity.bytes_per_block:,} bytes in 1 group(s)" in text
    assert "Cache groups" not in text
    assert "redundant experts" not in text
    assert [line.split()[0] for line in ran.out.split("fit at once")[1].splitlines() if re.match(r" +\d", line)] == [
        "1,024", "8,192", "32,768", "131,072",
    ]  # fmt: skip


def test_requests_longer_than_the_deployment_serves_are_left_out() -> None:
    found = data(steppe("memory", *SMALL, "-e", "max_model_len=8192", "--json"))
    assert [each["tokens"] for each in found["requests"]] == [1024, 8192]


def test_groups_of_layers_are_a_table_of_their_own() -> None:
    deployed = ("--model", "gpt-oss-20b", "--hardware", "h100")
    ran = steppe("memory", *deployed)
    assert ran.code == 0
    groups = data(steppe("memory", *deployed, "--json"))["cache_groups"]
    assert {"12 x full", "12 x window 128"} == {cache for group in groups for cache in group["caches"]}
    shown = ran.out.split("Cache groups")[1].split("One request")[0]
    assert "12 x full" in shown
    assert "12 x window 128" in shown


def test_a_model_too_large_exits_with_1_and_says_by_how_much() -> None:
    ran = steppe("memory", *TOO_LARGE)
    assert ran.code == 1
    assert "does not fit" in ran.out
    assert "One request" not in ran.out
    asked = steppe("memory", *TOO_LARGE, "--json")
    assert asked.code == 1
    found = data(asked)
    assert found["capacity"] is None
    assert "does not fit" in found["does_not_fit"]
    assert all(each["requests_that_fit"] == 0 for each in found["requests"])


def test_a_picture_is_saved(tmp_path: Path) -> None:
    picture = tmp_path / "memory.svg"
    assert steppe("memory", *SMALL, "--json", "--plot", picture).code == 0
    assert picture.read_text().startswith("<?xml")
