"""The translator: the key, group, description, owners, tags and kinds of each asset of a dataset.

    <dataset>[/<feed>]/<directories>    landed directories                   acme/enriched_runs, vault/incr/windows
    <dataset>[/<feed>]/shredded         shredded output
    <dataset>[/<feed>]/<target>         loads into a target                  acme/warehouse
    <dataset>/<target>/<table>          a table of a target                  acme/warehouse/events
    <dataset>/merged/<table>_merged     a merged table; the suffix is there because pages show only the last part of a key
    <dataset>/overview                  progress, blocks and their remedies
    <dataset>/published                 what readers see of the merged tables

The feed is part of a key if the source has several feeds. `warehouse` is the first target. This module has the defaults,
and the class by which users change them. `metadata` has what runs add to events.
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
"""The name of the IO manager among the resources of a code location; `io_manager` is the user's own."""


class AssetKind(StrEnum):
    """The kind of an asset of a dataset."""

    LANDED = "landed"
    SHREDDED = "shredded"
    LOADED = "loaded"
    TABLE = "table"
    MERGED = "merged"
    PUBLISHED = "published"
    OVERVIEW = "overview"


@dataclass(frozen=True)
class DatasetProps:
    """The input of a translator for an asset.

    `feed`: set for the assets of a feed, None for tables, `published` and the overview. `table`: the name of a warehouse table
    or of a merged table. `columns`: the table's columns; None before the first shredding, and if only the key is needed.
    `target`: the target of a load or of a table.
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
        """The asset's key, unless a translator changes it."""
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
    """Returns the spec of each asset of a dataset. Subclass it, and pass an instance to `build_defs`.

    Changed keys apply everywhere: in events, checks, sensors and the IO manager. The platform sets partitions and the
    dependencies between a dataset's own assets.
    """

    def get_asset_spec(self, props: DatasetProps) -> dg.AssetSpec:
        """Returns the spec of an asset. A subclass calls it and changes the result, with `replace_attributes` for example."""
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
    """The group of an asset: a group of stages for each feed, a group of warehouse tables, and a group of merged tables."""
    match props.kind:
        case AssetKind.TABLE:
            return f"{props.dataset}_tables" if props.target == WAREHOUSE else f"{props.dataset}_{props.target}_tables"
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
            into = f" Into the target {props.target}." if props.target != WAREHOUSE else ""
            return f"{words.loaded[str(props.feed)]}{into}"
        case AssetKind.TABLE:
            of = "the warehouse" if props.target == WAREHOUSE else f"the target {props.target}"
            return f"Table {props.dataset}.{props.table} of {of}."
        case AssetKind.MERGED:
            return f"Table {props.table} in well-sized Parquet objects, one partition a day."
        case AssetKind.OVERVIEW:
            return f"How far {props.dataset} is loaded, which feeds are blocked, and what to do. Updated automatically."
    return "What readers see: partitions that are closed, switched and published to the catalog."


def _kinds(props: DatasetProps) -> set[str]:
    settings = props.source.settings
    match props.kind:
        case AssetKind.LANDED:
            return {props.source.words.kind, "s3" if settings.landing.root.startswith("s3://") else "file"}
        case AssetKind.SHREDDED | AssetKind.MERGED:
            return {"pyspark", "parquet"}
        case AssetKind.LOADED | AssetKind.TABLE:
            return {props.config.engines[props.target].kind, "table"}
        case AssetKind.OVERVIEW:
            return {"markdown"}
    return {settings.merge.catalog.read_by} if settings.merge else set()


def _freshness(props: DatasetProps) -> dg.FreshnessPolicy | None:
    """The freshness policy of a feed's loads, if an interval of directories is configured; at least one minute."""
    every = props.source.settings.landing.expected_every_seconds.get(props.feed or "")
    if props.kind is not AssetKind.LOADED or every is None:
        return None
    return dg.FreshnessPolicy.time_window(fail_window=timedelta(seconds=max(every, 60)))


def _metadata(props: DatasetProps) -> dict[str, Any]:
    """The location of an asset's files, or a table's name and columns."""
    settings = props.source.settings
    places = {AssetKind.LANDED: settings.landing.root, AssetKind.SHREDDED: settings.shred.output}
    if settings.merge:
        places[AssetKind.MERGED] = settings.merge.output
    at: dict[str, Any] = {"dagster/uri": storage.as_uri(places[props.kind])} if props.kind in places else {}
    if props.kind in (AssetKind.LOADED, AssetKind.TABLE):
        place = props.config.engines[props.target].place
        at["place"] = dg.MetadataValue.text(place) if "://" in place else dg.MetadataValue.path(place)
    return {**at, **_table_metadata(props)}


def _table_metadata(props: DatasetProps) -> dict[str, Any]:
    match props.columns:
        case Table() as table:
            return table_metadata(props.config.datasets[props.dataset].load.schema_name or props.dataset, table)
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


def table_metadata(schema: str, table: Table) -> dict[str, dg.MetadataValue]:
    """The name of a table in the warehouse, and its columns with the source's descriptions."""
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
        "dagster/table_name": dg.MetadataValue.text(f"{schema}.{table.name}"),
        "dagster/column_schema": dg.MetadataValue.table_schema(dg.TableSchema(columns)),
    }


def attributes(spec: dg.AssetSpec) -> dict[str, Any]:
    """Returns a spec's attributes as arguments of the asset decorator."""
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
    """Returns a spec with the platform's dependencies and partitions added."""
    _require_ours(spec)
    return spec.replace_attributes(deps=[*spec.deps, *deps], partitions_def=partitions).with_io_manager_key(IO_MANAGER)


def _require_ours(spec: dg.AssetSpec) -> None:
    if spec.partitions_def is not None:
        raise ConfigError(
            f"asset {spec.key.to_user_string()}: a translator sets partitions_def, which the platform sets; allowed: key,"
            " key_prefix, group_name, description, owners, tags, kinds, metadata, deps, automation_condition, code_version,"
            " freshness_policy"
        )
