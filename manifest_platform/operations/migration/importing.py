"""Appends to our manifest what the histories of another one have and ours lacks, and what is kept beside the log follows.

Belongs here: the import, again and again while the other system still runs, until ours takes over. Nothing is ever overwritten.

An import holds the leases of all steps of the feed; where it breaks off they stay held, so nothing is claimed until its next
run has completed what is there. So the log may be written in portions, and watermarks, counters and waiting rows after it.
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
from manifest_platform.manifest.manifest import DISCOVERY
from manifest_platform.manifest.records import REASON, Stamp
from manifest_platform.manifest.store import ABSENT, MAX_WRITES, TRIES, Changed, Delete, Put, Write, optimistically, stored_rows
from manifest_platform.manifest.takeover import renewal
from manifest_platform.manifest.transitions import acquire, append, counted_as, expire, put_record, put_state, sweep
from manifest_platform.operations.migration.histories import Histories, Layout, Note, derived_id, open_work

IMPORTED = "imported from "
"""What the run id of an imported record begins with; the source follows."""
HELD = timedelta(days=3650)
"""How long the leases of an import that broke off stay held, unless it is run again."""

T = TypeVar("T")

_AT_ONCE = MAX_WRITES - 1  # beside the write of the lease
_BYTES_AT_ONCE = 2_000_000  # well below what any store's transaction takes


class WorkedOn(Refused):
    """A step has worked on the feed here: histories of another system can be added to it no more."""


class Differs(ValueError):
    """A record is here with another content than in the source, or is not in the source any more."""


@dataclass
class Report:
    """What an import did, or would do. Items are named by their folders; `records` are those appended.

    `added`: items that were not here; `grown`: items that were, with fewer records; `unchanged`: items with nothing new.
    `late`: not done, and behind the watermark. `open`: in work or left by a crash: the source does not say. `failed`: to be
    resolved. `undecided`: to be skipped by a step that comes before the load, so that the load will stop at them.
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
    """An item as it is here, and as it is with what the source has beyond that."""

    known: Item
    grown: Item

    @property
    def records(self) -> tuple[Record, ...]:
        """What is to be appended."""
        return self.grown.records[len(self.known.records) :]


def import_items(
    manifest: Manifest, feed: str, histories: Histories, source: str, *, free_open: bool = False, dry_run: bool = False
) -> Report:
    """Appends to a feed what the histories have and it lacks: as often as one likes, and again after any crash.

    `source` names where they come from, in the run id of every imported record. `free_open`: the other system is stopped for
    good, so what it left in Processing is freed. Raises WorkedOn where a step has worked on the feed here, LeaseBusy where one
    is about to, Refused during a full load, and StoreError: run it again then.
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
        if not resumed or isinstance(error, WorkedOn):  # who worked on the feed was let in by an import that had done all
            leases.close()
        raise
    lease = held[-1]
    _append_all(manifest, lease, growths)
    optimistically(
        lambda: _raise_watermarks(manifest, lease, items),
        lambda: Refused(f"feed {feed}: discovery registered items {TRIES} times meanwhile; run the import again"),
    )
    optimistically(
        lambda: _recount(manifest, lease, stamp, report.late),
        lambda: Refused(f"feed {feed}: discovery registered items {TRIES} times meanwhile; run the import again"),
    )
    leases.close()
    return report


@dataclass
class Dropped:
    """What the end of a broken import took away: `items` that are here no more, others that it shortened, and `records`."""

    source: str
    dry_run: bool
    items: int = 0
    shortened: int = 0
    records: int = 0


def drop_import(manifest: Manifest, feed: str, source: str, dry_run: bool = False) -> Dropped:
    """Takes away all that imports from a source have appended, once one of them broke off, and lets the feed go.

    Nothing was claimed since, for the import holds the feed; so this is the one case where records go. Watermarks, counters and
    waiting rows are as if it had never been imported; and the manifest gets another identity, or a sensor that runs would take
    what is gone for known. It may break off, too, and be run again. Raises Refused where no import from the source broke off,
    and where others' records follow the imported ones; WorkedOn where a step has worked on the feed.
    """
    stamp = Stamp(manifest.author, f"{IMPORTED}{source}")
    if not _broke_off(manifest, feed, stamp):
        raise Refused(f"no import from {source} broke off on feed {feed}: there is nothing to drop")
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
        follow, lambda: Refused(f"feed {feed}: discovery registered items {TRIES} times meanwhile; drop the import again")
    )
    if renewed := renewal(manifest.store, manifest.dataset):
        leases[-1].transact(renewed)
    for lease in leases:
        lease.release()
    return report


def _deletes(manifest: Manifest, feed: str, stamp: Stamp, report: Dropped) -> Iterator[Write]:
    """The removal of a source's records, the newest of each item first: what is left of an item is always its beginning."""
    rows = stored_rows(manifest.store, manifest.dataset, records_prefix(feed))
    for position, grouped in groupby(rows, key=lambda row: row.sort.rpartition("#")[0]):
        found = list(grouped)
        own = [row.data["run_id"] == stamp.run_id for row in found]
        if not any(own):
            continue
        first, name = own.index(True), ItemKey.at(feed, position.removeprefix(records_prefix(feed))).name
        if not all(own[first:]) or ArchivedRecords.of(found[0]):
            raise Refused(
                f"{name}: others' records follow those that were imported, or they were archived; run the import again to"
                " complete it"
            )
        report.items += first == 0
        report.shortened += first > 0
        report.records += len(found) - first
        yield from (Delete(row.sort, row.version) for row in reversed(found[first:]))


