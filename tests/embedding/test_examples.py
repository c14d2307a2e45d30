"""The examples build against the installed package with CMake, and price what Python prices."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import kernel_named

import steppe

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(*words: str | Path) -> str:
    """Standard output of a program that must succeed."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples, compiled."""
    cmake = shutil.which("cmake", path=str(Path(sys.executable).parent)) or shutil.which("cmake")
    if not cmake or not (shutil.which("c++") or shutil.which("g++")):
        pytest.skip("no cmake or no C++ compiler")
    folder = tmp_path_factory.mktemp("examples")
    run(cmake, "-S", EXAMPLES, "-B", folder, f"-Dsteppe_DIR={steppe.get_cmake_dir()}")
    run(cmake, "--build", folder)
    return folder


@pytest.fixture(scope="module", params=["dense", "drafting"])
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[steppe.Kernel, Path]:
    """A kernel and the file of its bytes."""
    kernel = kernel_named(request.param)
    path = tmp_path_factory.mktemp("kernel") / "kernel.bin"
    path.write_bytes(kernel.to_bytes())
    return kernel, path


def test_cpp_prices_what_python_prices(built: Path, stored: tuple[steppe.Kernel, Path]) -> None:
    kernel, path = stored
    e = kernel.step_time(steppe.Batch([1] * 96, [3000] * 96))
    assert run(built / "price", path, "96", "3000").startswith(f"96 decodes: {e.no_overlap / 1e6:.3f} ms")


def test_both_simulations_agree(built: Path, stored: tuple[steppe.Kernel, Path]) -> None:
    _, path = stored
    for rate in ("4", "40"):
        cpp = run(built / "simulate", path, "20000", rate).splitlines()
        c = run(built / "simulate_c", path, "20000", rate).splitlines()
        assert cpp[0] == c[0]
        assert cpp[0].startswith("20000 steps, ")
        assert "steps a second" in c[1]


def test_python_simulates_the_same(built: Path, stored: tuple[steppe.Kernel, Path]) -> None:
    _, path = stored
    cpp = run(built / "simulate", path, "3000", "12").splitlines()
    assert run(sys.executable, EXAMPLES / "simulate.py", path, "3000", "12").splitlines()[0] == cpp[0]


def test_a_damaged_kernel_ends_with_a_message(built: Path, tmp_path: Path) -> None:
    (tmp_path / "kernel.bin").write_bytes(b"STEPPEK\n and nothing more")
    for program in ("price", "simulate", "simulate_c"):
        done = subprocess.run([built / program, tmp_path / "kernel.bin"], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "not a serialized kernel" in done.stderr
