"""The types that several answers share."""

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
    """An error. `type`: the kind of error, for programs; `message`: for people."""

    type: str
    message: str


class Failed(TypedDict):
    """The answer of any command that failed. The exit code says how."""

    error: Told


class Application(TypedDict):
    """The application that wrote a record: its name, its version, and its instance if there are several."""

    name: str
    version: str
    instance: str | None


class Payload(TypedDict):
    """The payload of a record: `data`, and the `schema` that describes it."""

    schema: str
    data: dict[str, Any]


class Record(TypedDict):
    """A record of the manifest, as it is stored. docs/reference/manifest.md describes its fields."""

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
    """The rows of a query. Each row is an object with a value for each column."""

    rows: list[dict[str, Any]]


class Totals(TypedDict):
    """The number of objects of a kind, with their rows and bytes."""

    objects: int
    rows: int
    bytes: int
