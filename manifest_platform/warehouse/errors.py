"""What can stop a load, told apart by what the caller must do next.

Fenced, Behind      the protocol's own answers: stop working; the item is late
CannotLoad          trying again cannot help: the item fails and waits for a person
Unavailable         nothing was loaded, and a later try may succeed
Held                the same, because another process has the warehouse open
NewerControlTables  a newer release has begun to write: nothing is loaded by this one
Unbelieved          the warehouse was set back, or is another one: nothing is loaded until a person decides
ManifestBehind      the manifest was set back: it is to believe what the fence names, and to try again
Unclear             it is not known whether it was loaded: raise the fence, then ask the ledger
"""

from typing import ClassVar

from manifest_platform.faults import Permanent, Transient
from manifest_platform.listing import other_family
from manifest_platform.releases import NewerRelease
from manifest_platform.remedies import Action, Remedy
from manifest_platform.warehouse.load import EMPTY, SHRINK


class WarehouseError(Exception):
    """Anything that kept a load from being applied."""


class Fenced(WarehouseError):
    """The fence holds a newer token or epoch than the caller's: somebody else has taken over, so stop.

    `token` and `epoch` are those that the fence holds.
    """

    def __init__(self, where: str, mine: tuple[int, int], token: int, epoch: int) -> None:
        self.token, self.epoch = token, epoch
        held = [f"{name} {value}" for name, value, own in (("token", token, mine[0]), ("epoch", epoch, mine[1])) if value > own]
        super().__init__(
            f"fence of {where} holds the newer {' and '.join(held)} (mine: token {mine[0]}, epoch {mine[1]}): "
            "another worker has taken over; stop, and take the lease again before any further work. A newer epoch while nobody "
            "else works says that the manifest was put back to before a full load: begin that full load again"
        )


class Behind(WarehouseError):
    """The item lies at or before the newest applied position, and the ledger lacks it: it is late."""

    def __init__(self, item: str, position: str, applied: str) -> None:
        self.applied = applied
        super().__init__(
            f"{item} at {position!r} is not after {applied!r}, the newest that the warehouse has applied, and was never "
            "applied itself: treat it as late, by the feed's policy"
        )


class NewerControlTables(WarehouseError, NewerRelease):
    """A newer release has begun to write fence and ledger, so this one writes nothing. That is the fault of no item."""


class Unbelieved(WarehouseError, Permanent):
    """The ledger lacks the record that the manifest believes was applied last: nothing was changed.

    The warehouse was set back, or is another one. That is the fault of no item. `record`: what the fence names, empty where
    nothing was ever applied.
    """

    def __init__(self, feed: str, where: str, believed: str, record: str) -> None:
        self.feed, self.believed, self.record = feed, believed, record
        super().__init__(
            f"the ledger of {where} lacks the record {believed}, which the manifest believes was applied last: the warehouse "
            "was set back, or is another one; nothing was changed"
        )


class ManifestBehind(WarehouseError):
    """The fence names a later record than the manifest believes, and the ledger has both: the manifest was set back."""

    def __init__(self, where: str, record: str) -> None:
        self.record = record
        super().__init__(f"the fence of {where} names the record {record}: the manifest was set back, and is to believe it")


class CannotLoad(WarehouseError, Permanent):
    """Trying again cannot help; nothing was loaded. `remedy`: what helps, where it is not to mend the cause and resolve."""

    def __init__(self, message: str = "", remedy: Remedy | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy


class CountMismatch(CannotLoad):
    """A table received another number of rows than its listing promises."""


class DuplicateKey(CannotLoad):
    """Two rows of a directory's table have the same key and other content."""


class KeyMissing(CannotLoad):
    """A row, or a whole table, has no key to find it by."""


class OtherContent(CannotLoad):
    """The ledger has the item with another checksum: what was loaded is not what has landed."""


class SnapshotAhead(CannotLoad):
    """The warehouse stands on a snapshot of a later epoch than the load goes by: the manifest was put back to before it."""


class NeedsConsent(WarehouseError):
    """A snapshot would take away what nobody may have meant to: nothing was changed, and the item did not fail.

    `consent`: what an operator has to let the full load do.
    """

    consent: ClassVar[str]


class EmptySnapshot(NeedsConsent):
    """A snapshot has no rows at all: what the source sent by mistake would empty the warehouse."""

    consent = EMPTY


class ShrinkingSnapshot(NeedsConsent):
    """A snapshot would take more rows from a table than snapshots may."""

    consent = SHRINK


class EpochInUse(CannotLoad):
    """A snapshot's epoch is not a new one: the warehouse has loaded something else in it."""


class OtherFamily(CannotLoad):
    """A table has the rows of what its source calls by another name; found before any data or DDL."""

    def __init__(self, item: str, table: str, family: str, other: str) -> None:
        super().__init__(other_family(item, table, family, other), Remedy(Action.RESHRED))


class IncompatibleChange(CannotLoad):
    """A column's type differs from the warehouse's and is no lossless widening; found before any data or DDL."""


class UnsupportedMode(CannotLoad):
    """A table asks for a mode that this kind of load does not know."""


class LoadFailed(CannotLoad):
    """The warehouse refused a statement."""


class ConstraintViolated(LoadFailed):
    """A table's own constraint, such as a key, refused a row."""


class Unavailable(WarehouseError, Transient):
    """The warehouse cannot be opened or reached, or is held by somebody else for longer than we wait."""


class Held(Unavailable):
    """Another process has the warehouse open, of which only one may write to it."""


class Conflict(WarehouseError, Transient):
    """A concurrent transaction won and this one is rolled back. `Warehouse` tries again before anyone sees this."""


class Unclear(WarehouseError):
    """A COMMIT got no answer, so it may have happened: raise the fence, then ask the ledger."""
