"""Configs that are refused: one clear error that names the architecture or the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.models import small

from steppe.errors import DeploymentError, DocumentError
from steppe.models import derive_config, derive_file
from steppe.models.derive import derive


def test_an_unknown_architecture_is_named_with_the_known_ones() -> None:
    with pytest.raises(DeploymentError, match=r"GPT5ForCausalLM; known: .*LlamaForCausalLM"):
        derive({**small.LLAMA, "architectures": ["GPT5ForCausalLM"]}, name="test")


def test_no_architecture() -> None:
    with pytest.raises(DeploymentError, match="none stated"):
        derive({k: v for k, v in small.LLAMA.items() if k != "architectures"}, name="test")


@pytest.mark.parametrize(
    "key", ["hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"]
)
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(DocumentError, match=f"'{key}'"):
        derive({k: v for k, v in small.LLAMA.items() if k != key}, name="test", path="here/config.json")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"hidden_size": "64"}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"num_attention_heads": 7}, "num_attention_heads"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"torch_dtype": "float8"}, "dtype"),
        ({"sliding_window": 16, "layer_types": ["full_attention"]}, "layer_types has 1 entries for 4 layers"),
    ],
)
def test_an_ill_typed_or_contradictory_key_is_named(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(DocumentError, match=named):
        derive({**small.LLAMA, **changed}, name="test")


@pytest.mark.parametrize(
    ("config", "changed", "named"),
    [
        (small.DEEPSEEK_V4, {"compress_ratios": [4]}, "compress_ratios"),
        (small.DEEPSEEK_V4, {"o_groups": 3}, "o_groups"),
        (small.DSA, {"q_lora_rank": None}, "q_lora_rank"),
        (small.DSA, {"index_topk_pattern": "FS"}, "index_topk_pattern"),
        (small.NEMOTRON, {"hybrid_override_pattern": "MXE*"}, "hybrid_override_pattern"),
        (small.NEMOTRON, {"hybrid_override_pattern": "ME*"}, "block pattern"),
        (small.QWEN3_NEXT, {"layer_types": ["mamba"] * 4}, "layer_types"),
        (small.KIMI_LINEAR, {"linear_attn_config": {"kda_layers": [9]}}, "kda_layers"),
        (small.MINIMAX_M3, {"sparse_attention_config": 3}, "sparse_attention_config"),
        (small.MIXTRAL, {"num_local_experts": None}, "num_local_experts"),
        (small.LLAMA_4, {"no_rope_layers": [1]}, "no_rope_layers"),
    ],
)
def test_families_name_the_key_that_is_wrong(config: small.Config, changed: dict[str, Any], named: str) -> None:
    with pytest.raises(DocumentError, match=named):
        derive({**config, **changed}, name="test")


@pytest.mark.parametrize(
    ("config", "changed", "named"),
    [
        (small.DEEPSEEK_V4, {"compress_ratios": [0, 4, 64, 4]}, "64"),
    ],
)
def test_what_a_family_does_not_cover_is_refused(config: small.Config, changed: dict[str, Any], named: str) -> None:
    with pytest.raises(DeploymentError, match=named):
        derive({**config, **changed}, name="test")


def test_a_draft_that_does_not_say_what_it_reads_needs_its_target() -> None:
    with pytest.raises(DocumentError, match="target's layer count"):
        derive(small.of("LlamaForCausalLMEagle3", num_hidden_layers=1), name="test")


def test_files(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="nowhere"):
        derive_file(tmp_path / "nowhere.json")
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(DocumentError, match="not JSON"):
        derive_file(broken)
    broken.write_text("[]")
    with pytest.raises(DocumentError, match="must be a map"):
        derive_file(broken)


def test_a_file_takes_its_folder_as_name_and_the_quantization_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "My-Model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(small.LLAMA))
    quant = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}
    (folder / "hf_quant_config.json").write_text(json.dumps(quant))
    graph = derive_file(folder / "config.json")
    assert graph.name == "my-model"
    assert graph.globals_.weight_dtype == "nvfp4"


def test_a_derived_graph_is_the_document_model() -> None:
    assert derive_config(small.LLAMA, name="small").stack.layers == 4
