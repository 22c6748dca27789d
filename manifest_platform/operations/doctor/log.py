"""The manifest compared with its own log: rules, order, counters, watermarks, waiting rows, claims and clocks.

Belongs here: one walk over all items of each feed, and its findings. Other processes may work on the manifest meanwhile, so
anything suspicious is read again before it is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby

from manifest_platform import progress
from manifest_platform.manifest import (
    Application,
    FeedState,
    Item,
    ItemKey,
    LeaseState,
    Manifest,
    Record,
    Refused,
    State,
    Step,
    StepState,
    StoreError,
    StoreUnavailable,
)
from manifest_platform.manifest.beside import prefixes, rows_of
from manifest_platform.manifest.dataset import position_name
from manifest_platform.manifest.keys import PENDING, position_beside, record_key, records_prefix
from manifest_platform.manifest.outputs import leader
from manifest_platform.manifest.payloads import problems
from manifest_platform.manifest.store import stored_rows
from manifest_platform.operations.doctor.findings import EXAMINE, REPAIR, Diagnosis, Finding, Kind
from manifest_platform.operations.doctor.fold import COUNTERS, Fold, Loads, fold_loads, fold_state
from manifest_platform.operations.migration.histories import Layout
from manifest_platform.operations.migration.importing import IMPORTED
from manifest_platform.remedies import Action, Remedy

CLOCK_TOLERANCE = timedelta(minutes=1)
ATTEMPTS = 3
"""The number of walks, if steps work meanwhile, after which counters are reported as unchecked."""
_UNREADABLE = (ValueError, KeyError, TypeError, Refused, StoreError)
"""Errors that the reading of one item may raise."""


@dataclass
class States:
    """The ordered steps' states, stored and derived from the log. `settled`: true if nothing changed during the walk."""

    stored: dict[str, StepState] = field(default_factory=dict)
    folded: dict[str, StepState] = field(default_factory=dict)
    lost: list[Finding] = field(default_factory=list)
    settled: bool = True


class Watcher:
    """An examination that sees every item during the walk, such as the comparison with the ledger or with the objects."""

    def feed(self, feed: str) -> None:
        """Begins a feed."""

    def see(self, item: Item) -> None:
        """Takes the next item of the feed."""

    def end(self, feed: str) -> Iterator[Finding]:
        """Ends the feed, and yields its findings."""
        yield from ()


def examine(
    manifest: Manifest, now: datetime, leases: Mapping[str, timedelta], watchers: tuple[Watcher, ...] = ()
) -> tuple[Diagnosis, States]:
    """Examines all items of all feeds. `leases`: the duration of a step's leases, if it is fixed."""
    diagnosis = Diagnosis()
    for attempt in range(1, ATTEMPTS + 1):
        states = _read_states(manifest)
        walk = _Walk(manifest, now, states, watchers if attempt == 1 else ())
        found, items = walk.findings(), walk.items
        if attempt == 1:
            diagnosis.findings += found
            diagnosis.items = items
        states.settled = states.stored == _read_states(manifest).stored
        if states.settled or walk.unreadable:
            break
    diagnosis.findings += walk.claims(leases)
    if walk.unreadable:
        states.settled = False
    elif states.settled:
        diagnosis.findings += [*states.lost, *_differences(states)]
    else:
        cause = (
            f"steps worked {ATTEMPTS} times while the log was read, so counters and watermarks could not be compared. Examine"
            " again while no step works"
        )
        diagnosis.findings.append(Finding(Kind.UNCHECKED, cause, EXAMINE, place=manifest.dataset))
    diagnosis.findings = list(dict.fromkeys(diagnosis.findings))  # an unreadable item is found by several examinations
    return diagnosis, states


def _read_states(manifest: Manifest) -> States:
    applications = {
        step.application.key: step.application for steps in manifest.feeds.values() for step in steps if step.ordered
    }
    return States({name: manifest.state(application) for name, application in applications.items()})


