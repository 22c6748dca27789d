"""Whose rows a data table has: the family of each, which is what its source calls what it holds.

Names of tables are made of the source's names, and two of these can make one: `com.acme/order_x` and `com.acme_order/x`. Their
rows must never be in one table. The first load of a table writes its family, in its own transaction; another family is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from manifest_platform.listing import families
from manifest_platform.warehouse.control import control_creation
from manifest_platform.warehouse.engines.engine import CONTROL_SCHEMA, Engine, Transaction
from manifest_platform.warehouse.errors import Conflict, ConstraintViolated, OtherFamily
from manifest_platform.warehouse.load import Load

_FAMILIES = {"dataset": "string", "table": "string", "family": "string", "item": "string"}


class Families:
    """The families of a dataset's tables, as the warehouse has them. Tables of older loads get theirs with the next one."""

    def __init__(self, engine: Engine, dataset: str) -> None:
        self._engine, self._dataset = engine, dataset
        self._known: frozenset[tuple[str, str]] | None = None

    def create(self) -> None:
        """Creates the table, where absent."""
        # Where the key is enforced, it keeps two first loads from giving a table two families; else the next load finds them.
        self._engine.execute(control_creation(self._engine, self._table, _FAMILIES, ', PRIMARY KEY ("dataset", "table")'))

    def check(self, load: Load) -> None:
        """Raises OtherFamily where a table of a load has the rows of another family, as last seen."""
        self._unknown(load, self._seen())

    def enter(self, transaction: Transaction, load: Load) -> None:
        """Writes the families of tables that have none yet. Raises OtherFamily; Conflict where another load does the same."""
        if not self._unknown(load, self._seen()):
            return
        self.forget()  # what follows counts when it is committed
        found = self._unknown(load, frozenset(transaction.rows(self._query, (self._dataset,))))
        for table, family in sorted(found):
            try:
                transaction.write(
                    f'INSERT INTO {self._table} ("dataset", "table", "family", "item") VALUES (?, ?, ?, ?)',  # noqa: S608
                    (self._dataset, table, family, load.item),
                )
            except ConstraintViolated as error:
                raise Conflict(f"another load gave table {table} a family at the same time") from error

    def forget(self) -> None:
        """Makes the next question ask the warehouse."""
        self._known = None

    def _unknown(self, load: Load, known: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        mine = families(load.listing.tables)
        for table, other in sorted(known):
            if mine.get(table, other) != other:
                raise OtherFamily(load.item, table, mine[table], other)
        return mine.items() - set(known)

    def _seen(self) -> frozenset[tuple[str, str]]:
        if self._known is None:
            self._known = frozenset((table, family) for table, family in self._engine.execute(self._query, (self._dataset,)))
        return self._known

    @property
    def _query(self) -> str:
        return f'SELECT "table", "family" FROM {self._table} WHERE "dataset" = ?'  # noqa: S608

    @property
    def _table(self) -> str:
        return self._engine.qualified(CONTROL_SCHEMA, "families")
