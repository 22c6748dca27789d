"""Direct Data files as Vault announces them, and the sidecar that says what was captured of one.

Belongs here: values alone, and their text forms.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal

Feed = Literal["incr", "log", "full"]
FINGERPRINT = "vault-"
"""How the checksum of what Vault announced begins, which is none of files."""
CONTENT = "files-"
"""How the checksum of an archive's files begins."""


@dataclass(frozen=True)
class Part:
    """A slice of an archive, downloaded by its name. `number`: from 1; `md5`: in hexadecimal, None where Vault says none."""

    name: str
    number: int
    size: int
    md5: str | None


@dataclass(frozen=True)
class DirectDataFile:
    """A window that Vault has published: `start` and `stop` in UTC, to the minute; `parts` in order, perhaps none.

    `record_count`: over all extracts, None where Vault does not say.
    """

    name: str
    feed: Feed
    start: datetime
    stop: datetime
    record_count: int | None
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """The bytes of the archive."""
        return sum(part.size for part in self.parts)

    @property
    def is_empty(self) -> bool:
        """Whether nothing happened in the window; then nothing of it is worth a download, though an archive may be there."""
        return not self.parts or self.record_count == 0

    @property
    def fingerprint(self) -> str:
        """Stands for the content as announced: equal for a redelivery, other for other content."""
        parts = [(part.number, part.size, part.md5) for part in self.parts]
        digest = hashlib.blake2b(repr((parts, self.record_count)).encode(), digest_size=16).hexdigest()
        return f"{FINGERPRINT}{digest}"

    @property
    def without_md5(self) -> DirectDataFile:
        """The same, as a Vault announces it that tells no MD5."""
        return replace(self, parts=tuple(replace(part, md5=None) for part in self.parts))


@dataclass(frozen=True)
class Awaiting:
    """A window that Vault failed to publish so far. `next_retry`: when Vault tries again, None where it does not say."""

    name: str
    feed: Feed
    next_retry: datetime | None
    message: str


@dataclass(frozen=True)
class UnusableEntry:
    """An entry of Vault's list that lacks what is needed, and what that is."""

    name: str
    feed: Feed
    reason: str


@dataclass(frozen=True)
class FileListing:
    """What Vault has of a feed: the published windows by stop time, those it failed to publish, and what is neither."""

    files: tuple[DirectDataFile, ...]
    awaiting: tuple[Awaiting, ...] = ()
    unusable: tuple[UnusableEntry, ...] = ()


@dataclass(frozen=True)
class UnpackedFile:
    """A file of an archive as it was written: its path in the archive, its size, its SHA-256 in hexadecimal.

    `records`: the CSV records after the header; None where they were not counted.
    """

    path: str
    bytes: int
    sha256: str
    records: int | None = None


def content_of(files: Iterable[UnpackedFile]) -> str:
    """Stands for the files of an archive, in whatever bytes they were packed."""
    listed = sorted((file.path, file.sha256) for file in files)
    return f"{CONTENT}{hashlib.blake2b(repr(listed).encode(), digest_size=16).hexdigest()}"


@dataclass(frozen=True)
class Announced:
    """What Vault had announced of a captured window; times as in the manifest, `2026-01-01T00:15Z`."""

    name: str
    start: str
    stop: str
    record_count: int | None
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Sidecar:
    """What was captured of a window: written last, beside its files, when all of them were verified."""

    source: Announced
    files: tuple[UnpackedFile, ...]

    @property
    def content(self) -> str:
        """Stands for the files."""
        return content_of(self.files)

    def to_bytes(self) -> bytes:
        """The JSON form."""
        parts = [{"name": part.name, "size": part.size, "md5": part.md5} for part in self.source.parts]
        files = [{"path": file.path, "bytes": file.bytes, "sha256": file.sha256} for file in self.files]
        data = {"source": {**asdict(self.source), "parts": parts}, "files": files}
        return (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Sidecar:
        """The sidecar of its JSON form. Raises ValueError for what is none."""
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
            raise ValueError(f"no sidecar of a captured window: {error!r}") from error
