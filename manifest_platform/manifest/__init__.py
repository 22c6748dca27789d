"""The control plane: an append-only log of events on items, and what it allows next.

Pure Python above a store: `records` and `item` (one event, one directory), `dataset` (order, epochs, what counts as done),
`keys` (where each row lies), `claims`, `transitions` (every change, as a pure function), `lease`, `manifest` (the
operations), `store` (the contract of drivers, and how to write through any of them) and its drivers.
"""

from manifest_platform.manifest.claims import Claim, Failure
from manifest_platform.manifest.dataset import (
    Abandoned,
    Blocked,
    FeedState,
    Idle,
    LeaseState,
    Mode,
    Ready,
    Standing,
    Step,
    StepState,
    Verdict,
)
from manifest_platform.manifest.errors import ClaimLost, LeaseBusy, LeaseLost, Refused, UnknownItem
from manifest_platform.manifest.item import InvalidKey, Item, ItemKey, Landed
from manifest_platform.manifest.lease import Lease
from manifest_platform.manifest.manifest import Commit, Discovered, Manifest, Memory, Survey, Witness
from manifest_platform.manifest.records import (
    ACCEPTED,
    EVERYONE,
    LANDED,
    OUTPUT,
    Application,
    CouplingViolation,
    FailureKind,
    Payload,
    Record,
    State,
)
from manifest_platform.manifest.store import ConditionFailed, OutcomeUnknown, Store, StoreError, StoreUnavailable

__all__ = [
    "ACCEPTED",
    "EVERYONE",
    "LANDED",
    "OUTPUT",
    "Abandoned",
    "Application",
    "Blocked",
    "Claim",
    "ClaimLost",
    "Commit",
    "ConditionFailed",
    "CouplingViolation",
    "Discovered",
    "Failure",
    "FailureKind",
    "FeedState",
    "Idle",
    "InvalidKey",
    "Item",
    "ItemKey",
    "Landed",
    "Lease",
    "LeaseBusy",
    "LeaseLost",
    "LeaseState",
    "Manifest",
    "Memory",
    "Mode",
    "OutcomeUnknown",
    "Payload",
    "Ready",
    "Record",
    "Refused",
    "Standing",
    "State",
    "Step",
    "StepState",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "Survey",
    "UnknownItem",
    "Verdict",
    "Witness",
]
