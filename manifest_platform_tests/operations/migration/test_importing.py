"""Imports into our manifest: the appended records, their consequences, and the guarantees after an interruption."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

import pytest

from manifest_platform.manifest import (
    Application,
    Blocked,
    Idle,
    ItemKey,
    Landed,
    LeaseBusy,
    LeaseLost,
    Manifest,
    Memory,
    Mode,
    Ready,
    Refused,
    Standing,
    State,
    Step,
    Store,
    StoreUnavailable,
)
from manifest_platform.manifest.keys import records_prefix
from manifest_platform.manifest.store import Delete, Put, Row, Write
from manifest_platform.manifest.takeover import Places, TakenOver
from manifest_platform.operations.archive import archive
from manifest_platform.operations.migration import WorkedOn, drop_import, import_items
from manifest_platform.record_files import read_archived
from manifest_platform_tests.manifest.given import DONE, FEED, LOAD, SHRED, Late, LossyStore, assert_kept, steps
from manifest_platform_tests.operations.migration.given import (
    LOADER,
    ROOT,
    SHREDDED,
    SHREDDER,
    added,
    histories,
    import_snowflake,
    import_snowplow,
    loaded,
    lost_race,
    manifest,
    row,
    run,
    shred_failed,
    shredded,
    snowflake_row,
    uid,
)
from manifest_platform_tests.operations.migration.given import Row as SourceRow

MINUTE = timedelta(minutes=1)
SOURCE = "dynamodb://manifest"


def key(number: int) -> ItemKey:
    return ItemKey(FEED, run(number).removeprefix("run="), f"{ROOT}/{run(number)}")


def history(of: Manifest, number: int) -> list[str]:
    return [f"{record.application.name} {record.state}" for record in of.history(key(number))]


def watermark(of: Manifest) -> str:
    return of.state(LOAD).feed(FEED).watermark


def what_is_next(of: Manifest, application: Application) -> str:
    verdict = of.next(FEED, application.key)
    if isinstance(verdict, Idle):
        return "idle"
    standing = verdict.standing if isinstance(verdict, Blocked) else "ready"
    return f"{verdict.item.key.name} {standing}"


def shred_next(of: Manifest) -> str:
    with of.acquire(FEED, SHRED.key, "worker", MINUTE) as lease:
        verdict = of.next(FEED, SHRED.key, holding=True)
        assert isinstance(verdict, Ready), verdict
        [claim] = of.claim(lease, [verdict.item])
        of.complete(claim, DONE)
    return claim.item.key.name


def load_next(of: Manifest) -> str:
    with of.acquire(FEED, LOAD.key, "worker", MINUTE) as lease:
        verdict = of.next(FEED, LOAD.key, holding=True)
        assert isinstance(verdict, Ready), verdict
        [claim] = of.claim(lease, [verdict.item], verdict.state)
        of.complete(claim, DONE)
    return claim.item.key.name


# Continuing where the other system stopped


def test_imported_loads_are_done_and_the_remaining_items_are_next(any_store: Store) -> None:
    here = manifest(any_store)
    report = import_snowplow(here, loaded(1), loaded(2), shredded(3), added(4))
    assert (report.added, report.grown, report.unchanged, report.problems) == (4, 0, 0, [])
    assert history(here, 1) == [
        "snowplow-rdb-shredder New",
        "snowplow-rdb-shredder Processing",
        "snowplow-rdb-shredder Processed",
        "load Processing",
        "load Processed",
        "shred Skipped",
    ]
    assert watermark(here) == key(2).position
    assert here.state(LOAD).feed(FEED).swept == key(2).position
    assert_kept(here)
    assert what_is_next(here, SHRED) == f"{run(3)} ready"
    assert what_is_next(here, LOAD) == f"{run(3)} waiting"
    assert [shred_next(here), load_next(here), shred_next(here), load_next(here)] == [run(3), run(3), run(4), run(4)]
    assert what_is_next(here, LOAD) == "idle"
    assert_kept(here)


def test_imported_records_equal_the_sources_and_name_their_origin(store: Store) -> None:
    here = manifest(store)
    import_snowplow(here, loaded(1))
    [source] = histories(loaded(1)).items
    kept = here.history(key(1))
    for mine, theirs in zip(kept, source.records, strict=False):
        epoch = 1 if theirs.application.key == LOAD.key else None
        assert mine == dataclasses.replace(theirs, run_id="imported from dynamodb://manifest", epoch=epoch)
    assert kept[-1].data == {"reason": "load was done before the import", "automatic": True}
    assert kept[-1].author == "operator"


def test_imported_runs_of_the_snowflake_loader_continue_here(store: Store) -> None:
    here = manifest(store)
    import_snowflake(
        here,
        snowflake_row(1, "LOADED"),
        snowflake_row(2, "PROCESSED"),
        snowflake_row(3, "NEW", to_skip=True),
        snowflake_row(4, "NEW"),
    )
    assert_kept(here)
    assert watermark(here) == key(1).position
    assert what_is_next(here, SHRED) == f"{run(2)} ready"
    # Run 4 was added, and its transformer may have died: it is shredded like any other.
    assert [shred_next(here), load_next(here), shred_next(here), load_next(here)] == [run(2), run(2), run(4), run(4)]
    assert what_is_next(here, LOAD) == "idle"


def test_imported_failures_wait_for_the_operator(store: Store) -> None:
    here = manifest(store)
    report = import_snowplow(here, loaded(1), shred_failed(2), added(3))
    assert report.failed == [run(2)]
    verdict = here.next(FEED, LOAD.key)
    assert isinstance(verdict, Blocked)
    assert (verdict.item.key, verdict.standing) == (key(2), Standing.FAILED)
    here.resolve(key(2), "mended")
    assert shred_next(here) == run(2)


def test_lost_races_can_be_resolved_one_by_one(store: Store) -> None:
    here = manifest(store)
    assert len(import_snowplow(here, lost_race(1)).repairs) == 2
    assert_kept(here)
    here.resolve(key(1), "one")
    here.resolve(key(1), "two")
    assert shred_next(here) == run(1)


@pytest.mark.parametrize("by", [SHREDDER, LOADER])
def test_open_work_blocks_until_it_is_freed(store: Store, by: Application) -> None:
    here = manifest(store)
    rows = [*shredded(1), row(1, "5", "PROCESSING", "0", by)]
    report = import_snowplow(here, rows)
    assert report.open == [run(1)]
    assert what_is_next(here, SHRED) == f"{run(1)} processing"
    report = import_snowplow(here, rows, free_open=True)
    assert (report.open, report.grown, report.records) == ([], 1, 1)
    freed = here.history(key(1))[-1]
    assert (freed.state, freed.previous, freed.author) == (State.RESOLVED, uid("1 5"), "operator")
    assert_kept(here)
    assert [shred_next(here), load_next(here)] == [run(1), run(1)]
    assert_kept(here)


def test_items_skipped_only_for_the_shredder_are_reported_as_undecided(store: Store) -> None:
    here = manifest(store)
    report = import_snowplow(here, [*added(1), row(1, "1", "SKIPPED", "0", SHREDDER)])
    assert report.undecided == [run(1)]
    assert what_is_next(here, LOAD) == f"{run(1)} cut off"


@pytest.mark.parametrize("late", ["append", "quarantine"])
def test_imported_items_behind_the_watermark_are_late_according_to_the_policy(any_store: Store, late: Late) -> None:
    here = manifest(any_store, late=late)
    report = import_snowplow(here, loaded(1), shredded(2), loaded(3), added(4))
    assert report.late == [run(2)]
    assert_kept(here, late)
    feed = here.state(LOAD).feed(FEED)
    assert (feed.late, feed.quarantined, feed.applied) == ((1, 0, 2) if late == "append" else (0, 1, 2))
    assert shred_next(here) == run(2)
    assert what_is_next(here, LOAD) == (f"{run(2)} ready" if late == "append" else f"{run(4)} waiting")


def test_discovery_does_not_register_imported_items_again(store: Store) -> None:
    here = manifest(store)
    import_snowplow(here, loaded(1), [row(2, "1", "PROCESSING")], added(3))
    landed = [Landed(key(number), 1, 1, "checksum") for number in (1, 2, 3, 4)]
    outcomes = [found.outcome for found in manifest(store).discover(FEED, landed)]
    assert outcomes == ["known", "known", "known", "new"]
    assert [found.outcome for found in manifest(store).discover(FEED, landed)] == ["known"] * 4
    assert_kept(here)


# Repeated imports


def test_a_repeated_import_appends_nothing(store: Store) -> None:
    here = manifest(store)
    rows = [loaded(1), shredded(2), loaded(3), lost_race(4), [*added(5), row(5, "1", "PROCESSING", "0")]]
    import_snowplow(here, *rows, free_open=True)
    before = logged(here)
    report = import_snowplow(here, *rows, free_open=True)
    assert (report.added, report.grown, report.unchanged, report.records) == (0, 0, 5, 0)
    assert (report.late, report.problems) == ([], [])
    assert logged(here) == before
    assert_kept(here)


def logged(of: Manifest) -> list[Row]:
    return of.store.query(of.dataset, records_prefix(FEED))


def test_a_repeated_import_appends_only_new_records_of_the_source(any_store: Store) -> None:
    here = manifest(any_store)
    import_snowplow(here, loaded(1), shredded(2))
    assert [one.key.name for one in here.waiting(FEED, SHRED.key, 9)[0]] == [run(2)]
    report = import_snowplow(here, loaded(1), loaded(2), added(3))
    assert (report.added, report.grown, report.unchanged, report.records) == (1, 1, 1, 4)
    assert watermark(here) == key(2).position
    assert_kept(here)
    assert [one.key.name for one in here.waiting(FEED, SHRED.key, 9)[0]] == [run(3)]


def test_a_late_item_that_the_source_loaded_since_is_done(store: Store) -> None:
    here = manifest(store, late="append")
    import_snowplow(here, shredded(1), loaded(2))
    assert here.state(LOAD).feed(FEED).late == 1
    import_snowplow(here, loaded(1), loaded(2))
    assert here.state(LOAD).feed(FEED).late == 0
    assert_kept(here)
    assert what_is_next(here, LOAD) == "idle"


def test_an_item_freed_here_that_the_source_completed_since_is_done(store: Store) -> None:
    here = manifest(store)
    rows = [*shredded(1), row(1, "3", "PROCESSING", "0", LOADER)]
    import_snowplow(here, rows, free_open=True)
    report = import_snowplow(here, [*rows, row(1, "4", "PROCESSED", "3", LOADER)])
    assert report.problems == []
    assert here.item(key(1)).processed_by(LOAD)
    assert_kept(here)


@pytest.mark.parametrize("attribute", ["RState", "AppName", "Author", "Timestamp", "PreviousRecordId", "Data"])
def test_a_record_that_changed_in_the_source_is_reported_and_not_imported(store: Store, attribute: str) -> None:
    here = manifest(store)
    import_snowplow(here, shred_failed(1), added(2))
    before = logged(here)
    values = {
        "RState": {"S": "PROCESSED"},
        "AppName": {"S": "another"},
        "Author": {"S": "another"},
        "Timestamp": {"N": "1551398999999"},
        "PreviousRecordId": {"S": uid("1 8")},
        "Data": None,
    }
    *rest, failed = shred_failed(1)
    changed: SourceRow = {name: value for name, value in {**failed, attribute: values[attribute]}.items() if value}
    report = import_snowplow(here, [*rest, row(1, "8", "PROCESSING", "0"), changed], added(2))
    [problem] = report.problems
    assert problem.item == key(1).id
    assert f"record {uid('1 2')} has another" in problem.text
    assert logged(here) == before


def test_a_record_that_is_gone_from_the_source_is_reported(store: Store) -> None:
    here = manifest(store)
    import_snowplow(here, shredded(1))
    [problem] = import_snowplow(here, added(1)).problems
    assert problem.text == f"record {uid('1 1')} (Processing) was imported, and the source no longer has it"


def test_items_can_be_discovered_before_the_import(store: Store) -> None:
    here = manifest(store)
    here.discover(FEED, [Landed(key(number), 1, 1, "checksum") for number in (1, 2)])
    report = import_snowplow(here, loaded(1), added(3))
    assert (report.added, report.grown, report.problems) == (1, 1, [])
    assert history(here, 1)[:2] == ["discover New", "snowplow-rdb-shredder New"]
    assert_kept(here)
    assert shred_next(here) == run(2)


def test_a_repeated_import_recognizes_archived_records(store: Store, tmp_path: Path) -> None:
    here = Manifest(store, "shop", {FEED: steps()}, "operator", read_archived=read_archived)
    import_snowplow(here, loaded(1), loaded(2), loaded(3))
    assert archive(here, FEED, datetime.now(UTC) + MINUTE, str(tmp_path / "archive")).items == 2
    report = import_snowplow(here, loaded(1), loaded(2), loaded(3), loaded(4))
    assert (report.added, report.unchanged, report.records) == (1, 3, 6)
    assert_kept(here)


def test_two_sources_can_be_imported_into_one_feed(store: Store) -> None:
    here = manifest(store)
    import_snowflake(here, snowflake_row(1, "LOADED"))
    assert import_snowplow(here, loaded(2), added(3)).problems == []
    assert_kept(here)
    assert watermark(here) == key(2).position


# Refused imports


def test_an_import_into_a_feed_with_own_work_is_refused(store: Store) -> None:
    here = manifest(store)
    import_snowplow(here, added(1), added(2))
    shred_next(here)
    before = logged(here)
    with pytest.raises(WorkedOn, match=f"shred claimed {run(1)}"):
        import_snowplow(here, added(1), loaded(2))
    with pytest.raises(WorkedOn):
        import_snowplow(here, added(1), loaded(2), dry_run=True)
    with here.acquire(FEED, LOAD.key, "worker", MINUTE), here.acquire(FEED, SHRED.key, "worker", MINUTE):
        pass  # it gave its leases back
    assert logged(here) == before


@pytest.mark.parametrize("application", [SHRED, LOAD])
def test_an_import_is_refused_while_a_worker_holds_the_feed(store: Store, application: Application) -> None:
    here = manifest(store)
    with here.acquire(FEED, application.key, "worker", MINUTE):
        with pytest.raises(LeaseBusy, match="worker"):
            import_snowplow(here, loaded(1))
        assert not list(here.items(FEED))
    other = LOAD if application == SHRED else SHRED
    here.acquire(FEED, other.key, "worker", MINUTE).release()
    assert import_snowplow(here, loaded(1)).added == 1


def test_an_import_is_refused_during_a_full_load(store: Store) -> None:
    here = manifest(store)
    state = here.state(LOAD)
    busy = dataclasses.replace(state, mode=Mode.FULL_LOAD, full="2019#x")
    store.transact("shop", [Put("STATE#load", busy.to_dict(), state.version)], "by hand")
    with pytest.raises(Refused, match="load is loading 2019#x in full"):
        import_snowplow(here, loaded(1))


@pytest.mark.parametrize("error", [StoreUnavailable, KeyboardInterrupt])
def test_an_import_that_fails_before_its_first_write_releases_the_feed(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    here = manifest(store)

    def fail(*_arguments: object) -> NoReturn:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(Manifest, "items", fail)
        with pytest.raises(error):
            import_snowplow(here, loaded(1))
    for step in (SHRED, LOAD):
        here.acquire(FEED, step.key, "worker", MINUTE).release()


def test_a_dry_run_writes_nothing_and_reports_the_same(store: Store) -> None:
    here = manifest(store)
    rows = [loaded(1), shred_failed(2), lost_race(3), [row(4, "0", "NEW", but={"Id": None})]]
    dry = import_snowplow(here, *rows, dry_run=True)
    assert store.query("shop", "") == []
    wet = import_snowplow(here, *rows)
    assert dry == dataclasses.replace(wet, dry_run=True)


# Interruptions


class BreakingStore(LossyStore):
    """A store whose user dies before or after its n-th transaction."""

    def __init__(self, store: Store, at: int, after: bool = False):
        super().__init__(store, "none", 0)
        self.left, self._after = at, after

    def transact(self, partition: str, writes: Sequence[Write], token: str) -> None:
        self.left -= 1
        if self.left >= 0 or self._after:
            self.store.transact(partition, writes, token)
        if self.left < 0:
            raise KeyboardInterrupt


ROWS = [loaded(1), shredded(2), loaded(3), added(4), lost_race(5), [*shredded(6), row(6, "5", "PROCESSING", "0")]]
TRANSACTIONS = 9


def test_the_crash_tests_cover_every_transaction_of_the_import(store: Store) -> None:
    counted = BreakingStore(store, 10_000)
    import_snowplow(manifest(counted), *ROWS)
    assert 10_000 - counted.left == TRANSACTIONS


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(TRANSACTIONS))
def test_an_interrupted_import_is_completed_by_the_next(reopen: Callable[[], Store], at: int, after: bool) -> None:
    store = reopen()
    with pytest.raises(KeyboardInterrupt):
        import_snowplow(manifest(BreakingStore(store, at, after)), *ROWS)
    here = manifest(store)
    if at >= 2 and at + after <= TRANSACTIONS - 2:
        assert_held(here)
    import_snowplow(here, *ROWS)
    assert_kept(here)
    assert watermark(here) == key(3).position
    assert [len(here.history(key(number))) for number in range(1, 7)] == [6, 4, 6, 1, 5, 4]
    assert shred_next(here) == run(2)
    store.close()


def assert_held(here: Manifest) -> None:
    """Asserts that no step can claim anything for years."""
    for step in (SHRED, LOAD):
        lease = here.lease(step, FEED)
        assert lease
        assert lease.is_live(datetime.now(UTC) + timedelta(days=3000))
        with pytest.raises(LeaseBusy, match="repeat the import to complete it"):
            here.acquire(FEED, step.key, "worker", MINUTE)


def test_a_refused_repeat_of_an_import_interrupted_at_its_end_releases_the_leases(store: Store) -> None:
    steps = [Step(SHRED), Step(LOAD, order="strict")]
    with pytest.raises(KeyboardInterrupt):
        import_snowplow(Manifest(BreakingStore(store, 7), "shop", {FEED: steps}, "operator"), loaded(1), added(2))
    here = Manifest(store, "shop", {FEED: steps}, "operator")
    assert load_next(here) == run(2)
    with pytest.raises(LeaseBusy):
        here.acquire(FEED, SHRED.key, "worker", MINUTE)
    with pytest.raises(WorkedOn):
        import_snowplow(here, loaded(1), added(2))
    assert shred_next(here) == run(1)


def test_a_failed_import_keeps_the_leases_of_an_interrupted_import(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        import_snowplow(manifest(BreakingStore(store, 4)), *ROWS)
    with monkeypatch.context() as patched:
        patched.setattr("manifest_platform.operations.migration.importing._plan", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            import_snowplow(manifest(store), *ROWS)
    assert_held(manifest(store))


def test_the_first_of_two_concurrent_imports_stops(store: Store) -> None:
    here = manifest(store)
    second: list[int] = []

    class Interfering(BreakingStore):
        def transact(self, partition: str, writes: Sequence[Write], token: str) -> None:
            if any(write.sort.startswith("RECORD") for write in writes) and not second:
                second.append(import_snowplow(here, loaded(1), added(2)).added)
            self.store.transact(partition, writes, token)

    with pytest.raises(LeaseLost):
        import_snowplow(manifest(Interfering(store, 0)), loaded(1), added(2))
    assert second == [2]
    assert_kept(here)


class DiscoveringStore(BreakingStore):
    """A store on which discovery registers runs 2, 4, 7 and 9 before the n-th transaction."""

    def transact(self, partition: str, writes: Sequence[Write], token: str) -> None:
        self.left -= 1
        if self.left == -1:
            landed = [Landed(key(number), 1, 1, "checksum") for number in (2, 4, 7, 9)]
            Manifest(self.store, partition, {FEED: steps()}, "sensor").discover(FEED, landed)
        self.store.transact(partition, writes, token)


def test_items_that_discovery_registers_during_an_import_are_kept(store: Store) -> None:
    for moment in range(7):
        here = Manifest(store, f"shop{moment}", {FEED: steps()}, "operator")
        importing = Manifest(DiscoveringStore(store, moment), here.dataset, here.feeds, "operator")
        report = import_items(importing, FEED, histories(loaded(1), loaded(4), loaded(8)), "dynamodb://manifest")
        assert report.problems == []
        assert_kept(here)
        late = [item.key.name for item in here.items(FEED) if item.is_late_for(LOAD) and not item.processed_by(LOAD)]
        assert late == [run(2), run(7)], moment
        assert {run(number) for number in (2, 7, 9)} == {one.key.name for one in here.waiting(FEED, SHRED.key, 9)[0]}


def attempts_at(number: int) -> list[SourceRow]:
    """An item of 140 records, without a New."""
    pairs = (
        [
            row(number, f"p{attempt}", "PROCESSING", seconds=2 * attempt),
            row(number, f"d{attempt}", "PROCESSED", f"p{attempt}", seconds=2 * attempt + 1),
        ]
        for attempt in range(70)
    )
    return [one for pair in pairs for one in pair]


def test_an_item_with_more_records_than_a_transaction_takes_is_imported(any_store: Store) -> None:
    attempts = attempts_at(1)
    here = manifest(any_store)
    assert import_snowplow(here, attempts, added(2)).records == 141
    assert_kept(here)
    with pytest.raises(KeyboardInterrupt):
        import_snowplow(manifest(BreakingStore(any_store, 3)), [*attempts, *loaded(1)], added(2))
    import_snowplow(here, [*attempts, *loaded(1)], added(2))
    assert_kept(here)
    assert len(here.history(key(1))) == 146


def test_an_item_with_many_records_that_discovery_registers_meanwhile_is_imported(store: Store) -> None:
    importing = manifest(DiscoveringStore(store, 2))
    import_snowplow(importing, attempts_at(2))
    here = manifest(store)
    assert_kept(here)
    assert history(here, 2)[:2] == ["discover New", "snowplow-rdb-shredder Processing"]
    assert len(here.history(key(2))) == 141


def test_records_larger_than_a_transaction_are_imported_in_portions(any_store: Store) -> None:
    types = {**SHREDDED, "data": {"shreddedTypes": ["iglu:com.acme/click/jsonschema/1-0-0" * 7] * 1_000}}
    rows = [[*added(number), row(number, "1", "PROCESSING", "0", data=types)] for number in range(20)]
    here = manifest(any_store)
    assert import_snowplow(here, *rows).records == 40
    assert [len(item.records) for item in here.items(FEED)] == [2] * 20


def test_a_feed_without_an_ordered_step_can_be_imported(store: Store) -> None:
    here = Manifest(store, "shop", {FEED: [Step(SHRED)]}, "operator")
    report = import_snowplow(here, shredded(1), added(2))
    assert report.added == 2
    assert [one.key.name for one in here.waiting(FEED, SHRED.key, 9)[0]] == [run(1), run(2)]


@pytest.mark.parametrize("at", range(TRANSACTIONS))
def test_an_interrupted_import_resumes_though_items_were_registered_since(reopen: Callable[[], Store], at: int) -> None:
    store = reopen()
    with pytest.raises(KeyboardInterrupt):
        import_snowplow(manifest(BreakingStore(store, at)), *ROWS)
    here = manifest(store)
    for number in (*range(1, 5), 6, 7):
        here.discover(FEED, [Landed(key(number), 1, 1, f"landed-{number}")])
    report = import_snowplow(here, *ROWS)
    assert report.problems == []
    assert_kept(here)
    assert shred_next(here) == run(2)
    store.close()


def kept_rows(store: Store) -> set[str]:
    """All rows except leases."""
    return {row.sort for row in store.query("shop", "") if not row.sort.startswith("LEASE#")}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [2, 3, 4, 5, 6])
def test_an_interrupted_import_can_be_dropped_and_replaced(reopen: Callable[[], Store], at: int, after: bool) -> None:
    """Without a drop, only a completed import of the same source released the feed."""
    store = reopen()
    here = manifest(store)
    here.discover(FEED, [Landed(key(9), 1, 1, "as-landed")])
    before = kept_rows(store)
    with pytest.raises(KeyboardInterrupt):
        import_snowplow(manifest(BreakingStore(store, at, after)), *ROWS)
    records = sum(len(item.records) for item in here.items(FEED)) - 1
    told = drop_import(here, FEED, SOURCE, dry_run=True)
    assert_held(here)
    assert drop_import(here, FEED, SOURCE) == dataclasses.replace(told, dry_run=False)
    assert told.records == records
    assert kept_rows(store) - {"STATE#load"} == before - {"STATE#load"}
    assert_kept(here)
    assert watermark(here) == ""
    assert shred_next(here) == run(9)
    store.close()


def test_an_interrupted_drop_is_completed_by_the_next(reopen: Callable[[], Store]) -> None:
    store = reopen()
    for number in range(4):
        with pytest.raises(KeyboardInterrupt):
            import_snowplow(manifest(BreakingStore(store, 6)), *ROWS)
        with pytest.raises(KeyboardInterrupt):
            drop_import(manifest(BreakingStore(store, number)), FEED, SOURCE)
        here = manifest(store)
        drop_import(here, FEED, SOURCE)
        assert list(here.items(FEED)) == []
        assert_kept(here)
        import_snowplow(manifest(store), *ROWS)
        assert_kept(manifest(store))
        store.transact("shop", [Delete(row.sort, row.version) for row in store.query("shop", "")], f"anew {number}")
    store.close()


def test_running_processes_forget_dropped_items(store: Store) -> None:
    """Without a new identity of the manifest, a running sensor took dropped items for known until its process ended."""

    def opened() -> Manifest:
        feeds = {FEED: steps()}
        return Manifest(TakenOver(store, Places.of(feeds), lambda: datetime.now(UTC)), "shop", feeds, "sensor")

    sensor = opened()
    sensor.discover(FEED, [Landed(key(9), 1, 10, "sum")])  # newer than every imported record
    sensor.recall_kept(Memory())
    with pytest.raises(KeyboardInterrupt):
        broken = opened()
        broken.store = BreakingStore(broken.store, 7)
        import_snowplow(broken, *ROWS)
    again = [Landed(key(4), 1, 10, "sum")]
    assert [found.outcome for found in sensor.discover(FEED, again)] == ["known"]
    sensor.item(key(9))  # the other witness of recall, the newest record that it has read, still exists
    drop_import(opened(), FEED, SOURCE)
    assert not sensor.recall()
    assert [found.outcome for found in sensor.discover(FEED, again)] == ["new"]


def test_only_an_interrupted_import_can_be_dropped(store: Store) -> None:
    here = manifest(store)
    import_snowplow(here, *ROWS)
    with pytest.raises(Refused, match="nothing to drop"):
        drop_import(here, FEED, SOURCE)
    here.skip(key(4), "nobody wants it")
    with pytest.raises(KeyboardInterrupt):
        import_snowplow(manifest(BreakingStore(store, 3)), *ROWS, added(8))
    with pytest.raises(Refused, match=f"{run(4)}: other records follow"):
        drop_import(here, FEED, SOURCE)
    import_snowplow(manifest(store), *ROWS, added(8))
    assert_kept(manifest(store))
