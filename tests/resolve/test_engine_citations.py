"""Every engine fact cites lines that exist; checked against the release where it is at hand."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import steppe.engine.v0_31
import steppe.resolve
from steppe.resolve.rules import ASSUMPTIONS, OVERRIDES, REFUSALS

CITED = re.compile(r"(vllm/[\w./-]+\.py)(?::(\d+(?:-\d+)?(?:, \d+(?:-\d+)?)*))?")
SOURCE = os.environ.get("STEPPE_VLLM", "")


def citations() -> set[tuple[str, str]]:
    """(path, lines) of every citation in the engine facts and the resolver."""
    found: set[tuple[str, str]] = set()
    for package in (steppe.engine.v0_31, steppe.resolve):
        for folder in package.__path__:
            for file in Path(folder).glob("*.py"):
                found |= {(path, lines or "") for path, lines in CITED.findall(file.read_text())}
    for rule in (*REFUSALS, *ASSUMPTIONS, *OVERRIDES):
        found |= {(path, lines or "") for path, lines in CITED.findall(rule.source)}
    return found


def test_there_are_citations() -> None:
    assert len(citations()) > 80


def test_every_rule_has_a_source() -> None:
    for rule in (*REFUSALS, *ASSUMPTIONS, *OVERRIDES):
        assert CITED.search(rule.source) or "document" in rule.source or rule.source.startswith("vLLM"), rule


@pytest.mark.skipif(not SOURCE, reason="the release's sources are not at hand; set STEPPE_VLLM to the folder of vllm/")
def test_cited_lines_exist() -> None:
    missing = []
    for path, lines in sorted(citations()):
        file = Path(SOURCE) / path
        if not file.is_file():
            missing.append(path)
            continue
        length = len(file.read_text().splitlines())
        for span in filter(None, lines.split(", ")):
            first, _, last = span.partition("-")
            if not 0 < int(first) <= int(last or first) <= length:
                missing.append(f"{path}:{span} of {length} lines")
    assert missing == []
