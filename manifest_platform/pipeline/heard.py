"""What notices name: directories that the next look in parts reads, although their turn would come later.

A look in parts finds the newest directories by itself. A directory that landed late in the look-back, or that waited for its
marker, may wait for its turn for minutes. What a notice names is not believed: the look reads the directory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from manifest_platform.manifest.item import short_name
from manifest_platform.pipeline.looking import Sight
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.sources.directories import DirectoryName
from manifest_platform.sources.source import Named

MOST = 1000
"""The URIs that are remembered between two looks. Those beyond it have their turn, as without notices."""


DEPTH = 8
"""The folders, from a file up, among which its directory is looked for."""


class Heard:
    """The URIs of objects and folders that notices named since the last look. Threads may add to them."""

    def __init__(self) -> None:
        self._uris: deque[str] = deque(maxlen=MOST)

    def hear(self, uri: str) -> None:
        """Remembers what a notice named."""
        self._uris.append(uri)

    def bring_forward(self, pipeline: Pipeline) -> None:
        """Lets the next look read the directories that were named, and forgets them."""
        named: dict[Named, str] = {}
        while self._uris:
            named.update(_directory_of(pipeline, self._uris.popleft()))
        now = pipeline.clock()
        for one, place in named.items():
            sight = pipeline.sights.get(one.feed)
            if sight and (name := _name(pipeline, sight, one, place)):
                before = sight.later.get(name.name)
                sight.wait_for(name, before.waiting if before else None, now, now, None)


def _directory_of(pipeline: Pipeline, uri: str) -> Iterator[tuple[Named, str]]:
    """Yields the directory that a URI is or lies in, and its URI; nothing for another place."""
    for _ in range(DEPTH):
        if not pipeline.source.holds(uri):
            return
        if named := pipeline.source.placed(uri):
            yield named, uri
            return
        uri = uri.rpartition("/")[0]


def _name(pipeline: Pipeline, sight: Sight, named: Named, place: str) -> DirectoryName | None:
    """Returns the name of a directory that has its turn later; None if the next look finds it anyway.

    Newer directories are left to the look, which registers them in their order.
    """
    source = pipeline.source
    if waits := next((one.name for one in sight.later.values() if one.name.sort == named.sort), None):
        return waits
    name = short_name(place)
    time = source.time(name)
    reached = pipeline.manifest.full_listing(named.feed, source.layout).reached
    if source.names_list_files or time is None or reached is None or time >= reached:
        return None
    return DirectoryName(name, named.sort, time)
