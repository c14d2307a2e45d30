"""Over random small configs: a derived graph is a valid document, and counts what a closed form counts."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.models import small

from steppe.documents import ModelGraph
from steppe.documents.load import parse
from steppe.models.derive import derive
from steppe.models.emit import to_yaml
from steppe.models.parameters import parameters

sizes = st.integers(1, 9).map(lambda n: 16 * n)
few = st.integers(1, 6)


@st.composite
def common(draw: st.DrawFn) -> dict[str, Any]:
    kv = draw(st.sampled_from([1, 2, 4]))
    return {
        "hidden_size": draw(sizes),
        "vocab_size": draw(st.integers(1, 5000)),
        "num_hidden_layers": draw(st.integers(1, 9)),
        "num_attention_heads": kv * draw(st.sampled_from([1, 2, 4])),
        "num_key_value_heads": kv,
        "head_dim": draw(st.sampled_from([8, 16, 64])),
        "intermediate_size": draw(sizes),
        "tie_word_embeddings": draw(st.booleans()),
    }


def outer(c: dict[str, Any]) -> int:
    """Embedding, and the head where it is not the embedding."""
    return int(c["vocab_size"] * c["hidden_size"] * (1 if c["tie_word_embeddings"] else 2))


def mixer(c: dict[str, Any], gates: int = 0) -> int:
    h, d, q, kv = c["hidden_size"], c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
    return int(h * d * ((1 + gates) * q + 2 * kv) + q * d * h)


def checked(config: dict[str, Any]) -> dict[str, Any]:
    """The derived graph, after it has passed the document model and a round trip through its text."""
    graph = derive(config, name="random")
    parse(ModelGraph, graph)
    assert yaml.load(to_yaml(graph), Loader=yaml.CSafeLoader) == graph
    assert derive(config, name="random") == graph
    return graph


@given(common(), st.sampled_from(["LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Gemma2ForCausalLM"]))
def test_dense(c: dict[str, Any], architecture: str) -> None:
    graph = checked({**c, "architectures": [architecture]})
    layer = mixer(c) + 3 * c["hidden_size"] * c["intermediate_size"]
    assert parameters(graph) == outer(c) + c["num_hidden_layers"] * layer


@given(common(), few, st.data())
def test_qwen3_moe(c: dict[str, Any], experts: int, data: st.DataObject) -> None:
    inner, shared = data.draw(sizes), data.draw(st.sampled_from([0, 16, 48]))
    step = data.draw(st.integers(1, 3))
    only = data.draw(st.lists(st.integers(0, 8), max_size=3))
    more = {
        "num_experts": experts,
        "num_experts_per_tok": data.draw(st.integers(1, experts)),
        "moe_intermediate_size": inner,
        "shared_expert_intermediate_size": shared,
        "decoder_sparse_step": step,
        "mlp_only_layers": only,
    }
    graph = checked({**c, **more, "architectures": ["Qwen3MoeForCausalLM"]})
    h = c["hidden_size"]
    dense = 3 * h * c["intermediate_size"]
    sparse = h * experts + 3 * h * inner * experts + (3 * h * shared + h if shared else 0)
    layers = range(c["num_hidden_layers"])
    blocks = sum(sparse if i not in only and (i + 1) % step == 0 else dense for i in layers)
    assert parameters(graph) == outer(c) + len(layers) * mixer(c) + blocks


@given(common(), st.data())
def test_latent(c: dict[str, Any], data: st.DataObject) -> None:
    q_lora, kv_lora = data.draw(st.sampled_from([None, 24])), data.draw(sizes)
    nope, rope, v = data.draw(sizes), data.draw(st.sampled_from([0, 8])), data.draw(sizes)
    first, modules = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 2))
    experts, inner, shared = data.draw(few), data.draw(sizes), data.draw(st.integers(0, 2))
    more = {
        "q_lora_rank": q_lora,
        "kv_lora_rank": kv_lora,
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": v,
        "n_routed_experts": experts,
        "n_shared_experts": shared,
        "num_experts_per_tok": data.draw(st.integers(1, experts)),
        "moe_intermediate_size": inner,
        "first_k_dense_replace": first,
        "num_nextn_predict_layers": modules,
    }
    graph = checked({**c, **more, "architectures": ["DeepseekV3ForCausalLM"]})
    h, n, count = c["hidden_size"], c["num_attention_heads"], c["num_hidden_layers"]
    q = h * n * (nope + rope) if q_lora is None else h * q_lora + q_lora * n * (nope + rope)
    latent = q + h * (kv_lora + rope) + kv_lora * n * (nope + v) + n * v * h
    sparse = h * experts + 3 * h * inner * (experts + shared)
    dense = 3 * h * c["intermediate_size"]
    body = sum(latent + (dense if i < first else sparse) for i in range(count))
    assert parameters(graph) == outer(c) + body
    drafted = sum(latent + 2 * h * h + (dense if count + i < first else sparse) for i in range(modules))
    assert parameters(graph, speculator=True) == outer(c) + body + drafted


@given(common(), st.data())
def test_delta_net_hybrid(c: dict[str, Any], data: st.DataObject) -> None:
    n_k, n_v = data.draw(few), data.draw(few)
    d_k, d_v = data.draw(sizes), data.draw(sizes)
    interval = data.draw(st.integers(1, 4))
    more = {
        "linear_num_key_heads": n_k,
        "linear_num_value_heads": n_v,
        "linear_key_head_dim": d_k,
        "linear_value_head_dim": d_v,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": interval,
    }
    graph = checked({**c, **more, "architectures": ["Qwen3NextForCausalLM"]})
    h = c["hidden_size"]
    gdn = h * (2 * n_k * d_k + 2 * n_v * d_v + 2 * n_v) + n_v * d_v * h
    layers = range(1, c["num_hidden_layers"] + 1)
    mixers = sum(mixer(c, gates=1) if i % interval == 0 else gdn for i in layers)
    assert parameters(graph) == outer(c) + mixers + len(layers) * 3 * h * c["intermediate_size"]


@given(common(), st.text("ME*-", min_size=1, max_size=12), st.data())
def test_mamba_hybrid(c: dict[str, Any], pattern: str, data: st.DataObject) -> None:
    heads, d, groups, state = data.draw(few), data.draw(sizes), data.draw(few), data.draw(sizes)
    experts, inner, latent = data.draw(few), data.draw(sizes), data.draw(st.sampled_from([None, 16]))
    more = {
        "num_hidden_layers": len(pattern),
        "hybrid_override_pattern": pattern,
        "mamba_num_heads": heads,
        "mamba_head_dim": d,
        "n_groups": groups,
        "ssm_state_size": state,
        "conv_kernel": 4,
        "n_routed_experts": experts,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": inner,
        "moe_latent_size": latent,
        "n_shared_experts": 1,
        "moe_shared_expert_intermediate_size": 32,
    }
    graph = checked({**c, **more, "architectures": ["NemotronHForCausalLM"]})
    h, wide = c["hidden_size"], heads * d
    width = latent or h
    block = {
        "M": h * (2 * wide + 2 * groups * state + heads) + wide * h,
        "*": mixer(c),
        "-": 2 * h * c["intermediate_size"],
        "E": h * experts + 2 * width * inner * experts + 2 * h * 32 + (2 * h * latent if latent else 0),
    }
    assert parameters(graph) == outer(c) + sum(block[letter] for letter in pattern)


@given(st.sampled_from(sorted(small.FAMILIES)), st.sampled_from([None, "fp8", "block", "int4", "nvfp4"]))
def test_every_family_under_every_storage_is_a_valid_document(family: str, storage: str | None) -> None:
    """Storage changes how weights are stated, never what is launched or how many there are."""
    stated: dict[str, Any] = {
        "fp8": {"quant_method": "fp8"},
        "block": {"quant_method": "fp8", "weight_block_size": [128, 128]},
        "int4": {"quant_method": "awq", "bits": 4, "group_size": 32},
        "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]},
    }
    plain = derive(small.FAMILIES[family], name="random")
    config = (
        small.FAMILIES[family]
        if storage is None
        else {**small.FAMILIES[family], "quantization_config": stated[storage]}
    )
    graph = checked(config)
    assert parameters(graph, speculator=True) == parameters(plain, speculator=True)
