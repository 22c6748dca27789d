"""An item: one landed directory, as the fold of its records.

Belongs here: the state of one item as it follows from its records (validity, what blocks it, which applications have done it or
skip it), and the location of its archived records. What that means for a feed's order is in `dataset`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from manifest_platform.manifest.records import (
    ACCEPTED,
    LANDED,
    Application,
    FailureKind,
    Holding,
    Payload,
    Record,
    State,
    coupling_problem,
)
from manifest_platform.manifest.store import Row

_KEY_TEXT = re.compile(r"[\x24-\x7e]+")
_BELOW_SEVERAL_FEEDS = re.compile(r"/vault=[^/]+/((?:incr|log|full)/[^/]+)$")
"""The layout in which one folder, `vault=<id>/`, holds several feeds. There the feed's folder is part of an item's name.

The rule does not match every folder `key=value`: a landing root may be such a folder, and names that are in use would change.
"""
ITEMS = "items"
"""The feed of items that programs register by their ids.

Their name is the whole id: the last segment of a URL or of a period would not identify it.
"""
NO_EPOCHS: Mapping[str, int] = MappingProxyType({})


class InvalidKey(ValueError):
    """A feed, sort key or item id that the manifest's keys cannot hold."""


def check_key_text(name: str, text: str) -> None:
    """Raises InvalidKey for text that cannot be part of the store's keys."""
    if not _KEY_TEXT.fullmatch(text):
        raise InvalidKey(f"{name} {text!r} must be printable ASCII without spaces, '!', '\"' or '#'")


def short_name(id_: str) -> str:
    """The short name of an item, by its id: see `ItemKey.name`."""
    uri = id_.rstrip("/")
    below = _BELOW_SEVERAL_FEEDS.search(uri)
    return below[1] if below else uri.rsplit("/", 1)[-1]


@dataclass(frozen=True, order=True)
class ItemKey:
    """The place of an item: its feed, its sort key (logical time, as text) and its id (its URI).

    Raises InvalidKey for text with characters outside `$` to `~`: a `#` or a character below it would break the order of the
    store's keys.
    """

    feed: str
    sort: str
    id: str

    def __post_init__(self) -> None:
        for name, text in (("feed", self.feed), ("sort key", self.sort), ("item id", self.id)):
            check_key_text(name, text)

    @property
    def position(self) -> str:
        """The item's place in its feed's total order: text, compared bytewise."""
        return f"{self.sort}#{self.id}"

    @property
    def name(self) -> str:
        """The short name for people: the last segment of the URI, with the feed's folder if one folder holds several feeds.

        For an item that a program registered: the whole id.
        """
        return self.id if self.feed == ITEMS else short_name(self.id)

    @classmethod
    def at(cls, feed: str, position: str) -> ItemKey:
        """The key of the item at a position."""
        sort, _, id_ = position.partition("#")
        return cls(feed, sort, id_)


@dataclass(frozen=True)
class Landed:
    """A complete directory that discovery found: its key, number of files, size in bytes, checksum of names and contents.

    - `start`, `stop`: bounds of the source's time window, for feeds that have windows.
    - `content`: the folder with the files, if it is one of several attempts below the item's own folder.
    - `after`, `upto`: bounds of the time at which a file was written, by the storage's clock, ISO 8601. The item has only the
      files of its folder that were written after `after` and not after `upto`.
    """

    key: ItemKey
    files: int
    bytes: int
    checksum: str
    start: str | None = None
    stop: str | None = None
    content: str | None = None
    after: str | None = None
    upto: str | None = None

    @property
    def place(self) -> str:
        """The URI of the folder that holds the files."""
        return self.content or self.key.id

    def payload(self, late_for: Mapping[str, int] | None = None, set_aside_for: Sequence[str] = ()) -> Payload:
        """The payload of the item's New record.

        `late_for`: the serving epoch by application key, for each application to which the item is late. `set_aside_for`: the
        keys of those that quarantine it.
        """
        return Payload(LANDED, {**self._data(), **lateness(late_for or {}, set_aside_for)})

    def accepted(self, version: int, reason: str, reopens: Sequence[str]) -> Payload:
        """The payload of a later New record: the directory was rewritten on purpose; `version` counts its accepted contents."""
        again = {"version": version, "reason": reason, "reopens": list(reopens), "keeps_skips": True}
        return Payload(ACCEPTED, {**self._data(), **again})

    def _data(self) -> dict[str, Any]:
        return {
            "uri": self.key.id,
            "files": self.files,
            "bytes": self.bytes,
            "checksum": self.checksum,
            "start": self.start,
            "stop": self.stop,
            **{name: value for name in ("content", "after", "upto") if (value := getattr(self, name))},
        }


