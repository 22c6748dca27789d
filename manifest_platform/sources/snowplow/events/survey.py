"""The survey of a batch: finds the duplicates of its directories before they are shredded.

A directory that is one task is surveyed by that task. The other directories are surveyed together by a Spark job, in which only
the identities of events move: about 70 bytes an event. The driver compares them itself if they are few, at most 32 MiB. Of
more it gets nothing but the marks of duplicates, 16 bytes each, and at most `shred.limits.duplicates` of a directory.

A good line must not be left out for a bad copy of it. So the natural duplicates, and no other lines, are read again and
shredded to see which of them are bad.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from manifest_platform import storage
from manifest_platform.shred.batch import CHUNK, Task, Unreachable
from manifest_platform.shred.limits import InputLimits, LimitExceeded
from manifest_platform.shred.lines import Piece, chunks
from manifest_platform.sources.snowplow.events.duplicates import (
    GOOD,
    IDENTITIES,
    NONE,
    Marks,
    decide,
    identities,
    natural,
    repeated,
)
from manifest_platform.sources.snowplow.rules import Kinds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Pieces = tuple[Piece, ...]
Check = Callable[[Sequence[bytes]], Sequence[int]]
"""The function from lines to their ranks, as `duplicates` names them."""

_GROUP = 512 << 20
"""Bytes of input whose identities a task compares at once."""
_GATHERED = 32 << 20
"""Most bytes of identities that the driver compares itself."""
_SCANNED = "directory bigint, high bigint, low bigint, place bigint, offset bigint, fingerprint binary, etl binary"
_FOUND = "directory bigint, owner bigint, duplicates bigint, marks binary, copies binary, unread string"
_RANKED = "directory bigint, ranks binary, unread string"
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

    def of(self, task: Task[_Pieces], limits: InputLimits, check: Check) -> Marks:
        """Returns the marks of a task. Raises LimitExceeded if its directory has too many, and as `chunks` and `check` do."""
        if not self.kinds:
            return NONE
        if task.directory in self.surveyed:
            _refuse_too_many(self.duplicates.get(task.directory, 0), task, limits)
            return _unpacked(self.marks.get((task.directory, task.number), b""))
        found = repeated(_identities(task.part, range(len(task.part)), limits))
        marks = decide(found, self.kinds)
        _refuse_too_many(len(marks), task, limits)
        ranks = _ranks(task.part, natural(found), limits, check) if self.kinds.natural else NONE
        return decide(found, self.kinds, ranks) if len(ranks) else marks

    def require_whole(self, task: Task[_Pieces]) -> None:
        """Raises Unreachable if a part of the task's directory could not be surveyed, although the task could read its own."""
        if why := self.unread.get(task.directory):
            raise Unreachable(
                f"duplicates were not looked for in all files, because a file could not be read: {why}. Try again"
            )


def _refuse_too_many(number: int, task: Task[_Pieces], limits: InputLimits) -> None:
    if number > limits.duplicates:
        met = f"has {number:,} lines that repeat the event id of another line"
        raise LimitExceeded("duplicates", task.some_files, met, f"{limits.duplicates:,} a directory")


