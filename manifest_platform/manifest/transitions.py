"""Every change of the manifest as a pure function: state in, writes out.

Belongs here: which writes a step of the protocol consists of, and on which conditions they rest. No store is called, no
clock read: the time, author and record id come in with a Stamp. `manifest` reads what these functions need, and transacts
what they return.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from manifest_platform.manifest.dataset import INCREMENTAL, PASSED, LeaseState, Standing, Step, StepState, judge
from manifest_platform.manifest.item import Item, ItemKey, Landed, lateness
from manifest_platform.manifest.records import (
    EVERYONE,
    FAILURE,
    REASON,
    Application,
    CouplingViolation,
    Payload,
    Record,
    Stamp,
    State,
    coupling_problem,
)
from manifest_platform.manifest.store import ABSENT, Check, Delete, Put, Write

MESSAGE_LIMIT = 2048
TRACEBACK_LIMIT = 8192


class Refused(Exception):
    """The manifest does not allow what was asked, as things stand; the message says why and what to do. Nothing was written."""


class ClaimLost(Refused):
    """Somebody else has taken the item over since it was claimed: stop working on it."""


class LeaseBusy(Refused):
    """Another worker holds the lease."""

    def __init__(self, application: Application, feed: str, lease: LeaseState):
        self.lease = lease
        super().__init__(
            f"{application.key} on feed {feed} is held by {lease.holder} until {lease.expires_at:%Y-%m-%d %H:%M:%S %Z}"
        )


@dataclass(frozen=True)
class Claim:
    """The right to work on one item: its open Processing record, and the step's state that the claim rested on."""

    item: Item
    processing: Record
    step: Step
    state: StepState


@dataclass(frozen=True)
class Failure:
    """Why an attempt failed. Kind: `permanent` waits for a person; `transient` and `lease_expired` are retried, bounded."""

    kind: str
    message: str
    exception: str | None = None
    traceback: str | None = None

    def payload(self) -> Payload:
        """The payload of the Failed record; long texts are cut, the traceback at its beginning."""
        traceback = self.traceback[-TRACEBACK_LIMIT:] if self.traceback else None
        data = {**dataclasses.asdict(self), "message": self.message[:MESSAGE_LIMIT], "traceback": traceback}
        return Payload(FAILURE, {name: value for name, value in data.items() if value is not None})


def state_key(application: Application) -> str:
    """Sort key of a step's state."""
    return f"STATE#{application.key}"


def lease_key(application: Application, feed: str) -> str:
    """Sort key of a lease."""
    return f"LEASE#{application.key}#{feed}"


def looks_key(feed: str) -> str:
    """Sort key of what discovery noted of directories that are not complete yet."""
    return f"LOOKS#{feed}"


def records_prefix(feed: str, position: str = "") -> str:
    """What the sort keys of a feed's records, or of one item's, start with."""
    return f"RECORD#{feed}#{position}#" if position else f"RECORD#{feed}#"


def record_key(key: ItemKey, sequence: int) -> str:
    """Sort key of a record."""
    return f"{records_prefix(key.feed, key.position)}{sequence:06d}"


def pending_prefix(application: Application, feed: str) -> str:
    """What the sort keys of a step's waiting items start with."""
    return f"PENDING#{application.key}#{feed}#"


def pending_key(application: Application, key: ItemKey) -> str:
    """Sort key of the row that exists exactly while an item waits for an unordered step, or late for an ordered one."""
    return pending_prefix(application, key.feed) + key.position


def put_record(key: ItemKey, record: Record) -> Put:
    """The conditional append of a record: the next sequence number must be free, so no two writers extend one history."""
    return Put(record_key(key, record.sequence), record.to_dict(), ABSENT)


def put_state(application: Application, state: StepState) -> Put:
    """The write of a step's state over the version that was read."""
    return Put(state_key(application), state.to_dict(), state.version)


