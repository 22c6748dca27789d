"""Shreds CSV: a stream of bytes to typed tables, chunk by chunk. It depends neither on Spark nor on storage.

CSV is that of RFC 4180 in UTF-8, with or without a byte order mark: newlines, commas and doubled quotes within quotes. An empty
field is null, quoted or not. Arrow's parser splits fields into bytes without guessing types. Then whole columns are cast, and
only a column with an invalid value is searched for it. Empty lines are not records.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv

from manifest_platform import column_names
from manifest_platform.column_types import arrow_type
from manifest_platform.listing import Column
from manifest_platform.shred.batch import CHUNK, Unusable
from manifest_platform.shred.limits import LINES_AT_ONCE
from manifest_platform.shred.rows import (
    LONGEST_QUOTE,
    BadRow,
    Reason,
    add_reason,
    arrow_schema,
    as_text,
    bad_table,
    cast_each,
    check_years,
    refuse_unless,
)

pc: Any = pyarrow.compute  # its functions are created at run time, so type checkers do not know them

_HEADER_LINES = 1
_LONGEST_HEADER = 1 << 20
_VALUES_AT_ONCE = 1 << 19  # the reasons for a bad value take far more memory than a short value
_BOM = b"\xef\xbb\xbf"


class Stream(Protocol):
    """A stream of bytes that is read once."""

    def read(self, size: int, /) -> bytes:
        """Returns up to `size` bytes; empty at the end."""
        ...


@dataclass(frozen=True)
class Typed:
    """A chunk of a file: its good rows with types, its bad rows, and its approximate size in bytes."""

    rows: pa.Table
    bad: pa.Table
    bytes: int


class CsvFile:
    """A CSV file that is read once: first its header, then its rows. `name`: the file's name in messages and bad rows."""

    def __init__(self, stream: Stream, name: str, chunk: int = CHUNK, before: int = 0):
        """`chunk`: bytes parsed at a time, and the longest record. `before`: the number of records left out after the header.

        Raises Unusable if the header is invalid.
        """
        self.name = name
        self._before = before
        self._stream = stream
        self._chunk = chunk
        self.header, self._head = self._read_header()

    def rows(self, columns: Sequence[Column], key: Sequence[str], most_bad: int | None = None) -> Iterator[Typed]:
        """Yields the rows, typed by `columns`. A column that the header lacks is null.

        `most_bad`: stop after more than this number of records with a wrong number of fields. A row is bad if it has more or
        fewer fields than the header, if a value does not fit its type, is not UTF-8 or contains NUL, or if a key column is
        empty. The line of a bad row is the number of its record in the file; the header is record 1. Raises Unusable if the
        file ends within quotes, cannot be split into records, or the header fits none of the rows.
        """
        if not self.header:
            return
        source = _Source(self._head, self._stream, len(self.header))
        miscounted = _Miscounted(most_bad, self._before)
        at_once = max(1, min(LINES_AT_ONCE, _VALUES_AT_ONCE // len(self.header)))
        no_rows = arrow_schema(columns).empty_table()
        done = 0  # rows so far with the right number of fields
        for whole in self._batches(source, miscounted):
            for start in range(0, whole.num_rows, at_once):
                batch = whole.slice(start, at_once)
                while len(bad := miscounted.take(done + batch.num_rows)) == LINES_AT_ONCE:
                    yield Typed(no_rows, bad_table(self.name, bad), 0)
                arrays, reasons = self._cast(batch, columns, key, source.has_nul)
                bad += [BadRow(miscounted.line(done + place), why, _raw(batch, place)) for place, why in reasons.items()]
                rows = pa.Table.from_arrays(arrays, schema=arrow_schema(columns))
                if reasons:
                    good = np.ones(batch.num_rows, bool)
                    good[list(reasons)] = False
                    rows = rows.filter(pa.array(good))
                yield Typed(rows, bad_table(self.name, sorted(bad, key=lambda row: row.line)), batch.nbytes)
                done += batch.num_rows
        while rest := miscounted.take(None):
            if not done and not self._before and not miscounted.is_too_many:
                raise Unusable(
                    f"the header of {self.name} fits none of its rows: {rest[0].reasons[0]['message']};"
                    " ask for the window again"
                )
            yield Typed(no_rows, bad_table(self.name, rest), 0)

    def _read_header(self) -> tuple[tuple[str, ...], bytes]:
        """Reads the column names and the bytes read after them. Without a byte in the file, there are no names."""
        head = b""
        while (end := _end_of_record(head)) is None and (block := self._stream.read(self._chunk)):
            head += block
            if len(head) > _LONGEST_HEADER + self._chunk:
                raise Unusable(f"the header of {self.name} does not end within its first {len(head):,} bytes")
        end = len(head) if end is None else end
        try:
            text = head[:end].removeprefix(_BOM).decode()
            names = next(csv.reader(io.StringIO(text, newline=""), strict=True), [])
        except (UnicodeDecodeError, csv.Error) as error:
            raise Unusable(f"the header of {self.name} cannot be read: {error}; ask for the window again") from error
        if head and not all(names or [""]):
            shown = text.strip()[:LONGEST_QUOTE]
            raise Unusable(f"the header of {self.name} has a column without a name: {shown!r}; ask for the window again")
        if problem := column_names.problem(names):
            raise Unusable(f"the header of {self.name} {problem}; ask for the window again")
        return tuple(names), head[end:]

    def _batches(self, source: _Source, miscounted: _Miscounted) -> Iterator[pa.RecordBatch]:
        """Yields the rows with the right number of fields as binary columns, null if empty."""
        names = list(self.header)
        reader: Iterable[pa.RecordBatch] = ()
        try:
            reader = pyarrow.csv.open_csv(
                source,
                pyarrow.csv.ReadOptions(use_threads=False, block_size=self._chunk, column_names=names),
                pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=miscounted),
                pyarrow.csv.ConvertOptions(
                    check_utf8=False,
                    column_types=dict.fromkeys(names, pa.binary()),
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
            held: pa.RecordBatch | None = None
            for batch in reader:
                if batch.num_rows:
                    if held is not None:
                        yield held
                    held = batch
        except pa.ArrowInvalid as error:
            if miscounted.is_too_many:
                return
            raise Unusable(
                f"{self.name} cannot be split into records: {error}; a record has at most {self._chunk:,} bytes"
                " (shred.limits.line_kib), and quotes must be closed; ask for the window again"
            ) from error
        finally:
            source.end()  # Arrow reads ahead in a thread, which would otherwise wait for data when the process ends
            with contextlib.suppress(Exception):  # errors were already raised above
                deque(reader, 0)
        if held is None or any(column[-1].as_py() != _END for column in held.columns):
            raise Unusable(f"{self.name} ends within quotes: it was cut off; ask for the window again")
        yield held.slice(0, held.num_rows - 1)

    def _cast(
        self, batch: pa.RecordBatch, columns: Sequence[Column], key: Sequence[str], has_nul: bool
    ) -> tuple[list[pa.Array], dict[int, list[Reason]]]:
        """Returns the typed columns, with null for invalid values, and the reasons by row."""
        arrays, reasons = [], dict[int, list[Reason]]()
        places = {name: place for place, name in enumerate(self.header)}
        for column in columns:
            type_ = arrow_type(column.type)
            if column.name not in places:
                arrays.append(pa.nulls(batch.num_rows, type_))
                continue
            values = batch.column(places[column.name])
            text, unreadable = cast_each(values, _text if has_nul else _utf8, pa.string())
            typed, misfits = (
                (text, []) if type_ == text.type else cast_each(text, _CASTS[column.type.partition("(")[0]](type_), type_)
            )
            for place in sorted({*unreadable, *misfits}):
                message = _NO_TEXT if place in unreadable else _MESSAGES[column.type.partition("(")[0]].format(column.type)
                value = as_text(values[place].as_py())[:LONGEST_QUOTE]
                reason = {"type": "field", "field": column.name, "value": value, "message": message}
                add_reason(reasons.setdefault(place, []), reason)
            if column.name in key and values.null_count:
                for place in np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)).tolist():
                    reason = {
                        "type": "field",
                        "field": column.name,
                        "value": "",
                        "message": "must not be empty: it is part of the key",
                    }
                    add_reason(reasons.setdefault(place, []), reason)
            arrays.append(typed)
        return arrays, reasons


_END = b"\0"
"""The value of all fields of a sentinel record after the last record. If it is not parsed, a quote was left open."""


class _Source(io.RawIOBase):
    """The bytes after the header and then a sentinel record, in blocks for Arrow's parser.

    A block has the requested size, because the parser refuses a record longer than a block. No block ends between CR and LF:
    the parser would drop the LF, even within quotes.
    """

    def __init__(self, head: bytes, stream: Stream, width: int):
        self.has_nul = b"\0" in head
        self._held = head
        self._stream = stream
        self._end = b"\n" + b",".join([_END] * width) + b"\n"

    def readable(self) -> bool:
        """Always True."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Returns the next block, at most one byte shorter than requested; empty at the end."""
        blocks, missing = [self._held], size - len(self._held)
        while missing > 0 and (block := self._next(missing)):
            blocks.append(block)
            missing -= len(block)
        whole = b"".join(blocks)
        end = size - 1 if whole[size - 1 : size] == b"\r" else size
        block, self._held = whole[:end], whole[end:]
        return block

    def end(self) -> None:
        """Ends the stream: nothing more can be read."""
        self._held, self._stream, self._end = b"", io.BytesIO(), b""

    def _next(self, size: int) -> bytes:
        if block := self._stream.read(size):
            self.has_nul = self.has_nul or b"\0" in block
            return block
        block, self._end = self._end, b""
        return block


class _Miscounted:
    """Records with too few or too many fields, which Arrow's parser reports and skips.

    The parser may be ahead of the rows that it returns, so each record is located by the number of rows before it. A block may
    contain millions of such records: until `take`, only numbers and texts are stored.
    """

    def __init__(self, most: int | None, before: int) -> None:
        """`most`: after more than this number of records, the parser stops with an error. `before`: the records not parsed."""
        self._most = most
        self._records_before = _HEADER_LINES + before
        self._before = array("q")
        self._waiting: deque[tuple[int, int, int, str]] = deque()

    def __call__(self, row: pyarrow.csv.InvalidRow) -> str:
        self._waiting.append((row.number, row.actual_columns, row.expected_columns, row.text))
        self._before.append(row.number - 1 - len(self._before))
        return "error" if self.is_too_many else "skip"

    @property
    def is_too_many(self) -> bool:
        return self._most is not None and len(self._before) > self._most

    def take(self, rows: int | None) -> list[BadRow]:
        """Returns records before row number `rows` that were not taken yet, at most LINES_AT_ONCE; None for the whole file."""
        taken = len(self._before) - len(self._waiting)
        upto = len(self._before) if rows is None else bisect_left(self._before, rows)
        return [self._bad_row(*self._waiting.popleft()) for _ in range(min(upto - taken, LINES_AT_ONCE))]

    def _bad_row(self, number: int, actual: int, expected: int, text: str) -> BadRow:
        message = f"the record has {actual} fields; the header has {expected}"
        reasons = [{"type": "field_count", "message": message}]
        return BadRow(number + self._records_before, reasons, text.replace("\0", "\ufffd"))

    def line(self, row: int) -> int:
        """The record number in the file of a row (counted from 0)."""
        return row + 1 + bisect_right(self._before, row) + self._records_before


def _end_of_record(data: bytes) -> int | None:
    """The offset after the first record and its newline; None if the record is not complete."""
    quotes = end = 0
    while (newline := data.find(b"\n", end)) >= 0:
        quotes += data.count(b'"', end, newline)
        end = newline + 1
        if quotes % 2 == 0:
            return end
    return None


def _raw(batch: pa.RecordBatch, place: int) -> str:
    """Formats a record as CSV, with quotes if needed."""
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="").writerow(as_text(column[place].as_py() or b"") for column in batch.columns)
    return out.getvalue()


