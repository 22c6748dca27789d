"""Shreds a batch of directories in one Spark job, and returns a listing or a failure for each.

Spark only distributes the work: each task reads its part of a directory, writes its own Parquet files, and returns what it
wrote. A directory that fails does not affect the others. The source's shredder knows what the bytes mean.
"""

from __future__ import annotations

import gzip
import itertools
import math
import os
import traceback
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar
from uuid import uuid4

import orjson

from manifest_platform import extras, failpoints, landed_files, packs, storage
from manifest_platform.column_types import widened
from manifest_platform.faults import Misconfigured, Permanent, Transient
from manifest_platform.listing import (
    BAD_ROWS,
    BAD_TABLE,
    LISTING_FILE,
    NO_DUPLICATES,
    BadRowsFile,
    Column,
    Duplicates,
    Listing,
    Pack,
    Retired,
    ShreddedObject,
    ShreddedType,
    Table,
)
from manifest_platform.remedies import LAND_ANEW, Action, Remedy
from manifest_platform.shred.files import Dated, encoded, store
from manifest_platform.shred.limits import InputLimits, LimitExceeded

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

CHUNK = 4 << 20
"""Number of bytes of a file that are shredded at a time."""

SEVERAL_DATES = "several-dates"
"""The folder of a table's files that hold several dates each. A file of one date is in `date=YYYY-MM-DD`."""

_TOGETHER = 2 << 20
"""Most bytes of small directories that one task of Spark does: a task costs as much processor time as a run of a few events."""

_WRITERS = 8  # concurrent writes of one task, because each write to an object store takes round trips

Part = TypeVar("Part")


class Unusable(ValueError, Permanent):
    """The content of a directory cannot be shredded. The message says what is wrong, where, and what to do.

    `remedy`: the action for a person; by default, to land the directory again and accept it. None: to resolve the item.
    """

    def __init__(self, message: str, remedy: Remedy | None = LAND_ANEW) -> None:
        super().__init__(message)
        self.remedy = remedy


class SchemaError(ValueError):
    """A schema cannot become a table. Permanent: only another schema helps."""


class TwoFamilies(SchemaError, Permanent):
    """Two families of a source's types make the same table. The message is the same whichever came first."""

    def __init__(self, table: str, one: str, other: str) -> None:
        first, second = sorted((one, other))
        super().__init__(
            f"{first} and {second} both make the table {table}: give one of them another table in the dataset's "
            f"configuration, as shred.tables: {{{second}: {table}_2}}"
        )


class FileChanged(Unusable):
    """A file has another size than its directory was registered with. Landed files must not change."""


class Unreachable(RuntimeError, Transient):
    """Shredding needs something that cannot be reached now. The message says what."""


@dataclass(frozen=True)
class Options:
    """The division of the work, and the bad lines that a directory may have.

    A directory fails if none of its lines is good. It also fails if the bad lines are more than the share `max_bad_share` of
    its lines and, in addition, more than `max_bad_count` or more than half of them. So a few bad lines in a small directory
    pass, and a small share of a large directory passes. A directory of mostly bad lines never passes.

    `split_size`: the bytes of a task. `limits`: the limits of a directory. `date_files`: True to give each date files of its
    own, for readers that cannot read a part of a file. `pack`: the most bytes of Parquet of a task that become one pack.
    """

    split_size: int = 32 << 20
    max_bad_share: float = 0.05
    max_bad_count: int = 10
    limits: InputLimits = field(default_factory=InputLimits)
    date_files: bool = False
    pack: int = 0

    def allows(self, bad: int, lines: int) -> bool:
        """True if a directory with `lines` lines may have `bad` bad lines."""
        if not bad:
            return True
        return bad < lines and (bad <= self.max_bad_share * lines or bad <= min(self.max_bad_count, lines / 2))

    def most_bad(self, good: int) -> int | None:
        """The largest number of bad lines for a directory of at most `good` good lines; None if there is no limit."""
        if self.max_bad_share >= 1:
            return None
        return max(math.ceil(good * self.max_bad_share / (1 - self.max_bad_share)), min(self.max_bad_count, good))


