"""An item: one landed directory, as the fold of its records.

Belongs here: what the records of one item add up to (validity, what blocks it, who is done with it, who is to skip it), and
where they are once they are archived. What that means for a feed's order is in `dataset`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from manifest_platform.manifest.records import (
    ACCEPTED,
    LANDED,
    Application,
    FailureKind,
    Payload,
    Record,
    State,
    coupling_problem,
)
from manifest_platform.manifest.store import Row

_KEY_TEXT = re.compile(r"[\x24-\x7e]+")
_BELOW_SEVERAL_FEEDS = re.compile(r"/vault=[^/]+/((?:incr|log|full)/[^/]+)$")
"""The layout where one folder, `vault=<id>/`, holds several feeds: there, the feed's folder is a part of an item's name. The
rule does not take any folder `key=value`: a landing root may be one, and names that are in use would change."""
ITEMS = "items"
"""The feed of items that programs register by their ids. People call them by these: what is the end of a folder's URI to a
directory says nothing of a URL or a span of time."""
NO_EPOCHS: Mapping[str, int] = MappingProxyType({})


class InvalidKey(ValueError):
    """A feed, sort key or item id that the manifest's keys cannot hold."""


def check_key_text(name: str, text: str) -> None:
    """Raises InvalidKey for text that cannot be a part of the store's keys."""
    if not _KEY_TEXT.fullmatch(text):
        raise InvalidKey(f"{name} {text!r} must be printable ASCII without spaces, '!', '\"' or '#'")


def short_name(id_: str) -> str:
    """What people call an item, by its id: see `ItemKey.name`."""
    uri = id_.rstrip("/")
    below = _BELOW_SEVERAL_FEEDS.search(uri)
    return below[1] if below else uri.rsplit("/", 1)[-1]


@dataclass(frozen=True, order=True)
class ItemKey:
    """Where an item stands: its feed, its sort key (logical time, as text) and its id (its URI).

    Raises InvalidKey for text with characters outside `$` to `~`: a `#` or anything below it would break the order of
    the store's keys.
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
        """The short name for people: the last segment of the URI; with the feed's folder where one folder holds several.

        Of an item that a program registered, the whole id.
        """
        return self.id if self.feed == ITEMS else short_name(self.id)

    @classmethod
    def at(cls, feed: str, position: str) -> ItemKey:
        """The key of a position."""
        sort, _, id_ = position.partition("#")
        return cls(feed, sort, id_)


@dataclass(frozen=True)
class Landed:
    """A complete directory that discovery found: its key, number of files, size in bytes, checksum of names and contents.

    `start` and `stop` bound the source's time window, for feeds that have windows. `content`: the folder with the files, where
    that is one of several attempts below the item's own. `after` and `upto`: of its place the item has only the files that were
    written later than the one and not later than the other, by the storage's clock; ISO 8601.
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
        """The payload of the item's New record: late for whom since which serving epoch, set aside for whom."""
        return Payload(LANDED, {**self._data(), **lateness(late_for or {}, set_aside_for)})

    def accepted(self, version: int, reason: str, reopens: Sequence[str]) -> Payload:
        """The payload of a later New record: the directory was rewritten on purpose, for the `version`-th time in all."""
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
    """Where an item's files are now: the URI of their folder; and their checksum, where it is another there."""

    place: str | None
    checksum: str | None = None


def lateness(late: Mapping[str, int], set_aside: Sequence[str]) -> dict[str, Any]:
    """What a New record's payload says of lateness: serving epochs by application key, and the keys that set the item aside."""
    marks = {"late": dict(late), "set_aside": list(set_aside)}
    return {name: value for name, value in marks.items() if value}


@dataclass(frozen=True)
class ArchivedRecords:
    """Where an item's archived records are: a file, the SHA-256 of its bytes, and up to which sequence number they go."""

    uri: str
    checksum: str
    upto: int

    @classmethod
    def of(cls, row: Row) -> ArchivedRecords | None:
        """The place that an item's first row names; None for an item that is not archived."""
        place = row.data.get("archived")
        return cls(place["uri"], place["checksum"], place["upto"]) if place else None


