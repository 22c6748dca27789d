"""The asset checks: all pass on a good state, and each fails on its fault."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import dagster as dg
import pytest
import yaml

from manifest_platform.operations import folders, landing
from manifest_platform.operations.folders import compare, in_steps
from manifest_platform.orchestration import feed_checks, folder_checks
from manifest_platform.orchestration.folder_checks import AGAIN, LOADED, is_due
from manifest_platform.orchestration.landed import REGISTERED
from manifest_platform.orchestration.remark_checks import FIT
from manifest_platform.pipeline import LOAD
from manifest_platform.pipeline.loading import load
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform.warehouse.control import Ledger, LedgerEntry
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform_tests.orchestration.dagster_shop import DagsterShop, break_listing, next_ready, tamper
from manifest_platform_tests.pipeline.shop import EVENTS, NAME, Shop, run_name, run_names

CHECKS = {"feed_not_blocked", "lag", "rows_accounted_for", "few_bad_rows", "rows_in_warehouse", "nothing_behind_watermark"}
CHECKS |= {REGISTERED, LOADED, FIT}


@pytest.fixture
def loaded(shredded: DagsterShop) -> DagsterShop:
    """A shop with five runs, the first three of them loaded."""
    assert shredded.drain(max_items=3).success
    return shredded


def _failed(shop: DagsterShop) -> set[str]:
    evaluations = shop.checks()
    assert set(evaluations) == CHECKS
    return {name for name, evaluation in evaluations.items() if not evaluation.passed}


def _lose_rows(shop: Shop) -> None:
    warehouse = DuckDB(shop.home / "warehouse.duckdb")
    warehouse.execute("DELETE FROM shop.events USING (SELECT min(event_id) AS first FROM shop.events) WHERE event_id = first")
    warehouse.close()


def _miscount(shop: Shop) -> None:
    tamper(shop, 1, "shred", lambda data: data.update(good=data["good"] - 1))


def _let_bad_rows_pass(shop: Shop) -> None:
    tamper(shop, 1, "shred", lambda data: data.update(good=data["lines"] - 15, bad=15))


def _register_behind_the_watermark(shop: Shop) -> None:
    """Registers an item against the manifest's rules, as if a store had been combined from two backups."""
    earlier = "run=2024-05-14-12-05-00"
    with closing(sqlite3.connect(shop.home / "manifest.db")) as store, store:
        rows = store.execute("SELECT sort, data FROM manifest WHERE sort LIKE 'RECORD#%'").fetchall()
        [(sort, text)] = [row for row in rows if run_name(1) in row[0] and json.loads(row[1])["state"] == "New"]
        for old, new in ((run_name(1), earlier), (run_name(1)[4:], earlier[4:])):
            sort, text = sort.replace(old, new), text.replace(old, new)
        record = {**json.loads(text), "record_id": "00000000-0000-4000-8000-000000000000"}
        insert = "INSERT INTO manifest SELECT partition, ?, 1, ? FROM manifest LIMIT 1"
        store.execute(insert, (sort, json.dumps(record)))


TABLE = "com_acme_order_1_recovered_1_0_1_5f3a9c21"


def _break_a_model(shop: Shop) -> None:
    """Records that two runs wrote rows of a version that breaks its model."""
    remark = f"table {TABLE}: column a is bigint in 1-0-0 but string in 1-0-1; publish 1-0-1 as a new model"
    for number in (1, 2):
        tamper(shop, number, "shred", lambda data: data.update(remarks=[remark], types={TABLE: {"1-0-1": 3, "-": 1}}))


def _let_the_oldest_wait(shop: Shop) -> None:
    """Changes the first record of a waiting item, so that it was discovered two hours ago."""
    with closing(sqlite3.connect(shop.home / "manifest.db")) as store, store:
        for sort, text in store.execute("SELECT sort, data FROM manifest WHERE sort LIKE 'RECORD#%'").fetchall():
            record = json.loads(text)
            if run_name(3) in sort and record["state"] == "New":
                record["timestamp"] = (datetime.now(UTC) - timedelta(hours=2)).isoformat()
                store.execute("UPDATE manifest SET data = ? WHERE sort = ?", (json.dumps(record), sort))


