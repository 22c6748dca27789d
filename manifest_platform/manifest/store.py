"""The contract of a manifest store: ordered rows with versions, strongly consistent reads, all-or-none writes.

Belongs here: what a driver must provide, and how to write through any of them: with a lost answer (`transact_once`), and anew
where others were faster (`optimistically`). Nothing about items or records: rules about items are written once, above this.
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
"""Writes in one transaction, at most: DynamoDB's limit for TransactWriteItems, held by every driver."""

ABSENT = 0
"""The version of a row that does not exist."""

PAGE = 500
"""Rows that are asked for at once, where nothing else is said."""

TRIES = 20
"""How often optimistic work is tried, where nothing else is said."""

_FIRST_PAUSE_S = 0.002

Result = TypeVar("Result")


@dataclass(frozen=True)
class Row:
    """A stored row. Its version is 1 when first put and grows by 1 with every put."""

    partition: str
    sort: str
    version: int
    data: dict[str, Any]


@dataclass(frozen=True)
class Put:
    """Writes a row, if its version is `expected` (ABSENT: if there is none).

    `lasting` promises that nobody ever deletes the row, so that its version never repeats. A store may then write it by a
    cheaper call than a transaction, if it is the only write, and tell a repeat by the row itself.
    """

    sort: str
    data: dict[str, Any]
    expected: int
    lasting: bool = False


@dataclass(frozen=True)
class Delete:
    """Removes a row, if its version is `expected`."""

    sort: str
    expected: int


@dataclass(frozen=True)
class Check:
    """Holds if a row's version is `expected` (ABSENT: if there is none); writes nothing."""

    sort: str
    expected: int


Write = Put | Delete | Check


class StoreError(Exception):
    """The store did not do what was asked. `remedy`: what a person can do, where that is known and said nowhere else."""

    def __init__(self, message: str = "", remedy: Remedy | None = None):
        super().__init__(message)
        self.remedy = remedy


class ConditionFailed(StoreError):
    """Rows have other versions than expected, so nothing was written. `failed` are the writes that did not hold."""

    def __init__(self, failed: Sequence[Write]):
        self.failed = tuple(failed)
        super().__init__("version differs: " + ", ".join(f"{write.sort} (expected {write.expected})" for write in failed))


class Changed(Exception):
    """Raised by an attempt that saw by itself, without a write that failed, that what it read changed meanwhile."""


class StoreUnavailable(StoreError, Transient):
    """The store could not be reached or is too busy; nothing was written."""


class StoreRejected(StoreError, Permanent):
    """The store will not do the call as things stand: a missing table or right, a row too large. Nothing was written.

    The message says what a person has to mend before it is tried again.
    """


class RowDamaged(StoreError, Permanent):
    """What a row refers to is gone, or is not what it was: it must come back from a backup."""


class OutcomeUnknown(StoreError):
    """The call's answer was lost: it may have happened or not. Read back before anything else."""


@dataclass(frozen=True)
class Units:
    """What a store's calls have cost by its own account, in the units in which it is paid for."""

    read: float = 0.0
    write: float = 0.0

    def __add__(self, other: Units) -> Units:
        return Units(self.read + other.read, self.write + other.write)

    def __sub__(self, other: Units) -> Units:
        return Units(self.read - other.read, self.write - other.write)


class Store(Protocol):
    """What a driver provides. One partition is one dataset; sort keys are printable ASCII, not empty, and order bytewise.

    `requests` counts the calls made, for people to see what an item costs; `units` adds up what the store charged for those
    that it answered well, None where it charges nothing.
    """

    @property
    def requests(self) -> int:
        """How many calls were made."""
        ...

    @property
    def units(self) -> Units | None:
        """What the calls have cost, None where nothing is charged."""
        ...

    def get(self, partition: str, sort: str) -> Row | None:
        """The row of a key, strongly consistent."""
        ...

    def get_many(self, partition: str, sorts: Iterable[str]) -> dict[str, Row]:
        """The rows of keys, by sort key; a key that no row has is left out.

        Each row is strongly consistent by itself; they are not read at one moment. As few calls as the store allows.
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
        """Rows whose sort key starts with `prefix` and lies beyond `after`, in order, at most `limit`; strongly consistent.

        With `reverse` the order is descending and `after` bounds from above.
        """
        ...

    def transact(self, partition: str, writes: Sequence[Write], token: str) -> None:
        """All writes or none. A repeat with the same token within ten minutes succeeds without writing again.

        A single lasting Put is told by its row: its repeat succeeds while nobody has written the row since, and fails then.
        Raises ConditionFailed with the writes that did not hold, StoreUnavailable, OutcomeUnknown, StoreRejected (also for a
        token that other writes had), and ValueError for no writes, more than MAX_WRITES, or two to one row.
        """

    def close(self) -> None:
        """Gives connections back."""


@dataclass(frozen=True)
class Difference:
    """A setting of a store that is not as it should be, and what mends it: a setting, a command of its own, a remedy."""

    setting: str
    expected: str
    found: str
    mend: str | Remedy

    def __str__(self) -> str:
        return f"{self.setting}: {self.found}, and should be {self.expected}; to mend it: {self.mend}"


def stored_rows(
    store: Store, partition: str, prefix: str, after: str | None = None, first: int = PAGE, reverse: bool = False
) -> Iterator[Row]:
    """All rows whose sort key starts with a prefix and lies beyond `after`, in order, read page by page. Raises StoreError.

    `first`: how many rows the first page has, where few may be enough.
    """
    page = first
    while True:
        rows = store.query(partition, prefix, after=after, limit=page, reverse=reverse)
        yield from rows
        if len(rows) < page:
            return
        after, page = rows[-1].sort, PAGE


def check_writes(writes: Sequence[Write]) -> None:
    """Raises ValueError for writes that no store takes as one transaction."""
    if not writes or len(writes) > MAX_WRITES or len({write.sort for write in writes}) < len(writes):
        raise ValueError(f"{len(writes)} writes: at least 1, at most {MAX_WRITES}, each to a row of its own")


def transact_once(store: Store, partition: str, writes: Sequence[Write], mark: str) -> None:
    """Transacts writes of which the first puts a row with a unique text under `mark`, and recognises it.

    An answer may be lost, and a repeat inside a client then fails on our own write: so after any error the row is read back,
    and finding the own mark is success. Raises what `transact` raises, and OutcomeUnknown where the reading fails too.
    """
    own = writes[0]
    if not isinstance(own, Put):
        raise TypeError(f"the first write must put the row that is recognised, not {own}")
    try:
        store.transact(partition, writes, own.data[mark])
    except StoreError as error:
        try:
            row = store.get(partition, own.sort)
        except StoreError as unread:
            if isinstance(error, StoreUnavailable | StoreRejected):
                raise error from unread
            raise OutcomeUnknown(f"{own.sort}: neither answered nor read back ({error}; {unread})") from unread
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
    """Calls `attempt` until others leave alone what it reads; returns what it returns.

    Raises what `given_up` gives after `tries` calls.

    An attempt reads, decides, and writes on condition that what it read is still so. It is a function without parameters that
    does all of it, so that nothing it read before outlives a try.

    `again_on`: the errors by which an attempt says that it lost; an attempt whose reading also settles a lost answer adds
    OutcomeUnknown. Any other error goes through. `longest_pause_s`: the longest random pause before a further try, in
    seconds; pauses double up to it, and with 0 there is none.
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
