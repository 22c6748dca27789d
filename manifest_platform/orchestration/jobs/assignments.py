"""Assignments: the work that needs Spark, as values that a process does itself or hands to the driver of a job run.

Belongs here: each assignment, and the JSON form of assignments and of the events that they yield. Dagster is not imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import TypeAdapter

from manifest_platform.manifest import ItemKey
from manifest_platform.masking import masked_words
from manifest_platform.merging.state import FinishedJob
from manifest_platform.pipeline import Budget, DrainReport, ItemFailed, Loaded, Pipeline, PutBack, Shredded, ShreddedAgain
from manifest_platform.pipeline.chosen import PassedOver, Waiting, shred_chosen
from manifest_platform.pipeline.drain import drain
from manifest_platform.pipeline.events import ShredStarted
from manifest_platform.pipeline.full import Begun, begin
from manifest_platform.pipeline.merge import MergeBudget, MergeReport, MergeStarted, Merging, merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Spark = Callable[[], "SparkSession"]


@dataclass(frozen=True)
class DrainFeeds:
    """Drain some feeds of a dataset within a budget."""

    name: ClassVar[str] = "drain"
    feeds: tuple[str, ...]
    budget: Budget

    def done(self, pipeline: Pipeline, spark: Spark) -> Iterator[Any]:
        """Does it, and yields the events."""
        return drain(pipeline, spark, self.budget, self.feeds)


@dataclass(frozen=True)
class ShredItems:
    """Shred chosen items; see `shred_chosen` for the others, and for the patience."""

    name: ClassVar[str] = "shred"
    keys: tuple[ItemKey, ...]
    others: frozenset[str]
    patience_s: float

    def done(self, pipeline: Pipeline, spark: Spark) -> Iterator[Any]:
        """Does it, and yields the events."""
        return shred_chosen(pipeline, spark, self.keys, self.others, self.patience_s)


@dataclass(frozen=True)
class MergePartitions:
    """Merge what is due within a budget, or chosen partitions only."""

    name: ClassVar[str] = "merge"
    budget: MergeBudget
    chosen: tuple[tuple[str, date], ...] = ()

    def done(self, pipeline: Pipeline, spark: Spark) -> Iterator[Any]:
        """Does it, and yields the events."""
        return merge(Merging(pipeline), spark, self.budget, self.chosen)


@dataclass(frozen=True)
class BeginFull:
    """Begin a full load of a target."""

    name: ClassVar[str] = "full"
    target: str
    item: str
    reason: str
    allows: tuple[str, ...] = ()

    def done(self, pipeline: Pipeline, spark: Spark) -> Iterator[Any]:
        """Does it, and yields the events."""
        return begin(pipeline.at(self.target), spark, self.item, self.reason, self.allows)


Assignment = DrainFeeds | ShredItems | MergePartitions | BeginFull
_ASSIGNMENTS = {one.name: one for one in (DrainFeeds, ShredItems, MergePartitions, BeginFull)}
_EVENTS = {
    one.__name__: one
    for one in (
        *(ShredStarted, Shredded, Loaded, ItemFailed, PutBack, ShreddedAgain, DrainReport),
        *(PassedOver, Waiting, Begun, MergeStarted, FinishedJob, MergeReport),
    )
}


def to_json(assignment: Assignment) -> dict[str, Any]:
    """Returns the JSON form of an assignment."""
    return {"assignment": assignment.name, **_adapter(type(assignment)).dump_python(assignment, mode="json")}


def from_json(data: dict[str, Any]) -> Assignment:
    """Returns the assignment of a JSON form. Raises KeyError and ValueError for what this release does not know."""
    fields = dict(data)
    return _adapter(_ASSIGNMENTS[fields.pop("assignment")]).validate_python(fields)


def event_to_json(event: Any) -> dict[str, Any]:
    """Returns the JSON form of an event, without secrets."""
    kind = type(event).__name__
    if kind not in _EVENTS:
        raise TypeError(f"{kind} is no event of an assignment: name it in _EVENTS")
    return {"event": kind, **masked_words(_adapter(_EVENTS[kind]).dump_python(event, mode="json"))}


def event_from_json(data: dict[str, Any]) -> Any:
    """Returns the event of a JSON form. Raises KeyError and ValueError for what this release does not know."""
    fields = dict(data)
    return _adapter(_EVENTS[fields.pop("event")]).validate_python(fields)


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
