import math
import re

import pint
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from rapid_llm import units

PINT = pint.UnitRegistry()
PINT.define("FLOP = [operation] = OP")

SPELLINGS = {  # our unit -> pint's
    "bytes": {"B": "byte", "kB": "kilobyte", "GB": "gigabyte", "KiB": "kibibyte", "GiB": "gibibyte", "TiB": "tebibyte"},
    "bandwidth": {"GB/s": "gigabyte/s", "TB/s": "terabyte/s", "Gb/s": "gigabit/s", "GiB/s": "gibibyte/s"},
    "flops": {"TFLOP/s": "teraFLOP/s", "PFLOP/s": "petaFLOP/s", "TOP/s": "teraOP/s"},
    "frequency": {"MHz": "megahertz", "GHz": "gigahertz"},
    "power": {"W": "watt", "mW": "milliwatt", "kW": "kilowatt"},
    "time": {"ns": "ns", "us": "us", "µs": "us", "ms": "ms", "s": "s", "min": "minute", "h": "hour", "d": "day"},
}  # fmt: skip
BASE = {"bytes": "byte", "bandwidth": "byte/s", "flops": "FLOP/s", "frequency": "hertz", "power": "watt", "time": "s"}


@pytest.mark.parametrize("dimension", SPELLINGS)
@given(value=st.floats(1e-3, 1e6))
def test_agrees_with_pint(dimension, value):
    for ours, theirs in SPELLINGS[dimension].items():
        expected = PINT.Quantity(value, theirs).to(BASE[dimension]).magnitude
        assert units.parse(f"{value!r} {ours}", dimension) == pytest.approx(expected, rel=1e-12)


@given(value=st.floats(0, 1e30))
def test_si_text_reads_back_exactly(value):
    assert units.parse(f"{value!r} B/s", "bandwidth") == value


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("3.35 TB/s", "bandwidth", 3.35e12),
        ("20TB/s", "bandwidth", 2e13),
        ("400 Gb/s", "bandwidth", 5e10),
        ("400Gbps", "bandwidth", 5e10),
        ("80 GiB", "bytes", 80 * 2**30),
        ("80 GB", "bytes", 80e9),
        ("1_000 MB", "bytes", 1e9),
        ("1e3 kB", "bytes", 1e6),
        ("9 ms", "time", 0.009),
        ("2.7 us", "time", 2.7e-6),
        (".5 µs", "time", 5e-7),
        ("80 %", "fraction", 0.8),
        ("0.8", "fraction", 0.8),
        ("1.98 GHz", "frequency", 1.98e9),
    ],
)
def test_parse(text, dimension, value):
    assert units.parse(text, dimension) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "dimension", "sentence"),
    [
        ("80", "bytes", "needs a unit, such as '80 GiB' (got 80)."),
        ("80 gib", "bytes", "has the unknown unit 'gib'. Did you mean 'GiB'?"),
        ("80 GiBs", "bytes", "has the unknown unit 'GiBs'. Write it as in '80 GiB'."),
        ("fast", "bandwidth", "is not a quantity, such as '3.35 TB/s' (got 'fast')."),
        ("", "time", "is not a quantity, such as '5 us' (got '')."),
        ("1.2.3 s", "time", "is not a quantity, such as '5 us' (got '1.2.3 s')."),
        ("1e999 s", "time", "must be finite (got '1e999 s')."),
        ("5 s", "bytes", "has the unknown unit 's'. Write it as in '80 GiB'."),
    ],
)
def test_sentences(text, dimension, sentence):
    with pytest.raises(ValueError) as error:
        units.parse(text, dimension)
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (units.Bytes, "80 GiB", 80 * 2**30),
        (units.Bytes, 0, 0),
        (units.Seconds, units.Si(2.5), 2.5),
        (units.Fraction, "80 %", 0.8),
        (units.Fraction, 1, 1.0),
        (units.Count, 1e6, 1_000_000),
        (units.Positive, 3, 3.0),
    ],
)
def test_fields_accept(kind, value, read):
    assert TypeAdapter(kind).validate_python(value) == read


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (units.Bytes, 80),
        (units.Bytes, True),
        (units.Bytes, "-80 GiB"),
        (units.Bytes, None),
        (units.BytesPerSecond, "0 B/s"),
        (units.Fraction, 1.2),
        (units.Fraction, "120 %"),
        (units.Count, True),
        (units.Count, 1.5),
        (units.Count, "4"),
        (units.Count, 0),
        (units.Count, 1e30),
        (units.Count, math.inf),
        (units.Count, math.nan),
        (units.Positive, True),
        (units.Positive, "3"),
    ],
)
def test_fields_refuse(kind, value):
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(value)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (units.format_bytes(80 * 2**30), "80.0 GiB"),
        (units.format_bytes(512), "512 B"),
        (units.format_bytes(2**20), "1.00 MiB"),
        (units.format_bytes(2**20 - 1), "1.00 MiB"),
        (units.format_bytes(1.5 * 2**40), "1.50 TiB"),
        (units.format_seconds(5.07e-3), "5.07 ms"),
        (units.format_seconds(2.7e-6), "2.70 µs"),
        (units.format_seconds(0), "0 s"),
        (units.format_seconds(12.34), "12.3 s"),
        (units.format_seconds(4500), "1.25 h"),
        (units.format_bandwidth(3.35e12), "3.35 TB/s"),
        (units.format_flops(989.4e12), "989 TFLOP/s"),
        (units.format_rate(12345.6), "12,346 tokens/s"),
        (units.format_rate(0.8234, "req/s"), "0.823 req/s"),
        (units.format_count(1.2e6), "1.2 M"),
        (units.format_count(512), "512"),
        (units.format_count(70.55e9), "70.5 B"),
        (units.format_percent(0.4321), "43.2 %"),
        (units.format_frequency(1.98e9), "1.98 GHz"),
        (units.format_power(700), "700 W"),
    ],
)
def test_formats(shown, text):
    assert shown == text


