"""Registration: commits become partitions, small objects and jobs, each once, whoever registers and whatever is lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from manifest_platform.listing import Column, Listing, ShreddedObject
from manifest_platform.listing import Table as ListedTable
from manifest_platform.manifest import Store, StoreError
from manifest_platform.merging.registration import STRICT_RULES, CommittedObjects, Rules, widened_columns
from manifest_platform.merging.state import MergedTable, Totals
from manifest_platform.merging.transitions import EarlierCommitMissing
from manifest_platform_tests.manifest.given import LossyStore
from manifest_platform_tests.merging.given import (
    COLUMNS,
    DAY,
    INTERVAL,
    MORNING,
    NEXT_DAY,
    RIDE_ALONG,
    TABLE,
    arrive,
    assert_consistent,
    claim_one,
    clock_at,
    deliver,
    dump,
    inventory,
    merge,
    partition,
    settings,
    slot,
    small,
    version_of,
)

EVERY_STORE = pytest.mark.every_store
"""For operations as such, races and lost answers; the other cases are of rules, which do not differ by store."""
EARLIER = date(2026, 2, 25)


@EVERY_STORE
def test_A01_a_first_object_makes_an_open_partition_and_a_job(store: Store) -> None:
    of = inventory(store)
    arrive(of, 11)
    assert version_of(of) == (-1, 0, None, False)
    [only] = of.small_objects(TABLE, DAY)
    assert (only.id, only.delayed) == (11, False)
    job = partition(of).job
    assert job and (job.schedule_time, job.attempts) == (MORNING + timedelta(seconds=INTERVAL), 0)
    assert of.running() == []
    assert_consistent(of)


def test_A02_a_second_object_rides_along(store: Store) -> None:
    of = inventory(store, clock := clock_at(MORNING))
    arrive(of, 11)
    before = partition(of).job
    clock.turn(timedelta(seconds=100))
    arrive(of, 12)
    assert partition(of).job == before
    assert [one.id for one in of.small_objects(TABLE, DAY)] == [11, 12]
    assert_consistent(of)


def test_A03_while_a_job_runs_another_is_made(store: Store) -> None:
    of = inventory(store, clock := clock_at(MORNING))
    arrive(of, 11)
    clock.turn(timedelta(seconds=INTERVAL))
    with slot(of) as held:
        running = claim_one(of, held).job
        clock.turn(timedelta(seconds=5))
        arrive(of, 12)
        job = partition(of).job
        assert job and job.schedule_time == clock.now + timedelta(seconds=INTERVAL)
        assert [one.id for one in of.running()] == [running.id]
        assert job.id != running.id
        assert list(of.due(clock.now + timedelta(days=2))) == []  # one at a time
    assert_consistent(of)


@EVERY_STORE
def test_A04_the_same_commit_again_changes_nothing(store: Store) -> None:
    of = inventory(store)
    arrive(of, 11)
    of.close(partition(of), NEXT_DAY)
    before = dump(of)
    again = deliver(of, {(TABLE, DAY): (small(11, rows=2),)}, number=1)
    assert again.known
    assert dump(of) == before
    assert not of.small_objects(TABLE, DAY)[0].delayed


@EVERY_STORE
def test_A05_one_commit_of_an_open_and_a_closed_date(store: Store) -> None:
    of = inventory(store)
    arrive(of, 11, day=EARLIER)
    of.close(partition(of, EARLIER), MORNING, hasten=False)
    told = deliver(of, {(TABLE, EARLIER): (small(20),), (TABLE, DAY): (small(21),)})
    assert (told.objects, told.partitions) == (2, 2)
    assert [(one.id, one.delayed) for one in of.small_objects(TABLE, EARLIER)] == [(11, False), (20, True)]
    assert [(one.id, one.delayed) for one in of.small_objects(TABLE, DAY)] == [(21, False)]
    assert partition(of, EARLIER).job and partition(of).job
    assert_consistent(of)


def test_A06_an_object_of_a_closed_partition_is_delayed(store: Store) -> None:
    of = inventory(store)
    arrive(of, 50)
    of.close(partition(of), NEXT_DAY)
    arrive(of, 60)
    found = partition(of)
    assert (found.last_live, found.newest_live, found.newest) == (50, 50, 60)
    assert of.small_objects(TABLE, DAY)[-1].delayed
    assert (found.live.objects, found.delayed.objects) == (1, 1)


def test_A07_an_object_of_a_past_date_without_partition_is_live(store: Store) -> None:
    of = inventory(store)
    arrive(of, 11, day=EARLIER)
    assert not partition(of, EARLIER).closed
    assert not of.small_objects(TABLE, EARLIER)[0].delayed


@pytest.mark.parametrize("now", ["2022-09-09T00:00:00", "2022-09-09T23:59:59"])
def test_A08_dates_too_old_or_too_new_are_counted_and_left(store: Store, now: str) -> None:
    of = inventory(store, clock_at(datetime.fromisoformat(now).replace(tzinfo=UTC)))
    days = [date(2022, 8, 18), date(2022, 8, 19), date(2022, 9, 12), date(2022, 9, 13)]
    told = deliver(of, {(TABLE, day): (small(at), small(at + 1)) for at, day in enumerate(days, start=10)}, STRICT_RULES)
    assert (told.objects, told.outside) == (4, 4)
    assert [one.date for one in of.partitions(TABLE)] == days[1:3]


@pytest.mark.parametrize(
    ("now", "scheduled"),
    [
        ("2020-06-20T00:00", [4, 5, 21]),
        ("2020-06-20T01:00", [5, 21]),
        ("2020-06-20T22:59", [5, 21]),
        ("2020-06-20T23:00", [5, 21, 22]),
    ],
)
def test_A09_dates_that_are_not_merged_get_no_job(store: Store, now: str, scheduled: list[int]) -> None:
    of = inventory(store, clock_at(datetime.fromisoformat(now).replace(tzinfo=UTC)))
    days = [date(2020, 6, day) for day in (3, 4, 5, 21, 22)]
    deliver(of, {(TABLE, day): (small(10 + at),) for at, day in enumerate(days)}, STRICT_RULES)
    assert [one.date for one in of.partitions(TABLE)] == days
    assert [one.date.day for one in of.partitions(TABLE) if one.job] == scheduled


def test_by_other_rules_every_date_is_taken_and_merged(store: Store) -> None:
    of = inventory(store)
    told = deliver(
        of, {(TABLE, day): (small(at),) for at, day in enumerate([date(2001, 1, 1), date(2030, 1, 1)], start=1)}, Rules()
    )
    assert (told.objects, told.outside) == (2, 0)
    assert all(one.job for one in of.partitions())


DAYS = [date(2026, 1, 1) + timedelta(days=day) for day in range(18)]


def many() -> CommittedObjects:
    """A commit that takes several transactions."""
    objects = {(TABLE, day): tuple(small(100 * at + one) for one in range(3)) for at, day in enumerate(DAYS, start=1)}
    return CommittedObjects(1, "s3://bucket/run=1/", objects, {TABLE: COLUMNS})


@EVERY_STORE
@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("fault", ["request lost", "vanished", "deaf", "answer lost", "repeat refused"])
def test_A10_a_registration_that_is_cut_off_is_completed(store: Store, fault: str, at: int) -> None:
    inventory(store)
    lossy = LossyStore(store, fault, at)
    of = inventory(lossy)
    try:
        of.register(many(), RIDE_ALONG)
    except StoreError:
        with pytest.raises(EarlierCommitMissing):
            of.register(CommittedObjects(2, "s3://bucket/run=2/", {}, {}), RIDE_ALONG)  # what is not whole is completed first
        of.register(many(), RIDE_ALONG)
    assert lossy.transactions >= at
    assert of.cursor() == 1
    assert [one.live.objects for one in of.partitions()] == [3] * len(DAYS)
    assert_consistent(of)


def test_what_is_registered_of_a_commit_already_may_be_merged(store: Store) -> None:
    inventory(store)
    lossy = LossyStore(store, "request lost", 2)
    of = inventory(lossy)
    with pytest.raises(StoreError):
        of.register(many(), RIDE_ALONG)
    of.clock.now += timedelta(days=1)  # ty: ignore[missing-attribute]
    with slot(of) as held:
        assert merge(of, held).outcome == "merged"
    of.register(many(), RIDE_ALONG)
    assert [one.live.objects for one in of.partitions()] == [3] * len(DAYS)
    assert_consistent(of)


@EVERY_STORE
def test_several_register_at_once(store: Store, reopen: Callable[[], Store]) -> None:
    ledgers = [inventory(store), inventory(reopen()), inventory(reopen())]
    with ThreadPoolExecutor(3) as pool:
        told = [done.result() for done in [pool.submit(of.register, many(), RIDE_ALONG) for of in ledgers]]
    assert {one.commit for one in told} == {1}
    of = ledgers[0]
    assert of.cursor() == 1
    assert [one.live for one in of.partitions()] == [Totals(3, 3, 90)] * len(DAYS)
    assert_consistent(of)


def test_what_is_registered_whole_is_added_to_no_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this rule, a slow process would add objects whose dates a faster process has rejected by its later clock."""
    days = [date(2022, 8, 20) + timedelta(days=day) for day in range(18)]
    commit = CommittedObjects(1, "s3://bucket/run=1/", {(TABLE, day): (small(at),) for at, day in enumerate(days, start=1)}, {})
    early = inventory(store, clock_at(datetime(2022, 9, 9, tzinfo=UTC)))
    late = inventory(store, clock_at(datetime(2022, 10, 30, tzinfo=UTC)))
    transact = store.transact

    def meanwhile(*arguments: Any) -> None:
        monkeypatch.undo()
        assert late.register(commit, STRICT_RULES).outside == len(days)
        transact(*arguments)

    monkeypatch.setattr(store, "transact", meanwhile)
    early.register(commit, STRICT_RULES)
    assert (early.cursor(), list(early.partitions())) == (1, [])


