"""Every benchmark: C++ and Python, peers beside them, instructions where valgrind is there.

    python bench/run.py [--out build/bench] [--quick]

Prints tables and writes results.json and growth.svg into the folder. Needs cmake and a C++ compiler; pytest-benchmark
for the Python part, matplotlib for the picture. Times are the best of many short runs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import inputs
import peers

import steppe

HERE = Path(__file__).resolve().parent
# (bar ns with a reference set) by case; refined sets may take twice as long.
BARS = {"decode_1": 150, "decode_256": 400, "prefill_with_decodes": 500, "running_256": 250, "bulk_64_threads_1": 250}
TABLE = (
    *("decode_1", "decode_32_mixed", "decode_256", "decode_1024", "prefill_with_decodes"),
    *("running_256", "running_1024", "running_256_leave_and_join", "bulk_64_threads_1", "build"),
)


def run(*words: str | Path, **more: Any) -> str:
    """Standard output of a program that must succeed."""
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, **more).stdout


def tool(name: str) -> str | None:
    """A program of this environment or of the path."""
    return shutil.which(name, path=os.path.dirname(sys.executable)) or shutil.which(name)


def build(folder: Path) -> Path:
    """The C++ program."""
    cmake = tool("cmake")
    if not cmake:
        sys.exit("bench: cmake is needed to build the C++ benchmark: pip install cmake")
    run(cmake, "-S", HERE, "-B", folder / "cpp", f"-Dsteppe_DIR={steppe.get_cmake_dir()}", "-DCMAKE_BUILD_TYPE=Release")
    run(cmake, "--build", folder / "cpp")
    return folder / "cpp" / "pricing"


def instructions(program: Path, kernel: Path, batches: Path, case: str, folder: Path) -> int:
    """Instructions of one call: callgrind's count of 1,200 calls less that of 200, over 1,000."""
    counts = []
    for calls in (200, 1200):
        words = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder / 'callgrind.out'}"]
        done = subprocess.run(
            [*words, str(program), str(kernel), str(batches), "--repeat", case, str(calls)],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        counts.append(int(re.search(r"Collected : (\d+)", done.stderr)[1]))  # type: ignore[index]
    return round((counts[1] - counts[0]) / 1000)


def cpp(folder: Path, quick: bool) -> dict[str, Any]:
    """Nanoseconds (and instructions) of every kernel and case."""
    program = build(folder)
    found: dict[str, Any] = {}
    count = bool(shutil.which("valgrind")) and not quick
    for name, kernel in inputs.kernels().items():
        paths = inputs.write(name, kernel, folder)
        result = json.loads(run(program, *paths, str(os.cpu_count() or 1)))
        if count:
            result["instructions"] = {case: instructions(program, *paths, case, folder) for case in inputs.CASES}
        found[name] = result
        print_row(name, result)
    return found


def print_head() -> None:
    """Names of the columns."""
    print("\nns a call (batch, step); bars hold for reference sets, twice the bar for shipped sets\n")
    print(" " * 22 + "".join(f"{name.replace('prefill_with_decodes', 'mixed')[:15]:>16}" for name in TABLE))
    print(f"{'bar':22}" + "".join(f"{BARS.get(name, ''):>16}" for name in TABLE))


def print_row(name: str, result: dict[str, Any]) -> None:
    """One kernel."""
    factor = 1 if name in inputs.GOLDEN_NAMES else 2
    cells = []
    for case in TABLE:
        late = case in BARS and result[case] > factor * BARS[case]
        cells.append(f"{result[case]:15.0f}{'!' if late else ' '}")
    print(f"{name:22}" + "".join(cells), flush=True)


def print_instructions(found: dict[str, Any]) -> None:
    """Instructions a call, where they were counted."""
    counted = {name: result["instructions"] for name, result in found.items() if "instructions" in result}
    if not counted:
        print("\ninstructions were not counted (valgrind)")
        return
    print("\ninstructions a call (callgrind)\n" + " " * 22 + "".join(f"{case:>24}" for case in inputs.CASES))
    for name, counts in counted.items():
        print(f"{name:22}" + "".join(f"{counts[case]:>24,}" for case in inputs.CASES))


def python(folder: Path) -> dict[str, Any]:
    """Microseconds of the Python benchmarks, or nothing where pytest-benchmark is missing."""
    target = folder / "python.json"
    options = ["-q", "-p", "no:cacheprovider", "--benchmark-only", f"--benchmark-json={target}"]
    words = [sys.executable, "-m", "pytest", str(HERE / "test_python.py"), *options]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        print("\nPython benchmarks did not run (is pytest-benchmark installed?)\n" + done.stdout[-2000:])
        return {}
    found: dict[str, Any] = {}
    for each in json.loads(target.read_text())["benchmarks"]:
        name = each["name"].removeprefix("test_")
        found[name] = each["extra_info"] or {"us": round(each["stats"]["min"] * 1e6, 3)}
    print("\nPython\n" + "\n".join(f"  {name:60} {value}" for name, value in found.items()))
    return found


def picture(found: dict[str, Any], folder: Path) -> None:
    """How cost grows with the batch: from scratch and kept."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: matplotlib is not installed")
        return
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for name, result in found.items():
        left.plot([1, 64, 256, 1024], [result[f"decode_{n}"] for n in (1, 64, 256, 1024)], "o-", label=name)
        right.plot([64, 256, 1024], [result[f"running_{n}"] for n in (64, 256, 1024)], "o-")
    for axes, title in ((left, "step_time from scratch"), (right, "running batch: advance and price")):
        axes.set(xscale="log", title=title, xlabel="decodes", ylim=(0, None))
        axes.grid(alpha=0.25)
    left.set_ylabel("ns a step")
    left.legend(fontsize="x-small")
    figure.savefig(folder / "growth.svg")


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="folder of results and builds")
    parser.add_argument("--quick", action="store_true", help="without instruction counts and Python")
    given = parser.parse_args()
    folder = given.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"steppe {steppe.__version__} on {machine}")
    print_head()
    found = cpp(folder, given.quick)
    print_instructions(found)
    results: dict[str, Any] = {"machine": machine, "cpp_ns": found}
    if not given.quick:
        results["python"] = python(folder)
        results["peers_us"] = peers.measure()
        print("\none decode step of 64 requests, microseconds (null: not installed)")
        print("\n".join(f"  {name:28} {'absent' if us is None else us}" for name, us in results["peers_us"].items()))
    (folder / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    picture(found, folder)
    print(f"\nresults in {folder}")


if __name__ == "__main__":
    main()
