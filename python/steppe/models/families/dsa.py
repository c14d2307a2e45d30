"""DeepSeek-V3.2 and the GLM-5 line: latent attention that reads the top-k tokens an indexer picks.

Shapes (vllm/models/deepseek_v32/attention.py): q_a and kv_a fused and replicated (226-231); the indexer's q from the
latent of q, replicated (68-74); its key and its head weights in one replicated 16-bit GEMM (76-83). Norms of both
latents, the key's rope and norm and both cache writes are one kernel (347-378), rope on q and its absorption's
quantisation another (413-430). An indexer's cache holds one key a token for the layer and those after it that share
its picks (165-192).
"""

from __future__ import annotations

from dataclasses import dataclass

from steppe.errors import DocumentError
from steppe.models.architecture import Architecture, Block, Layer, Source
from steppe.models.config import Config
from steppe.models.families.deepseek import (
    Mla,
    dimensions,
    feed_forward,
    latent_node,
    latent_output,
    predictor,
)
from steppe.models.head import head, layer_count, tied


@dataclass(frozen=True)
class Indexer:
    """Heads and head size of an indexer, and the tokens it picks."""

    heads: int
    d: int
    topk: int


def sparse_latent(source: Source) -> Architecture:
    """Dense layers, then expert layers, all with sparse latent attention; indexers where the config puts them."""
    config = source.config
    hidden, vocab, count = config.positive("hidden_size"), config.positive("vocab_size"), layer_count(source)
    m = dimensions(config)
    if m.q_lora is None:
        raise DocumentError(f"{config.path}: q_lora_rank is required, the indexer reads the latent of q")
    indexer = Indexer(
        config.positive("index_n_heads"), config.positive("index_head_dim"), config.positive("index_topk")
    )

    def layer(i: int) -> Layer:
        block = Block(source.quant)
        block.norm("norm_in")
        # A module beyond the backbone always scores for itself (attention.py:150-155).
        own = i >= count or scores(config, i, count)
        sparse_attention(block, m, indexer if own else None, indexer.topk, f"layers.{i}.self_attn")
        block.norm("norm_mid")
        kind = feed_forward(block, config, i)
        return Layer(f"dsa_{kind}" if own else f"dsa_shared_{kind}", block.nodes)

    layers = [layer(i) for i in range(count)]
    modules = config.count("num_nextn_predict_layers", default=0)
    speculator = predictor(source, [layer(count + i) for i in range(modules)]) if modules else None
    return Architecture(hidden, vocab, tied(source), layers, head(source, hidden, vocab), speculator)


def scores(config: Config, i: int, count: int) -> bool:
    """Whether layer `i` runs its own indexer: every layer, or as a frequency or a pattern says
    (vllm/models/deepseek_v32/attention.py:139-150)."""
    pattern = config.get("index_topk_pattern")
    if pattern is not None:
        if len(pattern) != count:
            raise DocumentError(f"{config.path}: index_topk_pattern has {len(pattern)} entries for {count} layers")
        return bool(pattern[i] != "S")
    offset, frequency = config.count("index_skip_topk_offset", default=2), config.positive("index_topk_freq", default=1)
    own = max(i - offset + 1, 0) % frequency == 0
    if config.has("indexer_types") and (config.per_layer("indexer_types", count)[i] == "full") != own:
        raise DocumentError(f"{config.path}: indexer_types contradicts index_topk_freq and its offset at layer {i}")
    return own


def sparse_attention(block: Block, m: Mla, indexer: Indexer | None, topk: int, module: str) -> None:
    quant, q_lora = block.quant, m.q_lora or 0
    qkv_a = quant.linear(f"{module}.q_a_proj", f"{module}.kv_a_proj_with_mqa")
    block.gemm("qkv_a", q_lora + m.kv_lora + m.rope, m.hidden, qkv_a, replicated=True)
    key = 0
    if indexer:
        key = indexer.d
        block.gemm("index_k", indexer.d + indexer.heads, m.hidden, quant.plain, replicated=True)
    block.norm("norm_q_a", 4 * (q_lora + m.kv_lora + m.rope + key))
    block.gemm("q_b", m.heads * (m.nope + m.rope), q_lora, quant.linear(f"{module}.q_b_proj"))
    block.gemm("kv_b", m.heads * (m.nope + m.v), m.kv_lora, quant.linear(f"{module}.kv_b_proj"))
    if indexer:
        wq_b = quant.linear(f"{module}.indexer.wq_b")
        block.gemm("index_q", indexer.heads * indexer.d, q_lora, wq_b, replicated=True)
    block.elementwise("rope", 4 * m.heads * (m.kv_lora + m.rope) + (3 * indexer.heads * indexer.d if indexer else 0))
    if indexer:
        block.add("Attention", role="index_scores", kind="gqa", n_q=indexer.heads, n_kv=1, d_h=indexer.d)
    latent_node(block, m, "sparse_mla", index_topk=topk)
    latent_output(block, m, module)
