"""From plain data to nouns: every mistake that pydantic finds becomes one sentence about the field at fault."""

import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from rapid_llm.documents.reading import Document, join
from rapid_llm.errors import nearest

Noun = TypeVar("Noun")


@lru_cache(maxsize=128)
def _adapter(noun_type: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(noun_type)


def build(
    noun_type: type[Noun],
    data: Mapping[str, Any] | Document,
    document: Document | None = None,
    prefix: str = "",
) -> Noun:
    """Validate plain data (values may already be nouns) into a noun; InputError with one sentence otherwise.

    ``document`` gives file and line, and ``prefix`` the dotted path of ``data`` inside it.
    """
    from pydantic import ValidationError

    if isinstance(data, Document):
        document = data
    plain = data.data if isinstance(data, Document) else data
    adapter = _adapter(noun_type)  # type: ignore[arg-type]
    try:
        noun: Noun = adapter.validate_python(plain)
        return noun
    except ValidationError as error:
        findings = [_Finding.of(detail, noun_type, plain) for detail in error.errors(include_url=False)]
    worst = min(findings, key=lambda finding: finding.rank)
    message, suggestions = worst.sentence(prefix)
    raise (document or Document(data={})).error(message, join(prefix, *worst.path), suggestions)


def known_fields(noun_type: Any) -> list[str]:
    """The field names of a noun; of all members of a union."""
    return list(dict.fromkeys(name for member in _members(noun_type) for name in _hints(member)))


@lru_cache(maxsize=512)
def _hints(noun: type) -> dict[str, Any]:
    return typing.get_type_hints(noun, include_extras=True) if is_dataclass(noun) else {}


def _members(annotation: Any) -> Iterator[Any]:
    """The types that an annotation stands for: inside Annotated and unions, without None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _members(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _members(member)
    elif annotation is not type(None):
        yield annotation


def _fitting(annotation: Any, value: Any) -> list[Any]:
    """The members of a union that a mapping can be meant for: those whose ``kind`` it names, else all."""
    members = list(_members(annotation))
    if isinstance(value, Mapping) and "kind" in value:
        named = [m for m in members if value["kind"] in _kinds(m)]
        return named or members
    return members


def _kinds(noun: Any) -> tuple[Any, ...]:
    hint = _hints(noun).get("kind") if isinstance(noun, type) else None
    return get_args(hint) if get_origin(hint) is Literal else ()


def _step(annotation: Any, value: Any, key: str | int) -> Any:
    """The annotation of one item of a value, or None where it has no such item."""
    for member in _fitting(annotation, value):
        origin, args = get_origin(member), get_args(member)
        if isinstance(key, str) and key in _hints(member):
            return _hints(member)[key]
        if isinstance(key, str) and origin in (dict, Mapping):
            return args[1]
        if isinstance(key, int) and origin in (tuple, list):
            return args[0] if len(args) == 1 or args[-1] is ... else args[min(key, len(args) - 1)]
    return None


def _item(value: Any, key: str | int) -> Any:
    if isinstance(value, Mapping):
        return value.get(key)
    if isinstance(value, (list, tuple)) and isinstance(key, int) and key < len(value):
        return value[key]
    return getattr(value, str(key), None)


@dataclass(frozen=True, slots=True)
class _Finding:
    """One complaint of pydantic, with its place in the data and in the types."""

    detail: Any
    path: tuple[str | int, ...]
    siblings: tuple[str, ...]
    annotation: Any
    rank: tuple[int, int]

    @classmethod
    def of(cls, detail: Any, noun_type: Any, data: Any) -> "_Finding":
        """Follow pydantic's location, leaving out the names of union members that it inserts."""
        path: list[str | int] = []
        siblings: tuple[str, ...] = ()
        annotation, value, foreign = noun_type, data, 0
        location = detail["loc"]
        for position, key in enumerate(location):
            below = _step(annotation, value, key)
            is_last = position == len(location) - 1
            if below is None and not (is_last and detail["type"] in _UNKNOWN | _MISSING):
                names = [getattr(member, "__name__", "") for member in _fitting(annotation, value)]
                foreign += key not in names and key not in {k for m in _members(annotation) for k in _kinds(m)}
                continue
            siblings = tuple(name for member in _fitting(annotation, value) for name in _hints(member))
            annotation, value = below, _item(value, key)
            path.append(key)
        if detail["type"] == "union_tag_invalid":
            path.append("kind")
        urgency = 0 if detail["type"] in _UNKNOWN else 2 if detail["type"] in _MISSING else 1
        return cls(detail, tuple(path), siblings, annotation, (foreign, urgency))

    def sentence(self, prefix: str) -> tuple[str, tuple[str, ...]]:
        """The sentence and the suggested names."""
        kind, field = self.detail["type"], join(prefix, *self.path)
        if kind in _UNKNOWN:
            return _unknown_field(field, str(self.path[-1]), self.siblings)
        if kind in _MISSING:
            return f"the field '{field}' is missing. {_missing(field, str(self.path[-1]), self.annotation)}".strip(), ()
        given, context = self.detail["input"], self.detail.get("ctx", {})
        if kind == "union_tag_invalid":
            return _unknown_value(field, context["tag"], _quoted(context["expected_tags"]))
        if kind == "union_tag_not_found":
            kinds = [str(k) for member in _members(self.annotation) for k in _kinds(member)]
            return f"the field '{join(field, 'kind')}' is missing. Known: {', '.join(kinds)}.", tuple(kinds)
        if kind == "literal_error":
            return _unknown_value(field, given, _quoted(context["expected"]))
        said = _said(kind, given, context) or f"is wrong: {self.detail['msg'].lower()} (got {show(given)})."
        last = str(self.path[-1]) if self.path else ""
        plain = isinstance(given, float) and " " in _EXAMPLES.get(last, "")  # a share, where the example has a unit
        if last in _EXAMPLES and not plain and not _HINT.search(said):
            said = f"{said} {_example(last)}"
        return f"{field} {said}".strip(), ()


_EXAMPLES = {
    "global_batch_size": "512",
    "sequence_length": "4096",
    "batch_size": "32",
    "prompt_tokens": "1024",
    "output_tokens": "256",
    "acceptance": "[0.8, 0.7, 0.6]",
    "bandwidth": "100 GB/s",
    "capacity": "80 GiB",
    "node": "{accelerator: h100-sxm, accelerators: 8}",
    "accelerator": "h100-sxm",
    "accelerators": "8",
    "groups": "[{node: dgx-h100, nodes: 4}]",
    "topology": "leaf-spine",
    "model": "llama-3.2-1b",
    "name": "mine",
    "rank": "16",
    "count": "1",
    "price_per_hour": "2.5",
    "routing": "{skew: 0.8}",
    "redundant_experts": "32",
    "ulysses": "2",
    "dp_shard": "8",
}
"""Values to start from, of fields that have no default, or whose form few know."""

_PARTS = {
    "vendor": "NVIDIA",
    "compute_units": "132",
    "vector": "66.9 TFLOP/s",
    "clocks": "{base: 1.59 GHz, boost: 1.83 GHz}",
    "peak": "{bf16: 989 TFLOP/s}",
    "memory": "{hbm: {capacity: 80 GiB, bandwidth: 3.35 TB/s}}",
    "hbm": "{capacity: 80 GiB, bandwidth: 3.35 TB/s}",
    "power": "{limit: 700 W}",
    "host_link": "pcie5-x16",
    "link": "infiniband-ndr",
}
"""The same of what a description of hardware cannot do without."""

_HINT = re.compile(r"\b(Try|Write|Known|Did you mean|such as|at most)\b")
"""What tells in a sentence what to write."""


def _example(name: str) -> str:
    """What to write for a field, where that is known."""
    return f"Try {name}: {_EXAMPLES[name]}." if name in _EXAMPLES else ""


def _missing(field: str, name: str, annotation: Any) -> str:
    """What to write for a field that is missing: an example of its own, of its place or dimension, or its kinds."""
    inside = {"topology": "switch", "link": "nvlink4"}
    if field.endswith(f"scale_up.{name}") and name in inside:
        return f"Try {name}: {inside[name]}."
    if name in _EXAMPLES or name in _PARTS:
        return _example(name) or f"Try {name}: {_PARTS[name]}."
    for one in getattr(annotation, "__metadata__", ()):
        examples = (getattr(one, "json_schema", None) or {}).get("examples")
        if examples:
            return f"Try {name}: {examples[0]}."
    values = [
        str(value) for member in _members(annotation) if get_origin(member) is Literal for value in get_args(member)
    ]
    return f"Known: {', '.join(values)}." if values else "Try to add it."


_UNKNOWN = frozenset({"unexpected_keyword_argument", "extra_forbidden"})
_MISSING = frozenset({"missing", "missing_argument", "missing_keyword_only_argument"})

_WANTED = {
    "int_": "an integer",
    "float_": "a number",
    "bool_": "true or false",
    "string_": "text",
    "dataclass_": "a mapping of fields",
    "dict_": "a mapping of fields",
    "model_": "a mapping of fields",
    "tuple_": "a list",
    "list_": "a list",
    "finite_": "a finite number",
}


def _said(kind: str, given: Any, context: Mapping[str, Any]) -> str:
    """What is wrong with a value, as the rest of a sentence that begins with its path."""
    if kind == "value_error":
        said = str(context["error"])
        return said if said.endswith((".", "?")) else said + "."
    for name, words in (
        ("gt", "greater than"),
        ("ge", "at least"),
        ("lt", "less than"),
        ("le", "at most"),
    ):
        if name in context:
            hint = f" Try {context[name]:g}." if name in {"ge", "le"} and context[name] < 1e6 else ""
            return f"must be {words} {_number(context[name])} (got {show(given)}).{hint}"
    if kind in ("too_long", "too_short"):
        most = f"at most {context['max_length']}" if kind == "too_long" else f"at least {context['min_length']}"
        items = "item" if most.endswith(" 1") else "items"
        return f"must have {most} {items} (got {context['actual_length']})."
    for start, wanted in _WANTED.items():
        if kind.startswith(start):
            whole = isinstance(given, float) and given.is_integer() and abs(given) < 1e15
            hint = f" Write {int(given)}." if start == "int_" and whole else ""
            if start == "string_" and isinstance(given, (int, float)) and not isinstance(given, bool):
                hint = f" Write '{given}', in quotes."
            return f"must be {wanted} (got {show(given)}).{hint}"
    return ""


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def show(value: Any) -> str:
    """A value as a sentence quotes what was given."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping"
    text = f"'{value}'" if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _quoted(expected: str) -> list[str]:
    return re.findall(r"'([^']*)'", expected) or re.findall(r"[^,\s]+", expected.replace(" or ", ", "))


def _unknown_value(field: str, given: Any, known: list[str]) -> tuple[str, tuple[str, ...]]:
    close = nearest(str(given), known, limit=1) if isinstance(given, str) else []
    hint = f" Did you mean '{close[0]}'?" if close else ""
    return f"{field} {show(given)} is unknown.{hint} Known: {', '.join(known)}.", tuple(close)


def _unknown_field(field: str, name: str, known: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    close = nearest(name, known)
    hint = f"Did you mean '{close[0]}'?" if close else f"Known: {', '.join(known)}."
    return f"unknown field '{field}'. {hint}", tuple(close)
