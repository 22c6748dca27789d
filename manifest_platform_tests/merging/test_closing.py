"""Close, switch, and the record of what readers see: what the inventory says of a partition as its day ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from manifest_platform.manifest import Refused, Store
from manifest_platform.merging import views
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.plan import DEFAULT
from manifest_platform.merging.registration import DateWindow, Rules
from manifest_platform.merging.state import Partition, ServedFile, Version, open_key
from manifest_platform.merging.transitions import Overtaken
from manifest_platform_tests.manifest.given import LossyStore
from manifest_platform_tests.merging.given import (
    DAY,
    LEASE,
    MORNING,
    NEXT_DAY,
    TABLE,
    arrive,
    assert_consistent,
    bounds,
    claim,
    claim_one,
    clock_at,
    dump,
    inventory,
    make,
    merge,
    merge_all,
    partition,
    settings,
    slot,
    small,
    version_of,
)

EVERY_STORE = pytest.mark.every_store
"""For operations as such, races and lost answers; the other cases are of rules, which do not differ by store."""
HOUR = timedelta(hours=1)


def merged(of: Inventory, *ids: int) -> None:
    arrive(of, *ids)
    of.hasten(TABLE, DAY, MORNING)
    with slot(of) as held:
        merge_all(of, held)


def version(of: Inventory, *delayed: int) -> Version:
    """The version to publish of a partition: its ranges, and small objects that arrived later."""
    found = partition(of)
    files = [ServedFile(one.uri, one.rows, one.bytes, one.lower, one.upper) for one in of.ranges(TABLE, DAY)]
    files += [ServedFile(one.uri, one.rows, one.bytes, None, one.id) for one in map(small, delayed)]
    return Version(TABLE, DAY, max(one.upper for one in files), found.generation, MORNING, tuple(files))


def show(of: Inventory, *delayed: int, read: Partition | None = None) -> Partition:
    """Records that readers see all that is merged."""
    shown = version(of, *delayed)
    return of.published(read or partition(of), shown.generation, shown.version, shown)


@pytest.mark.parametrize(
    ("now", "closed"),
    [
        ("2020-06-20T15:30", {20: True, 21: False}),
        ("2020-06-20T14:59", {20: False, 21: False}),
        ("2020-06-20T15:00", {20: True, 21: False}),
    ],
)
def test_D01_D02_a_day_ends_at_its_tables_midnight(store: Store, now: str, closed: dict[int, bool]) -> None:
    of = inventory(store)
    of.sync_table(settings(zone="Asia/Tokyo"))
    at = datetime.fromisoformat(now).replace(tzinfo=UTC)
    for day in closed:
        arrive(of, day, day=date(2020, 6, day))
        of.close(partition(of, date(2020, 6, day)), at)
    assert {one.date.day: one.closed for one in of.partitions(TABLE)} == closed


@pytest.mark.parametrize(("zone", "hours"), [("UTC", 0), ("America/New_York", 5), ("Asia/Kolkata", -5.5)])
def test_a_partition_closes_when_grace_has_passed_after_midnight(store: Store, zone: str, hours: float) -> None:
    of = inventory(store)
    of.sync_table(settings(zone=zone))
    arrive(of, 1)
    midnight = datetime(2026, 3, 3, tzinfo=UTC) + timedelta(hours=hours)
    assert not of.close(partition(of), midnight + HOUR - timedelta(seconds=1), grace=HOUR).closed
    assert of.close(partition(of), midnight + HOUR, grace=HOUR).closed


def test_a_day_on_which_the_clocks_change_has_its_own_length(store: Store) -> None:
    of = inventory(store)
    of.sync_table(settings(zone="Europe/Berlin"))
    arrive(of, 1, day=date(2026, 3, 29))
    assert not of.close(partition(of, date(2026, 3, 29)), datetime(2026, 3, 29, 21, 59, tzinfo=UTC)).closed
    assert of.close(partition(of, date(2026, 3, 29)), datetime(2026, 3, 29, 22, tzinfo=UTC)).closed


@pytest.mark.parametrize(
    ("day", "zone", "grace"),
    [
        (date.max, "UTC", timedelta()),
        (date.max, "Asia/Tokyo", timedelta()),
        (date.max - timedelta(days=1), "America/New_York", timedelta(hours=20)),
    ],
)
def test_a_day_that_the_calendar_ends_with_is_never_over(store: Store, day: date, zone: str, grace: timedelta) -> None:
    of = inventory(store)
    of.sync_table(settings(zone=zone))
    arrive(of, 1, day=day)
    assert not of.close(partition(of, day), datetime.max.replace(tzinfo=UTC), grace).closed


def test_D03_the_last_live_object_is_that_before_the_close(store: Store) -> None:
    of = inventory(store)
    arrive(of, 3, 5)
    of.close(partition(of), NEXT_DAY)
    arrive(of, 7)
    assert of.close(partition(of), NEXT_DAY).last_live == 5
    assert partition(of).last_live == 5
    assert_consistent(of)


def test_D04_a_partition_without_live_objects_stays_open(store: Store) -> None:
    of = inventory(store)
    arrive(of, 3)
    empty = of._change(partition(of), lambda found: replace(found, newest_live=0))
    assert not of.close(empty, NEXT_DAY).closed


def test_D05_a_partition_of_a_disabled_table_stays_open(store: Store) -> None:
    of = inventory(store)
    arrive(of, 3)
    of.sync_table(settings(enabled=False))
    assert not of.close(partition(of), NEXT_DAY).closed
    of.sync_table(settings())
    assert of.close(partition(of), NEXT_DAY).closed


@pytest.mark.parametrize(("first", "switched"), [((), False), ((99,), False), ((99, 100), True)])
def test_D06_D07_a_partition_is_switched_when_all_live_objects_are_merged(
    store: Store, first: tuple[int, ...], switched: bool
) -> None:
    of = inventory(store)
    if first:
        merged(of, *first)
    arrive(of, *sorted({99, 100} - set(first)))
    of.close(partition(of), NEXT_DAY)
    assert partition(of).last_live == 100
    assert of.switch(partition(of)).switched == switched
    assert partition(of).switched == switched
    assert_consistent(of)


def test_an_open_partition_is_not_switched(store: Store) -> None:
    of = inventory(store)
    merged(of, 100)
    assert not of.switch(partition(of)).switched


@EVERY_STORE
def test_D08_what_is_switched_is_published(store: Store) -> None:
    of = inventory(store)
    merged(of, 100)
    of.published(partition(of), 0, 100)
    assert version_of(of) == (0, 100, None, False)
    of.close(partition(of), NEXT_DAY)
    of.switch(partition(of))
    assert version_of(of) == (0, 100, 100, True)
    told = version(of)
    shown = show(of)
    assert version_of(of) == (100, 100, 100, True)
    assert (shown.published, shown.published_newest) == (1, 100)
    assert of.versions(TABLE, DAY) == [told]
    assert list(of.open_partitions()) == []
    assert_consistent(of)


def test_D09_two_runs_that_switch_before_they_close(store: Store) -> None:
    of = inventory(store)
    merged(of, 100)

    def run() -> tuple[bool, bool]:
        switched = of.switch(partition(of)).switched
        return of.close(partition(of), NEXT_DAY).closed, switched

    assert run() == (True, False)
    assert run() == (True, True)


def test_D10_what_was_merged_of_delayed_objects_is_published_with_it(store: Store) -> None:
    of = inventory(store)
    arrive(of, 100)
    of.close(partition(of), NEXT_DAY)
    merged(of, 120)
    of.switch(partition(of))
    assert show(of).current == 120
    assert bounds(of) == [(0, 120)]
    assert_consistent(of)


@EVERY_STORE
def test_D11_a_live_object_just_after_the_close_is_merged_once(store: Store) -> None:
    """The partition closes during the registration of the object. The registration reads again and marks it delayed."""
    of = inventory(store)
    arrive(of, 100)
    look = of.partition

    def looked(table: str, day: date) -> Partition | None:
        found = look(table, day)
        of.partition = look
        assert found and of.close(found, NEXT_DAY).last_live == 100
        return found

    of.partition = looked
    arrive(of, 101)
    assert [(one.id, one.delayed) for one in of.small_objects(TABLE, DAY)] == [(100, False), (101, True)]
    merged(of)
    assert of.switch(partition(of)).switched
    assert bounds(of) == [(0, 101)]
    assert_consistent(of)


@pytest.mark.parametrize("hasten", [True, False])
def test_what_is_not_merged_at_the_close_is_due(store: Store, hasten: bool) -> None:
    of = inventory(store)
    arrive(of, 1, day=(past := date(2026, 2, 1)))
    assert list(of.due(MORNING)) == []
    of.close(partition(of, past), MORNING, hasten=hasten)
    assert [one.date for one in of.due(MORNING)] == ([past] if hasten else [])
    assert_consistent(of)


def test_what_an_open_day_leaves_unmerged_is_due_at_the_close(store: Store) -> None:
    """With the default profile, a job of an open day leaves the objects that do not fill a range, without a next job."""
    of = inventory(store)
    arrive(of, 1, 2)
    of.hasten(TABLE, DAY, MORNING)
    with slot(of) as held:
        assert merge(of, held, DEFAULT).outcome == "nothing"
        assert partition(of).job is None
        of.close(partition(of), NEXT_DAY)
        of.clock.now = NEXT_DAY  # ty: ignore[missing-attribute]
        held.heartbeat()
        assert merge(of, held, DEFAULT).ranges == ((0, 2),)
    assert_consistent(of)


def test_a_close_while_a_job_runs_leaves_another(store: Store) -> None:
    """The running one was planned for an open day: what it leaves has to be merged by somebody."""
    of = inventory(store, clock := clock_at(MORNING))
    of.sync_table(settings(target_bytes=60))
    arrive(of, 1, 2, 3, 4)
    of.hasten(TABLE, DAY, MORNING)
    with slot(of) as held:
        work = make(of, claim_one(of, held), DEFAULT)
        of.close(partition(of), NEXT_DAY)
        assert claim(of, held) == []
        work.commit(of)
        assert partition(of).upper < 4
        clock.now = NEXT_DAY
        held.heartbeat()
        assert merge(of, held, DEFAULT).ranges[-1][1] == 4
    assert_consistent(of)


def test_closing_and_switching_again_writes_nothing(store: Store) -> None:
    of = inventory(store)
    merged(of, 100)
    for _ in range(2):
        of.close(partition(of), NEXT_DAY)
        of.switch(partition(of))
        before = dump(of)
    assert dump(of) == before


@EVERY_STORE
def test_an_answer_that_is_lost_at_the_close_is_recognised(store: Store) -> None:
    arrive(inventory(store), 100)
    of = inventory(LossyStore(store, "deaf", 1))
    assert of.close(partition(of), NEXT_DAY).last_live == 100
    assert_consistent(of)


def test_a_delayed_object_waits_for_its_time(store: Store) -> None:
    of = inventory(store, clock := clock_at(MORNING))
    merged(of, 100)
    of.close(partition(of), NEXT_DAY)
    clock.now = NEXT_DAY
    arrive(of, 230)
    before = dump(of)
    of.close(partition(of), NEXT_DAY)
    assert dump(of) == before


# What readers see


def published(store: Store) -> Inventory:
    """A partition that is served as merged up to 100."""
    of = inventory(store)
    merged(of, 100)
    of.close(partition(of), NEXT_DAY)
    of.switch(partition(of))
    show(of)
    return of


def test_E07_a_delayed_object_is_seen_after_merge_and_publication(store: Store) -> None:
    of = published(store)
    assert not list(of.open_partitions())
    arrive(of, 230)
    assert [one.newest for one in of.open_partitions()] == [230]
    merged(of)
    assert version_of(of)[:2] == (100, 230)
    assert show(of).current == 230
    assert not list(of.open_partitions())
    assert_consistent(of)


@EVERY_STORE
def test_E13_of_two_publications_at_once_one_learns_of_the_other(store: Store) -> None:
    of = published(store)
    read = partition(of)
    merged(of, 200)
    old, new = version(of), partition(of)
    merged(of, 300)
    assert show(of, read=read).current == 300
    for stale in (read, new):
        with pytest.raises(Overtaken) as overtaken:
            of.published(stale, old.generation, old.version, old)
        assert overtaken.value.partition == partition(of)
    assert version_of(of)[0] == 300
    assert [one.version for one in of.versions(TABLE, DAY)] == [100, 300]
    assert_consistent(of)


@EVERY_STORE
def test_E13_the_older_one_first_is_told_to_the_newer_one(store: Store) -> None:
    """The older publisher may have updated the catalog last, so the publisher that records second must update it again."""
    of = published(store)
    read = partition(of)
    merged(of, 200)
    old = version(of)
    merged(of, 300)
    of.published(read, old.generation, old.version, old)
    assert version_of(of)[:2] == (200, 300)
    with pytest.raises(Overtaken) as overtaken:
        show(of, read=read)
    assert show(of, read=overtaken.value.partition).current == 300


WRONG: dict[str, Callable[[Inventory], object]] = {
    "a generation that does not exist": lambda of: of.published(partition(of), 9, 100, replace(version(of), generation=9)),
    "an object that does not exist": lambda of: of.published(partition(of), 1, 999, version(of)),
    "live objects of a switched partition": lambda of: of.published(partition(of), 0, 100),
    "merged objects without their files": lambda of: of.published(partition(of), 1, 100),
    "less than is seen": lambda of: of.published(partition(of), 1, 99, version(of)),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_there_is_not_published(store: Store, what: str) -> None:
    of = published(store)
    before = dump(of)
    with pytest.raises(Refused, match="does not exist, or is older than the published version"):
        WRONG[what](of)
    assert dump(of) == before


def test_merged_objects_of_an_unswitched_partition_are_not_published(store: Store) -> None:
    of = inventory(store)
    merged(of, 100)
    with pytest.raises(Refused, match="does not exist, or is older than the published version"):
        show(of)


def test_the_same_publication_again_writes_nothing(store: Store) -> None:
    of = published(store)
    before = dump(of)
    show(of)
    assert dump(of) == before


def test_small_objects_beside_merged_ones_are_a_version_of_their_own(store: Store) -> None:
    of = published(store)
    arrive(of, 230)
    found = show(of, 230)
    assert (found.current, found.published, found.published_newest) == (100, 1, 230)
    assert [(one.version, one.generation) for one in of.versions(TABLE, DAY)] == [(100, 1), (230, 1)]
    assert_consistent(of)


def test_a_rebuild_is_published_again(store: Store) -> None:
    of = published(store)
    of.rebuild(partition(of), [replace(one, uri="file:///anew") for one in of.ranges(TABLE, DAY)])
    [found] = of.open_partitions()
    assert (found.current, found.generation) == (100, 2)
    assert show(of).at_rest
    assert [one.generation for one in of.versions(TABLE, DAY)] == [1, 2]


def test_an_object_that_no_job_will_merge_is_still_found(store: Store) -> None:
    of = published(store)
    of.clock.now = NEXT_DAY  # ty: ignore[missing-attribute]
    arrive(of, 230, rules=Rules(merged=DateWindow(timedelta(), timedelta())))
    [found] = of.open_partitions()
    assert (found.newest, found.job) == (230, None)


def test_a_partition_that_is_not_at_rest_is_found_by_one_row(store: Store) -> None:
    of = published(store)
    arrive(of, 11, day=date(2026, 3, 1))
    assert [one.sort for one in of.store.query(of.dataset, "MOPEN#")] == [open_key(partition(of, date(2026, 3, 1)))]


# Views


@EVERY_STORE
def test_the_views_have_the_columns_of_prisms_tables(store: Store) -> None:
    of = inventory(store)
    arrive(of, 11, 12)
    of.hasten(TABLE, DAY, MORNING)
    with slot(of) as held:
        merge(of, held)
        of.close(partition(of), NEXT_DAY)
        arrive(of, 20)
        of.hasten(TABLE, DAY, MORNING)
        job = claim_one(of, held).job
        arrive(of, 21)
        pending = partition(of).job
        jobs = list(views.prism_merge_jobs(of, LEASE))
    here = f"{TABLE}/{DAY}"
    assert list(views.prism_tables(of)) == [
        {
            "prism_table_id": TABLE,
            "schema_name": "app",
            "table_name": TABLE,
            "create_time": MORNING,
            "merge_interval": 43_200,
            "physical_schema_name": None,
            "physical_table_name": None,
        }
    ]
    assert list(views.prism_partitions(of)) == [
        {
            "prism_partition_id": here,
            "prism_table_id": TABLE,
            "partition_date": DAY,
            "current_manifest_version": -1,
            "ongoing_manifest_version": -1,
            "desired_manifest_version": 12,
            "last_live_object_id": 12,
            "switched": False,
        }
    ]
    objects = list(views.prism_small_objects(of, TABLE, DAY))
    assert [(row["prism_small_object_id"], row["delayed"]) for row in objects] == [
        (11, False),
        (12, False),
        (20, True),
        (21, True),
    ]
    assert objects[0] == {
        "prism_small_object_id": 11,
        "prism_staging_object_id": "s3://bucket/run=001/",
        "prism_partition_id": here,
        "delayed": False,
        "content_length": 30,
        "upload_start_time": MORNING,
    }
    common = {"prism_partition_id": here}
    assert pending
    assert jobs == [
        {
            "prism_merge_job_id": pending.id,
            **common,
            "schedule_time": pending.schedule_time,
            "ongoing_mark": 0,
            "heartbeat_time": None,
        },
        {"prism_merge_job_id": job.id, **common, "schedule_time": MORNING, "ongoing_mark": job.id, "heartbeat_time": MORNING},
    ]
    assert list(views.prism_merge_ranges(of, TABLE, DAY)) == [
        {
            "prism_merge_range_id": f"{here}/{upper}",
            **common,
            "lower_bound": lower,
            "upper_bound": upper,
            "content_length": size,
            "create_time": MORNING,
            "update_time": MORNING,
        }
        for lower, upper, size in [(None, 0, 0), (0, 12, 60)]
    ]
    assert list(views.prism_merge_ranges(of, TABLE, date(2026, 3, 1))) == []
    assert_consistent(of)


def test_the_heartbeat_of_a_lease_that_another_took_is_not_the_jobs(store: Store) -> None:
    of = inventory(store, clock := clock_at(MORNING))
    arrive(of, 11)
    of.hasten(TABLE, DAY, MORNING)
    with slot(of) as held:
        claim_one(of, held)
        clock.turn(timedelta(seconds=100))
        held.heartbeat()
        [row] = views.prism_merge_jobs(of, LEASE)
        assert row["heartbeat_time"] == clock.now
    with slot(of):
        [row] = views.prism_merge_jobs(of, LEASE)
        assert row["heartbeat_time"] is None
