"""What has landed and is no item, in words: what it is, since when, and what would make it one.

Belongs here: the words, for the command line and Dagster alike. What was found is said by a look, see `pipeline.discovery`.
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
"""How many directories a sentence names."""
ABANDONED = timedelta(hours=1)
"""Unchanged for so long, a directory that is not complete is nothing that is being written."""


@dataclass(frozen=True)
class Landing:
    """A feed's landing zone as it is now. `problem`: why it cannot be listed; then nothing was found."""

    dataset: str
    feed: str
    root: str
    found: DiscoveryReport
    problem: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing lies there at all, and nothing has before."""
        return self.problem is None and not self.found.sees_anything


def look(pipeline: Pipeline, feed: str) -> Landing:
    """Looks at the landing zone of a feed, and registers nothing."""
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
    """What is to be said of what has landed and is no item, by its name; None where nothing of that name was found."""
    for feed in pipeline.feeds:
        landing = look(pipeline, feed)
        found = landing.found
        if text in found.new:
            return f"{text} is complete, and not registered yet: the next drain does so"
        if waiting := [one for one in found.waiting if one.name == text]:
            return f"{text} is not registered: {incomplete(pipeline, waiting)}"
        if text in found.unparseable:
            return f"left alone: {left_alone(pipeline, [text])}"
        if text in found.future:
            return f"{text} is dated more than a day ahead, and not registered: check the writer's clock"
        if bad := [one for one in found.unreadable if one.startswith(f"{text}: ")]:
            return f"{outward.line(bad[0])}: it could not be listed, and is not registered"
    return None


def told(landing: Landing, pipeline: Pipeline) -> Iterator[str]:
    """What a person should know of a landing zone, a sentence each; nothing where all that lies there is registered."""
    found = landing.found
    if landing.problem:
        yield landing.problem
    if landing.is_empty:
        yield f"nothing has landed in {landing.root} yet; expected: {pipeline.source.words.form}, {completing(pipeline)}"
    if found.new:
        yield f"{len(found.new):,} complete, not registered yet: {_some(found.new)}"
    if found.waiting:
        yield incomplete(pipeline, found.waiting)
    if found.unparseable:
        yield f"left alone: {left_alone(pipeline, found.unparseable)}"
    if found.unreadable:
        yield f"{len(found.unreadable):,} could not be listed: {_some(found.unreadable)}"
    if found.future:
        yield f"dated more than a day ahead, not registered: {_some(found.future)}; check the writer's clock"


def incomplete(pipeline: Pipeline, waiting: Sequence[Waiting]) -> str:
    """How many directories are not complete, which, since when, and what would make them complete."""
    return f"{len(waiting):,} not complete yet: {_some([_since(one) for one in waiting])}; {needs(pipeline, waiting)}"


def needs(pipeline: Pipeline, waiting: Sequence[Waiting]) -> str:
    """What would make some directories complete."""
    if all(one.over for one in waiting):
        return "a window is complete once it is over and has settled"
    return completing(pipeline)


def completing(pipeline: Pipeline) -> str:
    """When a directory is complete, and what to do where its writer does not go by it."""
    complete = pipeline.source.completeness
    if isinstance(complete, Marker):
        return (
            f"complete once it holds the file {complete.name}, which its writer writes last; where it writes none, set"
            f" datasets.{pipeline.name}.landing.complete: settle"
        )
    return f"complete once nothing in it has changed for {duration(complete.seconds)}"


def left_alone(pipeline: Pipeline, names: Sequence[str]) -> str:
    """Names that are none of the source's, with the form that is expected and the name that may be meant."""
    said = f"{_some(names)}: not {pipeline.source.words.form}"
    near = next(((name, better) for name in names if (better := pipeline.source.meant(name))), None)
    return f"{said}; {outward.line(near[0])} is nearly one, rename it to {near[1]}" if near else said


def abandoned(waiting: Sequence[Waiting], now: datetime) -> list[Waiting]:
    """Those of some directories that nobody writes to any more, and that are not complete."""
    return [one for one in waiting if one.over is None and one.changed and now - one.changed > ABANDONED]


def _since(one: Waiting) -> str:
    if one.over:
        return f"{one.name} (over at {moment(one.over)})"
    return f"{one.name} (unchanged since {moment(one.changed)})" if one.changed else one.name


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(outward.line(name) for name in names[:NAMED]) + more
