"""The facts about items by which retention judges them: from the manifest first, and from the storage for what is left.

Belongs here: reads. `rule` decides. The storage costs some requests for each item whose data may otherwise be deleted.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

from manifest_platform import storage
from manifest_platform.listing import BAD_ROWS, BAD_TABLE, Listing
from manifest_platform.manifest import Application, Holding, Item, State
from manifest_platform.merging import garbage
from manifest_platform.merging.errors import MergeError
from manifest_platform.operations.doctor.output import sizes_beside, unregistered
from manifest_platform.operations.retention.merged import MergingNeeds
from manifest_platform.operations.retention.removal import measure
from manifest_platform.operations.retention.rule import Base, Facts
from manifest_platform.pipeline import SHRED, Pipeline
from manifest_platform.pipeline.merge import Merging
from manifest_platform.pipeline.shredding import OutputGone, by_retention, landing_problem, listing_of
from manifest_platform.warehouse.errors import Unavailable


class FactsOfFeed:
    """Reads the facts about the items of a feed. The states of its steps are read when it is made: see `states`."""

    def __init__(self, pipeline: Pipeline, feed: str, merging: MergingNeeds | None, base: Base | None):
        self.pipeline, self.feed, self.merging, self.base = pipeline, feed, merging, base
        self.steps, self.states = pipeline.manifest.steps(feed), pipeline.manifest.states(feed)
        self.rewound = is_rewound(pipeline, feed)

    def again(self) -> FactsOfFeed:
        """Returns the same with the states as they are now."""
        return FactsOfFeed(self.pipeline, self.feed, self.merging, self.base)

    def known(self, item: Item) -> Facts:
        """Returns what the manifest says about an item."""
        return Facts(item, self.steps, self.states, self.rewound, self.base, self._bound(item))

    def seen(self, known: Facts, holding: Holding) -> Facts:
        """Adds what the storage says about an item's data, as far as the verdict on this data needs it."""
        item = known.item
        try:
            if holding is Holding.LANDING and not measure(item.place).objects:
                gone = {Holding.LANDING: "it is gone, and retention did not delete it"}
                return dataclasses.replace(known, bound={**(known.bound or {}), **gone})
            problem = landing_problem(self.pipeline, item)
            if holding is Holding.LANDING:
                copies = {Holding.LANDING: _output_problem(item)}
                return dataclasses.replace(known, copies=copies, rewritten=str(problem or ""))
            listing = listing_of(item)
            lost = f"its landed directory is no copy: {problem}" if problem else ""
            needs = self.merging.of(item, listing) if self.merging and holding is Holding.SHREDDED else ""
            bound = {**(known.bound or {}), Holding.BAD: _bad_is_bound(listing)}
            copies = {Holding.SHREDDED: lost, Holding.BAD: lost}
            return dataclasses.replace(known, merging=needs, copies=copies, bound=bound)
        except (OutputGone, Unavailable, MergeError, OSError) as error:
            return dataclasses.replace(known, unreadable=str(error))

    def _bound(self, item: Item) -> dict[Holding, str]:
        """Returns what cannot be deleted by itself, by the item's records."""
        bound: dict[Holding, str] = {}
        landed = item.landed
        if landed is None or not self.pipeline.source.holds(item.place):
            bound[Holding.LANDING] = "it is not in the landing root"
        elif not landed.files:
            bound[Holding.LANDING] = "it has no files"
        elif landed.after is not None or landed.upto is not None:
            bound[Holding.LANDING] = "its folder may hold files of other items"
        if not attempts_of(self.pipeline, item):
            bound[Holding.SHREDDED] = bound[Holding.BAD] = "no output of the platform's own is known"
        return bound


def is_rewound(pipeline: Pipeline, feed: str) -> bool:
    """True if full loads of any target cover a feed, or load its items."""
    steps = [step for one in pipeline.feeds for step in pipeline.manifest.steps(one) if step.order == "full"]
    return feed == pipeline.source.snapshots or any(feed in step.covers for step in steps)


def newest_snapshot(pipeline: Pipeline) -> Base | None:
    """Returns the newest snapshot whose output is there, with which a full load would begin; None if there is none."""
    feed = pipeline.source.snapshots
    snapshots = pipeline.manifest.items(feed, reverse=True) if feed else ()
    whole = (one for one in snapshots if not one.skipped_for(pipeline.load) and not _output_problem(one))
    return next((base for one in whole if (base := Base.of(one))), None)


def attempts_of(pipeline: Pipeline, item: Item) -> list[str]:
    """Returns the folders of the platform's own output of an item, of earlier attempts too."""
    named = (record.data.get("listing") for record in item.records if record.state is State.PROCESSED)
    folders = [str(listing).rpartition("/")[0] for listing in named if listing]
    return [one for one in dict.fromkeys(folders) if one.rpartition("/")[0] == pipeline.folder(item.key)]


def folders_of(pipeline: Pipeline, item: Item, holding: Holding) -> list[str]:
    """Returns the folders that hold data of an item."""
    match holding:
        case Holding.LANDING:
            return [item.place]
        case Holding.SHREDDED:
            return attempts_of(pipeline, item)
        case Holding.BAD:
            return [f"{attempt}/{name}" for attempt in attempts_of(pipeline, item) for name in (BAD_TABLE, BAD_ROWS)]


def merging_needs(pipeline: Pipeline, now: datetime, settles: datetime | None) -> MergingNeeds | None:
    """Returns what merging needs; None if the dataset is not merged."""
    if pipeline.dataset.merge is None:
        return None
    days, hours = pipeline.dataset.retention.merged_days, pipeline.config.housekeeping.merged_hours
    grace = timedelta(days=days) if days else timedelta(hours=hours) if hours else garbage.GRACE
    return MergingNeeds(Merging(pipeline).inventory, unregistered(pipeline), now - grace, settles)


def _bad_is_bound(listing: Listing) -> str:
    if any(one.pack for one in listing.objects if one.table == BAD_TABLE):
        return "its bad rows lie in a pack, together with other rows: they go with the shredded output"
    return "" if listing.bad else "it has no bad rows"


def _output_problem(item: Item) -> str:
    """Returns why the shredded output of an item cannot take the place of its landed directory; empty if it can."""
    if deleted := item.deletion_of(Holding.BAD):
        what = "shredded output was" if item.deletion_of(Holding.SHREDDED) else "bad rows were"
        return f"its {what} {by_retention(deleted)}"
    if item.processed_by(Application(SHRED)) is None:
        return "it is not shredded"
    try:
        listing = listing_of(item)
    except OutputGone as gone:
        return gone.what
    sizes = sizes_beside(listing)
    wrong = next((one for one in listing.stored if sizes.get(one.uri) != one.bytes), None)
    return f"{wrong.uri} is not as it was written" if wrong else ""


def local_root(pipeline: Pipeline, holding: Holding) -> str:
    """Returns the root that holds data of items. Links below it are never followed."""
    return pipeline.source.root if holding is Holding.LANDING else storage.as_uri(pipeline.dataset.shred.output)
