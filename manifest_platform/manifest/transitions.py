"""Every change of the manifest as a pure function: state in, writes out.

Belongs here: the writes of each operation, and their conditions. No store is called and no clock is read: time, author and
record id are in a Stamp. `manifest` reads what these functions need, and transacts the writes that they return. The rules that
judge an item are in `dataset`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from manifest_platform.manifest import payloads
from manifest_platform.manifest.beside import changes
from manifest_platform.manifest.claims import Claim, Failure
from manifest_platform.manifest.dataset import (
    BEYOND_IDS,
    GIVEN_BACK,
    PASSED,
    LeaseState,
    Mode,
    SinkState,
    Standing,
    Step,
    StepState,
    judge,
    position_name,
)
from manifest_platform.manifest.errors import ClaimLost, LeaseBusy, Refused
from manifest_platform.manifest.item import Item, ItemKey, Landed, Move, lateness
from manifest_platform.manifest.keys import commit_key, record_key, state_key
from manifest_platform.manifest.records import (
    CLAIM,
    EVERYONE,
    REASON,
    RELOAD_REASON,
    TARGET_REASON,
    Application,
    CouplingViolation,
    FailureKind,
    Payload,
    Record,
    Stamp,
    State,
    coupling_problem,
)
from manifest_platform.manifest.skip_rules import SkipRule
from manifest_platform.manifest.store import ABSENT, Check, Put, Write
from manifest_platform.releases import OWN
from manifest_platform.remedies import Action, Remedy

NOTHING_SKIPPED: Mapping[ItemKey, Sequence[SkipRule]] = MappingProxyType({})


def put_commit(number: int, record: Record, key: ItemKey) -> Put:
    """The write that numbers a completion. The number must be free, so numbers follow the order of the commits without gaps."""
    data = {"feed": key.feed, "position": key.position, "record_id": record.record_id}
    return Put(commit_key(number), data, ABSENT, lasting=True)


def put_record(key: ItemKey, record: Record) -> Put:
    """The conditional append of a record: its sequence number must be free, so that two writers cannot extend one history.

    Raises InvalidPayload for a payload that does not fit its schema.
    """
    payloads.check(record)
    return Put(record_key(key, record.sequence), record.to_dict(), ABSENT)


def put_state(application: Application, state: StepState) -> Put:
    """The write that replaces a step's state, if the state still has the version that was read. Raises NewerRelease."""
    state.form.require_writable(f"the state of {application.key}")
    return Put(state_key(application), state.to_dict(), state.version)


def check_state(application: Application, state: StepState) -> Check:
    """The condition that a step's state has not changed since it was read. Raises NewerRelease."""
    state.form.require_writable(f"the state of {application.key}")
    return Check(state_key(application), state.version)


def append(item: Item, state: State, application: Application, stamp: Stamp, **fields: Any) -> Item:
    """The item after one more record. Raises CouplingViolation for a record that may not follow; NewerRelease."""
    for other in item.records:
        other.form.require_writable(f"record {other.sequence} of {item.key.name}, by {other.author},")
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


def comes_late(key: ItemKey, state: StepState) -> bool:
    """True if an item is behind the watermark and beyond the boundary: an item that a snapshot contains is not late."""
    return _is_behind(key, state) and key.position > state.feed(key.feed).boundary


def _is_late(item: Item, step: Step, state: StepState) -> bool:
    return item.is_late_for(step.application, state.feed(item.key.feed).serving_epoch)


def _late_marks(feed: str, steps: Sequence[Step], states: Mapping[str, StepState]) -> dict[str, Any]:
    """The marks that an item is behind the watermarks of these steps, and is set aside if their policy says so.

    The marks name the serving epoch, not the newest epoch: an item that a full load in progress contains is not late after that
    load.
    """
    epochs = {step.application.key: states[step.application.key].feed(feed).serving_epoch for step in steps}
    return lateness(epochs, [step.application.key for step in steps if step.late == "quarantine"])


# Counters in a step's state, which follow from an item's records before and after a change


def counted_as(item: Item, step: Step, state: StepState) -> str | None:
    """The only counter of an ordered step's feed that counts an item; None if no counter does.

    A skip in force counts whatever was done before. So a full load, which ends what counts as applied or late, does not change
    it.
    """
    if item.skipped_for(step.application):
        return "skipped"
    if item.processed_by(step.application, state.feed(item.key.feed).serving_epoch):
        return "applied"
    if _is_late(item, step, state):
        return "quarantined" if item.is_set_aside_for(step.application) else "late"
    return "reloads" if item.is_reload_asked(step.application) else None


