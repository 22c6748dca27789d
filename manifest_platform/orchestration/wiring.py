"""Wiring: the configuration, source, names and resources that the definitions of a dataset share.

Definitions do not use resources of the code location. Resource names are shared by a whole code location, so that two
configurations in one location, or a user's resources of the same names, would conflict.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import dagster as dg

from manifest_platform.config import Config
from manifest_platform.orchestration.keys import DATASET_TAG, Names
from manifest_platform.orchestration.resources import ManifestResource, SparkResource
from manifest_platform.orchestration.translator import DatasetTranslator
from manifest_platform.pipeline import Pipeline
from manifest_platform.sources.source import Source, open_source


@dataclass(frozen=True)
class Wiring:
    """The parts from which a dataset's definitions are made. `config`: as loaded then; runs and ticks read the file again."""

    config: Config
    source: Source
    names: Names
    manifest: ManifestResource

    @property
    def dataset(self) -> str:
        """The name of the dataset."""
        return self.source.dataset

    def pipeline(self, run_id: str | None = None) -> AbstractContextManager[Pipeline]:
        """Returns the dataset's pipeline as a context manager that closes it."""
        return self.manifest.pipeline(self.dataset, run_id)

    def spark_session(self) -> Any:
        """Returns the Spark session of this process; creates it if there is none."""
        return SparkResource(config_file=self.manifest.config_file).spark_session


def wirings_of(manifest: ManifestResource, translator: DatasetTranslator | None = None) -> dict[str, Wiring]:
    """Returns the wirings of the configured datasets that have feeds, by name. Raises ConfigError.

    Datasets without feeds are worked on by programs, not by Dagster.
    """
    config = manifest.configuration()
    sources = (open_source(dataset, settings) for dataset, settings in config.datasets.items())
    return {
        source.dataset: Wiring(config, source, Names(config, source, translator), manifest)
        for source in sources
        if source.feeds
    }


def is_about(run: dg.DagsterRun, wirings: Mapping[str, Wiring]) -> bool:
    """True if a run is about some of these datasets and nothing else, by its job's tag or its assets."""
    if DATASET_TAG in run.tags:
        return run.tags[DATASET_TAG] in wirings
    places = [any(one.names.place(key) for one in wirings.values()) for key in run.asset_selection or ()]
    return bool(places) and all(places)