@dataclass(frozen=True)
class Directory:
    """A directory to shred: its URI, its files as (URI, size in bytes), and the output of this attempt.

    `root`: the URI of the landing root; no symbolic link below it is followed. Without a root, no file may be a link itself.
    `replayed`: the lines that are loaded with other items, by `digest_of`, each with the name of that item. They are bad rows
    here, whatever the schemas say by now.
    """

    item: str
    files: tuple[tuple[str, int], ...]
    output: str
    attempt: str
    root: str = field(default="", kw_only=True)
    replayed: Mapping[str, str] = field(default_factory=dict, kw_only=True, hash=False)


class Cause(StrEnum):
    """The cause of a failed shred, which decides what happens to the item.

    ITEM: its content; it waits for a person. DIED: the Spark job died although Spark works, so that a directory of the job is
    to blame. LOST: Spark was lost together with the job. OUTAGE: another system cannot be reached now. CONFIGURATION: another
    system refuses access, or a worker lacks a package, until a person fixes it. LOST, OUTAGE and CONFIGURATION are not charged
    to an item.
    """

    ITEM = "item"
    DIED = "died"
    LOST = "lost"
    OUTAGE = "outage"
    CONFIGURATION = "configuration"


@dataclass(frozen=True)
class ShredFailure:
    """The reason why a directory could not be shredded. `error`: the exception, if it was not raised in a task.

    `helps`: the action for a person; None: to resolve the item. For too many bad lines, the message has an example and the
    URI of the Parquet file with all reasons. The files of the attempt stay under its prefix; no record names them.
    """

    item: str
    attempt: str
    message: str
    cause: Cause = Cause.ITEM
    error: Exception | None = field(default=None, compare=False)
    helps: Action | None = None

    @classmethod
    def of(cls, directory: Directory, error: Exception) -> ShredFailure:
        """The failure of a directory because of an error."""
        return cls(directory.item, directory.attempt, str(error), cause_of(error), error)


def cause_of(error: Exception) -> Cause:
    """The cause of an error, by its type."""
    if isinstance(error, Transient):
        return Cause.OUTAGE
    if isinstance(error, (Misconfigured, ImportError)):
        return Cause.CONFIGURATION
    if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
        return Cause.CONFIGURATION if storage.is_refusal(error) else Cause.OUTAGE
    return Cause.ITEM


@dataclass(frozen=True)
class Task(Generic[Part]):
    """A part of a directory, shredded by one Spark task.

    `directory`: the directory's index in the batch. `number`: the task's number within the directory. `files`: the URIs that it
    reads, for messages. `mark`: what makes the names of its files differ from those of another try of the same task.
    """

    directory: int
    number: int
    output: str
    files: tuple[str, ...]
    part: Part
    mark: str = ""

    @property
    def some_files(self) -> str:
        """The task's files for messages: the first three and the number of the others."""
        files = sorted(set(self.files))
        return ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")


@dataclass(frozen=True)
class Beside:
    """Bad rows in the form that the source's own tools read: a folder, the number of rows, and a line for each as JSON."""

    folder: str
    rows: int
    lines: bytes


@dataclass
class Written:
    """The counts and objects of a task, or of all tasks of a directory. `stopped`: True if a task left input unread.

    `types`: number of rows by table and, within a table, by type. `counts`: further numbers of the source, by its own names.
    """

    lines: int = 0
    good: int = 0
    bad: int = 0
    tables: dict[str, Table] = field(default_factory=dict)
    objects: list[ShreddedObject] = field(default_factory=list)
    retired: list[Retired] = field(default_factory=list)
    types: dict[str, dict[str, int]] = field(default_factory=dict)
    duplicates: Duplicates = NO_DUPLICATES
    example: str = ""  # the first bad line with its first reason
    stopped: bool = False
    bad_rows: list[BadRowsFile] = field(default_factory=list)
    packs: list[Pack] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def define(self, table: Table) -> None:
        """Adds a table, or widens its columns. Raises SchemaError if it conflicts with the known definition."""
        self.tables[table.name] = _merged(self.tables.get(table.name, table), table)

    def count(self, table: str, types: Mapping[str, int]) -> None:
        """Adds numbers of rows of a table by type."""
        counted = self.types.setdefault(table, {})
        for type_, rows in types.items():
            counted[type_] = counted.get(type_, 0) + rows

    def tally(self, counts: Mapping[str, int]) -> None:
        """Adds further numbers of the source."""
        for name, number in counts.items():
            self.counts[name] = self.counts.get(name, 0) + number


