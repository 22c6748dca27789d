"""Blackouts: nothing is loaded in the windows of `load.blackout`. Directories are still registered and shredded."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from manifest_platform.sources.blackout import closed_until
from manifest_platform.sources.settings import DatasetSettings

if TYPE_CHECKING:
    from manifest_platform.pipeline.pipeline import Pipeline


def blackout_until(pipeline: Pipeline) -> datetime | None:
    """Returns the end of the present blackout of a dataset; None if there is none."""
    dataset = pipeline.dataset
    return closed_until(dataset.load.blackout, pipeline.clock()) if isinstance(dataset, DatasetSettings) else None


def blackout_reason(pipeline: Pipeline) -> str:
    """Returns the reason why nothing is loaded now, with the time of its end; empty if there is no blackout.

    Of windows that join each other for very long, the end is not looked for.
    """
    until = blackout_until(pipeline)
    if until is None:
        return ""
    goes_on = any(one.end_of(until) for one in pipeline.dataset.load.blackout)
    return f"load.blackout: nothing is loaded until {'at least ' if goes_on else ''}{until:%Y-%m-%d %H:%M} UTC"
