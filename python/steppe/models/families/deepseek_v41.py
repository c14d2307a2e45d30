"""DeepSeek-V4.1: V4's attention with compressed caches, index keys and index picks shared down the layers.

Topology (vllm/models/deepseek_v41/attention.py:286-345): `compress_ratios` 0 is a pure window, 1 and 2 read a
compressed cache that only the layers in `kv_source_layer_ids` write; only those in `index_source_layer_ids` score. A
source's index key is projected from its compressor's latent (1261-1330). Two layers add hashed n-gram embeddings looked
up on the host (vllm/models/deepseek_v41/common/engram.py:890-966); their tables are no part of the graph. Drafting is
DSpark: three window layers with experts of their own number, over one projection of three captured hidden states
(vllm/models/deepseek_v41/nvidia/dspark.py:80-160).

Caches are those of data-centre Blackwell: 528-byte records aligned to 512 (attention.py:119-126, 502-558); Hopper's are
584 and 576. Compressed caches state no block: it is the deployment's.
"""

from __future__ import annotations

from dataclasses import replace

from steppe.errors import DeploymentError, DocumentError
from steppe.models.architecture import Architecture, Block, Cache, Layer, Source, Speculator
from steppe.models.config import Config
from steppe.models.families.deepseek import routed_experts
from steppe.models.families.deepseek_v4 import compressed_latent, sparse_node, window_node
from steppe.models.families.hyper import mixed_norm
from steppe.models.head import head, layer_count, tied
from steppe.models.mixers import moe

_RECORD, _ALIGNMENT = 528, 512


def deepseek_v41(source: Source) -> Architecture:
    config = source.config
    hidden, vocab, count = config.positive("hidden_size"), config.positive("vocab_size"), layer_count(source)
    ratios = config.items("compress_ratios")
    if len(ratios) < count:
        raise DocumentError(f"{config.path}: compress_ratios has {len(ratios)} entries for {count} layers")
    layers = [_layer(source, i, int(ratios[i])) for i in range(count)]
    return Architecture(hidden, vocab, tied(source), layers, head(source, hidden, vocab), _dspark(source, count))


def _layer(source: Source, i: int, ratio: int) -> Layer:
    config = source.config
    hidden, streams = config.positive("hidden_size"), config.positive("hc_mult")
    if ratio not in (0, 1, 2):
        raise DeploymentError(f"{config.path}: compress_ratios holds {ratio}; known: 0, 1, 2")
    owns, scores = i in config.items("kv_source_layer_ids"), i in config.items("index_source_layer_ids")
    block = Block(source.quant)
    if i in config.items("engram_layer_ids", default=[]):
        _engram(block, config, f"layers.{i}.engram")
    mixed_norm(block, "norm_in", hidden, streams)
    module = f"layers.{i}.attn"
    compressed_latent(block, config, module, lambda b: _attend(b, config, module, ratio, owns, scores))
    mixed_norm(block, "norm_mid", hidden, streams)
    moe(block, routed_experts(config, f"layers.{i}.ffn"))
    name = "window" if ratio == 0 else f"csa{ratio}"
    kind = f"{name}{'_owner' if owns else ''}{'_scorer' if scores else ''}_moe"
    return Layer(kind, block.nodes, _caches(config, ratio, owns))