_PACKED = 20
"""The largest ratio of rows in memory to a pack, whose size is known when they are encoded."""

_ARROW = 4
"""Largest ratio of the memory for waiting rows to the bytes of input that may wait."""


class Writer:
    """Writes the rows of a task. Rows wait in memory until they are many; then each table becomes a file.

    `dated` divides a table's rows by date, dates ascending. In a file of several dates, each has row groups of its own. The
    same rows in the same chunks give the same files, but for the mark in their names. `add` and `close` raise LimitExceeded if
    the task alone has more dates, files or bad rows than a directory may have.
    """

    def __init__(
        self,
        task: Task,
        most: int,
        dated: Callable[[str, pa.Table], Iterable[Dated]],
        limits: InputLimits | None = None,
        most_bad: int | None = None,
        published: Callable[[pa.Table], Iterable[Beside]] | None = None,
        date_files: bool = False,
        pack: int = 0,
    ):
        """`most`: bytes of input that may wait in memory. `most_bad`: the directory certainly fails with more bad rows.

        `published`: the form of bad rows that the source's own tools read, if there is one. `date_files`: True to give each
        date a file of its own. `pack`: the most bytes of Parquet that become one pack.
        """
        self.written = Written()
        self._task = task
        self._most = most
        self._dated = dated
        self._limits = limits or InputLimits()
        self._most_bad = most_bad
        self._published = published
        self._date_files = date_files
        self._pack = pack
        self._held: dict[str, list[pa.Table]] = defaultdict(list)
        self._dates: set[str] = set()
        self._bytes = self._arrow = self._flushes = 0

    @property
    def is_hopeless(self) -> bool:
        """True if the directory will certainly fail. The task should then stop reading and close."""
        return self._most_bad is not None and self.written.bad > self._most_bad

    def add(self, table: Table, rows: pa.Table | None = None, types: Mapping[str, int] | None = None) -> None:
        """Adds a table, with rows or only with its columns. A table without rows makes no file.

        `types`: numbers of rows by type; by default, all rows are of the table's family, or else of the table's own name.
        """
        self.written.define(table)
        if rows is not None and rows.num_rows and table.name != BAD_TABLE and table.mode != "delete":
            self.written.count(table.name, types or {table.family or table.name: rows.num_rows})
        if rows is not None and rows.num_rows:
            self._held[table.name].append(rows)
            self._arrow += rows.nbytes

    def chunk_done(self, size: int, good: int, bad_table: Table, bad: pa.Table) -> None:
        """Counts a chunk of `size` bytes, adds its bad rows, and writes waiting rows to files if they are many."""
        from manifest_platform.shred.rows import example

        self.written.lines += good + bad.num_rows
        self.written.good += good
        self.written.bad += bad.num_rows
        if bad.num_rows:
            self.add(bad_table, bad)
            self.written.example = self.written.example or example(bad)
        self._bytes += size
        if self._bytes > self._most or self._arrow > _ARROW * self._most:
            self._flush()
        if self.written.bad > self._limits.bad_rows:
            self._flush()
            raise _too_many_kept(self._task.some_files, self.written, self._limits)

    def repeated(self, found: Duplicates) -> None:
        """Counts duplicates of a chunk. Natural ones are lines beside the good and the bad, synthetic ones are good lines."""
        self.written.lines += found.natural
        self.written.duplicates += found

    def close(self) -> Written:
        """Writes the waiting rows, and returns all results."""
        self._flush()
        self.written.stopped = self.is_hopeless
        return self.written

    def _flush(self) -> None:
        def write(file: tuple[str, Sequence[Dated]]) -> ShreddedObject:
            found, data = encode(file)
            store(found.uri, data)
            return found

        def encode(file: tuple[str, Sequence[Dated]]) -> tuple[ShreddedObject, pa.Buffer]:
            name, dates = file
            folder = f"date={dates[0].date}" if len(dates) == 1 else SEVERAL_DATES
            return encoded(name, f"{self._task.output}/{name}/{folder}/{self._part}.parquet", dates)

        files = list(self._files())
        with ThreadPoolExecutor(_WRITERS) as pool:
            if self._arrow <= _PACKED * self._pack:
                self._write_together(list(pool.map(encode, files)), pool)
            else:
                self.written.objects += pool.map(write, files)
        for name, dates in files:
            if name == BAD_TABLE and self._published:
                for dated in dates:
                    self.written.bad_rows += map(self._beside, self._published(dated.rows))
        self._held.clear()
        self._flushes, self._bytes, self._arrow = self._flushes + 1, 0, 0

    @property
    def _part(self) -> str:
        """The name of the files that are written now."""
        return f"{self._task.number:05d}-{self._flushes:03d}{self._task.mark}"

    def _write_together(self, files: Sequence[tuple[ShreddedObject, pa.Buffer]], pool: Executor) -> None:
        """Writes encoded files as a pack if they are small. Bad rows have a file of their own: people read it themselves."""
        alone = [(found, data) for found, data in files if found.table == BAD_TABLE]
        together = [(found, data) for found, data in files if found.table != BAD_TABLE]
        if len(together) > 1 and sum(found.bytes for found, _ in together) <= self._pack:
            uri = f"{self._task.output}/{self._part}{packs.SUFFIX}"
            found = [replace(one, pack=uri) for one, _ in together]
            data = packs.packed({packs.member_of(one): memoryview(of) for one, (_, of) in zip(found, together, strict=True)})
            storage.write_bytes(uri, data)
            self.written.packs.append(Pack(uri, len(data), storage.checksum(data)))
            self.written.objects += found
        else:
            alone += together
        list(pool.map(lambda file: store(file[0].uri, file[1]), alone))
        self.written.objects += [found for found, _ in alone]

    def _beside(self, rows: Beside) -> BadRowsFile:
        """Writes bad rows as a compressed file of lines. The same rows give the same bytes."""
        uri = f"{self._task.output}/{BAD_ROWS}/{rows.folder}/{self._part}.jsonl.gz"
        data = gzip.compress(rows.lines, 6, mtime=0)
        storage.write_bytes(uri, data)
        return BadRowsFile(uri, rows.rows, len(data), storage.checksum(memoryview(data)))

    def _files(self) -> Iterator[tuple[str, Sequence[Dated]]]:
        """The waiting rows by file: its table and its dates. Raises LimitExceeded before there are too many dates or files."""
        import pyarrow as pa

        count = len(self.written.objects)
        for name, tables in sorted(self._held.items()):
            dates = []
            for dated in self._dated(name, pa.concat_tables(tables, promote_options="permissive")):
                count += self._date_files or not dates
                if name != BAD_TABLE:
                    self._dates.add(dated.date)
                if excess := _too_spread(self._task.some_files, self._dates, count, self._limits):
                    raise excess
                dates.append(dated)
            yield from ((name, [one]) for one in dates) if self._date_files else ((name, dates),)


