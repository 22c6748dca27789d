"""The invariants of the protocol, which must hold in every world. They are numbered as in `docs/reference/protocol.md`.

Belongs here: an independent judgement from the compact records alone. It must not call the product's rules: a rule that is
wrong or switched off would then judge itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import NamedTuple

from manifest_platform.manifest import State, StepState
from manifest_platform.manifest.dataset import Mode
from manifest_platform.manifest.records import EVERYONE
from manifest_platform_tests.model.configurations import LOAD, SHRED
from manifest_platform_tests.model.scope import Log, Scope
from manifest_platform_tests.model.scope import content as content_of
from manifest_platform_tests.model.sink import Content, Sink


class Facts(NamedTuple):
    """The state of an item for one application, from its records in the epochs that serve."""

    done: bool
    skipped: bool
    late: bool
    set_aside: bool
    open: bool
    failed: bool
    reloads: bool = False

    @property
    def passed(self) -> bool:
        """True if a later item may be loaded before this item is: a record gives the reason."""
        return self.done or self.skipped or self.late or self.reloads


def facts(log: Log, application: str, serving: int) -> Facts:
    """The facts of an item's log for an application."""
    name = application.partition(":")[0]
    mine = [
        (n, one) for n, one in enumerate(log, start=1) if one.application == application and (one.epoch or serving) >= serving
    ]
    ended = {one.previous for one in log if one.state is not State.SKIPPED}
    resolved = {one.previous for one in log if one.state is State.RESOLVED}
    lifted = max((n for n, one in enumerate(log) if one.state is State.NEW and not one.keeps_skips), default=-1)
    rewritten = application == SHRED.key  # what was made of an older content is none of it
    again = [n for n, one in enumerate(log, start=1) if application in one.reopens or (rewritten and one.version)]
    reopened = max(again, default=0)
    marks = [(dict(one.late)[application], application in one.set_aside) for one in log if application in dict(one.late)]
    return Facts(
        done=any(one.state is State.PROCESSED and n > reopened for n, one in mine),
        skipped=any(one.state is State.SKIPPED and one.application in (EVERYONE, name) for one in log[lifted + 1 :]),
        late=any(epoch >= serving for epoch, _ in marks),
        set_aside=bool(marks) and max(epoch for epoch, _ in marks) >= serving and marks[-1][1],
        open=any(one.state is State.PROCESSING and n not in ended for n, one in mine),
        failed=any(one.state is State.FAILED and n not in resolved for n, one in mine),
        reloads=_reload(log, application) > max((n for n, one in mine if one.state is State.PROCESSED), default=0),
    )


def _reload(log: Log, application: str) -> int:
    """The number of the record that asked for the newest reload; 0 if there was none."""
    return max((n for n, one in enumerate(log, start=1) if one.reloads and application in one.reopens), default=0)


def _shredded_across_a_replay(log: Log) -> bool:
    """True if a shredding began before a replay of the item's lines and was completed after it: it does not know of these."""
    replays = [n for n, one in enumerate(log, start=1) if one.replayed]
    done = [
        (one.previous, n) for n, one in enumerate(log, start=1) if one.state is State.PROCESSED and one.application == SHRED.key
    ]
    return any(began < replay < ended for began, ended in done for replay in replays)


class Past(NamedTuple):
    """The past events that excuse a violation.

    `restored`: the manifest was set back. `blamed`: a worker died, was taken over or cut off by a full load, or a COMMIT had no
    answer. `rewound`: the sink was set back. `accepted`: the sink was accepted as it is.
    """

    restored: bool
    blamed: bool
    rewound: bool = False
    accepted: bool = False


def violation(scope: Scope, rows: int, sink: Sink, past: Past) -> str | None:
    """The first invariant that a world breaks; None if all hold."""
    return next(_violations(scope, rows, sink, past), None)


def _violations(scope: Scope, rows: int, sink: Sink, past: Past) -> Iterator[str]:
    state = scope.state(scope.rows.values[rows].state)
    for feed, declared in enumerate(scope.configuration.feeds):
        items = [i for i in range(len(scope.keys)) if scope.feed_of[i] == feed]
        if declared.order == "strict":
            yield from _wrong_content(scope, feed, items, rows, sink.content[feed], past)
        believed = state.feed(declared.name).believed
        if past.rewound and believed and all(one.record_id != believed for one in sink.ledger):
            continue  # the sink was set back, and every load notices it: nothing relies on what the manifest says of it
        if declared.order == "strict" and not past.accepted:
            yield from _wrong_feed(scope, feed, items, rows, sink, past)
        yield from _wrong_counters(scope, feed, items, rows, state, past)
    for i in range(len(scope.keys)):
        yield from _wrong_log(scope, rows, i, past)
    yield from _wrong_rows(scope, rows, state)
    if state.mode == Mode.FULL_LOAD and not past.restored:
        yield from _wrong_epoch(scope, state, sink)


