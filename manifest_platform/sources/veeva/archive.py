"""Direct Data archives: their parts are downloaded, joined, unpacked and verified as one stream.

The parts are slices of one gzip of one tar, so that none can be read alone. The size and MD5 of each part are checked before
any byte of it is unpacked; a part that does not match is downloaded again. Meanwhile the part is kept in memory, or in a
temporary file if it is large: one part at a time, never the whole archive. Unpacked content is written to its place
immediately, so that memory stays flat.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from manifest_platform import progress, storage
from manifest_platform.sources.directories import HIDDEN
from manifest_platform.sources.errors import LandingUnavailable
from manifest_platform.sources.veeva.errors import BadArchive, DownloadBroken, NoRoom
from manifest_platform.sources.veeva.files import Part, UnpackedFile
from manifest_platform.sources.veeva.layout import ATTEMPT

MANIFEST = "manifest.csv"
METADATA = "metadata_full.csv"
"""The types of all columns, in archives of changes and of logs. A snapshot's manifest names its own metadata file."""
UNNAMED = (MANIFEST, METADATA)
"""The files that an archive's manifest does not name."""

_CHUNK = 1 << 20
_TAR_BLOCK = 1 << 18  # tarfile copies the rest of a block at every small read
_IN_MEMORY = 16 << 20  # a larger part is kept on disk
_SPARE = 64 << 20  # bytes of a disk that stay free for others
_MANIFEST_SIZE = 16 << 20
_SEGMENT = 255  # bytes, the limit of file systems
_PATH = 700  # bytes: S3's keys have at most 1,024, and the prefix comes before
_COLUMNS = ("extract", "records", "file")

Download = Callable[[Part], Generator[bytes]]


@dataclass(frozen=True)
class Limits:
    """Limits that no valid archive exceeds.

    - `members`: the number of members
    - `ratio`: bytes out for each byte in
    - `free_bytes`: bytes that are unpacked regardless of `ratio`, because a small archive may consist of equal bytes
    - `attempts`: tries to download a part
    - `header_bytes`: the size of an extended header, which holds what does not fit the member's own header, such as a long name
    - `headers`: extended headers before a member
    - `extended_bytes`: the size of all extended headers together
    - `name_bytes`: the size of all members' names together
    - `depth`: nested folders
    - `part_bytes`: the size that Vault may announce for a part; no more than the announced size is read
    """

    members: int = 100_000
    ratio: float = 200
    free_bytes: int = 64 << 20
    attempts: int = 3
    header_bytes: int = 8 << 10
    headers: int = 4
    extended_bytes: int = 16 << 20
    name_bytes: int = 16 << 20
    depth: int = 16
    part_bytes: int = 4 << 30


LIMITS = Limits()


def unpack(
    parts: Sequence[Part],
    download: Download,
    folder: str,
    limits: Limits = LIMITS,
    needed: Collection[str] = (),
    keep_unnamed: bool = False,
) -> tuple[UnpackedFile, ...]:
    """Unpacks an archive into a folder (a URI) and checks it against its own manifest. Returns the files, by path.

    `needed`: files that must exist although no manifest names them. `keep_unnamed`: keeps other files that the manifest does
    not name, instead of refusing the archive.

    Raises BadArchive for every fault of the archive; the errors of `download`; LandingUnavailable if a part cannot be kept on
    disk; OSError if the folder cannot be written. After an error the folder holds some of the files.
    """
    for part in parts:
        if part.size > limits.part_bytes:
            raise BadArchive(
                f"Vault announces {part.size} bytes for part {part.name}, but at most {limits.part_bytes} are allowed;"
                " if the size is right, raise vault.limits.part_gib"
            )
    if storage.is_local(folder):
        _check_room(str(storage.local_path(folder)), sum(part.size for part in parts), "the archive", "make room there")
    files: dict[str, UnpackedFile] = {}
    manifest = None
    folders: set[str] = set()
    names = 0
    blocks = _blocks(parts, download, limits.attempts)
    with ThreadPoolExecutor(1) as beside, contextlib.closing(_Inflated(blocks, limits)) as stream:
        for number, (tar, member) in enumerate(_members(stream, limits), start=1):
            names += len(member.name)
            if number > limits.members:
                raise BadArchive(f"more than {limits.members} members: that is not a Direct Data archive")
            if names > limits.name_bytes:
                raise BadArchive(f"the names of {number} members have more than {limits.name_bytes} bytes")
            path = _path_of(member, files, folders, limits.depth)
            if path is None:
                continue
            files[path], content = _write(tar, member, path, folder, beside)
            manifest = content if path == MANIFEST else manifest
        stream.drain()
    check(manifest, files, needed, keep_unnamed)
    return tuple(files[path] for path in sorted(files))


