"""Job runs of AWS Glue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import dagster as dg

from manifest_platform.orchestration.jobs.service import Calls, JobService

if TYPE_CHECKING:
    from dagster._core.pipes.client import PipesMessageReader


class _Calls(Calls):
    """Glue's client; a run that has expired in Glue's queue is over, which dagster-aws does not know."""

    def get_job_run(self, **parameters: Any) -> Mapping[str, Any]:
        """Returns the job run."""
        answer = super().get_job_run(**parameters)
        if answer["JobRun"]["JobRunState"] == "EXPIRED":
            return {**answer, "JobRun": {**answer["JobRun"], "JobRunState": "FAILED"}}
        return answer


class GlueJobs(JobService):
    """Starts runs of one job of Glue, and watches and cancels them."""

    title, api = "AWS Glue", "glue"
    over = frozenset({"SUCCEEDED", "FAILED", "STOPPED", "TIMEOUT", "ERROR", "EXPIRED"})
    client = _Calls

    def pipes(self, calls: Calls, reader: PipesMessageReader) -> Any:
        """Returns the client that passes the driver's assignment as arguments."""
        from dagster._core.pipes.utils import PipesEnvContextInjector
        from dagster_aws.pipes import PipesGlueClient

        client: Any = calls
        return PipesGlueClient(PipesEnvContextInjector(), reader, client)

    def state(self, answer: Mapping[str, Any]) -> tuple[str, str | None]:
        """Returns the state of the run, and the error that Glue names."""
        return answer["JobRun"]["JobRunState"], answer["JobRun"].get("ErrorMessage")

    def links(self, started: Mapping[str, Any], region: str) -> dict[str, Any]:
        """Returns the id of the run, its page in Glue, and its logs in CloudWatch."""
        run, job = started["JobRunId"], self.settings.job
        console = f"https://{region}.console.aws.amazon.com"
        logs = f"{console}/cloudwatch/home?region={region}#logsV2:log-groups/log-group/"
        group = quote(quote("/aws-glue/jobs/output", safe=""), safe="").replace("%", "$")
        return {
            "job_run": run,
            "job_run_page": dg.MetadataValue.url(f"{console}/gluestudio/home?region={region}#/job/{quote(job)}/run/{run}"),
            "job_run_logs": dg.MetadataValue.url(f"{logs}{group}/log-events/{run}"),
        }
