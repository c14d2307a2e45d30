"""MiniMax-M3: grouped-query attention over the blocks of tokens that a small indexer picks, experts with a shared one.

Shapes (vllm/models/minimax_m3/nvidia/model.py): q, k, v and the indexer's q and k are one projection, their norms,
rope and cache writes one kernel (388-480); leading layers are dense in attention and feed-forward (80-100, 130-170);
the router is fp32 (205-216). The indexer keeps one 16-bit key a token and picks whole blocks
(vllm/models/minimax_m3/common/indexer.py:99-155).
"""

from __future__ import annotations

from steppe.models.architecture import Architecture, Block, Layer, Source, Speculator
from steppe.models.config import Config, heads
from steppe.models.families.moe import kv_cache
from steppe.models.head import head, layer_count, tied
from steppe.models.mixers import Gqa, Moe, attend, mlp, moe

#: The indexer's kernels take pages of 128 tokens, and with them every cache of the model (indexer.py:75-77).
_BLOCK = 128


def minimax_m3(source: Source) -> Architecture:
    config = source.config
    hidden, vocab, count = config.positive("hidden_size"), config.positive("vocab_size"), layer_count(source)
    sparse = config.section("sparse_attention_config").per_layer("sparse_attention_freq", count)
    experts = config.per_layer("moe_layer_freq", count) if config.has("moe_layer_freq") else [1] * count
    layers = [_layer(source, f"layers.{i}", bool(sparse[i]), bool(experts[i])) for i in range(count)]
    return Architecture(hidden, vocab, tied(source), layers, head(source, hidden, vocab), _predictor(source))


def _layer(source: Source, module: str, sparse: bool, experts: bool) -> Layer:
    config = source.config
    _, n_kv, d_h = heads(config)
    hidden = config.positive("hidden_size")
    block = Block(source.quant)
    block.norm("norm_in")
    caches = [{**kv_cache(n_kv, d_h), "block_size": _BLOCK}]
    if sparse:
        index = config.section("sparse_attention_config")
        caches.append(_index_cache(index.positive("sparse_index_dim")))
        _sparse_attention(block, config, index, f"{module}.self_attn")
    else:
        _attention(block, config, f"{module}.self_attn")
    block.norm("norm_mid")
    if experts:
        moe(block, _experts(config, f"{module}.block_sparse_moe"))
    else:
        mlp(block, f"{module}.mlp", hidden, config.positive("dense_intermediate_size"))
    return Layer(f"{'sparse' if sparse else 'full'}_{'moe' if experts else 'dense'}", block.nodes, caches)


def _index_cache(d: int) -> dict[str, object]:
    return {
        "id": "index",
        "kind": "index",
        "heads": 1,
        "head_dim": d,
        "head_dim_v": 0,
        "dtype": "bfloat16",
        "block_size": _BLOCK,
    }


def _attention(block: Block, config: Config, module: str) -> None:
    n_q, n_kv, d_h = heads(config)
    hidden = config.positive("hidden_size")
    weight = block.quant.linear(*(f"{module}.{name}" for name in ("q_proj", "k_proj", "v_proj")))
    block.gemm("qkv", (n_q + 2 * n_kv) * d_h, hidden, weight)
    block.elementwise("rope", 4 * (n_q + 2 * n_kv) * d_h)
    attend(block, Gqa(module, hidden, n_q, n_kv, d_h))
    block.gemm("out", hidden, n_q * d_h, block.quant.linear(f"{module}.o_proj"))
    block.reduce("reduce_mixer")


def _sparse_attention(block: Block, config: Config, index: Config, module: str) -> None:
    """As many index heads as key-value heads, one index key; a query reads the chosen blocks whole."""
    n_q, n_kv, d_h = heads(config)
    hidden = config.positive("hidden_size")
    n_i, d_i = index.positive("sparse_num_index_heads"), index.positive("sparse_index_dim")
    topk = index.positive("sparse_topk_blocks") * index.positive("sparse_block_size")
    names = ("q_proj", "k_proj", "v_proj", "index_q_proj", "index_k_proj")
    rows = (n_q + 2 * n_kv) * d_h + (n_i + 1) * d_i
    block.gemm("qkv", rows, hidden, block.quant.linear(*(f"{module}.{name}" for name in names)))
    block.elementwise("rope", 4 * rows)
    block.add("Attention", role="index_scores", kind="gqa", n_q=n_i, n_kv=1, d_h=d_i)
    block.add("Attention", kind="gqa", n_q=n_q, n_kv=n_kv, d_h=d_h, index_topk=topk)
    block.gemm("out", hidden, n_q * d_h, block.quant.linear(f"{module}.o_proj"))
    block.reduce("reduce_mixer")


def _experts(config: Config, module: str) -> Moe:
    shared = config.count("n_shared_experts", default=0)
    return Moe(
        module,
        config.positive("hidden_size"),
        config.positive("intermediate_size"),
        config.positive("num_local_experts"),
        config.positive("num_experts_per_tok"),
        shared=shared,
        fp32_router=True,
    )


def _predictor(source: Source) -> Speculator | None:
    """A prediction module: a sparse expert layer behind a replicated projection of both halves. However many a
    checkpoint stores, the engine runs one of them for every pass (vllm/config/speculative.py:1031-1059, 1973-1979;
    vllm/models/minimax_m3/nvidia/mtp.py:40-95)."""
    config = source.config
    modules = config.count("num_mtp_modules", default=0)
    if not modules:
        return None
    hidden = config.positive("hidden_size")
    inner = _layer(source, "mtp.layers.0.transformer_layer", True, True)
    block = Block(source.quant)
    block.norm("norm_embed")
    block.norm("norm_hidden")
    block.gemm("fuse", hidden, 2 * hidden, source.quant.linear("mtp.layers.0.eh_proj"), replicated=True)
    layer = Layer(f"mtp_{inner.kind}", block.nodes + inner.nodes, inner.caches)
    return Speculator("mtp", modules, [layer])
