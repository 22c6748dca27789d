"""Typing of transformed runs: one Spark job per batch, in which each task reads its pieces of files.

The transformer has shredded the events. A task types its text by the schemas, and writes the Parquet that loads and merges
read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote

from manifest_platform import storage
from manifest_platform.listing import ABOUT_TABLE, Listing
from manifest_platform.shred.batch import (
    CHUNK,
    Directory,
    Options,
    ShredFailure,
    Task,
    Unusable,
    Writer,
    Written,
    open_landed,
    shred_batch,
)
from manifest_platform.shred.lines import Piece, plan
from manifest_platform.shred.rows import BAD
from manifest_platform.sources.snowplow.events.shredder import ShreddedEvents, by_date, shred_piece
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey, sibling
from manifest_platform.sources.snowplow.schemas.resolver import Resolver
from manifest_platform.sources.snowplow.seal import Seal
from manifest_platform.sources.snowplow.sealing import write_seal
from manifest_platform.sources.snowplow.settings import EVENTS_TABLE
from manifest_platform.sources.snowplow.transformed.layout import TableFile, WideFile, file_at
from manifest_platform.sources.snowplow.transformed.tsv import Model, shred_entities, shred_events
from manifest_platform.sources.snowplow.transformed.wide import shred_parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class TransformedRun(Directory):
    """A transformed run to type. `place`: its URI."""

    place: str

    def parts(self, seal: Seal) -> list[Part]:
        """Returns the files with good rows. Raises Unusable if the files are not those that the seal names."""
        found = [(uri, size, file_at(self._path(uri))) for uri, size in self.files]
        parts = [Part(uri, size, what) for uri, size, what in found if what]
        _check(self.place, seal, parts)
        return parts

    def _path(self, uri: str) -> str:
        path = uri.removeprefix(f"{self.place}/")
        return unquote(path) if storage.is_local(uri) else path


@dataclass(frozen=True)
class Part:
    """A file with good rows: its URI, its size in bytes, and what it holds."""

    uri: str
    size: int
    what: TableFile | WideFile


def _check(place: str, seal: Seal, parts: Sequence[Part]) -> None:
    """Raises Unusable if the files disagree with the seal, or have a format that is not read."""
    again = "run the transformer again, or accept the run once it is whole"
    wide = [part for part in parts if isinstance(part.what, WideFile)]
    tables = [part.what for part in parts if isinstance(part.what, TableFile)]
    if (seal.transformation == "WIDEROW" and tables) or (seal.transformation == "SHREDDED" and wide):
        strange = wide[0].uri if wide and seal.transformation == "SHREDDED" else next(p.uri for p in parts if p not in wide)
        raise Unusable(f"{strange} does not belong to a run that its seal calls {seal.transformation}; {again}")
    if seal.transformation == "WIDEROW" and seal.file_format != "PARQUET":
        raise Unusable(
            f"{place} has wide rows as {seal.file_format}, and only PARQUET is read: set the transformer's format to PARQUET or"
            " to shredded TSV, or load the enriched run instead"
        )
    if json := next((one for one in tables if one.format != "tsv"), None):
        raise Unusable(
            f"{place} has {json.family} as {json.format}, and only tsv is read: set the transformer's formats.default to TSV,"
            " or load the enriched run instead"
        )
    there = {one.family for one in tables if not one.is_atomic}
    named = set(seal.models) if seal.transformation == "SHREDDED" else set()
    if missing := sorted(named - there):
        raise Unusable(f"{place} has no file of {missing[0]}, which its seal names; {again}")
    if unnamed := sorted(there - named):
        raise Unusable(f"{place} has files of {unnamed[0]}, which its seal does not name; {again}")
    if seal.good and not any(one.is_atomic for one in tables) and not wide:
        raise Unusable(f"{place} has no file of events, but its seal counts {seal.good:,}; {again}")


_Pieces = tuple[tuple[Piece, TableFile | WideFile], ...]


def shred(
    spark: SparkSession,
    runs: Sequence[TransformedRun],
    resolver: Callable[[], Resolver],
    options: Options | None = None,
    fewer: bool = False,
) -> list[Listing | ShredFailure]:
    """Types a batch of transformed runs in one Spark job; returns a result for each, in the same order.

    Tables, dates and listing are those of an enriched run that this platform shreds. The bad rows that the transformer has set
    aside are not read. A run whose files disagree with its seal, in types or in the number of events, gives a ShredFailure.
    `resolver`: returns the resolver of the schemas, in Spark's workers. `fewer`: a run may have fewer events than its seal
    counts.
    """
    options, started = options or Options(), datetime.now(UTC)
    tasks: list[Task[_Pieces]] = []
    seals: dict[int, Seal] = {}
    failures: dict[int, ShredFailure] = {}
    for index, run in enumerate(runs):
        try:
            seals[index] = Seal.read(run.place)
            planned = _plan(run, seals[index], options.split_size)
        except (Unusable, OSError) as error:
            failures[index] = ShredFailure.of(run, error)
            continue
        tasks += [
            Task(index, number, run.output, tuple(piece.uri for piece, _ in pieces), pieces)
            for number, pieces in enumerate(planned)
        ]
    models = {index: seal.models for index, seal in seals.items()}

    def work(task: Task[_Pieces]) -> Written:
        return shred_pieces(task, models[task.directory], resolver(), options)

    results = shred_batch(spark, runs, tasks, work, options)
    return [
        failures.get(index) or _counted(run, seals[index], results[index], started, fewer) for index, run in enumerate(runs)
    ]


def _counted(
    run: TransformedRun, seal: Seal, result: Listing | ShredFailure, started: datetime, fewer: bool
) -> Listing | ShredFailure:
    """Seals a run with the types of the transformer's seal, and the layout that was written.

    Returns a failure in place of a listing with another number of events than the seal says. Bad rows may be events. The seal
    counts too many if a task of the transformer was repeated, because it counts by accumulators of Spark; it never counts too
    few.
    """
    if isinstance(result, ShredFailure):
        return result
    counts = f"{run.place} has {result.good:,} events, but its seal counts {seal.good or 0:,}"
    if seal.good is not None and seal.good < result.good:
        again = "files were added; run the transformer again, and accept the run"
        return ShredFailure.of(run, Unusable(f"{counts}: {again}"))
    if seal.good is not None and seal.good > result.good + result.bad:
        if not fewer:
            message = (
                f"{counts}: files are missing, or the transformer has counted a repeated task twice. If files are missing, run"
                " the transformer again, and accept the run. If not, set shred.fewer_events: load, and resolve the run"
            )
            return ShredFailure.of(run, Unusable(message))
        result = _told(result, f"{result.good:,} events, and the seal of the run counts {seal.good:,}")
    rows = "events" if seal.transformation == "WIDEROW" else "tables"
    types = [(one.key, one.entity or "CONTEXT") for one in seal.types]
    return write_seal(run, result, started, rows, types)


def _told(listing: Listing, text: str) -> Listing:
    """Returns the listing with a remark about its events."""
    tables = tuple(
        replace(one, descriptions={**one.descriptions, ABOUT_TABLE: text}) if one.name == EVENTS_TABLE else one
        for one in listing.tables
    )
    return replace(listing, tables=tables)


def _plan(run: TransformedRun, seal: Seal, split_size: int) -> list[_Pieces]:
    """Returns the pieces of each task: text is cut into byte ranges, and a Parquet file is read as a whole."""
    planned: list[_Pieces] = []
    root = run.root
    by_what: dict[TableFile | WideFile, list[tuple[str, int]]] = {}
    for part in run.parts(seal):
        by_what.setdefault(part.what, []).append((part.uri, part.size))
    room, group = split_size, list[tuple[Piece, TableFile | WideFile]]()
    for what, files in by_what.items():
        wholes = [(Piece(uri, size, 0, size, root),) for uri, size in files if size]
        for pieces in wholes if isinstance(what, WideFile) else plan(files, split_size, root):
            size = sum(piece.end - piece.start for piece in pieces)
            if group and size > room:
                planned.append(tuple(group))
                room, group = split_size, []
            group += [(piece, what) for piece in pieces]
            room -= size
    return [*planned, tuple(group)] if group else planned


def shred_pieces(
    task: Task[_Pieces], models: Mapping[str, Sequence[SchemaKey]], resolver: Resolver, options: Options
) -> Written:
    """Types a task's pieces and writes the result. `models`: the schemas of the run's seal, by family."""
    writer = Writer(task, options.split_size + CHUNK, by_date, options.limits, date_files=options.date_files, pack=options.pack)
    writer.add(BAD)  # people look for this table before the first bad row
    for piece, what in task.part:
        for size, shredded in _shredded(piece, what, models, resolver, options):
            for name, table in shredded.tables.items():
                writer.add(shredded.definitions[name], table, shredded.types[name])
            writer.chunk_done(size, shredded.good, BAD, shredded.bad)
    return writer.close()


def _shredded(
    piece: Piece, what: TableFile | WideFile, models: Mapping[str, Sequence[SchemaKey]], resolver: Resolver, options: Options
) -> Iterator[tuple[int, ShreddedEvents]]:
    if isinstance(what, WideFile):
        with open_landed(piece.uri, piece.size, piece.root) as file:
            yield from shred_parquet(file, piece.uri)
        return
    if what.is_atomic:
        yield from shred_piece(piece, shred_events, options.limits)
        return
    known = models[what.family][-1]
    exact = sibling(known, what.version) if what.version else None
    model = Model(resolver, known, exact)

    def entities(data: bytes, file: str, first_line: int) -> ShreddedEvents:
        return shred_entities(data, model, file, first_line)

    yield from shred_piece(piece, entities, options.limits)
