"""Common fixtures of the manifest's tests: a feed of two steps, items by number, a manual clock, stores that lose answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from manifest_platform.manifest import (
    Application,
    Blocked,
    Claim,
    ConditionFailed,
    Item,
    ItemKey,
    Landed,
    Lease,
    Manifest,
    OutcomeUnknown,
    Payload,
    Ready,
    Record,
    Standing,
    State,
    Step,
    StepState,
    Store,
    StoreUnavailable,
)
from manifest_platform.manifest.beside import Attention, Need
from manifest_platform.manifest.keys import attention_prefix, pending_prefix, records_prefix, state_key
from manifest_platform.manifest.records import OUTPUT, Stamp
from manifest_platform.manifest.store import Put, Row, Write
from manifest_platform.manifest.transitions import discover as registration

FEED = "enriched"
SHRED, LOAD = Application("shred"), Application("load")
START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
DONE = Payload(OUTPUT, {"rows": 1})

Late = Literal["quarantine", "append"]
Gap = Literal["none", "contiguous"]


class Clock:
    """A clock that moves only when a test calls `turn`."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def turn(self, by: timedelta) -> None:
        self.now += by


def steps(late: Late = "quarantine", gap: Gap = "none", max_attempts: int = 3) -> list[Step]:
    return [
        Step(SHRED, max_attempts=max_attempts),
        Step(LOAD, upstream=("shred",), order="strict", late=late, gap=gap, max_attempts=max_attempts),
    ]


def manifest(store: Store, *, clock: Callable[[], datetime] | None = None, author: str = "test", **options: Any) -> Manifest:
    return Manifest(store, "shop", {FEED: steps(**options)}, author, run_id=f"run-{author}", clock=clock or Clock())


def key(number: int, feed: str = FEED) -> ItemKey:
    return ItemKey(feed, f"2026-01-01-{number:03d}", f"s3://bucket/{feed}/run={number:03d}/")


def landed(number: int, checksum: str = "as-landed", start: str | None = None, stop: str | None = None) -> Landed:
    return Landed(key(number), files=1, bytes=10, checksum=checksum, start=start, stop=stop)


def discover(of: Manifest, *numbers: int) -> list[str]:
    return [found.outcome for found in of.discover(FEED, [landed(number) for number in numbers])]


def twin(number: int, id_: str) -> Landed:
    """A directory with the sort key of an item at another URI."""
    return dataclasses.replace(landed(number), key=dataclasses.replace(key(number), id=id_))


def register_by_hand(of: Manifest, found: Landed) -> None:
    """Writes an item that discovery would refuse, because the manifest has its sort key under another URI."""
    states = {LOAD.key: of.state(LOAD)}
    writes = registration([found], of.steps(FEED), states, Application("discover"), Stamp("by hand"))
    of.store.transact(of.dataset, writes, f"by hand {found.key.id}")


def lease(of: Manifest, application: Application = LOAD, holder: str = "worker") -> Lease:
    return of.acquire(FEED, application.key, holder, HOUR)


def kill(held: Lease) -> None:
    """Simulates the death of the holder's process: no more heartbeats, and the lease is not given back."""
    held._stopped.set()


def shred(of: Manifest, *numbers: int) -> None:
    with lease(of, SHRED) as held:
        for claim in of.claim(held, [of.item(key(number)) for number in numbers]):
            of.complete(claim, DONE)


def land(of: Manifest, *numbers: int) -> None:
    """Discovers items and shreds them."""
    discover(of, *numbers)
    shred(of, *numbers)


def ready(of: Manifest, application: Application = LOAD) -> Ready:
    verdict = of.next(FEED, application.key, holding=True)
    assert isinstance(verdict, Ready), verdict
    return verdict


def claim_next(of: Manifest, held: Lease) -> Claim:
    verdict = ready(of, held.application)
    [claim] = of.claim(held, [verdict.item], verdict.state)
    return claim


def load_next(of: Manifest) -> int:
    """Loads the next item and returns its number."""
    with lease(of) as held:
        claim = claim_next(of, held)
        of.complete(claim, DONE)
    return number_of(claim.item.key)


def number_of(item: ItemKey) -> int:
    return int(item.sort.rsplit("-", 1)[-1])


def is_blocked(of: Manifest, number: int, standing: Standing, application: Application = LOAD) -> Blocked:
    verdict = of.next(FEED, application.key)
    assert isinstance(verdict, Blocked), verdict
    assert (number_of(verdict.item.key), verdict.standing) == (number, standing)
    return verdict


def history(of: Manifest, number: int) -> list[str]:
    return [f"{record.application.name} {record.state}" for record in of.history(key(number))]


def set_state(of: Manifest, state: StepState, application: Application = LOAD) -> None:
    of.store.transact(of.dataset, [Put(state_key(application), state.to_dict(), state.version)], f"by hand {state}")


# Records by hand: `P#1<-0` in upstream's notation


def record(
    state: State,
    id_: str,
    previous: str | None = None,
    application: Application = LOAD,
    *,
    item: str = key(1).id,
    sequence: int = 1,
    **fields: Any,
) -> Record:
    return Record(item, sequence, id_, state, application, "test", START, previous, **fields)


def item_of(*records: Record) -> Item:
    """An item with these records, numbered in the order given."""
    return Item(key(1), tuple(dataclasses.replace(one, sequence=at) for at, one in enumerate(records, start=1)))


# Everything that is stored beside the log must equal what follows from the log


