"""Discovery: complete directories of the landing root become items of the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from manifest_platform.manifest import Application, ItemKey
from manifest_platform.manifest.dataset import position_name
from manifest_platform.manifest.records import format_time, parse_time
from manifest_platform.pipeline.events import DiscoveryReport
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.sources.directories import Look, complete_directories
from manifest_platform.sources.source import LOAD

FUTURE = timedelta(days=1)
"""How far ahead of the clock a directory may be dated and still be registered."""


def discover(pipeline: Pipeline, everything: bool = False) -> DiscoveryReport:
    """Looks at the landing root and registers complete directories that the manifest does not know, feed by feed.

    Looks from the watermark's logical time minus the look-back on, or at `everything`. A directory that is dated more than
    a day ahead is reported and not registered: loaded, it would put the watermark beyond all that is still to come.
    Raises LandingError.
    """
    report = DiscoveryReport()
    for feed in pipeline.feeds:
        report += _discover(pipeline, feed, everything)
    return report


def _discover(pipeline: Pipeline, feed: str, everything: bool) -> DiscoveryReport:
    now = pipeline.clock()
    start = None if everything else _look_from(pipeline, feed, now)
    there = pipeline.source.look(feed, start, lambda keys: _registered(pipeline, feed, keys))
    future = [seen.name for seen in there.directories if seen.time > now + FUTURE]
    present = [seen for seen in there.directories if seen.time <= now + FUTURE]
    landed = {seen.name: pipeline.source.landed(feed, seen) for seen in present}
    known = pipeline.manifest.known(feed, [one.key for one in landed.values()])
    unknown = [seen for seen in present if landed[seen.name].key.id not in known]
    noted = pipeline.manifest.looks(feed)
    looks = {name: Look(row.data["checksum"], parse_time(row.data["first_seen"])) for name, row in noted.items()}
    complete_now, next_looks = complete_directories(unknown, pipeline.source.completeness, looks, there.now or now)
    found = pipeline.manifest.discover(
        feed, [landed[seen.name] for seen in complete_now] + [one for one in landed.values() if one.key.id in known]
    )
    moved = {one.landed.key for one in found if one.outcome == "moved"}
    done = {seen.name for seen in complete_now if landed[seen.name].key not in moved}
    not_looked_at = {name: look for name, look in looks.items() if _is_before(pipeline, name, start)}
    settling = {name: look for name, look in next_looks.items() if name not in done} | not_looked_at
    pipeline.manifest.keep_looks(feed, noted, {name: _note(look) for name, look in settling.items()})
    ended = moved | {landed[name].key for name in done}
    names: dict[str, list[str]] = {}
    for one in found:
        names.setdefault(one.outcome, []).append(one.landed.key.name)
    return DiscoveryReport(
        new=tuple(names.get("new", ())),
        late=tuple(names.get("late", ())),
        quarantined=tuple(names.get("quarantined", ())),
        changed=tuple(names.get("changed", ())),
        moved=tuple(names.get("moved", ())),
        future=tuple(future),
        unparseable=tuple(there.unparseable),
        unreadable=tuple(f"{one.name}: {one.reason}" for one in there.unreadable),
        incomplete=tuple(landed[seen.name].key.name for seen in unknown if landed[seen.name].key not in ended),
        known=len(names.get("known", ())) + there.known,
        requests=there.requests,
        landed=tuple(one.landed for one in found if one.outcome != "moved"),
    )


def _registered(pipeline: Pipeline, feed: str, keys: Sequence[ItemKey]) -> set[ItemKey]:
    known = pipeline.manifest.known(feed, keys)
    return {key for key in keys if key.id in known}


def _note(look: Look) -> dict[str, str]:
    return {"checksum": look.checksum, "first_seen": format_time(look.first_seen)}


def _look_from(pipeline: Pipeline, feed: str, now: datetime) -> datetime | None:
    watermark = pipeline.manifest.state(Application(LOAD)).feed(feed).watermark
    time_ = pipeline.source.time(position_name(feed, watermark))
    return min(time_, now) - timedelta(days=pipeline.dataset.landing.look_back_days) if time_ else None


def _is_before(pipeline: Pipeline, name: str, start: datetime | None) -> bool:
    time_ = pipeline.source.time(name)
    return start is not None and time_ is not None and time_ < start
