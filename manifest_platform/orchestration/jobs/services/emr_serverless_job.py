"""Job runs of EMR Serverless, for releases without Spark Connect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg

from manifest_platform import aws
from manifest_platform.orchestration.jobs.service import Calls, JobService

if TYPE_CHECKING:
    from dagster._core.pipes.client import PipesMessageReader

_OVER = {"SUCCESS", "FAILED", "CANCELLED"}
_LOOKS_S = 1.0


class EmrServerlessJobs(JobService):
    """Starts job runs of one application of EMR Serverless, and watches and cancels them."""

    title = "EMR Serverless"

    def calls(self, begun: Callable[[Mapping[str, Any]], None]) -> Calls:
        """Returns the client of EMR Serverless."""
        return _Calls(aws.client("emr-serverless", region=self.settings.region), _is_over, begun)

    def run(
        self,
        context: dg.OpExecutionContext | dg.AssetExecutionContext,
        calls: Calls,
        reader: PipesMessageReader,
        extras: dict[str, Any],
    ) -> None:
        """Runs the job; the driver's assignment goes along in its environment."""
        from dagster_aws.pipes import PipesEMRServerlessClient

        class Client(PipesEMRServerlessClient):
            def _read_messages(self, context: Any, session: Any, response: Any) -> None:
                """The reader has read them; dagster-aws knows messages in CloudWatch only, and would warn."""

        client = Client(calls, message_reader=reader, poll_interval=_LOOKS_S)
        client.run(context=context, start_job_run_params=self.settings.parameters(), extras=extras)

    def links(self, started: Mapping[str, Any], region: str) -> dict[str, Any]:
        """Returns the id of the run, the command that shows its page, whose address has a token, and its logs."""
        run, application = started["jobRunId"], self.settings.application
        found: dict[str, Any] = {"job_run": run, "job_run_page": _page(application, run, region)}
        if self.settings.logs:
            found["job_run_logs"] = f"{self.settings.logs.rstrip('/')}/applications/{application}/jobs/{run}/"
        return found

    def said(self, last: Mapping[str, Any]) -> str:
        """Returns the state of the run, and the details that the service names."""
        run = last["jobRun"]
        return ": ".join(filter(None, (run["state"], run.get("stateDetails"))))


class _Calls(Calls):
    """The client; the address of a run's page, which has a token, goes into no log."""

    def get_dashboard_for_job_run(self, **parameters: Any) -> str:
        """Returns the command that shows the page, instead of its address, which dagster-aws would log."""
        return _page(parameters["applicationId"], parameters["jobRunId"], self.meta.region_name)


def _page(application: str, run: str, region: str) -> str:
    return f"aws emr-serverless get-dashboard-for-job-run --region {region} --application-id {application} --job-run-id {run}"


def _is_over(answer: Mapping[str, Any]) -> bool:
    return answer["jobRun"]["state"] in _OVER
