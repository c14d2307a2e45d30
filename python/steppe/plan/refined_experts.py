"""Routed and shared experts by the fitted MoE law, with the dispatch around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.documents import Node
from steppe.plan.builder import GROUP_ROWS, PADDED, SM
from steppe.plan.refined_laws import gemm_key
from steppe.resolve.precision import served_dtype

if TYPE_CHECKING:
    from steppe.documents import LayerKind
    from steppe.plan.refined import RefinedPlan

# Experts kernels by stored weights, in the engine's order (vllm/model_executor/layers/fused_moe/oracle/);
# the first with a law on the part is priced.
PREFERRED: dict[str, tuple[str, ...]] = {
    "bf16": ("trtllmbf16experts", "unquantizedfusedmoe_triton", "flashinfer_cutlass", "triton"),
    "fp8": (
        "trtllmfp8expertsmonolithic",
        "modeloptfp8moe_flashinfer_cutlass",
        "flashinfer_cutlass",
        "modeloptfp8moe_triton",
    ),
    "fp8_block": ("expertsmonolithic", "fp8moe_triton", "fp8moe_flashinfer_cutlass", "expertsmodular"),
    "nvfp4": ("expertsmonolithic", "flashinfer_cutlass", "expertsmodular", "marlin"),
    # Of a checkpoint that keeps 16-bit activations (gpt-oss):
    # vllm/model_executor/layers/fused_moe/oracle/mxfp4.py:342-364
    "mxfp4": ("trtllmmxfp4", "oaitriton", "marlin", "marlinexperts_situ"),
    "int4": ("marlin",),
}
# The engine's --moe-backend names (vllm/config/kernel.py:118-140) and the measured kernels they run.
BACKEND_KERNELS: dict[str, tuple[str, ...]] = {
    "flashinfer_trtllm": (
        "expertsmonolithic",
        "expertsmodular",
        "trtllmbf16experts",
        "trtllmfp8expertsmonolithic",
        "trtllmmxfp4",
    ),
    "flashinfer_cutlass": ("fp8moe_flashinfer_cutlass", "modeloptfp8moe_flashinfer_cutlass", "flashinfer_cutlass"),
    "triton": ("fp8moe_triton", "unquantizedfusedmoe_triton", "modeloptfp8moe_triton", "oaitriton", "triton"),
    "marlin": ("marlin", "marlinexperts_situ"),
}
# MXFP4 experts on 8-bit activations: asked for, or of a checkpoint whose other weights are FP8 (DeepSeek-V4):
# vllm/model_executor/layers/fused_moe/oracle/mxfp4.py:367-390. Hopper has no such kernel and runs Marlin.
EIGHT_BIT_ACTIVATIONS = "w4a8_mxfp4_mxfp8/modular"
AFP8_BACKEND = "flashinfer_trtllm_afp8"
LAW_DTYPE = {"bf16": "bfloat16", "fp16": "bfloat16", "mxfp4": "w4a16_mxfp4", "int4": "int4_wo", "int8": "fp8"}
# Shared experts run on a second stream up to here (vllm/envs.py:303,
# vllm/model_executor/layers/fused_moe/runner/shared_experts.py:111-121).
SHARED_OVERLAP_ROWS = 256


class RefinedExperts:
    """Emits the experts of a layer for a `RefinedPlan`."""

    def __init__(self, plan: RefinedPlan) -> None:
        self.plan = plan
        self._listed: list[Node] = []  # shared experts of the layer in hand that the graph lists node by node

    def absorbed(self, kind: LayerKind) -> set[int]:
        """Identities of the nodes emitted with the routed experts: products named `shared_...`, the kernel after each.

        They run on a stream of their own (vllm/model_executor/layers/fused_moe/runner/shared_experts.py), whatever
        precision they are stored at, which is why a graph lists them apart.
        """
        routed = next((node for node in kind.nodes if node.op == "GroupedGEMM"), None)
        self._listed = []
        if routed is None or self._law_key(routed) is None:
            return set()
        for before, node in zip((None, *kind.nodes), kind.nodes, strict=False):
            after = before is not None and before.role.startswith("shared_") and node.op == "Elementwise"
            if after or (node.op == "GEMM" and node.role.startswith("shared_")):
                self._listed.append(node)
        return {id(node) for node in self._listed}

    def _law_key(self, node: Node) -> str | None:
        """Key of the law that prices the experts; None where none of their kernels has one in scope."""
        if not self.plan.laws.has("moe"):
            return None
        return next((key for key in self.keys(node) if self.plan.c.has_law("moe", key)), None)

    def keys(self, node: Node) -> list[str]:
        """Law keys of the experts kernel, best first: the stated `moe_backend`, then the engine's order."""
        r = self.plan.r
        dtype = served_dtype(r, node)
        variant = gemm_key(r, node) if dtype == "fp8" else dtype
        stated = r.settings.moe_backend
        if "/" in stated:
            return [stated]
        names = list(PREFERRED.get(variant, PREFERRED.get(dtype, ())))
        if r.widths.ep > 1 and variant == "fp8_block" and "fp8moe_flashinfer_cutlass" in names:
            names.insert(1, "fp8moe_flashinfer_cutlass")  # Hopper with whole experts (laws_gemm_moe.md 3)
        prefix = LAW_DTYPE.get(variant, variant)
        keys = [f"{prefix}/{name}" for name in dict.fromkeys(names)]
        if variant == "mxfp4" and stated == AFP8_BACKEND:
            return [EIGHT_BIT_ACTIVATIONS, *keys]
        if variant == "mxfp4" and served_dtype(r) == "fp8":
            keys = [EIGHT_BIT_ACTIVATIONS, "w4a16_mxfp4/marlin", *keys]
        named = [f"{prefix}/{name}" for name in BACKEND_KERNELS.get(stated, ())]
        return list(dict.fromkeys([*named, *keys]))

    def emit(self, node: Node) -> bool:
        """Emit routed and shared experts; False where no MoE law is in scope."""
        plan, w = self.plan, self.plan.r.widths
        found = self._law_key(node)
        if found is None:
            return False
        if found != self.keys(node)[0] and plan.r.settings.moe_backend:
            plan.c.assume("moe_backend", found, f"{plan.r.settings.moe_backend} has no fitted law on this part")
        ep = max(1, w.ep)
        slices = 1 if w.ep > 1 else w.tp * w.dp
        experts = (node.experts or 1) + (plan.r.settings.redundant_experts if w.ep > 1 else 0)
        inner, hidden = float(node.n or 0) / slices, float(node.latent_size or node.k or 0)
        params = plan.laws.experts(node, found, ep, inner, hidden, experts)
        assert params is not None
        plan.refined_collectives.dispatch(node, found)
        padded = params["hidden"]
        if padded != hidden:
            # The engine pads the rows to the kernel's width; the kernel writes them back unpadded
            # (vllm/model_executor/layers/fused_moe/runner/moe_runner.py:527-551, 741-743).
            plan.ew("experts pad", PADDED, 2.0 * (hidden + padded))
        routed = plan.b.term(node.role or "experts", "experts", (GROUP_ROWS,), params, SM, serial=True, derate=True)
        if node.shared_experts or self._listed:
            self._shared(node, routed)
        plan.refined_collectives.combine(node)
        return True

    def _shared(self, node: Node, routed: int) -> None:
        """Shared experts, hidden behind the routed ones while the step is small; one add."""
        plan = self.plan
        first = plan.b.next_term
        if node.shared_experts:
            inner = float((node.shared_intermediate_size or node.n or 0) * node.shared_experts) / plan.tp
            hidden, key = float(node.k or 0), gemm_key(plan.r, node)
            plan.linear("shared gate_up", node, key, 2 * inner, hidden, PADDED)
            plan.ew("shared activation", PADDED, 6.0 * inner)
            plan.linear("shared down", node, key, hidden, inner, PADDED)
        for each in self._listed:
            if each.op == "GEMM":
                plan.dense(each)
            else:
                plan.node(each)
        params = {
            "first": float(first),
            "last": float(plan.b.next_term - 1),
            "behind": float(routed),
            "limit": float(SHARED_OVERLAP_ROWS),
            "fee_us": plan.ew_floor_us,
        }
        plan.b.term("shared behind routed", "hidden_behind", (PADDED,), params, SM, serial=True)
        plan.ew("shared add", PADDED, 6.0 * plan.r.graph.globals_.hidden_size)
