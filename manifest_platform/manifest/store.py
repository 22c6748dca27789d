"""The contract of a manifest store: ordered rows with versions, strongly consistent reads, all-or-none writes.

Belongs here: what a driver must provide, and helpers that write through any driver: `transact_once` handles a lost answer,
`optimistically` retries after a conflict. Rules about items and records do not belong here: they are written once, above the
store. The drivers are in `stores`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from manifest_platform.faults import Permanent, Transient
from manifest_platform.remedies import Remedy

MAX_WRITES = 100
"""The most writes in one transaction: DynamoDB's limit for TransactWriteItems, which every driver applies."""

ABSENT = 0
"""The version of a row that does not exist."""

PAGE = 500
"""The default number of rows of a query."""

TRIES = 20
"""The default number of tries of optimistic work."""

_FIRST_PAUSE_S = 0.002

Result = TypeVar("Result")


@dataclass(frozen=True)
class Row:
    """A stored row. Its version is 1 when first put, and each put increments it."""

    partition: str
    sort: str
    version: int
    data: dict[str, Any]


@dataclass(frozen=True)
class Put:
    """Writes a row, on condition that its version is `expected` (ABSENT: that the row does not exist).

    `lasting` promises that nobody ever deletes the row, so that a version never occurs twice. If a lasting Put is the only
    write, a store may use a cheaper call than a transaction, and recognize a repeat by the row itself.

    `expires`: seconds since 1970 after which nobody needs the row, so that a store may remove it by itself, if it can.
    """

    sort: str
    data: dict[str, Any]
    expected: int
    lasting: bool = False
    expires: int | None = None


@dataclass(frozen=True)
class Delete:
    """Removes a row, on condition that its version is `expected`."""

    sort: str
    expected: int


@dataclass(frozen=True)
class Check:
    """Requires that a row's version is `expected` (ABSENT: that the row does not exist); writes nothing."""

    sort: str
    expected: int


Write = Put | Delete | Check


class StoreError(Exception):
    """A call that the store did not carry out. `remedy`: what a person can do, if that is known and not in the message."""

    def __init__(self, message: str = "", remedy: Remedy | None = None):
        super().__init__(message)
        self.remedy = remedy


class ConditionFailed(StoreError):
    """A transaction whose rows have other versions than expected. Nothing was written.

    `failed`: the writes whose condition failed.
    """

    def __init__(self, failed: Sequence[Write]):
        self.failed = tuple(failed)
        super().__init__("version differs: " + ", ".join(f"{write.sort} (expected {write.expected})" for write in failed))


class Changed(Exception):
    """An attempt noticed, without a failed write, that the rows it read have changed. Raised by the attempt itself."""


class StoreUnavailable(StoreError, Transient):
    """A store that could not be reached or is too busy; nothing was written."""


class StoreRejected(StoreError, Permanent):
    """A call that the store rejects until a person acts: a missing table or right, a row too large. Nothing was written.

    The message says what a person has to change before the call is tried again.
    """


class RowDamaged(StoreError, Permanent):
    """A row that refers to data that is lost or changed: the data must be restored from a backup."""


class OutcomeUnknown(StoreError):
    """A call whose answer was lost: it may have happened or not. The caller must read back before anything else."""


@dataclass(frozen=True)
class Units:
    """The cost of a store's calls as the store reports it, in its billing units."""

    read: float = 0.0
    write: float = 0.0

    def __add__(self, other: Units) -> Units:
        return Units(self.read + other.read, self.write + other.write)

    def __sub__(self, other: Units) -> Units:
        return Units(self.read - other.read, self.write - other.write)