def _too_spread(where: str, dates: Collection[str], files: int, limits: InputLimits) -> LimitExceeded | None:
    """The error for rows of too many dates or for too many files; None within the limits."""
    if len(dates) > limits.dates:
        met = f"has events of more than {limits.dates:,} dates, from {min(dates)} to {max(dates)}"
        return LimitExceeded("dates", where, met, f"{limits.dates:,} a directory")
    if files > limits.files:
        met = f"would become more than {limits.files:,} files, one or more for each table of a portion"
        return LimitExceeded("files", where, met, f"{limits.files:,} a directory")
    return None


def _too_many_kept(where: str, written: Written, limits: InputLimits) -> LimitExceeded:
    """The error for more bad rows than are kept."""
    met = f"has more than {limits.bad_rows:,} bad rows among its first {written.lines:,}, for example {written.example}"
    return LimitExceeded("bad_rows", where, f"{met}; those are in {_bad_files(written)}", f"{limits.bad_rows:,} a directory")


def _bad_files(written: Written) -> str:
    """The URIs of the files of bad rows, for messages."""
    found = [one.uri for one in written.objects if one.table == BAD_TABLE]
    return found[0] + (f" and {len(found) - 1} more" if len(found) > 1 else "")


def open_landed(uri: str, size: int, root: str = "") -> BinaryIO:
    """Opens a file of a directory for reading. Raises FileChanged if its size differs, NotFollowed or OSError."""
    file = landed_files.open_file(uri, root)
    found = file.seek(0, os.SEEK_END)
    if found == size:
        file.seek(0)
        return file
    with file:
        raise FileChanged(f"{uri} has {found} bytes but was registered with {size}; land changed data as a new directory")


