"""Resources: the pipelines of the manifest, Spark and the warehouse, each opened for the run that uses it.

All of them read the one configuration and have no settings of their own, so that the command line and Dagster never differ.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from dagster_spark.utils import flatten_dict
from pydantic import PrivateAttr

from manifest_platform import spark
from manifest_platform.config import Config, ConfigError, load
from manifest_platform.orchestration.aws import take_access, take_parameters, take_secrets
from manifest_platform.orchestration.events import failure
from manifest_platform.outward import freed
from manifest_platform.pipeline import Pipeline

if TYPE_CHECKING:
    from dagster_aws.s3 import S3Resource
    from dagster_aws.secretsmanager import SecretsManagerResource
    from dagster_aws.ssm import SSMResource


class ManifestResource(dg.ConfigurableResource):
    """Opens a dataset's pipeline: its manifest, landing root, shredder and warehouse."""

    config_file: str | None = None

    @classmethod
    def from_aws(
        cls,
        config_file: str | None = None,
        *,
        s3: S3Resource | None = None,
        dynamodb: dg.ConfigurableResource | None = None,
        secrets_manager: SecretsManagerResource | None = None,
        secrets: Mapping[str, str] | None = None,
        ssm: SSMResource | None = None,
        parameters: Mapping[str, str] | None = None,
    ) -> ManifestResource:
        """Returns the resource for a project that configures AWS with dagster-aws: the platform uses the same access.

        `s3`: region, endpoint, profile and keys for landing, output and merged files. `dynamodb`: the same for the manifest's
        table, on any resource with the fields of `dagster_aws.utils.ResourceWithBoto3Configuration`, since dagster-aws has none
        for DynamoDB. Both apply to the whole process. `secrets`: maps variables of the configuration to names of secrets, or
        `name#key` for a key of a JSON secret. `parameters`: maps variables to names of parameters. Both are fetched when they
        are needed, masked everywhere, and never shown on Dagster's pages. Pass the result to `build_defs`. Raises ConfigError.
        """
        if (secrets and not secrets_manager) or (parameters and not ssm):
            raise ConfigError("from_aws: give secrets_manager with secrets, and ssm with parameters")
        take_access(s3, dynamodb)
        if secrets_manager:
            take_secrets(secrets_manager, secrets or {})
        if ssm:
            take_parameters(ssm, parameters or {})
        return cls(config_file=config_file)

    @contextmanager
    def pipeline(self, dataset: str, run_id: str | None = None) -> Generator[Pipeline]:
        """Yields the pipeline of a dataset, closed at the end of the block. Raises ConfigError for an unknown dataset.

        Removes secrets from errors that the block raises, because Dagster stores the text of an error and of its causes.
        """
        try:
            config = self.configuration()
            with Pipeline(config, config.dataset(dataset), run_id, author="dagster") as pipeline:
                yield pipeline
        except dg.Failure as error:
            said = failure(error.description, error.metadata, error.allow_retries).with_traceback(error.__traceback__)
            raise said from freed(error.__cause__) if error.__cause__ else None
        except Exception as error:
            fit = freed(error)
            if fit is error:
                raise
            raise fit from fit.__cause__

    def configuration(self) -> Config:
        """Returns the configuration that the pipelines use."""
        return load(self.config_file)


class SparkResource(LazyPySparkResource):
    """dagster-pyspark's lazy Spark resource, with the configuration's Spark properties; classic Spark or Spark Connect.

    Each process has one session, made at first use, for the platform's stages and for a user's own assets. The command line
    uses the same settings. `spark_config` adds to them, nested or with dots, as in dagster-pyspark.
    """

    config_file: str | None = None
    spark_config: dict[str, Any] = {}
    _spark_session: Any = PrivateAttr(default=None)

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = load(self.config_file).spark.session(dict(flatten_dict(self.spark_config)))

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Ends a session that costs money or holds a cluster's resources; others stay for the process's next run."""
        self._spark_session = None
        spark.end()


class WarehouseResource(dg.ConfigurableResource):
    """The warehouse, opened read-only, for queries in a user's own assets."""

    config_file: str | None = None

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Returns the rows of a query.

        Raises Unavailable before the first load, and while another process has an embedded warehouse open. Raises another
        WarehouseError for a statement that fails or that writes.
        """
        with closing(load(self.config_file).warehouse.open(read_only=True)) as warehouse:
            return warehouse.query(sql)[1]
