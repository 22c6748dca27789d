"""`accept`: a directory that was rewritten on purpose counts as it lies there now; or other content is known, and stays out."""

from __future__ import annotations

from manifest_platform.manifest import Item, ItemKey, Record, Refused, State
from manifest_platform.pipeline import LOAD, SHRED, Pipeline
from manifest_platform.remedies import Action, Remedy


def accept(pipeline: Pipeline, key: ItemKey, reason: str) -> Record:
    """Takes an item's directory as it lies there now: a New record with its checksum, a version more, then shredded again.

    Of what the platform captures itself, what the origin offers now, which is captured for it.

    Raises Refused while somebody works on it or has meanwhile, for an item that is loaded (its rows would have to change, and
    with them all that was loaded on top), where nothing was rewritten, and LandingError where the directory cannot be read.
    """
    item = pipeline.manifest.item(key)
    landed = item.landed
    if landed is None:
        raise Refused(f"{key.name} was not discovered, so nothing says where its files are")
    seen = pipeline.source.as_it_is(pipeline.manifest, landed)
    offers = pipeline.source.offered_instead(pipeline.manifest, landed)
    if seen.checksum == landed.checksum and offers is None:
        raise Refused(
            f"{landed.place} is as it was registered: there is nothing to accept. Land it again first; where"
            " something else was at fault, and is mended, resolve it; if it never comes, skip it",
            Remedy(Action.EXPLAIN, item=key.name),
        )
    if is_loaded(pipeline, item):
        raise Refused(
            f"{key.name} is loaded, with the content that was registered, and its rows stay. Land the new content under another"
            " name where it is to be loaded too; that this content is known, and stays out, can be acknowledged",
            Remedy(Action.KEEP, item=key.name),
        )
    if pipeline.dataset.merge and any(one.state is State.PROCESSED for one in item.records):
        raise Refused(
            f"{key.name} was shredded with the content that was registered, and its objects are merged or will be. Land the new"
            " content under another name where it is to be read too; that this content is known, and stays out, can be"
            " acknowledged",
            Remedy(Action.KEEP, item=key.name),
        )
    if offers is not None:
        seen = landed if pipeline.manifest.is_rehearsing else pipeline.source.capture_again(pipeline.manifest, landed)
    unordered = [step.application for step in pipeline.manifest.steps(key.feed) if step.order == "any"]
    again = [one.key for one in unordered if one.name == SHRED or item.processed_by(one)]
    return pipeline.manifest.reopen(key, again, reason, seen, read=item)  # it is not loaded, and must not be by then


def keep(pipeline: Pipeline, key: ItemKey, reason: str) -> Record:
    """Acknowledges that an item's directory has other content now, which stays out: nobody is told of it any more.

    Raises Refused where the content is known, LandingError where the directory cannot be read.
    """
    landed = pipeline.manifest.item(key).landed
    if landed is None:
        raise Refused(f"{key.name} was not discovered, so nothing says what its content was")
    now = pipeline.source.as_it_is
    offered = pipeline.source.offered_instead(pipeline.manifest, landed) or now(pipeline.manifest, landed).checksum
    return pipeline.manifest.acknowledge(key, offered, reason)


def is_loaded(pipeline: Pipeline, item: Item) -> bool:
    """Whether an item's rows are in the warehouse, by the manifest."""
    step = pipeline.manifest.step(item.key.feed, LOAD)
    serving = pipeline.manifest.state(step.application).seen_by(step, item.key.feed).serving_epoch
    return item.processed_by(step.application, serving) is not None