# Holding the feed


def _broke_off(manifest: Manifest, feed: str, stamp: Stamp) -> bool:
    """Whether an import from the same source holds a lease of the feed."""
    leases = [manifest.lease(step.application, feed) for step in manifest.steps(feed)]
    return any(lease and lease.run_id == stamp.run_id and lease.is_live(_now()) for lease in leases)


def _take(manifest: Manifest, feed: str, step: Step, stamp: Stamp, layout: Layout | None = None) -> Lease:
    """The lease of a step, also from an import of the same source that broke off; it says of which layout, unless that is None,
    as whoever drops the import does not know it. Raises LeaseBusy.
    """
    holder = f"{stamp.author}, {stamp.run_id}: run the import again to complete it, or with --abort to drop it"

    def take() -> LeaseState:
        before = manifest.lease(step.application, feed)
        if before and before.run_id == stamp.run_id:
            before = expire(before)
        after = acquire(step.application, feed, before, holder, _next(stamp), HELD)
        after = dataclasses.replace(after, purpose=layout or (before.purpose if before else ""))
        return write_lease(manifest.store, manifest.dataset, step.application, feed, after)

    # Tried again, for the first write to a store of the release before takes it over, and its rows then have other versions.
    held = optimistically(take, lambda: Refused(f"others took the lease of {step.application.key} on feed {feed}; try again"))
    return Lease(manifest.store, manifest.dataset, step.application, feed, held, HELD, _now)


def _now() -> datetime:
    return datetime.now(UTC)


def _next(stamp: Stamp) -> Stamp:
    """The same, for one more record that the import makes itself."""
    return Stamp(stamp.author, stamp.run_id)


# What is to be appended


def _plan(
    manifest: Manifest, feed: str, histories: Histories, free_open: bool, stamp: Stamp, report: Report
) -> tuple[list[Item], list[Growth]]:
    """All items as they will be, and what those grow by that lack something."""
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
    """The states of a feed's ordered steps."""
    return {step.application.key: manifest.state(step.application) for step in manifest.steps(feed) if step.ordered}


def _check_incremental(feed: str, states: Mapping[str, StepState]) -> None:
    for name, state in states.items():
        if state.mode is not Mode.INCREMENTAL:
            raise Refused(f"feed {feed}: {name} is loading {state.full} in full: import when that is done or cancelled")


def _check_not_worked_on(feed: str, steps: Sequence[Step], items: Iterable[Item]) -> None:
    ours = {step.application.key for step in steps}
    for item in items:
        for record in item.records:
            if record.state is State.PROCESSING and record.application.key in ours and not is_imported(record):
                raise WorkedOn(
                    f"feed {feed} has been worked on: {record.application.key} claimed {item.key.name} at"
                    f" {record.timestamp:%Y-%m-%d %H:%M:%S %Z}. Import before the first drain, or into a new dataset"
                )


