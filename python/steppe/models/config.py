"""A Hugging Face config, read with errors that name the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steppe.errors import DocumentError

_MISSING: Any = object()

#: Keys under which a multimodal config nests the config of its text decoder.
_TEXT_KEYS = ("text_config", "llm_config", "language_config")


class Config:
    """The config of one text decoder. Keys are read by type; a missing or ill-typed one is an error naming it.

    A config writes "absent" as a missing key or as null; both count as absent here, as they do in the engine
    (`getattr(config, key, None)`).
    """

    def __init__(self, data: Mapping[str, Any], *, path: str = "config.json") -> None:
        self.data = data
        self.path = path

    def get(self, key: str, default: Any = None) -> Any:
        value = self.data.get(key)
        return default if value is None else value

    def has(self, key: str) -> bool:
        return self.data.get(key) is not None

    def count(self, *keys: str, default: Any = _MISSING) -> int:
        """The first present of `keys` as a whole number >= 0."""
        value = self._first(keys, default)
        if value is default:
            return default  # type: ignore[no-any-return]
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise DocumentError(f"{self.path}: {self._named(keys)} must be a whole number, not {value!r}")
        return int(value)

    def positive(self, *keys: str, default: Any = _MISSING) -> int:
        """The first present of `keys` as a whole number >= 1."""
        value = self.count(*keys, default=default)
        if value is not default and value < 1:
            raise DocumentError(f"{self.path}: {self._named(keys)} must be at least 1, not {value}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise DocumentError(f"{self.path}: {key} must be true or false, not {value!r}")
        return value

    def items(self, key: str, default: Any = _MISSING) -> list[Any]:
        value = self._first((key,), default)
        if value is not default and not isinstance(value, list):
            raise DocumentError(f"{self.path}: {key} must be a list, not {type(value).__name__}")
        return value  # type: ignore[no-any-return]

    def per_layer(self, key: str, layers: int) -> list[Any]:
        """A vector with one entry a layer; another length contradicts the layer count."""
        value = self.items(key)
        if len(value) != layers:
            raise DocumentError(f"{self.path}: {key} has {len(value)} entries for {layers} layers")
        return value

    def section(self, key: str) -> Config:
        value = self.get(key)
        if not isinstance(value, Mapping):
            raise DocumentError(f"{self.path}: {key} must be a map")
        return Config(value, path=f"{self.path}: {key}")

    def text(self) -> tuple[Config, bool]:
        """The text decoder's config, and whether it was nested in a multimodal one."""
        for key in _TEXT_KEYS:
            nested = self.data.get(key)
            if isinstance(nested, Mapping) and nested:
                # The outer config decides what the inner one leaves unstated (tied embeddings, dtype, quantization).
                outer = {k: v for k, v in self.data.items() if k in _INHERITED}
                stated = {k: v for k, v in nested.items() if v is not None}
                return Config({**outer, **stated}, path=f"{self.path}: {key}"), True
        return self, False

    def _first(self, keys: tuple[str, ...], default: Any) -> Any:
        for key in keys:
            if self.data.get(key) is not None:
                return self.data[key]
        if default is _MISSING:
            raise DocumentError(f"{self.path}: missing key {self._named(keys)}")
        return default

    @staticmethod
    def _named(keys: tuple[str, ...]) -> str:
        return " or ".join(repr(key) for key in keys)


_INHERITED = ("tie_word_embeddings", "dtype", "torch_dtype", "quantization_config")


def heads(config: Config) -> tuple[int, int, int]:
    """Query heads, key-value heads and head size as the engine reads them.

    `head_dim` defaults to hidden / heads and key-value heads to query heads
    (vllm/model_executor/models/llama.py:150-151, 264-266).
    """
    n_q = config.positive("num_attention_heads")
    n_kv = config.positive("num_key_value_heads", default=n_q)
    hidden = config.positive("hidden_size")
    d_h = config.count("head_dim", default=0)
    if d_h == 0:
        if hidden % n_q:
            raise DocumentError(
                f"{config.path}: head_dim is not stated and hidden_size {hidden} is no multiple of "
                f"num_attention_heads {n_q}"
            )
        d_h = hidden // n_q
    if n_q % n_kv:
        raise DocumentError(f"{config.path}: num_attention_heads {n_q} is no multiple of num_key_value_heads {n_kv}")
    return n_q, n_kv, d_h
