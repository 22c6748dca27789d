"""The Spark job that shreds a batch of directories of Snowplow enriched events.

Each task reads its own byte ranges and runs the kernel over them chunk by chunk.
"""

from __future__ import annotations

import functools
import itertools
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from manifest_platform.listing import BAD_TABLE, Listing
from manifest_platform.shred.bad import BAD
from manifest_platform.shred.batch import CHUNK, Dated, Directory, Options, ShredFailure, Task, Writer, Written, shred_batch
from manifest_platform.shred.splits import Piece, chunks, newlines_before, plan
from manifest_platform.sources.snowplow.enriched import EVENTS_TABLE
from manifest_platform.sources.snowplow.iglu import Resolver

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from manifest_platform.sources.snowplow.kernel import Shredded

BAD_DATE = "1970-01-01"
"""The date partition of bad rows: they have no time of their own, and a clock's would make shredding unrepeatable."""

_Pieces = tuple[Piece, ...]


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
        Task(index, number, directory.output, tuple(piece.uri for piece in pieces), pieces)
        for index, directory in enumerate(directories)
        for number, pieces in enumerate(plan(directory.files, options.split_size))
    ]
    registries, batch, split_size = resolver.registries, uuid.uuid4().hex, options.split_size

    def work(task: Task[_Pieces]) -> Written:
        return _shred_pieces(task, _process_resolver(registries, batch), split_size)

    return shred_batch(spark, directories, tasks, work, options)


@functools.lru_cache(maxsize=1)
def _process_resolver(registries: tuple[str, ...], batch: str) -> Resolver:
    """The resolver that all tasks of a batch share in one worker process; the next batch looks anew."""
    return Resolver(registries)


def _shred_pieces(task: Task[_Pieces], resolver: Resolver, split_size: int) -> Written:
    writer = Writer(task, split_size + CHUNK, _by_date)  # only what was compressed gets larger than the split
    for piece in task.part:
        for size, shredded in _shred_piece(piece, resolver):
            for name, table in shredded.tables.items():
                writer.add(shredded.definitions[name], table)
            writer.chunk_done(size, shredded.good, BAD, shredded.bad)
    return writer.close()


def _shred_piece(piece: Piece, resolver: Resolver) -> Iterator[tuple[int, Shredded]]:
    """What each chunk of a piece gives, with its bytes; bad rows have the number of their line in the whole file."""
    import pyarrow as pa

    from manifest_platform.sources.snowplow.kernel import shred_lines

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


def _by_date(name: str, table: pa.Table) -> Iterator[Dated]:
    """The rows of each date, dates ascending, rows in their order."""
    import numpy as np
    import pyarrow as pa

    if name == BAD_TABLE:
        yield Dated(BAD_DATE, table)
        return
    dates = table[time_column(name)].cast(pa.date32()).cast(pa.int32()).to_numpy()
    if dates.min() != dates.max():
        order = np.argsort(dates, kind="stable")
        table, dates = table.take(order), dates[order]
    starts = np.flatnonzero(np.diff(dates, prepend=dates[0] - 1)).tolist()
    for start, end in itertools.pairwise([*starts, len(dates)]):
        rows = table.slice(start, end - start)
        yield Dated(str(pa.scalar(int(dates[start]), pa.date32())), rows, *_times(name, rows))


def _times(name: str, rows: pa.Table) -> tuple[str, str]:
    """The first and last time of the rows."""
    from pyarrow.compute import call_function

    times = call_function("min_max", [rows[time_column(name)]]).as_py()
    return _iso(times["min"]), _iso(times["max"])


def _iso(time: datetime) -> str:
    return f"{time.isoformat(timespec='microseconds')}Z"
