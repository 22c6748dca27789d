"""The IO manager: commits the output of an asset to the manifest, and loads only outputs that are committed and current.

It serves a user's own assets on the partitions of a feed. An input from `shredded`, `warehouse` or another such asset is a
Spark DataFrame. An output is a Spark DataFrame that is written as Parquet under a prefix of its own attempt. Files that no
completed record names do not exist for readers, so a crash leaves nothing visible. Each output names the records that it was
made from. If one of these is superseded, by a full load or by repeated work, the output is no longer current.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import dagster as dg

from manifest_platform import storage
from manifest_platform.manifest import ClaimLost, ItemKey, LeaseBusy, Record, Refused, StoreError
from manifest_platform.manifest.outputs import MADE_FROM, Made
from manifest_platform.orchestration.events import failure, materialization
from manifest_platform.orchestration.keys import SHREDDED, FeedAsset, Names
from manifest_platform.orchestration.own_assets import OwnAsset
from manifest_platform.orchestration.remedies import told
from manifest_platform.orchestration.translator import WAREHOUSE
from manifest_platform.orchestration.wiring import Wiring
from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline.chosen import OutOfOrder
from manifest_platform.pipeline.outputs import commit_output, current_records, in_turn, read_output
from manifest_platform.spark import SparkUnavailable
from manifest_platform.warehouse.errors import WarehouseError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ManifestIOManager(dg.IOManager):
    """Commits outputs to the manifest and loads committed, current inputs, for any number of datasets."""

    def __init__(self, wirings: Mapping[str, Wiring] | None = None) -> None:
        self.wirings = dict(wirings or {})
        self._read: dict[tuple[str, str], dict[dg.AssetKey, list[Made]]] = {}
        """The records that each step of a run read its inputs by; key: (run id, step key)."""

    def handle_output(self, context: dg.OutputContext, obj: "DataFrame | Mapping[str, DataFrame]") -> None:
        """Writes a DataFrame as Parquet and commits it for the run's one partition, or a mapping of one for each partition."""
        place = self._place(context.asset_key)
        frames = _frames(context.asset_partition_keys, obj)
        done: dict[str, Record] = {}
        wiring = self.wirings[place.dataset]
        with wiring.pipeline(context.run_id) as pipeline, _refusals(pipeline, wiring.names):
            own = OwnAsset.of(context.asset_key, place, context.definition_metadata)
            own.check_declared(pipeline.dataset)
            keys = {pipeline.key(name): name for name in frames}
            made_from = self._made_from(context, pipeline, list(keys))
            try:
                for key in in_turn(pipeline, keys, place.name):
                    done[keys[key]] = self._commit(pipeline, key, place.name, frames[keys[key]], made_from[key])
            except Exception:
                for name, record in done.items():  # a failed step has no output, but these are committed
                    event = materialization(context.asset_key, partition=name, metadata=_shown(record))
                    context.step_context.instance.report_runless_asset_event(event)
                raise
        [first, *others] = done.values()
        rows = sum(record.data["rows"] for record in done.values())
        context.add_output_metadata({"rows": rows} if others else _shown(first))
        if not others and not context.step_context.has_data_version(context.asset_key):
            context.step_context.set_data_version(context.asset_key, dg.DataVersion(first.record_id))

    def load_input(self, context: dg.InputContext) -> "DataFrame":
        """Returns the rows of an upstream asset for the run's partitions.

        From `shredded` and `warehouse`: the rows of one table, named by the input's metadata `table` (default: the source's
        main table). From a merged table: the rows that readers see for these days. Raises dagster.Failure for a partition that
        is not done or is superseded, and if none of the partitions has the table.
        """
        for dataset, wiring in self.wirings.items():
            if (merged := wiring.names.merged_table(context.asset_key)) is not None:
                return self._merged(dataset, merged, context.asset_partition_keys)
        place = self._place(context.asset_key)
        wiring = self.wirings[place.dataset]
        table = (context.definition_metadata or {}).get("table", wiring.source.main_table)
        if table is None:
            raise failure("Name the table to read with AssetIn(metadata={'table': …})", allow_retries=False)
        uris: list[str] = []
        records: list[Made] = []
        with wiring.pipeline() as pipeline, _refusals(pipeline, wiring.names):
            outputs = pipeline.manifest.outputs()
            for name in context.asset_partition_keys:
                read = read_output(outputs, pipeline.key(name), place.name, str(table))
                uris += read.uris
                records += read.records
        if not uris:
            raise failure(
                f"None of the partitions has rows of table {table!r}. Name another with AssetIn(metadata={{'table': …}})",
                allow_retries=False,
            )
        step = context.step_context.run_id, context.step_context.step.key
        self._read.setdefault(step, {})[context.asset_key] = records
        # Without mergeSchema, Spark takes the columns of one file, and silently drops columns that were added later.
        return wiring.spark_session().read.option("mergeSchema", "true").parquet(*map(_spark_path, uris))

    def _merged(self, dataset: str, table: str, days: Sequence[str]) -> "DataFrame":
        """Returns the rows of a merged table's days that readers see. Raises dagster.Failure if a day is not published."""
        from manifest_platform.merging.readers import FilesUnknown, NotPublished
        from manifest_platform.pipeline.merge import Merging

        wiring = self.wirings[dataset]
        with wiring.pipeline() as pipeline:
            try:
                return Merging(pipeline).reader.read(wiring.spark_session(), table, [date.fromisoformat(day) for day in days])
            except (Refused, NotPublished, FilesUnknown) as error:
                raise failure(told(error, pipeline, wiring.names), allow_retries=False) from error

    def _made_from(self, context: dg.OutputContext, pipeline: Pipeline, keys: Sequence[ItemKey]) -> dict[ItemKey, list[Made]]:
        """Returns the records that each item's output was made from: inputs that its step read, and unread upstream stages."""
        read = self._read.pop((context.run_id, context.step_key), {})
        found: dict[ItemKey, list[Made]] = {key: [] for key in keys}
        for records in (made for asset, made in read.items() if self._dataset(asset) == pipeline.name):
            apart = {one.key for one in records} == set(keys)
            for key in keys:
                found[key] += [one for one in records if not apart or one.key == key]
        parents = context.step_context.job_def.asset_layer.get(context.asset_key).parent_keys
        unread = [self._place(parent) for parent in sorted(parents - read.keys()) if self._dataset(parent) == pipeline.name]
        stages = [parent for parent in unread if parent.name.partition(":")[0] in (SHREDDED, WAREHOUSE)]
        began = _began(context) if stages else None
        outputs = pipeline.manifest.outputs()
        for parent in stages:
            for key in (one for one in keys if one.feed == parent.feed):
                for record in current_records(outputs, key, parent.name):
                    if began and record.timestamp > began:
                        who = record.application.key
                        raise Refused(f"{who} processed {key.name} again while this output was made. Materialize it again")
                    found[key].append(Made.by(key, record))
        return {key: list(dict.fromkeys(records)) for key, records in found.items()}

    def _commit(self, pipeline: Pipeline, key: ItemKey, asset: str, frame: "DataFrame", made_from: Sequence[Made]) -> Record:
        """Writes an item's rows below a prefix of this attempt, and commits them."""
        prefix = f"{pipeline.folder(key)}/{asset.replace('/', '.')}-{uuid4()}"
        frame.write.parquet(_spark_path(prefix))
        rows = self.wirings[pipeline.name].spark_session().read.parquet(_spark_path(prefix)).count()
        return commit_output(pipeline, key, asset, prefix, rows, made_from)

    def _dataset(self, key: dg.AssetKey) -> str | None:
        return next((dataset for dataset, wiring in self.wirings.items() if wiring.names.place(key)), None)

    def _place(self, key: dg.AssetKey) -> FeedAsset:
        found = next((place for wiring in self.wirings.values() if (place := wiring.names.place(key))), None)
        if found is None:
            raise failure(
                f"asset {key.to_user_string()} belongs to no dataset ({', '.join(self.wirings)}). Begin its key with a"
                " dataset's name, or give it another IO manager with io_manager_key",
                allow_retries=False,
            )
        return found


