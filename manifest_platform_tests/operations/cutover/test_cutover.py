"""The cutover from Snowplow's loader, on a schema `atomic` as that loader leaves it."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import __version__, failpoints
from manifest_platform.manifest import Refused
from manifest_platform.operations import bad_replay
from manifest_platform.operations.bad_replay import replay, with_bad_rows
from manifest_platform.operations.cutover import NothingToTakeOver, adopt, compare, look
from manifest_platform.operations.doctor import Doctor
from manifest_platform.operations.reload import reload, replacing
from manifest_platform.operations.reshred import reshred
from manifest_platform.operations.tables import states_of_tables
from manifest_platform.pipeline import Event, Loaded, Stop
from manifest_platform.pipeline.discovery import discover
from manifest_platform.sources.cutover import FormerRuns
from manifest_platform.sources.snowplow.cutover import SnowplowLoader
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.pipeline.shop import (
    EVENTS,
    Shop,
    drained,
    history,
    keys,
    loaded_record,
    run_name,
    run_names,
    watermark,
)

ATOMIC = {"load": {"schema_name": "atomic"}}
NOTES = "CREATE TABLE atomic.manifest (base VARCHAR(512), types VARCHAR, ingestion_tstamp TIMESTAMP, count_good INT)"
NOTED = datetime(2024, 5, 15, tzinfo=UTC)
LOADER = SnowplowLoader()
LOADERS_COLUMNS = (
    *("base", "types", "shredding_started", "shredding_completed", "min_collector_tstamp", "max_collector_tstamp"),
    *("ingestion_tstamp", "compression", "processor_artifact", "processor_version", "count_good"),
)
"""The columns of the loader's table `manifest`, as its release 5.6.3 creates it, in their order."""


def former(home: Path, spark: Any, *numbers: int, landed: int = 4, noted: dict[int, int] | None = None) -> Shop:
    """A shop whose first runs another loader has loaded into `atomic`, and noted as Snowplow's loader does."""
    shop = Shop(home, **ATOMIC)
    shop.shredded(spark, landed)
    with shop.open() as pipeline:
        for number in range(landed):
            if number not in numbers:
                pipeline.manifest.skip(pipeline.key(run_name(number)), "not loaded by the other loader", "load")
        drained(pipeline)
    (home / "manifest.db").unlink()
    with closing(shop.place.open()) as warehouse:
        warehouse.execute("DROP SCHEMA manifest_platform CASCADE")
        warehouse.execute(NOTES)
    note(shop, dict.fromkeys(numbers, EVENTS) | (noted or {}))
    return shop


def note(shop: Shop, rows: dict[int, int], types: str = "iglu:com.acme/link_click/jsonschema/1-0-0") -> None:
    with closing(shop.place.open()) as warehouse:
        for number, count in rows.items():
            base = f"s3://acme/transformed/{run_name(number)}/"
            told = json.dumps([{"schemaKey": types, "format": "TSV"}])
            at = (NOTED + number * timedelta(minutes=10)).replace(tzinfo=None)
            warehouse.execute("INSERT INTO atomic.manifest VALUES (?, ?, ?, ?)", (base, told, at, count))


def loaded(events: list[Event]) -> list[str]:
    return [event.key.name for event in events if isinstance(event, Loaded)]


def test_the_tables_are_checked_without_writing(tmp_path: Path, spark: Any):
    shop = former(tmp_path, spark, 0, 2)
    with shop.open() as pipeline:
        found = look(pipeline)
    assert ([*found.runs], found.never_loaded, found.newer, found.gone) == (
        run_names(0, 2),
        tuple(run_names(1)),
        tuple(run_names(3)),
        (),
    )
    assert (found.rows, found.noted, found.hindrances) == (2 * EVENTS, 2 * EVENTS, [])
    assert {"events", "com_acme_link_click_1"} <= {one.table for one in found.tables}
    assert "com_acme_page_1" in found.strangers
    with closing(shop.place.open(read_only=True)) as warehouse:
        assert not warehouse.columns("manifest_platform")


