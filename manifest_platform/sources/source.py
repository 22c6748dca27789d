"""What a source of directories has of its own: feeds and steps, names, how directories are found, and how they are shredded.

Belongs here: the seam. Each source is a module beside this one; what is done with its items is `pipeline`'s, the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from manifest_platform import storage
from manifest_platform.manifest import Claim, ItemKey, Landed, Refused, Step
from manifest_platform.sources.directories import Marker, RunDirectory, Settle
from manifest_platform.sources.settings import DatasetSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from manifest_platform.listing import Listing
    from manifest_platform.shred.batch import Directory, ShredFailure

SHRED, LOAD = "shred", "load"


@dataclass(frozen=True)
class Named:
    """An item as a name tells it: its feed and its sort key."""

    feed: str
    sort: str


Known = Callable[[Sequence[ItemKey]], Collection[ItemKey]]
"""Which of some items the manifest has."""


@dataclass(frozen=True)
class Sweep:
    """What one look at a feed saw: directories with their files, and how many `known` ones it did not look into.

    `unparseable`: names that are no directory's of the source. `requests`: to the object storage.
    """

    runs: Sequence[RunDirectory]
    unparseable: Sequence[str]
    requests: int
    known: int = 0


class Source(ABC):
    """A source, for one dataset. `model`: the settings of such a dataset.

    `feeds`: in the order in which a drain loads them; `main`: the one that others follow.

    `on_demand`: feeds whose directories are shredded when somebody asks for it, not as they land. `form`: what a name looks
    like. `kind`: what Dagster marks them with. `landed_as`: what the directories are called; `landed_are`, `shredded_are` and,
    by feed, `loaded_are`: a sentence on what they are, what shredding makes of them, and what loading does.
    """

    model: ClassVar[type[DatasetSettings]]
    feeds: ClassVar[tuple[str, ...]]
    main: ClassVar[str]
    form: ClassVar[str]
    kind: ClassVar[str]
    landed_as: ClassVar[str]
    landed_are: ClassVar[str]
    shredded_are: ClassVar[str]
    loaded_are: ClassVar[Mapping[str, str]]
    on_demand: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, dataset: str, settings: DatasetSettings):
        self.dataset, self.settings = dataset, settings

    @property
    def root(self) -> str:
        """The landing root, as a URI."""
        return storage.as_uri(self.settings.landing.root)

    @property
    def keeps(self) -> tuple[str, ...]:
        """Patterns of tables that a snapshot leaves as they are where it lacks them."""
        return ()

    @property
    def completeness(self) -> Marker | Settle:
        """When a directory that has landed counts as complete."""
        landing = self.settings.landing
        return Marker(landing.marker) if landing.complete == "marker" else Settle(landing.settle_seconds)

    @abstractmethod
    def steps(self, feed: str, attempts: int) -> tuple[Step, ...]:
        """The platform's steps of a feed."""

    @abstractmethod
    def named(self, text: str) -> list[Named]:
        """What a name may mean; nothing for a text that is no name, as a URI."""

    @abstractmethod
    def placed(self, uri: str) -> Named | None:
        """What the end of a URI says."""

    @abstractmethod
    def time(self, name: str) -> datetime | None:
        """The logical time that a name tells."""

    @abstractmethod
    def sweep(self, feed: str, after: datetime | None, known: Known) -> Sweep:
        """The directories of a feed that are there, from a logical time on. Raises LandingError."""

    def time_column(self, table: str) -> str | None:
        """The column with the time that puts a table's rows under dates, by which merging sorts them; None where none does."""
        return None

    @abstractmethod
    def landed(self, feed: str, seen: RunDirectory) -> Landed:
        """A directory as the manifest is to know it."""

    @abstractmethod
    def directory(self, claim: Claim, output: str) -> Directory:
        """The files to shred, as they are now. Raises LandingError, and Refused if they are not those that were registered."""

    @abstractmethod
    def shred(self, session: SparkSession, directories: Sequence[Directory]) -> list[Listing | ShredFailure]:
        """Shreds directories in one Spark job; the results come in their order."""


def rewritten(landed: Landed, files: int, size: int) -> Refused:
    """What is said of a directory that is not what was registered."""
    return Refused(
        f"{landed.place} was rewritten after its discovery ({landed.files} files, {landed.bytes:,} bytes then;"
        f" {files} files, {size:,} bytes now): put the first content back and resolve it, or skip it"
    )