@contextmanager
def _refusals(pipeline: Pipeline, names: Names) -> Generator[None]:
    """Turns refusals and outages into failures of the run. Dagster may retry those that can pass by themselves."""
    try:
        yield
    except (Refused, StoreError, WarehouseError, SparkUnavailable) as error:
        for_good = isinstance(error, Refused) and not isinstance(error, OutOfOrder | LeaseBusy | ClaimLost)
        raise failure(told(error, pipeline, names), allow_retries=not for_good) from error


def _frames(names: Sequence[str], returned: "DataFrame | Mapping[str, DataFrame]") -> "Mapping[str, DataFrame]":
    """Returns the DataFrames that an asset returned, by partition."""
    if isinstance(returned, Mapping):
        if set(returned) != set(names):
            raise failure(
                f"The asset returned DataFrames for {', '.join(sorted(returned)) or 'no partition'}, but this run has"
                f" {', '.join(sorted(names))}. Return one DataFrame for each partition",
                allow_retries=False,
            )
        return returned
    if len(names) != 1:
        raise failure(
            f"The asset returned one DataFrame, but this run has {len(names)} partitions."
            " Give the asset backfill_policy=BackfillPolicy.multi_run(1), or return a mapping from partition to DataFrame",
            allow_retries=False,
        )
    return {names[0]: returned}


def _shown(record: Record) -> dict[str, str | int]:
    """The metadata that Dagster shows for a committed output."""
    shown: dict[str, str | int] = {
        "dagster/partition_row_count": record.data["rows"],
        "dagster/uri": record.data["prefix"],
        MADE_FROM: ", ".join(f"{one['application']} {one['record']}" for one in record.data.get(MADE_FROM, ())),
    }
    return {**shown, "epoch": record.epoch} if record.epoch is not None else shown


def _began(context: dg.OutputContext) -> datetime | None:
    """The time at which the step of an output began; None if unknown."""
    stats = context.step_context.instance.get_run_step_stats(context.run_id, [context.step_key])
    start = stats[0].start_time if stats else None
    return datetime.fromtimestamp(start, UTC) if start else None


def _spark_path(uri: str) -> str:
    """The path by which Spark opens a URI: S3 URIs unchanged (`spark_conf` names the file system), local URIs as paths."""
    return str(storage.local_path(uri)) if storage.is_local(uri) else uri
