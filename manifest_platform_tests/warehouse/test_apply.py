from __future__ import annotations

import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import storage
from manifest_platform.listing import BAD_TABLE, Column, ShreddedObject, Table
from manifest_platform.testing.loads import EVENTS, FEED, events, load, written
from manifest_platform.warehouse.apply import AlreadyApplied, Applied, Warehouse
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.engines.engine import Staging, refuse_but_rename, refuse_in_transaction
from manifest_platform.warehouse.errors import (
    Behind,
    CountMismatch,
    Fenced,
    IncompatibleChange,
    LoadFailed,
    Unavailable,
    Unclear,
    UnsupportedMode,
)
from manifest_platform_tests.warehouse.shop import Recording, seen
from manifest_platform_tests.warehouse.workers import Pausing, Snapshotting, Worker

pytestmark = [pytest.mark.engines("duckdb", "postgresql"), pytest.mark.everyday("duckdb")]


def set_fence(engine: DuckDB, **columns: Any) -> None:
    """Changes columns of the fence, as a restored backup or another program might."""
    for name, value in columns.items():
        engine.write(f"UPDATE {engine.qualified('manifest_platform', 'fence')} SET {name} = ? WHERE feed = ?", (value, FEED))


def all_rows(engine: DuckDB, table: str = "events", columns: str = "*") -> list[tuple[Any, ...]]:
    found = engine.execute(f"SELECT {columns} FROM {engine.qualified('shop', table)}")
    return sorted(found, key=lambda row: [(value is None, value) for value in row])


