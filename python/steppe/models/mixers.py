"""Pieces that families share: grouped-query attention and the feed-forward blocks around it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from steppe.models.architecture import Block
from steppe.models.weights import FP32, Weight


@dataclass(frozen=True)
class Gqa:
    """A grouped-query attention module.

    Args:
        module: the checkpoint's name of it, e.g. `layers.3.self_attn`.
        qk_norm: normalise q and k per head before rope.
        window: attend to that many last tokens only.
        rope: rotate q and k (a few layers of some models do not).
    """

    module: str
    hidden: int
    n_q: int
    n_kv: int
    d_h: int
    qk_norm: bool = False
    window: int | None = None
    rope: bool = True


def attention(block: Block, a: Gqa) -> None:
    """qkv, norms and rope on q and k, attention, output projection, reduction over tensor ranks."""
    weight = block.quant.linear(*(f"{a.module}.{name}" for name in ("q_proj", "k_proj", "v_proj")))
    block.gemm("qkv", (a.n_q + 2 * a.n_kv) * a.d_h, a.hidden, weight)
    qk_bytes = 4 * (a.n_q + a.n_kv) * a.d_h
    if a.qk_norm:
        block.elementwise("qk_norm", qk_bytes)
    if a.rope:
        block.elementwise("rope", qk_bytes)
    attend(block, a)
    block.gemm("out", a.hidden, a.n_q * a.d_h, block.quant.linear(f"{a.module}.o_proj"))
    block.reduce("reduce_mixer")


def attend(block: Block, a: Gqa) -> None:
    """The attention node itself: `swa` where a window bounds it."""
    kind = "swa" if a.window else "gqa"
    block.add("Attention", kind=kind, n_q=a.n_q, n_kv=a.n_kv, d_h=a.d_h, window=a.window)


def mlp(block: Block, module: str, hidden: int, inner: int, *, emit: str = "tensor_parallel") -> None:
    """A gated feed-forward block: gate and up in one GEMM, the activation, down, reduction."""
    weight = block.quant.linear(f"{module}.gate_proj", f"{module}.up_proj")
    block.gemm("gate_up", 2 * inner, hidden, weight)
    block.elementwise("activation", 6 * inner)
    block.gemm("down", hidden, inner, block.quant.linear(f"{module}.down_proj"))
    block.reduce("reduce_mlp", emit)


@dataclass(frozen=True)
class Moe:
    """A mixture-of-experts block of gated experts.

    Args:
        module: the checkpoint's name of it, e.g. `layers.3.mlp`.
        inner: intermediate size of one routed expert.
        shared: shared experts, `shared_inner` wide together where their size is not `shared * inner`.
        shared_name: the checkpoint's name of the shared experts' module.
        shared_gate: the shared experts' output is scaled by a sigmoid of its own projection.
        fp32_router: the router's weight and product are fp32, after a cast of its input.
    """

    module: str
    hidden: int
    inner: int
    experts: int
    top_k: int
    shared: int = 0
    shared_inner: int | None = None
    shared_name: str = "shared_experts"
    shared_gate: bool = False
    fp32_router: bool = False
    shared_fused_names: tuple[str, ...] = ("gate_proj", "up_proj")


def moe(block: Block, m: Moe) -> None:
    """Router, routed experts with their shared ones, dispatch, reduction.

    Shared experts ride on the experts' node where they are stored as the routed ones are, and are GEMMs of their own
    where they are not, as one node has one dtype.
    """
    router(block, m.experts, m.hidden, fp32=m.fp32_router)
    routed = block.quant.experts(f"{m.module}.experts")
    if m.shared:
        shared_experts(block, m, routed)
    keys = {}
    if m.shared and _rides(block, m, routed):
        keys["shared_experts"] = m.shared
        if m.shared_inner is not None and m.shared_inner != m.shared * m.inner:
            keys["shared_intermediate_size"] = m.shared_inner
    block.experts(m.inner, m.hidden, routed, experts=m.experts, top_k=m.top_k, **keys)
    block.add("All2All", role="dispatch_combine", emit="expert_parallel")
    block.reduce("reduce_mlp", "tensor_parallel_unless_sp_moe")


def router(block: Block, experts: int, hidden: int, *, fp32: bool = False) -> None:
    """The gate is on every rank whole and never quantized (vllm/model_executor/layers/fused_moe/router/gate_linear.py).
    An fp32 gate casts the hidden state first."""
    if fp32:
        block.elementwise("gate", 6 * hidden, replicated=True)
    plain = replace(block.quant.plain, compute=None)
    block.gemm("router", experts, hidden, FP32 if fp32 else plain, replicated=True)


def shared_experts(block: Block, m: Moe, routed: Weight) -> None:
    """Shared experts' own launches, where they do not ride on the experts' node, and their gate."""
    module = f"{m.module}.{m.shared_name}"
    inner = m.shared_inner or m.shared * m.inner
    if m.shared_gate:
        # A projection to one column, and its sigmoid times the shared output, which is whole on every rank.
        block.gemm("shared_gate", 1, m.hidden, block.quant.plain, replicated=True)
        block.elementwise("gate", 4 * m.hidden, replicated=True)
    if not _rides(block, m, routed):
        weight = block.quant.linear(*(f"{module}.{name}" for name in m.shared_fused_names))
        block.gemm("shared_gate_up", 2 * inner, m.hidden, weight)
        block.elementwise("activation", 6 * inner)
        block.gemm("shared_down", m.hidden, inner, block.quant.linear(f"{module}.down_proj"))


def _rides(block: Block, m: Moe, routed: Weight) -> bool:
    module = f"{m.module}.{m.shared_name}"
    return block.quant.linear(f"{module}.{m.shared_fused_names[0]}") == routed