def append(item: Item, state: State, application: Application, stamp: Stamp, **fields: Any) -> Item:
    """The item after one more record. Raises CouplingViolation for a record that may not follow."""
    record = Record(
        item=item.key.id,
        sequence=item.sequence + 1,
        record_id=stamp.record_id,
        state=state,
        application=application,
        author=stamp.author,
        timestamp=stamp.at,
        run_id=stamp.run_id,
        **fields,
    )
    problem = coupling_problem(record, item.records)
    if problem:
        raise CouplingViolation(problem)
    return item.with_record(record)


def _is_behind(key: ItemKey, state: StepState) -> bool:
    return key.position <= state.feed(key.feed).watermark


def _quarantining(steps: Sequence[Step]) -> list[str]:
    return [step.application.key for step in steps if step.late == "quarantine"]


# What is kept beside the log: it follows from an item's records alone, before and after a change


def _waits(item: Item, step: Step) -> bool:
    """Whether an item has a waiting row of a step: it may be worked on, or is late for an ordered step and to be appended."""
    if not item.records or item.skipped_for(step.application) or item.processed_by(step.application):
        return False
    if step.order == "any":
        return all(item.processed_by(Application(name)) for name in step.upstream)
    return item.is_late_for(step.application) and not item.is_set_aside_for(step.application)


def _pending_changes(before: Item, after: Item, steps: Sequence[Step]) -> list[Write]:
    writes: list[Write] = []
    for step in steps:
        waited, waits = _waits(before, step), _waits(after, step)
        key = pending_key(step.application, after.key)
        if waits and not waited:
            writes.append(Put(key, {}, ABSENT))
        elif waited and not waits:
            writes.append(Delete(key, 1))
    return writes


def _counter(item: Item, step: Step, state: StepState) -> str | None:
    """The one counter of an ordered step's feed that counts an item."""
    if item.processed_by(step.application, state.feed(item.key.feed).serving_epoch):
        return "applied"
    if item.skipped_for(step.application):
        return "skipped"
    if item.is_late_for(step.application):
        return "quarantined" if item.is_set_aside_for(step.application) else "late"
    return None


def _recount(before: Item, after: Item, step: Step, state: StepState) -> StepState:
    """The state whose counters follow an item's change."""
    feed, was, now = after.key.feed, _counter(before, step, state), _counter(after, step, state)
    if was and was != now:
        state = state.with_feed(feed, **{was: getattr(state.feed(feed), was) - 1})
    if now and was != now:
        state = state.with_feed(feed, **{now: getattr(state.feed(feed), now) + 1})
    return state


def _recounts(before: Item, after: Item, steps: Sequence[Step], states: Mapping[str, StepState]) -> list[Write]:
    """The writes of the ordered steps' states whose counters an item's change moves."""
    writes: list[Write] = []
    for step in steps:
        if step.order == "strict":
            state = states[step.application.key]
            counted = _recount(before, after, step, state)
            if counted != state:
                writes.append(put_state(step.application, counted))
    return writes


# Discovery


def discover(
    landed: Sequence[Landed],
    steps: Sequence[Step],
    states: Mapping[str, StepState],
    application: Application,
    stamp: Stamp,
) -> list[Write]:
    """Registers directories that the manifest does not know, all of one feed.

    Conditional on the ordered steps' states: an item is late or not by the watermark that was read, and that must
    still be the watermark when it is written.
    """
    states = dict(states)
    writes: list[Write] = []
    for found in landed:
        late = [step for step in steps if step.order == "strict" and _is_behind(found.key, states[step.application.key])]
        payload = found.payload([step.application.key for step in late], _quarantining(late))
        own = dataclasses.replace(stamp, record_id=str(uuid4()))
        unknown = Item(found.key, ())
        item = append(unknown, State.NEW, application, own, payload=payload)
        writes.append(put_record(found.key, item.records[-1]))
        writes.extend(_pending_changes(unknown, item, steps))
        for step in late:
            states[step.application.key] = _recount(unknown, item, step, states[step.application.key])
    for step in steps:
        if step.order == "strict":
            state = states[step.application.key]
            counted = any(_is_behind(found.key, state) for found in landed)
            key = state_key(step.application)
            writes.append(put_state(step.application, state) if counted else Check(key, state.version))
    return writes


