"""Recurrent mixers by the fitted laws: a causal convolution and a scan, launched apart for decodes and prefills."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.documents import Node
from steppe.plan.builder import (
    DECODE_TOKENS,
    DECODES,
    HBM,
    MAX_CHUNK,
    PREFILL_TOKENS,
    PREFILLS,
    SM,
    US,
    pair,
)
from steppe.plan.refined_laws import number

if TYPE_CHECKING:
    from steppe.documents import Law
    from steppe.plan.refined import RefinedPlan


def emit_mixer(plan: RefinedPlan, node: Node) -> bool:
    """Emit convolution and scan of a mixer; False where the part has no law for its kind."""
    kind = node.recurrent_kind
    found = {key: law for key, law in plan.c.laws("recurrent").items() if f"/{kind}/" in key}
    if f"conv/{kind}/decode" not in found:
        return False
    channels, heads, state = _shape(node, plan.tp)
    _conv(plan, kind, channels)
    _scan(plan, kind, node, heads, state)
    return True


def _shape(node: Node, tp: int) -> tuple[float, float, float]:
    """(convolution channels, heads, bytes of state read and written a request) of one rank."""
    heads, d_state, d_head = (node.n_heads or 1) / tp, node.state_size or 0, node.d_h or 0
    groups = node.n_groups or (node.n_heads or 1)
    width = 2.0 if node.state_dtype in ("bf16", "fp16") else 4.0
    if node.recurrent_kind == "mamba2":
        inner = float(node.intermediate_size or (node.n_heads or 1) * d_head)
        channels = (inner + 2 * groups * d_state) / tp
    else:
        d_head = d_head or d_state
        channels = (2 * groups * d_state + (node.n_heads or 1) * d_head) / tp
    return channels, heads, heads * d_head * d_state * width * 2


def _conv(plan: RefinedPlan, kind: str, channels: float) -> None:
    decode = plan.c.law("recurrent", f"conv/{kind}/decode")
    context = plan.laws.first(
        "recurrent", [f"conv/{k}/context" for k in (kind, "gdn", "mamba2")], f"{kind} convolution"
    )
    assert decode is not None
    p = decode.params
    rate = number(p["u"]) * number(p["bw_Bps"])
    constant = number(p["F"]) * US
    plan.b.affine(f"{kind} conv decode", HBM, DECODE_TOKENS, channels * 20 / rate, constant=constant, serial=True)
    if context is not None:
        names = ("F", "tn", "tq", "t2", "v", "C")
        params = {"channels": channels, "bw": number(context.params["bw_Bps"])}
        params |= {name: number(context.params.get(name, 0.0)) for name in names}
        plan.b.term(f"{kind} conv prefill", "conv_context", (PREFILLS, PREFILL_TOKENS), params, SM, serial=True)


def _scan(plan: RefinedPlan, kind: str, node: Node, heads: float, state: float) -> None:
    kinds = (kind, "gdn", "kda")  # Mamba-2's scan is unmeasured: state bytes at a delta-net's floor and rate
    decode = plan.laws.first("recurrent", [f"scan/{k}/decode" for k in kinds], f"{kind} scan")
    context = plan.laws.first("recurrent", [f"scan/{k}/context" for k in kinds], f"{kind} scan")
    if decode is not None:
        _scan_decode(plan, kind, decode, heads, state)
    if context is None:
        return
    chunked = plan.b.pair_class(figure=pair("chunked"), slack=64)
    d = node.state_size or 0
    params = {
        "heads": heads,
        "row_bytes": 2.0 * d * ((node.n_groups or node.n_heads or 1) / plan.tp + heads) * 2 / 2,
        "bw": number(context.params["bw_Bps"]),
        **{name: number(context.params.get(name, 0.0)) for name in ("F", "ts", "tc", "tw", "w0", "v", "C")},
    }
    inputs = (PREFILLS, PREFILL_TOKENS, chunked, MAX_CHUNK)
    plan.b.term(f"{kind} scan prefill", "scan_context", inputs, params, SM, serial=True)


def _scan_decode(plan: RefinedPlan, kind: str, law: Law, heads: float, state: float) -> None:
    p = law.params
    rate = number(p["u"]) * number(p["bw_Bps"])
    per_request = number(p.get("ts", 0.0)) * US * heads
    plan.b.affine(
        f"{kind} scan decode",
        HBM,
        DECODE_TOKENS,
        per_request + state / rate,
        constant=number(p["F"]) * US,
        gate=DECODES,
        serial=True,
    )
