"""Checks of merged tables: rows equal those of the small objects, ranges form a chain, and readers see new rows in time."""

from collections.abc import Iterable
from datetime import timedelta

import dagster as dg

from manifest_platform.merging.state import Partition
from manifest_platform.orchestration.events import check_result
from manifest_platform.orchestration.merged import merged_tables, open_merging, table_name
from manifest_platform.orchestration.wiring import Wiring
from manifest_platform.pipeline.merge import Merging

CHECKED_DAYS = 31
"""The number of newest partitions of a table that its checks look at, besides unfinished partitions."""


def build_merge_checks(wiring: Wiring) -> list[dg.AssetChecksDefinition]:
    """Returns the checks of every merged table."""
    return [check for table in merged_tables(wiring) for check in _table_checks(wiring, table_name(table))]


def _table_checks(wiring: Wiring, table: str) -> list[dg.AssetChecksDefinition]:
    key = wiring.names.merged(table)

    @dg.asset_check(asset=key, description="Rows of merged objects = rows of the small objects that they replace.")
    def rows_kept() -> dg.AssetCheckResult:
        with open_merging(wiring) as merging:
            wrong, rows = [], 0
            for partition in _looked_at(merging, table):
                ranges = merging.inventory.ranges(table, partition.date)
                small = merging.inventory.small_objects(table, partition.date)
                held = sum(one.rows for one in small if one.id <= (ranges[-1].upper if ranges else 0))
                held += sum(one.rows for one in merging.inventory.settled(table, partition.date))
                rows += held
                if sum(one.rows for one in ranges) != held:
                    wrong.append(str(partition.date))
        return check_result(passed=not wrong, metadata={"rows": rows, "wrong": ", ".join(wrong)})

    @dg.asset_check(asset=key, description="The ranges of every partition follow each other from 0 without a gap.")
    def chain_whole() -> dg.AssetCheckResult:
        with open_merging(wiring) as merging:
            wrong, count = [], 0
            for partition in _looked_at(merging, table):
                ranges = merging.inventory.ranges(table, partition.date)
                bounds = [0, *(one.upper for one in ranges)]
                count += len(ranges)
                if [one.lower for one in ranges] != bounds[:-1] or bounds[-1] != partition.upper:
                    wrong.append(str(partition.date))
        return check_result(passed=not wrong, metadata={"ranges": count, "wrong": ", ".join(wrong)})

    @dg.asset_check(asset=key, description="Readers see new rows within merge.invisible_seconds.")
    def nothing_invisible_for_long() -> dg.AssetCheckResult:
        with open_merging(wiring) as merging:
            limit = merging.longest_invisible(table)
            late, oldest = [], timedelta()
            for partition in merging.inventory.open_partitions():
                if partition.table != table:
                    continue
                age = merging.clock() - since if (since := merging.invisible_since(partition)) else timedelta()
                oldest = max(oldest, age)
                if age > limit:
                    late.append(str(partition.date))
        shown = {"oldest_seconds": round(oldest.total_seconds(), 1), "limit_seconds": limit.total_seconds()}
        return check_result(passed=not late, metadata={**shown, "late": ", ".join(late)})

    return [rows_kept, chain_whole, nothing_invisible_for_long]


def _looked_at(merging: Merging, table: str) -> Iterable[Partition]:
    """Returns a table's newest partitions, and its unfinished partitions."""
    newest = sorted(merging.inventory.partitions(table), key=lambda found: found.date)[-CHECKED_DAYS:]
    others = [found for found in merging.inventory.open_partitions() if found.table == table]
    return {found.date: found for found in [*others, *newest]}.values()
