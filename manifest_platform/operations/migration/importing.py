"""Imports histories of another manifest: appends their missing records to ours, and updates everything kept beside the log.

Belongs here: the import, which may be repeated while the other system still runs, until ours replaces it. Only appends.

An import holds the leases of all steps of the feed. If it is interrupted, they stay held, so that nothing is claimed before the
import is completed. So the log can be written in portions, and watermarks, counters and waiting rows after it.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import TypeVar

from manifest_platform.manifest import (
    Application,
    ConditionFailed,
    Item,
    ItemKey,
    Lease,
    Manifest,
    Payload,
    Record,
    Refused,
    State,
    Step,
    StepState,
    UnknownItem,
)
from manifest_platform.manifest.beside import prefixes, rows_of
from manifest_platform.manifest.dataset import PASSED, LeaseState, Mode, judge
from manifest_platform.manifest.item import ArchivedRecords
from manifest_platform.manifest.keys import records_prefix
from manifest_platform.manifest.lease import write_lease
from manifest_platform.manifest.reading import DISCOVERY
from manifest_platform.manifest.records import REASON, Stamp
from manifest_platform.manifest.store import ABSENT, MAX_WRITES, TRIES, Changed, Delete, Put, Write, optimistically, stored_rows
from manifest_platform.manifest.takeover import renewal
from manifest_platform.manifest.transitions import acquire, append, counted_as, expire, put_record, put_state, sweep
from manifest_platform.operations.migration.histories import Histories, Layout, Note, derived_id, open_work

IMPORTED = "imported from "
"""The prefix of an imported record's run id; the source follows."""
HELD = timedelta(days=3650)
"""The duration of an import's leases, which matters only if the import is interrupted and not repeated."""

T = TypeVar("T")

_AT_ONCE = MAX_WRITES - 1  # one write is that of the lease
_BYTES_AT_ONCE = 2_000_000  # well below the limit of every store


class WorkedOn(Refused):
    """A step has worked on the feed here, so histories of another system can no longer be added."""


class Differs(ValueError):
    """A record that was imported earlier has other content in the source now, or no longer exists there."""


@dataclass
class Report:
    """The result of an import or of its dry run. Items are named by their folders; `records`: the number appended.

    `added`: new items; `grown`: known items with new records; `unchanged`: items with no new records. `late`: not done, and
    behind the watermark. `open`: in work, or left by a crash; the source does not distinguish these. `failed`: to be resolved.
    `undecided`: skipped for a step that precedes the load, so that the load will stop at them.
    """

    source: str
    dry_run: bool
    rows: int = 0
    added: int = 0
    grown: int = 0
    unchanged: int = 0
    records: int = 0
    late: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    repairs: list[Note] = field(default_factory=list)
    problems: list[Note] = field(default_factory=list)


@dataclass(frozen=True)
class Growth:
    """An item as it is here, and as it will be with the source's further records."""

    known: Item
    grown: Item

    @property
    def records(self) -> tuple[Record, ...]:
        """The records to append."""
        return self.grown.records[len(self.known.records) :]


def import_items(
    manifest: Manifest, feed: str, histories: Histories, source: str, *, free_open: bool = False, dry_run: bool = False
) -> Report:
    """Appends the records of the histories that a feed lacks. Idempotent, and safe to repeat after a crash.

    `source`: the name of the source, kept in the run id of every imported record. `free_open`: the other system was stopped
    permanently, so work that it left in Processing is freed. Raises WorkedOn if a step has worked on the feed here, LeaseBusy
    if a step is about to, Refused during a full load, and StoreError. After any of these, repeat the import.
    """
    stamp = Stamp(manifest.author, f"{IMPORTED}{source}")
    report = Report(source, dry_run, histories.rows, repairs=list(histories.repairs), problems=list(histories.problems))
    if dry_run:
        _plan(manifest, feed, histories, free_open, stamp, report)
        return report
    leases, resumed = ExitStack(), _broke_off(manifest, feed, stamp)
    try:
        steps, layout = manifest.steps(feed), histories.layout
        held = [leases.enter_context(_take(manifest, feed, step, stamp, layout)) for step in steps]
        items, growths = _plan(manifest, feed, histories, free_open, stamp, report)
    except BaseException as error:
        if not resumed or isinstance(error, WorkedOn):  # a step can only have worked after a completed import
            leases.close()
        raise
    lease = held[-1]
    _append_all(manifest, lease, growths)
    optimistically(
        lambda: _raise_watermarks(manifest, lease, items),
        lambda: Refused(f"feed {feed}: discovery registered items {TRIES} times meanwhile. Repeat the import"),
    )
    optimistically(
        lambda: _recount(manifest, lease, stamp, report.late),
        lambda: Refused(f"feed {feed}: discovery registered items {TRIES} times meanwhile. Repeat the import"),
    )
    leases.close()
    return report


