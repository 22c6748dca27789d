"""Capture attempts in the landing that no record names: folders of captures that were killed or that lost a race.

Belongs here: finding them. A folder that a record of an item names is never touched, nor a folder that changed within the grace
time by the storage's own clock, because a capture may still write it. A folder below a directory unknown to the manifest
is only reported: a running capture may be about to register it, or the manifest was restored from an older backup.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from manifest_platform.manifest import Item, ItemKey
from manifest_platform.operations.doctor.findings import CLEAN, EXAMINE, Finding, Kind
from manifest_platform.operations.doctor.log import Watcher
from manifest_platform.operations.doctor.objects import measured, named_contents
from manifest_platform.pipeline import Pipeline
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.errors import LandingError


class CapturesWatcher(Watcher):
    """Compares the capture attempts in the landing with the items. Costs one listing for each directory that has landed."""

    def __init__(self, pipeline: Pipeline, now: datetime, grace: timedelta):
        self.pipeline, self.now, self.grace = pipeline, now, grace
        self._left: dict[str, list[str]] = {}
        self._unnamed: list[tuple[str, ItemKey]] = []
        self._failure: str | None = None
        self._by_storage = now

    def feed(self, feed: str) -> None:
        """Lists the capture attempts of a feed's landing."""
        self._unnamed, self._left, self._failure = [], {}, None
        try:
            found = self.pipeline.source.attempts(feed)
        except (LandingError, OSError) as error:
            self._failure = str(error)
            return
        self._left = {item: list(attempts) for item, attempts in found.by_item.items()}
        self._by_storage = min(self.now, found.now or self.now)  # a clock that is ahead would make new folders look old

    def see(self, item: Item) -> None:
        """Keeps the item's attempts that its records do not name."""
        named = named_contents(item)
        self._unnamed += [(uri, item.key) for uri in self._left.pop(item.key.id, ()) if uri not in named]

    def end(self, feed: str) -> Iterator[Finding]:
        """Yields the unnamed attempts that are older than the grace time."""
        if self._failure:
            yield Finding(Kind.UNCHECKED, f"the folders of captures could not be listed: {self._failure}", EXAMINE, place=feed)
        unknown = [(uri, None) for attempts in self._left.values() for uri in attempts]
        for uri, key in sorted([*self._unnamed, *unknown], key=lambda one: one[0]):
            files, size, newest = measured(uri)
            if newest is not None and newest > self._by_storage - self.grace:
                continue
            what = f"{files:,} objects, {size:,} bytes"
            what += f", none newer than {newest:%Y-%m-%d %H:%M:%S %Z}" if newest else ""
            if key:
                yield Finding(Kind.ORPHAN, f"a capture left it, and no record names it: {what}", CLEAN, key, place=uri)
            else:
                cause = (
                    f"a capture left it, and the manifest has no such item: {what}. Once a capture has registered the item, the"
                    " folder can be removed. If the item can no longer be captured, remove the folder by hand"
                )
                yield Finding(Kind.ORPHAN, cause, Remedy(Action.CAPTURE), place=uri)
