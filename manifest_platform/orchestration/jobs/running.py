"""Runs an assignment: in this process, or as a job run of a service, whose events come through S3. Both yield the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlsplit

import dagster as dg

from manifest_platform import aws, plugins
from manifest_platform.orchestration.events import failure
from manifest_platform.orchestration.jobs.assignments import Assignment, event_from_json, to_json
from manifest_platform.orchestration.jobs.driver import ASSIGNMENT, DATASET, DONE
from manifest_platform.orchestration.jobs.service import JobFailed, JobService, JobStarted, JobUnavailable, passes
from manifest_platform.outward import clean
from manifest_platform.pipeline import Pipeline

Context = dg.OpExecutionContext | dg.AssetExecutionContext
_CANCEL_S = 60.0
"""Seconds that an interrupted run waits for the request to cancel its job run."""


def events_of(context: Context, pipeline: Pipeline, spark_session: Any, assignment: Assignment) -> Iterator[Any]:
    """Yields the events of an assignment as they happen, wherever Spark computes.

    A job run yields JobStarted first. Raises what the assignment raises; a job run JobFailed and JobUnavailable. If Dagster
    interrupts it, the job run is canceled.
    """
    if not pipeline.config.spark.in_a_job:
        return assignment.done(pipeline, spark_session)
    return _JobRun(context, pipeline, assignment).events()


def reported_events_of(context: Context, pipeline: Pipeline, spark_session: Any, assignment: Assignment) -> Iterator[Any]:
    """Yields the events as `events_of` does, but raises dagster.Failure for a job run that failed or could not be started."""
    try:
        yield from events_of(context, pipeline, spark_session, assignment)
    except (JobFailed, JobUnavailable) as error:
        again = None if isinstance(error, JobUnavailable) else False
        raise failure(str(error), metadata=error.links, allow_retries=again) from error


class _JobRun:
    """A job run: started and watched by a thread, while its events are yielded."""

    def __init__(self, context: Context, pipeline: Pipeline, assignment: Assignment) -> None:
        self.context, settings = context, pipeline.config.spark
        self.service: JobService = plugins.load(plugins.JOB_SERVICES, settings.where)(settings)
        self.extras = {DATASET: pipeline.name, ASSIGNMENT: to_json(assignment)}
        self.links: dict[str, Any] = {}
        self._arrived: SimpleQueue[dict[str, Any] | JobStarted | None] = SimpleQueue()
        self._error: BaseException | None = None

    def events(self) -> Iterator[Any]:
        """Yields the events of the driver as they arrive. Raises JobFailed and JobUnavailable."""
        self.calls = self.service.calls(self._begun)
        thread = threading.Thread(target=self._run, name="job run", daemon=True)
        thread.start()
        end: Mapping[str, Any] = {}
        try:
            while (message := self._arrived.get()) is not None:
                if isinstance(message, JobStarted):
                    yield message
                elif "event" in message:
                    yield event_from_json(message)
                else:
                    end = message
        except BaseException:  # Dagster interrupts the run, or it needs no further event
            self.calls.interrupt()
            thread.join(_CANCEL_S)
            raise
        if end.get("end") != DONE:
            failed = self._failure(end)
            failed.links = self.links
            raise failed from self._error
        if self._error:
            self.context.log.warning(f"The driver has done its work, but its job run did not succeed: {self._state()}")

    def _run(self) -> None:
        """Starts the job run and waits for its end. Runs in a thread, because Dagster's client waits itself."""
        from manifest_platform.orchestration.jobs.messages import EventReader

        try:
            place = urlsplit(self.service.settings.messages)
            prefix = f"{place.path.strip('/')}/".lstrip("/")
            reader = EventReader(place.netloc, prefix, aws.client("s3"), self._arrived.put)
            self.service.run(self.context, self.calls, reader, self.extras)
        except BaseException as error:
            self._error = error
        finally:
            self._arrived.put(None)

    def _begun(self, answer: Mapping[str, Any]) -> None:
        self.links = self.service.links(answer, self.calls.meta.region_name)
        shown = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in self._texts().items())
        self.context.log.info(f"{self.service.title}: {shown}")
        self._arrived.put(JobStarted(self.links))

    def _texts(self) -> dict[str, str]:
        return {name: str(getattr(value, "value", value)) for name, value in self.links.items()}

    def _state(self) -> str:
        return self.service.said(self.calls.last) if self.calls.last else str(self._error)

    def _failure(self, end: Mapping[str, Any]) -> JobFailed | JobUnavailable:
        """Returns the error of a job run whose driver did not report that its work is done."""
        where = "".join(f" {name.replace('_', ' ')}: {value}." for name, value in self._texts().items())
        if end:
            said = f"{end['error']}: {end['message']}".rstrip(".")
            kind = JobUnavailable if end.get("transient") else JobFailed
            return kind(clean(f"The job run of {self.service.title} failed: {said}.{where}"))
        if not self.links:
            kind = JobUnavailable if isinstance(self._error, Exception) and passes(self._error) else JobFailed
            return kind(clean(f"{self.service.title} starts no job run: {self._error}. {self.service.settings.advice}"))
        said = f"ended without a report ({self._state()}). What it committed counts; the next run completes the rest."
        return JobFailed(clean(f"The job run of {self.service.title} {said}{where}"))
