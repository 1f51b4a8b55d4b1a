"""Text to bool, integer, float and duration, by the rules of the C++ functions XLA uses.

Mirrors xla/tsl/util/command_line_flags.cc, absl/strings/numbers.cc and absl/time/duration.cc. Invariant:
None means that the text is bad; no text of any length takes more than linear time or raises.
"""

from __future__ import annotations

import math
import re
import struct

BLANK = " \t\n\v\f\r"
"""ASCII white space, as absl strips it; more than what separates flags."""

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1

# Kept as text: few values need them, and `re` compiles and keeps them when one does.
_SPECIAL = r"(?ai)inf(?:inity)?|nan(?:\([a-z0-9_]*+\))?"
_DECIMAL = r"(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
_HEX = r"0[xX](?=\.?[0-9a-fA-F])([0-9a-fA-F]*+)(?:\.([0-9a-fA-F]*+))?(?:[pP]([+-]?)([0-9]++))?"
_DURATION = r"[+-]?(?:0|inf|(?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:ns|us|ms|s|m|h))++)"
_DURATION_NUMBER = r"([0-9]*+)(?:\.[0-9]*+)?[a-z]++"
_MAX_DIGITS = len(str(INT64_MAX))

_BOOLS = {"true": True, "false": False, "1": True, "0": False}

_TO_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_TO_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def ascii_upper(text: str) -> str:
    """The text with ASCII letters, and no others, as capitals."""
    return text.upper() if text.isascii() else text.translate(_TO_UPPER)


def ascii_lower(text: str) -> str:
    """The text with ASCII letters, and no others, in lower case."""
    return text.lower() if text.isascii() else text.translate(_TO_LOWER)


def parse_bool(text: str) -> bool | None:
    """`true` or `false` in any case, or exactly `1` or `0`."""
    known = _BOOLS.get(text)
    if known is None and len(text) <= len("false"):
        known = _BOOLS.get(ascii_lower(text))
    return known


def parse_int(text: str, maximum: int = INT64_MAX) -> int | None:
    """A decimal integer from `-maximum - 1` to `maximum`, blanks around it allowed."""
    digits = text.strip(BLANK)
    negative = digits.startswith("-")
    if digits.startswith(("+", "-")):
        digits = digits[1:]
    if not (digits.isascii() and digits.isdigit()):
        return None
    # Nothing of more than 19 significant digits fits, and int() is not linear.
    if len(digits) > _MAX_DIGITS and len(digits := digits.lstrip("0")) > _MAX_DIGITS:
        return None
    value = -int(digits or "0") if negative else int(digits or "0")
    return value if -maximum - 1 <= value <= maximum else None


def parse_float32(text: str) -> float | None:
    """A number rounded to float32, blanks around it allowed; too large is infinite, too small is zero."""
    body = text.strip(BLANK)
    negative = body.startswith("-")
    if body.startswith(("+", "-")):
        body = body[1:]
    magnitude: float
    if re.fullmatch(_SPECIAL, body):
        magnitude = math.nan if body[0] in "nN" else math.inf
    elif match := re.fullmatch(_HEX, body):
        magnitude = _round_hex(match[1], match[2] or "", match[3], match[4] or "0")
    elif re.fullmatch(_DECIMAL, body):
        magnitude = _round_decimal(body)
    else:
        return None
    return -magnitude if negative else magnitude


def to_float32(value: float) -> float:
    """The float32 nearest to a double."""
    try:
        result: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return result


def _round_decimal(text: str) -> float:
    """The float32 nearest to a decimal number, which need not be the one nearest to the nearest double."""
    double = float(text)
    single = to_float32(double)
    if single == double or math.isinf(double):
        return single
    bits = struct.unpack("<I", struct.pack("<f", min(single, _FLOAT32_MAX)))[0]
    low = bits if single <= double else bits - 1
    below, above = (struct.unpack("<f", struct.pack("<I", each))[0] for each in (low, low + 1))
    above = 2.0**128 if math.isinf(above) else above
    if double != (below + above) / 2:
        return single
    # The double lies just between two floats: the exact number decides.
    from decimal import Decimal

    exact, middle = Decimal(text), Decimal(double)
    if exact == middle:
        return single
    nearest = above if exact > middle else below
    return math.inf if nearest > _FLOAT32_MAX else nearest


_FLOAT32_MAX = float.fromhex("0x1.fffffep127")


def _round_hex(whole: str, fraction: str, sign: str | None, exponent: str) -> float:
    """The float32 nearest to a hexadecimal number; a tie goes to the even one."""
    # Base 16 is read in linear time, whatever the length.
    mantissa = int(whole + fraction, 16)
    if not mantissa:
        return 0.0
    digits = exponent.lstrip("0")
    power = 10**12 if len(digits) > 12 else int(digits or 0)
    power = (-power if sign == "-" else power) - 4 * len(fraction)
    top = mantissa.bit_length() + power
    if top > 128:
        return math.inf
    if top < -149:
        return 0.0
    unit = max(top - 24, -149)
    shift = unit - power
    if shift <= 0:
        return math.ldexp(mantissa << -shift, unit)
    rest = mantissa & ((1 << shift) - 1)
    half = 1 << (shift - 1)
    rounded = mantissa >> shift
    rounded += rest > half or (rest == half and rounded & 1)
    result = math.ldexp(rounded, unit)
    return math.inf if result > _FLOAT32_MAX else result


def is_duration(text: str) -> bool:
    """Whether absl reads it as a duration: a sign, then `0`, `inf`, or numbers each with a unit."""
    if re.fullmatch(_DURATION, text) is None:
        return False
    return all(parse_int(match[1] or "0") is not None for match in re.finditer(_DURATION_NUMBER, text))
