"""Rows of the Snowflake Loader's manifest as histories of items."""

from __future__ import annotations

from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest

from manifest_platform.manifest import Application, State
from manifest_platform.operations.migration import read_snowflake
from manifest_platform.operations.migration.snowflake_loader import TRANSFORMER, read_row
from manifest_platform_tests.manifest.given import LOAD, SHRED
from manifest_platform_tests.operations.migration.given import PLACE, ROOT, START, run, snowflake_row

LATER = ("ProcessedAt", "ShredTypes", "SavedTo", "LoadedAt", "LoadedBy")
ALL = snowflake_row(1, "LOADED")


def history(*names: str, to_skip: bool = False) -> list[str]:
    """The history of a row with these attributes besides the first group."""
    row = {**snowflake_row(1, "NEW", to_skip), **{name: ALL[name] for name in names}}
    found = read_snowflake([row], PLACE, LOAD)
    assert len(found.items) + len(found.problems) > 0
    return [f"{record.application.name} {record.state}" for item in found.items for record in item.records]


NEW = [f"{TRANSFORMER} New"]
PROCESSED = [*NEW, f"{TRANSFORMER} Processing", f"{TRANSFORMER} Processed"]
LOADED = [*PROCESSED, "load Processing", "load Processed"]


def test_every_combination_of_attributes_is_a_state_or_a_problem() -> None:
    states = {(): NEW, LATER[:3]: PROCESSED, LATER: LOADED}
    for count in range(len(LATER) + 1):
        for names in combinations(LATER, count):
            assert history(*names) == states.get(names, []), names


def test_to_skip_becomes_a_skip_for_all_applications_and_excludes_loaded() -> None:
    skipped = "* Skipped"
    assert sorted(history(to_skip=True)) == sorted([*NEW, skipped])
    assert sorted(history(*LATER[:3], to_skip=True)) == sorted([*PROCESSED, skipped])
    assert history(*LATER, to_skip=True) == []


def test_a_skip_applies_to_load_and_shred() -> None:
    [item] = read_snowflake([snowflake_row(1, "PROCESSED", to_skip=True)], PLACE, LOAD).items
    skip = item.skipped_for(LOAD)
    assert skip
    assert item.skipped_for(SHRED) == skip
    assert skip.data == {"reason": "ToSkip in the Snowflake Loader's manifest"}


def test_a_history_keeps_times_authors_types_and_output_of_its_row() -> None:
    [item] = read_snowflake([snowflake_row(1, "LOADED")], PLACE, LOAD).items
    new, processing, processed, loading, loaded = item.records
    at = START + timedelta(minutes=1)
    assert item.key.id == f"{ROOT}/{run(1)}"
    assert item.problems == []
    assert (new.timestamp, new.author, new.application) == (at, "0.8.0", Application(TRANSFORMER, "0.8.0"))
    assert (processing.timestamp, processing.previous) == (at, new.record_id)
    assert (processed.timestamp, processed.previous) == (at + timedelta(seconds=10), processing.record_id)
    assert processed.data == {
        "shredTypes": ["contexts_com_acme_click_1", "unstruct_event_com_acme_buy_1"],
        "savedTo": f"s3://shop/transformed/{run(1)}/",
    }
    assert (loading.timestamp, loading.previous, loading.author) == (at + timedelta(seconds=20), new.record_id, "0.8.1")
    assert (loaded.previous, loaded.application) == (loading.record_id, Application("load", "0.8.1"))


def test_record_ids_stay_the_same_as_a_run_progresses() -> None:
    def ids(state: str) -> list[str]:
        [item] = read_snowflake([snowflake_row(1, state)], PLACE, LOAD).items
        return [record.record_id for record in item.records]

    assert ids("LOADED")[:3] == ids("PROCESSED")
    assert ids("PROCESSED")[:1] == ids("NEW")
    [other] = read_snowflake([snowflake_row(2, "LOADED")], PLACE, LOAD).items
    assert not {record.record_id for record in other.records} & set(ids("LOADED"))


