"""The contract of an engine: everything that differs by engine, and nothing of the apply protocol.

Belongs here also: Transaction, which refuses statements that would commit on some engines.

A plug-in of the entry point group `manifest_platform.engines` is a subclass of EngineSettings, which opens a subclass of
Engine. `warehouse.kind` in the configuration is the name of the entry point.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from manifest_platform import plugins
from manifest_platform.deployments import PRODUCTION
from manifest_platform.listing import Table
from manifest_platform.settings import PluginSettings, Settings
from manifest_platform.warehouse.errors import LoadFailed, Unavailable, Unclear
from manifest_platform.warehouse.names import shortened
from manifest_platform.warehouse.upkeep_settings import UpkeepAction, UpkeepSettings

CONTROL_SCHEMA = "manifest_platform"
"""The schema of the platform's own tables in every warehouse: ledger, fence, and facts about the data tables."""

NTH = "__mp_nth"
"""The column that names a staged row's item by its place among several items that are staged together."""

_IN_TRANSACTION = re.compile(r"\s*(INSERT|UPDATE|DELETE|SELECT|MERGE|COPY)\b", re.IGNORECASE)
_SIZED = re.compile(r"string\((\d+)\)")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_NAME = r'"(?:[^"]|"")+"'
_RENAME = re.compile(rf"ALTER TABLE {_NAME}(?:\.{_NAME})* RENAME TO {_NAME}")


class EngineSettings(Settings, ABC):
    """The settings of an engine: the part `warehouse` of the configuration.

    A subclass sets `kind: Literal["its name"] = "its name"` and has fields of its own, all with defaults or all required.
    """

    kind: str
    reserved_schemas: ClassVar[frozenset[str]] = frozenset({"information_schema", "pg_catalog"})
    """The engine's own schemas: no dataset may have such a name."""
    one_writer: ClassVar[bool] = False
    """True if only one process at a time may have the warehouse open for writing.

    Loads then take turns, and a process that finds the warehouse open elsewhere raises Held.
    """
    counts_at_once: ClassVar[bool] = False
    """True if `count(*)` of a table takes milliseconds for any number of rows. Otherwise tables are counted less often."""
    upkeep_actions: ClassVar[tuple[UpkeepAction, ...]] = ()
    """The actions of upkeep that `Engine.tidy` does."""
    imaginary: ClassVar[Mapping[str, Any]] = {}
    """The required fields of a warehouse that need not exist: its engine is asked for SQL text only and never connects."""

    upkeep: UpkeepSettings = Field(UpkeepSettings(), description="what is done with tables after loads changed them")

    @model_validator(mode="after")
    def _tidies_as_the_engine_can(self) -> EngineSettings:
        if unknown := [one for one in self.upkeep.actions if one not in self.upkeep_actions]:
            allowed = f"{', '.join(self.upkeep_actions)}" if self.upkeep_actions else "no action, because it needs none"
            raise ValueError(f"upkeep.actions has {unknown[0]!r}, which {self.kind} does not have; allowed: {allowed}")
        return self

    @property
    @abstractmethod
    def place(self) -> str:
        """The location of the warehouse, for people, without secrets: a path, or a server and its database."""

    @property
    def file(self) -> str | None:
        """The path of the warehouse's file; None if it has no file."""
        return None

    def of_deployment(self, deployment: str) -> EngineSettings:
        """Returns the settings of another deployment's warehouse, beside it. Raises ValueError if the engine has none."""
        raise ValueError(f"warehouse {self.kind} has no place of its own for deployment {deployment!r}; allowed: {PRODUCTION}")

    @abstractmethod
    def open(self, *, read_only: bool = False, patience: float | None = None) -> Engine:
        """Returns the engine with its own connection, which opens at first use. Implementations import the driver only here.

        `read_only`: for queries; nothing is created or changed. `patience`: as `Engine.patience`; None for its default.
        """


DEFAULT_ENGINE = "duckdb"
"""The engine of settings without a `kind`: the embedded one."""
AnyEngine = Annotated[EngineSettings, PluginSettings(plugins.ENGINES, DEFAULT_ENGINE, short="url")]
"""The settings of any engine, chosen by `kind`; by default the embedded engine."""


