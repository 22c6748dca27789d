"""The order of a dataset: what its steps declare, and whether an item is done, ready, late or blocking.

Belongs here: the declared steps of a feed, the stored state of a step and of its leases, the judgement of an item by them, and
the choice of the next item. Everything is pure: state in, judgement out. The writes that follow from a judgement are in
`transitions`; reading and writing the store is in `manifest`.
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
    """The mode of a step in its dataset. A mode that a later release stored is kept as it is, and equals none of these."""

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
"""A text that sorts behind every item id: `<sort>#<this>` is the position behind all items of a sort key."""


def position_name(feed: str, position: str) -> str:
    """The name of a position for people: the name of its item, or the snapshot's stop time if a snapshot set the position."""
    sort, _, id_ = position.partition("#")
    return sort if id_ in ("", BEYOND_IDS) else ItemKey(feed, sort, id_).name


@dataclass(frozen=True)
class Step:
    """The declaration of an application's work on a feed: its upstream applications, its order, its rules.

    - `order`: `any` takes every item whose upstream is done, oldest first, many at once; `strict` takes the earliest item that
      is not done, or nothing; `full` takes the snapshot for which a full load was begun.
    - `covers`, for `full`: the feeds that a snapshot contains up to its stop time. The stop time is written like their sort
      keys.
    - `late`, for strict steps: the policy for an item that arrives behind the watermark. `quarantine` sets it aside for a
      person; `append` loads it next and marks it late, for tables that only append. A change of the policy affects only later
      arrivals: a quarantined item stays so until it is unskipped, and a waiting late item is loaded.
    - `gap`: `contiguous` requires that an item starts where the item before it stopped.
    - `max_attempts`: the number of attempts that may die or meet a transient fault before the item waits for a person.
    - `numbered`: its completions get numbers in the order of their commits, over all of the dataset's feeds.
    - `needs_full`, for strict steps: nothing is done before a snapshot that covers the feed was loaded.
    - `targeted`: the name of the application of which each instance serves a target of its own; empty if there is none.
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
    targeted: str = ""

    def is_blocked_by(self, other: Application) -> bool:
        """True if an open claim or a failure of an application stops this step.

        A target stops only itself and the steps that wait for it. The first target also stops the steps of other names.
        """
        if other.name != self.targeted or other.key in (self.application.key, *self.upstream):
            return True
        return other.instance is None and self.application.name != other.name

    def needed(self, upstream: str) -> Application:
        """The application with the key of an upstream step. `load` is the first target's if the dataset may have several."""
        return dataclasses.replace(Application.parse(upstream), exact=bool(self.targeted))

    @property
    def ordered(self) -> bool:
        """True if a claim is conditional on the step's state, so that the step claims one item at a time."""
        return self.order != "any"


