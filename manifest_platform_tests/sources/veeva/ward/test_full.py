"""Full loads: the cases F1 to F20, through the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from manifest_platform import failpoints
from manifest_platform.manifest import (
    ClaimLost,
    ConditionFailed,
    OutcomeUnknown,
    Ready,
    Refused,
    Standing,
    StoreUnavailable,
    UnknownItem,
)
from manifest_platform.manifest.dataset import Mode
from manifest_platform.manifest.store import Write
from manifest_platform.operations.doctor import Doctor, Kind
from manifest_platform.pipeline import LOAD, Pipeline, Stop
from manifest_platform.pipeline.full import cancel, full_status
from manifest_platform.pipeline.loading import load
from manifest_platform.remedies import Action, Remedy
from manifest_platform.warehouse.apply import Warehouse
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.errors import Fenced
from manifest_platform_tests.sources.veeva.ward.ward import (
    AUDIT,
    DAY,
    FULL,
    INCR,
    LEGACY,
    LOG,
    NAME,
    PRODUCT,
    Ward,
    at,
    attempts,
    begun,
    crashing,
    drained,
    full,
    history,
    incr,
    incrs,
    key_of,
    land,
    left_by_a_dead_worker,
    log,
    mend,
    replayed,
    spoil,
    standings,
    started,
    state,
    watermark,
)

"""Settings for the cases that test the warehouse only, and repeat the others."""

BEFORE = incrs("0101-2345", "0000")
AFTER = incrs("0015", "0045")
SECOND = full("0000", {PRODUCT: {"last": "0000", "0101-2345": "changed", "0000": "changed"}})
REPLAYED = replayed([SECOND, *AFTER])
"""Checks the tables after the second snapshot and the windows behind it: invariant I6."""


@pytest.fixture
def ready(pipeline: Pipeline) -> Pipeline:
    """Returns a ward loaded from a snapshot of 23:30 up to 00:45; a snapshot of 00:00 has landed."""
    started(pipeline, "0101-2330", *BEFORE, *AFTER)
    drained(pipeline)
    land(pipeline, SECOND)
    return pipeline


def told(pipeline: Pipeline, feed: str = INCR) -> dict[str, list[str]]:
    """Returns all records of all windows of a feed."""
    return {item.key.name: [record.record_id for record in item.records] for item in pipeline.manifest.items(feed)}


def test_F1_a_begun_full_load_holds_all_other_loads_and_touches_no_window(ward: Ward, ready: Pipeline) -> None:
    records, epoch, seen = told(ready), state(ready).epoch, ward.seen
    done = begun(ready, "0000")
    assert (done.epoch, done.boundary) == (epoch + 1, "2026-01-02T00:00Z")
    assert (state(ready).mode, state(ready).epoch, watermark(ready)) == (Mode.FULL_LOAD, epoch + 1, "0045")
    assert (told(ready), ward.seen) == (records, seen)
    drained(ready, feeds=[FULL])
    wanted = {"0101-2345": "superseded", "0000": "superseded", "0015": "ready", "0030": "ready", "0045": "ready"}
    assert standings(ready) == {stop: Standing(one) for stop, one in wanted.items()}
    assert told(ready) == records
    drained(ready)
    assert [attempts(ready, stop) for stop in wanted] == [1, 1, 2, 2, 2]


def test_F2_only_the_snapshot_is_loaded(ward: Ward, ready: Pipeline) -> None:
    land(ready, incr("0100"), log("0000"))
    begun(ready, "0000")
    before = ward.seen
    _, report = drained(ready, feeds=[INCR, LOG])
    assert report.loaded == 0
    assert {end.feed: end.stop for end in report.ends} == {INCR: Stop.BLOCKED, LOG: Stop.BLOCKED}
    assert {end.reason for end in report.ends} == {f"load is loading {SECOND.name} in full: other feeds wait"}
    assert ward.seen == before
    assert drained(ready)[1].stop is Stop.IDLE
    order = ["full 0000", "incr 0015", "incr 0030", "incr 0045", "incr 0100", "log 0000"]
    assert ward.seen.applied[len(before.applied) :] == order


def test_F3_F4_a_failed_full_load_holds_all_loads_until_it_is_reset(ward: Ward, ready: Pipeline) -> None:
    land(ready, incr("0100"), log("0000"))
    before = ward.seen
    begun(ready, "0000")
    taken = spoil(ready, "0000", FULL)
    for failed in (1, 0):
        _, report = drained(ready)
        assert (report.loaded, report.failed, report.stop, report.feed) == (0, failed, Stop.BLOCKED, FULL)
        assert report.remedy == Remedy(Action.RESOLVE, item=SECOND.name)
    assert (state(ready).mode, watermark(ready)) == (Mode.FULL_LOAD, "0045")
    assert (ward.seen.tables, ward.seen.ledger) == (before.tables, before.ledger)
    mend(taken)
    ready.manifest.resolve(key_of(ready, "0000", FULL), "put back")
    assert drained(ready)[1].stop is Stop.IDLE
    assert ward.seen.tables == replayed([SECOND, *AFTER, incr("0100"), log("0000")])


def test_F5_the_windows_behind_a_snapshot_are_replayed_in_order(ward: Ward, ready: Pipeline) -> None:
    epoch = begun(ready, "0000").epoch
    drained(ready, feeds=[FULL])
    assert (state(ready).mode, state(ready).epoch, watermark(ready)) == (Mode.INCREMENTAL, epoch, "0000")
    assert ward.seen.tables == replayed([SECOND])
    land(ready, incr("0100"))
    assert drained(ready)[1].stop is Stop.IDLE
    assert ward.seen.ledger[-5:] == [
        (name, epoch) for name in ("full 0000", "incr 0015", "incr 0030", "incr 0045", "incr 0100")
    ]
    assert ward.seen.tables == replayed([SECOND, *AFTER, incr("0100")])
    assert ward.seen.fences[INCR][1:] == (epoch, "0100")


def test_a_snapshot_fences_the_workers_of_all_feeds_logs_too(ward: Ward, ready: Pipeline) -> None:
    epoch = begun(ready, "0000").epoch
    drained(ready, feeds=[FULL])
    assert {feed: fence[1] for feed, fence in ward.seen.fences.items()} == dict.fromkeys((INCR, LOG, FULL), epoch)


def test_F6_a_window_that_failed_behind_the_snapshot_is_tried_again(ward: Ward, ready: Pipeline) -> None:
    land(ready, incr("0100"))
    taken = spoil(ready, "0100")
    drained(ready)
    assert standings(ready)["0100"] is Standing.FAILED
    mend(taken)
    begun(ready, "0000")
    assert drained(ready)[1].stop is Stop.IDLE
    assert history(ready, "0100")[-3:] == ["load Failed permanent", "load Processing", "load Processed"]
    assert ward.seen.tables == replayed([SECOND, *AFTER, incr("0100")])


def test_F7_a_window_that_failed_before_the_snapshot_is_superseded(ward: Ward, pipeline: Pipeline) -> None:
    started(pipeline, "0101-2330", *BEFORE)
    spoil(pipeline, "0101-2345")
    drained(pipeline)
    land(pipeline, SECOND, *AFTER)
    assert drained(pipeline)[1].stop is Stop.BLOCKED
    begun(pipeline, "0000")
    assert drained(pipeline)[1].stop is Stop.IDLE
    assert standings(pipeline)["0101-2345"] is Standing.SUPERSEDED
    assert ward.seen.tables == REPLAYED


class TestOlderWorker:
    """F8: a worker of the older epoch is in the middle of a window when a full load begins."""

    @pytest.fixture(autouse=True)
    def window(self, ready: Pipeline) -> None:
        land(ready, incr("0100"))

    def paused(self, worker: Pipeline, where: object, name: str, meanwhile: Callable[[], object]) -> Exception:
        """Returns what a worker meets that is paused before a call while something else happens."""
        patch = pytest.MonkeyPatch()
        happened: list[bool] = []

        def later(*arguments: Any) -> Any:
            if not happened:
                happened.append(True)
                meanwhile()
            return original(*arguments)

        original = getattr(where, name)
        patch.setattr(where, name, later)
        held = worker.manifest.acquire(INCR, LOAD, "paused", DAY)
        verdict = worker.manifest.next(INCR, LOAD, holding=True)
        assert isinstance(verdict, Ready)
        try:
            with pytest.raises((ClaimLost, Fenced)) as raised:
                load(worker, held, verdict)
        finally:
            patch.undo()
            held.release()
        assert happened
        return raised.value

    def test_F8_a_commit_of_an_older_worker_is_refused(self, ward: Ward, ready: Pipeline, other: Pipeline) -> None:
        def full_load() -> None:
            begun(ready, "0000")
            drained(ready, feeds=[FULL])
            seen.append(ward.seen)

        seen: list[Any] = []
        error = self.paused(other, other.warehouse, "apply", full_load)
        assert isinstance(error, Fenced)
        assert [ward.seen] == seen, "it changed something"
        assert drained(ready)[1].stop is Stop.IDLE
        assert ward.seen.tables == replayed([SECOND, *AFTER, incr("0100")])

    def test_F8_a_completion_by_an_older_worker_is_refused(self, ward: Ward, ready: Pipeline, other: Pipeline) -> None:
        error = self.paused(other, other.manifest, "complete", lambda: begun(ready, "0000"))
        assert isinstance(error, ClaimLost)
        assert ward.seen.applied[-1] == "incr 0100"
        assert watermark(ready) == "0045"
        epoch = state(ready).epoch
        assert drained(ready)[1].stop is Stop.IDLE
        assert ward.seen.ledger.count(("incr 0100", epoch)) == 1
        assert ward.seen.tables == replayed([SECOND, *AFTER, incr("0100")])

    def test_F8_a_claim_from_before_the_full_load_changes_nothing_after_it(
        self, ward: Ward, ready: Pipeline, other: Pipeline
    ) -> None:
        """The snapshot and the windows behind it are loaded before the worker continues."""

        def all_of_it() -> None:
            begun(ready, "0000")
            drained(ready, feeds=[FULL])
            other.manifest.end_leases("other")
            drained(ready)
            seen.append(ward.seen)

        seen: list[Any] = []
        self.paused(other, other.warehouse, "apply", all_of_it)
        assert [ward.seen] == seen
        assert seen[0].tables == replayed([SECOND, *AFTER, incr("0100")])

    def test_F8_an_item_chosen_before_the_full_load_is_not_claimed(self, ward: Ward, ready: Pipeline, other: Pipeline) -> None:
        chosen = other.manifest.next(INCR, LOAD)
        assert isinstance(chosen, Ready)
        begun(ready, "0000")
        with other.lease(INCR, LOAD) as held, pytest.raises(ConditionFailed):
            load(other, held, chosen)
        assert attempts(ready, "0100") == 0
        assert "incr 0100" not in ward.seen.applied

    def test_F9_an_item_left_in_processing_does_not_block(self, ward: Ward, ready: Pipeline) -> None:
        left_by_a_dead_worker(ward)
        begun(ready, "0000")
        drained(ready, feeds=[FULL])
        assert standings(ready)["0100"] is Standing.READY
        assert drained(ready)[1].stop is Stop.IDLE
        ends = ["load Processing", "load Processing", "load Processed"]
        assert history(ready, "0100")[-3:] == ends  # nobody had to end the first
        assert ward.seen.tables == replayed([SECOND, *AFTER, incr("0100")])


def test_F10_a_window_registered_during_a_full_load_is_judged_by_the_new_epoch(
    ward: Ward, pipeline: Pipeline, other: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window is late by the state that its producer read, but not by the state under which it is registered."""
    started(pipeline, "0000", incr("0100", start="0000"))
    drained(pipeline)
    land(pipeline, full("0015"))
    write, written = other.manifest._write, []

    def meanwhile(writes: list[Write]) -> None:
        if not written:
            begun(pipeline, "0015")
            drained(pipeline, feeds=[FULL])
        written.append(len(writes))
        write(writes)

    monkeypatch.setattr(other.manifest, "_write", meanwhile)
    assert land(other, incr("0030"), shredded=False) == ["new"]
    monkeypatch.undo()
    assert len(written) == 2, "the first write was to fail"
    assert len(list(pipeline.manifest.items(INCR))) == 2
    land(pipeline, incr("0030"))
    assert standings(pipeline)["0030"] is Standing.READY
    drained(pipeline)
    assert ward.seen.applied[-1] == "incr 0030"


