"""The ledger: what was applied, under which epoch. It moves with the data, in one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from manifest_platform.warehouse.control import creation
from manifest_platform.warehouse.engines.engine import CONTROL_SCHEMA, Engine
from manifest_platform.warehouse.load import Full, Load
from manifest_platform.warehouse.tables import naive
from manifest_platform.warehouse.transaction import Transaction

_PAGE = 1000

_COLUMNS = {
    "dataset": "string",
    "feed": "string",
    "item": "string",
    "position": "string",
    "epoch": "bigint",
    "token": "bigint",
    "record_id": "string",
    "late": "boolean",
    "rows": "string",
    "checksum": "string",
    "applied_at": "timestamp",
}
_NAMES = ", ".join(f'"{name}"' for name in _COLUMNS)


@dataclass(frozen=True)
class LedgerEntry:
    """What the warehouse knows of one applied item; `rows` by the listing's tables, as staged; `applied_at` in UTC."""

    item: str
    feed: str
    position: str
    epoch: int
    token: int
    record_id: str
    late: bool
    rows: dict[str, int]
    checksum: str
    applied_at: datetime


class Ledger:
    """The ledger's rows of one dataset."""

    def __init__(self, engine: Engine, dataset: str) -> None:
        self._engine, self._dataset = engine, dataset

    def create(self) -> None:
        """Creates the table, where absent."""
        self._engine.execute(creation(self._engine, self._table, _COLUMNS))

    def entry(self, feed: str, item: str, since_epoch: int) -> LedgerEntry | None:
        """The newest entry of an item of this epoch or a later one."""
        found = self._engine.execute(
            f'SELECT {_NAMES} FROM {self._table} WHERE "dataset" = ? AND "feed" = ? AND "item" = ? '  # noqa: S608
            'AND "epoch" >= ? ORDER BY "epoch" DESC, "applied_at" DESC LIMIT 1',
            (self._dataset, feed, item, since_epoch),
        )
        return _entry(found[0]) if found else None

    def newest(self, feed: str, since_epoch: int, after: str) -> Iterator[LedgerEntry]:
        """The newest entry of each item beyond a position, by position, read by the page."""
        if "ledger" not in self._engine.columns(CONTROL_SCHEMA):
            return
        while page := self._page(feed, since_epoch, after):
            for entry in page:
                if entry.position != after:
                    yield entry
                after = entry.position

    def _page(self, feed: str, since_epoch: int, after: str) -> list[LedgerEntry]:
        found = self._engine.execute(
            f'SELECT {_NAMES} FROM {self._table} WHERE "dataset" = ? AND "feed" = ? AND "epoch" >= ? '  # noqa: S608
            f'AND "position" > ? ORDER BY "position", "epoch" DESC, "applied_at" DESC LIMIT {_PAGE}',
            (self._dataset, feed, since_epoch, after),
        )
        return [_entry(row) for row in found]

    def has(self, transaction: Transaction, load: Load) -> bool:
        """Whether a load was applied before. What its entry says is read afterwards: to plan that costs ten times as much."""
        return bool(
            transaction.rows(
                f'SELECT 1 FROM {self._table} WHERE "dataset" = ? AND "feed" = ? AND "item" = ? AND "epoch" >= ? LIMIT 1',  # noqa: S608
                (self._dataset, load.feed, load.item, load.serving_epoch),
            )
        )

    def in_epoch(self, load: Load, full: Full, transaction: Transaction | None = None) -> tuple[str, int] | None:
        """An item, with its epoch, that was loaded in a snapshot's epoch or later, by its own feed or one that it covers."""
        feeds = [load.feed, *full.covers]
        marks = ", ".join("?" for _ in feeds)
        query = transaction.rows if transaction else self._engine.execute
        found = query(
            f'SELECT "item", "epoch" FROM {self._table} '  # noqa: S608
            f'WHERE "dataset" = ? AND "feed" IN ({marks}) AND "epoch" >= ? LIMIT 1',
            (self._dataset, *feeds, load.epoch),
        )
        return found[0] if found else None

    def beyond(self, feed: str, epoch: int, transaction: Transaction | None = None) -> tuple[str, int] | None:
        """The newest item of a feed that was loaded in a later epoch, with that epoch."""
        query = transaction.rows if transaction else self._engine.execute
        found = query(
            f'SELECT "item", "epoch" FROM {self._table} WHERE "dataset" = ? AND "feed" = ? AND "epoch" > ? '  # noqa: S608
            'ORDER BY "epoch" DESC LIMIT 1',
            (self._dataset, feed, epoch),
        )
        return found[0] if found else None

    def enter(self, transaction: Transaction, load: Load, rows: dict[str, int], now: datetime) -> LedgerEntry:
        """Adds the entry of a load whose rows were moved."""
        entry = LedgerEntry(
            item=load.item,
            feed=load.feed,
            position=load.position,
            epoch=load.epoch,
            token=load.token,
            record_id=load.record_id,
            late=load.late,
            rows=rows,
            checksum=load.checksum,
            applied_at=now,
        )
        values = {**vars(entry), "dataset": self._dataset, "rows": json.dumps(rows), "applied_at": naive(now)}
        marks = ", ".join("?" for _ in _COLUMNS)
        transaction.write(
            f"INSERT INTO {self._table} ({_NAMES}) VALUES ({marks})",  # noqa: S608
            [values[name] for name in _COLUMNS],
        )
        return entry

    @property
    def _table(self) -> str:
        return self._engine.qualified(CONTROL_SCHEMA, "ledger")


def _entry(row: tuple[Any, ...]) -> LedgerEntry:
    values = dict(zip(_COLUMNS, row, strict=True))
    del values["dataset"]
    return LedgerEntry(**{**values, "rows": json.loads(values["rows"]), "applied_at": values["applied_at"].replace(tzinfo=UTC)})
