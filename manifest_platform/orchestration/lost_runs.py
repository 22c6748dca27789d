"""Lost runs: those that Dagster counts as running, and whose worker is gone with the code server that started it.

A code server tells Dagster of a worker of its own that died. Where it was killed as well, or the machine was started anew,
nobody does: such a run counts as running for ever, and whatever waits for it by its tags or its pool, as the drains of a feed
do, waits for ever too. A sensor is evaluated by the code server, on the machine where all workers are. So it can look.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from dagster._core.launcher import DefaultRunLauncher
from dagster._core.storage.tags import GRPC_INFO_TAG, REPOSITORY_LABEL_TAG

from manifest_platform.orchestration.wiring import Wiring, is_about

_SLOW_CLOCK_S = 10
"""By so much the machine's count of seconds since its start may be off."""
_FIRST_EVENTS = 30
"""The worker says its process id among the first events of a run."""


@dataclass(frozen=True)
class Worker:
    """The process that a run says it works in, and when it said so; seconds since 1970."""

    pid: int
    said: float

    @property
    def is_gone(self) -> bool:
        """Whether there is no such process, or another one has its number by now."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # it is there
        began = _began(self.pid)
        return began is not None and began > self.said + _SLOW_CLOCK_S


def _began(pid: int) -> float | None:
    """When a process began, seconds since 1970; never, for one that only waits to be reaped; None where nothing says so."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        booted = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
    except (OSError, StopIteration):
        return None
    if fields[0] == "Z":
        return float("inf")
    return int(booted.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def build_lost_run_sensor(seconds: int, wirings: Mapping[str, Wiring], name: str | None = None) -> dg.SensorDefinition:
    """The sensor that fails runs whose worker is gone, so that what waits for them goes on; with a name, of its datasets."""

    def ours(run: dg.DagsterRun) -> bool:
        return is_about(run, wirings)

    @dg.sensor(
        name=f"{name or 'manifest'}_lost_run_sensor",
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Fails runs that count as running and whose worker is gone: killed together with the code server.",
    )
    def lost_run_sensor(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        location = context.code_location_origin.location_name if context.code_location_origin else None
        label = f"{context.repository_name}@{location}" if location else None
        failed = [run.run_id for run in fail_lost_runs(context.instance, label, ours if name else None)]
        return dg.SkipReason(f"failed, for their workers are gone: {', '.join(failed)}" if failed else "no run is lost")

    return lost_run_sensor


def fail_lost_runs(
    instance: dg.DagsterInstance, label: str | None, ours: Callable[[dg.DagsterRun], bool] | None = None
) -> Iterator[dg.DagsterRun]:
    """Fails the runs of a code location's repository that are lost, and gives them; those of other launchers are left alone.

    `ours`: of these runs which; None for all.
    """
    if type(instance.run_launcher) is not DefaultRunLauncher:
        return  # its workers are elsewhere
    tags = {REPOSITORY_LABEL_TAG: label} if label else {}
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED], tags=tags)):
        if ours and not ours(run):
            continue
        worker = _worker(instance, run.run_id) if GRPC_INFO_TAG in run.tags else None
        if worker is None or not worker.is_gone:
            continue
        latest = instance.get_run_by_id(run.run_id)  # a worker tells of its end before it ends
        if latest and latest.status is dg.DagsterRunStatus.STARTED:
            message = (
                f"the run's worker (process {worker.pid}) is gone, and so is the code server that started it: they were killed,"
                " or the machine was started anew. What the run committed counts; another one settles the rest"
            )
            instance.report_run_failed(latest, message)
            yield latest


def _worker(instance: dg.DagsterInstance, run_id: str) -> Worker | None:
    """The process of a run's worker; None before it says so."""
    found = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT, limit=_FIRST_EVENTS).records
    for record in found:
        event = record.event_log_entry.get_dagster_event()
        pid = event.engine_event_data.metadata.get("pid")
        if pid is not None:
            return Worker(int(str(pid.value)), record.event_log_entry.timestamp)
    return None
