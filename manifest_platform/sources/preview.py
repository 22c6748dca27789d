"""What a source can tell of a place before anything is configured: whether it is its own, and what a sample becomes.

Belongs here: the words of that part of a source's contract, and a place, which is listed only as far as is asked. Nothing here
writes anywhere.
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
"""How many entries of a folder are looked at to tell what it is."""


@dataclass(frozen=True)
class Entries:
    """What lies in a folder, by name: folders, and files with their sizes in bytes; whether that is all."""

    folders: tuple[str, ...]
    files: tuple[tuple[str, int], ...]
    is_all: bool


@dataclass(frozen=True)
class Place:
    """A folder on a disk, or a prefix in S3, by its canonical URI. What lies in it is listed once, when it is asked for."""

    uri: str

    @functools.cached_property
    def entries(self) -> Entries:
        """The first MOST_ENTRIES of its entries, in no order on a disk. Raises LandingError, OSError."""
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
        """Its own name, without those of the folders above it."""
        path = str(storage.local_path(self.uri)) if storage.is_local(self.uri) else self.uri
        return path.rpartition("/")[2]

    def inside(self, name: str) -> Place:
        """A folder in it."""
        return Place(self.uri_of(name))

    def uri_of(self, name: str) -> str:
        """The URI of what is called so in it."""
        return f"{self.uri}/{storage.quote_path(name) if storage.is_local(self.uri) else name}"

    def head(self, name: str, size: int = 4096) -> bytes:
        """The first bytes of a file in it. Raises OSError, NotFollowed."""
        with landed_files.open_file(self.uri_of(name), self.uri) as file:
            return file.read(size)


@dataclass(frozen=True)
class Guess:
    """That a place may be a landing root of the source. `told`: what its dataset's settings say beyond the common ones.

    `layout`: what its directories are, for people. `schemas`: where the schemas of what lies there are, as far as is known:
    what was named, else what lies beside; `notes`: what else a person should know, a sentence each.
    """

    told: Mapping[str, Any]
    layout: str
    schemas: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bounds:
    """How much a sample takes: bytes of input, and seconds. `schemas`: the places that are asked for schemas, and no others."""

    bytes: int = 8 << 20
    seconds: float = 1.5
    schemas: tuple[str, ...] = ()


@dataclass(frozen=True)
class SampledTable:
    """A table that a sample became, and its rows."""

    table: Table
    rows: int


@dataclass(frozen=True)
class SampledBad:
    """A bad line of a sample: the URI of its file, its number there, and its first reason in words."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True)
class MissingSchema:
    """A schema that no registry has: how many lines of the sample name it, and the table that it would make."""

    schema: str
    table: str
    lines: int


@dataclass(frozen=True)
class SampleFailure:
    """A directory that cannot be shredded: its name, and why."""

    directory: str
    message: str


@dataclass(frozen=True)
class Sample:
    """What a part of some directories becomes, in memory.

    `waiting`: good lines among the bad but for schemas that are missing. `reasons`: bad lines by what is wrong with them, most
    frequent first. `bad_rows`: the first of them. `is_all`: whether the directories were read whole.
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
    """The taking of a sample, directory after directory: each gets its share of the bytes, and one that fails ends no other."""

    def __init__(self, sampler: Sampler, directories: Sequence[tuple[str, LandedDirectory]], bounds: Bounds):
        self.sampler = sampler
        self._directories, self._share = directories, bounds.bytes // max(1, len(directories))
        self._done: list[str] = []
        self._failures: list[SampleFailure] = []
        self._ended_early = False

    def each(self) -> Iterator[tuple[str, LandedDirectory]]:
        """The directories, each with its feed, as long as there is time; the sampler takes what each may have."""
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
        """What was taken. `waiting`: lines among the good that only schemas which are missing keep from it."""
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
