"""Quantities: text with a unit at the door, SI floats inside.

``parse`` reads one quantity of a named dimension, ``format_*`` print them. The annotated types are the fields of every
noun: they accept text with a unit (``'3.35 TB/s'``), and numbers only where the dimension has none.
GB is 10^9 bytes, GiB is 2^30; Gb/s counts bits; bandwidth is per direction.
"""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, Strict

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}

# dimension -> (accepted unit suffixes with their factor to SI, example shown in errors)
_UNITS: dict[str, tuple[dict[str, float], str]] = {}


def _define(dimension: str, symbols: dict[str, float], prefixes: dict[str, float], example: str) -> None:
    table = {p + s: f * k for s, f in symbols.items() for p, k in prefixes.items()}
    _UNITS[dimension] = (table, example)


_define("bytes", {"B": 1.0}, _DECIMAL | _BINARY, "80 GiB")
_define(
    "bandwidth",
    {"B/s": 1.0, "b/s": 0.125, "bit/s": 0.125, "bps": 0.125},
    _DECIMAL | _BINARY,
    "3.35 TB/s",
)
_define("flops", {"FLOP/s": 1.0, "FLOPS": 1.0, "OP/s": 1.0, "OPS": 1.0}, _DECIMAL, "989 TFLOP/s")
_define("frequency", {"Hz": 1.0}, _DECIMAL, "1.98 GHz")
_define("power", {"W": 1.0}, _DECIMAL | {"m": 1e-3}, "700 W")
_define("time", {"s": 1.0, "min": 60.0, "h": 3600.0}, {"": 1.0}, "5 us")
_UNITS["time"][0].update({"ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "d": 86400.0})
_define("fraction", {"%": 0.01}, {"": 1.0}, "80 %")


def parse(text: str, dimension: str) -> float:
    """Read a quantity such as ``'3.35 TB/s'`` into SI units; ValueError with a sentence otherwise."""
    table, example = _UNITS[dimension]
    stripped = text.strip().replace("_", "")
    cut = len(stripped)
    while cut and not (stripped[cut - 1].isdigit() or stripped[cut - 1] == "."):
        cut -= 1
    number, unit = stripped[:cut].strip(), stripped[cut:].strip()
    try:
        value = float(number)
    except ValueError:
        raise ValueError(f"is not a quantity, such as '{example}' (got '{text}')") from None
    if not unit:
        raise ValueError(f"needs a unit, such as '{example}' (got {text})")
    if unit not in table:
        raise ValueError(f"has the unknown unit '{unit}'; write it as in '{example}'")
    return value * table[unit]


def _quantity(dimension: str, *, bare: bool = False, integer: bool = False) -> BeforeValidator:
    def read(value: Any) -> Any:
        if isinstance(value, str):
            value = parse(value, dimension)
        elif isinstance(value, Si):
            value = float(value)
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"must be a quantity, such as '{_UNITS[dimension][1]}' (got {value!r})")
        elif not bare and value != 0:
            raise ValueError(f"needs a unit, such as '{_UNITS[dimension][1]}' (got {value:g})")
        return round(value) if integer else value

    return BeforeValidator(read)


class Si(float):
    """A number already in SI units: passes the door of a noun without a unit (used by Python callers and tests)."""


Bytes = Annotated[int, _quantity("bytes", integer=True), Field(ge=0)]
BytesPerSecond = Annotated[float, _quantity("bandwidth"), Field(gt=0)]
FlopsPerSecond = Annotated[float, _quantity("flops"), Field(gt=0)]
Hertz = Annotated[float, _quantity("frequency"), Field(gt=0)]
Watts = Annotated[float, _quantity("power"), Field(ge=0)]
Seconds = Annotated[float, _quantity("time"), Field(ge=0)]
Fraction = Annotated[float, _quantity("fraction", bare=True), Field(gt=0, le=1)]
Count = Annotated[int, Strict(), Field(gt=0)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
