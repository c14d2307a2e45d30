"""Kimi-Linear and Kimi-K3: Kimi-delta-attention layers with latent attention without rope every few layers.

Shapes: q, k, v, the beta and the low-rank decay gate in one projection, K3's full-rank output gate with them
(vllm/models/kimi_k3/nvidia/kda.py:536-600, vllm/model_executor/layers/mamba/gdn/kimi_gdn_linear_attn.py:120-252);
latent layers with q direct or low-rank, K3's with an output gate (vllm/models/kimi_k3/nvidia/mla.py:140-240); experts
in a latent space between replicated projections, shared ones outside it (vllm/models/kimi_k3/nvidia/model.py:517-700).
K3's residual mixes the outputs of earlier blocks of layers, one kernel a norm (model.py:999-1061).
"""

from __future__ import annotations

from steppe.errors import DocumentError
from steppe.models.architecture import Architecture, Block, Layer, Source
from steppe.models.config import Config
from steppe.models.families.deepseek import Mla, dimensions, latent_node, latent_output, predictor
from steppe.models.head import head, layer_count, tied
from steppe.models.mixers import Moe, mlp, moe, router


def kimi_linear(source: Source) -> Architecture:
    config = source.config
    hidden, vocab, count = config.positive("hidden_size"), config.positive("vocab_size"), layer_count(source)
    kda = _kda_layers(config, count)
    layers = [_layer(source, i, kda=i in kda, mixes=config.has("attn_res_block_size")) for i in range(count)]
    modules = config.count("num_nextn_predict_layers", default=0)
    drafted = [_layer(source, count + i, kda=False, mixes=False) for i in range(modules)]
    speculator = predictor(source, drafted) if drafted else None
    return Architecture(hidden, vocab, tied(source), layers, head(source, hidden, vocab), speculator)


def _kda_layers(config: Config, count: int) -> set[int]:
    """Layers with delta attention; the config counts from one (vllm/transformers_utils/configs/kimi_linear.py:157)."""
    stated = config.section("linear_attn_config").items("kda_layers")
    layers = {int(i) - 1 for i in stated}
    if layers - set(range(count)):
        raise DocumentError(f"{config.path}: linear_attn_config.kda_layers names a layer beyond {count}")
    return layers


def _layer(source: Source, i: int, *, kda: bool, mixes: bool) -> Layer:
    config = source.config
    hidden, module = config.positive("hidden_size"), f"layers.{i}.self_attn"
    block = Block(source.quant)
    _norm(block, config, "norm_in", mixes)
    if kda:
        delta_attention(block, config.section("linear_attn_config"), hidden, module)
    else:
        unroped_latent(block, dimensions(config), module, gate=config.flag("mla_use_output_gate"))
    _norm(block, config, "norm_mid", mixes)
    experts = config.count("num_experts", default=0)
    first, every = config.count("first_k_dense_replace", default=0), config.positive("moe_layer_freq", default=1)
    sparse = bool(experts) and i >= first and i % every == 0
    if sparse:
        _experts(block, config, f"layers.{i}.block_sparse_moe")
    else:
        mlp(block, f"layers.{i}.mlp", hidden, config.positive("intermediate_size"))
    return Layer(f"{'kda' if kda else 'mla'}_{'moe' if sparse else 'dense'}", block.nodes)


