"""What stands beside a decoder's layers (encoders, per-layer embeddings), and graphs stored in another format."""

from __future__ import annotations

from typing import Any

import pytest
from tests.models import small

from steppe.catalog import Catalog
from steppe.errors import DeploymentError
from steppe.models.derive import derive
from steppe.models.requantize import follows_one_recipe, requantized

VISION = {"model_type": "qwen3_vl", "hidden_size": 8, "intermediate_size": 32, "depth": 2, "patch_size": 2}


def gemma(**more: Any) -> dict[str, Any]:
    kinds = ["sliding_attention", "full_attention"]
    return derive(
        small.of("Gemma4ForCausalLM", head_dim=16, layer_types=kinds, num_hidden_layers=2, sliding_window=8, **more),
        name="test",
    )


def nodes(graph: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    found = next(each for each in graph["layer_kinds"] if each["id"] == kind)
    return {node["role"]: node for node in found["nodes"] if node["op"] == "GEMM"}


def test_per_layer_embeddings_are_a_table_a_projection_and_two_products_a_layer() -> None:
    graph = gemma(hidden_size_per_layer_input=4)
    hidden = graph["global"]["hidden_size"]
    assert graph["global"]["per_layer_embedding"] == 2 * 4
    first, other = nodes(graph, "first_window_dense"), nodes(graph, "full_dense")
    assert (first["per_layer_in"]["n"], first["per_layer_in"]["k"]) == (8, hidden)
    assert "per_layer_in" not in other
    for kind in (first, other):
        assert (kind["per_layer_gate"]["n"], kind["per_layer_gate"]["k"]) == (4, hidden)
        assert (kind["per_layer_out"]["n"], kind["per_layer_out"]["k"]) == (hidden, 4)
        assert kind["per_layer_gate"]["replicated"]
        assert kind["per_layer_out"]["replicated"]
    assert "per_layer_embedding" not in gemma()["global"]


def test_an_encoder_counts_its_layers_its_patches_and_its_way_into_the_decoder() -> None:
    text = small.of("Qwen3ForCausalLM")
    outer = {"architectures": ["Qwen3VLForConditionalGeneration"], "text_config": text, "vision_config": VISION}
    hidden = text["hidden_size"]
    layers, patches = 2 * (4 * 8 * 8 + 2 * 8 * 32), 3 * 2 * 2 * 8
    merger = 32 * 32 + 32 * hidden
    assert derive(outer, name="test")["global"]["encoder_parameters"] == layers + patches + merger
    tapped = {**outer, "vision_config": {**VISION, "deepstack_visual_indexes": [0]}}
    assert derive(tapped, name="test")["global"]["encoder_parameters"] == layers + patches + 2 * merger
    assert "encoder_parameters" not in derive(text, name="test")["global"]


@pytest.mark.parametrize(("model", "billions"), [("qwen3.5-27b", 0.46), ("mistral-small-3.2-24b-instruct-2506", 0.44)])
def test_published_encoders(model: str, billions: float) -> None:
    found = Catalog().model(model).globals_.encoder_parameters
    assert found is not None
    assert found / 1e9 == pytest.approx(billions, abs=0.006)


def test_requantizing_leaves_routers_embedding_and_head_alone() -> None:
    made = requantized(Catalog().model("qwen3-30b-a3b"), "fp8")
    (layer,) = made.layer_kinds
    stored = {node.role: (node.weight_dtype, node.weight_block) for node in layer.nodes if node.n}
    assert stored == {
        "qkv": ("fp8", "128x128"),
        "out": ("fp8", "128x128"),
        "router": ("", ""),
        "experts": ("fp8", "128x128"),
    }
    assert made.globals_.weight_dtype == "bf16"
    assert not any(node.weight_dtype for node in made.head)


def test_recipes_agree_on_fp8_and_on_integers_of_plain_decoders() -> None:
    catalog = Catalog()
    assert follows_one_recipe(catalog.model("qwen3-8b"), "int4")
    assert follows_one_recipe(catalog.model("qwen3-30b-a3b"), "fp8")
    for model in ("qwen3-30b-a3b", "qwen3.5-27b", "gemma-4-e2b-it"):
        assert not follows_one_recipe(catalog.model(model), "int4")
    with pytest.raises(DeploymentError, match="known recipes are fp8, int4, int8"):
        requantized(catalog.model("qwen3-8b"), "nvfp4")