class TestApply:
    def test_every_table_is_loaded_and_bad_is_one(self, shop: Warehouse, tmp_path: Path) -> None:
        entity = Table("com_acme_cart_1", (Column("root_id", "string"), Column("items", "json")))
        bad = Table(BAD_TABLE, (Column("reason", "string"), Column("line", "bigint")))
        empty = Table("com_acme_empty_1", (Column("root_id", "string"),))
        rows = [(EVENTS, [{"event_id": "1"}]), (entity, [{"root_id": "1", "items": "[1]"}] * 2), (bad, [{"reason": "x"}])]
        listing = written(tmp_path, "a", rows)
        shop.apply(load(replace(listing, tables=(*listing.tables, empty))))
        assert shop.row_counts() == {"events": 1, "com_acme_cart_1": 2, "bad": 1, "com_acme_empty_1": 0}

    def test_events_carry_the_time_of_their_load_and_other_tables_do_not(
        self, shop: Warehouse, engine: Recording, tmp_path: Path
    ) -> None:
        other = Table("other", (Column("id", "integer"),))
        result = shop.apply(load(written(tmp_path, "a", [(EVENTS, [{}, {}]), (other, [{"id": 1}])])))
        assert isinstance(result, Applied)
        assert all_rows(engine, columns="load_tstamp") == [(result.entry.applied_at.replace(tzinfo=None),)] * 2
        assert all_rows(engine, "other") == [(1,)]

    @pytest.mark.engines("duckdb")
    def test_a_known_set_of_tables_costs_one_statement_each_and_five(
        self, shop: Warehouse, engine: Recording, tmp_path: Path
    ) -> None:
        tables = [(Table(f"entity_{n}", (Column("id", "integer"),)), [{"id": 1}]) for n in range(25)]
        shop.apply(load(written(tmp_path, "a", tables)))
        shop.apply(load(written(tmp_path, "b", tables)))
        engine.statements.clear()
        shop.apply(load(written(tmp_path, "c", tables)))
        assert len(engine.statements) == 25 + 5  # BEGIN, fence, marker, ledger, COMMIT

    def test_feeds_and_datasets_keep_out_of_each_other(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        wanted = load(events(tmp_path, "m"), token=9)
        other_dataset = Warehouse(engine, "second", schema="shop")
        for warehouse, feed in ((shop, FEED), (shop, "other"), (other_dataset, FEED)):
            assert isinstance(warehouse.apply(replace(wanted, feed=feed)), Applied)
        assert isinstance(shop.apply(load(events(tmp_path, "n"), token=10)), Applied)
        assert isinstance(other_dataset.apply(load(events(tmp_path, "o"), token=9)), Applied)
        assert other_dataset.ledger_entry(FEED, "n", 0) is None
        assert shop.row_counts() == {"events": 15}

    def test_the_schema_of_ledger_and_fence_is_not_for_data(self, engine: Recording) -> None:
        with pytest.raises(ValueError, match="is reserved"):
            Warehouse(engine, "manifest_platform")


class TestFence:
    def test_a_newer_epoch_stops_a_worker_across_a_full_load(self, shop: Warehouse, path: Path, tmp_path: Path) -> None:
        shop.apply(load(events(tmp_path, "a")))
        shop.raise_fence(FEED, token=1, epoch=2)
        with pytest.raises(Fenced, match="newer epoch 2"):
            shop.apply(load(events(tmp_path, "b"), token=1, epoch=1))
        assert seen(path) == {"events": 3, "fence": (1, 2, "a"), "ledger": [("a", 1, False)]}

    @pytest.mark.parametrize("newer", [{"token": 7}, {"epoch": 7}])
    def test_late_loads_are_fenced_alike(self, shop: Warehouse, path: Path, tmp_path: Path, newer: dict[str, int]) -> None:
        shop.apply(load(events(tmp_path, "b")))
        shop.raise_fence(FEED, newer.get("token", 1), newer.get("epoch", 1))
        with pytest.raises(Fenced):
            shop.apply(load(events(tmp_path, "a"), late=True))
        assert seen(path)["events"] == 3

    def test_a_fenced_worker_makes_no_tables_either(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        shop.raise_fence(FEED, token=2, epoch=1)
        with pytest.raises(Fenced):
            shop.apply(load(events(tmp_path, "a"), token=1))
        assert engine.columns("shop") == {}

    @pytest.mark.parametrize(("token", "epoch"), [(4, 3), (5, 2)])
    def test_the_fence_is_never_lowered(self, shop: Warehouse, path: Path, token: int, epoch: int) -> None:
        shop.raise_fence(FEED, token=5, epoch=3)
        shop.raise_fence(FEED, token=5, epoch=3)
        with pytest.raises(Fenced):
            shop.raise_fence(FEED, token=token, epoch=epoch)
        assert seen(path)["fence"] == (5, 3, "")

    def test_raising_the_fence_keeps_the_applied_position(self, shop: Warehouse, path: Path, tmp_path: Path) -> None:
        shop.apply(load(events(tmp_path, "a")))
        shop.raise_fence(FEED, token=5, epoch=1)
        assert seen(path)["fence"] == (5, 1, "a")

    def test_an_unclear_answer_to_raising_is_asked_again(self, path: Path) -> None:
        class LostOnce(DuckDB):
            lost = 0

            def commit(self) -> None:
                super().commit()
                if not self.lost:
                    self.lost = 1
                    self.close()
                    raise Unclear("no answer")

        engine = LostOnce(path)
        Warehouse(engine, "shop").raise_fence(FEED, token=5, epoch=1)
        engine.close()
        assert seen(path)["fence"] == (5, 1, "")

    def test_a_lost_fence_row_is_told(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        shop.prepare(FEED)
        engine.write(f"DELETE FROM {engine.qualified('manifest_platform', 'fence')}")
        with pytest.raises(LoadFailed, match="has lost the row of feed 'enriched'"):
            shop.apply(load(events(tmp_path, "a")))


class TestOrder:
    def test_another_item_at_the_same_position_is_late(self, shop: Warehouse, tmp_path: Path) -> None:
        shop.apply(load(events(tmp_path, "a"), position="p"))
        with pytest.raises(Behind):
            shop.apply(load(events(tmp_path, "b"), position="p"))


class TestMarker:
    def test_even_where_the_fence_was_set_back(self, shop: Warehouse, engine: Recording, path: Path, tmp_path: Path) -> None:
        wanted = load(events(tmp_path, "a"))
        shop.apply(wanted)
        set_fence(engine, applied="")
        assert isinstance(shop.apply(wanted), AlreadyApplied)
        assert seen(path)["events"] == 3
        assert seen(path)["fence"] == (1, 1, "")

    def test_a_late_item_is_not_applied_again(self, shop: Warehouse, path: Path, tmp_path: Path) -> None:
        wanted = load(events(tmp_path, "a"), late=True)
        shop.apply(load(events(tmp_path, "b")))
        shop.apply(wanted)
        assert isinstance(shop.apply(wanted), AlreadyApplied)
        assert seen(path)["events"] == 6

    def test_entries_count_from_the_serving_epoch_on(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        wanted = load(events(tmp_path, "a"), epoch=1)
        shop.apply(wanted)
        set_fence(engine, applied="", epoch=3)
        assert isinstance(shop.apply(replace(wanted, epoch=3, serving_epoch=1)), AlreadyApplied)
        assert isinstance(shop.apply(replace(wanted, epoch=3, serving_epoch=2)), Applied)
        entry = shop.ledger_entry(FEED, "a", 1)
        assert entry is not None
        assert entry.epoch == 3
        assert shop.ledger_entry(FEED, "a", 4) is None

    @pytest.mark.engines("duckdb")
    def test_the_ledger_has_the_newest_entry_of_each_item_once_and_is_read_by_the_page(
        self, shop: Warehouse, engine: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("manifest_platform.warehouse.control._LEDGER_PAGE", 2)
        assert list(shop.ledger(FEED, 1)) == []
        for item in ("a", "b", "c"):
            shop.apply(load(events(tmp_path, item)))
        table = engine.qualified("manifest_platform", "ledger")
        engine.write(f"INSERT INTO {table} SELECT * REPLACE (2 AS epoch) FROM {table}")
        assert [(entry.item, entry.epoch) for entry in shop.ledger(FEED, 1)] == [("a", 2), ("b", 2), ("c", 2)]
        assert [entry.item for entry in shop.ledger(FEED, 2, after="a")] == ["b", "c"]
        assert list(shop.ledger(FEED, 3)) == []

    def test_an_applied_item_needs_no_new_columns(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        """Its record may be completed even by a worker whose schema has moved on."""
        shop.apply(load(events(tmp_path, "a")))
        other = Table("events", (Column("amount", "boolean"),))
        assert isinstance(shop.apply(load(written(tmp_path, "a", [(other, [{}])]))), AlreadyApplied)
        more = Table("events", (Column("more", "boolean"),))
        assert isinstance(shop.apply(load(written(tmp_path, "a", [(more, [{}])]))), AlreadyApplied)
        assert "more" not in engine.columns("shop")["events"]


class TestCounts:
    def test_objects_of_a_table_that_the_listing_does_not_describe_are_refused(self, shop: Warehouse, tmp_path: Path) -> None:
        listing = events(tmp_path, "a")
        stray = replace(listing, objects=(*listing.objects, ShreddedObject("stray", "2024-05-01", "file:///x", 1, 1)))
        with pytest.raises(CountMismatch, match="stray"):
            shop.apply(load(stray))

    def test_a_missing_object_fails_the_load(self, shop: Warehouse, path: Path, tmp_path: Path) -> None:
        listing = events(tmp_path, "a", files=2)
        storage.local_path(listing.objects[0].uri).unlink()
        with pytest.raises(LoadFailed, match=r"No files found[\s\S]*in the statement: INSERT INTO"):
            shop.apply(load(listing))
        assert seen(path) == {"events": 0, "fence": (0, 0, ""), "ledger": []}


class TestColumns:
    def test_the_column_of_the_load_time_is_the_loads_own(self, shop: Warehouse, tmp_path: Path) -> None:
        own = Table("events", (Column("load_tstamp", "timestamp"),), load_time=True)
        with pytest.raises(IncompatibleChange, match="load_tstamp, which the load itself sets"):
            shop.apply(load(written(tmp_path, "a", [(own, [{}])])))

    def test_a_table_gets_the_load_time_where_its_listing_says_so_whatever_its_name(
        self, shop: Warehouse, engine: Recording, tmp_path: Path
    ) -> None:
        """A vault's object named `events` got a column of Snowplow's, and was refused where it had one of that name."""
        own = Table("events", (Column("id", "string"), Column("load_tstamp", "string")), "merge", ("id",))
        for item in ("a", "b"):
            shop.apply(load(written(tmp_path, item, [(own, [{"id": "1", "load_tstamp": f"its own {item}"}])])))
        assert all_rows(engine) == [("1", "its own b")]
        other = Table("happenings", (Column("id", "string"),), load_time=True)
        result = shop.apply(load(written(tmp_path, "c", [(other, [{"id": "1"}])])))
        assert all_rows(engine, "happenings") == [("1", result.entry.applied_at.replace(tzinfo=None))]

    @pytest.mark.parametrize(
        ("name", "mode", "load_time"), [("events", "append", True), ("events", "merge", False), ("x", "append", False)]
    )
    def test_a_listing_that_does_not_say_it_is_of_the_time_when_events_alone_had_it(
        self, name: str, mode: str, load_time: bool
    ) -> None:
        data = asdict(Table(name, (Column("id", "string"),), mode, ("id",)))  # ty: ignore[invalid-argument-type]
        del data["load_time"]
        assert Table.from_dict(data).load_time is load_time
        assert Table.from_dict({**data, "load_time": not load_time}).load_time is not load_time

    def test_only_a_snapshot_replaces_tables(self, shop: Warehouse, tmp_path: Path) -> None:
        with pytest.raises(UnsupportedMode, match=r"mode 'replace'\. An item can only append, merge, delete"):
            shop.apply(load(written(tmp_path, "a", [(replace(EVENTS, mode="replace"), [{}])])))

    def test_what_another_program_did_to_the_tables_is_noticed(
        self, shop: Warehouse, engine: Recording, path: Path, tmp_path: Path
    ) -> None:
        for item in ("a", "b"):
            shop.apply(load(events(tmp_path, item)))
        other = DuckDB(path)
        other.execute(f"DROP TABLE {other.qualified('shop', 'events')}")
        other.close()
        assert isinstance(shop.apply(load(events(tmp_path, "c"))), Applied)
        assert shop.row_counts() == {"events": 3}

    def test_a_column_that_was_converted_by_hand_is_taken_as_it_is_now(
        self, shop: Warehouse, path: Path, tmp_path: Path
    ) -> None:
        column = Column("v", "boolean")
        for item in ("a", "b"):
            shop.apply(load(written(tmp_path, item, [(Table("t", (column,)), [{"v": True}])])))
        other = DuckDB(path)
        other.execute(f"ALTER TABLE {other.qualified('shop', 't')} ALTER v SET DATA TYPE BIGINT")
        other.close()
        changed = Table("t", (Column("v", "bigint"),))
        assert isinstance(shop.apply(load(written(tmp_path, "c", [(changed, [{"v": 5}])]))), Applied)


class TestStatementsInATransaction:
    @pytest.mark.parametrize(
        "sql",
        [
            "TRUNCATE shop.events",
            "VACUUM",
            "ALTER TABLE t APPEND FROM s",
            "CREATE TABLE t (a int)",
            "DROP TABLE t",
            "/* harmless */ DROP TABLE t",
            "INSERT INTO t VALUES (1); TRUNCATE t",
            "SELECT 1 INTO newtable",
            "SELECTED",
            "",
        ],
    )
    def test_what_may_commit_is_refused(self, sql: str) -> None:
        with pytest.raises(LoadFailed, match="not allowed between BEGIN and COMMIT"):
            refuse_in_transaction(sql)

    @pytest.mark.parametrize(
        "sql",
        [
            "insert into t select 'a;b' from \"x;y\"",
            "UPDATE t SET a = 1",
            "  DELETE FROM t",
            'SELECT "into" FROM t',
            "MERGE INTO t USING s ON a",
            "COPY t FROM 's3://…'",
        ],
    )
    def test_what_only_moves_rows_passes(self, sql: str) -> None:
        refuse_in_transaction(sql)

    @pytest.mark.parametrize(
        "sql",
        [
            'ALTER TABLE "t" RENAME TO "u"; TRUNCATE "u"',
            'ALTER TABLE "t" RENAME TO u',
            'ALTER TABLE t RENAME TO "u"',
            'ALTER TABLE "t" RENAME "a" TO "b"',
            'ALTER TABLE "t" APPEND FROM "s"',
            'ALTER TABLE "t" ALTER "c" TYPE VARCHAR(9)',
            'DROP TABLE "t"',
            'DELETE FROM "t"',
            ' ALTER TABLE "t" RENAME TO "u"',
        ],
    )
    def test_the_gate_of_renames_lets_nothing_else_pass(self, sql: str) -> None:
        with pytest.raises(LoadFailed, match="only a rename of a table"):
            refuse_but_rename(sql)

    def test_the_gate_of_renames_lets_any_quoted_name_pass(self) -> None:
        refuse_but_rename('ALTER TABLE "w"."my ""shop"""."a;b" RENAME TO "a""; DROP"')
        with pytest.raises(LoadFailed):
            refuse_in_transaction('ALTER TABLE "t" RENAME TO "u"')

    def test_an_engine_that_sneaks_one_in_loads_nothing(self, path: Path, tmp_path: Path) -> None:
        class Sneaky(DuckDB):
            def stage(self, table: Table, uris: list[str]) -> Staging:
                staged = super().stage(table, uris)
                return Staging(f"{staged.sql}; TRUNCATE {self.qualified('shop', 'events')}", staged.parameters)

        engine = Sneaky(path)
        with pytest.raises(LoadFailed, match="not allowed"):
            Warehouse(engine, "shop").apply(load(events(tmp_path, "a")))
        engine.close()
        assert seen(path) == {"events": 0, "fence": (0, 0, ""), "ledger": []}


class TestUnclearCommit:
    def test_duckdb_calls_a_commit_unclear_that_failed_in_any_other_way_than_a_rollback(
        self, path: Path, tmp_path: Path
    ) -> None:
        class Broken(DuckDB):
            def execute(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
                if sql == "COMMIT":
                    raise LoadFailed("disk on fire")
                return super().execute(sql, parameters)

        with pytest.raises(Unclear, match="disk on fire"):
            Warehouse(Broken(path), "shop").apply(load(events(tmp_path, "a")))
        assert seen(path) == {"events": 0, "fence": (0, 0, ""), "ledger": []}


class TestConcurrentTransactions:
    @pytest.mark.parametrize("kind", [Pausing, Snapshotting])
    def test_a_fence_raised_during_a_transaction_refuses_it(
        self, shop: Warehouse, path: Path, tmp_path: Path, kind: type[Pausing]
    ) -> None:
        shop.apply(load(events(tmp_path, "a")))
        old = Worker(kind(path, "UPDATE"), load(events(tmp_path, "b")))
        shop.raise_fence(FEED, token=2, epoch=1)
        assert shop.ledger_entry(FEED, "b", 1) is None
        assert isinstance(old.finish(), Fenced)
        assert seen(path) == {"events": 3, "fence": (2, 1, "a"), "ledger": [("a", 1, False)]}

    def test_the_fence_waits_for_a_commit_in_flight_and_then_the_ledger_tells_of_it(
        self, shop: Warehouse, path: Path, tmp_path: Path
    ) -> None:
        shop.apply(load(events(tmp_path, "a")))
        old = Worker(Pausing(path, "COMMIT"), load(events(tmp_path, "b")))
        threading.Timer(0.2, old.engine.go_on.set).start()
        shop.raise_fence(FEED, token=2, epoch=1)
        assert shop.ledger_entry(FEED, "b", 1) is not None
        assert isinstance(old.finish(), Applied)

    def test_a_transaction_that_never_ends_makes_the_fence_unavailable(self, path: Path, tmp_path: Path) -> None:
        impatient = Warehouse(Recording(path, patience=0.2), "shop")
        impatient.apply(load(events(tmp_path, "a")))
        old = Worker(Pausing(path, "COMMIT"), load(events(tmp_path, "b")))
        with pytest.raises(Unavailable, match="another transaction was in the way"):
            impatient.raise_fence(FEED, token=2, epoch=1)
        old.finish()
        impatient.close()

    def test_two_workers_with_the_same_item_apply_it_once(self, shop: Warehouse, path: Path, tmp_path: Path) -> None:
        shop.apply(load(events(tmp_path, "a")))
        listing = events(tmp_path, "b")
        first = Worker(Pausing(path, 'INSERT INTO "warehouse"."shop"'), load(listing))
        threading.Timer(0.2, first.engine.go_on.set).start()
        assert isinstance(shop.apply(load(listing, token=1)), AlreadyApplied)
        assert isinstance(first.finish(), Applied)
        assert seen(path)["events"] == 6

    def test_a_table_that_another_load_altered_meanwhile_only_delays(self, shop: Warehouse, path: Path, tmp_path: Path) -> None:
        shop.apply(load(events(tmp_path, "a")))
        old = Worker(Pausing(path, "COMMIT"), load(events(tmp_path, "b")))
        wider = Table("events", (*EVENTS.columns, Column("more", "string")))
        other = DuckDB(path)
        Warehouse(other, "shop").apply(load(written(tmp_path, "z", [(wider, [{}])]), feed="other"))
        other.close()
        assert isinstance(old.finish(), Applied)
        assert seen(path)["events"] == 7

    def test_a_first_load_that_another_overtakes_goes_on(self, path: Path, tmp_path: Path) -> None:
        class Overtaken(DuckDB):
            overtaken = False

            def execute(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
                if sql.startswith("INSERT") and not self.overtaken:
                    self.overtaken = True
                    other = DuckDB(path)
                    Warehouse(other, "shop").prepare(FEED)
                    other.close()
                return super().execute(sql, parameters)

        engine = Overtaken(path)
        assert isinstance(Warehouse(engine, "shop").apply(load(events(tmp_path, "a"))), Applied)
        engine.close()
