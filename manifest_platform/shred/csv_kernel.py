"""The kernel of shredding CSV: a stream of bytes to typed tables, chunk by chunk. Knows neither Spark nor storage.

CSV is that of RFC 4180 in UTF-8, with or without a byte order mark: newlines, commas and doubled quotes within quotes. An empty
field is null, quoted or not. Arrow's parser cuts the fields and gives bytes, so that no value is guessed at; whole columns are
cast then, and only a column with a misfit is searched for it. Empty lines are no records.
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
    bad_table,
    cast_each,
    check_years,
    refuse_unless,
)

pc: Any = pyarrow.compute  # its functions come into being at run time, unknown to type checkers

_HEADER_LINES = 1
_LONGEST_HEADER = 1 << 20
_VALUES_AT_ONCE = 1 << 19  # what is wrong with a value takes far more memory than a short value
_BOM = b"\xef\xbb\xbf"


class Stream(Protocol):
    """Bytes that are read once, to their end."""

    def read(self, size: int, /) -> bytes:
        """At most so many of the next bytes; none at the end."""
        ...


@dataclass(frozen=True)
class Typed:
    """A chunk of a file: its good rows with their types, and its bad ones; `bytes` of them, about."""

    rows: pa.Table
    bad: pa.Table
    bytes: int


class CsvFile:
    """A CSV file that is read once: first its header, then its rows. `name` is the file's in messages and in bad rows."""

    def __init__(self, stream: Stream, name: str, chunk: int = CHUNK):
        """`chunk`: how many bytes are parsed at a time; no record may be longer. Raises Unusable for a header that is none."""
        self.name = name
        self._stream = stream
        self._chunk = chunk
        self.header, self._head = self._read_header()

    def rows(self, columns: Sequence[Column], key: Sequence[str], most_bad: int | None = None) -> Iterator[Typed]:
        """The rows, typed as columns say; a column that the header lacks is null.

        `most_bad`: after more records than these whose fields are too few or too many, the rest is not read.
        A row is bad where its fields are not as many as the header's, a value is not of its type, not UTF-8 or has NUL in
        it, or a column of the key is empty. Its line is the number of its record in the file, the header being 1. Raises
        Unusable for a file that ends within quotes, one that cannot be cut into records, and one whose header fits none.
        """
        if not self.header:
            return
        source = _Source(self._head, self._stream, len(self.header))
        miscounted = _Miscounted(most_bad)
        at_once = max(1, min(LINES_AT_ONCE, _VALUES_AT_ONCE // len(self.header)))
        none = arrow_schema(columns).empty_table()
        done = 0  # rows with the right number of fields
        for whole in self._batches(source, miscounted):
            for start in range(0, whole.num_rows, at_once):
                batch = whole.slice(start, at_once)
                while len(bad := miscounted.take(done + batch.num_rows)) == LINES_AT_ONCE:
                    yield Typed(none, bad_table(self.name, bad), 0)
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
            if not done and not miscounted.is_too_many:
                raise Unusable(
                    f"the header of {self.name} fits none of its rows: {rest[0].reasons[0]['message']};"
                    " ask for the window again"
                )
            yield Typed(none, bad_table(self.name, rest), 0)

    def _read_header(self) -> tuple[tuple[str, ...], bytes]:
        """The names of the columns, and what was read of the rows behind them; no names where the file has no byte."""
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
        """The rows with the right number of fields as bytes, null where empty."""
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
                f"{self.name} cannot be cut into records: {error}; a record is at most {self._chunk:,} bytes long"
                " (shred.limits.line_kib), and quotes are closed; ask for the window again"
            ) from error
        finally:
            source.end()  # Arrow reads ahead, in a thread that would wait for more when the process ends
            with contextlib.suppress(Exception):  # what is wrong was raised where it was met
                deque(reader, 0)
        if held is None or any(column[-1].as_py() != _END for column in held.columns):
            raise Unusable(f"{self.name} ends within quotes: it was cut off; ask for the window again")
        yield held.slice(0, held.num_rows - 1)

    def _cast(
        self, batch: pa.RecordBatch, columns: Sequence[Column], key: Sequence[str], has_nul: bool
    ) -> tuple[list[pa.Array], dict[int, list[Reason]]]:
        """The typed columns, null where a value does not fit, and why by row."""
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
                value = _readable(values[place].as_py())[:LONGEST_QUOTE]
                reason = {"type": "field", "field": column.name, "value": value, "message": message}
                add_reason(reasons.setdefault(place, []), reason)
            if column.name in key and values.null_count:
                for place in np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)).tolist():
                    reason = {
                        "type": "field",
                        "field": column.name,
                        "value": "",
                        "message": "must not be empty: it is of the key",
                    }
                    add_reason(reasons.setdefault(place, []), reason)
            arrays.append(typed)
        return arrays, reasons


