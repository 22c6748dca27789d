"""Shredding of Snowplow enriched events: one Spark job per batch of directories, and the function from lines to typed tables.

Each task reads its own byte ranges and shreds them chunk by chunk. `shred_lines` does that without Spark or storage.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import uuid
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pyarrow as pa

from manifest_platform.listing import BAD_TABLE, NO_DUPLICATES, Duplicates, Listing, Table
from manifest_platform.shred.batch import (
    CHUNK,
    Dated,
    Directory,
    Options,
    ShredFailure,
    Task,
    TwoFamilies,
    Writer,
    Written,
    failures_of,
    shred_batch,
)
from manifest_platform.shred.limits import UNMEASURED, InputLimits
from manifest_platform.shred.lines import Piece, TooLong, chunks, newlines_before, plan
from manifest_platform.shred.rows import BAD, BadRow, arrow_schema, as_text, bad_table, digest_of, with_room
from manifest_platform.sources.snowplow.events.atomic import EVENTS, SHORTEST_GOOD_LINE, Lines, cut, event_columns
from manifest_platform.sources.snowplow.events.duplicates import (
    FAULTY,
    GOOD,
    LOADED,
    NONE,
    UNREADABLE,
    Marked,
    Marks,
    PieceMarks,
)
from manifest_platform.sources.snowplow.events.entities import Budget, Entities, entity_tables
from manifest_platform.sources.snowplow.events.hiding import AsTheyCame, Hiding
from manifest_platform.sources.snowplow.events.lake import lake_events, require_apart
from manifest_platform.sources.snowplow.events.oldest import refuse_old_times
from manifest_platform.sources.snowplow.events.published import is_unreadable, published
from manifest_platform.sources.snowplow.events.survey import Check, Survey, survey
from manifest_platform.sources.snowplow.events.wide import entity_types, self_describing, wide_events, without_empty
from manifest_platform.sources.snowplow.rules import Rules
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey
from manifest_platform.sources.snowplow.schemas.registry import Place
from manifest_platform.sources.snowplow.schemas.resolver import Resolver
from manifest_platform.sources.snowplow.settings import EVENTS_TABLE, RegistryLimits, time_column

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import SparkSession

BAD_DATE = "1970-01-01"
"""The date partition of bad rows: they have no time of their own, and a clock's time would make shredding unrepeatable."""

ATOMIC = "iglu:com.snowplowanalytics.snowplow/atomic/jsonschema/1-0-0"
"""The schema of the events themselves."""

SELF_DESCRIBING = "self-describing event "
"""The prefix of the listing's counts of events by the schema that describes them."""

_Pieces = tuple[Piece, ...]


def shred(
    spark: SparkSession,
    directories: Sequence[Directory],
    registries: Sequence[str | Place],
    options: Options | None = None,
    limits: RegistryLimits | None = None,
    named: Mapping[str, str] | None = None,
    rules: Rules | None = None,
) -> list[Listing | ShredFailure]:
    """Shreds a batch of directories in one Spark job; returns a result for each, in the same order.

    A directory's Parquet files are in `output/<table>/`, their rows divided by the date of `collector_tstamp`. Its listing is
    `output/listing.json`. The same directory always gives the same rows, at any split size. A directory that fails gives a
    ShredFailure, never an exception. `named`: table names by family, where they differ from the default.
    `rules`: the rules of the dataset.
    """
    options, limits, rules = options or Options(), limits or RegistryLimits(), rules or Rules()
    tasks = [
        Task(index, number, directory.output, tuple(piece.uri for piece in pieces), pieces)
        for index, directory in enumerate(directories)
        for number, pieces in enumerate(plan(directory.files, options.split_size, directory.root))
    ]
    tables = tuple(sorted((named or {}).items()))
    places, batch = tuple(registries), uuid.uuid4().hex
    replayed = [directory.replayed for directory in directories]
    most_bad = [options.most_bad(_most_good(directory, options.limits)) for directory in directories]

    def check(directory: int) -> Check:
        resolver = process_resolver(places, limits, tables, batch, rules)
        return functools.partial(ranks_of, resolver=resolver, rules=rules, replayed=replayed[directory])

    def begin(found: Survey) -> Callable[[Task[_Pieces]], Written]:
        def work(task: Task[_Pieces]) -> Written:
            resolver = process_resolver(places, limits, tables, batch, rules)
            marks = found.of(task, options.limits, check(task.directory))
            written = shred_pieces(task, resolver, options, most_bad[task.directory], rules, marks, replayed[task.directory])
            found.require_whole(task)
            return written

        return work

    kinds = rules.duplicates
    try:
        found = survey(spark, tasks, kinds, options.limits, check)
    except Exception as error:
        return failures_of(error, spark, directories, begin(Survey(kinds)))
    results = shred_batch(spark, directories, tasks, begin(found), options)
    if rules.rows != "lake":
        return results
    return [_apart(directory, result, dict(tables)) for directory, result in zip(directories, results, strict=True)]


