"""Quantities: text with a unit at the door, SI floats inside.

``parse`` reads one quantity of a named dimension, ``format_*`` print them. The annotated types are the fields of every
noun: they accept text with a unit (``'3.35 TB/s'``), and numbers only where the dimension has none.
GB is 10^9 bytes, GiB is 2^30; Gb/s counts bits; bandwidth is per direction.
"""

import math
import re
from dataclasses import dataclass
from numbers import Integral
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

MAX_COUNT: Final = 10**12
"""The largest count that a field takes: far above any parameter, token or accelerator count in use."""

_DECIMAL: Final = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY: Final = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60}
_LETTERS: Final = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
"""Thousands to trillions of things."""
MIN_BANDWIDTH: Final = 1.0
"""The lowest bandwidth that a field takes (B/s)."""
MAX_BANDWIDTH: Final = 1e21
MAX_FLOPS: Final = 1e24
MAX_HERTZ: Final = 1e15
MAX_WATTS: Final = 1e12
"""The highest rates that a field takes, in B/s, FLOP/s, Hz and W: no machine comes near."""
MAX_SECONDS: Final = 3600.0
"""The longest latency that a field takes: times of hardware and hosts are far below."""
SECONDS_PER_HOUR: Final = 3600.0
MIN_SHARE: Final = 1e-6
PERCENT: Final = 100.0
"""The least that a fault leaves: below it a link or an accelerator is down."""
_NUMBER: Final = re.compile(r"[-+]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][-+]?\d+)?(?![\d.])")


@dataclass(frozen=True, slots=True)
class Dimension:
    """Units of one dimension with their factors to SI, and an example for sentences."""

    units: dict[str, float]
    example: str


def _units(symbols: dict[str, float], prefixes: dict[str, float]) -> dict[str, float]:
    return {prefix + symbol: scale * factor for symbol, factor in symbols.items() for prefix, scale in prefixes.items()}


_BIT: Final = 1 / 8
_TIME: Final = {
    **{"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9},
    **{"min": 60.0, "h": 3600.0, "d": 86400.0},
}
DIMENSIONS: Final[dict[str, Dimension]] = {
    "bytes": Dimension(_units({"B": 1.0}, _DECIMAL | _BINARY), "80 GiB"),
    "bandwidth": Dimension(
        _units({"B/s": 1.0, "b/s": _BIT, "bit/s": _BIT, "bps": _BIT}, _DECIMAL | _BINARY), "3.35 TB/s"
    ),
    "flops": Dimension(
        _units({"FLOP/s": 1.0, "FLOPS": 1.0, "FLOPs/s": 1.0, "OP/s": 1.0, "OPS": 1.0}, _DECIMAL), "989 TFLOP/s"
    ),
    "frequency": Dimension(_units({"Hz": 1.0}, _DECIMAL), "1.98 GHz"),
    "power": Dimension(_units({"W": 1.0}, {"m": 1e-3} | _DECIMAL), "700 W"),
    "energy per byte": Dimension(
        _units({"J/B": 1.0, "J/b": 8.0, "J/bit": 8.0}, {"p": 1e-12, "n": 1e-9, "": 1.0}), "150 pJ/B"
    ),
    "time": Dimension(_TIME, "5 us"),
    "fraction": Dimension({"%": 0.01}, "80 %"),
}


def parse(text: str, dimension: str) -> float:
    """Read a quantity such as ``'3.35 TB/s'`` into SI units; ValueError with the rest of a sentence otherwise."""
    known = DIMENSIONS[dimension]
    stripped = text.strip()
    number = _NUMBER.match(stripped)
    if number is None:
        raise ValueError(f"is not a quantity, such as '{known.example}' (got '{_short(text)}').")
    unit = stripped[number.end() :].strip()
    if not unit and dimension == "fraction":
        return float(number[0].replace("_", ""))
    if not unit:
        raise ValueError(f"needs a unit, such as '{known.example}' (got {_short(stripped)}).")
    if unit not in known.units:
        raise ValueError(_unknown_unit(unit, known))
    factor, value = known.units[unit], float(number[0].replace("_", ""))
    value = value * factor if factor >= 1 else value / round(1 / factor)  # 9 ms is 0.009 to the last bit
    if not math.isfinite(value):
        raise ValueError(f"must be finite (got '{_short(text)}').")
    return value


def _unknown_unit(unit: str, known: Dimension) -> str:
    """The sentence for a unit that the dimension lacks: the same letters in another case are most often meant."""
    meant = [u for u in known.units if u.casefold() == unit.casefold()]
    hint = f" Did you mean '{meant[0]}'?" if meant else f" Write it as in '{known.example}'."
    return f"has the unknown unit '{_short(unit)}'.{hint}"


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


class Si(float):
    """A number already in SI units: passes the door of a noun without a unit (used by Python callers and tests)."""


def _quantity(
    dimension: str, *, bare: bool = False, integer: bool = False, least: float = 0.0, most: float = math.inf
) -> BeforeValidator:
    """Reads a quantity; ``least``: of those above 0, ``most``: of all, in the SI unit. What is beyond has no meaning,
    and overflows where it divides.
    """
    example, unit = DIMENSIONS[dimension].example, next(iter(DIMENSIONS[dimension].units))

    def read(value: Any) -> Any:
        if isinstance(value, str):
            value = parse(value, dimension)
        elif isinstance(value, Si):
            value = float(value)
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"must be a quantity, such as '{example}' (got {_say(value)}).")
        elif not bare and value != 0:
            raise ValueError(f"needs a unit, such as '{example}' (got {value:g}).")
        if not math.isfinite(value):
            raise ValueError(f"must be finite (got {value}).")
        if 0 < value < least:
            raise ValueError(f"must be at least {least:g} {unit} (got {value:g} {unit}). Try '{example}'.")
        if value > most:
            raise ValueError(f"must be at most {most:g} {unit} (got {value:g} {unit}). Try '{example}'.")
        return round(value) if integer else float(value)

    return BeforeValidator(read)


