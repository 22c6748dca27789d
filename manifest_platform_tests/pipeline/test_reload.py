"""Reloads: loaded rows are replaced in one transaction, whatever kills the worker, and the feed's order stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from manifest_platform.manifest import Refused
from manifest_platform.manifest.reading import OPERATOR
from manifest_platform.operations.decide import skip
from manifest_platform.operations.doctor import Doctor
from manifest_platform.operations.reload import reload, reload_all, replacing
from manifest_platform.operations.standing import step_status
from manifest_platform.operations.tables import states_of_tables
from manifest_platform.pipeline import Budget, Pipeline, Stop
from manifest_platform.remedies import Action
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.pipeline.shop import Shop, drained, history, keys, loaded_record, run_names, watermark
from manifest_platform_tests.pipeline.test_crashes import LEASE, drained_after_lease, killed

RUNS = 3


@pytest.fixture
def shop(tmp_path: Path, spark: Any) -> Shop:
    """A shop whose runs are loaded."""
    shop = Shop(tmp_path, lease=LEASE)
    shop.shredded(spark, RUNS)
    with shop.open() as pipeline:
        drained(pipeline)
    return shop


def spoil(shop: Shop, number: int, pipeline: Pipeline) -> None:
    """Changes the loaded rows of a run by hand."""
    at = loaded_record(pipeline, number).data["applied_at"].removesuffix("+00:00")
    pipeline.warehouse._engine.write("UPDATE shop.events SET app_id = 'spoiled' WHERE load_tstamp = ?", (at,))


def spoiled(pipeline: Pipeline) -> int:
    return pipeline.warehouse.query("SELECT count(*) FROM events WHERE app_id = 'spoiled'")[1][0][0]


def wrong(pipeline: Pipeline) -> list[object]:
    """The faults that the commands `tables` and `doctor` report. They open the file by themselves."""
    pipeline.warehouse.close()
    return [*states_of_tables(pipeline).differences, *Doctor(pipeline, objects=False).examine().findings]


def test_a_reload_replaces_the_rows_of_an_item_behind_the_watermark(shop: Shop) -> None:
    before = shop.seen
    with shop.open() as pipeline:
        spoil(shop, 0, pipeline)
        [key] = keys(pipeline, 0)
        at, stands = watermark(pipeline), pipeline.manifest.state(pipeline.load).feed(FEED)
        assert spoiled(pipeline) > 0
        shown = replacing(pipeline, key)
        rows = loaded_record(pipeline, 0).data["rows"]
        assert shown.removes == shown.loads == {table: count for table, count in rows.items() if count}
        reload(pipeline, key, "rows were changed by hand")
        status = step_status(pipeline, FEED, "load")
        assert (status.reloads, status.late, status.remedies["reloads"].action) == ([key.name], [], Action.EXPLAIN)
        report = drained(pipeline)[1]
        assert (report.stop, report.loaded, spoiled(pipeline)) == (Stop.IDLE, 1, 0)
        assert history(pipeline, 0)[-3:] == ["operator New", "load Processing", "load Processed"]
        assert pipeline.manifest.history(key)[-3].author and watermark(pipeline) == at
        now = pipeline.manifest.state(pipeline.load).feed(FEED)
        assert (now.applied, now.reloads, now.swept) == (stands.applied, 0, stands.swept)
        assert wrong(pipeline) == []
        assert drained(pipeline)[1].loaded == 0
    after = shop.seen
    assert (after.rows, after.applied, after.runs) == (before.rows, before.applied, [*run_names(0, 1, 2), *run_names(0)])
    assert shop.doubled_events == []


def test_new_output_of_a_reloaded_item_is_what_is_loaded(shop: Shop) -> None:
    """Later loads follow, and a second reload replaces the rows of the first."""
    with shop.open() as pipeline:
        for reason in ("first", "again"):
            reload(pipeline, keys(pipeline, 1)[0], reason)
            assert drained(pipeline)[1].loaded == 1
    assert shop.doubled_events == []
    assert shop.seen.runs == [*run_names(0, 1, 2), *run_names(1, 1)]


@pytest.mark.parametrize(
    ("point", "committed"),
    [
        pytest.param("load.claimed", False, marks=pytest.mark.long),
        pytest.param("load.before_transaction", False, marks=pytest.mark.long),
        ("load.in_transaction", False),
        ("load.committed", True),
    ],
)
def test_a_worker_killed_in_a_reload_loses_and_doubles_nothing(shop: Shop, point: str, committed: bool) -> None:
    before = shop.seen
    with shop.open() as pipeline:
        spoil(shop, 0, pipeline)
        reload(pipeline, keys(pipeline, 0)[0], "rows were changed by hand")
        asked = pipeline.manifest.history(keys(pipeline, 0)[0])[-1]
    killed(shop.process(f"{point}:kill"))
    with shop.open() as pipeline:
        assert (spoiled(pipeline) == 0) == committed
        report = drained_after_lease(pipeline)
        assert (report.stop, report.failed, spoiled(pipeline)) == (Stop.IDLE, 0, 0)
        [key] = keys(pipeline, 0)
        item = pipeline.manifest.item(key)
        entry = pipeline.warehouse.ledger_entry(FEED, key.id, 1)
        assert entry and entry.record_id in item.attempts_since(asked, pipeline.load)
        attempts = [one for one in history(pipeline, 0) if one == "load Processing"]
        assert len(attempts) == (2 if committed else 3)
        assert wrong(pipeline) == []
    assert (shop.seen.rows, shop.seen.applied, shop.doubled_events) == (before.rows, before.applied, [])


def test_a_late_item_is_reloaded(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path, load={"late": "append"})
    with shop.open() as pipeline:
        shop.land(pipeline, 1)
        drained(pipeline, spark)
        shop.land(pipeline, 0)
        drained(pipeline, spark)
        before = shop_rows(pipeline)
        spoil(shop, 0, pipeline)
        reload(pipeline, keys(pipeline, 0)[0], "rows were changed by hand")
        assert drained(pipeline)[1].loaded == 1
        assert (spoiled(pipeline), shop_rows(pipeline)) == (0, before)
        assert wrong(pipeline) == []


def shop_rows(pipeline: Pipeline) -> dict[str, int]:
    return pipeline.warehouse.row_counts()


def test_a_reload_whose_rows_are_gone_fails_until_it_is_allowed(shop: Shop) -> None:
    before = shop.seen
    with shop.open() as pipeline:
        [key] = keys(pipeline, 0)
        pipeline.warehouse._engine.write("DELETE FROM shop.events WHERE event_id IN (SELECT event_id FROM shop.events LIMIT 1)")
        reload(pipeline, key, "a row is lost")
        report = drained(pipeline)[1]
        assert (report.stop, report.remedy and report.remedy.action) == (Stop.BLOCKED, Action.RELOAD_MISSING), report
        reload(pipeline, key, "a row is lost", missing_rows=True)
        assert drained(pipeline)[1].stop is Stop.IDLE
    assert shop.seen.rows == before.rows


def test_a_warehouse_that_was_set_back_to_before_a_reload_gets_it_again(shop: Shop, tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse.duckdb"
    copy = warehouse.read_bytes()
    with shop.open() as pipeline:
        reload(pipeline, keys(pipeline, 1)[0], "first")
        drained(pipeline)
        at = loaded_record(pipeline, 1).record_id
    warehouse.write_bytes(copy)
    from manifest_platform.operations.reconcile import reconcile

    with shop.open() as pipeline:
        assert drained(pipeline)[1].stop is Stop.BLOCKED
        [done] = reconcile(pipeline, "restored")
        assert [one.name for one in done.freed] == run_names(1)
        assert drained(pipeline)[1].stop is Stop.IDLE
        assert loaded_record(pipeline, 1).record_id != at
        assert wrong(pipeline) == []
    assert shop.doubled_events == []


def test_what_is_not_loaded_is_not_reloaded(shop: Shop, spark: Any) -> None:
    with shop.open() as pipeline:
        [key] = shop.land(pipeline, RUNS)
        with pytest.raises(Refused, match="is not loaded by load"):
            reload(pipeline, key, "too early")
        [first] = keys(pipeline, 0)
        with pipeline.manifest.rehearsing():
            reload_all([pipeline], first, "a dry run")
        assert history(pipeline, 0)[-1] == "load Processed"
        record = reload_all([pipeline], first, "once")
        assert (record.application, record.data["reason"]) == (OPERATOR, "once")
        with pytest.raises(Refused, match="waits already to be reloaded"):
            reload(pipeline, first, "twice")
        with pytest.raises(Refused, match="A skip would leave them there"):
            skip(pipeline, first, "not wanted")
        drained(pipeline, spark, Budget(items=1))
        assert spoiled(pipeline) == 0