def check(
    manifest: bytes | None, files: Mapping[str, UnpackedFile], needed: Collection[str] = (), keep_unnamed: bool = False
) -> None:
    """Checks that an archive's manifest names each of its files, and that each named or needed file exists completely.

    `keep_unnamed`: accepts files that are not named. Raises BadArchive, which names the file, the manifest's entry and the
    difference.
    """
    if manifest is None:
        raise BadArchive(f"{MANIFEST} is missing, so the archive cannot be checked")
    for path in needed:
        if path not in files:
            raise BadArchive(f"{path} is missing, which every such archive has: without it, types of columns are unknown")
    named = _read_manifest(manifest)
    for path, records in named.items():
        if path not in files:
            raise BadArchive(f"{path} is missing: {MANIFEST} names it, with {records} records")
        if files[path].records != records:
            raise BadArchive(f"{path} has {files[path].records} records, but {MANIFEST} says {records}")
    extra = sorted(path for path in files if path not in named and path not in UNNAMED)
    if extra and not keep_unnamed:
        raise BadArchive(
            f"{extra[0]} exists, but {MANIFEST} does not name it ({len(extra)} such). Capture again. If that does not help, set"
            " archive.unnamed: keep in the configuration, to keep such files without making tables of them"
        )


def _read_manifest(manifest: bytes) -> dict[str, int]:
    """Returns the files that a manifest names, with their numbers of records."""
    try:
        text = manifest.decode("utf-8-sig")
        header, *rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except UnicodeDecodeError as error:
        raise BadArchive(f"{MANIFEST} is not valid UTF-8 at byte {error.start}") from error
    except csv.Error as error:
        raise BadArchive(f"{MANIFEST} is not valid CSV: {error}") from error
    except ValueError:
        raise BadArchive(f"{MANIFEST} is empty: it has no header") from None
    for column in _COLUMNS:
        if header.count(column) != 1:
            raise BadArchive(f"{MANIFEST} has {header.count(column)} columns {column!r} instead of one: its header is {header}")
    named: dict[str, int] = {}
    places = [header.index(column) for column in _COLUMNS]
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise BadArchive(f"{MANIFEST}, record {number}: {len(row)} fields, but its header has {len(header)}")
        extract, records, path = (row[place] for place in places)
        if not (records.isascii() and records.isdigit()):
            raise BadArchive(f"{MANIFEST}, record {number}: records of {extract} is {records!r}, not a number")
        path = path.removeprefix("./")
        if not path and int(records):
            raise BadArchive(f"{MANIFEST}, record {number}: {extract} has {records} records, but no file")
        if path in named:
            raise BadArchive(f"{MANIFEST}, record {number}: {path} is named twice")
        if path:
            named[path] = int(records)
    return named


# Members


class _Header(tarfile.TarInfo):
    """A tar header. Extended headers, whose content tarfile reads into memory, are compared with the limits first."""

    def _proc_member(self, tar: _Tar) -> tarfile.TarInfo:  # the extension point that tarfile offers subclasses
        if self.size < 0:
            raise BadArchive(f"a header has {self.size} bytes")
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise _sparse()
        if self.type in _EXTENDED:
            tar.headers += 1
            tar.extended_bytes += self.size
            if self.size > tar.limits.header_bytes:
                raise BadArchive(f"an extended header has {self.size} bytes; the limit is {tar.limits.header_bytes}")
            if tar.headers > tar.limits.headers:
                raise BadArchive(f"there are more than {tar.limits.headers} extended headers before a member")
            if tar.extended_bytes > tar.limits.extended_bytes:
                raise BadArchive(f"the extended headers have more than {tar.limits.extended_bytes} bytes in all")
        else:
            tar.headers = 0
        return super()._proc_member(tar)  # ty: ignore[missing-attribute]

    def _proc_gnusparse_00(self, *_: object) -> None:
        raise _sparse()

    _proc_gnusparse_01 = _proc_gnusparse_10 = _proc_gnusparse_00


_EXTENDED = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
"""The types of extended headers, which describe the member behind them."""


def _sparse() -> BadArchive:
    return BadArchive("a member is a sparse file: only files and folders are unpacked")


class _Tar(tarfile.TarFile):
    """A tar whose extended headers are limited."""

    tarinfo = _Header
    members: list[tarfile.TarInfo]

    def __init__(self, *how: Any, limits: Limits, **more: Any) -> None:
        self.limits = limits
        self.headers = self.extended_bytes = 0  # counts of extended headers since the last member, and of their bytes so far
        super().__init__(*how, **more)  # this reads the first member


