"""The contract of an engine: what differs by engine, and nothing of the apply protocol itself; and a transaction of any engine.

A plug-in of the group `manifest_platform.engines` is a subclass of EngineSettings, which opens a subclass of Engine. An entry
point names it; `warehouse.kind` of the configuration is the entry point's name.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from manifest_platform import plugins
from manifest_platform.deployments import PRODUCTION
from manifest_platform.listing import Table
from manifest_platform.settings import PluginSettings, Settings
from manifest_platform.warehouse.errors import LoadFailed, Unavailable, Unclear

CONTROL_SCHEMA = "manifest_platform"
"""The schema of the platform's own tables in every warehouse: ledger, fence, and what the data tables are."""

_IN_TRANSACTION = re.compile(r"\s*(INSERT|UPDATE|DELETE|SELECT|MERGE|COPY)\b", re.IGNORECASE)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_NAME = r'"(?:[^"]|"")+"'
_RENAME = re.compile(rf"ALTER TABLE {_NAME}(?:\.{_NAME})* RENAME TO {_NAME}")


class EngineSettings(Settings, ABC):
    """The settings of an engine, the part `warehouse` of the configuration.

    A subclass sets `kind: Literal["its name"] = "its name"` and has fields of its own, all with defaults or required alike.
    """

    kind: str
    reserved_schemas: ClassVar[frozenset[str]] = frozenset({"information_schema", "pg_catalog"})
    """The schemas that are the engine's own: no dataset may be called as one."""
    one_writer: ClassVar[bool] = False
    """Whether only one process at a time may have the warehouse open for writing. Then all who load take turns, and who finds
    it open in another process raises Held."""
    counts_at_once: ClassVar[bool] = False
    """Whether `count(*)` of a table takes milliseconds, however many rows it has. Else tables are counted more rarely."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Where the warehouse is, for people: a path, or a server and its database, without secrets."""

    @property
    def file(self) -> str | None:
        """The path of the warehouse's file; None for a warehouse that is none."""
        return None

    def of_deployment(self, deployment: str) -> EngineSettings:
        """The warehouse of another deployment, beside this one. Raises ValueError where the engine knows of none."""
        raise ValueError(f"warehouse {self.kind} has no place of its own for deployment {deployment!r}; allowed: {PRODUCTION}")

    @abstractmethod
    def open(self, *, read_only: bool = False, patience: float | None = None) -> Engine:
        """The engine over a connection of its own, which opens at first use. The driver is imported here at the earliest.

        With `read_only`, for questions: nothing is created or changed. `patience`: as `Engine.patience`; None: its default.
        """


AnyEngine = Annotated[EngineSettings, PluginSettings(plugins.ENGINES, "duckdb")]
"""The settings of any engine: of the one that `kind` names, else of the embedded one."""


@dataclass(frozen=True)
class Staging:
    """Staged rows of one table: what to write after FROM, and the values that it binds."""

    sql: str
    parameters: tuple[Any, ...] = ()


