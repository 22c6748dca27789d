"""The manifest compared with its log: damage is found, and repaired if that is safe. A healthy manifest has no findings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import NoReturn, cast

import pytest

from manifest_platform.manifest import (
    Application,
    Failure,
    FailureKind,
    FeedState,
    ItemKey,
    Lease,
    Manifest,
    Step,
    StepState,
    Store,
)
from manifest_platform.manifest.archive import move
from manifest_platform.manifest.dataset import Mode
from manifest_platform.manifest.item import ArchivedRecords
from manifest_platform.manifest.keys import attention_prefix, pending_key, record_key, records_prefix, state_key
from manifest_platform.manifest.records import OUTPUT, Payload, State
from manifest_platform.manifest.store import Delete, Put, Row, RowDamaged, StoreUnavailable, Write
from manifest_platform.manifest.stores.sql import SqlStore
from manifest_platform.operations.doctor.findings import Finding, Kind
from manifest_platform.operations.doctor.log import ATTEMPTS, States, examine
from manifest_platform.operations.doctor.repair import end_dead_claims, restate, rewrite_rows_beside
from manifest_platform.operations.migration.importing import HELD, IMPORTED
from manifest_platform.remedies import Action, Remedy
from manifest_platform_tests.manifest import vault
from manifest_platform_tests.manifest.given import (
    DONE,
    FEED,
    HOUR,
    LOAD,
    SHRED,
    Clock,
    assert_kept,
    claim_next,
    discover,
    history,
    key,
    kill,
    land,
    landed,
    lease,
    load_next,
    manifest,
    record,
    register_by_hand,
    set_state,
    shred,
    twin,
)

MINUTE = timedelta(minutes=1)
STRAY = "0c5b1c9e-6f2d-4a7e-9a55-2f4e1d3c7b10"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = SqlStore(f"sqlite:///{tmp_path}/manifest.db")
    yield opened
    opened.close()


def found(of: Manifest) -> list[Finding]:
    return examined(of)[0]


def examined(of: Manifest) -> tuple[list[Finding], States]:
    diagnosis, states = examine(of, of._clock(), {"load": HOUR, "shred": HOUR})
    return diagnosis.findings, states


def kinds(of: Manifest) -> list[Kind]:
    return [finding.kind for finding in found(of)]


def mended(of: Manifest) -> list[str]:
    """Does the repairs that need no warehouse, and returns what they report."""
    findings, states = examined(of)

    def acquire(feed: str, application: str) -> AbstractContextManager[Lease]:
        return of.acquire(feed, application, "doctor", HOUR)

    settled = list(end_dead_claims(of, findings, acquire))
    if settled:
        findings, states = examined(of)
    return [*settled, *restate(of, states), *rewrite_rows_beside(of, findings)]


def busy_shop(store: Store, **options) -> Manifest:
    """A shop with items in every state."""
    shop = manifest(store, late="append", **options)
    land(shop, 2, 3, 4, 6, 7, 8)
    for _ in range(3):
        load_next(shop)
    shop.skip(key(6), "not needed")
    discover(shop, 1, 5)
    shred(shop, 1, 5)
    load_next(shop)
    load_next(shop)
    with lease(shop) as held:
        shop.fail(claim_next(shop, held), Failure(FailureKind.PERMANENT, "no"))
    manifest(store, late="quarantine").discover(FEED, [landed(0)])
    return shop


def test_a_healthy_log_has_no_findings(store: Store) -> None:
    shop = busy_shop(store)
    assert found(shop) == []
    assert_kept(shop)
    assert mended(shop) == []


def test_an_empty_manifest_is_healthy(store: Store) -> None:
    assert found(manifest(store)) == []


@pytest.mark.parametrize("then", ["begun", "cancelled", "loaded", "gone on", "begun again"])
def test_full_loads_in_any_stage_cause_no_findings(store: Store, then: str) -> None:
    of = vault.vault(store)
    vault.land(of, vault.INCR, 1, 2, 3, 4)
    vault.land(of, vault.LOG, 1, 2)
    vault.land(of, vault.FULL, 2, 3)
    vault.load(of, vault.INCR, 1, 2, 3)
    vault.load(of, vault.LOG, 1)
    vault.begin(of, 2)
    if then == "cancelled":
        with vault.acquire(of, vault.FULL) as held:
            of.cancel_full_load(held, "not now")
    elif then != "begun":
        vault.load(of, vault.FULL, 2)
    if then in ("gone on", "begun again"):
        vault.load(of, vault.INCR, 3, 4)
        vault.land(of, vault.INCR, 1, shredded=False)
    if then == "begun again":
        vault.begin(of, 3)
    before = vault.state(of)
    assert (before.mode == Mode.FULL_LOAD) == then.startswith("begun")
    assert found(of) == []

    store.transact(of.dataset, [Delete(state_key(LOAD), before.version)], "the state is gone")
    assert Kind.STATE in kinds(of)
    assert mended(of)
    after = vault.state(of)
    assert _without_swept(after) == _without_swept(before)
    assert found(of) == []


def _without_swept(state: StepState) -> StepState:
    feeds = {name: dataclasses.replace(feed, swept="") for name, feed in state.feeds.items()}
    return dataclasses.replace(state, feeds={name: feed for name, feed in feeds.items() if feed != FeedState()}, version=0)


def test_states_are_rebuilt_from_the_log_alone(store: Store) -> None:
    shop = busy_shop(store)
    before = shop.state(LOAD)
    told = [(finding.kind, finding.key) for finding in found(shop)]
    assert told == []
    waiting = {name: list(shop.pending(FEED, name)) for name in ("shred", "load")}
    for row in store.query(shop.dataset, ""):
        if not row.sort.startswith("RECORD#"):
            store.transact(shop.dataset, [Delete(row.sort, row.version)], f"gone {row.sort}")
    assert Kind.STATE in kinds(shop)
    mended(shop)
    assert _without_swept(shop.state(LOAD)) == _without_swept(before)
    assert {name: list(shop.pending(FEED, name)) for name in ("shred", "load")} == waiting
    assert found(shop) == []
    assert_kept(shop)


@pytest.mark.parametrize(
    "wrong",
    [
        {"applied": 7},
        {"skipped": 0},
        {"quarantined": 3},
        {"late": 1},
        {"watermark": key(3).position},
        {"watermark": key(8).position},
        {"stop": "2026-01-02"},
        {"serving_epoch": 0},
        {"boundary": "0"},
    ],
    ids=str,
)
def test_a_state_that_differs_from_the_log_is_found_and_repaired(store: Store, wrong: dict) -> None:
    shop = busy_shop(store)
    state = shop.state(LOAD)
    set_state(shop, state.with_feed(FEED, **wrong))
    findings = found(shop)
    assert {finding.kind for finding in findings} == {Kind.STATE}
    [part] = wrong
    assert any(f"{part} is {wrong[part]!r}, and according to the log it is " in finding.cause for finding in findings)
    assert mended(shop) == ["state of load: counters, watermarks and epochs were written as the log has them"]
    assert _without_swept(shop.state(LOAD)) == _without_swept(state)
    assert found(shop) == []
    assert_kept(shop)


def test_an_epoch_older_than_the_log_is_found_and_repaired(store: Store) -> None:
    shop = manifest(store)
    land(shop, 1)
    set_state(shop, dataclasses.replace(shop.state(LOAD), epoch=2))
    load_next(shop)
    set_state(shop, dataclasses.replace(shop.state(LOAD), epoch=1))
    [finding] = found(shop)
    assert (finding.kind, finding.cause) == (Kind.STATE, "epoch is 1, and according to the log it is 2")
    mended(shop)
    assert shop.state(LOAD).epoch == 2


def test_a_state_that_changed_since_the_examination_is_not_overwritten(store: Store) -> None:
    shop = busy_shop(store)
    set_state(shop, shop.state(LOAD).with_feed(FEED, applied=7))
    _, states = examined(shop)
    set_state(shop, shop.state(LOAD).with_feed(FEED, applied=8))
    assert list(restate(shop, states)) == ["state of load: not written, because the step worked meanwhile. Repair again"]
    assert shop.state(LOAD).feed(FEED).applied == 8


def test_a_late_item_moves_no_watermark(store: Store) -> None:
    shop = manifest(store, late="append")
    land(shop, 1)
    with lease(shop) as held:
        shop.defer(claim_next(shop, held), "the sink is past it")
        shop.complete(claim_next(shop, held), DONE)
    assert shop.state(LOAD).feed(FEED).watermark == ""
    assert found(shop) == []


def test_an_item_that_was_passed_over_unseen_is_found_and_restored(store: Store) -> None:
    shop = manifest(store)
    land(shop, 1, 3)
    load_next(shop)
    load_next(shop)
    before = shop.state(LOAD)
    set_state(shop, StepState(version=before.version))
    shop.discover(FEED, [landed(2)])
    unmarked = dataclasses.replace(before, version=shop.state(LOAD).version)
    set_state(shop, unmarked.with_feed(FEED, swept=key(3).position))
    assert shop.next(FEED, "load").__class__.__name__ == "Idle", "nobody would ever see it"
    [finding] = found(shop)
    assert (finding.kind, finding.key, finding.repairable) == (Kind.LOST, key(2), True)
    mended(shop)
    shop.next(FEED, "load")
    assert shop.item(key(2)).is_late_for(LOAD)
    assert found(shop) == []
    assert_kept(shop)


def test_an_item_registered_while_repair_raises_a_watermark_is_seen(store: Store) -> None:
    shop = manifest(store)
    land(shop, 1, 3)
    load_next(shop)
    load_next(shop)
    state = shop.state(LOAD)
    set_state(shop, state.with_feed(FEED, watermark=key(1).position, swept=""))
    _, states = examined(shop)
    discover(shop, 2)
    assert list(restate(shop, states))
    shop.next(FEED, "load")
    assert shop.item(key(2)).is_late_for(LOAD)


def test_a_missing_waiting_row_is_found_and_written(store: Store) -> None:
    shop = busy_shop(store)
    discover(shop, 9)
    store.transact(shop.dataset, [Delete(pending_key(SHRED, key(9)), 1)], "gone")
    assert [item.key for item in shop.waiting(FEED, "shred", 9)[0]] == [key(0)]
    [finding] = found(shop)
    assert (finding.kind, finding.key, finding.step) == (Kind.WAITING_ROW, key(9), "shred")
    assert mended(shop) == ["run=009: it waits for shred again"]
    assert found(shop) == []
    assert_kept(shop)


@pytest.mark.parametrize(("number", "why"), [(2, "is done, skipped, failed or not ready"), (99, "is not in the log")])
def test_a_surplus_waiting_row_is_found_and_removed(store: Store, number: int, why: str) -> None:
    shop = busy_shop(store)
    store.transact(shop.dataset, [Put(pending_key(SHRED, key(number)), {}, 0)], "stray")
    [finding] = found(shop)
    assert (finding.kind, finding.key) == (Kind.WAITING_ROW, key(number))
    assert finding.cause == f"shred has a waiting row for it, although it {why}"
    assert mended(shop) == [f"{key(number).name}: it does not wait for shred any more"]
    assert found(shop) == []


def test_a_missing_attention_row_is_found_and_written(store: Store) -> None:
    shop = busy_shop(store)
    discover(shop, 9)
    with lease(shop, SHRED) as held:
        [claim] = shop.claim(held, [shop.item(key(9))])
        shop.fail(claim, Failure(FailureKind.PERMANENT, "no"))
    rows = {f"{attention_prefix(name, FEED)}{key(9).position}#failed.0" for name in (SHRED, LOAD)}
    store.transact(shop.dataset, [Delete(row, 1) for row in sorted(rows)], "gone")
    assert [(one.kind, one.key, one.step) for one in found(shop)] == [
        (Kind.WAITING_ROW, key(9), "shred"),
        (Kind.WAITING_ROW, key(9), "load"),
    ]
    assert mended(shop) == ["run=009: status reports it for shred", "run=009: status reports it for load"]
    assert found(shop) == []
    assert_kept(shop)


def test_a_surplus_attention_row_is_found_and_removed(store: Store) -> None:
    shop = busy_shop(store)
    stray = f"{attention_prefix(LOAD, FEED)}{key(2).position}#failed.1"
    store.transact(shop.dataset, [Put(stray, {}, 0)], "stray")
    [finding] = found(shop)
    assert finding.cause == "a row says that it needs a person or a retry for load, and it does not"
    assert mended(shop) == ["run=002: status no longer reports it for load"]
    assert found(shop) == []


def test_a_waiting_row_of_no_item_is_found(store: Store) -> None:
    shop = manifest(store)
    discover(shop, 1, 3)
    store.transact(shop.dataset, [Put(pending_key(SHRED, key(2)), {}, 0)], "stray")
    [finding] = found(shop)
    assert (finding.kind, finding.key) == (Kind.WAITING_ROW, key(2))


def test_a_waiting_row_is_not_written_if_its_item_changed_meanwhile(store: Store) -> None:
    shop = manifest(store)
    discover(shop, 1)
    store.transact(shop.dataset, [Delete(pending_key(SHRED, key(1)), 1)], "gone")
    findings = found(shop)
    meddling = Meddling(
        store, "PENDING#", lambda: shop.commit_output(key(1), Application("sessions"), Payload(OUTPUT, {})), at="query"
    )
    told = list(rewrite_rows_beside(manifest(meddling), findings))
    assert told == ["run=001: its rows beside the log were not written, because it changed meanwhile. Repair again"]
    assert store.get(shop.dataset, pending_key(SHRED, key(1))) is None


class Meddling:
    """A store that calls `does` when rows with a prefix are read: `at` a `query`, `before get` or `after get`."""

    def __init__(self, store: Store, prefix: str, does: Callable[[], object], at: str = "query", times: int = 1):
        self.store, self.prefix, self.does, self.at, self.times = store, prefix, does, at, times
        self.requests, self.units = 0, None

    def _meddle(self, at: str, sort: str) -> None:
        if at == self.at and self.times and sort.startswith(self.prefix):
            self.times -= 1
            self.does()

    def get(self, partition: str, sort: str) -> Row | None:
        self._meddle("before get", sort)
        row = self.store.get(partition, sort)
        self._meddle("after get", sort)
        return row

    def get_many(self, partition: str, sorts: Iterable[str]) -> dict[str, Row]:
        return {sort: row for sort in sorts if (row := self.get(partition, sort))}

    def query(self, partition: str, prefix: str, **options) -> list[Row]:
        rows = self.store.query(partition, prefix, **options)
        self._meddle("query", prefix)
        return rows

    def transact(self, partition: str, writes: Sequence[Write], token: str) -> None:
        self.store.transact(partition, writes, token)

    def close(self) -> None:
        self.store.close()


def test_concurrent_work_causes_no_findings(store: Store) -> None:
    shop = manifest(store)
    discover(shop, 1, 2)
    assert found(manifest(Meddling(store, "PENDING#shred", lambda: shred(shop, 1)))) == []
    assert found(manifest(Meddling(store, "RECORD#", lambda: load_next(shop)))) == []
    assert found(manifest(Meddling(store, "PENDING#shred", lambda: discover(shop, 4)))) == []
    shop.skip(key(4), "not needed")
    waits_again = Meddling(store, "PENDING#shred", lambda: shop.unskip(key(4), "needed"))
    and_not = Meddling(cast(Store, waits_again), pending_key(SHRED, key(4)), lambda: shop.skip(key(4), "no"))
    assert found(manifest(and_not)) == []
    discover(shop, 3)
    held = lease(shop, SHRED)
    claims = shop.claim(held, [shop.item(key(2)), shop.item(key(3))])
    assert (
        found(manifest(Meddling(store, "LEASE#", lambda: shop.complete(claims[0], Payload(OUTPUT, {})), at="after get"))) == []
    )
    held.release()
    assert kinds(shop) == [Kind.DEAD_CLAIM]
    ends = Meddling(store, "LEASE#", lambda: shop.complete(claims[1], Payload(OUTPUT, {})), at="after get")
    assert found(manifest(ends)) == []


def test_counters_are_reported_as_unchecked_if_steps_work_during_every_walk(store: Store) -> None:
    shop = manifest(store)
    land(shop, *range(1, 9))
    busy = Meddling(store, "RECORD#", lambda: load_next(shop), times=ATTEMPTS)
    [finding] = found(manifest(busy))
    assert finding.kind is Kind.UNCHECKED
    assert f"steps worked {ATTEMPTS} times" in finding.cause


@pytest.mark.parametrize("application", [SHRED, LOAD])
def test_a_dead_claim_is_found_and_ended(store: Store, application: Application) -> None:
    clock = Clock()
    shop = manifest(store, clock=clock)
    land(shop, 1)
    discover(shop, 2)
    number = 1 if application is LOAD else 2
    held = lease(shop, application)
    claim_next(shop, held)
    assert found(shop) == []
    kill(held)
    clock.turn(HOUR + MINUTE)
    [finding] = found(shop)
    assert (finding.kind, finding.key, finding.step) == (Kind.DEAD_CLAIM, key(number), application.key)
    assert "its lease ended at 2026-01-01 01:00:00 UTC" in finding.cause
    with lease(shop, application):
        assert found(shop) == [], "the new holder settles it"
        [told] = mended_with(shop, [finding])
        assert told.startswith("not settled, because somebody works on the feed now: ")
    [told] = mended(shop)
    assert told == f"run=00{number}: the claim of {application.key} by test is ended (Failed, Resolved)"
    assert history(shop, number)[-2:] == [f"{application.key} Failed", f"{application.key} Resolved"]
    assert found(shop) == []


def mended_with(of: Manifest, findings: list[Finding]) -> list[str]:
    return list(end_dead_claims(of, findings, lambda feed, application: of.acquire(feed, application, "doctor", HOUR)))


def test_a_claim_without_a_lease_is_found_and_ended(store: Store) -> None:
    shop = manifest(store)
    discover(shop, 1)
    stray = record(State.PROCESSING, STRAY, shop.item(key(1)).records[0].record_id, SHRED, sequence=2)
    store.transact(shop.dataset, [Put(record_key(key(1), 2), stray.to_dict(), 0)], "by hand")
    [finding] = found(shop)
    assert (finding.kind, "it holds no lease" in finding.cause) == (Kind.DEAD_CLAIM, True)
    mended(shop)
    assert found(shop) == []
    shred(shop, 1)


def test_a_claim_of_an_undeclared_step_is_repaired_only_once_it_is_declared(store: Store) -> None:
    shop = manifest(store)
    discover(shop, 1)
    stray = record(State.PROCESSING, STRAY, None, Application("merge"), sequence=2)
    store.transact(shop.dataset, [Put(record_key(key(1), 2), stray.to_dict(), 0)], "by hand")
    [finding] = found(shop)
    assert (finding.kind, finding.repairable) == (Kind.DEAD_CLAIM, False)
    assert "No step of feed enriched is called merge: declare it" in finding.cause
    assert mended(shop) == []
    merging = Manifest(store, "shop", {FEED: [*shop.steps(FEED), Step(Application("merge"))]}, "test", clock=shop._clock)
    assert Kind.DEAD_CLAIM in kinds(merging)
    mended(merging)
    assert found(merging) == []


def test_repair_lets_existing_items_wait_for_a_new_step(store: Store) -> None:
    shop = busy_shop(store)
    later = Manifest(store, "shop", {FEED: [*shop.steps(FEED), Step(Application("count"))]}, "test", clock=shop._clock)
    assert set(kinds(later)) == {Kind.WAITING_ROW}
    mended(later)
    assert found(later) == []
    assert len(later.waiting(FEED, "count", 99)[0]) == 7


@pytest.mark.parametrize(("ahead", "told"), [(61, 1), (60, 0)])
def test_records_from_a_clock_that_is_ahead_are_found(store: Store, ahead: int, told: int) -> None:
    clock, fast = Clock(), Clock()
    fast.turn(timedelta(seconds=ahead))
    shop = manifest(store, clock=clock)
    discover(manifest(store, clock=fast, author="fast"), 1, 2)
    findings = found(shop)
    assert len(findings) == told
    for finding in findings:
        assert finding.kind is Kind.CLOCK
        assert finding.cause.startswith("fast wrote a New record 61 s ahead of this machine's clock")


@pytest.mark.parametrize(("ahead", "told"), [(61, [Kind.CLOCK]), (60, [])])
def test_a_lease_that_ends_later_than_possible_is_found(store: Store, ahead: int, told: list[Kind]) -> None:
    clock, fast = Clock(), Clock()
    fast.turn(timedelta(seconds=ahead))
    with lease(manifest(store, clock=fast)):
        assert kinds(manifest(store, clock=clock)) == told


def test_two_items_with_the_same_sort_key_are_found(store: Store) -> None:
    shop = manifest(store)
    discover(shop, 1, 2)
    register_by_hand(shop, twin(1, "s3://other/run=001/"))
    [finding] = [one for one in found(shop) if one.kind is Kind.TWIN]
    assert (finding.kind, finding.key) == (Kind.TWIN, twin(1, "s3://other/run=001/").key)
    assert "s3://bucket/enriched/run=001/ and s3://other/run=001/" in finding.cause


def test_an_item_whose_records_break_the_rules_is_found(store: Store) -> None:
    shop = manifest(store)
    discover(shop, 1, 2)
    stray = record(State.PROCESSED, STRAY, application=SHRED, sequence=2, payload=Payload(OUTPUT, {"rows": "many"}))
    store.transact(shop.dataset, [Put(record_key(key(1), 2), stray.to_dict(), 0)], "by hand")
    [finding] = [one for one in found(shop) if one.kind is Kind.INVALID]
    assert finding.key == key(1)
    assert "must point at a Processing" in finding.cause
    assert "$.rows: 'many' breaks type" in finding.cause
    assert finding.remedy == Remedy(Action.READ_RECORDS, item="run=001")


def test_an_unreadable_row_hides_no_other_finding_and_no_state_is_rewritten(store: Store) -> None:
    shop = manifest(store)
    land(shop, 1, 2)
    load_next(shop)
    row = store.get(shop.dataset, record_key(key(1), 1))
    assert row
    store.transact(shop.dataset, [Put(row.sort, {**row.data, "state": "Lost"}, row.version)], "damage")
    discover(shop, 3)
    store.transact(shop.dataset, [Delete(pending_key(SHRED, key(3)), 1)], "gone")
    findings, states = examined(shop)
    assert [finding.kind for finding in findings] == [Kind.UNREADABLE, Kind.WAITING_ROW]
    assert (findings[0].key, findings[0].place) == (key(1), records_prefix(FEED, key(1).position))
    assert findings[0].remedy == Remedy(Action.READ_RECORDS, item=key(1).id)
    assert list(restate(shop, states)) == []


def test_a_row_whose_key_has_another_sequence_number_is_found(store: Store) -> None:
    shop = manifest(store)
    discover(shop, 1)
    row = store.get(shop.dataset, record_key(key(1), 1))
    assert row
    store.transact(shop.dataset, [Delete(row.sort, 1), Put(record_key(key(1), 7), row.data, 0)], "moved")
    [finding] = [one for one in found(shop) if one.kind is Kind.UNREADABLE]
    assert f"the key of row {record_key(key(1), 7)} does not say its sequence number" in finding.cause


def damage(of: Manifest, number: int) -> None:
    row = of.store.get(of.dataset, record_key(key(number), 1))
    assert row
    of.store.transact(of.dataset, [Put(row.sort, {**row.data, "state": "Lost"}, row.version)], f"damage {number}")


def test_a_damaged_waiting_item_is_reported_once(store: Store) -> None:
    shop = manifest(store)
    discover(shop, 1, 2)
    damage(shop, 1)
    assert [(one.kind, one.key) for one in found(shop)] == [(Kind.UNREADABLE, key(1))]


def test_a_claim_that_is_damaged_during_the_examination_is_reported(store: Store) -> None:
    shop = manifest(store)
    discover(shop, 1)
    held = lease(shop, SHRED)
    claim_next(shop, held)
    held.release()
    damages = Meddling(store, "LEASE#", lambda: damage(shop, 1), at="after get")
    assert kinds(manifest(damages)) == [Kind.UNREADABLE]


@pytest.mark.parametrize(
    ("error", "kind"),
    [(RowDamaged("a.parquet is gone"), Kind.UNREADABLE), (StoreUnavailable("a.parquet cannot be read now"), Kind.UNCHECKED)],
    ids=["gone", "unavailable"],
)
def test_a_missing_archive_file_is_reported_with_the_error_of_the_store(store: Store, error: Exception, kind: Kind) -> None:
    shop = manifest(store)
    land(shop, 1, 2)
    load_next(shop)
    load_next(shop)
    item = shop.item(key(1))
    place = ArchivedRecords("file:///a.parquet", "checksum", item.sequence)
    store.transact(shop.dataset, move(item, place), "moved")

    def read_archived(_key: ItemKey, _place: ArchivedRecords) -> NoReturn:
        raise error

    [finding] = found(Manifest(store, "shop", shop.feeds, "test", clock=shop._clock, read_archived=read_archived))
    assert (finding.kind, finding.cause, finding.key) == (kind, str(error), key(1))
    assert finding.remedy == Remedy(Action.READ_RECORDS, item=key(1).id)


def test_an_interrupted_import_is_found(store: Store) -> None:
    clock = Clock()
    shop = manifest(store, clock=clock)
    discover(shop, 1)
    importing = Manifest(store, "shop", shop.feeds, "operator", run_id=f"{IMPORTED}dynamodb://runs", clock=clock)
    held = [importing.acquire(FEED, name, "operator, importing", HELD) for name in ("shred", "load")]
    [finding] = found(shop)
    assert (finding.kind, finding.remedy) == (Kind.IMPORT, Remedy(Action.IMPORT, source="runs"))
    for one in held:
        one.release()
    assert found(shop) == []
