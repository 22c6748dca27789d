"""The Redshift engine: rows come by COPY from S3, a transaction locks the tables that it writes, and no key is enforced."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from manifest_platform.listing import Table
from manifest_platform.warehouse.engines.engine import (
    CONTROL_SCHEMA,
    Engine,
    JsonEntries,
    Need,
    Same,
    Staging,
    TextSize,
    equal,
    schemas_of,
)
from manifest_platform.warehouse.engines.redshift import catalog
from manifest_platform.warehouse.engines.redshift import staging as copying
from manifest_platform.warehouse.engines.redshift.access import copy_policy
from manifest_platform.warehouse.engines.redshift.cutting import shorter
from manifest_platform.warehouse.engines.redshift.errors import breaks, translated
from manifest_platform.warehouse.engines.redshift.layout import Layout, attributes, encoding, layout_of
from manifest_platform.warehouse.engines.redshift.login import Login
from manifest_platform.warehouse.errors import Conflict, LoadFailed, Unavailable, ValueRefused, WarehouseError
from manifest_platform.warehouse.upkeep_settings import UpkeepAction

if TYPE_CHECKING:
    from redshift_connector import Connection, Cursor

_SQL_TYPES = {
    "boolean": "BOOLEAN",
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "double": "DOUBLE PRECISION",
    "timestamp": "TIMESTAMP",
    "date": "DATE",
}
_QUESTION = re.compile(r"\s*(?P<verb>SELECT|WITH|SHOW|EXPLAIN|VALUES|TABLE)\b", re.IGNORECASE)
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_NO_LOCK = re.compile(r"\s*(SET|SHOW|BEGIN|COMMIT|ROLLBACK|FETCH)\b", re.IGNORECASE)
_LONGEST_PAUSE = 1.0
"""Least seconds between two looks at a statement that takes long and waits for no lock."""
_FETCHED = 1000
"""Rows that a cursor gives at once. A cluster of one node allows no more."""


class Redshift(Engine):
    """A Redshift database, of a cluster or of Serverless.

    Outside of `begin` and `commit` each statement commits by itself. Between them the driver may not, so a statement that
    commits cannot go unnoticed. Names keep their case, as in the sessions of people only with
    enable_case_sensitive_identifier; the platform's own names have no capitals.
    """

    locks_tables: ClassVar[bool] = True
    reads_storage: ClassVar[bool] = True
    swaps_names: ClassVar[bool] = False
    views_span_schemas: ClassVar[bool] = True
    longest_name: ClassVar[int | None] = 127
    measures_texts: ClassVar[bool] = True
    refuses_listed_lengths: ClassVar[bool] = True
    text_unit: ClassVar[str] = "bytes"

    def __init__(
        self,
        login: Login,
        *,
        place: str,
        role: str = "default",
        manifests: str | None = None,
        is_super: bool = False,
        layouts: Mapping[str, Layout] | None = None,
        session: Mapping[str, str] | None = None,
        patience: float = Engine.patience,
        read_only: bool = False,
    ) -> None:
        self.login, self.place, self.role, self.manifests = login, place, role, manifests
        self.is_super, self.layouts, self.session = is_super, layouts or {}, session or {}
        self.patience, self.read_only = patience, read_only
        self._connection: Connection | None = None
        self._process = 0
        self._running = self._begun = False
        self._unneeded: list[str] = []  # staging tables to drop with the next statement that drops

    # Statements

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs one statement and returns its rows."""
        cursor = self._run(sql, parameters)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def write(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Runs one INSERT, UPDATE or DELETE and returns the number of rows that it wrote."""
        return self._run(sql, parameters).rowcount

    def _run(self, sql: str, parameters: Sequence[Any] = ()) -> Cursor:
        connection = self.connection()
        cursor = connection.cursor()
        cursor.paramstyle = "qmark"
        with self._errors(sql), self._watched(sql):
            cursor.execute(sql, list(parameters) or None)
        if self._begun and not connection.in_transaction:
            self._end()
            raise LoadFailed(
                f"{self.place}: the statement ended the transaction, and what was written before it is committed: {sql}"
            )
        return cursor

    @contextmanager
    def _errors(self, sql: str) -> Generator[None]:
        """Translates errors. Drops a connection that is broken."""
        try:
            yield
        except (WarehouseError, KeyboardInterrupt):
            raise
        except Exception as error:
            if breaks(error):
                self.close()
            raise translated(error, self.place, sql, self.login.user or "") from error

    @contextmanager
    def _watched(self, sql: str) -> Generator[None]:
        """Stops a statement that waits for a lock for longer than `patience`: Redshift itself would wait without end."""
        done, stopped = threading.Event(), threading.Event()
        if not _NO_LOCK.match(sql):
            threading.Thread(target=self._watch, args=(self._process, done, stopped), daemon=True).start()
        self._running = True
        try:
            yield
        except Exception as error:
            if not stopped.is_set():
                raise
            raise Unavailable(
                f"{self.place}: another transaction held a lock for {self.patience:g} s. Nothing was changed. "
                "Try again when it has ended"
            ) from error
        finally:
            self._running = False
            done.set()

    def _watch(self, process: int, done: threading.Event, stopped: threading.Event) -> None:
        if done.wait(self.patience):
            return
        with suppress(Exception), closing(self.login.connect()) as other:
            cursor = other.cursor()
            while not done.is_set():
                cursor.execute(f"SELECT count(*) FROM svv_transactions WHERE pid = {process} AND NOT granted")  # noqa: S608
                if cursor.fetchall()[0][0] and not done.is_set():
                    stopped.set()
                    cursor.execute(f"SELECT pg_cancel_backend({process})")
                    return
                done.wait(max(self.patience, _LONGEST_PAUSE))

    def query(self, sql: str, schema: str | None = None, most: int | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Runs a person's query in a transaction that only reads, and returns its column names and its rows."""
        text = sql.strip().removesuffix(";")
        bare = _QUOTED.sub("", text)
        verb = _QUESTION.match(bare)
        if not verb or ";" in bare:
            raise LoadFailed(f"not one query: use a single SELECT, WITH, SHOW or EXPLAIN; it cannot change anything: {sql}")
        is_cursor = verb["verb"].upper() in ("SELECT", "WITH")
        try:
            self._run("BEGIN READ ONLY")
            self._run(f"SET LOCAL search_path TO {self.quote(schema or 'public')}")
            if not is_cursor:
                cursor = self._run(text)
                return _labels(cursor), [tuple(row) for row in cursor.fetchall()][:most]
            self._run(f"DECLARE asked CURSOR FOR {text}")
            rows: list[tuple[Any, ...]] = []
            while True:
                wanted = _FETCHED if most is None else min(_FETCHED, most - len(rows))
                cursor = self._run(f"FETCH FORWARD {wanted} FROM asked")
                found = [tuple(row) for row in cursor.fetchall()]
                rows += found
                if len(found) < wanted or len(rows) == most:
                    return _labels(cursor), rows
        finally:
            self.rollback()

    # Transactions: `begin` alone opens them

    def begin(self) -> None:
        """Begins a transaction. Its snapshot is taken at its first statement; error 1023 says that another was first."""
        connection = self.connection()
        self._run("BEGIN")
        connection.autocommit = False
        self._begun = True

    def commit(self) -> None:
        """Commits durably. Raises Conflict if the warehouse certainly rolled back, otherwise Unclear."""
        connection = self._connection
        if connection is None or not self._begun or not connection.in_transaction:
            self.rollback()
            raise Conflict(f"{self.place}: the transaction ended before its COMMIT, and was rolled back")
        self._begun = False
        try:
            super().commit()
        finally:
            self._end()

    def rollback(self) -> None:
        """Rolls back the open transaction, if there is one."""
        connection = self._connection
        self._end()
        if connection is None or not connection.in_transaction:
            return
        try:
            self._run("ROLLBACK")
        except WarehouseError:
            self.close()

    def _end(self) -> None:
        """From here on each statement commits by itself."""
        self._begun = False
        if self._connection is not None:
            self._connection.autocommit = True

    @contextmanager
    def alone(self, table: str) -> Generator[None]:
        """Keeps other sessions from the table until the end. LOCK takes no snapshot, so what they wrote before is seen."""
        self._run("BEGIN")
        try:
            self._run(f"LOCK TABLE {table}")
            yield
            self._run("COMMIT")
        finally:
            self.rollback()

    def interrupt(self) -> None:
        """Makes the running statement fail, if there is one: a second session cancels it, as Redshift wants it."""
        process = self._process
        if not self._running or not process:
            return
        with suppress(Exception), closing(self.login.connect()) as other:
            if self._running:
                other.cursor().execute(f"SELECT pg_cancel_backend({process})")

    def close(self) -> None:
        """Closes the connection; temporary tables go with it."""
        connection, self._connection = self._connection, None
        self._begun = False
        self._unneeded.clear()
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def connection(self) -> Connection:
        """Returns the driver's own connection. Raises Unavailable if the warehouse cannot be reached."""
        if self._connection is None:
            with self._errors("connect"):
                connection = self.login.connect()
            self._connection = connection
            try:
                self._run("SET enable_case_sensitive_identifier TO true")
                for name, value in self.session.items():
                    self._run(f"SET {name} TO {value}")
                [(self._process,)] = self.execute("SELECT pg_backend_pid()")
            except BaseException:
                self.close()
                raise
        return self._connection

    # Names, types and tables

    def qualified(self, schema: str, table: str | None = None) -> str:
        """Returns the quoted name of a schema, or of a table in it."""
        return ".".join(self.quote(part) for part in (schema, table) if part is not None)

    def sql_type(self, logical: str) -> str:
        """Returns Redshift's name of the type."""
        if logical == "json":
            return "SUPER" if self.is_super else copying.varchar("string")
        if logical.startswith("string"):
            return copying.varchar(logical)
        return _SQL_TYPES.get(logical) or logical.upper()

    def columns(self, schema: str) -> dict[str, dict[str, str]]:
        """Returns the columns of a schema's tables, with one query of the catalog."""
        found: dict[str, dict[str, str]] = {}
        for table, column, sql_type in self.execute(catalog.COLUMNS, (self.stored_name(schema),)):
            found.setdefault(table, {})[column] = catalog.logical_type(sql_type)
        return found

    def views(self, schema: str) -> list[str]:
        """Returns the names of the views of a schema."""
        return [name for (name,) in self.execute(catalog.VIEWS, (self.stored_name(schema),))]

    def table_creation(self, name: str, columns: Mapping[str, str], table: Table | None) -> str:
        """Returns the statement that creates a table, with its layout."""
        layout = layout_of(table, self.layouts) if table else Layout()
        definitions = ", ".join(
            f"{self.quote(column)} {self.sql_type(type_)}{encoding(layout, column)}" for column, type_ in columns.items()
        )
        return f"CREATE TABLE IF NOT EXISTS {name} ({definitions}){attributes(layout, self.quote)}"

    def deletion(self, table: str, staged: str, same: Same, rows: int | None = None) -> str:
        """Returns a DELETE with USING, which Redshift runs as a join; it knows few forms of correlated subqueries."""
        return f"DELETE FROM {table} USING {staged} WHERE {equal(same)}"  # noqa: S608

    def tidy(self, table: str, action: UpkeepAction) -> None:
        """Runs ANALYZE, or one half of VACUUM. Neither blocks readers or loads."""
        verbs = {"analyze": "ANALYZE", "vacuum": "VACUUM DELETE ONLY", "sort": "VACUUM SORT ONLY"}
        self._run(f"{verbs[action]} {table}")

    def widen(self, table: str, column: str, sql_type: str) -> None:
        """Gives a column a wider type. Only a VARCHAR can change in place; any other column is replaced by a new column."""
        if sql_type.startswith("VARCHAR"):
            self.execute(f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {sql_type}")
            return
        self._replace_column(table, column, sql_type)

    def _replace_column(self, table: str, column: str, sql_type: str) -> None:
        """Puts a nullable column of a type in the place of a column, with its values: it becomes the table's last."""
        wider = self.quote(f"mp_wider_{uuid.uuid4().hex[:12]}")
        self._release(table, column)
        self._run("BEGIN")
        try:
            self._run(f"ALTER TABLE {table} ADD COLUMN {wider} {sql_type}")
            self._run(f"UPDATE {table} SET {wider} = {column}")  # noqa: S608
            self._run(f"ALTER TABLE {table} DROP COLUMN {column}")
            self._run(f"ALTER TABLE {table} RENAME COLUMN {wider} TO {column}")
            self._run("COMMIT")
        finally:
            self.rollback()

    def texts(self, schema: str) -> dict[str, dict[str, TextSize]]:
        """Returns the text columns that have a length, in bytes, and which of them Redshift does not alter."""
        found: dict[str, dict[str, TextSize]] = {}
        for table, column, sql_type, is_fixed in self.execute(catalog.TEXTS, (self.stored_name(schema),)):
            length = int(sql_type.rpartition("(")[2].rstrip(")"))
            found.setdefault(table, {})[column] = TextSize(length, bool(is_fixed))
        return found

    def size_of(self, text: str) -> str:
        """Returns the expression for the bytes of a text."""
        return f"octet_length({text})"

    def shortened(self, table: Table, uris: list[str], staging: Staging, most: Mapping[str, int]) -> Staging:
        """Copies the objects again, with the texts cut: no function of Redshift cuts by bytes without halving a character."""
        self.unstage(staging)
        return self._cut(table, uris, most)

    def required(self, schema: str) -> dict[str, list[str]]:
        """Returns the columns that are NOT NULL, without those of a primary key, which are never empty."""
        found: dict[str, list[str]] = {}
        for table, column, _ in self.execute(catalog.REQUIRED, (self.stored_name(schema),)):
            found.setdefault(table, []).append(column)
        return found

    def allow_null(self, table: str, column: str) -> None:
        """Replaces the column, because Redshift has no DROP NOT NULL. Writes all its values again."""
        [sql_type] = [
            sql_type
            for [schema] in self.execute(catalog.SCHEMA_OF, (table,))
            for name, of, sql_type in self.execute(catalog.REQUIRED, (schema,))
            if (self.qualified(schema, name), self.quote(of)) == (table, column)
        ]
        self._replace_column(table, column, sql_type)

    def _release(self, table: str, column: str) -> None:
        """Makes a column no longer one by which a table is distributed or sorted: such a column cannot be dropped."""
        found = self.execute(catalog.KEYS, (table, column))
        if any(is_distkey for is_distkey, _ in found):
            self.execute(f"ALTER TABLE {table} ALTER DISTSTYLE EVEN")
        if any(place for _, place in found):
            self.execute(f"ALTER TABLE {table} ALTER SORTKEY NONE")

    def attached(self, schema: str) -> dict[str, list[str]]:
        """Returns views and comments of a schema's tables. A load renames no table, so that grants stay too."""
        found: dict[str, list[str]] = {}
        for table, what in self.execute(catalog.ATTACHED, (self.stored_name(schema),) * 2):
            found.setdefault(table, []).append(what)
        return found

    def json_each(self, column: str) -> JsonEntries:
        """Returns the entries of the JSON object in a text column, which UNPIVOT gives for a SUPER object."""
        return JsonEntries(f'UNPIVOT JSON_PARSE({column}) AS "mp_value" AT "mp_key"', '"mp_key"', '"mp_value"')

    def create_schema(self, schema: str) -> None:
        """Creates a schema if absent. The statement alone needs a privilege of the database even if the schema exists."""
        if not self.execute("SELECT 1 FROM pg_namespace WHERE nspname = ?", (self.stored_name(schema),)):
            super().create_schema(schema)

    # Staging

    def stage(self, table: Table, uris: list[str]) -> Staging:
        """Copies the rows of the objects to a temporary table of this session: one COPY for all files with the same columns."""
        self._drop_unneeded()
        made: list[str] = []
        try:
            with self._named(table, uris):
                found = copying.groups(table, uris)
                for group in found:
                    made.append(self._copied(table, group))
                if len(found) > 1 or not self._is_as_listed(table, found[0]):
                    made.append(self._united(table, found, made))
        except BaseException:
            self._unneeded += made
            raise
        self._unneeded += made[:-1]
        return Staging(made[-1])

    def stage_cut(self, table: Table, uris: list[str]) -> Staging:
        """Copies the rows of the objects, with the texts cut that are longer than VARCHAR holds. Keys are not cut."""
        return self._cut(table, uris, {})

    def _cut(self, table: Table, uris: list[str], most: Mapping[str, int]) -> Staging:
        with shorter(table, uris, self.manifests, most) as (copied, cut):
            try:
                return replace(self.stage(table, list(copied.values())), cut=cut)
            except ValueRefused as error:  # for another value, in an object that is about to be deleted
                said = str(error)
                for uri, copy in copied.items():
                    said = said.replace(copy, uri)
                raise ValueRefused(said) from error

    def _copied(self, table: Table, group: copying.Group) -> str:
        name = self._temporary(table, dict(group.columns))
        role = "default" if self.role == "default" else f"'{self.role}'"
        with copying.manifest(group.files, self.manifests) as uri:
            source = uri.replace("'", "''")
            self.execute(f"COPY {name} FROM '{source}' IAM_ROLE {role} FORMAT AS PARQUET MANIFEST")
        return name

    def _temporary(self, table: Table, columns: Mapping[str, str]) -> str:
        """Creates a temporary table, distributed as the table that its rows go to, and returns its quoted name."""
        name = self.quote(f"mp_staged_{uuid.uuid4().hex}")
        definitions = ", ".join(f"{self.quote(column)} {type_}" for column, type_ in columns.items())
        distkey = layout_of(table, self.layouts).distkey
        by = f" DISTKEY ({self.quote(distkey)})" if distkey and distkey in columns else ""
        self.execute(f"CREATE TEMP TABLE {name} ({definitions}){by}")
        return name

    def _is_as_listed(self, table: Table, group: copying.Group) -> bool:
        """True if statements can read the copied rows as they are."""
        copied = dict(group.columns)
        return all(copied.get(column.name) == self.sql_type(column.type) for column in table.columns)

    def _united(self, table: Table, found: Sequence[copying.Group], copied: Sequence[str]) -> str:
        """Moves the copied rows to one table that has the columns of the listing, and returns its quoted name."""
        name = self._temporary(table, {column.name: self.sql_type(column.type) for column in table.columns})
        for group, source in zip(found, copied, strict=True):
            there = dict(group.columns)
            names = [column for column in table.columns if column.name in there]
            values = ", ".join(self._read(column.name, column.type) for column in names)
            into = ", ".join(self.quote(column.name) for column in names)
            self.write(f"INSERT INTO {name} ({into}) SELECT {values} FROM {source}")  # noqa: S608
        return name

    def _read(self, name: str, type_: str) -> str:
        quoted = self.quote(name)
        if type_ != "json" or not self.is_super:
            return quoted
        return f"CASE WHEN CAN_JSON_PARSE({quoted}) THEN JSON_PARSE({quoted}) ELSE CAST({quoted} AS SUPER) END"

    @contextmanager
    def _named(self, table: Table, uris: Sequence[str]) -> Generator[None]:
        """Names the object, row and column of a value that COPY refuses: its own message names none of them."""
        try:
            yield
        except LoadFailed as error:
            place = copying.wrong_value(table, uris)
            if place is None:
                raise
            raise ValueRefused(
                f"table {table.name}, {place}. Nothing was loaded. Correct it at the source or set its type in shred.types, "
                f"then reshred the item; or skip the item. {error}"
            ) from error

    def unstage(self, staging: Staging) -> None:
        """Notes the temporary table; the next `stage` drops it, or the end of the session."""
        for part in staging.parts or (staging,):
            self._unneeded.append(part.sql)

    def _drop_unneeded(self) -> None:
        """Drops the staging tables of earlier loads, with one statement."""
        names, self._unneeded = self._unneeded, []
        if names and self._connection is not None:
            with suppress(WarehouseError):
                self.execute(f"DROP TABLE IF EXISTS {', '.join(dict.fromkeys(names))}")

    def grants(self, datasets: Sequence[str], role: str, objects: Sequence[str] = ()) -> list[str]:
        """Returns the statements that give a user the least privileges, then the policy of the role of COPY as comments."""
        user, database = self.quote(role), self.quote(self.login.database)
        found = [f"GRANT TEMP ON DATABASE {database} TO {user}"]
        for schema in schemas_of(datasets):
            name = self.qualified(schema)
            found += [f"CREATE SCHEMA IF NOT EXISTS {name}", f"GRANT USAGE, CREATE ON SCHEMA {name} TO {user}"]
        found.append(self._assuming(user))
        return [*found, *copy_policy(self.role, [*objects, *filter(None, [self.manifests])])]

    def _assuming(self, user: str) -> str:
        """Returns the statement that lets a user copy with the role. `user`: its quoted name."""
        assumed = "default" if self.role == "default" else f"'{self.role}'"
        return f"GRANT ASSUMEROLE ON {assumed} TO {user} FOR COPY"

    def grant_for(self, need: Need) -> list[str]:
        """Returns the statements that give the user of the URL what it lacks; the user of a secret is not known here."""
        user, database = self.quote(self.login.user or "user"), self.quote(self.login.database)
        control = self.qualified(CONTROL_SCHEMA)
        match need:
            case Need.CONTROL_TABLES:
                return [
                    f"GRANT USAGE, CREATE ON SCHEMA {control} TO {user}",
                    f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {control} TO {user}",
                ]
            case Need.CREATE_SCHEMA:
                return [f"GRANT CREATE ON DATABASE {database} TO {user}"]
            case Need.STAGE:
                return [f"GRANT TEMP ON DATABASE {database} TO {user}", self._assuming(user)]
            case Need.CONNECT:
                return []  # everybody may connect: a refused login says what is wrong


def _labels(cursor: Cursor) -> list[str]:
    return [str(column[0]) for column in cursor.description or ()]
