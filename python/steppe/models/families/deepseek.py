"""DeepSeek-V2, V3, R1 and the Kimi-K2 line: multi-head latent attention over a mixture of experts.

Shapes (vllm/model_executor/models/deepseek_v2.py): q_a and kv_a in one replicated GEMM where q has a rank, else q by
head and kv_a replicated (952-981); q_b, kv_b by head, out by row (983-1011); dense layers first, then experts in
every `moe_layer_freq`-th layer, shared ones as one block of n_shared·inner (288-420, 1296-1340).
"""

from __future__ import annotations

from dataclasses import dataclass

from steppe.models.architecture import Architecture, Block, Layer, Source, Speculator
from steppe.models.config import Config
from steppe.models.head import head, layer_count, tied
from steppe.models.mixers import Moe, mlp, moe


@dataclass(frozen=True)
class Mla:
    """The dimensions of a latent attention: ranks of q (None: q has none) and of keys and values, and of each head."""

    hidden: int
    heads: int
    q_lora: int | None
    kv_lora: int
    nope: int
    rope: int
    v: int


def dimensions(config: Config) -> Mla:
    return Mla(
        config.positive("hidden_size"),
        config.positive("num_attention_heads"),
        config.positive("q_lora_rank", default=None),
        config.positive("kv_lora_rank"),
        config.positive("qk_nope_head_dim"),
        config.count("qk_rope_head_dim"),
        config.positive("v_head_dim"),
    )


def latent_projections(block: Block, m: Mla, module: str) -> None:
    """Hidden state to q and to the latent of keys and values, with their norms, and rope on q's and the key's part."""
    quant = block.quant
    if m.q_lora is None:
        block.gemm("q", m.heads * (m.nope + m.rope), m.hidden, quant.linear(f"{module}.q_proj"))
        kv_a = quant.linear(f"{module}.kv_a_proj_with_mqa")
        block.gemm("kv_a", m.kv_lora + m.rope, m.hidden, kv_a, replicated=True)
    else:
        qkv_a = quant.linear(f"{module}.q_a_proj", f"{module}.kv_a_proj_with_mqa")
        block.gemm("qkv_a", m.q_lora + m.kv_lora + m.rope, m.hidden, qkv_a, replicated=True)
        block.norm("norm_q_a", 4 * m.q_lora)
    block.norm("norm_kv_a", 4 * m.kv_lora)
    if m.q_lora is not None:
        block.gemm("q_b", m.heads * (m.nope + m.rope), m.q_lora, quant.linear(f"{module}.q_b_proj"))
    block.gemm("kv_b", m.heads * (m.nope + m.v), m.kv_lora, quant.linear(f"{module}.kv_b_proj"))
    if m.rope:
        block.elementwise("rope", 4 * (m.heads + 1) * m.rope)


def latent_output(block: Block, m: Mla, module: str) -> None:
    block.gemm("out", m.hidden, m.heads * m.v, block.quant.linear(f"{module}.o_proj"))
    block.reduce("reduce_mixer")


def latent_attention(block: Block, m: Mla, module: str) -> None:
    """A dense MLA layer's mixer: one latent vector a token, read by every head."""
    latent_projections(block, m, module)
    latent_node(block, m, "mla")
    latent_output(block, m, module)


def latent_node(block: Block, m: Mla, kind: str, **keys: int | None) -> None:
    block.add(
        "Attention",
        kind=kind,
        n_q=m.heads,
        n_kv=1,
        d_h=m.kv_lora + m.rope,
        kv_lora_rank=m.kv_lora,
        qk_rope_head_dim=m.rope,
        **keys,
    )


def deepseek(source: Source) -> Architecture:
    """A stack of dense latent layers, then latent layers with experts; the prediction module the config announces."""
    config = source.config
    hidden, vocab, count = config.positive("hidden_size"), config.positive("vocab_size"), layer_count(source)
    m = dimensions(config)

    def layer(i: int) -> Layer:
        block = Block(source.quant)
        block.norm("norm_in")
        latent_attention(block, m, f"layers.{i}.self_attn")
        block.norm("norm_mid")
        kind = feed_forward(block, config, i)
        return Layer(f"mla_{kind}", block.nodes)

    layers = [layer(i) for i in range(count)]
    modules = config.count("num_nextn_predict_layers", default=0)
    speculator = predictor(source, [layer(count + i) for i in range(modules)]) if modules else None
    return Architecture(hidden, vocab, tied(source), layers, head(source, hidden, vocab), speculator)


def feed_forward(block: Block, config: Config, i: int) -> str:
    """The feed-forward block of layer `i`: "moe" or "dense" (deepseek_v2.py:1296-1301)."""
    routed = config.count("n_routed_experts", default=0)
    first, every = config.count("first_k_dense_replace", default=0), config.positive("moe_layer_freq", default=1)
    if not routed or i < first or i % every:
        mlp(block, f"layers.{i}.mlp", config.positive("hidden_size"), config.positive("intermediate_size"))
        return "dense"
    moe(block, routed_experts(config, f"layers.{i}.mlp"))
    return "moe"


def routed_experts(config: Config, module: str, *, fp32_router: bool = False) -> Moe:
    return Moe(
        module,
        config.positive("hidden_size"),
        config.positive("moe_intermediate_size"),
        config.positive("n_routed_experts"),
        config.positive("num_experts_per_tok"),
        shared=config.count("n_shared_experts", default=0),
        fp32_router=fp32_router,
    )


def predictor(source: Source, layers: list[Layer]) -> Speculator:
    """A multi-token-prediction module in the target's checkpoint: norms of the embedding and of the hidden state, their
    joint projection, 2·hidden to hidden and whole on every rank, then a decoder layer
    (vllm/model_executor/models/deepseek_mtp.py:75-145)."""
    hidden = source.config.positive("hidden_size")
    drafted = []
    for layer in layers:
        block = Block(source.quant)
        block.norm("norm_embed")
        block.norm("norm_hidden")
        block.gemm("fuse", hidden, 2 * hidden, source.quant.plain, replicated=True)
        drafted.append(Layer(f"mtp_{layer.kind}", block.nodes + layer.nodes, layer.caches))
    return Speculator("mtp", len(layers), drafted)
