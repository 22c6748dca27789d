"""What Dagster calls the things of a dataset: assets, groups, partition sets.

    <dataset>[/<feed>]/<directories>    what landed                          acme/enriched_runs, vault/incr/windows
    <dataset>[/<feed>]/shredded         its shredded output
    <dataset>[/<feed>]/<target>         what is loaded into a target         acme/warehouse
    <dataset>/<target>/<table>          a table of a target                  acme/warehouse/events
    <dataset>/merged/<table>_merged     a merged table, as pages show only the last part of a key
    <dataset>/published                 what readers are shown of the merged tables

A feed is a part of its assets' keys where its source has several. `warehouse` is the only target; another one would be another
name beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import dagster as dg

from manifest_platform.sources.source import Source, Stage

DATASET_TAG = "manifest_platform/dataset"
SHREDDED, WAREHOUSE = str(Stage.SHREDDED), str(Stage.WAREHOUSE)
_MERGED = "merged"
_MERGED_TABLE = f"_{_MERGED}"


@dataclass(frozen=True)
class FeedAsset:
    """What the key of an asset on the partitions of a feed says. `name`: its path below dataset and feed."""

    dataset: str
    feed: str
    name: str


@dataclass(frozen=True)
class Names:
    """The names of a dataset's things.

    `feeds`: those of its source; `directories`: the asset of what landed; `main_table`: the table whose rows are shown by
    themselves; `target`: what is loaded into.
    """

    dataset: str
    feeds: tuple[str, ...]
    directories: str
    main_table: str | None = None
    target: str = WAREHOUSE

    @classmethod
    def of(cls, source: Source) -> Self:
        """The names of a source's dataset."""
        return cls(source.dataset, source.feeds, source.words.directories, source.main_table)

    def asset(self, feed: str, name: str) -> dg.AssetKey:
        """The key of a feed's asset."""
        return dg.AssetKey([self.dataset, name] if len(self.feeds) == 1 else [self.dataset, feed, name])

    def stage(self, feed: str, stage: Stage) -> dg.AssetKey:
        """The key of the asset of a stage of a feed."""
        names = {Stage.LANDED: self.directories, Stage.WAREHOUSE: self.target}
        return self.asset(feed, names.get(stage, str(stage)))

    def landed(self, feed: str) -> dg.AssetKey:
        """The key of the asset of a feed's directories."""
        return self.stage(feed, Stage.LANDED)

    def shredded(self, feed: str) -> dg.AssetKey:
        """The key of the asset of a feed's shredded output."""
        return self.stage(feed, Stage.SHREDDED)

    def warehouse(self, feed: str) -> dg.AssetKey:
        """The key of the asset of what is loaded of a feed."""
        return self.stage(feed, Stage.WAREHOUSE)

    def table(self, name: str) -> dg.AssetKey:
        """The key of the asset of a table of the target."""
        return dg.AssetKey([self.dataset, self.target, name])

    def merged(self, table: str) -> dg.AssetKey:
        """The key of the asset of a merged table."""
        return dg.AssetKey([self.dataset, _MERGED, f"{table}{_MERGED_TABLE}"])

    def merged_table(self, key: dg.AssetKey) -> str | None:
        """The merged table that an asset is; None for another asset."""
        if len(key.path) != 3 or key.path[:2] != [self.dataset, _MERGED]:
            return None
        table = key.path[-1].removesuffix(_MERGED_TABLE)
        return table if self.merged(table) == key else None

    @property
    def published(self) -> dg.AssetKey:
        """The key of the asset of what readers are shown of the merged tables."""
        return dg.AssetKey([self.dataset, "published"])

    def group(self, feed: str) -> str:
        """The group of a feed's stages: the page shows only the end of a key, which several feeds share."""
        return self.dataset if len(self.feeds) == 1 else f"{self.dataset}_{feed}"

    @property
    def tables_group(self) -> str:
        """The group of the target's tables: apart from the stages, which are what is looked at first."""
        return f"{self.dataset}_tables"

    @property
    def merged_group(self) -> str:
        """The group of the merged tables, and of what readers are shown of them."""
        return f"{self.dataset}_merged"

    def partitions(self, feed: str) -> dg.DynamicPartitionsDefinition:
        """The partition set of a feed: a partition an item, by its name."""
        return item_partitions(self.dataset, feed)

    def read(self, path: Sequence[str], main: str) -> FeedAsset:
        """The dataset, feed and name of an asset, ours or a user's, by its key's path; of feed `main` where it names none."""
        if len(self.feeds) > 1 and path[1] in self.feeds:
            return FeedAsset(path[0], path[1], "/".join(path[2:]))
        return FeedAsset(path[0], main, "/".join(path[1:]))


def item_partitions(dataset: str, feed: str) -> dg.DynamicPartitionsDefinition:
    """The partition set of a feed: a partition an item, by its name."""
    return dg.DynamicPartitionsDefinition(name=f"{dataset}_{feed}")
