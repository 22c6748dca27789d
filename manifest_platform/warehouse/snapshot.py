"""A snapshot's tables: built beside those that readers see, and put in their place by new names alone.

Belongs here: the shadow tables of one full load, from their making to the removal of what they replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime

from manifest_platform.column_names import spelled
from manifest_platform.listing import Listing
from manifest_platform.warehouse.engines.engine import Engine, Transaction
from manifest_platform.warehouse.errors import WarehouseError
from manifest_platform.warehouse.tables import Staged, Tables, check_written, stored_columns


class Shadows:
    """The shadow tables of one try at one full load, by the names of the tables that they will be."""

    def __init__(self, engine: Engine, tables: Tables, epoch: int, token: int) -> None:
        self._engine, self._tables = engine, tables
        self._suffix = f"e{epoch}_t{token}"
        self._built: list[str] = []
        self._replaced: list[str] = []

    def build(self, listing: Listing, staged: Mapping[str, Staged], emptied: Collection[str], now: datetime) -> None:
        """Makes and fills a shadow for each table that the snapshot replaces, and an empty one for each that it empties.

        Columns that only the old table has stay, without values. Raises CountMismatch.
        """
        have = self._tables.columns()
        for table in listing.tables:
            if table.mode == "replace":
                old, new = have.get(table.name, {}), stored_columns(table)
                stored = spelled(old, new)
                # What the snapshot says of a column holds: of the old values, which may have had another type, none stays.
                self._create(table.name, {**old, **{stored[name]: type_ for name, type_ in new.items()}})
                if one := staged.get(table.name):
                    statement, parameters = self._tables.insertion(one, self._shadow(table.name), now, stored)
                    check_written(listing.item, one, self._engine.write(statement, parameters))
        for name in emptied:
            if name in have:
                self._create(name, have[name])
        self._replaced = [name for name in self._built if name in have]

    def _create(self, name: str, columns: dict[str, str]) -> None:
        self._engine.execute(self._tables.creation(self._shadow(name), columns))
        self._built.append(name)

    def swap(self, transaction: Transaction) -> None:
        """Gives every shadow the name of its table: all that readers will notice of the load, at the COMMIT."""
        qualified, quote, rename = self._tables.qualified, self._engine.quote, self._engine.rename
        for name in self._replaced:
            transaction.rename(rename(qualified(name), quote(self._old(name))))
        for name in self._built:
            transaction.rename(rename(qualified(self._shadow(name)), quote(name)))

    def drop(self) -> None:
        """Drops what was replaced, or was built in vain. As far as that goes: the next full load drops what is left."""
        with suppress(WarehouseError):
            for name in self._built:
                for left in (self._shadow(name), self._old(name)):
                    self._engine.execute(f"DROP TABLE IF EXISTS {self._tables.qualified(left)}")

    def _shadow(self, name: str) -> str:
        return f"{name}__mp_shadow_{self._suffix}"

    def _old(self, name: str) -> str:
        return f"{name}__mp_old_{self._suffix}"