def sweep(item: Item, step: Step, state: StepState, application: Application, stamp: Stamp) -> list[Write]:
    """Marks an item late that was registered while the watermark jumped over it."""
    reason = "registered while a later item was being applied"
    data = {"reason": reason, **lateness([step.application.key], _quarantining([step])), "keeps_skips": True}
    marked = append(item, State.NEW, application, stamp, payload=Payload(REASON, data))
    return [
        put_record(item.key, marked.records[-1]),
        *_pending_changes(item, marked, [step]),
        put_state(step.application, _recount(item, marked, step, state)),
    ]


# Work


def acquire(
    application: Application, feed: str, lease: LeaseState | None, holder: str, stamp: Stamp, duration: timedelta
) -> LeaseState:
    """The lease that a worker takes: a higher token, the same current item. Raises LeaseBusy while another's is live."""
    if lease and lease.is_live(stamp.at):
        raise LeaseBusy(application, feed, lease)
    expires = stamp.at + duration
    token, current, version = (lease.token + 1, lease.current, lease.version) if lease else (1, None, ABSENT)
    return LeaseState(holder, stamp.run_id, token, expires, current, stamp.record_id, version)


def claim(items: Sequence[Item], step: Step, state: StepState, token: int, stamp: Stamp) -> tuple[list[Claim], list[Write]]:
    """Opens a Processing record on each item. The caller adds the write of its lease.

    An ordered step's claim also rests on the state that chose the item: mode, epoch and watermark are still those. Raises
    Refused for an item that is not ready, by the same rules that choose one.
    """
    strict = step.order == "strict"
    if strict and len(items) != 1:
        raise Refused(f"{step.application.key} works in strict order: it claims one item at a time, not {len(items)}")
    claims: list[Claim] = []
    for item in items:
        _require_ready(item, step, state)
        new = next((record.record_id for record in reversed(item.records) if record.state is State.NEW), None)
        own = dataclasses.replace(stamp, record_id=str(uuid4()))
        epoch = state.epoch if strict else None
        claimed = append(item, State.PROCESSING, step.application, own, previous=new, epoch=epoch, token=token)
        claims.append(Claim(claimed, claimed.records[-1], step, state))
    writes: list[Write] = [put_record(one.item.key, one.processing) for one in claims]
    if strict:
        writes.append(Check(state_key(step.application), state.version))
    return claims, writes


def _require_ready(item: Item, step: Step, state: StepState) -> None:
    feed = state.feed(item.key.feed)
    judged = judge(item, dataclasses.replace(step, gap="none"), feed)  # a gap is judged with the items before it at hand
    if judged.standing is not Standing.READY:
        raise Refused(f"{item.key.name} cannot be claimed by {step.application.key}: {judged.standing}. {judged.reason}")
    if step.order == "strict" and state.mode != INCREMENTAL:
        raise Refused(f"{item.key.name} cannot be claimed: {step.application.key} is in mode {state.mode}")
    if step.order == "strict" and _is_behind(item.key, state) and not item.is_late_for(step.application):
        raise Refused(f"{item.key.name} lies behind the watermark of {step.application.key}: ask what is next")


def _require_open(item: Item, processing: Record) -> None:
    consumers = [record for record in item.records if record.previous == processing.record_id]
    if consumers:
        by = consumers[0]
        raise ClaimLost(f"{item.key.name}: the claim was ended by {by.author} ({by.state} at {by.timestamp:%H:%M:%S %Z})")


