"""JSON with long numbers: parsing and writing that keep every digit.

A fast parser reads an integer beyond 64 bits, and a number with more than 17 digits, as a float, and digits are lost. Text that
may have such a number is parsed a second time, and the number becomes a Decimal.
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any

import orjson

_LONG = 19  # characters; a shorter number loses no digit, and floats of trackers have at most 17 digits
_MOST_DIGITS = 1_000  # of a fraction; warehouses refuse JSON with many thousands
_DEEPEST = 500  # the parser of long numbers can fail at some 900
_KINDS = bytes(48 if chr(byte) in "0123456789." else 58 if chr(byte) in ":,[" else 120 for byte in range(256))
_BESIDE = b" -\t\r\n"
_BESIDE_IN_LINES = b" -\r"  # tabs and newlines end a field there; without them the times of events would look like long numbers
_NEEDLE = b":" + _LONG * b"0"


def may_be_long(text: bytes) -> bool:
    """True if JSON text, or any bytes that contain it, may have a number that the fast parser would change."""
    return _NEEDLE in text.translate(_KINDS, _BESIDE) or (text[:1].isdigit() and len(text) >= _LONG)


def any_may_be_long(lines: bytes) -> bool:
    """True if JSON text in a field of tab-separated lines may have a number that the fast parser would change."""
    return _NEEDLE in lines.translate(_KINDS, _BESIDE_IN_LINES)


def loads(text: bytes) -> Any:
    """Parses JSON text; a number that no integer of 64 bits and no float holds is a Decimal.

    A fraction that no warehouse holds in JSON, of more than 1,000 digits or about zero, becomes the nearest float. Raises
    orjson.JSONDecodeError, also for text with a long number that is nested more than 500 deep.
    """
    found = orjson.loads(text)  # refuses what JSON forbids, and the other parser accepts
    if not may_be_long(text):
        return found
    if text.count(b"[") + text.count(b"{") > _DEEPEST and _is_deep(found):
        raise orjson.JSONDecodeError("it has a long number, and is nested too deeply", "", 0)
    return json.loads(text, parse_int=_integer, parse_float=_number)


def dumps(value: Any) -> bytes:
    """Returns compact JSON text. Raises TypeError if the value is nested too deeply or is no JSON."""
    return orjson.dumps(value, default=_fragment)


def _integer(text: str) -> int | Decimal:
    if len(text) < _LONG:
        return int(text)
    exact = Decimal(text)
    return int(exact) if -(1 << 63) <= exact < 1 << 64 else exact


def _number(text: str) -> float | Decimal:
    near = float(text)
    if len(text) > _MOST_DIGITS:
        return near
    try:
        exact = Decimal(text)
    except InvalidOperation:  # an exponent that not even a Decimal holds
        return near
    return near if Decimal(repr(near)) == exact or exact.adjusted() < -_MOST_DIGITS else exact


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEPEST):
        level = [inner for one in level if type(one) in (dict, list) for inner in (one.values() if type(one) is dict else one)]
        if not level:
            return False
    return True


def _fragment(value: Any) -> orjson.Fragment:
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    raise TypeError(f"{type(value).__name__} is no JSON")
