"""The Spark job that shreds a batch of directories of Snowplow enriched events.

Spark only distributes: each task reads its own byte ranges, runs the kernel over them chunk by chunk, writes its own
Parquet files and returns what it wrote. One job serves a whole batch; a directory that fails leaves the others alone.
"""

from __future__ import annotations

import functools
import itertools
import traceback
import uuid
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import orjson

from manifest_platform import failpoints
from manifest_platform.listing import BAD_TABLE, LISTING_FILE, Column, Listing, ShreddedObject, Table
from manifest_platform.shred.columns import SchemaError, widest
from manifest_platform.shred.enriched import EVENTS_TABLE
from manifest_platform.shred.iglu import RegistryUnavailable, Resolver
from manifest_platform.shred.splits import CHUNK, FileChanged, Piece, chunks, newlines_before, plan

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from manifest_platform.shred.kernel import Shredded

BAD_DATE = "1970-01-01"
"""The date partition of bad rows: they have no time of their own, and a clock's would make shredding unrepeatable."""

_LONGEST_REASON = 300  # characters of an example's reason in a message


@dataclass(frozen=True)
class Options:
    """How to cut the work, and how many bad lines a directory may have.

    A directory fails when it has more than `max_bad_count` bad lines and they are more than the share `max_bad_share`
    of its lines: a few bad lines in a small directory pass, and so does a small share of a large one. `split_size` is
    the bytes of a task.
    """

    split_size: int = 32 << 20
    max_bad_share: float = 0.05
    max_bad_count: int = 10


@dataclass(frozen=True)
class Directory:
    """A directory to shred: its URI, its files as (URI, size in bytes), and where this attempt may write."""

    item: str
    files: tuple[tuple[str, int], ...]
    output: str
    attempt: str


@dataclass(frozen=True)
class ShredFailure:
    """Why a directory could not be shredded, and whether trying again may help.

    Where there were too many bad lines, the message has an example and the Parquet file of all their reasons. What the
    attempt wrote stays under its prefix, unreferenced.
    """

    item: str
    attempt: str
    kind: Literal["permanent", "transient"]
    message: str


@dataclass(frozen=True)
class _Task:
    directory: int
    number: int  # within the directory
    output: str
    pieces: tuple[Piece, ...]


@dataclass
class _Written:
    """What tasks wrote and counted; of one task, or of all of a directory."""

    lines: int = 0
    good: int = 0
    bad: int = 0
    tables: dict[str, Table] = field(default_factory=dict)
    objects: list[ShreddedObject] = field(default_factory=list)
    example: str = ""  # the first bad line and its first reason


def shred(
    spark: SparkSession, directories: Sequence[Directory], resolver: Resolver, options: Options | None = None
) -> list[Listing | ShredFailure]:
    """Shreds a batch of directories in one Spark job; the results come in the order of the directories.

    Each directory's Parquet files lie under `output/<table>/date=YYYY-MM-DD/`, by the date of `collector_tstamp`, and its
    listing is `output/listing.json`. The same directory gives the same rows, at any split size. A directory that
    fails is a ShredFailure, never an exception.
    """
    options = options or Options()
    tasks = [
        _Task(index, number, directory.output, pieces)
        for index, directory in enumerate(directories)
        for number, pieces in enumerate(plan(directory.files, options.split_size))
    ]
    try:
        results = _run(spark, tasks, resolver, options.split_size)
    except Exception as error:
        message = f"the Spark job failed: {type(error).__name__}: {str(error)[:2000]}; see Spark's log, then retry"
        return [ShredFailure(directory.item, directory.attempt, "transient", message) for directory in directories]
    failpoints.reach("shred.job_done")
    return [_conclude(directory, results[index], options) for index, directory in enumerate(directories)]


def _run(spark: SparkSession, tasks: list[_Task], resolver: Resolver, split_size: int) -> dict[int, list[dict[str, Any]]]:
    """The results of all tasks by directory, in one Spark job; none without tasks."""
    results: dict[int, list[dict[str, Any]]] = defaultdict(list)
    if not tasks:
        return results
    registries, batch = resolver.registries, uuid.uuid4().hex

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        for ids in batches:
            for number in ids.column(0).to_pylist():
                result = orjson.dumps(_shred_task(tasks[number], _process_resolver(registries, batch), split_size))
                yield pyarrow.RecordBatch.from_arrays(
                    [pyarrow.array([number]), pyarrow.array([result.decode()])], ["task", "result"]
                )

    numbers = spark.range(0, len(tasks), 1, len(tasks))
    for row in sorted(numbers.mapInArrow(work, "task bigint, result string").collect()):
        results[tasks[row[0]].directory].append(orjson.loads(row[1]))
    return results


