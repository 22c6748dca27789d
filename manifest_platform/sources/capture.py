"""Capturing: a source downloads what its origin published, verifies it and registers it, without waiting for others to land it.

This module holds what a source declares about capturing, and the events of a capture, which the command line prints and Dagster
records. Each source implements capturing itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from manifest_platform.manifest import Landed


@dataclass(frozen=True)
class CaptureSchedule:
    """A schedule of captures in Dagster: `name` ends the schedule's name, `cron` is in UTC."""

    name: str
    cron: str
    feeds: tuple[str, ...]


@dataclass(frozen=True)
class CapturePlan:
    """The configured captures of a dataset.

    `origin`: the name of the publisher, for people, as `the vault`. `secret`: the environment variable with the credentials; a
    schedule is on by default only if that variable is set.
    """

    feeds: tuple[str, ...]
    origin: str
    secret: str
    schedules: tuple[CaptureSchedule, ...]


@dataclass(frozen=True)
class Attempts:
    """The folders that captures of a feed wrote, registered or not, by the id of the item that they belong to.

    `now`: the time of the listing, by the storage's clock; None if nothing was listed.
    """

    by_item: Mapping[str, Sequence[str]]
    now: datetime | None = None


@dataclass(frozen=True)
class Captured:
    """A directory was captured and registered with an `outcome`. `bytes`: the archive's size; `seconds`: the total time."""

    feed: str
    name: str
    landed: Landed
    outcome: Literal["new", "late", "quarantined"]
    bytes: int
    seconds: float

    @property
    def is_empty(self) -> bool:
        """True if it has no files, so that nothing was downloaded."""
        return self.landed.files == 0


@dataclass(frozen=True)
class Diverged:
    """The origin now offers other content than was registered. The registered content remains valid.

    `known`, `found`: the registered checksum and the new one.
    """

    feed: str
    name: str
    known: str
    found: str


@dataclass(frozen=True)
class CaptureFailed:
    """A directory, or a whole feed, could not be captured. `permanent`: a later try will fail too until a person acts."""

    feed: str
    name: str
    reason: str
    permanent: bool


@dataclass(frozen=True)
class Awaited:
    """A directory that the origin has failed to publish so far. Every capture asks for it again.

    `next_retry`: when the origin will try again. `first_seen`: when a capture first learned of the failure.
    """

    feed: str
    name: str
    next_retry: datetime | None
    message: str
    first_seen: datetime


@dataclass(frozen=True)
class CaptureReport:
    """The result of a capture, by names of directories.

    `known`: the number of directories that the manifest had already, unchanged. `oldest`: by feed, the stop time of the oldest
    directory that the origin still has. `unavailable`: why the capture, or a feed of it, ended early. `requests`: calls to the
    origin. `bytes`: bytes received.
    """

    captured: tuple[str, ...]
    empty: tuple[str, ...]
    diverged: tuple[str, ...]
    failed: tuple[CaptureFailed, ...]
    awaited: tuple[Awaited, ...]
    known: int
    oldest: Mapping[str, str]
    unavailable: str | None
    requests: int
    bytes: int


CaptureEvent = Captured | Diverged | CaptureFailed | Awaited | CaptureReport
