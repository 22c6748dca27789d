"""Takeover of a store: the rows of a dataset are converted to the form of this release, once, before its first write.

Belongs here: the row that identifies a dataset's manifest, the rows that are converted to a newer form, and the store that
converts them before it writes. Records of an older release are read unchanged, and so are all other rows that are not
converted.

Release 0.1.0 does not check a version. It is stopped by the rows that each of its programs reads before it writes: states,
leases, discovery's notes, merging's cursor. These rows hold a value that it refuses to read, and exist from the beginning,
empty, so that it does not create its own.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import uuid4

from manifest_platform.manifest.beside import prefixes, rows_of
from manifest_platform.manifest.dataset import GIVEN_BACK, LeaseState, Step, StepState
from manifest_platform.manifest.errors import Refused
from manifest_platform.manifest.item import ArchivedRecords, Item, ItemKey
from manifest_platform.manifest.keys import (
    ID,
    LEASES,
    MERGED,
    STATES,
    lease_key,
    lease_of,
    old_looks_key,
    position_beside,
    record_key,
    records_prefix,
    state_key,
)
from manifest_platform.manifest.records import Application, InvalidRecord, Record, format_time
from manifest_platform.manifest.store import (
    ABSENT,
    MAX_WRITES,
    TRIES,
    Check,
    Delete,
    Put,
    Row,
    Store,
    Units,
    Write,
    optimistically,
    stored_rows,
    transact_once,
)
from manifest_platform.masking import knows_any, masked_words
from manifest_platform.releases import FORM, NEEDS, RELEASE, Form, marked, unmarked

log = logging.getLogger(__name__)

NOTE = NEEDS.format(RELEASE)
"""A name among discovery's notes that is no directory: release 0.1.0 cannot read its value."""


@dataclass(frozen=True)
class Identity:
    """The identity of a dataset's manifest: a UUID that is drawn when the dataset is begun. And the form of its rows."""

    id: str
    form: Form

    @classmethod
    def of(cls, row: Row | None) -> Identity | None:
        """The identity in its row; None if release 0.1.0 began the dataset, or nobody did."""
        return cls(row.data["id"], Form.of(row.data)) if row else None


@dataclass(frozen=True)
class Places:
    """The places where programs work on a dataset: applications with a state, leases, discovered feeds, and their steps."""

    states: tuple[Application, ...]
    leases: tuple[tuple[Application, str], ...]
    looks: tuple[str, ...]
    steps: Mapping[str, Sequence[Step]]

    @classmethod
    def of(cls, feeds: Mapping[str, Sequence[Step]], others: Iterable[tuple[Application, str]] = ()) -> Places:
        """The places of declared steps; `others`: the leases of other work."""
        steps = [(step, feed) for feed, declared in feeds.items() for step in declared]
        states = {step.application.key: step.application for step, _ in steps if step.ordered}
        leases = (*((step.application, feed) for step, feed in steps), *others)
        return cls(tuple(states.values()), leases, tuple(feeds), feeds)


@dataclass(frozen=True)
class Takeover:
    """The rows of a dataset that are converted to this release's form: their keys; keys that do not exist yet are separate.

    `before`: the form that was found, None for a dataset that nobody has begun. `beside`: the number of rows beside the log
    that are added or removed, because release 0.1.0 had others.
    """

    before: Form | None
    rewritten: tuple[str, ...]
    made: tuple[str, ...]
    beside: int = 0


def identity(store: Store, dataset: str) -> Identity | None:
    """The identity of a dataset's manifest."""
    return Identity.of(store.get(dataset, ID))


def renewal(store: Store, dataset: str) -> list[Write]:
    """The write that gives a dataset's manifest a new identity, so that running programs forget what they read of it.

    For operations that remove records. Empty if there is no identity yet: then nobody knows one.
    """
    row = store.get(dataset, ID)
    return [Put(ID, {**row.data, "id": str(uuid4()), "write": str(uuid4())}, row.version, lasting=True)] if row else []


def planned(store: Store, dataset: str, places: Places, now: datetime) -> Takeover | None:
    """The takeover that would happen now; None if it is done. Raises NewerRelease, and Refused while an older release works.

    For a dataset of an older release it reads all items that are not archived.
    """
    found = _plan(store, dataset, places, now)
    if found is None:
        return None
    takeover, _ = found
    beside = sum(len(writes) - 1 for writes in _rows_beside(store, dataset, places)) if takeover.before else 0
    return dataclasses.replace(takeover, beside=beside)


