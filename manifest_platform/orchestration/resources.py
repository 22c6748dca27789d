"""Resources: the manifest's pipelines, Spark, and the warehouse, each opened for the run that uses it.

All of them read the one configuration; none has settings of its own, so the command line and Dagster never differ.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from dagster_spark.utils import flatten_dict
from pydantic import PrivateAttr

from manifest_platform.config import Config, load
from manifest_platform.orchestration.events import failure
from manifest_platform.outward import freed
from manifest_platform.pipeline import Pipeline
from manifest_platform.spark import session


class ManifestResource(dg.ConfigurableResource):
    """Opens the pipeline of a dataset: its manifest, landing root, shredder and warehouse."""

    config_file: str | None = None

    @contextmanager
    def pipeline(self, dataset: str, run_id: str | None = None) -> Generator[Pipeline]:
        """The pipeline of a dataset, closed at the end of the block. Raises ConfigError for an unknown dataset.

        What the block raises is freed of secrets: Dagster keeps the text of an error, and of all that led to it.
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
        """The configuration that the pipelines are opened with."""
        return load(self.config_file)


class SparkResource(LazyPySparkResource):
    """dagster-pyspark's lazy Spark, with the settings of the configuration's properties file: classic or Spark Connect.

    One session a process, made at first use, for the platform's stages and for assets of one's own; the command line opens the
    same. `spark_config` adds to the file's settings, nested or with dots, as dagster-pyspark has them.
    """

    config_file: str | None = None
    spark_config: dict[str, Any] = {}
    _spark_session: Any = PrivateAttr(default=None)

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = session(load(self.config_file).spark.conf, dict(flatten_dict(self.spark_config)))


class WarehouseResource(dg.ConfigurableResource):
    """The warehouse for assets of one's own: queries against what is committed, which cannot change anything."""

    config_file: str | None = None

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query, from the warehouse opened read-only.

        Raises Unavailable before the first load and while another process has an embedded warehouse open, and other
        WarehouseErrors for a statement that fails or that writes.
        """
        with closing(load(self.config_file).warehouse.open(read_only=True)) as warehouse:
            return warehouse.query(sql)[1]
