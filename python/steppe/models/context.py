"""The longest sequence a checkpoint serves by default, as the engine reads it off the config."""

from __future__ import annotations

from collections.abc import Mapping

from steppe.models.config import Config

# vllm/transformers_utils/model_arch_config_convertor.py:392-425
_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
# Rotary scalings whose config already states the scaled length. vllm/config/model.py:2549-2556
_ALREADY_SCALED = frozenset({"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling", "default"})


def context_length(config: Config) -> int | None:
    """Tokens of the default max_model_len; None where the config states no length.

    The smallest length stated, `model_max_length` before all others, times the rotary scaling's factor where the stated
    length is the unscaled one (vllm/config/model.py:2471-2591).
    """
    lengths = [config.positive(key) for key in _KEYS if config.has(key)]
    if config.has("model_max_length"):
        lengths = [config.positive("model_max_length")]
    if not lengths:
        return None
    return int(min(lengths) * _scaling(config))


def _scaling(config: Config) -> float:
    if "gemma3" in str(config.get("model_type", "")):
        return 1.0  # its length is stated scaled
    stated = config.get("rope_parameters") or config.get("rope_scaling")
    if not isinstance(stated, Mapping):
        return 1.0
    sections = [each for each in stated.values() if isinstance(each, Mapping)] or [stated]
    factor = 1.0
    for section in sections:
        kind = section.get("rope_type") or section.get("type") or "default"
        if kind not in _ALREADY_SCALED and isinstance(section.get("factor"), int | float):
            factor = float(section["factor"])
    return factor
