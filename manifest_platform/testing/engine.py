"""The contract of a warehouse engine, as tests: everything that the apply protocol requires of it.

    class TestMine(EngineContract):
        @pytest.fixture
        def settings(self, tmp_path: Path) -> MySettings:
            return MySettings(...)  # of an empty warehouse

        @pytest.fixture
        def unreachable(self, tmp_path: Path) -> MySettings:
            return MySettings(...)  # of a warehouse that cannot be opened

The suite tests what every engine must do. Test anything beyond that in a module of your own.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet
import pytest

from manifest_platform import storage
from manifest_platform.listing import Column, Listing, Retired, ShreddedObject, Table
from manifest_platform.releases import FORM
from manifest_platform.testing.loads import (
    AUDIT,
    EVENTS,
    FEED,
    FULL,
    INCR,
    LOG,
    PICKLIST,
    PRODUCT,
    SCHEMA,
    SITE,
    Rows,
    content,
    control,
    day,
    events,
    fences,
    gone,
    ledger,
    load,
    more,
    names_of,
    packed,
    products,
    rows_of,
    snapshot,
    window,
    written,
)
from manifest_platform.testing.views import ViewContract
from manifest_platform.warehouse.apply import AlreadyApplied, Applied, Load, Warehouse, open_warehouse
from manifest_platform.warehouse.checks import CheckSettings, NullsCheck, RowsCheck, SqlCheck, UniqueCheck
from manifest_platform.warehouse.engines.engine import CONTROL_SCHEMA, Engine, EngineSettings
from manifest_platform.warehouse.errors import (
    Behind,
    CannotLoad,
    CannotReload,
    CheckFailed,
    CheckInvalid,
    Conflict,
    ConstraintViolated,
    CountMismatch,
    DuplicateKey,
    Fenced,
    IncompatibleChange,
    LoadFailed,
    ManifestBehind,
    NewerControlTables,
    NotTogether,
    OtherContent,
    OtherFamily,
    Unavailable,
    Unbelieved,
    Unclear,
    ValueRefused,
    WarehouseError,
)
from manifest_platform.warehouse.load import Origin, Reload
from manifest_platform.warehouse.tables import naive
from manifest_platform.warehouse.upkeep_settings import RetentionSettings, UpkeepSettings

_WAIT_SECONDS = 60

_VALUES: dict[str, list[object]] = {
    "boolean": [True, False, None],
    "integer": [-(2**31), 2**31 - 1, None],
    "bigint": [-(2**63), 2**63 - 1, None],
    "double": [0.1, -1e300, None],
    "decimal(20,4)": [Decimal("1234567890123456.7891"), Decimal("-0.0001"), None],
    "decimal(38,10)": [Decimal("1234567890123456789012345678.0123456789"), Decimal("0E-10"), None],
    "string": ["", "Grüße, 東京 😀 'quoted' \"twice\"\n", None],
    "string(7)": ["", "7 chars", None],
    "timestamp": [datetime(2024, 2, 29, 23, 59, 59, 999_999), datetime(1969, 12, 31), None],
    "date": [date(2024, 2, 29), date(1969, 12, 31), None],
    "json": ['{"a": [1, null]}', '"lone \\ud800"', None],
}
"""Values of every logical type: its bounds, values that are easily lost, and None."""

_CASES = (("ID", "Name__c"), ("id", "name__c"))

_RENAME = re.compile(r'ALTER TABLE ("[^"]+"\.)*"[^"]+" RENAME TO "[^"]+"')
_ROWS = re.compile(r"(INSERT INTO|UPDATE|DELETE FROM|SELECT|COPY|MERGE INTO) [^;]+")
_COMMITTING = re.compile(r"\b(TRUNCATE|VACUUM|APPEND|ALTER|CREATE|DROP|ANALYZE|GRANT|COMMENT|TYPE)\b")


class EngineContract(ViewContract):
    """The requirements of the apply protocol. A subclass defines the fixtures `settings` and `unreachable`."""

    endless: ClassVar[str] = (
        "WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 2000000000) "
        "SELECT count(*) FROM counted"
    )
    """A query that runs for minutes, for tests that interrupt it."""
    short_text: ClassVar[str | None] = None
    """The type of a text column that holds 4 characters and that no load makes longer; None: texts have no lengths."""
    drops_not_null: ClassVar[bool] = True
    """False for an engine that cannot let a NOT NULL column be empty."""

    @pytest.fixture
    def settings(self) -> EngineSettings:
        """The settings of an empty warehouse."""
        raise NotImplementedError("define a fixture `settings`: the settings of an empty warehouse")

    @pytest.fixture
    def unreachable(self) -> EngineSettings:
        """The settings of a warehouse that can never be opened or reached."""
        raise NotImplementedError("define a fixture `unreachable`: the settings of a warehouse that cannot be reached")

    @pytest.fixture
    def engine(self, settings: EngineSettings) -> Iterator[Engine]:
        """An engine for the empty warehouse."""
        with closing(settings.open()) as opened:
            yield opened

    @pytest.fixture
    def other(self, settings: EngineSettings) -> Iterator[Engine]:
        """Another engine for the same warehouse, as another worker would have, with little patience."""
        with closing(settings.open(patience=0.5)) as opened:
            yield opened

    @pytest.fixture
    def shop(self, engine: Engine) -> Warehouse:
        """The dataset of all loads."""
        return Warehouse(engine, SCHEMA)

    def make_index(self, engine: Engine, table: str, name: str, column: str) -> None:
        """Adds an index to a table of SCHEMA. Override it for an engine without indexes: add something else that users add."""
        engine.execute(f"CREATE INDEX {engine.quote(name)} ON {engine.qualified(SCHEMA, table)} ({engine.quote(column)})")

    def make_view(self, engine: Engine, table: str, name: str) -> None:
        """Creates a view of a table, both in SCHEMA."""
        engine.execute(f"CREATE VIEW {engine.qualified(SCHEMA, name)} AS SELECT * FROM {engine.qualified(SCHEMA, table)}")

    @pytest.fixture
    def counter(self, engine: Engine) -> str:
        """The qualified name of a table with one row: the name 'a' and the number 0."""
        engine.execute(engine.schema_creation(SCHEMA))
        table = engine.qualified(SCHEMA, "counter")
        engine.execute(f'CREATE TABLE {table} ("name" {engine.sql_type("string")}, "n" {engine.sql_type("bigint")})')
        assert engine.write(f"INSERT INTO {table} VALUES (?, ?)", ("a", 0)) == 1
        return table

    # Settings

    def test_settings_have_a_place_and_reserve_the_engines_own_schemas(self, settings: EngineSettings) -> None:
        assert settings.kind
        assert settings.place
        assert SCHEMA not in settings.reserved_schemas

    # Statements

    def test_statements_bind_values_and_return_the_number_of_written_rows(self, engine: Engine, counter: str) -> None:
        assert engine.write(f"INSERT INTO {counter} VALUES (?, ?), (?, ?)", ("b'; --", 1, None, 2)) == 2
        assert engine.execute(f'SELECT "n" FROM {counter} WHERE "name" = ?', ("b'; --",)) == [(1,)]
        assert engine.write(f'UPDATE {counter} SET "n" = "n" + ? WHERE "n" >= ?', (10, 1)) == 2
        assert engine.write(f'DELETE FROM {counter} WHERE "name" IS NULL') == 1
        assert engine.write(f'DELETE FROM {counter} WHERE "n" > ?', (99,)) == 0
        assert sorted(engine.execute(f'SELECT "name", "n" FROM {counter}')) == [("a", 0), ("b'; --", 11)]

    def test_a_statement_outside_of_a_transaction_commits_by_itself(self, engine: Engine, other: Engine, counter: str) -> None:
        engine.write(f'UPDATE {counter} SET "n" = 7')
        engine.close()
        assert other.execute(f'SELECT "n" FROM {counter}') == [(7,)]

    def test_any_text_can_be_a_name(self, engine: Engine, tmp_path: Path) -> None:
        odd = Table('sel"ect', (Column('or"der', "string"), Column("from", "integer"), Column("Ünit 1", "string")))
        warehouse = Warehouse(engine, 'my "shop"')
        warehouse.apply(load(written(tmp_path, "it'em", [(odd, [{'or"der': "x", "from": 1, "Ünit 1": "u"}])])))
        assert warehouse.row_counts() == {'sel"ect': 1}
        assert list(engine.columns('my "shop"')['sel"ect']) == ['or"der', "from", "Ünit 1"]

    # Transactions

    def test_a_transaction_is_visible_to_others_only_after_its_commit(
        self, engine: Engine, other: Engine, counter: str
    ) -> None:
        engine.begin()
        engine.write(f'UPDATE {counter} SET "n" = 1')
        assert engine.execute(f'SELECT "n" FROM {counter}') == [(1,)]
        assert other.execute(f'SELECT "n" FROM {counter}') == [(0,)]
        engine.commit()
        engine.close()
        assert other.execute(f'SELECT "n" FROM {counter}') == [(1,)]

    def test_a_rollback_removes_all_changes_and_never_fails(self, engine: Engine, counter: str) -> None:
        engine.rollback()
        engine.begin()
        engine.write(f"INSERT INTO {counter} VALUES ('b', 1)")
        engine.rollback()
        engine.rollback()
        assert engine.execute(f'SELECT "name" FROM {counter}') == [("a",)]
        engine.begin()
        with pytest.raises(LoadFailed):
            engine.write(f"INSERT INTO {counter} SELECT nothing FROM {counter}")
        engine.rollback()
        assert engine.write(f'UPDATE {counter} SET "n" = 2') == 1

    def test_closing_the_connection_in_a_transaction_rolls_back(self, engine: Engine, other: Engine, counter: str) -> None:
        engine.begin()
        engine.write(f'UPDATE {counter} SET "n" = 1')
        engine.close()
        with pytest.raises((Conflict, Unclear)):
            engine.commit()
        assert other.execute(f'SELECT "n" FROM {counter}') == [(0,)]

    def test_of_two_transactions_that_move_a_row_on_a_condition_one_wins(
        self, engine: Engine, other: Engine, counter: str
    ) -> None:
        """The fence rests on this: the second transaction conflicts, or waits and finds that the condition holds no longer."""
        both_read, won = threading.Barrier(2, timeout=2), []

        def move(worker: Engine) -> None:
            try:
                worker.begin()
                worker.execute(f'SELECT "n" FROM {counter}')
                with suppress(threading.BrokenBarrierError):  # the engine may keep the other from reading, which is fine too
                    both_read.wait()
                if worker.write(f'UPDATE {counter} SET "n" = "n" + 1 WHERE "n" = ?', (0,)):
                    worker.commit()
                    won.append(worker)
                else:
                    worker.rollback()
            except Conflict:
                worker.rollback()

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(move, (engine, other)))
        engine.close()
        assert len(won) == 1
        assert other.execute(f'SELECT "n" FROM {counter}') == [(1,)]

    def test_renaming_a_table_does_not_commit(self, engine: Engine, counter: str) -> None:
        renaming = engine.rename(counter, engine.quote("counted"))
        assert _RENAME.fullmatch(renaming), "the guard of renames would refuse it"
        engine.begin()
        engine.execute(renaming)
        engine.rollback()
        assert list(engine.columns(SCHEMA)) == ["counter"]
        engine.begin()
        engine.execute(renaming)
        engine.commit()
        assert list(engine.columns(SCHEMA)) == ["counted"]

    # Errors

    def test_a_wrong_statement_fails_permanently(self, engine: Engine, counter: str) -> None:
        for sql in ("SELECT nothing FROM nowhere", f"SELEKT * FROM {counter}", f'SELECT x."nothing" FROM {counter} AS x'):
            with pytest.raises(LoadFailed):
                engine.execute(sql)

    def test_a_warehouse_that_cannot_be_reached_is_unavailable(self, unreachable: EngineSettings) -> None:
        with closing(unreachable.open(patience=0.1)) as engine, pytest.raises(Unavailable):
            engine.execute("SELECT 1")

    def test_an_enforced_key_raises_constraint_violated(self, engine: Engine, counter: str) -> None:
        table = engine.qualified(SCHEMA, "keyed")
        engine.execute(f'CREATE TABLE {table} ("id" {engine.sql_type("bigint")}, PRIMARY KEY ("id"))')
        engine.write(f"INSERT INTO {table} VALUES (1)")
        try:
            engine.write(f"INSERT INTO {table} VALUES (1)")
        except ConstraintViolated:
            assert engine.execute(f"SELECT * FROM {table}") == [(1,)]
        else:
            assert engine.execute(f"SELECT * FROM {table}") == [(1,), (1,)]

    def test_a_statement_can_be_interrupted_by_another_thread(self, engine: Engine) -> None:
        engine.interrupt()  # nothing runs yet
        done = threading.Event()

        def keep_interrupting() -> None:
            while not done.wait(0.1):
                engine.interrupt()

        thread = threading.Thread(target=keep_interrupting)
        thread.start()
        try:
            with pytest.raises(WarehouseError):
                engine.execute(self.endless)
        finally:
            done.set()
            thread.join()
        assert engine.execute("SELECT 1") == [(1,)]

    # Types and columns

    @pytest.mark.parametrize("type_", _VALUES)
    def test_values_of_every_type_are_read_back_unchanged(
        self, shop: Warehouse, engine: Engine, tmp_path: Path, type_: str
    ) -> None:
        table = Table("t", (Column("n", "integer"), Column("v", type_)))
        shop.apply(load(written(tmp_path, "a", [(table, [{"n": n, "v": v} for n, v in enumerate(_VALUES[type_])])])))
        found = dict(rows_of(engine, "t", '"n", "v"'))
        assert [found[n] for n in range(len(found))] == _VALUES[type_]

    def test_every_type_is_recognized_in_the_catalog(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        """A wider type is allowed too. Only then does a second load of the same columns change nothing."""
        table = Table("t", tuple(Column(f"c{n}", type_) for n, type_ in enumerate(_VALUES)))
        shop.apply(load(written(tmp_path, "a", [(table, [{}])])))
        before = engine.columns(SCHEMA)["t"]
        for column in table.columns:
            family = column.type.partition("(")[0]
            kept = before[column.name]
            assert engine.sql_type(kept) == engine.sql_type(column.type)
            assert kept == column.type or (family in ("string", "json") and kept.startswith("string"))
        for item in ("b", "c"):
            shop.apply(load(written(tmp_path, item, [(table, [{}])])))
        assert engine.columns(SCHEMA)["t"] == before

    def test_grants_cover_the_control_tables_whether_named_or_not(self, engine: Engine) -> None:
        granted = engine.grants(["shop"], "loader")
        assert engine.grants([CONTROL_SCHEMA, "shop"], "loader") == granted
        for schema in (CONTROL_SCHEMA, "shop") if granted else ():
            assert any(schema in one.lower() for one in granted), schema

    def test_a_schema_that_does_not_exist_has_no_columns(self, engine: Engine) -> None:
        assert engine.columns("nothing") == {}

    def test_columns_are_matched_by_name_in_any_order(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        pair = Table("pair", (Column("first", "string"), Column("second", "string")))
        row = {"first": "1st", "second": "2nd"}
        shop.apply(load(written(tmp_path, "a", [(pair, [row])])))
        shop.apply(load(written(tmp_path, "b", [(Table("pair", pair.columns[::-1]), [row])])))
        shop.apply(load(written(tmp_path, "c", [(pair, [row])], reverse=True)))
        assert rows_of(engine, "pair", '"first", "second"') == [("1st", "2nd")] * 3

    def test_new_columns_and_tables_are_added(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        one, two = Column("one", "integer"), Column("two", "string")
        shop.apply(load(written(tmp_path, "a", [(Table("t", (one,)), [{"one": 1}])])))
        shop.apply(load(written(tmp_path, "b", [(Table("t", (two, one)), [{"one": 2, "two": "2"}])])))
        shop.apply(load(written(tmp_path, "c", [(Table("t", (two,)), [{"two": "3"}]), (EVENTS, [{}])])))
        assert rows_of(engine, "t", '"one", "two"') == [(1, None), (2, "2"), (None, "3")]
        assert shop.row_counts() == {"t": 3, "events": 1}

    def test_a_dot_in_a_columns_name_is_kept_and_never_becomes_an_underscore(
        self, shop: Warehouse, engine: Engine, tmp_path: Path
    ) -> None:
        dotted, joined = (Table("t", (Column("a", "string"), Column(f"a{mark}b", "string"))) for mark in "._")
        shop.apply(load(written(tmp_path, "a", [(dotted, [{"a": "x", "a.b": "y"}])])))
        shop.apply(load(written(tmp_path, "b", [(Table("t", (*dotted.columns, Column("c_d", "string"))), [{"a.b": "z"}])])))
        assert set(rows_of(engine, "t", '"a", "a.b"')) == {("x", "y"), (None, "z")}
        with pytest.raises(IncompatibleChange, match=r"has the column a\.b, and c names it a_b: shred\.names was changed"):
            shop.apply(load(written(tmp_path, "c", [(joined, [{"a": "x", "a_b": "y"}])]), joins_names=True))
        assert list(engine.columns(SCHEMA)["t"]) == ["a", "a.b", "c_d"]

    @pytest.mark.parametrize(
        ("before", "old", "after", "new"),
        [
            ("integer", 1, "bigint", 2**40),
            ("bigint", 2**40, "integer", 1),
            ("decimal(5,4)", Decimal("1.2345"), "decimal(10,0)", Decimal(9999999999)),
            ("integer", 1, "double", 0.5),
            ("string(2)", "ab", "string(4)", "abcd"),
        ],
    )
    def test_columns_are_widened_without_loss(
        self, shop: Warehouse, engine: Engine, tmp_path: Path, before: str, old: Any, after: str, new: Any
    ) -> None:
        for item, type_, value in (("a", before, old), ("b", after, new), ("c", before, old)):
            shop.apply(load(written(tmp_path, item, [(Table("t", (Column("v", type_),)), [{"v": value}])])))
        assert rows_of(engine, "t", '"v"') == sorted([(old,), (old,), (new,)])

    def test_a_double_of_an_older_release_takes_decimals(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        def append(item: str, type_: str, value: Any) -> tuple[str, ...]:
            done = shop.apply(load(written(tmp_path, item, [(Table("t", (Column("v", type_),)), [{"v": value}])])))
            assert isinstance(done, Applied)
            return done.told

        assert append("a", "double", 0.5) == ()
        [told] = append("b", "decimal(18,2)", Decimal("19.99"))
        assert "column v stays a double" in told
        assert append("c", "decimal(18,2)", Decimal("2.50")) == (), "told once"
        assert rows_of(engine, "t", '"v"') == [(0.5,), (2.5,), (19.99,)]
        assert engine.columns(SCHEMA)["t"] == {"v": "double"}

    def test_a_lossy_type_change_is_refused_before_any_change(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        shop.apply(load(written(tmp_path, "a", [(Table("t", (Column("v", "integer"),)), [{"v": 1}])])))
        changed = Table("t", (Column("added", "string"), Column("v", "string")))
        with pytest.raises(IncompatibleChange, match=r"table shop.t, column v: the warehouse has integer, b has string"):
            shop.apply(load(written(tmp_path, "b", [(EVENTS, [{}]), (changed, [{"v": "x"}])])))
        assert list(engine.columns(SCHEMA)) == ["t"]
        assert list(engine.columns(SCHEMA)["t"]) == ["v"]

    def test_an_appended_value_of_another_type_goes_to_a_column_beside(
        self, shop: Warehouse, engine: Engine, tmp_path: Path
    ) -> None:
        """A vault's log was blocked forever when one of its columns became text, because no full load replaces a log."""

        def append(stop: str, type_: str, value: Any) -> tuple[str, ...]:
            table = Table(AUDIT.name, (Column("id", "string"), Column("n", type_)))
            listing = written(tmp_path, f"log-{stop}", [(table, [{"id": stop, "n": value}])])
            done = shop.apply(load(listing, position=stop, feed=LOG, splits_types=True))
            assert isinstance(done, Applied)
            return done.told

        assert append("1", "integer", 1) == ()
        [told] = append("2", "string", "two")
        assert "n has a type that the column cannot hold, so it is stored in n__string" in told
        assert append("3", "bigint", 2**40) == append("4", "string", "four") == ()
        assert rows_of(engine, AUDIT, '"id", "n", "n__string"') == [
            ("1", 1, None), ("2", None, "two"), ("3", 2**40, None), ("4", None, "four"),
        ]  # fmt: skip
        assert [entry.item for entry in shop.renamed()] == ["log-2"]

    def test_names_of_columns_match_without_case(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        """A source renamed `Name__c` to `name__c`, and every window and every snapshot failed from then on."""
        upper, lower = (Table("t", (Column(id_, "string"), Column(name, "string")), "merge", (id_,)) for id_, name in _CASES)
        shop.apply(window(tmp_path, "0015", (upper, [{"ID": "a", "Name__c": "1"}, {"ID": "b", "Name__c": "1"}])))
        done = shop.apply(window(tmp_path, "0030", (lower, [{"id": "a", "name__c": "2"}]), gone(lower, "b")))
        assert isinstance(done, Applied)
        assert any("column name__c is stored as Name__c" in line for line in done.told)
        assert rows_of(engine, "t", '"ID", "Name__c"') == [("a", "2")]
        again = shop.apply(window(tmp_path, "0045", (lower, [{"id": "c"}])))
        assert isinstance(again, Applied)
        assert again.told == (), "a known rename is reported once"
        shop.apply(snapshot(tmp_path, "0045", (lower, [{"id": "a", "name__c": "3"}])))
        assert list(engine.columns(SCHEMA)["t"]) == ["ID", "Name__c"]
        assert rows_of(engine, "t") == [("a", "3")]
        assert {(entry.column.column, entry.item) for entry in shop.renamed()} == {
            ("id", "incr-0030"),
            ("name__c", "incr-0030"),
        }

    # Staging

    def test_exactly_the_named_objects_are_staged(self, engine: Engine, tmp_path: Path) -> None:
        """Names that look like patterns, and folders that look like partition columns, are taken literally."""
        table = Table("t", (Column("date", "string"),))
        wanted = []
        for name in ("date=2024-05-01", "*", "[1]", "1", "with space", "per%20cent"):
            path = tmp_path / name / "x.parquet"
            path.parent.mkdir()
            pa.parquet.write_table(pa.table({"date": [name]}), path)
            wanted += [name] if name != "1" else []
        staging = engine.stage(table, [storage.as_uri(tmp_path / name / "x.parquet") for name in wanted])
        for _ in range(2):  # staged rows may be read more than once
            found = engine.execute(f'SELECT "date" FROM {staging.sql}', staging.parameters)
            assert sorted(found) == sorted((name,) for name in wanted)
        engine.unstage(staging)
        engine.unstage(staging)

    def test_each_object_of_a_table_may_have_other_columns(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        """A column of an event's table is written only to the files that have such an event."""
        one, two, three = (Column(name, "string") for name in ("one", "two", "three"))
        some = [written(tmp_path, name, [(Table("t", columns), [{"one": name, "two": name, "three": name}])])
                for name, columns in (("a", (one,)), ("b", (one, two)), ("c", (three, one)))]  # fmt: skip
        objects = tuple(found for listing in some for found in listing.objects)
        shop.apply(load(replace(some[0], tables=(Table("t", (one, two, three)),), objects=objects)))
        assert set(rows_of(engine, "t", '"one", "two", "three"')) == {("a", None, None), ("b", "b", None), ("c", None, "c")}

    def test_structs_and_arrays_are_stored_as_json(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        """The files of a lake's layout are also loaded: its nested columns become JSON, without what is null."""
        some = [
            written(tmp_path, name, [(Table("t", (Column("id", "string"), Column("c", type_))), [{"id": name, "c": value}])])
            for name, type_, value in (
                ("a", "array<struct<n:integer>>", [{"n": 1}, {"n": None}]),
                ("b", "array<struct<n:integer,at:date,of:struct<x:decimal(5,2)>>>",
                 [{"n": 2, "at": date(2024, 5, 1), "of": {"x": Decimal("1.50")}}]),
                ("c", "array<struct<n:integer>>", None),
            )
        ]  # fmt: skip
        objects = tuple(found for listing in some for found in listing.objects)
        shop.apply(load(replace(some[0], tables=some[1].tables, objects=objects)))
        stored = {name: value and json.loads(value) for name, value in rows_of(engine, "t", '"id", "c"')}
        assert stored == {"a": [{"n": 1}, {}], "b": [{"n": 2, "at": "2024-05-01", "of": {"x": 1.5}}], "c": None}
        assert sorted(tmp_path.rglob("*.json.parquet")) == []

    def test_packed_objects_are_loaded_as_files_are(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        """Alone and with other items. Nothing but the packs is there afterward."""
        listings = [packed(events(tmp_path / "runs", item, files=2)) for item in "abc"]
        shop.apply(load(listings[0]))
        shop.apply_all(_chained(*map(load, listings[1:]), believed="record-a"))
        assert rows_of(engine, EVENTS, "event_id") == sorted((f"{item}-{n}",) for item in "abc" for n in range(3))
        assert [path.name for path in sorted((tmp_path / "runs").rglob("*")) if path.is_file()] == ["00000-000.pack.zip"] * 3

    def test_a_missing_pack_fails_the_load_without_changes(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        listing = packed(events(tmp_path, "a", files=2))
        storage.local_path(listing.packs[0].uri).write_bytes(b"PK")
        with pytest.raises(LoadFailed, match="is damaged"):
            shop.apply(load(listing))
        storage.local_path(listing.packs[0].uri).unlink()
        with pytest.raises(LoadFailed, match="Shred the item again"):
            shop.apply(load(listing))
        assert (ledger(engine), fences(engine)) == ([], {FEED: (0, 0, "")})

    def test_zoned_times_are_kept_in_utc(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
        path = tmp_path / "x.parquet"
        pa.parquet.write_table(pa.table({"at": pa.array([noon], pa.timestamp("us", "Asia/Tokyo"))}), path)
        found = ShreddedObject("t", "2024-05-01", storage.as_uri(path), 1, path.stat().st_size)
        shop.apply(load(Listing("a", "1", 1, 1, 0, (Table("t", (Column("at", "timestamp"),)),), (found,))))
        assert rows_of(engine, "t", '"at"') == [(noon.replace(tzinfo=None),)]

    # Families

    def test_rows_of_two_families_never_share_a_table(
        self, settings: EngineSettings, shop: Warehouse, engine: Engine, other: Engine, tmp_path: Path
    ) -> None:
        """The first load fixes the family of a table, regardless of the case of its name, for every feed and worker."""
        first, second = (Table("Order_X", (Column("id", "string"),), family=name) for name in ("acme/order_x", "acme_order/x"))
        shop.apply(load(written(tmp_path, "a", [(first, [{"id": "1"}])])))
        shop.apply(load(written(tmp_path, "b", [(first, [{"id": "2"}])])))
        for warehouse in (shop, Warehouse(other, SCHEMA)):
            for table in (second, replace(second, name="order_x")):
                with pytest.raises(OtherFamily, match=r"has the rows of acme/order_x, and would get those of acme_order/x"):
                    warehouse.apply(load(written(tmp_path, "c", [(table, [{"id": "3"}])])))
        shop.apply(load(written(tmp_path, "c", [(replace(second, name="order_x_2"), [{"id": "3"}])])))
        assert rows_of(engine, first.name) == [("1",), ("2",)]

    def test_a_table_of_an_older_release_gets_its_family_with_the_next_load(
        self, shop: Warehouse, engine: Engine, tmp_path: Path
    ) -> None:
        first, second = (Table("t", (Column("id", "string"),), family=name) for name in ("acme/order_x", "acme_order/x"))
        shop.apply(load(written(tmp_path, "a", [(first, [{"id": "1"}])])))
        shop.close()
        engine.execute(f"DROP TABLE {control(engine, 'families')}")
        shop.apply(load(written(tmp_path, "b", [(first, [{"id": "2"}])])))
        with pytest.raises(OtherFamily):
            shop.apply(load(written(tmp_path, "c", [(second, [{"id": "3"}])])))

    def test_a_family_is_written_with_the_rows_or_not_at_all(self, shop: Warehouse, tmp_path: Path) -> None:
        first, second = (Table("t", (Column("id", "string"),), family=name) for name in ("acme/order_x", "acme_order/x"))
        listing = written(tmp_path, "a", [(first, [{"id": "1"}])])
        with pytest.raises(CountMismatch):
            shop.apply(load(replace(listing, objects=(replace(listing.objects[0], rows=2),))))
        shop.apply(load(written(tmp_path, "b", [(second, [{"id": "2"}])])))

    def test_a_text_that_is_longer_than_its_column_is_refused_or_cut_and_counted(
        self, shop: Warehouse, engine: Engine, tmp_path: Path
    ) -> None:
        table = Table("t", (Column("id", "string(36)"), Column("v", "string(4)")), key=("id",))
        long = written(tmp_path, "a", [(table, [{"id": "1", "v": "abcd"}, {"id": "2", "v": "abcdef"}])])
        engine.execute(engine.schema_creation(SCHEMA))
        text = self.short_text or engine.sql_type("string(4)")
        engine.execute(f'CREATE TABLE {engine.qualified(SCHEMA, "t")} ("id" {engine.sql_type("string(36)")}, "v" {text})')
        if self.short_text is None:
            assert not [line for line in applied(shop.apply(replace(load(long), cuts_texts=True))).told if " cut to " in line]
            assert rows_of(engine, "t", "id, v") == [("1", "abcd"), ("2", "abcdef")]
            return
        with pytest.raises(ValueRefused):
            shop.apply(load(long))
        done = applied(shop.apply(replace(load(long), cuts_texts=True)))
        assert rows_of(engine, "t", "id, v") == [("1", "abcd"), ("2", "abcd")]
        [told] = [line for line in done.told if " cut to " in line]
        assert told.startswith("table t, column v: 1 text cut to 4 ")
        key = written(tmp_path, "b", [(Table("t", table.columns, key=("v",)), [{"id": "3", "v": "abcdef"}])])
        with pytest.raises(CannotLoad):
            shop.apply(replace(load(key), cuts_texts=True))

    def test_a_column_that_another_loader_made_not_null_may_be_empty_once_a_load_needs_it(
        self, shop: Warehouse, engine: Engine, tmp_path: Path
    ) -> None:
        if not self.drops_not_null:
            pytest.skip("the engine keeps NOT NULL")
        table = Table("t", (Column("id", "string(36)", nullable=False), Column("v", "bigint")))
        engine.execute(engine.schema_creation(SCHEMA))
        columns = f'"id" {engine.sql_type("string(36)")} NOT NULL, "v" {engine.sql_type("bigint")} NOT NULL'
        of_others = f'"other" {engine.sql_type("bigint")} NOT NULL'
        engine.execute(f"CREATE TABLE {engine.qualified(SCHEMA, 't')} ({columns}, {of_others})")
        engine.write(f"INSERT INTO {engine.qualified(SCHEMA, 't')} VALUES ('0', 1, 2)")
        done = applied(shop.apply(load(written(tmp_path, "a", [(table, [{"id": "1", "v": 3}, {"id": "2", "v": None}])]))))
        assert rows_of(engine, "t", "id, v, other") == [("0", 1, 2), ("1", 3, None), ("2", None, None)]
        assert engine.required(SCHEMA) == {"t": ["id"]}
        assert [line for line in done.told if "may be empty from now on" in line]

    def test_a_missing_object_fails_the_load_without_changes(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        listing = events(tmp_path, "a", files=2)
        storage.local_path(listing.objects[0].uri).unlink()
        with pytest.raises(CannotLoad):
            shop.apply(load(listing))
        assert (rows_of(engine, EVENTS), ledger(engine), fences(engine)) == ([], [], {FEED: (0, 0, "")})

    # Questions

    def test_a_read_only_warehouse_answers_queries_and_changes_nothing(
        self, settings: EngineSettings, shop: Warehouse, tmp_path: Path
    ) -> None:
        shop.apply(load(events(tmp_path, "a", count=5)))
        shop.close()
        with closing(open_warehouse(settings, SCHEMA, read_only=True)) as reader:
            columns, rows = reader.query("SELECT event_id, amount AS n FROM events ORDER BY event_id")
            assert (columns, rows[0], len(rows)) == (["event_id", "n"], ("a-0", 0), 5)
            assert len(reader.query("SELECT * FROM events", most=2)[1]) == 2
            for sql in (
                "DELETE FROM events",
                "SELECT 1; DELETE FROM events",
                "SELECT 1; SELECT 2",
                "CREATE TABLE other (a INTEGER)",
            ):
                with pytest.raises(WarehouseError):
                    reader.query(sql)
            with pytest.raises(WarehouseError):
                reader.query("SELECT nothing FROM events")
            assert (reader.row_counts(), reader.newest_epoch()) == ({"events": 5}, 1)
            assert [entry.item for entry in reader.ledger(FEED, 1)] == ["a"]

    def test_a_reader_of_an_empty_warehouse_finds_and_creates_nothing(self, settings: EngineSettings) -> None:
        for _ in range(2):
            with closing(open_warehouse(settings, SCHEMA, read_only=True, patience=0.1)) as reader:
                assert (reader.row_counts(), reader.retired(), list(reader.ledger(FEED, 0))) == ({}, [], [])
                assert reader.applied_rows(FEED, 0) == {}
                assert reader.newest_epoch() == 0

    # Whole loads

    def test_a_load_moves_rows_ledger_and_fence_together(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        before = datetime.now(UTC) - timedelta(seconds=1)
        result = shop.apply(load(events(tmp_path, "a", files=2), token=3, epoch=2))
        assert isinstance(result, Applied)
        entry = result.entry
        assert shop.ledger_entry(FEED, "a", 0) == entry
        assert (entry.item, entry.position, entry.epoch, entry.token, entry.rows) == ("a", "a", 2, 3, {"events": 3})
        assert before < entry.applied_at < datetime.now(UTC)
        assert (shop.row_counts(), fences(engine)) == ({"events": 3}, {FEED: (3, 2, "a")})
        assert rows_of(engine, EVENTS, '"load_tstamp"') == [(entry.applied_at.replace(tzinfo=None),)] * 3

    def test_an_item_is_applied_once(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        wanted = load(events(tmp_path, "a"))
        first = shop.apply(wanted)
        assert shop.apply(replace(wanted, token=2, record_id="another")) == AlreadyApplied(first.entry)
        assert (shop.row_counts(), ledger(engine)) == ({"events": 3}, [("a", 1)])

    def test_rows_are_merged_and_deleted_by_key(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        shop.apply(window(tmp_path, "0015", products(a="1", b="1", d=None), (SITE, [{"id": "s", "city__c": "Rome"}])))
        shop.apply(window(tmp_path, "0030", products(b="2", c="2"), gone(PRODUCT, "a", "x"), retired=[Retired(SITE.name)]))
        label = {"object": "o", "object_field": "f", "label": "old"}
        shop.apply(window(tmp_path, "0045", (PICKLIST, [label, {**label, "object_field": "g"}])))
        shop.apply(window(tmp_path, "0100", (PICKLIST, [{**label, "label": "new"}]), gone(PICKLIST, ("o", "g"))))
        assert names_of(engine) == {"b": "2", "c": "2", "d": None}
        assert rows_of(engine, PICKLIST) == [("o", "f", "new")]
        assert [entry.table for entry in shop.retired()] == [SITE.name]

    def test_two_different_rows_of_a_key_fail_the_load(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        shop.apply(window(tmp_path, "0015", products(a="1")))
        with pytest.raises(DuplicateKey, match="such as 'b'"):
            shop.apply(window(tmp_path, "0030", (PRODUCT, [{"id": "b", "name__v": "1"}, {"id": "b", "name__v": "2"}])))
        assert (names_of(engine), fences(engine)[INCR]) == ({"a": "1"}, (1, 1, "0015"))
        shop.apply(window(tmp_path, "0030", (PRODUCT, [{"id": "b", "name__v": "1"}] * 2)))
        assert names_of(engine) == {"a": "1", "b": "1"}

    def test_a_count_that_differs_from_the_listing_rolls_back(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        listing = events(tmp_path, "a", count=4, files=2)
        wrong = replace(listing, objects=(listing.objects[0], replace(listing.objects[1], rows=3)))
        with pytest.raises(CountMismatch, match="events: 4 instead of 5"):
            shop.apply(load(wrong))
        assert (shop.row_counts(), ledger(engine), fences(engine)) == ({"events": 0}, [], {FEED: (0, 0, "")})
        assert isinstance(shop.apply(load(listing)), Applied)

    def test_a_snapshot_replaces_the_rows_of_its_tables(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        shop.apply(window(tmp_path, "0015", products(a="1", b="1"), (SITE, [{"id": "s"}])))
        shop.apply(window(tmp_path, "0030", (more(PRODUCT, "old__c"), [{"id": "b", "name__v": "2", "old__c": "x"}])))
        shop.apply(day(tmp_path, "2026-01-01", "login"))
        result = shop.apply(snapshot(tmp_path, "0015", (more(PRODUCT, "new__c"), [{"id": "a", "new__c": "y"}]), token=7))
        assert result.entry.rows == {PRODUCT.name: 1}
        assert rows_of(engine, PRODUCT, '"id", "name__v", "old__c", "new__c"') == [("a", None, None, "y")]
        assert (rows_of(engine, SITE), len(rows_of(engine, AUDIT))) == ([], 1)
        assert sorted(engine.columns(SCHEMA)) == [PRODUCT.name, SITE.name, AUDIT.name]
        assert fences(engine) == {INCR: (1, 2, "0015"), LOG: (1, 2, "2026-01-01"), FULL: (7, 2, "0015")}
        with pytest.raises(Fenced, match="newer epoch 2"):
            shop.apply(window(tmp_path, "0045", products(z="9"), token=99))
        shop.apply(window(tmp_path, "0030", products(b="2"), epoch=2, serving_epoch=2))
        assert names_of(engine) == {"a": None, "b": "2"}

    def test_indexes_and_views_of_users_survive_a_snapshot(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        """With an index on one table, each full load failed. A view could continue to show the old rows."""
        shop.apply(window(tmp_path, "0015", products(a="1", b="1"), (SITE, [{"id": "s", "city__c": "Rome"}])))
        self.make_index(engine, PRODUCT.name, "by_name", "name__v")
        self.make_view(engine, SITE.name, "report")
        view = f'(SELECT "id", "city__c" FROM {engine.qualified(SCHEMA, "report")})'
        assert any("by_name" in what for what in engine.attached(SCHEMA)[PRODUCT.name])
        done = shop.apply(snapshot(tmp_path, "0015", (more(PRODUCT, "new__c"), [{"id": "c"}]), (SITE, [{"id": "t"}]), token=7))
        assert isinstance(done, Applied)
        why = r"product__v: its rows were replaced in place, because it has .*by_name"
        assert any(re.search(why, line) for line in done.told) == engine.swaps_names, "in place is the normal way elsewhere"
        assert rows_of(engine, PRODUCT) == [("c", None, None)]
        assert engine.execute(f"SELECT * FROM {view}") == [("t", None)]
        assert any("by_name" in what for what in engine.attached(SCHEMA)[PRODUCT.name])
        shop.apply(snapshot(tmp_path, "0015", (SITE, [{"id": "u"}]), epoch=3, token=8))
        assert (rows_of(engine, PRODUCT), engine.execute(f"SELECT * FROM {view}")) == ([], [("u", None)])
        wide, narrow = (Table("t", (Column("id", "string"), Column("n", type_))) for type_ in ("bigint", "integer"))
        shop.apply(load(written(tmp_path, "a", [(narrow, [{"id": "a", "n": 1}])])))
        self.make_index(engine, "t", "by_id", "id")
        shop.apply(load(written(tmp_path, "b", [(wide, [{"id": "b", "n": 2**40}])])))
        assert rows_of(engine, "t") == [("a", 1), ("b", 2**40)]
        assert any("by_id" in what for what in engine.attached(SCHEMA)["t"])

    def test_a_failed_check_leaves_rows_fence_and_ledger_unchanged(
        self, shop: Warehouse, engine: Engine, tmp_path: Path
    ) -> None:
        """Checks of staged rows fail before BEGIN, and those of the table as it will be before COMMIT. A warning loads."""
        shop.apply(load(events(tmp_path, "1")))
        before = content(engine), fences(engine), ledger(engine)
        doubled = written(tmp_path, "2", [(EVENTS, [{"event_id": "1-0"}, {"event_id": "x"}, {"event_id": "x"}])], files=2)
        common: dict[str, Any] = {"name": "mine", "table": EVENTS.name}
        checks: dict[str, CheckSettings] = {
            "3 rows": RowsCheck(kind="rows", max=2, **common),
            "amount is NULL in 3 of 3 rows": NullsCheck(kind="nulls", column="amount", **common),
            "1 values of event_id": UniqueCheck(kind="unique", columns=("event_id",), **common),
            "2 values of event_id": UniqueCheck(kind="unique", columns=("event_id",), in_target=True, **common),
            "2 bad rows": SqlCheck(kind="sql", query="SELECT * FROM {staged} AS s WHERE s.event_id = 'x'", **common),
            "false": SqlCheck(kind="sql", query="SELECT count(*) < 6 FROM {target}", returns="boolean", **common),
            "6": SqlCheck(kind="sql", query="SELECT count(*) FROM {target} AS t", returns="number", min=7, **common),
        }
        for found, check in checks.items():
            wanted = load(doubled, checks=(check,))
            if found == "2 values of event_id":  # those among the staged rows are found first
                wanted = load(written(tmp_path, "3", [(EVENTS, [{"event_id": f"1-{n}"} for n in range(2)])]), checks=(check,))
            with pytest.raises(CheckFailed, match=rf": {found}.*; allowed: "):
                shop.apply(wanted)
            assert (content(engine), fences(engine), ledger(engine)) == before
        wrong = SqlCheck(kind="sql", query="SELECT nothing FROM {target}", **common)
        with pytest.raises(CheckInvalid, match="the query of check mine is wrong"):
            shop.apply(load(doubled, checks=(wrong,)))
        assert (content(engine), fences(engine), ledger(engine)) == before
        warnings = tuple(
            check.model_copy(update={"severity": "warn", "name": f"c{n}"}) for n, check in enumerate(checks.values())
        )
        done = shop.apply(load(doubled, checks=warnings))
        assert isinstance(done, Applied)
        assert [one.passed for one in done.checks] == [False] * len(checks)
        assert shop.row_counts() == {EVENTS.name: 6}

    def test_upkeep_does_every_action_and_counts_the_rows_that_it_removes(
        self, settings: EngineSettings, shop: Warehouse, engine: Engine, tmp_path: Path
    ) -> None:
        shop.apply(load(events(tmp_path, "1")))
        shop.apply(load(events(tmp_path, "2")))
        upkeep = UpkeepSettings(actions=settings.upkeep_actions, changed_share=1)
        for due in shop.upkeep.due(upkeep):
            shop.upkeep.tidy(due)
        assert shop.upkeep.due(upkeep) == []
        aged = f'UPDATE {engine.qualified(SCHEMA, EVENTS.name)} SET "load_tstamp" = ? WHERE "event_id" LIKE \'1%\''
        engine.write(aged, (datetime(2020, 5, 1, 12),))
        [old] = shop.upkeep.old_rows([RetentionSettings(table="*", days=30)], datetime.now(UTC))
        assert old.days == ((date(2020, 5, 1), 3),)
        assert shop.remove_old(old) == 3
        assert (shop.row_counts(), shop.removed_rows()) == ({EVENTS.name: 3}, {EVENTS.name: 3})
        assert {id_[0] for id_, *_ in rows_of(engine, EVENTS)} == {"2"}

    def test_positions_compare_bytewise(self, shop: Warehouse, tmp_path: Path) -> None:
        for position in ("A", "Z", "a", "ä", "\uffff", "\U0001f600"):
            assert isinstance(shop.apply(load(events(tmp_path, f"item-{position}"), position=position)), Applied)
        with pytest.raises(Behind):
            shop.apply(load(events(tmp_path, "x"), position="B"))

    def test_a_late_load_is_appended_and_marked_and_keeps_the_position(
        self, shop: Warehouse, engine: Engine, tmp_path: Path
    ) -> None:
        shop.apply(load(events(tmp_path, "b")))
        with pytest.raises(Behind, match="a at 'a' is not after 'b'"):
            shop.apply(load(events(tmp_path, "a"), token=2))
        assert isinstance(shop.apply(load(events(tmp_path, "a"), late=True, token=2)), Applied)
        assert (shop.row_counts(), fences(engine)) == ({"events": 6}, {FEED: (2, 1, "b")})
        assert [(entry.item, entry.late) for entry in shop.ledger(FEED, 1)] == [("a", True), ("b", False)]
        assert shop.applied_rows(FEED, 1) == {"events": 6}

    @pytest.mark.parametrize("key", [("id",), ()])
    def test_overlapping_directories_add_existing_rows_only_once(
        self, shop: Warehouse, engine: Engine, tmp_path: Path, key: tuple[str, ...]
    ) -> None:
        """Rows are compared by key, or without a key by all columns, where two missing values are equal."""

        def append(stop: str, rows: list[dict[str, Any]], overlaps: str) -> tuple[str, ...]:
            listing = written(tmp_path, f"log-{stop}", [(replace(AUDIT, key=key), rows)], files=2)
            done = shop.apply(load(listing, position=stop, feed=LOG, overlaps=overlaps))
            assert isinstance(done, Applied)
            assert done.entry.rows == {AUDIT.name: len(rows)}
            return done.told

        rows: list[dict[str, Any]] = [{"id": "a", "action": None}, {"id": "b", "action": "login"}]
        assert append("1", rows, "") == append("2", [{"id": "c"}], "it overlaps") == ()
        told = append("3", [*rows, {"id": "d"}, {"id": "d"}], "it overlaps")
        assert told == (f"table {AUDIT.name}: 2 of 4 rows existed already, because it overlaps",)
        assert [id_ for id_, _ in rows_of(engine, AUDIT)] == ["a", "b", "c", "d", "d"]

    # Reloads

    def test_a_reload_replaces_the_rows_of_its_item_and_keeps_the_position(
        self, shop: Warehouse, engine: Engine, tmp_path: Path
    ) -> None:
        """The earlier entry stays in the ledger, because a manifest that is set back may believe its record."""
        for item in ("1", "2", "3"):
            shop.apply(_reloadable(tmp_path, item, 3))
        again = _reloadable(tmp_path, "2", 5, record_id="again", token=2, reload=Reload(frozenset({"again"})))
        done = shop.apply(again)
        assert isinstance(done, Applied) and done.entry.rows == {EVENTS.name: 5, AUDIT.name: 1}
        assert shop.row_counts() == {EVENTS.name: 11, AUDIT.name: 3} == shop.applied_rows(FEED, 1)
        assert {id_ for id_, _, _, time_ in rows_of(engine, EVENTS) if time_ == naive(done.entry.applied_at)} == {
            f"2-{n}" for n in range(5)
        }
        assert fences(engine) == {FEED: (2, 1, "3")} and shop.fence_row(FEED).record == "again"
        assert shop.entry_of("record-2") and shop.ledger_entry(FEED, "2", 1, "again") == done.entry
        assert [one.record_id for one in shop.ledger(FEED, 1)] == ["record-1", "again", "record-3"]
        assert isinstance(shop.apply(replace(again, believed="again")), AlreadyApplied)
        twice = replace(again, record_id="third", token=3, believed="again", reload=Reload(frozenset({"third"})))
        assert isinstance(shop.apply(twice), Applied)
        assert shop.row_counts() == {EVENTS.name: 11, AUDIT.name: 3} == shop.applied_rows(FEED, 1)
        assert isinstance(shop.apply(_reloadable(tmp_path, "4", 3, token=3, believed="third")), Applied)

    def test_a_reload_that_is_not_of_exactly_its_own_rows_changes_nothing(
        self, shop: Warehouse, engine: Engine, tmp_path: Path
    ) -> None:
        for item in ("1", "2"):
            shop.apply(_reloadable(tmp_path, item, 3))
        events_ = engine.qualified(SCHEMA, EVENTS.name)

        def refused(match: str, **changes: Any) -> None:
            before = content(engine), ledger(engine), fences(engine)
            order = _reloadable(tmp_path, "1", 4, record_id="again", reload=Reload(frozenset({"again"}), **changes))
            with pytest.raises(CannotReload, match=match):
                shop.apply(order)
            assert (content(engine), ledger(engine), fences(engine)) == before

        copied = f"""INSERT INTO {events_} SELECT * FROM {events_} WHERE "event_id" = '1-0'"""
        engine.write(copied)
        refused("4 rows of the item, and the ledger counts 3")
        engine.write(f"""DELETE FROM {events_} WHERE "event_id" = '1-0'""")
        refused(r"rows that it loaded are gone \(1 of table events\)")
        entries = control(engine, "ledger")
        shared = f'UPDATE {entries} SET "applied_at" = (SELECT max("applied_at") FROM {entries})'
        allowed = _reloadable(tmp_path, "1", 4, record_id="again", reload=Reload(frozenset({"again"}), allows_missing=True))
        assert isinstance(shop.apply(allowed), Applied)
        assert shop.row_counts()[EVENTS.name] == 7
        engine.write(shared)
        with pytest.raises(CannotReload, match="the same load time"):
            shop.apply(replace(allowed, record_id="third", reload=Reload(frozenset({"third"}))))

    def test_a_reload_finds_rows_that_an_older_release_loaded_without_a_load_time(
        self, shop: Warehouse, engine: Engine, tmp_path: Path
    ) -> None:
        for item in ("1", "2"):
            shop.apply(_reloadable(tmp_path, item, 3))
        engine.write(f'UPDATE {engine.qualified(SCHEMA, AUDIT.name)} SET "load_tstamp" = NULL')
        order = _reloadable(tmp_path, "1", 2, record_id="again", reload=Reload(frozenset({"again"})))
        with pytest.raises(CannotReload, match="1 of table system_audit_trail__sys"):
            shop.apply(order)
        origins = (Origin("id", EVENTS.name, "event_id"),)
        found = shop.apply(replace(order, reload=Reload(frozenset({"again"}), origins)))
        assert isinstance(found, Applied) and shop.row_counts() == {EVENTS.name: 5, AUDIT.name: 2}
        by_file = (Origin("action"),)
        engine.write(f'UPDATE {engine.qualified(SCHEMA, AUDIT.name)} SET "load_tstamp" = NULL')
        second = _reloadable(tmp_path, "2", 3, record_id="third", reload=Reload(frozenset({"third"}), by_file))
        assert isinstance(shop.apply(second), Applied) and shop.row_counts() == {EVENTS.name: 5, AUDIT.name: 2}

    def test_rows_by_key_are_not_reloaded(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        shop.apply(window(tmp_path, "0015", products(a="1")))
        before = content(engine)
        with pytest.raises(CannotReload, match="product__v change by key"):
            shop.apply(window(tmp_path, "0015", products(a="1"), record_id="again", reload=Reload(frozenset({"again"}))))
        assert content(engine) == before

    # Several loads in one transaction

    def test_loads_that_follow_each_other_are_applied_together_as_one_by_one(
        self, engine: Engine, shop: Warehouse, tmp_path: Path
    ) -> None:
        """The newest change of a key counts; within an item deletes come before upserts; later columns are added."""
        shop.apply(window(tmp_path, "0015", products(a="1", b="1", stays="1"), (AUDIT, [{"id": "0", "action": None}])))
        wide = more(PRODUCT, "size__c")
        loads = _chained(
            window(tmp_path, "0030", products(b="2", c="2"), gone(PRODUCT, "a", "b"), (AUDIT, [{"id": "1"}])),
            window(tmp_path, "0045", products(a="3"), gone(PRODUCT, "c"), (AUDIT, [{"id": "2"}, {"id": "2"}])),
            window(tmp_path, "0100", (wide, [{"id": "d", "size__c": "x"}]), gone(PRODUCT, "unknown")),
            believed="record-incr-0015",
        )
        done = shop.apply_all(loads)
        expected = [("a", "3", None), ("b", "2", None), ("d", None, "x"), ("stays", "1", None)]
        assert rows_of(engine, PRODUCT, '"id", "name__v", "size__c"') == expected
        assert [id_ for id_, _ in rows_of(engine, AUDIT)] == ["0", "1", "2", "2"]
        assert fences(engine)[INCR] == (1, 1, "0100") and shop.fence_row(INCR).record == "record-incr-0100"
        assert [shop.ledger_entry(INCR, one.item, 1, "record-incr-0100") for one in loads] == [one.entry for one in done]
        with pytest.raises(NotTogether, match="incr-0030"):  # the ledger has them
            shop.apply_all(loads)
        assert isinstance(shop.apply(loads[1]), AlreadyApplied)

    def test_loads_that_cannot_go_together_change_nothing(self, engine: Engine, shop: Warehouse, tmp_path: Path) -> None:
        shop.apply(window(tmp_path, "0015", products(a="1", b="1")))
        twice = (PRODUCT, [{"id": "c", "name__v": "1"}, {"id": "c", "name__v": "2"}])
        loads = _chained(
            window(tmp_path, "0030", gone(PRODUCT, "a"), (AUDIT, [{"id": "1"}])),
            window(tmp_path, "0045", twice),
            believed="record-incr-0015",
        )
        with pytest.raises(DuplicateKey, match="incr-0045"):
            shop.apply_all(loads)
        assert (names_of(engine), fences(engine)[INCR], len(ledger(engine))) == ({"a": "1", "b": "1"}, (1, 1, "0015"), 1)
        assert isinstance(shop.apply(loads[0]), Applied)
        assert names_of(engine) == {"b": "1"}

    def test_a_raised_fence_stops_older_workers(self, settings: EngineSettings, shop: Warehouse, tmp_path: Path) -> None:
        shop.apply(load(events(tmp_path, "a")))
        with closing(open_warehouse(settings, SCHEMA)) as newer:
            newer.raise_fence(FEED, token=5, epoch=1)
        with pytest.raises(Fenced, match=r"newer token 5 \(mine: token 4"):
            shop.apply(load(events(tmp_path, "b"), token=4))
        with pytest.raises(Fenced):
            shop.raise_fence(FEED, token=4, epoch=1)
        assert shop.row_counts() == {"events": 3}

    def test_a_fence_raised_before_the_transaction_refuses_the_load(
        self, settings: EngineSettings, engine: Engine, shop: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shop.apply(load(events(tmp_path, "a")))
        begin, taken_over = engine.begin, []

        def late_begin() -> None:
            if not taken_over:
                taken_over.append(True)
                with closing(open_warehouse(settings, SCHEMA)) as newer:
                    newer.raise_fence(FEED, token=2, epoch=1)
                    assert newer.ledger_entry(FEED, "b", 1) is None
            begin()

        monkeypatch.setattr(engine, "begin", late_begin)
        with pytest.raises(Fenced):
            shop.apply(load(events(tmp_path, "b")))
        assert shop.row_counts() == {"events": 3}

    def test_fence_and_ledger_settle_a_commit_without_an_answer(
        self, settings: EngineSettings, engine: Engine, shop: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shop.prepare(FEED)
        commit = engine.commit

        def unheard() -> None:
            commit()
            engine.close()
            raise Unclear("no answer")

        monkeypatch.setattr(engine, "commit", unheard)
        with pytest.raises(Unclear):
            shop.apply(load(events(tmp_path, "a")))
        with closing(open_warehouse(settings, SCHEMA)) as after:
            after.raise_fence(FEED, token=2, epoch=1)
            assert isinstance(after.apply(load(events(tmp_path, "a"), token=2)), AlreadyApplied)
            assert after.row_counts() == {"events": 3}

    def test_the_fence_names_the_record_that_was_applied_last(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        """A load that expects another record than the fence's changes nothing: the manifest or the warehouse was set back."""
        assert isinstance(shop.apply(load(events(tmp_path, "1"), believed="")), Applied)
        assert isinstance(shop.apply(load(events(tmp_path, "2"), believed="record-1")), Applied)
        assert shop.fence_records() == {FEED: "record-2"}
        before = content(engine), fences(engine)
        with pytest.raises(ManifestBehind) as behind:
            shop.apply(load(events(tmp_path, "3"), believed="record-1"))
        assert behind.value.record == "record-2"
        with pytest.raises(Unbelieved) as unbelieved:
            shop.apply(load(events(tmp_path, "3"), believed="record-of-another"))
        assert unbelieved.value.record == "record-2"
        assert (content(engine), fences(engine)) == before
        assert isinstance(shop.apply(load(events(tmp_path, "3"), believed="record-2")), Applied)

    def test_without_the_believed_record_the_ledger_does_not_count(
        self, shop: Warehouse, engine: Engine, tmp_path: Path
    ) -> None:
        shop.apply(load(events(tmp_path, "1"), believed=""))
        with pytest.raises(Unbelieved):
            shop.apply(load(events(tmp_path, "1"), believed="record-2"))
        with pytest.raises(Unbelieved):
            shop.ledger_entry(FEED, "1", 1, believed="record-2")
        assert shop.ledger_entry(FEED, "1", 1, believed="record-1")

    def test_a_warehouse_without_a_fence_stays_untouched_if_a_record_is_believed(
        self, shop: Warehouse, engine: Engine, tmp_path: Path
    ) -> None:
        """The location may be mistyped: with the first table created there, it would look like the right warehouse."""
        for ask in (
            lambda: shop.apply(load(events(tmp_path, "2"), believed="record-1")),
            lambda: shop.raise_fence(FEED, 1, 1, believed="record-1"),
            lambda: shop.ledger_entry(FEED, "1", 1, believed="record-1"),
        ):
            with pytest.raises(Unbelieved):
                ask()
        assert engine.columns("manifest_platform") == engine.columns(SCHEMA) == {}

    def test_nothing_is_loaded_once_a_newer_release_has_written(
        self, settings: EngineSettings, engine: Engine, shop: Warehouse, tmp_path: Path
    ) -> None:
        """An older release would overwrite fence and ledger without the values that it does not know."""
        shop.apply(load(events(tmp_path, "a")))
        fence = control(engine, "fence")
        newer = f'UPDATE {fence} SET "version" = {FORM + 1}, "release" = \'0.9.0\''
        engine.write(newer)
        with closing(open_warehouse(settings, SCHEMA)) as older:
            for write in (lambda: older.apply(load(events(tmp_path, "b"))), lambda: older.raise_fence(FEED, 2, 1)):
                with pytest.raises(NewerControlTables, match=r"of version 3.* use manifest-platform 0\.9\.0 or later"):
                    write()
            assert older.row_counts() == {"events": 3}
        assert fences(engine) == {FEED: (1, 1, "a")}

    def test_the_next_load_upgrades_a_fence_of_an_older_release(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        shop.apply(load(events(tmp_path, "1"), believed=""))
        fence, former = control(engine, "fence"), engine.quote("former")
        engine.execute(f"ALTER TABLE {fence} RENAME TO {former}")
        columns = '"dataset", "feed", "epoch", "token", "applied"'
        engine.execute(f"CREATE TABLE {fence} AS SELECT {columns} FROM {engine.qualified('manifest_platform', 'former')}")
        shop.close()
        assert shop.fence_records() == {FEED: ""}
        assert isinstance(shop.apply(load(events(tmp_path, "2"), believed="")), Applied | AlreadyApplied)
        assert shop.fence_records() == {FEED: "record-2"}

    def test_an_applied_item_with_other_content_is_refused(self, shop: Warehouse, engine: Engine, tmp_path: Path) -> None:
        shop.apply(load(events(tmp_path, "1")))
        before = content(engine)
        with pytest.raises(OtherContent, match="was rewritten since"):
            shop.apply(load(events(tmp_path, "1"), checksum="of-another-content"))
        assert content(engine) == before

    def test_concurrent_workers_create_one_fence_and_apply_an_item_once(self, settings: EngineSettings, tmp_path: Path) -> None:
        wanted, together = load(events(tmp_path, "a")), threading.Barrier(3)

        def work(_number: int) -> Applied | AlreadyApplied:
            with closing(open_warehouse(settings, SCHEMA)) as warehouse:
                together.wait(_WAIT_SECONDS)
                return warehouse.apply(wanted)

        with ThreadPoolExecutor(3) as pool:
            outcomes = [type(outcome) for outcome in pool.map(work, range(3))]
        assert sorted(outcome.__name__ for outcome in outcomes) == ["AlreadyApplied", "AlreadyApplied", "Applied"]
        with closing(settings.open()) as engine:
            assert (fences(engine), ledger(engine)) == ({FEED: (1, 1, "a")}, [("a", 1)])
            assert len(engine.execute(f"SELECT * FROM {control(engine, 'fence')}")) == 1
            assert len(rows_of(engine, EVENTS)) == 3

    # Statements between BEGIN and COMMIT

    def test_transactions_contain_only_row_statements_and_snapshot_renames(
        self, engine: Engine, shop: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Rule A4: no engine gets a statement between BEGIN and COMMIT that makes this or another engine commit."""
        trace = _Trace(engine, monkeypatch)
        renames: dict[str, int] = {}
        for name, wanted in _every_load(tmp_path):
            trace.inside.clear()
            try:
                shop.apply(wanted)
            except WarehouseError as error:
                assert name in ("contradicts itself", "behind", "fenced"), f"{name}: {error}"
            for sql in trace.inside:
                if _RENAME.fullmatch(sql):
                    renames[name] = renames.get(name, 0) + 1
                    continue
                bare = re.sub(r'"[^"]*"|\'[^\']*\'', "x", sql)
                assert _ROWS.fullmatch(bare.strip()), sql
                assert not _COMMITTING.search(bare), sql
                assert "NOT EXISTS" not in bare, f"some engines refuse most correlated subqueries: {sql}"
        # Product and picklist are replaced. The snapshot has only a part of the sites, so these are merged.
        assert renames == ({"full": 4} if engine.swaps_names else {})
        assert trace.begun >= 12
        assert names_of(engine) == {"b": "1", "d": "1"}


def _reloadable(directory: Path, item: str, count: int, **changes: Any) -> Load:
    """Returns a load of events, and of a row that refers to the first of them and to its file."""
    rows: Rows = [{"event_id": f"{item}-{n}", "amount": n} for n in range(count)]
    beside: Rows = [{"id": f"{item}-0", "action": f"{item}/file"}]
    listing = written(directory, item, [(EVENTS, rows), (replace(AUDIT, load_time=True), beside)])
    return load(listing, **changes)


def _chained(*loads: Load, believed: str) -> list[Load]:
    """Returns the loads, each based on the record of the one before it."""
    records = (believed, *(one.record_id for one in loads))
    return [replace(one, believed=record) for one, record in zip(loads, records, strict=False)]


class _Trace:
    """A record of the statements that an engine runs within the protocol's transactions."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inside: list[str] = []
        self.begun, self._open = 0, False
        for name in ("execute", "write"):
            monkeypatch.setattr(engine, name, self._told(getattr(engine, name)))
        for name, is_open in (("begin", True), ("commit", False), ("rollback", False)):
            monkeypatch.setattr(engine, name, self._turned(getattr(engine, name), is_open))
        monkeypatch.setattr(engine, "widen", self._outside(engine.widen))

    def _outside(self, widen: Any) -> Any:
        def widened(table: str, column: str, sql_type: str) -> None:
            assert not self._open, "a column is widened in a transaction of the protocol"
            widen(table, column, sql_type)
            self.inside.clear()  # the engine's own transaction

        return widened

    def _told(self, run: Any) -> Any:
        def told(sql: str, parameters: Any = ()) -> Any:
            if self._open:
                self.inside.append(sql)
            return run(sql, parameters)

        return told

    def _turned(self, turn: Any, is_open: bool) -> Any:
        def turned() -> None:
            self._open = False  # statements that the engine itself runs to begin or end a transaction
            self.begun += is_open
            turn()
            self._open = is_open

        return turned


def _every_load(directory: Path) -> Iterator[tuple[str, Load]]:
    """Yields loads of every mode, by name: first loads, changed columns, failures, a snapshot, a replay."""
    narrow, wide = (
        Table(PRODUCT.name, (*PRODUCT.columns, Column("amount__c", type_)), "merge", ("id",)) for type_ in ("integer", "bigint")
    )
    contradiction = (PRODUCT, [{"id": "a", "name__v": "1"}, {"id": "a", "name__v": "2"}])
    sites = (SITE, [{"id": "s"}])
    again: dict[str, Any] = {"epoch": 2, "serving_epoch": 2}
    yield "append", day(directory, "1", "x")
    yield "append again", day(directory, "2", "y")
    yield "overlapping", day(directory, "3", "y", "z", overlaps="it starts early")
    yield "merge", window(directory, "0015", products(a="1", b="1"), sites)
    yield "delete and merge", window(directory, "0030", gone(PRODUCT, "a"), products(c="1"), (PICKLIST, []))
    yield "new column", window(directory, "0045", (more(PRODUCT, "size__c"), [{"id": "c"}]))
    yield "another column", window(directory, "0050", (narrow, [{"id": "c"}]))
    yield "column made wider", window(directory, "0055", (wide, [{"id": "c"}]))
    yield "retired", window(directory, "0100", retired=[Retired(SITE.name)])
    yield "contradicts itself", window(directory, "0115", contradiction)
    yield "empty", window(directory, "0130")
    yield (
        "full",
        snapshot(directory, "0030", products(b="1"), (SITE, [{"id": "t"}]), (PICKLIST, []), keeps=(SITE.name,)),
    )
    yield "behind", window(directory, "0015", products(a="1"), **again)
    yield "replay", window(directory, "0045", products(d="1"), sites, **again)
    yield "fenced", window(directory, "0100", products(a="1"))


def applied(found: Applied | AlreadyApplied) -> Applied:
    """Returns the result of a load that was applied now."""
    assert isinstance(found, Applied)
    return found
