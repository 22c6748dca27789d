"""From the bytes of enriched lines to the typed columns of the events table.

The lines are cut at tabs and newlines over the whole buffer at once, and each column is cast in one go; only a column that
holds a misfit is halved until the misfit is found. All rows keep their place here: who leaves out the bad ones is the
kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from manifest_platform.column_types import arrow_type
from manifest_platform.shred.bad import LONGEST_QUOTE, Reason
from manifest_platform.shred.casts import cast_each, check_years, refuse_unless
from manifest_platform.shred.parquet import max_length
from manifest_platform.sources.snowplow.enriched import EVENTS, FIELDS, Field

pc: Any = pyarrow.compute  # its functions come into being at run time, unknown to type checkers

_TAB, _NEWLINE = 9, 10
_TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?$"
_TO_MICROSECONDS = len("2021-06-01 00:00:00.123456")
_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"


@dataclass
class Lines:
    """Lines cut into fields.

    `line` has the 0-based number of the line of each row; a row is a line with the right number of fields. `reasons` has
    what is wrong, by line. `starts` and `ends` are the places of each row's fields in `data`.
    """

    data: bytes
    line: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    line_ends: np.ndarray
    reasons: dict[int, list[Reason]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many lines there are."""
        return len(self.line_ends)

    def raw(self, line: int) -> str:
        """The text of a line without its end."""
        start = int(self.line_ends[line - 1]) + 1 if line else 0
        return self.data[start : int(self.line_ends[line])].decode()

    def cells(self, position: int) -> list[bytes | None]:
        """The bytes of one field in every row, None where it is empty."""
        data = self.data
        spans = zip(self.starts[:, position].tolist(), self.ends[:, position].tolist(), strict=True)
        return [data[start:end] if start < end else None for start, end in spans]

    def add(self, row: int, reason: Reason) -> None:
        """Notes what is wrong with the line of a row."""
        self.reasons.setdefault(int(self.line[row]), []).append(reason)


def cut(data: bytes) -> Lines:
    """Cuts whole lines into fields; every byte sequence gives lines, never an error.

    Lines end in LF or CRLF, the last one may lack its end. Bytes that are no UTF-8, and NUL, which warehouses cannot store
    in text, become U+FFFD and a reason.
    """
    if b"\r\n" in data:
        data = data.replace(b"\r\n", b"\n")
    if data and not data.endswith(b"\n"):
        data = data.removesuffix(b"\r") + b"\n"
    unreadable: dict[int, list[Reason]] = {}
    if b"\0" in data or not _is_utf8(data):
        data = _readable(data, unreadable)
    buffer = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero((buffer == _TAB) | (buffer == _NEWLINE))
    last = np.flatnonzero(buffer[ends] == _NEWLINE)  # of each line, its last field
    counts = np.diff(last, prepend=-1)
    fits = counts == len(FIELDS)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1]) if len(ends) else ends
    of_row = np.repeat(fits, counts)
    shape = (-1, len(FIELDS))
    lines = Lines(
        data, np.flatnonzero(fits), starts[of_row].reshape(shape), ends[of_row].reshape(shape), ends[last], unreadable
    )
    for line in np.flatnonzero(~fits).tolist():
        lines.reasons[line] = [_wrong_count(int(counts[line]))]
    return lines


def event_columns(lines: Lines) -> pa.Table:
    """The typed events table of all rows, in order; a value that does not fit is null and a reason on its line."""
    columns = []
    flagged = {(line, reason["field"]) for line, found in lines.reasons.items() for reason in found if "field" in reason}
    stride = np.arange(len(lines.line), dtype=np.int64) * len(FIELDS)
    text = _text(lines)
    lengths = (lines.ends - lines.starts).astype(np.int64)
    longest = lengths.max(axis=0, initial=0)
    for position, wanted in enumerate(FIELDS):
        if wanted.is_json:
            continue
        column_type = arrow_type(wanted.column.type)
        if longest[position]:
            values = text.take(pa.array(stride + position, mask=lengths[:, position] == 0))
            typed, misfits = cast_each(values, _cast_of(wanted, int(longest[position])), column_type)
            for row in misfits:
                if (int(lines.line[row]), wanted.name) not in flagged:
                    lines.add(row, _misfit(wanted, values[row].as_py()))
        else:
            typed = pa.nulls(len(lines.line), column_type)
        if wanted.required:
            for row in np.flatnonzero(lengths[:, position] == 0).tolist():
                lines.add(row, {"type": "field", "field": wanted.name, "value": "", "message": "must not be empty"})
        columns.append(typed)
    return pa.Table.from_arrays(columns, names=[column.name for column in EVENTS.columns])


def _text(lines: Lines) -> pa.Array:
    """All fields of all rows as one string array, row by row."""
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
            fields[position] = _replaced(value).encode()
            if len(fields) == len(FIELDS):
                reasons.setdefault(number, []).append(
                    {
                        "type": "field",
                        "field": FIELDS[position].name,
                        "value": _replaced(value)[:LONGEST_QUOTE],
                        "message": " and ".join(problems),
                    }
                )
        lines[number] = b"\t".join(fields)
    return b"\n".join(lines)


def _replaced(value: bytes) -> str:
    return value.decode("utf-8", "replace").replace("\0", "\ufffd")


def _wrong_count(fields: int) -> Reason:
    if fields == 1:
        return {"type": "not_tsv", "message": "the line has no tab"}
    return {"type": "field_count", "message": f"the line has {fields} fields; an enriched event has {len(FIELDS)}"}


_MESSAGES = {
    "timestamp": "is no timestamp yyyy-MM-dd HH:mm:ss.SSS of the years 1 to 9999",
    "integer": "is no 32-bit integer",
    "double": "is no finite number",
    "boolean": "is neither 0 nor 1",
    "uuid": "is no UUID",
}


def _misfit(wanted: Field, value: str) -> Reason:
    return {
        "type": "field",
        "field": wanted.name,
        "value": value[:LONGEST_QUOTE],
        "message": _MESSAGES[wanted.type],
    }


def _cast_of(wanted: Field, longest: int) -> Callable[[pa.Array], pa.Array]:
    if wanted.type.startswith("string"):
        limit = max_length(wanted.type)
        too_long = limit is not None and longest > limit  # in bytes, at least as many as characters
        return (lambda values: pc.utf8_slice_codeunits(values, 0, limit).cast(pa.string())) if too_long else _string
    return {"timestamp": _timestamp, "integer": _integer, "double": _double, "boolean": _boolean, "uuid": _uuid}[wanted.type]


def _string(values: pa.Array) -> pa.Array:
    return values.cast(pa.string())


def _timestamp(values: pa.Array) -> pa.Array:
    refuse_unless(pc.all(pc.match_substring_regex(values, _TIMESTAMP)))
    typed = pc.utf8_slice_codeunits(values, 0, _TO_MICROSECONDS).cast(pa.timestamp("us"))
    return check_years(typed)


def _integer(values: pa.Array) -> pa.Array:
    refuse_unless(pc.invert(pc.any(pc.match_substring(values, "x", ignore_case=True))))  # Arrow would read hexadecimals
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
