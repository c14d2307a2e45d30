"""Where the installed package keeps what other languages build against."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).resolve().parent


def _folder(*parts: str) -> str:
    from steppe import _core

    # Beside the extension in an editable install, whose Python files stay in the source tree.
    for root in (_ROOT, Path(_core.__file__).resolve().parent):
        if root.joinpath(*parts).is_dir():
            return str(root.joinpath(*parts))
    raise FileNotFoundError(f"this build of steppe was installed without {'/'.join(parts)}")


def get_include() -> str:
    """The folder to add to a compiler's include path: `steppe/kernel.hpp`, `steppe.h` and the others."""
    return _folder("include")


def get_cmake_dir() -> str:
    """The folder for CMake's `steppe_DIR`, so that `find_package(steppe)` finds the package."""
    return _folder("lib", "cmake", "steppe")


def get_library() -> str:
    """The shared library of the C interface (`steppe.h`), for a linker or a foreign function interface."""
    return str(Path(_folder("lib")) / "libsteppe.so")
