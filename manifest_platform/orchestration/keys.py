"""What Dagster calls the things of a dataset: the keys of its assets, as its translator gives them, and its partition sets."""

from __future__ import annotations

from dataclasses import dataclass

import dagster as dg

from manifest_platform.config import Config
from manifest_platform.listing import Table
from manifest_platform.merging.state import MergedTable
from manifest_platform.orchestration.translator import (
    MERGED,
    MERGED_TABLE,
    WAREHOUSE,
    AssetKind,
    DatasetProps,
    DatasetTranslator,
)
from manifest_platform.sources.source import Source, Stage

DATASET_TAG = "manifest_platform/dataset"
SHREDDED = str(Stage.SHREDDED)
_KINDS = {Stage.LANDED: AssetKind.LANDED, Stage.SHREDDED: AssetKind.SHREDDED, Stage.WAREHOUSE: AssetKind.LOADED}


@dataclass(frozen=True)
class FeedAsset:
    """What the key of an asset on the partitions of a feed says. `name`: its path below dataset and feed."""

    dataset: str
    feed: str
    name: str


class Names:
    """The names of a dataset's things. Its translator is asked for each key once.

    `main_table`: the table whose rows are shown by themselves.
    """

    def __init__(self, config: Config, source: Source, translator: DatasetTranslator | None = None) -> None:
        self.dataset, self.feeds, self.main_table = source.dataset, source.feeds, source.main_table
        self._config, self._source, self._translator = config, source, translator or DatasetTranslator()
        self._keys: dict[tuple[AssetKind, str | None, str | None], dg.AssetKey] = {}
        stages = {SHREDDED: self.shredded, WAREHOUSE: self.warehouse, source.words.directories: self.landed}
        self._stages = {key(feed): FeedAsset(self.dataset, feed, name) for feed in self.feeds for name, key in stages.items()}

    def spec(
        self, kind: AssetKind, feed: str | None = None, table: str | None = None, columns: Table | MergedTable | None = None
    ) -> dg.AssetSpec:
        """What Dagster is told of an asset, its key included; dependencies and partitions are not in it."""
        spec = self._translator.get_asset_spec(DatasetProps(kind, self._config, self._source, feed, table, columns))
        self._keys[kind, feed, table] = spec.key
        return spec

    def _key(self, kind: AssetKind, feed: str | None = None, table: str | None = None) -> dg.AssetKey:
        known = self._keys.get((kind, feed, table))
        return known or self.spec(kind, feed, table).key

    def stage(self, feed: str, stage: Stage) -> dg.AssetKey:
        """The key of the asset of a stage of a feed."""
        return self._key(_KINDS[stage], feed)

    def landed(self, feed: str) -> dg.AssetKey:
        """The key of the asset of a feed's directories."""
        return self._key(AssetKind.LANDED, feed)

    def shredded(self, feed: str) -> dg.AssetKey:
        """The key of the asset of a feed's shredded output."""
        return self._key(AssetKind.SHREDDED, feed)

    def warehouse(self, feed: str) -> dg.AssetKey:
        """The key of the asset of what is loaded of a feed."""
        return self._key(AssetKind.LOADED, feed)

    def table(self, name: str) -> dg.AssetKey:
        """The key of the asset of a table of the warehouse."""
        return self._key(AssetKind.TABLE, table=name)

    def merged(self, table: str) -> dg.AssetKey:
        """The key of the asset of a merged table."""
        return self._key(AssetKind.MERGED, table=table)

    @property
    def published(self) -> dg.AssetKey:
        """The key of the asset of what readers are shown of the merged tables."""
        return self._key(AssetKind.PUBLISHED)

    @property
    def overview(self) -> dg.AssetKey:
        """The key of the asset that says how far the dataset is."""
        return self._key(AssetKind.OVERVIEW)

    def own(self, feed: str, name: str) -> dg.AssetKey:
        """The key of an asset of a user's own, by its name below dataset and feed."""
        below = [feed, name] if len(self.feeds) > 1 else [name]
        return dg.AssetKey([*self.prefix, self.dataset, *below])

    def partitions(self, feed: str) -> dg.DynamicPartitionsDefinition:
        """The partition set of a feed: a partition an item, by its name."""
        return item_partitions(self.dataset, feed)

    @property
    def prefix(self) -> tuple[str, ...]:
        """What a translator puts before the keys of the main feed's assets; nothing where it names them anew."""
        props = DatasetProps(AssetKind.SHREDDED, self._config, self._source, self._source.main)
        path, below = self.shredded(self._source.main).path, props.default_key.path
        return tuple(path[: -len(below)]) if path[-len(below) :] == below else ()

    def place(self, key: dg.AssetKey) -> FeedAsset | None:
        """Where an asset on the partitions of a feed belongs, ours or a user's; None for one of no feed of the dataset.

        A user's key is the dataset, the feed where there are several, and a name; a translator's prefix may stand before it.
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
        """The merged table that an asset is; None for another asset."""
        for (kind, _, table), known in self._keys.items():
            if kind is AssetKind.MERGED and known == key:
                return table
        if MERGED not in key.path or not key.path[-1].endswith(MERGED_TABLE):
            return None
        table = key.path[-1].removesuffix(MERGED_TABLE)
        return table if self.merged(table) == key else None


def item_partitions(dataset: str, feed: str) -> dg.DynamicPartitionsDefinition:
    """The partition set of a feed: a partition an item, by its name."""
    return dg.DynamicPartitionsDefinition(name=f"{dataset}_{feed}")