@dataclass(frozen=True)
class Cut:
    """The texts of a staged column that were cut: their number, and the length to which they were cut, in words."""

    column: str
    values: int
    most: str


@dataclass(frozen=True)
class TextSize:
    """The size of a text column: it holds `most` units of the engine. `fixed`: True if ALTER TABLE cannot make it longer."""

    most: int
    fixed: bool = False


@dataclass(frozen=True)
class Staging:
    """The staged rows of one table: the text to write after FROM, and the values that it binds.

    `parts`: the stagings that it unites, each of which `unstage` removes. `cut`: the columns whose texts were cut.
    """

    sql: str
    parameters: tuple[Any, ...] = ()
    parts: tuple[Staging, ...] = ()
    cut: tuple[Cut, ...] = ()


Same = Sequence[tuple[str, str]]
"""The columns of a key: that of a staged row, with its alias, and that of a table, which is named without its schema."""


def equal(same: Same) -> str:
    """Returns the condition that a staged row has the key of a row."""
    return " AND ".join(f"{staged} = {stored}" for staged, stored in same)


@dataclass(frozen=True)
class JsonEntries:
    """The entries of a JSON object as SQL text: the item to write in FROM after a comma, and the texts of key and value."""

    item: str
    key: str
    value: str


class Need(StrEnum):
    """Needs of a load that a role may lack."""

    CONNECT = "connect"
    CONTROL_TABLES = "control tables"
    CREATE_SCHEMA = "create schema"
    STAGE = "stage"


