"""The translator: what Dagster is told of each asset of a dataset, its key, group, description, owners, tags and kinds.

    <dataset>[/<feed>]/<directories>    what landed                          acme/enriched_runs, vault/incr/windows
    <dataset>[/<feed>]/shredded         its shredded output
    <dataset>[/<feed>]/<target>         what is loaded into a target         acme/warehouse
    <dataset>/<target>/<table>          a table of a target                  acme/warehouse/events
    <dataset>/merged/<table>_merged     a merged table, as pages show only the last part of a key
    <dataset>/overview                  how far it is, what is stuck, what to do
    <dataset>/published                 what readers are shown of the merged tables

A feed is a part of its assets' keys where its source has several. `warehouse` is the only target; another one would be another
name beside it. Belongs here: the defaults, and how users change them. What a run adds to its events is in `metadata`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

import dagster as dg

from manifest_platform import storage
from manifest_platform.config import Config, ConfigError
from manifest_platform.listing import Table
from manifest_platform.merging.state import MergedTable
from manifest_platform.sources.source import Source, Stage

WAREHOUSE = str(Stage.WAREHOUSE)
MERGED, MERGED_TABLE = "merged", "_merged"
IO_MANAGER = "manifest_io_manager"
"""The name of the IO manager among a code location's resources: `io_manager` is the user's own."""


class AssetKind(StrEnum):
    """What an asset of a dataset is."""

    LANDED = "landed"
    SHREDDED = "shredded"
    LOADED = "loaded"
    TABLE = "table"
    MERGED = "merged"
    PUBLISHED = "published"
    OVERVIEW = "overview"


@dataclass(frozen=True)
class DatasetProps:
    """What a translator is told of an asset.

    `feed`: of the stages; None for a table, for what is published and for the overview. `table`: the name of a table of the
    target, or of a merged one; `columns`: what is known of it, None before anything was shredded, and where only its key is
    asked for.
    """

    kind: AssetKind
    config: Config
    source: Source
    feed: str | None = None
    table: str | None = None
    columns: Table | MergedTable | None = None
    target: str = WAREHOUSE

    @property
    def dataset(self) -> str:
        """The name of the dataset."""
        return self.source.dataset

    @property
    def default_key(self) -> dg.AssetKey:
        """The asset's key, where a translator does not give it another one."""
        match self.kind:
            case AssetKind.TABLE:
                return dg.AssetKey([self.dataset, self.target, str(self.table)])
            case AssetKind.MERGED:
                return dg.AssetKey([self.dataset, MERGED, f"{self.table}{MERGED_TABLE}"])
            case AssetKind.PUBLISHED | AssetKind.OVERVIEW:
                return dg.AssetKey([self.dataset, str(self.kind)])
        names = {AssetKind.LANDED: self.source.words.directories, AssetKind.SHREDDED: str(Stage.SHREDDED)}
        feed = [str(self.feed)] if len(self.source.feeds) > 1 else []
        return dg.AssetKey([self.dataset, *feed, names.get(self.kind, self.target)])


class DatasetTranslator:
    """What Dagster is told of each asset of a dataset. Subclass it, and give `build_defs` an instance.

    Keys that it changes are changed everywhere: in events, checks, sensors and the IO manager. Partitions and the dependencies
    between a dataset's own assets are the platform's.
    """

    def get_asset_spec(self, props: DatasetProps) -> dg.AssetSpec:
        """The spec of an asset. Call it from yours, and change what it gives with `replace_attributes`, `merge_attributes`."""
        return dg.AssetSpec(
            props.default_key,
            description=_description(props),
            group_name=_group(props),
            owners=[props.source.settings.owner],
            kinds=_kinds(props),
            metadata=_metadata(props),
            freshness_policy=_freshness(props),
        )


def _group(props: DatasetProps) -> str:
    """Groups fold: the stages of each feed, looked at first; the tables of the target; the merged tables and what is shown."""
    match props.kind:
        case AssetKind.TABLE:
            return f"{props.dataset}_tables"
        case AssetKind.MERGED | AssetKind.PUBLISHED:
            return f"{props.dataset}_merged"
        case AssetKind.OVERVIEW if len(props.source.feeds) > 1:
            return f"{props.dataset}_{props.source.main}"
    return props.dataset if props.feed is None or len(props.source.feeds) == 1 else f"{props.dataset}_{props.feed}"


