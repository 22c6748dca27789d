"""Errors that stop a load, told apart by what the caller must do next.

Fenced, Behind      answers of the protocol: stop working; the item is late
CannotLoad          permanent: the item fails and waits for a person
Unavailable         transient: nothing was loaded, and a later try may succeed
Held                transient: another process has the warehouse open
NewerControlTables  a newer release has written here: this release loads nothing
Unbelieved          the warehouse was set back, or is another database: nothing is loaded until a person decides
ManifestBehind      the manifest was set back: it must believe the fence's record, and try again
CheckInvalid        the configuration has a wrong check: nothing is loaded until it is fixed
ViewRefused         the configuration asks for a view that cannot be created: nothing is loaded until it is fixed
NotTakenOver        another loader has filled the schema: nothing is loaded until its tables are taken over
Unclear             the outcome is unknown: raise the fence, then ask the ledger
"""

from typing import ClassVar

from manifest_platform.faults import Misconfigured, Permanent, Transient
from manifest_platform.listing import other_family
from manifest_platform.releases import NewerRelease
from manifest_platform.remedies import Action, Remedy
from manifest_platform.warehouse.load import EMPTY, SHRINK


class WarehouseError(Exception):
    """Any error that kept a load from being applied."""


class Fenced(WarehouseError):
    """The fence holds a newer token or epoch than the caller's: another worker has taken over, so stop.

    `token` and `epoch`: the values that the fence holds.
    """

    def __init__(self, where: str, mine: tuple[int, int], token: int, epoch: int) -> None:
        self.token, self.epoch = token, epoch
        held = [f"{name} {value}" for name, value, own in (("token", token, mine[0]), ("epoch", epoch, mine[1])) if value > own]
        super().__init__(
            f"fence of {where} holds the newer {' and '.join(held)} (mine: token {mine[0]}, epoch {mine[1]}): "
            "another worker has taken over. Stop, and take the lease again before any further work. If no other worker exists, "
            "a newer epoch means that the manifest was set back to a time before a full load: begin that full load again"
        )


class Behind(WarehouseError):
    """The item is at or before the newest applied position, and the ledger lacks it: it is late."""

    def __init__(self, item: str, position: str, applied: str) -> None:
        self.applied = applied
        super().__init__(
            f"{item} at {position!r} is not after {applied!r}, the newest that the warehouse has applied, and was never "
            "applied itself. Treat it as late, by the feed's policy"
        )


class NewerControlTables(WarehouseError, NewerRelease):
    """A newer release has begun to write fence and ledger, so this release writes nothing. No item is at fault."""


class Unbelieved(WarehouseError, Permanent):
    """The ledger lacks the record that the manifest believes was applied last: nothing was changed.

    The warehouse was set back, or is another database. No item is at fault. `record`: the fence's record, empty if nothing was
    ever applied.
    """

    def __init__(self, feed: str, where: str, believed: str, record: str) -> None:
        self.feed, self.believed, self.record = feed, believed, record
        super().__init__(
            f"the ledger of {where} lacks the record {believed}, which the manifest believes was applied last: the warehouse "
            "was set back, or is another database. Nothing was changed"
        )


class ManifestBehind(WarehouseError):
    """The fence names a later record than the manifest believes, and the ledger has both: the manifest was set back."""

    def __init__(self, where: str, record: str) -> None:
        self.record = record
        super().__init__(f"the fence of {where} names the record {record}: the manifest was set back, and must believe it")


class CannotLoad(WarehouseError, Permanent):
    """A permanent error; nothing was loaded. `remedy`: the remedy, if it is not to fix the cause and resolve the item.

    `fitting`: of loads that were applied together, the number of those before the cause; None if it is not known.
    """

    fitting: int | None = None

    def __init__(self, message: str = "", remedy: Remedy | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy


class CountMismatch(CannotLoad):
    """A table received another number of rows than its listing states."""


class DuplicateKey(CannotLoad):
    """Two rows of a directory's table have the same key and different content."""


class KeyMissing(CannotLoad):
    """A row, or a whole table, has no key."""


class OtherContent(CannotLoad):
    """The ledger has the item with another checksum: the directory changed after it was loaded."""


class SnapshotAhead(CannotLoad):
    """The warehouse holds a snapshot of a later epoch than the load's: the manifest was set back to a time before it."""


class NeedsConsent(WarehouseError):
    """A snapshot would remove rows that nobody may have meant to remove. Nothing was changed, and the item did not fail.

    `consent`: what the operator must allow for this full load.
    """

    consent: ClassVar[str]


class EmptySnapshot(NeedsConsent):
    """A snapshot has no rows at all. Sent by mistake, it would empty the warehouse."""

    consent = EMPTY


class ShrinkingSnapshot(NeedsConsent):
    """A snapshot would remove more rows from a table than the limits allow."""

    consent = SHRINK


class EpochInUse(CannotLoad):
    """A snapshot's epoch is not new: the warehouse has loaded something else in it."""


class CannotReload(CannotLoad):
    """The item's rows in the warehouse cannot be told from others, or are not what the ledger says. Nothing was changed."""


class OtherFamily(CannotLoad):
    """A table holds rows of another family of the source; found before any data or DDL."""

    def __init__(self, item: str, table: str, family: str, other: str) -> None:
        super().__init__(other_family(item, table, family, other), Remedy(Action.RESHRED))


class IncompatibleChange(CannotLoad):
    """A column's type differs from the warehouse's and is not a lossless widening; found before any data or DDL."""


class UnsupportedMode(CannotLoad):
    """A table has a mode that this kind of load does not support."""


class NotTogether(CannotLoad):
    """Several items cannot be applied in one transaction. Nothing was loaded: apply them one by one."""


class CheckFailed(CannotLoad):
    """A check of `load.checks` with severity `error` failed; found before anything of the item was visible."""


class CheckInvalid(WarehouseError, Misconfigured):
    """The warehouse refuses the SELECT of a check. Every item would meet the same error, so it is charged to none."""


class ViewRefused(WarehouseError, Misconfigured):
    """The view of loaded items cannot be created. Nothing was loaded, and no item is at fault."""


class NotTakenOver(WarehouseError, Misconfigured):
    """Another loader has filled the schema, and its loads were not taken over. Nothing was loaded, and no item is at fault."""


class LoadFailed(CannotLoad):
    """The warehouse refused a statement."""


class ValueRefused(CannotLoad):
    """A value cannot be stored in its column; found before the transaction. It names table, column and row."""


class ConstraintViolated(LoadFailed):
    """A constraint of a table, such as a key, refused a row."""


class Unavailable(WarehouseError, Transient):
    """The warehouse cannot be opened or reached, or another process holds it for longer than the engine waits.

    `soon`: a repeat within seconds may succeed, so `Warehouse` tries again before it raises the error.
    """

    def __init__(self, message: str = "", *, soon: bool = False) -> None:
        super().__init__(message)
        self.soon = soon


class Held(Unavailable):
    """Another process has the warehouse open, and only one process may write to it.

    `pid`: that process, if it is known. `is_worker`: it is known to be a worker of the platform, which soon lets go.
    """

    def __init__(self, message: str, pid: int | None = None, is_worker: bool = False) -> None:
        self.pid, self.is_worker = pid, is_worker
        super().__init__(message)


class Conflict(WarehouseError, Transient):
    """A concurrent transaction won and this transaction was rolled back. `Warehouse` retries it."""


class Unclear(WarehouseError):
    """COMMIT got no answer and may have happened: raise the fence, then ask the ledger."""