class Engine(ABC):
    """A database engine, with its own connection that opens at first use. Not thread-safe.

    Statements mark values with `?` (see `marks` for drivers with other marks). Values are None, booleans, integers, texts, and
    times in UTC without a zone, which are those of the logical type `timestamp`. Every method that reaches the engine raises
    Unavailable, Conflict or LoadFailed. A statement that creates what another session creates at the same time raises Conflict,
    with and without IF NOT EXISTS. Outside of `begin` and `commit`, each statement commits by itself. `patience`: the seconds
    to wait for a lock or a conflicting transaction.
    """

    patience: float = 10.0
    locks_tables: ClassVar[bool] = False
    """True if a transaction that writes one row locks the whole table. Each dataset then has control tables of its own."""
    swaps_names: ClassVar[bool] = True
    """True if a snapshot's tables replace the old tables by renaming; False if the rows are replaced in the transaction."""
    longest_name: ClassVar[int | None] = None
    """Most bytes of a table's or column's name; None for no limit. `quote` shortens longer names."""
    measures_texts: ClassVar[bool] = False
    """True if a text column may stay shorter than the listing says: staged texts, in a table, are measured or cut for it."""
    refuses_listed_lengths: ClassVar[bool] = False
    """True if `stage` refuses texts that are longer than the listing says; then columns of that length need no measuring."""
    text_unit: ClassVar[str] = "characters"
    """The unit in which the engine counts the length of a text column."""
    reads_storage: ClassVar[bool] = False
    """True if the database reads objects from the storage itself. Otherwise this process reads them, also on its own disk."""
    most_columns: ClassVar[int | None] = None
    """Most columns of a table; None for no limit."""
    views_span_schemas: ClassVar[bool] = False
    """True if a view may read a table of another schema, and `views` names the views of a schema."""

    @abstractmethod
    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs one statement and returns its rows."""

    @abstractmethod
    def write(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Runs one INSERT, UPDATE, DELETE or COPY and returns the number of rows that it wrote."""

    @abstractmethod
    def query(self, sql: str, schema: str | None = None, most: int | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Runs a person's query and returns its column names and its rows, at most `most` of them.

        Tables of `schema`, if given, need no schema before their names. Anything but a single query is refused. An engine that
        was opened with `read_only` gives the query no access to files, hosts, variables or settings beyond the warehouse's
        tables.
        """

    def begin(self) -> None:
        """Begins a transaction. If another has written a row, an UPDATE of it conflicts, or waits and sees the new values."""
        self.execute("BEGIN")

    def commit(self) -> None:
        """Commits durably. Raises Conflict if the engine certainly rolled back, otherwise Unclear."""
        try:
            self.execute("COMMIT")
        except (LoadFailed, Unavailable) as error:
            self.close()
            raise Unclear(f"COMMIT got no clear answer ({error}): raise the fence and ask the ledger") from error

    @abstractmethod
    def rollback(self) -> None:
        """Rolls back the open transaction, if there is one. Never raises; drops a broken connection."""

    @abstractmethod
    def interrupt(self) -> None:
        """Makes the running statement fail, if there is one. The only method that another thread may call."""

    @abstractmethod
    def close(self) -> None:
        """Closes the connection; the next statement opens a new connection."""

    def release(self, idle: bool) -> bool:
        """Lets other processes use what only one process can have, and returns True if it did; the next statement waits for it.

        Called between transactions. `idle`: no load follows soon; otherwise the engine does so only for a process that waits.
        """
        return False

    @property
    def is_at_hand(self) -> bool:
        """False if the next statement may have to wait until another process lets go of the warehouse."""
        return True

    @abstractmethod
    def qualified(self, schema: str, table: str | None = None) -> str:
        """Returns the quoted name of a schema, or of a table in it."""

    @abstractmethod
    def sql_type(self, logical: str) -> str:
        """Returns the engine's type for a logical type (see `Column`)."""

    @abstractmethod
    def columns(self, schema: str) -> dict[str, dict[str, str]]:
        """Returns the logical type of every column of a schema's tables, by table and column; an unknown type unchanged.

        Views are no tables. Empty for a schema that does not exist, and with `read_only` for a warehouse that does not exist.
        """

    def views(self, schema: str) -> list[str]:
        """Returns the names of the views of a schema. Needed only with `views_span_schemas`."""
        return []

    def json_value(self, text: str) -> str:
        """Returns the expression by which people get the JSON value of a text in a view: the text, unless they need more."""
        return text

    @abstractmethod
    def widen(self, table: str, column: str, sql_type: str) -> None:
        """Gives a column a wider type, completely or not at all, with unchanged values. Table and column are quoted already."""

    def texts(self, schema: str) -> dict[str, dict[str, TextSize]]:
        """Returns the text columns of a schema that have a length, by table."""
        return {
            table: {name: TextSize(int(sized[1])) for name, type_ in columns.items() if (sized := _SIZED.fullmatch(type_))}
            for table, columns in self.columns(schema).items()
        }

    def size_of(self, text: str) -> str:
        """Returns the expression for the length of a text, in the engine's unit. `text`: an expression."""
        return f"char_length({text})"

    def required(self, schema: str) -> dict[str, list[str]]:
        """Returns the columns of a schema that are NOT NULL, by table: another loader or a person declared them so."""
        return {}

    def allow_null(self, table: str, column: str) -> None:
        """Lets a NOT NULL column be empty, outside of transactions. Table and column are quoted already."""
        self.execute(f"ALTER TABLE {table} ALTER COLUMN {column} DROP NOT NULL")

    @abstractmethod
    def attached(self, schema: str) -> dict[str, list[str]]:
        """Returns what people added to the tables of a schema, by table, in words: `index by_name`, `view report`.

        This covers everything that a renamed table would lack, or that would stay with the old table: indexes, constraints,
        grants, comments. It covers views only if the engine binds them to a table instead of its name.
        """

    def tidy(self, table: str, action: UpkeepAction) -> None:
        """Does an action of upkeep with a table, outside of transactions. `table`: its qualified name.

        Only the actions in the `upkeep_actions` of the engine's settings are asked for.
        """
        raise NotImplementedError(f"{type(self).__name__} has no {action}; declare it in upkeep_actions only if it has")

    def schema_creation(self, schema: str) -> str:
        """Returns the statement that creates a schema if absent."""
        return f"CREATE SCHEMA IF NOT EXISTS {self.qualified(schema)}"

    def rename(self, table: str, name: str) -> str:
        """Returns the statement that renames a table in its schema; both names are quoted already. It must not commit."""
        return f"ALTER TABLE {table} RENAME TO {name}"

    def create_schema(self, schema: str) -> None:
        """Creates a schema if absent. Override it if the statement needs a privilege even for a schema that exists."""
        self.execute(self.schema_creation(schema))

    def position_type(self) -> str:
        """Returns the type of text columns that compare bytewise, whatever the database's collation is."""
        return self.sql_type("string")

    def table_creation(self, name: str, columns: Mapping[str, str], table: Table | None) -> str:
        """Returns the statement that creates a table if absent. No NOT NULL: a later directory may lack a column.

        `name`: its quoted name. `columns`: their logical types. `table`: the listing's description, for engines that lay out
        tables by it; None for a passing table.
        """
        definitions = ", ".join(f"{self.quote(column)} {self.sql_type(type_)}" for column, type_ in columns.items())
        return f"CREATE TABLE IF NOT EXISTS {name} ({definitions})"

    def index_creation(self, name: str, table: str, columns: Sequence[str]) -> str:
        """Returns the statement that creates an index of a control table if absent; empty if the engine reads without any.

        `name`: the index's name. `table`: the table's quoted name. `columns`: their names.
        """
        return ""

    def deletion(self, table: str, staged: str, same: Same, rows: int | None = None) -> str:
        """Returns the statement that deletes the rows of a table whose key a staged row has.

        `staged`: the item of FROM, with its alias. `rows`: the number of staged rows, if it is known.
        """
        return f"DELETE FROM {table} WHERE EXISTS (SELECT 1 FROM {staged} WHERE {equal(same)})"  # noqa: S608

    @contextmanager
    def alone(self, table: str) -> Generator[None]:
        """Keeps other sessions from adding a row that may exist only once. By default its key does that.

        Override it for an engine that does not enforce keys. `table`: its quoted name.
        """
        yield

    def day(self, column: str) -> str:
        """Returns the expression for the day of a time: a date, or its ISO text. `column`: the quoted name."""
        return f"CAST({column} AS {self.sql_type('date')})"

    def json_each(self, column: str) -> JsonEntries:
        """Returns the entries of the JSON object in a text column. `column`: its qualified name, in a table before it."""
        return JsonEntries(f"json_each({column}) AS entry", 'entry."key"', 'entry."value"')

    def grants(self, datasets: Sequence[str], role: str, objects: Sequence[str] = ()) -> list[str]:
        """Returns the statements that give a role the least privileges for these datasets; empty without roles.

        They cover the schema of each dataset and, named or not, CONTROL_SCHEMA: see `schemas_of`. `objects`: the URIs of the
        folders with shredded objects. What is no statement, such as a policy of another system, is a comment (`-- …`).
        """
        return []

    def grant_for(self, need: Need) -> list[str]:
        """Returns the statements that give the role of this connection what it lacks; empty if the error itself says it."""
        return []

    def owners_apart(self, schema: str) -> dict[str, str]:
        """Returns the owner of each table of a schema that this role may write, but not alter; empty if it may alter all."""
        return {}

    def facts(self) -> dict[str, str]:
        """Returns facts about the connection for people, by name: the server's version, the role, how it is encrypted."""
        return {}

    def working_on(self, dataset: str, item: str, attempt: str) -> None:  # noqa: B027
        """Tells what the next statements are for, which an engine may show in its history of queries. Sends nothing."""

    def exists(self) -> bool:
        """True if the database exists. Methods that only read ask this first, because connecting may create it."""
        return True

    @abstractmethod
    def stage(self, table: Table, uris: list[str]) -> Staging:
        """Makes the rows of exactly these Parquet objects readable, any number of times, for statements of this connection."""

    def stage_cut(self, table: Table, uris: list[str]) -> Staging:
        """Stages rows after `stage` raised ValueRefused: as `stage`, with texts cut to what the longest text type holds.

        The texts of key columns are not cut. Override it for an engine whose texts have a limit that data reach.
        """
        return self.stage(table, uris)

    def shortened(self, table: Table, uris: list[str], staging: Staging, most: Mapping[str, int]) -> Staging:
        """Cuts staged texts to what columns hold, by the number of the engine's units, and returns the staging to read now.

        Only an engine that `measures_texts` is asked. `uris`: the objects that were staged.
        """
        cut = list(staging.cut)
        for column, size in most.items():
            name = self.quote(column)
            shorter = f"UPDATE {staging.sql} SET {name} = left({name}, {size}) WHERE {self.size_of(name)} > {size}"  # noqa: S608
            if values := self.write(shorter, staging.parameters):
                cut.append(Cut(column, values, f"{size:,} {self.text_unit}"))
        return replace(staging, cut=tuple(cut))

    def stage_items(self, table: Table, uris: Mapping[int, list[str]]) -> Staging:
        """Makes the objects of several items readable together, as `stage`. `uris`: by the item's place, the column `NTH`.

        The items describe the table alike. By default each item is staged by itself. An engine whose staging costs statements
        overrides this, and stages all objects at once.
        """
        columns = ", ".join(self.quote(column.name) for column in table.columns)
        parts: dict[int, Staging] = {}
        try:
            for nth, some in uris.items():
                parts[nth] = self.stage(table, some)
        except BaseException:
            for part in parts.values():
                self.unstage(part)
            raise
        selects = (
            f"SELECT {nth} AS {self.quote(NTH)}, {columns} FROM {part.sql} AS {self.quote(f'__mp_item_{nth}')}"  # noqa: S608
            for nth, part in parts.items()
        )
        values = tuple(value for part in parts.values() for value in part.parameters)
        return Staging(f"({' UNION ALL '.join(selects)})", values, tuple(parts.values()))

    @abstractmethod
    def unstage(self, staging: Staging) -> None:
        """Removes what `stage` created. Never raises."""

    def unstage_all(self, stagings: Iterable[Staging]) -> None:
        """Removes what `stage` and `stage_items` created, after a load. Never raises."""
        for staging in stagings:
            for part in staging.parts or (staging,):
                self.unstage(part)

    def stored_name(self, name: str) -> str:
        """Returns the name of a table or column in the warehouse: a shorter name if the engine would cut it."""
        return shortened(name, self.longest_name)

    def compared(self, name: str) -> str:
        """Returns the form of a table's name that is equal for two names of one table."""
        return self.stored_name(name)

    def quote(self, name: str) -> str:
        """Returns an identifier as SQL text, as it is stored."""
        return '"' + self.stored_name(name).replace('"', '""') + '"'


def schemas_of(datasets: Sequence[str]) -> list[str]:
    """Returns the schemas that loads of these datasets write to: that of the control tables first, then one a dataset."""
    return list(dict.fromkeys((CONTROL_SCHEMA, *datasets)))


# Guards for statements between BEGIN and COMMIT


class Transaction:
    """An open transaction of an engine, which refuses statements that may commit by themselves."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.committed = False

    def write(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Runs one statement that moves rows and returns the number of rows that it wrote."""
        refuse_in_transaction(sql)
        return self._engine.write(sql, parameters)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Returns the rows of one query."""
        refuse_in_transaction(sql)
        return self._engine.execute(sql, parameters)

    def rename(self, sql: str) -> None:
        """Renames a table; refuses any other statement. Readers see all renames of a snapshot's tables together at COMMIT."""
        refuse_but_rename(sql)
        self._engine.execute(sql)

    def commit(self) -> None:
        """Commits durably. Raises Conflict or Unclear."""
        self._engine.commit()
        self.committed = True


@contextmanager
def opened(engine: Engine) -> Generator[Transaction]:
    """Yields a transaction, and rolls it back at the end unless it was committed."""
    transaction = Transaction(engine)
    engine.begin()
    try:
        yield transaction
    finally:
        if not transaction.committed:
            engine.rollback()


def refuse_in_transaction(sql: str) -> None:
    """Allows a single INSERT, UPDATE, DELETE, SELECT, MERGE or COPY; raises LoadFailed for any other statement.

    TRUNCATE, VACUUM or DDL would commit on some engines, and split a load in two that passes all tests on another engine.
    """
    bare = _QUOTED.sub("", sql)
    into_new_table = re.match(r"\s*SELECT\b.*\bINTO\b", bare, re.IGNORECASE | re.DOTALL)
    if not _IN_TRANSACTION.match(bare) or into_new_table or ";" in bare:
        raise LoadFailed(f"not allowed between BEGIN and COMMIT, because it would commit on some engines: {sql}")


def refuse_but_rename(sql: str) -> None:
    """Allows exactly `ALTER TABLE x RENAME TO y`, all names quoted; raises LoadFailed for any other statement."""
    if not _RENAME.fullmatch(sql):
        raise LoadFailed(f"not allowed between BEGIN and COMMIT, where only a rename of a table is expected: {sql}")
