"""``calibrate fabric``: a collective library's costs on one link, from one's own measurements."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rapid_llm import hardware
from rapid_llm.calibration import Calibration, calibrate, read
from rapid_llm.calibration.fabric import write
from rapid_llm.cli.style import show
from rapid_llm.cli.text import json_text, wrapped
from rapid_llm.errors import InputError
from rapid_llm.network import Fabric
from rapid_llm.network.technologies import library_for
from rapid_llm.units import format_percent


@dataclass(frozen=True, slots=True)
class Request:
    """The flags of the verb."""

    table: str
    library: str | None
    link: str | None
    op: str | None
    ranks: int | None
    out: str | None


def calibrate_fabric(system: str, asked: Request, *, as_json: bool) -> int:
    """Fit, print what changed on rows that the fit did not see, and write the data file."""
    known = hardware.system(system)
    base = asked.library or library_for(known.groups[0].node.accelerator.vendor)
    rows = read(asked.table, op=asked.op, ranks=asked.ranks)
    found = calibrate(Fabric.of(known), rows, library=base, link=asked.link)
    path = Path(asked.out or f"{found.library.name}-{known.name}.yaml")
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(f"--out must name a .yaml file (got {path}).", field="out")
    source = f"rapid-llm calibrate fabric {known.name} on {Path(asked.table).name}: {found.rows} rows"
    write(found.document(path.stem, source), path)
    if as_json:
        print(json_text(_object(found, path)))
    else:
        show(_lines(found, path))
    return 0


def _object(found: Calibration, path: Path) -> dict[str, object]:
    return {
        "library": found.library.name,
        "link": found.link,
        "before": {name: getattr(found.before, name) for name in found.fitted},
        "after": {name: getattr(found.after, name) for name in found.fitted},
        "rows": found.rows,
        "unseen_rows": found.unseen,
        "set_aside": found.aside,
        "held_out": found.held_out,
        "unseen_mape_before": found.error_before,
        "unseen_mape_after": found.error_after,
        "at_limit": list(found.at_limit),
        "file": str(path),
    }


def _lines(found: Calibration, path: Path) -> list[str]:
    lines = [
        f"{'link':<13}{found.link}, costs of {found.library.name}",
        f"{'rows':<13}{found.rows} fitted, {found.unseen} held out ({found.held_out})",
    ]
    if found.aside:
        lines.append(f"{'':<13}{found.aside} set aside: they do not reach this link")
    before, after = format_percent(found.error_before), format_percent(found.error_after)
    lines += [f"{'error':<13}{before} before, {after} after: mean on the rows held out", ""]
    for name in found.fitted:
        lines.append(f"{name:<13}{_number(name, found.before):>10}  ->  {_number(name, found.after):>10}")
    if found.error_after >= found.error_before:
        lines += ["", f"{'note':<13}no better than the known costs on the rows held out"]
    if found.at_limit:
        text = f"{', '.join(found.at_limit)} ended on a physical limit: does the description of the system fit?"
        lines += ["", *wrapped("beware", text)]
    return [*lines, "", f"{'written':<13}{path}", f"{'use it':<13}--set runtime.communication.library={path}"]


def _number(name: str, cost: object) -> str:
    value = float(getattr(cost, name))
    return f"{value:.3f}" if name in ("efficiency", "spread", "switch") else f"{value * 1e6:.3g} us"
