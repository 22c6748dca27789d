"""The partition mapping from a feed's items to days, for daily assets that follow what is loaded.

An item belongs to the time window in which it begins, as its name tells: changes from 23:45 to 00:00 belong to the day that
ends then. An item that spans two windows belongs to the first.

Dagster evaluates its built-in mappings in every process, but a custom mapping only where this code is loaded: in runs, and in
automation sensors with `use_user_code_server=True`. Elsewhere (on its pages, in the backfill daemon) Dagster assumes that each
window depends on all items. Dagster warns about this for each custom mapping; the warning is silenced here.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import dagster as dg
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.definitions.partitions.mapping import UpstreamPartitionsResult
from dagster._serdes import whitelist_for_serdes

from manifest_platform import plugins

if TYPE_CHECKING:
    from dagster._core.definitions.partitions.subset import PartitionsSubset

warnings.filterwarnings("ignore", "Non-built-in PartitionMappings, such as RunsToDays", DeprecationWarning)


class _Fields(NamedTuple):
    source: str


@whitelist_for_serdes
class RunsToDays(dg.PartitionMapping, _Fields):
    """Maps each item of a feed to the day of a downstream asset in which it begins, in the time zone of that asset.

    The downstream asset may have any time windows, such as hours or weeks. `source`: the source plug-in, which reads the start
    time from an item's name. An item before the first window, or whose name has no time, belongs to none.
    """

    def validate_partition_mapping(
        self, upstream_partitions_def: dg.PartitionsDefinition, downstream_partitions_def: dg.PartitionsDefinition | None
    ) -> None:
        """Raises DagsterInvalidDefinitionError unless upstream has a feed's partitions and downstream has time windows."""
        if not isinstance(upstream_partitions_def, dg.DynamicPartitionsDefinition):
            raise dg.DagsterInvalidDefinitionError(
                "RunsToDays maps the items of a feed: upstream must be an asset of a dataset"
            )
        if not isinstance(downstream_partitions_def, dg.TimeWindowPartitionsDefinition):
            raise dg.DagsterInvalidDefinitionError(
                "RunsToDays maps to time windows: give the downstream asset a DailyPartitionsDefinition or another time window"
            )

    def get_downstream_partitions_for_partitions(
        self,
        upstream_partitions_subset: PartitionsSubset,
        upstream_partitions_def: dg.PartitionsDefinition,
        downstream_partitions_def: dg.PartitionsDefinition,
        current_time: datetime | None = None,
        dynamic_partitions_store: Any = None,
    ) -> PartitionsSubset:
        """Returns the windows to which some items belong."""
        with partition_loading_context(current_time, dynamic_partitions_store):
            windows = self._windows(upstream_partitions_subset.get_partition_keys(), downstream_partitions_def)
            return downstream_partitions_def.subset_with_partition_keys([window for _, window in windows])

    def get_upstream_mapped_partitions_result_for_partitions(
        self,
        downstream_partitions_subset: PartitionsSubset | None,
        downstream_partitions_def: dg.PartitionsDefinition | None,
        upstream_partitions_def: dg.PartitionsDefinition,
        current_time: datetime | None = None,
        dynamic_partitions_store: Any = None,
    ) -> UpstreamPartitionsResult:
        """Returns the items that belong to some windows, among the items that Dagster shows."""
        with partition_loading_context(current_time, dynamic_partitions_store):
            items: dict[str, list[str]] = defaultdict(list)
            if downstream_partitions_subset is not None and downstream_partitions_def is not None:
                for item, window in self._windows(upstream_partitions_def.get_partition_keys(), downstream_partitions_def):
                    items[window].append(item)
                wanted = [item for key in downstream_partitions_subset.get_partition_keys() for item in items.get(key, ())]
            else:
                wanted = []
            return UpstreamPartitionsResult(
                partitions_subset=upstream_partitions_def.subset_with_partition_keys(wanted),
                required_but_nonexistent_subset=upstream_partitions_def.empty_subset(),
            )

    def _windows(self, items: Any, windows: dg.PartitionsDefinition) -> Iterator[tuple[str, str]]:
        """Yields each item that belongs to a window, with that window's key."""
        began = plugins.load(plugins.SOURCES, self.source).began
        assert isinstance(windows, dg.TimeWindowPartitionsDefinition)
        for item in items:
            time = began(item)
            if time is not None and time >= windows.start:
                key = windows.get_partition_key_for_timestamp(time.timestamp())
                if windows.has_partition_key(key):
                    yield item, key

    @property
    def description(self) -> str:
        """A description for Dagster's pages."""
        return "Each item belongs to the time window in which it begins."
