"""The Spark job that shreds a batch of windows of Veeva Vault's Direct Data.

A task shreds one file of a window, chunk by chunk, or several small files, or a slice of a large file. It first reads the
window's manifest and metadata. Configuration in an archive (`Metadata/object.csv` and the like) does not become a table and
stays where it landed. The warehouse, not the shredder, handles rows with the same key.
"""

from __future__ import annotations

import functools
import hashlib
import io
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import unquote

from manifest_platform import storage
from manifest_platform.listing import Listing
from manifest_platform.shred.batch import (
    CHUNK,
    Dated,
    Directory,
    Options,
    ShredFailure,
    Task,
    Unusable,
    Writer,
    Written,
    failures_of,
    open_landed,
    shred_batch,
)
from manifest_platform.shred.csv_slices import Slice
from manifest_platform.shred.limits import InputLimits, LimitExceeded
from manifest_platform.shred.rows import BAD
from manifest_platform.shred.sample import Sampler
from manifest_platform.sources.veeva.direct_data import MANIFEST, METADATA_FULL, Contents, Extract, Feed, read_contents
from manifest_platform.sources.veeva.slicing import Large, sliced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from manifest_platform.shred.csv_kernel import Stream

BAD_ROWS = replace(BAD, mode="merge", key=("file", "line"))
"""The table of bad rows: a window that is loaded again after a snapshot replaces the bad rows that it brought before."""

_SAMPLED = InputLimits(line=1 << 20)
"""The limits of a sample: the longest record."""

_READERS = 8  # small files of a task that are read concurrently


@dataclass(frozen=True)
class Window(Directory):
    """A window to shred. A window without files is empty.

    `place`: the URI of the folder that holds the files. `stop`: its stop time, as `2026-01-01T00:15Z`. `expected`: the SHA-256
    of every file at registration, by its path below the place; None if they were not stored. Files whose names begin with `_`
    or `.` do not belong to the window.
    """

    place: str
    feed: Feed
    stop: str
    expected: Mapping[str, str] | None = field(default=None, hash=False)

    @functools.cached_property
    def paths(self) -> dict[str, tuple[str, int]]:
        """The window's files as path below the place -> (URI, size in bytes), sorted by path."""
        found = {self._path(uri): (uri, size) for uri, size in self.files}
        return {path: found[path] for path in sorted(found) if _is_data(path)}

    def _path(self, uri: str) -> str:
        path = uri.removeprefix(f"{self.place.rstrip('/')}/")
        if path == uri:
            raise ValueError(f"{uri} does not lie below {self.place}")
        return unquote(path) if storage.is_local(uri) else path


@dataclass(frozen=True)
class VeevaOptions(Options):
    """Options for a vault, in addition to those of the work's division and of bad rows.

    `types`: by `table.column`, Vault's type, where the metadata is wrong. `partial_in_full`: patterns of workflow tables that a
    snapshot holds only in part: their rows are merged, and none is deleted. `keep_unnamed`: ignores files that the manifest
    does not name, instead of failing their window. `tables`: by `Component.name`, the table of an extract whose default name is
    not used. `metadata`: the most bytes of a file that is read into memory.
    """

    types: Mapping[str, str] = field(default_factory=dict, hash=False)
    partial_in_full: tuple[str, ...] = ("*legacy*__sys",)
    keep_unnamed: bool = False
    tables: Mapping[str, str] = field(default_factory=dict, hash=False)
    metadata: int = 32 << 20


def shred(spark: SparkSession, windows: Sequence[Window], options: VeevaOptions | None = None) -> list[Listing | ShredFailure]:
    """Shreds a batch of windows in one Spark job; returns a result for each, in the same order.

    A window's Parquet files are in `output/<table>/date=YYYY-MM-DD/`, by the day of its stop time, and its listing is
    `output/listing.json`. The same window always gives the same rows. A window that fails gives a ShredFailure, never
    an exception: if files and manifest disagree, if a file is not what was registered, or if a file is not valid CSV.
    """
    options, batch = options or VeevaOptions(), uuid.uuid4().hex
    windows = tuple(windows)

    def work(task: Task[Part]) -> Written:
        window = windows[task.directory]
        return shred_files(task, window, _contents(window, options, batch), options)

    large = [file for window in windows for file in _large(window, options.split_size)]
    try:
        cut = sliced(spark, large, options.split_size)
    except Exception as error:
        return failures_of(error, spark, windows, work)
    tasks = [
        Task(index, number, window.output, tuple(window.paths[path][0] for path in part.paths), part)
        for index, window in enumerate(windows)
        for number, part in enumerate(_plan(window, options.split_size, cut))
    ]
    return shred_batch(spark, windows, tasks, work, options)


