"""Which weight is stored how, by quantization method."""

from __future__ import annotations

from typing import Any

import pytest
from tests.models import small

from steppe.errors import DeploymentError, DocumentError
from steppe.models.derive import derive


def graph(base: small.Config, quantization: dict[str, Any], **more: Any) -> dict[str, Any]:
    return derive({**base, **more, "quantization_config": quantization}, name="test")


def stored(g: dict[str, Any], kind: str = "", head: bool = False) -> dict[str, tuple[str, str, str]]:
    """Role -> dtype, block and compute precision, with what is inherited filled in."""
    default = (g["global"]["weight_dtype"], g["global"].get("weight_block", ""))
    nodes = g["head"] if head else next(k["nodes"] for k in g["layer_kinds"] if k["id"] == kind)
    found = {}
    for node in nodes:
        if "n" in node and "k" in node:
            own = (node["weight_dtype"], node.get("weight_block", "")) if "weight_dtype" in node else default
            found[node["role"]] = (*own, node.get("compute_dtype", ""))
    return found


FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
BLOCK = {**FP8, "weight_block_size": [128, 128]}


def test_block_fp8_leaves_routers_head_and_embedding() -> None:
    g = graph(small.MIXTRAL, {**BLOCK, "modules_to_not_convert": ["gate", "lm_head"]})
    assert g["global"]["weight_dtype"] == "fp8"
    assert g["global"]["weight_block"] == "128x128"
    assert g["global"]["embedding_dtype"] == "bf16"
    kind = stored(g, "full_moe")
    assert kind["qkv"] == kind["experts"] == ("fp8", "128x128", "")
    assert kind["router"] == ("bf16", "", "")
    assert stored(g, head=True)["lm_head"] == ("bf16", "", "")


def test_per_tensor_fp8_states_no_block() -> None:
    assert "weight_block" not in graph(small.LLAMA, FP8)["global"]


def test_an_excluded_layer_becomes_a_kind_of_its_own() -> None:
    g = graph(small.LLAMA, {**BLOCK, "modules_to_not_convert": ["model.layers.0.self_attn"]})
    assert g["stack"] == {"prologue": ["full_dense"], "pattern": ["full_dense_2"], "repeat": 3}
    assert stored(g, "full_dense")["qkv"] == ("bf16", "", "")
    assert stored(g, "full_dense")["down"] == ("fp8", "128x128", "")


def test_shards_of_one_fused_linear_must_agree() -> None:
    with pytest.raises(DocumentError, match=r"layers\.0\.self_attn\.q_proj.*different precisions"):
        graph(small.LLAMA, {**BLOCK, "modules_to_not_convert": ["model.layers.0.self_attn.k_proj"]})


def test_mxfp4_quantizes_experts_alone() -> None:
    g = graph(small.GPT_OSS, {"quant_method": "mxfp4"})
    assert g["global"] == {
        "hidden_size": 64, "vocab_size": 1000, "tie_word_embeddings": False, "weight_dtype": "bf16",
    }  # fmt: skip
    assert stored(g, "full_moe")["experts"] == ("mxfp4", "", "")
    assert stored(g, "full_moe")["qkv"] == ("bf16", "", "")


@pytest.mark.parametrize("method", ["awq", "gptq"])
def test_integer_groups(method: str) -> None:
    g = graph(small.LLAMA, {"quant_method": method, "bits": 4, "group_size": 64})
    assert (g["global"]["weight_dtype"], g["global"]["weight_block"]) == ("int4", "1x64")
    eight = graph(small.LLAMA, {"quant_method": method, "bits": 8, "group_size": -1})
    assert stored(eight, "full_dense")["qkv"] == ("int8", "", "bf16")
    assert stored(eight, head=True)["lm_head"] == ("bf16", "", "")