@dataclass(frozen=True)
class FeedState:
    """The state of an ordered step on a feed.

    - `watermark`: position of the newest item such that it and all items before it are done.
    - `swept`: position up to which every item was examined again. Discovery may register an item while the watermark moves past
      it; the examination finds such an item and marks it late.
    - `stop`: the stop time of the watermark item's window, for the gap rule.
    - `serving_epoch`: work of an earlier epoch does not count any more.
    - `boundary`: position up to which a full load's snapshot contains the feed.
    - `believed`: the id of the attempt (its Processing record) that the sink applied last, as far as the manifest knows; empty
      before the first.
    - `accepted`: the token under which the sink was last accepted as it is; the sink may lack items that were done under an
      older token.
    - Counters: `applied`, `skipped`, `quarantined`, `late` (late items that wait to be appended; the standing LATE is that
      of a quarantined item), and `reloads` (items whose rows wait to be replaced).
    - `unknown`: attributes that a newer release wrote; they are written back.
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
    reloads: int = 0
    unknown: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def has_waiting(self) -> bool:
        """True if items behind the watermark wait: late items, and items to reload."""
        return bool(self.late or self.reloads)

    def to_dict(self) -> dict[str, Any]:
        """The stored form.

        Release 0.1.0 reports the first key that it does not know, so the key that names the release comes first.
        """
        data = dataclasses.asdict(self)
        return {NEEDS.format(RELEASE): FORM, **data.pop("unknown"), **data}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> FeedState:
        """Parses the stored form."""
        names = {one.name for one in dataclasses.fields(cls)} - {"unknown"}
        others = unknown(data, {*names, NEEDS.format(RELEASE)})
        return cls(**{name: data[name] for name in names & data.keys()}, unknown=others)


@dataclass(frozen=True)
class StepState:
    """The stored state of a step over all feeds of its dataset; `version` is the row's, for conditions.

    - `mode`: INCREMENTAL, or FULL_LOAD while the snapshot at position `full` is being loaded and all other feeds are held.
    - `epoch`: the generation of the warehouse's data.
    - `boundary`: the stop time of the snapshot loaded last.
    - `form`: the release that wrote the row. `unknown`: attributes that this release does not know; they are written back.
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
        """The state of a feed; a fresh state for a feed without any work."""
        return self.feeds.get(name, FeedState())

    @property
    def has_begun(self) -> bool:
        """True if the step has done an item, or has begun to: then it is too late to choose where it starts."""
        return self.epoch > 1 or any(feed.watermark or feed.boundary for feed in self.feeds.values())

    def seen_by(self, step: Step, name: str) -> FeedState:
        """The state of a feed by which a step judges its items.

        For a snapshot, only a load in the epoch that was begun for it counts.
        """
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
        """Parses the stored form."""
        feeds = {name: FeedState.from_dict(feed) for name, feed in data["feeds"].items()}
        others = unknown(data, {"version", "release", "mode", "epoch", "boundary", "full", "feeds"})
        form = Form.of(data)
        return cls(
            Mode(unmarked(data["mode"])), data["epoch"], data["boundary"], data.get("full"), feeds, version, form, others
        )


GIVEN_BACK = datetime(1970, 1, 1, tzinfo=UTC)
"""The expiry of a lease that was given back: a past time by every clock, which every release can read."""


@dataclass(frozen=True)
class SinkState:
    """The state of a feed in a sink that was set back, for the manifest to believe.

    - `record`: the record of the load that the sink applied last; "" if it applied none.
    - `applied`: the position of the newest item that it has; `stop`: the stop time of that item's window.
    - `swept`: the position up to which no item was reopened.
    - `lacks_snapshot`: the sink lacks the snapshot on which the feed is based.
    """

    record: str
    applied: str
    stop: str | None
    swept: str
    lacks_snapshot: bool = False


@dataclass(frozen=True)
class LeaseState:
    """The stored lease of (application, feed): its holder, expiry (UTC), token, and current item.

    The token only grows. `current` is the position of the item claimed last; a new holder settles it first. `through`: the
    position of the last of the items that were claimed together with it; None if it was claimed alone. `nonce` identifies the
    writer's own write after a lost answer. `purpose`: the reason for the lease, if it is not for a step's work. `form`: the
    release that wrote the row; `unknown`: attributes that this release does not know; they are written back.
    """

    holder: str
    run_id: str | None
    token: int
    expires_at: datetime
    current: str | None
    nonce: str
    version: int = 0
    purpose: str = ""
    through: str | None = None
    form: Form = field(default=OWN, compare=False)
    unknown: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def given_back(self) -> bool:
        """True if the lease did not expire but was ended, by its holder or by somebody who knows that the holder is dead."""
        return self.expires_at == GIVEN_BACK

    def is_live(self, now: datetime) -> bool:
        """True if the holder may still work, by the clock. Clocks decide when a takeover is tried, not whether it is safe."""
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
            **({"through": self.through} if self.through else {}),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], version: int) -> LeaseState:
        """Parses the stored form."""
        names = ("holder", "run_id", "token", "expires_at", "current", "nonce")
        form = Form.of_key(data)
        fields: dict[str, Any] = {name: data[name] for name in names} | {"expires_at": parse_time(data["expires_at"])}
        others = unknown(data, {*names, "purpose", "through", NEEDS.format(form.release)})
        through = data.get("through")
        return cls(**fields, version=version, purpose=data.get("purpose", ""), through=through, form=form, unknown=others)


