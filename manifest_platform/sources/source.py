"""What a source of directories has of its own: the contract that each plug-in of the group `manifest_platform.sources` fulfils.

Belongs here: the contract, and the choice of the source that is configured. What is done with a source's items is `pipeline`'s,
and how they are shown `cli`'s and `orchestration`'s, the same for all: they render what a source declares.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from manifest_platform import plugins, storage
from manifest_platform.manifest import Claim, ItemKey, Landed, Manifest, Refused, Step
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.capture import Attempts, CaptureEvent, CapturePlan
from manifest_platform.sources.directories import DirectoryName, Found, FoundNames, LandedDirectory, Marker, Settle
from manifest_platform.sources.preview import Bounds, Guess, Place, Sample
from manifest_platform.sources.settings import PLATFORM_STEPS, DatasetBasics, DatasetSettings
from manifest_platform.sources.windows import FoundWindows
from manifest_platform.warehouse.load import Limits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from manifest_platform.listing import Listing
    from manifest_platform.shred.batch import Directory, ShredFailure

SHRED, LOAD = PLATFORM_STEPS


@dataclass(frozen=True)
class Words:
    """What a source's things are called, for people.

    `kind`: what Dagster marks its assets with. `directories`: the asset of what landed. `form`: what a name looks like.
    `rows`: what a directory's lines hold. `landed`, `shredded` and, by feed, `loaded`: a sentence on what landed, on what
    shredding makes of it, and on what loading does.
    """

    kind: str
    directories: str
    form: str
    rows: str
    landed: str
    shredded: str
    loaded: Mapping[str, str]


@dataclass(frozen=True)
class Named:
    """An item as a name tells it: its feed and its sort key."""

    feed: str
    sort: str


@dataclass(frozen=True)
class Drain:
    """A drain that Dagster runs: its name behind the dataset's, and the feeds that it drains, in order."""

    name: str
    feeds: tuple[str, ...]


class Stage(StrEnum):
    """An asset of a feed that a check is about."""

    LANDED = "landed"
    SHREDDED = "shredded"
    WAREHOUSE = "warehouse"


@dataclass(frozen=True)
class CheckResult:
    """What a check found: in words, and as values that plot."""

    passed: bool
    description: str
    shown: Mapping[str, str | int | float]


@dataclass(frozen=True)
class SourceCheck:
    """A check that a source brings, of an asset of a feed: what it promises, and the function that looks.

    A check that fails warns. The sensor evaluates it at every tick, so it asks the manifest for little.
    """

    name: str
    feed: str
    stage: Stage
    description: str
    find: Callable[[Manifest], CheckResult]


Known = Callable[[Sequence[ItemKey]], Collection[ItemKey]]
"""Which of some items the manifest has."""


