"""Services that run jobs: their parameters fit their APIs, and a watched job run survives outages and can be interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from dagster._core.errors import DagsterExecutionInterruptedError
from pydantic import ValidationError

from manifest_platform.orchestration.jobs.service import Calls, passes
from manifest_platform.orchestration.jobs.services.emr_serverless_job import EmrServerlessJobs
from manifest_platform.orchestration.jobs.services.glue import GlueJobs
from manifest_platform.spark.places.emr_serverless_job import EmrServerlessJob
from manifest_platform.spark.places.glue import Glue

MESSAGES, ROLE = "s3://acme-spark/messages", "arn:aws:iam::123456789012:role/spark"


def glue(**settings: Any) -> Glue:
    found = {"job": "drain", "messages": MESSAGES, **settings}
    return Glue.model_validate(found, context={"base": Path.cwd()})


def emr(folder: Path, **settings: Any) -> EmrServerlessJob:
    (folder / "own.conf").write_text("spark.executor.memory 8g\nspark.executorEnv.NOTE two words\n")
    place = {"application": "00f1", "role": ROLE, "entry_point": "s3://acme/job.py", "messages": MESSAGES, "conf": "own.conf"}
    return EmrServerlessJob.model_validate({**place, **settings}, context={"base": folder})


def require_valid(service: str, parameters: dict[str, Any]) -> None:
    client = boto3.Session().client(service, region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")
    operation = client.meta.service_model.operation_model("StartJobRun")
    client._convert_to_request_dict(
        {"clientToken": "c", **parameters} if service != "glue" else parameters, operation, "http://h"
    )


def test_the_parameters_of_a_run_of_glue_are_such_as_the_api_takes() -> None:
    parameters = glue(worker_type="G.2X", workers=5, timeout_minutes=60, arguments={"--TempDir": "s3://t"}).parameters()
    require_valid("glue", parameters)
    assert parameters["Arguments"] == {
        "--TempDir": "s3://t",
        "--job-bookmark-option": "job-bookmark-disable",
        "--config": "manifest_platform.yaml",
    }
    assert (parameters["WorkerType"], parameters["NumberOfWorkers"], parameters["Timeout"]) == ("G.2X", 5, 60)


def test_a_job_of_glue_keeps_its_own_workers_unless_the_configuration_says_otherwise() -> None:
    assert set(glue().parameters()) == {"JobName", "Arguments"}


def test_the_parameters_of_a_run_of_emr_are_such_as_the_api_takes(tmp_path: Path) -> None:
    parameters = emr(tmp_path, logs="s3://logs/emr").parameters()
    require_valid("emr-serverless", parameters)
    submitted = parameters["jobDriver"]["sparkSubmit"]
    assert submitted["sparkSubmitParameters"] == "--conf spark.executor.memory=8g --conf 'spark.executorEnv.NOTE=two words'"
    assert submitted["entryPointArguments"] == ["--config", "manifest_platform.yaml"]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"messages": "/tmp/messages"}, "messages"),
        ({"workers": 1}, "workers"),
        ({"worker_type": "large"}, "worker_type"),
        ({"job": ""}, "job"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_their_key(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        glue(**settings)


def test_links_name_the_run_and_its_logs_and_no_token(tmp_path: Path) -> None:
    links = GlueJobs(glue()).links({"JobRunId": "jr_1"}, "eu-west-1")
    assert links["job_run_page"].value == (
        "https://eu-west-1.console.aws.amazon.com/gluestudio/home?region=eu-west-1#/job/drain/run/jr_1"
    )
    assert links["job_run_logs"].value.endswith("/log-group/$252Faws-glue$252Fjobs$252Foutput/log-events/jr_1")
    told = EmrServerlessJobs(emr(tmp_path, logs="s3://logs/emr/")).links({"jobRunId": "7"}, "eu-west-1")
    assert told["job_run_logs"] == "s3://logs/emr/applications/00f1/jobs/7/"
    assert told["job_run_page"].startswith("aws emr-serverless get-dashboard-for-job-run --region eu-west-1")


def refused(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "GetJobRun")


class Told:
    """A client of Glue that answers in turn; the last answer stays."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked = 0

    def get_job_run(self, **_: Any) -> Any:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return {"JobRun": {"JobRunState": answer}}


def calls(*answers: Any, patience_s: float = 60) -> Calls:
    service = GlueJobs(glue())
    return service.client(Told(*answers), service.is_over, lambda _: None, poll_s=0.001, patience_s=patience_s)


def test_the_second_look_waits_for_the_end_of_the_run() -> None:
    watched = calls("STARTING", "STARTING", "RUNNING", "SUCCEEDED")
    assert watched.get_job_run()["JobRun"]["JobRunState"] == "STARTING", "Glue's Pipes client cannot cancel before"
    assert watched.get_job_run()["JobRun"]["JobRunState"] == "SUCCEEDED"


def test_a_run_that_expired_in_glues_queue_is_over_and_failed() -> None:
    watched = calls("WAITING", "EXPIRED")
    watched.get_job_run()
    assert watched.get_job_run()["JobRun"]["JobRunState"] == "FAILED"


@pytest.mark.parametrize(
    "outage",
    [refused("ThrottlingException", 400), refused("InternalServiceException", 500), EndpointConnectionError(endpoint_url="h")],
)
def test_an_outage_of_the_service_does_not_end_the_run(outage: Exception) -> None:
    watched = calls("RUNNING", outage, outage, "SUCCEEDED")
    watched.get_job_run()
    assert watched.get_job_run()["JobRun"]["JobRunState"] == "SUCCEEDED"


def test_an_outage_that_lasts_longer_than_the_patience_ends_it() -> None:
    watched = calls("RUNNING", refused("ThrottlingException", 400), patience_s=0)
    watched.get_job_run()
    with pytest.raises(ClientError):
        watched.get_job_run()


def test_what_no_later_look_would_answer_ends_it_at_once() -> None:
    watched = calls("RUNNING", refused("EntityNotFoundException", 400))
    watched.get_job_run()
    with pytest.raises(ClientError):
        watched.get_job_run()
    assert watched._client.asked == 2


@pytest.mark.parametrize("answers", [("RUNNING",), ("RUNNING", refused("ThrottlingException", 400))])
def test_an_interruption_is_raised_where_a_pipes_client_cancels(answers: tuple[Any, ...]) -> None:
    watched = calls(*answers)
    watched.interrupt()
    watched.get_job_run()
    with pytest.raises(DagsterExecutionInterruptedError):
        watched.get_job_run()


def test_a_limit_of_runs_at_the_same_time_passes_and_a_missing_permission_does_not() -> None:
    assert passes(refused("ConcurrentRunsExceededException", 400))
    assert not passes(refused("AccessDeniedException", 400))
