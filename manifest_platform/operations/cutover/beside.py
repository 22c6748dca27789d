"""Loads runs of a former loader beside it, into another schema, so that both can be compared before anything is taken over.

They are loaded as a dataset of their own, `NAME_beside_SCHEMA`, with the settings of the dataset but for the schema. So the
dataset itself has loaded nothing yet, and its tables can still be taken over. Commands find the dataset by this name, although
no configuration has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from manifest_platform.config import Config
from manifest_platform.manifest import ItemKey, Refused
from manifest_platform.operations.cutover.look import former_loader, look
from manifest_platform.operations.reload import reload
from manifest_platform.pipeline import Pipeline
from manifest_platform.sources.source import DirectoryName

BESIDE = "_beside_"
"""Between the names of a dataset and of the schema that its runs are loaded into beside."""
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_PART = 1000
"""The number of names of the landing that are read at a time."""


def beside(config: Config, dataset: str, schema: str) -> tuple[Config, str]:
    """Returns a configuration that has the dataset once more, loaded into a schema beside, and that dataset's name.

    Raises Refused if the schema or the name is in use, or is no name.
    """
    name, settings = f"{dataset}{BESIDE}{schema}", config.datasets[dataset]
    if not _NAME.fullmatch(schema) or not _NAME.fullmatch(name):
        raise Refused(
            f"{schema!r} is no name of a schema: write lower case letters, digits and underscore, so few that {name} has at"
            " most 63 characters"
        )
    if name in config.datasets:
        raise Refused(f"the configuration has a dataset {name}, and loads beside {dataset} have this name")
    if schema in (dataset, settings.load.schema_name):
        raise Refused(f"schema {schema} is that of dataset {dataset}: give another, which need not exist")
    load = settings.load.model_copy(update={"schema_name": schema, "late": "append"})  # older runs may be asked for later
    datasets = {**config.datasets, name: settings.model_copy(update={"load": load})}
    return config.model_copy(update={"datasets": datasets}), name


def with_beside(config: Config, name: str) -> Config:
    """Returns the configuration with the dataset of a name `NAME_beside_SCHEMA`; as it is for another name. Raises Refused."""
    for dataset in config.datasets if name not in config.datasets else ():
        before, _, schema = name.partition(f"{dataset}{BESIDE}")
        if not before and schema:
            return beside(config, dataset, schema)[0]
    return config


def register(pipeline: Pipeline, schema: str | None = None, source_root: str = "", newest: int = 10) -> list[str]:
    """Registers the newest runs that the former loader has loaded and that are still in the landing, and returns their names.

    If the schema was dropped since runs were loaded into it, these are loaded again. Raises NothingToTakeOver, Refused,
    LandingError, WarehouseError and StoreError.
    """
    found = look(pipeline, schema, source_root)
    if pipeline.schema == found.schema:
        raise Refused(f"schema {found.schema} is that of {former_loader(pipeline.source).name}: give another with --beside")
    gone = set(found.gone)
    names = [name for name in found.runs if name not in gone][-newest:]
    feed, source = pipeline.source.main, pipeline.source
    read = [source.read(feed, one) for one in _named(pipeline, set(names))]
    pipeline.manifest.discover(feed, [source.landed(feed, one) for one in read if one])
    for key in [*_lost(pipeline)]:
        reload(pipeline, key, f"schema {pipeline.schema} was dropped", missing_rows=True)
    return names


def _lost(pipeline: Pipeline) -> Iterator[ItemKey]:
    """Yields the loaded items of a dataset whose tables are gone, unless they wait to be loaded again."""
    state = pipeline.manifest.state(pipeline.load)
    if state.has_begun and not pipeline.warehouse.table_names():
        for item in pipeline.manifest.items(pipeline.source.main):
            if item.processed_by(pipeline.load) and not item.is_reload_asked(pipeline.load):
                yield item.key


def _named(pipeline: Pipeline, wanted: set[str]) -> Iterator[DirectoryName]:
    """Yields those directories of the landing root that have one of these names."""
    beyond: str | None = ""
    while beyond is not None:
        found = pipeline.source.names(pipeline.source.main, beyond, _PART)
        yield from (one for one in found.names if one.name in wanted)
        beyond = found.upto
