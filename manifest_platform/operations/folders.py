"""The landing root compared with the manifest: directories that were never loaded, that were deleted, or are incomplete.

It costs one request for each thousand names of the period, and one for each directory that the manifest does not know. Nothing
is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from manifest_platform import outward
from manifest_platform.manifest import Application, Holding, Item, ItemKey, Standing
from manifest_platform.manifest.dataset import judge, position_name
from manifest_platform.manifest.records import parse_time
from manifest_platform.operations.landing import completing
from manifest_platform.pipeline import SHRED, Pipeline
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.directories import (
    DirectoryName,
    LandedDirectory,
    Look,
    Settle,
    complete_directories,
    whole_minute,
)
from manifest_platform.sources.errors import LandingDamaged

NAMED = 3
"""The number of directories of each kind that the summary names."""
READ = 100
"""The maximum number of unknown directories of a feed that are read, to tell incomplete ones from others."""

STRETCH = 1000
"""The number of items that are compared at once; all of the same minute are."""

_PAGE = 1000  # what S3 gives with an answer
_SETTLED = frozenset((Standing.DONE, Standing.SKIPPED, Standing.CUT_OFF, Standing.SUPERSEDED))


@dataclass(frozen=True)
class Folders:
    """The directories of a period that need a look, by name.

    `not_loaded`: landed and never loaded. `lost`: registered, and gone from the landing root before they were shredded.
    `deleted`: loaded, and gone since. `incomplete`: landed partly. `since`: the beginning of the period; None: everything.
    `directories`: the names of the period in the root. `requests`: those to it. `completing`: the condition under which an
    incomplete directory is complete. `remedies`: the actions that help, the most urgent first.
    """

    dataset: str
    root: str
    since: datetime | None
    not_loaded: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()
    directories: int = 0
    requests: int = 0
    completing: str = ""
    remedies: tuple[Remedy, ...] = ()

    def __bool__(self) -> bool:
        """True if anything needs a look."""
        return any(names for _, names in self.kinds)

    def __add__(self, other: Folders) -> Folders:
        return Folders(
            self.dataset,
            self.root,
            min(self.since, other.since) if self.since and other.since else None,
            self.not_loaded + other.not_loaded,
            self.lost + other.lost,
            self.deleted + other.deleted,
            self.incomplete + other.incomplete,
            self.directories + other.directories,
            self.requests + other.requests,
            self.completing,
            tuple(dict.fromkeys((*self.remedies, *other.remedies))),
        )

    @property
    def kinds(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The findings, each with what is wrong, the most urgent first."""
        return (
            ("deleted from the landing root before they were shredded", self.lost),
            ("landed and never loaded", self.not_loaded),
            ("loaded and then deleted from the landing root", self.deleted),
            ("incomplete", self.incomplete),
        )

    @property
    def summary(self) -> str:
        """The sentence about everything that was found, with what to do about it."""
        said = [f"{len(names):,} {kind}: {_some(names)}{self._advice(names)}" for kind, names in self.kinds if names]
        return "; ".join(said) or f"nothing in {self.root} has waited too long, and everything loaded is there"

    def _advice(self, names: tuple[str, ...]) -> str:
        if names is self.lost:
            return " (put them back, or skip them)"
        if names is self.deleted:
            return " (their rows stay loaded; put them back to shred or reload them again)"
        return f" ({self.completing})" if names is self.incomplete else ""


def compare(pipeline: Pipeline, days: float | None = None, age: float | None = None) -> Folders:
    """Compares the landing root with the manifest.

    `days`: the length of the period before the newest loaded directory; by default `landing.look_back_days`. `age`: seconds
    that a directory may take to be loaded after its time has ended and after it has landed; by default `load.max_lag_seconds`.
    Younger directories are left out. Raises LandingError.
    """
    return next(found for found in in_steps(pipeline, days, age) if found is not None)


