"""Nemotron-H and Nemotron-3: Mamba-2, attention, dense and expert blocks, each a layer of its own behind one norm.

Shapes (vllm/model_executor/models/nemotron_h.py): feed-forward blocks have no gate (relu²) (79-120); experts may work
in a latent space that replicated projections lead into and out of (122-270); attention has no rope (450-520). The
Mamba-2 mixer projects to 2·inner + 2·groups·state + heads rows and ends in a gated norm
(vllm/model_executor/layers/mamba/mamba_mixer2.py).
"""

from __future__ import annotations

from steppe.errors import DocumentError
from steppe.models.architecture import Architecture, Block, Layer, Source, Speculator
from steppe.models.config import Config, heads
from steppe.models.head import head, layer_count, tied, window_of
from steppe.models.mixers import Gqa, attention, router

_BLOCKS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_STATE = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def nemotron_h(source: Source) -> Architecture:
    config = source.config
    hidden, vocab = config.positive("hidden_size"), config.positive("vocab_size")
    blocks = block_types(config, "hybrid_override_pattern", "layers_block_type")
    count = layer_count(source) if config.has("num_hidden_layers") else len(blocks)
    if len(blocks) != count:
        raise DocumentError(f"{config.path}: the block pattern has {len(blocks)} entries for {count} layers")
    layers = [_layer(source, f"layers.{i}.mixer", i, count, kind) for i, kind in enumerate(blocks)]
    return Architecture(hidden, vocab, tied(source), layers, head(source, hidden, vocab), _predictor(source, count))


def block_types(config: Config, pattern: str, listed: str) -> list[str]:
    """Block kinds in layer order, from a pattern of letters or from a list of names."""
    if config.has(pattern):
        letters = str(config.get(pattern))
        for letter in letters:
            if letter not in _BLOCKS:
                raise DocumentError(f"{config.path}: {pattern} holds {letter!r}; known: {' '.join(_BLOCKS)}")
        return [_BLOCKS[letter] for letter in letters]
    kinds = [str(kind) for kind in config.items(listed)]
    for kind in kinds:
        if kind not in _BLOCKS.values():
            raise DocumentError(f"{config.path}: {listed} holds {kind!r}; known: {', '.join(_BLOCKS.values())}")
    return kinds


def _layer(source: Source, module: str, i: int, count: int, kind: str) -> Layer:
    config = source.config
    block = Block(source.quant)
    block.norm("norm_in")
    if kind == "mamba":
        mamba2(block, config, module)
        return Layer("mamba", block.nodes)
    if kind == "attention":
        n_q, n_kv, _ = heads(config)
        d_h = config.count("head_dim", "attention_head_dim", default=0) or heads(config)[2]
        window = window_of(source, i, count) if i < count else None
        attention(block, Gqa(module, config.positive("hidden_size"), n_q, n_kv, d_h, rope=False, window=window))
        return Layer("full", block.nodes)
    if kind == "mlp":
        ungated(block, module, config.positive("hidden_size"), _inner(config, i), "up", "down")
        block.reduce("reduce_mlp")
        return Layer("dense", block.nodes)
    latent = _experts(block, config, module)
    return Layer("latent_moe" if latent else "moe", block.nodes)


def mamba2(block: Block, config: Config, module: str) -> None:
    n_heads, d_h = config.positive("mamba_num_heads"), config.positive("mamba_head_dim")
    groups, state = config.positive("n_groups"), config.positive("ssm_state_size")
    inner, hidden = n_heads * d_h, config.positive("hidden_size")
    in_proj = block.quant.linear(f"{module}.in_proj")
    block.gemm("in_proj", 2 * inner + 2 * groups * state + n_heads, hidden, in_proj)
    # The engine keeps the state in fp32 unless told otherwise (vllm/model_executor/models/config.py:678-713).
    block.add(
        "RecurrentUpdate",
        role="mixer",
        recurrent_kind="mamba2",
        n_heads=n_heads,
        state_size=state,
        d_h=d_h,
        n_groups=groups,
        conv_kernel=config.positive("conv_kernel"),
        intermediate_size=inner,
        state_dtype=_STATE.get(str(config.get("mamba_ssm_cache_dtype", "float32"))),
    )
    block.elementwise("norm_gate", 6 * inner)
    block.gemm("out", hidden, inner, block.quant.linear(f"{module}.out_proj"))
    block.reduce("reduce_mixer")