def _apart(directory: Directory, result: Listing | ShredFailure, tables: Mapping[str, str]) -> Listing | ShredFailure:
    """Returns the result, or a failure if two models were met in different parts of the directory and share a column."""
    if isinstance(result, Listing):
        try:
            require_apart((one.type for one in result.types if one.table == EVENTS_TABLE), tables)
        except TwoFamilies as error:
            return ShredFailure.of(directory, error)
    return result


@functools.lru_cache(maxsize=1)
def process_resolver(
    registries: tuple[str | Place, ...],
    limits: RegistryLimits,
    tables: tuple[tuple[str, str], ...],
    batch: str,
    rules: Rules,
) -> Resolver:
    """Returns the resolver that all tasks of a batch share in one worker process. The next batch asks the registries again."""
    return Resolver(registries, limits, dict(tables), rules)


def _most_good(directory: Directory, limits: InputLimits) -> int:
    """Returns the most good lines that a directory can have, by the size of its files. Any of them may be compressed."""
    text = sum(max(size, UNMEASURED, int(size * limits.inflation)) for _, size in directory.files)
    return text // SHORTEST_GOOD_LINE + len(directory.files)


def shred_pieces(
    task: Task[_Pieces],
    resolver: Resolver,
    options: Options,
    most_bad: int | None = None,
    rules: Rules | None = None,
    marks: Marks = NONE,
    replayed: Mapping[str, str] | None = None,
) -> Written:
    """Shreds a task's pieces and writes the result. After more than `most_bad` bad lines the rest is not read.

    `marks`: the lines that are duplicates; the place of each is the number of its piece. `replayed`: as of Directory.

    Raises LimitExceeded, FileChanged, Unreadable, RegistryUnavailable, RegistryRefused, OSError.
    """
    most = options.split_size + CHUNK  # only compressed text can exceed the split
    writer = Writer(task, most, by_date, options.limits, most_bad, published, options.date_files, options.pack)
    writer.add(BAD)  # people look for this table before the first bad row
    budget = Budget(resolver.limits.unknown_keys)

    def shred(data: bytes, file: str, first_line: int, marked: Marked | None = None) -> ShreddedEvents:
        return shred_lines(data, resolver, file, first_line, budget, rules, marked, replayed)

    for number, piece in enumerate(task.part):
        for size, shredded in shred_piece(
            piece, shred, options.limits, marks=marks.of(number), withhold=bool(rules and rules.private)
        ):
            for name, table in shredded.tables.items():
                writer.add(shredded.definitions[name], table, shredded.types[name])
            writer.repeated(shredded.duplicates)
            writer.written.tally({f"{SELF_DESCRIBING}{schema}": rows for schema, rows in shredded.own.items()})
            writer.chunk_done(size, shredded.good, BAD, shredded.bad)
            if writer.is_hopeless:
                return writer.close()
    return writer.close()


def shred_piece(
    piece: Piece,
    shred: Callable[..., ShreddedEvents],
    limits: InputLimits,
    chunk: int = CHUNK,
    marks: PieceMarks | None = None,
    withhold: bool = False,
) -> Iterator[tuple[int, ShreddedEvents]]:
    """Yields (bytes, shredded events) of each chunk of a piece. Bad rows have their line numbers in the whole file.

    `shred`: the function that shreds whole lines, given their bytes, the file's URI and the number of the first line, and the
    marked lines among them, if there are any. `marks`: the lines of the piece that are duplicates. `withhold`: True to
    keep nothing of lines that are too long, because they may hold private values.
    """
    lines = 0
    start = before = None
    for offset, data in chunks(piece, chunk, limits):
        start = offset if start is None else start
        if isinstance(data, TooLong):
            data = replace(data, head=b"") if withhold else data
            size, shredded = data.bytes, _too_long(data, piece.uri, offset, lines + 1, limits)
        else:
            marked = marks.within(data, offset, piece.uri.removeprefix(piece.root)) if marks else None
            size = len(data)
            shredded = shred(data, piece.uri, lines + 1, marked) if marked else shred(data, piece.uri, lines + 1)
        lines += shredded.lines
        if shredded.bad.num_rows:
            if start:
                before = newlines_before(piece, start) if before is None else before
            shredded = replace(shredded, bad=_moved(shredded.bad, line=before or 0, byte_offset=offset))
        yield size, shredded


