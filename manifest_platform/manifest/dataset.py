"""A dataset's order: what its steps declare, and what of an item counts as done, ready, late or blocking.

Belongs here: the declared steps of a feed, the stored state of a step and of its leases, the judgement of an item against
them, and the choice of what comes next. Pure: state in, judgement out; the writes that follow from it are in `transitions`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal

from manifest_platform.manifest.item import Item, ItemKey
from manifest_platform.manifest.records import Application, Record, State, format_time, parse_time
from manifest_platform.releases import FORM, NEEDS, OWN, RELEASE, Form, marked, unknown, unmarked
from manifest_platform.remedies import Action, Remedy, after_failure


class Mode(StrEnum):
    """What a step is about in its dataset. A mode that a later release stored reads as itself, and is none of these."""

    INCREMENTAL = "INCREMENTAL"
    FULL_LOAD = "FULL_LOAD"

    @classmethod
    def _missing_(cls, value: object) -> Mode | None:
        if not isinstance(value, str):
            return None
        unknown = str.__new__(cls, value)
        unknown._name_, unknown._value_ = value, value
        return unknown


BEYOND_IDS = "\x7f"
"""Sorts behind every item id: `<sort>#<this>` is the position behind all items of a sort key."""


def position_name(feed: str, position: str) -> str:
    """What people call a position: the name of its item; where a snapshot put it, the snapshot's stop time."""
    sort, _, id_ = position.partition("#")
    return sort if id_ in ("", BEYOND_IDS) else ItemKey(feed, sort, id_).name


@dataclass(frozen=True)
class Step:
    """What an application does on a feed, and in which order.

    `order`: `any` takes every item whose upstream is done, oldest first, many at once; `strict` takes the earliest item
    that is not done, or nothing; `full` takes the one snapshot for which a full load was begun. `covers`, for `full`: the
    feeds that a snapshot contains up to its stop time, which is written as their sort keys are. `late`, for strict steps: an
    item that arrives behind the watermark is set aside for the operator (`quarantine`) or loaded next and marked late
    (`append`, for tables that only append). The policy is for items that arrive from now on: one that is set aside stays so
    until it is unskipped, one that waits is loaded. `gap`: `contiguous` demands that an item starts where the item before it
    stopped. `max_attempts` bounds how often an attempt that died or hit a passing fault is repeated without a person.
    `numbered`: its completions get numbers in the order in which they are committed, over all of the dataset's feeds.
    `needs_full`, for strict steps: nothing is done before a snapshot that covers the feed was loaded.
    """

    application: Application
    upstream: tuple[str, ...] = ()
    order: Literal["any", "strict", "full"] = "any"
    late: Literal["quarantine", "append"] = "quarantine"
    gap: Literal["none", "contiguous"] = "none"
    max_attempts: int = 3
    covers: tuple[str, ...] = ()
    numbered: bool = False
    needs_full: bool = False

    @property
    def ordered(self) -> bool:
        """Whether what may be claimed rests on the step's state, so that it claims one item at a time."""
        return self.order != "any"


