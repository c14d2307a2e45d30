"""The catalog's draft checkpoints, counted layer by layer."""

from __future__ import annotations

from tests.models import small

from steppe.documents import load_graph
from steppe.models.catalog import CATALOG
from steppe.models.derive import derive
from steppe.models.parameters import parameters
from steppe.models.stack import unfold


def test_eagle3_of_llama_3_1_8b() -> None:
    """One Llama layer whose qkv reads two hidden states, and a head over 32 000 words: 0.37 B with the head, of the
    0.4 B its checkpoint holds together with the projection of three captured states."""
    graph = load_graph(CATALOG / "eagle3-llama-3.1-8b-instruct" / "graph.yaml")
    assert graph.speculator is not None
    assert graph.speculator.hidden_taps == (2, 16, 29)
    assert graph.speculator.own_lm_head
    layer = sum((n.n or 0) * (n.k or 0) for n in graph.layer_kinds[0].nodes)
    head = sum((n.n or 0) * (n.k or 0) for n in graph.head)
    assert layer == 6144 * 8192 + 4096 * 4096 + 3 * 4096 * 14336
    assert head == 32000 * 4096
    assert round((layer + head + 3 * 4096 * 4096) / 1e9, 1) == 0.4


def test_eagle_projects_embedding_and_state_before_its_first_layer() -> None:
    """llama_eagle.py:85-139."""
    graph = derive(small.of("EagleLlamaForCausalLM", num_hidden_layers=2), name="test")
    assert unfold(graph["stack"]) == ["eagle_first_dense", "full_dense"]
    first = graph["layer_kinds"][0]["nodes"]
    assert first[0] == {"op": "GEMM", "role": "fuse", "n": 64, "k": 128, "replicated": True}
    assert first[1:] == graph["layer_kinds"][1]["nodes"]
    assert graph["speculator"]["own_lm_head"] is False
    layer = 64 * 96 + 64 * 64 + 3 * 64 * 96
    assert parameters(graph) == 64 * 128 + 2 * layer + 2 * 1000 * 64


def test_a_draft_of_fewer_words_brings_its_own_head() -> None:
    graph = derive(small.of("EagleLlamaForCausalLM", draft_vocab_size=500), name="test")
    assert (graph["speculator"]["draft_vocab_size"], graph["speculator"]["own_lm_head"]) == (500, True)
    assert graph["head"][-1]["n"] == 500


def test_eagle3_normalises_q_and_k_as_its_target_does() -> None:
    taps = {"eagle_aux_hidden_state_layer_ids": [1, 2, 3], "num_hidden_layers": 2}
    qwen, llama = (
        derive(small.of(name, **taps), name="test") for name in ("Eagle3Qwen3ForCausalLM", "Eagle3LlamaForCausalLM")
    )
    for graph, normalised in ((qwen, True), (llama, False)):
        assert unfold(graph["stack"]) == ["eagle3_first_dense", "full_dense"]
        for kind in graph["layer_kinds"]:
            assert ("qk_norm" in [node.get("role") for node in kind["nodes"]]) is normalised
        first, second = ({n["role"]: n for n in k["nodes"] if "role" in n} for k in graph["layer_kinds"])
        assert (first["qkv"]["k"], second["qkv"]["k"]) == (128, 64)


def test_dflash_slides_where_told_and_reads_the_taps_of_its_section() -> None:
    """qwen3_dflash.py:119-180."""
    flash = {"use_swa": True, "swa_window_size": 24, "target_layer_ids": [1, 5, 9]}
    graph = derive(small.of("DFlashDraftModel", head_dim=16, block_size=8, dflash_config=flash), name="test")
    assert graph["stack"] == {"pattern": ["window_dense"], "repeat": 4}
    assert [n["window"] for n in graph["layer_kinds"][0]["nodes"] if n["op"] == "Attention"] == [24]
    drafter = graph["speculator"]
    assert (drafter["method"], drafter["block"], drafter["hidden_taps"]) == ("dflash", 8, [1, 5, 9])
    types = ["sliding_attention", "full_attention"] * 2
    mixed = {"head_dim": 16, "layer_types": types, "sliding_window": 40, "target_layer_ids": [1]}
    listed = derive(small.of("DFlashDraftModel", **mixed), name="test")
    assert listed["stack"] == {"pattern": ["window_dense", "full_dense"], "repeat": 2}
    assert listed["speculator"]["block"] == 16
    assert [n["window"] for n in listed["layer_kinds"][0]["nodes"] if n["op"] == "Attention"] == [40]


def test_k3_dspark_drafts_with_dense_latent_layers() -> None:
    """kimi_k3/nvidia/dspark_mla.py:61-208."""
    keys = {"block_size": 6, "markov_rank": 9, "target_layer_ids": [2, 4]}
    graph = derive(small.of("K3DSparkModel", small.LATENT, **keys), name="test")
    assert graph["stack"] == {"pattern": ["mla_dense"], "repeat": 4}
    drafter = graph["speculator"]
    assert (drafter["block"], drafter["markov_rank"], drafter["own_lm_head"]) == (6, 9, True)
    mixer = 64 * (24 + 32 + 8) + 24 * 8 * 24 + 32 * 8 * 28 + 64 * 8 * 12
    assert parameters(graph) == 4 * (mixer + 3 * 64 * 96) + 2 * 1000 * 64
