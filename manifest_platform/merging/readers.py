"""Reads merged tables: the current files of a partition, as DuckDB views and as Spark DataFrames.

Belongs here: reading published data by the manifest alone, without a catalog or a listing of the storage. The files of a
partition come from one state of its row: the live small objects that it counts, or the version that it names. A reader
therefore gets either all old files or all new files of a partition. Different partitions may differ in age.

Replaced files are kept for a while. A view names files: create it again before they are removed.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import date, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

from manifest_platform import questions, storage
from manifest_platform.faults import Permanent
from manifest_platform.manifest.store import Changed, optimistically
from manifest_platform.merging.catalogs.catalog import DATE_COLUMN, catalog_table
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.served import live_files
from manifest_platform.merging.state import LIVE, NEW, MergedTable, Partition, ServedFile, Version
from manifest_platform.nested_types import rewritten

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from pyarrow.dataset import Dataset, Fragment
    from pyspark.sql import DataFrame, SparkSession

_FOOTERS_AT_ONCE = 16

DAY = timedelta(days=1)

_LOOKS = 5
"""Number of attempts to read a partition that changes concurrently."""

_DUCKDB_TYPES = {"json": "VARCHAR"}
_SPARK_TYPES = {"json": "STRING", "timestamp": "TIMESTAMP_NTZ"}


class NotPublished(LookupError):
    """The table does not exist, or readers do not see the partition yet."""


class FilesUnknown(Permanent):
    """The manifest lacks the list of a partition's files."""


class QueryFailed(Exception):
    """A query of the published partitions is invalid, or cannot read its files."""


