"""The source of items that programs register: a single feed, which the platform does not discover, shred or load."""

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
    """Items that other programs register. Their names are their complete ids or their sort keys."""

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
        """Returns False: there is no landing root."""
        return False

    @property
    def drains(self) -> tuple[Drain, ...]:
        """Empty: programs do the work."""
        return ()

    @property
    def snapshots(self) -> None:
        """None: there are no snapshots."""
        return

    def steps(self, feed: str, attempts: int) -> tuple[Step, ...]:
        """Returns no steps of the platform."""
        return ()

    def named(self, text: str) -> list[Named]:
        """Returns the item with a sort key."""
        try:
            check_key_text("sort key", text)
        except InvalidKey:
            return []
        return [Named(ITEMS, text)]

    def placed(self, uri: str) -> Named | None:
        """Returns None: the manifest finds an item by its complete id."""
        return None

    def time(self, name: str) -> datetime | None:
        """Returns the time that a sort key states; None if it is not a time."""
        try:
            time = datetime.fromisoformat(name)
            return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            return None

    def logical_time(self, landed: Landed) -> datetime | None:
        """Returns the start of the item's span, or the time of its sort key."""
        return self.time(landed.start or landed.key.sort)

    def look(self, feed: str, after: datetime | None, known: Known) -> Found:
        """Returns nothing: nothing lands."""
        return Found([], [], 0)

    def names(self, feed: str, beyond: str, most: int, after: datetime | None = None) -> FoundNames:
        """Returns nothing: nothing lands."""
        return FoundNames([], [], 0)

    def read(self, feed: str, name: DirectoryName) -> LandedDirectory | None:
        """Returns None: nothing lands."""
        return None

    def landed(self, feed: str, seen: LandedDirectory) -> NoReturn:
        """Raises Refused: nothing lands."""
        raise self._nothing_lands()

    def reread(self, landed: Landed) -> Landed:
        """Returns the item as its program registered it: the platform cannot look at it."""
        return landed

    def directory(self, claim: Claim, output: str) -> Directory:
        """Raises Refused: nothing lands."""
        raise self._nothing_lands()

    def shred(self, session: SparkSession, directories: Sequence[Directory]) -> list[Listing | ShredFailure]:
        """Raises Refused: nothing lands."""
        raise self._nothing_lands()

    def _nothing_lands(self) -> Refused:
        return Refused(f"the items of dataset {self.dataset} are registered by programs, so there is nothing to shred")