def complete(
    item: Item,
    held: Claim,
    state: StepState,
    payload: Payload,
    steps: Sequence[Step],
    stamp: Stamp,
    epoch: int | None = None,
) -> list[Write]:
    """Ends a claim well: the record, and with it all that follows from it, in one transaction.

    An ordered step's watermark moves to the item (not for a late one). `epoch` is the ledger's where a takeover adopts
    what another worker committed: what counts then is that the ledger's entry still serves, whatever FULL load was begun and
    cancelled since the claim. Raises ClaimLost if the claim was ended, or the epoch or mode changed under it.
    """
    step, processing = held.step, held.processing
    _require_open(item, processing)
    application, key = step.application, item.key
    if step.order == "strict":
        serves = state.epoch == processing.epoch if epoch is None else epoch >= state.feed(key.feed).serving_epoch
        epoch = processing.epoch if epoch is None else epoch
        if state.mode != INCREMENTAL or not serves:
            raise ClaimLost(
                f"{key.name}: done in epoch {epoch}, and now {application.key} is in epoch {state.epoch}, mode {state.mode}"
            )
    done = append(
        item,
        State.PROCESSED,
        application,
        stamp,
        previous=processing.record_id,
        epoch=epoch,
        token=processing.token,
        payload=payload,
    )
    writes: list[Write] = [put_record(key, done.records[-1]), *_pending_changes(item, done, steps)]
    if step.order == "strict":
        moved = _recount(item, done, step, state)
        writes.append(put_state(application, moved if _is_behind(key, state) else _advance(item, moved, held.state)))
    return writes


def _advance(item: Item, state: StepState, claimed_under: StepState) -> StepState:
    """The watermark on the item; what lay before the watermark of the claim was looked at when it was claimed."""
    name = item.key.feed
    return state.with_feed(
        name,
        watermark=item.key.position,
        swept=claimed_under.feed(name).watermark,
        stop=item.landed.stop if item.landed else None,
    )


def output(item: Item, application: Application, payload: Payload, steps: Sequence[Step], stamp: Stamp) -> list[Write]:
    """Processing and Processed at once, by an application outside the steps; and the waiting rows that follow."""
    opened = append(item, State.PROCESSING, application, dataclasses.replace(stamp, record_id=str(uuid4())))
    opening = opened.records[-1]
    done = append(opened, State.PROCESSED, application, stamp, previous=opening.record_id, payload=payload)
    records = [put_record(item.key, record) for record in reversed(done.records[-2:])]
    return [*records, *_pending_changes(item, done, steps)]


def fail(item: Item, held: Claim, failure: Failure, stamp: Stamp) -> list[Write]:
    """Ends a claim badly. A passing fault or a lost lease is resolved by the policy, as often as the step allows.

    Raises ClaimLost if the claim was ended by somebody else.
    """
    processing, step = held.processing, held.step
    _require_open(item, processing)
    failed = append(
        item,
        State.FAILED,
        step.application,
        stamp,
        previous=processing.record_id,
        epoch=processing.epoch,
        token=processing.token,
        payload=failure.payload(),
    )
    writes: list[Write] = [put_record(item.key, failed.records[-1])]
    attempts = failed.automatic_retries(step.application)
    if failure.kind != "permanent" and attempts < step.max_attempts:
        reason = f"attempt {attempts} of {step.max_attempts} ended by itself: retried"
        own = dataclasses.replace(stamp, record_id=str(uuid4()))
        resolved = append(
            failed,
            State.RESOLVED,
            step.application,
            own,
            previous=failed.records[-1].record_id,
            epoch=processing.epoch,
            payload=Payload(REASON, {"reason": reason, "automatic": True}),
        )
        writes.append(put_record(item.key, resolved.records[-1]))
    return writes


# Operators