@dataclass
class Dropped:
    """The result of dropping an import: numbers of removed `items`, of `shortened` items and of removed `records`."""

    source: str
    dry_run: bool
    items: int = 0
    shortened: int = 0
    records: int = 0


def drop_import(manifest: Manifest, feed: str, source: str, dry_run: bool = False) -> Dropped:
    """Removes everything that interrupted imports from a source have appended, and releases the feed.

    The import held the feed, so nothing was claimed since. This is the only case in which records are removed. Afterward,
    watermarks, counters and waiting rows are as before the import, and the manifest has another identity, so that running
    sensors discard what they remember. Safe to repeat after a crash. Raises Refused if no import from the source was
    interrupted, or if other records follow the imported ones; WorkedOn if a step has worked on the feed.
    """
    stamp = Stamp(manifest.author, f"{IMPORTED}{source}")
    if not _broke_off(manifest, feed, stamp):
        raise Refused(f"no import from {source} was interrupted on feed {feed}: there is nothing to drop")
    _check_not_worked_on(feed, manifest.steps(feed), manifest.items(feed))
    report = Dropped(source, dry_run)
    deletes = list(_deletes(manifest, feed, stamp, report))
    if dry_run:
        return report
    leases = [_take(manifest, feed, step, stamp) for step in manifest.steps(feed)]
    for portion in _portions(deletes):
        leases[-1].transact(portion)

    def follow() -> None:
        _raise_watermarks(manifest, leases[-1], list(manifest.items(feed)), from_scratch=True)
        _recount(manifest, leases[-1], stamp, [])

    optimistically(
        follow, lambda: Refused(f"feed {feed}: discovery registered items {TRIES} times meanwhile. Drop the import again")
    )
    if renewed := renewal(manifest.store, manifest.dataset):
        leases[-1].transact(renewed)
    for lease in leases:
        lease.release()
    return report


def _deletes(manifest: Manifest, feed: str, stamp: Stamp, report: Dropped) -> Iterator[Write]:
    """Yields the deletes of a source's records, newest first, so that after a crash each item's first records remain."""
    rows = stored_rows(manifest.store, manifest.dataset, records_prefix(feed))
    for position, grouped in groupby(rows, key=lambda row: row.sort.rpartition("#")[0]):
        found = list(grouped)
        own = [row.data["run_id"] == stamp.run_id for row in found]
        if not any(own):
            continue
        first, name = own.index(True), ItemKey.at(feed, position.removeprefix(records_prefix(feed))).name
        if not all(own[first:]) or ArchivedRecords.of(found[0]):
            raise Refused(
                f"{name}: other records follow the imported ones, or the records were archived. Repeat the import to complete"
                " it instead"
            )
        report.items += first == 0
        report.shortened += first > 0
        report.records += len(found) - first
        yield from (Delete(row.sort, row.version) for row in reversed(found[first:]))


# Holding the feed


def _broke_off(manifest: Manifest, feed: str, stamp: Stamp) -> bool:
    """True if an interrupted import from the same source holds a lease of the feed."""
    leases = [manifest.lease(step.application, feed) for step in manifest.steps(feed)]
    return any(lease and lease.run_id == stamp.run_id and lease.is_live(_now()) for lease in leases)