class Reader:
    """Reads the published partitions of a dataset. `listed`: True to add small objects that arrived after a merged version."""

    def __init__(self, inventory: Inventory, listed: bool = False):
        self._inventory, self._listed = inventory, listed

    def files(self, table: str, day: date) -> Version:
        """The current files of a partition; version 0 is its live small objects. Raises NotPublished or FilesUnknown."""

        def look() -> Version:
            partition = self._inventory.partition(table, day)
            if partition is None or partition.current == NEW:
                raise NotPublished(
                    f"{table} of {day} is not published yet: run the publication; its report says which partitions wait and why"
                )
            found = self._version(partition)
            if found is None:
                raise Changed(f"files of version {partition.current} do not exist")
            return found

        return optimistically(
            look,
            lambda: FilesUnknown(
                f"{table} of {day}: the manifest lacks the list of files that readers should see; compare it with a backup"
            ),
            tries=_LOOKS,
        )

    def versions(self, table: str, dates: Collection[date] | None = None) -> list[Version]:
        """The files of a table's published partitions, of all or of `dates`. Raises NotPublished if one of `dates` is not."""
        if dates is not None:
            return [self.files(table, day) for day in sorted(dates)]
        published = (found for found in self._inventory.partitions(table) if found.current != NEW)
        return [self._version(found) or self.files(table, found.date) for found in published]

    def views(
        self,
        connection: duckdb.DuckDBPyConnection,
        schema: str | None = None,
        tables: Collection[str] | None = None,
        through_arrow: bool = False,
    ) -> list[str]:
        """Creates a DuckDB view of each table, or of `tables`, over the current files of its partitions; returns their names.

        A view is in the table's own schema, or in `schema`, which is created if it does not exist. The column `dt` is the
        partition. A view names its files, so it must be created again after a publication. A view over files in S3 exists as
        long as the connection. With `through_arrow`, so does a view over local files, because DuckDB opens none of them itself.
        """
        made = []
        for table in self._inventory.tables():
            if tables is not None and table.key not in tables:
                continue
            place = f"{_quoted(schema or table.schema)}.{_quoted(table.name)}"
            branches = [_empty(table), *self._branches(connection, table, through_arrow)]
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(schema or table.schema)}")
            connection.execute(f"CREATE OR REPLACE VIEW {place} AS " + "\nUNION ALL BY NAME ".join(branches))
            made.append(place)
        return made

    def query(self, sql: str, most: int | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Runs a query in a temporary DuckDB; returns the column names and the rows, at most `most`.

        Each table is a view, as made by `views`, and needs no schema before its name. The query can access nothing but these
        views (see `questions`). Raises QueryFailed or FilesUnknown.
        """
        import duckdb

        schemas = sorted({table.schema for table in self._inventory.tables()})
        with closing(questions.connect()) as connection:
            try:
                self.views(connection, through_arrow=True)
                if schemas:
                    connection.execute(f"SET search_path = {_literal(','.join(map(_quoted, schemas)))}")
                return questions.ask(connection, sql, most)
            except (duckdb.Error, OSError) as error:
                raise QueryFailed(str(error)) from error

    def read(self, spark: SparkSession, table: str, dates: Collection[date] | None = None) -> DataFrame:
        """The rows of a table's partitions, of all or of `dates`, with the table's columns and `dt`. Raises NotPublished.

        A column that a file lacks is null; a narrower type in a file is widened.
        """
        known = self._table(table)
        columns = ", ".join(f"`{column.name}` {_spark_type(column.type)}" for column in known.columns)
        versions = self.versions(table, dates)
        if not versions:
            return spark.createDataFrame([], f"{columns}, `{DATE_COLUMN}` DATE")
        time = self._table(table).time_column
        frames = [frame for version in versions for frame in _frames(spark, columns, version, time)]
        return reduce(lambda left, right: left.unionAll(right), frames)

    def _table(self, key: str) -> MergedTable:
        table = self._inventory.table(key)
        if table is None:
            raise NotPublished(f"there is no table {key!r}: use the name that shredding gives it")
        catalog_table(table, "", {})  # refuses a table with a column `dt`
        return table

    def _version(self, partition: Partition) -> Version | None:
        """The files of a partition as it was read; None if they are gone because it changed since, or its table was dropped."""
        if partition.current == LIVE:
            files = live_files(self._inventory, partition, partition.newest_live)
            if len(files) != partition.live.objects:
                return None
            return Version(partition.table, partition.date, LIVE, 0, partition.create_time, files)
        stored = self._inventory.shown_version(partition)
        if stored is None or not self._listed:
            return stored
        later = self._inventory.small_objects(partition.table, partition.date, after=stored.version)
        beside = (ServedFile.of_small(one) for one in later if one.id <= partition.newest)
        return dataclasses.replace(stored, files=(*stored.files, *beside))

    def _branches(self, connection: duckdb.DuckDBPyConnection, table: MergedTable, through_arrow: bool) -> Iterator[str]:
        for version in self.versions(table.key):
            for source in _sources(connection, table, version, through_arrow):
                yield f"SELECT *, DATE '{version.date}' AS {DATE_COLUMN} FROM {source}"  # noqa: S608


def _sources(connection: duckdb.DuckDBPyConnection, table: MergedTable, version: Version, through_arrow: bool) -> Iterator[str]:
    """Yields a version's files as DuckDB table expressions. Files in S3 use Arrow: DuckDB's S3 extension must be downloaded."""
    near = [] if through_arrow else [file for file in version.files if storage.is_local(file.uri)]
    remote = [file for file in version.files if through_arrow or not storage.is_local(file.uri)]
    for local, condition in _by_need(near, version.date, table.time_column):
        # Paths contain date=…, which must not become a column.
        files = ", ".join(_literal(_literal_glob(file.uri)) for file in local)
        yield f"read_parquet([{files}], union_by_name = true, hive_partitioning = false){condition}"
    if remote:
        for number, found in enumerate(_datasets(remote)):
            name = f"{table.schema}.{table.key} {version.date} {number}"
            connection.register(name, found)
            yield _quoted(name)


def _by_need(files: Sequence[ServedFile], day: date, time: str | None) -> Iterator[tuple[list[ServedFile], str]]:
    """Yields files that are read whole without a condition, and files of several dates with the condition on their rows.

    The date of a row is the date of its time in UTC, and each date has row groups of its own, so that a query reads only these.
    """
    if whole := [file for file in files if not file.groups]:
        yield whole, ""
    if shared := [file for file in files if file.groups]:
        yield shared, f" WHERE {_quoted(_time(time))} >= DATE '{day}' AND {_quoted(_time(time))} < DATE '{day + DAY}'"


def _time(column: str | None) -> str:
    if column is None:
        raise ValueError("only rows with times share their files with other dates")
    return column


def _datasets(files: Sequence[ServedFile]) -> list[Dataset]:
    """Arrow datasets of these files, grouped by equal schemas: Arrow's column names are case-sensitive, DuckDB's are not."""
    from pyarrow.dataset import FileSystemDataset, ParquetFileFormat

    kind = ParquetFileFormat()
    fragments = [
        kind.make_fragment(path, system, row_groups=_numbers(file))
        for file in files
        for system, path in (storage.filesystem(file.uri),)
    ]
    alike: dict[pa.Schema, list[Fragment]] = {}
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        for fragment, schema in zip(fragments, pool.map(lambda one: one.physical_schema, fragments), strict=True):
            alike.setdefault(schema.remove_metadata(), []).append(fragment)
    return [FileSystemDataset(these, schema, kind) for schema, these in alike.items()]


def _numbers(file: ServedFile) -> list[int] | None:
    """The numbers of a file's row groups to read; None for all."""
    return list(range(file.groups.first, file.groups.first + file.groups.count)) if file.groups else None


def _frames(spark: SparkSession, columns: str, version: Version, time: str | None) -> Iterator[DataFrame]:
    from pyspark.sql import functions

    for files, condition in _by_need(version.files, version.date, time):
        rows = spark.read.schema(columns).parquet(*(_spark_path(file.uri) for file in files))
        if condition:
            column, (begin, end) = rows[_time(time)], (functions.lit(version.date), functions.lit(version.date + DAY))
            rows = rows.where(
                (column >= begin.cast(_SPARK_TYPES["timestamp"])) & (column < end.cast(_SPARK_TYPES["timestamp"]))
            )
        yield rows.withColumn(DATE_COLUMN, functions.lit(version.date))


def _spark_path(uri: str) -> str:
    """The URI for Spark: unchanged in S3, where Spark's settings choose the file system; a plain path for a local file."""
    return str(storage.local_path(uri)) if storage.is_local(uri) else uri


def _empty(table: MergedTable) -> str:
    """A SELECT without rows that defines a table's columns and types, for columns that no file has."""
    catalog_table(table, "", {})
    columns = [f"NULL::{_duckdb_type(column.type)} AS {_quoted(column.name)}" for column in table.columns]
    return f"SELECT {', '.join([*columns, f'NULL::DATE AS {DATE_COLUMN}'])} WHERE false"


def _duckdb_type(logical: str) -> str:
    return rewritten(logical, lambda one: _type(one, _DUCKDB_TYPES, "VARCHAR"), "STRUCT({})", "{}[]", '"{name}" {type}')


def _spark_type(logical: str) -> str:
    return rewritten(logical, lambda one: _type(one, _SPARK_TYPES, "STRING"), "STRUCT<{}>", "ARRAY<{}>", "`{name}`: {type}")


def _type(logical: str, others: dict[str, str], string: str) -> str:
    return others.get(logical) or (string if logical.startswith("string") else logical.upper())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _literal_glob(uri: str) -> str:
    """A glob pattern that matches only the local path; DuckDB has no literal paths."""
    return re.sub(r"[*?[]", r"[\g<0>]", str(storage.local_path(uri)))