@dataclass(frozen=True)
class FeedState:
    """What an ordered step remembers of a feed.

    `watermark`: position of the newest item such that it and all before it are done. `swept`: up to where the stretch that
    the watermark jumped was looked at again. Counters: `applied`, `skipped`, `quarantined`, and `late` (late items that
    wait to be appended). `stop`: where the watermark item's window stops, for the gap rule. Work of an epoch before
    `serving_epoch` counts no more; `boundary`: position up to which a full load's snapshot contains the feed. `believed`: the
    id of the attempt, its Processing record, that the sink applied last as far as the manifest knows; empty before the first.
    `accepted`: the token under which the sink was last taken as it is; what was done under an older one it may lack. `unknown`:
    what a newer release wrote beside, which is written back.
    """

    watermark: str = ""
    swept: str = ""
    stop: str | None = None
    serving_epoch: int = 1
    boundary: str = ""
    believed: str = ""
    accepted: int = 0
    applied: int = 0
    skipped: int = 0
    quarantined: int = 0
    late: int = 0
    unknown: dict[str, Any] = field(default_factory=dict, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """The stored form. Release 0.1.0 names the first key that it does not know, so that comes first."""
        data = dataclasses.asdict(self)
        return {NEEDS.format(RELEASE): FORM, **data.pop("unknown"), **data}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> FeedState:
        """The state of its stored form."""
        names = {one.name for one in dataclasses.fields(cls)} - {"unknown"}
        others = unknown(data, {*names, NEEDS.format(RELEASE)})
        return cls(**{name: data[name] for name in names & data.keys()}, unknown=others)


@dataclass(frozen=True)
class StepState:
    """The stored state of a step over all feeds of its dataset; `version` is the row's, for conditions.

    `mode`: INCREMENTAL, or FULL_LOAD while the snapshot at position `full` is to be loaded and all other feeds are held.
    `epoch`: the generation of the warehouse's data. `boundary`: the stop time of the snapshot loaded last. `form`: which
    release wrote the row; `unknown`: what it has that this one does not know, which is written back.
    """

    mode: Mode = Mode.INCREMENTAL
    epoch: int = 1
    boundary: str | None = None
    full: str | None = None
    feeds: dict[str, FeedState] = field(default_factory=dict)
    version: int = 0
    form: Form = field(default=OWN, compare=False)
    unknown: dict[str, Any] = field(default_factory=dict, compare=False)

    def feed(self, name: str) -> FeedState:
        """The state of a feed; a fresh one for a feed that nothing was done on yet."""
        return self.feeds.get(name, FeedState())

    def seen_by(self, step: Step, name: str) -> FeedState:
        """The feed as a step judges its items: of a snapshot, only a load of the epoch that was begun for it counts."""
        feed = self.feed(name)
        loading = step.order == "full" and self.mode is Mode.FULL_LOAD
        return dataclasses.replace(feed, serving_epoch=self.epoch) if loading else feed

    def with_feed(self, name: str, **changes: Any) -> StepState:
        """The state after changes to one feed."""
        changed = dataclasses.replace(self.feed(name), **changes)
        return dataclasses.replace(self, feeds={**self.feeds, name: changed})

    def to_dict(self) -> dict[str, Any]:
        """The stored form."""
        return {
            **self.unknown,
            "version": FORM,
            "release": RELEASE,
            "mode": marked(str(self.mode)),
            "epoch": self.epoch,
            "boundary": self.boundary,
            "full": self.full,
            "feeds": {name: feed.to_dict() for name, feed in self.feeds.items()},
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], version: int) -> StepState:
        """The state of its stored form."""
        feeds = {name: FeedState.from_dict(feed) for name, feed in data["feeds"].items()}
        others = unknown(data, {"version", "release", "mode", "epoch", "boundary", "full", "feeds"})
        form = Form.of(data)
        return cls(
            Mode(unmarked(data["mode"])), data["epoch"], data["boundary"], data.get("full"), feeds, version, form, others
        )


GIVEN_BACK = datetime(1970, 1, 1, tzinfo=UTC)
"""When a lease runs out that was given back: a time that is over by every clock, and that every release reads."""


@dataclass(frozen=True)
class SinkState:
    """What a sink that was set back says of a feed, for the manifest to believe.

    `record`: the record of the load that it applied last, "" where it applied none. `applied`: the position of the newest item
    that it has; `stop`: where that item's window ends. `swept`: the position up to which no item was reopened.
    `lacks_snapshot`: whether it lacks the snapshot that the feed follows.
    """

    record: str
    applied: str
    stop: str | None
    swept: str
    lacks_snapshot: bool = False


@dataclass(frozen=True)
class LeaseState:
    """The stored lease of (application, feed): who may work, until when (UTC), under which token, on which item.

    The token only grows. `current` is the position of the item claimed last; a new holder settles it first. `nonce` tells
    the writer's own write apart when an answer was lost. `purpose`: what it is held for, where that is no step's work. `form`:
    which release wrote the row; `unknown`: what it has that this one does not know, which is written back.
    """

    holder: str
    run_id: str | None
    token: int
    expires_at: datetime
    current: str | None
    nonce: str
    version: int = 0
    purpose: str = ""
    form: Form = field(default=OWN, compare=False)
    unknown: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def given_back(self) -> bool:
        """Whether it did not run out but was ended, by its holder or by somebody who knows that the holder is dead."""
        return self.expires_at == GIVEN_BACK

    def is_live(self, now: datetime) -> bool:
        """Whether the holder still may work, by the clock. Clocks decide when a takeover is tried, not whether it is safe."""
        return now < self.expires_at

    def to_dict(self) -> dict[str, Any]:
        """The stored form."""
        return {
            **self.unknown,
            NEEDS.format(RELEASE): FORM,
            "holder": self.holder,
            "run_id": self.run_id,
            "token": self.token,
            "expires_at": format_time(self.expires_at),
            "current": self.current,
            "nonce": self.nonce,
            **({"purpose": self.purpose} if self.purpose else {}),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], version: int) -> LeaseState:
        """The lease of its stored form."""
        names = ("holder", "run_id", "token", "expires_at", "current", "nonce")
        form = Form.of_key(data)
        fields: dict[str, Any] = {name: data[name] for name in names} | {"expires_at": parse_time(data["expires_at"])}
        others = unknown(data, {*names, "purpose", NEEDS.format(form.release)})
        return cls(**fields, version=version, purpose=data.get("purpose", ""), form=form, unknown=others)


