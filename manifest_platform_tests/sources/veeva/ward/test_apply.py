"""What a window does to the warehouse, and what the manifest says of it: the cases A1 to A10, A12 and A15.

A4, A11, A13, A14, A16 and A17 are about statements and values: they are among the tests of the shredder and the warehouse.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from manifest_platform import failpoints
from manifest_platform.cli import Exit
from manifest_platform.fake_vault import FakeVault, Simulation
from manifest_platform.listing import Listing
from manifest_platform.manifest import Manifest, Standing, State, StoreUnavailable
from manifest_platform.pipeline import ItemFailed, Loaded, Pipeline, Stop
from manifest_platform.storage import local_path
from manifest_platform.warehouse.apply import Warehouse
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.errors import LoadFailed, Unclear
from manifest_platform.warehouse.tables import Tables
from manifest_platform_tests.sources.veeva.ward.ward import (
    INCR,
    PRODUCT,
    Ward,
    attempts,
    begun,
    crashing,
    drained,
    full,
    history,
    incr,
    key_of,
    land,
    mend,
    replayed,
    spoil,
    standings,
    watermark,
)

SNAPSHOT = full("0000", {PRODUCT: {"last": "full", "gone": "old"}, "study__v": {"s": "old"}})
WINDOW = incr("0015", {PRODUCT: {"last": "0015", "gone": None}, "study__v": {"s": "new", "t": "new"}})
AFTER = replayed([SNAPSHOT, WINDOW])


@pytest.fixture
def once(tmp_path: Path, store_url: str) -> Ward:
    """A ward without automatic retries."""
    return Ward(tmp_path, store_url, lease={"max_attempts": 1})


@pytest.fixture
def ward(once: Ward) -> Ward:
    return once


@pytest.fixture
def ready(pipeline: Pipeline) -> Pipeline:
    """A snapshot is loaded, and a window of two tables and a delete is ready."""
    land(pipeline, SNAPSHOT)
    begun(pipeline, "0000")
    drained(pipeline)
    land(pipeline, WINDOW)
    return pipeline


def failure_of(pipeline: Pipeline, window: str = "0015") -> dict[str, Any]:
    """Returns the failure in a window's record."""
    [record] = [one for one in pipeline.manifest.history(key_of(pipeline, window)) if one.state is State.FAILED]
    return record.data


def test_A1_the_watermark_moves_after_the_commit(ward: Ward, ready: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, tuple[str, bool]] = {}

    def look(point: str) -> None:
        seen[point] = watermark(ready), history(ready, "0015")[-1] == "load Processed"

    monkeypatch.setattr(failpoints, "reach", look)
    drained(ready)
    not_yet = dict.fromkeys(
        ["load.claimed", "load.before_transaction", "load.in_transaction", "load.committed"], ("0000", False)
    )
    assert seen == not_yet | {"load.completed": ("0015", True)}
    assert ward.seen.tables == AFTER


def test_A2_a_table_that_fails_leaves_everything_unchanged(ward: Ward, ready: Pipeline) -> None:
    [*files] = spoil(ready, "0015").glob("*/*/*/*.taken")
    for file in files:
        if "study__v" not in str(file):  # only the second table fails
            file.rename(file.with_suffix(".parquet"))
    before = ward.seen
    events, report = drained(ready)
    [failed] = [event for event in events if isinstance(event, ItemFailed)]
    assert (failed.key.name, failed.failure.kind, report.stop) == (WINDOW.name, "permanent", Stop.BLOCKED)
    assert (ward.seen.tables, ward.seen.ledger, ward.seen.fences) == (before.tables, before.ledger, before.fences)
    assert (standings(ready)["0015"], attempts(ready, "0015"), watermark(ready)) == (Standing.FAILED, 1, "0000")
    assert "study__v" in failure_of(ready)["message"]
    ready.close()
    assert ward.command("drain") == Exit.BLOCKED


