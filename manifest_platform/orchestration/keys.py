"""Dagster's names for the parts of a dataset: asset keys, as the translator gives them, and partition sets."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import dagster as dg

from manifest_platform.config import Config
from manifest_platform.listing import Table
from manifest_platform.merging.state import MergedTable
from manifest_platform.orchestration.translator import (
    MERGED,
    MERGED_TABLE,
    AssetKind,
    DatasetProps,
    DatasetTranslator,
)
from manifest_platform.pipeline.outputs import stage_of
from manifest_platform.sources.source import Source, Stage

DATASET_TAG = "manifest_platform/dataset"
SHREDDED = str(Stage.SHREDDED)
_KINDS = {Stage.LANDED: AssetKind.LANDED, Stage.SHREDDED: AssetKind.SHREDDED, Stage.WAREHOUSE: AssetKind.LOADED}


@dataclass(frozen=True)
class FeedAsset:
    """An asset partitioned by a feed, as parsed from its key. `name`: the part of the key below dataset and feed."""

    dataset: str
    feed: str
    name: str


class Names:
    """The names of a dataset's assets and partition sets. The translator is asked for each key once.

    `main_table`: the table whose row count is shown separately. `target`: the target that `warehouse` and `table` mean.
    `schema`: the schema of the dataset's tables in the warehouse.
    """

    def __init__(self, config: Config, source: Source, translator: DatasetTranslator | None = None) -> None:
        self.dataset, self.feeds, self.main_table = source.dataset, source.feeds, source.main_table
        self.schema = config.datasets[source.dataset].load.schema_name or source.dataset
        self._config, self._source, self._translator = config, source, translator or DatasetTranslator()
        self._keys: dict[tuple[AssetKind, str | None, str | None, str], dg.AssetKey] = {}
        self.targets = config.targets_of(source.dataset)
        self.target = self.targets[0]
        stages: dict[str, Callable[[str], dg.AssetKey]] = {SHREDDED: self.shredded, source.words.directories: self.landed}
        stages |= {stage_of(target): self.at(target).warehouse for target in self.targets}
        self._stages = {key(feed): FeedAsset(self.dataset, feed, name) for feed in self.feeds for name, key in stages.items()}

    def at(self, target: str) -> Names:
        """Returns the names for another target of the dataset. They differ in the assets of loads and tables."""
        other = copy.copy(self)
        other.target = target
        return other

    def spec(
        self, kind: AssetKind, feed: str | None = None, table: str | None = None, columns: Table | MergedTable | None = None
    ) -> dg.AssetSpec:
        """Returns the spec of an asset with its key, without dependencies and partitions."""
        props = DatasetProps(kind, self._config, self._source, feed, table, columns, self.target)
        spec = self._translator.get_asset_spec(props)
        self._keys[kind, feed, table, self.target] = spec.key
        return spec

    def _key(self, kind: AssetKind, feed: str | None = None, table: str | None = None) -> dg.AssetKey:
        known = self._keys.get((kind, feed, table, self.target))
        return known or self.spec(kind, feed, table).key

    def stage(self, feed: str, stage: Stage) -> dg.AssetKey:
        """The key of a feed's asset at a stage."""
        return self._key(_KINDS[stage], feed)

    def landed(self, feed: str) -> dg.AssetKey:
        """The key of the asset of a feed's landed directories."""
        return self._key(AssetKind.LANDED, feed)

    def shredded(self, feed: str) -> dg.AssetKey:
        """The key of the asset of a feed's shredded output."""
        return self._key(AssetKind.SHREDDED, feed)

    def warehouse(self, feed: str) -> dg.AssetKey:
        """The key of the asset of a feed's loads into the warehouse."""
        return self._key(AssetKind.LOADED, feed)

    def table(self, name: str) -> dg.AssetKey:
        """The key of the asset of a warehouse table."""
        return self._key(AssetKind.TABLE, table=name)

    def merged(self, table: str) -> dg.AssetKey:
        """The key of the asset of a merged table."""
        return self._key(AssetKind.MERGED, table=table)

    @property
    def published(self) -> dg.AssetKey:
        """The key of the asset for the published merged tables."""
        return self._key(AssetKind.PUBLISHED)

    @property
    def overview(self) -> dg.AssetKey:
        """The key of the dataset's overview."""
        return self._key(AssetKind.OVERVIEW)

    def own(self, feed: str, name: str) -> dg.AssetKey:
        """The key of a user's own asset, by its name below dataset and feed."""
        below = [feed, name] if len(self.feeds) > 1 else [name]
        return dg.AssetKey([*self.prefix, self.dataset, *below])

    def partitions(self, feed: str) -> dg.DynamicPartitionsDefinition:
        """The partition set of a feed: a partition for each item, by its name."""
        return item_partitions(self.dataset, feed)

    @property
    def prefix(self) -> tuple[str, ...]:
        """The prefix that the translator puts before the keys of the main feed's assets; empty if it changes them otherwise."""
        props = DatasetProps(AssetKind.SHREDDED, self._config, self._source, self._source.main)
        path, below = self.shredded(self._source.main).path, props.default_key.path
        return tuple(path[: -len(below)]) if path[-len(below) :] == below else ()

    def place(self, key: dg.AssetKey) -> FeedAsset | None:
        """Returns the place of an asset on the partitions of a feed, ours or a user's; None for any other asset.

        A user's key is the dataset, the feed if there are several, and a name. The translator's prefix may precede it.
        """
        if key in self._stages:
            return self._stages[key]
        path, prefix = key.path, list(self.prefix)
        below = path[len(prefix) :] if prefix and path[: len(prefix)] == prefix else path
        if len(below) < 2 or below[0] != self.dataset:
            return None
        if len(self.feeds) > 1 and below[1] in self.feeds:
            return FeedAsset(self.dataset, below[1], "/".join(below[2:]))
        return FeedAsset(self.dataset, self._source.main, "/".join(below[1:]))

    def merged_table(self, key: dg.AssetKey) -> str | None:
        """The merged table of an asset; None for any other asset."""
        for (kind, _, table, _), known in self._keys.items():
            if kind is AssetKind.MERGED and known == key:
                return table
        if MERGED not in key.path or not key.path[-1].endswith(MERGED_TABLE):
            return None
        table = key.path[-1].removesuffix(MERGED_TABLE)
        return table if self.merged(table) == key else None


def item_partitions(dataset: str, feed: str) -> dg.DynamicPartitionsDefinition:
    """The partition set of a feed: a partition for each item, by its name."""
    return dg.DynamicPartitionsDefinition(name=f"{dataset}_{feed}")
