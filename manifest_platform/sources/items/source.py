"""Items that programs register as a source: one feed, which the platform neither looks for, shreds nor loads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

from manifest_platform.manifest import Claim, InvalidKey, Landed, Refused, Step
from manifest_platform.manifest.item import ITEMS, check_key_text
from manifest_platform.sources.directories import DirectoryName, Found, FoundNames, LandedDirectory
from manifest_platform.sources.items.settings import ItemsSettings
from manifest_platform.sources.settings import DatasetSettings
from manifest_platform.sources.source import Drain, Known, Named, Source, Words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from manifest_platform.listing import Listing
    from manifest_platform.shred.batch import Directory, ShredFailure


class RegisteredItems(Source):
    """Items of other programs. Their names are their ids, whole, or their sort keys."""

    model = ItemsSettings
    words = Words(
        kind="items",
        directories=ITEMS,
        form="an item's id (a URI) or its sort key",
        rows="rows",
        landed="Items that programs registered.",
        shredded="",
        loaded={},
    )
    feeds = ()
    registered = (ITEMS,)
    main = ITEMS
    appends = True

    def __init__(self, dataset: str, settings: DatasetSettings):
        self.dataset, self.settings = dataset, settings

    def holds(self, uri: str) -> bool:
        """Nothing lands, so nothing lies in a landing root."""
        return False

    @property
    def drains(self) -> tuple[Drain, ...]:
        """None: programs do the work."""
        return ()

    @property
    def snapshots(self) -> None:
        """None."""
        return

    def steps(self, feed: str, attempts: int) -> tuple[Step, ...]:
        """None of the platform's."""
        return ()

    def named(self, text: str) -> list[Named]:
        """The item of a sort key."""
        try:
            check_key_text("sort key", text)
        except InvalidKey:
            return []
        return [Named(ITEMS, text)]

    def placed(self, uri: str) -> Named | None:
        """Nothing: the manifest knows an item by its whole id."""
        return None

    def time(self, name: str) -> datetime | None:
        """The time that a sort key is."""
        try:
            time = datetime.fromisoformat(name)
            return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            return None

    def logical_time(self, landed: Landed) -> datetime | None:
        """When the item's span starts, or the time that its sort key is."""
        return self.time(landed.start or landed.key.sort)

    def look(self, feed: str, after: datetime | None, known: Known) -> Found:
        """Nothing lands."""
        return Found([], [], 0)

    def names(self, feed: str, beyond: str, most: int) -> FoundNames:
        """Nothing lands."""
        return FoundNames([], [], 0)

    def read(self, feed: str, name: DirectoryName) -> LandedDirectory | None:
        """Nothing lands."""
        return None

    def landed(self, feed: str, seen: LandedDirectory) -> NoReturn:
        """Raises Refused: nothing lands."""
        raise self._nothing_lands()

    def reread(self, landed: Landed) -> Landed:
        """The item as its program registered it: nobody else can look at it."""
        return landed

    def directory(self, claim: Claim, output: str) -> Directory:
        """Raises Refused: nothing lands."""
        raise self._nothing_lands()

    def shred(self, session: SparkSession, directories: Sequence[Directory]) -> list[Listing | ShredFailure]:
        """Raises Refused: nothing lands."""
        raise self._nothing_lands()

    def _nothing_lands(self) -> Refused:
        return Refused(
            f"the items of dataset {self.dataset} are registered by programs: there is nothing of them to be shredded"
        )