class _Walk:
    """A walk over all feeds."""

    def __init__(self, manifest: Manifest, now: datetime, states: States, watchers: tuple[Watcher, ...]):
        self.manifest, self.now, self.states, self.watchers = manifest, now, states, watchers
        self.items = 0
        self.unreadable = False
        self._open: list[tuple[ItemKey, Record]] = []
        self._ahead: dict[str, tuple[Item, Record]] = {}

    def findings(self) -> list[Finding]:
        """Returns the findings on items and rows, and puts the derived states into `states`."""
        found: list[Finding] = []
        folds: dict[str, list[Fold]] = {name: [] for name in self.states.stored}
        loads = {name: self._loads(name) for name in folds}
        for feed in self.manifest.feeds:
            found += self._feed(feed, folds, loads)
        for name, stored in self.states.stored.items():
            self.states.folded[name] = fold_state(stored, loads[name], folds[name])
            for fold in folds[name]:
                self.states.lost += [_lost(key, fold.step) for key in fold.lost]
        return [*found, *self._clocks()]

    def _loads(self, name: str) -> Loads:
        """Derives the full loads of an application from the snapshots that it loads."""
        for feed, steps in self.manifest.feeds.items():
            for step in steps:
                if step.application.key == name and step.order == "full":
                    snapshots = (item for item in _readable(self.manifest, feed) if isinstance(item, Item))
                    return fold_loads(step.application, snapshots)
        return Loads(epoch=max((feed.serving_epoch for feed in self.states.stored[name].feeds.values()), default=1))

    def _beginning(self, step: Step, feed: str, loads: Loads) -> tuple[Loads, bool]:
        """Returns the snapshots that restart a feed for a step, and whether any covers the feed.

        They are the step's own; or, according to its state, those of a step that it waits for, which it follows when it claims.
        """
        name = step.application.key
        stored = self.states.stored[name].feed(feed)
        covered = any(feed in one.covers for _, one in _full_steps(self.manifest, name))
        followed = leader(step, feed, self.manifest.steps(feed), self.states.stored)
        epoch = stored.serving_epoch
        if covered or followed is None or not 1 < epoch <= followed.feed(feed).serving_epoch:
            return loads, covered
        return Loads(epoch, serving=epoch, boundary=position_name(feed, stored.boundary)), True

    def _feed(self, feed: str, folds: dict[str, list[Fold]], loads: Mapping[str, Loads]) -> Iterator[Finding]:
        steps = self.manifest.steps(feed)
        own: list[Fold] = []
        for step in steps:
            if step.ordered:
                name = step.application.key
                looked = self.states.stored[name].feed(feed).swept
                fold = Fold(step, feed, *self._beginning(step, feed, loads[name]), looked)
                own.append(fold)
                folds[name].append(fold)
        waiting = [_RowsBeside(self.manifest, step, feed, prefix) for step in steps for prefix in prefixes(step, feed)]
        for watcher in self.watchers:
            watcher.feed(feed)
        before: Item | None = None
        for item in progress.each(_readable(self.manifest, feed), f"examining the items of {feed}"):
            self.items += 1
            if isinstance(item, Finding):
                self.unreadable = True
                yield item
                continue
            yield from self._item(item, before)
            for fold in own:
                fold.add(item)
            for rows in waiting:
                yield from rows.see(item)
            for watcher in self.watchers:
                watcher.see(item)
            before = item
        for rows in waiting:
            yield from rows.end()
        for watcher in self.watchers:
            yield from watcher.end(feed)

    def _item(self, item: Item, before: Item | None) -> Iterator[Finding]:
        name = item.key.name
        if wrong := problems(item):
            yield Finding(Kind.INVALID, "; ".join(wrong), Remedy(Action.READ_RECORDS, item=name), item.key)
        if before and before.key.sort == item.key.sort:
            cause = f"{before.key.id} and {item.key.id} have the same position: one directory may be loaded twice"
            yield Finding(Kind.TWIN, cause, Remedy(Action.SKIP, item=item.key.id), item.key)
        for record in item.records:
            if record.timestamp > self.now + CLOCK_TOLERANCE:
                worst = self._ahead.get(record.author)
                if worst is None or worst[1].timestamp < record.timestamp:
                    self._ahead[record.author] = item, record
        serving = {key: state.feed(item.key.feed).serving_epoch for key, state in self.states.stored.items()}
        self._open += [(item.key, record) for record in item.open_records(serving) if record.state is State.PROCESSING]

    def _clocks(self) -> Iterator[Finding]:
        for author, (item, record) in self._ahead.items():
            ahead = (record.timestamp - self.now).total_seconds()
            cause = f"{author} wrote a {record.state} record {ahead:,.0f} s ahead of this machine's clock: one clock is wrong"
            yield Finding(Kind.CLOCK, cause, Remedy(Action.CHECK_CLOCK), item.key, record.application.key)

    def claims(self, durations: Mapping[str, timedelta]) -> Iterator[Finding]:
        """Yields claims that nobody works on, and leases that end later than possible."""
        leases = {
            (name, feed): self.manifest.lease(Application(name), feed)
            for feed, steps in self.manifest.feeds.items()
            for name in (step.application.key for step in steps)
        }
        for key, record in self._open:
            name = record.application.key
            lease = leases.get((name, key.feed)) or self.manifest.lease(record.application, key.feed)
            if lease and lease.is_live(self.now):
                continue  # the holder works on it, or settles it before anything else
            item = look_again(self.manifest, key)
            if isinstance(item, Finding):
                yield item
                continue
            if record.record_id not in {one.record_id for one in item.open_records()}:
                continue  # it was ended meanwhile
            ended = f"its lease ended at {lease.expires_at:%Y-%m-%d %H:%M:%S %Z}" if lease else "it holds no lease"
            ended = "its lease was given back" if lease and lease.given_back else ended
            cause = f"{name} ({record.author}) began at {record.timestamp:%Y-%m-%d %H:%M:%S %Z} and is gone: {ended}"
            declared = any(step.application.key == name for step in self.manifest.steps(key.feed))
            if not declared:
                cause = f"{cause}. No step of feed {key.feed} is called {name}: declare it under steps to end its claims"
            yield Finding(Kind.DEAD_CLAIM, cause, REPAIR, key, name, repairable=declared)
        for (name, feed), lease in leases.items():
            longest = durations.get(name)
            if lease and lease.is_live(self.now) and (lease.run_id or "").startswith(IMPORTED):
                yield _import(feed, lease)
            elif lease and longest and lease.expires_at > self.now + longest + CLOCK_TOLERANCE:
                cause = (
                    f"the lease of {name} on feed {feed}, of {longest.total_seconds():g} s, ends at"
                    f" {lease.expires_at:%Y-%m-%d %H:%M:%S %Z}: the clock of {lease.holder} is ahead of this machine's"
                )
                yield Finding(Kind.CLOCK, cause, Remedy(Action.CHECK_CLOCK), step=name)


