"""From a launch to a deployment: the documents it stands for, and a kernel opened from them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml

from steppe.errors import DeploymentError
from steppe.score.points import Built, Launch
from steppe.serving import kernel_step

RULES = "0.31.0"
GPUS_PER_NODE = {"gb200-nvl72": 4, "gb300": 4}  # others: 8
FABRIC = "ib-ndr-400"  # only read when a layout needs a second node
RACK = {"gb200-nvl72": 72, "gb300": 72}

PARTS = {"a100": "a100-sxm", "gb200": "gb200-nvl72", "rtx_pro_6000": "rtx-pro-6000"}

# (checkpoint family, precision) -> catalog model. A checkpoint whose name says its precision stands by itself.
MODELS = {
    ("minimax-m2.5", "fp8"): "minimax-m2.5",
    ("minimax-m2.5", "fp4"): "minimax-m2.5-nvfp4",
    ("minimax-m2.7", "fp8"): "minimax-m2.7",
    ("minimax-m2.7", "fp4"): "minimax-m2.7-nvfp4",
    ("kimi-k2.5", "int4"): "kimi-k2.5",
    ("kimi-k2.5", "fp4"): "kimi-k2.5-nvfp4",
    ("gpt-oss-120b", "fp4"): "gpt-oss-120b",
    ("gpt-oss-20b", "fp4"): "gpt-oss-20b",
    ("deepseek-v3", "fp8"): "deepseek-v3",
    ("deepseek-r1", "fp8"): "deepseek-r1",
    ("deepseek-v3.2", "fp8"): "deepseek-v3.2",
    ("deepseek-v3.2", "fp4"): "deepseek-v3.2-nvfp4",
}
SUFFIX = {"bf16": "", "fp8": "-fp8", "fp4": "-nvfp4"}

# The law's attention path -> the engine's backend name; MLA paths carry the engine's name already.
ATTENTION = {"trtllm": "FLASHINFER", "fa3": "FLASH_ATTN", "fa2": "FLASH_ATTN", "triton": "TRITON_ATTN"}

# Experts kernels a point may name, as `<weights>/<kernel>`: the key of the law, which `moe_backend` takes as it is. The
# engine's own names do not tell some of them apart (vllm/model_executor/layers/fused_moe/oracle/mxfp4.py:308-311).
EXPERTS = {
    "expertsmonolithic",
    "expertsmodular",
    "trtllmmxfp4",
    "trtllmbf16experts",
    "trtllmfp8expertsmonolithic",
    "modular",
    "fp8moe_triton",
    "fp8moe_flashinfer_cutlass",
    "flashinfer_cutlass",
    "oaitriton",
    "marlin",
    "marlinexperts_situ",
}


def part_of(launch: Launch) -> str:
    """The catalog's name of the part."""
    name = launch.system.lower()
    return PARTS.get(name, name)


def model_of(launch: Launch) -> str:
    """The catalog's name of the checkpoint: the model at the precision the point states."""
    name = launch.model.rsplit("/", 1)[-1].lower()
    if (name, launch.precision) in MODELS:
        return MODELS[name, launch.precision]
    if launch.precision not in SUFFIX:
        raise DeploymentError(f"precision {launch.precision!r} of {launch.model}: no catalog model is known for it")
    for end in ("-fp8", "-nvfp4"):
        name = name.removesuffix(end)
    if name.startswith("llama-3.1") and not name.endswith("-instruct"):
        name += "-instruct"  # the same architecture; the catalog holds one of the two
    return name + SUFFIX[launch.precision]


def experts_of(launch: Launch) -> str:
    """The experts kernel's law key, empty when the engine chooses or the model has none."""
    weights, _, kernel = launch.experts_law.partition("/")
    if launch.experts_law and not (weights and kernel in EXPERTS):
        raise DeploymentError(
            f"experts_law {launch.experts_law!r} is not <weights>/<kernel> with one of: {', '.join(sorted(EXPERTS))}"
        )
    return launch.experts_law


def documents(launch: Launch) -> list[dict[str, Any]]:
    """Scenario and deployment of a launch, as plain data. Raises DeploymentError for what has no such form."""
    ranks = launch.tp * launch.dp
    if launch.ep not in (1, ranks):
        raise DeploymentError(
            f"ep {launch.ep} with tp {launch.tp} and dp {launch.dp}: experts span all {ranks} or none"
        )
    part = part_of(launch)
    per_node = GPUS_PER_NODE.get(part, 8)
    nodes = -(-ranks // per_node)
    cluster: dict[str, Any] = {"hardware": part, "nodes": nodes, "gpus_per_node": per_node}
    if nodes > 1:
        cluster["fabric"] = FABRIC
    if part in RACK:
        cluster["gpus_per_rack"] = RACK[part]
    engine = {
        "cache_dtype": launch.kv_cache_dtype,
        "attention_backend": ATTENTION.get(launch.attention_path, launch.attention_path),
        "moe_backend": experts_of(launch),
        "max_num_batched_tokens": launch.token_budget,
        "max_cudagraph_capture_size": launch.capture_limit,
        "fuse_allreduce_rms": launch.fused_all_reduce_norm,
        "synchronous_host": launch.synchronous_host or None,
    }
    name = f"{model_of(launch)} on {part}"
    scenario = {
        "kind": "Scenario",
        "name": name,
        "model": model_of(launch),
        "coefficients": [f"{part}-{kind}" for kind in ("reference", "engine", "refined")],
        # the version chooses the lane of the all-reduce curve, and a point may say which lane that was
        "engine_version": launch.all_reduce_lane or launch.engine_version or RULES,
        "cluster": cluster,
    }
    parallel = {"tp": launch.tp, "pp": 1, "dp": launch.dp, "enable_expert_parallel": launch.ep > 1}
    pool = {
        "role": "colocated",
        "nodes": nodes,
        "parallel": parallel,
        "engine": {key: value for key, value in engine.items() if value not in ("", None)},
    }
    return [scenario, {"kind": "Deployment", "name": name, "pools": [pool]}]


def build(launch: Launch) -> Built:
    """Open a launch as a kernel over the embedded catalog. Raises steppe.Error where the launch is refused."""
    import steppe

    with tempfile.TemporaryDirectory(prefix="steppe-score-") as folder:
        path = Path(folder) / "deployment.yaml"
        path.write_text(yaml.safe_dump_all(documents(launch), sort_keys=False), encoding="utf-8")
        kernel: Any = steppe.open(path)
    budget = launch.token_budget or int(kernel.resolution.settings.max_num_batched_tokens)
    return Built(kernel_step(kernel), budget)
