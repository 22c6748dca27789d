"""What Dagster calls things: assets, partition sets and jobs of a dataset.

A feed is a part of its assets' keys where its source has several: `acme/warehouse`, but `vault/incr/warehouse`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from manifest_platform.pipeline import SOURCES
from manifest_platform.sources.settings import DatasetSettings
from manifest_platform.sources.veeva.settings import VeevaSettings

DATASET_TAG = "manifest_platform/dataset"
SHREDDED, WAREHOUSE = "shredded", "warehouse"
_ALONE = frozenset(source.main for source in SOURCES.values() if len(source.feeds) == 1)


def asset_key(dataset: str, feed: str, asset: str) -> dg.AssetKey:
    """The key of one of a feed's assets."""
    return dg.AssetKey([dataset, asset] if feed in _ALONE else [dataset, feed, asset])


def group_name(dataset: str, feed: str) -> str:
    """The group of a feed's assets: the page shows only the end of a key, which several feeds share."""
    return dataset if feed in _ALONE else f"{dataset}_{feed}"


@dataclass(frozen=True)
class Asset:
    """What the key of an asset on the partitions of a feed says. `name`: its path below dataset and feed."""

    dataset: str
    feed: str
    name: str


def asset_of(settings: DatasetSettings, path: Sequence[str]) -> Asset:
    """The dataset, feed and name of an asset, of ours or a user's own, by its key's path."""
    source = SOURCES[settings.source]
    if source.main not in _ALONE and path[1] in source.feeds:
        return Asset(path[0], path[1], "/".join(path[2:]))
    return Asset(path[0], source.main, "/".join(path[1:]))


def item_partitions(dataset: str, feed: str) -> dg.DynamicPartitionsDefinition:
    """The partition set of a feed: one partition an item, by its name."""
    return dg.DynamicPartitionsDefinition(name=f"{dataset}_{feed}")


def op_name(dataset: str, feed: str, asset: str) -> str:
    """The name of the op behind an asset."""
    return asset_key(dataset, feed, asset).to_python_identifier()


def is_captured(settings: DatasetSettings) -> bool:
    """Whether the platform captures a dataset's directories itself; otherwise others land them."""
    return isinstance(settings, VeevaSettings) and settings.vault.url is not None


@dataclass(frozen=True)
class Drain:
    """A drain that Dagster runs: the name of its job, and the feeds that it drains, in order."""

    job: str
    feeds: tuple[str, ...]


def drains(dataset: str, settings: DatasetSettings) -> list[Drain]:
    """A dataset's drains: one, or one for its logs beside. They take turns: an embedded warehouse has one writer."""
    feeds = SOURCES[settings.source].feeds
    if not isinstance(settings, VeevaSettings) or settings.load.logs == "with":
        return [Drain(f"{dataset}_drain", feeds)]
    return [Drain(f"{dataset}_drain", tuple(feed for feed in feeds if feed != "log")), Drain(f"{dataset}_log_drain", ("log",))]
