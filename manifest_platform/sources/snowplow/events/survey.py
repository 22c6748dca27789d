"""The survey of a batch: finds the duplicates of its directories before they are shredded.

A directory that is one task is surveyed by that task. The other directories are surveyed together by a Spark job, in which only
the identities of events move: about 70 bytes an event. The driver compares them itself if they are few, at most 32 MiB. Of
more it gets nothing but the marks of duplicates, 16 bytes each, and at most `shred.limits.duplicates` of a directory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from manifest_platform import storage
from manifest_platform.shred.batch import Task, Unreachable
from manifest_platform.shred.limits import InputLimits, LimitExceeded
from manifest_platform.shred.lines import Piece, chunks
from manifest_platform.sources.snowplow.events.duplicates import (
    IDENTITIES,
    NONE,
    Marks,
    decide,
    identities,
    repeated,
)
from manifest_platform.sources.snowplow.rules import Kinds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Pieces = tuple[Piece, ...]

_GROUP = 512 << 20
"""Bytes of input whose identities a task compares at once."""
_GATHERED = 32 << 20
"""Most bytes of identities that the driver compares itself."""
_SCANNED = "directory bigint, high bigint, low bigint, place bigint, offset bigint, fingerprint binary, etl binary"
_FOUND = "directory bigint, task bigint, duplicates bigint, marks binary, unread string"
_UNREAD = -1  # the place of a row that tells why a task could not be surveyed


@dataclass(frozen=True)
class Survey:
    """The duplicates of a batch.

    `marks`: by directory and task, the packed marks of directories with several tasks; the other directories are surveyed when
    they are shredded. `duplicates`: their number by directory. `unread`: by directory, why a part of it was not surveyed.
    """

    kinds: Kinds
    surveyed: frozenset[int] = frozenset()
    marks: Mapping[tuple[int, int], bytes] = field(default_factory=dict)
    duplicates: Mapping[int, int] = field(default_factory=dict)
    unread: Mapping[int, str] = field(default_factory=dict)

    def of(self, task: Task[_Pieces], limits: InputLimits) -> Marks:
        """Returns the marks of a task. Raises LimitExceeded if its directory has too many, and as `chunks` does."""
        if not self.kinds:
            return NONE
        if task.directory in self.surveyed:
            found, number = self._unpacked(task), self.duplicates.get(task.directory, 0)
        else:
            found = decide(repeated(_identities(task.part, range(len(task.part)), limits)), self.kinds)
            number = len(found)
        if number > limits.duplicates:
            met = f"has {number:,} lines that repeat the event id of another line"
            raise LimitExceeded("duplicates", task.some_files, met, f"{limits.duplicates:,} a directory")
        return found

    def _unpacked(self, task: Task[_Pieces]) -> Marks:
        packed = np.frombuffer(self.marks.get((task.directory, task.number), b""), np.int64).reshape(-1, 2)
        return Marks(packed[:, 0], packed[:, 1] >> 1, packed[:, 1] & 1)

    def require_whole(self, task: Task[_Pieces]) -> None:
        """Raises Unreachable if a part of the task's directory could not be surveyed, although the task could read its own."""
        if why := self.unread.get(task.directory):
            raise Unreachable(
                f"duplicates were not looked for in all files, because a file could not be read: {why}. Try again"
            )


