"""What an examination may find: kinds of findings, each with its item, its cause and what helps.

Belongs here: the vocabulary. What looks for findings, and what mends them, lies in the modules beside.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from manifest_platform.manifest import ItemKey
from manifest_platform.remedies import Action, Remedy

REPAIR, CLEAN, EXAMINE = Remedy(Action.REPAIR), Remedy(Action.CLEAN), Remedy(Action.EXAMINE)


class Kind(StrEnum):
    """What is wrong."""

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
    SHADOW = "tables of a full load that ended"
    CATALOG = "catalog differs from the manifest"
    KEPT = "nothing was removed"
    UNCHECKED = "not checked"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: on which item, where it is one's; why; and what helps.

    `step`: the application concerned. `place`: the URI of objects, or the row of the store. `repairable`: by `repair`.
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
        """What it is about, in short."""
        return self.key.name if self.key else self.place or self.step


@dataclass
class Diagnosis:
    """All that an examination found, and how much it looked at."""

    items: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong, and nothing was left unchecked."""
        return not self.findings