def in_steps(pipeline: Pipeline, days: float | None = None, age: float | None = None) -> Iterator[Folders | None]:
    """Yields None after each stretch of a comparison, and then its result, so that the caller may continue later.

    Arguments and errors as for `compare`. Each stretch of the period is compared with the manifest as it is by then.
    """
    period = timedelta(days=pipeline.dataset.landing.look_back_days if days is None else days)
    patience = timedelta(seconds=pipeline.dataset.load.max_lag_seconds if age is None else age)
    found: list[Folders] = []
    for feed in pipeline.feeds:
        of_feed = _Feed(pipeline, feed, period, patience)
        for _ in of_feed.stretches():
            yield None
        found.append(of_feed.result())
    yield sum(found[1:], found[0]) if found else Folders(pipeline.name, pipeline.source.root, None)


@dataclass
class _Items:
    """The items of a stretch: all sort keys, those that are not loaded, and those that are."""

    sorts: set[str] = field(default_factory=set)
    open: list[Item] = field(default_factory=list)
    loaded: list[Item] = field(default_factory=list)


class _Feed:
    """The comparison of a feed, stretch by stretch."""

    def __init__(self, pipeline: Pipeline, feed: str, period: timedelta, patience: timedelta):
        self._pipeline, self._feed, self._patience = pipeline, feed, patience
        newest = pipeline.source.time(position_name(feed, pipeline.manifest.state(pipeline.load).feed(feed).watermark))
        self._since = min(newest, pipeline.clock()) - period if newest else None
        self._waiting: list[ItemKey] = []
        self._strangers: list[str] = []
        self._lost: list[ItemKey] = []
        self._deleted: list[str] = []
        self._incomplete: list[str] = []
        self._names = self._requests = self._read = 0

    def stretches(self) -> Iterator[None]:
        """Compares the period stretch by stretch, the newest first, and yields after each."""
        last, end = "", None
        while True:
            stretch, begin = self._next(last)
            self._compare(stretch, begin or self._since, end)
            yield
            if begin is None:
                return
            last, end = stretch[-1].key.position, begin

    def _next(self, last: str) -> tuple[list[Item], datetime | None]:
        """Reads the next items of the period, newest first. Returns them, and where they begin; None if none are left.

        `last`: the position before which they end.
        """
        stretch: list[Item] = []
        begin: datetime | None = None
        for item in self._pipeline.manifest.items(self._feed, after=last, reverse=True):
            time = self._pipeline.source.time(item.key.name)
            if self._since and time and time < self._since:
                break
            if time and begin and time < begin and len(stretch) >= STRETCH:
                return stretch, begin
            stretch.append(item)
            begin = whole_minute(time) if time else begin
        return stretch, None

    def _compare(self, stretch: Sequence[Item], begin: datetime | None, end: datetime | None) -> None:
        """Compares a stretch. Its items were read first: an item that is loaded meanwhile has landed before, and is listed."""
        pipeline, upto = self._pipeline, self._pipeline.clock() - self._patience
        items = self._judged(stretch)
        names, requests = _names(pipeline, self._feed, begin, end)
        there = {name.sort for name in names}
        unknown = [name for name in names if name.sort not in items.sorts and _is_over(pipeline, name.name, upto)]
        to_read = unknown[: READ - self._read]
        incomplete, recent = _read(pipeline, self._feed, to_read, self._patience)
        lost = [one for one in items.open if not (_is_there(one, there) or one.processed_by(Application(SHRED)))]
        waiting = [one for one in items.open if one not in lost and _has_waited(pipeline, one, upto)]
        gone = [one for one in items.loaded if not (_is_there(one, there) or one.deletion_of(Holding.LANDING))]
        self._waiting += [one.key for one in waiting]
        self._strangers += [name.name for name in unknown if name.name not in incomplete | recent]
        self._lost += [one.key for one in lost]
        self._deleted += [one.key.name for one in gone]
        self._incomplete += incomplete
        self._names += len(names)
        self._requests += requests + len(to_read)
        self._read += len(to_read)

    def _judged(self, stretch: Sequence[Item]) -> _Items:
        pipeline, feed = self._pipeline, self._feed
        state = pipeline.manifest.state(pipeline.load)
        step = replace(pipeline.manifest.step(feed, pipeline.load.key), gap="none")
        found = _Items()
        for item in stretch:
            found.sorts.add(item.key.sort)
            if pipeline.source.time(item.key.name) is None or item.replays or not pipeline.source.holds(item.place):
                continue  # made from other items, or landed elsewhere
            standing = judge(item, step, state.seen_by(step, feed)).standing
            if standing is Standing.DONE:
                found.loaded.append(item)
            elif standing not in _SETTLED:
                found.open.append(item)
        return found

    def result(self) -> Folders:
        """Returns what all stretches found."""
        on_demand = self._feed in self._pipeline.source.on_demand
        return Folders(
            self._pipeline.name,
            self._pipeline.source.root,
            self._since,
            () if on_demand else tuple(sorted([*(one.name for one in self._waiting), *self._strangers])),
            () if on_demand else tuple(sorted(one.name for one in self._lost)),
            tuple(sorted(self._deleted)),
            tuple(sorted(self._incomplete)),
            self._names,
            self._requests,
            completing(self._pipeline),
            () if on_demand else tuple(_remedies(self._lost, self._waiting, self._strangers)),
        )


