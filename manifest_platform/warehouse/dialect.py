"""The seam between the apply protocol and one engine: what differs by engine, and nothing of the protocol itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from manifest_platform.listing import Table


@dataclass(frozen=True)
class Source:
    """Staged rows of one table: what to write after FROM, and the values that it binds."""

    sql: str
    parameters: tuple[Any, ...] = ()


class Dialect(ABC):
    """One engine, over one connection of its own that opens at first use. Not for several threads at once.

    Statements mark values by `?`. Every method that reaches the engine raises Unavailable, Conflict or LoadFailed;
    outside of `begin` and `commit`, each statement commits by itself. `patience` is for how many seconds a lock or
    a conflicting transaction is waited for.
    """

    patience: float = 10.0

    @abstractmethod
    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs one statement and returns its rows."""

    @abstractmethod
    def write(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Runs one INSERT, UPDATE, DELETE or COPY and returns how many rows it wrote."""

    @abstractmethod
    def begin(self) -> None:
        """Begins a transaction whose concurrent writes of one row conflict (snapshot isolation or stronger)."""

    @abstractmethod
    def commit(self) -> None:
        """Commits durably. Raises Conflict where the engine surely rolled back, else Unclear."""

    @abstractmethod
    def rollback(self) -> None:
        """Ends the transaction, if there is one, without effect. Never raises; drops a broken connection."""

    @abstractmethod
    def interrupt(self) -> None:
        """Makes the statement that runs now fail, if one does; the only method that another thread may call."""

    @abstractmethod
    def close(self) -> None:
        """Closes the connection; the next statement opens another."""

    @abstractmethod
    def qualified(self, schema: str, table: str | None = None) -> str:
        """The quoted name of a schema, or of a table in it."""

    @abstractmethod
    def sql_type(self, logical: str) -> str:
        """The engine's type for a logical type (see `Column`)."""

    @abstractmethod
    def columns(self, schema: str) -> dict[str, dict[str, str]]:
        """The logical type of every column of every table of a schema, by table and column; an alien type as it is."""

    @abstractmethod
    def widen(self, table: str, column: str, sql_type: str) -> str:
        """The statement that gives a column a wider type; table and column come quoted."""

    def rename(self, table: str, name: str) -> str:
        """The statement that gives a table another name in its schema; both come quoted. It must not commit."""
        return f"ALTER TABLE {table} RENAME TO {name}"

    @abstractmethod
    def stage(self, table: Table, uris: list[str]) -> Source:
        """Makes the rows of exactly these Parquet objects readable, more than once, by statements of this connection."""

    @abstractmethod
    def unstage(self, source: Source) -> None:
        """Frees what `stage` made. Never raises."""

    def quote(self, name: str) -> str:
        """An identifier as SQL text."""
        return '"' + name.replace('"', '""') + '"'
