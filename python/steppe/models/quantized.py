"""Which quantization a checkpoint states: the scheme its config names, and the cache dtype it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steppe.errors import DeploymentError, DocumentError
from steppe.models.config import Config
from steppe.models.quantization import Quantization
from steppe.models.schemes import SCHEMES
from steppe.models.weights import BF16, FP16, Weight


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
