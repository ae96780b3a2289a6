"""How nouns are declared: frozen pydantic dataclasses, strict, hashable by value; and tables of numbers.

A noun is written ``@dataclass(frozen=True, kw_only=True, config=STRICT)``; a mapping field is a ``Map[...]``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from typing import Annotated, Any, NoReturn, TypeVar, cast, dataclass_transform, overload

from pydantic import AfterValidator, ConfigDict

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)
"""Unknown fields and non-finite numbers are errors; a validator is built when it is first needed."""

_Value = TypeVar("_Value")


class FrozenDict(dict[str, _Value]):
    """A dictionary that never changes and therefore has a hash."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("this mapping is frozen")

    __setitem__ = __delitem__ = __ior__ = update = pop = popitem = clear = setdefault = _refuse


def _freeze(mapping: Mapping[str, _Value]) -> FrozenDict[_Value]:
    return FrozenDict(mapping)


Map = Annotated[dict[str, _Value], AfterValidator(_freeze)]

_Noun = TypeVar("_Noun")
_Class = TypeVar("_Class", bound=type)
_HASH = "_hash"


def hash_once(noun: _Class) -> _Class:
    """Class decorator above ``@dataclass``: a noun that keys caches computes its hash (over all it holds) once."""
    compute: Any = noun.__hash__

    def remembered(self: Any) -> int:
        kept: dict[str, Any] = self.__dict__
        found = kept.get(_HASH)
        if found is None:
            found = kept[_HASH] = compute(self)
        return int(found)

    noun.__hash__ = remembered  # type: ignore[assignment]
    return noun


@overload
def light(kind: _Class) -> _Class: ...
@overload
def light(*, kw_only: bool) -> Callable[[_Class], _Class]: ...


@dataclass_transform(frozen_default=True)
def light(kind: Any = None, *, kw_only: bool = False) -> Any:
    """Class decorator of what a prediction makes many of: a dataclass that nothing changes, as a type checker proves.

    At run time nothing refuses: that would cost a call for each field of each.
    """
    if kind is None:
        return partial(light, kw_only=kw_only)
    return dataclass(eq=False, kw_only=kw_only)(kind)


def shared(noun: _Noun) -> _Noun:
    """The first noun of this value that was asked for: caches compare what is the same object by identity."""
    return cast(_Noun, _first(noun))


@lru_cache(maxsize=1024)
def _first(noun: Any) -> Any:
    return noun


def replaced(noun: _Noun, **changes: Any) -> _Noun:
    """A copy of a noun or a table with fields changed, to values in SI units: they are not parsed
    or validated again.
    """
    copy = object.__new__(type(noun))
    kept: dict[str, Any] = noun.__dict__
    copy.__dict__.update({name: kept[name] for name in _names(cast(Any, type(noun)))} | changes)
    return copy


@lru_cache(maxsize=256)
def _names(noun: Any) -> tuple[str, ...]:
    """The fields of a noun."""
    return tuple(field.name for field in fields(noun))
