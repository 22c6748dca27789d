"""What several answers have in common."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict

Time = str
"""A time in UTC, ISO 8601."""


class Item(TypedDict):
    """An item: its feed, its name and its id."""

    feed: str
    name: str
    uri: str


class Told(TypedDict):
    """What went wrong: the kind of error, which programs may go by, and the message for people."""

    type: str
    message: str


class Failed(TypedDict):
    """The answer of any command that could not do what it was asked, with an exit code of its own."""

    error: Told


class Application(TypedDict):
    """Who worked on an item."""

    name: str
    version: str
    instance: str | None


class Payload(TypedDict):
    """What a record says beyond its fields, with the schema that says what it means."""

    schema: str
    data: dict[str, Any]


class Record(TypedDict):
    """A record of the manifest, as it is stored; docs/reference/manifest.md says what it means."""

    item: str
    sequence: int
    record_id: str
    previous: str | None
    state: str
    application: Application
    author: str
    run_id: str
    timestamp: Time
    epoch: int | None
    token: int | None
    payload: Payload | None
    version: NotRequired[int]
    release: NotRequired[str]


class Rows(TypedDict):
    """The rows that a query found, by the names of their columns."""

    rows: list[dict[str, Any]]


class Totals(TypedDict):
    """How much there is of a kind of object."""

    objects: int
    rows: int
    bytes: int