def test_loads_go_on_in_the_tables_after_the_newest_run(tmp_path: Path, spark: Any):
    shop = former(tmp_path, spark, 0, 1, 2)
    with shop.open() as pipeline:
        planned = adopt(pipeline, dry_run=True)
        assert (planned.entered, planned.imported.dry_run, planned.imported.added) == (3, True, 3)
        done = adopt(pipeline)
        assert (done.entered, done.imported.added, watermark(pipeline)) == (3, 3, run_name(2)[len("run=") :])
        again = adopt(pipeline)
        assert (again.entered, again.imported.records) == (0, 0)
        assert (planned.found.adopted, again.found.adopted) == ((), tuple(run_names(0, 1, 2)))
        discover(pipeline, everything=True)
        events, _ = drained(pipeline, spark)
        assert loaded(events) == run_names(3)
        with closing(shop.place.open()) as warehouse:
            assert warehouse.execute("SELECT count(*), count(DISTINCT event_id) FROM atomic.events") == [(4 * EVENTS,) * 2]
        assert [one.text for one in states_of_tables(pipeline).differences] == []
        assert Doctor(pipeline).examine().findings == []
        assert pipeline.warehouse.applied_rows("enriched", 1)["events"] == 4 * EVENTS
        assert look(pipeline).hindrances == []


def test_runs_of_the_former_loader_that_come_after_a_takeover_are_taken_over_too(tmp_path: Path, spark: Any):
    shop = former(tmp_path, spark, 0, 1, 2, noted={})
    with closing(shop.place.open()) as warehouse:
        warehouse.execute(f"DELETE FROM atomic.manifest WHERE base LIKE '%{run_name(2)}/'")
    with shop.open() as pipeline:
        assert adopt(pipeline).entered == 2
        note(shop, {2: EVENTS})
        assert adopt(pipeline).entered == 1
        assert pipeline.warehouse.applied_rows("enriched", 1)["events"] == 3 * EVENTS
        discover(pipeline, everything=True)
        drained(pipeline, spark)
        assert [one.text for one in states_of_tables(pipeline).differences] == []


def test_runs_that_were_never_loaded_are_loaded_on_request_only(tmp_path: Path, spark: Any):
    shop = former(tmp_path, spark, 0, 2)
    with shop.open() as pipeline:
        with pytest.raises(Refused, match=r"1 runs have landed that Snowplow's loader never loaded.*--load-missing"):
            adopt(pipeline)
        adopt(pipeline, load_missing=True)
        discover(pipeline, everything=True)
        events, _ = drained(pipeline, spark)
        assert sorted(loaded(events)) == run_names(1, 3)


def test_a_crash_between_ledger_and_log_loads_nothing_twice(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch):
    shop = former(tmp_path, spark, 0, 1)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with shop.open() as pipeline, monkeypatch.context() as patch:
        real = adopt.__globals__["import_items"]
        patch.setitem(adopt.__globals__, "import_items", lambda *a, **k: real(*a, **k) if k.get("dry_run") else killed())
        with pytest.raises(KeyboardInterrupt):
            adopt(pipeline)
    with shop.open() as pipeline:
        discover(pipeline, everything=True)
        drained(pipeline, spark)
        with closing(shop.place.open()) as warehouse:
            assert warehouse.execute("SELECT count(*), count(DISTINCT event_id) FROM atomic.events") == [(4 * EVENTS,) * 2]


