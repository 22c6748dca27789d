"""Readers of merged tables: which files a partition consists of now, and these as DuckDB views and Spark DataFrames.

Belongs here: reading what was published, by the manifest alone; no catalog and no listing of the storage is asked. The files
of a partition are taken from one state of its row: the live small objects that it counts, or the version that it names. So a
reader gets the old or the new files of a partition, all of them. Nothing is promised across partitions.

Files that a newer version replaced are kept for a while. A view names files: make it anew before they are removed.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import date
from functools import reduce
from typing import TYPE_CHECKING, Any

from manifest_platform import questions, storage
from manifest_platform.faults import Permanent
from manifest_platform.manifest.store import Changed, optimistically
from manifest_platform.merging.catalogs.catalog import DATE_COLUMN, catalog_table
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.served import live_files
from manifest_platform.merging.state import LIVE, NEW, MergedTable, Partition, ServedFile, Version

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from pyarrow.dataset import Dataset, Fragment
    from pyspark.sql import DataFrame, SparkSession

_FOOTERS_AT_ONCE = 16

_LOOKS = 5
"""How often a partition that changes while it is read is looked at again."""

_DUCKDB_TYPES = {"json": "VARCHAR"}
_SPARK_TYPES = {"json": "STRING", "timestamp": "TIMESTAMP_NTZ"}


class NotPublished(LookupError):
    """There is no such table, or readers are shown nothing of the partition yet."""


class FilesUnknown(Permanent):
    """The manifest does not have the files that it says a partition consists of."""


class QueryFailed(Exception):
    """A query of the published partitions is wrong, or cannot read what it asks for."""


class Reader:
    """Reads the published partitions of a dataset. `listed`: small objects that came later are read beside a merged version."""

    def __init__(self, inventory: Inventory, listed: bool = False):
        self._inventory, self._listed = inventory, listed

    def files(self, table: str, day: date) -> Version:
        """The files of a partition as of now: of version 0, its live small objects. Raises NotPublished, FilesUnknown."""

        def look() -> Version:
            partition = self._inventory.partition(table, day)
            if partition is None or partition.current == NEW:
                raise NotPublished(f"{table} of {day} is not published yet: publish, and see which partitions wait for what")
            found = self._version(partition)
            if found is None:
                raise Changed(f"files of version {partition.current} are not there")
            return found

        return optimistically(
            look,
            lambda: FilesUnknown(
                f"{table} of {day}: the manifest lacks files that readers are to see; compare it with a backup"
            ),
            tries=_LOOKS,
        )

    def versions(self, table: str, dates: Collection[date] | None = None) -> list[Version]:
        """The files of a table's partitions by date: of all that are published, or of these. Raises NotPublished for a hole."""
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
        """Makes a view of each table, or of these, over the files of its partitions as of now; returns their names.

        In the table's own schema, or in `schema`, which is made if need be. The column `dt` says which partition a row is of.
        A view names its files, so it is to be made anew when others are published; one over S3 lives as long as the connection.
        With `through_arrow`, one over local files too: DuckDB opens none of them.
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
        """The names of a query's columns, and its rows, the first `most` of them, by a DuckDB that is gone afterwards.

        Each table is a view, as by `views`, and needs no schema before its name. The query reaches nothing but these views
        (`questions`). Raises QueryFailed, FilesUnknown.
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
        """The rows of a table's partitions, all or these, with the table's columns and `dt`. Raises NotPublished.

        A column that a file lacks is null; what it has in a narrower type is widened.
        """
        known = self._table(table)
        columns = ", ".join(f"`{column.name}` {_type(column.type, _SPARK_TYPES, 'STRING')}" for column in known.columns)
        versions = self.versions(table, dates)
        if not versions:
            return spark.createDataFrame([], f"{columns}, `{DATE_COLUMN}` DATE")
        return reduce(lambda left, right: left.unionAll(right), [_frame(spark, columns, version) for version in versions])

    def _table(self, key: str) -> MergedTable:
        table = self._inventory.table(key)
        if table is None:
            raise NotPublished(f"there is no table {key!r}: name one as shredding does")
        catalog_table(table, "", {})  # none that has a column of the partitions' name
        return table

    def _version(self, partition: Partition) -> Version | None:
        """The files of a partition as it was read; None if they are gone, for it changed since, or its table was dropped."""
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
    """A version's files in DuckDB's words. Those in S3 are read through Arrow: DuckDB's own extension for it is a download."""
    uris = [file.uri for file in version.files]
    local = [uri for uri in uris if storage.is_local(uri)]
    remote = [uri for uri in uris if not storage.is_local(uri)]
    if through_arrow:
        remote, local = uris, []
    if local:
        # Paths have date=… in them, which must not become a column.
        files = ", ".join(_literal(_literal_glob(uri)) for uri in local)
        yield f"read_parquet([{files}], union_by_name = true, hive_partitioning = false)"
    if remote:
        for number, found in enumerate(_datasets(remote)):
            name = f"{table.schema}.{table.key} {version.date} {number}"
            connection.register(name, found)
            yield _quoted(name)


def _datasets(uris: list[str]) -> list[Dataset]:
    """These files in Arrow's words: those of equal columns together, for Arrow tells names by case, and DuckDB does not."""
    from pyarrow.dataset import FileSystemDataset, ParquetFileFormat

    kind = ParquetFileFormat()
    fragments = [kind.make_fragment(path, system) for system, path in map(storage.filesystem, uris)]
    alike: dict[pa.Schema, list[Fragment]] = {}
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        for fragment, schema in zip(fragments, pool.map(lambda one: one.physical_schema, fragments), strict=True):
            alike.setdefault(schema.remove_metadata(), []).append(fragment)
    return [FileSystemDataset(these, schema, kind) for schema, these in alike.items()]


def _frame(spark: SparkSession, columns: str, version: Version) -> DataFrame:
    from pyspark.sql import functions

    rows = spark.read.schema(columns).parquet(*(_spark_path(file.uri) for file in version.files))
    return rows.withColumn(DATE_COLUMN, functions.lit(version.date))


def _spark_path(uri: str) -> str:
    """What Spark calls a URI: S3's as it is, for which Spark's settings name the file system; a local one's plain path."""
    return str(storage.local_path(uri)) if storage.is_local(uri) else uri


def _empty(table: MergedTable) -> str:
    """No rows of a table's columns: what no file has is null, and of the type that it should be."""
    catalog_table(table, "", {})
    columns = [f"NULL::{_type(column.type, _DUCKDB_TYPES, 'VARCHAR')} AS {_quoted(column.name)}" for column in table.columns]
    return f"SELECT {', '.join([*columns, f'NULL::DATE AS {DATE_COLUMN}'])} WHERE false"


def _type(logical: str, others: dict[str, str], string: str) -> str:
    return others.get(logical) or (string if logical.startswith("string") else logical.upper())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _literal_glob(uri: str) -> str:
    """The local path as a glob pattern that matches nothing but itself; DuckDB has no literal paths."""
    return re.sub(r"[*?[]", r"[\g<0>]", str(storage.local_path(uri)))
