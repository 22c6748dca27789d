"""The rules from a property's JSON Schema to the type of its column.

A rule is chosen so that every value that the schema allows is kept: a number without an end is a double, several kinds of
values become text or JSON.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, TypeGuard

_INT32 = (-(2**31), 2**31 - 1)
_INT64 = (-(2**63), 2**63 - 1)
_MOST_DIGITS = 38
_SIZES = (9, 18, 36)  # digits of a decimal with bounds: few sizes, so that a wider bound seldom needs a wider column
_UNBOUNDED = 36  # digits of a decimal without bounds
_FINEST = 18  # digits after the point
_SCALARS = frozenset({"string", "integer", "number", "boolean"})


def kinds(schema: dict[str, Any]) -> frozenset[str]:
    """Returns the kinds of values that a schema declares: `string`, `null`…; empty if it declares none."""
    declared = schema.get("type")
    if isinstance(declared, str):
        return frozenset({declared})
    if isinstance(declared, list):
        return frozenset(kind for kind in declared if isinstance(kind, str))
    return frozenset()


def column_type(schema: dict[str, Any]) -> str:
    """Returns the type of the column that holds a property's values."""
    values = _listed(schema)
    found = _kinds_of_values(schema, values)
    if found == {"string"}:
        return _string_type(schema, values)
    if found == {"integer"}:
        return _integer_type(*_bounds(schema, values))
    if found and found <= {"integer", "number"}:
        return _number_type(schema)
    if found == {"boolean"}:
        return "boolean"
    return "string" if found and found <= _SCALARS else "json"


def is_mixed(schema: dict[str, Any]) -> bool:
    """True if the column is text although values may be numbers or booleans."""
    found = _kinds_of_values(schema, _listed(schema))
    return len(found) > 1 and found <= _SCALARS and not found <= {"integer", "number"}


def _listed(schema: dict[str, Any]) -> list[Any]:
    """Returns the values that a schema lists by `enum` or `const`, without null."""
    values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema["const"]] if "const" in schema else []
    return [value for value in values if value is not None]


def _kinds_of_values(schema: dict[str, Any], values: list[Any]) -> frozenset[str]:
    return kinds(schema) - {"null"} or frozenset(_kind_of(value) for value in values)


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float) and value.is_integer() and _INT64[1] <= abs(value) < 10**_MOST_DIGITS:
        return "integer"  # one beyond 64 bits, as the parser reads it
    return {str: "string", int: "integer", float: "number"}.get(type(value), "json")


def _string_type(schema: dict[str, Any], values: list[Any]) -> str:
    lengths = [len(value) for value in values if isinstance(value, str)]
    if lengths:
        return f"string({max([1, *lengths])})"
    if schema.get("format") == "date-time":
        return "timestamp"
    if schema.get("format") == "date":
        return "date"
    longest = schema.get("maxLength")
    return f"string({longest})" if type(longest) is int and longest > 0 else "string"


def _bounds(schema: dict[str, Any], values: Sequence[Any] = ()) -> tuple[float | None, float | None]:
    """Returns the least and the largest value of a number; None for no bound."""
    listed = [value for value in values if _is_number(value)]
    if listed:
        return min(listed), max(listed)
    low = [schema[word] for word in ("minimum", "exclusiveMinimum") if _is_number(schema.get(word))]
    high = [schema[word] for word in ("maximum", "exclusiveMaximum") if _is_number(schema.get(word))]
    return max(low, default=None), min(high, default=None)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _integer_type(low: float | None, high: float | None) -> str:
    if low is not None and high is not None and _INT32[0] <= low and high <= _INT32[1]:
        return "integer"
    bounds = [bound for bound in (low, high) if bound is not None]
    if all(_INT64[0] <= bound <= _INT64[1] for bound in bounds):
        return "bigint"
    return f"decimal({min(_MOST_DIGITS, max(19, *map(_digits, bounds)))},0)"


def _number_type(schema: dict[str, Any]) -> str:
    step = schema.get("multipleOf")
    if not _is_number(step) or step <= 0:
        return "double"
    exponent = Decimal(str(step)).normalize().as_tuple().exponent
    scale = max(0, -int(exponent))
    low, high = _bounds(schema)
    whole = max(_digits(low), _digits(high)) if low is not None and high is not None else _UNBOUNDED - scale
    size = next((digits for digits in _SIZES if whole + scale <= digits), _MOST_DIGITS)
    return f"decimal({size},{scale})" if scale <= _FINEST and whole + scale <= size else "double"


def _digits(bound: float) -> int:
    """Returns the number of digits before the point, as the bound is written: int(1e23) has one less."""
    return len(str(abs(int(Decimal(repr(bound))))))
