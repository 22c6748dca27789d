"""The source of runs that Snowplow's own transformer has shredded, below one root.

A run is complete when it has its seal, `shredding_complete.json`. Names, order and tables are those of enriched runs.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from manifest_platform.manifest import Claim
from manifest_platform.sources.directories import LandedDirectory
from manifest_platform.sources.preview import Bounds, Guess, Place
from manifest_platform.sources.replays import Replays
from manifest_platform.sources.snowplow import recognition
from manifest_platform.sources.snowplow.source import SnowplowEnriched, parse_run_name
from manifest_platform.sources.snowplow.transformed.settings import TransformedSettings, TransformedShredSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from manifest_platform.listing import Listing
    from manifest_platform.shred.batch import Directory, Options, ShredFailure


class SnowplowTransformed(SnowplowEnriched):
    """The runs that a transformer has shredded: loaded in order, like runs that the platform shreds itself."""

    model = TransformedSettings
    needs_marker = True

    words = replace(
        SnowplowEnriched.words,
        directories="transformed_runs",
        landed="Runs that Snowplow's transformer has shredded, registered in the manifest once they have their seal.",
        shredded="Typed Parquet of every run: the events, a table for each type of entity, and rows that do not fit.",
    )

    @property
    def replays(self) -> Replays | None:
        """None: a row of an entity says nothing without its file, and a line of an event has no entities."""
        return None

    def directory(self, claim: Claim, output: str) -> Directory:
        """Lists the run's files, and compares them with what was registered."""
        from manifest_platform.sources.snowplow.transformed.shredder import TransformedRun

        found = super().directory(claim, output)
        place = claim.item.landed.place if claim.item.landed else claim.item.place
        return TransformedRun(found.item, found.files, found.output, found.attempt, root=found.root, place=place)

    def shred(self, session: SparkSession, directories: Sequence[Directory]) -> list[Listing | ShredFailure]:
        """Types the rows of runs by their schemas. Raises RegistryRefused if the key of a registry is not set."""
        from manifest_platform.sources.snowplow.events.shredder import process_resolver
        from manifest_platform.sources.snowplow.rules import Rules
        from manifest_platform.sources.snowplow.transformed.shredder import TransformedRun, shred

        settings = self.settings.shred
        tables = tuple(sorted(settings.tables.items()))
        resolver = functools.partial(
            process_resolver,
            tuple(self._registries()),
            settings.registry_limits,
            tables,
            uuid.uuid4().hex,
            Rules(names=settings.names),
        )
        runs = [one for one in directories if isinstance(one, TransformedRun)]
        return shred(session, runs, resolver, self._options(), self._allows_fewer)

    @property
    def _allows_fewer(self) -> bool:
        settings = self.settings.shred
        return isinstance(settings, TransformedShredSettings) and settings.fewer_events == "load"

    def _options(self) -> Options:
        from manifest_platform.shred.batch import Options

        settings = self.settings.shred
        bad = settings.bad_rows
        return Options(
            settings.split_mib << 20,
            bad.max_share,
            bad.max_count,
            settings.limits.of_input(),
            self.settings.date_files,
            self.settings.pack,
        )

    @classmethod
    def guesses(cls, place: Place, schemas: Sequence[str] = ()) -> Iterator[Guess]:
        """Recognizes runs that have a seal."""
        if recognition.is_sealed(place):
            for guess in recognition.guesses(place, schemas, parse_run_name):
                yield replace(guess, layout=f"{guess.layout}, shredded by Snowplow's transformer")

    @classmethod
    def hints(cls, place: Place) -> Iterator[str]:
        """Yields nothing: the hints of enriched runs hold for both."""
        yield from ()

    def sample(self, directories: Sequence[tuple[str, LandedDirectory]], bounds: Bounds) -> None:  # ty: ignore[incompatible-method-override]
        """Returns None: a transformed run has no preview."""
