"""Faults of a Vault, as data: failed publications, broken downloads, refusals, spoiled archives.

This module lists the faults, says when each applies, and spoils archives. `server` answers accordingly.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from manifest_platform.fake_vault.archives import METADATA_FULL, Archive, Entry, table_of

Call = Literal["auth", "discovery", "token", "list", "download", "keep-alive", "session"]

PUBLICATION = {
    "unpublished": "the window failed to publish: the listing has its name, and an error with the time of the next try",
    "late": "the window is not in the listing yet",
    "emptied": "the listing says that the window has no records and no parts",
    "hollow": "the window has no records, but an archive with its manifest and metadata only",
    "malformed": "the listing has a number in place of a part of the window",
    "lost": "the window is gone, as after the end of its retention",
}
"""Faults of the listing of a window."""
CONTENT = {
    "wrong_records": "the manifest counts one record more than a file has",
    "missing_file": "a file that the manifest names is not in the archive",
    "extra_file": "the archive has a file that the manifest does not name",
    "duplicate_ids": "a file has a key twice, with different values",
    "non_utf8": "a value is not UTF-8",
    "header_mismatch": "a file's header has one column less than its rows",
    "duplicate_column": "a file's header has a column twice",
    "unknown_type": "the metadata gives a column a type that does not exist",
    "truncated": "the archive is cut off, though its parts are as listed",
    "repacked": "the same files in an archive of other bytes, with another checksum",
}
"""Faults of an archive. The listing has the real sizes and checksums."""
DOWNLOAD = {
    "bad_md5": "a byte of a part is wrong",
    "short_part": "a part is shorter than listed",
    "cut": "the connection breaks in the middle of a part",
    "expired": "the session has just ended: INVALID_SESSION_ID, with HTTP 200",
}
"""Faults of the download of a part."""
ANSWER = {
    "status": "an HTTP status (`status`) instead of an answer, with Retry-After if `retry_after` is given",
    "error": "a failure as JSON with HTTP 200 (`error`: its type)",
    "slow": "the answer takes `seconds`",
}
"""Faults of a call (`call`; None: of every call)."""
KINDS = PUBLICATION | CONTENT | DOWNLOAD | ANSWER
"""All faults, with their effects."""


class InvalidFault(ValueError):
    """A fault that does not exist, or that has an attribute of another kind of fault."""


@dataclass(frozen=True)
class Fault:
    """A fault to inject.

    - `window`: the archive, as `incr/2026-01-01T00:15Z`; None for any. Faults of publication and content need one
    - `part`: the part, from 1; None for any
    - `times`: how often it occurs, for faults of downloads and answers; None for always
    - `until`: the time by the server's clock when it heals; None for never. For an unpublished window it is the next try
    - `extract`: the extract whose file a fault of content spoils; None for the first that fits
    - `call`, `status`, `retry_after` (seconds), `error` (a type, as API_LIMIT_EXCEEDED), `seconds`: for faults of answers

    Raises InvalidFault.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    kind: str
    window: str | None = None
    part: int | None = None
    times: int | None = None
    until: datetime | None = None
    extract: str | None = None
    call: Call | None = None
    status: int = 500
    retry_after: int | None = None
    error: str = "UNEXPECTED_ERROR"
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidFault(f"there is no fault {self.kind!r}; there are: {', '.join(KINDS)}")
        lasting = self.kind in PUBLICATION or self.kind in CONTENT
        if lasting and self.window is None:
            raise InvalidFault(f"the fault {self.kind!r} needs a window, as incr/2026-01-01T00:15Z")
        if lasting and self.times is not None:
            raise InvalidFault(f"the fault {self.kind!r} lasts until a time (until), so it cannot have a number of times")
        if self.until and self.until.tzinfo is None:
            raise InvalidFault("until needs a time zone, as 2026-01-01T00:15Z")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Fault:
        """Parses the JSON form, with times as ISO text. Raises InvalidFault."""
        try:
            return TypeAdapter(cls).validate_python(data)
        except ValidationError as error:
            said = "; ".join(f"{'.'.join(map(str, one['loc']))} {one['msg']}".strip() for one in error.errors())
            raise InvalidFault(f"this is not a fault: {said}") from error

    def as_dict(self) -> dict[str, Any]:
        """Returns the JSON form, without defaults."""
        return TypeAdapter(Fault).dump_python(self, mode="json", exclude_defaults=True)

    def stands(self, now: datetime) -> bool:
        """True if it has not healed yet."""
        return self.until is None or now < self.until

    def spoil(self, archive: Archive) -> Archive:
        """Returns the archive with this fault in it. Raises InvalidFault if the archive has no file to spoil."""
        return _SPOILERS[self.kind](archive, self.extract)


