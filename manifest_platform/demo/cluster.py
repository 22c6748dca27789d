"""Runs the servers of a deployment beyond one machine, all on this machine, and makes its configuration.

Landing, schemas, shredded and merged files, overflow and archive are in S3, the manifest is in DynamoDB Local, the warehouse is
a PostgreSQL server. Spark computes on a cluster of two workers with one core each, which are asked over Spark Connect.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manifest_platform import aws, extras
from manifest_platform.carried import carried
from manifest_platform.demo.dynamodb import dynamodb_local
from manifest_platform.demo.postgresql import PostgreSQLServer
from manifest_platform.demo.s3 import PROXY_VARIABLES, S3Server, s3_at
from manifest_platform.demo.spark_cluster import spark_cluster
from manifest_platform.demo.stage import SERVER_FOLDER

BUCKET = "demo"
TABLE = "manifest-platform-demo"
WORKERS = 2
ENVIRONMENT = "environment"
"""A file in the demo's directory with the variables for commands in another terminal, while the servers run."""


@dataclass(frozen=True)
class Deployment:
    """The addresses of the running servers."""

    s3: S3Server
    store: str
    warehouse: str
    remote: str
    folder: Path

    def configuration(self, dataset: str) -> dict[str, Any]:
        """Returns the keys of a configuration that name these servers, for a dataset of Snowplow's events."""
        place = f"s3://{BUCKET}"
        return {
            "datasets": {
                dataset: {
                    "landing": {"root": f"{place}/landing/enriched"},
                    "shred": {
                        "output": f"{place}/shredded",
                        "schemas": [f"{place}/schemas"],
                        "registry_cache": {"missing_seconds": 0},
                    },
                    "merge": {"output": f"{place}/merged"},
                }
            },
            "manifest": {"store": self.store, "overflow": f"{place}/overflow", "archive": f"{place}/archive"},
            "warehouse": {"kind": "postgresql", "url": self.warehouse},
            "spark": {"where": "connect", "conf": str(self._properties())},
        }

    def _properties(self) -> Path:
        """Writes the properties of Spark: those for a Connect server, with the address of the running server."""
        usual = carried("spark_conf/connect.conf").read_text()
        written = self.folder / "connect.conf"
        written.write_text(usual.replace("sc://spark-connect:15002", self.remote))
        return written


@contextmanager
def deployment(home: Path, workers: int = WORKERS) -> Generator[Deployment]:
    """Runs the servers until the block ends, and points every AWS client of this process at their S3. Raises ServerFailed."""
    extras.need("boto3", "psycopg", "grpc_status")
    folder = home / "servers"
    folder.mkdir()
    with s3_at(folder) as endpoint, dynamodb_local(folder / "dynamodb.log") as dynamodb:
        s3 = S3Server(endpoint)
        use(s3.environment)
        make_bucket(BUCKET)
        warehouse = PostgreSQLServer(home / SERVER_FOLDER)
        with spark_cluster(folder, workers, s3.environment) as cluster:
            try:
                yield Deployment(s3, dynamodb.store(TABLE), warehouse.start(), cluster.remote, folder)
            finally:
                _end_session()
                warehouse.stop()


def _end_session() -> None:
    """Closes this process's session. With its server gone, Spark's client would try for ten minutes at the process's end."""
    from pyspark.sql.connect.session import SparkSession

    if session := SparkSession.getActiveSession():
        session.stop()


def use(environment: Mapping[str, str]) -> None:
    """Sets the variables of AWS clients in this process, and removes the user's own."""
    for name in list(os.environ):
        if name.startswith("AWS_") or name.upper() in PROXY_VARIABLES:
            del os.environ[name]
    os.environ.update(environment)


def make_bucket(name: str) -> None:
    """Creates a bucket on the server that the environment names."""
    aws.client("s3").create_bucket(Bucket=name)


def write_environment(home: Path, variables: Mapping[str, str]) -> Path:
    """Writes the variables for commands in another terminal as a file for the shell, and returns its path."""
    file = home / ENVIRONMENT
    file.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items())))
    return file
