"""Rows of Snowplow's Processing Manifest as histories of items."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from manifest_platform.manifest import Application, State
from manifest_platform.manifest.records import format_time
from manifest_platform.operations.migration import SeveralTargets, read_snowplow
from manifest_platform_tests.manifest.given import FEED, LOAD, SHRED
from manifest_platform_tests.operations.migration.given import (
    LOADER,
    NAMES,
    PLACE,
    ROOT,
    SHREDDED,
    SHREDDER,
    START,
    Row,
    added,
    histories,
    loaded,
    lost_race,
    place,
    row,
    run,
    shredded,
    uid,
)


def told(*rows: list[Row]) -> list[str]:
    """The problems of histories that contain nothing else."""
    found = histories(*rows)
    assert not found.items
    return [problem.text for problem in found.problems]


def test_a_row_keeps_ids_times_authors_versions_and_payloads() -> None:
    [item] = histories(shredded(1)).items
    new, processing, processed = item.records
    assert (item.key.feed, item.key.sort, item.key.id) == (FEED, "2019-03-01-00-01-00", f"{ROOT}/{run(1)}")
    assert (new.record_id, new.state, new.previous, new.payload) == (uid("1 0"), State.NEW, None, None)
    assert (processing.record_id, processing.previous) == (uid("1 1"), uid("1 0"))
    assert (processed.application, processed.author) == (SHREDDER, "snowplow-rdb-shredder:0.14.0:0.1.0")
    assert processed.timestamp == START + timedelta(minutes=1, seconds=ord("2"))
    assert processed.data == SHREDDED["data"]
    assert [record.sequence for record in item.records] == [1, 2, 3]


def test_timestamps_keep_their_milliseconds() -> None:
    [item] = histories([row(1, "0", "NEW", but={"Timestamp": {"N": "1551398460123"}})]).items
    assert format_time(item.records[0].timestamp) == "2019-03-01T00:01:00.123000Z"


@pytest.mark.parametrize("missing", ["ItemId", "Id", "RState", "AppName", "AppVer", "Author", "Timestamp"])
def test_a_missing_attribute_is_reported(missing: str) -> None:
    [problem] = told([row(1, "0", "NEW", but={missing: None})])
    assert f"{missing} is missing" in problem


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("ItemId", {"N": "1"}, "ItemId must be text (S), and is a number (N)"),
        ("Id", {"S": "one"}, "Id must be a UUID, and is 'one'"),
        ("Id", {"B": b"1"}, "Id must be text (S), and is binary (B)"),
        ("PreviousRecordId", {"S": "none"}, "PreviousRecordId must be a UUID, and is 'none'"),
        ("PreviousRecordId", {"NULL": True}, "PreviousRecordId must be text (S), and is null (NULL)"),
        ("RState", {"S": "DONE"}, "RState must be one of NEW, PROCESSING, PROCESSED, FAILED, RESOLVED, SKIPPED, and is 'DONE'"),
        ("RState", {"S": "New"}, "and is 'New'"),
        ("RState", {"N": "1"}, "RState must be text (S), and is a number (N)"),
        ("AppName", {"S": ""}, "AppName is empty"),
        ("AppVer", {"BOOL": True}, "AppVer must be text (S), and is a boolean (BOOL)"),
        ("InstanceId", {"SS": ["a"]}, "InstanceId must be text (S), and is a set of texts (SS)"),
        ("Author", {"M": {}}, "Author must be text (S), and is a map (M)"),
        ("Timestamp", {"S": "1"}, "Timestamp must be a number (N), and is text (S)"),
        ("Timestamp", {"N": "1.5"}, "Timestamp must be a whole number, and is 1.5"),
        ("Timestamp", {"N": "9E99"}, "Timestamp is no time: 9E99"),
        ("Data", {"S": "{"}, "Data is not JSON"),
        ("Data", {"S": "[1]"}, "Data is not self-describing JSON"),
        ("Data", {"S": '{"schema": 1, "data": {}}'}, "Data is not self-describing JSON"),
        ("Data", {"S": '{"schema": "iglu:a/b/jsonschema/1-0-0", "data": []}'}, "Data is not self-describing JSON"),
    ],
)
def test_an_attribute_of_a_wrong_type_is_reported(name: str, value: dict[str, Any], what: str) -> None:
    [problem] = told([row(1, "0", "NEW", but={name: value})])
    assert what in problem


def test_all_problems_of_a_row_are_reported_together() -> None:
    but = {"Id": {"S": "one"}, "AppVer": None, "RState": {"S": "OLD"}, "Timestamp": {"S": "x"}, "Data": {"S": "{"}}
    [problem] = told([row(1, "0", "NEW", but=but)])
    for name in ("Id must", "AppVer is", "RState must", "Timestamp must", "Data is"):
        assert name in problem


def test_an_item_with_a_wrong_row_is_left_out_and_others_are_not() -> None:
    found = histories([*added(1), row(1, "1", "PROCESSING", "0", but={"Author": None})], shredded(2))
    assert [item.key.name for item in found.items] == [run(2)]
    [problem] = found.problems
    assert problem.item == f"{ROOT}/{run(1)}/"
    assert problem.text == f"record {uid('1 1')}: Author is missing"


def test_unknown_attributes_are_ignored() -> None:
    assert len(histories([row(1, "0", "NEW", but={"Color": {"S": "red"}})]).items) == 1


# Order


def test_records_are_ordered_by_time_whatever_the_order_of_the_scan() -> None:
    rows = loaded(1)
    orders = set()
    for seed in range(20):
        random.Random(seed).shuffle(rows)
        [item] = histories(list(rows)).items
        orders.add(tuple(record.record_id for record in item.records))
    assert orders == {tuple(uid(f"1 {name}") for name in "01234")}


def test_a_record_follows_its_previous_record_even_against_the_timestamps() -> None:
    at_once = [
        row(1, "2", "PROCESSED", "1", seconds=0),
        row(1, "1", "PROCESSING", "0", seconds=0),
        row(1, "0", "NEW", seconds=0),
    ]
    set_back = [
        row(1, "2", "PROCESSED", "1", seconds=1),
        row(1, "1", "PROCESSING", "0", seconds=2),
        row(1, "0", "NEW", seconds=3),
    ]
    for rows in (at_once, set_back):
        [item] = histories(rows).items
        assert [record.record_id for record in item.records] == [uid("1 0"), uid("1 1"), uid("1 2")]


def test_a_skip_with_the_timestamp_of_its_new_follows_it() -> None:
    for name in "abcdefgh":  # ids sort at random
        [item] = histories([row(1, name, "SKIPPED", by=Application("*", "*"), seconds=0), row(1, "0", "NEW", seconds=0)]).items
        assert item.skipped_for(LOAD)


def test_skips_that_point_at_each_other_are_kept() -> None:
    [item] = histories([row(1, "1", "SKIPPED", "2"), row(1, "2", "SKIPPED", "1")]).items
    assert len(item.records) == 2


# The mapping of its applications to ours


def test_the_loader_becomes_our_load_and_the_shredder_keeps_its_name() -> None:
    [item] = histories(loaded(1)).items
    names = [record.application for record in item.records]
    assert names == [SHREDDER, SHREDDER, SHREDDER, Application("load", "0.15.0"), Application("load", "0.15.0")]


@pytest.mark.parametrize("name", ["rdb-loader", "snowplow-rdb-loader"])
def test_usual_names_of_the_loader_are_known(name: str) -> None:
    [item] = histories(loaded(1, Application(name, "1"))).items
    assert item.processed_by(LOAD)


def test_other_names_can_be_given() -> None:
    own = replace(NAMES, loaders=("our-loader",))
    [item] = histories(loaded(1, Application("our-loader", "1")), applications=own).items
    assert item.processed_by(LOAD)
    [item] = histories(loaded(1), applications=own).items
    assert not item.processed_by(LOAD)


def test_several_targets_require_a_choice() -> None:
    one, other = replace(LOADER, instance="target-1"), replace(LOADER, instance="target-2")
    rows = [*loaded(1, one), row(1, "5", "PROCESSING", "0", other), row(1, "6", "PROCESSED", "5", other), *loaded(2, other)]
    with pytest.raises(SeveralTargets, match=r"2 targets.*target-1, target-2"):
        histories(rows)
    first, second = histories(rows, applications=replace(NAMES, target="target-1")).items
    assert first.processed_by(LOAD)
    assert not second.processed_by(LOAD)
    assert second.processed_by(other)


def test_a_single_target_requires_no_choice() -> None:
    [item] = histories(loaded(1, replace(LOADER, instance="target-1"))).items
    assert item.processed_by(LOAD)


@pytest.mark.parametrize(
    ("skipped", "shred_skips", "load_skips"),
    [
        (Application("*", "*"), True, True),
        (SHREDDER, True, False),
        (LOADER, False, True),
        (replace(LOADER, instance="target-1"), False, True),
        (replace(LOADER, instance="target-2"), False, False),
        (Application("dashboard", "1"), False, False),
    ],
)
def test_skips_stop_our_steps(skipped: Application, shred_skips: bool, load_skips: bool) -> None:
    applications = replace(NAMES, target="target-1")
    [item] = histories([*added(1), row(1, "1", "SKIPPED", "0", skipped)], applications=applications).items
    assert (item.skipped_for(SHRED) is not None, item.skipped_for(LOAD) is not None) == (shred_skips, load_skips)


# Broken items


def test_records_of_lost_races_are_repaired_and_reported() -> None:
    found = histories(lost_race(1))
    [item] = found.items
    assert item.problems == []
    failed = {record.record_id: record.previous for record in item.records if record.state is State.FAILED}
    assert failed == {uid("1 3"): uid("1 1"), uid("1 4"): uid("1 2")}
    assert [repair.item for repair in found.repairs] == [f"{ROOT}/{run(1)}/"] * 2
    assert f"record {uid('1 3')} (Failed, a lost race for the lock) now points at {uid('1 1')}" in found.repairs[0].text


def lock(of: str) -> dict[str, Any]:
    return {"schema": "iglu:com.snowplowanalytics.manifest/locked_payload/jsonschema/1-0-0", "data": {"recordId": of}}


@pytest.mark.parametrize(
    "failed",
    [
        row(1, "9", "FAILED"),
        row(1, "9", "FAILED", data={**SHREDDED, "data": {"shreddedTypes": [], "recordId": uid("1 1")}}),
        row(1, "9", "FAILED", data=lock(uid("1 0"))),
        row(1, "9", "FAILED", data=lock(uid("elsewhere"))),
        row(1, "9", "FAILED", by=LOADER, data=lock(uid("1 1"))),
        row(1, "9", "PROCESSED", data=lock(uid("1 1"))),
    ],
    ids=["no payload", "another payload", "no Processing", "of no record", "another application's", "no Failed"],
)
def test_nothing_else_is_repaired(failed: Row) -> None:
    problems = told([*added(1), row(1, "1", "PROCESSING", "0"), failed])
    assert any("must point at a Processing, but points at nothing" in problem for problem in problems)


def test_a_processing_that_ended_otherwise_lost_no_race() -> None:
    problems = told([*shredded(1), row(1, "9", "FAILED", data=lock(uid("1 1")))])
    assert len(problems) == 1


def test_all_problems_of_an_item_are_reported() -> None:
    rows = [*added(1), row(1, "1", "PROCESSED", "9"), row(1, "2", "RESOLVED"), row(1, "3", "PROCESSING", "1", data=lock("x"))]
    found = histories(rows, shredded(2))
    assert len(found.items) == 1
    assert len(found.problems) == 4
    assert "the item does not have" in found.problems[0].text
    assert "must point at a Failed or Processing, but points at nothing" in found.problems[1].text
    assert "must point at a New" in found.problems[2].text
    assert "recordId" in found.problems[3].text


def test_a_payload_of_an_unknown_schema_is_reported_with_the_remedy() -> None:
    data = {"schema": "iglu:com.acme/own/jsonschema/1-0-0", "data": {}}
    [problem] = told([*added(1), row(1, "1", "PROCESSING", "0", data=data)])
    assert "iglu:com.acme/own/jsonschema/1-0-0 is not known: put the schema into a folder" in problem


# The folder of runs


@pytest.mark.parametrize("root", [ROOT, "s3a://shop/enriched/archive", "s3n://shop/enriched/archive/", "enriched/archive"])
def test_folders_are_compared_without_scheme_and_slashes(root: str) -> None:
    [item] = histories([row(1, "0", "NEW", root=root)]).items
    assert item.key.id == f"{ROOT}/{run(1)}"


@pytest.mark.parametrize("root", ["s3://other/enriched/archive", "s3://shop/enriched", "s3://shop/enriched/archive/2019", "x"])
def test_a_run_in_another_folder_is_reported(root: str) -> None:
    [problem] = told([row(1, "0", "NEW", root=root)])
    assert problem == f"is not stored in {ROOT}: name the folder of the runs with --source-root"


def test_runs_of_another_folder_become_those_of_the_landing_root() -> None:
    there = place("file:///data/landing", source_root="s3://old/archive/")
    [item] = read_snowplow([row(1, "0", "NEW", root="s3n://old/archive")], there, NAMES).items
    assert item.key.id == f"file:///data/landing/{run(1)}"


def test_a_name_without_the_form_of_a_run_is_reported() -> None:
    [problem] = told([row(1, "0", "NEW", but={"ItemId": {"S": f"{ROOT}/run=2019-13-01/"}})])
    assert problem == "'run=2019-13-01' is not a run name (run=YYYY-MM-DD-HH-MM-SS)"


def test_two_source_items_that_map_to_one_item_are_both_left_out() -> None:
    found = histories(added(1), [row(1, "5", "NEW", root="s3a://shop/enriched/archive")], added(2))
    assert [item.key.name for item in found.items] == [run(2)]
    [problem] = found.problems
    assert "is the same run as" in problem.text


def test_rows_are_counted() -> None:
    assert histories(shredded(1), added(2), [row(3, "0", "NEW", but={"Id": None})]).rows == 5
    assert read_snowplow([], PLACE, NAMES).rows == 0