def _recount(before: Item, after: Item, step: Step, state: StepState) -> StepState:
    """Returns the state with its counters updated for an item's change."""
    feed, was, now = after.key.feed, counted_as(before, step, state), counted_as(after, step, state)
    if was and was != now:
        state = state.with_feed(feed, **{was: getattr(state.feed(feed), was) - 1})
    if now and was != now:
        state = state.with_feed(feed, **{now: getattr(state.feed(feed), now) + 1})
    return state


def _recounts(before: Item, after: Item, steps: Sequence[Step], states: Mapping[str, StepState]) -> list[Write]:
    """The writes of the ordered steps' states whose counters change with an item."""
    writes: list[Write] = []
    for step in steps:
        if step.ordered:
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
    skips: Mapping[ItemKey, Sequence[SkipRule]] = NOTHING_SKIPPED,
) -> list[Write]:
    """Registers directories of one feed that the manifest does not know.

    Directories that a rule skips get that record as well. Conditional on the ordered steps' states: the watermark and the
    boundary that were read decide if an item is late, so they must not have changed. The caller adds the condition on the skip
    rules.
    """
    states, before = dict(states), dict(states)
    writes: list[Write] = []
    for found in landed:
        late = [step for step in steps if step.order == "strict" and comes_late(found.key, states[step.application.key])]
        marks = _late_marks(found.key.feed, late, states)
        payload = found.payload(marks.get("late"), marks.get("set_aside", ()))
        own = dataclasses.replace(stamp, record_id=str(uuid4()))
        unknown = Item(found.key, ())
        item = append(unknown, State.NEW, application, own, payload=payload)
        for rule in skips.get(found.key, ()):
            by = dataclasses.replace(stamp, author=rule.author, record_id=str(uuid4()))
            who, last = Application.parse(rule.application), item.records[-1].record_id
            item = append(item, State.SKIPPED, who, by, previous=last, payload=rule.payload())
        writes.extend(put_record(found.key, record) for record in item.records)
        writes.extend(changes(unknown, item, steps))
        for step in (step for step in steps if step.ordered):
            states[step.application.key] = _recount(unknown, item, step, states[step.application.key])
    for step in (step for step in steps if step.ordered):
        state = states[step.application.key]
        if state != before[step.application.key]:
            writes.append(put_state(step.application, state))
        elif step.order == "strict":
            writes.append(check_state(step.application, state))
    return writes


def replay(
    landed: Landed,
    origins: Sequence[tuple[Item, int]],
    file: str,
    reason: str,
    steps: Sequence[Step],
    states: Mapping[str, StepState],
    application: Application,
    stamp: Stamp,
    skips: Mapping[ItemKey, Sequence[SkipRule]] = NOTHING_SKIPPED,
) -> list[Write]:
    """Registers an item that consists of bad lines of other items, together with a record of each of these.

    Each record takes the next number of its item, so of two replays of the same line only one comes through. `origins`: the
    items, each with the number of its lines. `file`: the file that names the lines.
    """
    writes = discover([landed], steps, states, application, stamp, skips)
    records = (Record.from_dict(one.data) for one in writes if isinstance(one, Put) and "record_id" in one.data)
    made = Item(landed.key, tuple(records))
    data = {"reason": reason, "replays": sorted(item.key.id for item, _ in origins), "keeps_skips": True}
    named = append(made, State.NEW, application, _own(stamp), payload=Payload(RELOAD_REASON, data))
    writes.append(put_record(landed.key, named.records[-1]))
    for item, lines in origins:
        told = {"item": landed.key.id, "lines": lines, "file": file}
        data = {"reason": reason, "replayed": told, "keeps_skips": True}
        noted = append(item, State.NEW, application, _own(stamp), payload=Payload(RELOAD_REASON, data))
        writes.append(put_record(item.key, noted.records[-1]))
    return writes


def _own(stamp: Stamp) -> Stamp:
    return dataclasses.replace(stamp, record_id=str(uuid4()))


def sweep(item: Item, step: Step, state: StepState, application: Application, stamp: Stamp) -> list[Write]:
    """Marks an item late that was registered while the watermark jumped over it."""
    reason = "registered while a later item was being applied"
    return _mark_late(item, item, step, state, reason, application, stamp)


def defer(item: Item, held: Claim, state: StepState, reason: str, stamp: Stamp) -> list[Write]:
    """Ends a claim that the sink refused because it is past the item: the item becomes late, by the step's policy.

    This happens only if the manifest was set back: it then learns late which items were applied. Raises ClaimLost if the claim
    was ended.
    """
    step, processing = held.step, held.processing
    _require_open(item, processing)
    own = dataclasses.replace(stamp, record_id=str(uuid4()))
    freed = append(
        item,
        State.RESOLVED,
        step.application,
        own,
        previous=processing.record_id,
        epoch=processing.epoch,
        payload=Payload(REASON, {"reason": reason, "automatic": True}),
    )
    writes = _mark_late(item, freed, step, state, reason, step.application, stamp)
    return [*writes, put_record(item.key, freed.records[-1])]


