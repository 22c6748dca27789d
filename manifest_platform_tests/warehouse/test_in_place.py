"""Snapshots on engines that rename no tables: their rows are replaced within the transaction, where the tables stand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest

from manifest_platform.listing import Column, Table
from manifest_platform.testing.loads import (
    INCR,
    LOG,
    PRODUCT,
    SITE,
    content,
    day,
    fences,
    ledger,
    more,
    names_of,
    products,
    rows_of,
    snapshot,
    window,
)
from manifest_platform.warehouse.apply import Applied, Warehouse
from manifest_platform.warehouse.engines.engine import Engine
from manifest_platform.warehouse.errors import CountMismatch, IncompatibleChange
from manifest_platform_tests.servers.warehouses import DatabasePlace, Place
from manifest_platform_tests.warehouse.shop import Recording


class Staying(Recording):
    """The embedded engine, as if it could not rename tables."""

    swaps_names: ClassVar[bool] = False


@pytest.fixture
def engine(path: Path) -> Iterator[Staying]:
    opened = Staying(path)
    yield opened
    opened.close()


def table(**types: str) -> Table:
    """PRODUCT with further columns, or other types."""
    columns = {column.name: column.type for column in PRODUCT.columns} | types
    return Table(PRODUCT.name, tuple(Column(name, type_) for name, type_ in columns.items()), "merge", ("id",))


def test_rows_are_replaced_and_tables_that_the_snapshot_lacks_are_emptied(
    shop: Warehouse, engine: Staying, tmp_path: Path
) -> None:
    shop.apply(window(tmp_path, "0015", products(a="1", b="1"), (SITE, [{"id": "s"}])))
    shop.apply(day(tmp_path, "2026-01-01", "login"))
    engine.statements.clear()
    result = shop.apply(snapshot(tmp_path, "0030", (more(PRODUCT, "new__c"), [{"id": "c", "new__c": "y"}])))
    assert isinstance(result, Applied) and not result.told
    assert (rows_of(engine, PRODUCT), rows_of(engine, SITE)) == ([("c", None, "y")], [])
    assert (fences(engine)[INCR], fences(engine)[LOG]) == ((1, 2, "0030"), (1, 2, "2026-01-01"))
    assert not [one for one in engine.statements if ("__mp_" in one and "CREATE" in one) or "RENAME" in one], "nothing beside"
    begun = engine.statements.index("BEGIN", engine.statements.index("BEGIN") + 1)
    assert not [one for one in engine.statements[begun:] if one.startswith(("ALTER", "CREATE"))], "room is made before"


def test_a_wider_type_widens_and_another_type_gets_a_column_beside(shop: Warehouse, engine: Staying, tmp_path: Path) -> None:
    """Tables that are renamed get the snapshot's types. A table that stays keeps its columns, and later windows follow."""
    old = table(size__c="integer", color__c="integer")
    shop.apply(window(tmp_path, "0015", (old, [{"id": "a", "size__c": 1, "color__c": 1}])))
    new = table(size__c="bigint", color__c="string")
    done = shop.apply(snapshot(tmp_path, "0030", (new, [{"id": "a", "size__c": 2**40, "color__c": "red"}])))
    assert isinstance(done, Applied)
    assert any(
        "color__c has a type that the column cannot hold, so it is stored in color__c__string" in one for one in done.told
    )
    shop.apply(window(tmp_path, "0045", (new, [{"id": "b", "size__c": 3, "color__c": "blue"}]), epoch=2, serving_epoch=2))
    assert rows_of(engine, PRODUCT, '"id", "size__c", "color__c", "color__c__string"') == [
        ("a", 2**40, None, "red"),
        ("b", 3, None, "blue"),
    ]