def take_over(store: Store, dataset: str, places: Places, clock: Callable[[], datetime]) -> Takeover | None:
    """Converts a dataset's rows to the form of this release; None if it is done. May be called concurrently.

    States and leases come first, on condition that they have not changed since they were read. Then no worker of an older
    release can continue, and a lease that was taken meanwhile makes this start again. The identity comes last: nobody writes
    anything else before it exists, and an interrupted takeover is repeated completely. Raises NewerRelease, and Refused while
    an older release works.
    """

    def attempt() -> Takeover | None:
        found = _plan(store, dataset, places, clock())
        if found is None:
            return None
        takeover, [own, *others] = found
        most, beside = MAX_WRITES - 1, 0
        while takeover.before or len(others) > most:
            store.transact(dataset, others[:most], str(uuid4()))
            others = others[most:]
            if not others:
                break
        if takeover.before:
            for writes in _rows_beside(store, dataset, places):
                store.transact(dataset, writes, str(uuid4()))
                beside += len(writes) - 1
        transact_once(store, dataset, [own, *others], mark="write")
        return dataclasses.replace(takeover, beside=beside)

    done = optimistically(
        attempt, lambda: Refused(f"dataset {dataset}: its rows changed {TRIES} times while they were taken over; try again")
    )
    if done and done.before:
        log.warning(
            "dataset %s: its rows were of version %d and are now of version %d. Releases before %s can no longer work on it",
            dataset,
            done.before.number,
            FORM,
            RELEASE,
        )
    return done


def _plan(store: Store, dataset: str, places: Places, now: datetime) -> tuple[Takeover, list[Write]] | None:
    """The takeover and its writes; the write of the identity is the first."""
    row = store.get(dataset, ID)
    known = Identity.of(row)
    if known:
        known.form.require_writable(f"the manifest of dataset {dataset}")
        if not known.form.is_older:
            return None
    stored = {row.sort: row for prefix in (LEASES, STATES) for row in stored_rows(store, dataset, prefix)}
    stored |= store.get_many(dataset, [MERGED, *map(old_looks_key, places.looks)])
    wanted = dict.fromkeys(
        [
            *(lease_key(application, place) for application, place in places.leases),
            *(sort for sort in stored if sort.startswith(LEASES)),
            *map(old_looks_key, places.looks),
            MERGED,
            *map(state_key, places.states),
            *(sort for sort in stored if sort.startswith(STATES)),
        ]
    )
    writes: list[Write] = [_put(dataset, sort, stored.get(sort), now) for sort in wanted]
    data = {**(row.data if row else {}), "id": known.id if known else str(uuid4())}
    data |= {"version": FORM, "release": RELEASE, "write": str(uuid4())}
    own = Put(ID, data, row.version if row else ABSENT, lasting=True)
    before = known.form if known else Form.of({}) if stored or store.query(dataset, "RECORD#", limit=1) else None
    rewritten = tuple(sort for sort in wanted if sort in stored)
    return Takeover(before, rewritten, tuple(sort for sort in wanted if sort not in stored)), [own, *writes]


def _put(dataset: str, sort: str, row: Row | None, now: datetime) -> Put:
    """A row in the form of this release, over the existing row."""
    version = row.version if row else ABSENT
    if sort.startswith(STATES):
        state = StepState.from_dict(row.data, version) if row else StepState()
        state.form.require_writable(f"{sort} of dataset {dataset}")
        return Put(sort, state.to_dict(), version)
    if sort == MERGED:
        before = row.data if row else {"commit": 0}
        return Put(sort, {**before, "commit": marked(unmarked(before["commit"]))}, version, lasting=True)
    if not sort.startswith(LEASES):
        return Put(sort, {**(row.data if row else {}), **note()}, version, lasting=True)
    lease = LeaseState.from_dict(row.data, version) if row else LeaseState("", None, 0, GIVEN_BACK, None, "")
    lease.form.require_writable(f"{sort} of dataset {dataset}")
    if lease.form.is_older and lease.is_live(now):
        application, place = lease_of(sort)
        raise Refused(
            f"dataset {dataset}: release {lease.form.release} is working on it, and {RELEASE} must convert its rows first. End"
            f" {lease.holder}, which holds the lease of {application.key} on {place}, or wait until"
            f" {format_time(lease.expires_at)}"
        )
    return Put(sort, dataclasses.replace(lease, nonce=str(uuid4())).to_dict(), version, lasting=True)