def is_imported(record: Record) -> bool:
    """Whether a record comes from another system's manifest, or was made by an import."""
    return (record.run_id or "").startswith(IMPORTED)


def grow(known: Item, source: Item, steps: Sequence[Step], epochs: Mapping[str, int], stamp: Stamp, free_open: bool) -> Item:
    """The item with the source's records that it lacks, and with what follows from them: pure. Raises Differs.

    `epochs`: of the ordered steps, by application key. What follows: what comes before a load that the source has done need not
    be done here, and is skipped; with `free_open`, work that is open is freed.
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
            raise Differs(f"record {here.record_id} is here with another {name}: {mine} here, {theirs} in the source")


def _check_still_there(known: Item, source: Item, stamp: Stamp) -> None:
    ids = {record.record_id for record in source.records}
    made = {derived_id(purpose, id_) for purpose in ("skip", "free") for id_ in ids}
    for record in known.records:
        of_source = record.run_id == stamp.run_id and not record.data.get("keeps_skips")
        if of_source and record.record_id not in ids | made:
            raise Differs(f"record {record.record_id} ({record.state}) was imported, and the source has it no more")


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
    """Writes the records, as many at once as a transaction takes."""
    records = ((growth, record) for growth in growths for record in growth.records)
    for portion in _portions(records, lambda one: _size(one[1])):
        try:
            lease.transact([put_record(growth.known.key, record) for growth, record in portion])
        except ConditionFailed:
            for growth in {growth.known.key: growth for growth, _ in portion}.values():
                _append_behind(manifest, lease, growth)


def _append_behind(manifest: Manifest, lease: Lease, growth: Growth) -> None:
    """Writes what is missing of an item's records, behind what discovery has written meanwhile."""
    key = growth.known.key

    def append() -> None:
        item = _known(manifest, key)
        written = {record.record_id for record in item.records}
        missing = (record for record in growth.records if record.record_id not in written)
        numbered = (dataclasses.replace(record, sequence=item.sequence + at) for at, record in enumerate(missing, start=1))
        for portion in _portions(numbered, _size):
            lease.transact([put_record(key, record) for record in portion])

    optimistically(append, lambda: Refused(f"{key.name}: its records changed {TRIES} times; run the import again"))


def _known(manifest: Manifest, key: ItemKey) -> Item:
    try:
        return manifest.item(key)
    except UnknownItem:
        return Item(key, ())


def _portions(entries: Iterable[T], size: Callable[[T], int] = lambda _: 0) -> Iterator[list[T]]:
    """The entries in portions that one transaction takes, by number and by their sizes in bytes."""
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
    """About how many bytes a record's payload takes, which alone may be large."""
    return len(json.dumps(record.data))


# What is kept beside the log


def _raise_watermarks(manifest: Manifest, lease: Lease, items: Sequence[Item], from_scratch: bool = False) -> None:
    """Puts the watermark of each strict step on the last item that is done; `from_scratch`, also if that is before where it is.

    Before all else: what discovery registers from now on is late by itself, and what it did before is seen afterwards.
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
    """Counters and the rows beside the log as it has them; raises Changed once an item had to be marked late, and tells its
    name."""
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
    """Whether an item lies behind the watermark, not done, and nothing says so yet."""
    standing = state.feed(item.key.feed)
    if item.key.position > standing.watermark or item.is_late_for(step.application, standing.serving_epoch):
        return False
    return judge(item, step, standing).standing not in PASSED


def _counted(states: Mapping[str, StepState], counts: Mapping[str, Counter[str]], step: Step, feed: str) -> StepState:
    """A step's state with its feed's counters; all of the feed up to the watermark has been looked at."""
    state, counted = states[step.application.key], counts[step.application.key]
    counters = {name: counted[name] for name in ("applied", "skipped", "quarantined", "late")}
    return state.with_feed(feed, swept=state.feed(feed).watermark, **counters)
