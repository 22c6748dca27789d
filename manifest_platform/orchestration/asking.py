"""When a sensor asks for a run of a job.

Dagster remembers a run key for ever, failed runs included; so none is used: at most one run of a job is on its way at a time,
and a sensor's cursor holds how often the same work was asked for in vain.
"""

import dataclasses
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

import dagster as dg

FIRST_PAUSE = timedelta(seconds=30)
LONGEST_PAUSE = timedelta(hours=1)
AFTER_A_DEATH = timedelta(minutes=1)
"""The longest pause after a run that did not end by itself: that the work is as it was says nothing then."""
DOUBLINGS = 7  # more would be beyond the longest pause

UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


@dataclass(frozen=True)
class Asked:
    """For which work a drain was asked last, how often in a row, and when (ISO 8601, UTC)."""

    work: str = ""
    times: int = 0
    at: str = ""

    def wants(self, work: str, now: datetime, longest: timedelta = LONGEST_PAUSE) -> bool:
        """Whether to ask for a drain: at once for new work, ever more rarely for work that drains have not changed."""
        if work != self.work or not self.at:
            return True
        pause = min(longest, FIRST_PAUSE * 2 ** min(self.times, DOUBLINGS))
        return now >= datetime.fromisoformat(self.at) + pause

    def after(self, work: str, now: datetime) -> Self:
        """The cursor after a drain was asked for."""
        times = self.times + 1 if work == self.work else 1
        return dataclasses.replace(self, work=work, times=times, at=now.isoformat())


def asked(instance: dg.DagsterInstance, job: str, work: str | None, cursor: Asked, now: datetime) -> tuple[str | None, Asked]:
    """Why no run of a job is asked for, None if one is; and the cursor from then on."""
    if not work:
        return "nothing to do", cursor
    if instance.get_runs_count(dg.RunsFilter(job_name=job, statuses=UNFINISHED)):
        return f"a run of {job} is on its way", cursor
    if not cursor.wants(work, now) and not (cursor.wants(work, now, AFTER_A_DEATH) and _died(instance, job)):
        return f"asked {cursor.times} times for the same work, which did not change: {work}; asking again later", cursor
    return None, cursor.after(work, now)


def _died(instance: dg.DagsterInstance, job: str) -> bool:
    """Whether the newest run of a job was killed, or never began: then no step of it has said why it failed."""
    newest = next(iter(instance.get_runs(dg.RunsFilter(job_name=job), limit=1)), None)
    if newest is None or newest.status is not dg.DagsterRunStatus.FAILURE:
        return False
    said = instance.get_records_for_run(newest.run_id, of_type=dg.DagsterEventType.STEP_FAILURE, limit=1)
    return not said.records