@functools.lru_cache(maxsize=1)
def _process_resolver(registries: tuple[str, ...], batch: str) -> Resolver:
    """The resolver that all tasks of a batch share in one worker process; the next batch looks anew."""
    return Resolver(registries)


def _shred_task(task: _Task, resolver: Resolver, split_size: int) -> dict[str, Any]:
    """What a task wrote, or why it failed, as plain data."""
    try:
        return {"written": asdict(_shred_pieces(task, resolver, split_size))}
    except RegistryUnavailable as error:
        return _failed("transient", str(error))
    except (FileNotFoundError, PermissionError, FileChanged, EOFError, zlib.error) as error:
        return _failed("permanent", _where(task, error))
    except OSError as error:
        return _failed("permanent" if _is_refusal(error) else "transient", _where(task, error))
    except Exception as error:  # a defect must not take the other directories of the batch with it
        last = traceback.extract_tb(error.__traceback__)[-1]
        return _failed("permanent", f"{_where(task, error)} (at {last.name}, line {last.lineno} of {last.filename})")


def _failed(kind: str, message: str) -> dict[str, Any]:
    return {"failure": kind, "message": message}


def _where(task: _Task, error: Exception) -> str:
    files = sorted({piece.uri for piece in task.pieces})
    named = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    return f"{type(error).__name__} while shredding {named}: {error}"


def _is_refusal(error: OSError) -> bool:
    import gzip

    return isinstance(error, gzip.BadGzipFile) or any(word in str(error) for word in ("ACCESS_DENIED", "NO_SUCH_BUCKET"))


def _shred_pieces(task: _Task, resolver: Resolver, split_size: int) -> _Written:
    from manifest_platform.shred.kernel import BAD

    written = _Written()
    held: dict[str, list[pa.Table]] = defaultdict(list)
    held_bytes = files = 0
    for piece in task.pieces:
        for size, shredded in _shred_piece(piece, resolver):
            written.lines += shredded.lines
            written.good += shredded.good
            written.bad += shredded.bad.num_rows
            for name, table in shredded.tables.items():
                definition = shredded.definitions[name]
                written.tables[name] = _merged(written.tables.get(name, definition), definition)
                held[name].append(table)
            if shredded.bad.num_rows:
                held[BAD_TABLE].append(shredded.bad)
                written.tables[BAD_TABLE] = BAD
                written.example = written.example or _example(shredded.bad)
            held_bytes += size
            if held_bytes > split_size + CHUNK:  # only what was compressed gets that large
                written.objects += _write(task, files, held)
                held.clear()
                files, held_bytes = files + 1, 0
    written.objects += _write(task, files, held)
    return written


def _example(bad: pa.Table) -> str:
    """The first bad line in words, without values of the event, which messages are not to spread."""
    [row] = bad.slice(0, 1).to_pylist()
    reason = orjson.loads(row["reasons"])[0]
    subject = reason.get("schema") or reason.get("field") or ""
    text = f"{reason['type']} {subject}".strip() + f": {reason['message'].removeprefix(f'{subject} ')}"
    return f"line {row['line']} of {row['file'].rpartition('/')[2]}: {' '.join(text.split())[:_LONGEST_REASON]}"


def _shred_piece(piece: Piece, resolver: Resolver) -> Iterator[tuple[int, Shredded]]:
    """What each chunk of a piece gives, with its bytes; bad rows have the number of their line in the whole file."""
    import pyarrow as pa

    from manifest_platform.shred.kernel import shred_lines

    lines = 0
    start = before = None
    for offset, data in chunks(piece):
        start = offset if start is None else start
        shredded = shred_lines(data, resolver, piece.uri, lines + 1)
        lines += shredded.lines
        if shredded.bad.num_rows and start:
            before = newlines_before(piece, start) if before is None else before
            numbers = pa.array(shredded.bad["line"].to_numpy() + before)
            bad = shredded.bad.set_column(1, shredded.bad.schema.field(1), numbers)
            shredded = replace(shredded, bad=bad)
        yield len(data), shredded


def time_column(table: str) -> str:
    """The column with the collector's time, by which a table's rows are put under dates."""
    return "collector_tstamp" if table == EVENTS_TABLE else "root_tstamp"


