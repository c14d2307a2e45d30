"""Reading hostile and surprising YAML and JSON."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from steppe.documents.reading import MAX_JSON_BYTES, MAX_YAML_BYTES, read
from steppe.documents.yaml_nodes import MAX_DEPTH, PythonComposer, compose, line_of

Write = Callable[..., Path]


def only(path: Path) -> Any:
    reading = read(path)
    assert not reading.problems, reading.problems
    [(_, value)] = reading.documents
    return value


def refused(path: Path) -> str:
    reading = read(path)
    assert not reading.documents
    assert reading.problems
    return "\n".join(map(str, reading.problems))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NONE", "NONE"),
        ("None", "None"),
        ("no", "no"),
        ("Yes", "Yes"),
        ("off", "off"),
        ("12:30", "12:30"),
        ("190:20:30", "190:20:30"),
        ("2024-01-01", "2024-01-01"),
        ("0.29.0", "0.29.0"),
        ("1_000", "1_000"),
        ("=", "="),
        ("0x1F", 31),
        ("0o17", 15),
        ("010", 10),
        ("-7", -7),
        ("+7", 7),
        ("1e9", 1e9),
        ("1.5E-3", 1.5e-3),
        (".5", 0.5),
        ("5.", 5.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'1'", "1"),
        ('"true"', "true"),
        ("!!str 1", "1"),
        ("!!int 1", 1),
        ("'<<'", "<<"),
        ("fp8", "fp8"),
        ("-", None),
    ],
)
def test_scalars_follow_the_core_schema(write: Write, text: str, value: Any) -> None:
    if text == "-":
        assert only(write("a: '-'")) == {"a": "-"}
        return
    found = only(write(f"a: {text}\n"))["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", [".inf", "-.Inf", ".NaN", "1e999", "-1e999", "!!float .inf", "9" * 5000])
def test_numbers_that_are_not_finite_are_refused_with_line_and_key(write: Write, text: str) -> None:
    message = refused(write(f"x: 1\na:\n  b: [0, {text}]\n"))
    assert ":3: a.b[1]: " in message
    assert "finite" in message or "digits" in message


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
def test_json_numbers_that_are_not_finite_are_refused(write: Write, text: str) -> None:
    assert refused(write(f'{{"a": {text}}}', "d.json"))


def test_a_duplicate_key_is_refused_where_it_stands(write: Write) -> None:
    message = refused(write("a: 1\nb:\n  - {c: 1, d: 2, c: 3}\na: 2\n"))
    assert ":3: b[0].c: the key is stated twice" in message
    assert ":4: a: the key is stated twice" in message


def test_a_duplicate_key_in_json_is_refused_where_it_stands(write: Write) -> None:
    assert ":2: a[0].b: the key is stated twice" in refused(write('{"a": [\n{"b": 1, "b": 2}]}', "d.json"))


def test_a_duplicate_key_in_json_that_yaml_cannot_read_is_still_refused(write: Write) -> None:
    assert "stated twice" in refused(write('{"a":\t1,\n\t"a": 2}', "d.json"))


@pytest.mark.parametrize(
    "tag",
    ["!!python/object/apply:os.system ['touch pwned']", "!!python/name:os.system ''", "!!binary aGk=", "!mine 3"],
)
def test_tags_are_refused_and_run_nothing(write: Write, tag: str, tmp_path: Path) -> None:
    assert "tag" in refused(write(f"a: {tag}\n"))
    assert not (tmp_path / "pwned").exists()
    assert not Path("pwned").exists()


def test_a_bomb_of_aliases_is_refused_quickly(write: Write) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    start = time.perf_counter()
    assert "without aliases" in refused(write("\n".join(lines)))
    assert time.perf_counter() - start < 2


def test_an_alias_inside_itself_is_refused(write: Write) -> None:
    assert "contains itself" in refused(write("a: &a [1, *a]\n"))


def test_aliases_and_merge_keys_work(write: Write) -> None:
    text = "base: &base {x: 1, y: 2}\nother: &other {z: 3}\none: {<<: *base, y: 5}\ntwo: {<<: [*base, *other]}\n"
    value = only(write(text))
    assert value["one"] == {"x": 1, "y": 5}
    assert value["two"] == {"x": 1, "y": 2, "z": 3}
    assert "merge maps only" in refused(write("a: {<<: 3}\n"))


@pytest.mark.parametrize("name", ["d.yaml", "d.json"])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 5, 5_000, 200_000])
def test_deep_nesting_is_refused(write: Write, name: str, depth: int) -> None:
    assert "nest" in refused(write("[" * depth + "]" * depth, name))


def test_deep_block_nesting_is_refused(write: Write) -> None:
    assert "nested" in refused(write("- " * 5_000 + "1"))


@pytest.mark.parametrize("name", ["d.yaml", "d.json"])
def test_usual_nesting_is_read(write: Write, name: str) -> None:
    assert only(write("[" * 30 + "]" * 30, name)) is not None


def test_a_file_of_too_many_values_is_refused(write: Write) -> None:
    assert "values" in refused(write("[" + "1," * 1_200_000 + "1]"))


@pytest.mark.parametrize(("name", "limit"), [("d.yaml", MAX_YAML_BYTES), ("d.json", MAX_JSON_BYTES)])
def test_a_file_of_200_mb_is_refused_before_it_is_read(tmp_path: Path, name: str, limit: int) -> None:
    path = tmp_path / name
    with path.open("wb") as stream:
        stream.truncate(200_000_000)
    start = time.perf_counter()
    assert f"above the limit of {limit}" in refused(path)
    assert time.perf_counter() - start < 0.1


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "absent.yaml")
    assert "not a regular file" in refused(tmp_path)
    assert "cannot be read" in refused(Path("a\0b.yaml"))
    os.mkfifo(tmp_path / "pipe.yaml")
    assert "not a regular file" in refused(tmp_path / "pipe.yaml")


def test_bad_text_is_refused(write: Write) -> None:
    assert "not UTF-8" in refused(write(b"a: \xff\n"))
    assert "not valid YAML" in refused(write(b"a: \x00\n"))
    assert ":2:" in refused(write("a: 1\n b: [2\n"))
    assert "not valid YAML" in refused(write("a: *nowhere\n"))
    assert ":1: not valid JSON" in refused(write("{", "d.json"))
    assert "a key must be text" in refused(write("? [a]\n: 1\n"))


def test_a_byte_order_mark_is_read_over(write: Write) -> None:
    assert only(write("\ufeffa: 1\n")) == {"a": 1}


def test_empty_files_hold_no_document(write: Write) -> None:
    for text in ("", "# only a comment\n", "---\n", "---\n---\n"):
        assert read(write(text)).documents == []


def test_documents_keep_their_position(write: Write) -> None:
    assert read(write("---\n---\na: 1\n---\nb: 2\n")).documents == [(1, {"a": 1}), (2, {"b": 2})]


def test_the_parser_without_libyaml_composes_the_same() -> None:
    text = "a: &x [1, 'two', {c: null}]\nb: *x\n---\nd: 0x10\n"
    [one, two] = compose(text)
    [same_one, same_two] = compose(text, PythonComposer)
    assert yaml.serialize(one) == yaml.serialize(same_one)
    assert yaml.serialize(two) == yaml.serialize(same_two)
    with pytest.raises(yaml.YAMLError, match="nested"):
        compose("[" * 200, PythonComposer)


def test_lines_are_found_as_far_as_a_path_leads() -> None:
    [root] = compose("a:\n  - b: 1\n  - c: 2\nd: 3\n")
    assert line_of(root, ("a", 1, "c")) == 3
    assert line_of(root, ("a", 1, "missing")) == 3
    assert line_of(root, ("a", 7)) == 1
    assert line_of(root, ("d", "deeper")) == 4
    assert line_of(root, ()) == 1


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=20),
)
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1), inner, max_size=4),
    ),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(value=trees)
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    root = tmp_path_factory.mktemp("round")
    (root / "d.json").write_text(json.dumps({"v": value}))
    (root / "d.yaml").write_text(json.dumps({"v": value}, ensure_ascii=False), encoding="utf-8")  # JSON is YAML
    for name in ("d.json", "d.yaml"):
        assert only(root / name) == {"v": value}


@settings(max_examples=300, deadline=None)
@given(text=st.one_of(st.text(max_size=200), st.text("[]{}:,-&*!<>|?'\"#%@ \n\tax1.", max_size=80)))
def test_no_text_raises(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("any") / "d.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    for file in (path, path.rename(path.with_suffix(".json"))):
        reading = read(file)
        for _, value in reading.documents:
            assert not (isinstance(value, float) and not math.isfinite(value))