def ungated(block: Block, module: str, hidden: int, inner: int, up: str, down: str) -> None:
    """Up, relu², down: no gate."""
    block.gemm(up, inner, hidden, block.quant.linear(f"{module}.up_proj"))
    block.elementwise("activation", 4 * inner)
    block.gemm(down, hidden, inner, block.quant.linear(f"{module}.down_proj"))


def _experts(block: Block, config: Config, module: str) -> bool:
    hidden, quant = config.positive("hidden_size"), block.quant
    inner, experts = config.positive("moe_intermediate_size"), config.positive("n_routed_experts")
    latent = config.count("moe_latent_size", default=0)
    router(block, experts, hidden)
    if latent:
        block.gemm("latent_down", latent, hidden, quant.linear(f"{module}.fc1_latent_proj"), replicated=True)
    shared = config.count("n_shared_experts", default=0)
    if shared:
        width = shared * config.positive("moe_shared_expert_intermediate_size")
        ungated(block, f"{module}.shared_experts", hidden, width, "shared_up", "shared_down")
    block.experts(
        inner,
        latent or hidden,
        quant.experts(f"{module}.experts"),
        experts=experts,
        top_k=config.positive("num_experts_per_tok"),
        gated=False,
        **({"latent_size": latent} if latent else {}),
    )
    block.add("All2All", role="dispatch_combine", emit="expert_parallel")
    if latent:
        block.gemm("latent_up", hidden, latent, quant.linear(f"{module}.fc2_latent_proj"), replicated=True)
    block.reduce("reduce_mlp", "tensor_parallel_unless_sp_moe")
    return bool(latent)


def _inner(config: Config, i: int) -> int:
    """The dense width, which a config may state a value a dense layer (nemotron_h.py:290-305)."""
    stated = config.get("intermediate_size")
    if isinstance(stated, list):
        index = block_types(config, "hybrid_override_pattern", "layers_block_type")[: i + 1].count("mlp") - 1
        if len(stated) > 1 and index >= len(stated):
            raise DocumentError(f"{config.path}: intermediate_size has {len(stated)} entries, fewer than dense layers")
        return int(stated[0] if len(stated) == 1 else stated[index])
    return config.positive("intermediate_size")


def _predictor(source: Source, count: int) -> Speculator | None:
    """The prediction module: its own block pattern, one step, the projection before its first block column-parallel
    and gathered (vllm/model_executor/models/nemotron_h_mtp.py:40-190, 240-320)."""
    config = source.config
    if not config.count("num_nextn_predict_layers", default=0):
        return None
    default = not (config.has("mtp_hybrid_override_pattern") or config.has("mtp_layers_block_type"))
    blocks = (
        ["attention", "moe"] if default else block_types(config, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    )
    hidden, layers = config.positive("hidden_size"), []
    for i, kind in enumerate(blocks):
        module = f"mtp.layers.{i}"
        inner = _layer(source, f"{module}.mixer", count + i, count, kind)
        if i == 0:
            block = Block(source.quant)
            block.norm("norm_embed")
            block.norm("norm_hidden")
            block.gemm("fuse", hidden, 2 * hidden, source.quant.linear(f"{module}.eh_proj"))
            block.add("AllGather", role="fuse_gather", emit="tensor_parallel")
            inner.nodes[:0] = block.nodes
        layers.append(Layer(f"mtp_{inner.kind}", inner.nodes))
    return Speculator("mtp", 1, layers)
