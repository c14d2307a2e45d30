"""Model graphs derived from Hugging Face configs.

`derive_config` takes a config as a dict, `derive_file` a config.json on disk; both return the validated graph. The
document itself, a plain dict ready to be written, comes from `steppe.models.derive`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steppe.documents import ModelGraph

__all__ = ["derive_config", "derive_file"]


def derive_config(config: Mapping[str, Any], *, name: str, **options: Any) -> ModelGraph:
    """The graph of the checkpoint whose config.json is `config`.

    Options and errors are those of `steppe.models.derive.derive`.
    """
    from steppe.documents import ModelGraph
    from steppe.documents.load import parse
    from steppe.models.derive import derive

    return parse(ModelGraph, derive(config, name=name, **options), source=f"graph derived for {name}")


def derive_file(file: str | Path, **options: Any) -> ModelGraph:
    """The graph of a config.json on disk, with the hf_quant_config.json beside it if there is one.

    Options and errors are those of `steppe.models.derive.derive_file`.
    """
    from steppe.documents import ModelGraph
    from steppe.documents.load import parse
    from steppe.models.derive import derive_file as document_of

    return parse(ModelGraph, document_of(file, **options), source=f"graph derived from {file}")