def _take(manifest: Manifest, feed: str, step: Step, stamp: Stamp, layout: Layout | None = None) -> Lease:
    """Takes the lease of a step, also from an interrupted import of the same source. Raises LeaseBusy.

    `layout`: the source's, kept in the lease; None keeps the layout of the interrupted import.
    """
    holder = f"{stamp.author}, {stamp.run_id}: repeat the import to complete it, or use --abort to drop it"

    def take() -> LeaseState:
        before = manifest.lease(step.application, feed)
        if before and before.run_id == stamp.run_id:
            before = expire(before)
        after = acquire(step.application, feed, before, holder, _next(stamp), HELD)
        after = dataclasses.replace(after, purpose=layout or (before.purpose if before else ""))
        return write_lease(manifest.store, manifest.dataset, step.application, feed, after)

    # The first write to a store of an older release upgrades it, which changes the versions of its rows: so this is retried.
    held = optimistically(take, lambda: Refused(f"others took the lease of {step.application.key} on feed {feed}. Try again"))
    return Lease(manifest.store, manifest.dataset, step.application, feed, held, HELD, _now)


def _now() -> datetime:
    return datetime.now(UTC)


def _next(stamp: Stamp) -> Stamp:
    """Returns a stamp for another record that the import itself makes."""
    return Stamp(stamp.author, stamp.run_id)


# The records to append


def _plan(
    manifest: Manifest, feed: str, histories: Histories, free_open: bool, stamp: Stamp, report: Report
) -> tuple[list[Item], list[Growth]]:
    """Returns all items as they will be, and the growth of those that lack records."""
    steps, states = manifest.steps(feed), _states(manifest, feed)
    _check_incremental(feed, states)
    items = {item.key: item for item in manifest.items(feed)}
    _check_not_worked_on(feed, steps, items.values())
    epochs = {name: state.epoch for name, state in states.items()}
    growths: list[Growth] = []
    for source in histories.items:
        known = items.get(source.key, Item(source.key, ()))
        try:
            growth = Growth(known, grow(known, source, steps, epochs, stamp, free_open))
        except Differs as error:
            report.problems.append(Note(source.key.id, str(error)))
            continue
        items[source.key] = growth.grown
        growths.append(growth)
        _tell(growth, steps, report)
    return list(items.values()), [growth for growth in growths if growth.records]


def _states(manifest: Manifest, feed: str) -> dict[str, StepState]:
    """Returns the states of a feed's ordered steps."""
    return {step.application.key: manifest.state(step.application) for step in manifest.steps(feed) if step.ordered}


def _check_incremental(feed: str, states: Mapping[str, StepState]) -> None:
    for name, state in states.items():
        if state.mode is not Mode.INCREMENTAL:
            raise Refused(f"feed {feed}: {name} is loading {state.full} in full. Import when that is loaded or canceled")


def _check_not_worked_on(feed: str, steps: Sequence[Step], items: Iterable[Item]) -> None:
    ours = {step.application.key for step in steps}
    for item in items:
        for record in item.records:
            if record.state is State.PROCESSING and record.application.key in ours and not is_imported(record):
                raise WorkedOn(
                    f"steps have worked on feed {feed}: {record.application.key} claimed {item.key.name} at"
                    f" {record.timestamp:%Y-%m-%d %H:%M:%S %Z}. Import before the first drain, or into a new dataset"
                )


def is_imported(record: Record) -> bool:
    """True if a record comes from another system's manifest, or was made by an import."""
    return (record.run_id or "").startswith(IMPORTED)


def grow(known: Item, source: Item, steps: Sequence[Step], epochs: Mapping[str, int], stamp: Stamp, free_open: bool) -> Item:
    """Returns the item with the source's records that it lacks, and with their consequences. Pure. Raises Differs.

    `epochs`: of the ordered steps, by application key. The consequences: steps that precede a load done by the source are
    skipped; with `free_open`, open work is freed.
    """
    here = {record.record_id: record for record in known.records}
    _check_still_there(known, source, stamp)
    item = known
    for record in source.records:
        if record.record_id in here:
            _check_same(here[record.record_id], record)
            continue
        item = append(
            item,
            record.state,
            record.application,
            dataclasses.replace(stamp, author=record.author, at=record.timestamp, record_id=record.record_id),
            previous=record.previous,
            epoch=epochs.get(record.application.key),
            payload=record.payload,
        )
    item = _skip_what_comes_before(item, steps, stamp)
    return _free(item, stamp) if free_open else item