def _applied(scope: Scope, content: Content) -> list[tuple[int, bool]]:
    """The numbers of the items that a feed's content consists of, and whether each was applied as late."""
    return [(scope.named(item), late) for item, late in content.applied]


def _wrong_content(scope: Scope, feed: int, items: list[int], rows: int, content: Content, past: Past) -> Iterator[str]:
    """Violations in the rows that readers see: order, duplicates, and items that the snapshot contains already."""
    seen = _applied(scope, content)
    in_order = [i for i, late in seen if not late]
    positions = [content.boundary, *(scope.keys[i].position for i in in_order)]
    for before, after in pairwise(positions):
        if after <= before:
            yield f"(1) {after} was applied after {before}"
    applied = [i for i, _ in seen]
    if len(set(applied)) < len(applied):
        yield "(2) an item's rows are in the warehouse twice"
    declared = scope.configuration.feeds[feed]
    if declared.late == "quarantine" and len(in_order) < len(applied):
        yield "(1) an item was applied late, on a feed that quarantines"
    if scope.configuration.shred and not past.restored:
        for i in applied:
            log = scope.logs.values[scope.log(rows, i)]
            if not any(one.state is State.PROCESSED and one.application == SHRED.key for one in log):
                yield f"(4) {scope.keys[i].id} was applied, but was never shredded"
    if declared.gap == "contiguous":
        for before, after in pairwise(in_order):
            for between in items[items.index(before) + 1 : items.index(after)]:
                log = scope.logs.values[scope.log(rows, between)]
                if not any(one.state is State.SKIPPED for one in log):
                    yield f"(7) {scope.keys[after].id} was applied over the gap at {scope.keys[between].id}"


def _wrong_feed(scope: Scope, feed: int, items: list[int], rows: int, sink: Sink, past: Past) -> Iterator[str]:
    """Disagreements between manifest and sink on the items of a feed."""
    state = scope.state(scope.rows.values[rows].state)
    known, content = state.feed(scope.feeds[feed]), sink.content[feed]
    uncompleted = state.mode == Mode.FULL_LOAD and content.epoch == state.epoch  # a snapshot is committed but not completed
    if uncompleted:
        return
    if content.epoch != known.serving_epoch:
        if not past.restored:
            yield f"(4) {scope.feeds[feed]}: readers see epoch {content.epoch}, the manifest serves {known.serving_epoch}"
        return
    if content.boundary != known.boundary:
        snapshot = f"readers see a snapshot up to {content.boundary!r}, the manifest's boundary is {known.boundary!r}"
        yield f"(4) {scope.feeds[feed]}: {snapshot}"
    seen = _applied(scope, content)
    applied = {i for i, _ in seen}
    last = max((i for i, late in seen if not late), default=-1)
    for i in items:
        log = scope.logs.values[scope.log(rows, i)]
        if not log:
            continue
        name, fact = scope.keys[i].id, facts(log, LOAD.key, known.serving_epoch)
        if _shredded_across_a_replay(log):
            yield f"(2) lines of {name} were replayed, and its output that began before that may have them as good ones"
        contained = scope.keys[i].position <= content.boundary
        in_ledger = any((one.item, one.epoch) == (scope.keys[i].id, known.serving_epoch) for one in sink.ledger)
        if fact.done and i not in applied and not in_ledger:
            yield f"(4) {name} is done, but not in the warehouse"
        if fact.done and i not in applied:
            yield f"(2) {name} is done, but readers do not see it"
        asked = _reload(log, LOAD.key)
        since = {scope.record_id(i, n, one.life) for n, one in enumerate(log, start=1) if n > asked}
        if fact.done and asked and not any(one.item == name and one.record_id in since for one in sink.ledger):
            yield f"(2) {name} is done, but readers see its rows from before the reload"
        if scope.keys[i].position <= known.swept and not (fact.passed or contained):
            yield f"(7) {name} was passed over without a record"
        reopened = any(LOAD.key in one.reopens for one in log)
        if reopened and fact.late and fact.set_aside and sink.fences[feed].applied < scope.keys[i].position:
            yield f"(7) {name} must be loaded again and nothing later is applied, but it is set aside"
        if past.restored or past.rewound:
            continue
        newest = max([one.version for one in log if one.version], default=1)
        contents = {one.checksum for one in sink.ledger if one.item == name and one.epoch >= known.serving_epoch}
        if fact.done and contents and content_of(newest) not in contents:
            yield f"(2) {name} is done, but readers see its content from before it was accepted"
        if contained and fact.late:
            yield f"(7) {name} is in the snapshot, but marked late"
        if (i, True) in seen and not fact.late:
            yield f"(1) {name} was applied as late, but is not late"
        if i in applied and not (fact.done or fact.open or fact.reloads):
            yield f"(4) {name} is in the warehouse, but neither done nor open in the manifest"
        if i in applied and fact.late and fact.set_aside:
            yield f"(7) {name} is marked late, but was applied"
        by_operator = any(one.state is State.SKIPPED for one in log)
        if fact.failed and not by_operator and not fact.late and not fact.reloads and i < last:
            yield f"(3) {name} failed, but a later item was applied"


