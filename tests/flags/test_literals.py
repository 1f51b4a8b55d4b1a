from __future__ import annotations

import math
import struct
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from xla_flags.literals import (
    INT32_MAX,
    INT64_MAX,
    ascii_lower,
    ascii_upper,
    is_duration,
    parse_bool,
    parse_float32,
    parse_int,
    to_float32,
)


def test_case_is_changed_for_ascii_only() -> None:
    assert ascii_upper("aé\u0131ß") == "Aé\u0131ß"
    assert ascii_lower("AÉ\u0130K") == "aÉ\u0130k"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("FaLsE", False),
        ("1", True),
        ("0", False),
        ("", None),
        ("yes", None),
        ("01", None),
        (" true", None),
        ("trues", None),
        ("t", None),
        ("ı", None),
    ],
)
def test_bools(text: str, value: bool | None) -> None:
    assert parse_bool(text) is value


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("-0", 0), ("+7", 7), (" \t\v\f\r\n7 ", 7), ("007", 7), ("0" * 40 + "7", 7)]
    + [(str(INT32_MAX), INT32_MAX), (str(-INT32_MAX - 1), -INT32_MAX - 1), (str(INT32_MAX + 1), None)]
    + [(text, None) for text in ("", "+", "--1", "+-1", "1 2", "0x1", "1e3", "1.0", "1_0", "٣", "²", "a")]
    + [("9" * 5000, None), ("- 1", None), ("1\0", None)],
)
def test_int32(text: str, value: int | None) -> None:
    assert parse_int(text, INT32_MAX) == value


@given(st.integers(-(2**64), 2**64))
def test_int64_is_what_fits(number: int) -> None:
    assert parse_int(f" {number}") == (number if -INT64_MAX - 1 <= number <= INT64_MAX else None)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1.0), (".5", 0.5), ("5.", 5.0), ("+1e+2", 100.0), ("-1E-2", to_float32(-0.01))]
    + [
        ("0x10", 16.0),
        ("0X1P-2", 0.25),
        ("0x.8p1", 1.0),
        ("-0x1p0", -1.0),
        (" 1 ", 1.0),
        ("0x1p-149", 2.0**-149),
    ]
    + [("inf", math.inf), ("-INFINITY", -math.inf), ("1e39", math.inf), ("-1e999999999999", -math.inf)]
    + [
        ("1e-50", 0.0),
        ("0x1p-151", 0.0),
        ("0x0p99999999999999999999", 0.0),
        ("0x1p99999999999999999999", math.inf),
    ]
    + [
        (text, None)
        for text in ("", "+", "+-1", "-+1", "1e", "1e+", ".", "0x", "0x.", "0x1p", "1_0", "1f", "in")
    ]
    + [("nan(", None), ("nan(-)", None), ("٣", None), ("1 2", None), ("e5", None)],
)
def test_floats(text: str, value: float | None) -> None:
    assert parse_float32(text) == value


def test_nan_and_the_sign_of_zero() -> None:
    for text in ("nan", "NaN", "nan(a_1)", "nan()", "-nan"):
        assert str(parse_float32(text)) == "nan"
    assert str(parse_float32("-0")) == str(parse_float32("-1e-99")) == "-0.0"


def nearest_float32(exact: Fraction) -> float:
    """Slow and obvious: of the two floats around a number the nearer one, or the even one."""
    guess = (
        to_float32(float(exact)) if abs(exact) < 2**128 else math.copysign(math.inf, float(exact > 0) - 0.5)
    )
    bits = struct.unpack("<I", struct.pack("<f", min(abs(guess), 3.4028234663852886e38)))[0]
    around = [
        struct.unpack("<f", struct.pack("<I", bits + step))[0] for step in (-1, 0, 1) if bits + step >= 0
    ]
    values = [(Fraction(2) ** 128 if math.isinf(each) else Fraction(each), each) for each in around]
    ties = sorted(values, key=lambda pair: (abs(pair[0] - abs(exact)), struct.pack("<f", pair[1])[0] & 1))
    return math.copysign(ties[0][1], exact) if exact else 0.0


@given(st.integers(0, 2**23 - 1), st.integers(0, 254), st.sampled_from([0, 1, -1]), st.booleans())
def test_a_decimal_between_two_floats_goes_to_the_nearer(
    mantissa: int, exponent: int, beside: int, sign: bool
) -> None:
    low = struct.unpack("<f", struct.pack("<I", exponent << 23 | mantissa))[0]
    high = struct.unpack("<f", struct.pack("<I", (exponent << 23 | mantissa) + 1))[0]
    high = Fraction(2) ** 128 if math.isinf(high) else Fraction(high)
    middle = (Fraction(low) + high) / 2
    exact = middle + beside * middle / 10**40
    places = 220
    text = str(exact.numerator * 10**places // exact.denominator).rjust(places + 1, "0")
    text = f"{'-' if sign else ''}{text[:-places]}.{text[-places:]}"
    value = parse_float32(text)
    assert value == nearest_float32(Fraction(text))


@given(st.floats(min_value=0, allow_infinity=False), st.integers(0, 3))
def test_hexadecimals_agree_with_decimals(number: float, extra: int) -> None:
    text = number.hex()
    assume("p" in text)
    assert parse_float32(text) == parse_float32(repr(number))
    assert parse_float32(text.replace("p", "0" * extra + "p")) == parse_float32(text)


@pytest.mark.parametrize(
    "text", ["0", "inf", "-inf", "+0", "1s", "1.5h", ".5ms", "5.us", "1h1h", "2m3ns", "-1m1ms"]
)
def test_durations(text: str) -> None:
    assert is_duration(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "00",
        "+",
        "--1s",
        "1 s",
        "1S",
        "s",
        ".s",
        "1s-1s",
        "1e3s",
        "1d",
        "INF",
        "9223372036854775808s",
    ],
)
def test_not_durations(text: str) -> None:
    assert not is_duration(text)


def test_a_megabyte_is_no_trouble() -> None:
    many = 1_000_000
    assert parse_int("1" * many) is None
    assert parse_int("0" * many + "1") == 1
    assert parse_float32("1" * many) == math.inf
    assert parse_float32("0." + "3" * many) == to_float32(1 / 3)
    assert parse_float32("1." + "0" * many + "1e0") == 1.0
    assert parse_float32("0x1." + "0" * many + "1") == 1.0
    assert parse_float32("1e" + "9" * many) == math.inf
    assert parse_float32(" " * many) is None
    assert is_duration("1s" * (many // 2))
    assert not is_duration("1" * many)
    assert is_duration("0" * many + "s")
