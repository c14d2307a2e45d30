"""Folding a list of layers into a stack: prologue, a repeated pattern, epilogue."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


def fold(kinds: list[str]) -> dict[str, Any]:
    """The shortest statement of `kinds` as prologue + pattern·repeat + epilogue.

    Fewest written ids wins; among equals the shorter pattern, then the shorter prologue. A lone layer is a pattern
    repeated once.
    """
    best = _best(kinds)
    prologue, pattern, repeat, epilogue = best
    stack: dict[str, Any] = {}
    if prologue:
        stack["prologue"] = prologue
    stack["pattern"] = pattern
    stack["repeat"] = repeat
    if epilogue:
        stack["epilogue"] = epilogue
    return stack


def _best(kinds: list[str]) -> tuple[list[str], list[str], int, list[str]]:
    count = len(kinds)
    best: tuple[list[str], list[str], int, list[str]] = ([], list(kinds), 1, [])
    cost = (count, count, 0)
    for width in range(1, count + 1):
        start = 0
        while start + width <= count:
            repeat = 1
            while kinds[start + repeat * width : start + (repeat + 1) * width] == kinds[start : start + width]:
                repeat += 1
            left = count - repeat * width
            if (left + width, width, start) < cost:
                cost = (left + width, width, start)
                end = start + repeat * width
                best = (kinds[:start], kinds[start : start + width], repeat, kinds[end:])
            start += 1
    return best


def unfold(stack: dict[str, Any]) -> list[str]:
    """The kinds of a stack in layer order."""
    return [
        *stack.get("prologue", []),
        *(stack.get("pattern", []) * stack.get("repeat", 0)),
        *stack.get("epilogue", []),
    ]
