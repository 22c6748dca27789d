"""Remedies: the actions that a person can take, as values.

Belongs here: the names of the actions and their arguments. The command for each is in `cli.remedies`, and its place in Dagster
is in `orchestration.remedies`.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum


class Action(StrEnum):
    """An action of a person. The comments name the fields of a Remedy that it needs."""

    RESOLVE = "free the item for another attempt"  # item
    RESHRED = "shred the item again"  # item
    RELOAD_MISSING = "load the item again, though some of its loaded rows are gone"  # item
    ACCEPT = "accept the directory as it is now"  # item
    KEEP = "acknowledge that other content stays out"  # item
    SKIP = "skip the item"  # item
    UNSKIP = "lift the item's skips"  # item
    READ_RECORDS = "read the item's records"  # item
    EXPLAIN = "explain the state of the item"  # item
    DISCOVER = "look for new directories"
    DISCOVER_ALL = "look for new directories among all directories"
    CAPTURE = "fetch missing windows from the source"
    CAPTURE_SNAPSHOT = "fetch a new snapshot from the source"  # feed
    BEGIN_FULL_LOAD = "load the latest snapshot in full"
    LOAD_SNAPSHOT = "load the snapshot in full"  # item
    ALLOW_EMPTY = "load the snapshot in full, though it is empty"  # item
    ALLOW_SHRINK = "load the snapshot in full, though tables shrink"  # item
    CANCEL_FULL_LOAD = "cancel the full load"
    DRAIN = "drain: do all work that may be done now"
    RUN_PROGRAM = "run a program for the step"  # step
    SHOW_STATUS = "show the state of the feeds"
    SHOW_NEXT = "show the next items"
    EXAMINE = "examine the dataset"
    REPAIR = "repair what is safe to repair"
    CLEAN = "remove orphaned files"
    COLLECT = "delete the data that retention no longer keeps"
    CREATE_STORE = "create the tables of the manifest's store"
    RECONCILE = "load missing items into the warehouse again"
    RECONCILE_IN_FULL = "load missing items into the warehouse again, with a full load"
    ACCEPT_WAREHOUSE = "take the warehouse as it is"
    IMPORT = "import the other manifest to the end"  # source
    IMPORT_LOADER = "import the loader's manifest to the end"  # source
    IMPORT_MOVED = "record that directories were moved"  # source, item: the folders, before and now
    CHECK_CLOCK = "check this machine's clock"
    MERGE = "run the merges that are due"
    MERGE_PARTITION = "merge the partition"  # table, day
    REBUILD = "rebuild the partition's merged objects"  # table, day
    RETRY_MERGE = "allow the partition to be merged again"  # table, day
    SHOW_MERGING = "show the state of merging"
    PUBLISH = "publish merged objects to readers"
    VERIFY_PUBLISHED = "make the catalog agree with the manifest"

    @property
    def only_looks(self) -> bool:
        """True if the action changes nothing; a person looks at the result and decides."""
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

_OF_ONE_TARGET = frozenset(
    {
        Action.BEGIN_FULL_LOAD,
        Action.LOAD_SNAPSHOT,
        Action.ALLOW_EMPTY,
        Action.ALLOW_SHRINK,
        Action.CANCEL_FULL_LOAD,
        Action.RECONCILE,
        Action.RECONCILE_IN_FULL,
        Action.ACCEPT_WAREHOUSE,
        Action.RELOAD_MISSING,
    }
)
_MAY_NAME_A_TARGET = frozenset({Action.RESOLVE, Action.SKIP})


@dataclass(frozen=True)
class Remedy:
    """An action with its arguments: an item (name or URI), a feed, a step, or a partition of a merged table.

    `source`: the other manifest, for an import. `target`: a further target of the dataset; empty for the first.
    """

    action: Action
    item: str = ""
    feed: str = ""
    step: str = ""
    table: str = ""
    day: date | None = None
    source: str = ""
    target: str = ""

    def __str__(self) -> str:
        return str(self.action)

    def target_of(self, first: str) -> str:
        """Returns the target that the remedy names; empty if it needs none.

        `first`: the first target of the dataset, if it has several. Actions that work on one target name it then.
        """
        if self.action in _OF_ONE_TARGET:
            return self.target or first
        return self.target if self.action in _MAY_NAME_A_TARGET else ""

    def quoted(self) -> Remedy:
        """The remedy with arguments quoted for a shell, because others choose names of directories. Names contain no spaces."""
        items = " ".join(shlex.quote(name) for name in self.item.split(" "))
        others = {name: shlex.quote(text) for name in ("table", "source") if (text := getattr(self, name))}
        return replace(self, item=items if self.item else "", **others)


LAND_ANEW = Remedy(Action.ACCEPT)
"""The remedy if a directory itself is at fault: land it again, then accept it."""


def after_failure(action: str | None, item: str) -> Remedy:
    """The remedy for a failed item: the named action, or RESOLVE if the failure names none.

    An action of another release may be unknown here; then the remedy is EXPLAIN.
    """
    known = Action.RESOLVE if action is None else Action.__members__.get(action, Action.EXPLAIN)
    return Remedy(known, item=item)
