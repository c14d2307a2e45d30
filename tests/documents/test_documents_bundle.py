"""Bundles: documents that do not fit each other, and all problems in one error."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steppe.catalog import Catalog
from steppe.documents import (
    Bundle,
    Deployment,
    InvalidDeployment,
    InvalidDocument,
    ModelGraph,
    Problem,
    Scenario,
    check_bundle,
    load_bundle,
    make_bundle,
    parse,
)
from steppe.errors import DeploymentError, DocumentError

from .conftest import DEPLOYMENT, GRAPH, SCENARIO, Tree, dump

Change = Callable[[Tree], Any]


def bundle(tree: Tree, **options: Any) -> Bundle:
    return load_bundle(tree.write(), **tree.roots(), **options)


def two_nodes(tree: Tree, nodes: int = 2) -> None:
    tree.scenario["cluster"] |= {"nodes": nodes, "fabric": "net-x"}
    tree.pool["nodes"] = nodes


def test_a_bundle_holds_every_document(tree: Tree) -> None:
    found = bundle(tree)
    assert found.model_name == "tiny-moe"
    assert found.chip_name == "chip-x"
    assert found.graph.name == "tiny-moe"
    assert found.chip.sm_count == 132
    assert found.fabric is None
    assert sorted(found.storage) == ["host-dram", "local-nvme"]
    assert [one.name for one in found.sets] == ["hbm"]
    assert found.pool is found.deployment.pools[0]
    assert found.warnings == ()


def test_documents_stand_in_either_order(tree: Tree) -> None:
    tree.write()
    path = dump(tree.root / "scenario.yaml", tree.deployment, tree.scenario)
    assert load_bundle(path, **tree.roots()).scenario.name == "tiny"


def test_a_second_pool_is_opened_by_its_index(tree: Tree) -> None:
    two_nodes(tree)
    tree.pool.update(role="prefill", nodes=1)
    tree.deployment["pools"].append({"role": "decode", "nodes": 1, "parallel": {"tp": 4, "pp": 1, "dp": 1}})
    tree.deployment["pd_transfer"] = {"connector": "NixlConnector"}
    assert bundle(tree, pool=1).pool.parallel.tp == 4
    for pool in (2, -1):
        with pytest.raises(DocumentError, match=rf"pools: pool {pool} is asked for; there are pools 0 to 1"):
            bundle(tree, pool=pool)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda t: t.scenario.update(model="tiny"), ":3: model: unknown model 'tiny'"),
        (lambda t: t.scenario.update(model="../tiny-moe"), "model: unknown model '../tiny-moe'"),
        (lambda t: t.scenario.update(coefficients=["hbn"]), "unknown coefficient set 'hbn' in"),
        (lambda t: t.scenario["cluster"].update(hardware="chip-y"), "cluster.hardware: unknown chip 'chip-y'"),
        (lambda t: t.scenario["cluster"].update(fabric="x"), "cluster.fabric: unknown fabric 'x'"),
        (lambda t: t.scenario["cluster"].update(storage=["tape"]), "cluster.storage[0]: unknown device 'tape'"),
        (lambda t: t.pool.update(nodes=2), "pools: pools take 2 nodes while cluster.nodes is 1"),
        (lambda t: t.pool["parallel"].update(tp=8, dp=2), "pools[0].parallel: pp*tp*pcp*dp is 16 ranks on 8 GPUs"),
        (lambda t: t.pool["parallel"].update(dp=3, dp_local=3), "dp_local: 3 does not divide gpus_per_node 8"),
        (
            lambda t: (two_nodes(t), t.pool["parallel"].update(tp=8, dp=2, dp_local=2)),
            "dp_local: 2 replicas of 8 GPUs do not fit a node of 8",
        ),
        (
            lambda t: t.deployment.update(offload={"tiers": [{"tier": "tape", "bytes": 1}]}),
            "offload.tiers[0].tier: unknown device 'tape'",
        ),
        (
            lambda t: (
                t.scenario["cluster"].update(storage=["host-dram"]),
                t.deployment.update(offload={"tiers": [{"tier": "local-nvme", "bytes": 1}]}),
            ),
            "offload.tiers[0].tier: 'local-nvme' is not in cluster.storage (host-dram)",
        ),
        (lambda t: t.graph["stack"].update(repeat=0), "stack.repeat: pattern and repeat go together"),
        (lambda t: t.chip.update(SMCount=-1), "SMCount: -1 is out of range"),
        (lambda t: t.devices.update(tape={}), "tape.read_bandwidth: required"),
        (lambda t: t.set.update(coefficients=[]), "coefficients: the set is empty"),
        (lambda t: t.deployment.update(kind="Deploy"), "kind: 'Deploy' does not belong here; did you mean Deployment?"),
        (lambda t: t.deployment.pop("kind"), "states no kind; it must be Scenario or Deployment"),
        (lambda t: t.deployment.update(kind=["Deployment"]), "does not belong here"),
        (lambda t: t.scenario.update(kind="Deployment"), "a second Deployment in one file"),
    ],
)
def test_what_does_not_fit_is_refused(tree: Tree, change: Change, expected: str) -> None:
    change(tree)
    with pytest.raises(InvalidDocument) as caught:
        bundle(tree)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda t: (two_nodes(t), t.pool["parallel"].update(tp=2, pcp=2, dp=2)),
            "pools[0].parallel.pcp: pcp 2 with dp 2",
        ),
        (
            lambda t: (two_nodes(t, 4), t.pool["parallel"].update(tp=8, dp=4, enable_expert_parallel=True)),
            "pools[0].parallel: the expert group of 32 is wider than the 16 experts",
        ),
        (
            lambda t: (
                t.pool["parallel"].update(tp=8, enable_expert_parallel=True),
                t.pool["engine"].update(eplb={"enable_eplb": True, "num_redundant_experts": 3}),
            ),
            "num_redundant_experts: 16 + 3 experts do not divide over 8 ranks; use 0, 8, 16, ...",
        ),
        (
            lambda t: t.pool["engine"].update(eplb={"enable_eplb": True}),
            "eplb.enable_eplb: needs enable_expert_parallel",
        ),
        (
            lambda t: t.pool["engine"].update(eplb={"num_redundant_experts": 2}),
            "eplb.num_redundant_experts: replicas without enable_eplb",
        ),
    ],
)
def test_what_the_engine_would_not_start_is_a_deployment_error(tree: Tree, change: Change, expected: str) -> None:
    change(tree)
    with pytest.raises(DeploymentError) as caught:
        bundle(tree)
    assert isinstance(caught.value, InvalidDeployment)
    assert expected in str(caught.value)
    assert caught.value.problems[0].line is not None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda t: t.pool["engine"].update(quantization="fp9"), "quantization: 'fp9' is unknown to the engine"),
        (lambda t: t.pool["engine"].update(cache_dtype="fp6"), "cache_dtype: 'fp6' is unknown to the engine"),
        (lambda t: t.pool["engine"].update(dbo={"enable_dbo": True}), "dbo: states no threshold"),
        (
            lambda t: t.pool["engine"].update(mamba_cache_mode="align"),
            "is stated for a model without recurrent layers",
        ),
        (
            lambda t: (t.pool["parallel"].update(tp=3), t.pool["engine"].update(allreduce_backend="custom")),
            "custom all-reduce does not run at tp 3",
        ),
        (
            lambda t: t.pool["parallel"].update(tp=3, enable_expert_parallel=True),
            "16 experts do not divide over 3 ranks",
        ),
        (
            lambda t: t.deployment.update(
                offload={"tiers": [{"tier": "host-dram", "bytes": 1}], "eviction_policy": "fifo", "connector": "Own"}
            ),
            "eviction_policy: 'fifo' is unknown",
        ),
        (lambda t: t.deployment.update(pd_transfer={"connector": "Nixl"}), "'Nixl' is unknown; did you mean NixlConn"),
        (lambda t: t.graph["layer_kinds"][0]["nodes"][4].update(emit="always"), "emit: 'always' is no known condition"),
        (lambda t: t.graph.update(name="other"), "calls itself 'other'"),
        (lambda t: t.set["coefficients"][0]["hbm_derate"].pop("rationale"), "rationale: missing on an assumed value"),
        (lambda t: t.scenario["cluster"].update(gpus_per_node=16), "16 GPUs in a node of a part that comes 8"),
        (lambda t: t.scenario.update(coefficients=["hbm", "hbm"]), "'hbm' is listed twice"),
    ],
)
def test_what_is_odd_is_a_warning(tree: Tree, change: Change, expected: str) -> None:
    change(tree)
    warnings = bundle(tree).warnings
    assert any(expected in warning for warning in warnings), warnings


@pytest.mark.parametrize("version", ["0.29.0", "0.31.0", "1.0.0rc1", "main"])
def test_any_engine_version_is_accepted(tree: Tree, version: str) -> None:
    tree.scenario["engine_version"] = version
    assert bundle(tree).scenario.engine_version == version


@pytest.mark.parametrize(("missing", "present"), [("Deployment", 0), ("Scenario", 1)])
def test_a_missing_half_is_named(tree: Tree, missing: str, present: int) -> None:
    tree.write()
    path = dump(tree.root / "half.yaml", [tree.scenario, tree.deployment][present])
    with pytest.raises(DocumentError, match=f"half.yaml: holds no {missing}; add it"):
        load_bundle(path, **tree.roots())


def test_an_empty_or_absent_file_is_named(tree: Tree, tmp_path: Path) -> None:
    tree.write()
    (tmp_path / "empty.yaml").touch()
    with pytest.raises(DocumentError, match=r"holds no Scenario[\s\S]*holds no Deployment"):
        load_bundle(tmp_path / "empty.yaml", **tree.roots())
    with pytest.raises(DocumentError, match="no such file"):
        load_bundle(tmp_path / "absent.yaml", **tree.roots())
    with pytest.raises(DocumentError, match="no such folder"):
        load_bundle(tree.root / "scenario.yaml", catalog=tmp_path / "nowhere")


def test_every_problem_of_every_document_is_listed_once(tree: Tree) -> None:
    tree.chip["SMCount"] = 0
    tree.graph["global"]["weight_dtype"] = "fp6"
    tree.set["coefficients"][0]["hbm_derate"] |= {"units": "percent", "method": "guessed"}
    tree.devices["host-dram"]["base_latency"] = -1
    tree.fabric["RDMA"] = 1
    tree.scenario["cluster"] |= {"fabric": "net-x", "storage": ["tape"]}
    tree.scenario["coefficients"] = ["hbm", "nothing"]
    tree.pool["nodes"] = 2
    tree.pool["parallel"]["tp"] = 32
    with pytest.raises(InvalidDocument) as caught:
        bundle(tree, pool=4)
    problems = caught.value.problems
    assert {(Path(found.file).name, found.key) for found in problems} == {
        ("chip-x.yaml", "SMCount"),
        ("graph.yaml", "global.weight_dtype"),
        ("hbm.yaml", "coefficients[0].hbm_derate.units"),
        ("hbm.yaml", "coefficients[0].hbm_derate.method"),
        ("storage.yaml", "host-dram.base_latency"),
        ("net-x.yaml", "RDMA"),
        ("scenario.yaml", "cluster.storage[0]"),
        ("scenario.yaml", "coefficients[1]"),
        ("scenario.yaml", "pools"),
        ("scenario.yaml", "pools[0].parallel"),
    }
    assert all(found.line for found in problems)
    assert str(caught.value).startswith(f"{len(problems)} problems:\n")


def test_a_damaged_scenario_still_shows_the_deployments_problems(tree: Tree) -> None:
    tree.scenario["cluster"]["nodes"] = 0
    tree.pool["parallel"]["tp"] = 0
    with pytest.raises(InvalidDocument) as caught:
        bundle(tree)
    assert {found.key for found in caught.value.problems} == {"cluster.nodes", "pools[0].parallel.tp"}


def test_a_broken_line_of_a_bundle_is_named(tree: Tree) -> None:
    path = tree.write()
    path.write_text(path.read_text() + "pd_transfer: [\n")
    with pytest.raises(DocumentError, match="not valid YAML"):
        load_bundle(path, **tree.roots())


def test_refusals_are_listed_beside_problems(tree: Tree) -> None:
    tree.pool["parallel"] |= {"tp": 8, "dp": 4, "enable_expert_parallel": True}
    with pytest.raises(InvalidDocument, match=r"32 ranks on 8 GPUs[\s\S]*wider than the 16 experts"):
        bundle(tree)


def test_many_problems_are_cut_short() -> None:
    error = InvalidDocument([Problem("f", n, (), "bad") for n in range(1, 251)])
    assert str(error).splitlines()[-1] == "  ... and 50 more"
    assert len(pickle.loads(pickle.dumps(error)).problems) == 250


def test_checking_returns_what_loading_raises(tree: Tree) -> None:
    found, findings = check_bundle(tree.write(), **tree.roots())
    assert found is not None
    assert not findings.problems
    tree.scenario["model"] = "none"
    found, findings = check_bundle(tree.write(), **tree.roots())
    assert found is None
    assert [problem.key for problem in findings.problems] == ["model"]


def test_a_catalog_may_serve_as_both_roots(tree: Tree) -> None:
    path = tree.write()
    catalog, registry = (Catalog(tree.root / name) for name in ("catalog", "registry"))
    assert load_bundle(path, catalog=catalog, registry=registry).chip.sm_count == 132


def test_a_bundle_is_made_of_documents_in_memory(tree: Tree) -> None:
    tree.write()
    scenario, deployment = parse(Scenario, SCENARIO), parse(Deployment, DEPLOYMENT)
    graph = parse(ModelGraph, GRAPH)
    made = make_bundle(scenario, deployment, **tree.roots(), graph=graph)
    assert made.graph is graph
    assert make_bundle(scenario, deployment, **tree.roots()).graph == graph
    tree.pool["parallel"]["tp"] = 16
    tree.pool["engine"]["quantization"] = "fp9"
    wide = parse(Deployment, tree.deployment)
    with pytest.raises(DocumentError, match=r"^<built>: pools\[0\].parallel: pp\*tp\*pcp\*dp is 16 ranks"):
        make_bundle(scenario, wide, **tree.roots())
    with pytest.raises(DocumentError, match="pool 3 is asked for"):
        make_bundle(scenario, deployment, pool=3, **tree.roots())


def test_a_warm_bundle_loads_in_milliseconds(tree: Tree) -> None:
    path = tree.write()
    load_bundle(path, **tree.roots())
    best = min(_seconds(lambda: load_bundle(path, **tree.roots())) for _ in range(5))
    assert best < 0.010


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