def _moved(bad: pa.Table, **by: int) -> pa.Table:
    """Returns bad rows with numbers added to columns, because a chunk does not know what comes before it in its file.

    A number that is unknown stays null.
    """
    from pyarrow.compute import call_function

    for name, more in by.items():
        place = bad.schema.get_field_index(name)
        moved = call_function("add", [bad[name], pa.scalar(more, pa.int64())])
        bad = bad.set_column(place, bad.schema.field(place), moved)
    return bad


def _too_long(line: TooLong, file: str, offset: int, number: int, limits: InputLimits) -> ShreddedEvents:
    """Returns the bad row of a line that is too long. Text added at its end keeps it from being a valid event."""
    message = (
        f"the line begins at byte {offset:,} of the file's text and has {line.bytes:,} bytes; shred.limits.line_kib allows"
        f" {limits.line >> 10:,} KiB, and its first {len(line.head):,} bytes are kept"
    )
    raw = f"{as_text(line.head)}… (cut off here)"
    row = BadRow(number, [{"type": "too_long", "message": message}], raw, line.head, 0, line.bytes)
    return ShreddedEvents({}, {}, bad_table(file, [row]), 1, 0)


def by_date(name: str, table: pa.Table) -> Iterator[Dated]:
    """Yields the rows of each date, dates ascending, rows in their order."""
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
    """Returns the first and last time of the rows."""
    from pyarrow.compute import call_function

    times = call_function("min_max", [rows[time_column(name)]]).as_py()
    return _iso(times["min"]), _iso(times["max"])


def _iso(time: datetime) -> str:
    return f"{time.isoformat(timespec='microseconds')}Z"


# Lines to tables


@dataclass(frozen=True)
class ShreddedEvents:
    """The tables of some lines by name, and the definition of each.

    `lines` equals `good` plus the rows of `bad` plus the natural duplicates. `types`: by table, the number of rows of each
    schema version. `own`: by schema, the number of events that it describes; all other entities are in their contexts.
    """

    tables: dict[str, pa.Table]
    definitions: dict[str, Table]
    bad: pa.Table
    lines: int
    good: int
    types: dict[str, dict[str, int]] = field(default_factory=dict)
    duplicates: Duplicates = NO_DUPLICATES
    own: dict[str, int] = field(default_factory=dict)


def shred_lines(
    data: bytes,
    resolver: Resolver,
    file: str = "",
    first_line: int = 1,
    budget: Budget | None = None,
    rules: Rules | None = None,
    marked: Marked | None = None,
    replayed: Mapping[str, str] | None = None,
) -> ShreddedEvents:
    """Shreds whole lines. A good line is in every table that it has rows for; a bad line is only in `bad`.

    `first_line`: the number of the first line in its file, for the bad table. `budget`: the budget of the lines' task. `rules`:
    the dataset's. `marked`: the same lines with marked duplicates. `replayed`: as of Directory. Accepts any bytes. Raises
    RegistryUnavailable and RegistryRefused if a schema could not be looked up.
    """
    resolver.warm(data)
    budget = budget or Budget(resolver.limits.unknown_keys)
    with _without_garbage_collection():  # and what was parsed is gone when it is on again, or it would be searched after all
        return _shredded(data, resolver, file, first_line, budget, rules or Rules(), marked, replayed or {})


def _shredded(
    data: bytes,
    resolver: Resolver,
    file: str,
    first_line: int,
    budget: Budget,
    rules: Rules,
    marked: Marked | None,
    replayed: Mapping[str, str],
) -> ShreddedEvents:
    text = marked.data if marked else data
    hiding = Hiding(rules.private) if rules.private else None
    hidden = hiding.hidden(text) if hiding else text
    lines = cut(hidden)
    if marked:
        marked.mend(lines)
    if hiding:
        lines.source = hiding.hidden(data) if marked else hidden
    events = event_columns(lines)
    if rules.oldest:
        refuse_old_times(lines, events, rules.oldest)
    came = AsTheyCame(text, rules.private, resolver) if rules.private else None
    found = list(entity_tables(lines, events, resolver, budget, rules, came))
    wide = _wide(events, found, lines, rules)
    if replayed:
        _refuse_replayed(lines, data, replayed, marked.left_out if marked else ())
    keep = ~np.isin(lines.line, np.fromiter(lines.reasons, np.int64, len(lines.reasons)))
    tables = {}
    definitions = {}
    types = {}
    shredded = [(EVENTS, events, keep), *((each.definition.table, each.table, keep[each.rows]) for each in found)]
    for definition, table, kept in shredded if wide is None else [(*wide, keep)]:
        table = table if kept.all() else table.filter(pa.array(kept))
        if table.num_rows:
            definition, table = (definition, table) if wide is None else without_empty(definition, table)
            tables[definition.name] = _as_defined(table, definition)
            definitions[definition.name] = with_room(definition, table)
            types[definition.name] = _types(definition, table)
    if wide is not None and EVENTS_TABLE in types:
        types[EVENTS_TABLE] |= entity_types(found, keep)
    own = self_describing(found, keep)
    good = tables[EVENTS_TABLE].num_rows if EVENTS_TABLE in tables else 0
    bad = _bad(lines, file, first_line, data, _shown(rules, resolver, budget))
    return ShreddedEvents(tables, definitions, bad, lines.count, good, types, _duplicates(lines, marked), own)


