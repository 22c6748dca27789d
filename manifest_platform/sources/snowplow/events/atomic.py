"""The fields of an enriched event, and the function from the bytes of lines to the typed columns of the events table.

An enriched event is one line of exactly 131 tab-separated fields without quoting; an empty field is null. Names, order, types
and lengths are those of the table in Snowplow's analytics SDKs, and of `atomic/jsonschema/1-0-0`.

Lines are cut at tabs and newlines over the whole buffer together, and each column is cast in one call. If a value does not fit
its column, the column is halved repeatedly until the value is found. Rows keep their positions here: the shredder removes the
bad rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from manifest_platform.column_types import arrow_type
from manifest_platform.listing import Table
from manifest_platform.shred.rows import (
    LONGEST_QUOTE,
    Reason,
    add_reason,
    as_text,
    cast_each,
    check_years,
    is_full,
    refuse_unless,
)
from manifest_platform.sources.snowplow.fields import FIELDS, Field
from manifest_platform.sources.snowplow.settings import EVENTS_TABLE

pc: Any = pyarrow.compute  # its functions are created at run time, unknown to type checkers

_TAB, _NEWLINE = 9, 10
_STRETCH = 1 << 16
_TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?$"
_TO_MICROSECONDS = len("2021-06-01 00:00:00.123456")
_MONEY, _CENT, _EXACT = pa.decimal128(18, 2), Decimal("0.01"), Context(prec=400)
_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"


# The other tables of an event are joined to this table, so that only this table needs the time of the load.
EVENTS = Table(EVENTS_TABLE, tuple(field.column for field in FIELDS if not field.is_json), load_time=True)


_SHORTEST = {"timestamp": len("2021-06-01 00:00:00"), "uuid": 36}
SHORTEST_GOOD_LINE = len(FIELDS) + sum(_SHORTEST.get(field.type, 1) for field in FIELDS if field.required)
"""The fewest bytes of a good line: its tabs, its line end and its required fields."""


@dataclass
class Lines:
    """Lines cut into fields.

    A row is a line with the right number of fields. `line`: for each row, the 0-based number of its line. `reasons`: by line,
    what is wrong with it. `starts`, `ends`: the byte positions of each row's fields in `data`. `source`: the bytes as they
    came; in `data`, all line ends are LF and all bytes are text.
    """

    data: bytes
    line: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    line_ends: np.ndarray
    reasons: dict[int, list[Reason]] = field(default_factory=dict)
    source: bytes = b""

    @property
    def count(self) -> int:
        """The number of lines."""
        return len(self.line_ends)

    def exact(self) -> dict[int, tuple[bytes, int]]:
        """Returns the bytes of each line that has reasons, as they came, without the line end; and their place in `source`."""
        ends = np.flatnonzero(np.frombuffer(self.source, np.uint8) == _NEWLINE)
        found = {}
        for line in self.reasons:
            start = int(ends[line - 1]) + 1 if line else 0
            end = int(ends[line]) if line < len(ends) else len(self.source)
            found[line] = self.source[start:end].removesuffix(b"\r"), start
        return found

    def cells(self, position: int) -> list[bytes | None]:
        """Returns the bytes of one field in every row, None for an empty field."""
        data = self.data
        spans = zip(self.starts[:, position].tolist(), self.ends[:, position].tolist(), strict=True)
        return [data[start:end] if start < end else None for start, end in spans]

    def add(self, row: int, reason: Reason) -> None:
        """Adds a reason why the line of a row is bad."""
        add_reason(self.reasons.setdefault(int(self.line[row]), []), reason)

    def is_done(self, row: int) -> bool:
        """True if no more reasons are noted for the line of a row, because it has enough."""
        return is_full(self.reasons.get(int(self.line[row]), []))


def cut(data: bytes) -> Lines:
    """Cuts whole lines into fields. Accepts any bytes and never raises.

    Lines end in LF or CRLF; the last may lack its end. NUL, which warehouses cannot store in text, and bytes that are not valid
    UTF-8 become U+FFFD and a reason.
    """
    source = data
    if b"\r" in data and b"\r\n" in data:  # a search for a single byte is many times faster
        data = data.replace(b"\r\n", b"\n")
    if data and not data.endswith(b"\n"):
        data = data.removesuffix(b"\r") + b"\n"
    unreadable: dict[int, list[Reason]] = {}
    if b"\0" in data or not _is_utf8(data):
        data = _readable(data, unreadable)
    buffer = np.frombuffer(data, np.uint8)
    ends = field_ends(buffer)
    last = np.flatnonzero(buffer[ends] == _NEWLINE)  # the last field of each line
    counts = np.diff(last, prepend=-1)
    fits = counts == len(FIELDS)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1]) if len(ends) else ends
    line_ends = ends[last]
    if not fits.all():
        of_row = np.repeat(fits, counts)
        starts, ends = starts[of_row], ends[of_row]
    shape = (-1, len(FIELDS))
    lines = Lines(data, np.flatnonzero(fits), starts.reshape(shape), ends.reshape(shape), line_ends, unreadable, source)
    for line in np.flatnonzero(~fits).tolist():
        lines.reasons[line] = [_wrong_count(int(counts[line]))]
    return lines


def field_ends(buffer: np.ndarray) -> np.ndarray:
    """Returns the places of tabs and newlines. It works in stretches that fit the cache: four times as fast."""
    found = [np.zeros(0, np.int64)]
    for start in range(0, len(buffer), _STRETCH):
        part = buffer[start : start + _STRETCH] - np.uint8(_TAB)  # neighbors: they become 0 and 1, and no other byte does
        found.append(np.flatnonzero(part <= _NEWLINE - _TAB) + start)
    return np.concatenate(found)


def event_columns(lines: Lines) -> pa.Table:
    """Returns the typed events table of all rows, in order. A value that does not fit is null, and a reason on its line."""
    columns = []
    flagged = {(line, reason["field"]) for line, found in lines.reasons.items() for reason in found if "field" in reason}
    stride = np.arange(len(lines.line), dtype=np.int64) * len(FIELDS)
    text = _text(lines)
    lengths = (lines.ends - lines.starts).astype(np.int64)
    longest = lengths.max(axis=0, initial=0)
    done = np.zeros(len(lines.line), bool)
    for position, wanted in enumerate(FIELDS):
        if wanted.is_json:
            continue
        column_type = arrow_type(wanted.column.type)
        if longest[position]:
            values = text.take(pa.array(stride + position, mask=(lengths[:, position] == 0) | done))
            typed, misfits = cast_each(values, _CASTS[wanted.type.partition("(")[0]], column_type)
            for row in misfits:
                if (int(lines.line[row]), wanted.name) not in flagged:
                    lines.add(row, _misfit(wanted, values[row].as_py()))
                    done[row] = lines.is_done(row)
        else:
            typed = pa.nulls(len(lines.line), column_type)
        if wanted.required:
            for row in np.flatnonzero(lengths[:, position] == 0).tolist():
                lines.add(row, {"type": "field", "field": wanted.name, "value": "", "message": "must not be empty"})
        columns.append(typed)
    return pa.Table.from_arrays(columns, names=[column.name for column in EVENTS.columns])


def _text(lines: Lines) -> pa.Array:
    """Returns all fields of all rows as one string array, row by row."""
    size = (lines.ends - lines.starts).ravel()
    offsets = np.zeros(len(size) + 1, np.int64)
    np.cumsum(size, out=offsets[1:])
    if len(lines.line) == lines.count:
        packed = lines.data.translate(None, b"\t\n")
    else:
        first, last = lines.starts[:, 0].tolist(), lines.ends[:, -1].tolist()
        packed = b"".join([lines.data[a:b] for a, b in zip(first, last, strict=True)]).translate(None, b"\t")
    return pa.LargeStringArray.from_buffers(len(size), pa.py_buffer(offsets), pa.py_buffer(packed))


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    whole = pa.LargeStringArray.from_buffers(1, pa.py_buffer(np.array([0, len(data)], np.int64)), pa.py_buffer(data))
    try:
        whole.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _readable(data: bytes, reasons: dict[int, list[Reason]]) -> bytes:
    lines = data.split(b"\n")
    for number, line in enumerate(lines):
        if b"\0" not in line and _is_utf8(line):
            continue
        fields = line.split(b"\t")
        for position, value in enumerate(fields):
            problems = [] if _is_utf8(value) else ["is not valid UTF-8"]
            if b"\0" in value:
                problems.append("contains NUL, which warehouses cannot store in text")
            if not problems:
                continue
            fields[position] = as_text(value).encode()
            if len(fields) == len(FIELDS):
                reason = {
                    "type": "field",
                    "field": FIELDS[position].name,
                    "value": as_text(value)[:LONGEST_QUOTE],
                    "message": " and ".join(problems),
                }
                add_reason(reasons.setdefault(number, []), reason)
        lines[number] = b"\t".join(fields)
    return b"\n".join(lines)


def _wrong_count(fields: int) -> Reason:
    if fields == 1:
        return {"type": "not_tsv", "message": "the line has no tab"}
    return {"type": "field_count", "message": f"the line has {fields} fields; an enriched event has {len(FIELDS)}"}


_MESSAGES = {
    "timestamp": "is no timestamp yyyy-MM-dd HH:mm:ss.SSS of the years 1 to 9999",
    "integer": "is no 32-bit integer",
    "double": "is no finite number",
    "decimal": "is no number with at most 16 digits before the point",
    "boolean": "is neither 0 nor 1",
    "uuid": "is no UUID",
}


def _misfit(wanted: Field, value: str) -> Reason:
    return {
        "type": "field",
        "field": wanted.name,
        "value": value[:LONGEST_QUOTE],
        "message": _MESSAGES[wanted.type.partition("(")[0]],
    }


def _string(values: pa.Array) -> pa.Array:
    return values.cast(pa.string())


def _timestamp(values: pa.Array) -> pa.Array:
    refuse_unless(pc.all(pc.match_substring_regex(values, _TIMESTAMP)))
    typed = pc.utf8_slice_codeunits(values, 0, _TO_MICROSECONDS).cast(pa.timestamp("us"))
    return check_years(typed)


def _integer(values: pa.Array) -> pa.Array:
    refuse_unless(
        pc.invert(pc.any(pc.match_substring(values, "x", ignore_case=True)))
    )  # Arrow would accept hexadecimal numbers
    return values.cast(pa.int32())


def _double(values: pa.Array) -> pa.Array:
    typed = values.cast(pa.float64())
    refuse_unless(pc.all(pc.is_finite(typed)))
    return typed


def _boolean(values: pa.Array) -> pa.Array:
    refuse_unless(pc.all(pc.or_(pc.equal(values, "0"), pc.equal(values, "1"))))
    return pc.equal(values, "1")


def _uuid(values: pa.Array) -> pa.Array:
    refuse_unless(pc.all(pc.match_substring_regex(values, _UUID)))
    return pc.ascii_lower(values).cast(pa.string())


def _money(values: pa.Array) -> pa.Array:
    """Returns amounts of money with two digits after the point. Further digits are rounded, as Snowplow's own loads do."""
    _double(values)
    try:
        return values.cast(_MONEY)
    except pa.ArrowInvalid:
        amounts = [
            None if text is None else Decimal(text).quantize(_CENT, ROUND_HALF_UP, _EXACT) for text in values.to_pylist()
        ]
        return pa.array(amounts, _MONEY)


_CASTS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "string": _string,
    "timestamp": _timestamp,
    "integer": _integer,
    "double": _double,
    "decimal": _money,
    "boolean": _boolean,
    "uuid": _uuid,
}