def _remedies(lost: Sequence[ItemKey], waiting: Sequence[ItemKey], strangers: Sequence[str]) -> Iterator[Remedy]:
    """Yields the actions that help: skip or explain the earliest item, and look for directories that are not registered."""
    if lost:
        yield Remedy(Action.SKIP, item=min(lost).name)
    if waiting:
        yield Remedy(Action.EXPLAIN, item=min(waiting).name)
    if strangers:
        yield Remedy(Action.DISCOVER_ALL)


def _names(pipeline: Pipeline, feed: str, begin: datetime | None, end: datetime | None) -> tuple[list[DirectoryName], int]:
    """Returns the names of a stretch in the root, and the number of requests."""
    names: list[DirectoryName] = []
    requests, beyond = 0, ""
    while True:
        part = pipeline.source.names(feed, beyond, _PAGE, begin)
        names += [name for name in part.names if end is None or name.time < end]
        requests += part.requests
        if part.upto is None or (end and part.names and part.names[-1].time >= end):
            return names, requests
        beyond = part.upto


def _is_over(pipeline: Pipeline, name: str, upto: datetime) -> bool:
    end = pipeline.source.covers_upto(name) or pipeline.source.time(name)
    return end is not None and end <= upto


def _has_waited(pipeline: Pipeline, item: Item, upto: datetime) -> bool:
    """True if an item's time was over by then, and the item registered."""
    return _is_over(pipeline, item.key.name, upto) and item.records[0].timestamp <= upto


def _is_there(item: Item, sorts: set[str]) -> bool:
    """True if an item's directory is among the listed ones. A later part of a window has the window's directory."""
    later = item.landed is not None and item.landed.after is not None
    return item.key.sort in sorts or (later and any(item.key.sort.startswith(sort) for sort in sorts))


def _read(pipeline: Pipeline, feed: str, unknown: Sequence[DirectoryName], patience: timedelta) -> tuple[set[str], set[str]]:
    """Reads unknown directories. Returns the names of those that are not complete, and of those that changed lately."""
    source, now = pipeline.source, pipeline.clock()
    noted = pipeline.manifest.looks(feed, all_known=False) if unknown and isinstance(source.completeness, Settle) else {}
    looks = {name: Look(row.data["checksum"], parse_time(row.data["first_seen"])) for name, row in noted.items()}
    incomplete: set[str] = set()
    recent: set[str] = set()
    for name in unknown:
        seen = _seen(pipeline, feed, name)
        if seen and seen.changed and seen.changed > now - patience:
            recent.add(name.name)
        elif not (seen and complete_directories([seen], source.completeness, looks, now)[0]):
            incomplete.add(name.name)
    return incomplete, recent


def _seen(pipeline: Pipeline, feed: str, name: DirectoryName) -> LandedDirectory | None:
    try:
        return pipeline.source.read(feed, name)
    except LandingDamaged:
        return None


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(outward.line(name) for name in names[:NAMED]) + more
