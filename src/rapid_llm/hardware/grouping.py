"""Systems of several groups of nodes: each written as a system of its own, then a fabric or links that join them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from rapid_llm.documents import Document, build, join, show
from rapid_llm.errors import InputError, nearest, unknown_name
from rapid_llm.hardware.system import GroupedDescription, NodeGroup, System
from rapid_llm.nouns import replaced

_PLUS: Final = "+"
_COUNTED: Final = re.compile(r"\s*(\d+)\s*x\s*(\S+)\s*")
_MANY: Final = re.compile(r"\s*(\d+)\s*x\s*(.+)", re.IGNORECASE)
_MEANT: Final = re.compile(r"\s*[-+]?[\d.]+\s*x\s")
_TRY: Final = "Try groups: [{node: dgx-h100, nodes: 4}, {node: dgx-a100, nodes: 4}]"
_ONE_GROUP: Final = ("node", "nodes", "accelerator")

Alone = Callable[[Document, str], System]
"""Builds the system that a group is by itself, from its document and its path in the file."""


def in_words(name: str) -> dict[str, Any] | None:
    """The fields of a system written as ``4x dgx-h100 + 4x dgx-a100``; None for any other name."""
    found = [_COUNTED.fullmatch(part) for part in name.split(_PLUS)]
    if len(found) < 2 or not all(found):
        return None
    groups = [{"node": one[2], "nodes": int(one[1])} for one in found if one]
    return {"name": " + ".join(f"{group['nodes']}x {group['node']}" for group in groups), "groups": groups}


def many_of(name: str) -> tuple[int, str] | None:
    """How many of what a name such as ``8x h100-sxm`` counts; None for any other name."""
    found = _MANY.fullmatch(name)
    return (int(found[1]), found[2].strip()) if found else None


def refuse_words(name: str) -> None:
    """InputError for a name that is meant as groups of nodes and not written as them."""
    if _PLUS in name or _MEANT.match(name):
        raise InputError(
            f"system '{name}' does not say its groups of nodes, each a whole number of a system. Try '4x dgx-h100 + "
            "4x dgx-a100', or system: dgx-h100 for one group.",
            field="system",
        )


def inner(document: Document, data: Mapping[str, Any], path: str) -> Document:
    """A mapping inside a document as a document of its own."""
    start = f"{path}."
    lines = {key.removeprefix(start): line for key, line in document.lines.items() if key.startswith(start)}
    return replace(document, data={**data}, lines=lines, files={})


def build_groups(document: Document, alone: Alone, prefix: str = "") -> System:
    """The system of a document with ``groups``; ``prefix`` is its path in the file.

    ``node: NAME`` of a group is short for the node and the network of that system. Without a ``fabric`` of the whole,
    groups keep their own and the first of these joins them, unless ``links`` do: these say all that joins groups then.
    """
    data: dict[str, Any] = {**document.data}
    _refuse(document, data, prefix)
    written = data["groups"]
    groups = [_group(document, item, join(prefix, "groups", i), alone) for i, item in enumerate(written)]
    if data.get("fabric") is not None:
        kept = [isinstance(item, Mapping) and item.get("fabric") is not None for item in written]
        groups = [g if own else replaced(g, fabric=None) for g, own in zip(groups, kept, strict=True)]
    groups = _named(document, groups, [_said(item) for item in written], join(prefix, "groups"))
    name = " + ".join(f"{group.count}x {group.name}" for group in groups)
    described = build(GroupedDescription, {"name": name, **data, "groups": groups}, document, prefix)
    joined = described.fabric or next((g.fabric for g in groups if g.fabric and not described.links), None)
    for i, link in enumerate(described.links):
        _refuse_link(document, link.between, [g.name for g in groups], join(prefix, "links", i, "between"))
    _refuse_twice(document, [link.between for link in described.links], join(prefix, "links"))
    return System(name=described.name, groups=tuple(groups), fabric=joined, links=described.links)


def _refuse(document: Document, data: Mapping[str, Any], prefix: str) -> None:
    both = next((name for name in _ONE_GROUP if name in data), None)
    if both:
        place = join(prefix, both)
        raise document.error(f"{place} goes with one group of nodes, and groups has its own. {_TRY}.", place)
    written = data["groups"]
    if not isinstance(written, Sequence) or isinstance(written, str) or not written:
        place = join(prefix, "groups")
        raise document.error(f"{place} must be a list of groups of nodes (got {show(written)}). {_TRY}.", place)


def _group(document: Document, item: Any, path: str, alone: Alone) -> NodeGroup:
    """One group: a system by itself, and how many nodes of it."""
    if not isinstance(item, Mapping):
        raise document.error(f"{path} must say its node and how many there are (got {show(item)}). {_TRY}.", path)
    if "groups" in item or "links" in item:
        raise document.error(f"{path} must be one group of equal nodes. {_TRY}.", path)
    if item.get("nodes") is None:
        raise document.error(f"{path}.nodes is missing: how many nodes the group has. {_TRY}.", path)
    fields = {**item}
    if isinstance(fields.get("node"), str):
        fields["base"] = fields.pop("node")
    below = inner(document, fields, path)
    own = alone(replace(below, lines={**document.lines, **below.lines}), path)
    (group,) = own.groups
    return replaced(group, fabric=own.fabric)


def _said(item: Mapping[str, Any]) -> tuple[str, bool]:
    """The name of a group, and whether the user gave it."""
    given = item.get("name")
    if given:
        return str(given), True
    node = item.get("node")
    return str(node if isinstance(node, str) else item.get("base") or "group"), False


def _named(
    document: Document, groups: Sequence[NodeGroup], said: Sequence[tuple[str, bool]], path: str
) -> list[NodeGroup]:
    """Groups with distinct names: open ones are numbered."""
    taken: set[str] = set()
    found = []
    for i, (group, (name, given)) in enumerate(zip(groups, said, strict=True)):
        if given and name in taken:
            raise document.error(f"{path}[{i}].name '{name}' is taken. Try {name}-2.", f"{path}[{i}].name")
        count, own = 2, name
        while own in taken:
            own, count = f"{name}-{count}", count + 1
        taken.add(own)
        found.append(replaced(group, name=own))
    return found


def _refuse_link(document: Document, between: Sequence[str], names: Sequence[str], path: str) -> None:
    for name in between:
        if name not in names:
            close = nearest(name, names) or list(names)
            raise document.error(unknown_name(path, name, names), path, close)
    if between and len({*between}) != 2:
        raise document.error(
            f"{path} must name the two groups that the link joins (got {show(list(between))}). "
            f"Try [{names[0]}, {names[-1]}].",
            path,
        )


def _refuse_twice(document: Document, pairs: Sequence[Sequence[str]], path: str) -> None:
    """InputError for two links between the same groups, in either order."""
    seen = [frozenset(pair) for pair in pairs]
    for i, pair in enumerate(seen):
        if pair in seen[:i]:
            what = " and ".join(pairs[i]) or "every two groups"
            raise document.error(
                f"{path}[{i}] joins {what}, which {path}[{seen.index(pair)}] does. Try one link with the bandwidth "
                "of both.",
                f"{path}[{i}]",
            )