def _check_same(here: Record, there: Record) -> None:
    for name in ("state", "application", "author", "timestamp", "previous", "payload"):
        mine, theirs = getattr(here, name), getattr(there, name)
        if mine != theirs:
            raise Differs(f"record {here.record_id} has another {name} in the source: {mine} here, {theirs} there")


def _check_still_there(known: Item, source: Item, stamp: Stamp) -> None:
    ids = {record.record_id for record in source.records}
    made = {derived_id(purpose, id_) for purpose in ("skip", "free") for id_ in ids}
    for record in known.records:
        of_source = record.run_id == stamp.run_id and not record.data.get("keeps_skips")
        if of_source and record.record_id not in ids | made:
            raise Differs(f"record {record.record_id} ({record.state}) was imported, and the source no longer has it")


def _skip_what_comes_before(item: Item, steps: Sequence[Step], stamp: Stamp) -> Item:
    for step in steps:
        done = item.processed_by(step.application) if step.ordered else None
        for upstream in map(Application, step.upstream if done else ()):
            if done and not item.processed_by(upstream) and not item.skipped_for(upstream):
                reason = {"reason": f"{step.application.key} was done before the import", "automatic": True}
                own = dataclasses.replace(stamp, record_id=derived_id("skip", done.record_id))
                item = append(item, State.SKIPPED, upstream, own, previous=done.record_id, payload=Payload(REASON, reason))
    return item


def _free(item: Item, stamp: Stamp) -> Item:
    for record in open_work(item.records):
        reason = Payload(REASON, {"reason": f"left open by {record.author}, which is stopped"})
        own = dataclasses.replace(stamp, record_id=derived_id("free", record.record_id))
        item = append(
            item, State.RESOLVED, record.application, own, previous=record.record_id, epoch=record.epoch, payload=reason
        )
    return item


def _tell(growth: Growth, steps: Sequence[Step], report: Report) -> None:
    item, name = growth.grown, growth.grown.key.name
    kind = "grown" if growth.known.records else "added"
    kind = kind if growth.records else "unchanged"
    setattr(report, kind, getattr(report, kind) + 1)
    report.records += len(growth.records)
    waiting = [step for step in steps if not item.processed_by(step.application) and not item.skipped_for(step.application)]
    blocker = item.blocker() if waiting else None
    if blocker:
        (report.open if blocker.state is State.PROCESSING else report.failed).append(name)
    if any(item.skipped_for(Application(upstream)) for step in waiting for upstream in step.upstream):
        report.undecided.append(name)


# The log


def _append_all(manifest: Manifest, lease: Lease, growths: Iterable[Growth]) -> None:
    """Writes the records in portions that fit into a transaction each."""
    records = ((growth, record) for growth in growths for record in growth.records)
    for portion in _portions(records, lambda one: _size(one[1])):
        try:
            lease.transact([put_record(growth.known.key, record) for growth, record in portion])
        except ConditionFailed:
            for growth in {growth.known.key: growth for growth, _ in portion}.values():
                _append_behind(manifest, lease, growth)


def _append_behind(manifest: Manifest, lease: Lease, growth: Growth) -> None:
    """Writes an item's missing records after those that discovery has written meanwhile."""
    key = growth.known.key

    def append() -> None:
        item = _known(manifest, key)
        written = {record.record_id for record in item.records}
        missing = (record for record in growth.records if record.record_id not in written)
        numbered = (dataclasses.replace(record, sequence=item.sequence + at) for at, record in enumerate(missing, start=1))
        for portion in _portions(numbered, _size):
            lease.transact([put_record(key, record) for record in portion])

    optimistically(append, lambda: Refused(f"{key.name}: its records changed {TRIES} times meanwhile. Repeat the import"))


def _known(manifest: Manifest, key: ItemKey) -> Item:
    try:
        return manifest.item(key)
    except UnknownItem:
        return Item(key, ())


