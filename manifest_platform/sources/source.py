"""The contract of a source, and the function that opens the source of a dataset.

A source is a plug-in of the entry point group `manifest_platform.sources`. It knows how directories of one kind are named, read
and shredded. This module holds the contract and the choice of the configured source. The steps that a source's items go through
are in `pipeline`. `cli` and `orchestration` render what a source declares, the same way for every source.
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
from manifest_platform.sources.replays import Replays
from manifest_platform.sources.settings import PLATFORM_STEPS, DatasetBasics, DatasetSettings
from manifest_platform.sources.windows import FoundWindows
from manifest_platform.warehouse.applied_view import AppliedView
from manifest_platform.warehouse.load import About, Limits, Origin
from manifest_platform.warehouse.repeats import Rule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from manifest_platform.listing import Listing
    from manifest_platform.shred.batch import Directory, ShredFailure
    from manifest_platform.sources.cutover import FormerLoader
    from manifest_platform.sources.schemas import Schemas

SHRED, LOAD = PLATFORM_STEPS


@dataclass(frozen=True)
class Words:
    """The names and sentences that people read about a source.

    - `kind`: the kind that Dagster shows on the source's assets
    - `directories`: the name of the asset of landed directories
    - `form`: the form of a directory's name, as `a run name (run=YYYY-MM-DD-HH-MM-SS)`
    - `rows`: the word for the lines of a directory, as `events`
    - `landed`, `shredded`: a sentence about what landed, and about what shredding writes
    - `loaded`: for each feed, a sentence about loading it
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
    """The feed and the sort key that a name refers to."""

    feed: str
    sort: str


@dataclass(frozen=True)
class Drain:
    """A drain that Dagster runs.

    The job's name is the dataset's name followed by `name`. It drains `feeds` in this order.
    """

    name: str
    feeds: tuple[str, ...]


class Stage(StrEnum):
    """The asset of a feed that a check belongs to."""

    LANDED = "landed"
    SHREDDED = "shredded"
    WAREHOUSE = "warehouse"


@dataclass(frozen=True)
class CheckResult:
    """The result of a check: a sentence, and values that Dagster plots."""

    passed: bool
    description: str
    shown: Mapping[str, str | int | float]


@dataclass(frozen=True)
class SourceCheck:
    """A check of an asset of a feed, declared by a source.

    `description` is the promise that `find` checks. A check that fails is a warning. The sensor evaluates it at every tick, so
    it must read little from the manifest.
    """

    name: str
    feed: str
    stage: Stage
    description: str
    find: Callable[[Manifest], CheckResult]


Known = Callable[[Sequence[ItemKey]], Collection[ItemKey]]
"""Returns those of the given items that the manifest knows."""


