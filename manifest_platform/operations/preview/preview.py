"""The content of a landing root: its feeds as sequences, whether directories have a marker, and a sample of rows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from collections.abc import Sequence as Listed
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from manifest_platform import landed_files, storage
from manifest_platform.operations.preview.recognition import Root, directory_of
from manifest_platform.operations.preview.sequence import Sequence
from manifest_platform.shred.compression import HEAD, Unreadable, compression_of
from manifest_platform.sources.directories import DirectoryName, LandedDirectory, Settle, without_writing
from manifest_platform.sources.errors import LandingError
from manifest_platform.sources.preview import Bounds, Place, Sample

_MOST_NAMES = 200_000
_LISTING_SECONDS = 3.0
_LOOKED_INTO = {True: 50, False: 8}  # directories of a feed: on a disk, in S3
_READERS = 8
_SAMPLED = 3  # directories of a feed
_HEADS = 12  # files whose first bytes are read


@dataclass(frozen=True)
class FeedSeen:
    """A feed of a landing root. Of `looked_into` directories, `marked` have the marker; `unmarked` names the others.

    `files`, `bytes`: in these directories. `strangers`: names that are not names of directories. `broken`: directories that
    cannot be read, with the reason. `empty`: the number of directories without landed files.
    """

    name: str
    sequence: Sequence
    looked_into: int = 0
    marked: int = 0
    unmarked: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0
    strangers: tuple[str, ...] = ()
    broken: tuple[tuple[str, str], ...] = ()
    empty: int = 0


@dataclass(frozen=True)
class Preview:
    """The result of looking at a landing root.

    `marker`: the file that marks complete directories; None if they settle. `compressions`: counts of the first files by
    compression; uncompressed files count under `text`. `advice`: sentences for the user. `sample`: None if the source has none.
    """

    source: str
    root: str
    part: str | None
    layout: str
    schemas: tuple[str, ...]
    told: dict
    feeds: tuple[FeedSeen, ...]
    marker: str | None
    compressions: dict[str, int] = field(default_factory=dict)
    sample: Sample | None = None
    advice: tuple[str, ...] = ()
    seconds: float = 0.0


def preview(root: Root, bounds: Bounds | None = None) -> Preview:
    """Looks at a landing root, or at the part of it that was asked for. Raises LandingError."""
    began = time.monotonic()
    bounds = bounds or Bounds()
    source = root.source
    with without_writing():
        seen: list[FeedSeen] = []
        looked: list[tuple[str, LandedDirectory]] = []
        chosen: list[tuple[str, LandedDirectory]] = []
        for feed in source.feeds:
            one, directories = _feed(root, feed)
            if one.sequence.count or one.strangers:
                seen.append(one)
            looked += [(feed, directory) for directory in directories]
            chosen += [(feed, directory) for directory in _spread([one for one in directories if one.files], _SAMPLED)]
        marker = _marker(looked, root)
        compressions = _compressions([directory for _, directory in chosen])
        sample = source.sample(chosen, Bounds(bounds.bytes, bounds.seconds, root.guess.schemas))
    return Preview(
        root.plugin,
        root.uri,
        root.part,
        root.guess.layout,
        root.guess.schemas,
        dict(root.guess.told),
        tuple(seen),
        marker,
        compressions,
        sample,
        root.guess.notes,
        time.monotonic() - began,
    )


def _feed(root: Root, feed: str) -> tuple[FeedSeen, list[LandedDirectory]]:
    """Returns a feed, and those of its directories that were read, newest first."""
    names, strangers, is_all = _names(root, feed)
    local = storage.is_local(root.uri)
    if root.part:
        names = _of_part(root, feed, names)
        strangers = []
    directories: list[LandedDirectory] = []
    broken: list[tuple[str, str]] = []
    empty = 0
    looked = list(_spread(names, _LOOKED_INTO[local]))

    def read(name: DirectoryName) -> LandedDirectory | LandingError | None:
        try:
            with without_writing():  # this thread does not inherit the setting of the caller
                return root.source.read(feed, name)
        except LandingError as error:
            return error

    with ThreadPoolExecutor(1 if local else _READERS) as pool:
        for name, found in zip(looked, pool.map(read, looked), strict=True):
            if isinstance(found, LandingError):
                broken.append((name.name, str(found)))
            elif found is None:
                empty += 1
            else:
                directories.append(found)
    unmarked = sorted((one.sort, one.name) for one in directories if not one.marker)
    seen = FeedSeen(
        feed,
        Sequence.of(names, is_all),
        len(directories),
        len(directories) - len(unmarked),
        tuple(name for _, name in unmarked),
        sum(len(one.files) for one in directories),
        sum(one.bytes for one in directories),
        tuple(strangers),
        tuple(broken),
        empty,
    )
    return seen, directories


def _names(root: Root, feed: str) -> tuple[list[DirectoryName], list[str], bool]:
    """Returns the names of a feed's directories, the names of strangers, and whether the listing is complete."""
    names: list[DirectoryName] = []
    strangers: list[str] = []
    beyond, until = "", time.monotonic() + _LISTING_SECONDS
    while True:
        found = root.source.names(feed, beyond, _MOST_NAMES)
        names += found.names
        strangers += found.unparseable
        if found.upto is None:
            return sorted(names, key=lambda one: one.sort), strangers, True
        if time.monotonic() >= until or len(names) >= _MOST_NAMES:
            return sorted(names, key=lambda one: one.sort), strangers, False
        beyond = found.upto


def _of_part(root: Root, feed: str, names: list[DirectoryName]) -> list[DirectoryName]:
    """Returns the directories that equal, contain, or are in the part."""
    assert root.part
    if placed := directory_of(root, root.part):
        return [name for name in names if (feed, name.sort) == placed]
    try:
        first = root.source.read(feed, names[0]) if names else None
    except LandingError:
        return []
    return names if first and first.uri.startswith(f"{root.part}/") else []


def _spread(listed: Listed, most: int) -> Iterator:
    """Yields at most `most` entries: the last, the first, and others between them at equal distances."""
    count = len(listed)
    if count <= most:
        yield from reversed(listed)
        return
    places = {count - 1: None, 0: None} | {round(number * (count - 1) / (most - 1)): None for number in range(most)}
    for place in list(places)[:most]:
        yield listed[place]


def _marker(looked: list[tuple[str, LandedDirectory]], root: Root) -> str | None:
    """Returns the file that marks complete directories: the usual name, or an empty file that all directories share."""
    if isinstance(root.source.completeness, Settle):
        return None
    marked = [directory for _, directory in looked if directory.marker]
    usual = getattr(root.source.completeness, "name", None)
    if marked or not looked:
        return usual
    shared: set[str] | None = None
    for _, directory in looked[:3]:
        try:
            files = Place(directory.uri).entries.files
        except (OSError, LandingError):
            return None
        names = {name for name, size in files if name.startswith("_") and not size}
        shared = names if shared is None else shared & names
    return min(shared) if shared else None


def _compressions(directories: list[LandedDirectory]) -> dict[str, int]:
    """Counts the compressions of the first files, by their first bytes."""
    found: Counter[str] = Counter()
    files = [(file.uri, directory) for directory in directories for file in directory.files if file.size]
    for uri, _ in files[:_HEADS]:
        try:
            with landed_files.open_file(uri) as file:
                found[compression_of(file.read(HEAD), uri) or "text"] += 1
        except Unreadable:
            found["not read"] += 1
        except (OSError, ValueError):
            continue
    return dict(found)
