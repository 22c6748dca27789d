"""Loads runs of a former loader beside it, into another schema, so that both can be compared before anything is taken over.

They are loaded as a dataset of their own, `NAME_beside`, with the settings of the dataset but for the schema. So the dataset
itself has loaded nothing yet, and its tables can still be taken over.
"""

from __future__ import annotations

from collections.abc import Iterator

from manifest_platform.config import Config
from manifest_platform.manifest import Refused
from manifest_platform.operations.cutover.look import former_loader, look
from manifest_platform.pipeline import Pipeline
from manifest_platform.sources.source import DirectoryName

_PART = 1000
"""The number of names of the landing that are read at a time."""


def beside(config: Config, dataset: str, schema: str) -> tuple[Config, str]:
    """Returns a configuration that has the dataset once more, loaded into a schema beside, and that dataset's name.

    Raises Refused if the schema or the name is in use.
    """
    name, settings = f"{dataset}_beside", config.datasets[dataset]
    if name in config.datasets:
        raise Refused(f"the configuration has a dataset {name}, and loads beside {dataset} have this name")
    if schema in (dataset, settings.load.schema_name):
        raise Refused(f"schema {schema} is that of dataset {dataset}: give another, which need not exist")
    load = settings.load.model_copy(update={"schema_name": schema})
    datasets = {**config.datasets, name: settings.model_copy(update={"load": load})}
    return config.model_copy(update={"datasets": datasets}), name


def register(pipeline: Pipeline, schema: str | None = None, source_root: str = "", newest: int = 10) -> list[str]:
    """Registers the newest runs that the former loader has loaded and that are still in the landing, and returns their names.

    Raises NothingToTakeOver, Refused, LandingError, WarehouseError and StoreError.
    """
    found = look(pipeline, schema, source_root)
    if pipeline.schema == found.schema:
        raise Refused(f"schema {found.schema} is that of {former_loader(pipeline.source).name}: give another with --beside")
    gone = set(found.gone)
    names = [name for name in found.runs if name not in gone][-newest:]
    feed, source = pipeline.source.main, pipeline.source
    read = [source.read(feed, one) for one in _named(pipeline, set(names))]
    pipeline.manifest.discover(feed, [source.landed(feed, one) for one in read if one])
    return names


def _named(pipeline: Pipeline, wanted: set[str]) -> Iterator[DirectoryName]:
    """Yields those directories of the landing root that have one of these names."""
    beyond: str | None = ""
    while beyond is not None:
        found = pipeline.source.names(pipeline.source.main, beyond, _PART)
        yield from (one for one in found.names if one.name in wanted)
        beyond = found.upto
