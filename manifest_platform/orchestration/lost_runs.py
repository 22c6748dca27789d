"""Lost runs: Dagster counts them as running, but their worker is gone, together with the code server that started it.

A code server reports the death of its own workers. If the code server was killed too, or the machine was restarted, nothing
reports it: the run counts as running forever, and whatever waits for it by tag or pool, such as the drains of a feed, waits
forever too. A sensor is evaluated by the code server, on the machine of all workers, so it can check whether they exist.
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
"""The largest error, in seconds, of the machine's clock since boot."""
_FIRST_EVENTS = 30
"""The number of first events of a run in which its worker reports its process id."""


@dataclass(frozen=True)
class Worker:
    """The process that a run reported as its worker, and the time of that report, in seconds since 1970."""

    pid: int
    said: float

    @property
    def is_gone(self) -> bool:
        """True if the process does not exist, or another process has its id now."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # the process exists
        began = _began(self.pid)
        return began is not None and began > self.said + _SLOW_CLOCK_S


def _began(pid: int) -> float | None:
    """Returns the start time of a process, in seconds since 1970. Infinity for a zombie, None if the machine does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        booted = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
    except (OSError, StopIteration):
        return None
    if fields[0] == "Z":
        return float("inf")
    return int(booted.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def build_lost_run_sensor(seconds: int, wirings: Mapping[str, Wiring], name: str | None = None) -> dg.SensorDefinition:
    """Returns the sensor that fails runs whose worker is gone, so that whatever waits for them continues.

    `name`: given in a code location with several configurations; then only runs of these datasets are failed.
    """

    def ours(run: dg.DagsterRun) -> bool:
        return is_about(run, wirings)

    @dg.sensor(
        name=f"{name or 'manifest'}_lost_run_sensor",
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Fails runs that count as running but whose worker was killed together with the code server.",
    )
    def lost_run_sensor(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        location = context.code_location_origin.location_name if context.code_location_origin else None
        label = f"{context.repository_name}@{location}" if location else None
        failed = [run.run_id for run in fail_lost_runs(context.instance, label, ours if name else None)]
        return dg.SkipReason(f"failed, because their workers are gone: {', '.join(failed)}" if failed else "no run is lost")

    return lost_run_sensor


def fail_lost_runs(
    instance: dg.DagsterInstance, label: str | None, ours: Callable[[dg.DagsterRun], bool] | None = None
) -> Iterator[dg.DagsterRun]:
    """Fails the lost runs of a code location's repository, and yields them. Does nothing with launchers other than the default.

    `ours`: selects the runs to look at; None for all.
    """
    if type(instance.run_launcher) is not DefaultRunLauncher:
        return  # its workers run elsewhere
    tags = {REPOSITORY_LABEL_TAG: label} if label else {}
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED], tags=tags)):
        if ours and not ours(run):
            continue
        worker = _worker(instance, run.run_id) if GRPC_INFO_TAG in run.tags else None
        if worker is None or not worker.is_gone:
            continue
        latest = instance.get_run_by_id(run.run_id)  # a worker reports its end before it exits
        if latest and latest.status is dg.DagsterRunStatus.STARTED:
            message = (
                f"The run's worker (process {worker.pid}) and the code server that started it are gone: they were killed,"
                " or the machine was restarted. What the run committed counts; the next run completes the rest"
            )
            instance.report_run_failed(latest, message)
            yield latest


def _worker(instance: dg.DagsterInstance, run_id: str) -> Worker | None:
    """Returns the process of a run's worker; None before the run reports it."""
    found = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT, limit=_FIRST_EVENTS).records
    for record in found:
        event = record.event_log_entry.get_dagster_event()
        pid = event.engine_event_data.metadata.get("pid")
        if pid is not None:
            return Worker(int(str(pid.value)), record.event_log_entry.timestamp)
    return None