# The job


def shred_batch(
    spark: SparkSession,
    directories: Sequence[Directory],
    tasks: Sequence[Task[Part]],
    work: Callable[[Task[Part]], Written],
    options: Options,
) -> list[Listing | ShredFailure]:
    """Runs the tasks of all directories in one Spark job, and returns the results in the order of the directories.

    `work` runs in Spark's workers, so it must be picklable. An exception in `work` fails the task's directory, with a Cause by
    its type. Each listing is written to `output/listing.json` after the job. Without tasks, no job runs. If the job dies, for
    example with a crashed worker, all directories fail. An empty job then shows whether Spark works (DIED) or not (LOST).
    """
    try:
        results = _run(spark, tasks, work, _groups(directories, tasks))
    except Exception as error:
        return failures_of(error, spark, directories, work)
    failpoints.reach("shred.job_done")
    return [_conclude(directory, results[index], options) for index, directory in enumerate(directories)]


def failures_of(
    error: Exception, spark: SparkSession, directories: Sequence[Directory], work: Callable[[Task[Part]], Written]
) -> list[Listing | ShredFailure]:
    """Returns the failures of all directories whose Spark job died with an error."""
    cause = Cause.DIED if _works(spark, work) else Cause.LOST
    said = str(error).partition("\n\tat ")[0].strip()  # without the Java stack trace
    message = f"the Spark job died: {type(error).__name__}: {said[:1500]}; see Spark's log"
    return [ShredFailure(directory.item, directory.attempt, message, cause) for directory in directories]


def _works(spark: SparkSession, work: Callable[[Task[Part]], Written]) -> bool:
    """True if Spark runs an empty job whose workers load everything that `work` needs."""

    def nothing(_task: Task) -> Written:
        needed = (work,)  # a reference, so that `work` is unpickled, too
        return Written(lines=len(needed) - 1)

    try:
        _run(spark, [Task(0, 0, "", (), None)], nothing)
    except Exception:
        return False
    return True


def works(spark: SparkSession) -> bool:
    """True if Spark runs an empty job."""
    return _works(spark, lambda _task: Written())


def _groups(directories: Sequence[Directory], tasks: Sequence[Task]) -> list[list[int]]:
    """Returns the numbers of the tasks that a single Spark task does: those of small directories that follow each other."""
    parts = Counter(task.directory for task in tasks)
    groups: list[list[int]] = []
    room = 0
    for number, task in enumerate(tasks):
        size = sum(size for _, size in directories[task.directory].files)
        if parts[task.directory] == 1 and size <= room:
            groups[-1].append(number)
            room -= size
        else:
            groups.append([number])
            room = _TOGETHER - size if parts[task.directory] == 1 else 0
    return groups


