"""Merging on request: a person names tables and dates, and their partitions are merged now, due or not."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from manifest_platform.manifest import Refused
from manifest_platform.merging.registration import Registration
from manifest_platform.merging.state import MergedTable, Partition
from manifest_platform.pipeline.merge import MergeBudget, MergeEvent, MergeReport, Merging, merge, register
from manifest_platform.remedies import Action, Remedy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def table_named(merging: Merging, name: str) -> MergedTable:
    """Finds a table by the name that shredding or readers use. Raises Refused if it is unknown or ambiguous."""
    found = merging.inventory.table(name)
    if found:
        return found
    tables = merging.inventory.tables()
    named = [table for table in tables if table.name == name]
    if len(named) == 1:
        return named[0]
    dataset = merging.inventory.dataset
    if named:
        keys = " and ".join(table.key for table in named)
        raise Refused(f"dataset {dataset} has several tables called {name}: use the name that shredding uses, {keys}")
    if not tables:
        raise Refused(
            f"dataset {dataset} has no table {name!r}, and no other yet: a merge run registers them", Remedy(Action.MERGE)
        )
    raise Refused(f"dataset {dataset} has no table {name!r}; it has {', '.join(table.key for table in tables)}")


@dataclass(frozen=True)
class Wanted:
    """The request of a person: the partitions to merge now, of these tables (empty: all), from `first` to `last`.

    As a truth value, False if the request names nothing. Then only the partitions that are due are merged.
    """

    tables: tuple[str, ...]
    first: date | None
    last: date | None

    def __bool__(self) -> bool:
        return bool(self.tables or self.first)

    def partitions(self, merging: Merging) -> list[Partition]:
        """Returns the named partitions that have something to merge. Raises Refused if there is no such table."""
        keys = {table_named(merging, name).key for name in self.tables}
        return [
            found
            for found in merging.inventory.open_partitions()
            if found.waiting.objects
            and (not keys or found.table in keys)
            and (self.first is None or self.last is None or self.first <= found.date <= self.last)
        ]


@dataclass(frozen=True)
class PassedOver:
    """A requested partition that is not merged because it was set aside after this error."""

    table: str
    date: date
    error: str


def merge_wanted(
    merging: Merging, spark: Callable[[], SparkSession], budget: MergeBudget, wanted: Wanted
) -> Generator[MergeEvent | PassedOver | MergeReport]:
    """Merges the requested partitions completely, or those that are due if none is named. Yields events, then the report."""
    if not wanted:
        yield from merge(merging, spark, budget)
        return
    registered: list[Registration] = []
    for event in register(merging):  # the requested objects may have been shredded just now
        registered.append(event)
        yield event
    found = wanted.partitions(merging)
    for one in found:
        if one.set_aside:
            yield PassedOver(one.table, one.date, one.set_aside.error)
    asked = [(one.table, one.date) for one in found if not one.set_aside]
    if not asked:
        report = MergeReport(reason="nothing waits to be merged there")
        for event in registered:
            report.count(event)
        yield report
        return
    for event in merge(merging, spark, budget, asked):
        if isinstance(event, MergeReport):
            for one in registered:
                event.count(one)
        yield event