def group(bits: int, kind: str, size: int | None = None, *, activations: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": bits, "type": kind, "group_size": size},
                "input_activations": {"num_bits": bits, "type": kind} if activations else None,
            }
        },
        **more,
    }


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (group(8, "float"), ("fp8", "", "")),
        (group(4, "float", 16), ("nvfp4", "", "")),
        (group(4, "float", 16, activations=False), ("nvfp4", "", "bf16")),
        (group(4, "float", 32, activations=False), ("mxfp4", "", "")),
        (group(4, "int", 32, activations=False), ("int4", "1x32", "")),
        (group(8, "int"), ("int8", "", "")),
        (group(8, "float", 64, activations=False), ("fp8", "1x64", "bf16")),
        (group(4, "int", -1), ("int4", "", "int8")),
        (group(8, "int", activations=False), ("int8", "", "bf16")),
    ],
)
def test_compressed_tensors(config: dict[str, Any], expected: tuple[str, str, str]) -> None:
    g = graph(small.LLAMA, config)
    dtype, block = g["global"]["weight_dtype"], g["global"].get("weight_block", "")
    assert (dtype, block) == expected[:2]
    assert stored(g, head=True)["lm_head"][0] == "bf16"


def test_compressed_tensors_tiles_and_eight_bit_activations_of_four_bit_weights() -> None:
    tiled = group(8, "float")
    tiled["config_groups"]["group_0"]["weights"]["block_structure"] = [64, 128]
    g = graph(small.LLAMA, tiled)
    assert (g["global"]["weight_dtype"], g["global"]["weight_block"]) == ("fp8", "64x128")
    mixed = group(4, "int", 32)
    mixed["config_groups"]["group_0"]["input_activations"] = {"num_bits": 8, "type": "float"}
    assert stored(graph(small.LLAMA, mixed), "full_dense")["out"] == ("int4", "1x32", "fp8")


def test_compressed_tensors_groups_name_their_modules() -> None:
    """A group of regular expressions stores what it names; without a group of Linear the rest is plain."""
    eight = group(8, "float", 128)["config_groups"]["group_0"]
    groups = {"attention": {**eight, "targets": ["re:.*self_attn.*"]}}
    kind = stored(graph(small.LLAMA, {"quant_method": "compressed-tensors", "config_groups": groups}), "full_dense")
    assert kind["qkv"] == kind["out"] == ("fp8", "1x128", "")
    assert kind["gate_up"] == kind["down"] == ("bf16", "", "")


def test_modelopt_mixed_precision_lists_experts_whole_or_one_by_one() -> None:
    whole = {f"model.layers.{i}.block_sparse_moe.experts": {"quant_algo": "NVFP4"} for i in range(4)}
    each = {f"model.layers.{i}.block_sparse_moe.experts.0.w1": {"quant_algo": "FP8_PB_WO"} for i in range(4)}
    for listed, expected in ((whole, ("nvfp4", "", "")), (each, ("fp8", "128x128", "")), ({}, ("bf16", "", ""))):
        quant = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": listed}
        assert stored(graph(small.MIXTRAL, quant), "full_moe")["experts"] == expected


def test_compressed_tensors_ignore_patterns() -> None:
    ignore = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"]
    g = graph(small.DEEPSEEK, group(4, "int", 32, activations=False, ignore=ignore))
    kind = stored(g, "mla_moe")
    assert kind["q_b"] == ("bf16", "", "")
    assert kind["experts"] == ("int4", "1x32", "")
    # One node has one dtype: shared experts stored otherwise are launches of their own.
    assert kind["shared_gate_up"] == ("bf16", "", "")
    assert kind["shared_down"] == ("bf16", "", "")


def test_modelopt_wildcards_and_cache() -> None:
    quant = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "group_size": 16,
        "ignore": ["lm_head", "model.layers.*.self_attn*"],
        "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False},
    }
    g = graph(small.LLAMA, quant)
    assert stored(g, "full_dense")["qkv"] == ("bf16", "", "")
    assert stored(g, "full_dense")["gate_up"] == ("nvfp4", "", "")
    assert g["global"]["kv_cache_dtype"] == "fp8"