class Standing(StrEnum):
    """How an item stands with one step."""

    DONE = "done"
    SKIPPED = "skipped"
    SUPERSEDED = "superseded"
    LATE = "late"
    READY = "ready"
    WAITING = "waiting"
    PROCESSING = "processing"
    FAILED = "failed"
    GAP = "gap"
    OVERLAP = "overlap"
    NEEDS_FULL = "needs full"
    CUT_OFF = "cut off"
    MODE = "mode"
    INVALID = "invalid"


@dataclass(frozen=True)
class Judgement:
    """An item's standing with a step; where it is blocked, the reason in words and the record at fault."""

    standing: Standing
    reason: str = ""
    record: Record | None = None


PASSED = frozenset({Standing.DONE, Standing.SKIPPED, Standing.SUPERSEDED})
"""Standings that the watermark moves over, with nothing left to do. An item that is set aside is passed too."""


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
    late = step.order == "strict" and item.is_late_for(application, feed.serving_epoch)
    if late and item.is_set_aside_for(application):
        return Judgement(Standing.LATE, "it arrived behind the watermark and is set aside", item.records[0])
    if step.order == "strict" and not late and item.key.position <= feed.boundary:
        return Judgement(Standing.SUPERSEDED, f"the full load of epoch {feed.serving_epoch} contains it")
    for upstream in step.upstream:
        cut_off = item.skipped_for(Application.parse(upstream))
        if cut_off:
            reason = f"{upstream} is told to skip it, so {application.key} never gets it: unskip it, or skip it for all"
            return Judgement(Standing.CUT_OFF, reason, cut_off)
    blocker = item.blocker({application.key: feed.serving_epoch})
    if blocker and blocker.state is State.FAILED:
        message = blocker.data.get("message", "no message")
        return Judgement(Standing.FAILED, f"{blocker.application.key} failed: {message}", blocker)
    if blocker:
        return Judgement(Standing.PROCESSING, f"{blocker.application.key} is working on it ({blocker.author})", blocker)
    for upstream in step.upstream:
        if not item.processed_by(Application.parse(upstream), feed.serving_epoch):
            return Judgement(Standing.WAITING, f"{upstream} has not processed it yet", item.records[-1])
    if step.needs_full and not feed.boundary:
        return Judgement(Standing.NEEDS_FULL, "no snapshot was loaded yet that it could follow", item.records[-1])
    return _judge_start(item, step, feed)


def _judge_start(item: Item, step: Step, feed: FeedState) -> Judgement:
    """Whether an item's window begins where the one before it stopped, for steps that demand it.

    The first window after a snapshot may begin before the snapshot was taken: it says again what that contains.
    """
    landed, ahead = item.landed, item.key.position > feed.watermark
    if step.gap != "contiguous" or not ahead or feed.stop is None or landed is None or landed.start == feed.stop:
        return Judgement(Standing.READY)
    start = landed.start
    if start is None or start > feed.stop:
        reason = f"gap: it starts at {start}, and the item before it stopped at {feed.stop}"
        return Judgement(Standing.GAP, reason, item.records[-1])
    if feed.watermark == feed.boundary:
        return Judgement(Standing.READY)
    reason = f"overlap: it starts at {start}, and the item before it stopped at {feed.stop} only"
    return Judgement(Standing.OVERLAP, reason, item.records[-1])


@dataclass(frozen=True)
class Ready:
    """The item that may be claimed now. `state` is what the claim will be conditional on."""

    item: Item
    state: StepState


_ACTIONS = {
    Standing.FAILED: Action.RESOLVE,
    Standing.CUT_OFF: Action.UNSKIP,
    Standing.GAP: Action.CAPTURE,
    Standing.NEEDS_FULL: Action.BEGIN_FULL_LOAD,
    Standing.INVALID: Action.READ_RECORDS,
    Standing.WAITING: Action.DRAIN,
    Standing.READY: Action.DRAIN,
}
"""What helps where an item stands so and stops its feed; where nothing is named, a person has to look first."""


