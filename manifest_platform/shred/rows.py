"""Rows as Arrow tables: the types of their columns, casts that say which values do not fit, and the `bad` table.

Belongs here: what every shredder needs to make rows of text. Which text is a value of which type, and which rows are bad, is
the shredders' own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute

from manifest_platform.column_types import arrow_type
from manifest_platform.listing import BAD_TABLE, Column, Table
from manifest_platform.shred.limits import REASONS_OF_LINE

pc: Any = pyarrow.compute  # its functions come into being at run time, unknown to type checkers

_YEARS = {  # the first instant of year 1, the last of year 9999: what every warehouse holds
    "us": (-62135596800000000, 253402300799999999),
    "day": (-719162, 2932896),
}


def max_length(type_: str) -> int | None:
    """The n of `string(n)`; None for every other type."""
    return int(type_[7:-1]) if type_.startswith("string(") else None


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """The Arrow schema of a table with these columns."""
    return pa.schema([pa.field(column.name, arrow_type(column.type), column.nullable) for column in columns])


def cast_each(values: pa.Array, cast: Callable[[pa.Array], pa.Array], type_: pa.DataType) -> tuple[pa.Array, list[int]]:
    """The cast values, null where the cast refuses, and the places of the refused ones.

    The whole is cast in one go; only where that is refused it is halved until the misfits are found.
    """
    try:
        return cast(values), []
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, type_), [0]
    half = len(values) // 2
    left, left_misfits = cast_each(values[:half], cast, type_)
    right, right_misfits = cast_each(values[half:], cast, type_)
    return pa.concat_arrays([left, right]), left_misfits + [half + place for place in right_misfits]


def refuse_unless(condition: pa.BooleanScalar) -> None:
    """Raises pa.ArrowInvalid for a false condition."""
    if condition.as_py() is False:  # None: there is no value at all
        raise pa.ArrowInvalid("misfit")


def check_years(times: pa.Array) -> pa.Array:
    """The timestamps (microseconds) or dates. Raises pa.ArrowInvalid where one is not of the years 1 to 9999."""
    is_date = pa.types.is_date32(times.type)
    first, last = _YEARS["day" if is_date else "us"]
    found = pc.min_max(times.cast(pa.int32() if is_date else pa.int64())).as_py()
    if found["min"] is not None and (found["min"] < first or found["max"] > last):
        raise pa.ArrowInvalid("misfit")
    return times


# Bad rows: what could not be shredded, where it stood, and why

Reason = dict[str, Any]
"""Why a row is bad: its `type`, a `message`, and what the type needs, such as `field`."""

BAD = Table(
    BAD_TABLE,
    (
        Column("file", "string", nullable=False),
        Column("line", "bigint", nullable=False),
        Column("reasons", "json", nullable=False),
        Column("raw", "string", nullable=False),
    ),
)

LONGEST_QUOTE = 1000  # characters of a value quoted in a reason; the raw line has it whole
_LONGEST_REASON = 300  # characters of an example's reason in a message


@dataclass(frozen=True)
class BadRow:
    """A bad row: the number of its line in its file, the reasons, and its text."""

    line: int
    reasons: list[Reason]
    raw: str


def add_reason(reasons: list[Reason], reason: Reason) -> None:
    """Adds a reason to those of a row, of which no more than REASONS_OF_LINE are noted; one more says that they are not all."""
    if is_full(reasons):
        return
    reasons.append(reason)
    if len(reasons) == REASONS_OF_LINE:
        reasons.append({"type": "more", "message": "the row was not looked at any further"})


def is_full(reasons: list[Reason]) -> bool:
    """Whether no more reasons are noted."""
    return len(reasons) > REASONS_OF_LINE


def bad_table(file: str, rows: Iterable[BadRow]) -> pa.Table:
    """The rows of the `bad` table for bad rows of one file."""
    rows, schema = list(rows), arrow_schema(BAD.columns)
    columns = [
        [file] * len(rows),
        [row.line for row in rows],
        [orjson.dumps(row.reasons).decode() for row in rows],
        [row.raw for row in rows],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def example(bad: pa.Table) -> str:
    """The first bad line in words, without values of the event, which messages are not to spread."""
    [row] = bad.slice(0, 1).to_pylist()
    text = in_words(orjson.loads(row["reasons"])[0])
    return f"line {row['line']} of {row['file'].rpartition('/')[2]}: {text[:_LONGEST_REASON]}"


def in_words(reason: Reason) -> str:
    """A reason as a line of text, without the value that it is about."""
    subject = reason.get("schema") or reason.get("field") or ""
    text = f"{reason['type']} {subject}".strip() + f": {reason['message'].removeprefix(f'{subject} ')}"
    return " ".join(text.split())
