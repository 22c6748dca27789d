"""Duties: the purpose of a Dagster run, and the tags by which Dagster's queue limits and orders runs.

Each run carries its duty as a tag, and `dagster.yaml` limits the number of concurrent runs of each duty. The sum of these
limits is below `max_concurrent_runs`, so that a capture finds a free slot however many drains are in progress. Another tag is
the turn: of all runs with the same turn, one works at a time. Runs that a person starts from the assets page have no such tags,
and wait for the pool of the same name.

The turn exists because a pool alone would not be enough. A run that waits for its pool still counts toward the limit of its
duty, and would hold back other datasets' drains. A run that waits for its turn does not count.
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
"""The shared pool of all drains, for a warehouse that only one process may have open."""


class Duty(StrEnum):
    """The purpose of a run."""

    CAPTURE = "capture"
    DRAIN = "drain"
    MERGE = "merge"
    FULL = "full"
    HOUSEKEEPING = "housekeeping"


_PRIORITIES = {Duty.CAPTURE: 10, Duty.FULL: 5, Duty.HOUSEKEEPING: -5}
"""The priority of waiting Dagster runs; 0 for other duties. Captures go first: an origin may delete files before a capture."""


def run_tags(duty: Duty, dataset: str | None, turn: str) -> dict[str, str]:
    """Returns the tags of a job's runs. `dataset`: None for a job of all datasets. `turn`: the name of the job's pool."""
    tags = {DUTY_TAG: str(duty), TURN_TAG: turn} | ({DATASET_TAG: dataset} if dataset else {})
    return tags | ({PRIORITY_TAG: str(_PRIORITIES[duty])} if duty in _PRIORITIES else {})


def capture_pool(dataset: str) -> str:
    """The pool of a dataset's captures."""
    return f"{dataset}_capture"


def merge_pool(dataset: str) -> str:
    """The pool of a dataset's merges."""
    return f"{dataset}_merge"


def full_pool(dataset: str) -> str:
    """The pool of the job that begins a dataset's full loads. It never waits for a drain."""
    return f"{dataset}_full"


def drain_pool(platform: Config, dataset: str, drained: Drain) -> str:
    """The pool of a drain: its own, or the shared pool if one of the targets allows only one writer."""
    shared = any(platform.engines[target].one_writer for target in platform.targets_of(dataset))
    return ONE_WRITER if shared else f"{dataset}_{drained.name}"


def feed_pool(platform: Config, source: Source, feed: str, target: str | None = None) -> str:
    """The pool of the drain that drains a feed. `target`: of the runs that load only this target, a pool of its own."""
    drained = next(drained for drained in source.drains if feed in drained.feeds)
    if target is None or target == platform.targets_of(source.dataset)[0]:
        return drain_pool(platform, source.dataset, drained)
    return ONE_WRITER if platform.engines[target].one_writer else f"{source.dataset}_{drained.name}_{target}"


def drain_job_name(dataset: str, drained: Drain) -> str:
    """The name of the job of a drain."""
    return f"{dataset}_{drained.name}"