class Standing(StrEnum):
    """The state of an item for one step, as judged by `judge`.

    - SUPERSEDED: a loaded snapshot contains the item. MODE: a full load is in progress, and other feeds wait.
    - LATE: late and quarantined. A late item that will be appended is judged like any other item.
    - WAITING: an upstream step has not processed the item. CUT_OFF: it is skipped for an upstream step.
    - GAP, OVERLAP: its window does not start where the window before it stopped.
    - NEEDS_FULL: no snapshot was loaded yet. INVALID: its records break the rules.
    """

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
    """The standing of an item for a step; for a blocked item, also the reason in words and the record that causes it."""

    standing: Standing
    reason: str = ""
    record: Record | None = None


PASSED = frozenset({Standing.DONE, Standing.SKIPPED, Standing.SUPERSEDED})
"""The standings of items that the watermark passes because nothing is left to do. It also passes quarantined items."""


def judge(item: Item, step: Step, feed: FeedState) -> Judgement:
    """Judges an item for a step.

    A skip, of the step or of its upstream, has priority over a failure: operators skip an item because it failed.
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
        if feed.serving_epoch == 1:  # no full load was done: the boundary is the start of a target
            return Judgement(Standing.SUPERSEDED, f"{application.key} started with a later item")
        return Judgement(Standing.SUPERSEDED, f"the full load of epoch {feed.serving_epoch} contains it")
    for upstream in step.upstream:
        cut_off = item.skipped_for(Application.parse(upstream))
        if cut_off:
            reason = f"it is skipped for {upstream}, so {application.key} never gets it: unskip it, or skip it for all"
            return Judgement(Standing.CUT_OFF, reason, cut_off)
    blocker = item.blocker({application.key: feed.serving_epoch}, step.is_blocked_by)
    if blocker and blocker.state is State.FAILED:
        message = blocker.data.get("message", "no message")
        return Judgement(Standing.FAILED, f"{blocker.application.key} failed: {message}", blocker)
    if blocker:
        return Judgement(Standing.PROCESSING, f"{blocker.application.key} is working on it ({blocker.author})", blocker)
    for upstream in step.upstream:
        if not item.processed_by(step.needed(upstream), feed.serving_epoch):
            return Judgement(Standing.WAITING, f"{upstream} has not processed it yet", item.records[-1])
    if step.needs_full and not feed.boundary:
        return Judgement(Standing.NEEDS_FULL, "no snapshot was loaded yet that it could follow", item.records[-1])
    return _judge_start(item, step, feed)


def _judge_start(item: Item, step: Step, feed: FeedState) -> Judgement:
    """Judges whether an item's window starts where the window before it stopped, for steps that require it.

    The first window after a snapshot may start before the snapshot was taken: it repeats changes that the snapshot contains.
    """
    landed, ahead = item.landed, item.key.position > feed.watermark
    if step.gap != "contiguous" or not ahead or feed.stop is None or landed is None or landed.start == feed.stop:
        return Judgement(Standing.READY)
    start = landed.start
    if start is None or start > feed.stop:
        reason = f"gap: it starts at {start}, but the item before it stopped at {feed.stop}"
        return Judgement(Standing.GAP, reason, item.records[-1])
    if feed.watermark == feed.boundary:
        return Judgement(Standing.READY)
    reason = f"overlap: it starts at {start}, but the item before it stopped only at {feed.stop}"
    return Judgement(Standing.OVERLAP, reason, item.records[-1])


@dataclass(frozen=True)
class Ready:
    """The item that may be claimed now. The claim will be conditional on `state`."""

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
"""The remedy by the standing of the item that stops its feed. For any other standing a person has to look first."""


@dataclass(frozen=True)
class Blocked:
    """The next item of a feed, which cannot be claimed: the reason, since when, and the remedy."""

    item: Item
    standing: Standing
    reason: str
    since: datetime
    remedy: Remedy


@dataclass(frozen=True)
class Abandoned:
    """A Processing item whose worker no longer holds the lease: it must be settled with the sink before anything else."""

    item: Item
    processing: Record


@dataclass(frozen=True)
class Idle:
    """The verdict that there is nothing to do."""


@dataclass(frozen=True)
class Jumped:
    """An item that was registered while the watermark moved past it: it must be marked late before the next choice."""

    item: Item


Verdict = Ready | Blocked | Abandoned | Idle


def choose(
    step: Step, state: StepState, feed: str, late: Iterable[Item], items: Iterable[Item], holding: bool = False
) -> Verdict | Jumped:
    """Chooses the next item of a strict step on a feed: the earliest item that is not done, or nothing.

    `late`: the late items that wait to be appended; they come first. `items`: the items beyond the swept watermark, in order.
    Both are read only as far as needed. `holding`: the caller holds the lease, so an open Processing of the step is a dead
    worker's.

    An item that was reopened behind the watermark is not late: it was registered in time, and the sink decides whether it can
    be applied.
    """
    standing = state.feed(feed)
    if state.mode is not Mode.INCREMENTAL:
        waiting = (one for one in items if one.key.position > standing.watermark)
        item = next(waiting, None)
        reason = f"{step.application.key} is loading {position_name(feed, state.full or '')} in full: other feeds wait"
        return blocked(item, Judgement(Standing.MODE, reason), step) if item else Idle()
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
        if item.key.position > standing.watermark and not item.is_late_for(step.application, standing.serving_epoch):
            continue  # to be reloaded, but the sink was set back to before it: it comes in its order
        judged = judge(item, step, standing)
        if judged.standing not in PASSED:
            return verdict_on(item, judged, step, state, holding)
    return None


def choose_full(step: Step, state: StepState, item: Item | None, holding: bool = False) -> Verdict:
    """Chooses the next item of a step that loads snapshots. `item`: the snapshot whose full load was begun, or None."""
    if item is None:
        return Idle()
    return verdict_on(item, judge(item, step, state.seen_by(step, item.key.feed)), step, state, holding)


def verdict_on(item: Item, judged: Judgement, step: Step, state: StepState, holding: bool) -> Verdict:
    """The verdict on the next item of a feed, by its judgement."""
    if judged.standing is Standing.READY:
        return Ready(item, state)
    record = judged.record
    own = record is not None and record.application.key == step.application.key
    if holding and own and judged.standing is Standing.PROCESSING:
        return Abandoned(item, record)
    return blocked(item, judged, step)


def passed(feed: FeedState, item: Item, judged: Judgement) -> FeedState:
    """Returns the feed's state by which the following item is judged, after an item that the watermark passes.

    The next window must start where the window of the passed item stops.
    """
    over = judged.standing in PASSED or judged.standing is Standing.LATE
    if over and item.landed and item.key.position > feed.watermark:
        return dataclasses.replace(feed, stop=item.landed.stop)
    return feed


def supposing_done(feed: FeedState, item: Item) -> FeedState:
    """Returns the feed's state by which the following item is judged, as if this item were done.

    It prevents that an item behind a waiting item is judged as a gap.
    """
    if item.landed and item.key.position > feed.watermark:
        return dataclasses.replace(feed, watermark=item.key.position, stop=item.landed.stop)
    return feed


def blocked(item: Item, judged: Judgement, step: Step | None = None) -> Blocked:
    """The verdict on an item that stops its feed. `step`: names the target that the remedy is for."""
    record = judged.record or item.records[-1]
    remedy = _remedy(item.key.name, judged)
    own = step and (judged.standing is not Standing.FAILED or record.application.key == step.application.key)
    if step and own and step.application.instance:
        remedy = dataclasses.replace(remedy, target=step.application.instance)
    return Blocked(item, judged.standing, judged.reason, record.timestamp, remedy)


def _remedy(item: str, judged: Judgement) -> Remedy:
    if judged.standing is Standing.FAILED and judged.record:
        return after_failure(judged.record.data.get("remedy"), item)
    return Remedy(_ACTIONS.get(judged.standing, Action.EXPLAIN), item=item)
