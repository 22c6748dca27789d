"""Runs whose worker is gone, together with the code server that started it, are failed; others are left alone."""

import os
import subprocess
import sys
import time

import dagster as dg
import pytest
from dagster._core.events import EngineEventData
from dagster._core.storage.tags import GRPC_INFO_TAG

from manifest_platform.orchestration import lost_runs
from manifest_platform.orchestration.lost_runs import Worker, build_lost_run_sensor, fail_lost_runs


@dg.op
def nothing() -> None: ...


@dg.job
def idle() -> None:
    nothing()


@pytest.fixture(autouse=True)
def _launched_here(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the instance's launcher count as the launcher of local workers."""
    monkeypatch.setattr(lost_runs, "DefaultRunLauncher", type(instance.run_launcher))


@pytest.fixture
def gone() -> int:
    """The id of a process that was killed."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process.kill()
    process.communicate()
    return process.pid


def started(instance: dg.DagsterInstance, pid: int | None, **tags: str) -> dg.DagsterRun:
    """Returns a run that counts as running, with a process that it has reported."""
    status = dg.DagsterRunStatus.STARTED
    run = instance.create_run_for_job(idle, status=status, tags={GRPC_INFO_TAG: "{}", **tags})
    if pid is not None:
        said = EngineEventData({"pid": dg.MetadataValue.text(str(pid))})
        instance.report_engine_event("Started process for run", run, said)
    return run


def lost(instance: dg.DagsterInstance, label: str | None = None) -> list[str]:
    return [run.run_id for run in fail_lost_runs(instance, label)]


def test_a_run_whose_worker_is_gone_fails(instance: dg.DagsterInstance, gone: int) -> None:
    run, other = started(instance, gone), started(instance, os.getpid())
    assert lost(instance) == [run.run_id]
    found = instance.get_run_by_id(run.run_id)
    assert found and found.status is dg.DagsterRunStatus.FAILURE
    assert lost(instance) == []
    found = instance.get_run_by_id(other.run_id)
    assert found and found.status is dg.DagsterRunStatus.STARTED


def test_a_run_without_a_reported_process_is_left_alone(instance: dg.DagsterInstance) -> None:
    started(instance, None)
    assert lost(instance) == []


def test_a_run_that_ends_meanwhile_is_not_failed(
    instance: dg.DagsterInstance, gone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(instance, gone)

    def ends(_: Worker) -> bool:
        instance.report_dagster_event(
            dg.DagsterEvent(dg.DagsterEventType.RUN_SUCCESS.value, run.job_name, message="done"), run.run_id
        )
        return True

    monkeypatch.setattr(lost_runs.Worker, "is_gone", property(ends))
    assert lost(instance) == []
    found = instance.get_run_by_id(run.run_id)
    assert found and found.status is dg.DagsterRunStatus.SUCCESS


def test_runs_of_other_launchers_are_left_alone(
    instance: dg.DagsterInstance, gone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(instance, gone, **{".dagster/repository": "__repository__@ours"})
    assert lost(instance, "__repository__@theirs") == []
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(lost_runs, "DefaultRunLauncher", str)
        assert lost(instance) == [], "a launcher that has its workers elsewhere"
    assert lost(instance, "__repository__@ours") == [run.run_id]


def test_a_run_of_a_command_line_is_left_alone(instance: dg.DagsterInstance, gone: int) -> None:
    run = instance.create_run_for_job(idle, status=dg.DagsterRunStatus.STARTED)
    instance.report_engine_event("here", run, EngineEventData({"pid": dg.MetadataValue.text(str(gone))}))
    assert lost(instance) == []


def test_a_later_process_with_the_same_id_is_not_the_worker() -> None:
    own = os.getpid()
    assert not Worker(own, time.time()).is_gone
    assert Worker(own, time.time() - 10 * 86_400).is_gone


def test_a_zombie_process_counts_as_gone() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    deadline = time.monotonic() + 20
    while not (gone := Worker(process.pid, time.time()).is_gone) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert gone
    process.wait()


def test_the_lost_run_sensor_reports_the_failed_runs(instance: dg.DagsterInstance, gone: int) -> None:
    sensor = build_lost_run_sensor(30, {})
    with dg.build_sensor_context(instance=instance) as context:
        assert "no run is lost" in str(sensor(context))
        run = started(instance, gone)
        assert run.run_id in str(sensor(context))
