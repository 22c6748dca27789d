"""The record: an append-only event on an item. Records are the only stored truth.

Belongs here: the attributes of a record, its stored form, and which records may follow which. The state that follows from an
item's records is in `item`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import uuid4

from manifest_platform.releases import FIRST, OWN, Form, unknown

EVERYONE = "*"
"""The application name of a Skipped record that stops every application."""

LANDED = "iglu:com.manifest_platform/landed/jsonschema/1-0-0"
"""New: {uri, files, bytes, checksum, start, stop, late?: {application key: epoch}, set_aside?: [application keys]}."""
CLAIM = "iglu:com.manifest_platform/claim/jsonschema/1-0-0"
"""Processing of an item that was claimed together with others: {batch}, the number of items."""
ACCEPTED = "iglu:com.manifest_platform/accepted/jsonschema/1-0-0"
"""New, for a directory that was rewritten on purpose: the data of LANDED, and {version, reason, reopens, keeps_skips}."""
OUTPUT = "iglu:com.manifest_platform/output/jsonschema/1-0-0"
"""Processed: {listing?, rows, bytes, made_from?, …}: the application's output of the item, and the records it was made from."""
FAILURE = "iglu:com.manifest_platform/failure/jsonschema/1-0-1"
"""Failed: {kind: permanent | transient | lease_expired, message, exception?, traceback?}."""
REASON = "iglu:com.manifest_platform/reason/jsonschema/1-0-1"
"""Resolved, Skipped, and New after the first: the reason, and the decision's effects.

{reason, automatic?, died?, late?, set_aside?, keeps_skips?, full_load?, reopens?, acknowledges?}. `full_load`: `begun` or
`cancelled`, on a snapshot. `reopens`: the keys of the applications that must do the item again. `acknowledges`: a checksum of
other content that is known and will not be loaded.
"""
TARGET_REASON = "iglu:com.manifest_platform/reason/jsonschema/1-0-2"
"""The same, of a decision on a further target: also {application?, starts?}.

`application`: the key of the application whose full load begins or ends. `starts`: by the
key of an application that starts with the item, the position up to which it passes over all items.
"""
RELOAD_REASON = "iglu:com.manifest_platform/reason/jsonschema/1-0-3"
"""The same, of a reload or a replay: also {reloads, allows?, replays?, replayed?}.

`reloads`: the applications that `reopens` names replace the rows that they have of the item. `allows`: `missing`, if the item
may be reloaded although some of its rows are no longer in the warehouse. `replays`: the ids of the items whose bad lines this
item consists of. `replayed`: {item, lines, file}, the item that bad lines of this one went to, and the file that names them.
"""
RETENTION_REASON = "iglu:com.manifest_platform/reason/jsonschema/1-0-4"
"""The same, of a deletion by retention: also {deletes}, the `Holding`s of the item that are deleted from this record on."""

SKIPPED_BY_RULE = "iglu:com.manifest_platform/skipped_by_rule/jsonschema/1-0-0"
"""Skipped when the item was registered: {reason, rule}. `rule` is the id of a skip rule; the record's author added that rule.
"""


class State(StrEnum):
    """The state that a record gives its item, for the record's application."""

    NEW = "New"
    PROCESSING = "Processing"
    PROCESSED = "Processed"
    FAILED = "Failed"
    RESOLVED = "Resolved"
    SKIPPED = "Skipped"


class Holding(StrEnum):
    """The data that storage holds of an item: its landed directory, its shredded output, and the bad rows in the output."""

    LANDING = "landing"
    SHREDDED = "shredded"
    BAD = "bad"


class FailureKind(StrEnum):
    """The kind of a failure, which decides what happens to the item next.

    PERMANENT waits for a person. TRANSIENT (it may pass without any change) and LEASE_EXPIRED (the worker died without a
    message) are retried, up to the step's `max_attempts`. BEHIND is the answer of a sink that is past the item: this is no
    failure, the item becomes late.
    """

    PERMANENT = "permanent"
    TRANSIENT = "transient"
    LEASE_EXPIRED = "lease_expired"
    BEHIND = "behind"


_STATES = tuple(str(state) for state in State)
_PREVIOUS: dict[State, tuple[State, ...]] = {
    State.NEW: (),
    State.PROCESSING: (State.NEW,),
    State.PROCESSED: (State.PROCESSING,),
    State.FAILED: (State.PROCESSING,),
    State.RESOLVED: (State.FAILED, State.PROCESSING),
}
_NEEDS_PREVIOUS = {State.PROCESSED, State.FAILED, State.RESOLVED}


