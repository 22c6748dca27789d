"""The fence: each feed's newest epoch, token and applied position, which a transaction must exceed to change anything."""

from __future__ import annotations

from typing import Any, NamedTuple

from manifest_platform.warehouse.control import creation
from manifest_platform.warehouse.engines.engine import CONTROL_SCHEMA, Engine
from manifest_platform.warehouse.errors import Conflict, ConstraintViolated, Fenced, LoadFailed
from manifest_platform.warehouse.load import Full, Load
from manifest_platform.warehouse.transaction import Transaction

_COLUMNS = {"dataset": "string", "feed": "string", "epoch": "bigint", "token": "bigint", "applied": "string"}


class Held(NamedTuple):
    """What the fence holds of a feed."""

    token: int
    epoch: int
    applied: str


class Fence:
    """The fence's rows of one dataset. Whoever moves one does so in a transaction; of two at once, one conflicts."""

    def __init__(self, engine: Engine, dataset: str) -> None:
        self._engine, self._dataset = engine, dataset

    def create(self, feed: str) -> None:
        """Creates the table and the feed's row, where absent. Raises Conflict where another one does so at the same time."""
        # The key keeps two first loads from making two rows where it is enforced; nothing else rests on it.
        self._engine.execute(creation(self._engine, self._table, _COLUMNS, ', PRIMARY KEY ("dataset", "feed")'))
        if self.held(feed):
            return
        try:
            self._engine.write(
                f'INSERT INTO {self._table} ("dataset", "feed", "epoch", "token", "applied") VALUES (?, ?, 0, 0, \'\')',  # noqa: S608
                (self._dataset, feed),
            )
        except ConstraintViolated as error:
            raise Conflict(f"another first load of {self.where(feed)} made its fence at the same time") from error

    def held(self, feed: str) -> Held | None:
        """What a feed's row holds now."""
        found = self._engine.execute(
            f'SELECT "token", "epoch", "applied" FROM {self._table} WHERE "dataset" = ? AND "feed" = ?',  # noqa: S608
            (self._dataset, feed),
        )
        return Held(*found[0]) if found else None

    def newest_epoch(self) -> int:
        """The newest epoch of any feed; 0 where there is no fence yet."""
        if "fence" not in self._engine.columns(CONTROL_SCHEMA):
            return 0
        found = self._engine.execute(f'SELECT max("epoch") FROM {self._table} WHERE "dataset" = ?', (self._dataset,))  # noqa: S608
        return found[0][0] or 0

    def refuse_older(self, feed: str, token: int, epoch: int) -> str:
        """The newest applied position; raises Fenced where the fence holds a newer token or epoch than these."""
        held = self.held(feed)
        if not held:
            raise LoadFailed(f"{self._table} has lost the row of {self.where(feed)}: restore it, with the newest of the ledger")
        if held.token > token or held.epoch > epoch:
            raise Fenced(self.where(feed), (token, epoch), held.token, held.epoch)
        return held.applied

    def refuse_older_snapshot(self, load: Load, full: Full) -> None:
        """Raises Fenced where any feed of the dataset has a newer epoch than a snapshot. Their tokens are their own."""
        for feed in _others(load, full):
            held = self.held(feed)
            if held and held.epoch > load.epoch:
                raise Fenced(self.where(feed), (held.token, load.epoch), held.token, held.epoch)

    def lift(self, transaction: Transaction, feed: str, token: int, epoch: int) -> bool:
        """Raises a feed's fence, and what it has applied stays; False where the fence holds something newer."""
        statement = (
            f'UPDATE {self._table} SET "epoch" = ?, "token" = ? '  # noqa: S608
            'WHERE "dataset" = ? AND "feed" = ? AND "epoch" <= ? AND "token" <= ?'
        )
        return transaction.write(statement, (epoch, token, self._dataset, feed, epoch, token)) > 0

    def lift_all(self, transaction: Transaction, load: Load, full: Full) -> bool:
        """Raises the snapshot's own fence, and all others to its epoch; False where one of them holds something newer."""
        return self.lift(transaction, load.feed, load.token, load.epoch) and self._lift_others(transaction, load, full)

    def let_pass(self, transaction: Transaction, load: Load) -> bool:
        """Moves the fence to a load; False where the load does not exceed it.

        A late load leaves `applied` as it is. Positions compare bytewise: an engine whose text has a collation must
        give the column the binary one.
        """
        sets, conditions = '"epoch" = ?, "token" = ?', '"epoch" <= ? AND "token" <= ?'
        new: list[Any] = [load.epoch, load.token]
        least: list[Any] = [load.epoch, load.token]
        if not load.late:
            sets, conditions = f'{sets}, "applied" = ?', f'{conditions} AND "applied" < ?'
            new.append(load.position)
            least.append(load.position)
        statement = f'UPDATE {self._table} SET {sets} WHERE "dataset" = ? AND "feed" = ? AND {conditions}'  # noqa: S608
        return transaction.write(statement, [*new, self._dataset, load.feed, *least]) > 0

    def let_snapshot_pass(self, transaction: Transaction, load: Load, full: Full) -> bool:
        """Moves all fences to a snapshot's epoch, and what the covered feeds have applied to its boundary.

        False where one of them holds something newer. Snapshots follow each other by epoch: an older one may be loaded anew.
        """
        statement = (
            f'UPDATE {self._table} SET "epoch" = ?, "token" = ?, '  # noqa: S608
            '"applied" = CASE WHEN "applied" < ? THEN ? ELSE "applied" END '
            'WHERE "dataset" = ? AND "feed" = ? AND "epoch" <= ? AND "token" <= ?'
        )
        new = [load.epoch, load.token, load.position, load.position]
        own = transaction.write(statement, [*new, self._dataset, load.feed, load.epoch, load.token]) > 0
        return own and self._lift_others(transaction, load, full, full.boundary)

    def _lift_others(self, transaction: Transaction, load: Load, full: Full, boundary: str | None = None) -> bool:
        for feed in _others(load, full):
            sets: str = '"epoch" = ?'
            new: list[Any] = [load.epoch]
            if boundary is not None and feed in full.covers:
                sets = f'{sets}, "applied" = ?'
                new.append(boundary)
            statement = f'UPDATE {self._table} SET {sets} WHERE "dataset" = ? AND "feed" = ? AND "epoch" <= ?'  # noqa: S608
            if not transaction.write(statement, [*new, self._dataset, feed, load.epoch]):
                return False
        return True

    def where(self, feed: str) -> str:
        """A feed and its dataset, in words."""
        return f"feed {feed!r} of dataset {self._dataset!r}"

    @property
    def _table(self) -> str:
        return self._engine.qualified(CONTROL_SCHEMA, "fence")


def _others(load: Load, full: Full) -> list[str]:
    """All feeds of the dataset but the snapshot's own."""
    return [feed for feed in full.feeds if feed != load.feed]