def _mark_late(
    before: Item, item: Item, step: Step, state: StepState, reason: str, application: Application, stamp: Stamp
) -> list[Write]:
    data = {"reason": reason, **_late_marks(item.key.feed, [step], {step.application.key: state}), "keeps_skips": True}
    marked = append(item, State.NEW, application, stamp, payload=Payload(REASON, data))
    return [
        put_record(item.key, marked.records[-1]),
        *changes(before, marked, [step]),
        put_state(step.application, _recount(before, marked, step, state)),
    ]


# Work


def acquire(
    application: Application, feed: str, lease: LeaseState | None, holder: str, stamp: Stamp, duration: timedelta
) -> LeaseState:
    """The lease that a worker takes: a higher token, the same current item. Raises LeaseBusy while another worker's is live."""
    if lease and lease.is_live(stamp.at):
        raise LeaseBusy(application, feed, lease)
    expires = stamp.at + duration
    if lease is None:
        return LeaseState(holder, stamp.run_id, 1, expires, None, stamp.record_id, ABSENT)
    lease.form.require_writable(f"the lease of {application.key} on {feed}")
    return dataclasses.replace(
        lease,
        holder=holder,
        run_id=stamp.run_id,
        token=lease.token + 1,
        expires_at=expires,
        nonce=stamp.record_id,
        purpose="",
        form=OWN,
    )


def claim(
    items: Sequence[Item], step: Step, state: StepState, token: int, stamp: Stamp, together: int = 0
) -> tuple[list[Item], list[Write]]:
    """Opens a Processing record on each item; returns the items with it, and the writes.

    The caller adds the write of its lease. The claim of an ordered step is also conditional on the state that chose the items:
    mode, epoch and watermark have not changed. `together`: the number of items claimed together, if these are a part of them.
    Raises Refused for an item that is not ready, by the same rules as the choice.
    """
    if step.ordered and not _go_together(items, step, state):
        raise Refused(f"{step.application.key} works in order: these {len(items)} items do not follow each other in it")
    together = together or len(items)
    claimed: list[Item] = []
    for item in items:
        _require_ready(item, step, state)
        new = next((record.record_id for record in reversed(item.records) if record.state is State.NEW), None)
        own = dataclasses.replace(stamp, record_id=str(uuid4()))
        epoch = state.epoch if step.ordered else None
        batch = Payload(CLAIM, {"batch": together}) if together > 1 else None
        claimed.append(
            append(item, State.PROCESSING, step.application, own, previous=new, epoch=epoch, token=token, payload=batch)
        )
    writes: list[Write] = [put_record(item.key, item.records[-1]) for item in claimed]
    for before, after in zip(items, claimed, strict=True):
        writes += changes(before, after, [step])
    if step.ordered:
        writes.append(check_state(step.application, state))
    return claimed, writes


def _go_together(items: Sequence[Item], step: Step, state: StepState) -> bool:
    """True if an ordered step may claim these items together: one item, or new items of a strict step in their order."""
    if len(items) == 1:
        return True
    ahead = [item.key.position for item in items if not _is_behind(item.key, state) and not _is_late(item, step, state)]
    return step.order == "strict" and 0 < len(ahead) == len(items) and ahead == sorted(set(ahead))


def _require_ready(item: Item, step: Step, state: StepState) -> None:
    name, application = item.key.name, step.application.key
    feed = state.seen_by(step, item.key.feed)
    judged = judge(item, dataclasses.replace(step, gap="none"), feed)  # a gap can only be judged with the items before it
    if judged.standing is not Standing.READY:
        raise Refused(f"{name} cannot be claimed by {application}: {judged.standing}. {judged.reason}")
    if step.order == "strict" and state.mode is not Mode.INCREMENTAL:
        raise Refused(f"{name} cannot be claimed: {application} is in mode {state.mode}")
    in_place = not _is_behind(item.key, state) or _is_late(item, step, state) or item.is_reopened_for(step.application)
    if step.order == "strict" and not in_place:
        raise Refused(f"{name} is behind the watermark of {application}: ask what is next", Remedy(Action.SHOW_NEXT))
    if step.order == "full" and (state.mode, state.full) != (Mode.FULL_LOAD, item.key.position):
        raise Refused(f"{name} cannot be claimed by {application}: no full load was begun for it")


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
    believed: str | None = None,
) -> list[Write]:
    """Ends a claim with success: the record, and everything that follows from it, in one transaction.

    The watermark of an ordered step moves to the item, unless the item is late. `epoch`: the ledger's epoch, if a takeover
    adopts another worker's commit. The ledger's entry must then still serve; a full load that was begun and canceled since the
    claim does not matter. `believed`, for steps with a sink: the record that the sink's ledger names for the load; the step's
    state believes it in the same transaction. Raises ClaimLost if the claim was ended, or the epoch or mode changed under it.
    """
    writes, after = _completion(item, held, state, payload, steps, stamp, epoch, believed)
    return [*writes, put_state(held.step.application, after)] if held.step.ordered else writes