def assert_kept(of: Manifest, late: Late | None = None) -> None:
    """Asserts that counters, watermark and waiting rows equal what follows from the records of all items.

    `late`: the feed's policy, if it never changed. None if it changed; then the records of each item decide.
    """
    items = list(of.items(FEED))
    assert not [problem for item in items for problem in item.problems]
    kept = of.state(LOAD).feed(FEED)
    counted = {"applied": 0, "skipped": 0, "late": 0, "quarantined": 0}
    waiting: dict[str, set[str]] = {"shred": set(), "load": set()}
    needed: dict[str, dict[str, Need]] = {"shred": {}, "load": {}}
    watermark = kept.boundary
    for item in items:
        behind = item.is_late_for(LOAD, kept.serving_epoch)
        done = item.processed_by(LOAD, kept.serving_epoch)
        failed = [record for record in item.open_records() if record.state is State.FAILED]
        if not item.processed_by(SHRED) and not item.skipped_for(SHRED) and not failed:
            waiting["shred"].add(item.key.position)
        for application in (SHRED, LOAD):
            if need := _need(item, application):
                needed[application.key][item.key.position] = need
        if done and not behind:
            watermark = max(watermark, item.key.position)
        if item.skipped_for(LOAD):
            counted["skipped"] += 1
        elif done:
            counted["applied"] += 1
        elif behind:
            append = late == "append" if late else not item.is_set_aside_for(LOAD)
            counted["late" if append else "quarantined"] += 1
            if append:
                waiting["load"].add(item.key.position)
    assert {name: getattr(kept, name) for name in counted} == counted
    assert kept.watermark == watermark
    for application in (SHRED, LOAD):
        prefix = pending_prefix(application, FEED)
        rows = of.store.query(of.dataset, prefix)
        assert {row.sort.removeprefix(prefix) for row in rows} == waiting[application.key], application
        rows = of.store.query(of.dataset, attention_prefix(application, FEED))
        told = [Attention.of(row.sort, application, FEED) for row in rows]
        assert len({one.key for one in told}) == len(told)
        assert {one.key.position: one.need for one in told} == needed[application.key], application


def _need(item: Item, application: Application) -> Need | None:
    """The reason why an item needs a person or a retry, derived from the records independently of the product's code."""
    own = [record for record in item.records if record.application.key == application.key]
    newest = max((record.epoch or 0 for record in own), default=0)
    counts = [record for record in own if (record.epoch or 0) >= newest]
    if any(record.state is State.PROCESSED for record in counts) or item.skipped_for(application):
        return None
    marks = [record for record in item.records if record.state is State.NEW and application.key in record.data.get("late", {})]
    newest_mark = max((record.data["late"][application.key] for record in marks), default=-1)
    if marks and marks[-1].data.get("set_aside") and newest_mark >= newest:
        return Need.SET_ASIDE
    if application == LOAD and item.skipped_for(SHRED):
        return Need.CUT_OFF
    ended = {record.previous for record in item.records if record.state is State.RESOLVED}
    mine_or_serving = [one for one in item.records if one.application.key != application.key or (one.epoch or 0) >= newest]
    failed = [one for one in mine_or_serving if one.state is State.FAILED and one.record_id not in ended]
    if failed:
        return Need.FAILED
    tries = 0
    for record in own:
        if record.state is State.FAILED:
            tries += record.data["kind"] != "permanent"
        elif (record.state is State.RESOLVED and not record.data.get("automatic")) or record.state is State.PROCESSED:
            tries = 0
    return Need.RETRY if tries else None


def dump(of: Manifest) -> list[tuple]:
    """The whole manifest without values that differ between executions: ids, nonces and row versions of leases."""
    names = {row.data["record_id"]: row.sort for row in of.store.query(of.dataset, records_prefix(FEED))}
    told = []
    for row in of.store.query(of.dataset, ""):
        data = {name: value for name, value in row.data.items() if name not in ("record_id", "nonce")}
        if "previous" in data:
            data["previous"] = names.get(data["previous"])
        told.append((row.sort, data))
    return told


class LossyStore:
    """A store whose n-th transaction, counted from 1, meets a fault.

    `answer lost`: the transaction commits, and the caller gets no answer. `repeat refused`: it commits, and a silent repeat by
    the client reports that the conditions do not hold. `deaf`: as `answer lost`, and the row cannot be read afterward. `request
    lost`: it does not commit, and the caller learns so. `vanished`: it does not commit, and the caller gets no answer.
    """

    def __init__(self, store: Store, fault: str, at: int):
        self.store, self.fault, self.at, self.transactions = store, fault, at, 0
        self.requests = 0
        self.units = None
        self.deaf = False

    def get(self, partition: str, sort: str) -> Row | None:
        if self.deaf:
            self.deaf = False
            raise StoreUnavailable("no connection")
        return self.store.get(partition, sort)

    def get_many(self, partition: str, sorts: Iterable[str]) -> dict[str, Row]:
        return self.store.get_many(partition, sorts)

    def query(
        self,
        partition: str,
        prefix: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        return self.store.query(partition, prefix, after=after, limit=limit, reverse=reverse)

    def transact(self, partition: str, writes: Sequence[Write], token: str) -> None:
        self.transactions += 1
        if self.transactions != self.at:
            return self.store.transact(partition, writes, token)
        if self.fault == "request lost":
            raise StoreUnavailable("no connection")
        if self.fault == "vanished":
            raise OutcomeUnknown("connection reset")
        self.store.transact(partition, writes, token)
        if self.fault == "repeat refused":
            raise ConditionFailed(writes)
        self.deaf = self.fault == "deaf"
        raise OutcomeUnknown("connection reset")

    def close(self) -> None:
        self.store.close()