def survey(
    spark: SparkSession,
    tasks: Sequence[Task[_Pieces]],
    kinds: Kinds,
    limits: InputLimits,
    checks: Callable[[int], Check],
) -> Survey:
    """Surveys the directories of several tasks by one Spark job; without such directories no job runs.

    Natural duplicates among them need another job. `checks`: returns the check of a directory's lines.
    """
    counts = Counter(task.directory for task in tasks)
    several = [task for task in tasks if counts[task.directory] > 1]
    if not kinds or not several:
        return Survey(kinds)
    firsts = np.cumsum([0, *(len(task.part) for task in several)])  # the place of each task's first piece
    size = sum(piece.end - piece.start for task in several for piece in task.part)
    groups = max(2, -(-size // _GROUP))
    numbers = spark.range(0, len(several), 1, len(several))
    scan = _scan(several, firsts, limits)
    gathered = _gathered(numbers, scan, len(several)) if size <= _GROUP else None

    def look(ranks: Marks) -> list[_Found]:
        find = _find(several, firsts, kinds, limits, ranks)
        if gathered is not None:
            return [_Found(**row) for batch in find(gathered) for row in batch.to_pylist()]
        moved = numbers.mapInArrow(scan, _SCANNED).repartition(groups, "high", "low")
        return [_Found(**row.asDict()) for row in moved.mapInArrow(find, _FOUND).collect()]

    found = look(NONE)
    unread = {one.directory: one.unread for one in found if one.unread is not None}
    duplicates: Counter[int] = Counter()
    for one in found:
        duplicates[one.directory] += one.duplicates
    few = [one for one in found if one.unread is None and duplicates[one.directory] <= limits.duplicates]
    copies = _joined((one.owner, one.copies) for one in few)
    if copies:
        known = list(copies.items())
        rank = _rank(several, firsts, known, limits, checks)
        ranked = spark.range(0, len(known), 1, len(known)).mapInArrow(rank, _RANKED).collect()
        unread |= {directory: why for directory, _, why in ranked if why is not None}
        ranks = _unpacked(b"".join(bytes(packed) for _, packed, _ in ranked))
        if len(ranks):
            found = look(ranks)
            unread |= {one.directory: one.unread for one in found if one.unread is not None}
            few = [one for one in found if one.unread is None and duplicates[one.directory] <= limits.duplicates]
    marks = _joined((one.owner, one.marks) for one in few)
    by_task = {(several[owner].directory, several[owner].number): packed for owner, packed in marks.items()}
    return Survey(kinds, frozenset(task.directory for task in several), by_task, dict(duplicates), unread)


@dataclass(frozen=True)
class _Found:
    """Marks of a task: `owner` is its place among the tasks that are surveyed. `copies`: its natural duplicates."""

    directory: int
    owner: int
    duplicates: int
    marks: bytes
    copies: bytes
    unread: str | None


def _joined(parts: Iterable[tuple[int, bytes]]) -> dict[int, bytes]:
    """Returns the packed marks of each owner that has some."""
    joined: dict[int, list[bytes]] = defaultdict(list)
    for owner, packed in parts:
        if packed:
            joined[owner].append(bytes(packed))
    return {owner: b"".join(packed) for owner, packed in joined.items()}


def _packed_marks(marks: Marks) -> bytes:
    return np.stack([marks.places, (marks.offsets << 2) | marks.verdicts], axis=1).astype(np.int64).tobytes()


def _unpacked(packed: bytes) -> Marks:
    numbers = np.frombuffer(packed, np.int64).reshape(-1, 2)
    return Marks(numbers[:, 0], numbers[:, 1] >> 2, numbers[:, 1] & 3)


_Mapped = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _gathered(numbers: DataFrame, scan: _Mapped, tasks: int) -> list[pa.RecordBatch] | None:
    """Returns all identities; None if they are too many for the driver.

    For a few hundred MB of events this takes a third of the time that moving the identities between tasks takes.
    """
    rows = numbers.mapInArrow(_packed(scan, _GATHERED // tasks), "identities binary").collect()
    packed = [row[0] for row in rows]
    if None in packed:
        return None
    return [batch for one in packed for batch in pa.ipc.open_stream(pa.py_buffer(bytes(one)))]


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


def _find(tasks: Sequence[Task[_Pieces]], firsts: np.ndarray, kinds: Kinds, limits: InputLimits, ranks: Marks) -> _Mapped:
    """Returns the function from the identities of some ids to the marks of their lines by task."""
    most, directories = limits.duplicates, [task.directory for task in tasks]

    def find(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        by_directory: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        for batch in batches:
            of = batch.column(0).to_numpy()
            for directory in np.unique(of).tolist():
                mine = batch.filter(pa.array(of == directory)).select(IDENTITIES.names)
                lost = mine.filter(pa.array(mine.column("place").to_numpy() == _UNREAD))
                for why in lost.column("etl").to_pylist():
                    yield _row(directory, unread=why.decode())
                if mine.num_rows > lost.num_rows:
                    whole = mine.cast(IDENTITIES) if mine.schema != IDENTITIES else mine
                    by_directory[directory].append(whole.filter(pa.array(whole.column("place").to_numpy() != _UNREAD)))
        for directory, parts in by_directory.items():
            found = repeated(parts)
            marks = decide(found, kinds, ranks)
            if len(marks) > most:
                yield _row(directory, duplicates=len(marks))
                continue
            copies = _by_owner(natural(found), firsts) if kinds.natural else {}
            for owner, mine in _by_owner(marks, firsts).items():
                assert directories[owner] == directory
                yield _row(directory, owner, len(mine), _packed_marks(mine))
            for owner, mine in copies.items():
                yield _row(directory, owner, copies=_packed_marks(mine))

    return find


def _by_owner(marks: Marks, firsts: np.ndarray) -> dict[int, Marks]:
    """Returns marks by the task that has their lines, with the number of the piece within the task as place."""
    owners = np.searchsorted(firsts, marks.places, side="right") - 1
    return {
        owner: Marks(marks.places[mine] - firsts[owner], marks.offsets[mine], marks.verdicts[mine])
        for owner in np.unique(owners).tolist()
        for mine in (owners == owner,)
    }


def _row(
    directory: int, owner: int = 0, duplicates: int = 0, marks: bytes = b"", copies: bytes = b"", unread: str | None = None
) -> pa.RecordBatch:
    columns = [
        pa.array([directory], pa.int64()),
        pa.array([owner], pa.int64()),
        pa.array([duplicates], pa.int64()),
        pa.array([marks], pa.binary()),
        pa.array([copies], pa.binary()),
        pa.array([unread], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, ["directory", "owner", "duplicates", "marks", "copies", "unread"])


def _rank(
    tasks: Sequence[Task[_Pieces]],
    firsts: np.ndarray,
    copies: Sequence[tuple[int, bytes]],
    limits: InputLimits,
    checks: Callable[[int], Check],
) -> _Mapped:
    """Returns the function from numbers of `copies`, natural duplicates by task, to the ranks of those that are not good."""
    here = storage.surroundings()

    def rank(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        here.adopt()
        for number in (one for ids in batches for one in ids.column(0).to_pylist()):
            owner, packed = copies[number]
            task = tasks[owner]
            ranks, why = NONE, None
            try:
                ranks = _ranks(task.part, _unpacked(packed), limits, checks(task.directory))
            except Exception as error:  # shredding meets it again, and then says whose fault it is
                why = f"{type(error).__name__}: {error}"
            moved = Marks(ranks.places + firsts[owner], ranks.offsets, ranks.verdicts)
            columns = [pa.array([task.directory], pa.int64()), pa.array([_packed_marks(moved)]), pa.array([why], pa.string())]
            yield pa.RecordBatch.from_arrays(columns, ["directory", "ranks", "unread"])

    return rank


def _ranks(pieces: _Pieces, copies: Marks, limits: InputLimits, check: Check) -> Marks:
    """Returns the ranks of those marked lines of pieces that are not good. Raises as `chunks` and `check` do."""
    found: list[tuple[int, int, int]] = []
    for some in _portions(_marked_lines(pieces, copies, limits)):
        ranks = check([line for _, _, line in some])
        found += [(place, at, rank) for (place, at, _), rank in zip(some, ranks, strict=True) if rank != GOOD]
    columns = np.array(found, np.int64).reshape(-1, 3)
    return Marks(columns[:, 0], columns[:, 1], columns[:, 2])


_Line = tuple[int, int, bytes]


def _marked_lines(pieces: _Pieces, marks: Marks, limits: InputLimits) -> Iterator[_Line]:
    """Yields place, offset and bytes of each marked line. A piece without one is not read."""
    for place, piece in enumerate(pieces):
        mine = marks.of(place)
        for offset, data in chunks(piece, limits=limits) if mine else ():
            for at, line in mine.lines(data, offset) if mine and isinstance(data, bytes) else ():
                yield place, at, line


def _portions(lines: Iterable[_Line]) -> Iterator[list[_Line]]:
    """Yields lines in portions of about a chunk: shredding a few lines takes as long as shredding some hundred."""
    some, size = list[_Line](), 0
    for one in lines:
        some.append(one)
        size += len(one[2])
        if size >= CHUNK:
            yield some
            some, size = [], 0
    if some:
        yield some


def _identities(pieces: _Pieces, places: Sequence[int], limits: InputLimits) -> Iterator[pa.RecordBatch]:
    """Yields the identities of the lines of pieces. A line that is too long is no event."""
    for place, piece in zip(places, pieces, strict=True):
        for offset, data in chunks(piece, limits=limits):
            if isinstance(data, bytes):
                yield identities(data, place, offset)