def _run(
    spark: SparkSession,
    tasks: Sequence[Task[Part]],
    work: Callable[[Task[Part]], Written],
    groups: Sequence[Sequence[int]] | None = None,
) -> dict[int, list[bytes]]:
    """The results of all tasks by directory, from one Spark job; empty without tasks.

    Each is compressed JSON, a tenth of its size: the driver has those of all tasks at once. `groups`: the numbers of the tasks
    that a single Spark task does; by default, each has a Spark task of its own.

    Each try of a Spark task writes files under names of its own. Spark runs a task again if it loses a worker, a second time at
    once if it speculates, and a whole job again if an answer of its server is lost; and a job that died is repeated. The other
    try may still write, and a file that it writes again is no longer the file of the listing.
    """
    results: dict[int, list[bytes]] = defaultdict(list)
    if not tasks:
        return results

    here, together = storage.surroundings(), groups or [[number] for number in range(len(tasks))]

    def distributed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        here.adopt()
        mark = f"-{uuid4().hex[:8]}"
        for ids in batches:
            for number in itertools.chain.from_iterable(together[group] for group in ids.column(0).to_pylist()):
                result = _result(replace(tasks[number], mark=mark), work)
                columns = [pyarrow.array([number]), pyarrow.array([result])]
                yield pyarrow.RecordBatch.from_arrays(columns, ["task", "result"])

    numbers = spark.range(0, len(together), 1, len(together))
    for row in sorted(numbers.mapInArrow(distributed, "task bigint, result binary").collect()):
        results[tasks[row[0]].directory].append(bytes(row[1]))
    return results


def _result(task: Task[Part], work: Callable[[Task[Part]], Written]) -> bytes:
    """Runs a task and returns its result or its failure as compressed JSON."""
    return zlib.compress(orjson.dumps(_done(task, work)), 1)


def _done(task: Task[Part], work: Callable[[Task[Part]], Written]) -> dict[str, Any]:
    """Runs a task and returns its result or its failure as JSON-compatible data."""
    try:
        return {"written": asdict(work(task))}
    except (Transient, Permanent) as error:
        remedy: Remedy | None = getattr(error, "remedy", None)
        return _failed(str(error), cause_of(error), remedy.action if remedy else None)
    except OSError as error:
        return _failed(_where(task, error), cause_of(error))
    except ImportError as error:
        return _failed(extras.told_of_worker(error), cause_of(error))
    except Exception as error:  # a defect must not fail the other directories of the batch
        last = traceback.extract_tb(error.__traceback__)[-1]
        return _failed(f"{_where(task, error)} (at {last.name}, line {last.lineno} of {last.filename})", Cause.ITEM)


def _failed(message: str, cause: Cause, helps: Action | None = None) -> dict[str, Any]:
    return {"failure": message, "cause": str(cause), "helps": helps.name if helps else ""}


def _where(task: Task, error: Exception) -> str:
    return f"{type(error).__name__} while shredding {task.some_files}: {error}"


def _merged(left: Table, right: Table) -> Table:
    """Merges two definitions of a table. They differ if a schema was published in the meantime."""
    if left == right:
        return left
    if left.family and right.family and left.family != right.family:
        raise TwoFamilies(left.name, left.family, right.family)
    columns = {column.name: column for column in left.columns}
    for column in right.columns:
        known = columns.setdefault(column.name, column)
        type_ = widened(known.type, column.type)
        if type_ is None:
            raise SchemaError(
                f"table {left.name}: column {column.name} was {known.type} and became {column.type} while shredding; "
                "publish the newer schema as a new model"
            )
        columns[column.name] = Column(known.name, type_, known.nullable)
    descriptions = {**left.descriptions, **right.descriptions}
    return replace(left, columns=tuple(columns.values()), family=left.family or right.family, descriptions=descriptions)


