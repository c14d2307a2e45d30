"""Fixtures of the calibration's tests. Without its optional dependencies there is nothing to test here."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from steppe.calibrate.parts import Part

collect_ignore_glob = [] if all(map(find_spec, ("pandas", "pyarrow", "scipy"))) else ["test_*.py"]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import synthetic_wheel

    return synthetic_wheel.build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def part(wheel: Path) -> Part:
    from steppe.calibrate.parts import load_part

    return load_part(wheel, "h100")
