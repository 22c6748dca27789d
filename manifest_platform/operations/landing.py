"""Directories that have landed and are not items, in sentences: their state, since when, and what is missing.

Belongs here: the sentences, for the command line and Dagster alike. The look itself is in `pipeline.discovery`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from manifest_platform import extras, outward
from manifest_platform.pipeline import DiscoveryReport, Pipeline, Waiting
from manifest_platform.pipeline.discovery import glance
from manifest_platform.quantities import duration, moment
from manifest_platform.sources.directories import Marker
from manifest_platform.sources.errors import LandingError

NAMED = 3
"""The number of directories that a sentence names."""
ABANDONED = timedelta(hours=1)
"""The time without a change after which an incomplete directory counts as abandoned."""


@dataclass(frozen=True)
class Landing:
    """The landing of a feed as it is now. `problem`: the reason why it cannot be listed; `found` is then empty."""

    dataset: str
    feed: str
    root: str
    found: DiscoveryReport
    problem: str | None = None

    @property
    def is_empty(self) -> bool:
        """True if nothing is in the landing now, and nothing was before."""
        return self.problem is None and not self.found.sees_anything


def look(pipeline: Pipeline, feed: str) -> Landing:
    """Lists the landing of a feed without registering anything."""
    root = pipeline.dataset.landing.root
    try:
        return Landing(pipeline.name, feed, root, glance(pipeline, feed))
    except LandingError as error:
        return Landing(pipeline.name, feed, root, DiscoveryReport(), str(error))
    except ImportError as error:
        if (absent := extras.missing(error)) is None:
            raise
        return Landing(pipeline.name, feed, root, DiscoveryReport(), str(absent))


def not_registered(pipeline: Pipeline, text: str) -> str | None:
    """Returns a sentence on a directory of this name that has landed and is not an item; None if there is none."""
    for feed in pipeline.feeds:
        landing = look(pipeline, feed)
        found = landing.found
        if text in found.new:
            return f"{text} is complete and not registered yet: the next drain registers it"
        if waiting := [one for one in found.waiting if one.name == text]:
            return f"{text} is not registered: {incomplete(pipeline, waiting)}"
        if text in found.unparseable:
            return f"left alone: {left_alone(pipeline, [text])}"
        if text in found.future:
            return f"{text} is dated more than a day ahead and was not registered: check the clock of its writer"
        if bad := [one for one in found.unreadable if one.startswith(f"{text}: ")]:
            return f"{outward.line(bad[0])}. It could not be listed, so it is not registered"
    return None


def told(landing: Landing, pipeline: Pipeline) -> Iterator[str]:
    """Yields the sentences that a person should read about a landing; none if everything in it is registered."""
    found = landing.found
    if landing.problem:
        yield landing.problem
    if landing.is_empty:
        yield f"nothing has landed in {landing.root} yet. Expected: {pipeline.source.words.form}, {completing(pipeline)}"
    if found.new:
        yield f"{len(found.new):,} complete, not registered yet: {_some(found.new)}"
    if found.waiting:
        yield incomplete(pipeline, found.waiting)
    if found.unparseable:
        yield f"left alone: {left_alone(pipeline, found.unparseable)}"
    if found.unreadable:
        yield f"{len(found.unreadable):,} could not be listed: {_some(found.unreadable)}"
    if found.future:
        yield f"dated more than a day ahead and not registered: {_some(found.future)}. Check the clock of the writer"


def incomplete(pipeline: Pipeline, waiting: Sequence[Waiting]) -> str:
    """Returns a sentence: how many directories are not complete, which, since when, and what is missing."""
    return f"{len(waiting):,} not complete yet: {_some([_since(one) for one in waiting])}; {needs(pipeline, waiting)}"


def needs(pipeline: Pipeline, waiting: Sequence[Waiting]) -> str:
    """Returns the condition under which some directories are complete."""
    if all(one.over for one in waiting):
        return "a window is complete once it is over and has settled"
    return completing(pipeline)


def completing(pipeline: Pipeline) -> str:
    """Returns the condition under which a directory is complete, and the setting to change if its writer does not follow it."""
    complete = pipeline.source.completeness
    if isinstance(complete, Marker):
        last = f"complete once it contains the file {complete.name}, which its writer writes last"
        if pipeline.source.needs_marker:
            return f"{last}; if it never comes, let the writer write the directory again"
        return f"{last}; if the writer does not write it, set datasets.{pipeline.name}.landing.complete: settle"
    return f"complete once nothing in it has changed for {duration(complete.seconds)}"


def left_alone(pipeline: Pipeline, names: Sequence[str]) -> str:
    """Returns a sentence on names that do not have the source's form: the expected form, and a correction for a near miss."""
    said = f"{_some(names)}: not {pipeline.source.words.form}"
    near = next(((name, better) for name in names if (better := pipeline.source.meant(name))), None)
    return f"{said}; {outward.line(near[0])} is almost correct: rename it to {near[1]}" if near else said


def abandoned(waiting: Sequence[Waiting], now: datetime) -> list[Waiting]:
    """Returns the incomplete directories that nobody seems to write to any more: unchanged for longer than `ABANDONED`."""
    return [one for one in waiting if one.over is None and one.changed and now - one.changed > ABANDONED]


def _since(one: Waiting) -> str:
    if one.over:
        return f"{one.name} (over at {moment(one.over)})"
    return f"{one.name} (unchanged since {moment(one.changed)})" if one.changed else one.name


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(outward.line(name) for name in names[:NAMED]) + more
