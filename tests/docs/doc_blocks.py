"""Fenced blocks of the documentation, and what running them prints.

Every block of README and docs is one of these, or a test fails:

* `python`: run, with the page's earlier blocks already run; a `text` block right below it is what it prints;
* `console`: lines that start with `$ steppe` are run through the command line, the lines below are what each prints;
* any block under `<!-- file: NAME -->`: written to NAME in the page's working folder before what follows is run;
* any block under `<!-- skip: REASON -->`: not run, and reported as skipped with that reason;
* a `console` block under `<!-- needs: PROGRAM... -->`: its commands are run by the shell where the programs are
  installed, and the page is reported as skipped where they are not;
* a block without a language: a formula or a sketch, no code.

`...` stands for any text in expected output, and runs of white space are equal.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 110  # columns of a terminal the shown tables were printed in

_FENCE = re.compile(r"(?P<indent>\s*)(?P<fence>`{3,})(?P<info>[^`]*)")
_MARK = re.compile(r"\s*<!--\s*(?P<what>file|skip|needs):\s*(?P<value>.*?)\s*-->\s*")
_CHECKER = doctest.OutputChecker()
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """One fenced block: `start` and `end` are the line numbers (from 0) of its text, without the fences."""

    page: Path
    start: int
    end: int
    language: str
    text: str
    indent: str = ""
    file: str = ""
    skip: str = ""
    needs: str = ""
    follows: bool = False  # nothing but blank lines between it and the block before

    @property
    def where(self) -> str:
        """Page and line, as an editor opens them."""
        return f"{self.page.relative_to(ROOT)}:{self.start}"


@dataclass(frozen=True)
class Outcome:
    """A block whose output is shown: what the page shows at these lines, and what running printed."""

    block: Block
    shown: str
    printed: str

    @property
    def agrees(self) -> bool:
        """Whether the page shows what was printed."""
        if not self.shown.strip() or not self.printed.strip():
            return self.shown.strip() == self.printed.strip()
        return _CHECKER.check_output(self.shown, self.printed, _FLAGS)


def pages() -> list[Path]:
    """README and every page under docs."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    lines = page.read_text(encoding="utf-8").split("\n")
    found: list[Block] = []
    mark: tuple[str, str] = ("", "")
    follows = False
    i = 0
    while i < len(lines):
        opened = _FENCE.fullmatch(lines[i])
        if not opened:
            if marked := _MARK.fullmatch(lines[i]):
                mark = (marked["what"], marked["value"])
            elif lines[i].strip():
                mark, follows = ("", ""), False
            i += 1
            continue
        start = i + 1
        end = next(j for j in range(start, len(lines)) if lines[j].strip() == opened["fence"])
        text = textwrap.dedent("\n".join(lines[start:end]) + "\n")
        language = opened["info"].split()[0] if opened["info"].split() else ""
        file, skip, needs = (mark[1] if mark[0] == kind else "" for kind in ("file", "skip", "needs"))
        found.append(Block(page, start, end, language, text, opened["indent"], file, skip, needs, follows))
        mark, follows, i = ("", ""), True, end + 1
    return found


def unaccounted(blocks: list[Block]) -> list[str]:
    """Where blocks stand that nothing runs, compares, writes or skips."""
    wrong = []
    for block, before in zip(blocks, [None, *blocks], strict=False):
        shown = block.language == "text" and block.follows and before is not None and before.language == "python"
        shown = shown or not block.language
        commands = block.language == "console" and all(line.startswith("steppe ") for line in _commands(block))
        if not (block.file or block.skip or block.needs or block.language == "python" or shown or commands):
            wrong.append(f"{block.where}: a {block.language} block that is neither run nor skipped")
    return wrong


def run(blocks: list[Block]) -> Iterator[Outcome]:
    """Run a page's blocks in the current folder, and yield each block whose output the page shows."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for i, block in enumerate(blocks):
        if block.skip or lacking(block):
            continue
        if block.file:
            target = Path(block.file)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            printed = _python(block, namespace)
            after = blocks[i + 1] if i + 1 < len(blocks) else None
            if after is not None and after.language == "text" and after.follows:
                yield Outcome(after, after.text, printed)
            else:
                yield Outcome(block, "", printed)  # a block without shown output must print nothing
        elif block.language == "console":
            yield Outcome(block, block.text, _console(block))


def lacking(block: Block) -> list[str]:
    """Programs the block needs that are not installed here."""
    return [program for program in block.needs.split() if shutil.which(program) is None]


def _python(block: Block, namespace: dict[str, Any]) -> str:
    code = compile("\n" * block.start + block.text, str(block.page), "exec")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, namespace)
    return out.getvalue()


def _commands(block: Block) -> list[str]:
    text = block.text.replace("\\\n", "")
    return [" ".join(line[2:].split()) for line in text.split("\n") if line.startswith("$ ")]


def _console(block: Block) -> str:
    """The block as it would read: each command, then what it printed."""
    parts: list[str] = []
    command = ""
    for line in block.text.split("\n"):
        if not command and not line.startswith("$ "):
            continue
        parts.append(line)
        command += line.removeprefix("$ ").removesuffix("\\")
        if not line.endswith("\\"):
            parts.append(
                (_shell(command) if block.needs else _steppe(shlex.split(command, comments=True)[1:])).rstrip()
            )
            command = ""
    return "\n".join(parts) + "\n"


def _shell(command: str) -> str:
    """What the shell prints, with this interpreter as `python`."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        ["bash", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PATH": path},
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


def _steppe(arguments: list[str]) -> str:
    """What `steppe ARGUMENTS` prints, on either stream."""
    from steppe.cli import main

    out = io.StringIO()
    environment = {"COLUMNS": str(WIDTH), "NO_COLOR": "1", "TERM": "dumb", "TERMINAL_WIDTH": str(WIDTH)}
    before, argv = dict(os.environ), sys.argv
    os.environ.update(environment)
    sys.argv = ["steppe", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), contextlib.suppress(SystemExit):
            main()
    finally:
        sys.argv = argv
        os.environ.clear()
        os.environ.update(before)
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))
