"""Shredded objects compared with their listings, for items that will be read again: presence, size and checksum.

Belongs here: objects that are still needed by a load, by a full load that repeats windows, or by a merge. Objects that nothing
needs may be gone, and are not examined. Sizes cost one listing an item; checksums are compared for a limited number of bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from manifest_platform import storage
from manifest_platform.listing import Listing
from manifest_platform.manifest import Application, Item, ItemKey
from manifest_platform.manifest.dataset import PASSED, Standing, judge
from manifest_platform.operations.doctor.findings import EXAMINE, Finding, Kind
from manifest_platform.operations.doctor.log import Watcher
from manifest_platform.pipeline import SHRED, Pipeline
from manifest_platform.pipeline.merge import Merging
from manifest_platform.pipeline.shredding import OutputGone, landing_problem, listing_of, object_problem
from manifest_platform.remedies import Action, Remedy
from manifest_platform.warehouse.errors import Unavailable

TOLD_EVERY = 500
"""The number of items after which progress is reported again."""


class OutputWatcher(Watcher):
    """Examines the shredded objects of each item that still needs them.

    `read`: the number of bytes whose checksums are compared, oldest items first. `told`: is called with the progress.
    """

    def __init__(self, pipeline: Pipeline, read: int = 0, told: Callable[[str], None] | None = None):
        self.pipeline, self.left, self.told = pipeline, read, told
        self.looked_at = 0
        self._unregistered = unregistered(pipeline)

    def feed(self, feed: str) -> None:
        """Begins a feed."""
        manifest = self.pipeline.manifest
        steps = [manifest.step(feed, one.load.key) for one in self.pipeline.each_target()]
        self._loads = [(step, manifest.state(step.application).seen_by(step, feed)) for step in steps]
        self._covered = any(feed in manifest.step(other, self.pipeline.load.key).covers for other in self.pipeline.feeds)
        self._found: list[Finding] = []

    def see(self, item: Item) -> None:
        """Examines the item's objects, if they are needed."""
        made = item.processed_by(Application(SHRED))
        if made is None or "listing" not in made.data or not self._is_needed(item):
            return  # the output of another system's shredder has no listing of ours
        self.looked_at += 1
        if self.told and self.looked_at % TOLD_EVERY == 0:
            self.told(f"{self.looked_at:,} shredded items examined, up to {item.key.name}")
        try:
            problems = self._problems(listing_of(item))
        except OutputGone as gone:
            problems = [gone.what]
        except Unavailable as error:
            self._found.append(Finding(Kind.UNCHECKED, str(error), EXAMINE, item.key, SHRED))
            return
        if problems:
            more = f", and {len(problems) - 1:,} more" if len(problems) > 1 else ""
            cause = f"{problems[0]}{more}; {self._reader(item)} needs it"
            self._found.append(Finding(Kind.OUTPUT, *_with_landing(self.pipeline, item, cause), item.key, SHRED))

    def end(self, feed: str) -> Iterator[Finding]:
        """Yields the findings on the feed."""
        yield from self._found

    def _is_needed(self, item: Item) -> bool:
        return bool(self._reader(item))

    def _reader(self, item: Item) -> str:
        """Returns the reader that still needs an item's objects; empty if they may be gone."""
        judged = [(judge(item, step, state).standing, state) for step, state in self._loads]
        if any(standing not in PASSED and standing is not Standing.LATE for standing, _ in judged):
            return "a load"
        if item.key in self._unregistered:
            return "a merge"
        done = any(standing is Standing.DONE and item.key.position > state.boundary for standing, state in judged)
        again = self._covered and done
        return "a full load, which loads it again," if again else ""

    def _problems(self, listing: Listing) -> list[str]:
        """Returns the faults of a listing's objects: sizes by one listing of the folder, checksums for the bytes left."""
        sizes = sizes_beside(listing)
        found: list[str] = []
        for one in (*listing.stored, *listing.bad_rows):
            if (size := sizes.get(one.uri)) != one.bytes:
                found.append(f"{one.uri} is gone" if size is None else f"{one.uri} has {size:,} bytes, not {one.bytes:,}")
            elif one.checksum and self.left >= one.bytes:
                self.left -= one.bytes
                if problem := object_problem(one.uri, one.bytes, one.checksum):
                    found.append(problem)
        return found


def unregistered(pipeline: Pipeline) -> set[ItemKey]:
    """Returns the items whose objects a merge will read, because their commits are not registered yet."""
    if pipeline.dataset.merge is None:
        return set()
    return {commit.key for commit in pipeline.manifest.commits(after=Merging(pipeline).inventory.cursor())}


def unmerged(pipeline: Pipeline) -> Iterator[Finding]:
    """Yields small objects that are registered, not merged yet, and gone or of another size."""
    if pipeline.dataset.merge is None:
        return
    merging = Merging(pipeline)
    for table in merging.inventory.tables():
        for partition in merging.inventory.partitions(table.key):
            if partition.upper >= partition.newest:
                continue
            for small in merging.inventory.small_objects(table.key, partition.date, after=partition.upper):
                try:
                    problem = object_problem(small.uri, small.file_bytes)
                except Unavailable as error:
                    yield Finding(Kind.UNCHECKED, str(error), EXAMINE, place=small.uri)
                    continue
                key = pipeline.item_of(small.uri) if problem else None
                if problem and key:
                    helps = _with_landing(pipeline, pipeline.manifest.item(key), f"{problem}; a merge needs it")
                    yield Finding(Kind.OUTPUT, *helps, key, SHRED)


def _with_landing(pipeline: Pipeline, item: Item, cause: str) -> tuple[str, Remedy]:
    """Returns a cause with its remedy. Shredding again only works if the directory is still the registered one."""
    again = Remedy(Action.RESHRED, item=item.key.name)
    try:
        problem = landing_problem(pipeline, item)
    except Unavailable as error:
        return f"{cause}. {error}", again
    return (f"{cause}. {problem}", problem.remedy or again) if problem else (cause, again)


def sizes_beside(listing: Listing) -> dict[str, int]:
    """Returns the sizes of all objects beside a listing, by URI. Raises Unavailable."""
    from pyarrow.fs import FileSelector

    if not listing.objects:
        return {}
    uri = listing.objects[0].uri
    root = uri.partition(f"/{listing.attempt}/")[0] + f"/{listing.attempt}"
    system, path = storage.filesystem(root)
    try:
        found = system.get_file_info(FileSelector(path, recursive=True, allow_not_found=True))
    except OSError as error:
        raise Unavailable(f"{root} cannot be listed now: {error}") from error
    there = {one.path: one.size or 0 for one in found if one.is_file}
    paths = {one.uri: storage.filesystem(one.uri)[1] for one in (*listing.stored, *listing.bad_rows)}
    return {uri: there[path] for uri, path in paths.items() if path in there}
