"""Converts rows of text to Arrow tables: column types, casts that report invalid values, and the table `bad`.

Belongs here: what every shredder needs. Each shredder decides which text is a valid value and which rows are bad.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute

from manifest_platform.column_types import arrow_type
from manifest_platform.listing import BAD_TABLE, Column, Table
from manifest_platform.shred.limits import REASONS_OF_LINE

pc: Any = pyarrow.compute  # its functions are created at run time, so type checkers do not know them

_YEARS = {  # from the start of year 1 to the end of year 9999, which every warehouse supports
    "us": (-62135596800000000, 253402300799999999),
    "day": (-719162, 2932896),
}


def max_length(type_: str) -> int | None:
    """The n of `string(n)`; None for any other type."""
    return int(type_[7:-1]) if type_.startswith("string(") else None


def with_room(table: Table, rows: pa.Table) -> Table:
    """Returns a table's definition with columns as long as the texts in these rows.

    Lengths grow to powers of two, so that a warehouse's column seldom needs to be made wider.
    """
    columns = list(table.columns)
    for place, column in enumerate(columns):
        limit = max_length(column.type)
        if limit is None or _longest(rows[column.name]) <= limit:
            continue
        longest = pc.max(pc.utf8_length(rows[column.name])).as_py()
        if longest > limit:
            columns[place] = replace(column, type=f"string({1 << (longest - 1).bit_length()})")
    return replace(table, columns=tuple(columns))


def _longest(texts: pa.ChunkedArray) -> int:
    """Returns the most bytes of a text, which has at most as many characters."""
    longest = 0
    for chunk in texts.chunks:
        ends = np.frombuffer(chunk.buffers()[1], np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        longest = max(longest, int(np.diff(ends).max(initial=0)))  # a third of the time of Arrow's own functions
    return longest


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """The Arrow schema of a table with these columns."""
    return pa.schema([pa.field(column.name, arrow_type(column.type), column.nullable) for column in columns])


def cast_each(values: pa.Array, cast: Callable[[pa.Array], pa.Array], type_: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Casts values, and returns them with null for invalid values, and the indexes of the invalid values.

    All values are cast together; if that fails, halves are tried until the invalid values are found.
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
    """Raises pa.ArrowInvalid if the condition is false."""
    if condition.as_py() is False:  # None if there is no value
        raise pa.ArrowInvalid("misfit")


def check_years(times: pa.Array) -> pa.Array:
    """Returns the timestamps (microseconds) or dates. Raises pa.ArrowInvalid if one is outside of the years 1 to 9999."""
    is_date = pa.types.is_date32(times.type)
    first, last = _YEARS["day" if is_date else "us"]
    found = pc.min_max(times.cast(pa.int32() if is_date else pa.int64())).as_py()
    if found["min"] is not None and (found["min"] < first or found["max"] > last):
        raise pa.ArrowInvalid("misfit")
    return times


# Bad rows

Reason = dict[str, Any]
"""The reason why a row is bad: its `type`, a `message`, and fields of the type, such as `field`."""

BAD = Table(
    BAD_TABLE,
    (
        Column("file", "string", nullable=False),
        Column("line", "bigint", nullable=False),
        Column("reasons", "json", nullable=False),
        Column("raw", "string", nullable=False),
        Column("byte_offset", "bigint"),
        Column("byte_length", "bigint"),
        Column("raw_base64", "string"),
    ),
    load_time=True,
)
"""The table of bad rows. `raw` is the line as text for people. The last three columns keep the line exactly: its place in the
file's (decompressed) text, its length without its line end, and its bytes in base64 where `raw` differs from them. They are
null where a shredder sees values and not the file's bytes, and older releases lack them."""

LONGEST_QUOTE = 1000  # characters of a value quoted in a reason; the raw line has the whole value
_LONGEST_REASON = 300  # characters of an example's reason in a message


def digest_of(line: bytes) -> str:
    """The digest of a line's bytes, without its line end."""
    return hashlib.blake2b(line, digest_size=16).hexdigest()


@dataclass(frozen=True)
class BadRow:
    """A bad row: the number of its line in the file, the reasons, and its text.

    `data`: the bytes of the line as they are in the file, or the beginning of a line that is too long. `offset`: the place of
    the line in the file. `length`: the number of bytes in the whole line. Each is None if unknown.
    """

    line: int
    reasons: list[Reason]
    raw: str
    data: bytes | None = None
    offset: int | None = None
    length: int | None = None

    @classmethod
    def of_bytes(cls, line: int, reasons: list[Reason], data: bytes, offset: int | None = None) -> BadRow:
        """A bad row of a whole line, given its bytes without the line end."""
        return cls(line, reasons, as_text(data), data, offset, len(data))

    @property
    def base64(self) -> str | None:
        """The bytes in base64; None if they are those of `raw`, or unknown."""
        is_exact = self.data is None or self.raw.encode() == self.data
        return None if is_exact or self.data is None else base64.b64encode(self.data).decode()


def as_text(data: bytes) -> str:
    """Bytes as text for people: U+FFFD for each NUL, which warehouses cannot store, and for bytes that are not UTF-8."""
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")


def kept_bytes(row: Mapping[str, Any]) -> bytes | None:
    """The exact bytes of the line of a row of `bad`, without its line end; None if the row does not have all of them.

    A row lacks them if its line was too long, or if the shredder or an older release kept no more than an altered text.
    """
    encoded, length = row.get("raw_base64"), row.get("byte_length")
    if length is None:
        return None if "\ufffd" in row["raw"] else row["raw"].encode()
    data = base64.b64decode(encoded) if encoded is not None else row["raw"].encode()
    return data if len(data) == length else None


def exact_text(row: Mapping[str, Any]) -> str:
    """The text of the line of a row of `bad`: NUL as it was, and U+FFFD for bytes that are not UTF-8."""
    encoded = row.get("raw_base64")
    return row["raw"] if encoded is None else base64.b64decode(encoded).decode("utf-8", "replace")


def add_reason(reasons: list[Reason], reason: Reason) -> None:
    """Adds a reason to a row's reasons. After REASONS_OF_LINE reasons, a last reason says that there may be more."""
    if is_full(reasons):
        return
    reasons.append(reason)
    if len(reasons) == REASONS_OF_LINE:
        reasons.append({"type": "more", "message": "the rest of the row was not checked"})


def is_full(reasons: list[Reason]) -> bool:
    """True if no more reasons are recorded for the row."""
    return len(reasons) > REASONS_OF_LINE


def bad_table(file: str, rows: Iterable[BadRow]) -> pa.Table:
    """Rows of the table `bad` for bad rows of one file."""
    rows, schema = list(rows), arrow_schema(BAD.columns)
    columns = [
        [file] * len(rows),
        [row.line for row in rows],
        [orjson.dumps(row.reasons).decode() for row in rows],
        [row.raw for row in rows],
        [row.offset for row in rows],
        [row.length for row in rows],
        [row.base64 for row in rows],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def example(bad: pa.Table) -> str:
    """The first bad line for messages, without values of the event, which may be confidential."""
    [row] = bad.slice(0, 1).to_pylist()
    text = in_words(orjson.loads(row["reasons"])[0])
    return f"line {row['line']} of {row['file'].rpartition('/')[2]}: {text[:_LONGEST_REASON]}"


def in_words(reason: Reason) -> str:
    """A reason as a line of text, without the value."""
    subject = reason.get("schema") or reason.get("field") or ""
    text = f"{reason['type']} {subject}".strip() + f": {reason['message'].removeprefix(f'{subject} ')}"
    return " ".join(text.split())
