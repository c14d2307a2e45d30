"""Comment blocks and docstring paragraphs of a Python file, each with the function or class it sits in."""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import dataclass

from steppe.docgen.passages import Owner, Passage, Source

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class _Scope:
    """A definition: first line (decorators included), its `def` line, last line of code, column, names."""

    first: int
    line: int
    last: int
    column: int
    owner: Owner


@dataclass(slots=True)
class _Block:
    line: int
    end: int
    column: int
    text: list[str]
    own_line: bool


def _scopes(node: ast.AST, prefix: str = "") -> list[_Scope]:
    found: list[_Scope] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            qualified = f"{prefix}{child.name}"
            first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
            owner = Owner(child.name, qualified)
            found.append(_Scope(first, child.lineno, child.end_lineno or child.lineno, child.col_offset, owner))
            found += _scopes(child, f"{qualified}.")
        else:
            found += _scopes(child, prefix)
    return found


def _blocks(text: str) -> tuple[list[_Block], set[int]]:
    """Comment blocks, and the lines that hold code."""
    blocks: list[_Block] = []
    code: set[int] = set()
    skipped = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        row, column = token.start
        if token.type == tokenize.COMMENT:
            body = token.string.lstrip("#").removeprefix(" ").rstrip()
            own = row not in code
            last = blocks[-1] if blocks else None
            if last and own and last.end == row - 1 and last.column == column:
                last.text.append(body)
                last.end = row
            else:
                blocks.append(_Block(row, row, column, [body], own))
        elif token.type not in skipped:
            code.update(range(row, token.end[0] + 1))
    return blocks, code


def _owner(block: _Block, scopes: list[_Scope], code: set[int]) -> Owner | None:
    """A block directly above a definition belongs to it; any other to the innermost definition around it."""
    if block.own_line:
        following = min((line for line in code if line > block.end), default=0)
        below = [s for s in scopes if s.first <= following <= s.line and s.column == block.column]
        if below and following == block.end + 1:
            return below[-1].owner
    around: _Scope | None = None
    for scope in scopes:
        if scope.line <= block.line <= scope.last:
            around = scope
        elif scope.last < block.line and scope.column < block.column:
            # a comment after a body's last statement: inside as long as nothing less indented came in between
            between = {line for line in code if scope.last < line < block.line}
            if not between and block.own_line:
                around = scope
    return around.owner if around else None


def _docstrings(node: ast.AST, prefix: str = "", owner: Owner | None = None) -> list[tuple[Owner | None, ast.Constant]]:
    found: list[tuple[Owner | None, ast.Constant]] = []
    if isinstance(node, Definition | ast.Module) and node.body:
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            found.append((owner, first.value))
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            inner = Owner(child.name, f"{prefix}{child.name}")
            found += _docstrings(child, f"{inner.qualified}.", inner)
        else:
            found += _docstrings(child, prefix, owner)
    return found


def _paragraphs(line: int, text: str) -> list[tuple[int, str]]:
    """(first line, dedented text) of each blank-line separated paragraph; `line` is where the string begins."""
    found: list[tuple[int, str]] = []
    start: int | None = None
    lines = [*text.split("\n"), ""]
    for number, body in enumerate(lines):
        if body.strip():
            start = number if start is None else start
        elif start is not None:
            part = lines[start:number]
            first = part[1:] if start == 0 and len(part) > 1 else part  # the string's first line has no indent
            indent = min(len(x) - len(x.lstrip()) for x in first)
            kept = [part[0].strip() if start == 0 else part[0][indent:], *(x[indent:] for x in part[1:])]
            found.append((line + start, "\n".join(x.rstrip() for x in kept)))
            start = None
    return found


def read_python(text: str) -> Source:
    """Passages and other strings of a Python file. Raises SyntaxError when it does not parse."""
    tree = ast.parse(text)
    scopes = _scopes(tree)
    blocks, code = _blocks(text)
    passages = [Passage(b.line, "\n".join(b.text).strip("\n"), _owner(b, scopes, code)) for b in blocks]
    docstrings = _docstrings(tree)
    for owner, node in docstrings:
        passages += [Passage(line, body, owner) for line, body in _paragraphs(node.lineno, str(node.value))]
    documented = {id(node) for _, node in docstrings}
    strings = [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented
    ]
    return Source(sorted(passages, key=lambda p: p.line), strings)