def test_A3_what_was_deleted_before_a_failure_is_back(ward: Ward, ready: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    deleted: list[str] = []

    def delete(self: Tables, transaction: Any, target: str, several: Any) -> Any:
        deleted.append(target)
        return original(self, transaction, target, several)

    def insert(*_: Any) -> None:
        raise LoadFailed("the insert fails")

    original = Tables.delete
    monkeypatch.setattr(Tables, "delete", delete)
    monkeypatch.setattr(Tables, "insert", insert)
    drained(ready)
    assert PRODUCT in deleted
    assert failure_of(ready)["message"] == "the insert fails"
    assert ward.seen.tables == replayed([SNAPSHOT])


class TestCrashed:
    @pytest.mark.parametrize("point", ["load.committed", "load.completed"])
    def test_A5_a_committed_window_is_completed_from_the_ledger(
        self, ward: Ward, ready: Pipeline, monkeypatch: pytest.MonkeyPatch, point: str
    ) -> None:
        with crashing(point):
            drained(ready)
        assert watermark(ready) == ("0000" if point == "load.committed" else "0015")
        before = ward.seen
        monkeypatch.setattr(Warehouse, "apply", lambda *_: pytest.fail("it is applied again"))
        assert drained(ready)[1].stop is Stop.IDLE
        assert history(ready, "0015")[-2:] == ["load Processing", "load Processed"]
        assert (watermark(ready), attempts(ready, "0015")) == ("0015", 1)
        assert (ward.seen.tables, ward.seen.ledger) == (before.tables, before.ledger)
        assert ward.seen.tables == AFTER

    @pytest.mark.parametrize("point", ["load.claimed", "load.before_transaction", "load.in_transaction"])
    def test_A6_an_uncommitted_window_fails_and_is_loaded_after_a_reset(self, ward: Ward, ready: Pipeline, point: str) -> None:
        with crashing(point):
            drained(ready)
        assert drained(ready)[1].stop is Stop.BLOCKED
        assert history(ready, "0015")[-1] == "load Failed lease_expired"
        assert ward.seen.tables == replayed([SNAPSHOT])
        ready.manifest.resolve(key_of(ready, "0015"), "looked at")
        assert drained(ready)[1].stop is Stop.IDLE
        assert ward.seen.tables == AFTER
        assert ward.seen.applied == ["full 0000", "incr 0015"]

    @pytest.mark.parametrize("committed", [True, False])
    def test_A7_a_connection_lost_at_the_commit(
        self, ward: Ward, ready: Pipeline, monkeypatch: pytest.MonkeyPatch, committed: bool
    ) -> None:
        commit, lost = DuckDB.commit, []

        def unclear(self: DuckDB) -> None:
            if not lost:
                lost.append(True)
                if committed:
                    commit(self)
                self.close()
                raise Unclear("the connection is lost")
            commit(self)

        ready.warehouse.prepare(INCR)
        monkeypatch.setattr(DuckDB, "commit", unclear)
        events, report = drained(ready)
        assert lost == [True]
        kinds = [event.failure.kind for event in events if isinstance(event, ItemFailed)]
        assert (kinds, report.stop) == (([], Stop.IDLE) if committed else (["lease_expired"], Stop.BLOCKED))
        assert ward.seen.tables == (AFTER if committed else replayed([SNAPSHOT]))
        assert (watermark(ready), attempts(ready, "0015")) == ("0015" if committed else "0000", 1)

    @pytest.mark.parametrize("written", [True, False])
    def test_A8_a_manifest_that_cannot_be_written_after_the_commit(
        self, ward: Ward, ready: Pipeline, monkeypatch: pytest.MonkeyPatch, written: bool
    ) -> None:
        complete = Manifest.complete

        def fails(*arguments: Any) -> None:
            if written:
                complete(*arguments)
            raise StoreUnavailable("no answer")

        with monkeypatch.context() as patched:
            patched.setattr(Manifest, "complete", fails)
            assert drained(ready)[1].stop is Stop.UNAVAILABLE
        together = (watermark(ready), history(ready, "0015")[-1])
        assert together == (("0015", "load Processed") if written else ("0000", "load Processing"))
        monkeypatch.setattr(Warehouse, "apply", lambda *_: pytest.fail("it is applied again"))
        assert drained(ready)[1].stop is Stop.IDLE
        assert (watermark(ready), attempts(ready, "0015")) == ("0015", 1)
        assert ward.seen.tables == AFTER


def test_A9_a_file_altered_after_its_capture_fails_before_the_warehouse_is_asked(tmp_path: Path, spark: Any) -> None:
    simulation = Simulation(rows=5, changes=(3, 8))
    with FakeVault(simulation, simulation.begin + timedelta(minutes=90)) as vault:
        ward = Ward(tmp_path, vault=vault)
        with ward.open() as pipeline:
            assert not ward.captured(pipeline).failed
            begun(pipeline, "latest", spark)
            drained(pipeline, spark, feeds=["full"])
            key = pipeline.key("incr/stoptime=202601010015")
            landed = pipeline.manifest.item(key).landed
            assert landed is not None
            [file, *_] = (local_path(landed.place) / "Object").glob("*.csv")
            original = file.read_bytes()
            file.write_bytes(original.replace(b"\r\n", b"\n"))
            _, report = drained(pipeline, spark)
            assert (report.stop, report.item) == (Stop.BLOCKED, key.name)
            assert "altered after it was registered" in report.reason
            assert ward.seen.applied[:1] == ["full 0101-0000"]
            assert not any(window.startswith("incr") for window in ward.seen.applied)

            file.write_bytes(original)
            pipeline.manifest.resolve(key, "the file is put back")
            assert drained(pipeline, spark)[1].stop is Stop.IDLE
    assert ward.differences(simulation, simulation.stop(4), [simulation.begin], logs=simulation.begin) == {}


@pytest.mark.parametrize(
    "error", [LoadFailed("refused"), ValueError("a mistake of ours"), MemoryError()], ids=lambda error: type(error).__name__
)
def test_A10_each_claim_is_executed_once_and_no_failure_repeats_itself(
    ward: Ward, ready: Pipeline, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    applied: list[str] = []

    def apply(_self: Warehouse, load: Any) -> None:
        applied.append(load.record_id)
        raise error

    monkeypatch.setattr(Warehouse, "apply", apply)
    for _ in range(3):
        try:
            assert drained(ready)[1].stop is Stop.BLOCKED
        except (ValueError, MemoryError):
            assert not isinstance(error, LoadFailed)
    assert len(applied) == attempts(ready, "0015") == 1
    assert standings(ready)["0015"] is Standing.FAILED
    assert ward.seen.tables == replayed([SNAPSHOT])


def _with_a_row_that_lacks(listing: Listing) -> Listing:
    first, *rest = listing.objects
    return dataclasses.replace(listing, objects=(dataclasses.replace(first, rows=first.rows + 1), *rest))


def _with_a_key_twice(listing: Listing) -> Listing:
    [object_] = [found for found in listing.objects if found.table == "study__v"]
    rows = pa.parquet.read_table(local_path(object_.uri))
    other = object_.uri.replace("/0.parquet", "/1.parquet")
    pa.parquet.write_table(rows.set_column(1, "name__v", pa.array(["another"] * rows.num_rows)), local_path(other))
    twin = dataclasses.replace(object_, uri=other, bytes=Path(local_path(other)).stat().st_size, checksum=None)
    return dataclasses.replace(listing, objects=(*listing.objects, twin))


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        pytest.param(_with_a_key_twice, "DuplicateKey", id="A12"),
        pytest.param(_with_a_row_that_lacks, "CountMismatch", id="A15"),
    ],
)
def test_A12_A15_what_does_not_fit_fails_the_window_and_changes_nothing(
    ward: Ward, ready: Pipeline, change: Callable[[Listing], Listing], kind: str
) -> None:
    uri = ready.manifest.item(key_of(ready, "0015")).records[-1].data["listing"]
    change(Listing.read(uri)).write(uri)
    _, report = drained(ready)
    assert (report.stop, report.item, failure_of(ready)["exception"]) == (Stop.BLOCKED, WINDOW.name, kind)
    assert ward.seen.tables == replayed([SNAPSHOT])


def test_A2_a_window_resolved_after_its_cause_is_fixed_is_applied(ward: Ward, ready: Pipeline) -> None:
    taken = spoil(ready, "0015")
    drained(ready)
    mend(taken)
    ready.manifest.resolve(key_of(ready, "0015"), "put back")
    events, _ = drained(ready)
    assert [event.key.name for event in events if isinstance(event, Loaded)] == [WINDOW.name]
    assert ward.seen.tables == AFTER
