"""Publication: the archives of a simulated vault that can be downloaded at a time, and their entries in the listing.

It applies schedules, retention and faults. `server` holds sessions and HTTP.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from manifest_platform.fake_vault.archives import (
    EXTRACT_TYPES,
    FULL_START,
    Archive,
    Feed,
    Part,
    Window,
    archive_of,
    daily,
    increments,
    minutes,
    split,
)
from manifest_platform.fake_vault.events import DAY
from manifest_platform.fake_vault.faults import CONTENT, Fault
from manifest_platform.fake_vault.simulation import Simulation

KEPT: dict[Feed, timedelta] = {"incr": 10 * DAY, "log": 2 * DAY, "full": 2 * DAY}
"""The retention of archives by feed."""
RETRY = timedelta(minutes=30)
"""The wait that the listing announces for a failed publication without an end."""


@dataclass(frozen=True)
class Schedule:
    """The times at which a vault publishes.

    `full_stops`, `log_stops`: stop times in UTC; None for daily at `hour_utc`, with a first snapshot at the beginning.
    `delays`: by feed, the time from an archive's stop to its publication. A log archive always starts a day before its stop.
    """

    hour_utc: int
    full_stops: Sequence[datetime] | None
    log_stops: Sequence[datetime] | None
    delays: dict[Feed, timedelta]

    def windows(self, simulation: Simulation, feed: Feed, now: datetime) -> Iterator[Window]:
        """Yields the windows of a feed that are published by a time, in order."""
        upto, begin = now - self.delays[feed], simulation.begin
        if feed == "incr":
            yield from increments(begin, upto)
            return
        stops = self.full_stops if feed == "full" else self.log_stops
        if stops is None:
            stops = daily(begin, upto, self.hour_utc)
            if feed == "full" and begin not in stops:
                stops = [begin, *stops]
        for stop in sorted(stops):
            if stop <= upto:
                yield Window(feed, FULL_START if feed == "full" else stop - DAY, stop)


@dataclass(frozen=True)
class Published:
    """An archive to download. Without records it has no parts, unless `always`."""

    window: Window
    archive: Archive
    part_bytes: int
    always: bool = False

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The slices of the packed archive."""
        return split(self.archive.packed(), self.part_bytes) if self.archive.record_count or self.always else ()


class Publisher:
    """Publishes a simulation's windows. `md5`: True if the listing has checksums; `part_bytes`: the size of parts."""

    def __init__(self, simulation: Simulation, vault_id: int, schedule: Schedule, part_bytes: int, md5: bool) -> None:
        self.simulation = simulation
        self.vault_id = vault_id
        self.schedule = schedule
        self.part_bytes = part_bytes
        self.md5 = md5
        self._lock = threading.Lock()
        self._made: dict[tuple[Window, tuple[Fault, ...], int], Published] = {}

    def started(self, now: datetime) -> bool:
        """True if the first snapshot is published. Before that, nothing can be downloaded."""
        return any(True for _ in self.schedule.windows(self.simulation, "full", now))

    def windows(self, feed: Feed, now: datetime, faults: Iterable[Fault]) -> list[Window]:
        """Returns the windows in the listing at a time, failed publications included, in order."""
        hidden = {fault.window for fault in faults if fault.kind in ("late", "lost")}
        oldest = now - self.schedule.delays[feed] - KEPT[feed]
        found = self.schedule.windows(self.simulation, feed, now)
        return [window for window in found if window.stop > oldest and window.ref not in hidden]

    def entry(self, window: Window, now: datetime, faults: Sequence[Fault]) -> dict[str, Any]:
        """Returns the entry of a window in the listing."""
        name = window.name(self.vault_id)
        failed = _of(faults, window, ["unpublished"])
        if failed:
            retry = failed[0].until or now + RETRY
            message = "The file could not be published. It will be tried again."
            return {"name": name, "error": {"next_retry": minutes(retry), "message": message}}
        published = self.published(window, faults)
        details: list[Any] = [self._part_entry(name, part) for part in published.parts]
        if _of(faults, window, ["malformed"]):
            details = [17]
        return {
            "name": name,
            "filename": f"{name}.tar.gz",
            "extract_type": EXTRACT_TYPES[window.feed],
            "start_time": minutes(window.start),
            "stop_time": minutes(window.stop),
            "record_count": published.archive.record_count,
            "size": sum(len(part.content) for part in published.parts),
            "fileparts": len(published.parts),
            "filepart_details": details,
        }

    def published(self, window: Window, faults: Sequence[Fault]) -> Published:
        """Returns the archive of a window with the active faults."""
        spoiling = tuple(_of(faults, window, [*CONTENT, "emptied", "hollow"]))
        with self._lock:
            key = (window, spoiling, self.part_bytes)
            if key not in self._made:
                hollow = any(fault.kind == "hollow" for fault in spoiling)
                self._made[key] = Published(window, self._archive(window, spoiling), self.part_bytes, hollow)
            return self._made[key]

    def _archive(self, window: Window, spoiling: Sequence[Fault]) -> Archive:
        if any(fault.kind in ("emptied", "hollow") for fault in spoiling):
            return Archive((), {})
        archive = archive_of(self.simulation, window)
        for fault in spoiling:
            archive = fault.spoil(archive)
        return archive

    def _part_entry(self, name: str, part: Part) -> dict[str, Any]:
        """Returns the entry of a part in the listing. Clients must not follow its url."""
        return {
            "name": f"{name}.{part.number:03}",
            "filename": f"{name}.tar.gz.{part.number:03}",
            "filepart": part.number,
            "size": len(part.content),
            **({"md5checksum": part.md5} if self.md5 else {}),
            "url": f"https://vault.invalid/api/v25.3/services/directdata/private/files/{name}.{part.number:03}",
        }


def _of(faults: Iterable[Fault], window: Window, kinds: Iterable[str]) -> list[Fault]:
    wanted = set(kinds)
    return [fault for fault in faults if fault.kind in wanted and fault.window == window.ref]