def _by_date(name: str, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each date, dates ascending, rows in their order."""
    import numpy as np
    import pyarrow as pa

    if name == BAD_TABLE:
        yield BAD_DATE, table
        return
    dates = table[time_column(name)].cast(pa.date32()).cast(pa.int32()).to_numpy()
    if dates.min() != dates.max():
        order = np.argsort(dates, kind="stable")
        table, dates = table.take(order), dates[order]
    starts = np.flatnonzero(np.diff(dates, prepend=dates[0] - 1)).tolist()
    for start, end in itertools.pairwise([*starts, len(dates)]):
        yield str(pa.scalar(int(dates[start]), pa.date32())), table.slice(start, end - start)


def _write(task: _Task, file: int, held: dict[str, list[pa.Table]]) -> list[ShreddedObject]:
    import pyarrow as pa

    from manifest_platform.shred import parquet

    objects = []
    for name, tables in sorted(held.items()):
        for date, rows in _by_date(name, pa.concat_tables(tables, promote_options="permissive")):
            uri = f"{task.output}/{name}/date={date}/{task.number:05d}-{file:03d}.parquet"
            size = parquet.write(uri, rows)
            first, last = _times(name, rows)
            objects.append(ShreddedObject(name, date, uri, rows.num_rows, size, first, last))
    return objects


def _times(name: str, rows: pa.Table) -> tuple[str | None, str | None]:
    """The first and last time of the rows; bad rows have none."""
    from pyarrow.compute import call_function

    if name == BAD_TABLE:
        return None, None
    times = call_function("min_max", [rows[time_column(name)]]).as_py()
    return _iso(times["min"]), _iso(times["max"])


def _iso(time: datetime) -> str:
    return f"{time.isoformat(timespec='microseconds')}Z"


def _merged(left: Table, right: Table) -> Table:
    """One definition of two of the same table, which differ where a schema was published meanwhile."""
    if left == right:
        return left
    columns = {column.name: column for column in left.columns}
    for column in right.columns:
        known = columns.setdefault(column.name, column)
        type_ = widest(known.type, column.type)
        if type_ is None:
            raise SchemaError(
                f"table {left.name}: column {column.name} was {known.type} and became {column.type} while shredding; "
                "publish the newer schema as a new model"
            )
        columns[column.name] = Column(known.name, type_, known.nullable)
    return Table(left.name, tuple(columns.values()), left.mode, left.key)


def _conclude(directory: Directory, results: list[dict[str, Any]], options: Options) -> Listing | ShredFailure:
    failures = [result for result in results if "failure" in result]
    if failures:
        worst = next((failure for failure in failures if failure["failure"] == "permanent"), failures[0])
        return ShredFailure(directory.item, directory.attempt, worst["failure"], worst["message"])
    try:
        total = _sum(results)
    except SchemaError as error:
        return ShredFailure(directory.item, directory.attempt, "permanent", str(error))
    if total.bad > options.max_bad_count and total.bad > options.max_bad_share * total.lines:
        return _too_many_bad(directory, total, options)
    listing = Listing(
        directory.item,
        directory.attempt,
        total.lines,
        total.good,
        total.bad,
        tuple(total.tables[name] for name in sorted(total.tables)),
        tuple(sorted(total.objects, key=lambda found: (found.table, found.date, found.uri))),
    )
    try:
        listing.write(f"{directory.output}/{LISTING_FILE}")
    except OSError as error:
        message = f"{directory.output}/{LISTING_FILE} cannot be written: {error}"
        return ShredFailure(directory.item, directory.attempt, "transient", message)
    return listing


def _sum(results: list[dict[str, Any]]) -> _Written:
    total = _Written()
    for result in results:
        written = result["written"]
        total.lines += written["lines"]
        total.good += written["good"]
        total.bad += written["bad"]
        total.example = total.example or written["example"]
        total.objects += [ShreddedObject(**found) for found in written["objects"]]
        for name, data in written["tables"].items():
            columns = tuple(Column(**column) for column in data["columns"])
            definition = Table(name, columns, data["mode"], tuple(data["key"]))
            total.tables[name] = _merged(total.tables.get(name, definition), definition)
    return total


def _too_many_bad(directory: Directory, total: _Written, options: Options) -> ShredFailure:
    bad_objects = [found.uri for found in total.objects if found.table == BAD_TABLE]
    share = total.bad / total.lines
    return ShredFailure(
        directory.item,
        directory.attempt,
        "permanent",
        f"{total.bad} of {total.lines} lines of {directory.item} are bad ({share:.1%}); allowed are {options.max_bad_count} "
        f"lines or {options.max_bad_share:.1%}; for example {total.example}. All reasons are in {bad_objects[0]}"
        f"{f' and {len(bad_objects) - 1} more' if len(bad_objects) > 1 else ''}; "
        "mend the cause and retry, or raise the threshold",
    )
