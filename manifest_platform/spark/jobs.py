"""Places whose Spark computes only in jobs of a service, and the driver of such a job.

Dagster starts a job run, hands it the work, and gets its events back. Outside of a job, such a place opens no session.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from pydantic import Field

from manifest_platform.spark import classic
from manifest_platform.spark.errors import SparkUnavailable
from manifest_platform.spark.place import Place
from manifest_platform.spark.workers import await_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_entered = Event()
"""Set in the driver of a job."""


def enter_job() -> None:
    """Tells this process that it is the driver of a job, so that it may use the job's Spark."""
    _entered.set()


class JobPlace(Place):
    """The settings of a Spark that computes only in jobs of a service, which Dagster starts."""

    region: str | None = Field(None, description="the region of the service; null for the region of the environment")
    messages: str = Field(
        pattern=r"^s3://[a-z0-9][a-z0-9.-]+(/\S*)?$",
        description="where a job run leaves messages for Dagster, `s3://BUCKET/PREFIX`; they are deleted after it",
    )
    config: str = Field(
        "manifest_platform.yaml", description="the configuration file as the job's driver finds it, by default in its folder"
    )

    @property
    def in_a_job(self) -> bool:
        """True: the work that needs Spark is done by a job run."""
        return True

    @property
    def advice(self) -> str:
        """Advice on what to check if the service starts no job run."""
        return "Correct the part spark of the configuration, or the permissions of Dagster's role"

    def parameters(self) -> dict[str, Any]:
        """Returns the parameters of a job run, as the service's API names them."""
        raise NotImplementedError

    def wrong(self, settings: Mapping[str, object]) -> str:
        """Refuses the address of a Connect server. The job's Spark has its master already."""
        if "spark.remote" in settings:
            return self.refused("spark.remote", settings["spark.remote"], "no spark.remote, or spark.where: connect")
        return ""

    def open(self, settings: Mapping[str, object]) -> SparkSession:
        """Returns the session of the job. Raises SparkUnavailable in any process but the driver of a job."""
        if not _entered.is_set():
            raise SparkUnavailable(
                f"spark.where: {self.where!r}: Spark computes in jobs only, which Dagster starts. Start the drain in Dagster,"
                " or use a configuration with another spark.where"
            )
        session = classic.opened(settings, self.conf)
        await_workers(session, self.start_timeout_seconds, Path(self.conf))
        return session
