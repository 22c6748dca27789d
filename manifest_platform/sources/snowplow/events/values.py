"""The rules for a value in its column: whether it fits, and what it becomes.

These rules are slow and say what is right; typing whole columns at once must give the same verdicts and values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation
from typing import Any

from manifest_platform.sources.snowplow import numbers

_RFC3339 = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]+)?([Zz]|[+-][0-9]{2}:?[0-9]{2})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DECIMAL = re.compile(r"decimal\(([0-9]+),([0-9]+)\)")
_ESCAPED_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_EXACT = Context(prec=400)
_NUMBERS = (int, float, Decimal)


class Misfit(ValueError):
    """A value that its column cannot hold."""


def fit(value: Any, type_: str, mixed: bool = False) -> Any:
    """Converts a value to its column's type. Raises ValueError or OverflowError if it does not fit.

    `mixed`: numbers and booleans fit a column of text, as their JSON.
    """
    if value is None:
        return None
    kind = type(value)
    if type_ == "json":
        return json_text(value)
    if type_.startswith("string"):
        if mixed and kind in (bool, *_NUMBERS):
            return json_text(value)
        if kind is str and "\0" not in value and is_unicode(value):
            return value
    elif type_ in ("integer", "bigint") and (kind is int or (kind is float and value.is_integer())):
        number = value if kind is int else int(Decimal(repr(value)))  # beyond 53 bits, int would make up digits
        bits = 31 if type_ == "integer" else 63
        if -(2**bits) <= number < 2**bits:
            return number
    elif type_ == "double" and kind in _NUMBERS:
        return float(value)
    elif type_ == "boolean" and kind is bool:
        return value
    elif type_ == "timestamp" and kind is str:
        return _timestamp(value)
    elif type_ == "date" and kind is str and _DATE.fullmatch(value):
        return date.fromisoformat(value)
    elif type_.startswith("decimal") and kind in _NUMBERS:
        return _decimal(value, type_)
    raise Misfit


def json_text(value: Any) -> str:
    """Returns the JSON text of a value. Raises Misfit if a warehouse cannot hold it: NUL, or nested too deeply."""
    try:
        text = numbers.dumps(value)
    except TypeError as error:
        raise Misfit from error
    if has_nul(text):
        raise Misfit
    return text.decode()


def remainder(properties: dict[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the properties that are not among these names, in nested objects, too.

    `names`: by name, the names in an object that is flattened; None for a value.
    """
    found = {}
    for name, value in properties.items():
        inner = names.get(name)
        if name not in names:
            found[name] = value
        elif inner is not None and type(value) is dict and (rest := remainder(value, inner)):
            found[name] = rest
    return found


def has_nul(text: bytes) -> bool:
    """True if JSON text has an escaped NUL."""
    return bool(_ESCAPED_NUL.search(text))


def is_unicode(text: str) -> bool:
    """False if a text has half of a surrogate pair, which no UTF-8 has."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _decimal(value: float | Decimal, type_: str) -> Decimal:
    match = _DECIMAL.fullmatch(type_)
    if not match:
        raise Misfit
    precision, scale = int(match[1]), int(match[2])
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not exact.is_finite() or (exact.adjusted() >= precision - scale and exact):
        raise Misfit
    try:
        rounded = exact.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    except InvalidOperation as error:
        raise Misfit from error
    if rounded != exact:
        raise Misfit
    return rounded


def _timestamp(text: str) -> datetime:
    match = _RFC3339.fullmatch(text)
    if not match:
        raise Misfit
    day, time, fraction, zone = match.groups()
    microseconds = (fraction or ".0")[:7].ljust(7, "0")
    moment = datetime.fromisoformat(f"{day}T{time}{microseconds}{(zone or 'Z').upper()}")
    return moment.astimezone(UTC).replace(tzinfo=None)
