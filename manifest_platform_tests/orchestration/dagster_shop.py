"""A shop in Dagster, with real Spark, SQLite and DuckDB."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

import dagster as dg

from manifest_platform.config import load
from manifest_platform.listing import Listing
from manifest_platform.manifest import Application, Ready
from manifest_platform.orchestration.keys import item_partitions
from manifest_platform.pipeline import LOAD, SHRED, Pipeline
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.orchestration.code_location import CodeLocation, Result, materialized_by
from manifest_platform_tests.pipeline.shop import NAME, Shop, keys, run_name, run_names
from manifest_platform_tests.servers.stores import tampered

PARTITIONS = str(item_partitions(NAME, FEED).name)


def key(asset: str) -> dg.AssetKey:
    return dg.AssetKey([NAME, *asset.split("/")])


class DagsterShop(CodeLocation):
    """A shop with its definitions (and a user's own assets) and a Dagster instance. Tests add its partitions by number."""

    def __init__(self, shop: Shop, instance: dg.DagsterInstance, assets: Collection[dg.AssetsDefinition] = ()) -> None:
        super().__init__(shop.config_file, NAME, instance, assets)
        self.shop = shop

    def add(self, *numbers: int) -> None:
        """Adds partitions, in this order, which becomes Dagster's order."""
        self.instance.add_dynamic_partitions(PARTITIONS, run_names(*numbers))

    def materialize(self, assets: Collection[str], first: int, last: int | None = None) -> Result:
        """Runs an asset for a partition or a range."""
        return self.run_assets(assets, run_name(first), None if last is None else run_name(last))

    def drain(self, **config: Any) -> Result:
        """Runs the drain job."""
        return self.run_job(f"{NAME}_drain", config)

    def checks(self) -> dict[str, dg.AssetCheckEvaluation]:
        """Runs all asset checks."""
        return {name: evaluation for (_, name), evaluation in self.run_checks().items()}

    def partitions(self) -> list[str]:
        return list(self.instance.get_dynamic_partitions(PARTITIONS))

    def metadata(self, asset: str, number: int) -> dict[str, Any]:
        """Returns the metadata of the newest materialization of an asset's partition."""
        return self.shown(asset, run_name(number))


def materializations(result: Result, asset: str) -> list[str | None]:
    """Returns the partitions of an asset that a run materialized, in the run's order."""
    return materialized_by(result, key(asset))


def records(shop: Shop) -> int:
    """Returns the number of records in the log."""
    with shop.open() as pipeline:
        return sum(len(item.records) for item in pipeline.manifest.items(FEED))


def tamper(shop: Shop, number: int, application: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes the payload of an application's record of an item, directly in the store."""

    def changed(sort: str, record: dict[str, Any]) -> bool:
        found = run_name(number) in sort and (record["state"], record["application"]["name"]) == ("Processed", application)
        if found:
            change(record["payload"]["data"])
        return found

    store = load(shop.config_file).manifest.store
    assert tampered(store, NAME, "RECORD#", changed), f"{application} has not processed {run_name(number)}"


def break_listing(shop: Shop, number: int) -> Callable[[], None]:
    """Makes the load of a shredded item fail permanently: its listing has a row more than its objects.

    Returns a function that restores the listing.
    """
    with shop.open() as pipeline:
        record = pipeline.manifest.item(keys(pipeline, number)[0]).processed_by(Application(SHRED))
    assert record
    listing = Listing.read(record.data["listing"])
    first, *others = listing.objects
    promised = dataclasses.replace(first, rows=first.rows + 1)
    broken = f"file://{shop.home}/broken-{number}.json"  # in another file, because copies of a shop share the shredded output
    dataclasses.replace(listing, objects=(promised, *others)).write(broken)
    tamper(shop, number, "shred", lambda data: data.update(listing=broken))
    return lambda: tamper(shop, number, "shred", lambda data: data.update(listing=record.data["listing"]))


def lose_listing(shop: Shop, number: int) -> None:
    """Makes the manifest name a listing that does not exist."""
    tamper(shop, number, "shred", lambda data: data.update(listing=f"file://{shop.home}/nowhere.json"))


def resolve(shop: Shop, number: int) -> None:
    with shop.open() as pipeline:
        pipeline.manifest.resolve(keys(pipeline, number)[0], "tried again")


def next_ready(pipeline: Pipeline) -> Ready:
    """Returns the next item to load, as the holder of the lease would get it."""
    verdict = pipeline.manifest.next(FEED, LOAD, holding=True)
    assert isinstance(verdict, Ready)
    return verdict
