"""`accept` and `keep`: the two answers to a directory whose content changed after it was registered.

`accept` takes the new content and shreds the item again. `keep` acknowledges the new content and leaves it out.
"""

from __future__ import annotations

from manifest_platform.manifest import Item, ItemKey, Record, Refused, State
from manifest_platform.pipeline import SHRED, Pipeline
from manifest_platform.remedies import Action, Remedy


def accept(pipeline: Pipeline, key: ItemKey, reason: str) -> Record:
    """Accepts an item's directory as it is now: writes a New record with its checksum and the next version.

    For a directory that the platform captures itself, the content that the origin offers now is captured first.

    Raises Refused if somebody works on the item, if it is loaded (its rows and everything loaded on top of them would have
    to change), or if nothing was rewritten. Raises LandingError if the directory cannot be read.
    """
    item = pipeline.manifest.item(key)
    landed = item.landed
    if landed is None:
        raise Refused(f"{key.name} was not registered by discovery, so the manifest does not know where its files are")
    seen = pipeline.source.as_it_is(pipeline.manifest, landed)
    offers = pipeline.source.offered_instead(pipeline.manifest, landed)
    if seen.checksum == landed.checksum and offers is None:
        raise Refused(
            f"{landed.place} has not changed since it was registered, so there is nothing to accept. Land the corrected"
            " directory first. If the cause was elsewhere and is fixed, resolve the item. If it is never corrected, skip it",
            Remedy(Action.EXPLAIN, item=key.name),
        )
    if is_loaded(pipeline, item):
        raise Refused(
            f"{key.name} is already loaded with the registered content, and its rows stay. To load the new content too, land it"
            " under another name. Otherwise acknowledge that the new content stays out",
            Remedy(Action.KEEP, item=key.name),
        )
    if pipeline.dataset.merge and any(one.state is State.PROCESSED for one in item.records):
        raise Refused(
            f"{key.name} was shredded with the registered content, and its objects are or will be merged. To publish the new"
            " content too, land it under another name. Otherwise acknowledge that the new content stays out",
            Remedy(Action.KEEP, item=key.name),
        )
    if offers is not None:
        seen = landed if pipeline.manifest.is_rehearsing else pipeline.source.capture_again(pipeline.manifest, landed)
    unordered = [step.application for step in pipeline.manifest.steps(key.feed) if step.order == "any"]
    again = [one.key for one in unordered if one.name == SHRED or item.processed_by(one)]
    return pipeline.manifest.reopen(key, again, reason, seen, read=item)  # it is not loaded, and must not be by then


def keep(pipeline: Pipeline, key: ItemKey, reason: str) -> Record:
    """Acknowledges that an item's directory has other content now, which stays out, so that it is no longer reported.

    Raises Refused if the content is the registered one, LandingError if the directory cannot be read.
    """
    landed = pipeline.manifest.item(key).landed
    if landed is None:
        raise Refused(f"{key.name} was not registered by discovery, so the manifest does not know its content")
    now = pipeline.source.as_it_is
    offered = pipeline.source.offered_instead(pipeline.manifest, landed) or now(pipeline.manifest, landed).checksum
    return pipeline.manifest.acknowledge(key, offered, reason)


def is_loaded(pipeline: Pipeline, item: Item) -> bool:
    """True if an item's rows are in the warehouse, or in another target, according to the manifest."""
    serving = pipeline.manifest.serving_epochs(item.key.feed)
    return any(item.processed_by(one.load, serving.get(one.load.key, 1)) for one in pipeline.each_target())