def test_a_key_of_another_type_is_refused_and_a_dropped_table_comes_again(
    shop: Warehouse, engine: Staying, tmp_path: Path
) -> None:
    shop.apply(window(tmp_path, "0015", products(a="1"), (SITE, [{"id": "s"}])))
    before = content(engine)
    wanted = snapshot(tmp_path, "0030", (table(id="integer"), [{"id": 7}]), (SITE, [{"id": "t"}]))
    with pytest.raises(
        IncompatibleChange, match=r"column id: .* Drop the table with what depends on it, then resolve the item"
    ):
        shop.apply(wanted)
    assert content(engine) == before
    engine.execute(f"DROP TABLE {engine.qualified('shop', PRODUCT.name)}")
    assert isinstance(shop.apply(wanted), Applied)
    assert (rows_of(engine, PRODUCT), rows_of(engine, SITE)) == ([(7, None)], [("t", None)])


def test_rows_that_go_missing_in_the_transaction_leave_everything_as_it_was(
    shop: Warehouse, engine: Staying, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.apply(window(tmp_path, "0015", products(a="1", b="1")))
    before, applied = content(engine), ledger(engine)
    write = Staying.write

    def fewer(self: Staying, sql: str, parameters: Any = ()) -> int:
        written = write(self, sql, parameters)
        return written - 1 if sql.startswith("INSERT") and PRODUCT.name in sql else written

    with monkeypatch.context() as patch:
        patch.setattr(Staying, "write", fewer)
        with pytest.raises(CountMismatch):
            shop.apply(snapshot(tmp_path, "0030", products(c="1")))
    assert (content(engine), ledger(engine)) == (before, applied)


@pytest.mark.engines("postgresql")
def test_readers_views_indexes_and_grants_stay_through_a_full_load(tmp_path: Path, place: Place) -> None:
    """A rename left views on the old rows permanently, took grants along, and waited for every open reader."""
    assert isinstance(place, DatabasePlace)
    with closing(place.open(patience=2)) as engine, place.connect() as reader, place.connect() as other:
        shop = Warehouse(engine, "shop")
        shop.apply(window(tmp_path, "0015", products(a="1", b="1"), (SITE, [{"id": "s"}])))
        role = f"analyst_{place.database}"
        other.execute(f'CREATE VIEW shop.report AS SELECT id, name__v FROM shop.product__v; CREATE ROLE "{role}"'.encode())
        other.execute(
            f'CREATE INDEX by_name ON shop.product__v (name__v); GRANT SELECT ON shop.product__v TO "{role}"'.encode()
        )
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("DECLARE open CURSOR FOR SELECT id FROM shop.product__v ORDER BY id")
        assert reader.execute("FETCH 1 FROM open").fetchall() == [("a",)]
        assert isinstance(shop.apply(snapshot(tmp_path, "0030", products(c="9"))), Applied), "the open reader blocks nothing"
        assert reader.execute("FETCH 5 FROM open").fetchall() == [("b",)]
        assert reader.execute("SELECT id FROM shop.report ORDER BY id").fetchall() == [("a",), ("b",)], "the old set"
        reader.execute("COMMIT")
        assert reader.execute("SELECT * FROM shop.report").fetchall() == [("c", "9")], "the new set"
        assert other.execute("SELECT id FROM shop.site__v").fetchall() == []
        kept = "SELECT has_table_privilege(%s, 'shop.product__v', 'SELECT'), to_regclass('shop.by_name') IS NOT NULL"
        assert other.execute(kept, (role,)).fetchall() == [(True, True)]
        other.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"'.encode())
        shop.close()


@pytest.mark.engines("postgresql")
def test_windows_and_full_loads_follow_each_other(tmp_path: Path, place: Place) -> None:
    engine: Engine
    with closing(place.open(patience=2)) as engine:
        shop = Warehouse(engine, "shop")
        shop.apply(window(tmp_path, "0015", products(a="1")))
        shop.apply(snapshot(tmp_path, "0030", products(b="2")))
        shop.apply(window(tmp_path, "0045", products(c="3"), epoch=2, serving_epoch=2))
        shop.apply(snapshot(tmp_path, "0100", products(d="4"), epoch=3, token=2))
        assert names_of(engine) == {"d": "4"}
        shop.close()