def test_F11_a_second_full_load_is_refused_while_another_is_in_progress(ward: Ward, ready: Pipeline) -> None:
    land(ready, full("0015"))
    begun(ready, "0000")
    before = state(ready)
    for snapshot in ("0015", "0000", "latest"):
        with pytest.raises(Refused, match="in progress"):
            begun(ready, snapshot)
    assert state(ready) == before
    drained(ready)
    assert "full 0015" not in ward.seen.applied


def test_F12_a_full_load_without_a_snapshot_is_refused(ward: Ward, pipeline: Pipeline) -> None:
    land(pipeline, *incrs("0015", "0030"))
    before = state(pipeline)
    with pytest.raises(Refused, match="no snapshot of dataset") as refused:
        begun(pipeline, "latest")
    assert refused.value.remedy
    assert refused.value.remedy.action is Action.CAPTURE
    with pytest.raises(UnknownItem):
        begun(pipeline, "0000")
    with pytest.raises(Refused, match="is not a snapshot"):
        begun(pipeline, incr("0015").name)
    assert state(pipeline) == before


def test_F13_the_boundary_is_the_snapshots_own_stop_time(ward: Ward, pipeline: Pipeline) -> None:
    """A vault of the Pacific zone."""
    loads_from(ward, pipeline, "0800")


