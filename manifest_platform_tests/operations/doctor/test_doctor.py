"""The doctor on whole datasets: real objects, a real warehouse, and manifests restored from backups."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import patch

import pytest

from manifest_platform import failpoints
from manifest_platform.cli import main
from manifest_platform.listing import ABOUT_TABLE, Column, Listing, Table
from manifest_platform.manifest import OUTPUT, Application, Failure, FailureKind, Payload, Ready, State
from manifest_platform.manifest.dump import dump, put_dump
from manifest_platform.manifest.keys import record_key
from manifest_platform.manifest.records import Stamp
from manifest_platform.manifest.store import Delete, Put
from manifest_platform.manifest.stores.sql import SqlStore
from manifest_platform.manifest.transitions import append, put_record, put_state
from manifest_platform.operations.archive import archive
from manifest_platform.operations.doctor import Doctor, Kind, repair
from manifest_platform.pipeline import LOAD, SHRED, Budget, Stop
from manifest_platform.pipeline.chosen import shred_chosen
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.shredding import shredded_payload
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.errors import WarehouseError
from manifest_platform_tests.pipeline.shop import Shop, drained, history, keys, run_name, run_names, watermark

RUNS = 4
LOADED = ["New", "shred Processing", "shred Processed", "load Processing", "load Processed"]


@pytest.fixture(scope="module")
def shredded(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shop with shredded runs."""
    home = tmp_path_factory.mktemp("shredded") / "shop"
    Shop(home).shredded(spark, RUNS)
    return home


