"""A claim, which is the right to work on one item, and the failure that may end it.

Belongs here: what a worker holds while it works on an item. The writes that open and end claims are in `transitions`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from manifest_platform.faults import Transient
from manifest_platform.manifest.dataset import Step, StepState
from manifest_platform.manifest.item import Item
from manifest_platform.manifest.records import FAILURE, FailureKind, Payload, Record
from manifest_platform.masking import masked
from manifest_platform.remedies import Remedy, after_failure

MESSAGE_LIMIT = 2048
TRACEBACK_LIMIT = 8192


@dataclass(frozen=True)
class Claim:
    """The right to work on one item: its open Processing record, the state on which the claim is conditional, the dataset."""

    item: Item
    processing: Record
    step: Step
    state: StepState
    dataset: str


@dataclass(frozen=True)
class Failure:
    """The reason of a failed attempt.

    `remedy`: the name of the action that a person must take; None: resolve the item once the cause is fixed.
    """

    kind: FailureKind
    message: str
    exception: str | None = None
    traceback: str | None = None
    remedy: str | None = None

    @classmethod
    def of(cls, error: Exception, traceback: str | None = None) -> Failure:
        """The failure of an attempt that ended with an error: a transient fault is retried, any other waits for a person.

        An error that knows its remedy has it as an attribute `remedy`, which may need no argument but the item.
        """
        kind = FailureKind.TRANSIENT if isinstance(error, Transient) else FailureKind.PERMANENT
        remedy: Remedy | None = getattr(error, "remedy", None)
        return cls(kind, str(error), type(error).__name__, traceback, remedy.action.name if remedy else None)

    def remedy_for(self, item: str) -> Remedy:
        """The remedy for an item with this failure."""
        return after_failure(self.remedy, item)

    def payload(self) -> Payload:
        """The payload of the Failed record, with secrets masked. Long texts are cut; a traceback keeps its end."""
        traceback = masked(self.traceback)[-TRACEBACK_LIMIT:] if self.traceback else None
        data = {
            **dataclasses.asdict(self),
            "kind": str(self.kind),
            "message": masked(self.message)[:MESSAGE_LIMIT],
            "traceback": traceback,
        }
        return Payload(FAILURE, {name: value for name, value in data.items() if value is not None})