def _fail_the_next(shop: Shop) -> None:
    break_listing(shop, 3)
    with shop.open() as pipeline, pipeline.lease(FEED, LOAD) as lease:
        load(pipeline, lease, next_ready(pipeline))


def test_all_pass_on_a_good_state(loaded: DagsterShop) -> None:
    assert _failed(loaded) == set()


def test_tables_of_users_are_not_checked(loaded: DagsterShop) -> None:
    with closing(DuckDB(loaded.shop.home / "warehouse.duckdb")) as warehouse:
        warehouse.execute(f"CREATE TABLE {warehouse.qualified(NAME, 'mine')} AS SELECT 1 AS one")
    assert _failed(loaded) == set()


@pytest.mark.stores("sqlite")
@pytest.mark.parametrize(
    ("breaking", "checks"),
    [
        (_fail_the_next, {"feed_not_blocked"}),
        (_let_the_oldest_wait, {"lag", LOADED}),
        (_miscount, {"rows_accounted_for"}),
        (_let_bad_rows_pass, {"few_bad_rows"}),
        (_lose_rows, {"rows_in_warehouse"}),
        (_break_a_model, {FIT}),
        (_register_behind_the_watermark, {"nothing_behind_watermark", LOADED}),
    ],
)
def test_each_check_fails_on_its_fault(loaded: DagsterShop, breaking: Callable[[Shop], None], checks: set[str]) -> None:
    breaking(loaded.shop)
    assert _failed(loaded) == checks


@pytest.mark.stores("sqlite")
def test_failed_checks_name_the_fault(loaded: DagsterShop) -> None:
    _fail_the_next(loaded.shop)
    _miscount(loaded.shop)
    _lose_rows(loaded.shop)
    _register_behind_the_watermark(loaded.shop)
    _let_the_oldest_wait(loaded.shop)
    shown = {name: evaluation.metadata for name, evaluation in loaded.checks().items()}
    assert shown["feed_not_blocked"]["item"].value == run_name(3)
    assert shown["feed_not_blocked"]["command"].value == f"manifest-platform resolve {run_name(3)}"
    assert 7200 <= float(str(shown["lag"]["lag_seconds"].value)) < 7300
    assert shown["lag"]["backlog"].value == 2
    assert shown["rows_accounted_for"]["wrong"].value == run_name(1)
    assert shown["rows_in_warehouse"]["wrong"].value == "events"
    assert shown["nothing_behind_watermark"]["behind"].value == "run=2024-05-14-12-05-00"


