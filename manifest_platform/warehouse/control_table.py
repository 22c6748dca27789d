"""A control table as one dataset sees it: its name in the warehouse, its columns, and its creation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from manifest_platform.warehouse.engines.engine import CONTROL_SCHEMA, Engine

POSITION = "position"
"""The type of a column of positions in their feed: text that compares bytewise on every engine."""


class ControlTable:
    """A table of the schema `manifest_platform`.

    All datasets share it, unless the engine locks a whole table for a row that a transaction writes: datasets would then wait
    for each other, so each has a table of its own there.

    `key`: the columns that name a row. `lookups`: the columns by which a table that grows is read; each gets an index, if the
    engine needs one to find few rows among many.
    """

    def __init__(
        self,
        engine: Engine,
        table: str,
        dataset: str,
        columns: Mapping[str, str],
        key: tuple[str, ...] = (),
        lookups: Sequence[Sequence[str]] = (),
    ) -> None:
        self._engine, self._columns, self._key, self._shared_name = engine, columns, key, table
        self._lookups = lookups
        self.name = engine.stored_name(f"{table}__{dataset}" if engine.locks_tables else table)

    @property
    def qualified(self) -> str:
        """The table's quoted name with its schema."""
        return self._engine.qualified(CONTROL_SCHEMA, self.name)

    def exists(self) -> bool:
        """True if the table exists. Writes nothing."""
        return self.columns() is not None

    def columns(self) -> Mapping[str, str] | None:
        """Returns the table's columns in the warehouse, with their types; None if the table does not exist. Writes nothing."""
        return self._engine.columns(CONTROL_SCHEMA).get(self.name)

    def of_all(self) -> dict[str, dict[str, str]]:
        """Returns the columns of the tables of all datasets, by the tables' qualified names. Writes nothing."""
        tables = self._engine.columns(CONTROL_SCHEMA).items()
        return {
            self._engine.qualified(CONTROL_SCHEMA, name): columns
            for name, columns in tables
            if name == self.name or (self._engine.locks_tables and name.startswith(f"{self._shared_name}__"))
        }

    def create(self) -> None:
        """Creates the table if absent. Raises Conflict if another worker does so at the same time."""
        definitions = ", ".join(f"{self._engine.quote(name)} {self._sql_type(type_)}" for name, type_ in self._columns.items())
        key = f", PRIMARY KEY ({', '.join(map(self._engine.quote, self._key))})" if self._key else ""
        statements = [f"CREATE TABLE IF NOT EXISTS {self.qualified} ({definitions}{key})", *filter(None, self._indexes())]
        # The statement of an index waits for open loads, and needs the table's owner, even if the index exists.
        if len(statements) == 1 or not self.exists():
            self._engine.execute("; ".join(statements))

    def _indexes(self) -> list[str]:
        """Returns the statements that create the indexes of the lookups; an empty text for each that needs none."""
        create, columns = self._engine.index_creation, self._lookups
        return [create(f"{self.name}__{'_'.join(names)}", self.qualified, names) for names in columns]

    def try_writing(self) -> None:
        """Runs statements that write no row, to find out if the connection's role may write the table."""
        first = self._engine.quote(next(iter(self._columns)))
        self._engine.write(f"UPDATE {self.qualified} SET {first} = {first} WHERE 1 = 0")  # noqa: S608
        self._engine.write(f"INSERT INTO {self.qualified} SELECT * FROM {self.qualified} WHERE 1 = 0")  # noqa: S608

    def add_columns(self, *names: str) -> set[str]:
        """Adds those of these columns that the table of an older release lacks; returns the columns that it then has."""
        there = self.columns() or {}
        for name in names:
            if name not in there:
                type_ = self._sql_type(self._columns[name])
                self._engine.execute(f"ALTER TABLE {self.qualified} ADD COLUMN {self._engine.quote(name)} {type_}")
        return {*there, *names}

    def _sql_type(self, type_: str) -> str:
        return self._engine.position_type() if type_ == POSITION else self._engine.sql_type(type_)