@dataclass(frozen=True)
class Part:
    """The part of a window that is a task. `slice`: of the only file; None for whole files.

    `verifies`: the task only compares the file with what was registered, because other tasks shred its slices.
    """

    paths: tuple[str, ...]
    slice: Slice | None = None
    verifies: bool = False


def _large(window: Window, split_size: int) -> Iterator[Large]:
    """Yields the files of a window that are at least two splits."""
    for path, (uri, size) in window.paths.items():
        if size >= 2 * split_size and path not in (MANIFEST, METADATA_FULL):
            yield Large(uri, size, window.root)


def _plan(window: Window, split_size: int, cut: Mapping[str, Sequence[Slice]]) -> list[Part]:
    """Returns the tasks: files together up to `split_size` bytes, larger files alone, and slices of large files.

    `cut`: the slices of large files by URI. A window that has or should have files has at least one task, which reads its
    manifest. An empty window has none. The plan depends only on the window, `split_size` and the bytes of large files.
    """
    if not window.files and not window.expected:
        return []
    tasks: list[list[str]] = [[]]
    parts: list[Part] = []
    room = split_size
    for path, (uri, size) in window.paths.items():
        if path in (MANIFEST, METADATA_FULL):
            continue
        if found := cut.get(uri):
            parts += (Part((path,), one) for one in found)
            parts += [Part((path,), verifies=True)] if window.expected is not None else []
            continue
        if tasks[-1] and size > room:
            tasks.append([])
            room = split_size
        tasks[-1].append(path)
        room -= size
    return [*(Part(tuple(paths)) for paths in tasks), *parts]


def _is_data(path: str) -> bool:
    return not path.rpartition("/")[2].startswith(("_", "."))


def shred_files(task: Task[Part], window: Window, contents: Contents, options: VeevaOptions) -> Written:
    """Shreds a task's files, or its slice of a file, and writes the result.

    If a window has too many bad rows to succeed, the rest is not read. Raises Unusable, LimitExceeded, OSError.
    """
    most_bad = options.most_bad(_most_good(window, contents))
    most = options.split_size + CHUNK
    writer = Writer(task, most, lambda _, rows: [Dated(window.stop[:10], rows)], options.limits, most_bad)
    if task.number == 0:
        if window.feed != "incr":  # loads begin with a snapshot, or with logs; the many windows of changes need not repeat it
            writer.add(BAD_ROWS)  # people look for this table before the first bad row
        for table in contents.columns_alone():
            writer.add(table)
        writer.written.retired += contents.retired
    extracts = [extract for path in task.part.paths if (extract := contents.extract(path))]
    if task.part.verifies:
        _verify(window, task.part.paths[0])
        return writer.close()
    for extract, stream in _opened(window, extracts, task.part.slice):
        path = extract.file or ""
        try:
            _shred_file(extract, stream, window.paths[path][0], contents, writer, options.limits, task.part.slice)
        except Unusable:
            _verify(window, path)  # an altered file is the better explanation
            raise
        if writer.is_hopeless:
            break
    return writer.close()


def sample_window(window: Window, options: VeevaOptions, sampler: Sampler) -> None:
    """Shreds the beginning of each file of a window for a sampler, each up to its share. Raises as `shred_files`."""
    if not window.files:
        return
    contents = _contents(window, options, uuid.uuid4().hex)
    for table in contents.columns_alone():
        sampler.add(table)
    extracts = [extract for path in window.paths if (extract := contents.extract(path))]
    share = sampler.left // max(1, len(extracts))
    for extract in extracts:
        if sampler.is_late:
            return
        sampler.take(share)
        with _Verified(window, extract.file or "") as stream:
            _shred_file(extract, stream, window.paths[extract.file or ""][0], contents, sampler, _SAMPLED)