_END = b"\0"
"""The value of all fields of a record that is put behind the file's last: where it does not come out, quotes were left open."""


class _Source(io.RawIOBase):
    """What follows the header, then a record of a known content, in blocks that Arrow's parser takes as they are.

    Blocks are as large as asked for, for the parser refuses a record that spans a whole one. None ends between the two
    characters of a line's end: the parser would drop the second, within quotes too.
    """

    def __init__(self, head: bytes, stream: Stream, width: int):
        self.has_nul = b"\0" in head
        self._held = head
        self._stream = stream
        self._end = b"\n" + b",".join([_END] * width) + b"\n"

    def readable(self) -> bool:
        """Yes."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """The next block, a byte less than asked for at the least; none at the end."""
        blocks, missing = [self._held], size - len(self._held)
        while missing > 0 and (block := self._next(missing)):
            blocks.append(block)
            missing -= len(block)
        whole = b"".join(blocks)
        end = size - 1 if whole[size - 1 : size] == b"\r" else size
        block, self._held = whole[:end], whole[end:]
        return block

    def end(self) -> None:
        """Has nothing more to read."""
        self._held, self._stream, self._end = b"", io.BytesIO(), b""

    def _next(self, size: int) -> bytes:
        if block := self._stream.read(size):
            self.has_nul = self.has_nul or b"\0" in block
            return block
        block, self._end = self._end, b""
        return block


class _Miscounted:
    """The records with too few or too many fields, which Arrow's parser hands over and leaves out.

    The parser may be ahead of the rows that it gives, so each is known by how many rows are before it. A block may hold
    millions of them: until they are taken they are numbers and texts alone.
    """

    def __init__(self, most: int | None) -> None:
        """`most`: after more than these no more are taken, and the parser ends with an error."""
        self._most = most
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
        """Those before the last of so many rows that were not taken yet, LINES_AT_ONCE at most; None: of all."""
        taken = len(self._before) - len(self._waiting)
        upto = len(self._before) if rows is None else bisect_left(self._before, rows)
        return [self._bad_row(*self._waiting.popleft()) for _ in range(min(upto - taken, LINES_AT_ONCE))]

    @staticmethod
    def _bad_row(number: int, actual: int, expected: int, text: str) -> BadRow:
        message = f"the record has {actual} fields; the header has {expected}"
        reasons = [{"type": "field_count", "message": message}]
        return BadRow(number + _HEADER_LINES, reasons, text.replace("\0", "\ufffd"))

    def line(self, row: int) -> int:
        """The number of the record in the file of a row, which counts from 0."""
        return row + 1 + bisect_right(self._before, row) + _HEADER_LINES


def _end_of_record(data: bytes) -> int | None:
    """Where the first record ends, its newline included; None where its end is not there."""
    quotes = end = 0
    while (newline := data.find(b"\n", end)) >= 0:
        quotes += data.count(b'"', end, newline)
        end = newline + 1
        if quotes % 2 == 0:
            return end
    return None


def _raw(batch: pa.RecordBatch, place: int) -> str:
    """A record as text, with quotes where they are needed."""
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="").writerow(_readable(column[place].as_py() or b"") for column in batch.columns)
    return out.getvalue()


def _readable(value: bytes) -> str:
    return value.decode("utf-8", "replace").replace("\0", "\ufffd")


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
            # Arrow's cast overflows in silence: 11E30, and 11 with 28 zeros.
            return pa.array([_exactly(value, type_) for value in values.to_pylist()], type_)
        return values.cast(type_)

    return cast


def _exactly(text: str | None, type_: pa.Decimal128Type) -> Decimal | None:
    """The number that a text with an exponent means. Raises pa.ArrowInvalid where the type cannot hold it."""
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
    "decimal": "is no number that {} holds exactly",
    "date": "is no date yyyy-MM-dd of the years 1 to 9999",
    "timestamp": "is no time yyyy-MM-ddTHH:mm:ss.SSSZ of the years 1 to 9999",
}
