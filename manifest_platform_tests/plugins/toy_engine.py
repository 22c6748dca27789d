"""A toy engine, packaged as another project would bring it. See docs/contributing/extending.md."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote

import pyarrow.parquet
from pydantic import Field

from manifest_platform import storage
from manifest_platform.column_types import arrow_type
from manifest_platform.listing import Table
from manifest_platform.settings import LocalPath
from manifest_platform.warehouse.engines.engine import Engine, EngineSettings, Staging
from manifest_platform.warehouse.errors import Conflict, ConstraintViolated, LoadFailed, Unavailable

_NUMBERS = ("boolean", "integer", "bigint", "double")  # SQLite keeps all else as text, under a type that says what it is
sqlite3.register_converter("boolean", lambda value: value == b"1")
for _kind, _parsed in (("decimal", Decimal), ("timestamp", datetime.fromisoformat), ("date", date.fromisoformat)):
    sqlite3.register_converter(f"{_kind}_text", lambda value, parsed=_parsed: parsed(value.decode()))
sqlite3.register_adapter(Decimal, lambda value: format(value, "f"))


class ToySettings(EngineSettings):
    kind: Literal["toy"] = "toy"
    reserved_schemas = frozenset({"main", "temp"})
    folder: LocalPath = Field("toy", description="the folder of the SQLite files, relative to the configuration's")

    @property
    def place(self) -> str:
        return self.folder

    def open(self, *, read_only: bool = False, patience: float | None = None) -> Toy:
        return Toy(Path(self.folder), read_only, Toy.patience if patience is None else patience)


class Toy(Engine):
    def __init__(self, folder: Path, read_only: bool, patience: float) -> None:
        self.folder, self.read_only, self.patience = folder, read_only, patience
        self._open: sqlite3.Connection | None = None

    def day(self, column: str) -> str:
        return f"date({column})"

    def _connection(self) -> sqlite3.Connection:
        if self._open is None:
            with self._errors(f"open database {self.folder}"):
                if not self.read_only:
                    self.folder.mkdir(parents=True, exist_ok=True)
                self._open = sqlite3.connect(self._uri("main"), self.patience, 1, None, check_same_thread=False, uri=True)
            for file in self.folder.glob("*.db"):
                self.qualified(unquote(file.stem))
        return self._open

    def _uri(self, schema: str) -> str:
        return f"{self._file(schema).as_uri()}?mode={'ro' if self.read_only else 'rwc'}"

    def _file(self, schema: str) -> Path:
        return self.folder / f"{quote(schema, safe='')}.db"

    @contextmanager
    def _errors(self, sql: str) -> Generator[None]:
        kinds = {"locked": Conflict, "no transaction": Conflict, "constraint": ConstraintViolated, "open database": Unavailable}
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            message = f"{error}, in: {sql}"
            raise next((kind for words, kind in kinds.items() if words in message), LoadFailed)(message) from error

    def _run(self, sql: str, parameters: Sequence[Any], most: int = -1) -> tuple[list[tuple[Any, ...]], sqlite3.Cursor]:
        connection = self._connection()
        with self._errors(sql):
            cursor = connection.execute(sql, parameters)
            return cursor.fetchall() if most < 0 else cursor.fetchmany(most), cursor

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._run(sql, parameters)[0]

    def write(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        return self._run(sql, parameters)[1].rowcount

    def query(self, sql: str, schema: str | None = None, most: int | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        rows, cursor = self._run(sql, (), -1 if most is None else most)
        return [column[0] for column in cursor.description or ()], rows

    def begin(self) -> None:
        self.execute("BEGIN IMMEDIATE")  # SQLite has one writer: a second writer waits until its timeout

    def rollback(self) -> None:
        if self._open:
            self._open.rollback()

    def interrupt(self) -> None:
        if self._open:
            self._open.interrupt()

    def close(self) -> None:
        connection, self._open = self._open, None
        if connection:
            connection.close()

    def qualified(self, schema: str, table: str | None = None) -> str:
        if schema not in {name for _, name, _ in self._connection().execute("PRAGMA database_list")}:
            self._connection().execute(f"ATTACH DATABASE ? AS {self.quote(schema)}", (self._uri(schema),))
        return ".".join(self.quote(part) for part in (schema, table) if part is not None)

    def schema_creation(self, schema: str) -> str:
        return f"SELECT 1 -- {self.qualified(schema)} is a file, which is attached by now"

    def sql_type(self, logical: str) -> str:
        name, bracket, arguments = logical.partition("(")
        return name if name in _NUMBERS else f"{name}_text{bracket}{arguments}"

    def columns(self, schema: str) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        if self._file(schema).exists():
            tables = f"{self.qualified(schema)}.sqlite_schema AS t, pragma_table_info(t.name, ?) AS c"
            query = f"SELECT t.name, c.name, c.type FROM {tables} WHERE t.type = 'table'"
            for table, column, type_ in self.execute(query, (schema,)):
                found.setdefault(table, {})[column] = type_.lower().replace("_text", "")
        return found

    def widen(self, table: str, column: str, sql_type: str) -> None:
        self.begin()
        self.execute(f'ALTER TABLE {table} ADD "__wide" {sql_type}')
        self.execute(f'UPDATE {table} SET "__wide" = {column}')
        self.execute(f"ALTER TABLE {table} DROP {column}")
        self.execute(f'ALTER TABLE {table} RENAME "__wide" TO {column}')
        self.commit()

    def attached(self, schema: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        made = (
            f"SELECT name, type, tbl_name, sql FROM {self.qualified(schema)}.sqlite_schema WHERE type != 'table' AND sql != ''"
        )
        for table in self.columns(schema):
            for name, kind, of, sql in self.execute(made):
                if of == table or (kind == "view" and table in sql):  # SQLite lets a view follow its table to another name
                    found.setdefault(table, []).append(f"{kind} {name}")
        return found

    def stage(self, table: Table, uris: list[str]) -> Staging:
        staged = f"temp.{self.quote(f'staged_{uuid.uuid4().hex}')}"
        columns = ", ".join(f"{self.quote(column.name)} {self.sql_type(column.type)}" for column in table.columns)
        self.execute(f"CREATE TABLE {staged} ({columns})")
        for uri in uris:
            with self._errors(uri):
                rows = pyarrow.parquet.ParquetFile(storage.local_path(uri)).read()
                nothing = [None] * rows.num_rows  # a file may lack columns that another file of the table has
                there = {
                    one.name: rows[one.name].cast(arrow_type(one.type)).to_pylist()
                    for one in table.columns
                    if one.name in rows.column_names
                }
                values = [there.get(column.name, nothing) for column in table.columns]
                marks = ", ".join("?" for _ in table.columns)
                self._connection().executemany(f"INSERT INTO {staged} VALUES ({marks})", zip(*values, strict=True))
        return Staging(staged)

    def unstage(self, staging: Staging) -> None:
        if self._open:
            self._open.execute(f"DROP TABLE IF EXISTS {staging.sql}")
