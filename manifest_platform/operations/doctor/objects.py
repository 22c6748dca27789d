"""Shredded objects that no record names: the output of attempts that died, failed or were repeated.

Belongs here: finding their prefixes, `<output>/<dataset>/<item>/<attempt>`, and removing them. Never touched: prefixes that a
completed record names, that an open claim may still write, that changed within the grace time, or whose item is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from manifest_platform import storage
from manifest_platform.manifest import Item, ItemKey, State
from manifest_platform.manifest.keys import records_prefix
from manifest_platform.operations.doctor.findings import CLEAN, Finding, Kind
from manifest_platform.operations.doctor.log import Watcher, look_again
from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline.pipeline import folder_name
from manifest_platform.remedies import Action, Remedy

GRACE = timedelta(hours=24)


class ObjectsWatcher(Watcher):
    """Compares the attempts in the output with the items. Costs one listing for each run that has any."""

    def __init__(self, pipeline: Pipeline, now: datetime, grace: timedelta):
        self.pipeline, self.now, self.grace = pipeline, now, grace
        self.root = f"{storage.as_uri(pipeline.dataset.shred.output)}/{pipeline.name}"
        self._runs: set[str] = set()
        self._unnamed: dict[str, ItemKey | None] = {}

    def feed(self, feed: str) -> None:
        """Lists the folders of a feed's items."""
        self._runs = {run for run in _folders(self.root) if self._may_be_of(run, feed)}

    def _may_be_of(self, run: str, feed: str) -> bool:
        """True if a folder may belong to the feed, by its name. Folders that fit no feed are reported with the main feed."""
        feeds = {named.feed for named in self.pipeline.meant_by(run)} or {self.pipeline.source.main}
        return feed in feeds

    def see(self, item: Item) -> None:
        """Keeps the item's attempts that its records do not name."""
        run = folder_name(item.key)
        if not (run in self._runs or any(uri.startswith(f"{self.root}/{run}/") for uri in self._unnamed)):
            return
        first = run in self._runs  # otherwise an item of the same name came before
        self._runs.discard(run)
        named = named_attempts(item)
        for attempt in _folders(f"{self.root}/{run}"):
            uri = f"{self.root}/{run}/{attempt}"
            if uri in named or attempt in named:
                self._unnamed.pop(uri, None)
            elif first:
                self._unnamed[uri] = item.key

    def end(self, feed: str) -> Iterator[Finding]:
        """Yields the unnamed attempts that are older than the grace time."""
        for run in sorted(run for run in self._runs if not _is_known(self.pipeline, run)):
            self._unnamed |= {f"{self.root}/{run}/{attempt}": None for attempt in _folders(f"{self.root}/{run}")}
        for uri, key in sorted(self._unnamed.items()):
            files, size, newest = measured(uri)
            if newest is None or newest <= self.now - self.grace:
                cause = (
                    f"{files:,} objects, {size:,} bytes, none newer than {newest:%Y-%m-%d %H:%M:%S %Z}" if newest else "empty"
                )
                yield _orphan(uri, key, cause)
        self._unnamed.clear()


def _orphan(uri: str, key: ItemKey | None, what: str) -> Finding:
    if key:
        return Finding(Kind.ORPHAN, f"no completed record names it: {what}", CLEAN, key, place=uri)
    cause = (
        f"the manifest has no such item: {what}. If this is the right manifest, let it discover the directory, or remove the"
        " folder by hand. The doctor does not remove it"
    )
    return Finding(Kind.ORPHAN, cause, Remedy(Action.DISCOVER_ALL), place=uri)


def _is_known(pipeline: Pipeline, run: str) -> bool:
    """True if the manifest has rows of a run, readable or not."""
    prefixes = [f"{records_prefix(named.feed)}{named.sort}#" for named in pipeline.meant_by(run)]
    return any(pipeline.manifest.store.query(pipeline.name, prefix, limit=1) for prefix in prefixes)


def named_attempts(item: Item) -> set[str]:
    """Returns the attempts that must stay: prefixes that completed records name, and the ids of open claims."""
    named = {record.record_id for record in item.open_records() if record.state is State.PROCESSING}
    for record in item.records:
        if record.state is State.PROCESSED:
            listing, prefix = record.data.get("listing"), record.data.get("prefix")
            named |= {str(listing).rpartition("/")[0]} if listing else set()
            named |= {str(prefix).rstrip("/")} if prefix else set()
    return named | named_contents(item)


def named_contents(item: Item) -> set[str]:
    """Returns the folders that an item's records name as its landed content, those of older versions included."""
    return {str(record.data["content"]) for record in item.records if record.data.get("content")}


def clean(pipeline: Pipeline, orphans: list[Finding]) -> Iterator[str | Finding]:
    """Removes the objects of known items, each after reading the records again. Yields a line for each, or a finding."""
    for orphan in orphans:
        uri = orphan.place
        attempt = uri.rpartition("/")[2]
        if orphan.key is None:
            yield orphan
            continue
        item = look_again(pipeline.manifest, orphan.key)
        if isinstance(item, Finding):
            yield from (item, orphan)
            continue
        named = named_attempts(item)
        if uri in named or attempt in named:
            continue
        files, size, _ = measured(uri)
        storage.delete_folder(uri)
        yield f"removed {uri}: {files:,} objects, {size:,} bytes"


def _folders(uri: str) -> list[str]:
    """Returns the names of the folders in a folder; none if it does not exist."""
    from pyarrow.fs import FileSelector, FileType

    system, path = storage.filesystem(uri)
    found = system.get_file_info(FileSelector(path, allow_not_found=True))
    return [one.base_name for one in found if one.type == FileType.Directory]


def measured(uri: str) -> tuple[int, int, datetime | None]:
    """Returns the number of objects with a prefix, their bytes, and the time of the newest, or of the folder if it is empty."""
    from pyarrow.fs import FileSelector, FileType

    system, path = storage.filesystem(uri)
    found = system.get_file_info(FileSelector(path, recursive=True, allow_not_found=True))
    files = [one for one in found if one.type == FileType.File]
    newest = max((one.mtime for one in files), default=None) or system.get_file_info(path).mtime
    return len(files), sum(one.size or 0 for one in files), newest
