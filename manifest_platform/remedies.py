"""Remedies: what a person can do about what is in the way, as values.

Belongs here: the vocabulary. How a remedy is typed or clicked is said where people are told of it: by `cli` and by
`orchestration`, each in a module `remedies` of its own.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum


class Action(StrEnum):
    """What a person can do. Behind each: which names of a Remedy it needs."""

    RESOLVE = "free the item for another attempt"  # item
    RESHRED = "shred the item again"  # item
    ACCEPT = "accept the directory as it is now"  # item
    KEEP = "acknowledge that other content stays out"  # item
    SKIP = "pass over the item"  # item
    UNSKIP = "lift the item's skips"  # item
    READ_RECORDS = "read the item's records"  # item
    EXPLAIN = "ask why the item stands as it does"  # item
    DISCOVER = "look for what has landed"
    DISCOVER_ALL = "look at every directory for what has landed"
    CAPTURE = "fetch from the source what is missing"
    CAPTURE_SNAPSHOT = "fetch a new snapshot from the source"  # feed
    BEGIN_FULL_LOAD = "load the latest snapshot in full"
    LOAD_SNAPSHOT = "load the snapshot in full"  # item
    ALLOW_EMPTY = "load the snapshot in full, though it is empty"  # item
    ALLOW_SHRINK = "load the snapshot in full, though tables shrink"  # item
    CANCEL_FULL_LOAD = "give up the full load"
    DRAIN = "let the steps do their work"
    RUN_PROGRAM = "let a program do the step's work"  # step
    SHOW_STATUS = "look at how the feeds stand"
    SHOW_NEXT = "look at what is next"
    EXAMINE = "examine the dataset"
    REPAIR = "mend what is safe to mend"
    CLEAN = "remove what nothing names"
    CREATE_STORE = "make the tables of the manifest's store"
    RECONCILE = "load again what the warehouse lacks"
    RECONCILE_IN_FULL = "load again what the warehouse lacks, with a full load"
    ACCEPT_WAREHOUSE = "take the warehouse as it is"
    IMPORT = "import the other manifest to the end"  # source
    IMPORT_LOADER = "import the loader's manifest to the end"  # source
    IMPORT_MOVED = "tell that directories were moved"  # source, item: the folders, before and now
    CHECK_CLOCK = "see whether this machine's clock is right"
    MERGE = "merge what is due"
    MERGE_PARTITION = "merge the partition"  # table, day
    REBUILD = "write the partition's merged objects anew"  # table, day
    RETRY_MERGE = "let the partition be merged again"  # table, day
    SHOW_MERGING = "look at how merging stands"
    PUBLISH = "show readers what is merged"
    VERIFY_PUBLISHED = "make the catalog agree with the manifest"

    @property
    def only_looks(self) -> bool:
        """Whether it changes nothing: a person looks, and decides then."""
        return self in _LOOKS


_LOOKS = {
    Action.READ_RECORDS,
    Action.EXPLAIN,
    Action.SHOW_STATUS,
    Action.SHOW_NEXT,
    Action.EXAMINE,
    Action.CHECK_CLOCK,
    Action.SHOW_MERGING,
}


@dataclass(frozen=True)
class Remedy:
    """What a person can do, and with what: an item by its name or URI, a feed, a step, a merged table's partition.

    `source`: the other manifest that an import reads.
    """

    action: Action
    item: str = ""
    feed: str = ""
    step: str = ""
    table: str = ""
    day: date | None = None
    source: str = ""

    def __str__(self) -> str:
        return str(self.action)

    def quoted(self) -> Remedy:
        """The remedy as a shell takes it: who lands a directory or registers a URL chooses its name. Names have no spaces."""
        items = " ".join(shlex.quote(name) for name in self.item.split(" "))
        others = {name: shlex.quote(text) for name in ("table", "source") if (text := getattr(self, name))}
        return replace(self, item=items if self.item else "", **others)


LAND_ANEW = Remedy(Action.ACCEPT)
"""What helps where a directory itself is at fault: it is accepted once it was landed anew. Its answer says what else does."""


def after_failure(action: str | None, item: str) -> Remedy:
    """What helps with an item that failed: the action of this name, or to resolve it where the failure names none.

    Another release may know actions that this one lacks: then a person has to look first.
    """
    known = Action.RESOLVE if action is None else Action.__members__.get(action, Action.EXPLAIN)
    return Remedy(known, item=item)