def ranks_of(lines: Sequence[bytes], resolver: Resolver, rules: Rules, replayed: Mapping[str, str]) -> list[int]:
    """Returns the rank of each copy of an event, given without its newline. Raises as `shred_lines` does.

    Structs make no line bad, and copies in them may have two models for one column, which is not for a look at copies to tell.
    """
    rules = replace(rules, rows="tables") if rules.rows == "lake" else rules
    bad = shred_lines(b"".join(line + b"\n" for line in lines), resolver, rules=rules).bad
    ranks = [LOADED if digest_of(line.removesuffix(b"\r")) in replayed else GOOD for line in lines]
    for number, reasons in zip(bad["line"].to_pylist(), bad["reasons"].to_pylist(), strict=True):
        if ranks[number - 1] == GOOD:
            ranks[number - 1] = UNREADABLE if is_unreadable(orjson.loads(reasons)) else FAULTY
    return ranks


def _refuse_replayed(lines: Lines, source: bytes, replayed: Mapping[str, str], left_out: Collection[int]) -> None:
    """Makes good lines bad that are loaded with another item: here they would be loaded twice."""
    for number, line in enumerate(source.split(b"\n")):
        item = replayed.get(digest_of(line.removesuffix(b"\r")))
        if item is not None and number not in left_out:
            lines.reasons.setdefault(number, [{"type": "replayed", "message": f"the line is loaded with {item}"}])


def _as_defined(table: pa.Table, definition: Table) -> pa.Table:
    """Returns a table whose columns may be null where its definition says so. They have the right types already."""
    schema = arrow_schema(definition.columns)
    return pa.Table.from_arrays(table.columns, schema=schema)


def _duplicates(lines: Lines, marked: Marked | None) -> Duplicates:
    """Returns the numbers of duplicates. A renamed event that is bad is only a bad line."""
    if marked is None:
        return NO_DUPLICATES
    return Duplicates(len(marked.left_out), len(marked.renamed - lines.reasons.keys()))


def _wide(events: pa.Table, found: list[Entities], lines: Lines, rules: Rules) -> tuple[Table, pa.Table] | None:
    """Returns the table of the layouts with one row an event; None for a table a model."""
    if rules.rows == "tables":
        return None
    return lake_events(events, found) if rules.rows == "lake" else wide_events(events, found, lines)


def _types(definition: Table, rows: pa.Table) -> dict[str, int]:
    """Returns the number of a table's rows by schema."""
    if definition.family is None:
        return {ATOMIC: rows.num_rows}
    schema = definition.family.rpartition("/")[0]
    counts = rows["schema_version"].value_counts()
    return {f"{schema}/{one['values']}": one["counts"] for one in counts.to_pylist()}


def _shown(rules: Rules, resolver: Resolver, budget: Budget) -> Callable[[bytes], bytes]:
    """Returns the function that makes of a bad line, with hidden values, the line that is shown."""
    private = rules.private
    if not private:
        return lambda line: line

    def is_known(schema: str) -> bool:
        return budget.has_found(schema) and not resolver.skips(SchemaKey.parse(schema))

    return lambda line: Hiding(private).of_bad(line, is_known)


def _bad(lines: Lines, file: str, first_line: int, source: bytes, shown: Callable[[bytes], bytes]) -> pa.Table:
    """Returns the bad rows. `source`: the lines as the file has them, which differ where private columns are hidden.

    `shown`: makes of a line what a bad row has.
    """
    if not lines.reasons:
        return bad_table(file, ())
    found = lines.exact()
    lines.source = source
    placed = lines.exact()
    rows = (
        BadRow(first_line + number, reasons, as_text(data), data, placed[number][1], len(placed[number][0]))
        for number, reasons in sorted(lines.reasons.items())
        for data in (shown(found[number][0]),)
    )
    return bad_table(file, rows)


@contextlib.contextmanager
def _without_garbage_collection() -> Generator[None]:
    """Turns garbage collection off: parsed JSON has no cycles, and the search for them takes as long as parsing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
