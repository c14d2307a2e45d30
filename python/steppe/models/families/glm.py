"""GLM-4.5 to 4.7, experts over grouped-query attention, and GLM-5.3-Flash: delta attention, sparse latent attention
over pooled index keys, hyper-connections.

Shapes: vllm/model_executor/models/glm4_moe.py:120-320 (an fp32 router, one shared block, q/k norms where stated);
vllm/models/glm5next/common/model.py:278-460, kda.py:190-300 (q, k, v, beta and both low-rank gates in one projection),
attention.py:60-470 (latent projections at 16 bits whatever the checkpoint's quantization, one index key a pool of
tokens).
"""

from __future__ import annotations

from steppe.errors import DocumentError
from steppe.models.architecture import Architecture, Block, Cache, Layer, Source
from steppe.models.config import Config, heads
from steppe.models.families.deepseek import Mla, dimensions, feed_forward, latent_node, predictor, routed_experts
from steppe.models.families.hyper import mixed_norm
from steppe.models.head import head, layer_count, tied
from steppe.models.mixers import Gqa, attention, mlp, moe


def glm4_moe(source: Source) -> Architecture:
    config = source.config
    hidden, vocab, count = config.positive("hidden_size"), config.positive("vocab_size"), layer_count(source)
    n_q, n_kv, d_h = heads(config)
    qk_norm = config.flag("use_qk_norm")

    def layer(i: int) -> Layer:
        block = Block(source.quant)
        block.norm("norm_in")
        attention(block, Gqa(f"layers.{i}.self_attn", hidden, n_q, n_kv, d_h, qk_norm=qk_norm))
        block.norm("norm_mid")
        if i < config.count("first_k_dense_replace", default=0):
            mlp(block, f"layers.{i}.mlp", hidden, config.positive("intermediate_size"))
            return Layer("full_dense", block.nodes)
        moe(block, routed_experts(config, f"layers.{i}.mlp", fp32_router=True))
        return Layer("full_moe", block.nodes)

    layers = [layer(i) for i in range(count)]
    modules = config.count("num_nextn_predict_layers", default=0)
    speculator = predictor(source, [layer(count + i) for i in range(modules)]) if modules else None
    return Architecture(hidden, vocab, tied(source), layers, head(source, hidden, vocab), speculator)


def glm5_next(source: Source) -> Architecture:
    config = source.config
    hidden, vocab, count = config.positive("hidden_size"), config.positive("vocab_size"), layer_count(source)
    kinds = [str(kind) for kind in config.per_layer("layer_types", count)]
    known = ("linear_attention", "deepseek_sparse_attention")
    for kind in kinds:
        if kind not in known:
            raise DocumentError(f"{config.path}: layer_types holds {kind!r}; known: {', '.join(known)}")
    layers = [
        _next_layer(source, i, linear=kinds[i] == "linear_attention", mixed=config.flag("mhc")) for i in range(count)
    ]
    modules = config.count("num_nextn_predict_layers", default=0)
    drafted = [_next_layer(source, count + i, linear=False, mixed=False) for i in range(modules)]
    speculator = predictor(source, drafted) if drafted else None
    return Architecture(hidden, vocab, tied(source), layers, head(source, hidden, vocab), speculator)


def _next_layer(source: Source, i: int, *, linear: bool, mixed: bool) -> Layer:
    config = source.config
    hidden, block = config.positive("hidden_size"), Block(source.quant)
    streams = config.positive("hc_mult", default=4)
    _norm(block, "norm_in", hidden, streams if mixed else 0)
    if linear:
        kda = config.section("linear_attn_config")
        _delta_attention(block, kda, hidden, f"layers.{i}.self_attn")
        caches = [_state_cache(kda)]
    else:
        _pooled_sparse(block, config, dimensions(config), f"layers.{i}.self_attn")
        caches = _sparse_caches(config)
    _norm(block, "norm_mid", hidden, streams if mixed else 0)
    kind = feed_forward(block, config, i)
    return Layer(f"{'kda' if linear else 'dsa'}_{kind}", block.nodes, caches)


def _norm(block: Block, role: str, hidden: int, streams: int) -> None:
    if streams:
        mixed_norm(block, role, hidden, streams)
    else:
        block.norm(role)