def _wrong_epoch(scope: Scope, state: StepState, sink: Sink) -> Iterator[str]:
    """Violations of the rule that a begun snapshot has its epoch for itself. Otherwise the warehouse would always refuse it."""
    begun = _begun(scope, state)
    declared = scope.configuration.feeds[scope.feed_of[begun]]
    for one in sorted(sink.ledger):
        if one.item != scope.keys[begun].id and one.epoch >= state.epoch and one.feed in (declared.name, *declared.covers):
            yield f"(8) {scope.keys[begun].id} always fails: {one.item} was applied in its epoch"


def _wrong_counters(scope: Scope, feed: int, items: list[int], rows: int, state: StepState, past: Past) -> Iterator[str]:
    """Differences between the logs, and the counters and the watermark.

    After a rewind, the sink may have applied items that no log has as done.
    """
    known = state.feed(scope.feeds[feed])
    watermark = known.boundary
    counts = {"applied": 0, "skipped": 0, "quarantined": 0, "late": 0, "reloads": 0}
    for i in items:
        fact = facts(scope.logs.values[scope.log(rows, i)], LOAD.key, known.serving_epoch)
        strict_late = fact.late and scope.configuration.feeds[feed].order == "strict"
        name = "skipped" if fact.skipped else "applied" if fact.done else None
        if name is None and strict_late:
            name = "quarantined" if fact.set_aside else "late"
        if name is None and fact.reloads:
            name = "reloads"
        if name:
            counts[name] += 1
        if (fact.done or fact.reloads) and not strict_late:
            watermark = max(watermark, scope.keys[i].position)
    for name, count in counts.items():
        if getattr(known, name) != count:
            yield f"(6) {scope.feeds[feed]}: the counter says {getattr(known, name)} {name}, the records say {count}"
    strict = scope.configuration.feeds[feed].order == "strict"
    if strict and not past.rewound and known.watermark != watermark:
        yield f"(6) {scope.feeds[feed]}: the watermark is {known.watermark!r}, but should be {watermark!r}"
    if known.swept > known.watermark:
        yield f"(6) {scope.feeds[feed]}: swept beyond the watermark"


def _wrong_rows(scope: Scope, rows: int, state: StepState) -> Iterator[str]:
    """Differences between the waiting rows and the logs."""
    for job in scope.jobs:
        name = job.step.application.key
        for i, key in enumerate(scope.keys):
            log = scope.logs.values[scope.log(rows, i)]
            if scope.feed_of[i] != job.feed or not log:
                continue
            there = (name, i) in scope.rows.values[rows].pending
            serving = state.feed(key.feed).serving_epoch if job.step.ordered else 0
            fact = facts(log, name, serving)
            if job.step.order == "any":
                waits = not fact.done and not fact.skipped
            else:
                waits = fact.late and not fact.set_aside and not fact.done and not fact.skipped
                waits = waits or (fact.reloads and not fact.skipped)
                if not fact.late and any(one.late for one in log):
                    continue  # a mark of an epoch that ended: its row may stay, because no step reads it
            if there != waits:
                yield f"(6) {key.id} {'has' if there else 'lacks'} a waiting row of {name}"


