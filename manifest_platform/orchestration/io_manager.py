"""The IO manager: what an asset returns is committed to the manifest, and only what is committed and current is loaded.

For assets of a user's own on the partitions of a feed: an input from `shredded`, `warehouse` or another such
asset is a Spark DataFrame; an output is a Spark DataFrame that becomes Parquet under a prefix of its own attempt. What no
completed record names does not exist, so a crash in the middle leaves nothing that anybody reads.
"""

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING
from uuid import uuid4

import dagster as dg

from manifest_platform import storage
from manifest_platform.listing import Listing
from manifest_platform.manifest import OUTPUT, Application, ItemKey, Payload, Refused
from manifest_platform.orchestration.events import failure
from manifest_platform.orchestration.keys import SHREDDED, WAREHOUSE, FeedAsset, Names
from manifest_platform.orchestration.remedies import told
from manifest_platform.orchestration.resources import ManifestResource, SparkResource
from manifest_platform.pipeline import LOAD, SHRED, Pipeline
from manifest_platform.pipeline.shredding import listing_of
from manifest_platform.sources.source import Source, open_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MERGED = "merged"


class ManifestIOManager(dg.ConfigurableIOManager):
    """Commits outputs to the manifest and loads what it names as committed and current."""

    manifest: dg.ResourceDependency[ManifestResource]
    spark: dg.ResourceDependency[SparkResource]

    def handle_output(self, context: dg.OutputContext, obj: "DataFrame") -> None:
        """Writes a DataFrame as Parquet and commits it for the run's one partition.

        Raises dagster.Failure where the run has several partitions (a DataFrame does not say which row belongs to which) or
        the item is blocked.
        """
        asset = self._asset(context.asset_key)
        [name] = self._one_partition(context.asset_partition_keys)
        application = Application(asset.name)
        with self.manifest.pipeline(asset.dataset, context.run_id) as pipeline:
            key = pipeline.key(name)
            prefix = f"{pipeline.folder(key)}/{application.name.replace('/', '.')}-{uuid4()}"
            obj.write.parquet(_spark_path(prefix))
            rows = self.spark.spark_session.read.parquet(_spark_path(prefix)).count()
            try:
                pipeline.manifest.commit_output(key, application, Payload(OUTPUT, {"prefix": prefix, "rows": rows}))
            except Refused as refused:
                raise failure(told(refused, pipeline), allow_retries=False) from refused
        context.add_output_metadata({"dagster/partition_row_count": rows, "dagster/uri": prefix})

    def load_input(self, context: dg.InputContext) -> "DataFrame":
        """The rows of an upstream asset for the run's partitions.

        From `shredded` and `warehouse`: those of a table, which the input's metadata `table` names (default: the source's main
        table). From a merged table: exactly what readers are shown of the days.
        Raises dagster.Failure for a partition that is not done, and for a table that none of the partitions has.
        """
        asset = self._asset(context.asset_key)
        if context.asset_key.path[1] == MERGED:
            return self._merged(asset.dataset, context.asset_key.path[-1], context.asset_partition_keys)
        table = (context.definition_metadata or {}).get("table", self._source(asset.dataset).main_table)
        if table is None:
            raise failure("name the table to read by AssetIn(metadata={'table': …})", allow_retries=False)
        with self.manifest.pipeline(asset.dataset) as pipeline:
            try:
                uris = [
                    uri
                    for name in context.asset_partition_keys
                    for uri in _committed(pipeline, pipeline.key(name), asset.name, str(table))
                ]
            except Refused as refused:
                raise failure(told(refused, pipeline), allow_retries=False) from refused
        if not uris:
            raise failure(
                f"none of the partitions has rows of table {table!r}; name another by AssetIn(metadata={{'table': …}})",
                allow_retries=False,
            )
        # Without merging, Spark takes the columns of one file, and those that came later would be missing without a word.
        return self.spark.spark_session.read.option("mergeSchema", "true").parquet(*map(_spark_path, uris))

    def _merged(self, dataset: str, table: str, days: Sequence[str]) -> "DataFrame":
        """The rows that readers are shown of a merged table's days; those of which they are shown nothing are an error."""
        from manifest_platform.merging.readers import FilesUnknown, NotPublished
        from manifest_platform.pipeline.merge import Merging

        with self.manifest.pipeline(dataset) as pipeline:
            try:
                return Merging(pipeline).reader.read(self.spark.spark_session, table, [date.fromisoformat(day) for day in days])
            except (Refused, NotPublished, FilesUnknown) as error:
                raise failure(told(error, pipeline), allow_retries=False) from error

    def _source(self, dataset: str) -> Source:
        return open_source(dataset, self.manifest.configuration().datasets[dataset])

    def _asset(self, key: dg.AssetKey) -> FeedAsset:
        source = self._source(key.path[0])
        return Names.of(source).read(key.path, source.main)

    @staticmethod
    def _one_partition(names: Sequence[str]) -> Sequence[str]:
        if len(names) != 1:
            raise failure(
                f"a DataFrame is committed for one partition, and this run has {len(names)}:"
                " give the asset backfill_policy=BackfillPolicy.multi_run(1)",
                allow_retries=False,
            )
        return names


def _committed(pipeline: Pipeline, key: ItemKey, asset: str, table: str) -> list[str]:
    """The Parquet objects of an asset's current output for an item. Raises Refused if it is not done."""
    item = pipeline.manifest.item(key)
    applications = {SHREDDED: SHRED, WAREHOUSE: LOAD}
    application = Application(applications.get(asset, asset))
    serving = pipeline.manifest.serving_epochs(key.feed)[LOAD] if application.name == LOAD else 0
    record = item.processed_by(application, serving)
    if record is None:
        raise Refused(f"{key.name} is not done by {application.name}: nothing is committed to read")
    if asset not in applications:
        return [record.data["prefix"]]
    listing: Listing = listing_of(item)
    return listing.uris(table)


def _spark_path(uri: str) -> str:
    """What Spark calls a URI: S3's as it is, for which `spark_conf` names the file system; a local one's plain path."""
    return str(storage.local_path(uri)) if storage.is_local(uri) else uri
