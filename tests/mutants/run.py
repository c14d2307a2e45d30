"""Break laws and composition one by one and see a test fail: `python tests/mutants/run.py [TEXT]`.

Works in a copy of the tree, rebuilds what a mutation touches (with ccache where it is installed) and runs the few tests
that ought to notice. TEXT restricts the run to mutations whose file holds it. Exit code 1 when a mutation survives.
Needs cmake, ninja, a C++20 compiler and the package's test dependencies; not part of `make test`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = ("build", ".git", ".venv*", "docs", "examples", "bench", "__pycache__", "*.so", ".*_cache", ".hypothesis")

# Runs pytest on the copy whatever way the package is installed: an editable install would find the tree it came from.
PYTEST = """
import sys
sys.meta_path[:] = [each for each in sys.meta_path if not type(each).__module__.startswith(("_editable", "__editable"))]
import steppe
assert steppe.__file__.startswith(sys.argv[1]), steppe.__file__
import pytest
sys.exit(pytest.main(sys.argv[2:]))
"""


class Broken(Exception):
    """A mutated tree does not build, or a test cannot run: the mutation says nothing."""


class Tree:
    """A copy of the repository that is mutated, built and tested."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.build = root / "mutants-build"
        shutil.copytree(ROOT, root, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        self.environment = {**os.environ, "PYTHONPATH": str(root / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
        self._configure()

    def _configure(self) -> None:
        pybind = self._run([sys.executable, "-m", "pybind11", "--cmakedir"]).strip()
        launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        self._run([
            "cmake", "-S", str(self.root), "-B", str(self.build), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=None",
            "-DCMAKE_CXX_FLAGS=-O1", "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=OFF",
            "-DSTEPPE_BUILD_TESTS=ON", "-DSTEPPE_BUILD_PYTHON=ON",
            f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind}", *launcher,
        ])  # fmt: skip

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.root)
        if done.returncode:
            raise Broken(f"{' '.join(command[:4])}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def target(self, name: str) -> None:
        """Build one target; the extension is put where Python looks for it."""
        self._run(["cmake", "--build", str(self.build), "--target", name])
        if name == "_core":
            (built,) = self.build.glob("_core*.so")
            shutil.copy2(built, self.root / "python" / "steppe" / built.name)

    def program(self, name: str) -> bool:
        """Whether a C++ test program passes."""
        self.target(f"test_{name}")
        program = next(self.build.rglob(f"test_{name}"))
        return subprocess.run([str(program)], capture_output=True, check=False).returncode == 0

    def header(self) -> bool:
        """Whether the laws' headers pass their test, compiled alone."""
        program = self.build / "laws_alone"
        compiler = os.environ.get("CXX", "c++")
        self._run([compiler, "-std=c++20", "-O0", "-Icpp/include", "cpp/tests/test_laws.cpp", "-o", str(program)])
        return subprocess.run([str(program)], capture_output=True, check=False).returncode == 0

    def pytest(self, *arguments: str) -> bool:
        """Whether tests pass; anything but passed or failed is an error."""
        self.target("_core")
        options = ("-q", "-x", "-p", "no:cacheprovider", *arguments)
        command = [sys.executable, "-c", PYTEST, str(self.root), *options]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=self.root, env=self.environment, timeout=300
        )
        if done.returncode not in (0, 1):
            raise Broken(done.stdout[-2000:] + done.stderr[-2000:])
        return done.returncode == 0


CHECKS: dict[str, Callable[[Tree], bool]] = {
    "header": Tree.header,
    "features": lambda tree: tree.program("features"),
    "pricing": lambda tree: tree.program("pricing"),
    "relations": lambda tree: tree.pytest("tests/plan/test_relations.py"),
    "oracle": lambda tree: tree.pytest("tests/plan/test_reference_oracle.py", "-k", "stand or layouts"),
    "lists": lambda tree: tree.pytest("tests/plan/test_kernel_lists.py"),
    "refined": lambda tree: tree.pytest("tests/kernel/test_refined_laws.py", "-k", "attention_decode"),
}


def killed_by(tree: Tree, mutation: Mutation) -> str:
    """The check that failed under the mutation, "" where none did. The file is put back in any case."""
    path = tree.root / mutation.file
    text = path.read_text()
    path.write_text(text.replace(mutation.old, mutation.new))
    try:
        return next((name for name in mutation.checks if not CHECKS[name](tree)), "")
    finally:
        path.write_text(text)


def main() -> int:
    wanted = [each for each in MUTATIONS if all(text in each.file for text in sys.argv[1:])]
    for each in wanted:
        found = (ROOT / each.file).read_text().count(each.old)
        if found != 1:
            print(f"{each.file}: {each.old!r} occurs {found} times, not once; bring the mutation up to date")
            return 2
    started = time.monotonic()
    survived: list[Mutation] = []
    with tempfile.TemporaryDirectory(prefix="steppe-mutants-") as folder:
        tree = Tree(Path(folder))
        for name in dict.fromkeys(check for each in wanted for check in each.checks):
            if not CHECKS[name](tree):
                print(f"the tests of {name!r} fail without any mutation")
                return 2
        print(f"{len(wanted)} mutations; unmutated tests pass after {time.monotonic() - started:.0f} s", flush=True)
        for mutation in wanted:
            before = time.monotonic()
            by = killed_by(tree, mutation)
            verdict = f"killed by {by}" if by else "SURVIVED"
            taken = time.monotonic() - before
            print(
                f"{verdict:20} {taken:5.1f} s  {mutation.file}: {mutation.old[:50]} -> {mutation.new[:40]}", flush=True
            )
            if not by:
                survived.append(mutation)
    print(f"{len(wanted) - len(survived)} of {len(wanted)} killed in {time.monotonic() - started:.0f} s")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
