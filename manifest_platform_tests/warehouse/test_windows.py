"""Windows of changes: deletes and upserts by key, in one transaction each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import storage
from manifest_platform.listing import BAD_TABLE, Column, Retired, Table
from manifest_platform.testing.loads import (
    AUDIT,
    EVENTS,
    INCR,
    LOG,
    PICKLIST,
    PRODUCT,
    SITE,
    content,
    day,
    deletes,
    fences,
    gone,
    ledger,
    load,
    more,
    names_of,
    products,
    rows_of,
    window,
    written,
)
from manifest_platform.warehouse.apply import AlreadyApplied, Applied, Load, Warehouse
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.engines.engine import Staging
from manifest_platform.warehouse.errors import (
    Behind,
    CountMismatch,
    DuplicateKey,
    Fenced,
    IncompatibleChange,
    KeyMissing,
    LoadFailed,
    Unclear,
    UnsupportedMode,
)
from manifest_platform_tests.warehouse.shop import Recording

pytestmark = [pytest.mark.engines("duckdb", "postgresql"), pytest.mark.everyday("duckdb")]


def all_of(engine: DuckDB) -> tuple[object, object, object]:
    """All that a load may move."""
    return content(engine), fences(engine), ledger(engine)


class TestChanges:
    def test_A1_the_applied_position_moves_with_the_rows(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        result = shop.apply(window(tmp_path, "0015", products(a="1", b="1")))
        assert isinstance(result, Applied)
        assert names_of(engine) == {"a": "1", "b": "1"}
        assert fences(engine)[INCR] == (1, 1, "0015")
        assert ledger(engine) == [("incr-0015", 1)]

    def test_rows_replace_those_with_their_key_and_deletes_remove_them(
        self, shop: Warehouse, engine: Recording, tmp_path: Path
    ) -> None:
        shop.apply(window(tmp_path, "0015", products(a="1", b="1", c="1")))
        result = shop.apply(window(tmp_path, "0030", products(b="2", d="2"), gone(PRODUCT, "c", "never there")))
        assert names_of(engine) == {"a": "1", "b": "2", "d": "2"}
        assert result.entry.rows == {"product__v": 2, "product__v_deletes": 2}

    def test_a_row_is_replaced_whole(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        wider = more(PRODUCT, "color__c")
        shop.apply(window(tmp_path, "0015", (wider, [{"id": "a", "name__v": "1", "color__c": "red"}])))
        shop.apply(window(tmp_path, "0030", products(a="2")))
        assert rows_of(engine, PRODUCT) == [("a", "2", None)]

    def test_A11_what_is_deleted_and_made_again_in_one_window_is_there(
        self, shop: Warehouse, engine: Recording, tmp_path: Path
    ) -> None:
        shop.apply(window(tmp_path, "0015", products(a="1")))
        for stop, tables in (("0030", (products(a="2"), gone(PRODUCT, "a"))), ("0045", (gone(PRODUCT, "a"), products(a="3")))):
            shop.apply(window(tmp_path, stop, *tables))
            assert names_of(engine) == {"a": stop[2:3].replace("3", "2").replace("4", "3")}

    @pytest.mark.engines("duckdb")
    def test_all_deletes_run_before_all_upserts_and_those_before_what_is_appended(
        self, shop: Warehouse, engine: Recording, tmp_path: Path
    ) -> None:
        tables = [(AUDIT, [{"id": "x"}]), products(a="1"), gone(PRODUCT, "b"), (SITE, [{"id": "s"}]), gone(SITE, "t")]
        for stop in ("0015", "0030"):
            engine.statements.clear()
            shop.apply(window(tmp_path, stop, *tables))
        moved = [sql.split(" WHERE")[0].split(" (")[0] for sql in engine.statements if '"shop"' in sql]
        in_order = [("DELETE FROM", PRODUCT), ("DELETE FROM", SITE)]
        in_order += [("INSERT INTO", PRODUCT), ("INSERT INTO", SITE), ("INSERT INTO", AUDIT)]
        assert moved == [f'{verb} "warehouse"."shop"."{table.name}"' for verb, table in in_order]

    def test_A16_keys_are_compared_column_by_column(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        pairs = [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc")]
        shop.apply(window(tmp_path, "0015", (PICKLIST, [{"object": one, "object_field": two} for one, two in pairs])))
        shop.apply(window(tmp_path, "0030", gone(PICKLIST, ("ab", "c"))))
        assert rows_of(engine, PICKLIST, "object, object_field") == sorted(pairs[1:])
        shop.apply(window(tmp_path, "0045", (PICKLIST, [{"object": "a", "object_field": "bc", "label": "new"}])))
        assert rows_of(engine, PICKLIST) == [("", "abc", None), ("a", "bc", "new"), ("abc", "", None)]

    def test_A17_values_are_stored_as_they_are(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        texts = ["00123", "1.10", "NA", "null", None, "say \"x\",\r\nthen\n'y'", " padded ", "ÄÖ漢字", "\\N"]
        types = {
            "id": "string",
            "text": "string",
            "number": "decimal(38,10)",
            "day": "date",
            "at": "timestamp",
            "yes": "boolean",
        }
        table = Table("odd__v", tuple(Column(name, type_) for name, type_ in types.items()), "merge", ("id",))
        numbers = [Decimal("1.10"), Decimal("-9999999999999999999999999999.9999999999"), Decimal("0.0000000001"), None]
        rows = [
            {
                "id": f"{n:05d}",
                "text": text,
                "number": numbers[n % 4],
                "day": [date(2024, 2, 29), None][n % 2],
                "at": [datetime(2026, 1, 1, 0, 15, 0, 123000), None][n % 2],
                "yes": [True, False, None][n % 3],
            }
            for n, text in enumerate(texts)
        ]
        for stop in ("0015", "0030"):  # as new rows, and in place of others
            shop.apply(window(tmp_path, stop, (table, rows)))
            assert rows_of(engine, table) == [tuple(row.values()) for row in rows]

    def test_names_with_quotes_digits_and_keywords_are_names(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        odd = Table('2sel"ect', (Column('or"der', "string"), Column("from", "integer")), "merge", ('or"der', "from"))
        rows = [{'or"der': "x", "from": 1}, {'or"der': "y", "from": 2}]
        shop.apply(window(tmp_path, "0015", (odd, rows)))
        shop.apply(window(tmp_path, "0030", (odd, rows[:1]), gone(odd, ("y", 2))))  # type: ignore[arg-type]
        assert rows_of(engine, odd) == [("x", 1)]

    def test_a_table_may_be_called_as_what_is_staged(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        table = replace(PRODUCT, name="staged")
        for stop, id_ in (("0015", "a"), ("0030", "b")):
            shop.apply(window(tmp_path, stop, (table, [{"id": id_}])))
        assert rows_of(engine, table, "id") == [("a",), ("b",)]

    def test_a_key_called_as_an_alias_of_ours_is_a_key(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        table = Table("rows", tuple(Column(name, "string") for name in ("keys", "rows", "n")), "merge", ("keys", "rows", "n"))
        rows = [{"keys": "k", "rows": str(n), "n": "1"} for n in range(3)]
        for stop in ("0015", "0030"):
            shop.apply(window(tmp_path, stop, (table, rows)))
        assert len(rows_of(engine, table)) == 3

    def test_deleting_from_a_table_that_never_was_there_is_nothing(
        self, shop: Warehouse, engine: Recording, tmp_path: Path
    ) -> None:
        result = shop.apply(window(tmp_path, "0015", gone(SITE, "s")))
        assert result.entry.rows == {"site__v_deletes": 1}
        assert engine.columns("shop") == {}

    def test_bad_rows_are_there_once_however_often_their_window_is_loaded(
        self, shop: Warehouse, engine: Recording, tmp_path: Path
    ) -> None:
        bad = Table(
            BAD_TABLE, (Column("file", "string"), Column("line", "bigint"), Column("raw", "string")), "merge", ("file", "line")
        )
        rows = [{"file": "a.csv", "line": n, "raw": "?"} for n in (2, 3)]
        for epoch, stop in ((1, "0015"), (2, "0030")):
            shop.apply(window(tmp_path, stop, (bad, rows), epoch=epoch))
        assert rows_of(engine, bad) == [("a.csv", 2, "?"), ("a.csv", 3, "?")]

    def test_objects_in_several_files_are_one_table(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        listing = written(tmp_path, "a", [products(a="1", b="1", c="1")], files=3)
        shop.apply(load(listing, feed=INCR))
        assert names_of(engine) == {"a": "1", "b": "1", "c": "1"}

    def test_P7_an_empty_window_moves_fence_and_ledger_alone(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        shop.apply(window(tmp_path, "0015", products(a="1")))
        engine.statements.clear()
        result = shop.apply(window(tmp_path, "0030"))
        assert result.entry.rows == {}
        assert fences(engine)[INCR] == (1, 1, "0030")
        assert not [sql for sql in engine.statements if '"shop"' in sql or "COPY" in sql or "parquet" in sql]
        assert isinstance(shop.apply(window(tmp_path, "0030")), AlreadyApplied)

    @pytest.mark.engines("duckdb")
    def test_a_window_of_known_tables_costs_so_many_statements(
        self, shop: Warehouse, engine: Recording, tmp_path: Path
    ) -> None:
        for stop in ("0015", "0030", "0045"):
            engine.statements.clear()
            shop.apply(window(tmp_path, stop, products(a="1"), gone(PRODUCT, "b"), (SITE, [{"id": "s"}])))
        looked_through, moved = 1, 2 * 2
        assert len(engine.statements) == looked_through + moved + 5  # BEGIN, fence, marker, ledger, COMMIT


class TestRefusals:
    @pytest.fixture(autouse=True)
    def before(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        shop.apply(window(tmp_path, "0015", products(a="1", b="1"), (SITE, [{"id": "s", "city__c": "Rome"}])))
        self.standing = all_of(engine)

    def refused(self, shop: Warehouse, engine: Recording, wanted: Load, kind: type[Exception], match: str) -> None:
        engine.statements.clear()
        with pytest.raises(kind, match=match):
            shop.apply(wanted)
        assert not [sql for sql in engine.statements if sql.startswith(("INSERT", "DELETE", "UPDATE"))]
        assert all_of(engine) == self.standing

    def test_A12_a_key_with_two_contents_is_refused(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        rows = [{"id": id_, "name__v": name} for id_ in "edcba" for name in ("1", "2")]
        with_key = r"product__v has several rows with the same key \(id\).*such as 'a', 'b', 'c'\."
        self.refused(shop, engine, window(tmp_path, "0030", (PRODUCT, rows)), DuplicateKey, with_key)
        rows = [{"object": "o", "object_field": "f", "label": label} for label in ("1", None)]
        with_key = r"picklist__sys .*\(object, object_field\).*such as \('o', 'f'\)\."
        shop.apply(window(tmp_path, "0020", (PICKLIST, None)))
        self.standing = all_of(engine)
        self.refused(shop, engine, window(tmp_path, "0030", (PICKLIST, rows)), DuplicateKey, with_key)

    def test_a_row_that_is_there_twice_alike_counts_once(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        rows = [{"id": "a", "name__v": None}] * 2 + [{"id": "c", "name__v": "2"}]
        result = shop.apply(window(tmp_path, "0030", (PRODUCT, rows)))
        assert names_of(engine) == {"a": None, "b": "1", "c": "2"}
        assert result.entry.rows == {"product__v": 3}

    def test_a_key_may_be_deleted_twice(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        at = datetime(2026, 1, 1)
        rows = [{"id": "a", "deleted_date": at + timedelta(minutes=n)} for n in range(2)]
        shop.apply(window(tmp_path, "0030", (deletes(PRODUCT), rows)))
        assert names_of(engine) == {"b": "1"}

    @pytest.mark.parametrize("table", [PRODUCT, deletes(PRODUCT)])
    def test_a_row_without_a_key_is_refused(self, shop: Warehouse, engine: Recording, tmp_path: Path, table: Table) -> None:
        wanted = window(tmp_path, "0030", (table, [{"id": "a"}, {"id": None}]))
        self.refused(shop, engine, wanted, KeyMissing, f"{table.name} lacks a part of its key")

    @pytest.mark.parametrize("of", [PRODUCT, deletes(PRODUCT)])
    @pytest.mark.parametrize("wrong", [1, 3])
    def test_A15_other_counts_than_the_listing_promises_are_refused(
        self, shop: Warehouse, engine: Recording, tmp_path: Path, of: Table, wrong: int
    ) -> None:
        wanted = window(tmp_path, "0030", (of, [{"id": "a"}, {"id": "b"}]))
        [found] = wanted.listing.objects
        listing = replace(wanted.listing, objects=(replace(found, rows=wrong),))
        match = f"{of.name}: 2 instead of {wrong}"
        self.refused(shop, engine, replace(wanted, listing=listing), CountMismatch, match)

    def test_objects_that_change_while_they_are_loaded_are_refused(
        self, shop: Warehouse, engine: Recording, path: Path, tmp_path: Path
    ) -> None:
        class Rewritten(DuckDB):
            def begin(self) -> None:
                super().begin()
                written(tmp_path, "incr-0030", [products(a="2", c="2", d="2")])

        rewritten = Rewritten(path)
        with pytest.raises(CountMismatch, match=r"product__v gave 3 rows after 2 were counted"):
            Warehouse(rewritten, "shop").apply(window(tmp_path, "0030", products(a="2", c="2")))
        rewritten.close()
        assert all_of(engine) == self.standing

    @pytest.mark.parametrize(
        ("table", "match"),
        [
            (replace(PRODUCT, key=()), "must merge rows by key, but lacks its key"),
            (replace(PRODUCT, key=("id", "no")), "lacks the columns no"),
            (replace(deletes(PRODUCT), key=()), "must delete rows by key, but lacks its key"),
            (replace(deletes(PRODUCT), target=None), "lacks its target"),
        ],
    )
    def test_a_table_that_does_not_say_how_to_find_its_rows_is_refused(
        self, shop: Warehouse, engine: Recording, tmp_path: Path, table: Table, match: str
    ) -> None:
        self.refused(shop, engine, window(tmp_path, "0030", (table, [{"id": "a"}])), KeyMissing, match)

    def test_a_table_may_not_be_called_as_those_that_are_dropped(
        self, shop: Warehouse, engine: Recording, tmp_path: Path
    ) -> None:
        table = replace(PRODUCT, name="product__v__mp_old_e1_t1")
        wanted = window(tmp_path, "0030", (table, [{"id": "a"}]))
        self.refused(shop, engine, wanted, IncompatibleChange, "reserved for tables that full loads drop")

    def test_a_log_and_an_object_of_one_name_are_not_one_table(
        self, shop: Warehouse, engine: Recording, tmp_path: Path
    ) -> None:
        """A snapshot of the object would replace what was logged, or a log be appended to the object's rows."""
        shop.apply(day(tmp_path, "0000", "1"))
        before = all_of(engine)
        by_key = replace(AUDIT, mode="merge", key=("id",))
        with pytest.raises(
            IncompatibleChange, match="has rows of mode append from feed log, and would get rows of mode merge from feed incr"
        ):
            shop.apply(window(tmp_path, "0100", (by_key, [{"id": "1"}])))
        assert all_of(engine) == before

    @pytest.mark.engines("duckdb")
    def test_rows_by_key_do_not_go_into_a_log_that_is_spelled_otherwise(
        self, shop: Warehouse, engine: Recording, tmp_path: Path
    ) -> None:
        shop.apply(day(tmp_path, "2026-01-01", "x"))
        by_key = replace(AUDIT, name=AUDIT.name.upper(), mode="merge", key=("id",))
        with pytest.raises(IncompatibleChange, match="has rows of mode append from feed log"):
            shop.apply(window(tmp_path, "0100", (by_key, [{"id": "x"}])))
        assert rows_of(engine, AUDIT) == [("x", "login")]

    def test_a_snapshot_is_no_window(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        wanted = window(tmp_path, "0030", (replace(PRODUCT, mode="replace"), [{"id": "a"}]))
        self.refused(shop, engine, wanted, UnsupportedMode, r"'replace'\. An item can only append, merge, delete")

    def test_an_object_that_is_gone_is_told_before_anything_moves(
        self, shop: Warehouse, engine: Recording, tmp_path: Path
    ) -> None:
        wanted = window(tmp_path, "0030", products(a="2"))
        storage.local_path(wanted.listing.objects[0].uri).unlink()
        self.refused(shop, engine, wanted, LoadFailed, "No files found|an object is gone")


class Failing(Recording):
    """Refuses the statements that a test names."""

    def __init__(self, path: Path, refuses: Callable[[str], bool]) -> None:
        super().__init__(path)
        self.refuses = refuses

    def execute(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        if self.refuses(sql):
            self.statements.append(sql)
            raise LoadFailed("the disk is made of cheese")
        return super().execute(sql, parameters)


def inserts_into(table: Table) -> Callable[[str], bool]:
    return lambda sql: sql.startswith("INSERT") and f'"{table.name}"' in sql


class TestFailures:
    @pytest.fixture
    def window_of_two(self, tmp_path: Path) -> Load:
        changed: tuple[Table, list[dict[str, Any]]] = (SITE, [{"id": "s", "city__c": "Oslo"}, {"id": "t", "city__c": "Bern"}])
        return window(tmp_path, "0030", gone(PRODUCT, "b"), products(a="2", c="2"), changed, gone(SITE, "u"))

    @pytest.fixture(autouse=True)
    def before(self, path: Path, tmp_path: Path) -> None:
        engine = DuckDB(path)
        sites = [{"id": "s", "city__c": "Rome"}, {"id": "u", "city__c": "Riga"}]
        Warehouse(engine, "shop").apply(window(tmp_path, "0015", products(a="1", b="1"), (SITE, sites)))
        self.standing = all_of(engine)
        engine.close()

    @pytest.mark.parametrize("table", [PRODUCT, SITE])
    def test_A2_A3_A6_a_failing_table_leaves_all_as_it_was(self, path: Path, window_of_two: Load, table: Table) -> None:
        engine = Failing(path, inserts_into(table))
        with pytest.raises(LoadFailed, match="cheese"):
            Warehouse(engine, "shop").apply(window_of_two)
        deleted = [sql for sql in engine.statements if sql.startswith("DELETE")]
        assert len(deleted) == 2
        assert len([sql for sql in engine.statements if inserts_into(table)(sql)]) == 1  # A10: no second try of its own
        assert all_of(engine) == self.standing
        engine.refuses = lambda _: False
        assert isinstance(Warehouse(engine, "shop").apply(window_of_two), Applied)
        assert names_of(engine) == {"a": "2", "c": "2"}
        assert rows_of(engine, SITE) == [("s", "Oslo"), ("t", "Bern")]
        engine.close()

    def test_A5_A8_what_was_committed_is_told_from_the_ledger_without_a_look_at_its_objects(
        self, path: Path, window_of_two: Load
    ) -> None:
        engine = Recording(path)
        first = Warehouse(engine, "shop").apply(window_of_two)
        standing = all_of(engine)
        for found in window_of_two.listing.objects:
            storage.local_path(found.uri).unlink()
        engine.statements.clear()
        again = Warehouse(engine, "shop").apply(window_of_two)
        assert again == AlreadyApplied(first.entry)
        assert not [sql for sql in engine.statements if sql.startswith(("INSERT", "DELETE"))]
        assert all_of(engine) == standing
        engine.close()

    @pytest.mark.parametrize("committed", [False, True])
    def test_A7_after_a_commit_without_an_answer_the_ledger_decides(
        self, path: Path, window_of_two: Load, committed: bool
    ) -> None:
        class AnswerLost(DuckDB):
            def commit(self) -> None:
                if committed:
                    super().commit()
                self.close()
                raise Unclear("no answer")

        lost = AnswerLost(path)
        warehouse = Warehouse(lost, "shop")
        with pytest.raises(Unclear):
            warehouse.apply(window_of_two)
        lost.close()
        after = Warehouse(DuckDB(path), "shop")
        after.raise_fence(INCR, token=2, epoch=1)
        assert (after.ledger_entry(INCR, window_of_two.item, 1) is not None) == committed
        result = after.apply(replace(window_of_two, token=2))
        assert isinstance(result, AlreadyApplied if committed else Applied)
        after.close()

    def test_C5_a_worker_that_was_replaced_changes_nothing(self, path: Path, window_of_two: Load) -> None:
        engine = Recording(path)
        warehouse = Warehouse(engine, "shop")
        warehouse.raise_fence(INCR, token=2, epoch=1)
        with pytest.raises(Fenced):
            warehouse.apply(window_of_two)
        assert (content(engine), ledger(engine)) == (self.standing[0], self.standing[2])
        engine.close()

    def test_B8_a_window_behind_the_newest_is_late(self, path: Path, tmp_path: Path) -> None:
        engine = Recording(path)
        with pytest.raises(Behind):
            Warehouse(engine, "shop").apply(window(tmp_path, "0010", products(a="0")))
        assert all_of(engine) == self.standing
        engine.close()

    def test_A13_columns_may_come_without_their_data_and_the_retry_brings_it(self, path: Path, tmp_path: Path) -> None:
        engine = Failing(path, inserts_into(PRODUCT))
        wanted = window(tmp_path, "0030", (more(PRODUCT, "color__c"), [{"id": "a", "name__v": "2", "color__c": "red"}]))
        with pytest.raises(LoadFailed):
            Warehouse(engine, "shop").apply(wanted)
        assert rows_of(engine, PRODUCT) == [("a", "1", None), ("b", "1", None)]
        assert (fences(engine), ledger(engine)) == self.standing[1:]
        engine.refuses = lambda _: False
        Warehouse(engine, "shop").apply(wanted)
        assert rows_of(engine, PRODUCT) == [("a", "2", "red"), ("b", "1", None)]
        engine.close()


class TestSchema:
    def test_a_table_without_objects_brings_its_columns_alone(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        shop.apply(window(tmp_path, "0015", products(a="1")))
        result = shop.apply(window(tmp_path, "0030", (more(PRODUCT, "color__c"), None), (SITE, None)))
        assert rows_of(engine, PRODUCT) == [("a", "1", None)]
        assert list(engine.columns("shop")["site__v"]) == ["id", "city__c"]
        assert result.entry.rows == {"product__v": 0, "site__v": 0}

    def test_A14_what_the_source_dropped_stays_and_is_marked(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        wider = more(PRODUCT, "color__c")
        shop.apply(window(tmp_path, "0015", (wider, [{"id": "a", "color__c": "red"}]), (SITE, [{"id": "s"}])))
        assert shop.retired() == []
        dropped = (Retired("product__v", "color__c"), Retired("site__v"))
        shop.apply(window(tmp_path, "0030", products(b="2"), retired=dropped))
        found = shop.retired()
        assert [(one.table, one.column, one.item) for one in found] == [
            ("product__v", "color__c", "incr-0030"),
            ("site__v", None, "incr-0030"),
        ]
        assert abs(found[0].retired_at - datetime.now(UTC)) < timedelta(minutes=1)
        assert rows_of(engine, PRODUCT) == [("a", None, "red"), ("b", "2", None)]
        assert rows_of(engine, SITE) == [("s", None)]
        shop.apply(window(tmp_path, "0045", products(c="3"), retired=dropped))
        assert shop.retired() == found

    def test_a_column_that_comes_back_in_another_case_is_not_retired_any_more(self, shop: Warehouse, tmp_path: Path) -> None:
        shop.apply(window(tmp_path, "0015", (more(PRODUCT, "color__c"), [{"id": "a"}])))
        shop.apply(window(tmp_path, "0030", products(b="2"), retired=(Retired("product__v", "color__c"),)))
        shop.apply(window(tmp_path, "0045", products(b="2"), retired=(Retired("product__v", "COLOR__C"),)))
        assert [(one.column, one.item) for one in shop.retired()] == [("color__c", "incr-0030")]
        shop.apply(window(tmp_path, "0100", (more(PRODUCT, "Color__C"), [{"id": "a"}])))
        assert shop.retired() == []

    def test_what_comes_back_is_not_retired_any_more(self, shop: Warehouse, tmp_path: Path) -> None:
        wider = more(PRODUCT, "color__c", "size__c")
        dropped = (Retired("product__v", "color__c"), Retired("product__v", "size__c"), Retired("site__v"))
        shop.apply(window(tmp_path, "0015", (wider, [{"id": "a"}]), retired=dropped))
        shop.apply(window(tmp_path, "0030", gone(SITE, "s"), products(a="1")))
        assert [(one.table, one.column) for one in shop.retired()] == [(one.table, one.column) for one in dropped]
        shop.apply(window(tmp_path, "0045", (more(PRODUCT, "color__c"), None), (SITE, None)))
        assert [(one.table, one.column) for one in shop.retired()] == [("product__v", "size__c")]

    def test_what_a_window_brings_and_drops_at_once_is_dropped(self, shop: Warehouse, tmp_path: Path) -> None:
        for stop in ("0015", "0030"):
            changed = more(PRODUCT, "color__c"), [{"id": "a", "color__c": "red"}]
            shop.apply(window(tmp_path, stop, changed, retired=[Retired("product__v", "color__c")]))
            assert [(one.column, one.item) for one in shop.retired()] == [("color__c", "incr-0015")]

    def test_what_is_retired_is_rolled_back_with_the_rows(self, shop: Warehouse, path: Path, tmp_path: Path) -> None:
        shop.apply(window(tmp_path, "0015", products(a="1")))
        shop.close()
        engine = Failing(path, lambda sql: sql.startswith("INSERT") and '"ledger"' in sql)
        wanted = window(tmp_path, "0030", retired=[Retired("product__v")])
        with pytest.raises(LoadFailed):
            Warehouse(engine, "shop").apply(wanted)
        assert Warehouse(engine, "shop").retired() == []
        engine.close()

    def test_a_reader_of_a_new_warehouse_finds_nothing_retired(self, shop: Warehouse) -> None:
        assert shop.retired() == []

    def test_what_another_dataset_retired_is_its_own(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        shop.apply(window(tmp_path, "0015", retired=[Retired("product__v")]))
        other = Warehouse(engine, "second")
        other.apply(window(tmp_path, "0015", products(a="1")))
        assert (len(shop.retired()), other.retired()) == (1, [])
        other.apply(window(tmp_path, "0030", retired=[Retired("product__v")]))
        assert (len(shop.retired()), len(other.retired())) == (1, 1)

    def test_a_warehouse_of_before_gets_the_tables_that_are_new(
        self, shop: Warehouse, engine: Recording, tmp_path: Path
    ) -> None:
        shop.apply(load(written(tmp_path, "a", [(EVENTS, [{}])])))
        for name in ("tables", "retired"):
            engine.execute(f"DROP TABLE {engine.qualified('manifest_platform', name)}")
        after = Warehouse(engine, "shop")
        assert after.retired() == []
        after.apply(load(written(tmp_path, "b", [(EVENTS, [{}])])))
        assert after.row_counts() == {"events": 2}


class TestLogs:
    def test_L3_a_day_of_logs_moves_its_own_feed_alone(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        shop.apply(window(tmp_path, "0015", products(a="1")))
        shop.apply(day(tmp_path, "2026-01-01", "x", "y"))
        assert fences(engine) == {INCR: (1, 1, "0015"), LOG: (1, 1, "2026-01-01")}
        assert rows_of(engine, AUDIT, "id") == [("x",), ("y",)]

    def test_L4_a_day_of_logs_is_there_once(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        wanted = day(tmp_path, "2026-01-01", "x", "y")
        shop.apply(wanted)
        shop.raise_fence(LOG, token=2, epoch=1)
        assert isinstance(shop.apply(replace(wanted, token=2)), AlreadyApplied)
        assert rows_of(engine, AUDIT, "id") == [("x",), ("y",)]


class TestStagedElsewhere:
    def test_rows_that_an_engine_stages_in_a_table_of_its_own_merge_alike(self, path: Path, tmp_path: Path) -> None:
        class Copying(DuckDB):
            """Stages as engines do that copy first: into a temporary table."""

            def stage(self, table: Table, uris: list[str]) -> Staging:
                staging = super().stage(table, uris)
                self.execute(f'CREATE TEMP TABLE "{table.name} staged" AS FROM {staging.sql}', staging.parameters)
                return Staging(f'"{table.name} staged"')

            def unstage(self, staging: Staging) -> None:
                self.execute(f"DROP TABLE {staging.sql}")

        engine = Copying(path)
        warehouse = Warehouse(engine, "shop")
        warehouse.apply(window(tmp_path, "0015", products(a="1", b="1")))
        warehouse.apply(window(tmp_path, "0030", products(b="2", c="2"), gone(PRODUCT, "a")))
        assert names_of(engine) == {"b": "2", "c": "2"}
        assert engine.execute("SELECT count(*) FROM duckdb_tables() WHERE temporary") == [(0,)]
        engine.close()
