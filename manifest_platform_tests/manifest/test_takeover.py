"""Upgrading a store of an older release; and rows of a newer release, which are kept and not overwritten."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import record_files
from manifest_platform.manifest import Failure, FailureKind, Manifest, Refused, Store
from manifest_platform.manifest.archive import move
from manifest_platform.manifest.dump import dump, put_dump
from manifest_platform.manifest.item import ArchivedRecords
from manifest_platform.manifest.keys import ID, lease_key, pending_key, record_key, state_key
from manifest_platform.manifest.store import ABSENT, Delete, Put, Row
from manifest_platform.manifest.stores.sql import SqlStore
from manifest_platform.manifest.takeover import Places, TakenOver, identity, planned, take_over
from manifest_platform.releases import FORM, NEEDS, RELEASE, Form, NewerRelease, unmarked
from manifest_platform_tests.manifest.given import (
    FEED,
    HOUR,
    LOAD,
    SHRED,
    START,
    Clock,
    claim_next,
    discover,
    key,
    kill,
    land,
    lease,
    load_next,
    manifest,
    steps,
)

PLACES = Places.of({FEED: steps()})
STATE, LEASE = state_key(LOAD), lease_key(LOAD, FEED)
OURS = NEEDS.format(RELEASE)
LATER = "0.9.0"


def edit(store: Store, sort: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Writes a row as another release would."""
    row = store.get("shop", sort)
    assert row
    store.transact("shop", [Put(sort, change(row.data), row.version)], f"edit {sort} {row.version}")


def as_before(store: Store) -> None:
    """Rewrites the rows as release 0.1.0 wrote them."""

    def old(data: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in data.items() if name not in ("version", "release", OURS)}
        return {**kept, "mode": unmarked(data["mode"])} if "mode" in data else kept

    for row in store.query("shop", ""):
        if row.sort == ID or row.sort.startswith("ATTENTION#"):
            store.transact("shop", [Delete(row.sort, row.version)], f"no {row.sort}")
        else:
            edit(store, row.sort, old)
    for item in manifest(store).items(FEED):
        pending = pending_key(SHRED, item.key)
        if item.blocker() and store.get("shop", pending) is None:  # failed items were among the waiting rows
            store.transact("shop", [Put(pending, {}, ABSENT)], f"waits {pending}")


def taken(store: Store, clock: Clock | None = None) -> TakenOver:
    return TakenOver(store, PLACES, clock or Clock())


@pytest.fixture
def shop(store: Store) -> Manifest:
    """A manifest with a loaded item, a shredded item and a new item."""
    of = manifest(taken(store))
    land(of, 1, 2)
    discover(of, 3)
    load_next(of)
    return of


# Rows of an older release


@pytest.mark.every_store
def test_the_first_write_converts_the_rows_of_an_older_release_and_loses_none(store: Store, shop: Manifest) -> None:
    as_before(store)
    before = {row.sort: row for row in store.query("shop", "")}
    state, items = shop.state(LOAD), list(shop.items(FEED))
    assert (state.form.is_older, state.feed(FEED).applied) == (True, 1)
    assert {row.sort: row for row in store.query("shop", "")} == before
    of = manifest(taken(store))
    assert load_next(of) == 2
    found = identity(store, "shop")
    assert found and found.form == Form(FORM, RELEASE)
    after = {row.sort: row for row in store.query("shop", "")}
    assert [after[sort] for sort in before if sort.startswith("RECORD")] == [
        row for sort, row in before.items() if sort.startswith("RECORD")
    ]
    assert of.item(key(1)) == items[0]
    assert (of.state(LOAD).form, of.state(LOAD).feed(FEED).applied) == (Form(), 2)


@pytest.mark.every_store
def test_failed_and_quarantined_items_of_an_older_release_get_attention_rows(store: Store, shop: Manifest) -> None:
    """In the older release they were among the waiting rows, or only in the log, so `status` and the sensor would not report
    them.
    """
    discover(shop, 4)
    with lease(shop, SHRED) as held:
        [claim] = shop.claim(held, [shop.item(key(4))])
        shop.fail(claim, Failure(FailureKind.PERMANENT, "no schema"))
    load_next(shop)
    assert discover(shop, 0) == ["quarantined"]
    as_new = store.query("shop", "ATTENTION#") + store.query("shop", "PENDING#")
    assert len([row for row in as_new if row.sort.startswith("ATTENTION#")]) == 3
    as_before(store)
    plan = planned(store, "shop", PLACES, START)
    assert plan and plan.beside == 4  # the takeover deletes the waiting row of item 4
    of = manifest(taken(store))
    of.resolve(key(4), "the schema is there now")
    assert [one.key for one in of.attention(FEED, "load")] == [key(0)]
    assert [item.key for item in of.waiting(FEED, "shred", 9)[0]] == [key(0), key(3), key(4)]


