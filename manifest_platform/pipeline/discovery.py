"""Discovery: registers complete directories of the landing root as items of the manifest."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta

from manifest_platform import aws
from manifest_platform.manifest import Discovered, ItemKey, Landed, StepState
from manifest_platform.manifest.dataset import position_name
from manifest_platform.manifest.item import short_name
from manifest_platform.manifest.records import format_time, parse_time
from manifest_platform.manifest.store import Row
from manifest_platform.pipeline.events import DiscoveryReport, Waiting
from manifest_platform.pipeline.looking import PART, READ, Look, Part, Sight, read_each, settle_seconds
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.sources import directories
from manifest_platform.sources.directories import DirectoryName, LandedDirectory, Settle, complete_directories, folder_key
from manifest_platform.sources.errors import LandingMisconfigured

FUTURE = timedelta(days=1)
"""A directory dated further than this ahead of the clock is not registered."""
LISTINGS = 3
"""The listings of a look in parts. Files are listed if there was no listing of everything, or of the look-back's names."""


def discover(
    pipeline: Pipeline,
    everything: bool = False,
    recalled: bool = False,
    state: StepState | None = None,
    feeds: Sequence[str] | None = None,
    seconds: float | None = None,
) -> DiscoveryReport:
    """Lists the landing root, and registers the complete directories that the manifest does not know, feed by feed.

    A call lists the directories from the watermark's logical time minus the look-back, or `everything`. It also lists a part of
    all directories, from where another call ended, so that all are listed once in `full_listing_hours`. A directory dated more
    than a day ahead is reported and not registered, because its load would move the watermark beyond all directories before
    that date.

    - `seconds`: the time after which the call ends, and the next call continues. A call then lists the newest directories and a
      part of the look-back at each call, and gives up early on a storage that does not answer. None means that it lists the
      whole look-back, however long that takes.
    - `recalled`: true if the caller has called `Manifest.recall`, which detects a store that was replaced or restored.
    - `state`: the state of loading, if the caller has just read it. `feeds`: None means all.

    Raises LandingError.
    """
    if not recalled and not pipeline.manifest.recall():
        pipeline.sights.clear()
    report = DiscoveryReport()
    state = state or pipeline.manifest.state(pipeline.load)
    chosen = pipeline.feeds if feeds is None else feeds
    until = None if seconds is None else time.monotonic() + seconds
    with _told_by_key(pipeline), nullcontext() if until is None else aws.impatient():
        for number, feed in enumerate(chosen):
            if until is None:
                report += _discover(pipeline, feed, everything, state)
            else:
                share = max(0.0, until - time.monotonic()) / (len(chosen) - number)
                report += _discover_a_part(pipeline, feed, state, time.monotonic() + share)
    return report


@contextmanager
def _told_by_key(pipeline: Pipeline) -> Generator[None]:
    """Adds the configuration key to errors that a person must correct there."""
    try:
        yield
    except LandingMisconfigured as error:
        raise LandingMisconfigured(f"datasets.{pipeline.name}.landing.root: {error}") from error


def _discover(pipeline: Pipeline, feed: str, everything: bool, state: StepState) -> DiscoveryReport:
    """Lists the whole look-back, or everything, and a part of the full listing."""
    now = pipeline.clock()
    start = None if everything else _look_from(pipeline, feed, now, state)
    there = pipeline.source.look(feed, start, lambda keys: _registered(pipeline, feed, keys))
    looked = frozenset(one.name for one in there.directories)
    whole = Part(
        tuple(there.directories),
        there.unreadable,
        tuple(there.unparseable),
        looked,
        looked,
        of_all=True,
        begin=start,
        known=there.known,
        requests=there.requests,
        now=there.now,
    )
    report = DiscoveryReport()

    def earlier(beyond: str) -> _Listed | None:
        return _listed(pipeline, feed, beyond, before=start) if start else None

    for part in (*_part_of_all(pipeline, feed, now, earlier), whole):
        report += _register(pipeline, feed, part, there.now, now)[0]
    return report


