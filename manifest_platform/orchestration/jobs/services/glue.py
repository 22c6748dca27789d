"""Job runs of AWS Glue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import dagster as dg

from manifest_platform import aws
from manifest_platform.orchestration.jobs.service import Calls, JobService

if TYPE_CHECKING:
    from dagster._core.pipes.client import PipesMessageReader

_OVER = {"SUCCEEDED", "FAILED", "STOPPED", "TIMEOUT", "ERROR", "EXPIRED"}


class GlueJobs(JobService):
    """Starts runs of one job of Glue, and watches and cancels them."""

    title = "AWS Glue"

    def calls(self, begun: Callable[[Mapping[str, Any]], None]) -> Calls:
        """Returns the client of Glue."""
        return _Calls(aws.client("glue", region=self.settings.region), _is_over, begun)

    def run(
        self,
        context: dg.OpExecutionContext | dg.AssetExecutionContext,
        calls: Calls,
        reader: PipesMessageReader,
        extras: dict[str, Any],
    ) -> None:
        """Runs the job; the driver's assignment goes along as arguments."""
        from dagster._core.pipes.utils import PipesEnvContextInjector
        from dagster_aws.pipes import PipesGlueClient

        client = PipesGlueClient(PipesEnvContextInjector(), reader, calls)
        client.run(context=context, start_job_run_params=self.settings.parameters(), extras=extras)

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

    def said(self, last: Mapping[str, Any]) -> str:
        """Returns the state of the run, and the error that Glue names."""
        run = last["JobRun"]
        return ": ".join(filter(None, (run["JobRunState"], run.get("ErrorMessage"))))


class _Calls(Calls):
    """Glue's client; a run that has expired in Glue's queue is over, which dagster-aws does not know."""

    def get_job_run(self, **parameters: Any) -> Mapping[str, Any]:
        """Returns the job run."""
        answer = super().get_job_run(**parameters)
        if answer["JobRun"]["JobRunState"] == "EXPIRED":
            return {**answer, "JobRun": {**answer["JobRun"], "JobRunState": "FAILED"}}
        return answer


def _is_over(answer: Mapping[str, Any]) -> bool:
    return answer["JobRun"]["JobRunState"] in _OVER