@pytest.mark.parametrize("log", [True, False], ids=["entered", "entered after a crash"])
def test_rows_of_a_former_loader_are_not_loaded_again(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, log: bool):
    """Its load times are in no row, so a reload would remove nothing and load everything once more."""
    shop = former(tmp_path, spark, 0, 1)
    with shop.open() as pipeline:
        adopt(pipeline)
    if not log:
        (tmp_path / "manifest.db").unlink()
    with shop.open() as pipeline:
        discover(pipeline, everything=True)
        drained(pipeline, spark)
        [key] = keys(pipeline, 0)
        for missing_rows in (False, True):
            with pytest.raises(Refused, match=r"was loaded by a former loader, so its rows cannot be told"):
                reload(pipeline, key, "wrong rows", missing_rows)
        with pytest.raises(Refused, match="was loaded by a former loader"):
            replacing(pipeline, key)
        with pytest.raises(Refused, match="a replay might double them"):
            replay(pipeline, [key], "schema fixed")
        with monkeypatch.context() as patch:
            patch.setattr(bad_replay, "count_open", lambda *_: 1)
            found = [item.key for item in with_bad_rows(pipeline, FEED)]
            assert found and key not in found, "it would keep all later items from a replay"
        if log:
            with pytest.raises(Refused, match="is skipped for shred: unskip it"):
                reshred(pipeline, key, "schema fixed")
            pipeline.manifest.unskip(key, "its objects are wanted")
            assert drained(pipeline, spark)[1].loaded == 0
        else:
            monkeypatch.setattr("manifest_platform.operations.reload.is_of_former_loader", lambda *_: False)
            reload(pipeline, key, "wrong rows", missing_rows=True)
            _, report = drained(pipeline, spark)
            assert "was loaded by a former loader, so its rows cannot be told" in report.reason
        [[rows]] = pipeline.warehouse.query("SELECT count(*) FROM events")[1]
    assert rows == 4 * EVENTS


def test_a_killed_takeover_enters_nothing(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch):
    shop = former(tmp_path, spark, 0, 1)

    def die(point: str) -> None:
        if point == "takeover.in_transaction":
            raise KeyboardInterrupt

    with shop.open() as pipeline, monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", die)
        with pytest.raises(KeyboardInterrupt):
            adopt(pipeline)
    with shop.open() as pipeline:
        assert adopt(pipeline).entered == 2


def test_tables_are_not_taken_over_if_loads_could_not_go_on(tmp_path: Path, spark: Any):
    shop = former(tmp_path, spark, 0, 1)
    with closing(shop.place.open()) as warehouse:
        warehouse.execute("ALTER TABLE atomic.events ALTER COLUMN txn_id TYPE DATE USING NULL")
    with shop.open() as pipeline:
        assert look(pipeline).hindrances == ["events: column txn_id: the warehouse has date, the item has integer"]
        with pytest.raises(Refused, match="the tables of Snowplow's loader cannot be taken over: events: column txn_id"):
            adopt(pipeline)
    with closing(shop.place.open()) as warehouse:
        warehouse.execute("ALTER TABLE atomic.events ALTER COLUMN txn_id TYPE INTEGER USING NULL")
    note(shop, {1: EVENTS})
    with shop.open() as pipeline, pytest.raises(Refused, match=f"notes {run_name(1)} more than once"):
        adopt(pipeline)


def test_a_type_that_no_registry_has_is_a_hindrance(tmp_path: Path, spark: Any):
    shop = former(tmp_path, spark, 0)
    note(shop, {1: EVENTS}, "iglu:com.acme/never_published/jsonschema/1-0-0")
    with shop.open() as pipeline:
        [problem] = look(pipeline).hindrances
    assert problem.startswith("iglu:com.acme/never_published/jsonschema/1-0-0 was loaded, and its columns are not known")


def test_a_dataset_that_loads_elsewhere_is_refused(tmp_path: Path, spark: Any):
    former(tmp_path, spark, 0, 1, 2, 3)
    beside = Shop(tmp_path, load={"schema_name": "beside"})
    with beside.open() as pipeline:
        [hindrance] = look(pipeline).hindrances
        assert "set datasets.shop.load.schema_name: atomic" in hindrance
        with pytest.raises(Refused, match=r"set datasets\.shop\.load\.schema_name: atomic"):
            adopt(pipeline)


def test_a_dataset_that_has_loaded_is_refused(tmp_path: Path, spark: Any):
    shop = Shop(tmp_path, **ATOMIC)
    shop.shredded(spark, 4)
    with shop.open() as pipeline:
        drained(pipeline)
    with closing(shop.place.open()) as warehouse:
        warehouse.execute(NOTES)
    note(shop, {0: EVENTS})
    with shop.open() as pipeline:
        hindrances = look(pipeline).hindrances
        assert any("steps have worked on feed enriched: " in one for one in hindrances)
        assert any(f"the ledger has {run_name(1)}, which this platform has loaded itself" in one for one in hindrances)
        with pytest.raises(Refused, match="steps have worked on feed enriched"):
            adopt(pipeline)


