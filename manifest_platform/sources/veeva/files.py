"""Values: Direct Data files as Vault announces them, and the sidecar that describes a captured window."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal

Feed = Literal["incr", "log", "full"]
FINGERPRINT = "vault-"
"""The prefix of a checksum of Vault's announcement, as opposed to one of files."""
CONTENT = "files-"
"""The prefix of a checksum of an archive's files."""


@dataclass(frozen=True)
class Part:
    """A slice of an archive, downloaded by its name. `number`: from 1; `md5`: in hexadecimal, None if Vault gives none."""

    name: str
    number: int
    size: int
    md5: str | None


@dataclass(frozen=True)
class DirectDataFile:
    """A window that Vault has published. `start`, `stop`: UTC, to the minute. `parts`: in order, possibly none.

    `record_count`: over all extracts; None if Vault does not give it.
    """

    name: str
    feed: Feed
    start: datetime
    stop: datetime
    record_count: int | None
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """The size of the archive in bytes."""
        return sum(part.size for part in self.parts)

    @property
    def is_empty(self) -> bool:
        """True if the window has no records. Then nothing is downloaded, even if there is an archive."""
        return not self.parts or self.record_count == 0

    @property
    def fingerprint(self) -> str:
        """A hash of the announced content. It is equal for a redelivery and differs for other content."""
        parts = [(part.number, part.size, part.md5) for part in self.parts]
        digest = hashlib.blake2b(repr((parts, self.record_count)).encode(), digest_size=16).hexdigest()
        return f"{FINGERPRINT}{digest}"

    @property
    def without_md5(self) -> DirectDataFile:
        """The same file, as announced by a Vault that gives no MD5."""
        return replace(self, parts=tuple(replace(part, md5=None) for part in self.parts))


@dataclass(frozen=True)
class Awaiting:
    """A window that Vault has failed to publish so far. `next_retry`: when Vault tries again, None if it does not say."""

    name: str
    feed: Feed
    next_retry: datetime | None
    message: str


@dataclass(frozen=True)
class UnusableEntry:
    """An entry of Vault's list that cannot be used, and the reason."""

    name: str
    feed: Feed
    reason: str


@dataclass(frozen=True)
class FileListing:
    """The list of a feed: published windows by stop time, windows that Vault failed to publish, and unusable entries."""

    files: tuple[DirectDataFile, ...]
    awaiting: tuple[Awaiting, ...] = ()
    unusable: tuple[UnusableEntry, ...] = ()


@dataclass(frozen=True)
class UnpackedFile:
    """A file of an archive, as written: its path in the archive, its size in bytes, its SHA-256 in hexadecimal.

    `records`: the number of CSV records after the header; None if they were not counted.
    """

    path: str
    bytes: int
    sha256: str
    records: int | None = None


def content_of(files: Iterable[UnpackedFile]) -> str:
    """Returns a hash of the files of an archive, which does not depend on how they were compressed."""
    listed = sorted((file.path, file.sha256) for file in files)
    return f"{CONTENT}{hashlib.blake2b(repr(listed).encode(), digest_size=16).hexdigest()}"


@dataclass(frozen=True)
class Announced:
    """Vault's announcement of a captured window. Times have the manifest's form, `2026-01-01T00:15Z`."""

    name: str
    start: str
    stop: str
    record_count: int | None
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Sidecar:
    """The description of a captured window. It is written beside the files, last, after all of them were verified."""

    source: Announced
    files: tuple[UnpackedFile, ...]

    @property
    def content(self) -> str:
        """A hash of the files."""
        return content_of(self.files)

    def to_bytes(self) -> bytes:
        """Returns the JSON form."""
        parts = [{"name": part.name, "size": part.size, "md5": part.md5} for part in self.source.parts]
        files = [{"path": file.path, "bytes": file.bytes, "sha256": file.sha256} for file in self.files]
        data = {"source": {**asdict(self.source), "parts": parts}, "files": files}
        return (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Sidecar:
        """Parses the JSON form. Raises ValueError if it is not a sidecar."""
        try:
            found: dict[str, Any] = json.loads(data)
            source = found["source"]
            parts = tuple(
                Part(part["name"], number, part["size"], part["md5"]) for number, part in enumerate(source["parts"], 1)
            )
            return cls(
                Announced(source["name"], source["start"], source["stop"], source["record_count"], parts),
                tuple(UnpackedFile(file["path"], file["bytes"], file["sha256"]) for file in found["files"]),
            )
        except (KeyError, TypeError, UnicodeDecodeError) as error:
            raise ValueError(f"not the sidecar of a captured window: {error!r}") from error
