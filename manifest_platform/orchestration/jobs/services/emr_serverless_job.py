"""Job runs of EMR Serverless, for releases without Spark Connect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from manifest_platform.orchestration.jobs.service import Calls, JobService

if TYPE_CHECKING:
    from dagster._core.pipes.client import PipesMessageReader

_LOOKS_S = 1.0


class _Calls(Calls):
    """The client; the address of a run's page, which has a token, goes into no log."""

    def get_dashboard_for_job_run(self, **parameters: Any) -> str:
        """Returns the command that shows the page, instead of its address, which dagster-aws would log."""
        return _page(parameters["applicationId"], parameters["jobRunId"], self.meta.region_name)


class EmrServerlessJobs(JobService):
    """Starts job runs of one application of EMR Serverless, and watches and cancels them."""

    title, api = "EMR Serverless", "emr-serverless"
    over = frozenset({"SUCCESS", "FAILED", "CANCELLED"})
    client = _Calls

    def pipes(self, calls: Calls, reader: PipesMessageReader) -> Any:
        """Returns the client that passes the driver's assignment in its environment."""
        from dagster_aws.pipes import PipesEMRServerlessClient

        class Client(PipesEMRServerlessClient):
            def _read_messages(self, context: Any, session: Any, response: Any) -> None:
                """The reader has read them; dagster-aws knows messages in CloudWatch only, and would warn."""

        client: Any = calls
        return Client(client, message_reader=reader, poll_interval=_LOOKS_S)

    def state(self, answer: Mapping[str, Any]) -> tuple[str, str | None]:
        """Returns the state of the run, and the details that the service names."""
        return answer["jobRun"]["state"], answer["jobRun"].get("stateDetails")

    def links(self, started: Mapping[str, Any], region: str) -> dict[str, Any]:
        """Returns the id of the run, the command that shows its page, whose address has a token, and its logs."""
        run, application = started["jobRunId"], self.settings.application
        found: dict[str, Any] = {"job_run": run, "job_run_page": _page(application, run, region)}
        if self.settings.logs:
            found["job_run_logs"] = f"{self.settings.logs.rstrip('/')}/applications/{application}/jobs/{run}/"
        return found


def _page(application: str, run: str, region: str) -> str:
    return f"aws emr-serverless get-dashboard-for-job-run --region {region} --application-id {application} --job-run-id {run}"
