"""Model graphs derived from Hugging Face configs: `derive` from a dict, `derive_file` from a config.json on disk."""

from steppe.models.derive import DERIVER_VERSION, derive, derive_file
from steppe.models.parameters import parameters

__all__ = ["DERIVER_VERSION", "derive", "derive_file", "parameters"]
