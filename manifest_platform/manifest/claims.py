"""A claim: the right to work on one item; and how it may end badly.

Belongs here: what a worker holds while it works on an item. How claims are opened and ended is in `transitions`.
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
    """The right to work on one item: its open Processing record, the step's state that the claim rested on, the dataset."""

    item: Item
    processing: Record
    step: Step
    state: StepState
    dataset: str


@dataclass(frozen=True)
class Failure:
    """Why an attempt failed. `remedy`: the action that helps, by name; None: to resolve the item once the cause is mended."""

    kind: FailureKind
    message: str
    exception: str | None = None
    traceback: str | None = None
    remedy: str | None = None

    @classmethod
    def of(cls, error: Exception, traceback: str | None = None) -> Failure:
        """Why an attempt failed that an error ended: a transient fault is tried again, any other waits for a person.

        An error that knows what helps has it as its `remedy`; an item is all that this may need.
        """
        kind = FailureKind.TRANSIENT if isinstance(error, Transient) else FailureKind.PERMANENT
        remedy: Remedy | None = getattr(error, "remedy", None)
        return cls(kind, str(error), type(error).__name__, traceback, remedy.action.name if remedy else None)

    def remedy_for(self, item: str) -> Remedy:
        """What a person can do about an item that failed so."""
        return after_failure(self.remedy, item)

    def payload(self) -> Payload:
        """The payload of the Failed record, its secrets masked; long texts are cut, the traceback at its beginning."""
        traceback = masked(self.traceback)[-TRACEBACK_LIMIT:] if self.traceback else None
        data = {
            **dataclasses.asdict(self),
            "kind": str(self.kind),
            "message": masked(self.message)[:MESSAGE_LIMIT],
            "traceback": traceback,
        }
        return Payload(FAILURE, {name: value for name, value in data.items() if value is not None})
