"""Weights that stand beside the decoder: vision encoders of multimodal checkpoints, per-layer embedding tables.

The engine loads them with the model and divides them by tp, encoders too (vllm/config/multimodal.py,
`mm_encoder_tp_mode` weights). No node prices them: an encoder runs once a request, not once a step.
"""

from __future__ import annotations

from steppe.models.config import Config


def per_layer_columns(text: Config) -> int:
    """Columns of Gemma's second embedding table: `hidden_size_per_layer_input` a layer, one row a token of the
    vocabulary (vllm/model_executor/models/gemma4.py:1003-1040)."""
    width = text.count("hidden_size_per_layer_input", default=0)
    return width * text.positive("num_hidden_layers") if width else 0


def encoder_parameters(outer: Config, text: Config) -> int:
    """Parameters of a vision transformer and its projection into the decoder, by the model type of its config. Norms,
    biases and small tables are left out, audio encoders too."""
    if not outer.has("vision_config") or not outer.section("vision_config").data:
        return 0
    vision = outer.section("vision_config")
    family = str(vision.get("model_type", outer.get("model_type", "")))
    hidden = vision.count("hidden_size", "vt_hidden_size", default=0)
    depth = vision.count("depth", "num_hidden_layers", "vt_num_hidden_layers", default=0)
    inner = vision.count("intermediate_size", "vt_intermediate_size", default=0)
    if not (hidden and depth and inner):
        return 0
    gated = family in _GATED
    attention = vision.count("qkv_hidden_size", default=0) or hidden
    layers = depth * (4 * hidden * attention + (3 if gated else 2) * hidden * inner)
    return layers + _projection(family, vision, text, hidden) + _patches(vision, hidden)


_GATED = frozenset({"pixtral", "gemma4_vision", "qwen2_5_vl", "glm5_next_vision"})


def _patches(vision: Config, hidden: int) -> int:
    patch, frames = vision.count("patch_size", default=0), vision.count("temporal_patch_size", default=1)
    positions = vision.count("num_position_embeddings", default=0) or 2 * vision.count(
        "position_embedding_size", default=0
    )
    return hidden * (3 * patch * patch * frames + positions)


def _projection(family: str, vision: Config, text: Config, hidden: int) -> int:
    """From patches to the decoder's width: qwen3_vl.py (merger and one more a tapped layer), mistral3.py, gemma3_mm.py,
    kimi_k25.py under vllm/model_executor/models."""
    out = text.positive("hidden_size")
    if family.startswith("gemma"):
        return hidden * out
    if family == "pixtral":
        return 4 * hidden * hidden + hidden * out + out * out
    merged = vision.count("spatial_merge_size", default=2) ** 2 * hidden
    taps = len(vision.items("deepstack_visual_indexes", default=[]) or [])
    return (1 + taps) * (merged * merged + merged * vision.count("out_hidden_size", default=out))
