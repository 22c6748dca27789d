"""Spark in jobs of AWS Glue: `spark.where: glue`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from manifest_platform.spark.jobs import JobPlace
from manifest_platform.spark.place import PropertiesFile


class Glue(JobPlace):
    """The settings of a Spark in runs of a job of AWS Glue, which exists already."""

    where: Literal["glue"] = Field("glue", description="Spark in runs of a job of AWS Glue, which Dagster starts")
    conf: PropertiesFile = Field("spark_conf/glue.conf", description="Spark's properties file, as the job's driver finds it")
    job: str = Field(min_length=1, description="the name of the job in Glue")
    worker_type: str | None = Field(
        None, pattern=r"^[A-Z]\.[0-9.]+X$", description="the type of its workers, such as `G.2X`; null for the job's own"
    )
    workers: int | None = Field(None, ge=2, description="the number of its workers; null for the job's own")
    timeout_minutes: int | None = Field(
        None, ge=1, description="minutes after which Glue ends a run; null for the job's own. More than a drain may take"
    )
    arguments: dict[str, str] = Field(default_factory=dict, description="further arguments of a run, such as `--TempDir`")

    @property
    def advice(self) -> str:
        """Advice on what to check if Glue starts no job run."""
        return (
            "Check spark.job and spark.region, and that Dagster's role may call glue:StartJobRun, GetJobRun and BatchStopJobRun"
        )

    def parameters(self) -> dict[str, Any]:
        """Returns the parameters of StartJobRun. Bookmarks are off: only the manifest knows what was done."""
        given = {"WorkerType": self.worker_type, "NumberOfWorkers": self.workers, "Timeout": self.timeout_minutes}
        own = {"--job-bookmark-option": "job-bookmark-disable", "--config": self.config}
        set_ = {name: value for name, value in given.items() if value is not None}
        return {"JobName": self.job, "Arguments": {**self.arguments, **own}, **set_}