class _RowsBeside:
    """A step's rows of one kind beside the log, compared with the items. Both are read in order, side by side."""

    def __init__(self, manifest: Manifest, step: Step, feed: str, prefix: str):
        self.manifest, self.step, self.feed, self.prefix = manifest, step, feed, prefix
        rows = (row.sort for row in stored_rows(manifest.store, manifest.dataset, prefix))
        self._groups = groupby(rows, key=lambda sort: position_beside(sort, prefix))
        self._take()

    def _take(self) -> None:
        position, rows = next(self._groups, (None, ()))
        self._position, self._rows = position, set(rows)

    def see(self, item: Item) -> Iterator[Finding]:
        """Takes the next item. Its row must exist exactly while it waits, or needs a person or a retry."""
        yield from self._strays(lambda position: position < item.key.position)
        there: set[str] = set()
        if self._position == item.key.position:
            there = self._rows
            self._take()
        if there != self._due(item):
            yield from self._confirmed(item.key)

    def end(self) -> Iterator[Finding]:
        """Reports the remaining rows, which belong to no item."""
        yield from self._strays(lambda _position: True)

    def _due(self, item: Item) -> set[str]:
        return {row for row in rows_of(item, self.step) if row.startswith(self.prefix)}

    def _strays(self, is_stray: Callable[[str], bool]) -> Iterator[Finding]:
        while self._position is not None and is_stray(self._position):
            yield from self._confirmed(ItemKey.at(self.feed, self._position))
            self._take()

    def _confirmed(self, key: ItemKey) -> Iterator[Finding]:
        """Yields the finding if it persists: the row and the item were not read at the same instant."""
        for _ in range(ATTEMPTS):
            before = look_again(self.manifest, key)
            there = rows_there(self.manifest, self.prefix, key)
            after = look_again(self.manifest, key)
            if isinstance(before, Finding) or isinstance(after, Finding):
                yield from (one for one in (before, after) if isinstance(one, Finding))
                return
            if after.sequence == before.sequence:
                break
        else:
            return
        due = self._due(before)
        if set(there) != due:
            name = self.step.application.key
            cause = _amiss_waiting(name, before, bool(due)) if self.prefix.startswith(PENDING) else _amiss_attention(name, due)
            yield Finding(Kind.WAITING_ROW, cause, REPAIR, key, name, repairable=True)


def _amiss_waiting(name: str, item: Item, waits: bool) -> str:
    if waits:
        return f"it waits for {name}, and the row by which {name} would find it is missing"
    why = "is done, skipped, failed or not ready" if item.records else "is not in the log"
    return f"{name} has a waiting row for it, although it {why}"


def _amiss_attention(name: str, due: set[str]) -> str:
    if due:
        return f"it needs a person or a retry for {name}, and the row by which status would report it is missing"
    return f"a row says that it needs a person or a retry for {name}, and it does not"


def rows_there(manifest: Manifest, prefix: str, key: ItemKey) -> dict[str, int]:
    """Returns an item's rows beside the log with a prefix: version by sort key."""
    rows = manifest.store.query(manifest.dataset, prefix + key.position)
    return {row.sort: row.version for row in rows if position_beside(row.sort, prefix) == key.position}


