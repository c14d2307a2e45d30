"""From pydantic's errors to problems: the key path as the file spells it, what is wrong, and what to do."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from typing_extensions import is_typeddict

from steppe.documents.base import RULE_ERROR
from steppe.documents.problems import KeyPath, suggestion

Found = tuple[KeyPath, str]

_KINDS = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a map of keys",
    "model_type": "must be a map of keys",
    "model_attributes_type": "must be a map of keys",
}
_BOUNDS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}


def explain(error: ValidationError, model: type[BaseModel], data: Any) -> list[Found]:
    """Every error as (key path in `data`, message), one for each path, in the order found."""
    found: dict[KeyPath, str] = {}
    for item in error.errors(include_url=False):
        kind = item["type"]
        if kind == "too_short" and item["input"]:
            continue  # an echo of an item that failed by itself
        if kind == RULE_ERROR:
            for below, message in item["ctx"]["broken"]:
                found.setdefault(key_path(data, (*item["loc"], *below), keep=len(below)), message)
        else:
            path = key_path(data, item["loc"], keep=1 if kind == "missing" else 0)
            found.setdefault(path, _message(kind, item, model))
    return [(path, text) for path, text in found.items() if not _superseded(path, text, found)]


def _superseded(path: KeyPath, text: str, found: dict[KeyPath, str]) -> bool:
    """A value of several possible forms fails in each; the failure inside the form it has says most."""
    return text.startswith("must be") and any(other[: len(path)] == path and other != path for other in found)


def key_path(data: Any, loc: Sequence[str | int], *, keep: int = 0) -> KeyPath:
    """Translate pydantic's location into the keys of `data`.

    Labels of union branches are skipped, a coefficient's one key is named. The last `keep` parts stay even where `data`
    lacks them.
    """
    path: list[str | int] = []
    for position, part in enumerate(loc):
        if len(path) == 2 and path[0] == "coefficients" and isinstance(data, dict) and part not in data:
            if part == "name":
                continue  # the model's name for the one key
            if len(data) == 1:
                [(name, data)] = data.items()
                path.append(name)
        found, inner = _step(data, part)
        if found or position >= len(loc) - keep:
            data = inner
            path.append(part)
    return tuple(path)


def _step(data: Any, part: str | int) -> tuple[bool, Any]:
    if isinstance(data, dict) and part in data:
        return True, data[part]
    if isinstance(data, (list, tuple)) and isinstance(part, int) and 0 <= part < len(data):
        return True, data[part]
    return False, None if isinstance(data, dict) else data


def _message(kind: str, item: Any, model: type[BaseModel]) -> str:
    value, context = item["input"], item.get("ctx", {})
    if kind == "missing":
        return "required key is missing; add it"
    if kind == "extra_forbidden":
        return f"unknown key; {suggestion(str(item['loc'][-1]), _keys_at(model, item['loc'][:-1]), limit=12)}"
    if kind in ("literal_error", "enum"):
        return f"{_shown(value)} is not accepted; {suggestion(str(value), _accepted(context))}"
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"{_shown(value)} is out of range; it must be {words} {context[name]}"
    if kind == "finite_number":
        return f"{_shown(value)} is not finite; state a number"
    if kind == "too_short":
        return f"needs at least {context['min_length']} entry; it has none"
    if kind in ("string_too_short", "string_too_long", "string_pattern_mismatch"):
        return _text_message(value, context)
    if kind in _KINDS:
        return f"{_KINDS[kind]}, not {_shown(value)}{_advice(kind, value)}"
    return f"{item['msg'][:1].lower()}{item['msg'][1:]}; it is {_shown(value)}"


def _text_message(value: Any, context: Any) -> str:
    length = context.get("min_length", context.get("max_length", 1))
    if (pattern := context.get("pattern")) and value.strip():
        return f"{_shown(value)} is not accepted; it must match {pattern}"
    if length > 1:
        return f"must have {length} characters, not {len(value)}; state a full SHA-256 in hexadecimal"
    return "is blank; state a name"


def _advice(kind: str, value: Any) -> str:
    if value is None:
        return "; state it or leave the key out"
    if kind == "string_type" and isinstance(value, (int, float)):
        return "; put it in quotes"
    if isinstance(value, str) and kind in ("int_type", "float_type", "bool_type"):
        return "; write it plainly, without quotes or units"
    return ""


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _accepted(context: Any) -> list[str]:
    words = str(context.get("expected", "")).replace(" or ", ", ").split(", ")
    return [word.strip("'") for word in words if word.strip("'")]


def _keys_at(model: type[BaseModel], loc: tuple[str | int, ...]) -> list[str]:
    """The keys a document may have at a location. Empty where the model is not known."""
    here: type[Any] | None = model
    for part in loc:
        if isinstance(part, int) or here is None:
            continue
        field = next((f for name, f in _fields(here) if name == part), None)
        if field is not None:
            here = next(_documents_in(field), None)
    return [name for name, _ in _fields(here)] if here is not None else []


def _fields(model: type[Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(model, type) and issubclass(model, BaseModel):
        for name, info in model.model_fields.items():
            yield info.alias or name, info.annotation
    else:
        yield from typing.get_type_hints(model).items()


def _documents_in(annotation: Any) -> Iterator[type[Any]]:
    if isinstance(annotation, type) and (is_typeddict(annotation) or issubclass(annotation, BaseModel)):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _documents_in(argument)
