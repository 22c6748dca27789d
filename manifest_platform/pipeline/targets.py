"""The start of a target: what a target loads that is added to a dataset whose items were loaded into others before.

Belongs here: the one decision, made at the target's first work and recorded in the manifest. Does not belong here: how targets
are declared (`config.targets`); how they are loaded (`loading`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from manifest_platform.config.targets import BEGINNING, NEWEST_FULL, key_of, start_of
from manifest_platform.manifest import ItemKey, Refused, UnknownItem
from manifest_platform.pipeline.events import Event
from manifest_platform.pipeline.full import LATEST, Begun
from manifest_platform.pipeline.full import begin as begin_full_load
from manifest_platform.pipeline.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_begun(pipeline: Pipeline) -> bool:
    """True if it is decided where a target starts. A target that starts at the beginning costs no request."""
    return start_of(pipeline.engine_settings) == BEGINNING or pipeline.manifest.state(pipeline.load).has_begun


def begin(pipeline: Pipeline, spark: Callable[[], SparkSession]) -> Iterator[Event]:
    """Begins a target as the configuration says. Yields events of a snapshot that is shredded for it.

    A source without snapshots starts from the beginning instead of the newest snapshot. Raises Refused if the item to start
    with is unknown, or is a window of changes, which need a snapshot before them.
    """
    start, snapshots = start_of(pipeline.engine_settings), pipeline.source.snapshots
    reason = f"target {pipeline.target} starts here"
    if start == NEWEST_FULL:
        if snapshots and next(pipeline.manifest.items(snapshots, reverse=True), None):
            yield from _full(pipeline, spark, LATEST, reason)
        return  # without any snapshot the feeds wait for one, as those of the first target do
    key = _named(pipeline, start)
    if key.feed == snapshots:
        yield from _full(pipeline, spark, start, reason)
        return
    if pipeline.manifest.step(key.feed, pipeline.load.key).needs_full:
        raise Refused(
            f"{key_of(pipeline.target)}.start: {start!r} holds changes, which need a snapshot before them; allowed:"
            f" {BEGINNING}, {NEWEST_FULL}, or the name of a snapshot"
        )
    pipeline.manifest.start(pipeline.load, key, reason)


def _named(pipeline: Pipeline, start: str) -> ItemKey:
    try:
        return pipeline.key(start)
    except UnknownItem as error:
        raise Refused(f"{key_of(pipeline.target)}.start: {start!r} is not known to the manifest yet: {error}") from error


def _full(pipeline: Pipeline, spark: Callable[[], SparkSession], snapshot: str, reason: str) -> Iterator[Event]:
    return (event for event in begin_full_load(pipeline, spark, snapshot, reason) if not isinstance(event, Begun))
