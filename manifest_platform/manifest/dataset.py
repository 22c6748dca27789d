"""A dataset's order: what its steps declare, and what of an item counts as done, ready, late or blocking.

Belongs here: the declared steps of a feed, the stored state of a step and of its leases, and the judgement of an item
against them. Pure: state in, judgement out; the writes that follow from it are in `transitions`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from manifest_platform.manifest.item import Item
from manifest_platform.manifest.records import Application, Record, State, format_time, parse_time

INCREMENTAL = "INCREMENTAL"


@dataclass(frozen=True)
class Step:
    """What an application does on a feed, and in which order.

    `order`: `any` takes every item whose upstream is done, oldest first, many at once; `strict` takes the earliest item
    that is not done, or nothing. `late`, for strict steps: an item that arrives behind the watermark is set aside
    for the operator (`quarantine`) or loaded next and marked late (`append`, for tables that only append). The policy is for
    items that arrive from now on: one that is set aside stays so until it is unskipped, one that waits is loaded.
    `gap`: `contiguous` demands that an item starts where the item before it stopped. `max_attempts` bounds how often an
    attempt that died or hit a passing fault is repeated without a person.
    """

    application: Application
    upstream: tuple[str, ...] = ()
    order: Literal["any", "strict"] = "any"
    late: Literal["quarantine", "append"] = "quarantine"
    gap: Literal["none", "contiguous"] = "none"
    max_attempts: int = 3


@dataclass(frozen=True)
class FeedState:
    """What a strict step remembers of a feed.

    `watermark`: position of the newest item such that it and all before it are done. `swept`: up to where the stretch that
    the watermark jumped was looked at again. Counters: `applied`, `skipped`, `quarantined`, and `late` (late items that
    wait to be appended). `stop`: where the watermark item's window stops, for the gap rule.
    """

    watermark: str = ""
    swept: str = ""
    stop: str | None = None
    serving_epoch: int = 1
    applied: int = 0
    skipped: int = 0
    quarantined: int = 0
    late: int = 0


@dataclass(frozen=True)
class StepState:
    """The stored state of a step over all feeds of its dataset; `version` is the row's, for conditions."""

    mode: str = INCREMENTAL
    epoch: int = 1
    boundary: str | None = None
    feeds: dict[str, FeedState] = field(default_factory=dict)
    version: int = 0

    def feed(self, name: str) -> FeedState:
        """The state of a feed; a fresh one for a feed that nothing was done on yet."""
        return self.feeds.get(name, FeedState())

    def with_feed(self, name: str, **changes: Any) -> StepState:
        """The state after changes to one feed."""
        changed = dataclasses.replace(self.feed(name), **changes)
        return dataclasses.replace(self, feeds={**self.feeds, name: changed})

    def to_dict(self) -> dict[str, Any]:
        """The stored form."""
        return {
            "mode": self.mode,
            "epoch": self.epoch,
            "boundary": self.boundary,
            "feeds": {name: dataclasses.asdict(feed) for name, feed in self.feeds.items()},
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], version: int) -> StepState:
        """The state of its stored form."""
        feeds = {name: FeedState(**feed) for name, feed in data["feeds"].items()}
        return cls(data["mode"], data["epoch"], data["boundary"], feeds, version)


@dataclass(frozen=True)
class LeaseState:
    """The stored lease of (application, feed): who may work, until when (UTC), under which token, on which item.

    The token only grows. `current` is the position of the item claimed last; a new holder settles it first. `nonce` tells
    the writer's own write apart when an answer was lost.
    """

    holder: str
    run_id: str | None
    token: int
    expires_at: datetime
    current: str | None
    nonce: str
    version: int = 0

    def is_live(self, now: datetime) -> bool:
        """Whether the holder still may work, by the clock. Clocks decide when a takeover is tried, not whether it is safe."""
        return now < self.expires_at

    def to_dict(self) -> dict[str, Any]:
        """The stored form."""
        return {
            "holder": self.holder,
            "run_id": self.run_id,
            "token": self.token,
            "expires_at": format_time(self.expires_at),
            "current": self.current,
            "nonce": self.nonce,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], version: int) -> LeaseState:
        """The lease of its stored form."""
        fields: dict[str, Any] = {**data, "expires_at": parse_time(data["expires_at"])}
        return cls(**fields, version=version)


