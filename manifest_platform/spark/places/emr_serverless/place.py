"""The settings of a Spark in sessions of EMR Serverless."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from manifest_platform import extras
from manifest_platform.spark import client
from manifest_platform.spark.place import ClusterPlace, PropertiesFile
from manifest_platform.spark.places.emr_serverless import sessions
from manifest_platform.spark.workers import await_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEAST_S = 10.0


class EmrServerless(ClusterPlace):
    """The settings of a Spark in a session of EMR Serverless, from release emr-7.13 on. This process is its client.

    A session is started at the first work, used as long as it lives, and ended after a drain. EMR ends a session that
    nobody ends, because its process was killed, after `idle_minutes`.
    """

    where: Literal["emr_serverless"] = Field("emr_serverless", description="Spark in a session of EMR Serverless")
    conf: PropertiesFile = Field("spark_conf/emr_serverless.conf", description="Spark's properties file; a session gets them")
    application: str = Field(
        pattern=r"^[0-9a-z]+$", description="the id of the application; interactive sessions are enabled in it"
    )
    role: str = Field(
        pattern=r"^arn:aws[a-z-]*:iam::\d{12}:role/\S+$",
        description="the role that a session works as: `arn:aws:iam::ACCOUNT:role/NAME`",
    )
    region: str | None = Field(None, description="the region of the application; null for the region of the environment")
    start_timeout_seconds: float = Field(
        600,
        gt=0,
        description="seconds that a session may take to start and run a first task, with the start of the application",
    )
    idle_minutes: int = Field(
        15, ge=1, description="minutes without work after which EMR ends a session, and a follower does, too"
    )

    def wrong(self, settings: Mapping[str, object]) -> str:
        """Refuses a master, and the address of a server: the session has its own."""
        for key in ("spark.remote", "spark.master"):
            if key in settings:
                return self.refused(key, settings[key], f"no {key}, or another spark.where")
        return ""

    def open(self, settings: Mapping[str, object]) -> SparkSession:
        """Returns the session, once a worker of it has run a task. Starts one if there is none that works."""
        extras.need("pyspark", "grpc", "boto3")
        until = time.monotonic() + self.start_timeout_seconds
        archive = self.packed()  # before anything costs money
        given = tuple(sorted((name, str(value)) for name, value in settings.items()))
        asked = sessions.Asked(self.application, self.role, self.region, self.idle_minutes, given)
        live = sessions.started(asked, self.start_timeout_seconds)
        advice = "its state is shown by: " + live.shown_by
        session = client.opened(live.channels(), live.name, {}, advice, archive)  # it has its properties from its start
        await_workers(session, max(_LEAST_S, until - time.monotonic()), self.conf)
        return session

    def end(self) -> None:
        """Ends the session, which costs money."""
        client.end()
        sessions.end()

    @property
    def ends_idle_after(self) -> float | None:
        """The seconds without work after which a follower ends the session."""
        return 60.0 * self.idle_minutes
