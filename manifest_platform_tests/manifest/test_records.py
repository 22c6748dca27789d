from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifest_platform.manifest import Application, CouplingViolation, ItemKey, Payload, Record, State
from manifest_platform.manifest.item import Item
from manifest_platform.manifest.records import Stamp, coupling_problem, format_time, parse_time
from manifest_platform.manifest.transitions import append
from manifest_platform_tests.manifest.given import LOAD, item_of, key, record

ALLOWED: dict[State, set[State | None]] = {
    State.NEW: {None},
    State.PROCESSING: {None, State.NEW},
    State.PROCESSED: {State.PROCESSING},
    State.FAILED: {State.PROCESSING},
    State.RESOLVED: {State.FAILED, State.PROCESSING},
    State.SKIPPED: {None, *State},
}


@pytest.mark.parametrize("target", [None, *State])
@pytest.mark.parametrize("state", State)
def test_only_certain_records_may_follow_a_record(state: State, target: State | None) -> None:
    others = [record(target, "a", "x")] if target else []
    problem = coupling_problem(record(state, "b", "a" if target else None), others)
    if target in ALLOWED[state]:
        assert problem is None
    else:
        assert problem
        assert "record b" in problem and str(state) in problem and key(1).id in problem
        assert not target or "a" in problem


@pytest.mark.parametrize("state", [state for state in State if state is not State.SKIPPED])
def test_a_link_to_a_record_that_the_item_lacks_is_a_problem(state: State) -> None:
    problem = coupling_problem(record(state, "b", "gone"), [record(State.PROCESSING, "a")])
    assert problem and "gone" in problem


def test_a_skip_may_refer_to_a_missing_record() -> None:
    assert coupling_problem(record(State.SKIPPED, "b", "gone"), []) is None


def test_all_links_of_a_long_history_hold() -> None:
    item = item_of(
        record(State.NEW, "1"),
        record(State.PROCESSING, "2", "1"),
        record(State.FAILED, "3", "2"),
        record(State.PROCESSING, "4"),
        record(State.PROCESSED, "5", "4"),
    )
    assert item.problems == []


def test_every_broken_link_is_reported_in_record_order() -> None:
    item = item_of(
        record(State.NEW, "1"),
        record(State.PROCESSED, "2", "missing-a"),
        record(State.PROCESSING, "3", "missing-b"),
    )
    first, second = item.problems
    assert "record 2 (Processed)" in first and "missing-a" in first
    assert "record 3 (Processing)" in second and "missing-b" in second


def test_a_record_of_another_item_among_an_items_records_is_reported() -> None:
    [problem] = item_of(record(State.NEW, "1"), record(State.SKIPPED, "2", item="s3://other/")).problems
    assert key(1).id in problem and "s3://other/" in problem


def test_a_gap_in_the_sequence_numbers_is_reported() -> None:
    item = Item(key(1), (record(State.NEW, "1", sequence=1), record(State.PROCESSING, "3", "1", sequence=3)))
    [problem] = item.problems
    assert "number 3, not 2" in problem


def test_a_record_that_may_not_follow_is_refused_on_write() -> None:
    item = item_of(record(State.NEW, "1"))
    with pytest.raises(CouplingViolation, match="must point at a Processing"):
        append(item, State.PROCESSED, LOAD, Stamp("test"), previous="1")


def test_append_takes_the_next_number_and_the_stamp() -> None:
    stamp = Stamp("me 1.0", "run-7", datetime(2026, 1, 2, tzinfo=UTC), "the-id")
    last = append(item_of(record(State.NEW, "1")), State.PROCESSING, LOAD, stamp, previous="1", epoch=4, token=9).records[-1]
    assert last == Record(key(1).id, 2, "the-id", State.PROCESSING, LOAD, "me 1.0", stamp.at, "1", "run-7", epoch=4, token=9)


texts = st.text(max_size=8)
times = st.datetimes(datetime(1970, 1, 1), datetime(2999, 1, 1), timezones=st.just(UTC))
payloads = st.builds(Payload, texts, st.dictionaries(texts, st.none() | st.integers() | texts | st.lists(texts), max_size=3))
numbers = st.none() | st.integers(0)
ids = st.uuids().map(str)
records = st.builds(
    Record,
    texts,
    st.integers(1),
    ids,
    st.sampled_from(State),
    st.builds(Application, texts, texts, st.none() | texts),
    texts,
    times,
    st.none() | ids,
    st.none() | texts,
    numbers,
    numbers,
    st.none() | payloads,
)


@given(records)
def test_a_record_equals_its_stored_form_read_back(one: Record) -> None:
    assert Record.from_dict(one.to_dict()) == one


def test_the_stored_form_has_every_field_even_if_empty() -> None:
    assert record(State.NEW, "1").to_dict() == {
        "version": 2,
        "item": key(1).id,
        "sequence": 1,
        "record_id": "1",
        "previous": None,
        "state": "New",
        "application": {"name": "load", "version": "", "instance": None},
        "author": "test",
        "run_id": None,
        "timestamp": "2026-01-01T00:00:00.000000Z",
        "epoch": None,
        "token": None,
        "payload": None,
    }


@given(times, times)
def test_stored_times_order_as_text(one: datetime, other: datetime) -> None:
    assert (format_time(one) < format_time(other)) == (one < other)
    assert parse_time(format_time(one)) == one


def test_a_time_of_another_zone_is_stored_in_utc() -> None:
    there = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert format_time(there) == "2026-01-01T00:00:00.000000Z"


def test_a_key_and_its_position_convert_into_each_other() -> None:
    assert ItemKey.at("enriched", key(3).position) == key(3)
