"""From nouns back to plain data that can be written, hashed and read again."""

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Annotated, Any, Union, get_args, get_origin

from rapid_llm.units import Unit


def plain(noun: Any) -> Any:
    """Plain data of a noun: mappings, lists, text, numbers; quantities as text with their SI unit, exactly.

    Fields that are None are left out.
    """
    return _plain(noun, None)


def _plain(value: Any, unit: str | None) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return value if unit is None else f"{value!r} {unit}"
    if isinstance(value, Mapping):
        return {key: _plain(item, unit) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, unit) for item in value]
    found = ((name, getattr(value, name), unit) for name, unit in _fields(_class(value)))
    return {name: _plain(item, unit) for name, item, unit in found if item is not None}


def _class(value: Any) -> Any:
    return type(value)


@lru_cache(maxsize=512)
def _fields(noun: Any) -> tuple[tuple[str, str | None], ...]:
    if not is_dataclass(noun):
        raise TypeError(f"{noun.__name__} is not a noun")
    hints = typing.get_type_hints(noun, include_extras=True)
    return tuple((f.name, _unit(hints[f.name])) for f in fields(noun))


def _unit(annotation: Any) -> str | None:
    """The SI unit that an annotation marks, at any depth of unions, mappings and tuples."""
    if get_origin(annotation) is Annotated:
        marks = [mark.text for mark in annotation.__metadata__ if isinstance(mark, Unit)]
        return marks[0] if marks else _unit(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType, dict, tuple):
        units = [_unit(argument) for argument in get_args(annotation)]
        return next((unit for unit in units if unit), None)
    return None
