"""Column types: which type can hold the values of another, and the Arrow (Parquet) type of each.

Belongs here: the rules on types that shredding, merging and loading share.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from manifest_platform import nested_types

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_DECIMAL_DIGITS = 38
_DOUBLE_HOLDS = frozenset({"integer"})  # a double has 53 bits: it holds every int32, but not every int64 and no decimal
_DIGITS = {"integer": 10, "bigint": 19}


def widened(have: str, want: str) -> str | None:
    """The narrowest logical type that holds every value of both types unchanged; None if there is none.

    Lossless changes are: integer to bigint, integer or bigint to a decimal with enough digits, integer to double, decimal to a
    larger decimal, `string(n)` to a longer or unlimited string, and a struct to one with more fields. Any other change alters
    the meaning of a value.
    """
    if have == want:
        return have
    if nested_types.is_nested(have) or nested_types.is_nested(want):
        return nested_types.widened(have, want, widened)
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


def stored_together(have: str, want: str) -> str | None:
    """The type of a column that has values of both types already, or a type that is kept although values of another come.

    As `widened`; in addition, a double takes decimals. Columns of older releases are doubles where amounts are decimals now,
    and these came from a number of JSON or text that was a double before.
    """
    return widened(have, want) or ("double" if {_kind(have), _kind(want)} == {"double", "decimal"} else None)


@functools.lru_cache(4096)  # a run of a few events asks 770 times, which took 5 % of its shredding
def arrow_type(type_: str) -> pa.DataType:
    """The Arrow (and so Parquet) type of a column type."""
    import pyarrow as pa

    if (item := nested_types.item_of(type_)) is not None:
        return pa.list_(pa.field("element", arrow_type(item)))
    if (fields := nested_types.fields_of(type_)) is not None:
        return pa.struct([(name, arrow_type(inner)) for name, inner in fields.items()])
    if type_.startswith("string"):
        return pa.string()
    decimal = re.fullmatch(r"decimal\((\d+),(\d+)\)", type_)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return _simple()[type_]


def widened_arrow(have: pa.DataType, want: pa.DataType) -> pa.DataType | None:
    """The narrowest Arrow type for values of both types in one column, by the rules of `stored_together`."""
    import pyarrow as pa

    if have == want or want == pa.null():
        return have
    if have == pa.null():
        return want
    names = _column_type(have), _column_type(want)
    if names[0] is None or names[1] is None:
        return None
    wide = stored_together(names[0], names[1])
    return arrow_type(wide) if wide else None


def _column_type(type_: pa.DataType) -> str | None:
    """The narrowest column type that holds all values of an Arrow type; None if there is none."""
    import pyarrow as pa

    if pa.types.is_list(type_):
        item = _column_type(type_.value_type)
        return nested_types.array(item) if item else None
    if pa.types.is_struct(type_):
        fields = {field.name: _column_type(field.type) for field in type_}
        known = {name: inner for name, inner in fields.items() if inner}
        return nested_types.struct(known) if known and len(known) == len(fields) else None
    if pa.types.is_decimal128(type_):
        return f"decimal({type_.precision},{type_.scale})" if type_.scale >= 0 else None
    narrow = {pa.int8(): "integer", pa.int16(): "integer", pa.uint8(): "integer", pa.uint16(): "integer"}
    others = {pa.uint32(): "bigint", pa.float32(): "double", pa.string(): "string"}
    return ({arrow: name for name, arrow in _simple().items()} | narrow | others).get(type_)


@functools.cache
def _simple() -> dict[str, pa.DataType]:
    import pyarrow as pa

    return {
        "boolean": pa.bool_(),
        "integer": pa.int32(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "timestamp": pa.timestamp("us"),
        "date": pa.date32(),
        "json": pa.string(),
    }


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