def test_a_compressed_tensors_cache_scheme_does_not_reach_a_latent_cache() -> None:
    quant = group(8, "float", ignore=["lm_head"], kv_cache_scheme={"num_bits": 8, "type": "float"})
    assert graph(small.LLAMA, quant)["global"]["kv_cache_dtype"] == "fp8"
    assert "kv_cache_dtype" not in graph(small.DEEPSEEK, quant)["global"]
    modelopt = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "NVFP4"}
    assert graph(small.DEEPSEEK, modelopt)["global"]["kv_cache_dtype"] == "nvfp4"


def test_modelopt_quantizes_the_head_unless_it_is_excluded() -> None:
    g = graph(small.LLAMA, {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": []})
    assert stored(g, head=True)["lm_head"] == ("fp8", "", "")
    tied = graph(small.LLAMA, {"quant_method": "modelopt", "quant_algo": "FP8"}, tie_word_embeddings=True)
    assert stored(tied, head=True)["lm_head"] == ("bf16", "", "")


def test_modelopt_mixed_precision_lists_its_modules() -> None:
    layers = [f"model.layers.{i}" for i in range(4)]
    listed = {f"{layer}.self_attn.{p}_proj": {"quant_algo": "FP8"} for layer in layers for p in "qkvo"}
    listed |= {f"{layer}.mlp.{p}_proj": {"quant_algo": "W4A16_NVFP4"} for layer in layers for p in ("gate", "up")}
    g = graph(small.LLAMA, {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": listed})
    kind = stored(g, "full_dense")
    assert g["global"]["weight_dtype"] == "bf16"
    assert kind["qkv"] == kind["out"] == ("fp8", "", "")
    assert kind["gate_up"] == ("nvfp4", "", "bf16")
    assert kind["down"] == ("bf16", "", "")


def test_a_modelopt_file_beside_the_config() -> None:
    beside = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    g = derive(small.LLAMA, name="test", quantization_config=beside)
    assert g["global"]["weight_dtype"] == "fp8"


def test_deepseek_v4_keeps_its_experts_in_four_bits() -> None:
    g = graph(small.DEEPSEEK_V4, BLOCK)
    assert stored(g, "csa4_moe")["experts"] == ("mxfp4", "", "")
    assert stored(graph(small.DEEPSEEK_V4, BLOCK, expert_dtype="fp8"), "csa4_moe")["experts"] == ("fp8", "128x128", "")
    mixed = {**BLOCK, "moe_quant_algo": "NVFP4"}
    assert stored(graph(small.DEEPSEEK_V4, mixed), "csa4_moe")["experts"] == ("nvfp4", "", "")
    with pytest.raises(DocumentError, match="expert_dtype"):
        graph(small.DEEPSEEK_V4, BLOCK, expert_dtype="int3")


@pytest.mark.parametrize("dtype", ["float32", None])
def test_other_dtypes_are_served_at_sixteen_bits(dtype: str | None) -> None:
    config = {**small.LLAMA, "torch_dtype": dtype}
    assert derive(config, name="test")["global"]["weight_dtype"] == "bf16"
    assert derive({**small.LLAMA, "torch_dtype": "float16"}, name="test")["global"]["weight_dtype"] == "fp16"


@pytest.mark.parametrize(
    ("quantization", "named"),
    [
        ({"quant_method": "bitsandbytes"}, "bitsandbytes"),
        ({"bits": 4}, "none stated"),
        ({"quant_method": "modelopt", "quant_algo": "FP6"}, "FP6"),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, "bits 3"),
        (group(6, "float"), "6-bit float"),
    ],
)
def test_what_is_not_known_is_refused_by_name(quantization: dict[str, Any], named: str) -> None:
    with pytest.raises(DeploymentError, match=named):
        graph(small.LLAMA, quantization)


@pytest.mark.parametrize(
    ("quantization", "named"),
    [
        ({**FP8, "weight_block_size": [128]}, "weight_block_size"),
        ({"quant_method": "awq"}, "bits"),
        ({"quant_method": "awq", "bits": 4, "group_size": 0}, "group_size"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "config_groups"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        ("fp8", "quantization_config"),
    ],
)
def test_a_malformed_quantization_names_its_key(quantization: Any, named: str) -> None:
    with pytest.raises(DocumentError, match=named):
        graph(small.LLAMA, quantization)
