"""Spark in this process: `spark.where: local`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from manifest_platform.spark import classic
from manifest_platform.spark.place import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Local(Place):
    """The settings of a Spark within this process: for a laptop, for tests, and for one machine with a moderate load."""

    where: Literal["local"] = Field(
        "local", description="Spark in this process; without the key, the properties file says where"
    )

    def wrong(self, settings: Mapping[str, object]) -> str:
        """Refuses the address of any other Spark."""
        if "spark.remote" in settings:
            return self.refused("spark.remote", settings["spark.remote"], "no spark.remote, or spark.where: connect")
        if not (master := str(settings.get("spark.master", ""))).startswith("local"):
            return self.refused("spark.master", master, "local[*], local[2], or spark.where: master")
        return ""

    def open(self, settings: Mapping[str, object]) -> SparkSession:
        """Returns the session of this process's Java."""
        return classic.opened(settings, self.conf)
