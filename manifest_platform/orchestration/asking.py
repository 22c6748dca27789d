"""The rule by which a sensor requests a run of a job.

Dagster remembers a run key forever, also of a failed run, so sensors use no run keys. Instead, at most one run of a job is
unfinished at a time, and the sensor's cursor counts how often it requested the same work in vain.
"""

import dataclasses
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

import dagster as dg

FIRST_PAUSE = timedelta(seconds=30)
LONGEST_PAUSE = timedelta(hours=1)
AFTER_A_DEATH = timedelta(minutes=1)
"""The longest pause after a run that was killed. Unchanged work proves nothing then, because the run had no chance to do it."""
DOUBLINGS = 7  # a larger exponent would exceed the longest pause

UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


@dataclass(frozen=True)
class Asked:
    """The last request of a sensor: for which work, how many times in a row, and when (ISO 8601, UTC)."""

    work: str = ""
    times: int = 0
    at: str = ""

    def wants(self, work: str, now: datetime, longest: timedelta = LONGEST_PAUSE) -> bool:
        """True if a run should be requested: immediately for new work, after growing pauses for work that did not change."""
        if work != self.work or not self.at:
            return True
        pause = min(longest, FIRST_PAUSE * 2 ** min(self.times, DOUBLINGS))
        return now >= datetime.fromisoformat(self.at) + pause

    def after(self, work: str, now: datetime) -> Self:
        """Returns the cursor after a request for this work."""
        times = self.times + 1 if work == self.work else 1
        return dataclasses.replace(self, work=work, times=times, at=now.isoformat())


def asked(instance: dg.DagsterInstance, job: str, work: str | None, cursor: Asked, now: datetime) -> tuple[str | None, Asked]:
    """Returns the reason not to request a run, None if it should be requested, and the next cursor.

    `work`: a text that changes with the waiting work; None if nothing waits.
    """
    if not work:
        return "nothing to do", cursor
    if instance.get_runs_count(dg.RunsFilter(job_name=job, statuses=UNFINISHED)):
        return f"a run of {job} is queued or in progress", cursor
    if not cursor.wants(work, now) and not (cursor.wants(work, now, AFTER_A_DEATH) and _died(instance, job)):
        reason = f"requested {cursor.times} times for the same work, which did not change: {work}. The next request is later"
        return reason, cursor
    return None, cursor.after(work, now)


def _died(instance: dg.DagsterInstance, job: str) -> bool:
    """True if the newest run of a job failed without a failed step: its process was killed, or never began."""
    newest = next(iter(instance.get_runs(dg.RunsFilter(job_name=job), limit=1)), None)
    if newest is None or newest.status is not dg.DagsterRunStatus.FAILURE:
        return False
    said = instance.get_records_for_run(newest.run_id, of_type=dg.DagsterEventType.STEP_FAILURE, limit=1)
    return not said.records
