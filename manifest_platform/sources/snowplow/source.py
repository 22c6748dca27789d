"""Snowplow enriched runs as a source: one feed, tables that only append."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from manifest_platform import __version__
from manifest_platform.manifest import Application, Claim, ItemKey, Landed, Step
from manifest_platform.sources.directories import Found, LandedDirectory
from manifest_platform.sources.snowplow.enriched import EVENTS_TABLE
from manifest_platform.sources.snowplow.layout import list_runs, parse_run_name, read_run
from manifest_platform.sources.snowplow.settings import FEED, SnowplowSettings
from manifest_platform.sources.source import LOAD, SHRED, Known, Named, Source, Words, rewritten

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from manifest_platform.listing import Listing
    from manifest_platform.shred.batch import Directory, ShredFailure


class SnowplowEnriched(Source):
    """The runs of one application, below one landing root."""

    model = SnowplowSettings
    settings: SnowplowSettings

    words = Words(
        kind="snowplow",
        directories="enriched_runs",
        form="a run name (run=YYYY-MM-DD-HH-MM-SS)",
        rows="events",
        landed="Run directories of Snowplow enriched events, registered in the manifest as soon as they are complete.",
        shredded="Typed Parquet of every run: the events, one table an entity type, and the bad rows.",
        loaded={FEED: "The runs in the warehouse: strictly in order, exactly once, one transaction a run."},
    )
    feeds = (FEED,)
    main = FEED
    appends = True
    main_table = EVENTS_TABLE

    def steps(self, feed: str, attempts: int) -> tuple[Step, ...]:
        """Shred, whose completions are numbered for merging, and load, in strict order."""
        return (
            Step(Application(SHRED, __version__), max_attempts=attempts, numbered=True),
            Step(
                Application(LOAD, __version__),
                upstream=(SHRED,),
                order="strict",
                late=self.settings.load.late,
                max_attempts=attempts,
            ),
        )

    def named(self, text: str) -> list[Named]:
        """The run of a name."""
        parsed = parse_run_name(text)
        return [Named(FEED, parsed.sort)] if parsed else []

    def placed(self, uri: str) -> Named | None:
        """The run that a URI ends in."""
        return next(iter(self.named(uri.rsplit("/", 1)[-1])), None)

    def time(self, name: str) -> datetime | None:
        """The time in the run's name."""
        parsed = parse_run_name(name)
        return parsed.time if parsed else None

    def look(self, feed: str, after: datetime | None, known: Known) -> Found:
        """The runs of the landing root, with their files: that a known one was rewritten is told."""
        return list_runs(self.root, after, self.completeness)

    def time_column(self, table: str) -> str:
        """The collector's time, of the event itself or of the one that an entity belongs to."""
        from manifest_platform.sources.snowplow.shredder import time_column

        return time_column(table)

    def landed(self, feed: str, seen: LandedDirectory) -> Landed:
        """A run: its order is that of its name."""
        return Landed(ItemKey(feed, seen.sort, seen.uri), len(seen.files), seen.bytes, seen.checksum)

    def directory(self, claim: Claim, output: str) -> Directory:
        """The run's files, by one listing."""
        from manifest_platform.shred.batch import Directory

        key, landed = claim.item.key, claim.item.landed
        run = read_run(key.id, self.completeness)
        if landed and run.checksum != landed.checksum:
            raise rewritten(landed, len(run.files), run.bytes)
        files = tuple((file.uri, file.size) for file in run.files)
        return Directory(key.id, files, output, claim.processing.record_id)

    def shred(self, session: SparkSession, directories: Sequence[Directory]) -> list[Listing | ShredFailure]:
        """Events and entities, typed by their schemas."""
        from manifest_platform.shred.batch import Options
        from manifest_platform.sources.snowplow.shredder import shred

        settings = self.settings.shred
        bad = settings.bad_rows
        options = Options(split_size=settings.split_mib << 20, max_bad_count=bad.max_count, max_bad_share=bad.max_share)
        return shred(session, directories, self._resolver, options)

    @cached_property
    def _resolver(self):
        from manifest_platform.sources.snowplow.iglu import Resolver

        return Resolver(self.settings.shred.schemas)