FIRST_TARGET = "warehouse"
"""The name of the first target. Its application has no instance, as before there were several targets."""


class InvalidRunId(ValueError):
    """A run id that is not allowed: it must be a single word, because people type it again."""


class InvalidRecord(ValueError):
    """A stored form that is not a record's; the message names every attribute that is missing or wrong."""


class CouplingViolation(ValueError):
    """A record that may not follow the item's records; the message names every rule that it breaks."""


@dataclass(frozen=True)
class Application:
    """An application that works on items: a name, and an instance if it serves several targets.

    The version is kept for the audit log; it does not identify the application. `exact`: only records of this very instance
    are its own. Without it, a missing instance matches every instance, so `load` would be done as soon as `load:lab` is.
    """

    name: str
    version: str = ""
    instance: str | None = None
    exact: bool = field(default=False, compare=False, kw_only=True)

    @property
    def key(self) -> str:
        """The identity, as it appears in keys of the store: `load` or `load:redshift-prod`."""
        return f"{self.name}:{self.instance}" if self.instance else self.name

    @classmethod
    def parse(cls, key: str) -> Application:
        """The application with a key such as `load` or `load:redshift-prod`."""
        name, _, instance = key.partition(":")
        return cls(name, instance=instance or None)

    def is_done_by(self, other: Application) -> bool:
        """True if a Processed record of `other` counts for this application.

        A missing instance on either side matches any, unless this application is exact.
        """
        if self.exact:
            return self.key == other.key
        either_open = self.instance is None or other.instance is None
        return self.name == other.name and (either_open or self.instance == other.instance)

    def is_stopped_by(self, skipped: Application) -> bool:
        """True if a Skipped record of `skipped` stops this application: by `*`, by name, or by name and instance."""
        if skipped.name == EVERYONE:
            return True
        return skipped.name == self.name and skipped.instance in (None, self.instance or (FIRST_TARGET if self.exact else None))


@dataclass(frozen=True)
class Payload:
    """Self-describing data of a record: the Iglu URI of its schema, and the data."""

    schema: str
    data: dict[str, Any]


_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+@/=-]*")
RUN_ID_LENGTH = 128
"""The maximum length of a run id, in characters."""


def run_id_of(text: str | None = None) -> str:
    """Returns the given run id, or a new UUID. Raises InvalidRunId."""
    if text is None:
        return str(uuid4())
    if len(text) > RUN_ID_LENGTH or not _RUN_ID.fullmatch(text):
        raise InvalidRunId(
            f"{text[:RUN_ID_LENGTH]!r} is not a run id. A run id has 1 to {RUN_ID_LENGTH} letters, digits and . _ : + @ / = -;"
            " the first is a letter or digit"
        )
    return text


@dataclass(frozen=True)
class Stamp:
    """The author of a record, its run, the time (UTC), and the record id."""

    author: str
    run_id: str | None = None
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    record_id: str = field(default_factory=lambda: str(uuid4()))


