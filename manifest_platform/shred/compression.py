"""Detects the compression of a file of lines by its first bytes, and reads its text.

Belongs here: which compressions are known, which of them are supported, and how they are read. File names are not trusted:
writers omit `.gz`, and a binary file was once read as a single bad line, so that its item was loaded.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, BinaryIO

from manifest_platform.faults import Permanent
from manifest_platform.remedies import LAND_ANEW
from manifest_platform.shred.limits import UNMEASURED, InputLimits, LimitExceeded

if TYPE_CHECKING:
    import pyarrow as pa

HEAD = 64
"""Number of bytes at a file's start that determine its format."""

COMPRESSED_NAMES = (".gz", ".gzip", ".bz2", ".zst", ".zstd")
"""Usual endings of the names of compressed files. They are only a hint for planning."""

_READ = {
    "gzip": re.compile(rb"\x1f\x8b\x08"),
    "bz2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    "zstd": re.compile(rb"(\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)", re.DOTALL),
}
_REFUSED = {
    "Parquet": re.compile(rb"PAR1\x15|PARE"),
    "snappy": re.compile(rb"\xff\x06\x00\x00sNaPpY"),
    "LZ4": re.compile(rb"\x04\x22\x4d\x18"),
    "LZO": re.compile(rb"\x89LZO\x00"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zip": re.compile(rb"PK\x03\x04"),
    # Hadoop writers name it .deflate.
    "zlib": re.compile(rb"\x78(\x01|\x9c|\xda(?![\x80-\xbf]))"),
    "Avro": re.compile(rb"Obj\x01"),
}


class Unreadable(ValueError, Permanent):
    """A file is neither text nor in a supported compression, or its compressed data is damaged."""

    remedy = LAND_ANEW


def compression_of(head: bytes, uri: str) -> str | None:
    """The compression of a file by its first `HEAD` bytes: gzip, bz2 or zstd; None for text.

    Raises Unreadable for a known format that is not supported. `uri` is for the message.
    """
    for name, magic in _READ.items():
        if magic.match(head):
            return name
    found = next((name for name, magic in _REFUSED.items() if magic.match(head)), None)
    if found is None and _is_hadoops_snappy(head):
        found = "snappy in Hadoop's block format"
    if found:
        raise Unreadable(
            f"{uri} is {found} according to its first bytes, which is not supported; allowed are lines of text, plain or"
            " compressed with gzip, bzip2 or zstd: land the directory again in one of these formats, or skip it"
        )
    return None


def _is_hadoops_snappy(head: bytes) -> bool:
    """True if a block's two lengths match the length in its first snappy chunk. Hadoop's blocks have no magic number."""
    block, chunk = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")
    plain = shift = 0
    for byte in head[8:13]:
        plain |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return 0 < plain <= block and 0 < chunk <= 32 + plain + plain // 6  # snappy's largest output for random bytes
    return False


class Replayed(io.RawIOBase):
    """A file read from its beginning, although its first bytes were already read.

    `taken`: number of bytes returned. `failure`: the exception raised by the last read.
    """

    def __init__(self, head: bytes, rest: BinaryIO | pa.NativeFile, block: int):
        """`block`: smallest number of bytes for a read of the file, because each read of an object store is a request."""
        self._held, self._rest, self._block = memoryview(head), rest, block
        self.failure: OSError | None = None
        self.taken = 0

    def readable(self) -> bool:
        """Always True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Returns up to `size` bytes; empty at the end. Raises OSError."""
        if not self._held:
            try:
                self._held = memoryview(self._rest.read(max(size, self._block)))
            except OSError as error:
                self.failure = error
                raise
        taken = self._held if size < 0 else self._held[:size]
        self._held = self._held[len(taken) :]
        self.taken += len(taken)
        return bytes(taken)


class Decompressed(io.RawIOBase):
    """The text of compressed bytes, including all members or frames.

    Reading raises Unreadable if they are damaged, LimitExceeded if the text is too large, and OSError.
    """

    def __init__(self, compressed: Replayed, compression: str, uri: str, inflation: float = InputLimits.inflation):
        """`inflation`: largest allowed ratio of text to compressed bytes."""
        import pyarrow

        self._compressed, self._compression, self._uri = compressed, compression, uri
        self._inflation, self._given = inflation, 0
        self._stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(compressed, mode="r"), compression)

    def readable(self) -> bool:
        """Always True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Returns up to `size` bytes of text; empty at the end."""
        try:
            text = self._stream.read(size if size >= 0 else None)
        except OSError as error:
            if self._compressed.failure:
                raise self._compressed.failure from error
            raise Unreadable(
                f"{self._uri} is {self._compression} according to its first bytes, but damaged: {error};"
                " land the directory again, or skip it"
            ) from error
        self._given += len(text)
        if self._given > UNMEASURED and self._given > self._inflation * self._compressed.taken:
            raise LimitExceeded(
                "inflation",
                self._uri,
                f"is {self._compression}, and its first {self._compressed.taken:,} bytes became {self._given:,}",
                f"{self._inflation:g} times as many",
            )
        return text