@pytest.mark.every_store
def test_only_one_of_many_concurrent_processes_takes_over(store: Store, reopen: Callable[[], Store], shop: Manifest) -> None:
    as_before(store)

    def take() -> bool:
        own = reopen()
        try:
            return take_over(own, "shop", PLACES, Clock()) is not None
        finally:
            own.close()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(done.result() for done in [pool.submit(take) for _ in range(4)]) == [False, False, False, True]
    row = store.get("shop", STATE)
    assert row and row.data["version"] == FORM


def test_a_new_dataset_gets_rows_that_the_older_release_refuses(store: Store) -> None:
    plan = planned(store, "shop", PLACES, START)
    assert plan and (plan.before, plan.rewritten) == (None, ())
    assert set(plan.made) == {STATE, LEASE, lease_key(SHRED, FEED), f"LOOKS#{FEED}", "MCURSOR"}
    assert store.query("shop", "") == []
    assert take_over(store, "shop", PLACES, Clock()) == plan
    assert {row.sort for row in store.query("shop", "")} == {*plan.made, ID}
    assert planned(store, "shop", PLACES, START) is None


def test_no_takeover_while_a_worker_of_an_older_release_holds_a_lease(store: Store, shop: Manifest) -> None:
    clock = Clock()
    held = lease(manifest(store, clock=clock), SHRED, holder="old@host:1")
    kill(held)
    as_before(store)
    before = store.query("shop", "")
    with pytest.raises(
        Refused, match=r"release 0\.1\.0 is working on it.*End old@host:1, which holds the lease of shred on enriched"
    ):
        discover(manifest(taken(store, clock)), 4)
    assert store.query("shop", "") == before
    clock.turn(2 * HOUR)
    assert discover(manifest(taken(store, clock)), 4) == ["new"]


def test_a_worker_of_an_older_release_that_takes_a_lease_meanwhile_is_noticed(store: Store, shop: Manifest) -> None:
    """The takeover is conditional on the version of each row that it read."""
    as_before(store)

    class Meddling(SqlStore):
        def __init__(self) -> None:
            self.done = False

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def get_many(self, partition: str, sorts: Any) -> dict[str, Row]:
            return store.get_many(partition, sorts)

        def get(self, partition: str, sort: str) -> Row | None:
            return store.get(partition, sort)

        def query(self, partition: str, prefix: str, **bounds: Any) -> list[Row]:
            return store.query(partition, prefix, **bounds)

        def transact(self, partition: str, writes: Any, token: str) -> None:
            if not self.done:
                self.done = True
                edit(store, LEASE, lambda data: {**data, "holder": "old", "expires_at": "2026-01-01T01:00:00.000000Z"})
            store.transact(partition, writes, token)

    with pytest.raises(Refused, match="is working on it"):
        take_over(Meddling(), "shop", PLACES, Clock())
    assert identity(store, "shop") is None


def test_a_dataset_of_more_rows_than_one_transaction_holds_is_taken_over(store: Store) -> None:
    places = Places.of({f"feed{number}": steps() for number in range(60)})
    done = take_over(store, "shop", places, Clock())
    assert done and len(done.made) == 60 * 3 + 2
    assert {row.sort for row in store.query("shop", "")} == {*done.made, ID}


# Rows of a newer release


def newer(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "version": FORM + 1, "release": LATER}


def test_a_newer_releases_store_is_read_and_not_written(store: Store, shop: Manifest) -> None:
    edit(store, ID, newer)
    before = store.query("shop", "")
    of = manifest(taken(store))
    assert of.state(LOAD).feed(FEED).applied == 1
    for write in (
        lambda: discover(of, 4),
        lambda: lease(of),
        lambda: of.skip(key(3), "not needed"),
        lambda: of.keep_looks(FEED, of.looks(FEED), {"run": {"checksum": "c", "first_seen": "t"}}),
    ):
        with pytest.raises(NewerRelease, match=rf"dataset shop is of version 3.*use manifest-platform {LATER} or later"):
            write()
    assert store.query("shop", "") == before


