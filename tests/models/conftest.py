"""Where the configs of catalog models are found, for tests that derive them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def configs() -> Path:
    """A folder of `<org>--<model>_config.json` files, named by STEPPE_CONFIGS."""
    folder = os.environ.get("STEPPE_CONFIGS")
    if not folder:
        pytest.skip("STEPPE_CONFIGS names no folder of Hugging Face configs; they are not kept in this repository")
    return Path(folder)
