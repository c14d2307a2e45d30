"""What the pricing commands print: tables a person reads, JSON a program does, the same numbers in both."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command import steppe

import steppe as package
from steppe.steps import parse_step

DEPLOYED = ("--model", "llama-3.1-70b-instruct-fp8", "--hardware", "b200", "--tp", "4")
STEPS = ("1@1024", "64@2048", "p2048", "64@2048+p2048@512")


def kernel() -> package.Kernel:
    return package.Kernel.build(model="llama-3.1-70b-instruct-fp8", hardware="b200", tp=4)


def data(*arguments: object) -> Any:
    ran = steppe(*arguments, "--json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_price_json_is_the_estimate() -> None:
    found = data("price", *DEPLOYED, *(part for step in STEPS for part in ("--step", step)))
    assert found["deployment"]["tp"] == 4
    assert [each["step"] for each in found["steps"]] == list(STEPS)
    for each in found["steps"]:
        estimate = kernel().step_time(parse_step(each["step"]))
        assert each["no_overlap_ns"] == estimate.no_overlap
        assert each["overlap_ns"] == estimate.overlap
        assert each["per_resource_ns"] == estimate.per_resource
        assert each["bottleneck"] == estimate.bottleneck
        assert each["tokens"] == estimate.tokens


def test_price_table_shows_milliseconds_breakdown_and_bottleneck() -> None:
    ran = steppe("price", *DEPLOYED, "--decode", "64@2048", "--prefill", "2048")
    assert ran.code == 0
    assert "llama-3.1-70b-instruct-fp8 on b200, tp 4" in ran.out
    lines = {line.split()[0]: line.split() for line in ran.out.splitlines() if line.strip()}
    for text in ("64@2048", "p2048"):
        estimate = kernel().step_time(parse_step(text))
        row = lines[text]
        assert row[1] == f"{estimate.tokens:,}"
        assert row[2] == f"{estimate.no_overlap / 1e6:.2f}"
        assert estimate.bottleneck in row
        assert f"{estimate.per_resource['sm'] / 1e6:.2f}" in row
    assert "nic" not in ran.out.split("bottleneck")[0].split()  # one node: no column for a link nothing crosses
    assert re.search(r"Rests on \d+ entries: .*measured", " ".join(ran.out.split()))


def test_price_without_steps_prices_typical_ones() -> None:
    found = data("price", *DEPLOYED)
    assert len(found["steps"]) >= 5
    short = data("price", *DEPLOYED, "-e", "max_model_len=1500", "-e", "max_num_batched_tokens=8192")
    assert 0 < len(short["steps"]) < len(found["steps"])  # those beyond the stated length are left out


def test_narrow_terminals_keep_the_numbers() -> None:
    wide, narrow = (steppe("price", *DEPLOYED, "--decode", "64@2048", columns=width).out for width in (140, 70))
    assert "most of it" in wide
    assert "most of it" not in narrow
    assert f"{kernel().step_time(parse_step('64@2048')).no_overlap / 1e6:.2f}" in narrow


def test_explain_json_terms_sum_to_the_step() -> None:
    found = data("explain", "64@2048+p512", *DEPLOYED)
    assert sum(term["ns"] for term in found["terms"]) == found["no_overlap_ns"]
    assert {"qkv", "attention decode", "attention prefill", "lm_head"} <= {term["term"] for term in found["terms"]}


def test_explain_table_names_layers_and_terms() -> None:
    out = steppe("explain", "64@2048", *DEPLOYED).out
    assert "full_dense x 80" in out
    for name in ("qkv", "attention decode", "gate_up", "reduce_mlp", "lm_head", "sampler"):
        assert name in out
    assert "ms" in out


def test_provenance_lists_what_a_price_rests_on() -> None:
    found = data("provenance", *DEPLOYED)
    names = {each["name"] for each in found["coefficients"]}
    assert "gemm:fp8" in names
    assert any(name.startswith("attention_decode:trtllm/") for name in names)
    assert all(each["method"] and each["set"] for each in found["coefficients"])
    assert all(each["sources"] or each["fit"].get("data") or each["rationale"] for each in found["coefficients"])
    assert all(each["reason"] for each in found["assumptions"])
    ran = steppe("provenance", *DEPLOYED)
    assert ran.code == 0
    shown = "".join(ran.out.split())
    for each in found["coefficients"]:
        for line in (each["name"], f"{each['method']}, {each['set']}", *each["sources"], each["rationale"]):
            assert "".join(line.split()) in shown


@pytest.mark.parametrize("command", ["price", "provenance", "memory"])
def test_a_deployment_file_is_priced_as_its_options_are(command: str, tmp_path: Path) -> None:
    file = tmp_path / "llama.yaml"
    file.write_text(
        """kind: Scenario
name: file
model: llama-3.1-8b-instruct
engine_version: "0.31.0"
coefficients: [h100-reference, h100-engine, h100-refined]
cluster: {hardware: h100, nodes: 1, gpus_per_node: 8}
---
kind: Deployment
name: file
pools:
  - {role: colocated, nodes: 1, parallel: {tp: 2, pp: 1, dp: 1}, engine: {max_num_seqs: 64}}
"""
    )
    options = ("-m", "llama-3.1-8b-instruct", "-g", "h100", "--tp", "2", "-e", "max_num_seqs=64")
    assert data(command, file) == data(command, *options)


def test_engine_options_reach_the_deployment() -> None:
    found = data("price", *DEPLOYED, "-e", "cache_dtype=fp8", "-e", "max_num_seqs=32")
    assert found["deployment"]["cache_dtype"] == "fp8"
    assert found["deployment"]["capture_ceiling"] == 64


def test_version() -> None:
    ran = steppe("--version")
    assert ran.code == 0
    assert package.__version__ in ran.out
    assert "0.31" in ran.out