@dataclass(frozen=True)
class Move:
    """The current location of an item's files: the URI of their folder, and their checksum if it differs there."""

    place: str | None
    checksum: str | None = None


def lateness(late: Mapping[str, int], set_aside: Sequence[str]) -> dict[str, Any]:
    """The marks of lateness in a New record's payload: serving epochs by application key, and the keys of those that quarantine
    it.
    """
    marks = {"late": dict(late), "set_aside": list(set_aside)}
    return {name: value for name, value in marks.items() if value}


@dataclass(frozen=True)
class ArchivedRecords:
    """The location of an item's archived records: a file, the SHA-256 of its bytes, and their last sequence number."""

    uri: str
    checksum: str
    upto: int

    @classmethod
    def of(cls, row: Row) -> ArchivedRecords | None:
        """The location that an item's first row names; None for an item that is not archived."""
        place = row.data.get("archived")
        return cls(place["uri"], place["checksum"], place["upto"]) if place else None


@dataclass(frozen=True)
class Item:
    """An item with all its records, in sequence order."""

    key: ItemKey
    records: tuple[Record, ...]

    @property
    def sequence(self) -> int:
        """The newest record's sequence number; 0 for an item without records."""
        return self.records[-1].sequence if self.records else 0

    @cached_property
    def landed(self) -> Landed | None:
        """The directory as it was discovered or last accepted, with its current location; None if none was discovered."""
        move: Move | None = None
        for record in reversed(self.records):
            if record.state is not State.NEW:
                continue
            if record.data.get("place"):
                move = move or Move(record.data["place"], record.data.get("checksum"))
            if record.payload and record.payload.schema in (LANDED, ACCEPTED):
                data = record.data
                now = move or Move(data.get("content"))
                window = data["start"], data["stop"], now.place, data.get("after"), data.get("upto")
                return Landed(self.key, data["files"], data["bytes"], now.checksum or data["checksum"], *window)
        return None

    @property
    def move(self) -> Move | None:
        """The last move of the item's files; None if they are where they landed."""
        for record in reversed(self.records):
            if record.state is State.NEW and record.data.get("place"):
                return Move(record.data["place"], record.data.get("checksum"))
        return None

    @property
    def place(self) -> str:
        """The URI of the folder that holds the item's files now, by its records."""
        if self.landed:
            return self.landed.place
        return (self.move.place if self.move else None) or self.key.id

    @property
    def version(self) -> int:
        """The number of accepted contents of the directory: 1 if it was never rewritten on purpose."""
        return max((record.data["version"] for record in self.records if _is_accepted(record)), default=1)

    def knows(self, checksum: str) -> bool:
        """True if a directory's content is the item's, or other content that was acknowledged."""
        landed = self.landed
        own = landed is None or landed.checksum == checksum
        return own or any(record.data.get("acknowledges") == checksum for record in self.records)

    @property
    def problems(self) -> list[str]:
        """Every rule that the stored records break, in record order; empty for a valid item."""
        found: list[str] = []
        for expected, record in enumerate(self.records, start=1):
            if record.item != self.key.id:
                found.append(
                    f"record {record.record_id} ({record.state}) of {record.item} is stored among those of {self.key.id}"
                )
            if record.sequence != expected:
                found.append(f"record {record.record_id} of {record.item} has number {record.sequence}, not {expected}")
            if problem := coupling_problem(record, self.records):
                found.append(problem)
        return found

    def with_record(self, record: Record) -> Item:
        """The item after one more record."""
        return Item(self.key, (*self.records, record))

    def blocker(
        self, serving: Mapping[str, int] = NO_EPOCHS, counts: Callable[[Application], bool] = lambda _: True
    ) -> Record | None:
        """The earliest record that blocks the item; None if it is not blocked.

        `counts`: False for applications whose records do not block, as `Step.is_blocked_by` tells.
        """
        return next((record for record in self.open_records(serving) if counts(record.application)), None)

    def open_records(self, serving: Mapping[str, int] = NO_EPOCHS) -> Iterator[Record]:
        """The records that block the item, in order.

        A Processing blocks until a Processed, Failed or Resolved points at it, a Failed until a Resolved does. `serving`:
        serving epochs by application key; an application's records of an earlier epoch are superseded and do not block.
        """
        consumed = {record.previous for record in self.records if record.state is not State.SKIPPED}
        resolved = {record.previous for record in self.records if record.state is State.RESOLVED}
        for record in self.records:
            if record.epoch is not None and record.epoch < serving.get(record.application.key, 0):
                continue
            open_processing = record.state is State.PROCESSING and record.record_id not in consumed
            open_failure = record.state is State.FAILED and record.record_id not in resolved
            if open_processing or open_failure:
                yield record

    def processed_by(self, application: Application, serving_epoch: int = 0) -> Record | None:
        """The newest Processed record of an application in `serving_epoch` or later; None if the item is not done."""
        done = (one for one in self.done_by(application) if one.epoch is None or one.epoch >= serving_epoch)
        return next(done, None)

    def done_by(self, application: Application) -> Iterator[Record]:
        """The Processed records of an application that count, newest first.

        Records before a New record that reopened the item for the application do not count.
        """
        for record in reversed(self.records):
            if any(application.is_done_by(Application.parse(key)) for key in record.data.get("reopens", ())):
                return
            if record.state is State.PROCESSED and application.is_done_by(record.application):
                yield record

    def is_reopened_for(self, application: Application) -> bool:
        """True if an application must do the item again: it has not done so since, and the item was not marked late since."""
        for record in reversed(self.records):
            if application.key in record.data.get("reopens", ()):
                return True
            done = record.state is State.PROCESSED and application.is_done_by(record.application)
            if done or (record.state is State.NEW and application.key in record.data.get("late", {})):
                return False
        return False

    def is_reload_asked(self, application: Application) -> bool:
        """True if an operator asked an application to replace the item's rows, and it has not done so since."""
        for record in reversed(self.records):
            if _reloads(record, application):
                return True
            if record.state is State.PROCESSED and application.is_done_by(record.application):
                return False
        return False

    def reload_asked(self, application: Application) -> Record | None:
        """The New record of the newest reload of an application, whether it is done or not; None if there was none."""
        return next((record for record in reversed(self.records) if _reloads(record, application)), None)

    def attempts_since(self, record: Record, application: Application) -> frozenset[str]:
        """The ids of an application's attempts at the item after a record."""
        later = self.records[record.sequence :]
        return frozenset(
            one.record_id for one in later if one.state is State.PROCESSING and application.is_done_by(one.application)
        )

    @property
    def replayed(self) -> list[Record]:
        """The records by which bad lines of this item became lines of other items, oldest first."""
        return [record for record in self.records if record.data.get("replayed")]

    @property
    def replays(self) -> tuple[str, ...]:
        """The ids of the items whose bad lines this item consists of; empty if it landed by itself."""
        return tuple(id_ for record in self.records for id_ in record.data.get("replays", ()))

    def deletion_of(self, holding: Holding) -> Record | None:
        """The record by which retention deleted data of the item; None if the data was not deleted, or was made again since.

        Bad rows are a part of the shredded output. An item that was shredded again had its landed directory back.
        """
        wanted = {holding, Holding.SHREDDED} if holding is Holding.BAD else {holding}
        for record in reversed(self.records):
            if wanted & set(record.data.get("deletes", ())):
                return record
            if record.state is State.PROCESSED and record.data.get("listing"):
                return None
            if holding is Holding.LANDING and _is_accepted(record):
                return None
        return None

    def was_sent_back(self, application: Application) -> bool:
        """True if the item was last reopened automatically; no other application has done it, and no person resolved it, since.

        If its output is lost again, the item fails, because a second loss is not accidental.
        """
        for record in reversed(self.records):
            if application.key in record.data.get("reopens", ()):
                return bool(record.data.get("automatic"))
            theirs = record.state is State.PROCESSED and not application.is_done_by(record.application)
            if theirs or (record.state is State.RESOLVED and not record.data.get("automatic")):
                return False
        return False

    def skipped_for(self, application: Application) -> Record | None:
        """The Skipped record that stops an application. A later New record lifts it, unless it has `keeps_skips`."""
        for record in reversed(self.records):
            if record.state is State.NEW and not record.data.get("keeps_skips"):
                return None
            if record.state is State.SKIPPED and application.is_stopped_by(record.application):
                return record
        return None

    def late_epoch(self, application: Application) -> int | None:
        """The newest serving epoch in which the item was behind an application's watermark; None if it never was."""
        marks = [record.data.get("late", {}).get(application.key) for record in self.records if record.state is State.NEW]
        return max((mark for mark in marks if mark is not None), default=None)

    def is_late_for(self, application: Application, serving_epoch: int = 0) -> bool:
        """True if the item arrived behind the watermark of an application's feed, in an epoch that still serves."""
        epoch = self.late_epoch(application)
        return epoch is not None and epoch >= serving_epoch

    def is_set_aside_for(self, application: Application) -> bool:
        """True if the item is late for an application and quarantined, so that it waits for a person.

        The newest record that marks it late decides: a later change of the feed's policy does not affect it.
        """
        for record in reversed(self.records):
            if record.state is State.NEW and application.key in record.data.get("late", {}):
                return application.key in record.data.get("set_aside", ())
        return False

    def full_loads(self, application: Application) -> Iterator[Record]:
        """The records by which full loads of an application with this snapshot began or were canceled, oldest first."""
        for record in self.records:
            if record.data.get("full_load") and record.data.get("application", application.name) == application.key:
                yield record

    def starts_behind(self, application: Application) -> str | None:
        """The position up to which an application that starts with this item passes over all items; None for other items."""
        starts = (record.data.get("starts", {}) for record in self.records)
        return next((found[application.key] for found in starts if application.key in found), None)

    def died_with(self, application: Application) -> int | None:
        """The number of items that were claimed together, this item included, if the application's last attempt at it died.

        None if the attempt is open or ended in another way, and if there was no attempt. The death of a worker does not tell
        which of its items caused it.
        """
        attempt: Record | None = None
        for record in reversed(self.records):
            if record.application.key == application.key and record.state is State.PROCESSING:
                attempt = record
                break
        if attempt is None:
            return None
        ends = [record for record in self.records if record.previous == attempt.record_id and record.state is not State.SKIPPED]
        for end in ends:
            if end.state is State.FAILED and end.data.get("kind") == FailureKind.TRANSIENT:
                return 1  # the fault is this item's
            if end.data.get("kind") == FailureKind.LEASE_EXPIRED or end.data.get("died"):
                return attempt.data.get("batch", 1)
        return None

    def deaths_alone(self, application: Application) -> int:
        """The number of the application's last attempts in a row at this item alone that were put back because they died."""
        own = [record for record in reversed(self.records) if record.application.key == application.key]
        attempts = {record.record_id: record for record in own if record.state is State.PROCESSING}
        deaths = 0
        for end in (record for record in own if record.previous in attempts):
            if not end.data.get("died") or attempts[str(end.previous)].data.get("batch", 1) > 1:
                break
            deaths += 1
        return deaths

    def is_repeated(self, application: Application) -> bool:
        """True if the application's last attempt failed or was put back automatically, and will be repeated."""
        own = (record for record in reversed(self.records) if record.application.key == application.key)
        last = next(own, None)
        return bool(last and last.state is State.RESOLVED and last.data.get("automatic"))

    def automatic_retries(self, application: Application) -> int:
        """The number of consecutive attempts of the application that died or ended with a transient fault.

        Counted since the last attempt that succeeded or that a person resolved. `Step.max_attempts` bounds it.
        """
        count = 0
        for record in self.records:
            if record.application.key != application.key:
                continue
            if record.state is State.FAILED and record.data.get("kind") in (FailureKind.LEASE_EXPIRED, FailureKind.TRANSIENT):
                count += 1
            elif record.state is State.PROCESSED or (record.state is State.RESOLVED and not record.data.get("automatic")):
                count = 0
        return count


def _reloads(record: Record, application: Application) -> bool:
    return bool(record.data.get("reloads")) and application.key in record.data.get("reopens", ())


def _is_accepted(record: Record) -> bool:
    return record.state is State.NEW and record.payload is not None and record.payload.schema == ACCEPTED
