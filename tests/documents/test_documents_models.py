"""The documents by themselves: what they read, and how they hold together."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from steppe.documents import (
    CacheSpec,
    Chip,
    CoefficientSet,
    Deployment,
    InvalidDocument,
    ModelGraph,
    Node,
    Parallel,
    Scenario,
    Stack,
    load_chip,
    load_coefficient_set,
    load_fabric,
    load_graph,
    load_storage,
    load_workload,
    parse,
)
from steppe.documents.load import validate
from steppe.errors import DocumentError

from .conftest import CHIP, DEPLOYMENT, DEVICES, DOCUMENTS, FABRIC, GRAPH, SCENARIO, SET, dump, put


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_the_documents_to_be_damaged_are_sound(kind: str) -> None:
    model, data = DOCUMENTS[kind]
    document = parse(model, data)
    assert isinstance(document, model)
    with pytest.raises(ValidationError):
        document.name = "changed"  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", DOCUMENTS)
@pytest.mark.parametrize("value", [None, 3, "text", [], [1]])
def test_what_is_no_map_is_refused(kind: str, value: Any) -> None:
    with pytest.raises(DocumentError, match=r"must be a map|required|holds no|unknown|not accepted"):
        parse(DOCUMENTS[kind][0], value)


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_an_unknown_key_is_refused_everywhere(kind: str) -> None:
    model, data = DOCUMENTS[kind]
    with pytest.raises(DocumentError, match="surprise: unknown key"):
        parse(model, {**data, "surprise": 1})


def test_every_problem_of_a_document_is_listed() -> None:
    data = put(put(put(GRAPH, "global.weight_dtype", "fp6"), "layer_kinds.0.nodes.2.n_kv", 64), "name", 7)
    data["layer_kinds"][0]["nodes"][1]["bias"] = 1
    with pytest.raises(InvalidDocument) as caught:
        parse(ModelGraph, data, source="graph.yaml")
    keys = {found.key for found in caught.value.problems}
    assert keys == {"name", "global.weight_dtype", "layer_kinds[0].nodes[1].bias", "layer_kinds[0].nodes[2].n_kv"}
    assert str(caught.value).startswith("4 problems:\n  graph.yaml: ")


def test_a_key_without_a_value_is_a_key_left_out() -> None:
    deployment = parse(Deployment, put(put(DEPLOYMENT, "pools.0.engine", None), "offload", None))
    assert deployment.pools[0].engine.block_size is None
    assert deployment.offload is None
    with pytest.raises(DocumentError, match="kind: required key is missing"):
        parse(Deployment, {**DEPLOYMENT, "kind": None})


def test_zero_means_unset() -> None:
    pool = parse(Deployment, put(DEPLOYMENT, "pools.0.engine", {"block_size": 0, "gpu_memory_utilization": 0})).pools[0]
    assert pool.engine.block_size is None
    assert pool.engine.gpu_memory_utilization is None
    assert parse(Chip, {**CHIP, "TFlopsFP8": 0}).tflops_fp8 is None


def test_added_keys_are_read() -> None:
    engine = {
        "runner": "v2",
        "disable_hybrid_kv_cache_manager": True,
        "kv_cache_memory_bytes": 1 << 36,
        "moe_backend": "deep_gemm",
        "attention_backend": "FLASHINFER",
        "max_cudagraph_capture_size": 256,
        "fuse_allreduce_rms": False,
        "synchronous_host": True,
        "speculative": {"method": "eagle3", "num_spec_tokens": 3, "draft": "d", "parallel_drafting": True},
        "cudagraph_mode": "NONE",
    }
    read = parse(Deployment, put(DEPLOYMENT, "pools.0.engine", engine)).pools[0].engine
    assert read.model_dump(exclude_unset=True) == engine
    graph = put(GRAPH, "global.weight_block", "128x128")
    graph = put(graph, "global.embedding_dtype", "bf16")
    graph["layer_kinds"][0]["nodes"][0] |= {"launches": 2, "bytes_per_token": 1024}
    graph["layer_kinds"][0]["nodes"][1] |= {"compute_dtype": "fp32", "replicated": True, "weight_block": "1x128"}
    graph["layer_kinds"][0]["nodes"][4] |= {"bytes_per_token": 8}
    graph["layer_kinds"][0]["nodes"][5] |= {"gated": False}
    graph["caches"] = [
        {"id": "kv", "kind": "latent", "layer_kinds": ["moe"], "head_dim": 576, "head_dim_v": 0, "dtype": "bf16"},
        {"id": "state", "kind": "ring", "layers": 2, "state_bytes": 1024, "tokens_per_state": 0.5, "draft": True},
    ]
    graph["speculator"] = {
        "method": "dspark",
        "num_spec_tokens": 4,
        "stack": {"pattern": ["moe"], "repeat": 1},
        "hidden_taps": [1, 2],
        "block": 5,
        "markov_rank": 64,
        "draft_vocab_size": 500,
        "own_lm_head": True,
    }
    document = parse(ModelGraph, graph)
    assert document.caches[0].head_dim_v == 0
    assert document.caches[1].tokens_per_state == 0.5
    assert document.speculator is not None
    assert document.speculator.hidden_taps == (1, 2)
    assert document.layer_kinds[0].nodes[1].replicated
    assert parse(Chip, {**CHIP, "ComputeCapability": 9.0, "L2MB": 50, "TOpsINT8": 2000}).compute_capability == 9.0
    scenario = parse(Scenario, {**SCENARIO, "workload": {"routing_concentration": 0.0}})
    assert scenario.workload is not None
    assert scenario.workload.routing_concentration == 0.0


def test_a_trace_is_read_whole() -> None:
    trace = {
        "data": "trace.csv",
        "sha256": "a" * 64,
        "rows": 0,
        "header": {
            "trace_version": 1,
            "time_unit": "ms",
            "mode": "real",
            "workload_seed": -1,
            "server": {"type": "vllm", "gpu_memory_utilization": 0.9},
            "goodput_slo_targets": {"chat": {"ttft_ms": 200}},
        },
    }
    scenario = parse(Scenario, {**SCENARIO, "workload": {"trace": trace}})
    assert scenario.workload is not None
    assert scenario.workload.trace is not None
    assert scenario.workload.trace.header.goodput_slo_targets["chat"].ttft_ms == 200
    trace["header"]["goodput_slo_targets"]["chat"] = {"ttft_ms": 0}  # type: ignore[index]
    with pytest.raises(DocumentError, match=r"goodput_slo_targets.chat: states no target"):
        parse(Scenario, {**SCENARIO, "workload": {"trace": trace}})
    trace["header"]["goodput_slo_targets"] = {}  # type: ignore[index]
    with pytest.raises(DocumentError, match=r"workload.trace: shape and trace are both stated"):
        parse(Scenario, {**SCENARIO, "workload": {"trace": trace, "shape": "chat"}})


def test_laws_stand_beside_or_instead_of_coefficients() -> None:
    law = {
        "law": "gemm",
        "key": "bfloat16",
        "scope": {"hardware": ["chip-x"], "release": ["0.31.0"]},
        "params": {"sms": 132, "tiles": [[64, 64], [128, 128]], "mode": "min", "t0": 2.5},
        "method": "measured",
        "fit": {"script": "fit.py", "rows": 100, "held_out_error": 0.04},
        "sources": ["a table", {"kind": "dataset", "cite": "b"}],
    }
    document = parse(CoefficientSet, {"kind": "CoefficientSet", "name": "x", "laws": [law]})
    assert document.laws[0].params["tiles"] == [[64, 64], [128, 128]]
    assert document.laws[0].sources[0] == "a table"
    with pytest.raises(DocumentError, match="'gemm bfloat16' stands twice with the same scope"):
        parse(CoefficientSet, {"kind": "CoefficientSet", "name": "x", "laws": [law, law]})
    bad = {**law, "sources": [{"kind": "gossip", "cite": "b"}]}
    with pytest.raises(DocumentError, match=r"laws\[0\].sources\[0\].kind"):
        parse(CoefficientSet, {"kind": "CoefficientSet", "name": "x", "laws": [bad]})


def test_one_entry_with_two_scopes_is_two_entries() -> None:
    other = put(SET["coefficients"][0], "hbm_derate.scope", {"hardware": ["chip-y"]})
    assert len(parse(CoefficientSet, {**SET, "coefficients": [*SET["coefficients"], other]}).coefficients) == 2
    with pytest.raises(DocumentError, match="'hbm_derate' stands twice with the same scope"):
        parse(CoefficientSet, {**SET, "coefficients": SET["coefficients"] * 2})


def test_prefill_and_decode_pools_need_a_connector_and_exclude_colocated() -> None:
    pool = DEPLOYMENT["pools"][0]
    pair = [{**pool, "role": "prefill"}, {**pool, "role": "decode"}]
    with pytest.raises(DocumentError, match="pd_transfer: required beside a prefill pool"):
        parse(Deployment, {**DEPLOYMENT, "pools": pair})
    document = {**DEPLOYMENT, "pools": pair, "pd_transfer": {"connector": "NixlConnector"}}
    assert len(parse(Deployment, document).pools) == 2
    with pytest.raises(DocumentError, match="colocated pool stands beside"):
        parse(Deployment, {**document, "pools": [*pair, pool]})


def test_widths() -> None:
    parallel = Parallel(tp=4, pp=2, dp=3, pcp=2, dcp=8, enable_expert_parallel=True)
    assert parallel.ranks == 48
    assert parallel.ep_width == 24
    assert Parallel(tp=4, pp=1, dp=1).ep_width == 1
    with pytest.raises(ValidationError, match=r"neither 1, pcp \(2\) nor tp\*pcp \(8\)"):
        Parallel(tp=4, pp=1, dp=1, pcp=2, dcp=4)


def test_stacks_count_their_layers() -> None:
    stack = Stack(prologue=["a"], pattern=["b", "a"], repeat=3, epilogue=["c"])
    assert stack.layers == 8
    assert stack.counts() == {"a": 4, "b": 3, "c": 1}


def test_layer_kinds_are_found_by_name_and_unique() -> None:
    graph = parse(ModelGraph, GRAPH)
    assert graph.layer_kind("moe") is graph.layer_kinds[0]
    with pytest.raises(KeyError):
        graph.layer_kind("dense")
    with pytest.raises(DocumentError, match="id 'moe' is used twice"):
        parse(ModelGraph, put(GRAPH, "layer_kinds", GRAPH["layer_kinds"] * 2))
    caches = [{"id": "a", "kind": "full", "layers": 1, "head_dim": 8}] * 2
    with pytest.raises(DocumentError, match="caches: id 'a' is used twice"):
        parse(ModelGraph, {**GRAPH, "caches": caches})


def test_models_are_built_in_python_too() -> None:
    node = Node(op="GEMM", n=8, k=8)
    assert (node.weight_dtype, node.experts, node.gated) == ("", None, True)
    assert CacheSpec(id="a", kind="full", layers=1, head_dim=8).tokens_per_state == 1
    with pytest.raises(ValidationError, match="n: required for GEMM"):
        Node(op="GEMM", k=8)


def test_files_load_by_kind(tmp_path: Path) -> None:
    def file(name: str, data: Any) -> Path:
        return dump(tmp_path / name, data)

    assert load_chip(file("chip.yaml", CHIP)).sm_count == 132
    assert load_fabric(file("net.json", FABRIC)).rdma
    assert load_graph(file("graph.json", GRAPH)).globals_.hidden_size == 256
    assert load_coefficient_set(file("set.json", SET)).coefficients[0].name == "hbm_derate"
    assert load_workload(file("w.yaml", DOCUMENTS["workload"][1])).prompt.tokens == 100
    devices = load_storage(file("storage.yaml", {"_comment": "x", **DEVICES}))
    assert devices["host-dram"].read_bandwidth == 50000
    with pytest.raises(DocumentError, match=r"storage.yaml:1: slow.base_latency: required"):
        load_storage(file("storage.yaml", {"slow": {"read_bandwidth": 1, "write_bandwidth": 1}}))
    with pytest.raises(DocumentError, match="must be a map from device names"):
        load_storage(file("storage.yaml", [1]))
    with pytest.raises(DocumentError, match=r"storage.yaml: the file is empty"):
        load_storage(file("storage.yaml", None))
    with pytest.raises(DocumentError, match="no such file"):
        load_storage(tmp_path / "absent.yaml")


def test_a_file_holds_one_document(write: Callable[..., Path]) -> None:
    with pytest.raises(DocumentError, match="the file is empty"):
        load_chip(write("# nothing\n"))
    with pytest.raises(DocumentError, match="holds 2 documents"):
        load_chip(write("a: 1\n---\nb: 2\n"))


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = dump(tmp_path / "chip.yaml", CHIP)
    first = load_chip(path)
    assert load_chip(path) is first
    dump(path, {**CHIP, "SMCount": 100, "_comment_2": "changed"})
    assert load_chip(path).sm_count == 100


def test_problems_name_the_line_of_the_file(write: Callable[..., Path]) -> None:
    text = "Provenance: derived\nTFlopsPeak: 10\nBwPeakTBs: 1\nMemoryGiB: no\nIntraNodeBwGBps: 1\nSMCount: 1\n"
    with pytest.raises(InvalidDocument, match=r"document.yaml:4: MemoryGiB: must be a number, not 'no'") as caught:
        load_chip(write(text))
    assert [(found.line, found.key) for found in caught.value.problems] == [(4, "MemoryGiB")]


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**399),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(-3, 3), max_size=3),
    st.dictionaries(st.text(max_size=4), st.integers(-3, 3), max_size=2),
)


def places(data: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every key path of plain data."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(place for key, value in inner for place in places(value, (*path, key)))]


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_any_damage_is_refused_or_read_but_never_crashes(data: st.DataObject) -> None:
    model, sound = DOCUMENTS[data.draw(st.sampled_from(sorted(DOCUMENTS)))]
    path = data.draw(st.sampled_from(places(sound)[1:]))
    damaged = copy.deepcopy(sound)
    here = damaged
    for part in path[:-1]:
        here = here[part]
    here[path[-1]] = data.draw(values)  # type: ignore[index]
    document, found = validate(model, damaged)
    assert (document is None) == bool(found)
    assert all(message and len(message) < 2000 for _, message in found)