@dataclass(frozen=True)
class Blocked:
    """The item that must come next and cannot: why, since when, and what helps."""

    item: Item
    standing: Standing
    reason: str
    since: datetime
    remedy: Remedy


@dataclass(frozen=True)
class Abandoned:
    """A Processing item whose worker no longer holds the lease: settle it with the sink before anything else."""

    item: Item
    processing: Record


@dataclass(frozen=True)
class Idle:
    """Nothing to do."""


@dataclass(frozen=True)
class Jumped:
    """An item that was registered while the watermark moved past it: it is marked late before anything else is chosen."""

    item: Item


Verdict = Ready | Blocked | Abandoned | Idle


def choose(
    step: Step, state: StepState, feed: str, late: Iterable[Item], items: Iterable[Item], holding: bool = False
) -> Verdict | Jumped:
    """What a strict step does next on a feed: the earliest item that is not done, or nothing.

    `late`: the late items that wait to be appended; they come first. `items`: those beyond the swept watermark, in order.
    Both are read as far as needed. `holding`: the caller holds the lease, so an open Processing of the step is a dead worker's.
    What was reopened behind the watermark is not late: it was registered in time, and the sink says whether it can be applied.
    """
    standing = state.feed(feed)
    if state.mode is not Mode.INCREMENTAL:
        waiting = (one for one in items if one.key.position > standing.watermark)
        item = next(waiting, None)
        reason = f"{step.application.key} is loading {position_name(feed, state.full or '')} in full: other feeds wait"
        return blocked(item, Judgement(Standing.MODE, reason)) if item else Idle()
    overdue = _choose_late(step, state, feed, late, holding)
    for item in items:
        judged = judge(item, step, standing)
        if item.key.position <= standing.watermark:
            if judged.standing not in PASSED and not item.is_late_for(step.application, standing.serving_epoch):
                if not item.is_reopened_for(step.application):
                    return Jumped(item)
                overdue = overdue or verdict_on(item, judged, step, state, holding)
        elif overdue:
            return overdue
        elif judged.standing not in PASSED and judged.standing is not Standing.LATE:
            return verdict_on(item, judged, step, state, holding)
        standing = passed(standing, item, judged)
    return overdue or Idle()


def _choose_late(step: Step, state: StepState, feed: str, late: Iterable[Item], holding: bool) -> Verdict | None:
    standing = state.feed(feed)
    for item in late:
        judged = judge(item, step, standing)
        if judged.standing not in PASSED:
            return verdict_on(item, judged, step, state, holding)
    return None


def choose_full(step: Step, state: StepState, item: Item | None, holding: bool = False) -> Verdict:
    """What a step that loads snapshots does next: `item` is the snapshot that a full load was begun for, None without one."""
    if item is None:
        return Idle()
    return verdict_on(item, judge(item, step, state.seen_by(step, item.key.feed)), step, state, holding)


def verdict_on(item: Item, judged: Judgement, step: Step, state: StepState, holding: bool) -> Verdict:
    """The verdict on the item that must come next, by how it stands."""
    if judged.standing is Standing.READY:
        return Ready(item, state)
    record = judged.record
    own = record is not None and record.application.key == step.application.key
    if holding and own and judged.standing is Standing.PROCESSING:
        return Abandoned(item, record)
    return blocked(item, judged)


def passed(feed: FeedState, item: Item, judged: Judgement) -> FeedState:
    """The feed as the item after this one meets it: where a passed item's window stops, the next may start."""
    over = judged.standing in PASSED or judged.standing is Standing.LATE
    if over and item.landed and item.key.position > feed.watermark:
        return dataclasses.replace(feed, stop=item.landed.stop)
    return feed


def supposing_done(feed: FeedState, item: Item) -> FeedState:
    """The feed as the item after this one will meet it once this one is done: behind what waits, nothing is a gap."""
    if item.landed and item.key.position > feed.watermark:
        return dataclasses.replace(feed, watermark=item.key.position, stop=item.landed.stop)
    return feed


def blocked(item: Item, judged: Judgement) -> Blocked:
    """The verdict on an item that stops its feed."""
    record = judged.record or item.records[-1]
    return Blocked(item, judged.standing, judged.reason, record.timestamp, _remedy(item.key.name, judged))


def _remedy(item: str, judged: Judgement) -> Remedy:
    if judged.standing is Standing.FAILED and judged.record:
        return after_failure(judged.record.data.get("remedy"), item)
    return Remedy(_ACTIONS.get(judged.standing, Action.EXPLAIN), item=item)