def _description(props: DatasetProps) -> str:
    words = props.source.words
    match props.kind:
        case AssetKind.LANDED:
            return words.landed
        case AssetKind.SHREDDED:
            return words.shredded
        case AssetKind.LOADED:
            return words.loaded[str(props.feed)]
        case AssetKind.TABLE:
            return f"Table {props.dataset}.{props.table} of the warehouse."
        case AssetKind.MERGED:
            return f"Table {props.table} in well-sized Parquet objects, one partition a day."
        case AssetKind.OVERVIEW:
            return f"How far {props.dataset} is loaded, what is stuck and since when, what to do. Refreshed by itself."
    return "What readers are shown: partitions closed, switched and told to the catalog."


def _kinds(props: DatasetProps) -> set[str]:
    settings = props.source.settings
    match props.kind:
        case AssetKind.LANDED:
            return {props.source.words.kind, "s3" if settings.landing.root.startswith("s3://") else "file"}
        case AssetKind.SHREDDED | AssetKind.MERGED:
            return {"pyspark", "parquet"}
        case AssetKind.LOADED | AssetKind.TABLE:
            return {props.config.warehouse.kind, "table"}
        case AssetKind.OVERVIEW:
            return {"markdown"}
    return {settings.merge.catalog.read_by} if settings.merge else set()


def _freshness(props: DatasetProps) -> dg.FreshnessPolicy | None:
    """How fresh what is loaded has to be, where it is configured how often directories come; at least a minute."""
    every = props.source.settings.landing.expected_every_seconds.get(props.feed or "")
    if props.kind is not AssetKind.LOADED or every is None:
        return None
    return dg.FreshnessPolicy.time_window(fail_window=timedelta(seconds=max(every, 60)))


def _metadata(props: DatasetProps) -> dict[str, Any]:
    """Where an asset's files lie, and a table's name and columns."""
    settings = props.source.settings
    places = {AssetKind.LANDED: settings.landing.root, AssetKind.SHREDDED: settings.shred.output}
    if settings.merge:
        places[AssetKind.MERGED] = settings.merge.output
    at = {"dagster/uri": storage.as_uri(places[props.kind])} if props.kind in places else {}
    return {**at, **_table_metadata(props)}


def _table_metadata(props: DatasetProps) -> dict[str, Any]:
    match props.columns:
        case Table() as table:
            return table_metadata(props.dataset, table)
        case MergedTable() as table:
            merge = props.source.settings.merge
            said = merge.tables[table.key].comments if merge and table.key in merge.tables else {}
            return {
                "dagster/table_name": f"{table.schema}.{table.name}",
                "dagster/column_schema": dg.MetadataValue.table_schema(
                    dg.TableSchema(
                        [dg.TableColumn(column.name, column.type, said.get(column.name)) for column in table.columns]
                    )
                ),
            }
    return {}


def table_metadata(dataset: str, table: Table) -> dict[str, dg.MetadataValue]:
    """A table's name in the warehouse, and its column schema with what the source says of columns."""
    columns = [
        dg.TableColumn(
            column.name,
            column.type,
            description=table.descriptions.get(column.name),
            constraints=dg.TableColumnConstraints(nullable=column.nullable),
        )
        for column in table.columns
    ]
    return {
        "dagster/table_name": dg.MetadataValue.text(f"{dataset}.{table.name}"),
        "dagster/column_schema": dg.MetadataValue.table_schema(dg.TableSchema(columns)),
    }


def attributes(spec: dg.AssetSpec) -> dict[str, Any]:
    """What a spec says, as the decorator of an asset takes it."""
    _require_ours(spec)
    kinds = spec.kinds
    tags = {name: value for name, value in spec.tags.items() if name not in {f"dagster/kind/{kind}" for kind in kinds}}
    return {
        "key": spec.key,
        "description": spec.description,
        "group_name": spec.group_name,
        "owners": spec.owners,
        "kinds": kinds,
        "tags": tags,
        "metadata": spec.metadata,
        "automation_condition": spec.automation_condition,
        "code_version": spec.code_version,
        "freshness_policy": spec.freshness_policy,
        "io_manager_key": IO_MANAGER,
    }


def completed(spec: dg.AssetSpec, deps: Iterable[Any], partitions: dg.PartitionsDefinition | None = None) -> dg.AssetSpec:
    """A spec with the dependencies and partitions that the platform gives it, beside the dependencies that it has."""
    _require_ours(spec)
    return spec.replace_attributes(deps=[*spec.deps, *deps], partitions_def=partitions).with_io_manager_key(IO_MANAGER)


def _require_ours(spec: dg.AssetSpec) -> None:
    if spec.partitions_def is not None:
        raise ConfigError(
            f"asset {spec.key.to_user_string()}: a translator gives it partitions, which are the platform's; allowed: key,"
            " key_prefix, group_name, description, owners, tags, kinds, metadata, deps, automation_condition, code_version,"
            " freshness_policy"
        )
