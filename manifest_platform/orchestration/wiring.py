"""Wiring: what the definitions of a dataset share, so that none takes a resource of the code location.

A resource has a name that the whole code location shares: two datasets of two configurations could not stand in one, nor beside
a user's own resources of these names.
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
    """A dataset as definitions are made of it. `config`: as it was then; a run and a tick read the file again."""

    config: Config
    source: Source
    names: Names
    manifest: ManifestResource

    @property
    def dataset(self) -> str:
        """The name of the dataset."""
        return self.source.dataset

    def pipeline(self, run_id: str | None = None) -> AbstractContextManager[Pipeline]:
        """The dataset's pipeline, closed at the end of the block."""
        return self.manifest.pipeline(self.dataset, run_id)

    def spark_session(self) -> Any:
        """The Spark session of this process, made where there is none."""
        return SparkResource(config_file=self.manifest.config_file).spark_session


def wirings_of(manifest: ManifestResource, translator: DatasetTranslator | None = None) -> dict[str, Wiring]:
    """The datasets of a configuration that have feeds, by name: of the others, programs do the work. Raises ConfigError."""
    config = manifest.configuration()
    sources = (open_source(dataset, settings) for dataset, settings in config.datasets.items())
    return {
        source.dataset: Wiring(config, source, Names(config, source, translator), manifest)
        for source in sources
        if source.feeds
    }


def is_about(run: dg.DagsterRun, wirings: Mapping[str, Wiring]) -> bool:
    """Whether a run was about any of some datasets and nothing else, by its job's tag or by its assets."""
    if DATASET_TAG in run.tags:
        return run.tags[DATASET_TAG] in wirings
    places = [any(one.names.place(key) for one in wirings.values()) for key in run.asset_selection or ()]
    return bool(places) and all(places)