def test_commits_are_registered_in_their_order(store: Store) -> None:
    of = inventory(store)
    with pytest.raises(EarlierCommitMissing, match="register 1 first"):
        of.register(CommittedObjects(2, "s3://bucket/run=2/", {}, {}), RIDE_ALONG)
    assert of.cursor() == 0
    of.register(CommittedObjects(1, "s3://bucket/run=1/", {}, {}), RIDE_ALONG)
    assert of.cursor() == 1


@EVERY_STORE
def test_many_objects_of_a_partition_are_found_from_any_of_them_on(store: Store) -> None:
    of = inventory(store)
    ids = list(range(1, 5_502))
    deliver(of, {(TABLE, DAY): tuple(small(id_) for id_ in ids)})
    assert [one.id for one in of.small_objects(TABLE, DAY)] == ids
    for after, limit in [(0, 3), (499, 2), (500, 2), (501, 700), (5_500, 5), (5_501, 5)]:
        assert [one.id for one in of.small_objects(TABLE, DAY, after, limit)] == ids[after : after + limit]
    assert max(len(one.objects) for one in of.batches(TABLE, DAY)) == 500
    assert partition(of).live == Totals(5_501, 5_501, 165_030)


def test_objects_of_tables_that_are_not_merged_are_passed_over(store: Store) -> None:
    of = inventory(store)
    of.sync_table(settings("off", enabled=False))
    of.sync_table(settings("gone"))
    of.drop("gone")
    told = deliver(of, {(table, DAY): (small(at),) for at, table in enumerate(["bad", "off", "gone", TABLE], start=1)})
    assert (told.objects, told.passed_over) == (1, 3)
    assert [one.table for one in of.partitions()] == [TABLE]
    assert of.cursor() == 1