def _most_good(window: Window, contents: Contents) -> int:
    """Returns the most good rows of a window: at most the manifest's number of records, and one for every two bytes."""
    files = [(extract.records, window.paths[extract.file][1]) for extract in contents.extracts if extract.file]
    return sum(min(records, size // 2 + 1) for records, size in files)


@functools.lru_cache(maxsize=4)
def _contents(window: Window, options: VeevaOptions, batch: str) -> Contents:
    """Reads a window's manifest and metadata, once for all tasks of a batch in one worker process."""
    if window.expected is not None:
        other = sorted(set(filter(_is_data, window.expected)) ^ set(window.paths))
        if other:
            raise Unusable(f"{window.place} was altered after it was registered: {', '.join(other[:3])} {_ADVICE}", None)
    return read_contents(
        window.feed,
        window.paths.keys(),
        lambda paths: _read_whole(window, paths, options.metadata),
        options.types,
        options.partial_in_full,
        options.keep_unnamed,
        options.tables,
    )


def _read_whole(window: Window, paths: Sequence[str], most: int) -> dict[str, bytes]:
    """Reads the manifest or metadata files. Raises LimitExceeded for a file of more than `most` bytes."""
    for uri, size in (window.paths[path] for path in paths):
        if size > most:
            raise LimitExceeded("metadata_mib", uri, f"has {size:,} bytes, and is read into memory", f"{most >> 20} MiB")
    return dict(zip(paths, _read_all(window, paths), strict=True))


def _shred_file(
    extract: Extract,
    stream: Stream,
    uri: str,
    contents: Contents,
    writer: Writer,
    limits: InputLimits,
    part: Slice | None = None,
) -> None:
    """Shreds a file, or a slice of it, whose stream has the header and the slice's records."""
    from manifest_platform.shred.csv_kernel import CsvFile

    if part and part.total != extract.records:
        raise _incomplete(uri, str(part.total), extract)
    records, expected = 0, part.records if part else extract.records
    file = CsvFile(stream, uri, limits.line, part.before if part else 0)
    if file.header:
        table = contents.table(extract, file.header)
        writer.add(table)
        key = () if table.mode == "append" else table.key
        for typed in file.rows(table.columns, key, limits.bad_rows):
            writer.add(table, typed.rows)
            writer.chunk_done(typed.bytes, typed.rows.num_rows, BAD_ROWS, typed.bad)
            records += typed.rows.num_rows + typed.bad.num_rows
            if writer.is_hopeless:
                return
            if records > expected:
                break
    if records != expected and part:
        raise Unusable(f"{uri} has {records} records from byte {part.start} to {part.end}, and {expected} were counted there")
    if records != expected:
        raise _incomplete(uri, f"{'at least ' if records > expected else ''}{records}", extract)


def _incomplete(uri: str, found: str, extract: Extract) -> Unusable:
    return Unusable(
        f"{uri} has {found} records, but {MANIFEST} says {extract.records}, so it is not complete; "
        "land or capture the window again"
    )


def _opened(window: Window, extracts: Sequence[Extract], part: Slice | None = None) -> Iterator[tuple[Extract, Stream]]:
    """Yields the data files as streams. A single file is verified at its end; several small files are read completely first.

    `part`: the slice of the only file, which another task verifies.
    """
    paths = [extract.file or "" for extract in extracts]
    if part:
        for extract, path in zip(extracts, paths, strict=True):
            uri, size = window.paths[path]
            with open_landed(uri, size, window.root) as file:
                yield extract, _OfSlice(file, part)
    elif len(paths) > 1:
        for extract, data in zip(extracts, _read_all(window, paths), strict=True):
            yield extract, io.BytesIO(data)
    else:
        for extract, path in zip(extracts, paths, strict=True):
            with _Verified(window, path) as stream:
                yield extract, stream


def _read_all(window: Window, paths: Sequence[str]) -> list[bytes]:
    """Reads and verifies files concurrently: in an object store each costs a round trip."""

    def read(path: str) -> bytes:
        with _Verified(window, path) as stream:
            return b"".join(iter(functools.partial(stream.read, CHUNK), b""))

    with ThreadPoolExecutor(_READERS) as pool:
        return list(pool.map(read, paths))


def _verify(window: Window, path: str) -> None:
    """Reads a file to its end. Raises Unusable if it was altered."""
    with _Verified(window, path) as stream:
        while stream.read(CHUNK):
            pass


_ADVICE = "is not what it was then; restore the registered content and resolve the item, or skip it"


class _OfSlice:
    """The header of a file and then the records of a slice, as a stream."""

    def __init__(self, file: BinaryIO, part: Slice) -> None:
        self._file, self._left = file, [(0, part.header), (part.start, part.end)]

    def read(self, size: int, /) -> bytes:
        while self._left:
            start, end = self._left[0]
            self._file.seek(start)
            if block := self._file.read(min(size, end - start)):
                self._left[0] = start + len(block), end
                return block
            self._left.pop(0)
        return b""


class _Verified(io.RawIOBase):
    """A file of a window as a stream that compares its content with what was registered when it ends.

    Opening raises FileChanged, NotFollowed; reading raises OSError, and Unusable if the file was altered.
    """

    def __init__(self, window: Window, path: str):
        self._uri, size = window.paths[path]
        self._expected = window.expected[path] if window.expected is not None else None
        self._file = open_landed(self._uri, size, window.root)
        self._found = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        block = self._file.read(size)
        if self._expected is None:
            return block
        self._found.update(block)
        if not block and self._found.hexdigest() != self._expected:
            raise Unusable(f"{self._uri} was altered after it was registered: its content {_ADVICE}", None)
        return block

    def close(self) -> None:
        self._file.close()
        super().close()
