"""Drafters with a checkpoint of their own: EAGLE, EAGLE3, DFlash, DSpark.

Such a graph's stack is the draft's layers, its head the draft's own or the target's; `speculator` repeats the stack and
says what the layers do not: which target layers are captured, the query rows a request, the Markov head's rank, the
draft's vocabulary. The projection of the captured states, taps·(target hidden) to hidden and whole on every rank,
follows from these and is no node, as it runs on other rows than the layers
(vllm/model_executor/models/llama_eagle3.py:198-250, vllm/model_executor/models/qwen3_dflash.py:108-117,
vllm/models/kimi_k3/nvidia/dspark_mla.py:150-157).
"""

from __future__ import annotations

from typing import Any

from steppe.errors import DocumentError
from steppe.models.architecture import Architecture, Block, Layer, Source, Speculator
from steppe.models.config import Config, heads
from steppe.models.families.deepseek import dimensions, latent_attention
from steppe.models.head import head, layer_count, tied
from steppe.models.mixers import Gqa, attend, attention, mlp


def eagle(source: Source) -> Architecture:
    """EAGLE: a projection of embedding and hidden state, then Llama layers (llama_eagle.py:85-139)."""
    config = source.config
    hidden, count = config.positive("hidden_size"), layer_count(source)
    layers = [_dense_layer(source, f"layers.{i}", hidden) for i in range(count)]
    fuse = Block(source.quant)
    fuse.gemm("fuse", hidden, 2 * hidden, source.quant.linear("fc"), replicated=True)
    layers[0] = Layer("eagle_first_dense", fuse.nodes + layers[0].nodes)
    return _draft(source, "eagle", layers, {})


def eagle3(source: Source) -> Architecture:
    """EAGLE3: the first layer reads embedding and hidden state side by side, both normalised
    (llama_eagle3.py:67-151, 310-392; qwen3_eagle3.py with norms on q and k)."""
    config = source.config
    hidden, count = config.positive("hidden_size"), layer_count(source)
    qk_norm = "Qwen3" in " ".join(str(a) for a in config.items("architectures", default=[]))
    layers = []
    for i in range(count):
        width = 2 * hidden if i == 0 else hidden
        layer = _dense_layer(source, f"layers.{i}", width, qk_norm=qk_norm)
        if i == 0:
            block = Block(source.quant)
            block.norm("norm_hidden")
            layer = Layer("eagle3_first_dense", block.nodes + layer.nodes)
        layers.append(layer)
    extra: dict[str, Any] = {"hidden_taps": _taps(source)}
    return _draft(source, "eagle3", layers, extra)


def dflash(source: Source) -> Architecture:
    """DFlash: Qwen3 layers over a block of mask tokens (qwen3_dflash.py:150-393)."""
    config = source.config
    block = config.positive("block_size", default=16)
    return _draft(source, "dflash", _flash_layers(source), {"hidden_taps": _taps(source), "block": block})


def dspark(source: Source) -> Architecture:
    """DSpark over Qwen3 layers: DFlash's, with a Markov head of a rank (qwen3_dspark.py:48-230)."""
    return _draft(source, "dspark", _flash_layers(source), _markov(source))


def k3_dspark(source: Source) -> Architecture:
    """Kimi-K3's DSpark: dense layers of latent attention with rope (kimi_k3/nvidia/dspark_mla.py:61-208)."""
    config = source.config
    m = dimensions(config)
    layers = []
    for i in range(layer_count(source)):
        block = Block(source.quant)
        block.norm("norm_in")
        latent_attention(block, m, f"layers.{i}.self_attn")
        block.norm("norm_mid")
        mlp(block, f"layers.{i}.mlp", config.positive("hidden_size"), config.positive("intermediate_size"))
        layers.append(Layer("mla_dense", block.nodes))
    return _draft(source, "dspark", layers, _markov(source))


def _draft(source: Source, method: str, layers: list[Layer], extra: dict[str, Any]) -> Architecture:
    config = source.config
    hidden, vocab = config.positive("hidden_size"), config.positive("vocab_size")
    own = config.positive("draft_vocab_size", default=vocab)
    if own != vocab:
        extra = {**extra, "draft_vocab_size": own}
    # An EAGLE checkpoint brings a head where it drafts from a vocabulary of its own (models/utils.py:1099-1119).
    extra["own_lm_head"] = own != vocab or method in ("eagle3", "dspark")
    tokens = config.positive("num_speculative_tokens", "block_size", default=3)
    speculator = Speculator(method, tokens, layers, extra)
    return Architecture(hidden, vocab, tied(source), layers, head(source, hidden, own), speculator)


