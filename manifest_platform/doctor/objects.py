"""Shredded objects that no record names: what attempts left that died, failed or were repeated.

Belongs here: finding their prefixes, `<output>/<dataset>/<run>/<attempt>`, and removing them. Never touched is what a completed
record names, what an open claim may still write, and what changed within the grace time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from manifest_platform import storage
from manifest_platform.doctor.findings import CLEAN, Finding, Kind
from manifest_platform.doctor.log import Watcher, read_item
from manifest_platform.manifest import Item, ItemKey, State
from manifest_platform.pipeline import FEED, Pipeline

GRACE = timedelta(hours=24)


class ObjectsWatcher(Watcher):
    """Looks at the attempts of each item that passes: one listing for each run that has any."""

    def __init__(self, pipeline: Pipeline, now: datetime, grace: timedelta):
        self.now, self.grace = now, grace
        self.root = f"{storage.as_uri(pipeline.dataset.shred.output)}/{pipeline.name}"
        self._runs: set[str] = set()
        self._unnamed: dict[str, ItemKey | None] = {}

    def feed(self, feed: str) -> None:
        """Begins with the feed of the runs."""
        self._mine = feed == FEED
        if self._mine:
            self._runs = set(_folders(self.root))

    def see(self, item: Item) -> None:
        """An item's attempts: those that its records do not name."""
        run = item.key.name
        if not self._mine or not (run in self._runs or any(uri.startswith(f"{self.root}/{run}/") for uri in self._unnamed)):
            return
        self._runs.discard(run)
        named = named_attempts(item)
        for attempt in _folders(f"{self.root}/{run}"):
            uri = f"{self.root}/{run}/{attempt}"
            if uri in named or attempt in named:
                self._unnamed.pop(uri, None)  # of an item with the same name
            else:
                self._unnamed[uri] = item.key

    def end(self, feed: str) -> Iterator[Finding]:
        """Attempts that nobody names, and that are older than the grace time."""
        if not self._mine:
            return
        for run in sorted(self._runs):
            self._unnamed |= {f"{self.root}/{run}/{attempt}": None for attempt in _folders(f"{self.root}/{run}")}
        for uri, key in sorted(self._unnamed.items()):
            files, size, newest = _measured(uri)
            if newest is None or newest <= self.now - self.grace:
                whose = "no completed record names it" if key else "the manifest knows no such item"
                cause = (
                    f"{files:,} objects, {size:,} bytes, none newer than {newest:%Y-%m-%d %H:%M:%S %Z}" if newest else "empty"
                )
                yield Finding(Kind.ORPHAN, f"{whose}: {cause}", CLEAN, key, place=uri)


def named_attempts(item: Item) -> set[str]:
    """What of an item's objects exists for readers: prefixes that completed records name, and the ids of open claims."""
    named = {record.record_id for record in item.open_records() if record.state is State.PROCESSING}
    for record in item.records:
        if record.state is State.PROCESSED:
            listing, prefix = record.data.get("listing"), record.data.get("prefix")
            named |= {str(listing).rpartition("/")[0]} if listing else set()
            named |= {str(prefix).rstrip("/")} if prefix else set()
    return named


def clean(pipeline: Pipeline, orphans: list[Finding]) -> Iterator[str]:
    """Removes the objects of such findings, each after one more look at the item's records; says what it did."""
    for orphan in orphans:
        uri = orphan.place
        attempt = uri.rpartition("/")[2]
        if orphan.key:
            named = named_attempts(read_item(pipeline.manifest, orphan.key))
            if uri in named or attempt in named:
                continue
        files, size, _ = _measured(uri)
        system, path = storage.filesystem(uri)
        system.delete_dir(path)
        yield f"removed {uri}: {files:,} objects, {size:,} bytes"


def _folders(uri: str) -> list[str]:
    """The names of the folders in a folder; none where it does not exist."""
    from pyarrow.fs import FileSelector, FileType

    system, path = storage.filesystem(uri)
    found = system.get_file_info(FileSelector(path, allow_not_found=True))
    return [one.base_name for one in found if one.type == FileType.Directory]


def _measured(uri: str) -> tuple[int, int, datetime | None]:
    """How many objects a prefix has, their bytes, and when the newest was written."""
    from pyarrow.fs import FileSelector, FileType

    system, path = storage.filesystem(uri)
    found = system.get_file_info(FileSelector(path, recursive=True, allow_not_found=True))
    files = [one for one in found if one.type == FileType.File]
    return len(files), sum(one.size or 0 for one in files), max((one.mtime for one in files), default=None)