def _portions(entries: Iterable[T], size: Callable[[T], int] = lambda _: 0) -> Iterator[list[T]]:
    """Yields the entries in portions that fit into a transaction, by number and by bytes."""
    portion: list[T] = []
    total = 0
    for entry in entries:
        total += size(entry)
        if portion and (len(portion) == _AT_ONCE or total > _BYTES_AT_ONCE):
            yield portion
            portion, total = [], size(entry)
        portion.append(entry)
    if portion:
        yield portion


def _size(record: Record) -> int:
    """Returns about the bytes of a record. Only its payload may be large."""
    return len(json.dumps(record.data))


# Rows beside the log


def _raise_watermarks(manifest: Manifest, lease: Lease, items: Sequence[Item], from_scratch: bool = False) -> None:
    """Moves the watermark of each strict step to the last item that is done. `from_scratch`: also backward.

    This comes first: items that discovery registers from now on are marked late by it, and `_recount` sees the earlier items.
    """
    feed, states = lease.feed, _states(manifest, lease.feed)
    writes: list[Write] = []
    for step in manifest.steps(feed):
        if step.order == "strict":
            state = states[step.application.key]
            standing = state.feed(feed)
            done = [item for item in items if item.processed_by(step.application, standing.serving_epoch)]
            last = max(done, key=lambda item: item.key, default=None)
            if from_scratch:
                state = state.with_feed(feed, watermark="", swept="", stop=None)
            if last and last.key.position > state.feed(feed).watermark:
                stop = last.landed.stop if last.landed else None
                state = state.with_feed(feed, watermark=last.key.position, stop=stop)
            writes.append(put_state(step.application, state))
    lease.transact(writes)


def _recount(manifest: Manifest, lease: Lease, stamp: Stamp, late: list[str]) -> None:
    """Writes counters and rows beside the log as the log has them.

    Adds the names of items that had to be marked late to `late`, and then raises Changed, so that the caller repeats it.
    """
    feed, steps = lease.feed, manifest.steps(lease.feed)
    prefixed = [prefix for step in steps for prefix in prefixes(step, feed)]
    kept = {row.sort for prefix in prefixed for row in stored_rows(manifest.store, manifest.dataset, prefix)}
    states = _states(manifest, feed)
    wanted: set[str] = set()
    counts: dict[str, Counter[str]] = {name: Counter() for name in states}
    marked = False
    for item in manifest.items(feed):
        for step in steps:
            name = step.application.key
            if step.order == "strict" and _is_jumped(item, step, states[name]):
                lease.transact(sweep(item, step, manifest.state(step.application), DISCOVERY, _next(stamp)))
                late.append(item.key.name)
                marked = True
            wanted |= rows_of(item, step)
            if step.ordered and (counted := counted_as(item, step, states[name])):
                counts[name][counted] += 1
    if marked:
        raise Changed
    writes: list[Write] = [Put(row, {}, ABSENT) for row in sorted(wanted - kept)]
    writes += [Delete(row, 1) for row in sorted(kept - wanted)]
    for portion in _portions(writes):
        lease.transact(portion)
    lease.transact([put_state(step.application, _counted(states, counts, step, feed)) for step in steps if step.ordered])


def _is_jumped(item: Item, step: Step, state: StepState) -> bool:
    """True if an item is behind the watermark, not done, and not yet marked late."""
    standing = state.feed(item.key.feed)
    if item.key.position > standing.watermark or item.is_late_for(step.application, standing.serving_epoch):
        return False
    if item.is_reload_asked(step.application):
        return False
    return judge(item, step, standing).standing not in PASSED


def _counted(states: Mapping[str, StepState], counts: Mapping[str, Counter[str]], step: Step, feed: str) -> StepState:
    """Returns a step's state with its feed's counters, and with all of the feed up to the watermark seen."""
    state, counted = states[step.application.key], counts[step.application.key]
    counters = {name: counted[name] for name in ("applied", "skipped", "quarantined", "late", "reloads")}
    return state.with_feed(feed, swept=state.feed(feed).watermark, **counters)