def _wrong_log(scope: Scope, rows: int, i: int, past: Past) -> Iterator[str]:
    """Violations in a log: coupling, a record that is ended twice, and an attempt that fails without a reason."""
    log = scope.logs.values[scope.log(rows, i)]
    if problems := scope.item(i, scope.log(rows, i)).problems:
        yield f"(6) {problems[0]}"
    ended = [one.previous for one in log if one.state in (State.PROCESSED, State.FAILED, State.RESOLVED)]
    if len(set(ended)) < len(ended):
        yield f"(6) a record of {scope.keys[i].id} was ended twice"
    if scope.configuration.shred:
        for n, one in enumerate(log):
            if (one.state, one.application) == (State.PROCESSING, LOAD.key) and not facts(log[:n], SHRED.key, 0).done:
                yield f"(4) {scope.keys[i].id} was claimed for loading, but has no output"
    for application in (LOAD.key, SHRED.key):
        begun = [n for n, one in enumerate(log, start=1) if one.state is State.PROCESSING and one.application == application]
        epochs = [log[n - 1].epoch for n in begun if n not in ended]
        if len(set(epochs)) < len(epochs):
            yield f"(5) {scope.keys[i].id} is open twice for {application}"
    if not past.blamed and any(one.kind == "lease_expired" for one in log):
        yield f"(8) an attempt on {scope.keys[i].id} failed, but no worker died"


def not_next(scope: Scope, rows: int, chosen: int, state: StepState, together: Collection[int] = ()) -> str | None:
    """The fault of a strict step's choice, given the items that it has read; None if there is none.

    `together`: the items that are loaded together with the chosen item, before it.
    """
    name = scope.keys[chosen].feed
    if scope.configuration.feeds[scope.feed_of[chosen]].order != "strict":
        return None
    known = state.feed(name)
    if facts(scope.logs.values[scope.log(rows, chosen)], LOAD.key, known.serving_epoch).late:
        return None
    for i, key in enumerate(scope.keys):
        log = scope.logs.values[scope.log(rows, i)]
        earlier = key.feed == name and known.boundary < key.position < scope.keys[chosen].position
        if log and earlier and i not in together and not facts(log, LOAD.key, known.serving_epoch).passed:
            return f"(3) {scope.keys[chosen].id} was chosen before {key.id}, which is not done"
    return None


def unfinished(scope: Scope, rows: int, sink: Sink, past: Past) -> str | None:
    """The fault of a manifest at rest: an item that could be loaded, or that is loaded and not done. None if there is none."""
    state = scope.state(scope.rows.values[rows].state)
    if state.mode == Mode.FULL_LOAD:
        begun = _begun(scope, state)
        fact = facts(scope.logs.values[scope.log(rows, begun)], LOAD.key, state.epoch)
        return None if fact.failed else f"(8) at rest, but {scope.keys[begun].id} can be loaded"
    for feed, declared in enumerate(scope.configuration.feeds):
        known = state.feed(declared.name)
        stop: str | None = None
        for i in [i for i, one in enumerate(scope.feed_of) if one == feed and declared.order == "strict"]:
            log = scope.logs.values[scope.log(rows, i)]
            fact = facts(log, LOAD.key, known.serving_epoch)
            if (
                not past.restored
                and not past.accepted
                and not fact.done
                and not fact.reloads
                and not (past.rewound and fact.skipped)
                and any(i == one for one, _ in _applied(scope, sink.content[feed]))
            ):
                return f"(4) at rest, but {scope.keys[i].id} is in the warehouse and not done"
            if not log or (scope.keys[i].position <= sink.content[feed].boundary and not fact.late):
                continue
            stops = fact.failed or _waits_for_shred(scope, log)
            if (fact.reloads or (fact.late and not fact.set_aside)) and not fact.done and not fact.skipped:
                if stops:
                    break
                return f"(8) at rest, but {scope.keys[i].id} can be appended"
            if fact.passed:
                stop = scope.landed[i].stop
                continue
            if stops or (declared.gap == "contiguous" and stop is not None and scope.landed[i].start != stop):
                break
            return f"(8) at rest, but {scope.keys[i].id} can be loaded"
    return None


def _begun(scope: Scope, state: StepState) -> int:
    """The snapshot whose full load is in progress."""
    snapshots = [i for i, feed in enumerate(scope.feed_of) if scope.configuration.feeds[feed].order == "full"]
    [begun] = [i for i in snapshots if scope.keys[i].position == state.full]
    return begun


def _waits_for_shred(scope: Scope, log: Log) -> bool:
    """True if the step before the load has failed, or skips the item."""
    if not scope.configuration.shred:
        return False
    fact = facts(log, SHRED.key, 0)
    return not fact.done and (fact.failed or fact.skipped)
