"""Which archives of a simulated vault can be had at a time, and what the listing says of each.

Belongs here: publication, retention and the listing's entries, faults of both included. Sessions and HTTP are `server`.
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
"""For how long an archive can be had."""
RETRY = timedelta(minutes=30)
"""When a failed publication without a healing is said to be tried again."""


@dataclass(frozen=True)
class Schedule:
    """When a vault publishes. `full_stops`, `log_stops` (UTC): None: daily at `hour_utc`, a first snapshot at the beginning.

    `delays`: how long after its stop an archive is published. A log archive starts a day before its stop, in any case.
    """

    hour_utc: int
    full_stops: Sequence[datetime] | None
    log_stops: Sequence[datetime] | None
    delays: dict[Feed, timedelta]

    def windows(self, simulation: Simulation, feed: Feed, now: datetime) -> Iterator[Window]:
        """The windows of a feed that are published by a time, in order."""
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
    """An archive as it can be had: its parts, or none where it has no records, unless it is there nevertheless (`always`)."""

    window: Window
    archive: Archive
    part_bytes: int
    always: bool = False

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The slices of the packed archive."""
        return split(self.archive.packed(), self.part_bytes) if self.archive.record_count or self.always else ()


class Publisher:
    """Publishes a simulation's windows. `md5`: whether the listing tells checksums; `part_bytes`: how long parts are."""

    def __init__(self, simulation: Simulation, vault_id: int, schedule: Schedule, part_bytes: int, md5: bool) -> None:
        self.simulation = simulation
        self.vault_id = vault_id
        self.schedule = schedule
        self.part_bytes = part_bytes
        self.md5 = md5
        self._lock = threading.Lock()
        self._made: dict[tuple[Window, tuple[Fault, ...], int], Published] = {}

    def started(self, now: datetime) -> bool:
        """Whether the first snapshot is there; before, nothing can be had."""
        return any(True for _ in self.schedule.windows(self.simulation, "full", now))

    def windows(self, feed: Feed, now: datetime, faults: Iterable[Fault]) -> list[Window]:
        """The windows that the listing names at a time, failed publications among them, in order."""
        hidden = {fault.window for fault in faults if fault.kind in ("late", "lost")}
        oldest = now - self.schedule.delays[feed] - KEPT[feed]
        found = self.schedule.windows(self.simulation, feed, now)
        return [window for window in found if window.stop > oldest and window.ref not in hidden]

    def entry(self, window: Window, now: datetime, faults: Sequence[Fault]) -> dict[str, Any]:
        """What the listing says of a window."""
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
        """The archive of a window with the faults that stand."""
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
        """What the listing says of a part; its url is one that a client must not follow."""
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