def _discover_a_part(pipeline: Pipeline, feed: str, state: StepState, until: float) -> DiscoveryReport:
    """Lists the newest directories and parts of the others, and ends when its time is over."""
    now, manifest = pipeline.clock(), pipeline.manifest
    sight = pipeline.sights.setdefault(feed, Sight())
    layout = pipeline.source.layout
    start, reached = _look_from(pipeline, feed, now, state), manifest.full_listing(feed, layout).reached
    look = Look(pipeline.source, feed, sight, lambda sorts: manifest.unregistered(feed, sorts), start, reached, now, until)
    storage_now: datetime | None = None
    report = DiscoveryReport()
    listings = 0

    def take(parts: Iterator[Part]) -> None:
        nonlocal storage_now, listings, report
        for part in parts:
            storage_now = part.now or storage_now
            listings += part.is_listing
            found, left = _register(pipeline, feed, part, storage_now, now)
            sight.saw(part, left, storage_now or now, settle_seconds(pipeline.source))
            report += found

    take(look.parts())
    if look.reached:
        manifest.keep_reached(feed, look.reached, layout)
    if not sight.goes_on and time.monotonic() < until:
        take(
            _part_of_all(pipeline, feed, now, lambda beyond: _listed(pipeline, feed, beyond, waiting=sight.later, until=until))
        )
    if not sight.goes_on and listings < LISTINGS and time.monotonic() < until:
        take(look.again())
    return replace(
        report.without_repeats(),
        unparseable=sight.unparseable,
        unreadable=tuple(f"{one.name}: {one.reason}" for one in sight.unreadable),
        incomplete=tuple(one.name for one in sight.waiting),
        waiting=sight.waiting,
        partial=not sight.has_seen_all,
        goes_on=sight.goes_on,
    )


def _register(
    pipeline: Pipeline, feed: str, part: Part, storage_now: datetime | None, now: datetime
) -> tuple[DiscoveryReport, list[tuple[LandedDirectory, Waiting | None]]]:
    """Registers the complete directories of a part. Returns the report, and the directories that are not registered."""
    storage_now = storage_now or now
    ahead = [seen for seen in part.directories if seen.time > now + FUTURE]
    timely = [seen for seen in part.directories if seen.time <= now + FUTURE]
    not_over = [seen for seen in timely if not pipeline.source.is_over(seen, storage_now)]
    present, landed, known = _as_items(pipeline, feed, [one for one in timely if pipeline.source.is_over(one, storage_now)])
    unknown = [seen for seen in present if landed[seen.name].key.id not in known]
    settles = isinstance(pipeline.source.completeness, Settle)
    noted = pipeline.manifest.looks(feed, all_known=not unknown) if settles else {}
    looks = _looks(noted)
    complete_now, next_looks = complete_directories(unknown, pipeline.source.completeness, looks, storage_now)
    found = pipeline.manifest.discover(
        feed, [landed[seen.name] for seen in complete_now] + [one for one in landed.values() if one.key.id in known]
    )
    moved = {one.landed.key for one in found if one.outcome == "moved"}
    done = {seen.name for seen in complete_now if landed[seen.name].key not in moved}
    if settles:
        others = {name: look for name, look in looks.items() if not part.drops(name, pipeline.source.time(name))}
        settling = others | {name: look for name, look in next_looks.items() if name not in done}
        pipeline.manifest.keep_looks(feed, noted, {name: _note(look) for name, look in settling.items()})
    ended_keys = moved | {landed[name].key for name in done}
    incomplete = [one for one in unknown if landed[one.name].key not in ended_keys]
    waiting = _waiting(pipeline, feed, incomplete, not_over)
    left = [*zip([*incomplete, *not_over], waiting, strict=True), *((seen, None) for seen in ahead)]
    names: dict[str, list[str]] = {}
    for one in found:
        names.setdefault(one.outcome, []).append(one.landed.key.name)
    report = DiscoveryReport(
        new=tuple(names.get("new", ())),
        late=tuple(names.get("late", ())),
        quarantined=tuple(names.get("quarantined", ())),
        changed=tuple(names.get("changed", ())),
        moved=tuple(one.landed.key.name for one in found if one.outcome == "moved" and not _is_doubled(pipeline, one)),
        moved_from=tuple(_moved_from(pipeline, found)),
        doubled=tuple(_doubled(pipeline, found)),
        future=tuple(seen.name for seen in ahead),
        unparseable=part.unparseable,
        unreadable=tuple(f"{one.name}: {one.reason}" for one in part.unreadable),
        incomplete=tuple(one.name for one in waiting),
        waiting=waiting,
        linked=tuple(f"{seen.name}: {seen.links[0]}" for seen in complete_now if seen.links and seen.name in done),
        skipped=tuple(f"{one.landed.key.name} ({', '.join(one.skipped_by)})" for one in found if one.skipped_by),
        known=len(names.get("known", ())) + part.known,
        requests=part.requests,
        landed=tuple(one.landed for one in found if one.outcome != "moved"),
    )
    return report, left


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
    looks = _looks(noted)
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


