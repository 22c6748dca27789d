"""The landing root compared with the manifest: directories that were never loaded, that were deleted, or are incomplete.

It costs one request for each thousand names in the root, and one for each directory that the manifest does not know. Nothing is
written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from manifest_platform import outward
from manifest_platform.manifest import Item, Standing, StepState
from manifest_platform.manifest.dataset import judge, position_name
from manifest_platform.manifest.records import parse_time
from manifest_platform.pipeline import Pipeline
from manifest_platform.sources.directories import DirectoryName, Look, Settle, complete_directories
from manifest_platform.sources.errors import LandingDamaged

NAMED = 3
"""The number of directories of each kind that the summary names."""
READ = 100
"""The maximum number of unknown directories of a feed that are read, to tell incomplete ones from others."""
RECENT = timedelta(hours=1)
"""A directory whose time ended within this time may still be on its way."""

_PAGE = 1000
_SETTLED = frozenset((Standing.DONE, Standing.SKIPPED, Standing.CUT_OFF, Standing.SUPERSEDED))


@dataclass(frozen=True)
class Folders:
    """The directories of a period that need a look, by name.

    `not_loaded`: landed and never loaded. `deleted`: loaded, and gone from the landing root since. `incomplete`: landed partly.
    `since`: the beginning of the period; None: everything. `directories`: the names in the root. `requests`: those to it.
    """

    dataset: str
    root: str
    since: datetime | None
    not_loaded: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()
    directories: int = 0
    requests: int = 0

    def __bool__(self) -> bool:
        """True if anything needs a look."""
        return bool(self.not_loaded or self.deleted or self.incomplete)

    def __add__(self, other: Folders) -> Folders:
        return Folders(
            self.dataset,
            self.root,
            min(self.since, other.since) if self.since and other.since else None,
            self.not_loaded + other.not_loaded,
            self.deleted + other.deleted,
            self.incomplete + other.incomplete,
            self.directories + other.directories,
            self.requests + other.requests,
        )

    @property
    def summary(self) -> str:
        """The sentence about everything that was found."""
        kinds = (
            ("landed and never loaded", self.not_loaded),
            ("loaded and then deleted from the landing root", self.deleted),
            ("incomplete", self.incomplete),
        )
        said = [f"{len(names):,} {kind}: {_some(names)}" for kind, names in kinds if names]
        return "; ".join(said) or f"everything in {self.root} is loaded, and everything loaded is there"


def compare(pipeline: Pipeline, days: float | None = None) -> Folders:
    """Compares the landing root with the manifest.

    `days`: the length of the period before the newest loaded directory; by default `landing.look_back_days`. Directories whose
    time ended less than an hour ago are left out. Raises LandingError.
    """
    state = pipeline.manifest.state(pipeline.load)
    period = timedelta(days=pipeline.dataset.landing.look_back_days if days is None else days)
    found = [_compare_feed(pipeline, feed, state, period) for feed in pipeline.feeds]
    return sum(found[1:], found[0]) if found else Folders(pipeline.name, pipeline.source.root, None)


@dataclass
class _Items:
    """The items of a period: all sort keys, those that are not loaded, and those that are."""

    sorts: set[str] = field(default_factory=set)
    open: list[Item] = field(default_factory=list)
    loaded: list[Item] = field(default_factory=list)


def _compare_feed(pipeline: Pipeline, feed: str, state: StepState, period: timedelta) -> Folders:
    now = pipeline.clock()
    newest = pipeline.source.time(position_name(feed, state.feed(feed).watermark))
    since = min(newest, now) - period if newest else None
    # The items come first: an item that is loaded meanwhile has landed before, so that its name is listed.
    items = _items(pipeline, feed, state, since, now - RECENT)
    names, requests = _names(pipeline, feed)
    there = {name.sort for name in names}
    of_period = [name for name in names if _is_within(pipeline, name.name, since, now - RECENT)]
    unknown = [name for name in of_period if name.sort not in items.sorts]
    incomplete = _incomplete(pipeline, feed, unknown[:READ])
    never = [one.key.name for one in items.open] + [name.name for name in unknown if name.name not in incomplete]
    return Folders(
        pipeline.name,
        pipeline.source.root,
        since,
        () if feed in pipeline.source.on_demand else tuple(sorted(never)),
        tuple(sorted(one.key.name for one in items.loaded if not _is_there(one, there))),
        tuple(sorted(incomplete)),
        len(names),
        requests + min(len(unknown), READ),
    )


def _items(pipeline: Pipeline, feed: str, state: StepState, since: datetime | None, upto: datetime) -> _Items:
    """Reads the items of the period, newest first, so that no earlier items are read."""
    step = replace(pipeline.manifest.step(feed, pipeline.load.key), gap="none")
    found = _Items()
    for item in pipeline.manifest.items(feed, reverse=True):
        time = pipeline.source.time(item.key.name)
        if since and time and time < since:
            break
        found.sorts.add(item.key.sort)
        if item.replays or not pipeline.source.holds(item.place) or not _is_within(pipeline, item.key.name, since, upto):
            continue  # made from other items, or landed elsewhere
        standing = judge(item, step, state.seen_by(step, feed)).standing
        if standing is Standing.DONE:
            found.loaded.append(item)
        elif standing not in _SETTLED:
            found.open.append(item)
    return found


def _names(pipeline: Pipeline, feed: str) -> tuple[list[DirectoryName], int]:
    """Returns all names in the root, and the number of requests."""
    names: list[DirectoryName] = []
    requests, beyond = 0, ""
    while True:
        part = pipeline.source.names(feed, beyond, _PAGE)
        names += part.names
        requests += part.requests
        if part.upto is None:
            return names, requests
        beyond = part.upto


def _is_within(pipeline: Pipeline, name: str, since: datetime | None, upto: datetime) -> bool:
    time, end = pipeline.source.time(name), pipeline.source.covers_upto(name)
    return time is not None and (since is None or time >= since) and (end or time) <= upto


def _is_there(item: Item, sorts: set[str]) -> bool:
    """True if an item's directory is among the listed ones. A later part of a window has the window's directory."""
    later = item.landed is not None and item.landed.after is not None
    return item.key.sort in sorts or (later and any(item.key.sort.startswith(sort) for sort in sorts))


def _incomplete(pipeline: Pipeline, feed: str, unknown: Sequence[DirectoryName]) -> set[str]:
    """Returns the names of unknown directories that are not complete."""
    source = pipeline.source
    noted = pipeline.manifest.looks(feed, all_known=False) if unknown and isinstance(source.completeness, Settle) else {}
    looks = {name: Look(row.data["checksum"], parse_time(row.data["first_seen"])) for name, row in noted.items()}
    incomplete: set[str] = set()
    for name in unknown:
        try:
            seen = source.read(feed, name)
        except LandingDamaged:
            seen = None
        complete = complete_directories([seen], source.completeness, looks, pipeline.clock())[0] if seen else []
        if not complete:
            incomplete.add(name.name)
    return incomplete


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(outward.line(name) for name in names[:NAMED]) + more
