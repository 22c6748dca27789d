"""A source as another package would bring it: a folder a day, `day=YYYY-MM-DD`, of notes as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from manifest_platform.listing import Column, Listing, Table
from manifest_platform.manifest import Application, Claim, ItemKey, Landed, Refused, Step
from manifest_platform.shred.batch import (
    CHUNK,
    Dated,
    Directory,
    Options,
    ShredFailure,
    Task,
    Writer,
    Written,
    shred_batch,
)
from manifest_platform.shred.lines import Piece, TooLong, chunks, plan
from manifest_platform.shred.rows import BAD, BadRow, bad_table
from manifest_platform.sources.directories import (
    DirectoryName,
    Found,
    FoundNames,
    LandedDirectory,
    Layout,
    find,
    list_names,
    read,
)
from manifest_platform.sources.errors import LandingMisconfigured
from manifest_platform.sources.preview import Guess, Place
from manifest_platform.sources.settings import DatasetSettings
from manifest_platform.sources.source import LOAD, SHRED, Known, Named, Source, Words, rewritten

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

FEED = "notes"
NOTES = Table(FEED, (Column("id", "bigint", nullable=False), Column("text", "string"), Column("day", "date", nullable=False)))


def parse(name: str) -> DirectoryName | None:
    """Parses a folder's name `day=YYYY-MM-DD`; returns None for any other name."""
    try:
        day = datetime.strptime(name, "day=%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    return DirectoryName(name, name.removeprefix("day="), day)


LAYOUT = Layout(parse)


class NotesSettings(DatasetSettings):
    """A dataset of notes."""

    feeds: ClassVar[tuple[str, ...]] = (FEED,)

    source: Literal["notes"] = Field("notes", description="a folder of notes a day")


class Notes(Source):
    """Notes, a folder a day."""

    model = NotesSettings
    words = Words(
        kind="json",
        directories="days",
        form="a day (day=YYYY-MM-DD)",
        rows="notes",
        landed="Folders of notes.",
        shredded="Typed Parquet of every day.",
        loaded={FEED: "The notes in the warehouse."},
    )
    feeds = (FEED,)
    main = FEED
    appends = True
    main_table = FEED

    def steps(self, feed: str, attempts: int) -> tuple[Step, ...]:
        late = self.settings.load.late
        return (
            Step(Application(SHRED), max_attempts=attempts, numbered=True),
            Step(Application(LOAD), upstream=(SHRED,), order="strict", late=late, max_attempts=attempts),
        )

    def named(self, text: str) -> list[Named]:
        parsed = parse(text)
        return [Named(FEED, parsed.sort)] if parsed else []

    def placed(self, uri: str) -> Named | None:
        return next(iter(self.named(uri.rpartition("/")[2])), None)

    def time(self, name: str) -> datetime | None:
        parsed = parse(name)
        return parsed.time if parsed else None

    def look(self, feed: str, after: datetime | None, known: Known) -> Found:
        return find(self.root, LAYOUT, f"day={after:%Y-%m-%d}" if after else "", self.completeness)

    def names(self, feed: str, beyond: str, most: int, after: datetime | None = None) -> FoundNames:
        found = list_names(self.root, LAYOUT, f"day={after:%Y-%m-%d}" if after else "", beyond=beyond, most=most)
        return replace(found, names=[one for one in found.names if after is None or one.time >= after])

    def read(self, feed: str, name: DirectoryName) -> LandedDirectory:
        return read(f"{self.root}/{name.name}", name, LAYOUT, self.completeness)

    def landed(self, feed: str, seen: LandedDirectory) -> Landed:
        return Landed(ItemKey(feed, seen.sort, seen.uri), len(seen.files), seen.bytes, seen.checksum)

    def reread(self, landed: Landed) -> Landed:
        name = parse(landed.place.rpartition("/")[2])
        if name is None:
            raise LandingMisconfigured(f"{landed.place} is no day")
        return self.landed(FEED, read(landed.place, name, LAYOUT, self.completeness))

    @classmethod
    def guesses(cls, place: Place, schemas: Sequence[str] = ()) -> Iterator[Guess]:
        if any(parse(name) for name in place.entries.folders):
            yield Guess({}, "a folder a day")

    def directory(self, claim: Claim, output: str) -> Directory:
        key, landed = claim.item.key, claim.item.landed
        name = parse(key.id.rpartition("/")[2])
        if landed is None or name is None:
            raise Refused(f"{key.id} was not discovered")
        seen = read(key.id, name, LAYOUT, self.completeness)
        seen.check()
        if seen.checksum != landed.checksum:
            raise rewritten(landed, len(seen.files), seen.bytes)
        files = tuple((file.uri, file.size) for file in seen.files)
        return Directory(key.id, files, output, claim.processing.record_id, root=self.root)

    def shred(self, session: SparkSession, directories: Sequence[Directory]) -> list[Listing | ShredFailure]:
        options = Options(split_size=self.settings.shred.split_mib << 20)
        tasks = [
            Task(index, number, directory.output, tuple(piece.uri for piece in pieces), (days[-10:], pieces))
            for index, directory in enumerate(directories)
            for days in [directory.item]
            for number, pieces in enumerate(plan(directory.files, options.split_size, directory.root))
        ]
        return shred_batch(session, directories, tasks, work, options)


def work(task: Task[tuple[str, tuple[Piece, ...]]]) -> Written:
    """Shreds the files of a task, in a worker of Spark."""
    import pyarrow as pa

    from manifest_platform.shred.rows import arrow_schema

    day, pieces = task.part
    writer = Writer(task, CHUNK, lambda _name, rows: dated(day, rows))
    writer.add(BAD)
    for piece in pieces:
        for _, found in chunks(piece):
            data = found.head if isinstance(found, TooLong) else found  # cut off, it is no JSON any more
            lines = list(notes(data, day))
            good = [line for line in lines if isinstance(line, dict)]
            bad = bad_table(piece.uri, [line for line in lines if isinstance(line, BadRow)])
            writer.add(NOTES, pa.Table.from_pylist(good, arrow_schema(NOTES.columns)))
            writer.chunk_done(len(data), len(good), BAD, bad)
    return writer.close()


def dated(day: str, rows: pa.Table) -> Iterator[Dated]:
    """All rows of a folder are of its day."""
    yield Dated(day, rows)


def notes(data: bytes, day: str) -> Iterator[dict[str, Any] | BadRow]:
    """The note of each line, or why it is none."""
    date = datetime.strptime(day, "%Y-%m-%d").date()
    for number, line in enumerate(data.splitlines(), 1):
        try:
            told = json.loads(line)
            yield {"id": int(told["id"]), "text": told.get("text"), "day": date}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            yield BadRow(number, [{"type": "no_note", "message": str(error)}], line.decode(errors="replace"))
