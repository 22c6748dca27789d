"""Discovery: registers complete directories of the landing root as items of the manifest."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from manifest_platform import storage
from manifest_platform.manifest import Discovered, ItemKey, Landed, StepState
from manifest_platform.manifest.dataset import position_name
from manifest_platform.manifest.item import short_name
from manifest_platform.manifest.records import format_time, parse_time
from manifest_platform.pipeline.events import DiscoveryReport, Waiting
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.sources.directories import (
    DirectoryName,
    LandedDirectory,
    Look,
    Settle,
    Unreadable,
    complete_directories,
    folder_key,
)
from manifest_platform.sources.errors import LandingError, LandingMisconfigured, LandingUnavailable

FUTURE = timedelta(days=1)
"""A directory dated further than this ahead of the clock is not registered."""


PART = 1000
"""The maximum number of directories by which a look continues the full listing."""
READ = 100
"""The maximum number of unknown directories among these that a look reads."""


def discover(
    pipeline: Pipeline,
    everything: bool = False,
    recalled: bool = False,
    state: StepState | None = None,
    feeds: Sequence[str] | None = None,
) -> DiscoveryReport:
    """Lists the landing root, and registers the complete directories that the manifest does not know, feed by feed.

    A call lists the directories from the watermark's logical time minus the look-back, or `everything`. It also lists a part of
    the earlier directories, so that all of them are listed once in `full_listing_hours`. A directory dated more than a day
    ahead is reported and not registered, because its load would move the watermark beyond all directories before that date.

    - `recalled`: true if the caller has called `Manifest.recall`, which detects a store that was replaced or restored.
    - `state`: the state of loading, if the caller has just read it. `feeds`: None means all.

    Raises LandingError.
    """
    if not recalled:
        pipeline.manifest.recall()
    report = DiscoveryReport()
    state = state or pipeline.manifest.state(pipeline.load)
    with _told_by_key(pipeline):
        for feed in pipeline.feeds if feeds is None else feeds:
            report += _discover(pipeline, feed, everything, state)
    return report


@contextmanager
def _told_by_key(pipeline: Pipeline) -> Generator[None]:
    """Adds the configuration key to errors that a person must correct there."""
    try:
        yield
    except LandingMisconfigured as error:
        raise LandingMisconfigured(f"datasets.{pipeline.name}.landing.root: {error}") from error


def _discover(pipeline: Pipeline, feed: str, everything: bool, state: StepState) -> DiscoveryReport:
    now = pipeline.clock()
    start = None if everything else _look_from(pipeline, feed, now, state)
    there = pipeline.source.look(feed, start, lambda keys: _registered(pipeline, feed, keys))
    part = _part_of_all(pipeline, feed, start, now)
    unreadable = (*there.unreadable, *part.unreadable)
    seen_now = [*part.directories, *there.directories]
    future = [seen.name for seen in seen_now if seen.time > now + FUTURE]
    storage_now = there.now or now
    present = [seen for seen in seen_now if seen.time <= now + FUTURE and pipeline.source.is_over(seen, storage_now)]
    not_over = [seen for seen in seen_now if seen.time <= now + FUTURE and not pipeline.source.is_over(seen, storage_now)]
    present, landed, known = _as_items(pipeline, feed, present)
    unknown = [seen for seen in present if landed[seen.name].key.id not in known]
    settles = isinstance(pipeline.source.completeness, Settle)
    noted = pipeline.manifest.looks(feed, all_known=not unknown) if settles else {}
    looks = {name: Look(row.data["checksum"], parse_time(row.data["first_seen"])) for name, row in noted.items()}
    complete_now, next_looks = complete_directories(unknown, pipeline.source.completeness, looks, storage_now)
    found = pipeline.manifest.discover(
        feed, [landed[seen.name] for seen in complete_now] + [one for one in landed.values() if one.key.id in known]
    )
    moved = {one.landed.key for one in found if one.outcome == "moved"}
    done = {seen.name for seen in complete_now if landed[seen.name].key not in moved}
    not_looked_at = {name: look for name, look in looks.items() if _is_before(pipeline, name, start) and name not in part.names}
    settling = {name: look for name, look in next_looks.items() if name not in done} | not_looked_at
    if settles:
        pipeline.manifest.keep_looks(feed, noted, {name: _note(look) for name, look in settling.items()})
    if part.upto or part.ends:
        pipeline.manifest.keep_full_listing(feed, part.upto, now if part.ends else part.done_at)
    ended_keys = moved | {landed[name].key for name in done}
    waiting = _waiting(pipeline, feed, [one for one in unknown if landed[one.name].key not in ended_keys], not_over)
    names: dict[str, list[str]] = {}
    for one in found:
        names.setdefault(one.outcome, []).append(one.landed.key.name)
    return DiscoveryReport(
        new=tuple(names.get("new", ())),
        late=tuple(names.get("late", ())),
        quarantined=tuple(names.get("quarantined", ())),
        changed=tuple(names.get("changed", ())),
        moved=tuple(one.landed.key.name for one in found if one.outcome == "moved" and not _is_doubled(pipeline, one)),
        moved_from=tuple(_moved_from(pipeline, found)),
        doubled=tuple(_doubled(pipeline, found)),
        future=tuple(future),
        unparseable=tuple(there.unparseable),
        unreadable=tuple(f"{one.name}: {one.reason}" for one in unreadable),
        incomplete=tuple(one.name for one in waiting),
        waiting=waiting,
        linked=tuple(f"{seen.name}: {seen.links[0]}" for seen in complete_now if seen.links and seen.name in done),
        skipped=tuple(f"{one.landed.key.name} ({', '.join(one.skipped_by)})" for one in found if one.skipped_by),
        known=len(names.get("known", ())) + there.known,
        requests=there.requests + part.requests,
        landed=tuple(one.landed for one in found if one.outcome != "moved"),
    )


def glance(pipeline: Pipeline, feed: str, state: StepState | None = None) -> DiscoveryReport:
    """Returns the report that `discover` would give, without writing. `new`: directories that it would register.

    Lists only the directories of the look-back. Raises LandingError.
    """
    now = pipeline.clock()
    start = _look_from(pipeline, feed, now, state or pipeline.manifest.state(pipeline.load))
    source = pipeline.source
    with _told_by_key(pipeline):
        there = source.look(feed, start, lambda keys: _registered(pipeline, feed, keys))
    storage_now = there.now or now
    timely = [seen for seen in there.directories if seen.time <= now + FUTURE]
    present, landed, known = _as_items(pipeline, feed, [seen for seen in timely if source.is_over(seen, storage_now)])
    unknown = [seen for seen in present if landed[seen.name].key.id not in known]
    noted = pipeline.manifest.looks(feed, all_known=not unknown) if isinstance(source.completeness, Settle) else {}
    looks = {name: Look(row.data["checksum"], parse_time(row.data["first_seen"])) for name, row in noted.items()}
    complete, _ = complete_directories(unknown, source.completeness, looks, storage_now)
    left = [seen for seen in unknown if seen not in complete]
    waiting = _waiting(pipeline, feed, left, [seen for seen in timely if not source.is_over(seen, storage_now)])
    return DiscoveryReport(
        new=tuple(landed[seen.name].key.name for seen in complete),
        future=tuple(seen.name for seen in there.directories if seen.time > now + FUTURE),
        unparseable=tuple(there.unparseable),
        unreadable=tuple(f"{one.name}: {one.reason}" for one in there.unreadable),
        incomplete=tuple(one.name for one in waiting),
        waiting=waiting,
        known=len(known) + there.known,
        requests=there.requests,
    )


def _waiting(
    pipeline: Pipeline, feed: str, incomplete: Sequence[LandedDirectory], not_over: Sequence[LandedDirectory]
) -> tuple[Waiting, ...]:
    """Returns the directories that are not complete, by the names of their items."""
    named = [(pipeline.source.landed(feed, seen).key.name, seen, False) for seen in incomplete]
    named += [(pipeline.source.landed(feed, seen).key.name, seen, True) for seen in not_over]
    return tuple(
        Waiting(name, feed, seen.changed, pipeline.source.covers_upto(name) if is_on else None) for name, seen, is_on in named
    )


def _as_items(
    pipeline: Pipeline, feed: str, seen: Sequence[LandedDirectory]
) -> tuple[list[LandedDirectory], dict[str, Landed], dict[str, str | None]]:
    """Returns directories as items: the directories, their registrations by name, and the ids that the manifest knows."""
    landed = {one.name: pipeline.source.landed(feed, one) for one in seen}
    known = pipeline.manifest.known(feed, [one.key for one in landed.values()])
    items = pipeline.source.divided(pipeline.manifest, feed, seen, known)
    changed = [one for one in items if one.name not in landed or one.checksum != landed[one.name].checksum]
    if changed:
        landed |= {one.name: pipeline.source.landed(feed, one) for one in changed}
        known |= pipeline.manifest.known(feed, [landed[one.name].key for one in changed])
    return items, landed, known


@dataclass(frozen=True)
class _Part:
    """A part of a feed's full listing: directories before the look-back that the manifest does not know.

    `names`: all directories listed. `upto`: the start of the next part. `ends`: true if this is the last part. `done_at`: the
    end of the previous full listing.
    """

    directories: tuple[LandedDirectory, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    names: frozenset[str] = frozenset()
    requests: int = 0
    upto: str = ""
    ends: bool = False
    done_at: datetime | None = None


def _part_of_all(pipeline: Pipeline, feed: str, start: datetime | None, now: datetime) -> _Part:
    """Returns the next part of the full listing; empty if none is in progress or due.

    A look without a `start` covers everything anyway.
    """
    listing = pipeline.manifest.full_listing(feed)
    pause = timedelta(hours=pipeline.dataset.landing.full_listing_hours)
    if not listing.beyond and listing.done_at and timedelta(0) <= now - listing.done_at < pause:
        return _Part()
    if start is None:
        return _Part(ends=True)
    if (windows := pipeline.source.part(feed, listing.beyond, PART)) is not None:
        early = tuple(one for one in windows.directories if one.time < start)
        names = frozenset(one.name for one in early)
        left = windows.upto if len(early) == len(windows.directories) else None  # each look lists everything from there on
        return _Part(early, windows.unreadable, names, windows.requests, left or "", left is None, listing.done_at)
    listed = pipeline.source.names(feed, listing.beyond, PART)
    before = sorted((name for name in listed.names if name.time < start), key=_folder_key)
    unknown = pipeline.manifest.unregistered(feed, [name.sort for name in before])
    to_read = [name for name in before if name.sort in unknown]
    upto = listed.upto
    if len(to_read) > READ:
        to_read = to_read[:READ]
        upto = _folder_key(to_read[-1])
        before = [name for name in before if _folder_key(name) <= upto]
    directories: list[LandedDirectory] = []
    unreadable: list[Unreadable] = []
    for name in to_read:
        try:
            seen = pipeline.source.read(feed, name)
        except LandingError as error:
            if isinstance(error, LandingUnavailable) and not storage.is_local(pipeline.source.root):
                raise
            unreadable.append(Unreadable(name.name, str(error)))
            continue
        directories += [seen] if seen else []
    return _Part(
        tuple(directories),
        tuple(unreadable),
        frozenset(name.name for name in before),
        listed.requests + len(to_read),
        upto or "",
        upto is None,
        listing.done_at,
    )


def _folder_key(name: DirectoryName) -> str:
    """Returns the sort key of a directory for the parts, without its feed's folder."""
    return folder_key(name.name.rpartition("/")[2])