def _members(stream: _Inflated, limits: Limits) -> Generator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Yields the members of a tar. Each must be read before the next is requested. Raises BadArchive if it is not a tar."""
    try:
        how: Any = {"fileobj": stream, "mode": "r|", "bufsize": _TAR_BLOCK, "encoding": "utf-8", "limits": limits}
        with _Tar.open(**how) as tar:
            while member := tar.next():
                tar.members.clear()  # tarfile would keep all headers in memory
                yield tar, member
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise BadArchive(f"the archive is not a complete tar: {error}") from error


def _path_of(member: tarfile.TarInfo, files: Mapping[str, UnpackedFile], folders: set[str], depth: int) -> str | None:
    """Returns the path of a file member, None for a folder, and adds its folders to `folders`. Raises BadArchive otherwise."""
    name = repr(member.name[:200])
    if not (member.isfile() or member.isdir()) or member.issparse():
        raise BadArchive(f"member {name} is a link, a device or the like: only files and folders are unpacked")
    segments = [segment for segment in member.name.rstrip("/").split("/") if segment != "."]
    if problem := _problem_of(member.name, segments):
        raise BadArchive(f"member {name} {problem}")
    if len(segments) > depth:
        raise BadArchive(f"member {name} is nested in more than {depth - 1} folders")
    path = "/".join(segments)
    if path in files or (path in folders and member.isfile()):
        raise BadArchive(f"member {name} occurs twice")
    above = ["/".join(segments[:depth]) for depth in range(1, len(segments))]
    if blocked := next((folder for folder in above if folder in files), None):
        raise BadArchive(f"member {name} is below {blocked}, which is a file")
    folders.update(above if member.isfile() else [*above, path])
    return path if member.isfile() else None


def _problem_of(name: str, segments: Sequence[str]) -> str | None:
    """Returns why a member's name is dangerous or cannot be stored; None if it is fine."""
    if name.startswith("/"):
        return "is an absolute path"
    if ".." in segments:
        return "leads out of the archive"
    if not name.isprintable() or "\\" in name:
        return "has characters that are not allowed in names of files"
    if "" in segments:
        return "has an empty part in its path"
    if any(segment.startswith((*HIDDEN, ATTEMPT)) for segment in segments):
        return f"begins with a prefix that marks files that are not data: {', '.join((*HIDDEN, ATTEMPT))}"
    if any(len(segment.encode()) > _SEGMENT for segment in segments) or len(name.encode()) > _PATH:
        return "has too long a name"
    return None


def _write(
    tar: tarfile.TarFile, member: tarfile.TarInfo, path: str, folder: str, beside: Executor
) -> tuple[UnpackedFile, bytes]:
    """Writes a member to its place. Returns its description, and the content if it is the manifest.

    The previous chunk is hashed and counted on a thread while the next is inflated.
    """
    if path == MANIFEST and member.size > _MANIFEST_SIZE:
        raise BadArchive(f"{MANIFEST} has {member.size} bytes: it is too large to be a manifest")
    source = tar.extractfile(member)
    assert source is not None  # it is a file
    taken, content = _Taken(), b""
    relative = storage.quote_path(path) if storage.is_local(folder) else path
    with storage.open_output(f"{folder}/{relative}") as target:
        looking = beside.submit(taken.feed, b"")
        while chunk := _read(source, path):
            looking.result()
            looking = beside.submit(taken.feed, chunk)
            target.write(chunk)
            content += chunk if path == MANIFEST else b""
        looking.result()
    return UnpackedFile(path, taken.size, taken.digest.hexdigest(), taken.counter.finish()), content


