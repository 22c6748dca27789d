from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifest_platform.manifest import Application, InvalidKey, ItemKey, Landed, Payload, Record, State
from manifest_platform.manifest.records import FAILURE, REASON
from manifest_platform_tests.manifest.given import LOAD, SHRED, item_of, key, landed, record

NEW = record(State.NEW, "0")
WORK = record(State.PROCESSING, "1", "0")
DONE = record(State.PROCESSED, "2", "1")
FAILED = record(State.FAILED, "2", "1")
RESOLVED = record(State.RESOLVED, "3", "2")
OTHER_FAILED = record(State.FAILED, "5", None, SHRED)


@pytest.mark.parametrize(
    ("records", "blocker"),
    [
        ([NEW], None),
        ([NEW, WORK], "1"),
        ([NEW, WORK, record(State.PROCESSED, "2", "unrelated")], "1"),
        ([NEW, WORK, DONE], None),
        ([NEW, WORK, FAILED], "2"),
        ([NEW, WORK, FAILED, RESOLVED], None),
        ([NEW, WORK, FAILED, RESOLVED, OTHER_FAILED], "5"),
        ([record(State.FAILED, "2", "x"), record(State.SKIPPED, "3", application=Application("*"))], "2"),
        ([NEW, WORK, record(State.RESOLVED, "2", "1")], None),
        ([NEW, WORK, record(State.SKIPPED, "2", "1")], "1"),
        ([NEW, WORK, FAILED, record(State.SKIPPED, "3", "2")], "2"),
        ([NEW, WORK, OTHER_FAILED], "1"),
        ([NEW, OTHER_FAILED, WORK], "5"),
        ([], None),
    ],
)
def test_the_earliest_open_record_blocks(records: list[Record], blocker: str | None) -> None:
    found = item_of(*records).blocker()
    assert (found and found.record_id) == blocker


@pytest.mark.parametrize("state", [State.PROCESSING, State.FAILED])
def test_records_of_a_superseded_epoch_block_nothing(state: State) -> None:
    item = item_of(NEW, record(state, "1", "0", epoch=1))
    assert item.blocker({"load": 1}) and not item.blocker({"load": 2}) and item.blocker({"shred": 2})


def test_records_without_an_epoch_block_in_every_epoch() -> None:
    assert item_of(NEW, WORK).blocker({"load": 99, "shred": 99})


def test_work_of_a_superseded_epoch_does_not_count() -> None:
    item = item_of(NEW, WORK, record(State.PROCESSED, "2", "1", epoch=1))
    assert item.processed_by(LOAD, 1) and not item.processed_by(LOAD, 2)


def test_work_without_an_epoch_counts_in_every_epoch() -> None:
    assert item_of(NEW, WORK, DONE).processed_by(LOAD, 99)


def test_only_the_newest_work_counts() -> None:
    again = [record(State.PROCESSING, "3", "0"), record(State.PROCESSED, "4", "3")]
    found = item_of(NEW, WORK, DONE, *again).processed_by(LOAD)
    assert found and found.record_id == "4"


def app(text: str) -> Application:
    name, _, instance = text.partition("/")
    return Application(name, version=f"version of {text}", instance=instance or None)


@pytest.mark.parametrize(
    ("skipped", "asking", "stopped"),
    [
        ("*", "load", True),
        ("*", "shred", True),
        ("*", "shred/id1", True),
        ("*", "load/id1", True),
        ("any-app", "load", False),
        ("load/id1", "load/id2", False),
        ("any-app/id1", "load/id1", False),
        ("load", "load", True),
        ("load", "load/x", True),
        ("load/id1", "load/id1", True),
        ("load/id1", "load", False),
    ],
)
def test_a_skip_stops_the_applications_that_it_names(skipped: str, asking: str, stopped: bool) -> None:
    item = item_of(NEW, record(State.SKIPPED, "1", application=app(skipped)))
    assert bool(item.skipped_for(Application(*asking.split("/")[:1], "9", *asking.split("/")[1:]))) == stopped


def test_a_later_new_record_lifts_a_skip_and_an_earlier_one_does_not() -> None:
    skip = record(State.SKIPPED, "1")
    assert item_of(NEW, skip).skipped_for(LOAD)
    assert not item_of(NEW, skip, record(State.NEW, "2")).skipped_for(LOAD)
    assert item_of(NEW, skip, record(State.NEW, "2"), record(State.SKIPPED, "3")).skipped_for(LOAD)


def test_a_record_that_only_marks_an_item_late_lifts_no_skip() -> None:
    mark = record(State.NEW, "2", payload=Payload(REASON, {"late": {"load": 1}, "keeps_skips": True}))
    assert item_of(NEW, record(State.SKIPPED, "1", application=SHRED), mark).skipped_for(SHRED)


