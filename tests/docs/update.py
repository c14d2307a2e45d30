"""Write into the documentation what its blocks print today: `python tests/docs/update.py [PAGE...]`.

Expected output with `...` in it is left alone and named where it no longer matches.
"""

from __future__ import annotations

import os
import sys
import tempfile
import textwrap
from pathlib import Path

from doc_blocks import Outcome, blocks_of, pages, run


def rewrite(page: Path, outcomes: list[Outcome]) -> int:
    """Replace the shown output that no longer agrees, from the end of the page; returns how many blocks changed."""
    lines = page.read_text(encoding="utf-8").split("\n")
    changed = 0
    for outcome in sorted(outcomes, key=lambda each: -each.block.start):
        block = outcome.block
        if outcome.agrees:
            continue
        if "..." in outcome.shown or not outcome.shown.strip():
            print(f"{block.where}: change by hand; it prints\n{outcome.printed}")
            continue
        lines[block.start : block.end] = textwrap.indent(outcome.printed.rstrip("\n"), block.indent).split("\n")
        changed += 1
    page.write_text("\n".join(lines), encoding="utf-8")
    return changed


def main(names: list[str]) -> None:
    """Update the named pages, or all."""
    for page in [Path(name).resolve() for name in names] or pages():
        with tempfile.TemporaryDirectory() as folder:
            here = Path.cwd()
            os.chdir(folder)
            try:
                outcomes = list(run(blocks_of(page)))
            finally:
                os.chdir(here)
        if changed := rewrite(page, outcomes):
            print(f"{page}: {changed} blocks")


if __name__ == "__main__":
    main(sys.argv[1:])