def _wrong_records(archive: Archive, extract: str | None) -> Archive:
    entry = _entry(archive, extract)
    return _with(archive, entry, replace(entry, records=entry.records + 1))


def _missing_file(archive: Archive, extract: str | None) -> Archive:
    lost = _entry(archive, extract).file
    return replace(archive, files={path: content for path, content in archive.files.items() if path != lost})


def _extra_file(archive: Archive, _extract: str | None) -> Archive:
    return replace(archive, files=archive.files | {"Object/not_in_the_manifest__c.csv": b"id\r\nV1\r\n"})


def _duplicate_ids(archive: Archive, extract: str | None) -> Archive:
    entry = _entry(archive, extract)
    header, *rows = _rows(archive, entry)
    at = _own_text(header)
    again = [*rows[0][:at], rows[0][at] + " again", *rows[0][at + 1 :]]
    spoilt = _with_rows(archive, entry, [header, *rows, again])
    return _with(spoilt, entry, replace(entry, records=entry.records + 1))


def _non_utf8(archive: Archive, extract: str | None) -> Archive:
    entry = _entry(archive, extract)
    header, first, *rows = _rows(archive, entry)
    first[_own_text(header)] = "Z\udcfcrich"  # the byte FC: Latin-1, not UTF-8
    return _with_rows(archive, entry, [header, first, *rows])


def _header_mismatch(archive: Archive, extract: str | None) -> Archive:
    entry = _entry(archive, extract)
    header, *rows = _rows(archive, entry)
    return _with_rows(archive, entry, [header[:-1], *rows])


def _duplicate_column(archive: Archive, extract: str | None) -> Archive:
    entry = _entry(archive, extract)
    header, *rows = _rows(archive, entry)
    return _with_rows(archive, entry, [[*header[:-1], header[-2]], *rows])


def _unknown_type(archive: Archive, extract: str | None) -> Archive:
    spoilt, name = archive.files, _entry(archive, extract).extract
    for path in (METADATA_FULL, "Metadata/metadata.csv"):
        if path in spoilt:
            header, *rows = _parsed(spoilt[path])
            for row in rows:
                told = dict(zip(header, row, strict=True))
                if told["extract"] == name and told["column_name"] not in ("id", "modified_date__v"):
                    row[header.index("type")] = "Hologram"
            spoilt = spoilt | {path: table_of(header, rows)}
    return replace(archive, files=spoilt)


def _truncated(archive: Archive, _extract: str | None) -> Archive:
    return replace(archive, truncated=0.4)


def _repacked(archive: Archive, _extract: str | None) -> Archive:
    return replace(archive, packed_at=1)


_SPOILERS: dict[str, Callable[[Archive, str | None], Archive]] = {
    "wrong_records": _wrong_records,
    "missing_file": _missing_file,
    "extra_file": _extra_file,
    "duplicate_ids": _duplicate_ids,
    "non_utf8": _non_utf8,
    "header_mismatch": _header_mismatch,
    "duplicate_column": _duplicate_column,
    "unknown_type": _unknown_type,
    "truncated": _truncated,
    "repacked": _repacked,
}


def _entry(archive: Archive, extract: str | None) -> Entry:
    """Returns the line of an extract in the manifest; without a name, the first with rows of an object or a log."""
    for entry in archive.entries:
        meant = entry.extract == extract if extract else entry.extract.startswith(("Object.", "Log."))
        if meant and entry.records and entry.type != "deletes":
            return entry
    raise InvalidFault(f"the archive has no rows of {extract or 'any object'} to spoil")


def _with(archive: Archive, old: Entry, new: Entry) -> Archive:
    return replace(archive, entries=tuple(new if entry == old else entry for entry in archive.entries))


def _rows(archive: Archive, entry: Entry) -> list[list[str]]:
    return _parsed(archive.files[entry.file])


def _parsed(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode(), newline="")))


def _with_rows(archive: Archive, entry: Entry, rows: list[list[str]]) -> Archive:
    return replace(archive, files=archive.files | {entry.file: table_of(rows[0], rows[1:])})


def _own_text(header: list[str]) -> int:
    """Returns the position of a text column that is not part of the key."""
    return header.index("name__v" if "name__v" in header else header[-1])