def _delta_attention(block: Block, kda: Config, hidden: int, module: str) -> None:
    n, d = kda.positive("num_heads"), kda.positive("head_dim")
    weight = block.quant.linear(*(f"{module}.{name}" for name in ("q_proj", "k_proj", "v_proj")))
    block.gemm("in_proj", 3 * n * d + n + 2 * d, hidden, weight)
    block.gemm("decay_up", n * d, d, block.quant.linear(f"{module}.f_b_proj"))
    block.gemm("gate_up_rank", n * d, d, block.quant.linear(f"{module}.g_b_proj"))
    block.add(
        "RecurrentUpdate",
        role="mixer",
        recurrent_kind="kda",
        n_heads=n,
        state_size=d,
        d_h=d,
        conv_kernel=kda.positive("short_conv_kernel_size"),
        state_dtype="fp32",
    )
    block.elementwise("norm_gate", 6 * n * d)
    block.gemm("out", hidden, n * d, block.quant.linear(f"{module}.o_proj"))
    block.reduce("reduce_mixer")


def _pooled_sparse(block: Block, config: Config, m: Mla, module: str) -> None:
    """Latent attention that reads the tokens of the pools an indexer picks. Its linears are 16-bit (model.py:330)."""
    if m.q_lora is None:
        raise DocumentError(f"{config.path}: q_lora_rank is required, the indexer reads the latent of q")
    plain, q_lora = block.quant.plain, m.q_lora
    n_i, d_i = config.positive("index_n_heads"), config.positive("index_head_dim")
    block.gemm("qkv_a", q_lora + m.kv_lora + m.rope, m.hidden, plain, replicated=True)
    block.norm("norm_q_a", 4 * q_lora)
    block.norm("norm_kv_a", 4 * m.kv_lora)
    block.gemm("q_b", m.heads * (m.nope + m.rope), q_lora, plain)
    block.gemm("kv_b", m.heads * (m.nope + m.v), m.kv_lora, plain)
    block.gemm("index_q", n_i * d_i, q_lora, plain, replicated=True)
    block.gemm("index_k", d_i + n_i, m.hidden, plain, replicated=True)
    # The head weights are computed again in fp32, the pool's gate apart (attention.py:330-395).
    block.elementwise("gate", 6 * m.hidden, replicated=True)
    block.gemm("index_weights", n_i, m.hidden, plain, replicated=True)
    block.gemm("index_gate", d_i, m.hidden, plain, replicated=True)
    block.elementwise("rope", 3 * n_i * d_i + 4 * d_i, launches=3, replicated=True)
    pool = config.positive("index_kpool", default=1)
    keys = {"kind": "sparse_mla", "compress_ratio": pool} if pool > 1 else {"kind": "gqa"}
    block.add("Attention", role="index_scores", n_q=n_i, n_kv=1, d_h=d_i, **keys)
    latent_node(block, m, "sparse_mla", index_topk=config.positive("index_topk"))
    block.gemm("out", m.hidden, m.heads * m.v, plain)
    block.reduce("reduce_mixer")


def _sparse_caches(config: Config) -> list[Cache]:
    """The latent, one fp8 index key a pool, and the raw keys and gates of the pool being filled, a ring of one pool
    without drafts (attention.py:100-230)."""
    m, d_i, pool = dimensions(config), config.positive("index_head_dim"), config.positive("index_kpool", default=1)
    latent: Cache = {"id": "latent", "kind": "latent", "heads": 1, "head_dim": m.kv_lora + m.rope, "head_dim_v": 0}
    index: Cache = {"id": "index", "kind": "index", "heads": 1, "state_bytes": d_i + 4 * (d_i // 128)}
    if pool == 1:
        return [latent, index]
    tail: Cache = {"id": "pool_tail", "kind": "ring", "heads": 2, "head_dim": d_i, "head_dim_v": 0, "dtype": "bfloat16"}
    return [latent, {**index, "tokens_per_state": pool}, {**tail, "block_size": pool}]


def _state_cache(kda: Config) -> Cache:
    """One head's convolution states of q, k and v at 16 bits and its fp32 recurrent state."""
    d, kernel = kda.positive("head_dim"), kda.positive("short_conv_kernel_size")
    state = 2 * (kernel - 1) * 3 * d + 4 * d * d
    return {"id": "recurrent", "kind": "recurrent", "heads": kda.positive("num_heads"), "state_bytes": state}