class Source(ABC):
    """A source, for one dataset.

    `model`: the settings of such a dataset. `words`: what its things are called. `feeds`: in the order in which a drain loads
    them; `registered`: feeds whose items programs register, of which the platform does nothing itself; `main`: the feed that
    others follow; `on_demand`: feeds whose directories are shredded when somebody asks for it, not
    as they land. `appends`: whether its tables only append, so that what they hold is the sum of what was loaded.
    `splits_types`: feeds of which a type that a column cannot hold goes to a column beside it, as no snapshot brings it.
    `main_table`: the table that is there before anything was shredded, None where no table is. `retention`: how long the origin
    keeps directories, None where it is not known. `root`: the landing root, as a URI; `completeness`: when a directory that has
    landed counts as complete.
    """

    model: ClassVar[type[DatasetBasics]]
    words: Words
    feeds: ClassVar[tuple[str, ...]]
    registered: ClassVar[tuple[str, ...]] = ()
    main: ClassVar[str]
    on_demand: ClassVar[frozenset[str]] = frozenset()
    appends: ClassVar[bool]
    splits_types: ClassVar[frozenset[str]] = frozenset()
    main_table: ClassVar[str | None] = None
    retention: ClassVar[timedelta | None] = None
    root: str
    completeness: Marker | Settle

    def __init__(self, dataset: str, settings: DatasetSettings):
        landing = settings.landing
        self.dataset, self.settings = dataset, settings
        self.root = storage.as_uri(landing.root)
        self.completeness = Marker(landing.marker) if landing.complete == "marker" else Settle(landing.settle_seconds)

    def holds(self, uri: str) -> bool:
        """Whether a URI lies in the landing root; `…/landing-of-another` does not lie in `…/landing`."""
        return uri.startswith(f"{self.root}/")

    @property
    def origin(self) -> str | None:
        """What the system is called that the directories come from, as its operators know it; None where nothing says."""
        return None

    @property
    def keeps(self) -> tuple[str, ...]:
        """Patterns of tables that a snapshot leaves as they are where it lacks them."""
        return ()

    @property
    def limits(self) -> Limits | None:
        """What a snapshot may do without an operator's consent; None where there are no snapshots."""
        return None

    @property
    def drains(self) -> tuple[Drain, ...]:
        """The dataset's drains, each a job. They work side by side; on a warehouse with one writer they take turns."""
        return (Drain("drain", self.feeds),)

    @property
    def checks(self) -> tuple[SourceCheck, ...]:
        """Checks besides those that every source has."""
        return ()

    @property
    def snapshots(self) -> str | None:
        """The feed of snapshots, which are loaded in full; None for a source without."""
        return next((feed for feed in self.feeds if self.load_step(feed).order == "full"), None)

    def load_step(self, feed: str) -> Step:
        """How a feed is loaded."""
        return next(step for step in self.steps(feed, attempts=1) if step.application.name == LOAD)

    def time_column(self, table: str) -> str | None:
        """The column with the time that puts a table's rows under dates, by which merging sorts them; None where none does."""
        return None

    # Names and directories

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

    @classmethod
    def began(cls, name: str) -> datetime | None:
        """When an item begins, as its name alone tells: a daily asset follows by this. None for a name that does not tell."""
        del name
        return None

    def logical_time(self, landed: Landed) -> datetime | None:
        """The time by which a period means a directory: that of its name; of a window, when it starts."""
        return self.time(landed.key.name)

    def covers_upto(self, name: str) -> datetime | None:
        """Up to when a directory has all there is, by its name: its time, or when its window stops."""
        return self.time(name)

    @abstractmethod
    def look(self, feed: str, after: datetime | None, known: Known) -> Found:
        """The directories of a feed that are there, from a logical time on. Raises LandingError."""

    @abstractmethod
    def names(self, feed: str, beyond: str, most: int) -> FoundNames:
        """The names of a part of a feed's directories, of whatever time, as `list_names` gives them. Raises LandingError."""

    def part(self, feed: str, beyond: str, most: int) -> FoundWindows | None:
        """Like `names`, with the files, of a source that lists directories by their files, else None. Raises LandingError."""
        return None

    def is_over(self, seen: LandedDirectory, now: datetime) -> bool:
        """Whether a directory's time is over, by the storage's clock: before that it is not complete, whatever it holds."""
        return True

    def divided(
        self, manifest: Manifest, feed: str, seen: Sequence[LandedDirectory], known: Mapping[str, str | None]
    ) -> list[LandedDirectory]:
        """The directories that were seen, each as the items that it is. `known`: the checksums that the manifest has, by id."""
        return list(seen)

    @abstractmethod
    def read(self, feed: str, name: DirectoryName) -> LandedDirectory | None:
        """A directory of the landing root as it is now; None where nothing has landed in it yet. Raises LandingError."""

    @abstractmethod
    def landed(self, feed: str, seen: LandedDirectory) -> Landed:
        """A directory as the manifest is to know it."""

    @abstractmethod
    def reread(self, landed: Landed) -> Landed:
        """A registered directory as it is now at its place, to be compared: files, bytes, checksum. Raises LandingError."""

    def as_it_is(self, manifest: Manifest, landed: Landed) -> Landed:
        """A registered directory as it is to be accepted now: as `reread` has it, unless its content is divided among items."""
        return self.reread(landed)

    def meant(self, name: str) -> str | None:
        """The name that is meant by a name which is nearly one of the source's, as `run=…` by `Run=…`, else None."""
        return None

    def offered_instead(self, manifest: Manifest, landed: Landed) -> str | None:
        """The checksum of other content that the origin offers for an item now, where the platform captures it itself."""
        return None

    def capture_again(self, manifest: Manifest, landed: Landed) -> Landed:
        """What the origin offers for a known item now, written beside what was captured; the manifest does not know it yet.

        Only where `offered_instead` says that it offers other content. Raises Refused, also where others land the directories,
        LandingError.
        """
        raise Refused(
            f"{landed.place} was landed by others, so its new content cannot be captured: land it there, and accept it then",
            Remedy(Action.ACCEPT, item=landed.key.name),
        )

    # Before anything is configured

    @classmethod
    def guesses(cls, place: Place, schemas: Sequence[str] = ()) -> Iterator[Guess]:
        """What settings make a place a landing root of such a source, likeliest first; none where nothing in it looks like it.

        `schemas`: places of schemas that a person named. Raises LandingError, OSError.
        """
        yield from ()

    @classmethod
    def hints(cls, place: Place) -> Iterator[str]:
        """What lies in a place that is no landing root of such a source and nearly is, and what to do: a sentence each.

        Raises LandingError, OSError.
        """
        yield from ()

    def sample(self, directories: Sequence[tuple[str, LandedDirectory]], bounds: Bounds) -> Sample | None:
        """What directories, each with its feed, become when shredded, or the beginning of it, without Spark or a write.

        None where the source shows no sample. What is wrong with a directory is told in the sample.
        """
        return None

    # Work

    @abstractmethod
    def directory(self, claim: Claim, output: str) -> Directory:
        """The files to shred, as they are now. Raises LandingError, and Refused if they are not those that were registered."""

    @abstractmethod
    def shred(self, session: SparkSession, directories: Sequence[Directory]) -> list[Listing | ShredFailure]:
        """Shreds directories in one Spark job; the results come in their order."""

    # Capturing

    @property
    def captures(self) -> CapturePlan | None:
        """What the platform captures of the dataset itself; None where others land its directories."""
        return None

    def attempts(self, feed: str) -> Attempts:
        """What captures of a feed have written, be it registered or not. Raises as `look`."""
        return Attempts({})

    def capture(
        self,
        manifest: Manifest,
        now: datetime,
        feeds: Collection[str] | None = None,
        names: Collection[str] | None = None,
        insist: bool = True,
    ) -> Iterator[CaptureEvent]:
        """Captures what the origin has and the manifest does not know; what happens, and at last a CaptureReport.

        `now`: the time, UTC. `feeds`: of those that are configured; `names`: these directories alone; `insist`: also with a
        login that was refused within the last day. Raises Refused where nothing is captured, for a feed that is not captured
        and for an unknown name.
        """
        raise Refused(f"nothing is captured of dataset {self.dataset}: others land its directories")


def source_type(settings: DatasetSettings) -> type[Source]:
    """The kind of source that a dataset's settings name. Raises UnknownPlugin."""
    return plugins.load(plugins.SOURCES, settings.source)


def open_source(dataset: str, settings: DatasetSettings) -> Source:
    """The source of a dataset. Raises UnknownPlugin."""
    return source_type(settings)(dataset, settings)


def rewritten(landed: Landed, files: int, size: int) -> Refused:
    """What is said of a directory that is not what was registered."""
    return Refused(
        f"{landed.place} was rewritten after its discovery ({landed.files} files, {landed.bytes:,} bytes then;"
        f" {files} files, {size:,} bytes now): accept it where that was on purpose, or put the first content back and resolve"
        " it",
        Remedy(Action.ACCEPT, item=landed.key.name),
    )