def _say(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list, tuple)):
        return "a list" if not isinstance(value, dict) else "a mapping"
    return str(value).lower() if isinstance(value, bool) else _short(repr(value))


def _whole(value: Any) -> str:
    """The whole number to try for a fraction of things, or for 8k of them."""
    thousands = value.strip().lower().removesuffix("k") if isinstance(value, str) else ""
    if thousands.isdecimal() and thousands != value.strip():
        return f" Try {max(1, int(thousands[:9])) * 1024}."
    return f" Try {max(1, round(value))}." if isinstance(value, float) and abs(value) < MAX_COUNT else ""


def _count(value: Any) -> Any:
    if isinstance(value, Integral) and not isinstance(value, bool):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1:
        raise ValueError(f"must be an integer (got {_say(value)}).{_whole(value)}")
    if value < 1:
        raise ValueError(f"must be at least 1 (got {value:g}). Try 1.")
    if value > MAX_COUNT:
        given = f"{float(value):g}" if value < 1e300 else "more than 1e300"
        raise ValueError(f"must be an integer of at most {MAX_COUNT:,} (got {given}).")
    return int(value)


def _whole_number(value: Any) -> Any:
    """``1e6`` is a whole number as good as ``1000000``."""
    return int(value) if isinstance(value, float) and abs(value) <= MAX_COUNT and value == value // 1 else value


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"must be a number (got {_say(value)}).{_spelled(value)}")
    return float(value)


def _spelled(value: Any) -> str:
    """The number to try for one that is written with a letter: 1e+08 for 100M."""
    written = _NUMBER.match(value.strip()) if isinstance(value, str) else None
    factor = _LETTERS.get(value.strip()[written.end() :].strip()) if written else None
    return f" Try {float(written[0].replace('_', '')) * factor:g}." if written and factor else ""


@dataclass(frozen=True, slots=True)
class Unit:
    """Marks a quantity field with its SI unit, for printing it as text that can be read again."""

    text: str


def _schema(dimension: str) -> WithJsonSchema:
    """JSON Schema of a quantity: text with a unit."""
    return WithJsonSchema({"type": "string", "examples": [DIMENSIONS[dimension].example], "format": dimension})


Bytes = Annotated[int, Unit("B"), _quantity("bytes", integer=True), Field(ge=0), _schema("bytes")]
BytesPerSecond = Annotated[
    float,
    Unit("B/s"),
    _quantity("bandwidth", least=MIN_BANDWIDTH, most=MAX_BANDWIDTH),
    Field(gt=0),
    _schema("bandwidth"),
]
FlopsPerSecond = Annotated[float, Unit("FLOP/s"), _quantity("flops", most=MAX_FLOPS), Field(gt=0), _schema("flops")]
Hertz = Annotated[float, Unit("Hz"), _quantity("frequency", most=MAX_HERTZ), Field(gt=0), _schema("frequency")]
Watts = Annotated[float, Unit("W"), _quantity("power", most=MAX_WATTS), Field(ge=0), _schema("power")]
JoulesPerByte = Annotated[float, Unit("J/B"), _quantity("energy per byte"), Field(gt=0), _schema("energy per byte")]
Seconds = Annotated[float, Unit("s"), _quantity("time", most=MAX_SECONDS), Field(ge=0), _schema("time")]
Fraction = Annotated[float, Field(gt=0, le=1), _quantity("fraction", bare=True)]