@dataclass(frozen=True)
class Record:
    """An event on an item. `sequence` counts from 1 within the item; `previous` is the record that this record consumes.

    `epoch` is set by applications whose work belongs to an epoch of the warehouse (loads), `token` by those that work under a
    lease. `form`: the release that wrote it. `unknown`: attributes that this release does not know; those of the payload and
    the application are under their names.
    """

    item: str
    sequence: int
    record_id: str
    state: State
    application: Application
    author: str
    timestamp: datetime
    previous: str | None = None
    run_id: str | None = None
    epoch: int | None = None
    token: int | None = None
    payload: Payload | None = None
    form: Form = OWN
    unknown: Mapping[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> dict[str, Any]:
        """The payload's data; empty if there is no payload."""
        return self.payload.data if self.payload else {}

    def to_dict(self) -> dict[str, Any]:
        """The stored form, JSON-ready."""
        others = {name: value for name, value in self.unknown.items() if name not in ("application", "payload")}
        form = {"version": self.form.number} if self.form != FIRST else {}
        return {
            **others,
            **form,
            "item": self.item,
            "sequence": self.sequence,
            "record_id": self.record_id,
            "previous": self.previous,
            "state": str(self.state),
            "application": {
                "name": self.application.name,
                "version": self.application.version,
                "instance": self.application.instance,
                **self.unknown.get("application", {}),
            },
            "author": self.author,
            "run_id": self.run_id,
            "timestamp": format_time(self.timestamp),
            "epoch": self.epoch,
            "token": self.token,
            "payload": {"schema": self.payload.schema, "data": self.payload.data, **self.unknown.get("payload", {})}
            if self.payload
            else None,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Record:
        """Parses the stored form. Nullable attributes may be absent; unknown attributes are kept.

        Raises InvalidRecord with everything that is missing or wrong.
        """
        if wrong := _wrong(data):
            name = f"record {data.get('record_id')} of {data.get('item')}"
            raise InvalidRecord(f"{name} is not a valid stored record: {'; '.join(wrong)}")
        application, payload = data["application"], data.get("payload")
        return cls(
            item=data["item"],
            sequence=data["sequence"],
            record_id=data["record_id"],
            state=State(data["state"]),
            application=Application(application["name"], application.get("version") or "", application.get("instance")),
            author=data["author"],
            timestamp=parse_time(data["timestamp"]),
            previous=data.get("previous"),
            run_id=data.get("run_id"),
            epoch=data.get("epoch"),
            token=data.get("token"),
            payload=Payload(payload["schema"], payload["data"]) if payload else None,
            form=Form.of(data),
            unknown=_unknown(data),
        )


_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TYPES: dict[str, dict[str, tuple[type, bool]]] = {
    "": {
        "item": (str, True),
        "sequence": (int, True),
        "record_id": (str, True),
        "previous": (str, False),
        "state": (str, True),
        "application": (dict, True),
        "author": (str, True),
        "run_id": (str, False),
        "timestamp": (str, True),
        "epoch": (int, False),
        "token": (int, False),
        "payload": (dict, False),
    },
    "application": {"name": (str, True), "version": (str, False), "instance": (str, False)},
    "payload": {"schema": (str, True), "data": (dict, True)},
}
"""The attributes of a stored record and of its parts: the type, and whether the attribute is required."""


def _wrong(data: dict[str, Any]) -> list[str]:
    """The faults of a stored record, in the order of its attributes."""
    found = _ill_typed(data, "")
    for part in ("application", "payload"):
        if isinstance(data.get(part), dict):
            found += _ill_typed(data[part], part)
    for name in ("record_id", "previous"):
        if isinstance(data.get(name), str) and not _UUID.fullmatch(data[name]):
            found.append(f"{name} {data[name]!r} is not a UUID")
    if isinstance(data.get("state"), str) and data["state"] not in _STATES:
        found.append(f"state {data['state']!r} is not one of {', '.join(_STATES)}")
    if isinstance(data.get("timestamp"), str) and not _is_time(data["timestamp"]):
        found.append(f"timestamp {data['timestamp']!r} is not a time with a time zone, such as 2026-01-31T12:00:00.000000Z")
    return found


_BESIDE = ("version", "archived")
"""Attributes of a record's row that are not the record's: the version of its form, and the location of archived records."""


def _unknown(data: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a stored record, its application and its payload that this release does not know."""
    found = unknown(data, {*_TYPES[""], *_BESIDE})
    for part in ("application", "payload"):
        if others := unknown(data.get(part) or {}, _TYPES[part]):
            found[part] = others
    return found


def _ill_typed(data: dict[str, Any], part: str) -> list[str]:
    found = []
    for name, (kind, required) in _TYPES[part].items():
        value = data.get(name)
        if type(value) is not kind and (required or value is not None):
            where = f"{part}.{name}" if part else name
            what = "is missing" if value is None else f"{value!r} is not of type {kind.__name__}"
            found.append(f"{where} {what}")
    return found


def _is_time(text: str) -> bool:
    try:
        return parse_time(text).tzinfo is not None
    except ValueError:
        return False


def coupling_problem(record: Record, others: Iterable[Record]) -> str | None:
    """The fault of a record's link to a previous record of the same item; None if the link is valid."""
    if record.state is State.SKIPPED:
        return None
    name = f"record {record.record_id} ({record.state}) of {record.item}"
    allowed = _PREVIOUS[record.state]
    if record.previous is None:
        wanted = " or ".join(allowed)
        return f"{name} must point at a {wanted}, but points at nothing" if record.state in _NEEDS_PREVIOUS else None
    if not allowed:
        return f"{name} must not point at another record, but points at {record.previous}"
    target = next((other for other in others if other.record_id == record.previous), None)
    if target is None:
        return f"{name} points at {record.previous}, which the item does not have"
    if target.state not in allowed:
        return f"{name} must point at a {' or '.join(allowed)}, but points at {record.previous} ({target.state})"
    return None


def format_time(time: datetime) -> str:
    """ISO 8601 in UTC with microseconds and `Z`, so that text order is time order."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime:
    """Parses the text that `format_time` made."""
    return datetime.fromisoformat(text)
