"""How nouns are declared: frozen pydantic dataclasses, strict, hashable by value.

A noun is written ``@dataclass(frozen=True, kw_only=True, config=STRICT)``; a mapping field is a ``Map[...]``.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import AfterValidator, ConfigDict

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
"""Unknown fields and non-finite numbers are errors."""

_Value = TypeVar("_Value")


class FrozenDict(dict[str, _Value]):
    """A dictionary that never changes and therefore has a hash."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("this mapping is frozen")

    __setitem__ = __delitem__ = __ior__ = update = pop = popitem = clear = setdefault = _refuse  # type: ignore[assignment]


def _freeze(mapping: Mapping[str, _Value]) -> FrozenDict[_Value]:
    return FrozenDict(mapping)


Map = Annotated[dict[str, _Value], AfterValidator(_freeze)]

_Noun = TypeVar("_Noun")


def replaced(noun: _Noun, **changes: Any) -> _Noun:
    """A copy of a noun with fields changed to values already in SI units (the door is not passed again)."""
    copy = object.__new__(type(noun))
    copy.__dict__.update({name: noun.__dict__[name] for name in noun.__dataclass_fields__} | changes)  # type: ignore[attr-defined]
    return copy
