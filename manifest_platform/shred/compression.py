"""What a file of lines is, by its first bytes: text, or text that is compressed; and the text of either.

Belongs here: which compressions are known, which of them are read, and how. A name says nothing: writers name gzip without
`.gz`, and what is no text was once read as one bad line, and its item loaded.
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
"""How many of a file's first bytes tell what it is."""

COMPRESSED_NAMES = (".gz", ".gzip", ".bz2", ".zst", ".zstd")
"""How names of compressed files mostly end. Only a hint to what need not be planned in parts."""

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
    # What Hadoop's writers call .deflate.
    "zlib": re.compile(rb"\x78(\x01|\x9c|\xda(?![\x80-\xbf]))"),
    "Avro": re.compile(rb"Obj\x01"),
}


class Unreadable(ValueError, Permanent):
    """A file is neither text nor compressed in a way that is read, or its compressed data is damaged."""

    remedy = LAND_ANEW


def compression_of(head: bytes, uri: str) -> str | None:
    """The compression of a file by its first `HEAD` bytes: gzip, bz2 or zstd; None for text.

    Raises Unreadable for what is known to be something else. `uri` is for the message.
    """
    for name, magic in _READ.items():
        if magic.match(head):
            return name
    found = next((name for name, magic in _REFUSED.items() if magic.match(head)), None)
    if found is None and _is_hadoops_snappy(head):
        found = "snappy, in Hadoop's blocks"
    if found:
        raise Unreadable(
            f"{uri} is {found} by its first bytes, which is not read; allowed are lines of text, plain or compressed by gzip,"
            " bzip2 or zstd: land the directory anew in one of them, or skip it"
        )
    return None


def _is_hadoops_snappy(head: bytes) -> bool:
    """Whether a block's two lengths fit the length that its first snappy chunk says: Hadoop's blocks have no magic number."""
    block, chunk = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")
    plain = shift = 0
    for byte in head[8:13]:
        plain |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return 0 < plain <= block and 0 < chunk <= 32 + plain + plain // 6  # what snappy makes of random bytes, at most
    return False


class Replayed(io.RawIOBase):
    """A file whose first bytes were read already, from its beginning.

    `taken`: how many bytes were given; `failure`: what reading raised.
    """

    def __init__(self, head: bytes, rest: BinaryIO | pa.NativeFile, block: int):
        """`block`: the least that is read at a time, however little is asked for: in an object store each read is a request."""
        self._held, self._rest, self._block = memoryview(head), rest, block
        self.failure: OSError | None = None
        self.taken = 0

    def readable(self) -> bool:
        """That it can be read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Up to so many bytes; none at the end. Raises OSError."""
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
    """The text of compressed bytes, all members or frames of it.

    Reading raises Unreadable where they are damaged, LimitExceeded where they become too much, OSError.
    """

    def __init__(self, compressed: Replayed, compression: str, uri: str, inflation: float = InputLimits.inflation):
        """`inflation`: how many times as large the text may be."""
        import pyarrow

        self._compressed, self._compression, self._uri = compressed, compression, uri
        self._inflation, self._given = inflation, 0
        self._stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(compressed, mode="r"), compression)

    def readable(self) -> bool:
        """That it can be read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Up to so many bytes of text; none at the end."""
        try:
            text = self._stream.read(size if size >= 0 else None)
        except OSError as error:
            if self._compressed.failure:
                raise self._compressed.failure from error
            raise Unreadable(
                f"{self._uri} is {self._compression} by its first bytes, and damaged: {error};"
                " land the directory anew, or skip it"
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
