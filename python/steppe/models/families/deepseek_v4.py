"""DeepSeek-V4: windowed latent attention that also reads compressed tokens, all of them or those an indexer picks.

Shapes (vllm/models/deepseek_v4/attention.py): q's latent and the single key-value head in one replicated projection,
q by head, the output in groups of a low rank and then by row (206-249); layers of ratio 4 have an indexer, layers of
ratio above 1 a compressor (264-283, 375-387); experts in all layers, hyper-connections around every block
(vllm/models/deepseek_v4/nvidia/model.py:1191-1300). Caches: a window of records in every layer, compressed records and
index keys in their layers, fp32 compressor states (attention.py:856-920, compressor.py:139-180), at the sizes of
`fp8_ds_mla`, which `auto` means here (attention.py:93-128).
"""

from __future__ import annotations

from collections.abc import Callable

from steppe.errors import DeploymentError, DocumentError
from steppe.models.architecture import Architecture, Block, Cache, Layer, Source, Speculator
from steppe.models.config import Config
from steppe.models.families.deepseek import routed_experts
from steppe.models.families.hyper import mixed_norm
from steppe.models.head import head, layer_count, tied
from steppe.models.mixers import moe

_RECORD, _ALIGNMENT, _BLOCK = 584, 576, 256


def deepseek_v4(source: Source) -> Architecture:
    config = source.config
    hidden, vocab, count = config.positive("hidden_size"), config.positive("vocab_size"), layer_count(source)
    ratios = [max(1, int(r)) for r in config.items("compress_ratios")]
    if len(ratios) < count:
        raise DocumentError(f"{config.path}: compress_ratios has {len(ratios)} entries for {count} layers")
    layers = [_layer(source, f"layers.{i}", ratios[i]) for i in range(count)]
    modules = config.count("num_nextn_predict_layers", default=0)
    speculator = _predictor(source, modules) if modules else None
    return Architecture(hidden, vocab, tied(source), layers, head(source, hidden, vocab), speculator)


def _layer(source: Source, module: str, ratio: int) -> Layer:
    config = source.config
    hidden, streams = config.positive("hidden_size"), config.positive("hc_mult")
    if ratio not in (1, 4, 128):
        raise DeploymentError(f"{config.path}: compress_ratios holds {ratio}; known: 0, 1, 4, 128")
    block = Block(source.quant)
    mixed_norm(block, "norm_in", hidden, streams)
    attention = {1: _window, 4: _picked, 128: _compressed}[ratio]
    compressed_latent(block, config, f"{module}.attn", lambda b: attention(b, config, f"{module}.attn"))
    mixed_norm(block, "norm_mid", hidden, streams)
    moe(block, routed_experts(config, f"{module}.ffn"))
    kind = {1: "window_moe", 4: "csa4_moe", 128: "hca128_moe"}[ratio]
    return Layer(kind, block.nodes, _caches(config, ratio))


