"""Command line: write the generated reference pages, or with --check say whether the committed ones are current."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from steppe.docgen.notes import DocgenError, scan
from steppe.docgen.page import load_summaries, render

PAGE = "docs/reference/divergences.md"
SUMMARIES = "docs/reference/divergence_summaries.yaml"


def repository(start: Path) -> Path:
    """The repository around `start`: the nearest folder with a pyproject.toml and a python/ folder."""
    for folder in (start, *start.parents):
        if (folder / "pyproject.toml").is_file() and (folder / "python").is_dir():
            return folder
    raise DocgenError(f"{start}: not inside the repository; run there or give --root")


def generate(root: Path, *, check: bool) -> str:
    """Write the page under `root`, or compare with it; returns what was done. Raises DocgenError."""
    text = render(scan(root), load_summaries(root / SUMMARIES))
    return put(root, PAGE, text, check=check)


def generate_reference(root: Path, *, check: bool) -> list[str]:
    """Write every page made from the package's own tables, or compare; returns what was done. Raises DocgenError."""
    from steppe.docgen.reference import pages

    done: list[str] = []
    stale: list[str] = []
    for name, text in pages().items():
        try:
            done.append(put(root, name, text, check=check))
        except DocgenError as error:
            stale.append(str(error))
    if stale:
        raise DocgenError("\n".join(stale))
    return done


def put(root: Path, name: str, text: str, *, check: bool) -> str:
    """Write one page, or compare it with what is there. Raises DocgenError where it differs."""
    page = root / name
    if check:
        if not page.is_file() or page.read_text(encoding="utf-8") != text:
            raise DocgenError(f"{name} is not what the sources say; run python -m steppe.docgen and commit it")
        return f"{name} is current"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")
    return f"wrote {name}"


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit status, 1 when something is out of order."""
    parser = argparse.ArgumentParser(prog="python -m steppe.docgen", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail when the page is not current")
    parser.add_argument("--root", type=Path, help="repository root (default: the one around the current folder)")
    options = parser.parse_args(arguments)
    try:
        root = options.root or repository(Path.cwd())
        done = [generate(root, check=options.check)]
        if (root / "python" / "steppe").is_dir():  # the tables are this package's own
            done += generate_reference(root, check=options.check)
        print("\n".join(done))
    except DocgenError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
