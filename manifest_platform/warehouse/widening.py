"""Which type a warehouse column needs so that it holds both what it has and what comes next."""

from __future__ import annotations

import re

_MAX_DECIMAL_DIGITS = 38
_DOUBLE_HOLDS = frozenset({"integer"})  # a double has 53 bits: every int32 fits, not every int64, no decimal
_DIGITS = {"integer": 10, "bigint": 19}


def widened(have: str, want: str) -> str | None:
    """The narrowest logical type that holds every value of both types unchanged; None where there is none.

    Lossless widenings are integer to bigint, integers to a decimal with room for them, integer to double, decimal to a
    larger decimal, `string(n)` to a longer or unlimited string. Whatever else differs changes what a value means.
    """
    if have == want:
        return have
    kinds = {_kind(have), _kind(want)}
    if kinds == {"string"}:
        return _longer_string(have, want)
    if kinds <= {"integer", "bigint"}:
        return "bigint"
    if kinds <= {"integer", "bigint", "decimal"}:
        return _larger_decimal(have, want)
    if "double" in kinds and kinds - {"double"} <= _DOUBLE_HOLDS:
        return "double"
    return None


def _kind(type_: str) -> str:
    return type_.partition("(")[0]


def _arguments(type_: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", type_)]


def _longer_string(have: str, want: str) -> str:
    if "string" in (have, want):
        return "string"
    return max(have, want, key=_arguments)


def _larger_decimal(have: str, want: str) -> str | None:
    def digits(type_: str) -> tuple[int, int]:
        """Digits before and after the point."""
        if type_ in _DIGITS:
            return _DIGITS[type_], 0
        precision, scale = _arguments(type_)
        return precision - scale, scale

    whole, fraction = (max(pair) for pair in zip(digits(have), digits(want), strict=True))
    return f"decimal({whole + fraction},{fraction})" if whole + fraction <= _MAX_DECIMAL_DIGITS else None
