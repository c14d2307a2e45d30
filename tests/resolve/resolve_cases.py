"""Small models, parts and deployments for the resolution tests, built in memory."""

from __future__ import annotations

from typing import Any

from steppe.documents import Bundle, Chip, Deployment, ModelGraph, Scenario

CHIPS: dict[str, dict[str, Any]] = {
    "ampere": {"TFlopsPeak": 312, "BwPeakTBs": 2.0, "MemoryGiB": 80, "IntraNodeBwGBps": 300, "SMCount": 108},
    "hopper": {
        "TFlopsPeak": 989,
        "TFlopsFP8": 1979,
        "BwPeakTBs": 3.35,
        "MemoryGiB": 80,
        "IntraNodeBwGBps": 450,
        "SMCount": 132,
        "ComputeCapability": 9.0,
    },
    "blackwell": {
        "TFlopsPeak": 2250,
        "TFlopsFP8": 4500,
        "TFlopsNVFP4": 9000,
        "BwPeakTBs": 8.0,
        "MemoryGiB": 180,
        "IntraNodeBwGBps": 900,
        "SMCount": 148,
        "ComputeCapability": 10.0,
    },
    "rack": {
        "TFlopsPeak": 2500,
        "TFlopsFP8": 5000,
        "TFlopsNVFP4": 10000,
        "BwPeakTBs": 8.0,
        "MemoryGiB": 186,
        "IntraNodeBwGBps": 900,
        "SMCount": 152,
        "GPUsPerNode": 4,
        "GPUsPerRack": 72,
        "IntraRackBwGBps": 900,
        "ComputeCapability": 10.0,
    },
    "workstation": {
        "TFlopsPeak": 500,
        "TFlopsFP8": 1000,
        "TFlopsNVFP4": 2000,
        "BwPeakTBs": 1.8,
        "MemoryGiB": 96,
        "IntraNodeBwGBps": 64,
        "SMCount": 188,
        "ComputeCapability": 12.0,
    },
}