def _conclude(directory: Directory, results: Sequence[bytes], options: Options) -> Listing | ShredFailure:
    total = _sum(directory, results)
    if isinstance(total, ShredFailure):
        return total
    if total.stopped or not options.allows(total.bad, total.good + total.bad):
        return _too_many_bad(directory, total, options)
    dates = {date for found in total.objects if found.table != BAD_TABLE for date in found.all_dates}
    if excess := _too_spread(directory.item, dates, len(total.objects), options.limits):
        return ShredFailure.of(directory, excess)
    if total.bad > options.limits.bad_rows:
        return ShredFailure.of(directory, _too_many_kept(directory.item, total, options.limits))
    listing = Listing(
        directory.item,
        directory.attempt,
        total.lines,
        total.good,
        total.bad,
        tuple(total.tables[name] for name in sorted(total.tables)),
        tuple(sorted(total.objects, key=lambda found: (found.table, found.date, found.uri))),
        tuple(total.retired),
        tuple(
            ShreddedType(type_, table, rows)
            for table in sorted(total.types)
            for type_, rows in sorted(total.types[table].items())
        ),
        total.duplicates,
        tuple(sorted(total.bad_rows, key=lambda found: found.uri)),
        dict(sorted(total.counts.items())),
        tuple(sorted(total.packs, key=lambda found: found.uri)),
    )
    try:
        listing.write(f"{directory.output}/{LISTING_FILE}")
    except OSError as error:
        message = f"{directory.output}/{LISTING_FILE} cannot be written: {error}"
        return ShredFailure(directory.item, directory.attempt, message, cause_of(error))
    return listing


def _sum(directory: Directory, results: Sequence[bytes]) -> Written | ShredFailure:
    """Returns the sum of the results of a directory's tasks, or its failure with the worst cause."""
    total, failures, conflict = Written(), list[ShredFailure](), None
    for packed in results:
        result = orjson.loads(zlib.decompress(packed))
        if "failure" in result:
            cause, helps = Cause(result["cause"]), Action[result["helps"]] if result["helps"] else None
            failures.append(ShredFailure(directory.item, directory.attempt, result["failure"], cause, helps=helps))
        elif not failures and not conflict:
            try:
                _add(total, result["written"])
            except SchemaError as error:
                conflict = ShredFailure(directory.item, directory.attempt, str(error))
    causes = list(Cause)
    return min(failures, key=lambda failure: causes.index(failure.cause)) if failures else conflict or total


def _add(total: Written, written: dict[str, Any]) -> None:
    """Adds the result of a task, as JSON-compatible data. Raises SchemaError."""
    total.lines += written["lines"]
    total.duplicates += Duplicates(**written["duplicates"])
    total.good += written["good"]
    total.bad += written["bad"]
    total.stopped = total.stopped or written["stopped"]
    total.example = total.example or written["example"]
    total.objects += map(ShreddedObject.from_dict, written["objects"])
    total.retired += [Retired(**found) for found in written["retired"]]
    total.bad_rows += [BadRowsFile(**found) for found in written["bad_rows"]]
    total.packs += [Pack(**found) for found in written["packs"]]
    total.tally(written["counts"])
    for table, types in written["types"].items():
        total.count(table, types)
    for data in written["tables"].values():
        total.define(Table.from_dict(data))


def _too_many_bad(directory: Directory, total: Written, options: Options) -> ShredFailure:
    of = f"the first {total.lines}" if total.stopped else str(total.lines)
    stopped = " The rest was not read, because even good lines could not make up for them." if total.stopped else ""
    return ShredFailure(
        directory.item,
        directory.attempt,
        f"{total.bad} of {of} lines of {directory.item} are bad ({total.bad / total.lines:.1%}); allowed are"
        f" {options.max_bad_share:.1%}, or {options.max_bad_count} lines if at least as many are good; for example"
        f" {total.example}. All reasons are in {_bad_files(total)}.{stopped} If the directory is at fault, land it again;"
        " otherwise correct the schemas or raise the threshold, and resolve the item",
    )