def test_a_drain_before_the_takeover_loads_nothing_and_blames_no_run(tmp_path: Path, spark: Any):
    shop = former(tmp_path, spark, 0, 1)
    with shop.open() as pipeline:
        discover(pipeline, everything=True)
        _, report = drained(pipeline, spark)
    assert "schema atomic has the table manifest, in which Snowplow's loader notes" in report.reason
    with shop.open() as pipeline:
        assert not [*pipeline.manifest.attention(pipeline.source.main, pipeline.load.key)]
    with closing(shop.place.open(read_only=True)) as warehouse:
        [[rows]] = warehouse.execute("SELECT count(*) FROM atomic.events")
    assert rows == 2 * EVENTS
    with shop.open() as pipeline:
        adopt(pipeline)
        assert loaded(drained(pipeline, spark)[0]) == run_names(2, 3)


def test_a_schema_without_notes_has_nothing_to_take_over(tmp_path: Path):
    with Shop(tmp_path, **ATOMIC).open() as pipeline, pytest.raises(NothingToTakeOver, match="Name their schema with --schema"):
        look(pipeline)


def test_rows_of_both_loaders_are_compared_run_by_run(tmp_path: Path, spark: Any):
    shop = former(tmp_path, spark, 0, 1)
    beside = Shop(shop.home, load={"schema_name": "beside"})
    with beside.open() as pipeline:
        discover(pipeline, everything=True)
        drained(pipeline, spark)
        same = list(compare(pipeline))
        assert {one.item for one in same} == {*run_names(0, 1)}
        assert [one for one in same if not one.same] == []
        assert {"events", "com_acme_link_click_1"} <= {one.table for one in same}
        assert sum(one.ours for one in same if one.table == "events") == 2 * EVENTS
        pipeline.warehouse.release(idle=True)
        with closing(shop.place.open()) as warehouse:
            warehouse.execute(
                "UPDATE atomic.events SET app_id = 'other' WHERE event_id = (SELECT min(event_id) FROM atomic.events)"
            )
            warehouse.execute("DELETE FROM atomic.events WHERE event_id = (SELECT max(event_id) FROM atomic.events)")
            warehouse.execute("ALTER TABLE atomic.events DROP COLUMN br_type")
        changed = [one for one in compare(pipeline) if not one.same]
        assert sum(one.different for one in changed) == 2
        assert (sum(one.missing for one in changed), sum(one.ours - one.theirs for one in changed)) == (1, 1)
        assert changed[0].left_out == ("br_type",)


def test_a_table_that_one_side_lacks_and_rows_that_are_there_more_often_differ(tmp_path: Path, spark: Any):
    shop = former(tmp_path, spark, 0, 1)
    beside = Shop(shop.home, load={"schema_name": "beside"})
    with beside.open() as pipeline:
        discover(pipeline, everything=True)
        drained(pipeline, spark)
        pipeline.warehouse.release(idle=True)
        with closing(shop.place.open()) as warehouse:
            warehouse.execute("DROP TABLE atomic.com_acme_page_1")
            warehouse.execute("DROP TABLE beside.com_acme_user_1")
            for schema, last in (("beside", "min"), ("atomic", "max")):  # one event is twice on one side, another on the other
                one = f"event_id = (SELECT {last}(event_id) FROM {schema}.events)"
                warehouse.execute(f"INSERT INTO {schema}.events SELECT * FROM {schema}.events WHERE {one}")
        found = [*compare(pipeline)]
    different = {(one.table, one.ours > 0, one.theirs > 0) for one in found if not one.same}
    assert {("com_acme_page_1", True, False), ("com_acme_user_1", False, True)} <= different
    pages = [one for one in found if one.table == "com_acme_page_1"]
    assert all((one.different, one.missing) == (one.ours, 0) for one in pages) and len(pages) == 2
    users = [one for one in found if one.table == "com_acme_user_1"]
    assert all((one.different, one.missing) == (0, one.theirs) for one in users) and users
    events = [one for one in found if one.table == "events"]
    assert (sum(one.ours for one in events), sum(one.different for one in events)) == (2 * EVENTS + 1, 1)
    assert (sum(one.theirs for one in events), sum(one.missing for one in events)) == (2 * EVENTS + 1, 1)