@dataclass(frozen=True)
class Item:
    """All records of one item, in sequence order."""

    key: ItemKey
    records: tuple[Record, ...]

    @property
    def sequence(self) -> int:
        """The newest record's sequence number; 0 for an item without records."""
        return self.records[-1].sequence if self.records else 0

    @cached_property
    def landed(self) -> Landed | None:
        """The directory as discovery saw it or as it was accepted last, where it lies now; None where none was found."""
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
        """Where the item's files were moved to last; None where they are where they landed."""
        for record in reversed(self.records):
            if record.state is State.NEW and record.data.get("place"):
                return Move(record.data["place"], record.data.get("checksum"))
        return None

    @property
    def place(self) -> str:
        """The URI of the folder that holds the item's files now, as far as its records say."""
        if self.landed:
            return self.landed.place
        return (self.move.place if self.move else None) or self.key.id

    @property
    def version(self) -> int:
        """How many contents of the directory were accepted: 1 as long as it was never rewritten on purpose."""
        return max((record.data["version"] for record in self.records if _is_accepted(record)), default=1)

    def knows(self, checksum: str) -> bool:
        """Whether a directory's content is the item's, or other content that somebody acknowledged."""
        landed = self.landed
        own = landed is None or landed.checksum == checksum
        return own or any(record.data.get("acknowledges") == checksum for record in self.records)

    @property
    def problems(self) -> list[str]:
        """Every rule that the stored records break, in record order; empty for a valid item."""
        found: list[str] = []
        for expected, record in enumerate(self.records, start=1):
            if record.item != self.key.id:
                found.append(f"record {record.record_id} ({record.state}) of {record.item} lies among those of {self.key.id}")
            if record.sequence != expected:
                found.append(f"record {record.record_id} of {record.item} has number {record.sequence}, not {expected}")
            if problem := coupling_problem(record, self.records):
                found.append(problem)
        return found

    def with_record(self, record: Record) -> Item:
        """The item after one more record."""
        return Item(self.key, (*self.records, record))

    def blocker(self, serving: Mapping[str, int] = NO_EPOCHS) -> Record | None:
        """The earliest record that blocks the item; None where nothing does."""
        return next(self.open_records(serving), None)

    def open_records(self, serving: Mapping[str, int] = NO_EPOCHS) -> Iterator[Record]:
        """The records that block the item, in order.

        A Processing blocks until a Processed, Failed or Resolved points at it, a Failed until a Resolved does. `serving`:
        serving epochs by application key; an application's records of an earlier epoch are superseded and block nothing.
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
        """The newest Processed record of an application, of an epoch not below `serving_epoch`; None if it is not done."""
        done = (one for one in self.done_by(application) if one.epoch is None or one.epoch >= serving_epoch)
        return next(done, None)

    def done_by(self, application: Application) -> Iterator[Record]:
        """The Processed records of an application that count, newest first: none from before a New record that reopened it."""
        for record in reversed(self.records):
            if any(application.is_done_by(Application.parse(key)) for key in record.data.get("reopens", ())):
                return
            if record.state is State.PROCESSED and application.is_done_by(record.application):
                yield record

    def is_reopened_for(self, application: Application) -> bool:
        """Whether an application was told to do the item again, and has not, nor was the item called late since."""
        for record in reversed(self.records):
            if application.key in record.data.get("reopens", ()):
                return True
            done = record.state is State.PROCESSED and application.is_done_by(record.application)
            if done or application.key in record.data.get("late", {}):
                return False
        return False

    def was_sent_back(self, application: Application) -> bool:
        """Whether an application did the item again by itself, with nothing gone well and no person's word since.

        What is lost again then is no accident: the item fails.
        """
        for record in reversed(self.records):
            if application.key in record.data.get("reopens", ()):
                return bool(record.data.get("automatic"))
            theirs = record.state is State.PROCESSED and not application.is_done_by(record.application)
            if theirs or (record.state is State.RESOLVED and not record.data.get("automatic")):
                return False
        return False

    def skipped_for(self, application: Application) -> Record | None:
        """The Skipped record that stops an application; a later New record lifts it, unless it only marks the item late."""
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
        """Whether the item arrived behind the watermark of an application's feed, in an epoch that still serves."""
        epoch = self.late_epoch(application)
        return epoch is not None and epoch >= serving_epoch

    def is_set_aside_for(self, application: Application) -> bool:
        """Whether the item, late for an application, waits for the operator and not to be appended.

        The newest record that calls it late decides: a policy that the feed was given since changes nothing.
        """
        for record in reversed(self.records):
            if record.state is State.NEW and application.key in record.data.get("late", {}):
                return application.key in record.data.get("set_aside", ())
        return False

    def died_with(self, application: Application) -> int | None:
        """How many items were claimed together, this one included, where the application's last attempt at this one died.

        None where it ended otherwise or is open, and without an attempt. That a worker died does not say by which item.
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
                return 1  # known as the one
            if end.data.get("kind") == FailureKind.LEASE_EXPIRED or end.data.get("died"):
                return attempt.data.get("batch", 1)
        return None

    def is_repeated(self, application: Application) -> bool:
        """Whether the application's last attempt was ended by itself, failed or put back, and is to be repeated."""
        own = (record for record in reversed(self.records) if record.application.key == application.key)
        last = next(own, None)
        return bool(last and last.state is State.RESOLVED and last.data.get("automatic"))

    def automatic_retries(self, application: Application) -> int:
        """How often in a row an attempt of the application ended without a word or by a passing fault.

        Counted since the last attempt that went well or that a person resolved; the policy of automatic retries is bounded
        by it.
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


def _is_accepted(record: Record) -> bool:
    return record.state is State.NEW and record.payload is not None and record.payload.schema == ACCEPTED
