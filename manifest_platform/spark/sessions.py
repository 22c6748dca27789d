"""The Spark session described by a properties file alone: the same for the command line, Dagster and a user's own assets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from manifest_platform import plugins
from manifest_platform.spark.place import START_S, Place, place_of
from manifest_platform.spark.properties import properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(conf_file: str | Path, more: Mapping[str, object] | None = None, start_seconds: float = START_S) -> SparkSession:
    """Returns the process's Spark session, with the properties of a file and `more`, at the place that they name.

    Raises MissingExtra and SparkUnavailable, also if no worker of a cluster runs a task within `start_seconds`.
    """
    where = place_of({**properties(conf_file), **(more or {})})
    place: Place = plugins.load(plugins.PLACES, where)(conf=str(conf_file), start_timeout_seconds=start_seconds)
    return place.session(more)