def test_notes_of_all_releases_are_read():
    at = datetime(2024, 5, 14, 12)
    found = LOADER.runs(["BASE", "INGESTION_TSTAMP"], [("s3://a/run=x/", at)])
    assert [(one.place, one.rows, one.types) for one in found.runs] == [("s3://a/run=x", None, ())]
    types = [{"schemaKey": "iglu:com.acme/a/jsonschema/1-0-1", "snowplowEntity": "CONTEXT"}]
    rows = [
        ("s3://a/run=x/", types, at, 3),
        ("s3://a/run=y/", "no json", at, 3),
        ("", None, at, 3),
        ("s3://a/z", None, None, 3),
    ]
    found = LOADER.runs(["base", "types", "ingestion_tstamp", "count_good"], rows)
    assert [(one.rows, one.types) for one in found.runs] == [(3, ("iglu:com.acme/a/jsonschema/1-0-1",))]
    assert len(found.problems) == 3
    with pytest.raises(ValueError, match="has no column base"):
        LOADER.runs(["id"], [])
    assert LOADER.runs(["base", "ingestion_tstamp"], []) == FormerRuns(())


def test_a_view_goes_on_where_the_loaders_own_table_ended(tmp_path: Path, spark: Any):
    """The order of the how-to: take over, rename the loader's table, load. Until it is renamed, no item fails."""
    former(tmp_path, spark, 0, 1, landed=3)
    shop = Shop(tmp_path, load={"schema_name": "atomic", "manifest_view": "manifest"})
    with shop.open() as pipeline:
        adopt(pipeline)
        discover(pipeline, everything=True)
        _, report = drained(pipeline, spark)
        assert report.stop is Stop.UNAVAILABLE and "Rename the table, such as to manifest_before" in report.reason
        assert not any("Failed" in words for words in history(pipeline, 2))
        pipeline.warehouse.engine.execute("ALTER TABLE atomic.manifest RENAME TO manifest_before")
        events, _ = drained(pipeline, spark)
        assert loaded(events) == run_names(2)
        columns, rows = pipeline.warehouse.query("SELECT * FROM manifest ORDER BY base")
        [(first, last)] = pipeline.warehouse.query("SELECT min(collector_tstamp), max(collector_tstamp) FROM events")[1]
        record = loaded_record(pipeline, 2)
        pipeline.warehouse.close()
        assert Doctor(pipeline).examine().findings == states_of_tables(pipeline).differences == []
    assert tuple(columns) == LOADERS_COLUMNS
    shown = [dict(zip(columns, row, strict=True)) for row in rows]
    assert [one["base"] for one in shown] == [f"{tmp_path.as_uri()}/landing/{name}/" for name in run_names(0, 1, 2)]
    assert [one["count_good"] for one in shown] == [EVENTS] * 3
    assert json.loads(shown[0]["types"]) == [{"schemaKey": "iglu:com.acme/link_click/jsonschema/1-0-0", "format": "TSV"}]
    assert {one["schemaKey"]: one["format"] for one in json.loads(shown[2]["types"])}.items() >= {
        "iglu:com.acme/link_click/jsonschema/1-0-0": "TSV"
    }.items()
    assert [one["ingestion_tstamp"] for one in shown[:2]] == [
        (NOTED + n * timedelta(minutes=10)).replace(tzinfo=None) for n in (0, 1)
    ]
    assert shown[2]["ingestion_tstamp"].isoformat() == record.data["applied_at"].removesuffix("+00:00")
    assert shown[2]["shredding_started"] <= shown[2]["shredding_completed"] <= shown[2]["ingestion_tstamp"]
    assert first <= shown[2]["min_collector_tstamp"] <= shown[2]["max_collector_tstamp"] == last
    assert [shown[2][name] for name in LOADERS_COLUMNS[7:10]] == ["NONE", "manifest-platform", __version__]
