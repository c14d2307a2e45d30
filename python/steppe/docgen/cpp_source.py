"""Comment blocks of a C++ file, each with the function or class it sits in.

Not a parser: a reader of tokens that follows braces and names what each opens, enough for the code a style guide lets
through. Strings, raw strings, preprocessor lines, templates, lambdas and member initialisers are told apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from steppe.docgen.passages import Owner, Passage, Source

_TOKEN = re.compile(
    r"""
    (?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
  | (?P<pp>^[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n/]|/(?![/*]))*)
  | (?P<string>(?:u8|[uUL])?R"(?P<delim>[^()\\\s]{0,16})\(.*?\)(?P=delim)"|(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
  | (?P<number>\.?\d(?:'?[\w.]|(?<=[eEpP])[+-])*)
  | (?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
  | (?P<word>[A-Za-z_]\w*)
  | (?P<op>::|->|<=>|<<=|>>=|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\+\+|--|[^\s\w])
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_CONTROL = {"if", "for", "while", "switch", "catch", "else", "do", "try", "return", "case", "default"}
_NOT_A_NAME = {
    "requires",
    "noexcept",
    "decltype",
    "alignas",
    "explicit",
    "__attribute__",
    "sizeof",
    "throw",
    "declspec",
}
_CLASSES = {"class", "struct", "union", "enum"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


@dataclass(slots=True)
class _Scope:
    """What a brace opens: `start` is where its head begins, `end` where its brace closes. Unnamed for plain blocks."""

    kind: str  # namespace, class, function, block
    name: str
    qualified: str
    start: int
    end: int = -1


@dataclass(slots=True)
class _Reader:
    stack: list[_Scope] = field(default_factory=list)
    scopes: list[_Scope] = field(default_factory=list)
    head: list[_Token] = field(default_factory=list)
    saved: list[list[_Token]] = field(default_factory=list)  # the heads around the open braces
    depth: list[int] = field(default_factory=lambda: [0])  # open parentheses, one count a brace level

    def inside_function(self) -> bool:
        return any(scope.kind == "function" for scope in self.stack)

    def named(self, kind: str, name: str) -> _Scope:
        around = [s.qualified for s in self.stack if s.kind in ("class", "function")]
        qualified = f"{around[-1]}::{name}" if around else name
        return _Scope(kind, name.rsplit("::", 1)[-1], qualified, self.head[0].at)

    def open(self, at: int) -> None:
        kind, name = _what(self.head, self.inside_function(), self.depth[-1])
        scope = self.named(kind, name) if self.head and kind != "block" else _Scope("block", "", "", at)
        if kind == "block":
            self.head.append(_Token("brace", "{", at))  # an initialiser inside a statement: the head goes on after it
        self.stack.append(scope)
        self.scopes.append(scope)
        self.saved.append(self.head)
        self.head = []
        self.depth.append(0)

    def close(self, at: int) -> None:
        if not self.stack:
            raise ValueError("a brace closes that was never opened")
        scope = self.stack.pop()
        scope.end = at
        self.depth.pop()
        head = self.saved.pop()
        self.head = [*head, _Token("brace", "}", at)] if scope.kind == "block" and not _is_statement(head) else []

    def declare(self) -> None:
        """A statement ended: remember a function or class that is only declared."""
        if not self.head or self.inside_function():
            return
        kind, name = _what(self.head, False, 0)
        if kind in ("function", "class"):
            scope = self.named(kind, name)
            scope.end = scope.start
            self.scopes.append(scope)


def _is_statement(head: list[_Token]) -> bool:
    """Whether a block head is a whole statement (control flow, bare block), so that nothing follows its brace."""
    return len(head) == 1 or head[0].text in _CONTROL


def _strip_template(head: list[_Token]) -> list[_Token]:
    """The head without leading template parameter lists, requires-clauses of one name, and attributes."""
    while head:
        if head[0].text == "template" and len(head) > 1 and head[1].text == "<":
            head = head[_after_angle(head, 1) :]
        elif head[0].text == "[" and len(head) > 1 and head[1].text == "[":
            stop = next((i for i, t in enumerate(head) if t.text == "]"), len(head) - 1)
            head = head[stop + 2 :]
        else:
            return head
    return head


def _after_angle(head: list[_Token], at: int) -> int:
    """Index after the `>` that closes the `<` at `at`; comparisons in parentheses do not count."""
    angle = paren = 0
    for i in range(at, len(head)):
        text = head[i].text
        if text in "([{":
            paren += 1
        elif text in ")]}":
            paren -= 1
        elif paren == 0 and text == "<":
            angle += 1
        elif paren == 0 and text == ">":
            angle -= 1
            if angle == 0:
                return i + 1
    return len(head)


def _function_name(head: list[_Token]) -> tuple[str, int]:
    """(name, index of its parenthesis) of the function a head declares, ("", -1) when it declares none."""
    i = 0
    while i < len(head):
        text = head[i].text
        if text == "operator":
            stop = i + 1
            while stop < len(head) and (head[stop].text != "(" or stop == i + 1):
                stop += 2 if head[stop].text == "(" and stop == i + 1 else 1
            if stop >= len(head):
                return "", -1
            symbols = "".join(t.text if t.kind == "op" else f" {t.text}" for t in head[i + 1 : stop])
            return _with_class(head, i, f"operator{symbols}"), stop
        if text == "=":
            return "", -1
        if text == "<" and i and head[i - 1].kind == "word":
            i = _after_angle(head, i)
            continue
        if text == "(":
            before = head[i - 1] if i else None
            if before and before.kind == "word" and before.text not in _NOT_A_NAME | _CONTROL:
                tilde = "~" if i > 1 and head[i - 2].text == "~" else ""
                return _with_class(head, i - 1 - bool(tilde), tilde + before.text), i
            i = _after_paren(head, i)
            continue
        i += 1
    return "", -1


def _with_class(head: list[_Token], at: int, name: str) -> str:
    """`Class::name` for a member defined outside its class; `at` is the index of the name."""
    parts = [name]
    while at >= 2 and head[at - 1].text == "::":
        at -= 2
        if head[at].text == ">":  # a class template's arguments
            level = 0
            while at >= 0:
                level += (head[at].text == ">") - (head[at].text == "<")
                if level == 0:
                    break
                at -= 1
            at -= 1
        if at < 0 or head[at].kind != "word":
            break
        parts.insert(0, head[at].text)
    return "::".join(parts)


def _after_paren(head: list[_Token], at: int) -> int:
    level = 0
    for i in range(at, len(head)):
        level += (head[i].text in "([{") - (head[i].text in ")]}")
        if level == 0:
            return i + 1
    return len(head)


def _without_alignas(head: list[_Token]) -> list[_Token]:
    at = next((i for i, t in enumerate(head) if t.text == "alignas"), -1)
    return head if at < 0 else head[:at] + head[_after_paren(head, at + 1) :]


def _what(head: list[_Token], in_function: bool, parens: int) -> tuple[str, str]:
    """Kind and name of what a brace after `head` opens."""
    head = _without_alignas(_strip_template(head))
    if not head or parens:
        return "block", ""
    texts = [t.text for t in head]
    if texts[0] in ("namespace", "inline") and "namespace" in texts[:2]:
        return "namespace", "".join(texts[texts.index("namespace") + 1 :])
    if texts[0] == "extern" and len(head) == 2 and head[1].kind == "string":
        return "namespace", ""
    lead = next((i for i, t in enumerate(texts) if t not in ("typedef", "friend", "export", "static", "constexpr")), 0)
    if texts[lead] in _CLASSES and "(" not in texts[lead:] and "=" not in texts[lead:]:
        name = _class_name(head[lead + 1 :])
        return ("class", name) if name else ("block", "")
    if in_function or texts[0] in _CONTROL:
        return "block", ""
    name, paren = _function_name(head)
    if name:
        rest = head[_after_paren(head, paren) :]
        if any(t.text == ":" for t in rest) and head[-1].text not in (")", "}"):
            return "block", ""  # `: member{` of a constructor's initialiser list
        return "function", name
    if "=" in texts and "[" in texts[texts.index("=") :]:  # a named lambda
        before = head[texts.index("=") - 1]
        if before.kind == "word":
            return "function", before.text
    return "block", ""


def _class_name(rest: list[_Token]) -> str:
    rest = _strip_template([t for t in rest if t.text not in ("class", "struct")])
    names: list[str] = []
    for token in rest:
        if token.kind != "word" and token.text != "::":
            break
        if token.text != "final":
            names.append(token.text)
    text = "".join(names)
    return text.rsplit("::", 1)[-1] if text else ""


@dataclass(slots=True)
class _Block:
    start: int
    stop: int
    line: int
    end: int
    column: int
    text: list[str]


def _comment_text(comment: str) -> list[str]:
    if comment.startswith("//"):
        return [comment.lstrip("/").removeprefix("!").removeprefix("<").removeprefix(" ").rstrip()]
    body = comment[2:-2].lstrip("*!").split("\n")
    return [re.sub(r"^\s*\* ?", "", line).rstrip() if i else line.strip() for i, line in enumerate(body)]


def _owner(block: _Block, following: int, scopes: list[_Scope]) -> Owner | None:
    """The definition that begins at `following`, else the innermost function or class around the block."""
    named = [s for s in scopes if s.kind in ("function", "class") and s.name]
    below = [s for s in named if s.start == following]
    around = [s for s in named if s.start <= block.start <= s.end]
    pick = below[-1] if below else around[-1] if around else None
    return Owner(pick.name, pick.qualified) if pick else None


def read_cpp(text: str) -> Source:
    """Passages and strings of a C++ file. Raises ValueError when braces do not match."""
    reader = _Reader()
    blocks: list[_Block] = []
    strings: list[tuple[int, str]] = []
    starts: list[int] = []  # offsets of code tokens
    code_line = 0
    for match in _TOKEN.finditer(text):
        kind, body, at = match.lastgroup or "op", match.group(), match.start()
        if kind == "delim":
            kind = "string"
        line = text.count("\n", 0, at) + 1
        if kind == "comment":
            column = at - (text.rfind("\n", 0, at) + 1)
            last = blocks[-1] if blocks else None
            joins = (
                last and body.startswith("//") and last.end == line - 1 and last.column == column and code_line < line
            )
            if last and joins and text.startswith("//", last.start):
                last.text += _comment_text(body)
                last.end, last.stop = line, match.end()
            else:
                blocks.append(_Block(at, match.end(), line, line + body.count("\n"), column, _comment_text(body)))
            continue
        code_line = line + body.count("\n")
        if kind == "pp":
            strings.append((line, body))
            continue
        if kind in ("string", "char"):
            strings.append((line, body))
        starts.append(at)
        if body == "{":
            reader.open(at)
        elif body == "}":
            reader.close(at)
        elif body == ";" and reader.depth[-1] == 0:
            reader.declare()
            reader.head = []
        elif body == ":" and len(reader.head) == 1 and reader.head[0].text in ("public", "private", "protected"):
            reader.head = []
        else:
            reader.depth[-1] += (body in ("(", "[")) - (body in (")", "]"))
            reader.head.append(_Token(kind, body, at))
    if reader.stack:
        raise ValueError("a brace is never closed")
    passages = []
    for block in blocks:
        following = next((at for at in starts if at >= block.stop), -1)
        if text.count("\n", block.stop, following) > 1:  # a blank line in between: not about what follows
            following = -1
        passages.append(Passage(block.line, "\n".join(block.text).strip("\n"), _owner(block, following, reader.scopes)))
    return Source(passages, strings)
