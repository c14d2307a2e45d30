"""Composing YAML text into nodes with bounds on depth and number, and finding the line of a key path in them."""

from __future__ import annotations

from typing import Any

import yaml

from steppe.documents.problems import KeyPath

MAX_DEPTH = 64
MAX_NODES = 500_000  # values of one document, aliases unfolded

PLAIN = "plain"  # tag of an unquoted scalar: its text decides
_TAGS = {yaml.SequenceNode: "tag:yaml.org,2002:seq", yaml.MappingNode: "tag:yaml.org,2002:map"}
_TEXT = "tag:yaml.org,2002:str"


class TooFar(yaml.YAMLError):
    """A document is too deep or too large; raised before memory or the stack runs out."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


class _Bounded:
    """What a PyYAML composer asks of its resolver: tags for nodes. Counts them and their depth on the way."""

    def __init__(self) -> None:
        self._depth = 0
        self._count = 0

    def descend_resolver(self, parent: Any, index: Any) -> None:
        self._depth += 1
        self._count += 1
        if self._depth > MAX_DEPTH:
            line = parent.start_mark.line + 1 if parent is not None else None
            raise TooFar(f"nested deeper than {MAX_DEPTH} levels; flatten it", line)
        if self._count > 2 * MAX_NODES:  # keys count too
            raise TooFar(f"holds more than {MAX_NODES} values; split it")

    def ascend_resolver(self) -> None:
        self._depth -= 1

    def resolve(self, kind: type[Any], value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode:
            return PLAIN if implicit[0] else _TEXT
        return _TAGS[kind]


class PythonComposer(
    _Bounded,
    yaml.reader.Reader,
    yaml.scanner.Scanner,
    yaml.parser.Parser,
    yaml.composer.Composer,
):
    """The composer of PyYAML's own parser, for installations without libyaml."""

    def __init__(self, text: str) -> None:
        yaml.reader.Reader.__init__(self, text)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)
        yaml.composer.Composer.__init__(self)
        _Bounded.__init__(self)


Composer: type[Any] = PythonComposer
if yaml.__with_libyaml__:
    from yaml._yaml import CParser

    class LibyamlComposer(_Bounded, CParser):
        """The composer over libyaml: about ten times faster."""

        def __init__(self, text: str) -> None:
            CParser.__init__(self, text)
            _Bounded.__init__(self)

    Composer = LibyamlComposer


def compose(text: str, composer: type[Any] | None = None) -> list[Any]:
    """Compose every document of `text`. Raises yaml.YAMLError on bad syntax, TooFar on an abusive document."""
    stream = (composer or Composer)(text)
    documents = []
    while stream.check_node():
        documents.append(stream.get_node())
    return documents


def line_of(root: Any, path: KeyPath) -> int:
    """Line (from 1) of the key a path names; where the path ends early, of the last part that exists."""
    node, line = root, root.start_mark.line
    for part in path:
        found = _child(node, part)
        if found is None:
            break
        line, node = found
    return int(line) + 1


def _child(node: Any, part: str | int) -> tuple[int, Any] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == part:
                return key.start_mark.line, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and 0 <= part < len(node.value):
        return node.value[part].start_mark.line, node.value[part]
    return None