@EVERY_STORE
@pytest.mark.parametrize("look", [1, 2])
def test_a_table_that_is_dropped_meanwhile_is_not_registered_again(
    store: Store, look: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = inventory(store)
    read, looks = of.table, count(1)

    def looked(key: str) -> MergedTable | None:
        found = read(key)
        if next(looks) == look:
            of.drop(key)  # behind its back
        return found

    monkeypatch.setattr(of, "table", looked)
    of.register(CommittedObjects(1, "s3://bucket/run=1/", {(TABLE, DAY): (small(1),)}, {}), RIDE_ALONG)
    assert (of.cursor(), list(of.partitions())) == (1, [])
    assert_consistent(of)


def test_a_volume_that_fills_an_object_is_due_at_once(store: Store) -> None:
    of = inventory(store)  # the target is 100, the ratio 0.77
    arrive(of, 1, 2, 3, 4, size=30, rules=Rules())
    assert list(of.due(MORNING)) == []
    arrive(of, 5, size=30, rules=Rules())
    assert [one.table for one in of.due(MORNING)] == [TABLE]
    arrive(of, 6, size=1, rules=Rules())
    assert len(list(of.due(MORNING))) == 1
    assert_consistent(of)


def test_a_volume_does_not_shorten_the_pause_of_a_merge_that_failed(store: Store) -> None:
    of = inventory(store)
    arrive(of, 1, size=500, rules=Rules())
    with slot(of) as held:
        of.fail(claim_one(of, held).job, "no room", permanent=False)
    arrive(of, 2, size=500, rules=Rules())
    assert list(of.due(MORNING)) == []


@EVERY_STORE
def test_new_columns_widen_the_table(store: Store) -> None:
    of = inventory(store)
    more = (*COLUMNS, Column("price", "double"))
    for number, columns in enumerate([COLUMNS, more, COLUMNS], start=1):
        commit = CommittedObjects(number, f"s3://bucket/run={number}/", {(TABLE, DAY): (small(number),)}, {TABLE: columns})
        of.register(commit, RIDE_ALONG)
    table = of.table(TABLE)
    assert table and table.columns == more
    assert table.version == 3  # made, first columns, more columns


def test_a_column_is_as_wide_as_its_objects_need_it_and_one_that_fits_none_stays() -> None:
    known = (Column("a", "decimal(10,2)", nullable=False), Column("b", "string(3)"), Column("c", "date"))
    found = (Column("c", "string"), Column("d", "double"), Column("b", "string"), Column("a", "decimal(12,4)"))
    assert widened_columns(known, found) == (
        Column("a", "decimal(12,4)"),
        Column("b", "string"),
        Column("c", "date"),
        Column("d", "double"),
    )


def test_a_commit_of_a_listing_numbers_its_objects_by_their_place() -> None:
    def found(table: str, day: str) -> ShreddedObject:
        return ShreddedObject(table, day, f"file:///{table}/{day}", 2, 10, "2026-03-02T10:00:00Z", None)

    tables = tuple(ListedTable(table, COLUMNS) for table in ("a", "b"))
    listing = Listing(
        "s3://run/", "1", 6, 6, 0, tables, (found("a", "2026-03-02"), found("b", "2026-03-02"), found("a", "2026-03-02"))
    )
    commit = CommittedObjects.of(7, listing)
    assert {key: [one.id for one in objects] for key, objects in commit.objects.items()} == {
        ("a", DAY): [7_000_001, 7_000_003],
        ("b", DAY): [7_000_002],
    }
    assert (commit.item, commit.columns) == ("s3://run/", {"a": COLUMNS, "b": COLUMNS})
    assert commit.objects["b", DAY][0].min_time == "2026-03-02T10:00:00Z"


def test_a_table_is_what_is_configured_and_keeps_what_was_learnt(store: Store) -> None:
    of = inventory(store)
    arrive(of, 1)
    of.catalogued(TABLE, "shop.log")
    before = of.table(TABLE)
    assert before and of.sync_table(settings()) == before
    after = of.sync_table(settings(interval=60, zone="Asia/Tokyo", time_column="at"))
    assert (after.interval, after.zone, after.time_column) == (60, "Asia/Tokyo", "at")
    assert (after.columns, after.catalog_name, after.create_time) == (COLUMNS, "shop.log", before.create_time)
    assert of.table(TABLE) == after


def test_a_table_that_is_renamed_keeps_its_rows(store: Store) -> None:
    of = inventory(store)
    arrive(of, 1)
    of.sync_table(settings("journal", physical_name=TABLE, physical_schema="app", schema="shop"))
    [table] = of.tables()
    assert (table.name, table.key, table.schema) == ("journal", TABLE, "shop")
    arrive(of, 2)
    assert partition(of).live.objects == 2


@pytest.mark.parametrize(
    "wrong", [{"name": "a#b"}, {"zone": "Berlin"}, {"zone": "../UTC"}, {"interval": -1}, {"target_bytes": 0}]
)
def test_settings_that_no_table_can_have_are_refused(store: Store, wrong: dict) -> None:
    with pytest.raises(ValueError, match=r"a#b|time zone|interval"):
        inventory(store).sync_table(settings(**wrong))