def _norm(block: Block, config: Config, role: str, mixes: bool) -> None:
    """A norm; or K3's mix of prefix, delta and the outputs of the blocks so far, normalised. The blocks read are
    half of all of them on average, charged to every layer alike."""
    if not mixes:
        block.norm(role)
        return
    size, layers = config.positive("attn_res_block_size"), config.positive("num_hidden_layers")
    blocks = -(-layers // size)
    block.norm(role, 2 * config.positive("hidden_size") * (3 + blocks // 2))


def delta_attention(block: Block, kda: Config, hidden: int, module: str) -> None:
    """A KDA mixer. Only K3's gate is full-rank and part of the input projection; else two small GEMMs make it."""
    n, d = kda.positive("num_heads"), kda.positive("head_dim")
    full = kda.flag("use_full_rank_gate")
    weight = block.quant.linear(*(f"{module}.{name}" for name in ("q_proj", "k_proj", "v_proj")))
    block.gemm("in_proj", (4 if full else 3) * n * d + d + n, hidden, weight)
    block.gemm("decay_up", n * d, d, block.quant.linear(f"{module}.f_b_proj"))
    if not full:
        block.gemm("gate_down", d, hidden, block.quant.linear(f"{module}.g_a_proj"), replicated=True)
        block.gemm("gate_up_rank", n * d, d, block.quant.linear(f"{module}.g_b_proj"))
    # The state is fp32 unless the deployment says otherwise (vllm/model_executor/layers/mamba/mamba_utils.py).
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


def unroped_latent(block: Block, m: Mla, module: str, *, gate: bool) -> None:
    quant = block.quant
    if m.q_lora is None:
        block.gemm("q", m.heads * (m.nope + m.rope), m.hidden, quant.linear(f"{module}.q_proj"))
        kv_a = quant.linear(f"{module}.kv_a_proj_with_mqa")
        block.gemm("kv_a", m.kv_lora + m.rope, m.hidden, kv_a, replicated=True)
        block.norm("norm_kv_a", 4 * m.kv_lora)
    else:
        qkv_a = quant.linear(f"{module}.q_a_proj", f"{module}.kv_a_proj_with_mqa")
        block.gemm("qkv_a", m.q_lora + m.kv_lora + m.rope, m.hidden, qkv_a, replicated=True)
        # Both latents are normalised by one kernel (vllm/models/common/ops, fused_q_kv_rmsnorm).
        block.norm("norm_q_a", 4 * (m.q_lora + m.kv_lora))
        block.gemm("q_b", m.heads * (m.nope + m.rope), m.q_lora, quant.linear(f"{module}.q_b_proj"))
    if gate:
        block.gemm("attn_gate_proj", m.heads * m.v, m.hidden, quant.linear(f"{module}.g_proj"))
    block.gemm("kv_b", m.heads * (m.nope + m.v), m.kv_lora, quant.linear(f"{module}.kv_b_proj"))
    latent_node(block, m, "mla")
    if gate:
        block.elementwise("attn_gate", 6 * m.heads * m.v)
    latent_output(block, m, module)


def _experts(block: Block, config: Config, module: str) -> None:
    hidden, latent = config.positive("hidden_size"), config.count("routed_expert_hidden_size", default=0)
    inner, count = config.positive("moe_intermediate_size"), config.positive("num_experts")
    top_k = config.positive("num_experts_per_token", "num_experts_per_tok")
    shared = config.count("num_shared_experts", default=0)
    if not latent:
        moe(block, Moe(module, hidden, inner, count, top_k, shared=shared))
        return
    quant = block.quant
    router(block, count, hidden)
    down, up = quant.plain, quant.plain
    block.gemm("latent_down", latent, hidden, down, replicated=True)
    if shared:
        width, name = shared * inner, f"{module}.shared_experts"
        weight = quant.linear(f"{name}.gate_proj", f"{name}.up_proj")
        block.gemm("shared_gate_up", 2 * width, hidden, weight)
        block.elementwise("activation", 6 * width)
        block.gemm("shared_down", hidden, width, quant.linear(f"{name}.down_proj"))
    routed = quant.experts(f"{module}.experts")
    block.experts(inner, latent, routed, experts=count, top_k=top_k, latent_size=latent)
    block.add("All2All", role="dispatch_combine", emit="expert_parallel")
    # Latent and shared partial sums are reduced together, then led back (kimi_k3/nvidia/latent_moe_runner.py).
    block.reduce(
        "reduce_mlp", "tensor_parallel_unless_sp_moe", bytes_per_token=2 * (latent + (hidden if shared else 0))
    )
    if config.flag("latent_moe_use_norm"):
        block.norm("norm_latent", 4 * latent, replicated=True)
    block.gemm("latent_up", hidden, latent, up, replicated=True)
