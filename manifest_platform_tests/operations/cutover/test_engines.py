"""The cutover on each engine, with tables by the DDL that Snowplow publishes."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.operations.cutover import adopt, compare, look
from manifest_platform_tests.operations.cutover import former
from manifest_platform_tests.pipeline.shop import EVENTS, Shop, drained, run_name, run_names
from manifest_platform_tests.servers.warehouses import Place

ENGINES = ("duckdb", "postgresql", "redshift")


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAREHOUSE_PASSWORD", "of-the-stand-in")


@pytest.fixture
def beside(tmp_path: Path, place: Place, spark: Any) -> Shop:
    """A shop that has loaded four runs beside; the former loader has loaded the first two."""
    shop = Shop(tmp_path, place, load={"schema_name": former.BESIDE})
    shop.shredded(spark, 4)
    shutil.copy(tmp_path / "manifest.db", tmp_path / "shredded.db")
    with shop.open() as pipeline:
        drained(pipeline)
    former.fill(shop, (0, 1))
    return shop


@pytest.fixture
def shop(beside: Shop) -> Iterator[Shop]:
    """The shop that takes the tables over: it has loaded nothing."""
    with closing(beside.place.open()) as engine:
        engine.execute("DROP SCHEMA manifest_platform CASCADE")
    (beside.home / "manifest.db").unlink()
    yield Shop(beside.home, beside.place, load={"schema_name": former.SCHEMA})


def has_shredded(shop: Shop, *numbers: int) -> None:
    """Makes runs shredded ones, without Spark: their rows are those of the manifest from before."""
    with closing(sqlite3.connect(shop.home / "manifest.db")) as store, store:
        store.execute("ATTACH ? AS before", (str(shop.home / "shredded.db"),))
        for number in numbers:
            sort = f"%{run_name(number)[len('run=') :]}%"
            store.execute("INSERT OR REPLACE INTO manifest SELECT * FROM before.manifest WHERE sort LIKE ?", (sort,))


def count(shop: Shop, table: str = "events", what: str = "count(*)") -> int:
    with closing(shop.place.open()) as engine:
        return engine.execute(f"SELECT {what} FROM {engine.qualified(former.SCHEMA, table)}")[0][0]


@pytest.mark.everyday(*ENGINES)
def test_loads_go_on_in_tables_that_snowplows_loader_made(shop: Shop):
    with shop.open() as pipeline:
        found = look(pipeline)
        assert (found.hindrances, found.rows, found.noted) == ([], 2 * EVENTS, 2 * EVENTS)
        assert [*found.runs] == run_names(0, 1)
        assert adopt(pipeline).entered == 2
        assert adopt(pipeline).entered == 0
        has_shredded(shop, 2, 3)
        _, report = drained(pipeline)
        assert (report.loaded, report.failed) == (2, 0)
    assert (count(shop), count(shop, what="count(DISTINCT event_id)")) == (4 * EVENTS, 4 * EVENTS)
    assert count(shop, "com_acme_page_1") == 4 * EVENTS


@pytest.mark.everyday("postgresql")
def test_rows_are_compared_run_by_run_and_value_by_value(beside: Shop):
    with beside.open() as pipeline:
        assert [one for one in compare(pipeline) if not one.same] == []
        pipeline.warehouse.release(idle=True)
        with closing(beside.place.open()) as engine:
            events, pages = (engine.qualified(former.SCHEMA, one) for one in ("events", "com_acme_page_1"))
            ids = [one for (one,) in engine.execute(f"SELECT event_id FROM {events} ORDER BY event_id")]
            engine.write(f"UPDATE {events} SET user_id = 'somebody else' WHERE event_id = ?", (ids[0],))
            engine.write(f"DELETE FROM {pages} WHERE root_id = ?", (ids[1],))
            engine.write(f"UPDATE {engine.qualified(former.SCHEMA, 'manifest')} SET count_good = count_good + 1")
        found = [one for one in compare(pipeline) if not one.same]
        pages = [one for one in found if one.table == "com_acme_page_1"]
        events = [one for one in found if one.table == "events"]
    assert [(one.ours - one.theirs, one.different, one.missing) for one in pages] == [(1, 1, 0)]
    assert [(one.theirs, one.noted) for one in events] == [(EVENTS, EVENTS + 1)] * 2
    assert (sum(one.different for one in events), sum(one.missing for one in events)) == (1, 1)