def _of_newer_lease(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != OURS} | {NEEDS.format(LATER): FORM + 1}


@pytest.mark.parametrize(
    ("sort", "change"),
    [(STATE, newer), (LEASE, _of_newer_lease), (record_key(key(2), 1), lambda data: {**data, "version": FORM + 1})],
)
def test_a_process_that_lives_through_an_upgrade_no_longer_writes(
    store: Store, shop: Manifest, sort: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    """The process has read the old identity. The rows that its writes depend on carry the version too."""
    edit(store, sort, change)
    before = store.query("shop", "")
    with pytest.raises(NewerRelease, match=r"of version 3.*nothing was written"), lease(shop) as held:
        before = store.query("shop", "")  # including the lease
        claim_next(shop, held)
    assert [row for row in store.query("shop", "") if row.sort != LEASE] == [row for row in before if row.sort != LEASE]


def test_a_newer_identity_that_a_process_happens_to_read_stops_its_next_write(store: Store, shop: Manifest) -> None:
    edit(store, ID, newer)
    shop.recall()
    with pytest.raises(NewerRelease):
        discover(shop, 4)


MORE = {"new_field": {"deep": [1]}}


def test_unknown_attributes_are_written_back(store: Store, shop: Manifest) -> None:
    """A release may add a field without a new version. An older release that may continue must not drop the field."""

    def more(data: dict[str, Any]) -> dict[str, Any]:
        feeds = {"feeds": {name: feed | MORE for name, feed in data["feeds"].items()}} if "feeds" in data else {}
        return {**data, **MORE, **feeds}

    for sort in (STATE, LEASE, ID):
        edit(store, sort, more)
    shop = manifest(taken(store))
    assert load_next(shop) == 2
    found = {sort: store.get("shop", sort) for sort in (STATE, LEASE, ID)}
    assert all(row and row.data["new_field"] == MORE["new_field"] for row in found.values())
    state = found[STATE]
    assert state and state.data["feeds"][FEED]["new_field"] == MORE["new_field"]
    assert state.data["feeds"][FEED]["applied"] == 2


def _with_more(data: dict[str, Any]) -> dict[str, Any]:
    payload = {**data["payload"], **MORE} if data["payload"] else None
    return {**data, **MORE, "application": {**data["application"], **MORE}, "payload": payload}


def test_unknown_attributes_of_a_record_are_archived_and_restored(store: Store, shop: Manifest, tmp_path: Path) -> None:
    sort = record_key(key(1), 1)
    edit(store, sort, _with_more)
    row, item = store.get("shop", sort), shop.item(key(1))
    assert row and item.records[0].to_dict() == row.data
    file = record_files.write_records(str(tmp_path), "shop", FEED, [item])
    [*found] = record_files.read_archived(key(1), ArchivedRecords(file.uri, file.checksum, item.sequence))
    assert tuple(found) == item.records
    assert found[0].to_dict() == row.data
    kept = move(item, ArchivedRecords(file.uri, file.checksum, item.sequence))[0]
    assert isinstance(kept, Put) and kept.data["new_field"] == MORE["new_field"]


def test_unknown_attributes_are_dumped_and_restored(store: Store, shop: Manifest, tmp_path: Path) -> None:
    edit(store, record_key(key(1), 1), _with_more)
    edit(store, STATE, lambda data: {**data, **MORE})
    store.transact("shop", [Put("NEWKIND#a", MORE, ABSENT)], "a row of a kind that it does not know")
    lines = list(dump(store, "shop"))
    other = SqlStore(f"sqlite:///{tmp_path}/other.db")
    put_dump(other, "shop", lambda: lines)
    assert [row.data for row in other.query("shop", "")] == [row.data for row in store.query("shop", "")]
    other.close()


@pytest.mark.parametrize("sort", [ID, STATE, record_key(key(1), 1)])
def test_a_newer_releases_dump_is_not_put_into_a_store(store: Store, shop: Manifest, tmp_path: Path, sort: str) -> None:
    edit(store, sort, newer)
    lines = list(dump(store, "shop"))
    other = SqlStore(f"sqlite:///{tmp_path}/other.db")
    with pytest.raises(NewerRelease, match=f"use manifest-platform {LATER} or later"):
        put_dump(other, "shop", lambda: lines)
    assert other.query("shop", "") == []
    other.close()
