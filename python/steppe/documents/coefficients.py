"""Coefficient sets: single numbers (`coefficients`) and fitted laws (`laws`), each with its scope and evidence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from annotated_types import MinLen
from pydantic import ConfigDict, Field, JsonValue, Strict, field_validator, with_config
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from steppe.documents.base import RULE_ERROR, Broken, Document, Items, Number, SomeItems, Text, duplicates
from steppe.documents.vocabulary import LawMethod, Method, SourceKind, SourceRole, Units


@with_config(ConfigDict(extra="forbid", strict=True))
class Scope(TypedDict, total=False):
    """Where an entry holds: every stated key must admit the deployment."""

    hardware: list[str]
    model: list[str]
    tp: list[int]
    ep: list[int]
    nodes_spanned: list[int]


class Source(Document):
    """Where a number comes from."""

    kind: SourceKind
    cite: Text
    role: Literal[SourceRole, ""] = ""


class Coefficient(Document):
    """One number of the step law, in `units`, with the deployments it holds for and the evidence behind it."""

    name: Text
    value: Number
    units: Units
    method: Method
    fitted: bool
    scope: Scope
    ci95: Annotated[tuple[Number, Number], Strict(False)] | None = None
    sources: SomeItems[Source] | None = None
    rationale: str = ""
    copied_from: str = ""
    supersedes: str = ""
    validated: str | Items[str] = ""
    unsupported: str | Items[str] = ""

    def broken_rules(self) -> Iterator[Broken]:
        """Yield a value its method or interval contradicts."""
        if not self.scope:
            yield ("scope",), "is empty; state where the value holds, e.g. {hardware: [...]}"
        if self.method == "not_charged" and self.value != 0:
            yield ("value",), f"must be 0 when method is not_charged, not {self.value:g}"
        if self.method == "copied" and not self.copied_from.strip():
            yield ("copied_from",), "required when method is copied; name the entry it was copied from"
        if self.ci95 and not self.ci95[0] <= self.value <= self.ci95[1]:
            yield ("ci95",), f"{list(self.ci95)} does not enclose the value {self.value:g}"


class Law(Document):
    """A fitted law: family `law`, variant `key`, and the parameters its formula names."""

    law: Text
    key: Text
    scope: Annotated[dict[str, list[str | int | float]], MinLen(1)]
    params: Annotated[dict[str, JsonValue], MinLen(1)]
    method: LawMethod
    fit: dict[str, JsonValue] = Field(default_factory=dict)
    sources: Items[Source | str] = ()
    rationale: str = ""


class CoefficientSet(Document):
    """A named set of coefficients and laws. In a file each coefficient is a one-key map: {name: {value: ...}}."""

    kind: Literal["CoefficientSet"]
    name: Text
    coefficients: Items[Coefficient] = ()
    laws: Items[Law] = ()

    @field_validator("coefficients", mode="before")
    @classmethod
    def _name_entries(cls, entries: Any) -> Any:
        if not isinstance(entries, list):
            return entries
        named: list[Any] = []
        broken: list[Broken] = []
        for index, entry in enumerate(entries):
            if isinstance(entry, Coefficient):
                named.append(entry)
            elif not (isinstance(entry, dict) and len(entry) == 1 and isinstance(body := _only(entry), dict)):
                broken.append(((index,), "must be a map of one key, the entry's name, to its facts"))
            elif "name" in body:
                broken.append(((index, next(iter(entry)), "name"), "unknown key; the name is the key above"))
            else:
                named.append({"name": next(iter(entry)), **body})
        if broken:
            raise PydanticCustomError(RULE_ERROR, "malformed entries", {"broken": broken})
        return named

    def broken_rules(self) -> Iterator[Broken]:
        """Yield an empty set and entries that occur twice with one scope."""
        if not self.coefficients and not self.laws:
            yield ("coefficients",), "the set is empty; state coefficients or laws"
        for name, _ in duplicates((entry.name, _scope_key(entry.scope)) for entry in self.coefficients):
            yield ("coefficients",), f"'{name}' stands twice with the same scope; keep one"
        for law, key, _ in duplicates((entry.law, entry.key, _scope_key(entry.scope)) for entry in self.laws):
            yield ("laws",), f"'{law} {key}' stands twice with the same scope; keep one"


def _only(entry: dict[str, Any]) -> Any:
    return next(iter(entry.values()))


def _scope_key(scope: Any) -> str:
    return json.dumps({key: sorted(map(str, values)) for key, values in scope.items()}, sort_keys=True)
