# ruff: noqa: E501  (fixtures read better on one line)
"""The notes of a source tree, whom they belong to, and the page made from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from steppe.docgen import KINDS, DocgenError, load_summaries, render, scan
from steppe.docgen.__main__ import generate, main
from steppe.docgen.cpp_source import read_cpp
from steppe.docgen.notes import markers
from steppe.docgen.python_source import read_python

DIVERGES, OVER, LIMIT = KINDS  # the phrases, never spelled out in a source file


def owners(source: str, read=read_cpp) -> list[str | None]:
    """Qualified owner of every passage with a marker, in order. `@` in the fixture stands for a phrase."""
    passages = read(source.replace("@", DIVERGES)).passages
    return [p.owner and p.owner.qualified for p in passages if markers(p.text)]


CPP = {
    "inside": ("int f() {\n  // @ here\n  return 1;\n}\n", "f"),
    "above": ("// @ here\nint f() { return 1; }\n", "f"),
    "above, block comment": ("/** text\n *\n *  @ here\n */\nint f(int a,\n      int b) { return a; }\n", "f"),
    "above a declaration": ("namespace a {\n/// @\ndouble f(double x) noexcept;\n}\n", "f"),
    "above a template": ("// @\ntemplate <typename T, std::enable_if_t<(sizeof(T) > 4), int> = 0>\nauto g(T x) -> T { return x; }\n", "g"),
    "inside a template": ("template <class T>\n  requires (sizeof(T) > 2)\nT g(T x) {\n  // @\n  return x;\n}\n", "g"),
    "nested class": ("class A {\n struct B {\n  void m() const noexcept {\n   // @\n  }\n };\n};\n", "A::B::m"),
    "class, not a method": ("class A {\n public:\n  // @ about the class\n  int x_ = 0;\n  void m();\n};\n", "A"),
    "above a method": ("class A {\n public:\n  // @\n  [[nodiscard]] int m() const;\n  int x_;\n};\n", "A::m"),
    "above a class": ("// @\nclass A final : public B<int> {\n};\n", "A"),
    "aligned class": ("struct alignas(64) A {\n  // @\n\n  int x;\n};\n", "A"),
    "member outside": ("double steppe::Caches<T, 2>::held(long n) const {\n  // @\n  return n;\n}\n", "steppe::Caches::held"),
    "lambda": ("int f() {\n  auto g = [&](int a) {\n    // @\n    return a;\n  };\n  return g(1);\n}\n", "f"),
    "lambda argument": ("void f() {\n  each(v, [](auto& x) {\n    if (x) { // @\n      x = {1, 2};\n    }\n  });\n}\n", "f"),
    "named lambda": ("constexpr auto width = [](int a) {\n  // @\n  return a;\n};\n", "width"),
    "constructor": ("A::A(int a) : x_{a}, y_(a), z_{\n  a} {\n  // @\n}\nvoid g() {}\n", "A::A"),
    "destructor": ("A::~A() {\n  // @\n}\n", "A::~A"),
    "operator": ("bool A::operator==(const A& o) const {\n  // @\n  return true;\n}\n", "A::operator=="),
    "call operator": ("struct A {\n  int operator()(int x) {\n    // @\n    return x;\n  }\n};\n", "A::operator()"),
    "after strings": ('const char* s = "} // \\" {"; auto r = R"x(} { // )x";\nint f() {\n  char c = \'{\';\n  // @\n}\n', "f"),
    "digit separators": ("int f() {\n  int n = 1\'000\'000;\n  // @\n}\n", "f"),
    "preprocessor": ("#define OPEN { \\\n  {\n#if 1\nint f() {\n#endif\n  // @\n}\n", "f"),
    "after another": ("int g() { return 0; }\nint f() {\n  for (int i = 0; i < 3; ++i) {\n  }\n  // @\n}\n", "f"),
    "broken phrase": ("int f() {\n  // text ^\n}\n".replace("^", DIVERGES.replace(" ", "\n  // ")), "f"),
    "trailing": ("int f() {\n  int x = 1;  // @ of x\n  return x;\n}\n", "f"),
    "enum": ("enum class Kind : std::uint8_t {\n  a,  // @\n  b\n};\n", "Kind"),
    "module macro": ("PYBIND11_MODULE(_core, m) {\n  m.def(\"x\", [](int a) {\n    // @\n    return a; });\n}\n", "PYBIND11_MODULE"),
    "no owner": ("// @ of the file\n\nnamespace a {\nint x = 1;\n}\n", None),
    "no owner in a namespace": ("namespace a {\n// @\n\nint f();\n}\n", None),
    "between functions": ("int f() { return 1; }\n// @\nint x = 2;\nint g() { return 1; }\n", None),
}  # fmt: skip

PYTHON = {
    "inside": ("def f():\n    # @\n    return 1\n", "f"),
    "docstring": ('def f():\n    """One.\n\n    @ two\n    lines.\n\n    Three.\n    """\n', "f"),
    "above": ("# @\ndef f():\n    return 1\n", "f"),
    "above decorators": ("# @\n@cache\n@other(1)\ndef f():\n    return 1\n".replace("\n@", "\n%"), "f"),
    "method": ("class A:\n    class B:\n        def m(self):\n            # @\n            return 1\n", "A.B.m"),
    "class docstring": ('class A:\n    """@ about A."""\n\n    def m(self):\n        return 1\n', "A"),
    "class body": ("class A:\n    # @\n    x = 1\n\n    def m(self): ...\n", "A"),
    "above a method": ("class A:\n    x = 1\n\n    # @\n    def m(self): ...\n", "A.m"),
    "nested function": ("def f():\n    def g():\n        # @\n        return 1\n    return g\n", "f.g"),
    "after the nested one": ("def f():\n    def g():\n        return 1\n    # @\n    return g\n", "f"),
    "lambda": ("def f(x):\n    return map(lambda y: (\n        # @\n        y + 1), x)\n", "f"),
    "at the end": ("def f():\n    return 1\n    # @ after the last statement\n\n\ndef g():\n    pass\n", "f"),
    "in a branch": ("def f(x):\n    if x:\n        return 1\n        # @\n    return 2\n", "f"),
    "async": ("async def f():\n    # @\n    pass\n", "f"),
    "trailing": ("def f():\n    x = 1  # @\n           # goes on\n    return x\n", "f"),
    "module": ("# @\n\nx = 1\n\n\ndef f():\n    pass\n", None),
    "module docstring": ('"""@ of the module."""\n', None),
    "blank line before": ("# @\n\ndef f():\n    pass\n", None),
}  # fmt: skip


@pytest.mark.parametrize("case", CPP)
def test_cpp_owner(case: str) -> None:
    source, owner = CPP[case]
    assert owners(source) == [owner]


@pytest.mark.parametrize("case", PYTHON)
def test_python_owner(case: str) -> None:
    source, owner = PYTHON[case]
    if "%" in source:
        source = source.replace("@", DIVERGES).replace("%", "@")
        passages = read_python(source).passages
        assert [p.owner and p.owner.qualified for p in passages if markers(p.text)] == [owner]
    else:
        assert owners(source, read_python) == [owner]


def test_the_whole_comment_block_is_the_note() -> None:
    text = read_cpp(
        f"int f() {{\n  // First,\n  //   indented\n  //\n  // {LIMIT} last.\n  return 1;  // not this\n}}\n"
    )
    assert text.passages[0].text == f"First,\n  indented\n\n{LIMIT} last."
    assert text.passages[0].line == 2


def test_only_the_paragraph_of_a_docstring_is_the_note() -> None:
    passages = read_python(f'def f():\n    """One.\n\n    {OVER} two,\n      three.\n\n    Four.\n    """\n').passages
    assert [(p.line, p.text) for p in passages if markers(p.text)] == [(4, f"{OVER} two,\n  three.")]


def test_blocks_at_other_columns_are_other_blocks() -> None:
    source = f"int f() {{\n  int x = 1;  // of x\n  // {LIMIT} of f\n  return x;\n}}\n"
    assert [p.text for p in read_cpp(source).passages] == ["of x", f"{LIMIT} of f"]


def tree(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_scan_takes_cpp_and_python_but_not_tests(tmp_path: Path) -> None:
    note = f"int f() {{\n  // {LIMIT} x\n}}\n"
    tree(
        tmp_path,
        cpp__a_dot_cpp=note,
        cpp__tests__b_dot_cpp=note,
        python__c_dot_py=f"def g():\n    # {OVER} y\n    pass\n",
    )
    found = scan(tmp_path)
    assert [(n.path, n.line, n.kind, n.function) for n in found] == [
        ("cpp/a.cpp", 2, "coverage limit", "f"),
        ("python/c.py", 2, "over-charge", "g"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("cpp__a_dot_cpp", "// @\n\nint x;\n", "cpp/a.cpp:1: a marker stands in no function"),
        ("cpp__a_dot_cpp", 'int f() {\n  auto s = "@";\n}\n', "cpp/a.cpp:2: a marker phrase in a string"),
        ("cpp__a_dot_cpp", "int f() {\n  // @\n  // @\n}\n", "cpp/a.cpp:2: 2 marker phrases in one note"),
        ("cpp__a_dot_cpp", "int f() {\n  // @\n", "cpp/a.cpp: cannot be read: a brace is never closed"),
        ("python__a_dot_py", 'def f():\n    x = "@"\n', "python/a.py:2: a marker phrase in a string"),
        ("python__a_dot_py", 'def f():\n    x = f"{f} @"\n', "python/a.py:2: a marker phrase in a string"),
        ("python__a_dot_py", '"""@"""\n', "python/a.py:1: a marker stands in no function"),
        ("python__a_dot_py", "def f(:\n    # @\n", "python/a.py: cannot be read"),
    ],
)
def test_misplaced_markers_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    tree(tmp_path, **{name: text.replace("@", DIVERGES)})
    with pytest.raises(DocgenError) as error:
        scan(tmp_path)
    assert message in str(error.value)


SUMMARIES = "notes:\n  f: {title: The title, summary: The summary.}\n"
CLOSED = "closed:\n- {title: Old | one, kind: divergence, closed_in: 0.2.0, test: tests/a.py}\n"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "python").mkdir()
    (tmp_path / "docs/reference").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("")
    tree(tmp_path, cpp__src__a_dot_cpp=f"int A::f() {{\n  // {LIMIT} a < b & c\n}}\n")
    (tmp_path / "docs/reference/divergence_summaries.yaml").write_text(SUMMARIES + CLOSED)
    return tmp_path


def test_the_page_is_written_then_current_then_stale(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(repo)]) == 0
    page = (repo / "docs/reference/divergences.md").read_text()
    assert "## 1. The title" in page
    assert "*coverage limit* in [`A::f`](../../cpp/src/a.cpp#L2)" in page
    assert "The summary." in page
    assert "a &lt; b &amp; c" in page
    assert "| Old \\| one | divergence | 0.2.0 | `tests/a.py` |" in page
    assert page.endswith("1 notes: divergence 0, over-charge 0, coverage limit 1.\n")
    assert main(["--root", str(repo), "--check"]) == 0
    source = repo / "cpp/src/a.cpp"
    source.write_text("// one line more\n" + source.read_text())
    assert main(["--root", str(repo), "--check"]) == 1
    assert "is not what the sources say" in capsys.readouterr().err
    assert (repo / "docs/reference/divergences.md").read_text() == page  # --check writes nothing


def test_the_repository_is_found_from_inside_it(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo / "cpp/src")
    assert main([]) == 0
    assert (repo / "docs/reference/divergences.md").is_file()


@pytest.mark.parametrize(
    ("summaries", "message"),
    [
        ("notes: {}\n", "cpp/src/a.cpp:2: the note in f has no summary"),
        (SUMMARIES + "  gone: {title: x, summary: y}\n", "summary of gone: no note stands there"),
        ("notes:\n  f: {title: x}\n", "f: expected the keys title, summary"),
        ("notes:\n  f: [{title: x, summary: y}, {title: x, summary: z}]\n", "summary of f: no note stands there"),
        ("other: 1\n", "expected the keys notes and closed"),
        ("notes: {}\nclosed: [{title: x}]\n", "closed: expected the keys"),
    ],
)
def test_notes_and_summaries_must_match(repo: Path, summaries: str, message: str) -> None:
    (repo / "docs/reference/divergence_summaries.yaml").write_text(summaries)
    with pytest.raises(DocgenError) as error:
        generate(repo, check=False)
    assert message in str(error.value)


def test_two_notes_of_one_function_take_a_list(repo: Path) -> None:
    tree(repo, cpp__src__a_dot_cpp=f"int f() {{\n  // {LIMIT} one\n  g();\n  // {OVER} two\n}}\n")
    path = repo / "docs/reference/divergence_summaries.yaml"
    path.write_text("notes:\n  f: [{title: One, summary: x}, {title: Two, summary: y}]\n")
    page = render(scan(repo), load_summaries(path))
    assert page.index("1. One") < page.index(f"{LIMIT} one") < page.index("2. Two") < page.index(f"{OVER} two")
    assert "None yet." in page
    path.write_text(SUMMARIES)
    with pytest.raises(DocgenError, match="2 notes in f but 1 summaries"):
        render(scan(repo), load_summaries(path))


def test_a_qualified_summary_tells_two_functions_apart(repo: Path) -> None:
    tree(repo, cpp__src__a_dot_cpp=f"int A::f() {{\n  // {LIMIT} one\n}}\nint B::f() {{\n  // {LIMIT} two\n}}\n")
    path = repo / "docs/reference/divergence_summaries.yaml"
    path.write_text("notes:\n  B::f: {title: Bee, summary: y}\n  A::f: {title: Ay, summary: x}\n")
    page = render(scan(repo), load_summaries(path))
    assert page.index("1. Bee") < page.index("two") < page.index("2. Ay") < page.index("one\n")


def test_a_missing_summary_file_is_refused(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repo / "docs/reference/divergence_summaries.yaml").unlink()
    assert main(["--root", str(repo)]) == 1
    assert "no summary file" in capsys.readouterr().err


REPOSITORY = Path(__file__).parents[2]


@pytest.mark.skipif(not (REPOSITORY / "docs/reference/divergences.md").is_file(), reason="the page is not written yet")
def test_the_committed_page_is_current() -> None:
    assert generate(REPOSITORY, check=True) == "docs/reference/divergences.md is current"


def test_the_notes_of_this_repository_are_in_order() -> None:
    assert {note.kind for note in scan(REPOSITORY)} <= set(KINDS.values())