def resolve(item: Item, reason: str, stamp: Stamp, serving_epoch: int = 0) -> list[Write]:
    """Frees an item that failed, for another attempt. Raises Refused if it is not blocked or is being worked on."""
    blocker = item.blocker(serving_epoch)
    if blocker is None:
        raise Refused(f"{item.key.name} is not blocked: there is nothing to resolve")
    if blocker.state is State.PROCESSING:
        raise Refused(
            f"{item.key.name} is being processed by {blocker.application.key} ({blocker.author}) since"
            f" {blocker.timestamp:%Y-%m-%d %H:%M:%S %Z}. If that worker is dead, its lease runs out and the next drain"
            " settles the item by itself"
        )
    resolved = append(
        item,
        State.RESOLVED,
        blocker.application,
        stamp,
        previous=blocker.record_id,
        epoch=blocker.epoch,
        payload=Payload(REASON, {"reason": reason}),
    )
    return [put_record(item.key, resolved.records[-1])]


def skip(
    item: Item,
    application: Application,
    reason: str,
    steps: Sequence[Step],
    states: Mapping[str, StepState],
    stamp: Stamp,
) -> list[Write]:
    """Tells an application (or `*`: every one) to pass over an item. Raises Refused if it is done or being worked on."""
    named = [step for step in steps if step.application.is_stopped_by(application)]
    if not named:
        known = ", ".join(step.application.key for step in steps)
        raise Refused(f"no step of feed {item.key.feed} is called {application.key}; there are: {known}, {EVERYONE}")
    serving = max((state.feed(item.key.feed).serving_epoch for state in states.values()), default=0)
    blocker = item.blocker(serving)
    if blocker and blocker.state is State.PROCESSING:
        raise Refused(f"{item.key.name} is being processed by {blocker.application.key}: it cannot be skipped now")
    if all(_standing(item, step, states) in PASSED for step in named):
        raise Refused(f"{item.key.name} is done or skipped already for {application.key}")
    last = item.records[-1] if item.records else None
    payload = Payload(REASON, {"reason": reason})
    skipped = append(item, State.SKIPPED, application, stamp, payload=payload, previous=last and last.record_id)
    return [
        put_record(item.key, skipped.records[-1]),
        *_pending_changes(item, skipped, steps),
        *_recounts(item, skipped, steps, states),
    ]


def _standing(item: Item, step: Step, states: Mapping[str, StepState]) -> Standing:
    state = states.get(step.application.key, StepState())  # unordered steps keep none
    return judge(item, step, state.feed(item.key.feed)).standing


def unskip(
    item: Item,
    reason: str,
    steps: Sequence[Step],
    states: Mapping[str, StepState],
    application: Application,
    stamp: Stamp,
) -> list[Write]:
    """Lifts every skip of an item, or lets a quarantined one in, by a New record.

    Where the watermark is past it, a feed that appends takes it as late; one that quarantines refuses, for its order is gone.
    """
    lifted = [step for step in steps if _standing(item, step, states) in (Standing.SKIPPED, Standing.LATE)]
    if not lifted:
        raise Refused(f"{item.key.name} is neither skipped nor set aside: there is nothing to lift")
    late = [step for step in lifted if step.order == "strict" and _is_behind(item.key, states[step.application.key])]
    for step in late:
        if step.late == "quarantine":
            raise Refused(
                f"{item.key.name} lies behind the watermark of {step.application.key}, which applies in strict order:"
                " it can only come in with a full load"
            )
    data = {"reason": reason, **lateness([step.application.key for step in late], [])}
    renewed = append(item, State.NEW, application, stamp, payload=Payload(REASON, data))
    return [
        put_record(item.key, renewed.records[-1]),
        *_pending_changes(item, renewed, steps),
        *_recounts(item, renewed, steps, states),
    ]


def expire(lease: LeaseState, now: datetime) -> LeaseState:
    """The lease, ended: given back, or known to be a dead worker's. Token and current item stay."""
    return dataclasses.replace(lease, expires_at=now, nonce=str(uuid4()))
