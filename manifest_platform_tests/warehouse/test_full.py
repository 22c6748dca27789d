"""Full loads: a snapshot's tables take the place of those before them, at once and for all feeds."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import failpoints
from manifest_platform.failpoints import FailpointReached
from manifest_platform.listing import BAD_TABLE, Column, Retired, Table
from manifest_platform.testing.loads import (
    AUDIT,
    FEEDS,
    FULL,
    INCR,
    LOG,
    PRODUCT,
    SITE,
    content,
    day,
    deletes,
    fences,
    gone,
    ledger,
    more,
    names_of,
    products,
    rows_of,
    snapshot,
    window,
)
from manifest_platform.warehouse.apply import AlreadyApplied, Applied, Full, Load, Warehouse
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.errors import (
    Behind,
    Conflict,
    ConstraintViolated,
    CountMismatch,
    DuplicateKey,
    EmptySnapshot,
    EpochInUse,
    Fenced,
    IncompatibleChange,
    LoadFailed,
    ShrinkingSnapshot,
    Unclear,
    UnsupportedMode,
)
from manifest_platform.warehouse.load import EMPTY, SHRINK, Limits
from manifest_platform_tests.warehouse.shop import Recording
from manifest_platform_tests.warehouse.workers import Pausing, Worker

pytestmark = [pytest.mark.engines("duckdb", "postgresql"), pytest.mark.everyday("duckdb")]

LEGACY = Table("legacy_workflow__sys", (Column("id", "string"), Column("state", "string")), "merge", ("id",))
BAD = Table(BAD_TABLE, (Column("file", "string"), Column("line", "bigint")), "merge", ("file", "line"))


@pytest.fixture
def standing(shop: Warehouse, engine: Recording, tmp_path: Path) -> dict[str, Any]:
    """A dataset after two windows and a day of logs; returns all rows."""
    shop.apply(window(tmp_path, "0015", products(a="1", b="1"), (SITE, [{"id": "s", "city__c": "Rome"}])))
    shop.apply(window(tmp_path, "0030", products(b="2"), gone(PRODUCT, "a")))
    shop.apply(day(tmp_path, "2026-01-01", "x"))
    return content(engine)


@pytest.mark.usefixtures("standing")
class TestSnapshot:
    def test_F5_F13_it_replaces_what_the_tables_hold_and_sets_what_is_applied_to_its_boundary(
        self, shop: Warehouse, engine: Recording, tmp_path: Path
    ) -> None:
        wanted = snapshot(tmp_path, "0015", products(a="1", b="1"), (SITE, [{"id": "s"}]), token=7)
        result = shop.apply(wanted)
        assert isinstance(result, Applied)
        assert result.entry.rows == {"product__v": 2, "site__v": 1}
        assert names_of(engine) == {"a": "1", "b": "1"}
        assert rows_of(engine, SITE) == [("s", None)]
        assert fences(engine) == {INCR: (1, 2, "0015"), LOG: (1, 2, "2026-01-01"), FULL: (7, 2, "0015")}
        assert ledger(engine)[-1] == ("full-0015", 2)
        assert shop.ledger_entry(FULL, wanted.item, 2) == result.entry

    def test_F5_the_windows_beyond_it_are_replayed_in_the_new_epoch_and_those_before_it_are_behind(
        self, shop: Warehouse, engine: Recording, tmp_path: Path
    ) -> None:
        shop.apply(snapshot(tmp_path, "0015", products(a="1", b="1")))
        again = window(tmp_path, "0030", products(b="2"), gone(PRODUCT, "a"), epoch=2, serving_epoch=2)
        assert isinstance(shop.apply(again), Applied)
        assert names_of(engine) == {"b": "2"}
        assert isinstance(shop.apply(again), AlreadyApplied)
        assert ledger(engine)[-2:] == [("full-0015", 2), ("incr-0030", 2)]

    def test_F18_a_boundary_ahead_closes_a_gap(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        shop.apply(snapshot(tmp_path, "0100", products(a="3")))
        with pytest.raises(Behind):
            shop.apply(window(tmp_path, "0045", products(a="2"), epoch=2, serving_epoch=2))
        shop.apply(window(tmp_path, "0115", products(a="4"), epoch=2, serving_epoch=2))
        assert (names_of(engine), fences(engine)[INCR]) == ({"a": "4"}, (1, 2, "0115"))

    def test_F19_F20_until_it_is_committed_what_was_applied_stands_and_counts_on_if_it_is_cancelled(
        self, shop: Warehouse, engine: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, standing: dict[str, Any]
    ) -> None:
        monkeypatch.setenv(failpoints.VARIABLE, "full.shadows_built:raise")
        with pytest.raises(FailpointReached):
            shop.apply(snapshot(tmp_path, "0015", products(a="1")))
        assert (content(engine), fences(engine)[INCR]) == (standing, (1, 2, "0030"))
        known = window(tmp_path, "0030", products(b="2"), gone(PRODUCT, "a"), epoch=2)
        assert isinstance(shop.apply(known), AlreadyApplied)
        assert isinstance(shop.apply(window(tmp_path, "0045", products(c="1"), epoch=2)), Applied)
        assert names_of(engine) == {"b": "2", "c": "1"}

    def test_F16_what_it_lacks_becomes_empty_but_logs_bad_rows_and_what_is_held_in_part(
        self, shop: Warehouse, engine: Recording, tmp_path: Path
    ) -> None:
        kept, journal = replace(LEGACY, name="legacy_task__sys"), replace(AUDIT, name="journal")
        rows: list[dict[str, Any]] = [{"id": "1", "state": "done"}, {"id": "2", "state": "done"}]
        bad = [{"file": "f", "line": 2}]
        shop.apply(window(tmp_path, "0045", (LEGACY, rows), (kept, rows), (BAD, bad), (journal, [{"id": "x"}])))
        before = content(engine)
        part = [{"id": "2", "state": "gone"}, {"id": "3", "state": "done"}]
        wanted = snapshot(tmp_path, "0030", (LEGACY, part), products(), keeps=("legacy_workflow__sys", "*legacy*"))
        shop.apply(wanted)
        assert rows_of(engine, SITE) == rows_of(engine, PRODUCT) == []
        assert list(engine.columns("shop")["site__v"]) == ["id", "city__c"]
        assert rows_of(engine, AUDIT) == before[AUDIT.name]
        assert rows_of(engine, journal) == [("x", None)]
        assert rows_of(engine, BAD) == before[BAD_TABLE]
        assert rows_of(engine, kept) == before[kept.name]
        assert rows_of(engine, LEGACY) == [("1", "done"), ("2", "gone"), ("3", "done")]

    @pytest.mark.engines("duckdb")
    def test_a_table_that_the_source_spells_in_two_ways_is_one_table_where_names_match_without_case(
        self, shop: Warehouse, engine: Recording, tmp_path: Path
    ) -> None:
        other = replace(PRODUCT, name="Product__V")
        shop.apply(window(tmp_path, "0045", (more(other, "size__c"), [{"id": "b", "name__v": "3", "size__c": "L"}])))
        assert rows_of(engine, PRODUCT) == [("b", "3", "L")]
        shop.apply(snapshot(tmp_path, "0045", (other, [{"id": "b", "name__v": "4"}]), (SITE, [{"id": "s"}])))
        assert rows_of(engine, PRODUCT, "id, name__v") == [("b", "4")]
        shop.apply(snapshot(tmp_path, "0060", products(b="5"), (SITE, [{"id": "s"}]), epoch=3))
        assert rows_of(engine, PRODUCT, "id, name__v") == [("b", "5")]
        assert shop.row_counts(["PRODUCT__V"]) == {"PRODUCT__V": 1}

    @pytest.mark.engines("duckdb")
    @pytest.mark.parametrize("mode", ["merge", "replace"])
    def test_two_tables_of_an_item_that_are_one_in_the_warehouse_are_refused(
        self, shop: Warehouse, engine: Recording, tmp_path: Path, mode: str, standing: dict[str, Any]
    ) -> None:
        tables = products(c="1"), (replace(PRODUCT, name="Product__V"), [{"id": "c", "name__v": "2"}])
        wanted = window(tmp_path, "0045", *tables) if mode == "merge" else snapshot(tmp_path, "0045", *tables)
        with pytest.raises(IncompatibleChange, match="Product__V and product__v would be one table"):
            shop.apply(wanted)
        assert content(engine) == standing

    def test_a_table_that_only_another_feed_loads_stays(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        shop.apply(window(tmp_path, "9", (LEGACY, [{"id": "1"}]), feed="other"))
        shop.apply(snapshot(tmp_path, "0030", products(a="1")))
        assert rows_of(engine, LEGACY) == [("1", None)]

    def test_a_table_that_somebody_dropped_is_not_emptied(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        engine.execute(f"DROP TABLE {engine.qualified('shop', SITE.name)}")
        shop.apply(snapshot(tmp_path, "0030", products(a="1")))
        assert SITE.name not in engine.columns("shop")

    def test_tables_that_only_it_has_are_made(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        shop.apply(snapshot(tmp_path, "0030", (LEGACY, [{"id": "1"}])))
        assert rows_of(engine, LEGACY) == [("1", None)]
        shop.apply(snapshot(tmp_path, "0045", products(a="1"), epoch=3))
        assert rows_of(engine, LEGACY) == []

    def test_A14_columns_that_it_lacks_stay_and_new_ones_come(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        shop.apply(window(tmp_path, "0045", (more(PRODUCT, "old__c"), [{"id": "a", "old__c": "x"}])))
        shop.apply(snapshot(tmp_path, "0030", (more(PRODUCT, "new__c"), [{"id": "a", "new__c": "y"}])))
        assert list(engine.columns("shop")["product__v"]) == ["id", "name__v", "old__c", "new__c"]
        assert rows_of(engine, PRODUCT) == [("a", None, None, "y")]

    @pytest.mark.engines("duckdb")
    def test_a_columns_type_is_what_the_snapshot_says(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        other = Table("product__v", (Column("id", "string"), Column("name__v", "date")), "merge", ("id",))
        shop.apply(snapshot(tmp_path, "0030", (other, [{"id": "a"}])))
        assert engine.columns("shop")["product__v"] == {"id": "string", "name__v": "date"}
        shop.apply(window(tmp_path, "0045", (other, [{"id": "b"}]), epoch=2, serving_epoch=2))

    def test_rows_that_are_there_twice_alike_count_once(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        rows = [{"id": "a", "name__v": "1"}] * 2
        assert shop.apply(snapshot(tmp_path, "0030", (PRODUCT, rows))).entry.rows == {"product__v": 2}
        assert names_of(engine) == {"a": "1"}

    def test_a_table_without_a_known_key_is_replaced_as_it_is(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        rows = [{"id": "a", "name__v": "1"}] * 2
        shop.apply(snapshot(tmp_path, "0030", (replace(PRODUCT, key=()), rows)))
        assert rows_of(engine, PRODUCT) == [("a", "1")] * 2

    def test_what_it_retires_and_brings_back_is_noted(self, shop: Warehouse, tmp_path: Path) -> None:
        shop.apply(window(tmp_path, "0045", retired=[Retired("product__v", "name__v"), Retired("site__v")]))
        wanted = snapshot(tmp_path, "0030", products(a="1"))
        shop.apply(replace(wanted, listing=replace(wanted.listing, retired=(Retired("site__v", "city__c"),))))
        assert [(one.table, one.column) for one in shop.retired()] == [("site__v", None), ("site__v", "city__c")]

    def test_nothing_of_it_is_left_over(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        shop.apply(snapshot(tmp_path, "0030", products(a="1")))
        assert sorted(engine.columns("shop")) == sorted(shop.row_counts()) == ["product__v", "site__v", AUDIT.name]

    def test_an_older_snapshot_may_be_loaded_in_a_newer_epoch(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        shop.apply(snapshot(tmp_path, "0100", products(a="2")))
        shop.apply(snapshot(tmp_path, "0015", products(a="1"), epoch=3))
        assert names_of(engine) == {"a": "1"}
        assert (fences(engine)[INCR], fences(engine)[FULL]) == ((1, 3, "0015"), (1, 3, "0100"))
        shop.apply(snapshot(tmp_path, "0015", products(a="0"), epoch=4))
        assert names_of(engine) == {"a": "0"}


@pytest.mark.usefixtures("standing")
class TestTablesThatStay:
    """An index on one table failed each full load: DuckDB gives no other name to a table that has one."""

    @pytest.fixture
    def index(self, engine: Recording, standing: dict[str, Any]) -> str:
        assert PRODUCT.name in standing
        engine.execute(f"CREATE UNIQUE INDEX by_id ON {engine.qualified('shop', PRODUCT.name)} (id)")
        return engine.qualified("shop", "by_id")

    @pytest.mark.usefixtures("index")
    @pytest.mark.engines("duckdb")
    def test_what_nobody_knows_of_keeps_a_table_from_another_name(
        self, shop: Warehouse, engine: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(engine, "attached", lambda _: {})
        done = shop.apply(snapshot(tmp_path, "0015", products(a="1"), (SITE, [{"id": "t"}])))
        assert isinstance(done, Applied)
        assert [line.partition(":")[0] for line in done.told] == ["table product__v", "table site__v"]
        assert "product__v cannot be renamed" in done.told[0]
        assert (names_of(engine), rows_of(engine, SITE)) == ({"a": "1"}, [("t", None)])
        assert ledger(engine)[-1] == ("full-0015", 2)

    @pytest.mark.usefixtures("index")
    def test_F17_a_reader_of_before_goes_on_with_what_it_began_with(self, shop: Warehouse, path: Path, tmp_path: Path) -> None:
        reader = DuckDB(path)
        reader.begin()
        assert names_of(reader) == {"b": "2"}
        shop.apply(snapshot(tmp_path, "0030", products(a="1", b="3")))
        assert names_of(reader) == {"b": "2"}
        reader.commit()
        assert names_of(reader) == {"a": "1", "b": "3"}
        reader.close()

    @pytest.mark.engines("duckdb")
    def test_a_column_that_changes_its_type_needs_the_table_free(
        self, shop: Warehouse, engine: Recording, tmp_path: Path, index: str
    ) -> None:
        other = Table("product__v", (Column("id", "string"), Column("name__v", "date")), "merge", ("id",))
        wanted = snapshot(tmp_path, "0030", (other, [{"id": "a"}]))
        with pytest.raises(
            IncompatibleChange, match=r"name__v: the warehouse has string, .* because it has index by_id. .*Drop that"
        ):
            shop.apply(wanted)
        assert names_of(engine) == {"b": "2"}
        engine.execute(f"DROP INDEX {index}")
        assert isinstance(shop.apply(wanted), Applied)
        assert engine.columns("shop")["product__v"] == {"id": "string", "name__v": "date"}

    @pytest.mark.engines("duckdb")
    def test_a_key_that_refers_to_a_table_is_named(self, engine: Recording, tmp_path: Path) -> None:
        shop = Warehouse(engine, "keyed")
        engine.execute("CREATE SCHEMA keyed")
        engine.execute("CREATE TABLE keyed.product__v (id VARCHAR PRIMARY KEY, name__v VARCHAR)")
        engine.execute("CREATE TABLE keyed.mine (product VARCHAR REFERENCES keyed.product__v (id))")
        shop.apply(window(tmp_path, "0045", products(a="1")))
        engine.execute("INSERT INTO keyed.mine VALUES ('a')")
        for wanted in (window(tmp_path, "0100", products(a="2")), snapshot(tmp_path, "0030", products(b="2"))):
            with pytest.raises(
                ConstraintViolated, match=r"a constraint that somebody added to a table, .* Drop the constraint, then resolve"
            ):
                shop.apply(wanted)
        engine.execute("DROP TABLE keyed.mine")
        assert isinstance(shop.apply(snapshot(tmp_path, "0030", products(b="2"), epoch=3)), Applied)
        assert engine.execute("SELECT id FROM keyed.product__v") == [("b",)]
        assert engine.attached("keyed") == {"product__v": ["not null", "primary key"]}


@pytest.mark.usefixtures("standing")
class TestRefusals:
    @pytest.fixture
    def wanted(self, tmp_path: Path) -> Load:
        return snapshot(tmp_path, "0015", products(a="1"))

    def test_F8_a_worker_of_an_older_epoch_is_fenced_on_every_feed(
        self, shop: Warehouse, engine: Recording, tmp_path: Path, wanted: Load
    ) -> None:
        shop.apply(wanted)
        before = content(engine)
        for old in (
            window(tmp_path, "0045", products(z="9"), token=99),
            day(tmp_path, "2026-01-02", "z", token=99),
            snapshot(tmp_path, "0100", products(z="9"), epoch=1, token=99),
        ):
            with pytest.raises(Fenced, match="newer epoch 2"):
                shop.apply(old)
        assert content(engine) == before

    @pytest.mark.parametrize("feed", FEEDS)
    def test_F8_it_is_fenced_where_any_feed_has_a_newer_epoch(
        self, shop: Warehouse, engine: Recording, wanted: Load, feed: str
    ) -> None:
        shop.raise_fence(feed, token=1, epoch=3)
        before = content(engine), fences(engine)
        with pytest.raises(Fenced, match=rf"feed '{feed}'.*newer epoch 3"):
            shop.apply(wanted)
        assert (content(engine), {**fences(engine), FULL: None}) == (before[0], {**before[1], FULL: None})

    def test_C5_it_is_fenced_by_a_newer_token_of_its_own_feed(
        self, shop: Warehouse, engine: Recording, wanted: Load, standing: dict[str, Any]
    ) -> None:
        shop.raise_fence(FULL, token=2, epoch=2)
        with pytest.raises(Fenced, match="newer token 2"):
            shop.apply(wanted)
        assert content(engine) == standing

    def test_F15_once_loaded_it_is_not_loaded_again(
        self, shop: Warehouse, engine: Recording, tmp_path: Path, wanted: Load
    ) -> None:
        first = shop.apply(wanted)
        shop.apply(window(tmp_path, "0030", products(b="2"), epoch=2, serving_epoch=2))
        before = content(engine), fences(engine)
        assert shop.apply(wanted) == AlreadyApplied(first.entry)
        assert (content(engine), fences(engine)) == before

    @pytest.mark.parametrize("after", ["window", "snapshot"])
    def test_an_epoch_in_which_something_was_loaded_takes_no_other_snapshot(
        self, shop: Warehouse, engine: Recording, tmp_path: Path, after: str
    ) -> None:
        """A worker may try a full load after its cancellation; a restored manifest may begin the same epoch again."""
        if after == "window":
            shop.apply(window(tmp_path, "0045", products(b="3"), epoch=2))
        else:
            shop.apply(snapshot(tmp_path, "0015", products(b="1")))
        before = content(engine), fences(engine)
        with pytest.raises(EpochInUse, match=r"would begin epoch 2, but the warehouse has loaded .* in epoch 2"):
            shop.apply(snapshot(tmp_path, "0030", products(a="1")))
        assert (content(engine), {**fences(engine), FULL: None}) == (before[0], {**before[1], FULL: None})
        shop.apply(snapshot(tmp_path, "0030", products(a="1"), epoch=3))

    def test_an_epoch_that_is_taken_while_the_shadows_are_built_is_seen(
        self, path: Path, engine: Recording, tmp_path: Path, wanted: Load
    ) -> None:
        class Overtaken(DuckDB):
            def begin(self) -> None:
                if any("shadow" in table for table in self.columns("shop")):
                    Warehouse(engine, "shop").apply(window(tmp_path, "0045", products(b="3"), epoch=2))
                super().begin()

        overtaken = Overtaken(path)
        with pytest.raises(EpochInUse):
            Warehouse(overtaken, "shop").apply(wanted)
        overtaken.close()
        assert names_of(engine) == {"b": "3"}

    @pytest.mark.parametrize("feed", FEEDS)
    @pytest.mark.parametrize("nth", [1, 2])  # before all fences are raised, and before the snapshot's own transaction
    def test_F8_a_fence_that_is_raised_meanwhile_is_not_lowered(
        self, path: Path, engine: Recording, standing: dict[str, Any], wanted: Load, feed: str, nth: int
    ) -> None:
        class Overtaken(DuckDB):
            begun = 0

            def begin(self) -> None:
                self.begun += 1
                if self.begun == nth:
                    Warehouse(engine, "shop").raise_fence(feed, token=1, epoch=3)
                super().begin()

        overtaken = Overtaken(path)
        with pytest.raises(Fenced, match="newer epoch 3"):
            Warehouse(overtaken, "shop").apply(wanted)
        overtaken.close()
        assert content(engine) == standing
        assert fences(engine)[feed][1] == 3

    def test_a_snapshot_without_tables_needs_consent(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        with pytest.raises(EmptySnapshot, match="has not a single table, and would empty every table that it covers"):
            shop.apply(snapshot(tmp_path, "0030"))
        consent = Full("0030", (INCR,), FEEDS, allows=frozenset({EMPTY}))
        assert isinstance(shop.apply(snapshot(tmp_path, "0030", full=consent)), Applied)
        assert rows_of(engine, PRODUCT) == rows_of(engine, SITE) == []

    def test_a_snapshot_without_rows_needs_consent(self, shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
        """A source that lost its rights exports tables and no rows, but for what describes them."""
        described = (replace(SITE, name="metadata"), [{"id": "1"}])
        limits = Limits(1.0, 1000, frozenset({"metadata"}))
        before = content(engine), fences(engine)
        full = Full("0030", (INCR,), FEEDS, (), limits)
        for rows in ([], None):
            with pytest.raises(EmptySnapshot, match=r"has no rows, and would empty every table"):
                shop.apply(snapshot(tmp_path, "0030", (PRODUCT, rows), described, full=full))
        assert (content(engine), fences(engine)) == before
        consent = replace(full, allows=frozenset({EMPTY}))
        assert isinstance(shop.apply(snapshot(tmp_path, "0030", (PRODUCT, []), described, full=consent)), Applied)

    @pytest.mark.parametrize(("share", "count", "refused"), [(0.5, 1, True), (0.5, 2, False), (0.7, 1, False), (0.0, 0, True)])
    def test_a_snapshot_that_shrinks_a_table_needs_consent(
        self, shop: Warehouse, engine: Recording, tmp_path: Path, share: float, count: int, refused: bool
    ) -> None:
        shop.apply(window(tmp_path, "0045", products(a="1", c="1")))
        before, full = content(engine), Full("0030", (INCR,), FEEDS, (), Limits(share, count))
        wanted = snapshot(tmp_path, "0030", products(a="1"), (SITE, [{"id": "s"}]), full=full)
        if refused:
            with pytest.raises(ShrinkingSnapshot, match=r"would shrink product__v from 3 to 1 rows\. Nothing was changed"):
                shop.apply(wanted)
            assert (content(engine), max(epoch for _, epoch, _ in fences(engine).values())) == (before, 1)
            wanted = replace(wanted, full=replace(full, allows=frozenset({SHRINK})))
        assert isinstance(shop.apply(wanted), Applied)
        assert names_of(engine) == {"a": "1"}

    def test_a_table_that_a_snapshot_lacks_shrinks_too(self, shop: Warehouse, tmp_path: Path) -> None:
        full = Full("0030", (INCR,), FEEDS, (), Limits(0.5, 0))
        with pytest.raises(ShrinkingSnapshot, match=r"would shrink site__v from 1 to 0 rows"):
            shop.apply(snapshot(tmp_path, "0030", products(a="1"), full=full))

    @pytest.mark.parametrize("table", [AUDIT, deletes(PRODUCT)])
    def test_a_snapshot_neither_appends_nor_deletes(self, shop: Warehouse, tmp_path: Path, table: Table) -> None:
        wanted = snapshot(tmp_path, "0030", (table, [{"id": "a"}]), keeps=(table.name,))
        with pytest.raises(UnsupportedMode, match="A snapshot can only replace, merge"):
            shop.apply(wanted)

    def test_it_covers_no_feed_that_there_is_not(self) -> None:
        with pytest.raises(ValueError, match="does not have: incr"):
            Full("0015", (INCR,), (LOG, FULL))

    def test_A12_A15_duplicates_and_wrong_counts_are_refused_and_leave_nothing(
        self, shop: Warehouse, engine: Recording, tmp_path: Path, standing: dict[str, Any]
    ) -> None:
        twice = [{"id": "a", "name__v": "1"}, {"id": "a", "name__v": "2"}]
        with pytest.raises(DuplicateKey, match=r"product__v.*'a'"):
            shop.apply(snapshot(tmp_path, "0030", (SITE, [{"id": "s"}]), (PRODUCT, twice)))
        wanted = snapshot(tmp_path, "0030", (SITE, [{"id": "s"}]), products(a="1"))
        wrong = replace(wanted.listing, objects=(wanted.listing.objects[0], replace(wanted.listing.objects[1], rows=2)))
        with pytest.raises(CountMismatch, match="product__v: 1 instead of 2"):
            shop.apply(replace(wanted, listing=wrong))
        assert content(engine) == standing

    def test_A4_an_engine_that_sneaks_something_in_with_the_new_names_loads_nothing(
        self, path: Path, engine: Recording, standing: dict[str, Any], wanted: Load
    ) -> None:
        class Sneaky(DuckDB):
            def rename(self, table: str, name: str) -> str:
                return f"{super().rename(table, name)}; TRUNCATE {name}"

        sneaky = Sneaky(path)
        with pytest.raises(LoadFailed, match="only a rename of a table is expected"):
            Warehouse(sneaky, "shop").apply(wanted)
        sneaky.close()
        assert content(engine) == standing

    def test_shadows_that_got_other_rows_than_were_counted_are_refused(
        self, path: Path, engine: Recording, standing: dict[str, Any], wanted: Load
    ) -> None:
        class Leaking(DuckDB):
            def write(self, sql: str, parameters: Any = ()) -> int:
                return super().write(sql, parameters) - ("__mp_shadow" in sql)

        leaking = Leaking(path)
        with pytest.raises(CountMismatch, match="gave 0 rows after 1 were counted"):
            Warehouse(leaking, "shop").apply(wanted)
        leaking.close()
        assert content(engine) == standing


class Failing(Recording):
    """Raises `error` instead of running the nth statement that contains `words`."""

    def __init__(self, path: Path, words: str, error: Exception, nth: int = 1) -> None:
        super().__init__(path)
        self.words, self.error, self.nth = words, error, nth

    def execute(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        if self.words in sql:
            self.nth -= 1
            if self.nth == 0:
                raise self.error
        return super().execute(sql, parameters)


@pytest.mark.usefixtures("standing")
class TestFailures:
    @pytest.mark.parametrize(
        ("words", "nth"),
        [("__mp_shadow", 1), ("INSERT INTO", 3), ('"ledger" (', 2)],
    )
    def test_F3_F4_a_failure_leaves_all_as_it_was_and_the_next_try_works(
        self, shop: Warehouse, path: Path, tmp_path: Path, standing: dict[str, Any], words: str, nth: int
    ) -> None:
        shop.close()
        engine = Failing(path, words, LoadFailed("the disk is made of cheese"), nth)
        wanted = snapshot(tmp_path, "0015", products(a="1"), (LEGACY, [{"id": "1"}]))
        with pytest.raises(LoadFailed, match="cheese"):
            Warehouse(engine, "shop").apply(wanted)
        assert content(engine) == standing
        assert {feed: applied for feed, (_, _, applied) in fences(engine).items()}[INCR] == "0030"
        assert isinstance(Warehouse(engine, "shop").apply(wanted), Applied)
        assert content(engine) == {**standing, PRODUCT.name: [("a", "1")], SITE.name: [], LEGACY.name: [("1", None)]}
        engine.close()

    @pytest.mark.parametrize("nth", [1, 2, 4])
    def test_a_table_that_gets_no_other_name_has_its_rows_replaced(
        self, shop: Warehouse, path: Path, tmp_path: Path, standing: dict[str, Any], nth: int
    ) -> None:
        shop.close()
        engine = Failing(path, "RENAME", LoadFailed("the name is made of cheese"), nth)
        done = Warehouse(engine, "shop").apply(snapshot(tmp_path, "0015", products(a="1"), (LEGACY, [{"id": "1"}])))
        assert isinstance(done, Applied)
        assert all("cheese" in line for line in done.told)
        assert len(done.told) == 2
        assert content(engine) == {**standing, PRODUCT.name: [("a", "1")], SITE.name: [], LEGACY.name: [("1", None)]}
        engine.close()

    def test_a_new_table_that_gets_no_name_fails_the_load(
        self, shop: Warehouse, path: Path, tmp_path: Path, standing: dict[str, Any]
    ) -> None:
        class Nameless(DuckDB):
            def execute(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
                if "RENAME" in sql:
                    raise LoadFailed("the name is made of cheese")
                return super().execute(sql, parameters)

        shop.close()
        engine = Nameless(path)
        with pytest.raises(LoadFailed, match="cheese"):
            Warehouse(engine, "shop").apply(snapshot(tmp_path, "0015", products(a="1"), (LEGACY, [{"id": "1"}])))
        assert content(engine) == standing
        engine.close()

    @pytest.mark.parametrize("words", ["COMMIT", 'UPDATE "warehouse"."manifest_platform"."fence"', "RENAME"])
    def test_a_conflict_repeats_the_transaction_and_not_the_shadows(
        self, shop: Warehouse, path: Path, tmp_path: Path, words: str
    ) -> None:
        shop.close()
        # The first COMMIT and three updates of the fence belong to the step that raises all fences before the load.
        engine = Failing(path, words, Conflict("another one was faster"), {"COMMIT": 2, "RENAME": 2}.get(words, 4))
        assert isinstance(Warehouse(engine, "shop").apply(snapshot(tmp_path, "0015", products(a="1"))), Applied)
        assert names_of(engine) == {"a": "1"}
        assert len([sql for sql in engine.statements if sql.startswith("CREATE") and "product__v__mp_shadow" in sql]) == 1
        engine.close()

    def test_old_tables_that_cannot_be_dropped_are_dropped_by_the_next_full_load(
        self, shop: Warehouse, path: Path, tmp_path: Path
    ) -> None:
        shop.close()
        engine = Failing(path, "DROP TABLE", LoadFailed("in use"))
        warehouse = Warehouse(engine, "shop")
        assert isinstance(warehouse.apply(snapshot(tmp_path, "0015", products(a="1"))), Applied)
        left = {name for name in engine.columns("shop") if "__mp_" in name}
        assert "product__v__mp_old_e2_t1" in left
        assert sorted(warehouse.row_counts()) == sorted(set(engine.columns("shop")) - left)
        warehouse.apply(snapshot(tmp_path, "0030", products(a="2"), epoch=3))
        assert not [name for name in engine.columns("shop") if "__mp_" in name]
        engine.close()

    @pytest.mark.parametrize("point", ["full.shadows_built", "full.in_transaction", "full.committed"])
    def test_wherever_it_ends_the_next_try_brings_it_to_its_end(
        self,
        shop: Warehouse,
        engine: Recording,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        standing: dict[str, Any],
        point: str,
    ) -> None:
        wanted = snapshot(tmp_path, "0015", products(a="1"))
        monkeypatch.setenv(failpoints.VARIABLE, f"{point}:raise")
        with pytest.raises(FailpointReached):
            shop.apply(wanted)
        monkeypatch.delenv(failpoints.VARIABLE)
        after = {**standing, PRODUCT.name: [("a", "1")], SITE.name: []}
        committed = point == "full.committed"
        assert content(engine) == (after if committed else standing)
        result = shop.apply(replace(wanted, token=2))
        assert isinstance(result, AlreadyApplied if committed else Applied)
        assert content(engine) == after

    def test_A7_a_commit_without_an_answer_is_settled_by_fence_and_ledger(
        self, shop: Warehouse, path: Path, tmp_path: Path
    ) -> None:
        shop.close()

        class AnswerLost(Recording):
            def commit(self) -> None:
                super().commit()
                if any("RENAME" in sql for sql in self.statements):
                    self.close()
                    raise Unclear("no answer")

        lost = AnswerLost(path)
        wanted = snapshot(tmp_path, "0015", products(a="1"))
        with pytest.raises(Unclear):
            Warehouse(lost, "shop").apply(wanted)
        lost.close()
        shop.raise_fence(FULL, token=2, epoch=2)
        assert shop.ledger_entry(FULL, wanted.item, 2) is not None
        assert isinstance(shop.apply(replace(wanted, token=2)), AlreadyApplied)

    def test_raising_all_fences_without_a_clear_answer_is_repeated(self, shop: Warehouse, path: Path, tmp_path: Path) -> None:
        shop.close()
        engine = Failing(path, "COMMIT", LoadFailed("no answer"))
        assert isinstance(Warehouse(engine, "shop").apply(snapshot(tmp_path, "0015", products(a="1"))), Applied)
        engine.close()


@pytest.mark.usefixtures("standing")
class TestSideBySide:
    def test_F8_a_window_that_is_in_the_middle_of_its_transaction_is_refused(
        self, shop: Warehouse, engine: Recording, path: Path, tmp_path: Path
    ) -> None:
        old = Worker(Pausing(path, 'UPDATE "warehouse"."manifest_platform"."fence"'), window(tmp_path, "0045", products(z="9")))
        shop.apply(snapshot(tmp_path, "0015", products(a="1")))
        assert isinstance(old.finish(), Fenced)
        assert names_of(engine) == {"a": "1"}

    def test_F8_a_table_that_an_older_worker_committed_just_before_is_emptied(
        self, shop: Warehouse, engine: Recording, path: Path, tmp_path: Path
    ) -> None:
        shop.apply(snapshot(tmp_path, "0015", products(a="1")))
        shop.apply(
            window(tmp_path, "0020", products(a="1"), epoch=2, serving_epoch=2)
        )  # knows from here on what tables there are
        old = Worker(Pausing(path, "COMMIT"), window(tmp_path, "0030", (LEGACY, [{"id": "1"}]), epoch=2, serving_epoch=2))
        threading.Timer(0.2, old.engine.go_on.set).start()
        shop.apply(snapshot(tmp_path, "0030", products(a="2"), epoch=3))
        assert isinstance(old.finish(), Applied)
        assert rows_of(engine, LEGACY) == []

    def test_no_older_worker_adds_a_table_while_the_shadows_are_built(
        self, shop: Warehouse, engine: Recording, path: Path, tmp_path: Path
    ) -> None:
        raised = Worker(PausingAtShadows(path), snapshot(tmp_path, "0015", products(a="1")))
        with pytest.raises(Fenced):
            shop.apply(window(tmp_path, "0045", (LEGACY, [{"id": "1"}])))
        assert isinstance(raised.finish(), Applied)
        assert LEGACY.name not in engine.columns("shop")

    def test_C5_a_worker_on_the_same_snapshot_that_was_replaced_is_fenced_as_soon_as_the_next_one_begins(
        self, path: Path, engine: Recording, tmp_path: Path
    ) -> None:
        wanted = snapshot(tmp_path, "0015", products(a="1"))
        successors: list[Worker] = []

        class Replaced(DuckDB):
            def begin(self) -> None:
                if not successors and any("shadow" in table for table in self.columns("shop")):
                    successors.append(Worker(PausingAtShadows(path), replace(wanted, token=2)))
                super().begin()

        replaced = Replaced(path)
        with pytest.raises(Fenced, match="newer token 2"):
            Warehouse(replaced, "shop").apply(wanted)
        replaced.close()
        assert isinstance(successors[0].finish(), Applied)
        assert names_of(engine) == {"a": "1"}

    @pytest.mark.parametrize("epoch", [1, 2])
    def test_deletes_reach_a_table_that_somebody_else_made_meanwhile(
        self, shop: Warehouse, engine: Recording, path: Path, tmp_path: Path, epoch: int
    ) -> None:
        shop.apply(window(tmp_path, "0045", products(c="1")))
        other, made = DuckDB(path), (LEGACY, [{"id": "1"}, {"id": "2"}])
        Warehouse(other, "shop").apply(
            window(tmp_path, "0050", made, token=2) if epoch == 1 else snapshot(tmp_path, "0050", made)
        )
        other.close()
        shop.apply(window(tmp_path, "0100", gone(LEGACY, "1"), epoch=epoch, token=3 if epoch == 1 else 1))
        assert rows_of(engine, LEGACY) == [("2", None)]

    def test_F17_readers_see_all_of_the_old_or_all_of_the_new(self, shop: Warehouse, path: Path, tmp_path: Path) -> None:
        rows = [[{"id": f"{n:05d}", "name__v": str(epoch)} for n in range(3000 * epoch)] for epoch in range(5)]
        sites = [[{"id": f"{n}", "city__c": str(epoch)} for n in range(10 * epoch)] for epoch in range(5)]
        shop.apply(snapshot(tmp_path, "0030", (PRODUCT, rows[1]), (SITE, sites[1]), epoch=2))
        with Reader(path) as reader:
            for epoch in (2, 3, 4):
                shop.apply(snapshot(tmp_path, "0030", (PRODUCT, rows[epoch]), (SITE, sites[epoch]), epoch=epoch + 1))
        assert reader.errors == []
        assert reader.seen <= {(f"{epoch}{epoch}", 3000 * epoch, str(epoch), 10 * epoch) for epoch in range(1, 5)}
        assert len(reader.seen) > 1

    def test_F17_a_reader_of_before_goes_on_with_what_it_began_with(self, shop: Warehouse, path: Path, tmp_path: Path) -> None:
        reader = DuckDB(path)
        reader.begin()
        assert names_of(reader) == {"b": "2"}
        shop.apply(snapshot(tmp_path, "0030", products(a="1")))
        assert names_of(reader) == {"b": "2"}
        assert rows_of(reader, SITE) == [("s", "Rome")]
        reader.commit()
        assert names_of(reader) == {"a": "1"}
        reader.close()


class PausingAtShadows(Pausing):
    """Waits before it makes its first shadow."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "never")

    def execute(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        if "__mp_shadow" in sql and not self.reached.is_set():
            self.reached.set()
            assert self.go_on.wait(20)
        return super().execute(sql, parameters)


class Reader(threading.Thread):
    """Reads both tables of a warehouse in one query, over and over, on a connection of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.engine, self.ending = DuckDB(path), threading.Event()
        self.seen: set[tuple[Any, ...]] = set()
        self.errors: list[Exception] = []

    def run(self) -> None:
        product, site = (self.engine.qualified("shop", table.name) for table in (PRODUCT, SITE))
        query = (
            f"SELECT * FROM (SELECT min(name__v) || max(name__v), count(*) FROM {product}), "
            f"(SELECT min(city__c), count(*) FROM {site})"
        )
        while not self.ending.is_set():
            try:
                self.seen.update(self.engine.execute(query))
            except Exception as error:
                self.errors.append(error)

    def __enter__(self) -> Reader:
        self.start()
        while not self.seen and not self.errors:
            self.ending.wait(0.001)
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        self.join(20)
        self.engine.close()