@pytest.mark.parametrize(
    ("asking", "done"),
    [
        ("transformer", True),
        ("transformer/args", True),
        ("transformer/target-1", True),
        ("loader/target-1", True),
        ("loader/target-2", False),
        ("loader", True),
        ("other", False),
    ],
)
def test_work_of_an_application_counts_for_matching_names_and_instances(asking: str, done: bool) -> None:
    item = item_of(
        NEW,
        record(State.PROCESSING, "1", "0", app("transformer")),
        record(State.PROCESSED, "2", "1", app("transformer")),
        record(State.PROCESSING, "3", "0", app("loader/target-1")),
        record(State.PROCESSED, "4", "3", app("loader/target-1")),
    )
    assert bool(item.processed_by(app(asking))) == done


def test_the_landed_directory_is_the_directory_first_seen() -> None:
    first = record(State.NEW, "0", payload=landed(1, "first", "a", "b").payload())
    again = record(State.NEW, "1", payload=Payload(REASON, {"reason": "lifted", "late": {"load": 1}}))
    item = item_of(first, again)
    assert item.landed == landed(1, "first", "a", "b")
    assert item_of(NEW).landed is None


def test_lateness_is_marked_for_one_application_and_instance() -> None:
    mark = record(State.NEW, "0", payload=landed(1).payload({"load:a": 1}))
    assert item_of(mark).is_late_for(Application("load", instance="a"))
    assert not item_of(mark).is_late_for(Application("load", instance="b"))
    assert not item_of(mark).is_late_for(LOAD)
    assert item_of(NEW, record(State.NEW, "1", payload=Payload(REASON, {"late": {"load": 1}}))).is_late_for(LOAD)


def test_the_newest_late_mark_decides_whether_an_item_is_set_aside() -> None:
    aside = record(State.NEW, "0", payload=landed(1).payload({"load": 1, "load:a": 1}, ["load"]))
    assert item_of(aside).is_late_for(LOAD) and item_of(aside).is_set_aside_for(LOAD)
    assert not item_of(aside).is_set_aside_for(Application("load", instance="a"))
    lifted = record(State.NEW, "1", payload=Payload(REASON, {"reason": "a skip was lifted"}))
    assert item_of(aside, lifted).is_set_aside_for(LOAD)
    let_in = record(State.NEW, "2", payload=Payload(REASON, {"late": {"load": 1}}))
    assert not item_of(aside, lifted, let_in).is_set_aside_for(LOAD)
    assert not item_of(NEW).is_set_aside_for(LOAD)


def attempt(at: int, kind: str, application: Application = LOAD) -> list[Record]:
    return [
        record(State.PROCESSING, f"p{at}", "0", application),
        record(State.FAILED, f"f{at}", f"p{at}", application, payload=Payload(FAILURE, {"kind": kind})),
    ]


def test_lost_attempts_are_counted_until_a_success_or_a_persons_resolve() -> None:
    automatic = record(State.RESOLVED, "r1", "f1", payload=Payload(REASON, {"automatic": True}))
    by_hand = record(State.RESOLVED, "r2", "f2", payload=Payload(REASON, {"reason": "go"}))
    row = [NEW, *attempt(1, "lease_expired"), automatic, *attempt(2, "transient")]
    assert item_of(*row).automatic_retries(LOAD) == 2
    assert item_of(*row).automatic_retries(SHRED) == 0
    assert item_of(*row, by_hand).automatic_retries(LOAD) == 0
    assert item_of(*row, by_hand, *attempt(3, "permanent")).automatic_retries(LOAD) == 0
    success = [record(State.PROCESSING, "p9", "0"), record(State.PROCESSED, "d9", "p9")]
    assert item_of(*row, *success, *attempt(4, "transient")).automatic_retries(LOAD) == 1


key_texts = st.text(st.characters(min_codepoint=0x24, max_codepoint=0x7E), min_size=1, max_size=6)


@given(key_texts, key_texts, key_texts, key_texts)
def test_positions_order_as_sort_key_and_then_id(sort: str, id_: str, other_sort: str, other_id: str) -> None:
    one, other = ItemKey("f", sort, id_), ItemKey("f", other_sort, other_id)
    assert (one.position < other.position) == (one < other)
    assert (one.position < other.position) == ((sort, id_) < (other_sort, other_id))


@pytest.mark.parametrize("text", ["", "a#b", "a b", "a!", 'a"', "é", "a\n", "\x7f"])
@pytest.mark.parametrize("part", range(3))
def test_text_that_would_break_the_order_is_refused_as_a_key(text: str, part: int) -> None:
    parts = ["feed", "sort", "id"]
    parts[part] = text
    with pytest.raises(InvalidKey, match=("feed", "sort key", "item id")[part]):
        ItemKey(*parts)


def test_an_item_is_named_by_the_end_of_its_uri() -> None:
    assert key(7).name == "run=007"
    assert ItemKey("f", "s", "plain").name == "plain"
    assert ItemKey("log", "s", "s3://b/landing/vault=1/log/date=2026-01-01").name == "log/date=2026-01-01"
    assert ItemKey("f", "s", "s3://b/app=shop/log/date=2026-01-01").name == "date=2026-01-01"


def test_the_record_of_a_directory_that_is_not_late_has_no_late_marks() -> None:
    assert "late" not in Landed(key(1), 1, 1, "c").payload().data
