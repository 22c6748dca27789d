"""The Snowflake engine: one session, with transactions that this code alone opens and closes.

The session commits each statement by itself (AUTOCOMMIT is set, whatever the account's default is), and `begin` opens a
transaction explicitly. A failed statement leaves a transaction open, so `rollback` is always sent.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from manifest_platform.listing import Table
from manifest_platform.masking import SecretOutOfReach, UnusableSecret
from manifest_platform.warehouse.engines.engine import (
    CONTROL_SCHEMA,
    NTH,
    Cut,
    Engine,
    JsonEntries,
    Need,
    Same,
    Staging,
    equal,
    schemas_of,
)
from manifest_platform.warehouse.engines.snowflake import refusals, staging
from manifest_platform.warehouse.engines.snowflake.access import Access
from manifest_platform.warehouse.engines.snowflake.grants import grants
from manifest_platform.warehouse.engines.snowflake.names import folded, identifier, literal, platform_name, read_back, stored
from manifest_platform.warehouse.errors import Conflict, LoadFailed, Unavailable, WarehouseError

if TYPE_CHECKING:
    from snowflake.connector import SnowflakeConnection
    from snowflake.connector.cursor import SnowflakeCursor

_SQL_TYPES = {
    "boolean": "BOOLEAN",
    "integer": "NUMBER(10,0)",  # so that the catalog tells it from bigint: Snowflake's own INTEGER and BIGINT are NUMBER(38,0)
    "bigint": "NUMBER(19,0)",
    "double": "FLOAT",
    "timestamp": "TIMESTAMP_NTZ",
    "date": "DATE",
    "string": "VARCHAR",
}
_SIMPLE = {"BOOLEAN": "boolean", "FLOAT": "double", "TIMESTAMP_NTZ": "timestamp", "DATE": "date"}
_LONGEST_TEXT = 16_777_216
_LONGEST_TAG = 2000
_MUTEX_SECONDS = 60
_APPLICATION = "manifest_platform"
_FILE = '"__mp_file"'
_QUESTION = re.compile(r"\s*\(?\s*(SELECT|WITH|VALUES|SHOW|DESC|DESCRIBE|EXPLAIN)\b", re.IGNORECASE)
_TEXTS = re.compile(r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|//[^\n]*|/\*.*?\*/|\$\$.*?\$\$", re.DOTALL)
_OUTWARD = re.compile(r"@|\bSYSTEM\$", re.IGNORECASE)
_STAGE_IN_QUOTES = re.compile(r"(?:\b(?:FROM|JOIN)\b|=>)\s*'\s*@", re.IGNORECASE)


class Snowflake(Engine):
    """A session of Snowflake, opened at first use."""

    locks_tables: ClassVar[bool] = True
    reads_storage: ClassVar[bool] = True
    swaps_names: ClassVar[bool] = False
    views_span_schemas: ClassVar[bool] = True
    longest_name: ClassVar[int | None] = 255

    def __init__(self, access: Access, patience: float = Engine.patience, read_only: bool = False) -> None:
        self.access = access
        self.patience = patience
        self.read_only = read_only
        self._connection: SnowflakeConnection | None = None
        self._in_transaction = False
        self._tag = _APPLICATION
        self._origin: staging.Origin | None = None
        self._staging_ready = False
        self._staged: dict[str, str] = {}  # the staging table of each Staging

    # Statements

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs one statement and returns its rows."""
        with self._run(sql, parameters) as cursor:
            return [tuple(row) for row in cursor.fetchall()]

    def write(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Runs one INSERT, UPDATE or DELETE and returns the number of rows."""
        with self._run(sql, parameters) as cursor:
            return cursor.rowcount or 0

    @contextmanager
    def _run(self, sql: str, parameters: Sequence[Any] = ()) -> Generator[SnowflakeCursor]:
        """Yields the cursor of a statement. Translates the driver's errors, also those while rows are read."""
        if self._in_transaction and self._connection is None:
            raise Conflict(f"{self.access.place}: the session of the transaction is gone, so nothing of it was committed")
        connection = self.connection()
        with self._errors(sql), connection.cursor() as cursor:
            cursor.execute(folded(sql), tuple(parameters) or None, _statement_params={"QUERY_TAG": self._tag})
            yield cursor

    @contextmanager
    def _errors(self, sql: str = "") -> Generator[None]:
        from snowflake.connector import errors

        try:
            yield
        except errors.Error as error:
            if refusals.lost(error):
                self._drop()
            raise refusals.translated(error, self.access.place, sql, str(self.access.options.get("role", ""))) from error

    def query(self, sql: str, schema: str | None = None, most: int | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Runs a person's query, with names as that person writes them; returns its column names and rows."""
        bare = _TEXTS.sub("x", sql).strip().removesuffix(";")
        if ";" in bare or not _QUESTION.match(bare):
            raise LoadFailed(f"{self.access.place}: allowed: a single query")
        if self.read_only and (_OUTWARD.search(bare) or _STAGE_IN_QUOTES.search(sql)):
            raise LoadFailed(f"{self.access.place}: stages and system functions are not allowed in a query")
        if schema is not None:
            with suppress(WarehouseError):  # nothing was loaded yet
                self.execute(f"USE SCHEMA {self.qualified(schema)}")
        connection = self.connection()
        with self._errors(sql), connection.cursor() as cursor:
            cursor.execute(sql)
            names = [read_back(column.name) or column.name for column in cursor.description]
            rows = cursor.fetchall() if most is None else cursor.fetchmany(most)
            return names, [tuple(row) for row in rows]

    # Transactions

    def begin(self) -> None:
        """Begins a transaction: READ COMMITTED, where the second writer of a table waits for the first."""
        self.execute("BEGIN TRANSACTION")
        self._in_transaction = True

    def commit(self) -> None:
        """Commits durably. Raises Conflict if COMMIT was never sent, otherwise Unclear."""
        if self._in_transaction and self._connection is None:
            self._in_transaction = False
            raise Conflict(f"{self.access.place}: the session of the transaction is gone, so nothing of it was committed")
        try:
            super().commit()
        finally:
            self._in_transaction = False

    def rollback(self) -> None:
        """Rolls back the open transaction, if there is one. A failed statement alone does not do so."""
        self._in_transaction = False
        if self._connection is None:
            return
        try:
            self.execute("ROLLBACK")
        except WarehouseError:
            self.close()

    def interrupt(self) -> None:
        """Cancels the running statement, through another session: its own is busy."""
        connection = self._connection
        if connection is None:
            return
        with suppress(WarehouseError):
            other = self._connect()
            with closing(other), self._errors(), other.cursor() as cursor:
                cursor.execute(f"SELECT SYSTEM$CANCEL_ALL_QUERIES({int(connection.session_id)})")

    def close(self) -> None:
        """Closes the session, which rolls back what it has not committed."""
        connection = self._connection
        self._drop()
        if connection is not None:
            with suppress(Exception):  # the server ends it anyhow
                connection.close()

    def _drop(self) -> None:
        self._connection, self._origin, self._staging_ready = None, None, False

    def working_on(self, dataset: str, item: str, attempt: str) -> None:
        """Sets the query tag of the next statements. It travels with each statement, so it costs no request."""
        tag = {"application": _APPLICATION, "dataset": dataset, "attempt": attempt, "item": item}
        self._tag = json.dumps(tag, ensure_ascii=False)[:_LONGEST_TAG]

    @contextmanager
    def alone(self, table: str) -> Generator[None]:
        """Keeps other sessions from adding a row that may exist only once. Raises Conflict if another session does so now.

        Snowflake enforces no keys, and INSERTs do not wait for each other. A name exists only once, so a table serves as the
        sign that somebody is at work. A session that died leaves it behind, and another drops it a minute later.
        """
        self._prepare_staging()
        digest = hashlib.sha256(table.encode()).hexdigest()[:32]
        mutex = self.qualified(staging.STAGING_SCHEMA, f"alone_{digest}")
        try:
            self.execute(f"CREATE TRANSIENT TABLE {mutex} AS SELECT {int(time.time())} AS made")
        except Conflict:
            with suppress(WarehouseError):  # it may be gone by now
                if self.execute(f"SELECT 1 FROM {mutex} WHERE made < ?", (int(time.time()) - _MUTEX_SECONDS,)):  # noqa: S608
                    self.execute(f"DROP TABLE IF EXISTS {mutex}")
            raise
        try:
            yield
        finally:
            with suppress(WarehouseError):
                self.execute(f"DROP TABLE IF EXISTS {mutex}")

    # Names and types

    def stored_name(self, name: str) -> str:
        """Returns the platform's name of a stored table or column: plain names match without case."""
        return super().stored_name(platform_name(name))

    def qualified(self, schema: str, table: str | None = None) -> str:
        """Returns the quoted name of a schema, or of a table in it, in the session's database."""
        return ".".join(self.quote(part) for part in (schema, table) if part is not None)

    def sql_type(self, logical: str) -> str:
        """Returns Snowflake's name of the type."""
        if logical == "json":
            return "VARIANT" if self.access.has_variants else "VARCHAR"
        if found := re.fullmatch(r"string\((\d+)\)", logical):
            return f"VARCHAR({found[1]})" if int(found[1]) < _LONGEST_TEXT else "VARCHAR"
        if found := re.fullmatch(r"decimal\((\d+),(\d+)\)", logical):
            return f"NUMBER({found[1]},{found[2]})"
        return _SQL_TYPES.get(logical) or logical.upper()

    def position_type(self) -> str:
        """Returns the type of positions: an account may have a default collation, which this type overrides."""
        return "VARCHAR COLLATE 'utf8'"

    def columns(self, schema: str) -> dict[str, dict[str, str]]:
        """Returns the columns of a schema's tables, with one query of the information schema."""
        found: dict[str, dict[str, str]] = {}
        query = (
            "SELECT c.TABLE_NAME, c.COLUMN_NAME, c.DATA_TYPE, c.CHARACTER_MAXIMUM_LENGTH, c.NUMERIC_PRECISION, c.NUMERIC_SCALE "
            "FROM INFORMATION_SCHEMA.COLUMNS AS c JOIN INFORMATION_SCHEMA.TABLES AS t "
            "ON t.TABLE_SCHEMA = c.TABLE_SCHEMA AND t.TABLE_NAME = c.TABLE_NAME "
            "WHERE c.TABLE_SCHEMA = ? AND t.TABLE_TYPE = 'BASE TABLE' ORDER BY c.TABLE_NAME, c.ORDINAL_POSITION"
        )
        for table, column, *type_ in self.execute(query, (stored(self.stored_name(schema)),)):
            mine, its = read_back(table), read_back(column)
            if mine is not None and its is not None:
                found.setdefault(mine, {})[its] = self._logical(*type_)
        return found

    def views(self, schema: str) -> list[str]:
        """Returns the names of the views of a schema."""
        query = "SELECT TABLE_NAME FROM INFORMATION_SCHEMA.VIEWS WHERE TABLE_SCHEMA = ? ORDER BY TABLE_NAME"
        names = [read_back(name) for (name,) in self.execute(query, (stored(self.stored_name(schema)),))]
        return [name for name in names if name is not None]

    def json_value(self, text: str) -> str:
        """Returns a VARIANT, whose parts a query can name; NULL for a text that is no JSON."""
        return f"TRY_PARSE_JSON({text})"

    def _logical(self, type_: str, length: int | None, precision: int | None, scale: int | None) -> str:
        if type_ == "NUMBER":
            whole = {10: "integer", 19: "bigint"}.get(int(precision or 0)) if not scale else None
            return whole or f"decimal({precision},{scale})"
        if type_ == "TEXT":
            return f"string({int(length)})" if length and length < _LONGEST_TEXT else "string"
        if type_ in ("VARIANT", "ARRAY", "OBJECT") and self.access.has_variants:  # the latter of another loader
            return "json"
        return _SIMPLE.get(type_, type_.lower())

    def deletion(self, table: str, staged: str, same: Same, rows: int | None = None) -> str:
        """Returns a DELETE with USING, which Snowflake runs as a join; it knows few forms of correlated subqueries."""
        return f"DELETE FROM {table} USING {staged} WHERE {equal(same)}"  # noqa: S608

    def widen(self, table: str, column: str, sql_type: str) -> None:
        """Gives a column a wider type: in place for longer texts and more digits, else by replacing the table.

        Snowflake changes neither the scale of a number nor its kind in place. One statement that replaces the table is complete
        or did not happen; adding, filling and renaming a column would be several, and a crash between them loses the column.
        """
        try:
            self.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET DATA TYPE {sql_type}")
        except LoadFailed as error:
            if not refusals.is_of_type_change(error):  # another fault must not cost the table its policies
                raise
            restoring = self._restoring(table)
            self.execute(
                f"CREATE OR REPLACE TABLE {table} COPY GRANTS AS "  # noqa: S608
                f"SELECT * REPLACE (CAST({column} AS {sql_type}) AS {column}) FROM {table}"
            )
            for statement in restoring:
                with suppress(LoadFailed):  # the column is wide now, so the item must not fail
                    self.execute(statement)

    def _restoring(self, table: str) -> list[str]:
        """Returns the statements that give a table that was replaced its clustering key and its comment again."""
        schema, name = (part.replace('""', '"') for part in re.findall(r'"((?:[^"]|"")+)"', table))
        query = "SELECT CLUSTERING_KEY, COMMENT FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?"
        found = []
        for key, comment in self.execute(query, (stored(schema), stored(name))):
            if key:
                found.append(f"ALTER TABLE {table} CLUSTER BY {key.removeprefix('LINEAR')}")
            if comment:
                found.append(f"COMMENT ON TABLE {table} IS {literal(comment)}")
        return found

    def attached(self, schema: str) -> dict[str, list[str]]:
        """Returns nothing: rows are replaced in place, so that whatever people added stays."""
        return {}

    def grants(self, datasets: Sequence[str], role: str, objects: Sequence[str] = ()) -> list[str]:
        """Returns the statements that give a role the least privileges for these datasets."""
        return list(grants(self.access, schemas_of(datasets), role))

    def create_schema(self, schema: str) -> None:
        """Creates a schema if absent. It looks first, because CREATE needs its privilege even for a schema that exists."""
        self._create_schema(schema)

    def _create_schema(self, schema: str) -> None:
        there = "SELECT 1 FROM INFORMATION_SCHEMA.SCHEMATA WHERE SCHEMA_NAME = ?"
        if not self.execute(there, (stored(self.stored_name(schema)),)):
            self.execute(self.schema_creation(schema))

    def grant_for(self, need: Need) -> list[str]:
        """Returns the statements that give the role of the URL what it lacks."""
        role = str(self.access.options.get("role", "<role>"))
        words = {
            Need.CONNECT: ("ON WAREHOUSE", "GRANT USAGE, CREATE SCHEMA ON DATABASE"),
            Need.CONTROL_TABLES: (f"{identifier(self.access.database)}.{identifier(CONTROL_SCHEMA)}",),
            Need.CREATE_SCHEMA: ("CREATE SCHEMA ON DATABASE",),
            Need.STAGE: ("ON STAGE", "ON INTEGRATION", f"{identifier(staging.STAGING_SCHEMA)}"),
        }[need]
        return [grant for grant in self.grants([], role) if any(word in grant for word in words)]

    def facts(self) -> dict[str, str]:
        """Returns Snowflake's release, and the role, the virtual warehouse and the region of the session."""
        asked = "SELECT CURRENT_VERSION(), CURRENT_ROLE(), CURRENT_WAREHOUSE(), CURRENT_REGION()"
        names = ("release", "role", "virtual warehouse", "region")
        return {name: str(value) for name, value in zip(names, self.execute(asked)[0], strict=True) if value is not None}

    # Staging

    def stage(self, table: Table, uris: list[str]) -> Staging:
        """Copies exactly these objects into a transient table. Raises OutsideStage before anything is created."""
        name = self._copied(table, self._origin_of(uris), uris)
        columns = ", ".join(self._parsed(table))
        return self._known(name, f"(SELECT {columns} FROM {name})" if self._has_variants(table) else name)  # noqa: S608

    def stage_cut(self, table: Table, uris: list[str]) -> Staging:
        """Copies the rows with texts of any length, then cuts those that are longer than the listing says. Keys are not cut."""
        sizes = {
            column.name: int(sized[1])
            for column in table.columns
            if column.name not in table.key and (sized := re.fullmatch(r"string\((\d+)\)", column.type))
        }
        columns = tuple(replace(one, type="string") if one.name in sizes else one for one in table.columns)
        found = self.stage(replace(table, columns=columns), uris)
        name, cut = self._staged[found.sql], []
        try:
            for column, most in sizes.items():
                quoted = self.quote(column)
                shorter = f"UPDATE {name} SET {quoted} = LEFT({quoted}, {most}) WHERE LENGTH({quoted}) > {most}"  # noqa: S608
                if values := self.write(shorter):
                    cut.append(Cut(column, values, f"{most:,} characters"))
        except BaseException:
            self.unstage(found)
            raise
        return replace(found, cut=tuple(cut))

    def required(self, schema: str) -> dict[str, list[str]]:
        """Returns the columns that are NOT NULL."""
        found: dict[str, list[str]] = {}
        query = "SELECT TABLE_NAME, COLUMN_NAME FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_SCHEMA = ? AND IS_NULLABLE = 'NO'"
        for table, column in self.execute(
            f"{query} ORDER BY TABLE_NAME, ORDINAL_POSITION", (stored(self.stored_name(schema)),)
        ):
            mine, its = read_back(table), read_back(column)
            if mine is not None and its is not None:
                found.setdefault(mine, []).append(its)
        return found

    def stage_items(self, table: Table, uris: Mapping[int, list[str]]) -> Staging:
        """Copies the objects of all items into one table. The name of a row's object tells its item."""
        every = [uri for some in uris.values() for uri in some]
        origin = self._origin_of(every)
        folders = staging.folders(origin, uris)
        if folders is None:
            return super().stage_items(table, uris)
        name = self._copied(table, origin, every, _FILE)
        places = " ".join(f"WHEN CONTAINS({_FILE}, {literal(folder)}) THEN {nth}" for nth, folder in folders.items())
        columns = ", ".join((f"CASE {places} END AS {self.quote(NTH)}", *self._parsed(table)))
        return self._known(name, f"(SELECT {columns} FROM {name})")  # noqa: S608

    def _known(self, name: str, sql: str) -> Staging:
        self._staged[sql] = name
        return Staging(sql)

    def _copied(self, table: Table, origin: staging.Origin, uris: Sequence[str], file: str | None = None) -> str:
        """Returns the quoted name of a new table with the rows of these objects. `file`: a column for their names."""
        name = self.qualified(staging.STAGING_SCHEMA, staging.staging_name())
        copies = list(staging.copies(origin, name, table.name, uris, file))
        self._prepare_staging()
        types = {column.name: "VARCHAR" if column.type == "json" else self.sql_type(column.type) for column in table.columns}
        columns = [f"{self.quote(column)} {type_}" for column, type_ in types.items()] + ([f"{file} VARCHAR"] if file else [])
        self.execute(f"CREATE TRANSIENT TABLE {name} ({', '.join(columns)}) DATA_RETENTION_TIME_IN_DAYS = 0")
        try:
            for statement in copies:
                self._copy(table.name, statement)
        except WarehouseError:
            self._drop_staging(name)
            raise
        return name

    def _copy(self, table: str, statement: str) -> None:
        """Runs a COPY. Raises LoadFailed if it skipped an object, which no staging table of ours can have loaded before."""
        try:
            with self._run(statement) as cursor:
                names = [column.name.lower() for column in cursor.description]
                results = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        except LoadFailed as error:
            raise LoadFailed(f"table {table}: {error}") from error
        skipped = [result for result in results if "file" in result and result.get("status") != "LOADED"]
        if skipped:
            why = skipped[0].get("first_error") or skipped[0].get("status")
            raise LoadFailed(f"table {table}: {skipped[0]['file']} was not loaded ({why}). Reshred the item")

    def _has_variants(self, table: Table) -> bool:
        return self.access.has_variants and any(column.type == "json" for column in table.columns)

    def _parsed(self, table: Table) -> list[str]:
        """Returns the staged columns to read: JSON columns are parsed, and text that is not JSON stays as it is."""
        variants = self.access.has_variants
        return [
            f"COALESCE(TRY_PARSE_JSON({quoted}), TO_VARIANT({quoted})) AS {quoted}"
            if variants and column.type == "json"
            else quoted
            for column in table.columns
            for quoted in [self.quote(column.name)]
        ]

    def unstage(self, staging: Staging) -> None:
        """Drops a staging table."""
        if name := self._staged.pop(staging.sql, None):
            self._drop_staging(name)

    def _drop_staging(self, name: str) -> None:
        if self._connection is None or self._in_transaction:
            return  # a later session drops it, when it is a day old
        with suppress(WarehouseError):
            self.execute(f"DROP TABLE IF EXISTS {name}")

    def _prepare_staging(self) -> None:
        """Creates the staging schema if absent, and drops what killed workers left in it; once a session."""
        if self._staging_ready:
            return
        self._create_schema(staging.STAGING_SCHEMA)
        now = time.time()
        for name in self.columns(staging.STAGING_SCHEMA):
            if staging.is_left_over(name, now):
                self.execute(f"DROP TABLE IF EXISTS {self.qualified(staging.STAGING_SCHEMA, name)}")
        self._staging_ready = True

    def _origin_of(self, uris: Sequence[str]) -> staging.Origin:
        if self.access.storage_integration:
            return staging.of_integration(self.access.storage_integration, uris)
        if self._origin is None:
            self._origin = self._stage_origin(self.access.stage or "")
        return self._origin

    def _stage_origin(self, stage: str) -> staging.Origin:
        """Returns the configured stage with its URL, which Snowflake tells. Raises Unavailable if the role cannot see it."""
        *before, name = map(stored, stage.split("."))
        parts = [stored(self.access.database), *before] if len(before) == 1 else before
        place = ".".join(map(identifier, parts))
        with self._run(f"SHOW STAGES LIKE {literal(name)} IN SCHEMA {place}") as cursor:
            names = [column.name.lower() for column in cursor.description]
            found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        url = next((one["url"] for one in found if one["name"] == name), None)
        if not url:
            raise Unavailable(
                f"{self.access.place}: there is no external stage {stage} that the role can use. Create it over the shredded "
                f"objects, or GRANT USAGE ON STAGE {stage} TO ROLE …. Nothing was loaded"
            )
        return staging.of_stage((*parts, name), url)

    def json_each(self, column: str) -> JsonEntries:
        """Returns the entries of the JSON object in a text column."""
        return JsonEntries(f"LATERAL FLATTEN(INPUT => PARSE_JSON({column})) AS entry", 'entry."key"', 'entry."value"')

    def table_creation(self, name: str, columns: Mapping[str, str], table: Table | None) -> str:
        """Returns the statement that creates a table if absent, with the clustering keys of the settings."""
        creation = super().table_creation(name, columns, table)
        keys = list(map(self.stored_name, self.access.clustering.get(table.name, ()))) if table else []
        if not keys or not set(keys) <= set(map(self.stored_name, columns)):
            return creation  # a later directory may bring the columns: then ALTER TABLE … CLUSTER BY is for people
        return f"{creation} CLUSTER BY ({', '.join(map(self.quote, keys))})"

    # The session

    def connection(self) -> SnowflakeConnection:
        """Returns the driver's own connection. Raises Unavailable if nobody answers, or the login is refused."""
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> SnowflakeConnection:
        import snowflake.connector

        role = {"role": self.access.read_role} if self.read_only and self.access.read_role else {}
        try:
            given = {**self.access.where, **role, **self.access.login.credentials()}
        except (UnusableSecret, SecretOutOfReach) as error:
            raise Unavailable(f"{self.access.place}: {error}") from error
        with self._errors():
            return snowflake.connector.connect(
                **given,
                autocommit=True,
                paramstyle="qmark",
                login_timeout=self.access.login_seconds,
                network_timeout=self.access.network_seconds,
                application=_APPLICATION,
                session_parameters=self._session_parameters(),
            )

    def _session_parameters(self) -> dict[str, Any]:
        """Returns what the platform relies on, whatever the account's or the user's defaults are."""
        return {
            "ABORT_DETACHED_QUERY": True,
            "ERROR_ON_NONDETERMINISTIC_UPDATE": True,
            "LOCK_TIMEOUT": max(1, math.ceil(self.patience)),
            "QUERY_TAG": _APPLICATION,
            "QUOTED_IDENTIFIERS_IGNORE_CASE": False,
            "STATEMENT_TIMEOUT_IN_SECONDS": self.access.statement_seconds,
            "TIMESTAMP_TYPE_MAPPING": "TIMESTAMP_NTZ",
            "TIMEZONE": "UTC",
            "TRANSACTION_ABORT_ON_ERROR": True,
        }