def complete_all(
    done: Sequence[tuple[Item, Claim, Payload, str]], state: StepState, steps: Sequence[Step], stamp: Stamp
) -> tuple[list[Write], StepState]:
    """Ends claims of one strict step with success, in their order, as `complete` one after another would.

    `done`: each item, its claim, its payload, and the record that the sink's ledger names. Returns the writes and the state
    that they put. Raises ClaimLost.
    """
    writes: list[Write] = []
    for item, held, payload, believed in done:
        own = dataclasses.replace(stamp, record_id=str(uuid4()))
        more, state = _completion(item, held, state, payload, steps, own, None, believed)
        writes += more
    return [*writes, put_state(done[0][1].step.application, state)], state


def _completion(
    item: Item,
    held: Claim,
    state: StepState,
    payload: Payload,
    steps: Sequence[Step],
    stamp: Stamp,
    epoch: int | None,
    believed: str | None,
) -> tuple[list[Write], StepState]:
    """Returns the writes of a completion except that of the step's state, and the state after it."""
    step, processing = held.step, held.processing
    _require_open(item, processing)
    application, key = step.application, item.key
    inherited = epoch is not None and processing.data.get("batch", 1) > 1
    if step.ordered:
        mode = Mode.FULL_LOAD if step.order == "full" else Mode.INCREMENTAL
        lowest = state.seen_by(step, key.feed).serving_epoch
        serves = state.epoch == processing.epoch if epoch is None else epoch >= lowest
        epoch = processing.epoch if epoch is None else epoch
        if state.mode != mode or not serves:
            raise ClaimLost(
                f"{key.name}: done in epoch {epoch}, but {application.key} is now in epoch {state.epoch}, mode {state.mode}"
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
    writes: list[Write] = [put_record(key, done.records[-1]), *changes(item, done, steps)]
    if step.ordered:
        state = _after(done, held, _recount(item, done, step, state), believed, inherited)
    return writes, state


def _after(done: Item, held: Claim, state: StepState, believed: str | None, inherited: bool) -> StepState:
    """The state after an item is done.

    A late item moves no watermark; a snapshot moves the watermarks of all feeds it covers. `inherited`: a dead worker claimed
    it together with others. Some of them may be done since, so nobody knows the watermark of that claim, and nothing more
    counts as examined.
    """
    if believed is not None:
        for feed in (done.key.feed, *held.step.covers):
            state = state.with_feed(feed, believed=believed)
    if held.step.order == "full":
        return _end_full_load(done, held.step, state)
    if _is_behind(done.key, state) or _is_late(done, held.step, state):
        return state
    name = done.key.feed
    under = state.with_feed(name, watermark=state.feed(name).swept) if inherited else held.state
    return _advance(done, state, under)


def _end_full_load(snapshot: Item, step: Step, state: StepState) -> StepState:
    """The state after a full load: incremental from the snapshot's stop time.

    Later items are ready again; earlier items are contained. One change of one row, whether there are ten items or ten million.
    """
    stop = _stop_of(snapshot)
    boundary = f"{stop}#{BEYOND_IDS}"
    for feed in step.covers:
        rewound = {"watermark": boundary, "swept": boundary, "boundary": boundary, "stop": stop, "serving_epoch": state.epoch}
        state = state.with_feed(feed, **rewound, applied=0, late=0, quarantined=0)
    return dataclasses.replace(state, mode=Mode.INCREMENTAL, boundary=stop, full=None)


def _stop_of(snapshot: Item) -> str:
    stop = snapshot.landed.stop if snapshot.landed else None
    if not stop:
        raise Refused(f"{snapshot.key.name} does not say when its snapshot was taken (its stop time): it cannot be loaded")
    return stop


def _advance(item: Item, state: StepState, claimed_under: StepState) -> StepState:
    """Moves the watermark to the item. The items before the claim's watermark were examined when the item was claimed."""
    name = item.key.feed
    return state.with_feed(
        name,
        watermark=item.key.position,
        swept=claimed_under.feed(name).watermark,
        stop=item.landed.stop if item.landed else None,
    )


def believe(step: Step, feed: str, state: StepState, record: str) -> list[Write]:
    """Lets a step believe that the sink applied a record last: after a restore the manifest learns it from the sink's fence."""
    return [put_state(step.application, state.with_feed(feed, believed=record))]


def believe_sink(step: Step, feed: str, state: StepState, sink: SinkState, accepted: int = 0) -> list[Write]:
    """Lets a step believe a sink that was set back, after every item that it lacks was reopened.

    The watermark moves back to the position that the sink applied last, and the items that were reopened behind it are examined
    again (`swept`). `accepted`: the token under which the sink is accepted as it is, if it is. Raises Refused while a full load
    is in progress, which replaces what the sink lacks.
    """
    if state.mode is not Mode.INCREMENTAL:
        raise Refused(
            f"{step.application.key} is loading a snapshot in full, which replaces what the sink lacks: wait until it ends"
        )
    swept = min(state.feed(feed).swept, sink.swept, sink.applied)
    moved: dict[str, Any] = {"believed": sink.record, "watermark": sink.applied, "swept": swept, "stop": sink.stop}
    if accepted:
        moved["accepted"] = accepted
    if sink.lacks_snapshot:
        moved["boundary"] = ""  # by `Step.needs_full`, nothing is done until another snapshot is loaded
    return [put_state(step.application, state.with_feed(feed, **moved))]


def output(
    item: Item, application: Application, payload: Payload, steps: Sequence[Step], stamp: Stamp, epoch: int | None = None
) -> list[Write]:
    """Processing and Processed together, outside of any claim; and the waiting rows that follow."""
    opened = append(item, State.PROCESSING, application, dataclasses.replace(stamp, record_id=str(uuid4())), epoch=epoch)
    opening = opened.records[-1]
    done = append(opened, State.PROCESSED, application, stamp, previous=opening.record_id, payload=payload, epoch=epoch)
    records = [put_record(item.key, record) for record in reversed(done.records[-2:])]
    return [*records, *changes(item, done, steps)]


def fail(item: Item, held: Claim, failure: Failure, steps: Sequence[Step], stamp: Stamp) -> list[Write]:
    """Ends a claim with a failure. A transient fault or a lost lease is resolved by the policy, up to `max_attempts`.

    If a worker died with several items, none of them fails permanently for that: the last attempt has the item alone. Raises
    ClaimLost if the claim was ended by somebody else.
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
    ended, writes = failed, [put_record(item.key, failed.records[-1])]
    attempts = failed.automatic_retries(step.application)
    others = processing.data.get("batch", 1) - 1 if failure.kind is FailureKind.LEASE_EXPIRED else 0
    if failure.kind is not FailureKind.PERMANENT and (attempts < step.max_attempts or others):
        reason = f"attempt {attempts} of {step.max_attempts} ended by itself: retried"
        if others:
            reason = f"attempt {attempts} died, and {others} other items with it: retried with fewer"
        own = dataclasses.replace(stamp, record_id=str(uuid4()))
        ended = append(
            failed,
            State.RESOLVED,
            step.application,
            own,
            previous=failed.records[-1].record_id,
            epoch=processing.epoch,
            payload=Payload(REASON, {"reason": reason, "automatic": True}),
        )
        writes.append(put_record(item.key, ended.records[-1]))
    return [*writes, *changes(item, ended, steps)]


def send_back(
    item: Item, held: Claim, applications: Sequence[str], reason: str, steps: Sequence[Step], stamp: Stamp
) -> list[Write]:
    """Ends a claim without a failure, and reopens the item for upstream applications automatically: their output is lost.

    Both in one transaction, so that a crash in between leaves no work for a person. Raises ClaimLost if the claim was ended.
    """
    own = dataclasses.replace(stamp, record_id=str(uuid4()))
    freed = _put_back(item, held, reason, stamp)
    data = {"reason": reason, "automatic": True, "reopens": list(applications), "keeps_skips": True}
    again = append(freed, State.NEW, held.step.application, own, payload=Payload(REASON, data))
    return [*(put_record(item.key, record) for record in again.records[-2:]), *changes(item, again, steps)]


def put_back(item: Item, held: Claim, reason: str, stamp: Stamp, died: bool = False) -> list[Write]:
    """Ends a claim without a failure: the cause is not the item's fault.

    `died`: the worker's cluster or server went down during the work, so that this item may have caused it.

    An outage of a registry, a cluster or the warehouse would otherwise use up the attempts of a whole backlog. Only for the
    worker's own claim, if its work certainly left nothing behind. Raises ClaimLost if the claim was ended by somebody else.
    """
    return [put_record(item.key, _put_back(item, held, reason, stamp, died).records[-1])]


def _put_back(item: Item, held: Claim, reason: str, stamp: Stamp, died: bool = False) -> Item:
    processing = held.processing
    _require_open(item, processing)
    return append(
        item,
        State.RESOLVED,
        held.step.application,
        stamp,
        previous=processing.record_id,
        epoch=processing.epoch,
        payload=Payload(REASON, {"reason": reason, "automatic": True, **({"died": True} if died else {})}),
    )


# Operators


def reopen(
    item: Item,
    applications: Sequence[str],
    reason: str,
    steps: Sequence[Step],
    states: Mapping[str, StepState],
    application: Application,
    stamp: Stamp,
    landed: Landed | None = None,
    automatic: bool = False,
) -> list[Write]:
    """Makes applications, by key, do an item again: a New record. Their earlier work stays in the log and does not count.

    Failures of the item are resolved, because it will be tried with new output. Counters and waiting rows follow; watermarks
    stay. `landed`: the directory's current content, if it was rewritten on purpose. `automatic`: not a person's decision.
    Raises Refused while the item is being processed.
    """
    serving = serving_epochs(item.key.feed, steps, states)
    open_records = list(item.open_records(serving))
    for record in open_records:
        if record.state is State.PROCESSING:
            raise Refused(f"{item.key.name} is being processed by {record.application.key}: it cannot be done again now")
    data = {"reason": reason, "reopens": list(applications), "keeps_skips": True, **({"automatic": True} if automatic else {})}
    payload = landed.accepted(item.version + 1, reason, applications) if landed else Payload(REASON, data)
    reopened = append(item, State.NEW, application, stamp, payload=payload)
    for failed in open_records:
        own = dataclasses.replace(stamp, record_id=str(uuid4()))
        why = {"reason": reason, **({"automatic": True} if automatic else {})}
        freed = {"previous": failed.record_id, "epoch": failed.epoch, "payload": Payload(REASON, why)}
        reopened = append(reopened, State.RESOLVED, failed.application, own, **freed)
    return [
        *(put_record(item.key, record) for record in reopened.records[item.sequence :]),
        *changes(item, reopened, steps),
        *_recounts(item, reopened, steps, states),
    ]


def reload(
    item: Item,
    target: Application,
    reason: str,
    allows: Sequence[str],
    steps: Sequence[Step],
    states: Mapping[str, StepState],
    application: Application,
    stamp: Stamp,
) -> list[Write]:
    """Makes a strict step replace the rows that it has of an item, which keeps its place: a New record.

    The item gets a waiting row, so that it comes next, wherever the watermark is. `allows`: the operator's permissions. It may
    be asked for again once it has failed. Raises Refused for an item that the step has not done, or that waits already, and
    while somebody works on it.
    """
    [step] = [one for one in steps if one.application.key == target.key]
    name, asks_again = item.key.name, item.is_reload_asked(target)
    blocker = item.blocker(serving_epochs(item.key.feed, steps, states), step.is_blocked_by)
    failed = blocker if asks_again and blocker and blocker.state is State.FAILED else None
    if asks_again and not failed:
        raise Refused(f"{name} waits already to be reloaded by {target.key}: let the next drain do it", Remedy(Action.DRAIN))
    if step.order != "strict" or (not failed and _standing(item, step, states) is not Standing.DONE):
        raise Refused(f"{name} is not loaded by {target.key}, so it has no rows to replace", Remedy(Action.EXPLAIN, item=name))
    if blocker and not failed:
        raise Refused(f"{name} cannot be reloaded now: {blocker.application.key} is {blocker.state}")
    permits = {"allows": list(allows)} if allows else {}
    data = {"reason": reason, "reopens": [target.key], "reloads": True, "keeps_skips": True, **permits}
    asked = append(item, State.NEW, application, stamp, payload=Payload(RELOAD_REASON, data))
    if failed:
        own, why = dataclasses.replace(stamp, record_id=str(uuid4())), Payload(REASON, {"reason": reason})
        freed = {"previous": failed.record_id, "epoch": failed.epoch, "payload": why}
        asked = append(asked, State.RESOLVED, failed.application, own, **freed)
    return [
        *(put_record(item.key, record) for record in asked.records[item.sequence :]),
        *changes(item, asked, steps),
        *_recounts(item, asked, steps, states),
    ]


def move(item: Item, to: Move, reason: str, application: Application, stamp: Stamp) -> Put:
    """Records the current location of an item's files: a New record without any other effect."""
    data = {"reason": reason, "place": to.place, "keeps_skips": True, **({"checksum": to.checksum} if to.checksum else {})}
    moved = append(item, State.NEW, application, stamp, payload=Payload(REASON, data))
    return put_record(item.key, moved.records[-1])


def acknowledge(item: Item, checksum: str, reason: str, application: Application, stamp: Stamp, automatic: bool) -> list[Write]:
    """Records that other content of a directory is known, and will not be loaded. Raises Refused if it is known already."""
    if item.knows(checksum):
        raise Refused(f"{item.key.name}: this content is known already. There is nothing to acknowledge")
    data = {"reason": reason, "acknowledges": checksum, "keeps_skips": True, **({"automatic": True} if automatic else {})}
    noted = append(item, State.NEW, application, stamp, payload=Payload(REASON, data))
    return [put_record(item.key, noted.records[-1])]


def resolve(
    item: Item,
    reason: str,
    steps: Sequence[Step],
    states: Mapping[str, StepState],
    stamp: Stamp,
    of: Application | None = None,
) -> list[Write]:
    """Frees a failed item for another attempt. `of`: only from the failure of this application.

    Raises Refused if it is not blocked or is being processed, and if a full load has superseded the failure.
    """

    def counts(application: Application) -> bool:
        return of is None or application.key == of.key

    serving = item.blocker(serving_epochs(item.key.feed, steps, states), counts)
    blocker = serving or item.blocker(
        counts=counts
    )  # a failure that is superseded for its own step may still stop another step
    if blocker is None:
        by = f" by {of.key}" if of else ""
        raise Refused(f"{item.key.name} is not blocked{by}: there is nothing to resolve")
    stopped = (Standing.FAILED, Standing.PROCESSING)
    if serving is None and not any(_standing(item, step, states) in stopped for step in steps):
        raise Refused(
            f"{item.key.name} is not blocked: a full load has superseded the work of {blocker.application.key} on it in epoch"
            f" {blocker.epoch}. There is nothing to resolve"
        )
    if serving and blocker.state is State.PROCESSING:
        raise Refused(
            f"{item.key.name} is being processed by {blocker.application.key} ({blocker.author}) since"
            f" {blocker.timestamp:%Y-%m-%d %H:%M:%S %Z}. If that worker is dead, its lease expires, and the next"
            f" worker of {blocker.application.key} settles the item automatically"
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
    return [put_record(item.key, resolved.records[-1]), *changes(item, resolved, steps)]


def serving_epochs(feed: str, steps: Sequence[Step], states: Mapping[str, StepState]) -> dict[str, int]:
    """The first epoch whose records count, for each ordered step of a feed, by its application's key."""
    ordered = [step for step in steps if step.ordered]
    return {step.application.key: states[step.application.key].seen_by(step, feed).serving_epoch for step in ordered}


def skip(
    item: Item,
    application: Application,
    reason: str,
    steps: Sequence[Step],
    states: Mapping[str, StepState],
    stamp: Stamp,
) -> list[Write]:
    """Makes an application (or every application: `*`) pass over an item.

    Raises Refused if the item is done or being processed.
    """
    named = [step for step in steps if step.application.is_stopped_by(application)]
    if not named:
        known = ", ".join(step.application.key for step in steps)
        raise Refused(f"no step of feed {item.key.feed} is called {application.key}; there are: {known}, {EVERYONE}")
    blocker = item.blocker(
        serving_epochs(item.key.feed, steps, states), lambda other: any(step.is_blocked_by(other) for step in named)
    )
    if blocker and blocker.state is State.PROCESSING:
        raise Refused(f"{item.key.name} is being processed by {blocker.application.key}: it cannot be skipped now")
    if any(states[step.application.key].full == item.key.position for step in named if step.ordered):
        raise Refused(f"{item.key.name} is being loaded in full: cancel the full load instead")
    if all(_standing(item, step, states) in PASSED for step in named):
        raise Refused(f"{item.key.name} is done or skipped already for {application.key}")
    last = item.records[-1] if item.records else None
    payload = Payload(REASON, {"reason": reason})
    skipped = append(item, State.SKIPPED, application, stamp, payload=payload, previous=last and last.record_id)
    return [
        put_record(item.key, skipped.records[-1]),
        *changes(item, skipped, steps),
        *_recounts(item, skipped, steps, states),
    ]


def _standing(item: Item, step: Step, states: Mapping[str, StepState]) -> Standing:
    state = states.get(step.application.key, StepState())  # unordered steps keep none
    return judge(item, step, state.seen_by(step, item.key.feed)).standing


BEHIND_THE_WATERMARK = "It can only come in with a full load, or, in a feed that has none, once load.late is `append`"
"""The remedy for a late item of a feed that quarantines."""


def unskip(
    item: Item,
    reason: str,
    steps: Sequence[Step],
    states: Mapping[str, StepState],
    application: Application,
    stamp: Stamp,
) -> list[Write]:
    """Lifts every skip of an item, or lets a quarantined item in, by a New record.

    If the watermark is past the item, a feed that appends takes it as late; a feed that quarantines refuses it, because its
    place in the order has passed. An item behind the boundary of a full load is contained in that load.
    """
    lifted = [step for step in steps if _standing(item, step, states) in (Standing.SKIPPED, Standing.LATE)]
    if not lifted:
        raise Refused(f"{item.key.name} is neither skipped nor set aside: there is nothing to lift")
    late = [step for step in lifted if step.order == "strict" and comes_late(item.key, states[step.application.key])]
    for step in late:
        if step.late == "quarantine":
            raise Refused(
                f"{item.key.name} is behind the watermark of {step.application.key}, which applies in strict order:"
                f" its place has passed. {BEHIND_THE_WATERMARK}"
            )
    epochs = {step.application.key: states[step.application.key].feed(item.key.feed).serving_epoch for step in late}
    data = {"reason": reason, **lateness(epochs, [])}
    renewed = append(item, State.NEW, application, stamp, payload=Payload(REASON, data))
    return [
        put_record(item.key, renewed.records[-1]),
        *changes(item, renewed, steps),
        *_recounts(item, renewed, steps, states),
    ]


# The start of a target


def start(
    step: Step, state: StepState, item: Item, before: Item, reason: str, application: Application, stamp: Stamp
) -> list[Write]:
    """Lets a strict step that has done nothing yet start with an item: it passes over the items before it, without records.

    `before`: the item before it. Conditional on the state.
    """
    position = before.key.position
    begun = state.with_feed(item.key.feed, watermark=position, swept=position, boundary=position)
    data = {"reason": reason, "starts": {step.application.key: position}, "keeps_skips": True}
    noted = append(item, State.NEW, application, stamp, payload=Payload(TARGET_REASON, data))
    return [put_record(item.key, noted.records[-1]), put_state(step.application, begun)]


# Full loads


def begin_full_load(
    snapshot: Item,
    step: Step,
    state: StepState,
    reason: str,
    application: Application,
    stamp: Stamp,
    above: int = 0,
    allows: Sequence[str] = (),
) -> list[Write]:
    """Begins a new epoch with a snapshot: all other feeds of the step are held until the snapshot is loaded or canceled.

    The new epoch is also higher than `above`. `allows`: the operator's permissions for this full load. Older workers can no
    longer complete. Raises Refused while a full load is in progress, for a snapshot that is not ready, and for a snapshot
    without a stop time.
    """
    name = snapshot.key.name
    if step.order != "full":
        raise Refused(
            f"feed {snapshot.key.feed} holds no snapshots for {step.application.key}: {name} cannot be loaded in full"
        )
    if state.mode is Mode.FULL_LOAD:
        loading = position_name(snapshot.key.feed, state.full or "")
        raise Refused(f"{step.application.key} is loading {loading} in full: wait for it, or cancel it first")
    _stop_of(snapshot)
    begun = dataclasses.replace(state, mode=Mode.FULL_LOAD, epoch=max(state.epoch, above) + 1, full=snapshot.key.position)
    judged = judge(snapshot, step, begun.seen_by(step, snapshot.key.feed))
    if judged.standing is not Standing.READY:
        raise Refused(f"{name} cannot be loaded in full: {judged.standing}. {judged.reason}")
    return _note_full_load(snapshot, "begun", step, begun, reason, application, stamp, allows)


def cancel_full_load(
    snapshot: Item, step: Step, state: StepState, reason: str, application: Application, stamp: Stamp
) -> list[Write]:
    """Ends a full load that was not committed: the mode is incremental again, no item is reopened.

    The caller adds the write of its lease. Raises Refused if no full load is in progress, and while somebody processes the
    snapshot: it must be known whether it was committed.
    """
    if state.mode is not Mode.FULL_LOAD:
        raise Refused(f"{step.application.key} is loading nothing in full: there is nothing to cancel")
    blocker = snapshot.blocker({step.application.key: state.epoch}, step.is_blocked_by)
    if blocker and blocker.state is State.PROCESSING:
        raise Refused(f"{snapshot.key.name} is being loaded by {blocker.author}: settle it with the sink first")
    cancelled = dataclasses.replace(state, mode=Mode.INCREMENTAL, full=None)
    return _note_full_load(snapshot, "cancelled", step, cancelled, reason, application, stamp)


def _note_full_load(
    snapshot: Item,
    event: str,
    step: Step,
    state: StepState,
    reason: str,
    application: Application,
    stamp: Stamp,
    allows: Sequence[str] = (),
) -> list[Write]:
    data: dict[str, Any] = {"reason": reason, "full_load": event, "keeps_skips": True}
    if allows:
        data["allows"] = list(allows)
    of_target = {"application": step.application.key} if step.application.instance else {}
    payload = Payload(TARGET_REASON, {**data, **of_target}) if of_target else Payload(REASON, data)
    noted = append(snapshot, State.NEW, application, stamp, epoch=state.epoch, payload=payload)
    return [put_record(snapshot.key, noted.records[-1]), put_state(step.application, state)]


def expire(lease: LeaseState) -> LeaseState:
    """The lease, ended: given back, or known to be a dead worker's. Token and current item stay.

    It writes no time of this machine: if the machine's clock is ahead, everybody else would have to wait for the difference.
    """
    return dataclasses.replace(lease, expires_at=GIVEN_BACK, nonce=str(uuid4()))