def _utf8(values: pa.Array) -> pa.Array:
    return values.cast(pa.string())


def _text(values: pa.Array) -> pa.Array:
    text = values.cast(pa.string())
    refuse_unless(pc.invert(pc.any(pc.match_substring(text, "\0"))))
    return text


def _boolean(_: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    def cast(values: pa.Array) -> pa.Array:
        lower = pc.utf8_lower(values)
        true = pc.is_in(lower, pa.array(["true", "1"]))
        refuse_unless(pc.all(pc.or_(true, pc.is_in(lower, pa.array(["false", "0", None])))))
        return pc.if_else(values.is_valid(), true, None)

    return cast


def _number(type_: pa.Decimal128Type) -> Callable[[pa.Array], pa.Array]:
    most_digits = type_.precision - type_.scale

    def cast(values: pa.Array) -> pa.Array:
        has_exponent = pc.any(pc.match_substring(values, "e", ignore_case=True)).as_py()
        if has_exponent or (pc.max(pc.binary_length(values)).as_py() or 0) > most_digits:
            # Arrow's cast overflows silently, for example for 11E30 and for 11 with 28 zeros.
            return pa.array([_exactly(value, type_) for value in values.to_pylist()], type_)
        return values.cast(type_)

    return cast


def _exactly(text: str | None, type_: pa.Decimal128Type) -> Decimal | None:
    """Parses a number with an exponent. Raises pa.ArrowInvalid if the type cannot hold it exactly."""
    if text is None:
        return None
    with localcontext(prec=type_.precision + len(text)):
        try:
            units = Decimal(text).scaleb(type_.scale) if _NUMBER.fullmatch(text) else Decimal("nan")
        except ArithmeticError:
            units = Decimal("nan")
        if not (units.is_finite() and abs(units) < 10**type_.precision and units % 1 == 0):
            raise pa.ArrowInvalid("misfit")
        return Decimal(int(units)).scaleb(-type_.scale)


def _date(type_: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    return lambda values: check_years(values.cast(type_))


def _timestamp(type_: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    with_zone = pa.timestamp(type_.unit, "UTC")  # so that a text without a zone is refused
    return lambda values: check_years(values.cast(with_zone).cast(type_))


_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_CASTS = {"boolean": _boolean, "decimal": _number, "date": _date, "timestamp": _timestamp}
_NO_TEXT = "is not UTF-8, or contains NUL, which warehouses cannot store in text"
_MESSAGES = {
    "boolean": "is neither true nor false",
    "decimal": "is not a number that {} can hold exactly",
    "date": "is not a date yyyy-MM-dd of the years 1 to 9999",
    "timestamp": "is not a time yyyy-MM-ddTHH:mm:ss.SSSZ of the years 1 to 9999",
}