def _attend(block: Block, config: Config, module: str, ratio: int, owns: bool, scores: bool) -> None:
    """What stands between the projections: a source's compressor and index key, a scorer's index, the attention."""
    if ratio == 0:
        window_node(block, config)
        return
    hidden, d = config.positive("hidden_size"), config.positive("head_dim")
    n_i, d_i = config.positive("index_n_heads"), config.positive("index_head_dim")
    plain = block.quant.plain
    if owns:
        # One token pooled has no gate (compressor.py:198-224).
        block.gemm("compress", (2 if ratio > 1 else 1) * d, hidden, plain, replicated=True)
        block.elementwise("rope", 8 * d, launches=2, replicated=True)
        block.gemm("index_k", d_i, d, plain, replicated=True)
        block.elementwise("rope", 4 * d_i, replicated=True)
    if scores:
        block.gemm("index_weights", n_i, hidden, plain, replicated=True)
        wq_b = block.quant.linear(f"{module}.indexer.wq_b")
        block.gemm("index_q", n_i * d_i, config.positive("q_lora_rank"), wq_b, replicated=True)
        block.elementwise("rope", 3 * n_i * d_i, replicated=True)
        keys = {"n_q": n_i, "n_kv": 1, "d_h": d_i, "compress_ratio": ratio}
        block.add("Attention", role="block_index_scores", kind="sparse_mla", **keys)
    sparse_node(block, config, index_topk=config.positive("index_topk"), compress_ratio=ratio)


def _engram(block: Block, config: Config, module: str) -> None:
    """Rows looked up on the host, led to a key and to a value a residual stream, gathered over the tensor ranks, and a
    gate that adds them."""
    hidden, streams = config.positive("hidden_size"), config.positive("hc_mult")
    columns = (config.positive("engram_max_ngram_size") - 1) * config.positive("engram_n_heads")
    rows = (streams + 1) * hidden
    block.gemm("engram", rows, columns * config.positive("engram_head_dim"), block.quant.linear(f"{module}.wkv"))
    block.add("AllGather", role="engram_gather", emit="tensor_parallel", bytes_per_token=2 * rows)
    block.elementwise("gate", 2 * (rows + 2 * streams * hidden), replicated=True)


def _caches(config: Config, ratio: int, owns: bool) -> list[Cache]:
    window = config.positive("sliding_window")
    caches = [_cache("window", "window", _RECORD, window=window, block_size=32)]
    if not owns:
        return caches
    d, d_i = config.positive("head_dim"), config.positive("index_head_dim")
    caches.append(_cache(f"compressed_{ratio}", "compressed", _RECORD, tokens_per_state=ratio))
    caches.append(_cache(f"index_{ratio}", "index", d_i + 4 * (d_i // 128), tokens_per_state=ratio))
    if ratio > 1:
        # fp32 key and gate of the tokens being pooled, eight slots a request without drafts (compressor.py:132-163).
        ring: Cache = {"id": f"state_{ratio}", "kind": "ring", "heads": 1, "state_bytes": 8 * d, "block_size": 8}
        caches.append(ring)
    return caches


def _cache(name: str, kind: str, state_bytes: int, **keys: int) -> Cache:
    return {"id": name, "kind": kind, "heads": 1, "state_bytes": state_bytes, **keys, "alignment": _ALIGNMENT}


def _dspark(source: Source, count: int) -> Speculator | None:
    """The drafter in the checkpoint: `dspark_block_size` query rows a request, a Markov head of a rank, the target's
    own head (vllm/models/deepseek_v41/nvidia/dspark.py:87-131; experts: nvidia/model.py:129-135)."""
    config = source.config
    if not config.has("dspark_block_size"):
        return None
    modules = config.positive("n_mtp_layers", "num_nextn_predict_layers", default=3)
    data = dict(config.data)
    for key, own in (
        ("n_routed_experts", "dspark_n_routed_experts"),
        ("num_experts_per_tok", "dspark_num_experts_per_tok"),
    ):
        if config.count(own, default=0):
            data[key] = config.positive(own)
    drafting = replace(source, config=Config(data, path=config.path))
    layers = []
    for i in range(modules):
        layer = _layer(drafting, count + i, 0)
        layers.append(Layer(f"dspark_{layer.kind}", layer.nodes, layer.caches))
    block = config.positive("dspark_block_size")
    extra = {
        "hidden_taps": [int(i) for i in config.items("dspark_target_layer_ids")],
        "block": block,
        "markov_rank": config.positive("dspark_markov_rank"),
        "draft_vocab_size": config.positive("draft_vocab_size", default=config.positive("vocab_size")),
        "own_lm_head": False,
    }
    return Speculator("dspark", block, layers, extra)
