"""Spark on a cluster, whose driver is this process: `spark.where: master`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from manifest_platform.spark import classic
from manifest_platform.spark.place import PYTHON_OF_ARCHIVE, ClusterPlace, PropertiesFile, is_local
from manifest_platform.spark.workers import await_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Master(ClusterPlace):
    """The settings of a Spark on a cluster: a master of its own, YARN or Kubernetes. The driver runs in this process.

    Without any master, in the file or here, Spark takes the master that spark-submit was given.
    """

    where: Literal["master"] = Field(
        "master",
        description="Spark on a cluster, with its driver in this process; without the key, the properties file says where",
    )
    conf: PropertiesFile = Field("spark_conf/standalone.conf", description="Spark's properties file")
    master: str | None = Field(
        None,
        pattern=r"^(spark://\S+|k8s://\S+|yarn)$",
        description="the cluster's master: `spark://HOST:PORT`, `k8s://URL` or `yarn`; null for `spark.master` of the file",
    )

    def properties(self) -> dict[str, Any]:
        """Returns the file's properties with the master and the archive for workers."""
        found = super().properties()
        if self.master:
            found["spark.master"] = self.master
        if archive := self.packed():
            found["spark.archives"] = ",".join(filter(None, (found.get("spark.archives"), archive)))
            found["spark.pyspark.python"] = PYTHON_OF_ARCHIVE
        return found

    def wrong(self, settings: Mapping[str, object]) -> str:
        """Refuses a master within the process, and the address of a Connect server."""
        if "spark.remote" in settings:
            return self.refused("spark.remote", settings["spark.remote"], "no spark.remote, or spark.where: connect")
        if is_local(settings):
            allowed = "spark://HOST:PORT, k8s://URL, yarn, or spark.where: local"
            return self.refused("spark.master", settings["spark.master"], allowed)
        return ""

    def open(self, settings: Mapping[str, object]) -> SparkSession:
        """Returns the session on the cluster, once a worker has run a task."""
        session = classic.opened(settings, self.conf)
        await_workers(session, self.start_timeout_seconds, self.conf)
        return session
