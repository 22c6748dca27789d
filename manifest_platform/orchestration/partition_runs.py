"""Runs of chosen partitions: their items, their work, and the report on each partition.

Dagster orders dynamic partitions by insertion, checks neither order nor gaps, and splits a backfill into a run for each range
without a gap in that order. The partitions of a run are therefore only a set. A run of a backfill works on everything that is
left of the whole backfill: the first run does most of the work, and the later runs find their partitions done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
from dagster._core.definitions.partitions.context import partition_loading_context

from manifest_platform.manifest import ItemKey, Refused, StoreError
from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.events import VERSION, failure, fit, telling_progress
from manifest_platform.orchestration.feed_checks import rows_held
from manifest_platform.orchestration.jobs.service import JobFailed, JobUnavailable
from manifest_platform.orchestration.keys import Names
from manifest_platform.orchestration.remedies import advice, command_of, told
from manifest_platform.pipeline import ItemFailed, Loaded, Pipeline, PutBack, Shredded, ShreddedAgain
from manifest_platform.pipeline.chosen import PassedOver, Told, Waiting
from manifest_platform.sources.errors import LandingError
from manifest_platform.spark import SparkUnavailable
from manifest_platform.warehouse.errors import WarehouseError

BACKFILL_TAG = "dagster/backfill"
EXPECTED = (Refused, StoreError, WarehouseError, LandingError, SparkUnavailable, JobFailed, JobUnavailable)
"""Errors that end a run with a message. Any other error is a fault of the platform, and keeps its stack trace."""


@dataclass(frozen=True)
class Asked:
    """The items of a run.

    `keys`: the run's own items. `others`: the names of the other items of its backfill. `patience_s`: how long the run waits
    for a worker that holds the feed; a run of a backfill waits for another run of it.
    """

    keys: list[ItemKey]
    others: frozenset[str]
    patience_s: float


def asked_of(context: dg.AssetExecutionContext, pipeline: Pipeline, names: Names, feed: str) -> Asked:
    """Returns the items of a run.

    Raises dagster.Failure if the run has no partitions: Dagster treats a reversed range as empty, and the run would succeed
    without doing anything.
    """
    partitions = context.partition_keys
    if not partitions:
        raise failure("The run selects no partition. A range must begin with its older end.", allow_retries=False)
    try:
        keys = [pipeline.key(name) for name in partitions]
        if strangers := [key.name for key in keys if key.feed != feed]:
            raise Refused(f"{strangers[0]} does not belong to feed {feed}")
    except Refused as refused:
        raise failure(told(refused, pipeline, names), allow_retries=False) from refused
    if BACKFILL_TAG not in context.run.tags:
        return Asked(keys, frozenset(), 0)
    others = choice_of_backfill(
        context.instance, context.run.tags[BACKFILL_TAG], context.asset_key, context.job_def.asset_layer
    )
    return Asked(keys, others - set(partitions), pipeline.config.limits.load_hours * 3600)


def choice_of_backfill(instance: dg.DagsterInstance, backfill: str, asset: dg.AssetKey, layer: Any) -> frozenset[str]:
    """Returns the partitions of an asset in a backfill; empty if Dagster no longer knows the backfill."""
    found = instance.get_backfill(backfill)
    if found is None or not found.is_asset_backfill:
        return frozenset()
    with partition_loading_context(dynamic_partitions_store=instance):
        target = found.get_asset_backfill_data(layer.asset_graph).target_subset
        subset = target.partitions_subsets_by_asset_key.get(asset)
        return frozenset(subset.get_partition_keys()) if subset is not None else frozenset()


@dataclass
class _Report:
    """The results of partitions so far: events of those that are done, and reasons of the others."""

    names: Names
    done: dict[str, dg.AssetMaterialization] = field(default_factory=dict)
    passed: dict[str, str] = field(default_factory=dict)
    loaded: list[Loaded] = field(default_factory=list)
    failed: list[ItemFailed] = field(default_factory=list)
    put_back: list[PutBack] = field(default_factory=list)

    def take(self, event: Told) -> str | None:
        """Records an event; returns the sentence to log, None if there is none."""
        match event:
            case Shredded(key=key):
                self.done[key.name] = metadata.shredded_event(self.names, event)
                what = f"shredded: {event.listing.good:,} rows, {event.listing.bad:,} bad lines"
                return self._happened(key, "is shredded already: nothing was done" if event.already else what)
            case Loaded(key=key):
                self.loaded.append(event)
                self.done[key.name] = metadata.loaded_event(self.names, event)
                late = ", late: behind the watermark" if event.late else ""
                what = f"loaded: {event.row_count:,} rows in {event.seconds:.1f} s{late}"
                return self._happened(key, "is in the warehouse already: nothing was done" if event.already else what)
            case PassedOver(key=key, reason=reason):
                self.passed[key.name] = f"is passed over: {reason}"
                return f"{key.name} {self.passed[key.name]}"
            case ItemFailed(key=key):
                self.failed.append(event)
                return f"{key.name}: {event.application} failed: {event.failure.message}"
            case PutBack(key=key):
                self.put_back.append(event)
                return f"{key.name}: {event.application} put it back: {event.reason}"
            case ShreddedAgain(key=key, reason=reason):
                return f"{key.name} must be shredded again: {reason}"
            case Waiting(reason=reason):
                return f"waiting: {reason}"
        return None

    def _happened(self, key: ItemKey, what: str) -> str:
        event = self.done[key.name]
        self.done[key.name] = event.with_metadata(fit({**event.metadata, "happened": what}))
        return f"{key.name} {what}" if what.startswith("is ") else f"{key.name}: {what}"

    def shown(self, name: str) -> Mapping[str, Any]:
        """The metadata of a partition that the run processed or passed over."""
        if name in self.done:
            return self.done[name].metadata
        return fit({"skipped": True, "happened": self.passed.get(name, "is passed over")})

    def problem(self, pipeline: Pipeline, error: Exception | None) -> dg.Failure | None:
        """Returns the failure of the run; None if everything is done."""
        if error is not None:
            said, helps = told(error, pipeline, self.names), advice(error, pipeline, self.names)
            return failure(said, metadata={**helps, "error": type(error).__name__}, allow_retries=False)
        if self.failed:
            return _failure_of(pipeline, self.failed)
        if self.put_back:
            reason = f"A service is out of reach; no item is at fault: {self.put_back[0].reason}"
            return failure(reason, metadata={"items": ", ".join(one.key.name for one in self.put_back)})
        return None


def report(context: dg.AssetExecutionContext, pipeline: Pipeline, names: Names, work: Iterator[Told]) -> Iterator:
    """Reports each partition's result. If a partition of the run is not done, fails with the reason and the remedy of each.

    The output of a success carries metadata by partition. A failed run has no output, so its successful partitions get events
    of their own, and so do partitions that it processed for other runs of its backfill. Those runs report what stops them.
    """
    so_far, own = _Report(names), context.partition_keys
    error: Exception | None = None
    last = ""
    try:
        with telling_progress(context):
            for event in work:
                said = so_far.take(event)
                if said and said != last:
                    context.log.info(f"{said} ({len(so_far.done):,} done, {len(so_far.failed):,} failed)")
                    last = said
    except EXPECTED as caught:
        error = caught
    problem = so_far.problem(pipeline, error)
    if problem and any(name not in so_far.done and name not in so_far.passed for name in own):
        yield from so_far.done.values()
        raise problem from error
    if problem:
        context.log.warning(f"The rest of the backfill is not done: {problem.description}")
    yield from (event for name, event in so_far.done.items() if name not in own)
    held = rows_held(pipeline, names, so_far.loaded, context.instance)
    yield from metadata.table_events(names, so_far.loaded, held)
    for name in own:
        context.add_asset_metadata(so_far.shown(name), partition_key=name)
    yield dg.Output(None, data_version=_version(own, so_far.done))


def _version(names: Sequence[str], done: Mapping[str, dg.AssetMaterialization]) -> dg.DataVersion | None:
    """Returns the data version of a run's partitions if all have the same: Dagster accepts one for an output."""
    found = {(done[name].tags or {}).get(VERSION) if name in done else None for name in names}
    [version, *others] = found
    return dg.DataVersion(version) if version and not others else None


def _failure_of(pipeline: Pipeline, failed: list[ItemFailed]) -> dg.Failure:
    """Returns the failure of a run in which items failed: each item's reason, and the command that helps."""
    lines = [f"{one.key.name}: {one.application} failed: {one.failure.message}" for one in failed]
    commands = [command_of(one.failure.remedy_for(one.key.name), pipeline) for one in failed]
    return failure(
        "\n".join(lines),
        metadata={"items": ", ".join(one.key.name for one in failed), "commands": dg.MetadataValue.md("\n\n".join(commands))},
        allow_retries=False,
    )
