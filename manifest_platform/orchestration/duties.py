"""Duties: what a run is for, and behind which runs it waits in Dagster's queue.

A run carries its duty as a tag, by which `dagster.yaml` bounds how many runs of a duty work at once. The sum of these limits
stays below `max_concurrent_runs`, so that a capture finds a slot however many drains of however many datasets are at work. Its
turn is a tag as well: of the runs of a turn, one works at a time. What a person materializes has no tags of ours, and waits for
them by the pool of the same name.

The pool alone would not do: a queued run that its pool holds back counts to the limit of its duty all the same, and would keep
other datasets' drains waiting. One that its own tag holds back does not count.
"""

from __future__ import annotations

from enum import StrEnum

from manifest_platform.config import Config
from manifest_platform.orchestration.keys import DATASET_TAG
from manifest_platform.sources.source import Drain, Source

DUTY_TAG = "manifest_platform/duty"
TURN_TAG = "manifest_platform/turn"
PRIORITY_TAG = "dagster/priority"
ONE_WRITER = "warehouse_writer"
"""The pool of all drains where only one process may have the warehouse open."""


class Duty(StrEnum):
    """What a run is for."""

    CAPTURE = "capture"
    DRAIN = "drain"
    MERGE = "merge"
    FULL = "full"
    HOUSEKEEPING = "housekeeping"


_PRIORITIES = {Duty.CAPTURE: 10, Duty.FULL: 5, Duty.HOUSEKEEPING: -5}
"""Of those that wait for a free slot, who goes first; 0 for the rest. An origin may forget what is not captured in time."""


def run_tags(duty: Duty, dataset: str | None, turn: str) -> dict[str, str]:
    """The tags of a job's runs: the duty, the dataset (None: all of them), and the pool behind whose runs they wait."""
    tags = {DUTY_TAG: str(duty), TURN_TAG: turn} | ({DATASET_TAG: dataset} if dataset else {})
    return tags | ({PRIORITY_TAG: str(_PRIORITIES[duty])} if duty in _PRIORITIES else {})


def capture_pool(dataset: str) -> str:
    """The pool of a dataset's captures."""
    return f"{dataset}_capture"


def merge_pool(dataset: str) -> str:
    """The pool of a dataset's merges."""
    return f"{dataset}_merge"


def full_pool(dataset: str) -> str:
    """The pool of what begins a dataset's full loads: it waits for no drain."""
    return f"{dataset}_full"


def drain_pool(platform: Config, dataset: str, drained: Drain) -> str:
    """The pool of a drain: its own, or that of all drains where the warehouse has one writer at a time."""
    return ONE_WRITER if platform.warehouse.one_writer else f"{dataset}_{drained.name}"


def feed_pool(platform: Config, source: Source, feed: str) -> str:
    """The pool of the drain that a feed is drained by."""
    return drain_pool(platform, source.dataset, next(drained for drained in source.drains if feed in drained.feeds))


def drain_job_name(dataset: str, drained: Drain) -> str:
    """The name of the job of a drain."""
    return f"{dataset}_{drained.name}"
