"""What every document model shares: strictness, numeric types, and rules that name the keys at fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, TypeVar

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import AfterValidator, AllowInfNan, BaseModel, ConfigDict, Strict, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

INT32_MAX = 2**31 - 1  # counts and dimensions: products of two stay inside the core's 64-bit integers
INT64_MAX = 2**63 - 1

KeyPath = tuple[str | int, ...]
Broken = tuple[KeyPath, str]

RULE_ERROR = "rules"  # the pydantic error type that carries a list of broken rules


def _unset_if_zero(value: Any) -> Any:
    return value or None


# Constraints, not Field(): older pydantic lets the default of one field leak into all that share a Field.
Text = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
Count = Annotated[int, Ge(0), Le(INT32_MAX)]
Positive = Annotated[int, Ge(1), Le(INT32_MAX)]
Bytes = Annotated[int, Ge(1), Le(INT64_MAX)]
Number = Annotated[float, AllowInfNan(False)]
PositiveNumber = Annotated[float, Gt(0), AllowInfNan(False)]
Fraction = Annotated[float, Ge(0), Le(1), AllowInfNan(False)]
Sha256 = Annotated[str, StringConstraints(min_length=64, max_length=64)]

# Tuples that accept a YAML or JSON list; their items stay strict.
T = TypeVar("T")
Items = Annotated[tuple[T, ...], Strict(False)]
SomeItems = Annotated[tuple[T, ...], Strict(False), MinLen(1)]

# "0 or absent means unset" throughout the documents; readers see None for both.
OptionalCount = Annotated[Count | None, AfterValidator(_unset_if_zero)]
OptionalBytes = Annotated[Annotated[int, Ge(0), Le(INT64_MAX)] | None, AfterValidator(_unset_if_zero)]
OptionalNumber = Annotated[
    Annotated[float, Ge(0), AllowInfNan(False)] | None,
    AfterValidator(_unset_if_zero),
]
OptionalFraction = Annotated[Fraction | None, AfterValidator(_unset_if_zero)]


class Document(BaseModel):
    """Base of all document models: immutable, no coercion, no unknown keys."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        populate_by_name=True,
        protected_namespaces=(),
        validate_default=False,
    )

    def broken_rules(self) -> Iterator[Broken]:
        """Yield (key path below this document, what is wrong; what to do) for each rule between keys that is broken."""
        return iter(())

    @model_validator(mode="after")
    def _hold_rules(self) -> Any:
        broken = list(self.broken_rules())
        if broken:
            text = "; ".join(f"{'.'.join(map(str, path))}: {message}" for path, message in broken)
            raise PydanticCustomError(RULE_ERROR, "{text}", {"text": text, "broken": broken})
        return self


def duplicates(names: Any) -> list[Any]:
    """Values that occur more than once, in order of their second occurrence."""
    seen: set[Any] = set()
    twice: list[Any] = []
    for name in names:
        if name in seen and name not in twice:
            twice.append(name)
        seen.add(name)
    return twice