def test_F13_the_first_window_behind_a_snapshot_may_begin_before_its_boundary(ward: Ward, pipeline: Pipeline) -> None:
    """A vault whose zone is off the grid of the windows."""
    loads_from(ward, pipeline, "0807")


def loads_from(ward: Ward, pipeline: Pipeline, stop: str) -> None:
    """Loads a snapshot taken within the loaded windows, and the windows that stop behind it."""
    windows = incrs("0745", "0830")
    started(pipeline, "0730", *windows)
    drained(pipeline)
    snapshot = full(stop, {PRODUCT: {"last": stop}})
    land(pipeline, snapshot)
    assert snapshot.name == f"full/date=2026-01-02T{stop}"
    begun(pipeline, "latest")
    assert drained(pipeline)[1].stop is Stop.IDLE
    assert ward.seen.applied[-3:] == [f"full {stop}", "incr 0815", "incr 0830"]
    assert (ward.seen.tables, watermark(pipeline)) == (replayed([snapshot, *windows[2:]]), "0830")
    assert state(pipeline).boundary == f"2026-01-02T{stop[:2]}:{stop[2:]}Z"


@pytest.mark.parametrize("error", [StoreUnavailable("before"), OutcomeUnknown("after")], ids=["before", "after"])
def test_F14_a_crash_while_a_full_load_begins_rewinds_all_or_nothing(
    ready: Pipeline, other: Pipeline, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A full load begins with one write, of the snapshot's record and the state: no window's record needs rewinding."""
    transact, sent = other.manifest.store.transact, []

    def crash(partition: str, writes: list[Write], token: str) -> None:
        sent.append([write.sort for write in writes])
        if isinstance(error, OutcomeUnknown):
            transact(partition, writes, token)
        raise error

    before = state(ready), told(ready)
    monkeypatch.setattr(other.manifest.store, "transact", crash)
    try:
        begun(other, "0000")
    except (StoreUnavailable, OutcomeUnknown):
        assert error
    assert len(sent) == 1
    assert {sort.partition("#")[0] for sort in sent[0]} == {"RECORD", "STATE"}
    assert [sort for sort in sent[0] if sort.startswith(f"RECORD#{INCR}")] == []
    if isinstance(error, StoreUnavailable):
        assert (state(ready), told(ready)) == before
    else:
        assert (state(ready).mode, told(ready)) == (Mode.FULL_LOAD, before[1])


@pytest.mark.parametrize("point", ["full.committed", "full.in_transaction", "full.shadows_built"])
def test_F15_a_crash_before_or_after_the_commit_of_a_snapshot(
    ward: Ward, ready: Pipeline, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    begun(ready, "0000")
    before = ward.seen
    with crashing(point):
        drained(ready)
    assert (state(ready).mode, watermark(ready)) == (Mode.FULL_LOAD, "0045")
    apply, applied = Warehouse.apply, []

    def counted(self: Warehouse, load: Any) -> Any:
        applied.append(load.feed)
        return apply(self, load)

    monkeypatch.setattr(Warehouse, "apply", counted)
    if point == "full.committed":
        assert ward.seen.applied[-1] == "full 0000"
    else:
        assert (ward.seen.tables, ward.seen.ledger) == (before.tables, before.ledger)
    assert drained(ready)[1].stop is Stop.IDLE
    assert applied.count(FULL) == (0 if point == "full.committed" else 1)
    assert state(ready).mode == Mode.INCREMENTAL
    assert ward.seen.applied.count("full 0000") == 1
    assert ward.seen.tables == REPLAYED
    assert not [name for name in ready.warehouse.row_counts() if "__mp_" in name]


@pytest.mark.parametrize("crash", ["", "full.in_transaction", "full.committed"])
def test_F15_a_snapshot_that_was_loaded_before_is_loaded_again(ward: Ward, ready: Pipeline, crash: str) -> None:
    """The ledger's row from an older epoch does not count."""
    begun(ready, "0000")
    drained(ready)
    epoch = begun(ready, "0000").epoch
    if crash:
        with crashing(crash):
            drained(ready)
    assert drained(ready)[1].stop is Stop.IDLE
    assert [one for window, one in ward.seen.ledger if window == "full 0000"] == [epoch - 1, epoch]
    assert attempts(ready, "0045") == 3
    assert ward.seen.tables == REPLAYED


def test_F16_tables_that_a_snapshot_lacks_become_empty_and_logs_and_legacy_workflows_stay(
    ward: Ward, pipeline: Pipeline
) -> None:
    objects = {PRODUCT: {"a": "1"}, "study__v": {"s": "1"}, "site__v": {"t": "1"}, "legacy_site__c": {"l": "1"}}
    land(pipeline, full("0101-2330", {**objects, LEGACY: {"w1": "done"}, "task_legacy__sys": {"t1": "done"}}))
    begun(pipeline, "latest")
    land(pipeline, incr("0101-2345", {"device__v": {"d": "1"}, PRODUCT: {"b": "1"}}), log("0000"))
    drained(pipeline)
    ledger = ward.seen.ledger
    second = full("0101-2345", {PRODUCT: {"a": "1", "b": "1"}, "site__v": {}, LEGACY: {"w2": "done"}})
    land(pipeline, second)
    begun(pipeline, "latest")
    assert drained(pipeline)[1].stop is Stop.IDLE
    assert ward.seen.tables == {
        PRODUCT: {"a": "1", "b": "1"},
        "study__v": {},
        "site__v": {},
        "legacy_site__c": {},
        "device__v": {},
        LEGACY: {"w1": "done", "w2": "done"},
        "task_legacy__sys": {"t1": "done"},
        AUDIT: {"login 0000": "ok"},
    }
    assert ward.seen.ledger == [*ledger, ("full 0101-2345", 3)]


def test_F17_readers_see_the_old_rows_until_all_are_new(ward: Ward, ready: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(ready, "0000")
    old, seen = ward.seen.tables, {}
    monkeypatch.setattr(failpoints, "reach", lambda point: seen.__setitem__(point, ward.seen.tables))
    drained(ready, feeds=[FULL])
    assert seen["full.shadows_built"] == seen["full.in_transaction"] == old
    assert seen["full.committed"] == ward.seen.tables == replayed([SECOND])


def test_F18_a_full_load_closes_a_gap(ward: Ward, pipeline: Pipeline) -> None:
    started(pipeline, "0000", incr("0015"), incr("0045"))
    assert drained(pipeline)[1].stop is Stop.BLOCKED
    later = full("0103-0000", {PRODUCT: {"last": "next day"}})
    land(pipeline, later, incr("0103-0015"))
    begun(pipeline, "latest")
    assert drained(pipeline)[1].stop is Stop.IDLE
    assert watermark(pipeline) == "0103-0015"
    assert standings(pipeline)["0045"] is Standing.SUPERSEDED
    assert full_status(pipeline, at("0103-0030")).needed == ""
    assert ward.seen.tables == replayed([later, incr("0103-0015")])


class TestCancelled:
    def test_F19_earlier_loads_still_count_after_a_cancel(self, ward: Ward, ready: Pipeline) -> None:
        before, standing = (ward.seen.tables, ward.seen.ledger), standings(ready)
        epoch = begun(ready, "0000").epoch
        cancel(ready, "not now")
        assert (state(ready).mode, state(ready).epoch, watermark(ready)) == (Mode.INCREMENTAL, epoch, "0045")
        assert standings(ready) == standing
        land(ready, incr("0100"), log("0000"))
        assert drained(ready)[1].stop is Stop.IDLE
        assert ward.seen.applied[len(before[1]) :] == ["incr 0100", "log 0000"]
        windows = [full("0101-2330"), *BEFORE, *AFTER, incr("0100"), log("0000")]
        assert ward.seen.tables == replayed(windows)

        begun(ready, "0000")
        drained(ready)
        assert ward.seen.tables == replayed([log("0000"), SECOND, *AFTER, incr("0100")])

    def test_F19_a_full_load_is_canceled_after_a_failed_attempt(self, ward: Ward, ready: Pipeline) -> None:
        begun(ready, "0000")
        taken = spoil(ready, "0000", FULL)
        drained(ready)
        mend(taken)
        before = ward.seen
        cancel(ready, "not now")
        land(ready, incr("0100"))
        assert drained(ready)[1].stop is Stop.IDLE
        assert ward.seen.tables == replayed([full("0101-2330"), *BEFORE, *AFTER, incr("0100")])
        assert ward.seen.ledger[: len(before.ledger)] == before.ledger

    def test_F19_a_cancel_is_refused_once_the_snapshot_is_in_the_warehouse(self, ward: Ward, ready: Pipeline) -> None:
        begun(ready, "0000")
        with crashing("full.committed"):
            drained(ready)
        with pytest.raises(Refused, match="in the warehouse already"):
            cancel(ready, "too late")
        assert state(ready).mode == Mode.INCREMENTAL
        drained(ready)
        assert ward.seen.tables == REPLAYED
        with pytest.raises(Refused, match="nothing to cancel"):
            cancel(ready, "too late")


def test_F20_the_watermark_stays_at_the_applied_window_until_the_snapshot_is_committed(ward: Ward, ready: Pipeline) -> None:
    begun(ready, "0000")
    found = full_status(ready, at("0100"))
    assert (found.mode, found.loading, found.watermarks[INCR]) == (Mode.FULL_LOAD, SECOND.name, "2026-01-02T00:45Z")
    assert found.boundary == "2026-01-01T23:30Z"
    newest = found.snapshots[0]
    assert (newest.item, newest.stop, newest.standing) == (SECOND.name, "2026-01-02T00:00Z", "ready")
    drained(ready, feeds=[FULL])
    found = full_status(ready, at("0100"))
    assert (found.mode, found.loading, found.watermarks[INCR]) == (Mode.INCREMENTAL, None, "2026-01-02T00:00Z")
    assert found.boundary == "2026-01-02T00:00Z"


def test_tables_of_a_killed_full_load_are_found_and_removed(ward: Ward, pipeline: Pipeline) -> None:
    started(pipeline, "0000")
    warehouse = DuckDB(ward.home / "warehouse.duckdb")
    left = warehouse.qualified(NAME, f"{PRODUCT}__mp_shadow_e2_t1")
    warehouse.execute(f"CREATE TABLE {left} (id VARCHAR)")
    warehouse.close()
    pipeline.warehouse.close()
    doctor = Doctor(pipeline)
    [found] = doctor.examine().findings
    assert (found.kind, found.remedy.action) == (Kind.SHADOW, Action.CLEAN)
    assert found.place == f"{NAME}.{PRODUCT}__mp_shadow_e2_t1"
    with pipeline.lease(FULL, LOAD):
        assert doctor.examine().healthy, "somebody is at work"
    assert doctor.clean(doctor.examine()).healthy
    assert doctor.done == [f"dropped table {PRODUCT}__mp_shadow_e2_t1"]
    assert doctor.examine().healthy