class Engine(ABC):
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
    def query(self, sql: str, schema: str | None = None, most: int | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Runs a person's query and returns the names of its columns, and its rows, the first `most` of them.

        Tables of `schema`, if there is one, need no schema before their names. What is not a single query is refused; an
        engine that was opened with `read_only` lets it reach no file, host, variable or setting beyond the warehouse's tables.
        """

    def begin(self) -> None:
        """Begins a transaction whose concurrent writes of one row conflict (snapshot isolation or stronger)."""
        self.execute("BEGIN")

    def commit(self) -> None:
        """Commits durably. Raises Conflict where the engine surely rolled back, else Unclear."""
        try:
            self.execute("COMMIT")
        except (LoadFailed, Unavailable) as error:
            self.close()
            raise Unclear(f"COMMIT got no clear answer ({error}): raise the fence and ask the ledger") from error

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
        """The logical type of every column of every table of a schema, by table and column; an alien type as it is.

        Of a schema that does not exist there are none; nor are there where a reader finds no warehouse at all.
        """

    @abstractmethod
    def widen(self, table: str, column: str, sql_type: str) -> None:
        """Gives a column a wider type, wholly or not at all, its values as they are; table and column come quoted."""

    @abstractmethod
    def attached(self, schema: str) -> dict[str, list[str]]:
        """What people have put on the tables of a schema, by table, in words: `index by_name`, `view report`.

        All that a table which takes another one's name would lack, or that would go on with the table of before: indexes,
        constraints, grants, comments; views only where the engine binds them to a table instead of its name.
        """

    def schema_creation(self, schema: str) -> str:
        """The statement that makes a schema, where absent."""
        return f"CREATE SCHEMA IF NOT EXISTS {self.qualified(schema)}"

    def rename(self, table: str, name: str) -> str:
        """The statement that gives a table another name in its schema; both come quoted. It must not commit."""
        return f"ALTER TABLE {table} RENAME TO {name}"

    def json_each(self, column: str) -> str:
        """What stands in FROM for the entries of a JSON object, as `key` and `value`; the text column of it comes qualified.

        PostgreSQL has `json_each_text`, which takes no text but a cast of it.
        """
        return f"json_each({column})"

    def exists(self) -> bool:
        """Whether there is a database to ask, so that a question does not make one."""
        return True

    @abstractmethod
    def stage(self, table: Table, uris: list[str]) -> Staging:
        """Makes the rows of exactly these Parquet objects readable, more than once, by statements of this connection."""

    @abstractmethod
    def unstage(self, staging: Staging) -> None:
        """Frees what `stage` made. Never raises."""

    def quote(self, name: str) -> str:
        """An identifier as SQL text."""
        return '"' + name.replace('"', '""') + '"'


# What may run between BEGIN and COMMIT, and the one place through which it does


class Transaction:
    """One open transaction of an engine: statements that may commit by themselves do not get through."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.committed = False

    def write(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Runs one statement that moves rows and returns how many it wrote."""
        refuse_in_transaction(sql)
        return self._engine.write(sql, parameters)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of one query."""
        refuse_in_transaction(sql)
        return self._engine.execute(sql, parameters)

    def rename(self, sql: str) -> None:
        """Runs the statement of a table's new name, by which a snapshot's tables appear all at once; no other one."""
        refuse_but_rename(sql)
        self._engine.execute(sql)

    def commit(self) -> None:
        """Commits durably. Raises Conflict or Unclear."""
        self._engine.commit()
        self.committed = True


@contextmanager
def opened(engine: Engine) -> Generator[Transaction]:
    """A transaction that is rolled back at its end, unless it was committed."""
    transaction = Transaction(engine)
    engine.begin()
    try:
        yield transaction
    finally:
        if not transaction.committed:
            engine.rollback()


def refuse_in_transaction(sql: str) -> None:
    """Lets pass a single INSERT, UPDATE, DELETE, SELECT, MERGE or COPY; raises LoadFailed for any other statement.

    TRUNCATE, VACUUM or DDL would commit on some engines, and break a load in two that all tests on another engine pass.
    """
    bare = _QUOTED.sub("", sql)
    into_new_table = re.match(r"\s*SELECT\b.*\bINTO\b", bare, re.IGNORECASE | re.DOTALL)
    if not _IN_TRANSACTION.match(bare) or into_new_table or ";" in bare:
        raise LoadFailed(f"not allowed between BEGIN and COMMIT, where some engines would commit at it: {sql}")


def refuse_but_rename(sql: str) -> None:
    """Lets pass exactly `ALTER TABLE x RENAME TO y`, all names quoted; raises LoadFailed for any other statement."""
    if not _RENAME.fullmatch(sql):
        raise LoadFailed(f"not allowed between BEGIN and COMMIT, where only a table's new name is expected: {sql}")
