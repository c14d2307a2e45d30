"""Line coverage of the C++ core by its own tests: `python tests/coverage/cpp.py [MINIMUM]`.

Builds the `coverage` preset, runs every test program and reads gcov's own output, so that it needs nothing but cmake,
ninja and gcc. Counts lines of cpp/src and cpp/include; exit code 1 below MINIMUM percent (default 95) in all.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "coverage"
COUNTED = (ROOT / "cpp" / "src", ROOT / "cpp" / "include")


def run(*command: str) -> str:
    """Run a command in the repository and return what it prints; its failure is this script's."""
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def counts() -> dict[Path, dict[int, int]]:
    """Times every line ran, by file, over all test programs."""
    lines: dict[Path, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for data in BUILD.rglob("*.gcda"):
        for text in run("gcov", "--json-format", "--stdout", str(data)).splitlines():
            for file in json.loads(text)["files"]:
                path = (BUILD / file["file"]).resolve()
                if any(path.is_relative_to(folder) for folder in COUNTED):
                    for line in file["lines"]:
                        lines[path][line["line_number"]] += line["count"]
    return lines


def main() -> int:
    minimum = float(sys.argv[1]) if len(sys.argv) > 1 else 95.0
    for stale in BUILD.rglob("*.gcda"):
        stale.unlink()
    run("cmake", "--preset", "coverage", "-G", "Ninja")
    run("cmake", "--build", "--preset", "coverage")
    run("ctest", "--test-dir", str(BUILD), "--output-on-failure")
    hit = total = 0
    for path, lines in sorted(counts().items()):
        missed = [line for line, count in sorted(lines.items()) if not count]
        hit, total = hit + len(lines) - len(missed), total + len(lines)
        share = 100 * (1 - len(missed) / len(lines))
        shown = ", ".join(map(str, missed[:12])) + (" ..." if len(missed) > 12 else "")
        print(f"{share:6.1f} %  {path.relative_to(ROOT)}" + (f"  not run: {shown}" if missed else ""))
    print(f"{100 * hit / total:6.1f} %  of {total} lines")
    return 0 if 100 * hit >= minimum * total else 1


if __name__ == "__main__":
    sys.exit(main())
