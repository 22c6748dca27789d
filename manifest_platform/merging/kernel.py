"""Merges many Parquet files into one, sorted by time, and checks the result before anybody can use it.

Belongs here: the merge of one range. `plan` decides what is merged; the caller decides what happens with the result.

Rows are read, sorted and written once. A large row group that is sorted and does not overlap others in time is copied byte
for byte. Memory is bounded by a few row groups, for inputs of any size.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manifest_platform import spool, storage
from manifest_platform.column_names import matched
from manifest_platform.merging import names
from manifest_platform.merging.errors import ChangedInput, TransientMergeError, WrongResult
from manifest_platform.merging.files import File, opened
from manifest_platform.merging.inputs import Input
from manifest_platform.merging.plan import PlannedRange
from manifest_platform.merging.rowgroups import Assembly, Footer, NotParquet, read_footer
from manifest_platform.merging.schemas import fitted, unified
from manifest_platform.merging.sorting import LAST, Array, Bounds, Group, SortedPiece, Sorter
from manifest_platform.merging.state import MergedTable
from manifest_platform.merging.stored import delete
from manifest_platform.merging.tally import Tally
from manifest_platform.merging.time_keys import FIRST, ends, in_order, iso, key_bounds, time_type, to_microseconds

_MIB = 1 << 20
_UPLOAD = 32 * _MIB  # bytes of a part of a multipart upload
_SAMPLES = 8  # number of inputs whose footers are read to learn how often values repeat
_TELLING_ROWS = 2_000  # smallest number of rows of such an input
_TRIED_ROWS = 10_000  # rows of an input without dictionaries that tell the same
_REPEATED = 0.9  # strings repeat often if their encoded size, divided by the plain size, is at most this
_UNITS = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class MergeOptions:
    """The parameters of a merge.

    `group_bytes`, `group_rows`: the maximum size of a row group, in bytes of Arrow data and in rows. `held_bytes`: bytes of
    Arrow data that may wait in memory before they are spilled to the local disk. `copied_bytes`: row groups of at least this
    size (encoded, uncompressed) are copied if possible. `threads`: cores to use. `spool`: a local directory for spilled data;
    None for the system's temporary directory.
    """

    group_bytes: int = 64 * _MIB
    group_rows: int = 1 << 20
    held_bytes: int = 256 * _MIB
    copied_bytes: int = 8 * _MIB
    threads: int = 2
    spool: str | None = None


@dataclass(frozen=True)
class MergeTask:
    """The range (lower, upper] of a table's partition: the objects to merge, by id, and the object to write.

    If an existing range is extended, its object is the first input. `time_column`: the timestamp or date by which rows are
    sorted; without a time column, rows keep the order of the inputs.
    """

    table: str
    date: date
    lower: int
    upper: int
    inputs: tuple[Input, ...]
    output: str
    time_column: str | None = None

    @classmethod
    def of(cls, planned: PlannedRange, table: MergedTable, day: date, output: str, attempt: str) -> MergeTask:
        """The task that writes a planned range under the location `output`, for this attempt."""
        extended = [
            Input(found.uri, found.rows, found.bytes, found.min_time, found.max_time)
            for found in ((planned.extends,) if planned.extends else ())
        ]
        small = (
            Input(found.uri, found.rows, found.bytes, found.min_time, found.max_time, found.groups) for found in planned.objects
        )
        return cls(
            table.name,
            day,
            planned.lower,
            planned.upper,
            (*extended, *small),
            names.part_uri(output, table, day, attempt, planned.lower, planned.upper),
            table.time_column,
        )

    @property
    def bytes(self) -> int:
        """Bytes to read."""
        return sum(found.bytes for found in self.inputs)

    def __str__(self) -> str:
        return f"{self.table} of {self.date}, range ({self.lower}, {self.upper}]"


@dataclass(frozen=True)
class Merged:
    """A merged object that was written and checked.

    Times are ISO 8601 in UTC, None if no row has a time. `copied_rows`: rows of row groups that were copied unchanged.
    `spilled_bytes`: bytes that were written to the local disk in between.
    """

    table: str
    date: date
    lower: int
    upper: int
    uri: str
    rows: int
    bytes: int
    min_time: str | None
    max_time: str | None
    sha256: str
    bytes_in: int
    copied_rows: int
    spilled_bytes: int
    seconds: float


@dataclass(frozen=True)
class _Unit:
    """A row group of an input. `least`, `most`: the bounds of its keys. `place`: its index in the order of the inputs."""

    place: int
    file: File
    group: int
    least: int
    most: int

    @property
    def bytes(self) -> int:
        """The encoded, uncompressed size."""
        return self.file.metadata.row_group(self.group).total_byte_size


def merge(task: MergeTask, options: MergeOptions | None = None) -> Merged:
    """Writes the rows of a range's objects to one Parquet file, sorted by time, and checks it.

    Rows with equal times keep the order of the inputs; rows without a time are last. The columns of all inputs are matched by
    name: types are widened if nothing is lost, and missing columns are null. Before the file is completed, its rows, times,
    nulls and sums are compared with those of the inputs, and the inputs are compared with the inventory.

    Raises MissingInput, ChangedInput, SchemaConflict, WrongResult or PermanentMergeError if a retry cannot help, else
    TransientMergeError. A partial file is removed; if that fails, too, no row names it.
    """
    options = options or MergeOptions()
    began = time.perf_counter()
    with (
        spool.folder("merge", options.spool) as folder,
        ThreadPoolExecutor(options.threads) as pool,
    ):
        merging = _Merge(task, options, folder, pool)
        size, sha256 = merging.write()
        return merging.merged(size, sha256, time.perf_counter() - began)


class _Merge:
    """A merge in progress: the opened inputs, their common schema, and the tallies of the rows read and written."""

    def __init__(self, task: MergeTask, options: MergeOptions, spool: Path, pool: Executor):
        self._task, self._options, self._spool, self._pool = task, options, spool, pool
        self._files = opened(task.inputs, spool, pool)
        self._schema = unified(task.table, ((file.input.uri, file.schema) for file in self._files))
        self._time = time_type(task.table, task.time_column, self._schema, task.inputs[0].uri)
        self._like = read_footer(_encoded(self._schema.empty_table(), task.time_column))
        self._footers: dict[int, Footer] = {}
        self._few, self._many = self._repeated()
        self._inner = pa.schema([_with_dictionary(column) if column.name in self._few else column for column in self._schema])
        self._read, self._written = Tally.none(len(self._schema)), Tally.none(len(self._schema))
        self._copied = self._spilled = 0

    def write(self) -> tuple[int, str]:
        """Writes the file and returns its size in bytes and its SHA-256."""
        steps = _steps(self._units(), self._may_be_copied)
        digest = hashlib.sha256()
        try:
            with _created(self._task.output) as stream:

                def write(data: Any) -> None:
                    stream.write(data)
                    digest.update(data)

                assembly = Assembly(write, self._like)
                for step in steps:
                    if isinstance(step, _Unit):
                        self._copy(step, assembly)
                    else:
                        self._rewrite(step, assembly)
                self._check_result(assembly.footer)
                return assembly.finish(), digest.hexdigest()
        except OSError as error:
            raise TransientMergeError(f"{self._task}: {self._task.output} could not be written: {error}") from error

    def merged(self, size: int, sha256: str, seconds: float) -> Merged:
        """The result, after `write`."""
        task, written = self._task, self._written
        first, last = (iso(key, self._time) for key in (written.least, written.most))
        return Merged(
            task.table,
            task.date,
            task.lower,
            task.upper,
            task.output,
            written.rows,
            size,
            first,
            last,
            sha256,
            task.bytes,
            self._copied,
            self._spilled,
            seconds,
        )

    def _units(self) -> list[_Unit]:
        """All row groups with rows, sorted by the smallest possible key."""
        units: list[_Unit] = []
        for file in self._files:
            column = self._time_place(file)
            for number in file.groups:
                group = file.metadata.row_group(number)
                if group.num_rows:
                    place = len(units)
                    least, most = (place, place) if self._time is None else key_bounds(group, column)
                    units.append(_Unit(place, file, number, least, most))
        return sorted(units, key=lambda unit: (unit.least, unit.place))

    def _time_place(self, file: File) -> int | None:
        """The index of the time column in a file; None if it has none, -1 if its statistics cannot serve as keys."""
        name = self._task.time_column
        name = matched(file.schema.names, name) if name else None
        if name is None:
            return None
        place = file.schema.get_field_index(name)
        leaf = next(leaf for leaf in range(file.metadata.num_columns) if file.metadata.schema.column(leaf).path == name)
        kind, unit = file.schema.field(place).type, json.loads(file.metadata.schema.column(leaf).logical_type.to_json())
        same = unit.get("timeUnit") == _UNITS.get(kind.unit) if pa.types.is_timestamp(kind) else unit.get("Type") == "Date"
        return leaf if same and kind == self._time else -1

    def _repeated(self) -> tuple[list[str], set[str]]:
        """Columns of strings that repeat often, and columns whose values never repeat, by some inputs.

        The former stay dictionary-encoded, which saves most of the work on strings; the latter are written without
        dictionaries.
        """
        large = [file for file in self._files if file.groups and file.input.rows >= _TELLING_ROWS]
        shares: dict[str, list[tuple[float, bool]]] = {}
        for file in large[:: max(1, len(large) // _SAMPLES)][:_SAMPLES]:
            try:
                found = self._footer(file).shares(file.groups.start) or self._tried(file).shares(0)
            except NotParquet:
                continue
            for name, share in found.items():
                shares.setdefault(name, []).append(share)
        texts = {column.name for column in self._schema if pa.types.is_string(column.type)}
        few = [name for name, found in shares.items() if name in texts and max(found)[0] <= _REPEATED and min(found)[1]]
        return few, {name for name, found in shares.items() if min(found)[0] > 1}

    def _tried(self, file: File) -> Footer:
        """The footer of an input's first rows with dictionaries, for an input that was written without."""
        try:
            first = next(file.reader(()).iter_batches(_TRIED_ROWS, [file.groups.start], use_threads=False))
        except (pa.ArrowException, OSError) as error:
            raise NotParquet(str(error)) from error  # whoever reads all of it says what is wrong
        return read_footer(_encoded(pa.Table.from_batches([first]), None))

    def _may_be_copied(self, unit: _Unit) -> bool:
        """True if a row group can be copied unchanged: it is large, has the same form, and is sorted."""
        if unit.bytes < self._options.copied_bytes:
            return False
        try:
            footer = self._footer(unit.file)
            footer.extents(unit.group, len(unit.file.data))
        except NotParquet:  # its rows can still be read and rewritten
            return False
        if footer.form != self._like.form or footer.nulls(unit.group) is None:
            return False
        if self._time is None:
            return True
        keys = self._keys(self._decoded(unit, [str(self._task.time_column)]), unit)
        return in_order(keys)

    def _footer(self, file: File) -> Footer:
        if file.place not in self._footers:
            self._footers[file.place] = read_footer(file.data)
        return self._footers[file.place]

    def _copy(self, unit: _Unit, assembly: Assembly) -> None:
        footer = self._footer(unit.file)
        assembly.add(unit.file.data, footer, unit.group)
        tally = Tally.none(len(self._schema))
        tally.rows = unit.file.metadata.row_group(unit.group).num_rows
        tally.nulls = np.array(footer.nulls(unit.group))
        if self._time is not None:
            tally.least, tally.most = ends(self._keys(self._decoded(unit, [str(self._task.time_column)]), unit))
        self._read.add(tally)
        self._written.add(tally)
        self._copied += tally.rows

    def _rewrite(self, units: Sequence[_Unit], assembly: Assembly) -> None:
        options = self._options
        for encoded, tally in _ahead(self._pool, self._encode, self._groups(units), options.threads):
            footer = read_footer(encoded)
            for number in range(len(footer.groups)):
                assembly.add(encoded, footer, number)
            self._written.add(tally)

    def _groups(self, units: Sequence[_Unit]) -> Iterator[Group]:
        """Yields the rows of the units in order, one row group at a time."""
        options = self._options
        sorter = Sorter(
            Bounds(options.group_bytes, options.group_rows, options.held_bytes),
            Path(tempfile.mkdtemp(dir=self._spool)),
        )
        most = max(1, min(4 * options.threads, options.group_bytes // max(1, *(unit.bytes for unit in units))))
        following = [*(unit.least for unit in units[1:]), LAST]
        for (piece, tally), least in zip(_ahead(self._pool, self._piece, units, most), following, strict=True):
            self._read.add(tally)
            yield from sorter.add(piece, least)
        yield from sorter.finish()
        self._spilled += sorter.spilled

    def _piece(self, unit: _Unit) -> tuple[SortedPiece, Tally]:
        """The sorted rows of a unit, and their tally."""
        rows = fitted(self._decoded(unit, encoded=self._few), self._inner)
        keys = self._keys(rows, unit)
        tally = self._tally(rows, keys)
        if not in_order(keys):
            order = np.argsort(keys, kind="stable")
            rows, keys = rows.take(pa.array(order)), keys[order]
        return SortedPiece(unit.place, rows, keys, rows.nbytes), tally

    def _encode(self, group: Group) -> tuple[pa.Buffer, Tally]:
        rows = group.rows()
        tried = [column.name for column in self._schema if column.name not in self._many]
        return _encoded(rows, self._task.time_column, tried), self._tally(rows, group.keys)

    def _decoded(self, unit: _Unit, columns: list[str] | None = None, encoded: Sequence[str] = ()) -> pa.Table:
        try:
            return unit.file.reader(encoded).read_row_group(unit.group, columns=columns, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            uri = unit.file.input.uri
            raise ChangedInput(f"row group {unit.group} of {uri} cannot be read: {error}; restore the original file") from error

    def _keys(self, rows: pa.Table, unit: _Unit) -> Array:
        """The sort keys of rows of a unit: their times, or the place of the unit if there is no time column."""
        if self._time is None:
            return np.full(rows.num_rows, unit.place, np.int64)
        place = rows.schema.get_field_index(str(self._task.time_column))
        if place < 0:
            return np.full(rows.num_rows, LAST, np.int64)
        column = rows.column(place)
        number = pa.int32() if pa.types.is_date32(self._time) else pa.int64()
        keys = column.cast(number).cast(pa.int64()).fill_null(LAST).to_numpy()
        self._check_times(keys, unit)
        return keys

    def _check_times(self, keys: Array, unit: _Unit) -> None:
        """Raises ChangedInput if keys are outside of the bounds in the file's footer or in the inventory."""
        input_ = unit.file.input
        if len(keys) and not unit.least <= int(keys.min()) <= int(keys.max()) <= unit.most:
            raise ChangedInput(
                f"{input_.uri}: row group {unit.group} has times outside of the bounds in its footer; write the file again"
            )
        known = input_.times()
        least, most = ends(keys)
        if known and least <= most:
            first, last = (to_microseconds(key, self._time) for key in (least, most))
            if not known[0] <= first <= last <= known[1]:
                raise ChangedInput(
                    f"{input_.uri} has times from {iso(least, self._time)} to {iso(most, self._time)}, outside of the expected "
                    f"{input_.min_time} to {input_.max_time}; restore the original file"
                )

    def _tally(self, rows: pa.Table, keys: Array) -> Tally:
        return Tally.of(rows, keys if self._time is not None else None)

    def _check_result(self, footer: Footer) -> None:
        """Raises WrongResult if the file to be completed differs from the rows read."""
        read, written = self._read, self._written
        expected = sum(found.rows for found in self._task.inputs)
        if not expected == read.rows == written.rows == footer.rows:
            raise self._wrong(
                f"{expected} rows were expected, {read.rows} read, {written.rows} written, and {footer.rows} are in the footer"
            )
        if (read.least, read.most) != (written.least, written.most):
            raise self._wrong("the first or the last time differs")
        for place, column in enumerate(self._schema):
            if read.nulls[place] != written.nulls[place] or read.sums[place] != written.sums[place]:
                raise self._wrong(f"the nulls or the sum of column {column.name} differ")
        if not any(pa.types.is_nested(column.type) for column in self._schema) and self._noted_nulls(footer) != list(
            read.nulls
        ):
            raise self._wrong("the null count of a column differs from its footer")

    def _noted_nulls(self, footer: Footer) -> list[int] | None:
        noted = [0] * len(self._schema)
        for number in range(len(footer.groups)):
            nulls = footer.nulls(number)
            if nulls is None:
                return None
            noted = [one + more for one, more in zip(noted, nulls, strict=True)]
        return noted

    def _wrong(self, what: str) -> WrongResult:
        return WrongResult(f"{self._task}: {what}; the result is not used. This is a defect: keep the inputs and report it")


def _steps(units: Sequence[_Unit], may_be_copied: Callable[[_Unit], bool]) -> list[_Unit | list[_Unit]]:
    """Units in the order of writing: single units that are copied, and lists of units whose rows are sorted together.

    A unit can be copied if its keys are after those of all units before it, and before those of all units after it.
    """
    steps: list[_Unit | list[_Unit]] = []
    before = (FIRST, -1)  # the largest key so far, and the place of its unit
    for number, unit in enumerate(units):
        after = units[number + 1] if number + 1 < len(units) else None
        apart = before < (unit.least, unit.place) and (after is None or (unit.most, unit.place) < (after.least, after.place))
        before = max(before, (unit.most, unit.place))
        if apart and may_be_copied(unit):
            steps.append(unit)
        elif steps and isinstance(steps[-1], list):
            steps[-1].append(unit)
        else:
            steps.append([unit])
    return steps


def _ahead(pool: Executor, work: Callable[[Item], Result], items: Iterable[Item], most: int) -> Iterator[Result]:
    """Yields the results of `work` in the order of the items, with at most `most` calls in progress."""
    waiting: deque[Future[Result]] = deque()
    for item in items:
        waiting.append(pool.submit(work, item))
        if len(waiting) >= most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _with_dictionary(column: pa.Field) -> pa.Field:
    return pa.field(column.name, pa.dictionary(pa.int32(), column.type), column.nullable)


def _encoded(rows: pa.Table, time_column: str | None, tried: list[str] | None = None) -> pa.Buffer:
    """Encodes rows as a Parquet file of one row group (zstd). `tried`: columns to encode with dictionaries; None for all."""
    order = [pq.SortingColumn(rows.schema.get_field_index(time_column))] if time_column else None
    sink = pa.BufferOutputStream()
    dictionaries: Any = True if tried is None else tried
    size = max(1, rows.num_rows)
    pq.write_table(rows, sink, compression="zstd", row_group_size=size, sorting_columns=order, use_dictionary=dictionaries)
    return sink.getvalue()


@contextmanager
def _created(uri: str) -> Generator[Any]:
    """Opens a new file for writing, and removes it after an error.

    Arrow's streams cannot be aborted: they are always closed, which completes the object in S3 with the bytes written so far.
    """
    stream = _stream(uri)
    try:
        with stream:
            yield stream
    except BaseException:
        with suppress(Exception):  # keeps the first error; a file that remains is garbage because no row names it
            _remove(uri)
        raise


def _remove(uri: str) -> None:
    folder, _, name = uri.rpartition("/")
    delete(folder, [name])


def _stream(uri: str) -> Any:
    """Opens a new file for sequential writing; in S3 as a multipart upload with parts of equal size."""
    system, path = storage.filesystem(uri)
    if storage.is_local(uri):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return system.open_output_stream(path, compression=None)
    return system.open_output_stream(path, compression=None, buffer_size=_UPLOAD)
