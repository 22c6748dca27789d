"""JSON with long numbers: parsing and writing that keep every digit.

A fast parser reads an integer beyond 64 bits, and a fraction of any length, as a float. A float holds any 15 digits, and loses
some of 16 and 17. Text that may have a number that is changed is parsed a second time, and the number becomes an integer or a
Decimal. That takes ten times as long, so numbers of many characters are looked at first: 0.06229016948897019 is a float as
programs write it.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any

import orjson

_LONG = 16  # characters; a float holds any 15 digits
_MOST_DIGITS = 1_000  # of a fraction; warehouses refuse JSON with many thousands
_DEEPEST = 500  # the parser of long numbers can fail at some 900
_WHOLE = 100  # digits; no column of integers holds as many
_SHORT_ENOUGH = 40  # characters; of a longer number only the slow parser finds out
_RUN = _LONG * b"0"
_AFTER, _SPACE = b": "


def _kinds(beside: bytes) -> bytes:
    """Returns the table that turns digits and points into 0, what may come before a number into a colon, the rest into x.

    `beside`: what may be between them, which becomes a space.
    """
    kinds = {**dict.fromkeys(b"0123456789.", "0"), **dict.fromkeys(b":,[", ":"), **dict.fromkeys(beside, " ")}
    return "".join(kinds.get(byte, "x") for byte in range(256)).encode()


_KINDS = _kinds(b" -\t\r\n")
_KINDS_IN_LINES = _kinds(b" -\r")  # tabs and newlines end a field there
_NUMBER = re.compile(rb"[0-9.]+(?:[eE][+-]?[0-9]+)?")


def may_be_long(text: bytes) -> bool:
    """True if JSON text, or any bytes that contain it, may have a number that the fast parser would change."""
    return _has_long(text, text.translate(_KINDS)) or (len(text) >= _LONG and text.lstrip(b" -\t\r\n")[:1].isdigit())


def any_may_be_long(lines: bytes) -> bool:
    """True if JSON text in a field of tab-separated lines may have a number that the fast parser would change."""
    return _has_long(lines, lines.translate(_KINDS_IN_LINES))


def _has_long(text: bytes, kinds: bytes) -> bool:
    """True if a number of the text may change. Most numbers of many characters are floats as programs write them."""
    found = []
    at = kinds.find(_RUN)
    while at >= 0:
        before = at - 1
        while before >= 0 and kinds[before] == _SPACE:
            before -= 1
        digits = _NUMBER.match(text, at)
        assert digits
        if before >= 0 and kinds[before] == _AFTER:
            found.append(digits[0])
        at = kinds.find(_RUN, digits.end())
    return not _all_stay(found)


def _all_stay(found: list[bytes]) -> bool:
    """True if the fast parser surely keeps all digits of numbers without their signs: it gives back what it has read.

    They are read as negative numbers, of which it keeps fewer.
    """
    written = b",-".join(found)
    try:
        again = orjson.dumps(orjson.loads(b"[-%b]" % written))[2:-1] if found else b""
    except orjson.JSONDecodeError:  # no numbers, but text that looks like them
        return all(map(_stays, found))
    return again == written or all(map(_stays, set(found).difference(again.split(b",-"))))


def _stays(number: bytes) -> bool:
    """True if the fast parser surely keeps all digits of a number without its sign, however the number is written."""
    if len(number) > _SHORT_ENOUGH:
        return False
    if number.isdigit():
        return int(number) < 1 << 63
    try:
        near = float(number)
        return Decimal(repr(near)) == Decimal(number.decode())
    except ValueError:  # no number, but a part of a text
        return True
    except InvalidOperation:
        return False


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
    return json.loads(text, parse_int=integer, parse_float=number)


def dumps(value: Any) -> bytes:
    """Returns compact JSON text. Raises TypeError if the value is nested too deeply or is no JSON."""
    return orjson.dumps(value, default=_fragment)


def integer(text: str) -> int | Decimal:
    """Returns a whole number; a Decimal if it has more than 64 bits."""
    if len(text) < _LONG:
        return int(text)
    exact = Decimal(text)
    return int(exact) if -(1 << 63) <= exact < 1 << 64 else exact


def number(text: str) -> float | int | Decimal:
    """Returns a number with a point or an exponent; if a float would change it, an integer or a Decimal."""
    near = float(text)
    if len(text) > _MOST_DIGITS:
        return near
    try:
        exact = Decimal(text)
    except InvalidOperation:  # an exponent that not even a Decimal holds
        return near
    if Decimal(repr(near)) == exact or exact.adjusted() < -_MOST_DIGITS:
        return near
    is_whole = exact.adjusted() < _WHOLE and exact == exact.to_integral_value()
    return integer(f"{exact.to_integral_value():f}") if is_whole else exact


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
