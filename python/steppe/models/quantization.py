"""How a checkpoint's quantization config stores each module.

One class a method, all answering the same two questions: what is the weight of this linear, and of these experts?
Module names are those of the checkpoint, without the leading `model.` or `language_model.`. Modules that a config
excludes keep the checkpoint's 16-bit dtype. Routers and embeddings are never quantized by the engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from steppe.errors import DeploymentError, DocumentError
from steppe.models.config import Config
from steppe.models.weights import BF16, FP16, Weight

#: Leading parts a checkpoint or the engine may put before a decoder's module names.
_ROOTS = ("", "model.", "language_model.", "language_model.model.", "model.language_model.", "backbone.")


class Quantization:
    """A checkpoint stored in one dtype throughout; the base of the quantized ones.

    `default` is what an ordinary linear of the checkpoint gets; `plain` is the checkpoint's 16-bit dtype; `kv_cache`
    is what a cache dtype of `auto` means for this checkpoint, None where it means the model's own dtype;
    `kv_cache_skips_latent`: not for a latent cache.
    """

    kv_cache: str | None = None
    kv_cache_skips_latent = False

    def __init__(self, plain: Weight, default: Weight | None = None, *, lm_head: bool = False) -> None:
        self.plain = plain
        self.default = default or plain
        self._lm_head = lm_head

    def linear(self, *modules: str) -> Weight:
        """The weight of one launch made of `modules`, which the engine fuses and so requires to agree."""
        found = {self.module(module) for module in modules}
        if len(found) > 1:
            raise DocumentError(
                f"quantization_config: {', '.join(modules)} are one fused linear in the engine but are stored in "
                f"different precisions ({', '.join(sorted(w.dtype for w in found))})"
            )
        return found.pop()

    def experts(self, module: str) -> Weight:
        """The weight of the routed experts under `module`."""
        return self.module(f"{module}.0.gate_proj")

    def lm_head(self) -> Weight:
        """Methods that quantize `LinearBase` alone leave the head as it is (vllm/.../quantization/fp8.py)."""
        return self.module("lm_head") if self._lm_head else self.plain

    def module(self, name: str) -> Weight:
        return self.default


class Excluding(Quantization):
    """One scheme for every linear but the excluded ones."""

    def __init__(self, plain: Weight, default: Weight, excluded: Iterable[str], *, lm_head: bool = False) -> None:
        super().__init__(plain, default, lm_head=lm_head)
        self._excluded = Patterns(excluded)

    def module(self, name: str) -> Weight:
        return self.plain if self._excluded.match(name) else self.default


class Patterns:
    """Names of modules as quantization configs write them: full paths, path tails, subtrees, wildcards, `re:`."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._exact: set[str] = set()
        self._regex: list[re.Pattern[str]] = []
        self._wild: list[str] = []
        for pattern in patterns:
            if pattern.startswith("re:"):
                self._regex.append(re.compile(pattern[3:]))
            elif "*" in pattern:
                self._wild.append(pattern)
            else:
                self._exact.add(_bare(pattern))

    def match(self, name: str) -> bool:
        if any(part in self._exact for part in _parts(name)):
            return True
        full = [root + name for root in _ROOTS]
        return any(fnmatchcase(path, wild) for wild in self._wild for path in full) or any(
            regex.match(path) for regex in self._regex for path in full
        )


def _bare(name: str) -> str:
    for root in sorted(_ROOTS, key=len, reverse=True):
        if root and name.startswith(root):
            return name[len(root) :]
    return name


def _parts(name: str) -> Iterable[str]:
    """The name, its enclosing modules, and its tails: `layers.0.mlp.gate` also answers to `layers.0.mlp` and `gate`."""
    words = name.split(".")
    for i in range(1, len(words) + 1):
        yield ".".join(words[:i])
    for i in range(1, len(words)):
        yield ".".join(words[i:])


def read(config: Config, extra: Mapping[str, Any] | None = None) -> Quantization:
    """The quantization of a checkpoint: its config's `quantization_config`, else `extra`, a modelopt
    `hf_quant_config.json`, which the engine reads beside the config when that states none
    (vllm/model_executor/model_loader/weight_utils.py, `get_quant_config`).

    Raises:
        DeploymentError: the method is unknown; the message lists the known ones.
    """
    plain = _plain(config)
    stated = config.get("quantization_config") or config.get("compression_config") or extra
    if not stated:
        return Quantization(plain)
    if not isinstance(stated, Mapping):
        raise DocumentError(f"{config.path}: quantization_config must be a map")
    # Imported here: the schemes are built on the classes above.
    from steppe.models.schemes import SCHEMES

    method = str(stated.get("quant_method") or ("modelopt" if _is_modelopt(stated) else "")).lower()
    if method not in SCHEMES:
        known = ", ".join(sorted(SCHEMES))
        raise DeploymentError(
            f"{config.path}: unknown quantization method {method or '(none stated)'!r}; known: {known}"
        )
    found = SCHEMES[method](Config(stated, path=f"{config.path}: quantization_config"), plain, config)
    found.kv_cache = _kv_cache(stated, method)
    # Latent attention has no step that reads a compressed-tensors scheme (mla_attention.py:487-503).
    found.kv_cache_skips_latent = method == "compressed-tensors"
    return found


def _kv_cache(stated: Mapping[str, Any], method: str) -> str | None:
    """The cache dtype a checkpoint asks for: modelopt under any of four keys (vllm/utils/torch_utils.py:448-521),
    compressed-tensors under `kv_cache_scheme` (vllm/model_executor/layers/attention/attention.py:281-297)."""
    if not method.startswith(("modelopt", "compressed-tensors")):
        return None
    inner = stated.get("quantization")
    maps = [stated] + ([inner] if isinstance(inner, Mapping) else [])
    for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
        for found in (m.get(key) for m in maps):
            if isinstance(found, Mapping) and found.get("type", "float") == "float":
                return {8: "fp8", 4: "nvfp4"}.get(int(found.get("num_bits", 0)))
            if isinstance(found, str):
                return {"FP8": "fp8", "NVFP4": "nvfp4"}.get(found.upper())
    return None


def _is_modelopt(stated: Mapping[str, Any]) -> bool:
    producer = stated.get("producer")
    return (
        "quant_algo" in stated
        or "quantization" in stated
        or (isinstance(producer, Mapping) and producer.get("name") == "modelopt")
    )


def _plain(config: Config) -> Weight:
    """The 16-bit dtype the engine runs at: the checkpoint's, with 32-bit ones and unstated ones served as bfloat16
    (vllm/config/model.py, `_resolve_auto_dtype`)."""
    stated = str(config.get("dtype", config.get("torch_dtype", "bfloat16"))).removeprefix("torch.")
    known = {"bfloat16": BF16, "float16": FP16, "half": FP16, "float32": BF16, "float": BF16}
    if stated not in known:
        raise DocumentError(f"{config.path}: dtype {stated!r} is not one of {', '.join(known)}")
    return known[stated]
