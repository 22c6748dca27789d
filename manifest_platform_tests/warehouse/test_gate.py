"""Checks between staging and COMMIT: each kind passes, fails or warns before anything is visible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from manifest_platform.listing import BAD_TABLE, Column, Table
from manifest_platform.testing.loads import (
    EVENTS,
    PRODUCT,
    content,
    events,
    fences,
    gone,
    ledger,
    load,
    products,
    snapshot,
    window,
    written,
)
from manifest_platform.warehouse.apply import AlreadyApplied, Applied, Load, Warehouse
from manifest_platform.warehouse.checks import AnyCheck, CheckSettings, failed_names
from manifest_platform.warehouse.errors import CheckFailed, CheckInvalid, NotTogether
from manifest_platform_tests.warehouse.shop import Recording

pytestmark = [pytest.mark.engines("duckdb"), pytest.mark.everyday("duckdb")]  # the contract has the others

CHECK = TypeAdapter(AnyCheck)


def check(kind: str, table: str = "events", name: str = "mine", **more: Any) -> CheckSettings:
    return CHECK.validate_python({"kind": kind, "name": name, "table": table, **more})


def checked(listing: Any, *checks: CheckSettings, **changes: Any) -> Load:
    return load(listing, checks=checks, **changes)


EVENT_ROWS = [{"event_id": "a", "amount": 1}, {"event_id": "b", "amount": None}, {"event_id": "b", "amount": 3}]


def three(directory: Path, item: str = "1") -> Any:
    return written(directory, item, [(EVENTS, EVENT_ROWS)], files=2)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kind": "rows", "min": 4}, "3 rows; allowed: at least 4"),
        ({"kind": "rows", "max": 2}, "3 rows; allowed: at most 2"),
        ({"kind": "nulls", "column": "amount"}, "amount is NULL in 1 of 3 rows (33.33%); allowed: at most 0.00%, such as"),
        ({"kind": "nulls", "column": "AT", "max_share": 0.99}, "AT is NULL in 3 of 3 rows (100.00%)"),
        ({"kind": "unique", "columns": ["event_id"]}, "1 values of event_id occur more than once; allowed: each value once"),
        ({"kind": "sql", "query": "SELECT * FROM {staged} WHERE amount > 2"}, "1 bad rows; allowed: none, such as b, 3, NULL"),
        (
            {"kind": "sql", "query": "SELECT count(*) = 0 FROM {target} WHERE amount = 3", "returns": "boolean"},
            "false; allowed: true",
        ),
        ({"kind": "sql", "query": "SELECT sum(amount) FROM {staged}", "returns": "number", "max": 3.5}, "4; allowed: at most"),
        ({"kind": "sql", "query": "SELECT max(amount) IS NULL FROM {staged}", "returns": "boolean"}, "false; allowed: true"),
        ({"kind": "sql", "query": "SELECT max(amount) < 9 FROM {staged} WHERE 1 = 2", "returns": "boolean"}, "NULL; allowed"),
        ({"kind": "sql", "query": "SELECT 1 FROM {staged} WHERE {item} = '1'"}, "3 bad rows"),
    ],
)
def test_a_failed_check_leaves_warehouse_and_ledger_as_they_were(
    shop: Warehouse, engine: Recording, tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    shop.apply(load(written(tmp_path, "0", [(EVENTS, [])])))
    before = content(engine), fences(engine), ledger(engine)
    mine = check(**settings)
    with pytest.raises(CheckFailed) as failed:
        shop.apply(checked(three(tmp_path), mine))
    assert said in str(failed.value)
    assert str(failed.value).startswith("1: check mine failed, so nothing was loaded.")
    assert failed_names(str(failed.value)) == ["mine"]
    assert (content(engine), fences(engine), ledger(engine)) == before
    warning = mine.model_copy(update={"severity": "warn"})
    done = shop.apply(checked(three(tmp_path), warning, token=2))
    assert isinstance(done, Applied)
    assert said in done.told[0]
    assert [(one.check, one.passed) for one in done.checks] == [("mine", False)]
    assert shop.row_counts() == {"events": 3}


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "rows", "min": 3, "max": 3},
        {"kind": "rows"},
        {"kind": "nulls", "column": "amount", "max_share": 0.34},
        {"kind": "nulls", "column": "EVENT_ID"},
        {"kind": "unique", "columns": ["event_id", "amount"], "in_target": True},
        {"kind": "sql", "query": "WITH s AS (SELECT * FROM {staged}) SELECT * FROM s WHERE amount > 3 ORDER BY 1"},
        {"kind": "sql", "query": "SELECT count(*) = 3 FROM {target} AS t", "returns": "boolean"},
        {"kind": "sql", "query": "SELECT avg(amount) FROM {staged}", "returns": "number", "min": 2, "max": 2},
        {"kind": "sql", "query": "SELECT * FROM {staged} WHERE event_id IN (SELECT event_id FROM {target} WHERE amount = 7)"},
        {"kind": "rows", "max": 0, "table": "event?_"},
    ],
)
def test_a_check_that_passes_lets_the_load_through(shop: Warehouse, tmp_path: Path, settings: dict[str, Any]) -> None:
    done = shop.apply(checked(three(tmp_path), check(**settings)))
    assert isinstance(done, Applied)
    assert all(one.passed for one in done.checks)
    assert done.told == ()
    assert shop.row_counts() == {"events": 3}


def test_a_failed_check_of_staged_rows_leaves_no_new_table_behind(shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
    with pytest.raises(CheckFailed):
        shop.apply(checked(three(tmp_path), check("rows", min=4)))
    assert "events" not in engine.columns("shop")


def test_all_failed_checks_are_told_together(shop: Warehouse, tmp_path: Path) -> None:
    checks = check("rows", name="many", min=9), check("nulls", name="full", column="at"), check("rows", name="fine", min=1)
    with pytest.raises(CheckFailed) as failed:
        shop.apply(checked(three(tmp_path), *checks))
    assert failed_names(str(failed.value)) == ["full", "many"]
    assert "check fine" not in str(failed.value)


def test_the_table_as_it_will_be_is_checked_before_commit(shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
    once = check("unique", columns=["event_id"], in_target=True)
    shop.apply(checked(events(tmp_path, "1", 2), once))
    again = written(tmp_path, "2", [(EVENTS, [{"event_id": "1-0"}, {"event_id": "new"}])])
    before = content(engine), fences(engine), ledger(engine)
    with pytest.raises(CheckFailed, match=r"1 values of event_id occur more than once.*such as event_id 1-0"):
        shop.apply(checked(again, once))
    assert (content(engine), fences(engine), ledger(engine)) == before
    assert isinstance(shop.apply(load(again)), Applied), "without the check, or after it was mended, the item is loaded"
    third = written(tmp_path, "3", [(EVENTS, [{"event_id": "third"}])])
    assert isinstance(shop.apply(checked(third, once)), Applied), "values that were doubled before are not this item's fault"


def test_checks_of_changes_see_the_rows_that_were_merged_and_deleted(shop: Warehouse, tmp_path: Path) -> None:
    shop.apply(window(tmp_path, "0015", products(a="1", b="2")))
    left = check("sql", "product__v", query="SELECT count(*) FROM {target}", returns="number", max=1)
    with pytest.raises(CheckFailed, match="2; allowed: at most 1"):
        shop.apply(window(tmp_path, "0030", products(a="3"), checks=(left,)))
    assert shop.row_counts() == {"product__v": 2}
    done = shop.apply(window(tmp_path, "0045", gone(PRODUCT, "b"), products(a="3"), checks=(left,)))
    assert isinstance(done, Applied)
    few = check("rows", "product__v_deletes", max=0)
    with pytest.raises(CheckFailed, match="table product__v_deletes: 1 rows"):
        shop.apply(window(tmp_path, "0100", gone(PRODUCT, "a"), checks=(few,)))


def test_a_snapshot_is_checked_before_it_replaces_anything(shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
    shop.apply(window(tmp_path, "0015", products(a="1")))
    for mine in (
        check("nulls", "product__v", column="name__v"),
        check("sql", "product__v", query="SELECT * FROM {target} WHERE name__v IS NULL"),
    ):
        with pytest.raises(CheckFailed):
            shop.apply(snapshot(tmp_path, "0030", products(a="2", b=None), checks=(mine,)))
        assert shop.query("SELECT id, name__v FROM product__v")[1] == [("a", "1")]
        assert shop.leftovers() == []
    assert isinstance(shop.apply(snapshot(tmp_path, "0030", products(a="2", b="3"), checks=(mine,))), Applied)
    assert shop.row_counts() == {"product__v": 2}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT nothing FROM {staged}",
        "SELECT nothing FROM {target}",
        "SELECT FROM WHERE {staged}",
        "SELECT * FROM nowhere, {staged}",
    ],
)
def test_a_wrong_query_is_charged_to_no_item(shop: Warehouse, engine: Recording, tmp_path: Path, query: str) -> None:
    for item in ("1", "2"):
        before = content(engine)
        with pytest.raises(CheckInvalid, match=r"load\.checks: the query of check mine is wrong, for table events: "):
            shop.apply(checked(three(tmp_path, item), check("sql", query=query)))
        assert [rows for _, rows in ledger(engine)] == [] if item == "1" else content(engine) == before
        shop.apply(load(three(tmp_path, item)))


@pytest.mark.parametrize(
    "result", ["SELECT event_id FROM {staged}", "SELECT count(*) FROM {staged}", "SELECT 1 = 1, 2 FROM {staged} LIMIT 1"]
)
def test_a_result_of_another_form_is_a_wrong_query(shop: Warehouse, tmp_path: Path, result: str) -> None:
    with pytest.raises(CheckInvalid, match="it returned"):
        shop.apply(checked(three(tmp_path), check("sql", query=result, returns="boolean")))


def test_checks_of_columns_that_an_item_lacks_do_not_apply(shop: Warehouse, tmp_path: Path) -> None:
    shop.apply(load(three(tmp_path, "1")))
    narrow = Table("events", (Column("event_id", "string"),), load_time=True)
    checks = [
        check("nulls", name="a", column="amount"),
        check("unique", name="b", columns=["event_id", "amount"]),
        check("sql", name="c", query="SELECT * FROM {staged} WHERE amount IS NULL"),
        check("sql", name="d", query="SELECT * FROM {staged} AS s JOIN {target} AS t USING (amount)"),
        check("nulls", name="e", column="amuont"),
    ]
    for item in ("2", "3"):
        done = shop.apply(checked(written(tmp_path, item, [(narrow, [{"event_id": "x"}])]), *checks))
        assert isinstance(done, Applied)
        assert [(one.check, one.note) for one in done.checks[:4]] == [
            (name, "the item has no column amount") for name in "abcd"
        ]
        assert len(done.told) == 1
        assert "neither the item nor the warehouse has a column amuont" in done.told[0]


def test_an_item_without_the_named_table_has_no_rows_of_it(shop: Warehouse, tmp_path: Path) -> None:
    bad = Table(BAD_TABLE, (Column("line", "string"),))
    listing = written(tmp_path, "1", [(bad, [{"line": "x"}])])
    for mine in (check("rows", min=1), check("rows", BAD_TABLE, max=0)):
        with pytest.raises(CheckFailed):
            shop.apply(checked(listing, mine))
    checks = check("rows", "event*", name="a", min=1), check("rows", "*", name="b", max=0), check("nulls", name="c", column="x")
    assert isinstance(shop.apply(checked(listing, *checks)), Applied)


def test_a_loaded_item_is_not_failed_by_a_check_that_came_later(shop: Warehouse, tmp_path: Path) -> None:
    shop.apply(load(three(tmp_path)))
    assert isinstance(shop.apply(checked(three(tmp_path), check("rows", min=9))), AlreadyApplied)


def test_simple_checks_of_a_table_cost_one_statement(shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
    """A SELECT of the user costs one more, and is tried only once on the table as it is."""
    simple = [
        check("rows", name="a", min=1),
        check("rows", name="b"),
        check("nulls", name="c", column="amount", max_share=1),
        check("nulls", name="d", column="event_id"),
        check("unique", name="e", columns=["event_id", "amount"]),
    ]
    mine = check("sql", name="f", query="SELECT 1 FROM {target} WHERE amount > 7")
    counts = []
    for number, checks in enumerate(([], [], [], simple, [simple[0]], [*simple, mine], [*simple, mine])):
        engine.statements.clear()
        assert isinstance(shop.apply(checked(three(tmp_path, str(number)), *checks)), Applied)
        counts.append(len(engine.statements))
    without = counts[2]
    assert [count - without for count in counts[3:]] == [1, 0, 3, 2]


# Several items in one transaction


def days(directory: Path, *checks: CheckSettings, rows: int = 2) -> list[Load]:
    """Three consecutive items, the second of which has one more event than the others, and an event of the first."""
    listings = [events(directory, "1", rows), written(directory, "2", [(EVENTS, SECOND)]), events(directory, "3", rows)]
    return [load(listing, checks=checks, believed=f"record-{n}" if n else "") for n, listing in enumerate(listings)]


SECOND = [{"event_id": "1-0", "amount": None}, {"event_id": "2-1", "amount": 1}, {"event_id": "2-2", "amount": 1}]


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "rows", "max": 2},
        {"kind": "nulls", "column": "amount"},
        {"kind": "unique", "columns": ["amount"]},
        {"kind": "unique", "columns": ["event_id"], "in_target": True},
        {"kind": "sql", "query": "SELECT * FROM {staged} WHERE amount IS NULL"},
        {
            "kind": "sql",
            "query": "WITH r AS (SELECT count(*) AS n FROM {staged} AS s) SELECT n < 3 FROM r",
            "returns": "boolean",
        },
    ],
)
def test_a_check_that_fails_one_of_several_items_fails_them_together(
    shop: Warehouse, engine: Recording, tmp_path: Path, settings: dict[str, Any]
) -> None:
    mine = check(**settings)
    shop.prepare("enriched")
    with pytest.raises(CheckFailed, match="check mine failed"):
        shop.apply_all(days(tmp_path, mine))
    assert ledger(engine) == []
    first, second, _ = days(tmp_path, mine)
    assert isinstance(shop.apply(first), Applied)
    with pytest.raises(CheckFailed):
        shop.apply(second)
    warning = mine.model_copy(update={"severity": "warn"})
    done = shop.apply_all(days(tmp_path, warning)[1:])
    assert [[one.passed for one in applied.checks] for applied in done] == [[False], [True]]
    assert [len(applied.told) for applied in done] == [1, 0]


def test_items_with_a_select_on_the_target_are_loaded_one_by_one(shop: Warehouse, tmp_path: Path) -> None:
    shop.prepare("enriched")
    for query in ("SELECT * FROM {target} WHERE amount > 99", "SELECT nothing FROM {staged}"):
        with pytest.raises(NotTogether):
            shop.apply_all(days(tmp_path, check("sql", query=query)))