def survey(spark: SparkSession, tasks: Sequence[Task[_Pieces]], kinds: Kinds, limits: InputLimits) -> Survey:
    """Surveys the directories of several tasks by one Spark job; without such directories no job runs."""
    counts = Counter(task.directory for task in tasks)
    several = [task for task in tasks if counts[task.directory] > 1]
    if not kinds or not several:
        return Survey(kinds)
    firsts = np.cumsum([0, *(len(task.part) for task in several)])  # the place of each task's first piece
    size = sum(piece.end - piece.start for task in several for piece in task.part)
    groups = max(2, -(-size // _GROUP))
    numbers = spark.range(0, len(several), 1, len(several))
    scan, find = _scan(several, firsts, limits), _find(several, firsts, kinds, limits)
    found = _gathered(numbers, scan, find, len(several)) if size <= _GROUP else None
    if found is None:
        scanned = numbers.mapInArrow(scan, _SCANNED)
        found = scanned.repartition(groups, "high", "low").mapInArrow(find, _FOUND).collect()
    marks: dict[tuple[int, int], list[bytes]] = defaultdict(list)
    duplicates: Counter[int] = Counter()
    unread: dict[int, str] = {}
    for directory, task, number, packed, why in found:
        if why is not None:
            unread[directory] = why
            continue
        duplicates[directory] += number
        if packed and duplicates[directory] <= limits.duplicates:
            marks[directory, task].append(bytes(packed))
    joined = {key: b"".join(parts) for key, parts in marks.items() if duplicates[key[0]] <= limits.duplicates}
    return Survey(kinds, frozenset(task.directory for task in several), joined, dict(duplicates), unread)


_Mapped = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _gathered(numbers: DataFrame, scan: _Mapped, find: _Mapped, tasks: int) -> list[tuple[Any, ...]] | None:
    """Returns what `find` finds in all identities together, here; None if they are too many for that.

    For a few hundred MB of events this takes a third of the time that moving the identities between tasks takes.
    """
    rows = numbers.mapInArrow(_packed(scan, _GATHERED // tasks), "identities binary").collect()
    packed = [row[0] for row in rows]
    if None in packed:
        return None
    batches = [batch for one in packed for batch in pa.ipc.open_stream(pa.py_buffer(bytes(one)))]
    return [tuple(row.values()) for batch in find(batches) for row in batch.to_pylist()]


def _packed(scan: _Mapped, most: int) -> _Mapped:
    """Returns the function that gives what `scan` yields in one value; null for more than this number of bytes."""

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        whole, size = list[pa.RecordBatch](), 0
        for found in scan(batches):
            whole.append(found)
            size += found.nbytes
            if size > most:
                yield pa.RecordBatch.from_arrays([pa.nulls(1, pa.binary())], ["identities"])
                return
        if whole:
            stream = pa.BufferOutputStream()
            with pa.ipc.new_stream(stream, whole[0].schema) as writer:
                for found in whole:
                    writer.write_batch(found)
            yield pa.RecordBatch.from_arrays([pa.array([stream.getvalue().to_pybytes()], pa.binary())], ["identities"])

    return pack


def _scan(tasks: Sequence[Task[_Pieces]], firsts: np.ndarray, limits: InputLimits) -> _Mapped:
    """Returns the function from numbers of tasks to the identities of their lines."""
    here = storage.surroundings()

    def scan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        here.adopt()
        for number in (one for ids in batches for one in ids.column(0).to_pylist()):
            task = tasks[number]
            try:
                for found in _identities(task.part, range(int(firsts[number]), int(firsts[number + 1])), limits):
                    yield _of_directory(task.directory, found)
            except Exception as error:  # shredding meets it again, and then says whose fault it is
                row = [[0], [0], [_UNREAD], [0], [b""], [f"{type(error).__name__}: {error}".encode()]]
                yield _of_directory(task.directory, pa.RecordBatch.from_arrays(list(map(pa.array, row)), schema=IDENTITIES))

    return scan


def _of_directory(directory: int, found: pa.RecordBatch) -> pa.RecordBatch:
    numbers = pa.array(np.full(found.num_rows, directory, np.int64))
    return pa.RecordBatch.from_arrays([numbers, *found.columns], ["directory", *IDENTITIES.names])


def _find(tasks: Sequence[Task[_Pieces]], firsts: np.ndarray, kinds: Kinds, limits: InputLimits) -> _Mapped:
    """Returns the function from the identities of some ids to the marks of their lines by task."""
    most, directories = limits.duplicates, [task.directory for task in tasks]
    numbers = [task.number for task in tasks]

    def find(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        by_directory: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        for batch in batches:
            of = batch.column(0).to_numpy()
            for directory in np.unique(of).tolist():
                mine = batch.filter(pa.array(of == directory)).select(IDENTITIES.names)
                lost = mine.filter(pa.array(mine.column("place").to_numpy() == _UNREAD))
                for why in lost.column("etl").to_pylist():
                    yield _row(directory, 0, 0, b"", why.decode())
                if mine.num_rows > lost.num_rows:
                    whole = mine.cast(IDENTITIES) if mine.schema != IDENTITIES else mine
                    by_directory[directory].append(whole.filter(pa.array(whole.column("place").to_numpy() != _UNREAD)))
        for directory, parts in by_directory.items():
            marks = decide(repeated(parts), kinds)
            if len(marks) > most:
                yield _row(directory, 0, len(marks), b"", None)
                continue
            owners = np.searchsorted(firsts, marks.places, side="right") - 1
            for owner in np.unique(owners).tolist():
                mine = owners == owner
                marked = (marks.offsets[mine] << 1) | marks.verdicts[mine]
                packed = np.stack([marks.places[mine] - firsts[owner], marked], axis=1).astype(np.int64)
                assert directories[owner] == directory
                yield _row(directory, numbers[owner], len(packed), packed.tobytes(), None)

    return find


def _row(directory: int, task: int, duplicates: int, marks: bytes, unread: str | None) -> pa.RecordBatch:
    columns = [
        pa.array([directory], pa.int64()),
        pa.array([task], pa.int64()),
        pa.array([duplicates], pa.int64()),
        pa.array([marks], pa.binary()),
        pa.array([unread], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, ["directory", "task", "duplicates", "marks", "unread"])


def _identities(pieces: _Pieces, places: Sequence[int], limits: InputLimits) -> Iterator[pa.RecordBatch]:
    """Yields the identities of the lines of pieces. A line that is too long is no event."""
    for place, piece in zip(places, pieces, strict=True):
        for offset, data in chunks(piece, limits=limits):
            if isinstance(data, bytes):
                yield identities(data, place, offset)
