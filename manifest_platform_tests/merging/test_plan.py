"""The planning profiles, by examples and by the properties that every plan must have."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifest_platform.merging.plan import DEFAULT, STRICT, Plan, PlannedRange, plan
from manifest_platform.merging.state import MergedTable, Partition, Range, SmallObject

NOW = datetime(2020, 6, 20, 12, tzinfo=UTC)
DAY = date(2020, 6, 20)
TABLE = MergedTable("log", "app", 3600, 100, create_time=NOW, ratio=1.0)
OPEN = Partition("log", DAY, NOW)
CLOSED = replace(OPEN, last_live=1)


def objects(*sizes: int, first: int = 1) -> list[SmallObject]:
    return [SmallObject(first + place, f"file:///{first + place}", 1, size) for place, size in enumerate(sizes)]


def tail(upper: int, size: int, lower: int = 0) -> Range:
    return Range("log", DAY, lower, upper, "file:///tail", 1, size, 1, "a", NOW, NOW)


def bounds(planned: Plan) -> list[tuple[int, int]]:
    return [(found.lower, found.upper) for found in planned.ranges]


def strictly(last: Range | None, found: Sequence[SmallObject], **changes: int) -> Plan:
    return plan(OPEN, TABLE, last, found, replace(STRICT, **changes))


class TestStrict:
    def test_C01_a_first_range_begins_at_0(self) -> None:
        planned = strictly(None, objects(30, 30, 30, first=11))
        assert bounds(planned) == [(0, 13)]
        assert planned.ranges[0].extends is None
        assert not planned.leftover

    def test_C02_what_fits_extends_the_last_range(self) -> None:
        last = tail(13, 40)
        [only] = strictly(last, objects(20, 20, first=20)).ranges
        assert (only.lower, only.upper, only.extends, only.expected_bytes) == (0, 21, last, 80)

    def test_C03_what_does_not_fit_is_left(self) -> None:
        planned = strictly(None, objects(30, 30, 30, 30))
        assert (bounds(planned), planned.leftover) == ([(0, 3)], True)

    def test_C04_the_last_ranges_size_counts(self) -> None:
        planned = strictly(tail(10, 20), objects(30, 30, 30, 30, first=11))
        assert (bounds(planned), planned.leftover) == ([(0, 12)], True)

    @pytest.mark.parametrize("size", [100, 140])
    def test_C05_C06_a_full_range_is_left_alone(self, size: int) -> None:
        planned = strictly(tail(100, size), objects(30, 30, first=101))
        assert (bounds(planned), planned.ranges[0].extends, planned.leftover) == ([(100, 102)], None, False)

    def test_C05_so_is_one_beside_which_the_next_object_does_not_fit(self) -> None:
        planned = strictly(tail(100, 80), objects(30, 5, first=101))
        assert (bounds(planned), planned.ranges[0].extends) == ([(100, 102)], None)

    def test_C07_as_many_as_a_job_takes_may_not_be_all(self) -> None:
        planned = plan(OPEN, replace(TABLE, target_bytes=10_000), None, objects(*[1] * 2000), STRICT)
        assert (bounds(planned), planned.leftover) == ([(0, 2000)], True)
        assert plan(OPEN, TABLE, tail(2000, 2000), [], STRICT).ranges == ()

    def test_C07_a_job_takes_no_more(self) -> None:
        planned = strictly(None, objects(*[1] * 12), max_objects=10)
        assert (bounds(planned), planned.leftover) == ([(0, 10)], True)

    def test_C08_fewer_are_all(self) -> None:
        planned = plan(OPEN, replace(TABLE, target_bytes=10_000), None, objects(*[1] * 1999), STRICT)
        assert (bounds(planned), planned.leftover) == ([(0, 1999)], False)

    def test_C09_nothing_new_is_nothing_to_do(self) -> None:
        assert strictly(tail(10, 20), []) == Plan((), False, "no object waits to be merged")

    def test_C11_an_object_above_the_limit_is_a_range_of_its_own(self) -> None:
        planned = strictly(tail(10, 20), objects(150, 30, first=11))
        assert (bounds(planned), planned.leftover) == ([(10, 11)], True)
        assert bounds(strictly(planned_range(planned.ranges[0]), objects(30, first=12))) == [(11, 12)]

    @given(st.lists(st.integers(0, 250), max_size=40))
    def test_jobs_after_each_other_merge_every_object_once(self, sizes: list[int]) -> None:
        last, waiting, seen = None, objects(*sizes), []
        while waiting:
            planned = strictly(last, waiting, max_objects=7)
            [only] = planned.ranges
            assert only.expected_bytes <= 100 or len(only.objects) == 1
            seen += [found.id for found in only.objects]
            last, waiting = planned_range(only), waiting[len(only.objects) :]
            assert planned.leftover or not waiting
        assert seen == list(range(1, len(sizes) + 1))


def planned_range(planned: PlannedRange) -> Range:
    """The range as it is once it is written, with the size that was expected."""
    return tail(planned.upper, planned.expected_bytes, planned.lower)


class TestDefault:
    def test_an_open_partition_emits_only_what_reaches_the_target(self) -> None:
        planned = plan(OPEN, TABLE, None, objects(40, 40, 40, 40, 40), DEFAULT)
        assert (bounds(planned), planned.leftover) == ([(0, 3)], False)
        assert planned.reason == (
            "2 objects wait: about 80 bytes are expected from them. While the day is open, only ranges of 100 bytes are "
            "merged; the rest follows after the close"
        )

    def test_an_open_partition_below_the_target_is_not_touched(self) -> None:
        assert plan(OPEN, TABLE, None, objects(40, 40), DEFAULT).ranges == ()

    def test_a_closed_partition_is_split_evenly(self) -> None:
        planned = plan(CLOSED, TABLE, None, objects(*[10] * 26), DEFAULT)
        assert [found.expected_bytes for found in planned.ranges] == [90, 90, 80]
        assert planned.reason == "all 26 objects are merged"

    def test_the_expected_size_is_what_counts(self) -> None:
        planned = plan(CLOSED, replace(TABLE, ratio=0.5), None, objects(*[10] * 20), DEFAULT)
        assert [found.expected_bytes for found in planned.ranges] == [100]

    def test_a_small_tail_is_extended(self) -> None:
        last = tail(10, 74)
        [only] = plan(CLOSED, replace(TABLE, ratio=0.5), last, objects(20, first=11), DEFAULT).ranges
        assert (only.lower, only.upper, only.extends, only.expected_bytes) == (0, 11, last, 84)

    def test_a_well_sized_tail_is_not(self) -> None:
        [only] = plan(CLOSED, TABLE, tail(10, 75), objects(20, first=11), DEFAULT).ranges
        assert (only.lower, only.upper, only.extends) == (10, 11, None)

    def test_an_open_partitions_tail_is_extended_once_that_reaches_the_target(self) -> None:
        assert plan(OPEN, TABLE, tail(10, 60), objects(39, first=11), DEFAULT).ranges == ()
        [only] = plan(OPEN, TABLE, tail(10, 60), objects(40, first=11), DEFAULT).ranges
        assert (only.lower, only.upper) == (0, 11)

    def test_a_tail_beside_which_nothing_fits_stays_as_it_is(self) -> None:
        planned = plan(CLOSED, TABLE, tail(10, 70), objects(150, 100, first=11), DEFAULT)
        assert [(found.lower, found.upper, found.extends) for found in planned.ranges] == [(10, 11, None), (11, 12, None)]

    def test_an_object_above_the_limit_is_a_range_of_its_own(self) -> None:
        planned = plan(CLOSED, TABLE, None, objects(90, 500, 90, 90), DEFAULT)
        assert bounds(planned) == [(0, 1), (1, 2), (2, 3), (3, 4)]

    def test_more_than_a_job_takes_is_left_and_the_rest_too(self) -> None:
        few = replace(DEFAULT, max_objects=5)
        planned = plan(CLOSED, TABLE, None, objects(*[40] * 6), few)
        assert (bounds(planned), planned.leftover) == ([(0, 3)], True)
        assert planned.reason == "a job takes 5 objects, of which it merges 3; the next job continues after them"

    def test_what_the_partition_has_beyond_what_was_read_is_left_too(self) -> None:
        few = replace(DEFAULT, max_objects=5)
        planned = plan(replace(CLOSED, newest=6), TABLE, None, objects(*[40] * 5), few)
        assert (bounds(planned), planned.leftover) == ([(0, 3)], True)

    def test_a_job_that_takes_less_than_the_target_still_gets_on(self) -> None:
        few = replace(DEFAULT, max_objects=5)
        planned = plan(OPEN, TABLE, None, objects(*[1] * 9), few)
        assert (bounds(planned), planned.leftover) == ([(0, 5)], True)
        following = plan(OPEN, TABLE, planned_range(planned.ranges[0]), objects(*[1] * 6, first=6), few)
        assert (bounds(following), following.leftover) == ([(0, 10)], True)

    @given(
        st.lists(st.integers(0, 105), min_size=1, max_size=80),
        st.none() | st.integers(1, 200),
        st.booleans(),
        st.sampled_from([0.3, 0.77, 1.0]),
        st.sampled_from([3, 17, 10_000]),
    )
    def test_every_plan_is_a_chain_of_well_sized_ranges(
        self, sizes: list[int], last_size: int | None, closed: bool, ratio: float, most: int
    ) -> None:
        last = tail(10, last_size) if last_size is not None else None
        offered = objects(*sizes, first=11)
        planned = plan(
            CLOSED if closed else OPEN, replace(TABLE, ratio=ratio), last, offered, replace(DEFAULT, max_objects=most)
        )
        merged = [found for part in planned.ranges for found in part.objects]
        assert merged == offered[: len(merged)]
        upper = last.upper if last else 0
        for place, part in enumerate(planned.ranges):
            assert part.objects
            assert part.upper == part.objects[-1].id
            assert (part.extends, part.lower) == (last, 0) if part.extends else part.lower == upper
            assert part.extends is None or (place == 0 and last_size is not None and last_size < 75)
            upper = part.upper
        inner = planned.ranges if not closed and not planned.leftover else planned.ranges[:-1]
        assert all(75 <= part.expected_bytes <= 180 for part in inner)
        assert all(part.expected_bytes <= 180 for part in planned.ranges)
        assert planned.leftover == (len(sizes) > most)
        if closed and not planned.leftover:
            assert len(merged) == len(offered)
        if planned.leftover:
            assert merged

    @given(st.lists(st.integers(0, 400), min_size=1, max_size=60), st.booleans())
    def test_only_a_single_object_is_above_the_limit(self, sizes: list[int], closed: bool) -> None:
        planned = plan(CLOSED if closed else OPEN, TABLE, None, objects(*sizes), DEFAULT)
        assert all(part.expected_bytes <= 180 or len(part.objects) == 1 for part in planned.ranges)
        if closed:
            assert sum(len(part.objects) for part in planned.ranges) == len(sizes)

    @given(st.lists(st.integers(1, 60), min_size=1, max_size=60))
    def test_what_is_left_open_is_below_the_target(self, sizes: list[int]) -> None:
        planned = plan(OPEN, TABLE, None, objects(*sizes), DEFAULT)
        merged = sum(len(part.objects) for part in planned.ranges)
        assert sum(sizes[merged:]) < 100


@pytest.mark.parametrize("profile", [STRICT, DEFAULT], ids=lambda profile: profile.name)
@pytest.mark.parametrize("ids", [[10], [9, 12], [12, 12], [13, 12]])
def test_objects_that_are_not_behind_the_tail_in_order_are_refused(profile, ids: list[int]) -> None:
    found = [SmallObject(id_, "file:///x", 1, 1) for id_ in ids]
    with pytest.raises(ValueError, match=r"log of 2020-06-20: object \d+ does not come after \d+"):
        plan(OPEN, TABLE, tail(10, 20), found, profile)


@pytest.mark.parametrize("profile", [STRICT, DEFAULT], ids=lambda profile: profile.name)
def test_the_same_facts_give_the_same_plan(profile) -> None:
    found = objects(*[(place * 37) % 61 for place in range(500)])
    assert plan(CLOSED, TABLE, None, found, profile) == plan(CLOSED, TABLE, None, list(found), profile)


def test_ten_thousand_objects_are_planned_within_a_second() -> None:
    found = objects(*[(place * 37) % 61 for place in range(10_000)])
    began = datetime.now()
    planned = plan(CLOSED, TABLE, None, found, DEFAULT)
    assert (datetime.now() - began).total_seconds() < 1
    assert sum(len(part.objects) for part in planned.ranges) == 10_000
