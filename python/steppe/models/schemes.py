"""The quantization methods the deriver reads, each by the name a checkpoint states in `quant_method`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from steppe.errors import DeploymentError, DocumentError
from steppe.models.config import Config
from steppe.models.quantization import Excluding, Patterns, Quantization, bare
from steppe.models.weights import Weight

NVFP4 = Weight("nvfp4")
MXFP4 = Weight("mxfp4")
FP8_BLOCK = Weight("fp8", "128x128")


def _fp8(stated: Config, plain: Weight, model: Config) -> Quantization:
    """`fp8`: one scale a tensor, or one a tile (vllm/model_executor/layers/quantization/fp8.py).

    DeepSeek-V4 checkpoints keep their experts in 4-bit floats unless `expert_dtype` says fp8
    (vllm/models/deepseek_v4/quant_config.py:25-47, 173-194).
    """
    block = stated.items("weight_block_size", default=None)
    if block is not None and len(block) != 2:
        raise DocumentError(f"{stated.path}: weight_block_size must be [rows, columns], not {block}")
    default = Weight("fp8", f"{block[0]}x{block[1]}" if block else None)
    excluded = stated.items("modules_to_not_convert", default=None) or stated.items("ignored_layers", default=[])
    base = Excluding(plain, default, excluded)
    if "deepseek_v4" not in str(model.get("model_type", "")):
        return base
    expert_dtype = str(model.get("expert_dtype", stated.get("expert_dtype", "fp4")))
    if expert_dtype not in ("fp4", "fp8"):
        raise DocumentError(f"{model.path}: expert_dtype must be fp4 or fp8, not {expert_dtype!r}")
    if expert_dtype == "fp8":
        return base
    nvfp4 = str(stated.get("moe_quant_algo", "")).upper() == "NVFP4"
    return _WithExperts(plain, default, excluded, NVFP4 if nvfp4 else MXFP4)


class _WithExperts(Excluding):
    """Routed experts in a dtype of their own."""

    def __init__(self, plain: Weight, default: Weight, excluded: list[str], experts: Weight) -> None:
        super().__init__(plain, default, excluded)
        self._experts = experts

    def experts(self, module: str) -> Weight:
        return self._experts


def _mxfp4(stated: Config, plain: Weight, model: Config) -> Quantization:
    """`mxfp4` quantizes routed experts and nothing else (vllm/model_executor/layers/quantization/mxfp4.py:85-107)."""
    return _WithExperts(plain, plain, [], MXFP4)


def _integer(stated: Config, plain: Weight, model: Config) -> Quantization:
    """awq and gptq: integer weights, 16-bit activations, one scale a group along k (group_size -1: one a channel)."""
    bits = stated.positive("bits", "w_bit", "weight_bits")
    group = stated.data.get("group_size", stated.data.get("q_group_size", -1))
    if not isinstance(group, int) or group == 0 or group < -1:
        raise DocumentError(f"{stated.path}: group_size must be -1 or at least 1, not {group!r}")
    block = f"1x{group}" if group > 0 else None
    widths = {4: Weight("int4", block), 8: Weight("int8", block, compute=plain.dtype)}
    if bits not in widths:
        raise DeploymentError(f"{stated.path}: bits {bits} is not one of 4, 8")
    excluded = stated.items("modules_to_not_convert", default=[])
    return Excluding(plain, widths[bits], excluded, lm_head=stated.flag("lm_head"))


# --- compressed-tensors ---------------------------------------------------------------------------------------------


class _Groups(Quantization):
    """compressed-tensors: groups of targets, each with its scheme, and an ignore list over all
    (vllm/model_executor/layers/quantization/compressed_tensors/compressed_tensors.py)."""

    def __init__(self, plain: Weight, groups: list[tuple[list[str], Weight]], ignore: list[str]) -> None:
        linear = [weight for targets, weight in groups if "Linear" in targets]
        super().__init__(plain, linear[0] if linear else groups[0][1], lm_head=True)
        self._named = [(Patterns(targets), weight) for targets, weight in groups]
        self._linear = linear[0] if linear else plain
        self._ignore = Patterns(ignore)

    def module(self, name: str) -> Weight:
        if self._ignore.match(name):
            return self.plain
        for targets, weight in self._named:
            if targets.match(name):
                return weight
        # A group aimed at the class Linear does not reach the head, which is a ParallelLMHead.
        return self.plain if name == "lm_head" else self._linear


def _compressed_tensors(stated: Config, plain: Weight, model: Config) -> Quantization:
    groups = []
    for name, group in stated.section("config_groups").data.items():
        inner = Config(group, path=f"{stated.path}: config_groups: {name}")
        weight = _group_weight(inner, plain)
        groups.append(([str(t) for t in inner.items("targets", default=["Linear"])], weight))
    if not groups:
        raise DocumentError(f"{stated.path}: config_groups is empty")
    return _Groups(plain, groups, [str(p) for p in stated.items("ignore", default=[])])


def _group_weight(group: Config, plain: Weight) -> Weight:
    weights = group.section("weights")
    bits, kind = weights.positive("num_bits"), str(weights.get("type", "int"))
    size = weights.count("group_size", default=None) if weights.get("group_size", 0) != -1 else None
    tile = weights.items("block_structure", default=None)
    weight_only = not group.has("input_activations")
    if (kind, bits) == ("float", 8):
        block = f"{tile[0]}x{tile[1]}" if tile else (f"1x{size}" if size else None)
        return Weight("fp8", block, compute=plain.dtype if weight_only else None)
    if (kind, bits) == ("float", 4):
        dtype = "nvfp4" if size == 16 else "mxfp4"
        # Which precision an MXFP4 expert multiplies in is the kernel's choice, not the checkpoint's.
        return Weight(dtype, compute=plain.dtype if weight_only and dtype == "nvfp4" else None)
    if (kind, bits) == ("int", 4):
        return Weight("int4", f"1x{size}" if size else None, compute=None if weight_only else _activation(group))
    if (kind, bits) == ("int", 8):
        return Weight("int8", f"1x{size}" if size else None, compute=plain.dtype if weight_only else None)
    raise DeploymentError(f"{group.path}: {bits}-bit {kind} weights are not one of float 8, float 4, int 8, int 4")


def _activation(group: Config) -> str:
    inputs = group.section("input_activations")
    return "fp8" if str(inputs.get("type", "int")) == "float" else "int8"


# --- modelopt -------------------------------------------------------------------------------------------------------


class _Listed(Quantization):
    """modelopt MIXED_PRECISION: every quantized module is listed, the rest is plain
    (vllm/model_executor/layers/quantization/modelopt.py:1655-1710)."""

    def __init__(self, plain: Weight, listed: dict[str, Weight]) -> None:
        super().__init__(plain, lm_head=True)
        self._listed = {bare(name): weight for name, weight in listed.items()}

    def module(self, name: str) -> Weight:
        return self._listed.get(name, self.plain)

    def experts(self, module: str) -> Weight:
        if module in self._listed:
            return self._listed[module]
        inside = [weight for name, weight in self._listed.items() if name.startswith(module + ".")]
        return inside[0] if inside else self.plain


def _modelopt(stated: Config, plain: Weight, model: Config) -> Quantization:
    """modelopt, in `config.json` or in its older file of its own (modelopt.py:239-325)."""
    inner = stated.section("quantization") if stated.has("quantization") else stated
    algo = str(inner.get("quant_algo", "")).upper()
    if algo == "MIXED_PRECISION":
        layers = inner.section("quantized_layers").data
        listed = {
            name: _algorithm(str(info.get("quant_algo", "")), inner, plain, info) for name, info in layers.items()
        }
        return _Listed(plain, listed)
    excluded = [str(p) for p in (inner.get("exclude_modules") or inner.get("ignore") or [])]
    # A pattern `path*` covers the module and everything under it (modelopt.py:203-220).
    excluded += [p[:-1] for p in excluded if len(p) > 1 and p[-1] == "*" and p[-2] != "."]
    return Excluding(plain, _algorithm(algo, inner, plain, {}), excluded, lm_head=True)


def _algorithm(name: str, stated: Config, plain: Weight, info: Mapping[str, Any]) -> Weight:
    known = {
        "FP8": Weight("fp8"),
        "FP8_PER_CHANNEL_PER_TOKEN": Weight("fp8"),
        "FP8_PB_WO": FP8_BLOCK,
        "FP8_BLOCK_SCALES": FP8_BLOCK,
        "MXFP8": Weight("fp8", "1x32"),
        "NVFP4": NVFP4,
        "W4A16_NVFP4": Weight("nvfp4", compute=plain.dtype),
        "MXFP4": MXFP4,
    }
    if name.upper() not in known:
        raise DeploymentError(f"{stated.path}: unknown quant_algo {name!r}; known: {', '.join(sorted(known))}")
    return known[name.upper()]


Scheme = Callable[[Config, Weight, Config], Quantization]

SCHEMES: dict[str, Scheme] = {
    "fp8": _fp8,
    "mxfp4": _mxfp4,
    "awq": _integer,
    "gptq": _integer,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "modelopt_mixed": _modelopt,
}