@given(value=st.floats(1e-9, 1e6))
def test_formats_read_back(value):
    for shown, dimension in (
        (units.format_seconds(value), "time"),
        (units.format_bandwidth(value * 1e9), "bandwidth"),
        (units.format_flops(value * 1e12), "flops"),
        (units.format_bytes(value * 2**40), "bytes"),
    ):
        scale = {"time": 1, "bandwidth": 1e9, "flops": 1e12, "bytes": 2**40}[dimension]
        assert units.parse(shown, dimension) == pytest.approx(
            value * scale, rel=6e-3, abs=0.6 if dimension == "bytes" else 0
        )


@given(value=st.floats(1e-6, 1e3), factor=st.sampled_from([1e3, 1e6]))
def test_a_prefix_scales(value, factor):
    prefix = {1e3: "k", 1e6: "M"}[factor]
    assert units.parse(f"{value!r} {prefix}B", "bytes") == pytest.approx(units.parse(f"{value * factor!r} B", "bytes"))


@pytest.mark.parametrize(("given", "hint"), [("100M", " Try 1e+08."), ("1.5 T", " Try 1.5e+12."), ("many", "")])
def test_a_number_with_a_letter_is_told_as_one(given, hint):
    with pytest.raises(ValueError, match=re.escape(f"must be a number (got '{given}').{hint}")):
        TypeAdapter(units.Positive).validate_python(given)


@pytest.mark.parametrize(
    ("kind", "given", "sentence"),
    [
        (units.BytesPerSecond, "1e-300 GB/s", "must be at least 1 B/s (got 1e-291 B/s). Try '3.35 TB/s'."),
        (units.Seconds, "1e300 s", "must be at most 3600 s (got 1e+300 s). Try '5 us'."),
        (units.Remainder, "1e-300 %", "must be at least 0.0001 % (got 1e-302). Try down: true."),
    ],
)
def test_what_would_overflow_is_refused(kind, given, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        TypeAdapter(kind).validate_python(given)
