"""A user's own collective: a template from a YAML file, in expressions of the group's size."""

import ast
import operator
from collections.abc import Callable, Mapping
from math import ceil, floor, log2
from pathlib import Path
from typing import Any, Final

from pydantic.dataclasses import dataclass

from rapid_llm.documents import Document, build, read_yaml
from rapid_llm.errors import InputError, unknown_name
from rapid_llm.network.templates import ALGORITHMS, OPS, Bounds, Phase, Template
from rapid_llm.nouns import STRICT

Expression = str | int | float
PATTERNS: Final = ("ring", "relay", "chain", "tree", "direct", "switch", "neighbour", "pair", "shift")
LEVELS: Final = ("all", "inside", "between")
MAX_ROUNDS: Final = 1 << 20
"""Phases and rounds of a recipe: more is a slip of an expression."""
TOLERANCE: Final = 1e-9
"""How far a count may be from a whole number by rounding."""

_OPERATORS: Final[Mapping[type, Callable[..., float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}
_FUNCTIONS: Final[Mapping[str, Callable[..., float]]] = {
    "log2": log2, "ceil": ceil, "floor": floor, "min": min, "max": max,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, config=STRICT)
class RecipePhase:
    """One phase as its file writes it (see ``templates.Phase``); a value may be an expression.

    Expressions know ``n`` ranks, ``inner`` ranks of one node, ``nodes``, and in a phase that ``repeat`` times ``t`` =
    0, 1, ...; operators + - * / // % **, functions log2, ceil, floor, min, max. ``load`` is what a rank sends in all
    rounds of the phase, in units of the message size S. ``levels``: ``all`` ranks, or those ``inside`` a node or
    ``between`` nodes only.
    """

    pattern: str
    load: Expression
    steps: Expression = 1
    levels: str = "all"
    distance: Expression = 1
    repeat: Expression = 1
    both: bool = False
    spread: bool = False


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Recipe:
    """A collective of one's own: the operations that it serves, and its phases."""

    name: str
    ops: tuple[str, ...]
    phases: tuple[RecipePhase, ...]
    pipelined: bool = False

    def __post_init__(self) -> None:
        """Refuse names that no template knows, and expressions that are none."""
        for op in self.ops:
            _known("collective", op, OPS)
        for phase in self.phases:
            _known("pattern", phase.pattern, PATTERNS)
            _known("levels", phase.levels, LEVELS)
            for text in (phase.load, phase.steps, phase.distance, phase.repeat):
                evaluate(text, {"n": 8.0, "inner": 4.0, "nodes": 2.0, "t": 0.0})

    def build(self, op: str, bounds: Bounds, inside: int) -> Template:
        """The template on a group that is nested as ``bounds``, of which ``inside`` levels lie in a node."""
        inner = bounds[inside - 1] if inside else 1
        names = {"n": float(bounds[-1]), "inner": float(inner), "nodes": ceil(bounds[-1] / inner)}
        try:
            phases = [phase for one in self.phases for phase in _phases(one, names, len(bounds), inside)]
        except ValueError as error:
            raise InputError(f"collective '{self.name}' on {bounds[-1]} ranks: {error}.", field="algorithm") from None
        if not phases or len(phases) > MAX_ROUNDS:
            raise InputError(f"collective '{self.name}' has {len(phases)} phases on {bounds[-1]} ranks; check repeat.")
        return Template(ALGORITHMS.index("custom"), tuple(phases), pipelined=self.pipelined)


def read_recipe(path: str | Path) -> Recipe:
    """The recipe of a YAML file; InputError with file and line where it is wrong."""
    document: Document = read_yaml(Path(path))
    return build(Recipe, {"name": Path(path).stem, **document.data}, document)


def _phases(phase: RecipePhase, names: Mapping[str, float], depth: int, inside: int) -> list[Phase]:
    levels = {"all": (0, depth), "inside": (0, inside), "between": (inside, depth)}[phase.levels]
    found: list[Phase] = []
    if levels[0] == levels[1]:
        return found
    for t in range(min(_whole("repeat", phase.repeat, names), MAX_ROUNDS + 1)):
        here = {**names, "t": float(t)}
        steps, distance = _whole("steps", phase.steps, here), _whole("distance", phase.distance, here)
        load = evaluate(phase.load, here)
        if phase.pattern == "pair" and steps > 0 and load > 0 and (distance < 1 or names["n"] % (2 * distance)):
            raise ValueError(f"pairs {distance} apart leave ranks without a partner")
        if steps > 0 and load > 0:
            found.append(
                Phase(phase.pattern, levels, steps, load, phase.spread, distance, phase.both)  # type: ignore[arg-type]
            )
    return found


def _whole(what: str, text: Expression, names: Mapping[str, float]) -> int:
    """A count; ValueError where it is not whole."""
    value = evaluate(text, names)
    if abs(value - round(value)) > TOLERANCE:
        raise ValueError(f"{what} '{text}' is {value:.2f}, which is not whole; try ceil or floor of it")
    return round(value)


def _known(what: str, name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        raise ValueError(unknown_name(what, name, names))


def evaluate(text: Expression, names: Mapping[str, float]) -> float:
    """The value of an arithmetic expression; ValueError for anything else."""
    if not isinstance(text, str):
        return float(text)
    try:
        return float(_value(ast.parse(text, mode="eval").body, names))
    except (SyntaxError, ZeroDivisionError, OverflowError, TypeError, RecursionError, ValueError) as error:
        raise ValueError(f"'{text}' is not an expression in {', '.join(names)} ({error})") from None


def _value(node: ast.AST, names: Mapping[str, float]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(operand, names))
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, names), _value(right, names))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(argument, names) for argument in args))
    raise ValueError(f"{ast.unparse(node)} is not known")
