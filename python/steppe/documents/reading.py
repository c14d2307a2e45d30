"""Reading YAML and JSON that others wrote: safe, strict and bounded.

A file becomes plain dicts, lists, strings, numbers, booleans and None. Refused: tags, duplicate keys, non-finite
numbers, and files that are too large, too deep, or unfold too far through aliases. Scalars follow the YAML 1.2 core
schema, so `NONE`, `no` and `12:30` stay strings and `1e9` is a number.
"""

from __future__ import annotations

import json
import math
import re
import stat
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from steppe.documents.problems import KeyPath, Problem
from steppe.documents.yaml_nodes import MAX_DEPTH, MAX_NODES, PLAIN, TooFar, compose

MAX_YAML_BYTES = 4 << 20
MAX_JSON_BYTES = 64 << 20
MAX_DIGITS = 400  # of a number; longer ones are hostile

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NON_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LARGE_EXPONENT = re.compile(r"[eE]\+?[0-9]{3}")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_CORE_TAG = re.compile(r"tag:yaml\.org,2002:(?:str|seq|map|int|float|bool|null)")
_OPEN = object()


@dataclass(slots=True)
class Reading:
    """The documents of one file with their positions in it, and what was wrong with reading it.

    Damaged documents are left out, and so are empty ones.
    """

    file: str
    documents: list[tuple[int, Any]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read(path: Path) -> Reading:
    """Read every document of a YAML or JSON (`.json`) file. Never raises on bad content: see `Reading.problems`."""
    reading = Reading(str(path))
    text = _text(path, reading)
    if text is None:
        return reading
    if path.suffix == ".json":
        _read_json(text, reading)
    else:
        _read_yaml(text, reading)
    return reading


def _text(path: Path, reading: Reading) -> str | None:
    limit = MAX_JSON_BYTES if path.suffix == ".json" else MAX_YAML_BYTES
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        if status.st_size > limit:
            raise OSError(f"{status.st_size} bytes, above the limit of {limit}; split it")
        with path.open("rb") as stream:
            return stream.read(limit + 1).decode("utf-8-sig")
    except FileNotFoundError:
        message = "no such file; check the path"
    except UnicodeDecodeError as error:
        message = f"not UTF-8 text (byte {error.start}); save it as UTF-8"
    except (OSError, ValueError) as error:
        message = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    reading.problems.append(Problem(reading.file, None, (), message))
    return None


def _read_yaml(text: str, reading: Reading) -> None:
    try:
        roots = compose(text)
        for index, root in enumerate(roots):
            builder = _Builder(reading.file)
            value = builder.build(root, ())
            reading.problems += builder.problems
            if not builder.problems and value is not None:
                reading.documents.append((index, value))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reading.problems.append(_syntax_problem(reading.file, error))


def _syntax_problem(file: str, error: Exception) -> Problem:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        what = ", ".join(part for part in (error.context, error.problem) if part)
        return Problem(file, mark.line + 1 if mark else None, (), f"not valid YAML: {what}")
    if isinstance(error, TooFar):
        return Problem(file, error.line, (), str(error))
    reason = "nested too deeply" if isinstance(error, RecursionError) else str(error).replace("\n", " ")
    return Problem(file, None, (), f"not valid YAML: {reason}")


class _Builder:
    """Turns composed nodes into plain values."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self._built: dict[int, Any] = {}  # collections by node identity: value and unfolded size
        self._total = 0

    def build(self, node: Any, path: KeyPath) -> Any:
        if isinstance(node, yaml.ScalarNode):
            self._total += 1
            return self._scalar(node, path)
        known = self._built.get(id(node))
        if known is _OPEN:
            return self._refuse(node, path, "an alias contains itself; write the value out")
        if known is not None:
            self._grow(known[1], node)
            return known[0]
        before = self._total
        self._grow(1, node)
        self._built[id(node)] = _OPEN
        if not _CORE_TAG.fullmatch(node.tag):
            self._refuse(node, path, f"tag {node.tag!r} is not allowed; remove it")
        is_list = isinstance(node, yaml.SequenceNode)
        value = self._list(node, path) if is_list else self._map(node, path)
        self._built[id(node)] = (value, self._total - before)
        return value

    def _grow(self, size: int, node: Any) -> None:
        self._total += size
        if self._total > MAX_NODES:
            raise TooFar(f"unfolds to more than {MAX_NODES} values; write it without aliases", node.start_mark.line + 1)

    def _refuse(self, node: Any, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(self.file, node.start_mark.line + 1, path, message))

    def _list(self, node: Any, path: KeyPath) -> list[Any]:
        return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]

    def _map(self, node: Any, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        merged: list[dict[str, Any]] = []
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(key_node, path, "a key must be text; write a plain word")
                continue
            key = key_node.value
            here = (*path, key)
            value = self.build(value_node, here)
            if key == "<<" and key_node.tag is PLAIN:
                merged += self._merge(value_node, value, here)
            elif key in values:
                self._refuse(key_node, here, "the key is stated twice; keep one")
            else:
                values[key] = value
        for source in merged:
            for key, value in source.items():
                values.setdefault(key, value)
        return values

    def _merge(self, node: Any, value: Any, path: KeyPath) -> list[dict[str, Any]]:
        sources = value if isinstance(value, list) else [value]
        if all(isinstance(source, dict) for source in sources):
            return sources
        self._refuse(node, path, "merges something that is no map; merge maps only")
        return []

    def _scalar(self, node: Any, path: KeyPath) -> Any:
        tag, text = node.tag, node.value
        if tag is not PLAIN:
            if not _CORE_TAG.fullmatch(tag):
                self._refuse(node, path, f"tag {tag!r} is not allowed; remove it")
                return text
            if tag.endswith(":str"):
                return text
        try:
            return plain_value(text)
        except ValueError as error:
            return self._refuse(node, path, str(error))


@lru_cache(maxsize=4096)
def plain_value(text: str) -> Any:
    """Value of an unquoted scalar by the YAML 1.2 core schema. Raises ValueError on a number no document may hold."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "-+.0123456789":
        return text
    if len(text) > MAX_DIGITS and _FLOAT.fullmatch(text):
        raise ValueError(f"a number of {len(text)} digits; write it shorter")
    if _INT.fullmatch(text):
        return int(text, 0 if text[:2] in ("0x", "0o") else 10)
    if _FLOAT.fullmatch(text):
        return _finite(text)
    if _NON_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a finite number; state a number")
    return text


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number; state a number")
    return number


class _DuplicateKey(ValueError):
    """A JSON object states a key twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise _DuplicateKey
    return values


def _read_json(text: str, reading: Reading) -> None:
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_finite,
            # a hook for every float is slow: only where some exponent could overflow
            parse_float=_finite if _LARGE_EXPONENT.search(text) else None,
        )
        _check_depth(value)
    except json.JSONDecodeError as error:
        reading.problems.append(Problem(reading.file, error.lineno, (), f"not valid JSON: {error.msg}"))
    except TooFar as error:
        reading.problems.append(Problem(reading.file, None, (), str(error)))
    except RecursionError:
        reading.problems.append(Problem(reading.file, None, (), f"nested deeper than {MAX_DEPTH} levels; flatten it"))
    except _DuplicateKey:
        _explain_json(text, reading, "a key is stated twice; keep one")
    except ValueError as error:
        _explain_json(text, reading, str(error))
    else:
        reading.documents.append((0, value))


def _explain_json(text: str, reading: Reading, message: str) -> None:
    """Find line and key path by reading the JSON as YAML; failing that, report the file alone."""
    known = len(reading.problems)
    if len(text) <= MAX_YAML_BYTES:
        _read_yaml(text, reading)
        reading.documents.clear()
    if len(reading.problems) == known:
        reading.problems.append(Problem(reading.file, None, (), message))


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            item
            for outer in level
            if isinstance(outer, (dict, list))
            for item in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(item, (dict, list))
        ]
        if not level:
            return
    raise TooFar(f"nested deeper than {MAX_DEPTH} levels; flatten it")