@pytest.fixture
def shop(shredded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A copy of that shop in the same place, because items are identified by their URIs."""
    aside = shredded.with_name("aside")
    shutil.copytree(shredded, aside)
    try:
        yield Shop(shredded)
    finally:
        shutil.rmtree(shredded)
        aside.rename(shredded)


def load(shop: Shop, items: int | None = None) -> None:
    with shop.open() as pipeline:
        drained(pipeline, budget=Budget(items=items))


def back_up(shop: Shop) -> Path:
    return Path(shutil.copy(shop.home / "manifest.db", shop.home / "backup.db"))


def put_back(shop: Shop, backup: Path) -> None:
    for file in shop.home.glob("manifest.db*"):
        file.unlink()
    shutil.copy(backup, shop.home / "manifest.db")


def found(shop: Shop, **options: Any) -> list[tuple[Kind, str]]:
    with shop.open() as pipeline:
        return [(one.kind, one.subject) for one in Doctor(pipeline, **options).examine().findings]


def repaired(shop: Shop) -> tuple[list[str], list[tuple[Kind, str]]]:
    with shop.open() as pipeline:
        doctor = Doctor(pipeline)
        left = doctor.repair()
        return doctor.done, [(one.kind, one.subject) for one in left.findings]


def test_a_healthy_dataset_has_no_findings_before_between_and_after_loads(shop: Shop) -> None:
    assert found(shop) == []
    assert not (shop.home / "warehouse.duckdb").exists(), "to look makes nothing"
    load(shop, 2)
    assert found(shop) == []
    load(shop)
    assert found(shop) == []
    assert repaired(shop) == ([], [])


def test_repair_brings_a_restored_manifest_up_to_the_ledger(shop: Shop) -> None:
    load(shop, 1)
    backup = back_up(shop)
    load(shop)
    seen = shop.seen
    put_back(shop, backup)
    assert found(shop) == [(Kind.UNRECORDED, run_name(number)) for number in range(1, RUNS)]
    done, left = repaired(shop)
    assert left == []
    assert len(done) == RUNS - 1
    assert done[0].startswith(f"{run_name(1)}: recorded as loaded at ")
    with shop.open() as pipeline:
        for number in range(RUNS):
            assert history(pipeline, number) == LOADED
            entry = pipeline.warehouse.ledger_entry(FEED, keys(pipeline, number)[0].id, 1)
            record = pipeline.manifest.item(keys(pipeline, number)[0]).processed_by(Application(LOAD))
            assert record
            assert entry
            assert record.epoch == entry.epoch
            assert (record.data["rows"], record.data["applied_at"]) == (entry.rows, entry.applied_at.isoformat())
            assert record.data["bytes"] > 0
        assert watermark(pipeline) == keys(pipeline, RUNS - 1)[0].sort
        assert drained(pipeline)[1].stop is Stop.IDLE
    assert (shop.seen.rows, shop.seen.ledger) == (seen.rows, seen.ledger)


def test_repair_leaves_items_beyond_the_ledger_to_be_loaded(shop: Shop) -> None:
    load(shop, 1)
    backup = back_up(shop)
    load(shop, 1)
    put_back(shop, backup)
    done, left = repaired(shop)
    assert (len(done), left) == (1, [])
    with shop.open() as pipeline:
        assert history(pipeline, 1) == LOADED
        assert history(pipeline, 2) == LOADED[:3]
    load(shop)
    assert shop.seen.ledger == [(name, False) for name in run_names(*range(RUNS))]


def test_items_that_a_restored_manifest_would_load_behind_the_ledger_are_marked_late(shop: Shop) -> None:
    backup = back_up(shop)
    with shop.open() as pipeline:
        pipeline.manifest.skip(keys(pipeline, 1)[0], "not needed", LOAD)
    load(shop)
    put_back(shop, backup)
    done, left = repaired(shop)
    assert left == [(Kind.UNRECORDED, run_name(2)), (Kind.UNRECORDED, run_name(3))]
    assert done[1:] == [
        f"{run_name(1)}: marked late, because the warehouse has passed it and lacks it",
        f"{run_name(1)} comes next and must be loaded: drain, which then records the following items as loaded",
    ]
    with shop.open() as pipeline:
        drained(pipeline)
        assert history(pipeline, 1)[-1] == "load Processed"
    assert shop.seen.runs == run_names(0, 2, 3, 1)
    assert shop.doubled_events == []
    assert found(shop) == []


def test_repair_records_an_item_that_was_appended_late_after_the_backup(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path / "shop")
    with shop.open() as pipeline:
        shop.land(pipeline, 1)
        drained(pipeline, spark)
        list(shred_chosen(pipeline, lambda: spark, shop.land(pipeline, 0)))
    backup = back_up(shop)
    load(shop)
    assert shop.seen.ledger == [(run_name(1), False), (run_name(0), True)]
    put_back(shop, backup)
    assert found(shop) == [(Kind.UNRECORDED, run_name(0))]
    with shop.open() as pipeline, pipeline.lease(FEED, LOAD):
        assert found(shop) == [], "whoever holds the lease may be about to record it"
    done, left = repaired(shop)
    assert (len(done), left) == (1, [])
    with shop.open() as pipeline:
        assert history(pipeline, 0)[-1] == "load Processed"
        assert watermark(pipeline) == keys(pipeline, 1)[0].sort


def fail_next(shop: Shop) -> None:
    with shop.open() as pipeline, pipeline.lease(FEED, LOAD) as lease:
        verdict = pipeline.manifest.next(FEED, LOAD, holding=True)
        assert isinstance(verdict, Ready)
        [claim] = pipeline.manifest.claim(lease, [verdict.item], verdict.state)
        pipeline.manifest.fail(claim, Failure(FailureKind.PERMANENT, "no such column"))


def test_repair_resolves_an_item_that_failed_before_the_backup_and_was_loaded_after_it(shop: Shop) -> None:
    fail_next(shop)
    backup = back_up(shop)
    with shop.open() as pipeline:
        pipeline.manifest.resolve(keys(pipeline, 0)[0], "the column is there")
    load(shop, 1)
    put_back(shop, backup)
    done, left = repaired(shop)
    assert left == []
    assert done[0] == f"{run_name(0)}: resolved, because the warehouse has it: a later attempt succeeded"
    with shop.open() as pipeline:
        assert history(pipeline, 0)[-3:] == ["load Resolved", "load Processing", "load Processed"]


def test_repair_leaves_an_item_failed_that_was_not_loaded(shop: Shop) -> None:
    fail_next(shop)
    assert repaired(shop) == ([], [])
    with shop.open() as pipeline:
        assert history(pipeline, 0)[-1] == "load Failed permanent"


def test_repair_stops_at_a_failed_item_that_was_skipped_after_the_backup(shop: Shop) -> None:
    fail_next(shop)
    backup = back_up(shop)
    with shop.open() as pipeline:
        pipeline.manifest.skip(keys(pipeline, 0)[0], "not needed", LOAD)
    load(shop)
    put_back(shop, backup)
    done, left = repaired(shop)
    assert done == [
        f"{run_name(0)} comes next and is blocked: load failed: no such column. Do this first:"
        " free the item for another attempt"
    ]
    assert left == [(Kind.UNRECORDED, name) for name in run_names(1, 2, 3)]
    with shop.open() as pipeline:
        assert history(pipeline, 0)[-1] == "load Failed permanent"


def test_repair_discovers_directories_that_a_restored_manifest_does_not_know(shop: Shop, spark: Any) -> None:
    load(shop)
    for file in shop.home.glob("manifest.db*"):
        file.unlink()
    assert found(shop, objects=False) == [(Kind.UNKNOWN, name) for name in run_names(*range(RUNS))]
    done, left = repaired(shop)
    assert done == [
        f"discovered {RUNS} directories that the manifest did not know",
        f"{run_name(0)} comes next and is blocked: shred has not processed it yet. Do this first:"
        " drain: do all work that may be done now",
    ]
    assert left == [(Kind.UNRECORDED, name) for name in run_names(*range(RUNS))]
    with shop.open() as pipeline:
        [first, *_] = Doctor(pipeline).examine().findings
        assert (first.remedy, first.repairable) == (Remedy(Action.DRAIN), False)
        seen = shop.seen
        drained(pipeline, spark)
    assert (shop.seen.rows, shop.seen.ledger) == (seen.rows, seen.ledger)
    assert found(shop) == []


@pytest.mark.parametrize("first", ["drain", "doctor"])
def test_repair_and_drain_bring_an_old_backup_up_to_date(tmp_path: Path, spark: Any, first: str) -> None:
    shop = Shop(tmp_path / "shop")
    shop.shredded(spark, 5)
    load(shop, 2)
    with shop.open() as pipeline:
        shop.land(pipeline, 6, 7)
    backup = back_up(shop)
    with shop.open() as pipeline:
        drained(pipeline, spark)
        shop.land(pipeline, 5, 8, 9)
        drained(pipeline, spark)
    seen = shop.seen
    assert seen.runs == run_names(0, 1, 2, 3, 4, 6, 7, 5, 8, 9)
    put_back(shop, backup)

    for turn in range(2):
        if (turn == 0) == (first == "doctor"):
            done, _ = repaired(shop)
            assert bool(done) == (first == "doctor")
        else:
            with shop.open() as pipeline:
                discover(pipeline, everything=True)
                assert drained(pipeline, spark)[1].stop is Stop.IDLE
    assert found(shop) == []
    assert (shop.seen.rows, shop.seen.ledger) == (seen.rows, seen.ledger)
    assert shop.doubled_events == []
    with shop.open() as pipeline:
        assert watermark(pipeline) == keys(pipeline, 9)[0].sort
        assert all(history(pipeline, number)[-1] == "load Processed" for number in range(10))


def test_an_item_that_is_recorded_and_absent_from_the_ledger_is_found(shop: Shop) -> None:
    load(shop)
    warehouse = DuckDB(shop.home / "warehouse.duckdb")
    ledger = warehouse.qualified("manifest_platform", "ledger")
    warehouse.write(f"DELETE FROM {ledger} WHERE item LIKE '%{run_name(1)}%'")
    warehouse.close()
    assert found(shop) == [(Kind.UNLEDGERED, run_name(1))]
    assert repaired(shop) == ([], [(Kind.UNLEDGERED, run_name(1))])
    with shop.open() as pipeline:
        [finding] = Doctor(pipeline).examine().findings
        assert finding.remedy == Remedy(Action.READ_RECORDS, item=run_name(1))
    (shop.home / "warehouse.duckdb").unlink()
    assert found(shop) == [(Kind.UNLEDGERED, name) for name in run_names(*range(RUNS))]
    with shop.open() as pipeline:
        assert {one.remedy for one in Doctor(pipeline).examine().findings} == {Remedy(Action.RECONCILE)}
    assert found(shop, warehouse=False) == []


def test_imported_loads_are_not_expected_in_the_ledger(shop: Shop) -> None:
    with shop.open() as pipeline:
        item = pipeline.manifest.item(keys(pipeline, 0)[0])
        opened = append(item, State.PROCESSING, Application(LOAD), Stamp("import"), previous=item.records[0].record_id)
        done = append(opened, State.PROCESSED, Application(LOAD), Stamp("import"), previous=opened.records[-1].record_id)
        writes = [put_record(item.key, one) for one in done.records[-2:]]
        pipeline.manifest.store.transact(pipeline.name, writes, "import")
    assert found(shop) == [(Kind.STATE, "STATE#load")] * 2, "applied and watermark"
    assert repaired(shop)[1] == []


def test_archived_items_are_examined_like_others(shop: Shop) -> None:
    load(shop)
    place = f"file://{shop.home / 'archive'}"
    with shop.open() as pipeline:
        assert archive(pipeline.manifest, FEED, datetime.now(UTC) + timedelta(hours=1), place).items == RUNS - 1
    assert found(shop, grace=timedelta(0)) == []
    with shop.open() as pipeline:
        store = pipeline.manifest.store
        row = store.get(pipeline.name, "STATE#load")
        assert row
        store.transact(pipeline.name, [Delete(row.sort, row.version)], "gone")
        lines = list(dump(store, pipeline.name))
    assert repaired(shop)[1] == []
    with shop.open() as pipeline:
        assert watermark(pipeline) == keys(pipeline, RUNS - 1)[0].sort
        copy = SqlStore(f"sqlite:///{shop.home}/copy.db")
        put_dump(copy, pipeline.name, lambda: lines)
        assert list(dump(copy, pipeline.name)) == lines


@pytest.mark.parametrize("point", ["load.committed", "load.in_transaction"])
def test_a_dead_claim_is_settled_as_a_drain_does(shop: Shop, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, f"{point}:raise")
    with shop.open() as pipeline, pytest.raises(failpoints.FailpointReached):
        drained(pipeline)
    monkeypatch.delenv(failpoints.VARIABLE)
    committed = point == "load.committed"
    first = run_name(0)
    expected = [(Kind.DEAD_CLAIM, first), *([(Kind.UNRECORDED, first)] if committed else [])]
    assert sorted(found(shop)) == sorted(expected)
    done, left = repaired(shop)
    ended = "Processed" if committed else "Failed, Resolved"
    assert (len(done), left) == (1, [])
    assert done[0].endswith(f"is ended ({ended})")
    load(shop)
    assert shop.seen.runs == run_names(*range(RUNS))
    assert shop.doubled_events == []


def test_the_claim_of_a_dead_shredder_is_ended_and_its_item_shredded_again(shop: Shop, spark: Any) -> None:
    with shop.open() as pipeline:
        [key] = shop.land(pipeline, RUNS)
        with pipeline.lease(FEED, SHRED) as lease:
            pipeline.manifest.claim(lease, [pipeline.manifest.item(key)])
        assert found(shop) == [(Kind.DEAD_CLAIM, run_name(RUNS))]
        assert repaired(shop)[1] == []
        drained(pipeline, spark)
        assert history(pipeline, RUNS)[-1] == "load Processed"


def attempt(shop: Shop, run: str, name: str, age: timedelta) -> Path:
    folder = shop.home / "shredded" / "shop" / run / name / "events"
    folder.mkdir(parents=True)
    file = folder / "part.parquet"
    file.write_bytes(b"12345")
    then = (datetime.now(UTC) - age).timestamp()
    os.utime(file, (then, then))
    return folder.parent


def test_unnamed_objects_are_found_and_removed_after_the_grace_time(shop: Shop) -> None:
    day = timedelta(hours=25)
    before = set((shop.home / "shredded").rglob("*.parquet"))
    died = attempt(shop, run_name(0), "died", day)
    fresh = attempt(shop, run_name(1), "fresh", timedelta(hours=1))
    stranger = attempt(shop, "run=2019-01-01-00-00-00", "stranger", day)
    with shop.open() as pipeline:
        [key] = shop.land(pipeline, RUNS)
        with pipeline.lease(FEED, SHRED) as lease:
            [claim] = pipeline.manifest.claim(lease, [pipeline.manifest.item(key)])
            working = attempt(shop, run_name(RUNS), claim.processing.record_id, day)
            own = attempt(shop, run_name(2), "sessions-1", day)
            prefix = f"file://{own}"
            pipeline.manifest.commit_output(
                keys(pipeline, 2)[0], Application("sessions"), Payload(OUTPUT, {"prefix": prefix, "rows": 1})
            )
            doctor = Doctor(pipeline)
            diagnosis = doctor.examine()
            assert [(one.kind, one.place) for one in diagnosis.findings] == [
                (Kind.ORPHAN, f"file://{stranger}"),
                (Kind.ORPHAN, f"file://{died}"),
            ]
            assert [one.cause.partition(":")[0] for one in diagnosis.findings] == [
                "the manifest has no such item",
                "no completed record names it",
            ]
            left = doctor.clean(diagnosis)
            assert [(one.kind, one.place) for one in left.findings] == [(Kind.ORPHAN, f"file://{stranger}")]
            assert doctor.done == [f"removed file://{died}: 1 objects, 5 bytes"]
            assert stranger.is_dir(), "the manifest may be the wrong one"
            assert not died.exists()
            shutil.rmtree(stranger)
            assert fresh.is_dir()
            assert own.is_dir()
            assert working.is_dir()
            assert before <= set((shop.home / "shredded").rglob("*.parquet"))
            assert [one.place for one in Doctor(pipeline, grace=timedelta(minutes=1)).examine().findings] == [f"file://{fresh}"]
            pipeline.manifest.complete(claim, Payload(OUTPUT, {}))


def test_objects_that_a_record_names_since_the_examination_are_not_removed(shop: Shop) -> None:
    folder = attempt(shop, run_name(2), "sessions-1", timedelta(hours=25))
    with shop.open() as pipeline:
        doctor = Doctor(pipeline)
        diagnosis = doctor.examine()
        assert [one.place for one in diagnosis.findings] == [f"file://{folder}"]
        key = keys(pipeline, 2)[0]
        pipeline.manifest.commit_output(key, Application("sessions"), Payload(OUTPUT, {"prefix": f"file://{folder}"}))
        doctor.clean(diagnosis)
        assert doctor.done == []
    assert folder.is_dir()


def damage(shop: Shop, number: int) -> None:
    with shop.open() as pipeline:
        store = pipeline.manifest.store
        row = store.get(pipeline.name, record_key(keys(pipeline, number)[0], 1))
        assert row
        store.transact(pipeline.name, [Put(row.sort, {**row.data, "state": "Lost"}, row.version)], "damage")


def cleaned(shop: Shop) -> tuple[list[str], list[tuple[Kind, str]]]:
    with shop.open() as pipeline:
        doctor = Doctor(pipeline, grace=timedelta(0))
        left = doctor.clean(doctor.examine())
        return doctor.done, [(one.kind, one.subject) for one in left.findings]


def test_nothing_is_removed_while_an_item_cannot_be_read(shop: Shop) -> None:
    load(shop)
    died = attempt(shop, run_name(0), "died", timedelta(hours=25))
    files = set((shop.home / "shredded").rglob("*.parquet"))
    damage(shop, 1)
    done, left = cleaned(shop)
    assert (done, [kind for kind, _ in left]) == ([], [Kind.UNREADABLE, Kind.ORPHAN, Kind.KEPT])
    assert left[0] == (Kind.UNREADABLE, run_name(1))
    assert set((shop.home / "shredded").rglob("*.parquet")) == files
    assert died.is_dir()


def test_nothing_is_removed_if_an_item_was_damaged_since_the_examination(shop: Shop) -> None:
    died = attempt(shop, run_name(1), "died", timedelta(hours=25))
    with shop.open() as pipeline:
        doctor = Doctor(pipeline)
        diagnosis = doctor.examine()
        damage(shop, 1)
        left = doctor.clean(diagnosis)
    assert (doctor.done, [one.kind for one in left.findings]) == ([], [Kind.UNREADABLE, Kind.ORPHAN])
    assert died.is_dir()


def test_nothing_is_removed_while_the_manifest_lacks_loaded_items(shop: Shop) -> None:
    load(shop, 1)
    backup = back_up(shop)
    load(shop, 1)
    put_back(shop, backup)
    died = attempt(shop, run_name(0), "died", timedelta(hours=25))
    done, left = cleaned(shop)
    assert (done, [kind for kind, _ in left]) == ([], [Kind.ORPHAN, Kind.UNRECORDED, Kind.KEPT])
    assert died.is_dir()


def test_nothing_is_removed_if_the_manifest_is_empty(shop: Shop) -> None:
    files = set((shop.home / "shredded").rglob("*.parquet"))
    for file in shop.home.glob("manifest.db*"):
        file.unlink()
    done, left = cleaned(shop)
    assert (done, [kind for kind, _ in left]) == ([], [Kind.ORPHAN] * RUNS + [Kind.KEPT])
    assert set((shop.home / "shredded").rglob("*.parquet")) == files


def test_a_damaged_item_is_found_although_the_ledger_has_it(shop: Shop) -> None:
    load(shop)
    damage(shop, 1)
    assert found(shop) == [(Kind.UNREADABLE, run_name(1))]


@pytest.mark.parametrize("error", [WarehouseError("no space left"), OSError("no space left")], ids=["foreseen", "not foreseen"])
def test_finished_repairs_are_reported_even_if_a_later_pass_fails(
    shop: Shop, error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> NoReturn:
        raise error

    monkeypatch.setattr(repair, "rewrite_rows_beside", broken)
    monkeypatch.setattr(repair, "adopt", broken)
    for options in ((), ("--json",)):
        with shop.open() as pipeline:
            store = pipeline.manifest.store
            wrong = pipeline.manifest.state(Application(LOAD)).with_feed(FEED, applied=7)
            store.transact(pipeline.name, [put_state(Application(LOAD), wrong)], str(options))
        command = ["doctor", "--repair", "--config", str(shop.config_file), *options]
        done = "state of load: counters, watermarks and epochs were written as the log has them"
        if isinstance(error, WarehouseError):
            assert main(command) == 1
        else:
            with pytest.raises(OSError, match="no space left"):
                main(command)
        told = capsys.readouterr()
        assert done in (told.out if options == () or isinstance(error, WarehouseError) else told.err)
        if options and isinstance(error, WarehouseError):
            assert json.loads(told.out) == {"error": {"type": "WarehouseError", "message": "no space left"}, "done": [done]}


def test_remedies_that_name_another_program_get_no_options(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    with shop.open() as pipeline:
        lease = pipeline.manifest.acquire(FEED, LOAD, "fast clock", timedelta(days=2))
        assert main(["doctor", "--json", "--config", str(shop.config_file)]) == 1
        lease.release()
    [finding] = json.loads(capsys.readouterr().out)["findings"]
    assert finding["command"] == "timedatectl status"


def test_a_locked_warehouse_is_reported_as_unchecked(shop: Shop) -> None:
    load(shop)
    path = str(shop.home / "warehouse.duckdb")
    script = f"import duckdb, sys; held = duckdb.connect({path!r}); print(1, flush=True); sys.stdin.read()"
    holder = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout
        holder.stdout.readline()
        with shop.open() as pipeline:
            [finding] = Doctor(pipeline, patience=0.1).examine().findings
        assert (finding.kind, "is locked by another process" in finding.cause) == (Kind.UNCHECKED, True)
    finally:
        holder.communicate()


def test_the_doctor_command_reports_findings_and_repairs(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--config", str(shop.config_file))
    load(shop, 1)
    backup = back_up(shop)
    load(shop)
    put_back(shop, backup)
    assert main(["doctor", *options]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"✗ {run_name(1)}: loaded but not recorded\n      cause       the warehouse has had it since ")
    assert f" command manifest-platform doctor --repair --config {shop.config_file} " in " ".join(out.split())
    assert out.endswith(f"dataset shop, {RUNS} items: 3 things are wrong\n")
    assert main(["doctor", *options, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in told["findings"]] == ["unrecorded"] * 3
    assert told["findings"][0]["key"]["name"] == run_name(1)
    assert main(["doctor", "--repair", *options]) == 0
    out = capsys.readouterr().out
    assert out.count("✓ ") == 3
    assert out.endswith(f"dataset shop, {RUNS} items: nothing is wrong\n")
    with shop.open() as pipeline:
        record = pipeline.manifest.item(keys(pipeline, 1)[0]).processed_by(Application(LOAD))
        assert record
        assert "(manifest-platform " in record.author
    attempt(shop, run_name(0), "died", timedelta(hours=25))
    assert main(["doctor", *options]) == 1
    assert main(["doctor", "--no-objects", *options]) == 0
    assert main(["doctor", "--grace", "48", *options]) == 0
    assert main(["doctor", "--clean", *options]) == 0
    assert main(["doctor", *options]) == 0


def test_remarks_on_tables_are_noted_and_no_fault(tmp_path: Path) -> None:
    """Remarks such as that of the table of a version that breaks its model, which the drain told once."""
    table = Table("order_recovered", (Column("id", "string"),), descriptions={ABOUT_TABLE: "column id is bigint in 1-0-0"})
    payload = shredded_payload(Listing("a", "1", 1, 1, 0, (table,), ()), "listing.json")
    with Shop(tmp_path).open() as pipeline:
        records = [SimpleNamespace(data=payload.data)] * 2
        with patch.object(type(pipeline.manifest), "newest", lambda *_: records):
            assert Doctor(pipeline).notes() == ["table order_recovered: column id is bigint in 1-0-0"]
        assert Doctor(pipeline).notes() == []
