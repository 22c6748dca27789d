"""Spark in job runs of EMR Serverless: `spark.where: emr_serverless_job`, for releases without Spark Connect."""

from __future__ import annotations

import shlex
from typing import Any, Literal

from pydantic import Field

from manifest_platform.spark.jobs import JobPlace
from manifest_platform.spark.place import PropertiesFile

ROLE = r"^arn:aws[a-z-]*:iam::\d{12}:role/\S+$"
APPLICATION = r"^[0-9a-z]+$"


class EmrServerlessJob(JobPlace):
    """The settings of a Spark in job runs of an application of EMR Serverless."""

    where: Literal["emr_serverless_job"] = Field(
        "emr_serverless_job", description="Spark in job runs of EMR Serverless, which Dagster starts"
    )
    conf: PropertiesFile = Field(
        "spark_conf/emr_serverless.conf", description="Spark's properties file; a job run gets its properties"
    )
    application: str = Field(pattern=APPLICATION, description="the id of the application")
    role: str = Field(pattern=ROLE, description="the role that a job run works as: `arn:aws:iam::ACCOUNT:role/NAME`")
    entry_point: str = Field(
        pattern=r"^(s3://|local://|/)\S+\.py$", description="the program of the driver, in S3 or in the application's image"
    )
    timeout_minutes: int = Field(720, ge=5, description="minutes after which EMR ends a run. More than a drain may take")
    logs: str | None = Field(
        None, pattern=r"^s3://\S+$", description="where EMR writes the logs of a job run, `s3://BUCKET/PREFIX`"
    )

    @property
    def advice(self) -> str:
        """Advice on what to check if EMR Serverless starts no job run."""
        calls = "emr-serverless:StartJobRun, GetJobRun and CancelJobRun, and iam:PassRole for spark.role"
        return f"Check spark.application and spark.region, and that Dagster's role may call {calls}"

    def parameters(self) -> dict[str, Any]:
        """Returns the parameters of StartJobRun."""
        properties = " ".join(f"--conf {shlex.quote(f'{name}={value}')}" for name, value in self.properties().items())
        submitted = {
            "entryPoint": self.entry_point,
            "entryPointArguments": ["--config", self.config],
            "sparkSubmitParameters": properties,
        }
        monitored = {"s3MonitoringConfiguration": {"logUri": self.logs}}
        return {
            "applicationId": self.application,
            "executionRoleArn": self.role,
            "executionTimeoutMinutes": self.timeout_minutes,
            "name": "manifest_platform",
            "jobDriver": {"sparkSubmit": submitted},
            **({"configurationOverrides": {"monitoringConfiguration": monitored}} if self.logs else {}),
        }