def read_item(manifest: Manifest, key: ItemKey) -> Item:
    """Reads an item; without records if the manifest does not have it."""
    rows = manifest.store.query(manifest.dataset, records_prefix(key.feed, key.position))
    return manifest.item(key) if rows else Item(key, ())


def look_again(manifest: Manifest, key: ItemKey) -> Item | Finding:
    """Reads an item again, as `read_item`. Returns a finding if its records cannot be read."""
    try:
        return read_item(manifest, key)
    except _UNREADABLE as error:
        return _unreadable(key.feed, key.position, error)


def _readable(manifest: Manifest, feed: str) -> Iterator[Item | Finding]:
    """Yields the items of a feed in order; a finding in the place of an item whose rows cannot be read."""
    prefix = records_prefix(feed)
    for position, group in groupby(
        stored_rows(manifest.store, manifest.dataset, prefix), lambda row: row.sort.removeprefix(prefix).rpartition("#")[0]
    ):
        rows = list(group)
        try:
            key = ItemKey.at(feed, position)
            if "archived" in rows[0].data:
                yield manifest.item(key)
                continue
            item = Item(key, tuple(Record.from_dict(row.data) for row in rows))
            moved = [
                row.sort for row, record in zip(rows, item.records, strict=True) if row.sort != record_key(key, record.sequence)
            ]
            if moved:
                raise ValueError(f"the key of row {moved[0]} does not say its sequence number")
            yield item
        except _UNREADABLE as error:
            yield _unreadable(feed, position, error)


def _unreadable(feed: str, position: str, error: Exception) -> Finding:
    """Returns the finding on an unreadable item. Errors of the store explain themselves; other errors mean a foreign writer."""
    kind, cause = Kind.UNREADABLE, str(error)
    try:
        key = ItemKey.at(feed, position)
    except ValueError:
        key = None
    if isinstance(error, StoreUnavailable):
        kind = Kind.UNCHECKED
    elif not isinstance(error, (StoreError, Refused)):
        cause = f"{error}. Another program wrote this row: restore it from a dump or a backup"
    remedy = Remedy(Action.READ_RECORDS, item=key.id if key else position)
    return Finding(kind, cause, remedy, key, place=records_prefix(feed, position))


def _import(feed: str, lease: LeaseState) -> Finding:
    cause = (
        f"an import holds feed {feed} ({lease.holder}). If it is not running now, it was interrupted, and nothing is claimed"
        " until it is completed: repeat the same command with the same options"
    )
    source = (lease.run_id or "").removeprefix(IMPORTED).removeprefix("dynamodb://")
    action = Action.IMPORT_LOADER if lease.purpose == Layout.LOADER else Action.IMPORT
    return Finding(Kind.IMPORT, cause, Remedy(action, source=source), place=feed)


def _full_steps(manifest: Manifest, name: str) -> Iterator[tuple[str, Step]]:
    for feed, steps in manifest.feeds.items():
        for step in steps:
            if step.application.key == name and step.order == "full":
                yield feed, step


def _lost(key: ItemKey, step: Step) -> Finding:
    name = step.application.key
    cause = f"it is behind the positions that {name} still looks at, and is neither done nor skipped nor marked late"
    return Finding(Kind.LOST, cause, REPAIR, key, name, repairable=True)


def _differences(states: States) -> Iterator[Finding]:
    for name, stored in states.stored.items():
        folded = states.folded[name]
        for feed in sorted({*stored.feeds, *folded.feeds}):
            for cause in _feed_differences(stored.feed(feed), folded.feed(feed)):
                yield Finding(Kind.STATE, f"feed {feed}: {cause}", REPAIR, step=name, place=f"STATE#{name}", repairable=True)
        for part in ("mode", "epoch", "full", "boundary"):
            kept, due = getattr(stored, part), getattr(folded, part)
            if kept != due:
                cause = f"{part} is {kept}, and according to the log it is {due}"
                yield Finding(Kind.STATE, cause, REPAIR, step=name, place=f"STATE#{name}", repairable=True)


def _feed_differences(stored: FeedState, folded: FeedState) -> Iterator[str]:
    for part in (*COUNTERS, "watermark", "stop", "serving_epoch", "boundary"):
        kept, due = getattr(stored, part), getattr(folded, part)
        if kept != due:
            yield f"{part} is {kept!r}, and according to the log it is {due!r}"
    if stored.swept > folded.watermark and stored.watermark == folded.watermark:
        yield f"swept is {stored.swept!r}, which is beyond the watermark"