class Store(Protocol):
    """The contract of a driver. A partition holds one dataset. Sort keys are printable ASCII, not empty, ordered bytewise.

    `requests` counts the calls made, so that people see what an item costs. `units` adds up what the store charged for
    successful calls; None if it charges nothing.
    """

    @property
    def requests(self) -> int:
        """The number of calls made."""
        ...

    @property
    def units(self) -> Units | None:
        """The cost of the calls; None if nothing is charged."""
        ...

    def get(self, partition: str, sort: str) -> Row | None:
        """The row with a key, strongly consistent; None if there is none."""
        ...

    def get_many(self, partition: str, sorts: Iterable[str]) -> dict[str, Row]:
        """The rows with keys, by sort key. Keys without a row are left out.

        Each row is strongly consistent by itself; the rows are not read at one moment. Uses as few calls as the store allows.
        """
        ...

    def query(
        self,
        partition: str,
        prefix: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        """The rows whose sort key starts with `prefix` and is beyond `after`, in order, at most `limit`; strongly consistent.

        With `reverse` the order is descending and `after` bounds from above.
        """
        ...

    def transact(self, partition: str, writes: Sequence[Write], token: str) -> None:
        """Carries out all writes or none. A repeat with the same token within ten minutes succeeds without writing again.

        A single lasting Put is recognized by its row: its repeat succeeds while nobody has written the row since, and fails
        afterward. Raises ConditionFailed with the writes whose condition failed, StoreUnavailable, OutcomeUnknown,
        StoreRejected (also for a token that other writes had), and ValueError for no writes, more than MAX_WRITES, or two
        writes to one row.
        """

    def close(self) -> None:
        """Closes connections."""


@dataclass(frozen=True)
class Difference:
    """A setting of a store that is not as required.

    The last field is the remedy: a value, a command of the store's own tools, or a Remedy.
    """

    setting: str
    expected: str
    found: str
    mend: str | Remedy

    def __str__(self) -> str:
        return f"{self.setting}: {self.found}, but should be {self.expected}. To repair it: {self.mend}"


def stored_rows(
    store: Store, partition: str, prefix: str, after: str | None = None, first: int = PAGE, reverse: bool = False
) -> Iterator[Row]:
    """All rows whose sort key starts with a prefix and is beyond `after`, in order, read page by page. Raises StoreError.

    `first`: the number of rows of the first page, if few may be enough.
    """
    page = first
    while True:
        rows = store.query(partition, prefix, after=after, limit=page, reverse=reverse)
        yield from rows
        if len(rows) < page:
            return
        after, page = rows[-1].sort, PAGE


def check_writes(writes: Sequence[Write]) -> None:
    """Raises ValueError for writes that no store accepts as one transaction."""
    if not writes or len(writes) > MAX_WRITES or len({write.sort for write in writes}) < len(writes):
        raise ValueError(
            f"{len(writes)} writes: a transaction has at least 1 and at most {MAX_WRITES}, each to a different row"
        )


def transact_once(store: Store, partition: str, writes: Sequence[Write], mark: str) -> None:
    """Transacts writes, and recognizes its own write after a lost answer.

    The first write puts a row with a unique text under `mark`. If an answer is lost, a repeat inside a client fails on our own
    write. So after any error the row is read back, and finding our own mark is success. Raises what `transact` raises, and
    OutcomeUnknown if reading back fails too.
    """
    own = writes[0]
    if not isinstance(own, Put):
        raise TypeError(f"the first write must put the row that is recognized, not {own}")
    try:
        store.transact(partition, writes, own.data[mark])
    except StoreError as error:
        try:
            row = store.get(partition, own.sort)
        except StoreError as unread:
            if isinstance(error, StoreUnavailable | StoreRejected):
                raise error from unread
            raise OutcomeUnknown(
                f"{own.sort}: the write got no answer and could not be read back ({error}; {unread})"
            ) from unread
        if row is None or row.data[mark] != own.data[mark]:
            raise


def optimistically(
    attempt: Callable[[], Result],
    given_up: Callable[[], Exception],
    *,
    tries: int = TRIES,
    again_on: tuple[type[Exception], ...] = (ConditionFailed, Changed),
    longest_pause_s: float = 0.0,
) -> Result:
    """Calls `attempt` until no concurrent change disturbs it; returns its result. Raises `given_up()` after `tries` calls.

    An attempt reads, decides, and writes on condition that the rows it read have not changed. It is a function without
    parameters that does all of it, so that nothing that it read is used in a later try.

    `again_on`: the errors by which an attempt reports a conflict. An attempt whose reading also settles a lost answer adds
    OutcomeUnknown. Any other error is raised. `longest_pause_s`: the longest random pause before another try, in seconds.
    Pauses double up to it; with 0 there is no pause.
    """
    last: Exception | None = None
    for done in range(tries):
        if done and longest_pause_s:
            time.sleep(random.uniform(0, min(longest_pause_s, _FIRST_PAUSE_S * 2**done)))  # noqa: S311
        try:
            return attempt()
        except again_on as error:
            last = error
    raise given_up() from last
