"""Services that run jobs, for tests: moto's Glue and EMR Serverless, whose job runs are real processes with our driver.

Starting a job run starts the driver with the run's arguments and environment; its state is the process's, and canceling it
terminates the process. Use the fixture `job_runs`.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from manifest_platform_tests.servers.s3 import S3Server

DRIVER = [sys.executable, "-m", "manifest_platform.orchestration.jobs.driver"]
JOB, ROLE = "drain", "arn:aws:iam::123456789012:role/job"
_ENVIRONMENT = "spark.emr-serverless.driverEnv."


@dataclass
class JobRuns:
    """The processes of all job runs. `environment`: more variables for drivers. `application`: the id of EMR's application."""

    folder: Path
    application: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    parameters: list[Any] = field(default_factory=list)
    canceled: set[int] = field(default_factory=set)

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], parameters: Any) -> subprocess.Popen[bytes]:
        log = self.folder / f"driver-{len(self.processes)}.log"
        variables = {**os.environ, **self.environment, **environment}
        self.parameters.append(parameters)
        with log.open("wb") as output:
            process = subprocess.Popen([*DRIVER, *arguments], env=variables, stdout=output, stderr=subprocess.STDOUT)
        self.processes.append(process)
        return process

    def cancel(self, process: subprocess.Popen[bytes]) -> None:
        self.canceled.add(process.pid)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)

    def state(self, process: subprocess.Popen[bytes], success: str, canceled: str) -> str:
        if process.poll() is None:
            return "RUNNING"
        if process.pid in self.canceled:
            return canceled
        return "FAILED" if process.returncode else success

    def said(self) -> str:
        """The text that the drivers wrote to their logs."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("driver-*.log")))


@pytest.fixture
def job_runs(
    glue: Any, glue_server: str, s3_environment: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[JobRuns]:
    """Job runs of the job `JOB` of Glue, and of an application of EMR Serverless; S3 is a real server."""
    runs = JobRuns(tmp_path)
    for name, value in {**s3_environment.environment, "AWS_ENDPOINT_URL_GLUE": glue_server}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_EMR_SERVERLESS", glue_server)
    _glue_runs(runs, monkeypatch)
    _emr_runs(runs, monkeypatch)
    glue.create_job(Name=JOB, Role=ROLE, Command={"Name": "glueetl"}, ExecutionProperty={"MaxConcurrentRuns": 1})
    runs.application = _application()
    yield runs
    for process in runs.processes:
        process.kill()
        process.wait()


def _application() -> str:
    import boto3

    client = boto3.Session().client("emr-serverless")
    return client.create_application(name="jobs", releaseLabel="emr-6.15.0", type="SPARK")["applicationId"]


def _glue_runs(runs: JobRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    from moto.core.responses import ActionResult
    from moto.glue import models, responses

    class Run(models.FakeJobRun):
        @property
        def status(self) -> str | None:
            return runs.state(self.process, "SUCCEEDED", "STOPPED")

        @status.setter
        def status(self, _: str) -> None: ...

        def advance(self) -> None: ...

        def as_dict(self) -> dict[str, Any]:
            return {**super().as_dict(), "ErrorMessage": "SystemExit: 1"} if self.status == "FAILED" else super().as_dict()

        def __init__(self, **parameters: Any) -> None:
            arguments = parameters["arguments"] or {}
            self.process = runs.start([part for pair in arguments.items() for part in pair], {}, parameters)
            super().__init__(**parameters)

    def batch_stop_job_run(response: Any) -> Any:
        wanted = response._get_param("JobRunIds")
        found = [run for run in response.glue_backend.jobs[response._get_param("JobName")].job_runs if run.job_run_id in wanted]
        for run in found:
            runs.cancel(run.process)
        done = [{"JobName": run.job_name, "JobRunId": run.job_run_id} for run in found]
        return ActionResult({"SuccessfulSubmissions": done, "Errors": []})

    monkeypatch.setattr(models, "FakeJobRun", Run)
    monkeypatch.setattr(responses.GlueResponse, "batch_stop_job_run", batch_stop_job_run, raising=False)


def _emr_runs(runs: JobRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    from moto.emrserverless import models

    class Run(models.JobRun):
        def __init__(self, **parameters: Any) -> None:
            submitted = parameters["job_driver"]["sparkSubmit"]
            words = shlex.split(submitted["sparkSubmitParameters"])
            properties = [word.partition("=")[::2] for flag, word in pairwise(words) if flag == "--conf"]
            environment = {
                name.removeprefix(_ENVIRONMENT): value for name, value in properties if name.startswith(_ENVIRONMENT)
            }
            self.process = runs.start(submitted["entryPointArguments"], environment, parameters)
            super().__init__(**parameters)
            self.job_run_id = self.id

        @property
        def state(self) -> str:
            return runs.state(self.process, "SUCCESS", "CANCELLED")

        @state.setter
        def state(self, state: str) -> None:
            if state == "CANCELLED":
                runs.cancel(self.process)

    monkeypatch.setattr(models, "JobRun", Run)