_Listed = tuple[Part, str | None]


def _part_of_all(pipeline: Pipeline, feed: str, now: datetime, list_: Callable[[str], _Listed | None]) -> Iterator[Part]:
    """Yields the next part of the full listing, if one is in progress or due, and stores the progress afterward.

    `list_` lists what is beyond a name. It returns None if the caller lists everything anyway.
    """
    layout = pipeline.source.layout
    listing = pipeline.manifest.full_listing(feed, layout)
    pause = timedelta(hours=pipeline.dataset.landing.full_listing_hours)
    if not listing.beyond and listing.done_at and timedelta(0) <= now - listing.done_at < pause:
        return
    upto: str | None = None
    if listed := list_(listing.beyond):
        part, upto = listed
        yield part
    pipeline.manifest.keep_full_listing(feed, upto or "", now if upto is None else listing.done_at, layout)


def _listed(
    pipeline: Pipeline,
    feed: str,
    beyond: str,
    *,
    before: datetime | None = None,
    waiting: Collection[str] = (),
    until: float = math.inf,
) -> _Listed:
    """Returns a part of all directories, and where the next begins; None if this is the last.

    `before`: only directories before this time; None means all. `waiting`: the names of directories that are not read, because
    the caller reads them when it is their turn. `until`: the time of the monotonic clock when it ends.
    """
    if (windows := pipeline.source.part(feed, beyond, PART)) is not None:
        early = tuple(one for one in windows.directories if before is None or one.time < before)
        names = frozenset(one.name for one in early)
        left = windows.upto if len(early) == len(windows.directories) else None  # each look lists everything from there on
        return Part(early, windows.unreadable, looked=names, is_listing=True, requests=windows.requests), left
    listed = pipeline.source.names(feed, beyond, PART)
    wanted = [name for name in listed.names if (before is None or name.time < before) and name.name not in waiting]
    wanted.sort(key=_folder_key)
    unknown = pipeline.manifest.unregistered(feed, [name.sort for name in wanted])
    to_read = [name for name in wanted if name.sort in unknown]
    upto = listed.upto
    found, unreadable, asked = read_each(pipeline.source, feed, to_read[:READ], until)
    if len(asked) < len(to_read):
        upto = _folder_key(asked[-1])
        wanted = [name for name in wanted if _folder_key(name) <= upto]
    looked = frozenset(name.name for name in wanted)
    requests = listed.requests + len(asked)
    return Part(tuple(found), tuple(unreadable), looked=looked, is_listing=True, requests=requests), upto


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


def _looks(noted: Mapping[str, Row]) -> dict[str, directories.Look]:
    return {name: directories.Look(row.data["checksum"], parse_time(row.data["first_seen"])) for name, row in noted.items()}


def _note(look: directories.Look) -> dict[str, str]:
    return {"checksum": look.checksum, "first_seen": format_time(look.first_seen)}


def _look_from(pipeline: Pipeline, feed: str, now: datetime, state: StepState) -> datetime | None:
    watermark = state.feed(feed).watermark
    time_ = pipeline.source.time(position_name(feed, watermark))
    return min(time_, now) - timedelta(days=pipeline.dataset.landing.look_back_days) if time_ else None