def _must_be_taken_over(row: Row | None) -> bool:
    known = Identity.of(row)
    return known is None or known.form.number != FORM


def _rows_beside(store: Store, dataset: str, places: Places) -> Iterator[list[Write]]:
    """The writes that make the rows beside the log those of this release, item by item.

    The last write of each item is the condition that the item has not changed since it was read. An archived item is done for
    all steps and has no such rows. The doctor reports items that cannot be read.
    """
    for feed, steps in places.steps.items():
        there: dict[str, dict[str, int]] = {}
        for prefix in (prefix for step in steps for prefix in prefixes(step, feed)):
            for row in stored_rows(store, dataset, prefix):
                there.setdefault(position_beside(row.sort, prefix), {})[row.sort] = row.version
        for position, records in groupby(stored_rows(store, dataset, records_prefix(feed)), key=_position_of(feed)):
            rows, key = list(records), ItemKey.at(feed, position)
            if ArchivedRecords.of(rows[0]):
                continue
            try:
                item = Item(key, tuple(Record.from_dict(row.data) for row in rows))
            except InvalidRecord:
                continue
            has, due = there.get(position, {}), {row for step in steps for row in rows_of(item, step)}
            writes: list[Write] = [Put(sort, {}, ABSENT) for sort in sorted(due - has.keys())]
            writes += [Delete(sort, has[sort]) for sort in sorted(has.keys() - due)]
            if writes:
                yield [*writes, Check(record_key(key, item.sequence + 1), ABSENT)]


def _position_of(feed: str) -> Callable[[Row], str]:
    prefix = records_prefix(feed)
    return lambda row: row.sort.removeprefix(prefix).rpartition("#")[0]


def note() -> dict[str, Any]:
    """The value among discovery's notes that release 0.1.0 cannot read."""
    return {NOTE: {"checksum": "", "first_seen": NOTE}}


class TakenOver:
    """A store that takes a dataset's rows over before its first write. Reading changes nothing.

    Each write raises NewerRelease once a newer release has begun to write, as far as this process has seen it.
    """

    def __init__(self, store: Store, places: Places, clock: Callable[[], datetime]):
        self.store, self._places, self._clock = store, places, clock
        self._done: set[str] = set()
        self._lock = threading.Lock()

    @property
    def requests(self) -> int:
        """The number of calls made."""
        return self.store.requests

    @property
    def units(self) -> Units | None:
        """The cost of the calls."""
        return self.store.units

    def get(self, partition: str, sort: str) -> Row | None:
        """The row with a key."""
        return self.store.get(partition, sort)

    def get_many(self, partition: str, sorts: Iterable[str]) -> dict[str, Row]:
        """The rows with keys."""
        wanted = list(sorts)
        found = self.store.get_many(partition, wanted)
        if ID in wanted and _must_be_taken_over(found.get(ID)):
            self._done.discard(partition)  # the store was replaced, or a newer release began: the next write checks it
        return found

    def query(
        self, partition: str, prefix: str, *, after: str | None = None, limit: int | None = None, reverse: bool = False
    ) -> list[Row]:
        """Rows in order."""
        return self.store.query(partition, prefix, after=after, limit=limit, reverse=reverse)

    def transact(self, partition: str, writes: Sequence[Write], token: str) -> None:
        """All writes or none; secrets are masked in their texts."""
        if partition not in self._done:
            self.take_over(partition)
        if knows_any():
            writes = [replace(one, data=masked_words(one.data)) if isinstance(one, Put) else one for one in writes]
        self.store.transact(partition, writes, token)

    def close(self) -> None:
        """Closes connections."""
        self.store.close()

    def planned(self, dataset: str) -> Takeover | None:
        """The takeover of a dataset that would happen now; None if it is done."""
        return planned(self.store, dataset, self._places, self._clock())

    def take_over(self, dataset: str) -> Takeover | None:
        """Takes a dataset over; None if it was done before."""
        with self._lock:
            done = take_over(self.store, dataset, self._places, self._clock)
            self._done.add(dataset)
        return done
