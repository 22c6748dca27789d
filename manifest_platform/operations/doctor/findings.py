"""Findings of an examination: their kinds, and each finding with its item, cause and remedy.

Belongs here: the vocabulary. The other modules of this package look for findings and repair them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from manifest_platform.manifest import ItemKey
from manifest_platform.remedies import Action, Remedy

REPAIR, CLEAN, EXAMINE = Remedy(Action.REPAIR), Remedy(Action.CLEAN), Remedy(Action.EXAMINE)


class Kind(StrEnum):
    """The kind of a fault."""

    INVALID = "invalid item"
    UNREADABLE = "records that cannot be read"
    TWIN = "two items with one sort key"
    STATE = "state differs from the log"
    LOST = "item passed over unseen"
    WAITING_ROW = "waiting row differs from the log"
    DEAD_CLAIM = "dead claim"
    CLOCK = "clocks disagree"
    IMPORT = "import not completed"
    UNRECORDED = "loaded but not recorded"
    UNLEDGERED = "recorded but not loaded"
    UNKNOWN = "loaded but not known"
    ORPHAN = "objects that nothing names"
    SPOOL = "folder of a process that died"
    OUTPUT = "shredded objects lost or damaged"
    SUPERSEDED = "merged objects that nothing needs"
    OUTSIDE = "data outside the store that no row names"
    MEMORY = "store of what was loaded not as required"
    SHADOW = "tables of a full load that ended"
    CATALOG = "catalog differs from the manifest"
    KEPT = "nothing was removed"
    UNCHECKED = "not checked"


@dataclass(frozen=True)
class Finding:
    """A fault: its cause and its remedy.

    `key`: the item, if it belongs to one. `step`: the application concerned. `place`: the URI of objects, or the row of the
    store. `repairable`: true if `repair` can repair it.
    """

    kind: Kind
    cause: str
    remedy: Remedy
    key: ItemKey | None = None
    step: str = ""
    place: str = ""
    repairable: bool = False

    @property
    def subject(self) -> str:
        """A short name of the thing concerned."""
        return self.key.name if self.key else self.place or self.step


@dataclass
class Diagnosis:
    """The findings of an examination, and the number of items that it read."""

    items: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        """True if nothing is wrong and nothing was left unchecked."""
        return not self.findings
