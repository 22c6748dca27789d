"""What can go wrong at a Vault, as data: failed publications, broken downloads, refusals, spoilt archives.

Belongs here: what faults there are, when one is met, and how it spoils an archive. What the server answers then is `server`.
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
    "unpublished": "the window failed to publish: the listing has its name and an error with the time of the next try",
    "late": "the window is not in the listing yet",
    "emptied": "the listing says that the window has no records and no parts",
    "hollow": "the window has no records, and an archive of its manifest and metadata alone",
    "malformed": "the listing tells a part of the window as a number",
    "lost": "the window is gone for ever, as by retention",
}
"""Faults of what the listing says of a window."""
CONTENT = {
    "wrong_records": "the manifest tells one record more than a file has",
    "missing_file": "a file that the manifest names is not in the archive",
    "extra_file": "the archive has a file that the manifest does not name",
    "duplicate_ids": "a file has a key twice, with different values",
    "non_utf8": "a value is not UTF-8",
    "header_mismatch": "a file's header has a column less than its rows",
    "duplicate_column": "a file's header has a column twice",
    "unknown_type": "the metadata gives a column a type that does not exist",
    "truncated": "the archive ends before its end, though its parts are as the listing says",
    "repacked": "the same files in an archive of other bytes, so of another checksum",
}
"""Faults of an archive; the listing tells sizes and checksums of what is really there."""
DOWNLOAD = {
    "bad_md5": "a byte of a part is another one",
    "short_part": "a part is shorter than the listing says",
    "cut": "the connection breaks in the middle of a part",
    "expired": "the session has just ended: INVALID_SESSION_ID, with HTTP 200",
}
"""Faults of the download of a part."""
ANSWER = {
    "status": "an HTTP status instead of an answer (`status`), with Retry-After where `retry_after` is given",
    "error": "a failure as JSON with HTTP 200 (`error`: its type)",
    "slow": "the answer comes after `seconds`",
}
"""Faults of any call (`call`; None: of every one)."""
KINDS = PUBLICATION | CONTENT | DOWNLOAD | ANSWER
"""All faults, and what each does."""


class InvalidFault(ValueError):
    """A fault that does not exist, or that is told what does not belong to it."""


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong.

    `window`: of which archive, as `incr/2026-01-01T00:15Z` (None: of any; publication and content faults need one). `part`: of
    which part, from 1 (None: any). `times`: how often, for faults of downloads and answers (None: always). `until`: by the
    server's clock it heals then (None: never); of an unpublished window it is the next try. `extract`: whose file content
    faults spoil (None: the first that can be). `call`, `status`, `retry_after` (seconds), `error` (a type, as
    API_LIMIT_EXCEEDED), `seconds`: of answers. Raises InvalidFault.
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
            raise InvalidFault(f"the fault {self.kind!r} lasts until a time (until), it is not met a number of times")
        if self.until and self.until.tzinfo is None:
            raise InvalidFault("until needs a time zone, as 2026-01-01T00:15Z")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Fault:
        """The fault of its JSON form, in which times are ISO text. Raises InvalidFault."""
        try:
            return TypeAdapter(cls).validate_python(data)
        except ValidationError as error:
            said = "; ".join(f"{'.'.join(map(str, one['loc']))} {one['msg']}".strip() for one in error.errors())
            raise InvalidFault(f"this is no fault: {said}") from error

    def as_dict(self) -> dict[str, Any]:
        """Its JSON form, without what says nothing."""
        return TypeAdapter(Fault).dump_python(self, mode="json", exclude_defaults=True)

    def stands(self, now: datetime) -> bool:
        """Whether it has not healed yet."""
        return self.until is None or now < self.until

    def spoil(self, archive: Archive) -> Archive:
        """The archive with this fault in it. Raises InvalidFault where it has no file that could be spoilt."""
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
    first[_own_text(header)] = "Z\udcfcrich"  # one byte FC, as Latin-1 has it
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
    """The line of the manifest that is meant: of the extract, else of the first that has rows of an object or a log."""
    for entry in archive.entries:
        meant = entry.extract == extract if extract else entry.extract.startswith(("Object.", "Log."))
        if meant and entry.records and entry.type != "deletes":
            return entry
    raise InvalidFault(f"the archive has no rows of {extract or 'any object'} that could be spoilt")


def _with(archive: Archive, old: Entry, new: Entry) -> Archive:
    return replace(archive, entries=tuple(new if entry == old else entry for entry in archive.entries))


def _rows(archive: Archive, entry: Entry) -> list[list[str]]:
    return _parsed(archive.files[entry.file])


def _parsed(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode(), newline="")))


def _with_rows(archive: Archive, entry: Entry, rows: list[list[str]]) -> Archive:
    return replace(archive, files=archive.files | {entry.file: table_of(rows[0], rows[1:])})


def _own_text(header: list[str]) -> int:
    """Where a text stands that is no key: in all extracts with a name."""
    return header.index("name__v" if "name__v" in header else header[-1])