def _moved_from(pipeline: Pipeline, found: Sequence[Discovered]) -> Iterator[str]:
    """Yields at most one root: that of the first moved item, if its path below the root is the same."""
    for one in found:
        below = one.landed.key.id.removeprefix(pipeline.source.root)
        if one.outcome == "moved" and one.known_as and one.known_as.endswith(below):
            yield one.known_as.removesuffix(below)
            return


def _doubled(pipeline: Pipeline, found: Sequence[Discovered]) -> Iterator[str]:
    """Yields the directories that landed again under another name, each with the name by which it is known."""
    for one in found:
        if _is_doubled(pipeline, one):
            yield f"{one.landed.key.name} ({short_name(one.known_as or '')})"


def _is_doubled(pipeline: Pipeline, one: Discovered) -> bool:
    """True if a directory's item is known by another name in the same root. If a root was moved, the names are the same."""
    known_as = one.known_as or ""
    return one.outcome == "moved" and pipeline.source.holds(known_as) and short_name(known_as) != one.landed.key.name


def _registered(pipeline: Pipeline, feed: str, keys: Sequence[ItemKey]) -> set[ItemKey]:
    known = pipeline.manifest.known(feed, keys)
    return {key for key in keys if key.id in known}


def _note(look: Look) -> dict[str, str]:
    return {"checksum": look.checksum, "first_seen": format_time(look.first_seen)}


def _look_from(pipeline: Pipeline, feed: str, now: datetime, state: StepState) -> datetime | None:
    watermark = state.feed(feed).watermark
    time_ = pipeline.source.time(position_name(feed, watermark))
    return min(time_, now) - timedelta(days=pipeline.dataset.landing.look_back_days) if time_ else None


def _is_before(pipeline: Pipeline, name: str, start: datetime | None) -> bool:
    time_ = pipeline.source.time(name)
    return start is not None and time_ is not None and time_ < start