def _remainder(value: Any) -> Any:
    if isinstance(value, float) and 0 < value < MIN_SHARE:
        raise ValueError(f"must be at least {MIN_SHARE:.4%} (got {value:g}). Try down: true.".replace("%", " %"))
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 2 <= value <= PERCENT:
        raise ValueError(f"is the share that is left, at most 1 (got {value:g}). Try '{value:g} %'.")
    return value


Share = Annotated[float, Field(ge=0, le=1)]
"""A part of a whole: none, all, or what lies between."""
Remainder = Annotated[float, BeforeValidator(_remainder), Field(gt=0, le=1), _quantity("fraction", bare=True)]
"""A fraction that a fault leaves."""
Count = Annotated[int, Field(ge=1), BeforeValidator(_count)]
"""A whole number of things: an integer, or a float without a fraction (``1e6``), up to MAX_COUNT."""
Whole = Annotated[int, Field(ge=0, le=10**18, strict=True), BeforeValidator(_whole_number)]
"""A whole number, none included; tokens that were counted go beyond MAX_COUNT."""
Positive = Annotated[float, Field(gt=0), BeforeValidator(_number)]
NonNegative = Annotated[float, Field(ge=0), BeforeValidator(_number)]


def _scaled(value: float, unit: str, prefixes: tuple[str, ...], step: float, digits: int) -> str:
    """``value`` with the largest prefix that keeps it at or above one, to so many significant digits."""
    if not math.isfinite(value):
        return f"{value} {unit}"
    index, size = 0, abs(value)
    while index < len(prefixes) - 1 and max(float(f"{size:.{digits}g}"), round(size)) >= step:
        size /= step
        index += 1
    shown = math.copysign(size, value)
    return f"{_significant(shown, digits)} {prefixes[index]}{unit}".rstrip()


def _significant(value: float, digits: int) -> str:
    """``digits`` significant digits, without an exponent and without dropping places before the point."""
    if value == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(float(f"{value:.{digits}g}"))))
    return f"{value:.{max(places, 0)}f}"


def format_bytes(value: float) -> str:
    """Bytes with a binary prefix: ``80.0 GiB``."""
    if abs(value) < 1024:
        return f"{value:.0f} B"
    return _scaled(value, "B", ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1024.0, 3)


def format_seconds(value: float) -> str:
    """Seconds from ns to days: ``5.07 ms``, ``1.25 h``."""
    size = abs(value)
    if size >= 60 and math.isfinite(value):
        unit, factor = next((u, f) for u, f in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)) if size >= f)
        return f"{_significant(value / factor, 3)} {unit}"
    if size >= 1 or value == 0 or not math.isfinite(value):
        return f"{_significant(value, 3) if math.isfinite(value) else value} s"
    return _scaled(value * 1e9, "s", ("n", "µ", "m", ""), 1000.0, 3)


_MINUTE, _HOUR = 60.0, 3600.0


def format_time(value: float) -> str:
    """A time of a job: as ``format_seconds``, but in seconds up to an hour, since that is how steps are compared."""
    return f"{value:,.1f} s" if _MINUTE <= value < _HOUR else format_seconds(value)


_SI_PREFIXES: Final = ("", "k", "M", "G", "T", "P", "E")


def format_bandwidth(value: float) -> str:
    """Bytes per second with a decimal prefix: ``3.35 TB/s``."""
    return _scaled(value, "B/s", _SI_PREFIXES, 1000.0, 3)


def format_flops(value: float) -> str:
    """FLOP per second: ``989 TFLOP/s``."""
    return _scaled(value, "FLOP/s", _SI_PREFIXES, 1000.0, 3)


def format_rate(value: float, unit: str = "tokens/s") -> str:
    """Things per second, thousands set apart: ``12,345 tokens/s``, ``0.82 req/s``."""
    return f"{value:,.0f} {unit}" if abs(value) >= 100 else f"{_significant(value, 3)} {unit}"


def format_count(value: float) -> str:
    """A number of things: ``512``, ``1.2 M``, ``70.6 B``."""
    if abs(value) < 1000:
        return f"{value:g}" if value == int(value) else _significant(value, 3)
    scaled = _scaled(value, "", ("", "k", "M", "B", "T"), 1000.0, 3)
    number, _, prefix = scaled.partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {prefix}".rstrip()


def format_percent(value: float) -> str:
    """A fraction as percent: ``43.2 %``."""
    return f"{100 * value:.1f} %"


def format_frequency(value: float) -> str:
    """Hertz: ``1.98 GHz``."""
    return _scaled(value, "Hz", _SI_PREFIXES, 1000.0, 3)


def format_power(value: float) -> str:
    """Watts: ``700 W``."""
    return _scaled(value, "W", _SI_PREFIXES, 1000.0, 3)
