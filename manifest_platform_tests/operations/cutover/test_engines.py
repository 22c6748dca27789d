"""The cutover on each engine, with tables by the DDL that Snowplow publishes."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import config, failpoints
from manifest_platform.manifest import Refused
from manifest_platform.operations.cutover import adopt, compare, look, register
from manifest_platform.operations.cutover import beside as beside_of
from manifest_platform.pipeline import Pipeline
from manifest_platform.warehouse.errors import Unavailable
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
def shop(beside: Shop) -> Shop:
    """The shop that takes the tables over: it has loaded nothing."""
    return taking_over(beside)


def taking_over(beside: Shop, **load: Any) -> Shop:
    with closing(beside.place.open()) as engine:
        engine.execute("DROP SCHEMA manifest_platform CASCADE")
    (beside.home / "manifest.db").unlink()
    return Shop(beside.home, beside.place, load={"schema_name": former.SCHEMA, **load})


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
        assert {one.table for one in compare(pipeline) if not one.same} == former.MISSING
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


@pytest.mark.long
@pytest.mark.engines("postgresql", "redshift")
def test_tables_that_differ_are_kept_as_they_are_and_long_texts_are_cut_and_counted(beside: Shop):
    with closing(beside.place.open()) as engine:
        events, clicks = (engine.qualified(former.SCHEMA, one) for one in ("events", "com_acme_link_click_1"))
        engine.execute(f"DROP TABLE {events}")
        engine.execute(f"DROP TABLE {engine.qualified(former.SCHEMA, 'manifest')}")
        engine.execute(f"CREATE VIEW {engine.qualified(former.SCHEMA, 'report')} AS SELECT target_url FROM {clicks}")
    short = "VARCHAR(5) ENCODE TEXT255"
    changed = {"page_url": short, "tr_total": "DOUBLE PRECISION ENCODE RAW", "legacy": "INT ENCODE RAW"}
    former.fill(beside, (0, 1), {"events": changed}, tables=("events",), without=("br_type",))
    shop = taking_over(beside, text="cut")
    with shop.open() as pipeline:
        found = look(pipeline)
        [standing] = [one for one in found.tables if one.table == "events"]
        assert (found.hindrances, standing.adds) == ([], {"br_type": "string(50)"})
        assert "page_url" in standing.short
        adopt(pipeline)
        has_shredded(shop, 2, 3)
        told = [line for event in drained(pipeline)[0] for line in getattr(event, "told", ())]
    assert count(shop) == 4 * EVENTS
    assert count(shop, what="max(char_length(page_url))") == 5
    assert [line for line in told if line.startswith("table events, column page_url: ") and " cut to 5 " in line]


@pytest.mark.long
def test_a_takeover_that_was_killed_is_repeated_and_directories_and_notes_may_differ(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
):
    former.note(shop, {-1: EVENTS})  # without a directory
    shutil.rmtree(shop.directory(1))

    def die(point: str) -> None:
        if point == "takeover.in_transaction":
            raise KeyboardInterrupt

    with shop.open() as pipeline:
        found = look(pipeline)
        assert (found.gone, found.never_loaded) == (tuple(run_names(-1, 1)), ())
        assert (found.rows, found.noted) == (2 * EVENTS, 3 * EVENTS)
        with monkeypatch.context() as patch:
            patch.setattr(failpoints, "reach", die)
            with pytest.raises(KeyboardInterrupt):
                adopt(pipeline)
    with shop.open() as pipeline:
        assert adopt(pipeline).entered == 3
        has_shredded(shop, 2, 3)
        drained(pipeline)
    assert (count(shop), count(shop, what="count(DISTINCT event_id)")) == (4 * EVENTS, 4 * EVENTS)


@pytest.mark.long
@pytest.mark.engines("postgresql")
def test_a_role_that_may_not_read_or_alter_is_told_what_it_lacks(shop: Shop):
    with closing(shop.place.open()) as engine:
        engine.execute("DROP ROLE IF EXISTS of_the_loader")
        engine.execute("CREATE ROLE of_the_loader LOGIN")
        engine.execute("GRANT USAGE ON SCHEMA atomic TO of_the_loader")
    url = shop.place.settings["url"].replace("postgres@", "of_the_loader@")
    file = shop.config_file
    file.write_text(file.read_text().replace(shop.place.settings["url"], url))
    with shop.open() as pipeline, pytest.raises(Unavailable, match=r'Run GRANT SELECT.* ON TABLE "manifest" TO'):
        look(pipeline)
    with closing(shop.place.open()) as engine:
        engine.execute("GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA atomic TO of_the_loader")
    with shop.open() as pipeline:
        assert any("com_acme_link_click_1 belongs to postgres" in one for one in look(pipeline).hindrances)


@pytest.mark.long
@pytest.mark.engines("postgresql")
def test_runs_are_loaded_beside_and_the_tables_can_still_be_taken_over(shop: Shop, spark: Any):
    settings, name = beside_of(config.load(shop.config_file), "shop", "trial")
    with Pipeline(settings, name) as pipeline:
        assert register(pipeline, newest=1) == run_names(1)
        drained(pipeline, spark)
        found = list(compare(pipeline))
        assert {one.item for one in found} == set(run_names(1))
        assert {one.table for one in found if not one.same} <= former.MISSING
    with pytest.raises(Refused, match="schema atomic is that of dataset shop"):
        beside_of(config.load(shop.config_file), "shop", "atomic")
    with shop.open() as pipeline:
        assert adopt(pipeline).entered == 2