class Source(ABC):
    """A source, opened for one dataset.

    Class attributes that a source declares:

    - `model`: the settings of a dataset of this source
    - `words`: the names and sentences that people read
    - `feeds`: the feeds, in the order in which a drain loads them
    - `registered`: feeds whose items are registered by programs; the platform neither shreds nor loads them
    - `main`: the main feed, which the other feeds follow
    - `on_demand`: feeds whose directories are shredded on request only, not when they land
    - `appends`: True if rows are only ever appended, so that a table is the sum of the loaded items
    - `splits_types`: feeds where values of a type that a column cannot hold go to an additional column, since no snapshot
      brings them again
    - `joins_names`: True if a setting joins the names of nested properties to names of columns, by dots or underscores
    - `needs_marker`: True if a directory cannot be read without the file that makes it complete
    - `main_table`: the table that exists before anything is shredded; None if there is none
    - `origins`: the ways to an item's rows in tables to which older releases wrote no load time
    - `retention`: how long the origin keeps directories; None if unknown

    Attributes of an instance: `root`, the landing root as a URI, and `completeness`, the rule for when a directory is complete.
    """

    model: ClassVar[type[DatasetBasics]]
    words: Words
    feeds: ClassVar[tuple[str, ...]]
    registered: ClassVar[tuple[str, ...]] = ()
    main: ClassVar[str]
    on_demand: ClassVar[frozenset[str]] = frozenset()
    appends: ClassVar[bool]
    splits_types: ClassVar[frozenset[str]] = frozenset()
    joins_names: ClassVar[bool] = False
    needs_marker: ClassVar[bool] = False
    main_table: ClassVar[str | None] = None
    origins: ClassVar[tuple[Origin, ...]] = ()
    retention: ClassVar[timedelta | None] = None
    root: str
    completeness: Marker | Settle

    def __init__(self, dataset: str, settings: DatasetSettings):
        landing = settings.landing
        self.dataset, self.settings = dataset, settings
        self.root = storage.as_uri(landing.root)
        self.completeness = Marker(landing.marker) if landing.complete == "marker" else Settle(landing.settle_seconds)

    @property
    def layout(self) -> str:
        """The landing root and the form of names in it. The progress of listings is forgotten when either changes."""
        return self.root

    def holds(self, uri: str) -> bool:
        """True if a URI is below the landing root. `…/landing-of-another` is not below `…/landing`."""
        return uri.startswith(f"{self.root}/")

    @property
    def origin(self) -> str | None:
        """The name by which operators know the system that the directories come from; None if unknown."""
        return None

    @property
    def keeps(self) -> tuple[str, ...]:
        """Patterns of table names that a snapshot leaves unchanged if it does not contain them."""
        return ()

    @property
    def limits(self) -> Limits | None:
        """The changes that a snapshot may make without an operator's consent; None for a source without snapshots."""
        return None

    @property
    def repeats(self) -> Rule | None:
        """The rule by which a load leaves out rows that earlier loads brought; None: all rows are loaded."""
        return None

    @property
    def applied_view(self) -> AppliedView | None:
        """The view of loaded items that the dataset's schema gets, for tools that read another loader's table; None: no view.

        Only a source whose rows are only appended may have one.
        """
        return None

    def about(self, listing: Listing) -> About:
        """Returns what the ledger says about an item in the words of the source's own tools: types, processor, compression."""
        return About()

    @property
    def drains(self) -> tuple[Drain, ...]:
        """The dataset's drains, each a job. They run concurrently, except on a warehouse with a single writer."""
        return (Drain("drain", self.feeds),)

    @property
    def checks(self) -> tuple[SourceCheck, ...]:
        """The source's own checks, in addition to those of every source."""
        return ()

    @property
    def snapshots(self) -> str | None:
        """The feed of snapshots, which are full loads; None if the source has none."""
        return next((feed for feed in self.feeds if self.load_step(feed).order == "full"), None)

    def load_step(self, feed: str) -> Step:
        """Returns the platform's step `load` of a feed."""
        return next(step for step in self.steps(feed, attempts=1) if step.application.name == LOAD)

    def time_column(self, table: str) -> str | None:
        """Returns the timestamp column by whose date a table's rows are partitioned and merged; None if the table has none."""
        return None

    # Parts that only some sources have. Each is a contract of its own, and the commands for it ask only that contract.

    @property
    def schemas(self) -> Schemas | None:
        """The schemas that describe rows, newly opened by each call; None if the source has no schemas."""
        return None

    @property
    def replays(self) -> Replays | None:
        """The way to read bad lines again; None if a line means nothing without its file, or its place in the order."""
        return None

    @property
    def former_loader(self) -> FormerLoader | None:
        """The loader whose tables a dataset may take over; None if the source knows none."""
        return None

    # Names and directories

    @abstractmethod
    def steps(self, feed: str, attempts: int) -> tuple[Step, ...]:
        """Returns the platform's steps of a feed."""

    @abstractmethod
    def named(self, text: str) -> list[Named]:
        """Returns the items that a name may refer to; an empty list for other texts, such as a URI."""

    @abstractmethod
    def placed(self, uri: str) -> Named | None:
        """Returns the feed and sort key that the end of a URI names; None if it names none."""

    @abstractmethod
    def time(self, name: str) -> datetime | None:
        """Returns the logical time (UTC) in a name; None if the name has none."""

    @classmethod
    def began(cls, name: str) -> datetime | None:
        """Returns the start time of an item if its name contains it, else None. Daily assets use this."""
        del name
        return None

    def logical_time(self, landed: Landed) -> datetime | None:
        """Returns the time that decides whether a directory falls into a requested period: the start of a window."""
        return self.time(landed.key.name)

    def covers_upto(self, name: str) -> datetime | None:
        """Returns the time up to which a directory holds all data, as its name tells: such as the stop of a window."""
        return self.time(name)

    @abstractmethod
    def look(self, feed: str, after: datetime | None, known: Known) -> Found:
        """Returns the landed directories of a feed from a logical time on. Raises LandingError.

        `known` tells which items the manifest has, so that a source need not read those again.
        """

    def look_at(self, feed: str, after: datetime | None, most: int) -> Found:
        """Returns the directories of a feed from a logical time on, known ones too, up to about `most` files of them.

        Its `upto` is the time at which the next part begins; None if nothing is left. Raises LandingError.
        """
        del most
        return self.look(feed, after, lambda _keys: ())

    @property
    def names_list_files(self) -> bool:
        """True if listing the names of directories lists their files anyway, so that `look_at` costs no more than `names`."""
        return False

    @abstractmethod
    def names(self, feed: str, beyond: str, most: int, after: datetime | None = None) -> FoundNames:
        """Returns the names of at most `most` directories of a feed from a logical time on. Raises LandingError.

        `beyond`: the `upto` of the previous part. `after`: None means all directories, whatever their time. A part's names are
        all those up to the minute of its last name, or all if nothing is left.
        """

    def part(self, feed: str, beyond: str, most: int) -> FoundWindows | None:
        """Returns the same directories as `names`, with their files, if listing names lists the files anyway; else None.

        Raises LandingError.
        """
        return None

    def is_over(self, seen: LandedDirectory, now: datetime) -> bool:
        """True if the time of a directory is over, by the storage's clock. Before that it is never complete."""
        return True

    def divided(
        self, manifest: Manifest, feed: str, seen: Sequence[LandedDirectory], known: Mapping[str, str | None]
    ) -> list[LandedDirectory]:
        """Splits the directories that were found into items. `known`: the checksums in the manifest, by item id."""
        return list(seen)

    @abstractmethod
    def read(self, feed: str, name: DirectoryName) -> LandedDirectory | None:
        """Reads a directory below the landing root; None if nothing has landed in it yet. Raises LandingError."""

    @abstractmethod
    def landed(self, feed: str, seen: LandedDirectory) -> Landed:
        """Returns the description of a directory that is registered in the manifest."""

    @abstractmethod
    def reread(self, landed: Landed) -> Landed:
        """Returns the current files, bytes and checksum of a registered directory, for comparison. Raises LandingError."""

    def as_it_is(self, manifest: Manifest, landed: Landed) -> Landed:
        """Returns the current content of a registered directory, to be accepted.

        The same as `reread`, unless the source divides the content of a directory among several items.
        """
        return self.reread(landed)

    def meant(self, name: str) -> str | None:
        """Returns the correct name for a name that is almost valid, as `run=…` for `Run=…`; else None."""
        return None

    def offered_instead(self, manifest: Manifest, landed: Landed) -> str | None:
        """Returns the checksum that the origin now offers for an item, if it differs from the registered one, else None."""
        return None

    def capture_again(self, manifest: Manifest, landed: Landed) -> Landed:
        """Captures again what the origin now offers for a known item, without overwriting the first capture.

        The result is not registered yet. Call it only if `offered_instead` returns a checksum. Raises LandingError, and Refused
        if the platform does not capture the directories.
        """
        raise Refused(
            f"{landed.place} was landed by others, so its new content cannot be captured. Land it there, then accept it",
            Remedy(Action.ACCEPT, item=landed.key.name),
        )

    # Before anything is configured

    @classmethod
    def guesses(cls, place: Place, schemas: Sequence[str] = ()) -> Iterator[Guess]:
        """Yields the settings that would make a place a landing root of this source, the most likely first.

        Yields nothing if the place does not look like such a root. `schemas`: places of schemas that a person named. Raises
        LandingError, OSError.
        """
        yield from ()

    @classmethod
    def hints(cls, place: Place) -> Iterator[str]:
        """Yields sentences about files that are almost valid for this source but not where they should be, each with a remedy.

        Raises LandingError, OSError.
        """
        yield from ()

    def sample(self, directories: Sequence[tuple[str, LandedDirectory]], bounds: Bounds) -> Sample | None:
        """Shreds the beginning of some (feed, directory) pairs in memory, without Spark and without writing.

        Returns None if the source has no preview. Faults of a directory are reported in the sample.
        """
        return None

    # Work

    @abstractmethod
    def directory(self, claim: Claim, output: str) -> Directory:
        """Returns the current files of an item, for shredding. Raises LandingError; Refused if they are not as registered."""

    @abstractmethod
    def shred(self, session: SparkSession, directories: Sequence[Directory]) -> list[Listing | ShredFailure]:
        """Shreds directories in one Spark job; returns a result for each, in the same order."""

    # Capturing

    @property
    def captures(self) -> CapturePlan | None:
        """The feeds that the platform captures itself, and when; None if others land the directories."""
        return None

    def attempts(self, feed: str) -> Attempts:
        """Returns the folders that captures of a feed have written, registered or not. Raises as `look`."""
        return Attempts({})

    def capture(
        self,
        manifest: Manifest,
        now: datetime,
        feeds: Collection[str] | None = None,
        names: Collection[str] | None = None,
        insist: bool = True,
    ) -> Iterator[CaptureEvent]:
        """Captures everything that the origin has and the manifest does not know. Yields events; the last is a CaptureReport.

        `now`: the current time, UTC. `feeds`: a subset of the configured feeds. `names`: only these directories. `insist`: try
        to log in even if the same login was refused within the last day.

        Raises Refused if nothing is captured for this dataset, for a feed that is not captured, and for an unknown name.
        """
        raise Refused(f"dataset {self.dataset} captures nothing: others land its directories")


def source_type(settings: DatasetSettings) -> type[Source]:
    """Returns the class of the source that a dataset's settings name. Raises UnknownPlugin."""
    return plugins.load(plugins.SOURCES, settings.source)


def open_source(dataset: str, settings: DatasetSettings) -> Source:
    """Opens the source of a dataset. Raises UnknownPlugin."""
    return source_type(settings)(dataset, settings)


def rewritten(landed: Landed, files: int, size: int) -> Refused:
    """Returns the error for a directory whose content is no longer what was registered."""
    return Refused(
        f"{landed.place} was rewritten after its discovery ({landed.files} files, {landed.bytes:,} bytes then;"
        f" {files} files, {size:,} bytes now). If that was on purpose, accept it; else put the first content back and resolve"
        " it",
        Remedy(Action.ACCEPT, item=landed.key.name),
    )
