"""Grouped-query decoders whose feed-forward blocks are mixtures of experts: Mixtral, Qwen3-MoE, MiniMax-M2, gpt-oss."""

from __future__ import annotations

from steppe.models.architecture import Architecture, Block, Layer, Source
from steppe.models.config import Config, heads
from steppe.models.head import head, layer_count, tied, window_of
from steppe.models.mixers import Gqa, Moe, attend, attention, mlp, moe


def mixtral(source: Source) -> Architecture:
    """Mixtral: experts in every layer (vllm/model_executor/models/mixtral.py:70-300)."""
    config = source.config
    hidden, vocab, count = config.positive("hidden_size"), config.positive("vocab_size"), layer_count(source)
    n_q, n_kv, d_h = heads(config)
    layers = []
    for i in range(count):
        window = window_of(source, i, count)
        block = Block(source.quant)
        block.norm("norm_in")
        attention(block, Gqa(f"layers.{i}.self_attn", hidden, n_q, n_kv, d_h, window=window))
        block.norm("norm_mid")
        moe(block, _local_experts(config, f"layers.{i}.block_sparse_moe"))
        layers.append(Layer("window_moe" if window else "full_moe", block.nodes))
    return Architecture(hidden, vocab, tied(source), layers, head(source, hidden, vocab))


def qwen3_moe(source: Source) -> Architecture:
    """Qwen3-MoE: per-head q/k norms, experts in every `decoder_sparse_step`-th layer that `mlp_only_layers` does not
    name (vllm/model_executor/models/qwen3_moe.py:127-247, 249-350, 395-425)."""
    config = source.config
    hidden, vocab, count = config.positive("hidden_size"), config.positive("vocab_size"), layer_count(source)
    n_q, n_kv, d_h = heads(config)
    step, dense = config.positive("decoder_sparse_step", default=1), config.items("mlp_only_layers", default=[])
    layers = []
    for i in range(count):
        block = Block(source.quant)
        block.norm("norm_in")
        attention(block, Gqa(f"layers.{i}.self_attn", hidden, n_q, n_kv, d_h, qk_norm=True))
        block.norm("norm_mid")
        sparse = i not in dense and (i + 1) % step == 0
        if sparse:
            moe(block, qwen_experts(config, f"layers.{i}.mlp"))
        else:
            mlp(block, f"layers.{i}.mlp", hidden, config.positive("intermediate_size"))
        layers.append(Layer("full_moe" if sparse else "full_dense", block.nodes))
    return Architecture(hidden, vocab, tied(source), layers, head(source, hidden, vocab))


def qwen_experts(config: Config, module: str) -> Moe:
    """Experts as Qwen states them; a shared expert has a sigmoid gate of its own (qwen3_moe.py:165-194)."""
    shared = config.count("shared_expert_intermediate_size", default=0)
    return Moe(
        module,
        config.positive("hidden_size"),
        config.positive("moe_intermediate_size"),
        config.positive("num_experts"),
        config.positive("num_experts_per_tok"),
        shared=1 if shared else 0,
        shared_inner=shared or None,
        shared_name="shared_expert",
        shared_gate=bool(shared),
    )


def minimax_m2(source: Source) -> Architecture:
    """MiniMax-M2 and M2.5: q and k are normalised over the heads of all ranks, whose two sums of squares a token are
    reduced (eight bytes); the router is fp32 (vllm/model_executor/models/minimax_m2.py:71-137, 139-262)."""
    config = source.config
    hidden, vocab, count = config.positive("hidden_size"), config.positive("vocab_size"), layer_count(source)
    layers = []
    for i in range(count):
        block = Block(source.quant)
        block.norm("norm_in")
        cross_rank_attention(block, config, f"layers.{i}.self_attn")
        block.norm("norm_mid")
        moe(block, _local_experts(config, f"layers.{i}.block_sparse_moe", fp32_router=True))
        layers.append(Layer("full_moe", block.nodes))
    return Architecture(hidden, vocab, tied(source), layers, head(source, hidden, vocab))


def cross_rank_attention(block: Block, config: Config, module: str) -> None:
    """Attention with the norm of q and k over all ranks' heads. One rank alone launches two kernels for it; more
    launch a variance each, their reduction and a scale each."""
    n_q, n_kv, d_h = heads(config)
    hidden = config.positive("hidden_size")
    a = Gqa(module, hidden, n_q, n_kv, d_h)
    weight = block.quant.linear(*(f"{module}.{name}" for name in ("q_proj", "k_proj", "v_proj")))
    block.gemm("qkv", (n_q + 2 * n_kv) * d_h, hidden, weight)
    if config.flag("use_qk_norm", True):
        block.elementwise("qk_norm", 6 * (n_q + n_kv) * d_h, launches=2)
        block.reduce("qk_norm_reduce", bytes_per_token=8)
    block.elementwise("rope", 4 * (n_q + n_kv) * d_h)
    attend(block, a)
    block.gemm("out", hidden, n_q * d_h, block.quant.linear(f"{module}.o_proj"))
    block.reduce("reduce_mixer")


def gpt_oss(source: Source) -> Architecture:
    """gpt-oss: every other layer, the first included, attends within the window; biases on all linears and sinks in
    the attention, which move nothing worth counting (vllm/model_executor/models/gpt_oss.py:91-200, 308-365)."""
    config = source.config
    hidden, vocab, count = config.positive("hidden_size"), config.positive("vocab_size"), layer_count(source)
    n_q, n_kv, d_h = heads(config)
    layers = []
    for i in range(count):
        window = config.positive("sliding_window") if i % 2 == 0 else None
        block = Block(source.quant)
        block.norm("norm_in")
        attention(block, Gqa(f"layers.{i}.self_attn", hidden, n_q, n_kv, d_h, window=window))
        block.norm("norm_mid")
        moe(block, _local_experts(config, f"layers.{i}.mlp"))
        caches = [kv_cache(n_kv, d_h, window)]
        layers.append(Layer("window_moe" if window else "full_moe", block.nodes, caches))
    return Architecture(hidden, vocab, tied(source), layers, head(source, hidden, vocab))


def kv_cache(n_kv: int, d_h: int, window: int | None = None, *, d_v: int | None = None) -> dict[str, object]:
    """The stated cache of one layer of keys and values."""
    cache: dict[str, object] = {"id": f"window_{window}" if window else "full", "kind": "window" if window else "full"}
    cache |= {"heads": n_kv, "head_dim": d_h}
    if d_v is not None and d_v != d_h:
        cache["head_dim_v"] = d_v
    if window:
        cache["window"] = window
    return cache


def _local_experts(config: Config, module: str, *, fp32_router: bool = False) -> Moe:
    return Moe(
        module,
        config.positive("hidden_size"),
        config.positive("intermediate_size"),
        config.positive("num_local_experts"),
        config.positive("num_experts_per_tok"),
        fp32_router=fp32_router,
    )
