"""Rows that earlier loads have brought are left out: looked for in the warehouse's own table."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import failpoints
from manifest_platform.listing import Column, Listing, Table
from manifest_platform.testing.loads import ledger, load, rows_of, written
from manifest_platform.warehouse.apply import AlreadyApplied, Applied, Load, Warehouse
from manifest_platform.warehouse.engines.engine import Engine
from manifest_platform.warehouse.repeats import Identity, Repeats, Rule
from manifest_platform_tests.warehouse.shop import Recording

pytestmark = [pytest.mark.engines("duckdb", "postgresql"), pytest.mark.everyday("duckdb")]

EVENTS = Table(
    "events",
    (Column("event_id", "string(36)"), Column("fingerprint", "string"), Column("at", "timestamp"), Column("made", "timestamp")),
    load_time=True,
)
CLICKS = Table("clicks", (Column("root_id", "string(36)"), Column("target", "string")))
OTHER = Table("other", (Column("note", "string"),))
IDENTITY = Identity("events", "event_id", "fingerprint", "at", "made", "root_id")
NOON = datetime(2024, 5, 1, 12)
REPEATS = Repeats(Rule(IDENTITY, days=14))


def run(place: Path, item: str, *events: tuple[str, str | None], at: datetime = NOON, **changes: Any) -> Load:
    """Returns the load of a run: events by id and fingerprint, two clicks of each, and a row of a table that refers to none."""
    rows = [{"event_id": id_, "fingerprint": content, "at": at, "made": at} for id_, content in events]
    clicks = [{"root_id": id_, "target": f"{item}-{n}"} for id_, _ in events for n in range(2)]
    listing = written(place, item, [(EVENTS, rows), (CLICKS, clicks), (OTHER, [{"note": item}])])
    first = at.isoformat() + "Z"
    objects = tuple(replace(one, min_time=first, max_time=first) if one.table == "events" else one for one in listing.objects)
    return replace(load(replace(listing, objects=objects), repeats=REPEATS), **changes)


def ids(engine: Engine) -> list[tuple[Any, ...]]:
    return sorted(rows_of(engine, EVENTS, "event_id, fingerprint"), key=str)


def clicks(engine: Engine) -> list[str]:
    return sorted(target for _, target in rows_of(engine, CLICKS, "root_id, target"))


def applied(shop: Warehouse, wanted: Load) -> Applied:
    done = shop.apply(wanted)
    assert isinstance(done, Applied)
    return done


def test_an_event_of_an_earlier_load_is_left_out_with_all_that_refers_to_it(
    shop: Warehouse, engine: Recording, tmp_path: Path
) -> None:
    applied(shop, run(tmp_path, "1", ("a", "x"), ("b", "x")))
    done = applied(shop, run(tmp_path, "2", ("a", "x"), ("c", "x"), believed="record-1"))
    assert ids(engine) == [("a", "x"), ("b", "x"), ("c", "x")]
    assert clicks(engine) == ["1-0", "1-0", "1-1", "1-1", "2-0", "2-1"]
    assert done.entry.rows == {"events": 1, "clicks": 2, "other": 1}
    assert shop.applied_rows("enriched", 1) == shop.row_counts() == {"events": 3, "clicks": 6, "other": 2}
    assert done.told == (
        "1 rows of table events were left out, because earlier loads brought them, and 2 rows of other tables that belong to"
        " them",
    )


def test_another_fingerprint_or_none_is_no_copy(shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
    applied(shop, run(tmp_path, "1", ("a", "x"), ("b", None)))
    done = applied(shop, run(tmp_path, "2", ("a", "y"), ("b", None), believed="record-1"))
    assert done.entry.rows["events"] == 2
    assert done.told == ()
    assert len(ids(engine)) == 4


def test_without_copies_a_load_has_one_more_statement(shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
    for name, repeats in (("1", REPEATS), ("2", REPEATS), ("3", REPEATS), ("4", None)):
        engine.statements.clear()
        believed = f"record-{int(name) - 1}" if name != "1" else None
        applied(shop, run(tmp_path, name, (name, "x"), repeats=repeats, believed=believed))
        if name == "3":
            looked = len(engine.statements)
    assert looked == len(engine.statements) + 1


def test_the_look_back_is_bounded(shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
    applied(shop, run(tmp_path, "1", ("old", "x"), at=NOON - timedelta(days=15)))
    applied(shop, run(tmp_path, "2", ("new", "x"), at=NOON - timedelta(days=13), believed="record-1"))
    done = applied(shop, run(tmp_path, "3", ("old", "x"), ("new", "x"), believed="record-2"))
    assert done.entry.rows["events"] == 1
    assert ids(engine) == [("new", "x"), ("old", "x"), ("old", "x")]


def test_a_copy_that_came_later_by_its_own_time_is_found(shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
    applied(shop, run(tmp_path, "1", ("a", "x"), at=NOON + timedelta(days=3)))
    done = applied(shop, run(tmp_path, "2", ("a", "x"), believed="record-1"))
    assert done.entry.rows == {"events": 0, "clicks": 0, "other": 1}


def test_rows_of_an_id_stay_while_an_event_of_it_stays(shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
    """A run may have an id twice if its own duplicates were not treated: rather a row too many than one too few."""
    applied(shop, run(tmp_path, "1", ("a", "x")))
    done = applied(shop, run(tmp_path, "2", ("a", "x"), ("a", "y"), believed="record-1"))
    assert ids(engine) == [("a", "x"), ("a", "y")]
    assert done.entry.rows == {"events": 1, "clicks": 4, "other": 1}


def test_a_crash_before_commit_decides_the_same_again(
    shop: Warehouse, engine: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied(shop, run(tmp_path, "1", ("a", "x")))
    second = run(tmp_path, "2", ("a", "x"), ("b", "x"), believed="record-1")

    class Crash(Exception):
        pass

    def crash(name: str) -> None:
        if name == "load.in_transaction":
            raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", crash)
        with pytest.raises(Crash):
            shop.apply(second)
    assert ids(engine) == [("a", "x")]
    assert applied(shop, second).entry.rows["events"] == 1
    assert isinstance(shop.apply(second), AlreadyApplied)
    assert ids(engine) == [("a", "x"), ("b", "x")]
    assert ledger(engine) == [("1", 1), ("2", 1)]


def test_a_listing_that_is_wrong_is_still_refused(shop: Warehouse, tmp_path: Path) -> None:
    from manifest_platform.warehouse.errors import CountMismatch

    applied(shop, run(tmp_path, "1", ("a", "x")))
    second = run(tmp_path, "2", ("a", "x"), ("b", "x"), believed="record-1")
    objects = tuple(replace(one, rows=one.rows + 1) if one.table == "clicks" else one for one in second.listing.objects)
    with pytest.raises(CountMismatch, match="clicks: 4 instead of 5"):
        shop.apply(replace(second, listing=replace(second.listing, objects=objects)))


def test_an_item_without_the_main_table_or_its_columns_is_loaded_whole(
    shop: Warehouse, engine: Recording, tmp_path: Path
) -> None:
    bare = Table("events", (Column("event_id", "string"),))
    for position, tables in enumerate(([(OTHER, [{"note": "x"}])], [(bare, [{"event_id": "a"}])]), start=1):
        listing: Listing = written(tmp_path, str(position), tables)
        believed = f"record-{position - 1}" if position > 1 else None
        assert sum(applied(shop, load(listing, repeats=REPEATS, believed=believed)).entry.rows.values()) == 1