class Standing(StrEnum):
    """How an item stands with one step."""

    DONE = "done"
    SKIPPED = "skipped"
    LATE = "late"
    READY = "ready"
    WAITING = "waiting"
    PROCESSING = "processing"
    FAILED = "failed"
    GAP = "gap"
    CUT_OFF = "cut off"
    MODE = "mode"
    INVALID = "invalid"


@dataclass(frozen=True)
class Judgement:
    """An item's standing with a step; where it is blocked, the reason in words and the record at fault."""

    standing: Standing
    reason: str = ""
    record: Record | None = None


PASSED = frozenset({Standing.DONE, Standing.SKIPPED})
"""Standings that the watermark moves over. A late item is passed too, once it is marked."""


def judge(item: Item, step: Step, feed: FeedState) -> Judgement:
    """How an item stands with a step.

    A skip, of the step or of what it waits for, comes before a failure: that is what an operator skips for.
    """
    problems = item.problems
    if problems:
        return Judgement(Standing.INVALID, f"its records break the rules: {problems[0]}", item.records[-1])
    application = step.application
    done = item.processed_by(application, feed.serving_epoch)
    if done:
        return Judgement(Standing.DONE, record=done)
    skipped = item.skipped_for(application)
    if skipped:
        return Judgement(Standing.SKIPPED, str(skipped.data.get("reason", "")), skipped)
    behind = item.key.position <= feed.watermark
    if step.order == "strict" and behind and item.is_set_aside_for(application):
        return Judgement(Standing.LATE, "it arrived behind the watermark and is set aside", item.records[0])
    for upstream in step.upstream:
        cut_off = item.skipped_for(Application(upstream))
        if cut_off:
            reason = f"{upstream} is told to skip it, so {application.key} never gets it: unskip it, or skip it for all"
            return Judgement(Standing.CUT_OFF, reason, cut_off)
    blocker = item.blocker(feed.serving_epoch)
    if blocker and blocker.state is State.FAILED:
        message = blocker.data.get("message", "no message")
        return Judgement(Standing.FAILED, f"{blocker.application.key} failed: {message}", blocker)
    if blocker:
        return Judgement(Standing.PROCESSING, f"{blocker.application.key} is working on it ({blocker.author})", blocker)
    for upstream in step.upstream:
        if not item.processed_by(Application(upstream)):
            return Judgement(Standing.WAITING, f"{upstream} has not processed it yet", item.records[-1])
    landed = item.landed
    if step.gap == "contiguous" and not behind and feed.stop is not None and landed and landed.start != feed.stop:
        reason = f"gap: it starts at {landed.start}, and the item before it stopped at {feed.stop}"
        return Judgement(Standing.GAP, reason, item.records[-1])
    return Judgement(Standing.READY)


@dataclass(frozen=True)
class Ready:
    """The item that may be claimed now. `state` is what the claim will be conditional on."""

    item: Item
    state: StepState


@dataclass(frozen=True)
class Blocked:
    """The item that must come next and cannot: why, since when, and the command that helps."""

    item: Item
    standing: Standing
    reason: str
    since: datetime
    command: str


@dataclass(frozen=True)
class Abandoned:
    """A Processing item whose worker no longer holds the lease: settle it with the sink before anything else."""

    item: Item
    processing: Record


@dataclass(frozen=True)
class Idle:
    """Nothing to do."""


Verdict = Ready | Blocked | Abandoned | Idle


def blocked(item: Item, judged: Judgement) -> Blocked:
    """The verdict on an item that stops its feed."""
    record = judged.record or item.records[-1]
    name = item.key.name
    drain = "manifest-platform drain"
    commands = {
        Standing.FAILED: f"manifest-platform resolve {name}",
        Standing.CUT_OFF: f"manifest-platform unskip {name}",
        Standing.WAITING: drain,
        Standing.READY: drain,
    }
    command = commands.get(judged.standing, f"manifest-platform history {name}")
    return Blocked(item, judged.standing, judged.reason, record.timestamp, command)
