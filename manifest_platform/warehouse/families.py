"""The family of each data table: the source's own name for the entities whose rows the table holds.

Table names are derived from the source's names, and two of these can give the same table name: `com.acme/order_x` and
`com.acme_order/x`. Their rows must never share a table. The first load of a table writes its family, in its own transaction;
a load of another family is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from manifest_platform.listing import families
from manifest_platform.warehouse.control_table import ControlTable
from manifest_platform.warehouse.engines.engine import Engine, Transaction
from manifest_platform.warehouse.errors import Conflict, ConstraintViolated, OtherFamily
from manifest_platform.warehouse.load import Load

_FAMILIES = {"dataset": "string", "table": "string", "family": "string", "item": "string"}


class Families:
    """The families of a dataset's tables, as stored in the warehouse.

    A table of an older release gets its family with its next load.
    """

    def __init__(self, engine: Engine, dataset: str) -> None:
        self._engine, self._dataset = engine, dataset
        # Where the engine enforces the key, two first loads cannot give a table two families; elsewhere the next load finds it.
        self._control = ControlTable(engine, "families", dataset, _FAMILIES, ("dataset", "table"))
        self._known: frozenset[tuple[str, str]] | None = None

    def create(self) -> None:
        """Creates the table if absent."""
        self._control.create()

    def check(self, load: Load) -> None:
        """Raises OtherFamily if a table of a load has rows of another family, by the cached families."""
        self._unknown(load, self._seen())

    def enter(self, transaction: Transaction, load: Load) -> None:
        """Writes the families of tables that have none. Raises OtherFamily, and Conflict if another load does the same."""
        if not self._unknown(load, self._seen()):
            return
        self.forget()  # valid only once this transaction is committed
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
        """Clears the cache: the next question queries the warehouse."""
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
        return self._control.qualified
