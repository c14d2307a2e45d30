"""Folding layers into a stack, and writing a graph down."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from steppe.models.emit import to_yaml
from steppe.models.stack import fold, unfold


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=30))
def test_folding_loses_nothing(kinds: list[str]) -> None:
    stack = fold(kinds)
    assert unfold(stack) == kinds
    assert stack["pattern"]
    assert stack["repeat"] >= 1


@pytest.mark.parametrize(
    ("kinds", "stack"),
    [
        ("a", {"pattern": ["a"], "repeat": 1}),
        ("aaaa", {"pattern": ["a"], "repeat": 4}),
        ("abab", {"pattern": ["a", "b"], "repeat": 2}),
        ("cccaaaa", {"prologue": ["c", "c", "c"], "pattern": ["a"], "repeat": 4}),
        ("cabababd", {"prologue": ["c"], "pattern": ["a", "b"], "repeat": 3, "epilogue": ["d"]}),
        ("aaabaaabaaab", {"pattern": ["a", "a", "a", "b"], "repeat": 3}),
    ],
)
def test_the_shortest_statement_wins(kinds: str, stack: dict[str, object]) -> None:
    assert fold(list(kinds)) == stack


@pytest.mark.parametrize("text", ["plain", "yes", "128x128", "a: b", 'a "b" \\', "0" * 64, "e" * 64, "", "null", "1.5"])
def test_scalars_survive_the_writing(text: str) -> None:
    assert yaml.safe_load(to_yaml({"name": text, "map": {"flow": {"x": [text]}}})) == {
        "name": text,
        "map": {"flow": {"x": [text]}},
    }
