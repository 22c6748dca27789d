"""Recognition of landing roots: at a place, above it, or below it.

Every source is asked about the place itself, then about the folders above it, of which it may be a part, and then about the
folders below it.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from manifest_platform import plugins, storage
from manifest_platform.quantities import size_of
from manifest_platform.sources.directories import without_writing
from manifest_platform.sources.errors import LandingError, LandingMisconfigured
from manifest_platform.sources.preview import Entries, Guess, Place
from manifest_platform.sources.settings import DatasetSettings
from manifest_platform.sources.source import Source

_ABOVE = 9  # a file of a transformed run is eight folders below the root
_BELOW = 3  # levels below it
_NAMES = 1000  # read from a root: names that are not directories of the source may come first
_MOST_FOLDERS = 200  # folders that are searched
_NO_OUTPUT = "/dev/null/preview"  # a path at which nothing can be written

NAME = "preview"
"""The name of a dataset that does not exist yet."""


class NotThere(ValueError):
    """Nothing exists at a place. The message says what to do."""


@dataclass(frozen=True)
class Root:
    """A landing root: the source's name, the source opened on it, and the source's guess of its settings.

    `part`: the URI that was asked for, if it is only a part of the root.
    """

    plugin: str
    source: Source
    guess: Guess
    part: str | None = None

    @property
    def uri(self) -> str:
        """The URI of the landing root."""
        return self.source.root


@dataclass(frozen=True)
class Unknown:
    """A place that no source recognizes: its content in words, hints at near misses, and the forms that sources recognize."""

    uri: str
    holds: str
    hints: tuple[str, ...]
    known: tuple[str, ...]


def recognize(location: str, schemas: Sequence[str] = ()) -> list[Root] | Unknown:
    """Returns the landing roots at a place, which is a path or an s3:// URI. `schemas`: places of schemas named by a person.

    Raises NotThere, UnsupportedLocation, LandingError.
    """
    with without_writing():
        uri = storage.as_uri(location)
        place, is_file = _place(uri, location)
        if not is_file and (found := list(_roots(place, schemas))):
            return found
        for above in _above(place, is_file):
            with suppress(OSError, LandingError):  # nobody asked for the folders above, so their errors do not matter
                if found := [root for root in _roots(above, schemas, uri) if _has(root, uri)]:
                    return found
        if not is_file and (found := _below(place, schemas)):
            return found
        return _unknown(place)


def _place(uri: str, location: str) -> tuple[Place, bool]:
    """Returns the folder that was asked for, or that contains the file asked for; and whether it is a file."""
    if storage.is_local(uri):
        path = storage.local_path(uri)
        try:
            status = path.stat()
            if stat.S_ISDIR(status.st_mode):
                os.scandir(path).close()
        except FileNotFoundError as error:
            raise NotThere(
                f"{location} does not exist. Name a folder in which directories land, or s3://bucket/prefix"
            ) from error
        except OSError as error:
            raise LandingMisconfigured(
                f"{location} cannot be read: {error.strerror}. Grant access to it, or name another folder"
            ) from error
        if stat.S_ISDIR(status.st_mode):
            return Place(uri), False
        if not stat.S_ISREG(status.st_mode):
            raise NotThere(f"{location} is neither a folder nor a file. Name a folder in which directories land")
        return Place(uri.rpartition("/")[0]), True
    place = Place(uri)
    entries = place.entries
    if entries.folders or entries.files:
        return place, False
    above, _, name = uri.rpartition("/")
    if above.count("/") >= 2 and name in dict(Place(above).entries.files):
        return Place(above), True
    raise NotThere(f"S3 has no objects below {uri}/. Check bucket and prefix, and that something has landed")


def _roots(place: Place, schemas: Sequence[str], part: str | None = None) -> Iterator[Root]:
    """Yields the roots that sources recognize in a folder, if it contains directories of theirs."""
    for name in plugins.names(plugins.SOURCES):
        kind: type[Source] = plugins.load(plugins.SOURCES, name)
        for guess in kind.guesses(place, schemas):
            source = _opened(kind, name, place, guess)
            if any(source.names(feed, "", _NAMES).names for feed in source.feeds):
                yield Root(name, source, guess, part)


def _opened(kind: type[Source], name: str, place: Place, guess: Guess) -> Source:
    common = {"source": name, "landing": {"root": place.uri}, "shred": {"output": _NO_OUTPUT}}
    try:
        settings = kind.model.model_validate(told_in(common, guess.told))
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise LandingMisconfigured(
            f"{place.uri} looks like a landing root of {name}, and cannot be used as one: {problem}"
        ) from error
    assert isinstance(settings, DatasetSettings)  # a source in which nothing lands guesses nothing
    return kind(NAME, settings)


def told_in(common: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """Merges nested settings: those of `told` extend or replace those of `common`."""
    merged = dict(common)
    for key, value in told.items():
        known = merged.get(key)
        merged[key] = {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value
    return merged


def _above(place: Place, is_file: bool) -> Iterator[Place]:
    """Yields the folders that contain a place, nearest first. For a file, the first is the place itself."""
    uri = place.uri
    if is_file:
        yield place
    for _ in range(_ABOVE):
        uri = uri.rpartition("/")[0]
        if uri.count("/") < 3 and not (uri.startswith("s3://") and uri.count("/") == 2):
            return
        try:
            above = Place(uri)
            _ = above.entries
        except (OSError, LandingError):
            return
        yield above


def _has(root: Root, uri: str) -> bool:
    """True if the URI is a directory of a root, or is in one, or contains one."""
    return bool(directory_of(root, uri)) or any(_first(root, feed).startswith(f"{uri}/") for feed in root.source.feeds)


def directory_of(root: Root, uri: str) -> tuple[str, str] | None:
    """Returns feed and sort key of the directory that a URI is, or is in."""
    while uri.startswith(f"{root.uri}/"):
        if placed := root.source.placed(uri):
            return placed.feed, placed.sort
        uri = uri.rpartition("/")[0]
    return None


def _first(root: Root, feed: str) -> str:
    names = root.source.names(feed, "", _NAMES).names
    try:
        directory = root.source.read(feed, names[0]) if names else None
    except LandingError:
        return ""
    return directory.uri if directory else ""


def _below(place: Place, schemas: Sequence[str]) -> list[Root]:
    """Returns the landing roots below a folder, nearest first. Roots are not searched for further roots."""
    found: list[Root] = []
    waiting = deque([(place, 0)])
    looked = 0
    while waiting and looked < _MOST_FOLDERS:
        above, depth = waiting.popleft()
        for name in above.entries.folders:
            if name.startswith((".", "_")) or looked >= _MOST_FOLDERS:
                continue
            looked += 1
            folder = above.inside(name)
            try:
                roots = list(_roots(folder, schemas))
            except (OSError, LandingError):
                continue
            found += roots
            if not roots and depth + 1 < _BELOW:
                waiting.append((folder, depth + 1))
    return found


def _unknown(place: Place) -> Unknown:
    hints: list[str] = []
    known: list[str] = []
    for name in plugins.names(plugins.SOURCES):
        kind: type[Source] = plugins.load(plugins.SOURCES, name)
        with suppress(OSError, LandingError):
            hints += kind.hints(place)
        if kind.feeds:
            known.append(f"{name}: directories named {kind.words.form}")
    return Unknown(place.uri, _in_words(place.entries), tuple(hints), tuple(known))


def _in_words(entries: Entries) -> str:
    """Describes the content of a folder, with examples."""
    parts = []
    least = "" if entries.is_all else "at least "
    if entries.folders:
        count = len(entries.folders)
        parts.append(f"{least}{count:,} folder{'s' if count > 1 else ''} ({_some(entries.folders)})")
    if entries.files:
        count, size = len(entries.files), sum(size for _, size in entries.files)
        names = [name for name, _ in entries.files]
        parts.append(f"{least}{count:,} file{'s' if count > 1 else ''}, {size_of(size)} ({_some(names)})")
    return " and ".join(parts) or "nothing"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
