"""Qwen3-Next and Qwen3.5: gated delta-net layers, with gated full attention every few layers.

Shapes: in_proj of 2·key + 2·value rows, b and a in a second GEMM of two rows a value head
(vllm/model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py:396-507, 560-612); attention with an output gate as wide
as q, whose split, norms and rope are one kernel (vllm/model_executor/models/qwen3_next.py:285-440); every layer with
experts and a gated shared one, or dense throughout (qwen3_next.py:128-240, qwen3_5.py:114-175).
"""

from __future__ import annotations

from steppe.errors import DocumentError
from steppe.models.architecture import Architecture, Block, Layer, Source, Speculator
from steppe.models.config import Config, heads
from steppe.models.families.moe import qwen_experts
from steppe.models.head import head, layer_count, tied
from steppe.models.mixers import Gqa, attend, mlp, moe
from steppe.models.weights import Weight


def qwen_hybrid(source: Source) -> Architecture:
    config = source.config
    hidden, vocab, count = config.positive("hidden_size"), config.positive("vocab_size"), layer_count(source)
    kinds = layer_kinds(config, count)
    layers = [hybrid_layer(source, f"layers.{i}", i, kinds[i]) for i in range(count)]
    return Architecture(hidden, vocab, tied(source), layers, head(source, hidden, vocab), _predictor(source, count))


def layer_kinds(config: Config, count: int) -> list[str]:
    """`layer_types`, or full attention every `full_attention_interval`-th layer
    (vllm/transformers_utils/configs/qwen3_next.py)."""
    if not config.has("layer_types"):
        interval = config.positive("full_attention_interval", default=4)
        return ["full_attention" if (i + 1) % interval == 0 else "linear_attention" for i in range(count)]
    kinds = [str(kind) for kind in config.per_layer("layer_types", count)]
    for kind in kinds:
        if kind not in ("full_attention", "linear_attention"):
            raise DocumentError(f"{config.path}: layer_types holds {kind!r}; known: full_attention, linear_attention")
    return kinds


def hybrid_layer(source: Source, module: str, i: int, kind: str) -> Layer:
    config = source.config
    hidden = config.positive("hidden_size")
    block = Block(source.quant)
    block.norm("norm_in")
    if kind == "full_attention":
        gated_attention(block, config, f"{module}.self_attn")
    else:
        delta_net(block, config, f"{module}.linear_attn")
    block.norm("norm_mid")
    experts = config.count("num_experts", default=0)
    step, dense = config.positive("decoder_sparse_step", default=1), config.items("mlp_only_layers", default=[])
    sparse = bool(experts) and i not in dense and (i + 1) % step == 0
    if sparse:
        moe(block, qwen_experts(config, f"{module}.mlp"))
    else:
        mlp(block, f"{module}.mlp", hidden, config.positive("intermediate_size"))
    mixer = "full" if kind == "full_attention" else "gdn"
    return Layer(f"{mixer}_{'moe' if sparse else 'dense'}", block.nodes)


def gated_attention(block: Block, config: Config, module: str) -> None:
    n_q, n_kv, d_h = heads(config)
    hidden = config.positive("hidden_size")
    gates = n_q if config.flag("attn_output_gate", True) else 0
    a = Gqa(module, hidden, n_q, n_kv, d_h)
    weight = block.quant.linear(*(f"{module}.{name}" for name in ("q_proj", "k_proj", "v_proj")))
    block.gemm("qkv", (n_q + gates + 2 * n_kv) * d_h, hidden, weight)
    # Split, q/k norm, rope and the gate's copy are one kernel.
    block.elementwise("rope", 4 * (n_q + gates + n_kv) * d_h)
    attend(block, a)
    if gates:
        block.elementwise("attn_gate", 6 * n_q * d_h)
    block.gemm("out", hidden, n_q * d_h, block.quant.linear(f"{module}.o_proj"))
    block.reduce("reduce_mixer")


def delta_net(block: Block, config: Config, module: str) -> None:
    """A gated delta-net mixer: `n_groups` key heads of `state_size`, `n_heads` value heads of `d_h`."""
    hidden = config.positive("hidden_size")
    n_k, n_v = config.positive("linear_num_key_heads"), config.positive("linear_num_value_heads")
    d_k, d_v = config.positive("linear_key_head_dim"), config.positive("linear_value_head_dim")
    key, value = n_k * d_k, n_v * d_v
    block.gemm("in_proj", 2 * key + 2 * value, hidden, _in_proj(block, module))
    block.gemm("in_proj_ba", 2 * n_v, hidden, _in_proj_ba(block, module))
    # On `auto` the state takes the config's dtype, else the convolution's, the model's own
    # (vllm/model_executor/models/config.py:819-843, vllm/model_executor/layers/mamba/mamba_utils.py:53-158).
    stated = str(config.get("mamba_ssm_dtype", ""))
    names = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
    block.add(
        "RecurrentUpdate",
        role="mixer",
        recurrent_kind="gdn",
        n_heads=n_v,
        state_size=d_k,
        d_h=d_v,
        n_groups=n_k,
        conv_kernel=config.positive("linear_conv_kernel_dim"),
        state_dtype=names.get(stated, block.quant.plain.dtype),
    )
    block.elementwise("norm_gate", 6 * value)
    block.gemm("out", hidden, value, block.quant.linear(f"{module}.out_proj"))
    block.reduce("reduce_mixer")


def _in_proj(block: Block, module: str) -> Weight:
    """The checkpoint stores qkv and z apart (Qwen3.5) or fused (Qwen3-Next); both answer the same here."""
    return block.quant.linear(f"{module}.in_proj_qkv", f"{module}.in_proj_z")


def _in_proj_ba(block: Block, module: str) -> Weight:
    return block.quant.linear(f"{module}.in_proj_b", f"{module}.in_proj_a")


def _predictor(source: Source, count: int) -> Speculator | None:
    """The prediction module: norms, a column-parallel projection of both halves whose output is gathered, and a
    full-attention layer (vllm/model_executor/models/qwen3_next_mtp.py:70-96, qwen3_5_mtp.py:85-130). A pass uses one
    layer however many are stored (qwen3_5_mtp.py:171-181)."""
    config = source.config
    key = "mtp_num_hidden_layers" if config.has("mtp_num_hidden_layers") else "num_nextn_predict_layers"
    modules = config.count(key, default=0)
    if not modules:
        return None
    hidden = config.positive("hidden_size")
    layers = []
    for i in range(modules):
        inner = hybrid_layer(source, f"mtp.layers.{i}", count + i, "full_attention")
        block = Block(source.quant)
        block.norm("norm_embed")
        block.norm("norm_hidden")
        # NVFP4 checkpoints leave this projection at 16 bits without saying so (qwen3_5_mtp.py:85-96).
        weight = source.quant.plain if source.quant.default.dtype == "nvfp4" else source.quant.linear("mtp.fc")
        block.gemm("fuse", hidden, 2 * hidden, weight)
        block.add("AllGather", role="fuse_gather", emit="tensor_parallel")
        layers.append(Layer(f"mtp_{inner.kind}", block.nodes + inner.nodes))
    return Speculator("mtp", modules, layers)
