"""The preview of a landing place before anything is configured: whether a source recognizes it, and a shredded sample of it.

This module holds the values of that part of a source's contract, and `Place`, which is listed only as far as needed. Nothing
here writes.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from manifest_platform import landed_files, storage
from manifest_platform.listing import Table
from manifest_platform.sources.directories import LandedDirectory, list_entries

if TYPE_CHECKING:
    from manifest_platform.shred.sample import Sampler

MOST_ENTRIES = 1_000
"""The number of entries of a folder that are looked at to recognize it."""


@dataclass(frozen=True)
class Entries:
    """The folders and the files (name, size in bytes) in a folder. `is_all`: False if there are more."""

    folders: tuple[str, ...]
    files: tuple[tuple[str, int], ...]
    is_all: bool


@dataclass(frozen=True)
class Place:
    """A folder on a disk, or a prefix in S3, by its canonical URI. It is listed once, on first use."""

    uri: str

    @functools.cached_property
    def entries(self) -> Entries:
        """The first MOST_ENTRIES of its entries; on a disk in no particular order. Raises LandingError, OSError."""
        if not storage.is_local(self.uri):
            return Entries(*list_entries(self.uri, MOST_ENTRIES))
        folders: list[str] = []
        files: list[tuple[str, int]] = []
        with os.scandir(storage.local_path(self.uri)) as found:
            for entry in itertools.islice(found, MOST_ENTRIES):
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    files.append((entry.name, entry.stat(follow_symlinks=False).st_size))
            is_all = next(found, None) is None
        return Entries(tuple(sorted(folders)), tuple(sorted(files)), is_all)

    @property
    def name(self) -> str:
        """Its last name, without the folders above it."""
        path = str(storage.local_path(self.uri)) if storage.is_local(self.uri) else self.uri
        return path.rpartition("/")[2]

    def inside(self, name: str) -> Place:
        """Returns a folder in it."""
        return Place(self.uri_of(name))

    def uri_of(self, name: str) -> str:
        """Returns the URI of an entry in it."""
        return f"{self.uri}/{storage.quote_path(name) if storage.is_local(self.uri) else name}"

    def head(self, name: str, size: int = 4096) -> bytes:
        """Returns the first bytes of a file in it. Raises OSError, NotFollowed."""
        with landed_files.open_file(self.uri_of(name), self.uri) as file:
            return file.read(size)


@dataclass(frozen=True)
class Guess:
    """The guess that a place is a landing root of a source.

    `told`: the settings of its dataset that differ from the defaults. `layout`: a description of its directories, for people.
    `schemas`: the places of its schemas, as named by the person or as found beside the root. `notes`: sentences that a person
    should know.
    """

    told: Mapping[str, Any]
    layout: str
    schemas: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bounds:
    """The limits of a sample: bytes of input, and seconds. `schemas`: the only places that are asked for schemas."""

    bytes: int = 8 << 20
    seconds: float = 1.5
    schemas: tuple[str, ...] = ()


@dataclass(frozen=True)
class SampledTable:
    """A table of a sample, and its number of rows."""

    table: Table
    rows: int


@dataclass(frozen=True)
class SampledBad:
    """A bad line of a sample: the URI of its file, its line number, and its first reason."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True)
class MissingSchema:
    """A schema that no registry has, the number of lines of the sample that name it, and the table that it would make."""

    schema: str
    table: str
    lines: int


@dataclass(frozen=True)
class SampleFailure:
    """A directory that cannot be shredded, and the reason."""

    directory: str
    message: str


@dataclass(frozen=True)
class Sample:
    """The beginning of some directories, shredded in memory.

    `waiting`: lines that would be good if missing schemas were published. `reasons`: numbers of bad lines by reason, the most
    frequent first. `bad_rows`: the first bad lines. `is_all`: True if the directories were read completely.
    """

    directories: tuple[str, ...] = ()
    lines: int = 0
    good: int = 0
    bad: int = 0
    waiting: int = 0
    tables: tuple[SampledTable, ...] = ()
    reasons: Mapping[str, int] = field(default_factory=dict)
    bad_rows: tuple[SampledBad, ...] = ()
    missing: tuple[MissingSchema, ...] = ()
    failures: tuple[SampleFailure, ...] = ()
    notes: tuple[str, ...] = ()
    bytes: int = 0
    is_all: bool = True


class Sampling:
    """Takes a sample of directories. Each gets an equal share of the bytes; a directory that fails does not stop the others."""

    def __init__(self, sampler: Sampler, directories: Sequence[tuple[str, LandedDirectory]], bounds: Bounds):
        self.sampler = sampler
        self._directories, self._share = directories, bounds.bytes // max(1, len(directories))
        self._done: list[str] = []
        self._failures: list[SampleFailure] = []
        self._ended_early = False

    def each(self) -> Iterator[tuple[str, LandedDirectory]]:
        """Yields the directories with their feeds until the time is up, and gives the sampler each directory's share."""
        for feed, directory in self._directories:
            if self.sampler.is_late:
                self._ended_early = True
                return
            self.sampler.take(self._share)
            yield feed, directory
            self._done.append(directory.name)

    def failed(self, directory: LandedDirectory, error: Exception) -> None:
        """Notes why a directory cannot be shredded."""
        self._failures.append(SampleFailure(directory.name, str(error)))

    def sample(self, waiting: int = 0, missing: Sequence[MissingSchema] = (), notes: Sequence[str] = ()) -> Sample:
        """Returns the sample. `waiting`: the number of lines counted as good that only lack schemas."""
        sampler = self.sampler
        return Sample(
            tuple(self._done),
            sampler.written.lines,
            sampler.written.good - waiting,
            sampler.written.bad,
            waiting,
            tuple(SampledTable(table, rows) for table, rows in sampler.tables()),
            dict(sampler.reasons.most_common()),
            tuple(SampledBad(file, line, reason) for file, line, reason in sampler.bad_rows),
            tuple(missing),
            tuple(self._failures),
            tuple(notes),
            sampler.read,
            not (self._ended_early or sampler.was_cut),
        )