def compressed_latent(block: Block, config: Config, module: str, attend: Callable[[Block], None]) -> None:
    """The projections around a compressed latent attention: `attend` adds what stands between them."""
    quant, hidden = block.quant, config.positive("hidden_size")
    n, d, q_lora = config.positive("num_attention_heads"), config.positive("head_dim"), config.positive("q_lora_rank")
    groups, rank = config.positive("o_groups"), config.positive("o_lora_rank")
    if (n * d) % groups:
        raise DocumentError(f"{config.path}: o_groups {groups} does not divide {n} heads of {d}")
    block.gemm("qkv_a", q_lora + d, hidden, quant.linear(f"{module}.wq_a", f"{module}.wkv"), replicated=True)
    block.norm("norm_q_a", 4 * (q_lora + d))
    block.gemm("q_b", n * d, q_lora, quant.linear(f"{module}.wq_b"))
    # q's norm, rope on q and the key, and the window cache's write are one kernel.
    block.elementwise("rope", 4 * (n + 1) * d)
    attend(block)
    # Rope is undone on the output and the output cast by one kernel; then one product a group.
    block.elementwise("rope", 3 * n * d)
    block.gemm("out_a", groups * rank, n * d // groups, quant.linear(f"{module}.wo_a"))
    block.gemm("out", hidden, groups * rank, quant.linear(f"{module}.wo_b"))
    block.reduce("reduce_mixer")


def sparse_node(block: Block, config: Config, **keys: int | None) -> None:
    n, d = config.positive("num_attention_heads"), config.positive("head_dim")
    window = config.positive("sliding_window")
    block.add("Attention", kind="sparse_mla", n_q=n, n_kv=1, d_h=d, window=window, **keys)


def window_node(block: Block, config: Config) -> None:
    n, d = config.positive("num_attention_heads"), config.positive("head_dim")
    block.add("Attention", kind="swa", n_q=n, n_kv=1, d_h=d, window=config.positive("sliding_window"))


def _window(block: Block, config: Config, module: str) -> None:
    """A pure window over the single key-value head."""
    window_node(block, config)


def _compressed(block: Block, config: Config, module: str) -> None:
    _compressor(block, config, "compress", 128, config.positive("head_dim"))
    sparse_node(block, config, compress_ratio=128)


def _picked(block: Block, config: Config, module: str) -> None:
    hidden, plain = config.positive("hidden_size"), block.quant.plain
    n_i, d_i = config.positive("index_n_heads"), config.positive("index_head_dim")
    _compressor(block, config, "compress", 4, config.positive("head_dim"))
    _compressor(block, config, "index_k", 4, d_i)
    block.gemm("index_weights", n_i, hidden, plain, replicated=True)
    wq_b = block.quant.linear(f"{module}.indexer.wq_b")
    block.gemm("index_q", n_i * d_i, config.positive("q_lora_rank"), wq_b, replicated=True)
    block.elementwise("rope", 3 * n_i * d_i, replicated=True)
    block.add("Attention", role="block_index_scores", kind="sparse_mla", n_q=n_i, n_kv=1, d_h=d_i, compress_ratio=4)
    sparse_node(block, config, index_topk=config.positive("index_topk"), compress_ratio=4)


def _compressor(block: Block, config: Config, role: str, ratio: int, d: int) -> None:
    """Key and gate of the tokens being pooled, both of twice the width where windows overlap (ratio 4); then the
    partial state's write and the pooled token's norm, rope and write (compressor.py:215-300)."""
    width = 2 * _overlap(ratio) * d
    block.gemm(role, width, config.positive("hidden_size"), block.quant.plain, replicated=True)
    block.elementwise("rope", 8 * width, launches=2, replicated=True)


def _overlap(ratio: int) -> int:
    return 2 if ratio == 4 else 1


def _caches(config: Config, ratio: int) -> list[Cache]:
    d, d_i = config.positive("head_dim"), config.count("index_head_dim", default=128)
    caches = [
        _cache("window", "window", _RECORD, window=config.positive("sliding_window"), block_size=64),
    ]
    if ratio == 1:
        return caches
    caches.append(_cache(f"compressed_{ratio}", "compressed", _RECORD, tokens_per_state=ratio, block_size=_BLOCK))
    caches.append(_state_cache(f"state_{ratio}", ratio, d))
    if ratio == 4:
        # fp8 keys with a 4-byte scale a 128 values (vllm/v1/attention/backends/mla/indexer.py:58-73).
        caches.append(_cache("index", "index", d_i + 4 * (d_i // 128), tokens_per_state=ratio, block_size=_BLOCK))
        caches.append(_state_cache("index_state", ratio, d_i))
    return caches


def _cache(name: str, kind: str, state_bytes: int, **keys: int) -> Cache:
    return {"id": name, "kind": kind, "heads": 1, "state_bytes": state_bytes, **keys, "alignment": _ALIGNMENT}


def _state_cache(name: str, ratio: int, d: int) -> Cache:
    """fp32 key and gate of the tokens not yet pooled, kept as a window (compressor.py:139-180)."""
    overlap = _overlap(ratio)
    block_size = 4 if ratio == 4 else 8
    return _cache(name, "window", 4 * 2 * overlap * d, window=overlap * ratio, block_size=block_size)


def _predictor(source: Source, modules: int) -> Speculator:
    """A window layer behind two projections, of the embedding and of every residual stream
    (vllm/models/deepseek_v4/nvidia/mtp.py:95-190). The second runs on each stream and is stated once."""
    config = source.config
    hidden = config.positive("hidden_size")
    layers = []
    for i in range(modules):
        inner = _layer(source, f"mtp.{i}", 1)
        block = Block(source.quant)
        block.norm("norm_embed", 2 * hidden * (2 + 2 * config.positive("hc_mult")))
        for role in ("fuse", "fuse_hidden"):
            weight = source.quant.linear(f"mtp.{i}.{'e_proj' if role == 'fuse' else 'h_proj'}")
            block.gemm(role, hidden, hidden, weight, replicated=True)
        layers.append(Layer(f"mtp_{inner.kind}", block.nodes + inner.nodes, inner.caches))
    return Speculator("mtp", modules, layers)
