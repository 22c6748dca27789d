"""Spark behind a Spark Connect server: `spark.where: connect`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from manifest_platform.spark import client
from manifest_platform.spark.place import ClusterPlace, PropertiesFile
from manifest_platform.spark.workers import await_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOKEN = re.compile(r"[;/]token\s*=", re.IGNORECASE)
_ADDRESS = "sc://HOST:PORT"


class Connect(ClusterPlace):
    """The settings of a Spark behind a Spark Connect server: this process is its client, without Java."""

    where: Literal["connect"] = Field(
        "connect", description="Spark behind a Spark Connect server; without the key, the properties file says where"
    )
    conf: PropertiesFile = Field("spark_conf/connect.conf", description="Spark's properties file")
    remote: str | None = Field(
        None,
        description=f"the server's address, `{_ADDRESS}`; null for `spark.remote` of the file. A token is a secret: set"
        " SPARK_CONNECT_AUTHENTICATE_TOKEN in the environment",
    )

    def properties(self) -> dict[str, Any]:
        """Returns the file's properties with the address."""
        return {**super().properties(), **({"spark.remote": self.remote} if self.remote else {})}

    def wrong(self, settings: Mapping[str, object]) -> str:
        """Refuses a missing or different address, and a token in it."""
        remote = str(settings.get("spark.remote", ""))
        if _TOKEN.search(remote):
            return (
                f"{self.conf}: spark.remote contains a token, which is a secret: set SPARK_CONNECT_AUTHENTICATE_TOKEN instead"
            )
        if not remote.startswith("sc://"):
            return self.refused("spark.remote", remote, f"{_ADDRESS}; without a server, another spark.where")
        if "spark.master" in settings:
            return self.refused("spark.master", settings["spark.master"], "no spark.master beside spark.remote")
        return ""

    def open(self, settings: Mapping[str, object]) -> SparkSession:
        """Returns the session on the server, once a worker of its cluster has run a task."""
        channels = client.channels_to(str(settings["spark.remote"]), self.conf)
        of_session = {name: value for name, value in settings.items() if name != "spark.remote"}
        advice = "start it (sbin/start-connect-server.sh), or correct spark.remote"
        session = client.opened(channels, channels.endpoint, of_session, advice, self.packed())
        await_workers(session, self.start_timeout_seconds, self.conf)
        return session

    def end(self) -> None:
        """Releases the session on the server."""
        client.end()
