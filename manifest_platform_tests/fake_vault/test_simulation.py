"""The simulated vault is the same for the same seed, and contains everything that can confuse a reader."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import cast

import pytest

from manifest_platform.fake_vault import (
    WINDOW,
    AddField,
    AddObject,
    Delete,
    DropField,
    DropObject,
    Extract,
    Field,
    Put,
    Simulation,
    schema_changes,
)
from manifest_platform.fake_vault.events import Deleted, Written

END = timedelta(hours=3)


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return Simulation(rows=10, changes=(10, 40), script=schema_changes(2, 3, 4, 5))


def test_the_history_depends_on_the_seed_and_not_on_the_order_of_calls(simulation: Simulation) -> None:
    again = Simulation(rows=10, changes=(10, 40), script=schema_changes(2, 3, 4, 5))
    end = simulation.begin + END
    again.logs(end + END)
    assert again.tables(end) == simulation.tables(end)
    assert again.logs(end) == simulation.logs(end)
    assert Simulation(seed=2, rows=10, changes=(10, 40)).tables(end) != simulation.tables(end)


def test_every_change_is_inside_its_window_and_in_order() -> None:
    simulation = Simulation(
        rows=2,
        changes=(0, 60),
        script=(*schema_changes(0, 0, 0, 0), *(Put(0, "Object.product__v", {"id": f"P{n}"}) for n in range(30))),
    )
    for window in range(8):
        times = [event.time for event in simulation._window(window)]
        assert times == sorted(times)
        assert simulation.stop(window) - WINDOW < times[0]
        assert times[-1] <= simulation.stop(window)


def test_every_type_has_values_and_gaps_and_those_that_a_reader_changes(simulation: Simulation) -> None:
    end = simulation.begin + END
    state = simulation.state(end)
    seen: dict[str, set] = {}
    for name, extract in state.extracts.items():
        for field in extract.fields:
            seen.setdefault(field.type, set()).update(row.get(field.name) for row in state.rows[name].values())
    python = {"Number": Decimal, "Date": date, "DateTime": datetime, "Boolean": bool}
    expected = {"String", "LongText", "Picklist", "MultiPicklist", "Relationship", "MultiRelationship", *python}
    assert set(seen) == expected
    for kind, values in seen.items():
        assert None in values or kind == "DateTime"
        assert {type(value) for value in values - {None}} == {python.get(kind, str)}
    assert {"00123", "1.10", "NA", "null", "first line\rsecond line", "Zürich, 東京 🧪", '"'} <= seen["String"]
    assert Decimal("1234567890123456789012345") in seen["Number"]
    assert all(value.tzinfo is UTC for value in seen["DateTime"] - {None})
    assert any(value.microsecond for value in seen["DateTime"] - {None})
    assert any("," in value for value in seen["MultiPicklist"] - {None})
    assert "" not in seen["String"] | seen["LongText"]  # an empty value is None


def test_numbers_fit_a_decimal_of_38_digits_10_of_them_behind_the_point(simulation: Simulation) -> None:
    tables = simulation.tables(simulation.begin + END)
    numbers = {
        value for rows in tables.values() for row in rows.values() for value in row.values() if isinstance(value, Decimal)
    }
    shapes = [(f"{abs(number):f}".partition(".")) for number in numbers]
    assert max(len(fraction) for _, _, fraction in shapes) == 10
    assert max(len(whole) for whole, _, _ in shapes) == 25


def test_a_window_holds_one_change_per_row_and_both_files_hold_a_row_that_was_created_again(simulation: Simulation) -> None:
    start = simulation.begin + 4 * WINDOW  # every fourth window has such a row
    changes = simulation.changes(start, start + WINDOW)
    events = [event for event in simulation._window(4) if isinstance(event, Written)]
    assert len(events) > sum(len(rows) for rows in changes.written.values())
    products = changes.written["Object.product__v"], changes.deleted["Object.product__v"]
    assert any(products[0][key].row["name__v"] == "came back" for key in products[0].keys() & products[1].keys())
    for name, gone in changes.deleted.items():
        there = simulation.tables(start + WINDOW).get(name.partition(".")[2], {})
        assert all((key in there) == (key in changes.written.get(name, {})) for key in gone)


def test_users_change_by_logins_though_their_modified_date_does_not(simulation: Simulation) -> None:
    before, after = simulation.tables(simulation.begin), simulation.tables(simulation.begin + END)
    changed = [key for key, row in after["user__sys"].items() if row != before["user__sys"][key]]
    assert changed
    for key in changed:
        assert after["user__sys"][key]["modified_date__v"] == before["user__sys"][key]["modified_date__v"]


def test_modified_dates_do_not_order_changes(simulation: Simulation) -> None:
    events = [event for window in range(8) for event in simulation._window(window)]
    rows = [event.row for event in events if isinstance(event, Written) and event.extract == "Object.product__v"]
    modified = [cast(datetime, row["modified_date__v"]) for row in rows]
    assert any(second < first for first, second in pairwise(modified))


def test_documents_get_versions_of_which_one_is_the_latest(simulation: Simulation) -> None:
    versions = simulation.tables(simulation.begin + END)["document_version__sys"]
    assert any(row["minor_version_number__v"] == 2 for row in versions.values())
    latest = [row["doc_id"] for row in versions.values() if row["latest_version__v"]]
    assert len(latest) == len(set(latest))
    for (identity,), row in versions.items():
        assert identity == row["id"] == row["version_id"]
        assert identity == f"{row['doc_id']}_{row['major_version_number__v']}_{row['minor_version_number__v']}"


def test_keys_that_are_equal_without_a_separator_stay_apart(simulation: Simulation) -> None:
    one, other = ("ab", "c", "one__c"), ("a", "bc", "one__c")
    assert {one, other} <= simulation.tables(simulation.stop(0))["picklist__sys"].keys()
    after = simulation.tables(simulation.stop(1))["picklist__sys"]
    assert one not in after
    assert other in after


def test_a_script_is_done_in_its_window() -> None:
    key = ("V1",)
    script = (
        Put(0, "Object.product__v", {"id": "V1", "price__c": Decimal("1.10"), "name__v": ""}),
        Put(1, "Object.product__v", {"id": "V1", "price__c": Decimal("2.20")}),
        Delete(2, "Object.product__v", key),
        AddField(1, "Object.product__v", Field("heft__c", "Number")),
        DropField(2, "Object.product__v", "price__c"),
        AddObject(1, Extract("Object.shelf__c", (Field("id", standard=True), Field("height__c", "Number")))),
        DropObject(2, "Object.shelf__c"),
    )
    simulation = Simulation(rows=1, quiet=range(4), script=script)
    first, second, third = (simulation.tables(simulation.stop(window)) for window in range(3))
    assert first["product__v"][key]["price__c"] == Decimal("1.10")
    assert first["product__v"][key]["name__v"] is None
    assert "heft__c" not in first["product__v"][key]
    assert second["product__v"][key] == first["product__v"][key] | {"price__c": Decimal("2.20"), "heft__c": None}
    assert len(second["shelf__c"]) == 3
    assert key not in third["product__v"]
    assert all("price__c" not in row and "heft__c" in row for row in third["product__v"].values())
    assert "shelf__c" not in third
    assert simulation.dropped(simulation.stop(2)) == {("product__v", "price__c"), ("shelf__c", None)}
    assert not any(row["extract"] == "Object.shelf__c" for row in third["metadata"].values())


def test_nothing_happens_in_a_quiet_window() -> None:
    simulation = Simulation(rows=2, changes=(3, 5), quiet={1})
    assert simulation.tables(simulation.stop(0)) == simulation.tables(simulation.stop(1))
    assert simulation.tables(simulation.stop(1)) != simulation.tables(simulation.stop(2))


def test_callers_may_change_the_tables_that_they_get(simulation: Simulation) -> None:
    mine = simulation.tables(simulation.begin)
    right = deepcopy(mine)
    for rows in mine.values():
        for row in rows.values():
            row.clear()
        rows.clear()
    assert simulation.tables(simulation.begin) == right


def test_a_change_is_true_from_its_own_time_on(simulation: Simulation) -> None:
    written = [event for event in simulation._window(0) if isinstance(event, Written)]
    for event in written[:: len(written) // 4]:
        table = event.extract.partition(".")[2]
        assert simulation.tables(event.time)[table][event.key] == event.row
        assert simulation.tables(event.time - timedelta(milliseconds=1))[table].get(event.key) != event.row
        told = simulation.changes(simulation.begin, event.time)
        assert told.written[event.extract][event.key] == event
        assert told != simulation.changes(simulation.begin, event.time - timedelta(milliseconds=1))


def test_changes_of_a_dropped_object_are_left_out() -> None:
    again = Extract("Object.study__v", (Field("id", standard=True), Field("title__c")))
    script = (Put(0, again.name, {"id": "S1"}), DropObject(0, again.name), AddObject(0, again))
    simulation = Simulation(rows=1, quiet={0}, script=script)
    told = simulation.changes(simulation.begin, simulation.stop(0)).written[again.name]
    assert ("S1",) not in told
    assert told.keys() == simulation.tables(simulation.stop(0))["study__v"].keys()


def test_there_is_no_state_before_the_beginning(simulation: Simulation) -> None:
    with pytest.raises(ValueError, match="begins at 2026-01-01T00:00Z"):
        simulation.tables(simulation.begin - WINDOW)


def test_the_audit_trail_holds_each_change_of_an_object(simulation: Simulation) -> None:
    stop = simulation.stop(0)
    told = [(row["record_id"], row["action"]) for row in simulation.logs(stop)["object_audit_trail__sys"]]
    events = [event for event in simulation._window(0) if event.extract.startswith("Object.")]
    assert told == [(event.key[0], "Delete" if isinstance(event, Deleted) else "Save") for event in events]  # ty: ignore