GQA = {"op": "Attention", "kind": "gqa", "n_q": 32, "n_kv": 8, "d_h": 128}
WIDE_GQA = {"op": "Attention", "kind": "gqa", "n_q": 64, "n_kv": 2, "d_h": 128}
SWA = {"op": "Attention", "kind": "swa", "n_q": 32, "n_kv": 8, "d_h": 128, "window": 128}
MLA = {"op": "Attention", "kind": "mla", "n_q": 128, "n_kv": 1, "d_h": 576, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
DSA = {**MLA, "kind": "sparse_mla", "index_topk": 2048}
INDEX = {"op": "Attention", "role": "index_scores", "kind": "sparse_mla", "n_q": 64, "n_kv": 1, "d_h": 128,
         "index_topk": 2048}  # fmt: skip
POOLED = {"op": "Attention", "kind": "sparse_mla", "n_q": 64, "n_kv": 1, "d_h": 512, "index_topk": 512,
          "compress_ratio": 4}  # fmt: skip
MAMBA = {"op": "RecurrentUpdate", "recurrent_kind": "mamba2", "n_heads": 128, "state_size": 128, "d_h": 64,
         "n_groups": 8, "conv_kernel": 4, "intermediate_size": 8192}  # fmt: skip
GDN = {"op": "RecurrentUpdate", "recurrent_kind": "gdn", "n_heads": 32, "state_size": 128, "conv_kernel": 4}
EXPERTS = {"op": "GroupedGEMM", "role": "experts", "n": 2048, "k": 4096, "experts": 256, "top_k": 8}
DENSE_MLP = {"op": "GEMM", "role": "down", "n": 4096, "k": 14336}

MODELS: dict[str, list[dict[str, Any]]] = {
    "gqa": [GQA, DENSE_MLP],
    "wide_gqa": [WIDE_GQA, DENSE_MLP],
    "gqa_moe": [GQA, EXPERTS],
    "window": [SWA, DENSE_MLP],
    "mla": [MLA, EXPERTS],
    "dsa": [INDEX, DSA, EXPERTS],
    "dsa64": [{**INDEX, "n_q": 32}, {**DSA, "n_q": 64}, EXPERTS],
    "pooled": [POOLED, EXPERTS],
    "pooled_v41": [{**POOLED, "compress_ratio": 2}, EXPERTS],
    "mamba": [MAMBA, GQA],
    "gdn": [GDN, GQA],
    "mla_gdn": [GDN, MLA],
    "no_attention": [MAMBA],
}


def graph_of(nodes: list[dict[str, Any]], dtype: str = "bf16", **extra: Any) -> ModelGraph:
    """A model whose every layer holds `nodes`."""
    return ModelGraph.model_validate(
        {
            "kind": "ModelGraph",
            "name": "model",
            "derived_from": {"format": "hand", "path": "none", "sha256": "0" * 64, "deriver_version": 1},
            "global": {"hidden_size": 4096, "vocab_size": 128000, "tie_word_embeddings": False, "weight_dtype": dtype},
            "layer_kinds": [{"id": "layer", "nodes": nodes}],
            "stack": {"pattern": ["layer"], "repeat": 4},
            "head": [{"op": "GEMM", "role": "lm_head", "n": 128000, "k": 4096}],
            **extra,
        },
    )


def long_model(tokens: int) -> ModelGraph:
    """A dense model whose checkpoint reaches `tokens`."""
    graph = graph_of(MODELS["gqa"]).model_dump(by_alias=True, exclude_defaults=True)
    graph["global"]["max_position_embeddings"] = tokens
    return ModelGraph.model_validate(graph)


def scaled_cache(dtype: str) -> ModelGraph:
    """A dense model whose checkpoint stores scales for a cache of `dtype`."""
    graph = graph_of(MODELS["gqa"]).model_dump(by_alias=True, exclude_defaults=True)
    graph["global"]["kv_cache_dtype"] = dtype
    return ModelGraph.model_validate(graph)


def bundle_of(
    model: str | ModelGraph = "gqa",
    chip: str | dict[str, Any] = "hopper",
    *,
    engine: dict[str, Any] | None = None,
    nodes: int = 1,
    gpus_per_node: int = 8,
    cluster: dict[str, Any] | None = None,
    offload: str = "",
    pd: str = "",
    scenario: dict[str, Any] | None = None,
    **parallel: Any,
) -> Bundle:
    """A bundle of one pool (two with `pd`, both alike). `parallel` are widths; ep=True enables expert parallelism."""
    facts = CHIPS[chip] if isinstance(chip, str) else chip
    layout = {"tp": 1, "pp": 1, "dp": 1, **parallel}
    layout["enable_expert_parallel"] = layout.pop("ep", False)
    pool = {"nodes": nodes, "parallel": layout, "engine": engine or {}}
    roles = ("prefill", "decode") if pd else ("colocated",)
    deployment: dict[str, Any] = {
        "kind": "Deployment",
        "name": "deployment",
        "pools": [{"role": role, **pool} for role in roles],
    }
    if offload:
        deployment["offload"] = {"tiers": [{"tier": "host", "bytes": 1 << 30}], "connector": offload}
    if pd:
        deployment["pd_transfer"] = {"connector": pd}
    return Bundle(
        scenario=Scenario.model_validate(
            {
                "kind": "Scenario",
                "name": "scenario",
                "model": "model",
                "coefficients": ["set"],
                "engine_version": "0.31.0",
                "cluster": {
                    "hardware": "chip",
                    "fabric": "net",
                    "nodes": nodes * len(roles),
                    "gpus_per_node": gpus_per_node,
                    **(cluster or {}),
                },
                **(scenario or {}),
            }
        ),
        deployment=Deployment.model_validate(deployment),
        pool_index=0,
        graph=graph_of(MODELS[model]) if isinstance(model, str) else model,
        chip=Chip.model_validate({"Provenance": "derived", **facts}),
        fabric=None,
        storage={},
        sets=[],
        model_name="model",
        chip_name="chip",
    )
