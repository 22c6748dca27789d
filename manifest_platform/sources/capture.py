"""Capturing: a source downloads what its origin has published, verifies it and registers it, instead of waiting for others.

Belongs here: what a source declares about it, and what happens during a capture, as values that the command line prints and
Dagster records. How a source captures is its own matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from manifest_platform.manifest import Landed


@dataclass(frozen=True)
class CaptureSchedule:
    """When Dagster captures which feeds: `name` ends the schedule's name, `cron` is in UTC."""

    name: str
    cron: str
    feeds: tuple[str, ...]


@dataclass(frozen=True)
class CapturePlan:
    """What a dataset captures, as it is configured.

    `origin`: what publishes the directories, for people, as `the vault`. `secret`: the environment variable that holds what it
    logs in with; a schedule is on by default only where that is set.
    """

    feeds: tuple[str, ...]
    origin: str
    secret: str
    schedules: tuple[CaptureSchedule, ...]


@dataclass(frozen=True)
class Attempts:
    """The folders that captures of a feed wrote, registered or not, by the ids of the items that they lie below.

    `now`: when they were listed, by the storage's clock; None where nothing was.
    """

    by_item: Mapping[str, Sequence[str]]
    now: datetime | None = None


@dataclass(frozen=True)
class Captured:
    """A directory was written and registered, as `outcome` says. `bytes`: of the archive; `seconds`: all that it took."""

    feed: str
    name: str
    landed: Landed
    outcome: Literal["new", "late", "quarantined"]
    bytes: int
    seconds: float

    @property
    def is_empty(self) -> bool:
        """Whether it has no files, and nothing was downloaded."""
        return self.landed.files == 0


@dataclass(frozen=True)
class Diverged:
    """The origin has other content for a directory than was registered: `found`, `known` are checksums. The first stands."""

    feed: str
    name: str
    known: str
    found: str


@dataclass(frozen=True)
class CaptureFailed:
    """A directory, or all of a feed, could not be captured; others were. `permanent`: trying again will not help by itself."""

    feed: str
    name: str
    reason: str
    permanent: bool


@dataclass(frozen=True)
class Awaited:
    """A directory that the origin failed to publish so far, and since when that is known. Every capture asks for it."""

    feed: str
    name: str
    next_retry: datetime | None
    message: str
    first_seen: datetime


@dataclass(frozen=True)
class CaptureReport:
    """A capture, by the names of directories. `known`: those that the origin has and the manifest had, unchanged.

    `oldest`: the stop of the oldest that the origin still has, by feed. `unavailable`: why the capture, or a feed of it, ended
    early, where it did. `requests` to the origin, `bytes` received.
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