def test_rows_are_summed_in_the_warehouse(loaded: DagsterShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check once read the whole ledger, which only grows."""
    read: list[LedgerEntry] = []
    page = Ledger._page

    def counted(self: Ledger, *arguments: Any) -> list[LedgerEntry]:
        found = page(self, *arguments)
        read.extend(found)
        return found

    monkeypatch.setattr(Ledger, "_page", counted)
    monkeypatch.setattr(feed_checks, "NEWEST", 3)
    check = loaded.checks()["rows_in_warehouse"]
    assert check.passed
    assert [entry.item.rpartition("/")[2] for entry in read] == [run_name(2)], "of three that are loaded"
    _lose_rows(loaded.shop)
    assert not loaded.checks()["rows_in_warehouse"].passed


def test_bad_rows_are_reported_with_their_runs(loaded: DagsterShop) -> None:
    _let_bad_rows_pass(loaded.shop)
    check = loaded.checks()["few_bad_rows"]
    assert {name: check.metadata[name].value for name in ("runs", "lines", "bad", "above")} == {
        "runs": 5,
        "lines": 5 * EVENTS,
        "bad": 15,
        "above": 1,
    }
    assert f"; {run_name(1)}: 15 of {EVENTS}." in (check.description or "")


def test_a_table_of_a_version_that_breaks_its_model_is_named_with_what_to_do(loaded: DagsterShop) -> None:
    assert loaded.checks()[FIT].metadata["tables"].value == 0
    _break_a_model(loaded.shop)
    check = loaded.checks()[FIT]
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert check.description == (
        f"8 rows are in {TABLE} (newest directory: {run_name(2)}), because column a is bigint in 1-0-0 but string in 1-0-1;"
        " publish 1-0-1 as a new model"
    )
    assert [check.metadata[name].value for name in ("tables", "rows")] == [1, 8]


def test_a_late_run_is_not_a_gap(fresh: DagsterShop) -> None:
    with fresh.shop.open() as pipeline:
        fresh.shop.land(pipeline, 2)
        fresh.drain()
        fresh.shop.land(pipeline, 0)
    evaluation = fresh.checks()["nothing_behind_watermark"]
    assert evaluation.passed
    assert evaluation.metadata["late"].value == run_name(0)
    fresh.drain()
    assert fresh.checks()["nothing_behind_watermark"].metadata["late"].value == ""
    assert fresh.metadata("warehouse", 0)["late"] is True


def test_waiting_is_not_being_blocked(fresh: DagsterShop) -> None:
    with fresh.shop.open() as pipeline:
        fresh.shop.land(pipeline, 0)
    evaluation = fresh.checks()["feed_not_blocked"]
    assert evaluation.passed
    assert evaluation.metadata["backlog_waiting"].value == 1
    assert float(str(evaluation.metadata["lag_seconds"].value)) >= 0


def test_entries_of_the_landing_root_that_are_no_items_are_reported(
    fresh: DagsterShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh.shop.write(0, 1)
    (fresh.shop.directory(1) / "_SUCCESS").unlink()
    first = fresh.tick()
    assert _landed(first).passed, "it is being written"
    (fresh.shop.home / "landing" / "Run=2024-05-14-12-30-00").mkdir()
    monkeypatch.setattr(landing, "ABANDONED", timedelta(0))
    second = _landed(fresh.tick(first.cursor))
    assert not second.passed
    assert f"1 not complete yet: {run_name(1)} (unchanged since " in str(second.description)
    assert "rename it to run=2024-05-14-12-30-00" in str(second.description)
    assert {name: second.metadata[name].value for name in ("incomplete", "unparseable")} == {"incomplete": 1, "unparseable": 1}
    assert not fresh.checks()[REGISTERED].passed


def _landed(result: dg.SensorResult) -> dg.AssetCheckEvaluation:
    """Returns the sensor's check of the landing root."""
    [found] = [one for one in result.asset_events if isinstance(one, dg.AssetCheckEvaluation) and one.check_name == REGISTERED]
    return found


NOW = datetime(2024, 5, 14, 12, tzinfo=UTC)
LATER = NOW + timedelta(days=1)


@pytest.mark.parametrize(
    ("told", "listed", "now", "due"),
    [
        (None, None, NOW, False),
        (None, NOW, NOW, True),
        ([NOW, None], NOW, LATER, False),
        ([NOW, None], LATER, LATER, True),
        ([NOW, None], None, LATER, False),
        ([NOW, NOW], NOW, NOW + AGAIN / 2, False),
        ([NOW, NOW], NOW, NOW + AGAIN, True),
        ([NOW, LATER], NOW, NOW, True),
    ],
)
def test_directories_are_compared_after_each_full_listing_and_every_hour_while_that_fails(
    told: list[datetime | None] | None, listed: datetime | None, now: datetime, due: bool
) -> None:
    assert is_due(None if told is None else json.dumps([one and str(one) for one in told]), listed, now) is due


@pytest.mark.stores("sqlite")
def test_what_was_never_loaded_is_one_warning_and_what_was_lost_an_error(
    fresh: DagsterShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh.shop.write(0, 1, 2)
    young, cursor = _folders(fresh.tick())
    assert young.passed
    monkeypatch.setattr(folder_checks, "in_steps", partial(in_steps, age=0))
    assert _folders(fresh.tick(cursor)) == (None, None), "everything was listed once"
    warned, cursor = _folders(fresh.tick())
    assert (warned.passed, warned.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert warned.description == f"3 landed and never loaded: {', '.join(run_names(0, 1, 2))}"
    counts = ("not_loaded", "lost", "deleted", "incomplete", "directories", "requests")
    assert [warned.metadata[name].value for name in counts] == [3, 0, 0, 0, 3, 0]
    assert [record.data["directory"] for record in warned.metadata["first"].value.records] == run_names(0, 1, 2)
    shutil.rmtree(fresh.shop.directory(1))
    assert _folders(fresh.tick(cursor)) == (None, None), "compared again after an hour"
    monkeypatch.setattr(folder_checks, "AGAIN", timedelta(0))
    failed, _ = _folders(fresh.tick(cursor))
    assert (failed.passed, failed.severity) == (False, dg.AssetCheckSeverity.ERROR)
    skip, explain = str(failed.metadata["commands"].value).splitlines()
    assert skip == f"manifest-platform skip {run_name(1)} --reason TEXT"
    assert explain == f"manifest-platform explain {run_name(0)}"
    with fresh.shop.open() as pipeline:
        assert failed.description == compare(pipeline, age=0).summary, "the command says the same"


@pytest.mark.stores("sqlite")
def test_a_comparison_that_takes_longer_than_its_second_goes_on_at_the_next_tick(
    fresh: DagsterShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh.shop.write(*range(9))
    monkeypatch.setattr(folder_checks, "SECONDS", 0.0)
    monkeypatch.setattr(folders, "STRETCH", 3)
    monkeypatch.setattr(folder_checks, "in_steps", partial(in_steps, age=0))
    results = [fresh.tick()]
    for _ in range(3):
        results.append(fresh.tick(results[-1].cursor))
    evaluated = [_folders(one)[0] for one in results]
    assert [one is not None for one in evaluated] == [False, False, False, True]
    assert evaluated[-1].metadata["not_loaded"].value == 9


def _folders(result: dg.SensorResult) -> Any:
    """Returns the sensor's comparison of the landing root, and the cursor after it; None twice if it made none."""
    found = [one for one in result.asset_events if isinstance(one, dg.AssetCheckEvaluation) and one.check_name == LOADED]
    return (found[0], result.cursor) if found else (None, None)


# Checks of loads


def _declare(shop: DagsterShop, *checks: dict[str, Any]) -> DagsterShop:
    """Returns the shop with these checks, in a code location that was loaded again."""
    whole = yaml.safe_load(shop.config_file.read_text())
    whole["datasets"][NAME]["load"] = {"checks": list(checks)}
    shop.config_file.write_text(yaml.safe_dump(whole))
    return DagsterShop(shop.shop, shop.instance)


def test_a_check_of_a_load_is_a_check_of_the_asset(shredded: DagsterShop) -> None:
    few: dict[str, Any] = {"name": "few", "table": "events", "kind": "rows", "max": 1, "severity": "warn"}
    shop = _declare(shredded, few, {**few, "name": "lag", "max": 1000, "severity": "error"})
    assert shop.checks()["check_few"].description == "No load was checked yet."
    assert shop.drain(max_items=1).success
    warned, passed = (shop.checks()[f"check_{name}"] for name in ("few", "lag"))
    assert (warned.passed, warned.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert warned.description == f"check few of table events: {EVENTS} rows; allowed: at most 1"
    assert {name: value.value for name, value in warned.metadata.items()} == {
        "item": run_name(0),
        "table": "events",
        "value": EVENTS,
        "found": f"{EVENTS} rows",
        "limit": "at most 1",
    }
    assert passed.passed
    drained = _declare(shredded, {**few, "severity": "error"}).drain()
    assert not drained.success
    [evaluated] = [one for one in drained.get_asset_check_evaluations() if one.check_name == "check_few"]
    assert (evaluated.passed, evaluated.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert evaluated.metadata["item"].value == run_name(1)
    assert evaluated.description == f"check few of table events: {EVENTS} rows; allowed: at most 1"
