"""Blocks: what keeps a feed from going on until a person acts, and how Dagster's pages come to show that in red.

A run that meets a block fails, with the cause first, and the directory that failed is a failed partition of its asset. A drain
meets the same block as often as something lands behind it, so the run that told of it is tagged with it: one cause fails one
run. Blocks that no run has told of, as those that the command line met, are work for a drain.
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
from manifest_platform.pipeline import LOAD, SHRED, ItemFailed, Pipeline
from manifest_platform.pipeline.chain import Broken, broken

BLOCKED_TAG = "manifest_platform/blocked_"
"""The tag of a run that told of a feed's block; the feed follows."""
CAUSE_CHARACTERS = 200
PASSING = (Standing.WAITING, Standing.PROCESSING, Standing.MODE)
"""What ends without a person."""


@dataclass(frozen=True)
class Failed:
    """An item at which an application failed, and why, with what helps."""

    key: ItemKey
    application: str
    words: str


@dataclass(frozen=True)
class Block:
    """What keeps a feed from going on until a person acts. `words`: by what, why, and what helps.

    `cause`: text that changes with what is blocked, and since when. `failed`: the item, where it is one that failed.
    """

    feed: str
    words: str
    cause: str
    failed: Failed | None = None

    @classmethod
    def of(cls, pipeline: Pipeline, feed: str, verdict: Verdict, refused: Broken | None = None) -> Self | None:
        """The block of a feed by what comes next to be loaded, or by a warehouse that refuses it; None without one."""
        if refused:
            words = f"Blocked by the warehouse: {refused.reason}. Do: {command_of(refused.remedy, pipeline)}"
            return cls(feed, words, clean(refused.reason)[:CAUSE_CHARACTERS])
        if not isinstance(verdict, Blocked) or verdict.standing in PASSING:
            return None
        item = verdict.item
        words = f"Blocked by {item.key.name}: {verdict.reason}. Do: {command_of(verdict.remedy, pipeline)}"
        cause = f"{item.key.name} since {verdict.since:%Y-%m-%d %H:%M:%S.%f} UTC"
        record = item.blocker(pipeline.manifest.serving_epochs(feed))
        failed = record is not None and record.state is State.FAILED and record.application.key in (SHRED, LOAD)
        return cls(feed, words, cause, Failed(item.key, record.application.key, words) if record and failed else None)

    def was_told(self, instance: dg.DagsterInstance, job: str) -> bool:
        """Whether a run of a job has failed for it."""
        wanted = dg.RunsFilter(job_name=job, statuses=[dg.DagsterRunStatus.FAILURE], tags=self.tag)
        return instance.get_runs_count(wanted) > 0

    @property
    def tag(self) -> dict[str, str]:
        """The tag of the run that tells of it."""
        return {f"{BLOCKED_TAG}{self.feed}": self.cause}


def blocks_of(pipeline: Pipeline, feeds: Iterable[str]) -> Iterator[Block]:
    """What blocks some feeds now."""
    refused = {one.feed: one for one in broken(pipeline)}
    for feed in feeds:
        if block := Block.of(pipeline, feed, pipeline.manifest.next(feed, LOAD), refused.get(feed)):
            yield block


def failures_of(pipeline: Pipeline, events: Iterable[ItemFailed]) -> Iterator[Failed]:
    """Those of some failed attempts that wait for a person."""
    for event in events:
        if event.failure.kind is FailureKind.PERMANENT:
            name = event.key.name
            command = command_of(event.failure.remedy_for(name), pipeline)
            words = f"{name}: {event.application} failed: {event.failure.message.rstrip('.')}. Do: {command}"
            yield Failed(event.key, event.application, words)


def mark_failed(context: dg.OpExecutionContext, names: Names, failed: Iterable[Failed]) -> None:
    """Has Dagster show partitions as failed once this run has failed.

    Dagster takes those for failed that a run was to make and did not; it is told of what a run makes of its own accord, as a
    drain does.
    """
    assets = {SHRED: names.shredded, LOAD: names.warehouse}
    for one in failed:
        planned = AssetMaterializationPlannedData(assets[one.application](one.key.feed), partition=one.key.name)
        event = DagsterEvent.build_asset_materialization_planned_event(context.job_name, str(context.op_handle), planned)
        context.instance.report_dagster_event(event, context.run_id)
