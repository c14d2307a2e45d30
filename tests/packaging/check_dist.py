"""What a built distribution must hold: `python tests/packaging/check_dist.py FOLDER`, one wheel and one sdist in it.

The wheel carries the catalog, the type stubs, the headers, both libraries and the CMake package, is stripped, and is no
larger than 3 MiB; the sdist carries what a build needs and nothing built.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

MOST_BYTES = 3 << 20
IN_WHEEL = (
    "steppe/py.typed",
    "steppe/_core.pyi",
    "steppe/include/steppe.h",
    "steppe/include/steppe/kernel.hpp",
    "steppe/lib/libsteppe.so",
    "steppe/lib/libsteppe_core.a",
    "steppe/lib/cmake/steppe/steppeConfig.cmake",
    "steppe/catalog/data/models/deepseek-v3/graph.yaml",
)
IN_SDIST = ("pyproject.toml", "CMakeLists.txt", "cmake/install.cmake", "cpp/src/kernel.cpp", "python/steppe/kernel.py")
BUILT = (".so", ".o", ".a", ".pyc")


def wheel_problems(path: Path) -> list[str]:
    """What is wrong with a wheel."""
    problems = []
    if path.stat().st_size > MOST_BYTES:
        problems.append(f"{path.name} has {path.stat().st_size:,} bytes, more than {MOST_BYTES:,}")
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        problems += [f"{path.name} lacks {name}" for name in IN_WHEEL if name not in names]
        libraries = [name for name in names if name.endswith(".so")]
        if not any(name.startswith("steppe/_core.") for name in libraries):
            problems.append(f"{path.name} lacks the compiled core")
        # The name of the symbol table's section goes with the table.
        problems += [f"{name} is not stripped" for name in libraries if b".symtab" in wheel.read(name)]
    return problems


def sdist_problems(path: Path) -> list[str]:
    """What is wrong with a source distribution."""
    with tarfile.open(path) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    problems = [f"{path.name} lacks {name}" for name in IN_SDIST if name not in names]
    problems += [f"{path.name} carries {name}" for name in sorted(names) if name.endswith(BUILT)]
    return problems


def main(folder: Path) -> int:
    """Print every problem; 1 where there is one or nothing to check."""
    wheels, sdists = list(folder.glob("*.whl")), list(folder.glob("*.tar.gz"))
    problems = [problem for path in wheels for problem in wheel_problems(path)]
    problems += [problem for path in sdists for problem in sdist_problems(path)]
    if len(wheels) != 1 or len(sdists) != 1:
        problems.append(f"{folder} holds {len(wheels)} wheels and {len(sdists)} sdists, not one of each")
    for problem in problems:
        print(f"check_dist: {problem}")
    if not problems:
        print(f"{wheels[0].name}: {wheels[0].stat().st_size / (1 << 20):.2f} MiB, {sdists[0].name}: complete")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/dist")))
