"""What happens during a capture, as values that the command line prints and Dagster records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from manifest_platform.manifest import Landed
from manifest_platform.sources.veeva.files import Feed


@dataclass(frozen=True)
class Captured:
    """A window was written and registered, as `outcome` says. `bytes`: of the archive; `seconds`: all that it took."""

    feed: Feed
    name: str
    landed: Landed
    outcome: Literal["new", "late", "quarantined"]
    bytes: int
    seconds: float

    @property
    def is_empty(self) -> bool:
        """Whether nothing happened in the window: it has no files, and nothing was downloaded."""
        return self.landed.files == 0


@dataclass(frozen=True)
class Diverged:
    """Vault has other content for a window than was registered: `found` and `known` are its checksums. The first stands."""

    feed: Feed
    name: str
    known: str
    found: str


@dataclass(frozen=True)
class CaptureFailed:
    """A window, or all of a feed, could not be captured; others were. `permanent`: trying again will not help by itself."""

    feed: Feed
    name: str
    reason: str
    permanent: bool


@dataclass(frozen=True)
class Awaited:
    """A window that Vault failed to publish so far, and since when it is known. It is asked for with every capture."""

    feed: Feed
    name: str
    next_retry: datetime | None
    message: str
    first_seen: datetime


@dataclass(frozen=True)
class CaptureReport:
    """One run, by window names. `known`: windows that Vault has and the manifest had, unchanged.

    `oldest`: the stop of the oldest window that Vault still has, by feed. `unavailable`: why the run, or a feed of it,
    ended early, where it did.
    `requests` to Vault, `bytes` received.
    """

    captured: tuple[str, ...]
    empty: tuple[str, ...]
    diverged: tuple[str, ...]
    failed: tuple[CaptureFailed, ...]
    awaited: tuple[Awaited, ...]
    known: int
    oldest: Mapping[Feed, str]
    unavailable: str | None
    requests: int
    bytes: int


Event = Captured | Diverged | CaptureFailed | Awaited | CaptureReport
