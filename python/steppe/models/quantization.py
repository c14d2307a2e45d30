"""How a checkpoint's quantization config stores each module.

One class a method, all answering the same two questions: what is the weight of this linear, and of these experts?
Module names are those of the checkpoint, without the leading `model.` or `language_model.`. Modules that a config
excludes keep the checkpoint's 16-bit dtype. Routers and embeddings are never quantized by the engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from steppe.errors import DocumentError
from steppe.models.weights import Weight

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
        """Methods that quantize `LinearBase` alone leave the head as it is.

        vllm/model_executor/layers/quantization/fp8.py.
        """
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
                self._exact.add(bare(pattern))

    def match(self, name: str) -> bool:
        if any(part in self._exact for part in _parts(name)):
            return True
        full = [root + name for root in _ROOTS]
        return any(fnmatchcase(path, wild) for wild in self._wild for path in full) or any(
            regex.match(path) for regex in self._regex for path in full
        )


def bare(name: str) -> str:
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
