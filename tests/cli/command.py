"""Runs the `steppe` command in this process."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from unittest import mock

from steppe.cli import main


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


def steppe(*arguments: object, columns: int = 140) -> Ran:
    """What the command prints and exits with; an exception that is not an exit fails the test that ran it."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with (
        mock.patch("sys.argv", ["steppe", *map(str, arguments)]),
        mock.patch.dict("os.environ", {"COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "dumb"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    return Ran(code, out.getvalue(), err.getvalue())
