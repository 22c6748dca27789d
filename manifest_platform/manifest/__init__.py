"""The control plane: an append-only log of records on items, and the rules that decide what may happen next.

Belongs here, in pure Python above a store:

- `records` and `item`: one event, and a directory, whose state is computed from its records.
- `dataset`: order, epochs, and the choice of the next item; `beside`: the rows of items that wait or need a person.
- `transitions`: every change as a pure function; `keys`: the sort key of every row.
- `manifest` (the operations), `claims`, `lease`, `outputs`, `queries`, `skip_rules`, `payloads`.
- `store`: the contract of drivers; `stores`: the drivers. `takeover`, `archive`, `dump`, `cost`: a store's rows as a whole.

Does not belong here: what a step does with an item (`pipeline`), commands that combine several operations (`operations`), the
warehouse's ledger and fence (`warehouse`). Nothing here imports Dagster, Spark or pandas.
"""

from manifest_platform.manifest.choosing import Survey
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
from manifest_platform.manifest.manifest import Manifest
from manifest_platform.manifest.reading import Commit, Memory, Witness
from manifest_platform.manifest.records import (
    ACCEPTED,
    EVERYONE,
    LANDED,
    OUTPUT,
    Application,
    CouplingViolation,
    FailureKind,
    Holding,
    Payload,
    Record,
    State,
)
from manifest_platform.manifest.registration import Discovered
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
    "Holding",
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