def test_a_run_in_state_new_becomes_new_without_processing() -> None:
    [item] = read_snowflake([snowflake_row(1, "NEW")], PLACE, LOAD).items
    assert item.blocker() is None
    assert [record.state for record in item.records] == [State.NEW]


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("RunId", None, "RunId is missing"),
        ("RunId", {"N": "1"}, "RunId must be text (S), and is a number (N)"),
        ("AddedAt", None, "AddedAt is missing"),
        ("AddedAt", {"S": "2019"}, "AddedAt must be a number (N), and is text (S)"),
        ("AddedAt", {"N": "1.5"}, "AddedAt must be a whole number, and is 1.5"),
        ("AddedBy", None, "AddedBy is missing"),
        ("ToSkip", None, "ToSkip is missing"),
        ("ToSkip", {"S": "false"}, "ToSkip must be a boolean (BOOL), and is text (S)"),
        ("ProcessedAt", {"BOOL": True}, "ProcessedAt must be a number (N), and is a boolean (BOOL)"),
        ("ShredTypes", {"S": "a"}, "ShredTypes must be a list (L), and is text (S)"),
        ("ShredTypes", {"L": [{"S": "a"}, {"N": "1"}]}, "ShredTypes must be a list of texts, and holds a number (N)"),
        ("SavedTo", {"S": ""}, "SavedTo is empty"),
        ("LoadedAt", {"N": "1E30"}, "LoadedAt is no time: 1E30"),
        ("LoadedBy", {"N": "8"}, "LoadedBy must be text (S), and is a number (N)"),
    ],
)
def test_a_missing_or_wrongly_typed_attribute_is_reported(name: str, value: dict[str, Any] | None, what: str) -> None:
    run_, problems = read_row(snowflake_row(1, "LOADED", but={name: value}))
    assert run_ is None
    assert problems == [what]


def test_all_problems_of_a_row_are_reported_together_and_other_rows_are_read() -> None:
    wrong = snowflake_row(1, "LOADED", but={"AddedAt": None, "ToSkip": {"S": "no"}, "SavedTo": {"N": "1"}, "LoadedBy": None})
    found = read_snowflake([wrong, snowflake_row(2, "NEW")], PLACE, LOAD)
    assert [item.key.name for item in found.items] == [run(2)]
    texts = [problem.text for problem in found.problems]
    assert [problem.item for problem in found.problems] == [f"enriched/archive/{run(1)}/"] * 5
    assert texts[:4] == [
        "AddedAt is missing",
        "ToSkip must be a boolean (BOOL), and is text (S)",
        "SavedTo must be text (S), and is a number (N)",
        "LoadedBy is missing",
    ]
    assert "invalid state: it has ProcessedAt, ShredTypes, SavedTo, LoadedAt" in texts[4]


def test_types_may_be_a_set_or_empty() -> None:
    for value, types in [({"SS": ["b", "a"]}, ("a", "b")), ({"L": []}, ())]:
        found, _ = read_row(snowflake_row(1, "PROCESSED", but={"ShredTypes": value}))
        assert found
        assert found.shred_types == types


def test_unknown_attributes_are_ignored() -> None:
    assert len(read_snowflake([snowflake_row(1, "NEW", but={"Color": {"S": "red"}})], PLACE, LOAD).items) == 1


@pytest.mark.parametrize(
    "run_id", ["enriched/other/run=2019-03-01-00-01-00/", "run=2019-03-01-00-01-00", "enriched/archive/x/"]
)
def test_a_run_in_another_folder_is_reported(run_id: str) -> None:
    found = read_snowflake([snowflake_row(1, "NEW", but={"RunId": {"S": run_id}})], PLACE, LOAD)
    assert not found.items
    assert [problem.item for problem in found.problems] == [run_id]
