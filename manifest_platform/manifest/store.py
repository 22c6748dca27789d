"""The contract of a manifest store: ordered rows with versions, strongly consistent reads, all-or-none writes.

Belongs here: what a driver must provide, nothing about items or records. Rules about items are written once, above this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

MAX_WRITES = 100
"""Writes in one transaction, at most: DynamoDB's limit for TransactWriteItems, held by every driver."""

ABSENT = 0
"""The version of a row that does not exist."""


@dataclass(frozen=True)
class Row:
    """A stored row. Its version is 1 when first put and grows by 1 with every put."""

    partition: str
    sort: str
    version: int
    data: dict[str, Any]


@dataclass(frozen=True)
class Put:
    """Writes a row, if its version is `expected` (ABSENT: if there is none)."""

    sort: str
    data: dict[str, Any]
    expected: int


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
    """The store did not do what was asked."""


class ConditionFailed(StoreError):
    """Rows have other versions than expected, so nothing was written. `failed` are the writes that did not hold."""

    def __init__(self, failed: Sequence[Write]):
        self.failed = tuple(failed)
        super().__init__("version differs: " + ", ".join(f"{write.sort} (expected {write.expected})" for write in failed))


class StoreUnavailable(StoreError):
    """The store could not be reached or is too busy; nothing was written. Passing: try again."""


class OutcomeUnknown(StoreError):
    """The call's answer was lost: it may have happened or not. Read back before anything else."""


class Store(Protocol):
    """What a driver provides. One partition is one dataset; sort keys order bytewise.

    `requests` counts the calls made, for people to see what an item costs.
    """

    requests: int

    def get(self, partition: str, sort: str) -> Row | None:
        """The row of a key, strongly consistent."""
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

        Raises ConditionFailed with the writes that did not hold, StoreUnavailable, OutcomeUnknown, and ValueError for
        more than MAX_WRITES writes or two writes to one row.
        """

    def close(self) -> None:
        """Gives connections back."""


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
            if isinstance(error, StoreUnavailable):
                raise error from unread
            raise OutcomeUnknown(f"{own.sort}: neither answered nor read back ({error}; {unread})") from unread
        if row is None or row.data[mark] != own.data[mark]:
            raise