def _markov(source: Source) -> dict[str, Any]:
    config = source.config
    return {
        "hidden_taps": _taps(source),
        "block": config.positive("block_size", "dspark_block_size"),
        "markov_rank": config.positive("markov_rank", "dspark_markov_rank"),
    }


def _taps(source: Source) -> list[int]:
    """Target layers whose hidden state is captured: as stated, else EAGLE3's default of the third, the middle and the
    third from last (vllm/model_executor/models/interfaces.py:1703-1715), which needs the target's layer count."""
    config = source.config
    stated = _stated_taps(config)
    if stated:
        return stated
    if source.target_layers is None:
        raise DocumentError(
            f"{config.path}: missing key 'eagle_aux_hidden_state_layer_ids' or 'target_layer_ids'; the default layers "
            "follow from the target's layer count, which was not given"
        )
    n = source.target_layers
    return [2, n // 2, n - 3]


def _stated_taps(config: Config) -> list[int]:
    sections = [config] + [config.section(k) for k in ("dflash_config", "eagle_config") if config.has(k)]
    for section in sections:
        for key in ("eagle_aux_hidden_state_layer_ids", "target_layer_ids", "aux_hidden_state_layer_ids"):
            found = section.items(key, default=[])
            if found:
                return [int(i) for i in found]
    return []


def _dense_layer(source: Source, module: str, width: int, *, qk_norm: bool = False) -> Layer:
    """A Llama layer whose qkv reads `width` values."""
    config = source.config
    hidden = config.positive("hidden_size")
    n_q, n_kv, d_h = heads(config)
    block = Block(source.quant)
    block.norm("norm_in")
    a = Gqa(f"{module}.self_attn", hidden, n_q, n_kv, d_h, qk_norm=qk_norm)
    if width == hidden:
        attention(block, a)
    else:
        _wide_attention(block, a, width)
    block.norm("norm_mid")
    mlp(block, f"{module}.mlp", hidden, config.positive("intermediate_size"))
    return Layer("full_dense", block.nodes)


def _wide_attention(block: Block, a: Gqa, width: int) -> None:
    weight = block.quant.linear(*(f"{a.module}.{name}" for name in ("q_proj", "k_proj", "v_proj")))
    block.gemm("qkv", (a.n_q + 2 * a.n_kv) * a.d_h, width, weight)
    qk_bytes = 4 * (a.n_q + a.n_kv) * a.d_h
    if a.qk_norm:
        block.elementwise("qk_norm", qk_bytes)
    block.elementwise("rope", qk_bytes)
    attend(block, a)
    block.gemm("out", a.hidden, a.n_q * a.d_h, block.quant.linear(f"{a.module}.o_proj"))
    block.reduce("reduce_mixer")


def _flash_layers(source: Source) -> list[Layer]:
    """Qwen3 layers, windowed as `layer_types` or `dflash_config.use_swa` say (qwen3_dflash.py:119-180)."""
    config = source.config
    hidden, count = config.positive("hidden_size"), layer_count(source)
    n_q, n_kv, d_h = heads(config)
    flash = config.section("dflash_config") if config.has("dflash_config") else Config({}, path=config.path)
    types = config.per_layer("layer_types", count) if config.has("layer_types") else [""] * count
    everywhere = flash.flag("use_swa") and "sliding_attention" not in types
    layers = []
    for i in range(count):
        window = None
        if everywhere or types[i] == "sliding_attention":
            window = flash.positive("swa_window_size", default=0) or config.positive("sliding_window")
        block = Block(source.quant)
        block.norm("norm_in")
        attention(block, Gqa(f"layers.{i}.self_attn", hidden, n_q, n_kv, d_h, qk_norm=True, window=window))
        block.norm("norm_mid")
        mlp(block, f"layers.{i}.mlp", hidden, config.positive("intermediate_size"))
        layers.append(Layer("window_dense" if window else "full_dense", block.nodes))
    return layers
