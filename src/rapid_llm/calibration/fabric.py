"""Fit what a collective library pays on one link of a system."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from ruamel.yaml import YAML

from rapid_llm.calibration.measurements import Measurement
from rapid_llm.calibration.writing import write_whole
from rapid_llm.documents import plain
from rapid_llm.errors import InputError, unknown_name
from rapid_llm.network import OPS, Fabric, Library, LinkCost, price
from rapid_llm.network.groups import group_of
from rapid_llm.network.technologies import library_of
from rapid_llm.nouns import FrozenDict, replaced
from rapid_llm.units import parse
from rapid_llm.validation import split_of

Vector = NDArray[np.float64]
BOUNDS: Final = {
    "launch": (0.5e-6, 1e-3),
    "step": (1e-8, 1e-3),
    "efficiency": (0.02, 1.0),
    "spread": (0.02, 1.0),
    "slice": (1e-9, 1e-3),
    "fence": (1e-8, 1e-3),
    "peer": (1e-8, 1e-4),
    "exchange": (1e-8, 1e-3),
    "switch": (0.02, 1.0),
}
"""Physical limits of the fitted constants of ``LinkCost``: seconds, and shares of the link rate."""
PRIOR: Final = 0.05
"""Weight of a weak pull to the known values (log units): it decides only what the table does not identify."""
SOFT: Final = 0.1
"""Relative error beyond which a row counts linearly: outliers of a shared machine do not bend the fit."""
_WRITTEN: Final = {"s": ("us", 1e-6, "time"), "B/s": ("GB/s", 1e9, "bandwidth")}
"""SI unit to the unit of data files, its factor and its dimension."""
FEW_KEYS: Final = 4
"""With fewer pairs of operation and ranks, every second size is held out instead of whole pairs."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What came of a fit: the costs before and after, and mean relative errors on rows that took no part in it.

    ``held_out`` says how rows were set apart; ``aside`` how many do not use the link.
    """

    library: Library
    link: str
    before: LinkCost
    after: LinkCost
    fitted: tuple[str, ...]
    rows: int
    unseen: int
    aside: int
    held_out: str
    error_before: float
    error_after: float

    @property
    def at_limit(self) -> tuple[str, ...]:
        """Constants that ended on a physical limit: a hint that the system is described wrongly."""
        return tuple(
            name
            for name in self.fitted
            if any(np.isclose(getattr(self.after, name), limit, rtol=1e-3) for limit in BOUNDS[name])
        )

    def document(self, name: str, source: str) -> dict[str, Any]:
        """The data file: the library it starts from, and the one link that changed."""
        cost = {field: _readable(value) for field, value in plain(self.after).items() if value != []}
        links = {self.link: {**cost, "kind": "fitted", "source": source}}
        return {"name": name, "base": self.library.name, "kind": "fitted", "source": source, "links": links}


def calibrate(
    fabric: Fabric, rows: Sequence[Measurement], *, library: str | Library, link: str | None = None
) -> Calibration:
    """Fit the costs of ``library`` on ``link`` (default: the outermost that any row uses) to measurements.

    Robust least squares on log error over the fitted rows. InputError when no row uses the link, when there are too few
    rows, and without scipy.
    """
    known = library_of(library)
    outer = [group_of(fabric, row.ranks, 1).tiers[-1] for row in rows]
    spans = {tier.link: tier.span for tier in outer}
    chosen = link or max(spans, key=lambda name: spans[name])
    if chosen not in spans:
        raise InputError(unknown_name("link of these rows", chosen, spans), field="link")
    used = [row for row, tier in zip(rows, outer, strict=True) if tier.link == chosen]
    if len(used) < 2 * FEW_KEYS:
        rows_use = "row uses" if len(used) == 1 else "rows use"
        raise InputError(f"{len(used)} {rows_use} {chosen}; at least {2 * FEW_KEYS} are needed to fit and to check.")
    seen, rule = _split(used)
    if seen.all():
        raise InputError(
            "every pair of operation and ranks has one message size, so no row is left to check the fit on: "
            "measure at least two sizes of each.",
            field="table",
        )
    model = _Model(fabric, used, known, chosen)
    values = _solve(model, seen)
    errors = [abs(model(x) / model.seconds - 1)[~seen] for x in (model.start, values)]
    return Calibration(
        library=known,
        link=chosen,
        before=model.before,
        after=model.cost(values),
        fitted=model.names,
        rows=int(seen.sum()),
        unseen=int((~seen).sum()),
        aside=len(rows) - len(used),
        held_out=rule,
        error_before=float(errors[0].mean()),
        error_after=float(errors[1].mean()),
    )


class _Model:
    """Seconds of the rows as a function of the fitted constants."""

    def __init__(self, fabric: Fabric, rows: Sequence[Measurement], library: Library, link: str) -> None:
        scope = next(tier.scope for tier in fabric.tiers if tier.link == link)
        self.library, self.link, self.before = library, link, library.cost(link, scope)
        self.names = _parameters(rows, self.before, scope)
        self.seconds = np.array([row.seconds for row in rows])
        self.columns = [np.array(c) for c in zip(*[(OPS.index(r.op), r.size, r.ranks) for r in rows], strict=True)]
        integer = np.array([row.integer for row in rows])
        fabrics = ((fabric, ~integer), (fabric.without_reduction(), integer))
        self.parts = [(place, np.flatnonzero(at)) for place, at in fabrics if at.any()]
        self.low, self.high = np.array([BOUNDS[name] for name in self.names]).T
        self.start = np.clip([getattr(self.before, name) for name in self.names], self.low, self.high)

    def cost(self, x: Vector) -> LinkCost:
        """The costs of a vector of constants."""
        return replaced(self.before, **{name: float(f"{v:.4g}") for name, v in zip(self.names, x, strict=True)})

    def __call__(self, x: Vector) -> Vector:
        """Seconds of every row."""
        cost = replaced(self.before, **dict(zip(self.names, map(float, x), strict=True)))
        library = replaced(self.library, links=FrozenDict({**self.library.links, self.link: cost}))
        out = np.empty(len(self.seconds))
        for fabric, at in self.parts:
            op, size, ranks = (column[at] for column in self.columns)
            out[at] = price(op.astype(int), size, ranks.astype(int), 1, fabric=fabric, library=library).seconds
        return out


def _parameters(rows: Sequence[Measurement], before: LinkCost, scope: str) -> tuple[str, ...]:
    """Constants that the operations of a table can identify."""
    ops = {row.op for row in rows}
    peers = ops & {"all_to_all", "send_recv"}
    names = ["launch", "step"]
    if ops - peers or before.spread is None:
        names += ["efficiency", *(name for name in ("fence",) if getattr(before, name))]
    if peers and before.spread is not None:
        names.append("spread")
    if before.slice:
        names.append("slice")
    if "all_to_all" in ops:
        names += [name for name in ("peer", "exchange") if getattr(before, name)]
    if "all_reduce" in ops and scope == "intra" and before.switch is not None:
        names.append("switch")
    return tuple(names)


def _split(rows: Sequence[Measurement]) -> tuple[NDArray[np.bool_], str]:
    """Which rows are fitted, and the rule in words."""
    keys = {row.key for row in rows}
    seen = np.array([split_of(row.key) == "fit" for row in rows])
    if len(keys) >= FEW_KEYS and seen.any() and not seen.all():
        return seen, "whole pairs of operation and ranks, by the scorecard's split"
    order: dict[str, list[float]] = {}
    for row in rows:
        order.setdefault(row.key, []).append(row.size)
    places = {key: {size: k for k, size in enumerate(sorted(set(sizes)))} for key, sizes in order.items()}
    return np.array([places[row.key][row.size] % 2 == 0 for row in rows]), "every second size"


def _solve(model: _Model, seen: NDArray[np.bool_]) -> Vector:
    try:
        from scipy.optimize import least_squares
    except ImportError:
        raise InputError("calibration needs scipy: pip install 'rapid-llm[fit]'.") from None
    start, low, high = (np.log(v) for v in (model.start, model.low, model.high))
    measured = np.log(model.seconds)

    def residual(x: Vector) -> Vector:
        return np.concatenate([(np.log(model(np.exp(x))) - measured)[seen], PRIOR * (x - start)])

    bounds = (low - 1e-9, high + 1e-9)
    found = least_squares(residual, start, bounds=bounds, loss="soft_l1", f_scale=SOFT, max_nfev=100, diff_step=1e-3)
    values: Vector = np.clip(np.exp(found.x), model.low, model.high)
    return values


def _readable(value: Any) -> Any:
    """Quantities in the units that data files use (us, GB/s), where these are read back to the last bit."""
    if isinstance(value, dict):
        return {name: _readable(item) for name, item in value.items()}
    number, _, unit = value.partition(" ") if isinstance(value, str) else ("", "", "")
    if unit not in _WRITTEN:
        return value
    shown, factor, dimension = _WRITTEN[unit]
    text = f"{float(number) / factor:.12g} {shown}"
    return text if parse(text, dimension) == float(number) else value


def write(document: dict[str, Any], path: Path) -> None:
    """Write a data file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    YAML().dump(document, text)
    write_whole(path, text.getvalue())
