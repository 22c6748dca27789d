"""Work on items that somebody chose: what a person materialises, or a backfill.

The choice says what, never in which order: that is the manifest's, and a choice that does not fit it is refused before
anything is done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from manifest_platform.manifest import (
    Abandoned,
    Blocked,
    ConditionFailed,
    FailureKind,
    FeedState,
    Idle,
    Item,
    ItemKey,
    Ready,
    Refused,
    Standing,
)
from manifest_platform.manifest.dataset import blocked, judge
from manifest_platform.pipeline.events import Event, Loaded, PutBack, Shredded, ShreddedAgain
from manifest_platform.pipeline.loading import load, settle
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.pipeline.shredding import free_abandoned, listing_of, portion, shred
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.source import LOAD, SHRED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class OutOfOrder(Refused):
    """Work was asked for that is not next; the message names the next item and the reason, the remedy what helps it."""


def _feed_of(pipeline: Pipeline, keys: Collection[ItemKey]) -> str:
    """The feed that the chosen items are of. Raises Refused for items of several: each feed has an order of its own."""
    feeds = sorted({key.feed for key in keys})
    if len(feeds) > 1:
        raise Refused(f"items of several feeds were chosen ({', '.join(feeds)}): choose those of one at a time")
    return feeds[0] if feeds else pipeline.source.main


def check_order(pipeline: Pipeline, keys: Collection[ItemKey], application: str = LOAD) -> list[ItemKey]:
    """The chosen items that a strict step has not done yet, loading where none is named, in the order in which it must.

    Raises OutOfOrder if anything that is not chosen comes before one of them.
    """
    ordered: list[ItemKey] = []
    hole: Blocked | None = None
    done = "loaded" if application == LOAD else f"done by {application}"
    for item, judged in pipeline.manifest.backlog(_feed_of(pipeline, keys), application):
        if judged.standing is Standing.LATE:
            if item.key in keys:
                name = item.key.name
                raise OutOfOrder(f"{name} is set aside: {judged.reason}", Remedy(Action.EXPLAIN, item=name))
        elif item.key not in keys:
            hole = hole or blocked(item, judged)
        elif hole:
            reason, name = hole.reason or "it is ready to be", item.key.name
            own = application != LOAD and hole.standing is Standing.READY  # what it waits for is to do it, whatever that is
            raise OutOfOrder(
                f"{name} is out of order: {hole.item.key.name} comes first and is not {done} ({reason})",
                None if own else hole.remedy,
            )
        else:
            ordered.append(item.key)
            if len(ordered) == len(keys):
                break
    return ordered


def shred_chosen(pipeline: Pipeline, spark: Callable[[], SparkSession], keys: Collection[ItemKey]) -> Iterator[Event]:
    """Shreds chosen items, whatever their order; those that are shredded are told as `already`. An outage ends it.

    Raises Refused for one that may not be shredded now, before any is shredded.
    """
    feed = _feed_of(pipeline, keys)
    step = pipeline.manifest.step(feed, SHRED)
    ready: list[Item] = []
    done: list[Shredded] = []
    with pipeline.lease(feed, SHRED) as lease:
        for key in sorted(keys):
            item = pipeline.manifest.item(key)
            if free_abandoned(pipeline, lease, [item]):
                item = pipeline.manifest.item(key)
            judged = judge(item, step, FeedState())
            if judged.standing is Standing.READY:
                ready.append(item)
            elif judged.standing is Standing.DONE:
                done.append(_already_shredded(pipeline, item))
            elif judged.standing is not Standing.SKIPPED:
                stopped = blocked(item, judged)
                raise Refused(f"{key.name} cannot be shredded: {stopped.reason}", stopped.remedy)
        yield from done
        while ready:
            batch = portion(ready, pipeline.dataset.shred.batch)
            ready = ready[len(batch) :]
            try:
                events = shred(pipeline, lease, spark, batch)
            except ConditionFailed as error:
                raise Refused(f"an item was changed by somebody else while Spark started ({error}): ask again") from error
            yield from events
            if any(isinstance(event, PutBack) for event in events):
                return  # an outage is met once


def _already_shredded(pipeline: Pipeline, item: Item) -> Shredded:
    return Shredded(item.key, listing_of(item), item.landed.bytes if item.landed else 0, 0.0, 1, 0, already=True)


def load_chosen(pipeline: Pipeline, keys: Collection[ItemKey]) -> Iterator[Event]:
    """Loads chosen items in the manifest's order; those that are in the warehouse are told as `already`.

    Raises OutOfOrder if anything that is not chosen comes before one of them, before anything is done.
    """
    feed = _feed_of(pipeline, keys)
    ordered = check_order(pipeline, keys)
    step = pipeline.manifest.step(feed, LOAD)
    state = pipeline.manifest.state(step.application).seen_by(step, feed)
    for key in sorted(set(keys) - set(ordered)):
        item = pipeline.manifest.item(key)
        record = item.processed_by(step.application, state.serving_epoch)
        if record:
            late = item.is_late_for(step.application, state.serving_epoch)
            yield Loaded(
                key,
                record.data.get("rows", {}),
                record.data.get("bytes", 0),
                0.0,
                0.0,
                0,
                late,
                already=True,
                epoch=record.epoch or 1,
                told=tuple(record.data.get("told", ())),
            )
        elif step.order == "full":
            raise OutOfOrder(f"no full load was begun with {key.name}", Remedy(Action.LOAD_SNAPSHOT, item=key.name))
    if not ordered:
        return
    with pipeline.lease(feed, LOAD) as lease:
        verdicts = pipeline.manifest.verdicts(lease)
        while ordered:
            verdict = next(verdicts)
            if isinstance(verdict, Abandoned):
                settled = settle(pipeline, lease, verdict)
                if settled:
                    yield settled
                    ordered = [key for key in ordered if key != settled.key]
            elif isinstance(verdict, Ready) and verdict.item.key == ordered[0]:
                try:
                    event = load(pipeline, lease, verdict)
                except ConditionFailed:
                    continue  # something was registered or resolved meanwhile: look again
                yield event
                if isinstance(event, ShreddedAgain):
                    again = f"{event.key.name} is shredded again first: {event.reason}"
                    raise OutOfOrder(again, Remedy(Action.DRAIN))
                if isinstance(event, Loaded) or event.failure.kind in (FailureKind.PERMANENT, FailureKind.BEHIND):
                    ordered = ordered[1:]
            else:
                raise _not_next(ordered[0], verdict)


def _not_next(key: ItemKey, verdict: Ready | Blocked | Idle) -> OutOfOrder:
    if isinstance(verdict, Ready):
        return OutOfOrder(f"{key.name} is not next any more: {verdict.item.key.name} is. Ask again")
    if isinstance(verdict, Blocked):
        return OutOfOrder(f"{verdict.item.key.name} blocks the feed: {verdict.reason}", verdict.remedy)
    return OutOfOrder(f"{key.name} is done or skipped already")
