"""Blocks: a feed that cannot continue until a person acts, shown in red on Dagster's pages.

The first drain that meets a block reports it: its run fails with the cause as its first line, and the directory that failed
becomes a failed partition of its asset. The run is tagged with the cause. Later drains meet the same block each time that
something lands behind it, but they find the tag and do not fail again. A block that no run has reported yet counts as work for
a drain, for example if the command line met it first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import dagster as dg
from dagster._core.events import AssetMaterializationPlannedData, DagsterEvent

from manifest_platform.manifest import Blocked, FailureKind, ItemKey, Standing, State, Verdict
from manifest_platform.orchestration.keys import Names
from manifest_platform.orchestration.remedies import command_of
from manifest_platform.outward import clean
from manifest_platform.pipeline import SHRED, ItemFailed, Pipeline
from manifest_platform.pipeline.chain import Broken, broken
from manifest_platform.pipeline.pipeline import loads

BLOCKED_TAG = "manifest_platform/blocked_"
"""Prefix of the tag of a run that reported a feed's block; the feed's name follows."""
CAUSE_CHARACTERS = 200
PASSING = (Standing.WAITING, Standing.PROCESSING, Standing.MODE)
"""Standings that end without a person."""


@dataclass(frozen=True)
class Failed:
    """A failed item, the application that failed, and a text with the reason and the remedy."""

    key: ItemKey
    application: str
    words: str


@dataclass(frozen=True)
class Block:
    """A feed that is blocked until a person acts.

    `words`: the item or warehouse that blocks, the reason and the remedy. `cause`: a short text that is different for each new
    block. `failed`: the item that failed; None if the block has another reason. `target`: empty for the first.
    """

    feed: str
    words: str
    cause: str
    failed: Failed | None = None
    target: str = ""

    @classmethod
    def of(cls, pipeline: Pipeline, feed: str, verdict: Verdict, refused: Broken | None = None) -> Self | None:
        """Returns the block of a feed, None if it has none.

        `verdict`: the manifest's answer for the next item to load. `refused`: why the warehouse is not the expected one, if so.
        """
        if refused:
            words = f"Blocked by the warehouse: {refused.reason}. Do: {command_of(refused.remedy, pipeline)}"
            return cls(feed, words, clean(refused.reason)[:CAUSE_CHARACTERS], target=pipeline.load.instance or "")
        if not isinstance(verdict, Blocked) or verdict.standing in PASSING:
            return None
        item = verdict.item
        words = f"Blocked by {item.key.name}: {verdict.reason}. Do: {command_of(verdict.remedy, pipeline)}"
        cause = f"{item.key.name} since {verdict.since:%Y-%m-%d %H:%M:%S.%f} UTC"
        step = pipeline.manifest.step(feed, pipeline.load.key)
        record = item.blocker(pipeline.manifest.serving_epochs(feed), step.is_blocked_by)
        failed = record is not None and record.state is State.FAILED and record.application.key in (SHRED, pipeline.load.key)
        blamed = Failed(item.key, record.application.key, words) if record and failed else None
        return cls(feed, words, cause, blamed, pipeline.load.instance or "")

    def was_told(self, instance: dg.DagsterInstance, job: str) -> bool:
        """True if a run of a job has already failed for this block."""
        wanted = dg.RunsFilter(job_name=job, statuses=[dg.DagsterRunStatus.FAILURE], tags=self.tag)
        return instance.get_runs_count(wanted) > 0

    @property
    def tag(self) -> dict[str, str]:
        """The tag of the run that reports this block."""
        return {f"{BLOCKED_TAG}{self.feed}{f'.{self.target}' if self.target else ''}": self.cause}


def blocks_of(pipeline: Pipeline, feeds: Iterable[str]) -> Iterator[Block]:
    """Yields the blocks of some feeds."""
    feeds = list(feeds)
    for one in pipeline.each_target():
        refused = {found.feed: found for found in broken(one)}
        for feed in feeds:
            if block := Block.of(one, feed, one.manifest.next(feed, one.load.key), refused.get(feed)):
                yield block


def failures_of(pipeline: Pipeline, events: Iterable[ItemFailed]) -> Iterator[Failed]:
    """Yields the failures that wait for a person."""
    for event in events:
        if event.failure.kind is FailureKind.PERMANENT:
            name = event.key.name
            command = command_of(event.failure.remedy_for(name), pipeline)
            words = f"{name}: {event.application} failed: {event.failure.message.rstrip('.')}. Do: {command}"
            yield Failed(event.key, event.application, words)


def mark_failed(context: dg.OpExecutionContext, names: Names, failed: Iterable[Failed]) -> None:
    """Marks partitions as failed on Dagster's pages, once this run fails.

    Dagster shows a partition as failed if a run planned to materialize it and did not. A drain decides by itself what it
    materializes, so the plan is reported here.
    """
    assets = {SHRED: names.shredded} | {loads(target).key: names.at(target).warehouse for target in names.targets}
    for one in failed:
        planned = AssetMaterializationPlannedData(assets[one.application](one.key.feed), partition=one.key.name)
        event = DagsterEvent.build_asset_materialization_planned_event(context.job_name, str(context.op_handle), planned)
        context.instance.report_dagster_event(event, context.run_id)