class _Taken:
    """The size, the hash and the record count of a file, updated while it is written."""

    def __init__(self) -> None:
        self.size, self.digest, self.counter = 0, hashlib.sha256(), RecordCounter()

    def feed(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self.digest.update(chunk)
        self.counter.feed(chunk)


def _read(source: IO[bytes], path: str) -> bytes:
    try:
        return source.read(_CHUNK)
    except tarfile.TarError as error:
        raise BadArchive(f"{path} is truncated: {error}") from error


class RecordCounter:
    """Counts the records of CSV (RFC 4180) that arrives in pieces.

    It counts line ends outside quotes, without the header and empty lines.
    """

    def __init__(self) -> None:
        self._lines = 0
        self._quoted = False
        self._pending = 0  # bytes since the last line end
        self._last = 0  # the byte before the piece

    def feed(self, piece: bytes) -> None:
        """Takes the next piece."""
        if not piece:
            return
        values = np.frombuffer(piece, np.uint8)
        ends = np.flatnonzero(values == ord("\n"))
        if b'"' in piece:
            quotes = np.flatnonzero(values == ord('"'))
            ends = ends[(np.searchsorted(quotes, ends) + self._quoted) % 2 == 0]
            self._quoted ^= len(quotes) % 2 == 1
        elif self._quoted:
            ends = ends[:0]
        if len(ends):
            lengths = np.diff(ends, prepend=-1 - self._pending) - 1
            before = np.where(ends > 0, values[ends - 1], self._last)
            self._lines += int(np.count_nonzero(lengths > np.where(before == ord("\r"), 1, 0)))
            self._pending = len(values) - int(ends[-1]) - 1
        else:
            self._pending += len(values)
        self._last = piece[-1]

    def finish(self) -> int:
        """Returns the number of records. The last record counts even without a line end."""
        unended = self._pending > (1 if self._last == ord("\r") else 0)
        return max(0, self._lines + unended - 1)


# Bytes


def _blocks(parts: Sequence[Part], download: Download, attempts: int) -> Generator[bytes]:
    """Yields the bytes of all parts; each part is verified before its first byte."""
    for part in parts:
        with _fetch(part, download, attempts) as spooled:
            while block := spooled.read(_TAR_BLOCK):
                yield block


def _fetch(part: Part, download: Download, attempts: int) -> IO[bytes]:
    """Downloads a part with the announced size and MD5; retries if they do not match.

    Raises BadArchive, or DownloadBroken if the last try did not even finish.
    """
    again = retry_if_exception_type((BadArchive, DownloadBroken))
    return Retrying(stop=stop_after_attempt(attempts), retry=again, reraise=True)(_spool, part, download)


def _spool(part: Part, download: Download) -> IO[bytes]:
    """Downloads and verifies a part; returns it as a file at its beginning. Raises BadArchive, NoRoom, LandingUnavailable."""
    if part.size > _IN_MEMORY:
        _check_room(tempfile.gettempdir(), part.size, f"part {part.name}", "make room there, or set TMPDIR")
    spooled = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115
    try:
        size, digest = 0, hashlib.md5(usedforsecurity=False)
        with (
            contextlib.closing(download(part)) as blocks,
            progress.work(f"downloading {part.name}", part.size, progress.BYTES) as work,
        ):
            for block in blocks:
                size += len(block)
                work.advance(len(block))
                if size > part.size:
                    break
                digest.update(block)
                spooled.write(block)
        if size != part.size:
            found = f"more than {part.size}" if size > part.size else size
            raise BadArchive(f"part {part.name} has {found} bytes, but Vault announced {part.size}")
        if part.md5 is not None and digest.hexdigest() != part.md5.lower():
            raise BadArchive(f"part {part.name} has MD5 {digest.hexdigest()}, but Vault announced {part.md5}")
        spooled.seek(0)
    except OSError as error:
        spooled.close()
        raise LandingUnavailable(
            f"part {part.name} could not be kept in the temporary directory: {error}; make room there, or set TMPDIR"
        ) from error
    except BaseException:
        spooled.close()
        raise
    return spooled


def _check_room(folder: str, size: int, what: str, helps: str) -> None:
    """Raises NoRoom if the disk of a local folder has less free space than a size and some spare."""
    while folder and not os.path.exists(folder):
        folder = os.path.dirname(folder)
    free = shutil.disk_usage(folder or "/").free
    if size + _SPARE > free:
        raise NoRoom(f"{what} has {size} bytes, but only {free} are free on the disk of {folder}; {helps}")


class _Inflated:
    """The content of consecutive gzip blocks, as the file that tarfile reads. Memory is bounded, however large it inflates."""

    def __init__(self, blocks: Generator[bytes], limits: Limits):
        self._blocks, self._limits = blocks, limits
        self._inflate = zlib.decompressobj(wbits=31)
        self._input, self._read, self._written = b"", 0, 0

    def read(self, size: int) -> bytes:
        """Returns the next bytes, at most `size`; empty at the end. Raises BadArchive."""
        while True:
            if not self._input:
                self._input = next(self._blocks, b"")
                self._read += len(self._input)
            if not self._input and self._inflate.eof:
                return b""
            if not self._input:
                raise BadArchive(f"the archive is truncated: its gzip does not end with its {self._read} bytes")
            if self._inflate.eof:
                self._inflate = zlib.decompressobj(wbits=31)  # several gzip streams may follow each other
            if piece := self._inflated(size):
                return piece

    def _inflated(self, size: int) -> bytes:
        try:
            piece = self._inflate.decompress(self._input, size)
        except zlib.error as error:
            raise BadArchive(f"the archive is damaged within the {self._read} bytes so far: {error}") from error
        self._input = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        self._written += len(piece)
        if self._written > self._limits.free_bytes and self._written > self._read * self._limits.ratio:
            raise BadArchive(
                f"{self._read} bytes became more than {self._limits.ratio:g} times as many, which no valid archive does"
            )
        return piece

    def drain(self) -> None:
        """Reads to the end, where gzip's checksum is."""
        while self.read(_CHUNK):
            pass

    def close(self) -> None:
        """Closes the download."""
        self._blocks.close()
