"""Consecutive loads in one transaction: the tables are those of the same loads one by one, however a feed is cut in batches."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifest_platform.listing import BAD_TABLE, Column, Retired, Table
from manifest_platform.testing.loads import (
    AUDIT,
    FEED,
    INCR,
    PICKLIST,
    PRODUCT,
    SITE,
    content,
    control,
    day,
    deletes,
    events,
    fences,
    gone,
    ledger,
    load,
    more,
    products,
    rows_of,
    window,
    written,
)
from manifest_platform.warehouse.apply import AlreadyApplied, Applied, Load, Warehouse
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.errors import (
    CountMismatch,
    DuplicateKey,
    IncompatibleChange,
    KeyMissing,
    LoadFailed,
    NotTogether,
    Unavailable,
)
from manifest_platform_tests.effort import cases
from manifest_platform_tests.warehouse.shop import Recording

DATED = Table("dated", (Column("id", "string"), Column("note", "string")), "merge", ("id",), load_time=True)
ids = st.sampled_from("abcd")
names = st.sampled_from(["1", "2", None, "x\ny"])
upserts = st.dictionaries(ids, names, max_size=3)
parts = st.dictionaries(st.tuples(ids, st.sampled_from("xy")), names, max_size=3)
changed = st.fixed_dictionaries(
    {
        "products": upserts,
        "gone": st.sets(ids, max_size=2),
        "wider": st.booleans(),
        "repeated": st.booleans(),
        "picklist": parts,
        "gone_parts": st.sets(st.tuples(ids, st.sampled_from("xy")), max_size=2),
        "dated": upserts,
        "events": st.integers(0, 2),
        "retires": st.booleans(),
    }
)


def chain(loads: Sequence[Load]) -> list[Load]:
    """The loads, each based on the one before it."""
    before = ["", *(one.record_id for one in loads)]
    return [replace(one, believed=record) for one, record in zip(loads, before, strict=False)]


def changes_of(directory: Path, number: int, given: dict[str, Any]) -> Load:
    """A window with random changes by key, of one or two columns, deletes, and appended rows."""
    wide = more(PRODUCT, "size__c") if given["wider"] else PRODUCT
    rows = [
        {"id": id_, "name__v": name} | ({"size__c": f"{number}"} if given["wider"] else {})
        for id_, name in given["products"].items()
    ]
    picked = [
        dict(zip(("object", "object_field"), key, strict=True)) | {"label": name} for key, name in given["picklist"].items()
    ]
    tables = [
        (wide, rows * 2 if given["repeated"] else rows),
        gone(PRODUCT, *sorted(given["gone"])),
        (PICKLIST, picked),
        gone(PICKLIST, *sorted(given["gone_parts"])),
        (DATED, [{"id": id_, "note": name} for id_, name in given["dated"].items()]),
        (AUDIT, [{"id": f"{number}.{n}", "action": "login"} for n in range(given["events"])]),
    ]
    retired = [Retired(SITE.name)] if given["retires"] else []
    return window(directory, f"{number:03}", *((table, some or None) for table, some in tables), retired=retired)


def stored(engine: DuckDB) -> dict[str, Any]:
    """Everything that loads of windows leave behind, except times."""
    tables = {name: [tuple(str(value) for value in row) for row in rows] for name, rows in content(engine).items()}
    without_time = {name: rows_of(engine, name, '"id", "note"') for name in tables if name == DATED.name}
    retired = engine.execute('SELECT "table", "column", "item" FROM manifest_platform.retired ORDER BY 1, 2') if tables else []
    entries = engine.execute(
        'SELECT "item", "position", "record_id", "rows", "checksum" FROM manifest_platform.ledger ORDER BY 2'
    )
    return {**tables, **without_time, "retired": retired, "fence": fences(engine), "ledger": entries}


@settings(max_examples=cases(12, 120), deadline=None)
@given(st.lists(changed, min_size=1, max_size=6), st.data())
def test_any_cut_of_a_feed_in_batches_gives_the_tables_of_the_loads_one_by_one(
    windows: list[dict[str, Any]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        loads = chain([changes_of(path, number, one) for number, one in enumerate(windows)])
        engines = [DuckDB(path / name / "warehouse.duckdb") for name in ("alone", "together")]
        alone, together = (Warehouse(engine, "shop") for engine in engines)
        for one in loads:
            assert isinstance(alone.apply(one), Applied)
        while loads:
            size = data.draw(st.integers(1, len(loads)), label="size")
            assert [one.entry.item for one in together.apply_all(loads[:size])] == [one.item for one in loads[:size]]
            loads = loads[size:]
        assert stored(engines[1]) == stored(engines[0])
        for engine in engines:
            engine.close()


def test_a_batch_has_a_ledger_entry_an_item_and_moves_the_fence_to_the_last(
    shop: Warehouse, engine: Recording, tmp_path: Path
) -> None:
    loads = chain([load(events(tmp_path, f"run-{n}", n), checksum=f"sum-{n}") for n in (1, 2, 3)])
    applied = shop.apply_all(loads)
    assert [(one.entry.record_id, one.entry.position, one.entry.rows, one.entry.checksum) for one in applied] == [
        (f"record-run-{n}", f"run-{n}", {"events": n}, f"sum-{n}") for n in (1, 2, 3)
    ]
    assert fences(engine)[FEED] == (1, 1, "run-3") and shop.fence_row(FEED).record == "record-run-3"
    assert [shop.ledger_entry(FEED, f"run-{n}", 1, "record-run-2") for n in (1, 2, 3)] == [one.entry for one in applied]
    times = rows_of(engine, "events", '"load_tstamp"')
    assert [times.count((one.entry.applied_at.replace(tzinfo=None),)) for one in applied] == [1, 2, 3]  # a row names its item


def test_a_batch_costs_one_delete_and_one_insert_a_table(shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
    first, *rest = chain([window(tmp_path, f"{n:02}", products(a=f"{n}", b=f"{n}"), gone(PRODUCT, "c")) for n in range(6)])
    shop.apply(first)
    engine.statements.clear()
    shop.apply_all(rest)
    moving = [sql for sql in engine.statements if PRODUCT.name in sql and sql.startswith(("INSERT", "DELETE"))]
    assert len(moving) == 2 and len([sql for sql in engine.statements if "ledger" in sql and sql.startswith("INSERT")]) == 1
    assert rows_of(engine, PRODUCT) == [("a", "5"), ("b", "5")]


def test_the_newest_change_of_a_key_counts_and_deletes_come_first_within_an_item(
    shop: Warehouse, engine: Recording, tmp_path: Path
) -> None:
    shop.apply_all(
        chain(
            [
                window(tmp_path, "1", products(upserted_then_deleted="1", both="1", stays="1")),
                window(tmp_path, "2", products(both="2", back="2"), gone(PRODUCT, "upserted_then_deleted", "both", "back")),
                window(tmp_path, "3", products(stays="3")),
            ]
        )
    )
    assert rows_of(engine, PRODUCT) == [("back", "2"), ("both", "2"), ("stays", "3")]


def refused(shop: Warehouse, loads: Sequence[Load], error: type[Exception], match: str | None = None) -> None:
    """Asserts that a batch is refused, and that the same loads one by one fail only at the last."""
    before = shop.row_counts()
    with pytest.raises(error, match=match):
        shop.apply_all(loads)
    assert {name: rows for name, rows in shop.row_counts().items() if rows} == {
        name: rows for name, rows in before.items() if rows
    }
    assert all(isinstance(shop.apply(one), Applied) for one in loads[:-1])


def test_a_batch_with_two_rows_of_a_key_in_one_item_applies_nothing(shop: Warehouse, tmp_path: Path) -> None:
    table, rows = products(a="1")
    loads = chain(
        [window(tmp_path, "1", products(a="0")), window(tmp_path, "2", (table, [*rows, {"id": "a", "name__v": "2"}]))]
    )
    refused(shop, loads, DuplicateKey, "incr-2")
    with pytest.raises(DuplicateKey):
        shop.apply(loads[-1])


def test_a_batch_with_a_row_without_its_key_applies_nothing(shop: Warehouse, tmp_path: Path) -> None:
    loads = [window(tmp_path, "1", products(a="0")), window(tmp_path, "2", (PRODUCT, [{"id": None, "name__v": "2"}]))]
    refused(shop, chain(loads), KeyMissing, "incr-2")


@pytest.mark.parametrize("table", [PRODUCT, deletes(PRODUCT), AUDIT, Table(BAD_TABLE, AUDIT.columns)], ids=lambda one: one.name)
def test_a_batch_with_other_rows_than_listed_applies_nothing(shop: Warehouse, tmp_path: Path, table: Table) -> None:
    loads = [window(tmp_path, "1", products(a="0")), window(tmp_path, "2", (table, [{"id": "b"}]))]
    objects = [replace(one, rows=one.rows + 1) for one in loads[1].listing.objects]
    loads[1] = replace(loads[1], listing=replace(loads[1].listing, objects=tuple(objects)))
    refused(shop, chain(loads), CountMismatch)


def test_a_batch_with_a_conflicting_type_applies_nothing(shop: Warehouse, tmp_path: Path) -> None:
    other = replace(PRODUCT, columns=(PRODUCT.columns[0], Column("name__v", "boolean")))
    loads = chain([window(tmp_path, "1", products(a="0")), window(tmp_path, "2", (other, [{"id": "b", "name__v": True}]))])
    with pytest.raises(IncompatibleChange) as refusal:
        shop.apply_all(loads)
    assert refusal.value.fitting == 1
    refused(shop, loads, IncompatibleChange)


def test_a_batch_with_a_lost_object_applies_nothing(shop: Warehouse, tmp_path: Path) -> None:
    loads = [window(tmp_path, "1", products(a="0")), window(tmp_path, "2", products(a="2"))]
    Path(loads[1].listing.objects[0].uri.removeprefix("file://")).unlink()
    refused(shop, chain(loads), LoadFailed)


def test_a_batch_whose_items_disagree_on_the_key_applies_nothing(shop: Warehouse, tmp_path: Path) -> None:
    other = replace(PRODUCT, key=("id", "name__v"))
    loads = [window(tmp_path, "1", products(a="0")), window(tmp_path, "2", (other, [{"id": "a", "name__v": "1"}]))]
    refused(shop, chain(loads), NotTogether)


def test_a_batch_is_refused_if_the_ledger_has_one_of_its_items(shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
    loads = chain([load(events(tmp_path, f"run-{n}")) for n in (1, 2, 3)])
    shop.apply(loads[0])
    shop.apply(loads[1])
    for believed in ("", "record-run-1", "record-run-2"):
        with pytest.raises(NotTogether):
            shop.apply_all([replace(loads[1], believed=believed), loads[2]])
    with pytest.raises(NotTogether):  # known in the ledger, although the fence was moved back by hand
        engine.execute(f"UPDATE {control(engine, 'fence')} SET applied = 'run-1', record = 'record-run-1'")
        shop.apply_all(loads[1:])
    assert len(rows_of(engine, "events")) == 6 and isinstance(shop.apply(loads[1]), AlreadyApplied)


@pytest.mark.parametrize("held", ["token = 2", "epoch = 2", "applied = 'run-2'", "record = 'another'"])
def test_a_batch_needs_the_fence_of_its_first_item(shop: Warehouse, engine: Recording, tmp_path: Path, held: str) -> None:
    loads = chain([load(events(tmp_path, f"run-{n}")) for n in (1, 2, 3)])
    shop.apply(loads[0])
    engine.execute(f"UPDATE {control(engine, 'fence')} SET {held}")
    with pytest.raises(NotTogether):
        shop.apply_all(loads[1:])
    assert len(rows_of(engine, "events")) == 3 and ledger(engine) == [("run-1", 1)]


@pytest.mark.parametrize(
    "change",
    [{"late": True}, {"token": 2}, {"epoch": 2}, {"overlaps": "it starts early"}, {"feed": INCR}, {"position": "run-0"}],
    ids=str,
)
def test_only_consecutive_loads_of_one_claim_go_together(shop: Warehouse, tmp_path: Path, change: dict[str, Any]) -> None:
    loads = chain([load(events(tmp_path, f"run-{n}")) for n in (1, 2)])
    with pytest.raises(ValueError, match="no consecutive items"):
        shop.apply_all([loads[0], replace(loads[1], **change)])


def test_a_batch_of_days_adds_the_columns_that_its_items_bring(shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
    wide = more(AUDIT, "ip")
    later = load(written(tmp_path, "log-2", [(wide, [{"id": "c", "action": "out", "ip": "::1"}])]), position="2", feed="log")
    told = shop.apply_all(chain([day(tmp_path, "1", "a", "b"), later]))
    assert rows_of(engine, AUDIT, '"id", "ip"') == [("a", None), ("b", None), ("c", "::1")] and not any(
        one.told for one in told
    )


def test_a_batch_that_another_transaction_stands_in_the_way_of_is_repeated_and_then_unavailable(
    path: Path, tmp_path: Path
) -> None:
    engine = DuckDB(path, patience=0.2)
    shop, loads = Warehouse(engine, "shop"), chain([load(events(tmp_path, f"run-{n}")) for n in (1, 2, 3)])
    shop.apply(loads[0])
    other = engine.connection().cursor()
    other.execute("BEGIN")
    other.execute("UPDATE manifest_platform.fence SET token = token")
    with pytest.raises(Unavailable):
        shop.apply_all(loads[1:])
    other.execute("ROLLBACK")
    assert len(shop.apply_all(loads[1:])) == 2
    other.close()
    engine.close()
