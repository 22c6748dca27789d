"""The Spark jobs of a batch of directories: the job that shreds them, and the job that shows whether the cluster works."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from manifest_platform import progress, storage
from manifest_platform.faults import Misconfigured, Transient
from manifest_platform.listing import Listing
from manifest_platform.manifest import Application, Claim, Holding, Item, ItemKey, Lease, Refused, StoreError
from manifest_platform.manifest.item import short_name
from manifest_platform.pipeline.isolation import End, Work
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.quantities import count_of
from manifest_platform.shred.batch import Cause, Directory, ShredFailure
from manifest_platform.sources.errors import LandingError
from manifest_platform.sources.source import SHRED
from manifest_platform.spark import watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOKED_AT = 100
"""The items of a stretch of a feed among which those are chosen that were shredded before."""
_TRIED = 3
"""The directories of a feed that are tried in search of one that can be shredded again."""


class Shredding(Work[Directory, "Listing | ShredFailure"]):
    """The shredding of claimed directories. `claims`: by the ids of their items."""

    name = "directories"

    def __init__(self, pipeline: Pipeline, lease: Lease, session: SparkSession, claims: Mapping[str, Claim]) -> None:
        self._pipeline, self._lease, self._session, self._claims = pipeline, lease, session, claims
        self._sound: Directory | None = None

    def run(self, parts: Sequence[Directory]) -> list[Listing | ShredFailure]:
        """Shreds directories in one job."""
        self._lease.check()
        what, size = count_of(len(parts), "directory", "directories"), sum(map(_size, parts))
        try:
            with progress.work(f"shredding {what}", size, progress.BYTES) as work, watched(self._session, work):
                return self._pipeline.source.shred(self._session, parts)
        except (Misconfigured, Transient) as error:
            return [ShredFailure.of(directory, error) for directory in parts]

    def end(self, part: Directory, result: Listing | ShredFailure) -> tuple[End, str]:
        """Says what a result means, and remembers a small directory that was shredded."""
        if isinstance(result, ShredFailure):
            return {Cause.DIED: End.DIED, Cause.LOST: End.LOST}.get(result.cause, End.OTHER), result.message
        if not part.files:
            return End.OTHER, ""  # an empty directory needs no Spark
        if self._sound is None or _size(part) < _size(self._sound):
            self._sound = part
        return End.DONE, ""

    def control(self) -> bool | None:
        """Shreds a directory again that was shredded before. What this writes is named by no record, and is removed."""
        for directory in [self._sound] if self._sound else self._shredded_before():
            output = f"{directory.output.rpartition('/')[0]}/{uuid4()}"
            self._lease.check()
            with (
                contextlib.suppress(Misconfigured, Transient),
                progress.work("shredding one again, to see whether Spark works"),
            ):
                [result] = self._pipeline.source.shred(self._session, [dataclasses.replace(directory, output=output)])
                with contextlib.suppress(OSError):
                    storage.delete_folder(output)
                end, _ = self.end(directory, result)
                if end is not End.OTHER:
                    return end is End.DONE
        return None

    def title(self, part: Directory) -> str:
        """Returns the short name of a directory's item."""
        return short_name(part.item)

    def _shredded_before(self) -> Iterator[Directory]:
        """Yields small directories that were shredded before and are as they were, first those of the claims' feed."""
        claim = next(iter(self._claims.values()))
        for feed in sorted(self._pipeline.feeds, key=lambda feed: feed != claim.item.key.feed):
            found: dict[ItemKey, Item] = {}
            with contextlib.suppress(StoreError):
                found = {one.key: one for one in self._near(feed, claim.item.key) if _is_shredded(one)}
            for item in sorted((one for one in found.values() if one.key.id not in self._claims), key=_landed)[:_TRIED]:
                with contextlib.suppress(LandingError, Refused, OSError):
                    of_item = dataclasses.replace(claim, item=item)
                    directory = self._pipeline.source.directory(of_item, f"{self._pipeline.folder(item.key)}/{uuid4()}")
                    if directory.files:
                        yield directory

    def _near(self, feed: str, key: ItemKey) -> Iterator[Item]:
        """Yields items of a feed: those before an item of the feed, and the newest."""
        for after in dict.fromkeys([key.position if key.feed == feed else "", ""]):
            items = self._pipeline.manifest.items(feed, after, page=_LOOKED_AT, reverse=True, archived=False)
            yield from itertools.islice(items, _LOOKED_AT)


def _size(directory: Directory) -> int:
    return sum(size for _, size in directory.files)


def _landed(item: Item) -> int:
    return item.landed.bytes if item.landed else 0


def _is_shredded(item: Item) -> bool:
    is_there = bool(_landed(item)) and not item.deletion_of(Holding.LANDING)  # retention deletes landed directories
    return is_there and item.processed_by(Application(SHRED)) is not None
