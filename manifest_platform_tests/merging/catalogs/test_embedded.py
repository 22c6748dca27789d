"""Readers of the embedded catalog, over real Parquet: lists of files, DuckDB views, Spark DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from manifest_platform import storage
from manifest_platform.column_types import arrow_type
from manifest_platform.listing import Column
from manifest_platform.manifest import Store
from manifest_platform.manifest.store import Delete
from manifest_platform.merging.catalogs.catalog import Catalog, CatalogRejected, CatalogTable
from manifest_platform.merging.catalogs.embedded import EmbeddedCatalog
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.readers import FilesUnknown, NotPublished, Reader
from manifest_platform.merging.registration import CommittedObjects
from manifest_platform.merging.state import Range, SmallObject, small_key
from manifest_platform.testing.catalog import CatalogContract
from manifest_platform_tests.merging import given
from manifest_platform_tests.merging.catalogs.given import pass_the_day, run
from manifest_platform_tests.merging.given import DAY, TABLE

NEXT = DAY + timedelta(days=1)
NARROW = (Column("id", "integer"), Column("name", "string(10)"))
WIDE = (Column("id", "bigint"), Column("name", "string(10)"), Column("seen", "timestamp"), Column("said", "json"))
AT = datetime(2026, 3, 2, 9, 30)


class TestContract(CatalogContract):
    @pytest.fixture
    def catalog(self, inventory: Inventory) -> Catalog:
        return EmbeddedCatalog(inventory)

    def files(self, catalog: Catalog, table: CatalogTable, day: date) -> list[str]:
        assert isinstance(catalog, EmbeddedCatalog)
        return [file.uri for file in Reader(catalog._inventory).files(table.table.key, day).files]


class Shop:
    """An inventory with real files: small ones that land, and merged ones."""

    def __init__(self, inventory: Inventory, place: str) -> None:
        self.inventory, self.place = inventory, place
        self.catalog = EmbeddedCatalog(inventory)

    def land(self, id_: int, rows: Sequence[dict[str, Any]], columns: tuple[Column, ...] = NARROW, day: date = DAY) -> None:
        """A commit of one small object; a table's columns become as wide as they need be."""
        uri = f"{self.place}/small/date={day}/{id_}.parquet"
        schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])
        size = write(uri, pa.Table.from_pylist(list(rows), schema))
        commit = CommittedObjects(
            self.inventory.cursor() + 1,
            f"{self.place}/{id_}",
            {(TABLE, day): (SmallObject(id_, uri, len(rows), size),)},
            {TABLE: columns},
        )
        self.inventory.register(commit, given.Rules(by_volume=False))

    def merge(self, day: date = DAY) -> None:
        """All that is not merged becomes one more range."""
        self.inventory.hasten(TABLE, day, self.inventory.clock())
        with given.slot(self.inventory) as held:
            for claimed in given.claim(self.inventory, held, limit=10):
                job, partition = claimed.job, claimed.partition
                small = self.inventory.small_objects(job.table, job.date, partition.upper)
                merged = pa.concat_tables([read(one.uri) for one in small], promote_options="permissive")
                uri = f"{self.place}/merged/dt={job.date}/{job.id}/part.parquet"
                size, now = write(uri, merged), self.inventory.clock()
                upper = small[-1].id
                made = Range(job.table, job.date, partition.upper, upper, uri, len(merged), size, len(small), job.id, now, now)
                self.inventory.commit(job, [made], bytes_in=sum(one.bytes for one in small))

    def publish(self) -> None:
        run(self.inventory, self.catalog)

    def publish_merged(self, day: date = DAY) -> None:
        pass_the_day(self.inventory, day)
        self.merge(day)
        self.publish()


def write(uri: str, table: pa.Table) -> int:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    data = sink.getvalue().to_pybytes()
    storage.write_bytes(uri, data)
    return len(data)


def read(uri: str) -> pa.Table:
    return pq.read_table(pa.BufferReader(storage.read_bytes(uri)))


@pytest.fixture
def shop(store: Store, tmp_path: Path) -> Shop:
    return Shop(given.inventory(store), storage.as_uri(tmp_path / "a 'quoted' place"))


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


def test_a_live_partition_is_its_live_objects_as_of_now(shop: Shop) -> None:
    shop.land(11, [{"id": 1}])
    shop.publish()
    shop.land(12, [{"id": 2}])
    found = Reader(shop.inventory).files(TABLE, DAY)
    assert (found.version, found.generation) == (0, 0)
    assert [(file.lower, file.upper, file.rows) for file in found.files] == [(None, 11, 1), (None, 12, 1)]


def test_a_merged_partition_is_its_published_version(shop: Shop) -> None:
    shop.land(11, [{"id": 1}])
    shop.publish_merged()
    shop.land(12, [{"id": 2}])
    shop.merge()
    found = Reader(shop.inventory).files(TABLE, DAY)
    assert [(file.lower, file.upper) for file in found.files] == [(0, 11)]
    shop.publish()
    found = Reader(shop.inventory).files(TABLE, DAY)
    assert [(file.lower, file.upper) for file in found.files] == [(0, 11), (11, 12)]
    assert (found.version, found.generation) == (12, 2)


def test_later_objects_are_listed_beside_the_version_where_that_is_asked_for(shop: Shop) -> None:
    shop.land(11, [{"id": 1}])
    shop.publish_merged()
    shop.land(12, [{"id": 2}])
    reader = Reader(shop.inventory, listed=True)
    assert [(file.lower, file.upper) for file in reader.files(TABLE, DAY).files] == [(0, 11), (None, 12)]
    shop.merge()
    assert [(file.lower, file.upper) for file in reader.files(TABLE, DAY).files] == [(0, 11), (None, 12)]
    shop.publish()
    assert [(file.lower, file.upper) for file in reader.files(TABLE, DAY).files] == [(0, 11), (11, 12)]


def test_what_is_published_with_later_objects_is_continued_from_there(shop: Shop) -> None:
    shop.land(11, [{"id": 1}])
    shop.publish_merged()
    shop.land(12, [{"id": 2}])
    run(shop.inventory, shop.catalog, listed=True)
    shop.land(13, [{"id": 3}])
    assert [file.upper for file in Reader(shop.inventory).files(TABLE, DAY).files] == [11, 12]
    assert [file.upper for file in Reader(shop.inventory, listed=True).files(TABLE, DAY).files] == [11, 12, 13]


def test_what_is_not_published_is_said(shop: Shop) -> None:
    reader = Reader(shop.inventory)
    shop.land(11, [{"id": 1}])
    shop.publish()
    shop.land(12, [{"id": 2}], day=NEXT)
    assert [found.date for found in reader.versions(TABLE)] == [DAY]
    assert [found.date for found in reader.versions(TABLE, [DAY])] == [DAY]
    with pytest.raises(NotPublished, match=f"{TABLE} of {NEXT}"):
        reader.versions(TABLE, [NEXT, DAY])
    with pytest.raises(NotPublished, match="no table 'lgo'"):
        reader.read(None, "lgo")  # ty: ignore[invalid-argument-type]


def test_a_lost_row_is_never_an_empty_partition(shop: Shop) -> None:
    store, reader = shop.inventory.store, Reader(shop.inventory)
    shop.land(11, [{"id": 1}])
    shop.land(12, [{"id": 2}])
    shop.publish()
    store.transact(given.DATASET, [Delete(small_key(TABLE, DAY, 11), 1)], "gone")
    with pytest.raises(FilesUnknown, match="lacks the list of files that readers should see") as lost:
        reader.files(TABLE, DAY)
    assert str(lost.value.__cause__) == "files of version 0 do not exist"


def test_a_lost_version_is_never_an_empty_partition(shop: Shop) -> None:
    store, reader = shop.inventory.store, Reader(shop.inventory)
    shop.land(11, [{"id": 1}])
    shop.publish_merged()
    [row] = store.query(given.DATASET, "MVERSION#")
    store.transact(given.DATASET, [Delete(row.sort, row.version)], "gone")
    with pytest.raises(FilesUnknown, match="lacks the list of files that readers should see") as lost:
        reader.versions(TABLE)
    assert str(lost.value.__cause__) == "files of version 11 do not exist"


def meanwhile(inventory: Inventory, monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Runs an action once, after a reader has read a partition's row and before it reads the small objects."""
    real, actions = Inventory.small_objects, [action]

    def small_objects(of: Inventory, *arguments: Any, **named: Any) -> list[SmallObject]:
        if of is inventory and actions:
            actions.pop()()
        return real(of, *arguments, **named)

    monkeypatch.setattr(Inventory, "small_objects", small_objects)


def test_live_files_are_those_of_one_state(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.land(11, [{"id": 1}])
    shop.publish()
    meanwhile(shop.inventory, monkeypatch, lambda: shop.land(12, [{"id": 2}]))
    reader = Reader(shop.inventory)
    assert [file.upper for file in reader.files(TABLE, DAY).files] == [11]
    assert [file.upper for file in reader.files(TABLE, DAY).files] == [11, 12]


def test_listed_files_are_those_of_one_state(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.land(11, [{"id": 1}])
    shop.publish_merged()
    shop.land(12, [{"id": 2}])
    meanwhile(shop.inventory, monkeypatch, lambda: shop.land(13, [{"id": 3}]))
    reader = Reader(shop.inventory, listed=True)
    assert [file.upper for file in reader.files(TABLE, DAY).files] == [11, 12]
    assert [file.upper for file in reader.files(TABLE, DAY).files] == [11, 12, 13]


def test_a_table_that_is_dropped_meanwhile_is_not_published(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.land(11, [{"id": 1}])
    shop.publish()
    meanwhile(shop.inventory, monkeypatch, lambda: shop.inventory.drop(TABLE))
    with pytest.raises(NotPublished):
        Reader(shop.inventory).files(TABLE, DAY)


def test_a_path_is_no_pattern(store: Store, tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    alike = storage.as_uri(tmp_path / "axb" / "small" / f"date={DAY}" / "11.parquet")
    write(alike, pa.table({"id": pa.array([2], pa.int32())}))
    shop = Shop(given.inventory(store), storage.as_uri(tmp_path / "a*b"))
    shop.land(11, [{"id": 1}])
    shop.publish()
    Reader(shop.inventory).views(connection)
    assert connection.execute(f"SELECT id FROM app.{TABLE}").fetchall() == [(1,)]


def test_views_show_all_partitions_with_their_date(shop: Shop, connection: duckdb.DuckDBPyConnection) -> None:
    shop.land(11, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    shop.publish_merged()
    shop.land(12, [{"id": 2**40, "name": "c", "seen": AT, "said": "{}"}], WIDE)
    shop.merge()
    shop.publish()
    shop.land(13, [{"id": 4, "name": "d"}], WIDE, day=NEXT)
    shop.land(14, [{"id": 5, "name": "e"}], NARROW, day=NEXT)
    shop.land(15, [{"id": 6, "name": "f"}], WIDE, day=NEXT + timedelta(days=1))
    shop.inventory.sync_table(given.settings("visits", physical_name=TABLE))
    assert Reader(shop.inventory).views(connection) == ['"app"."visits"']
    assert connection.execute("SELECT count(*) FROM app.visits").fetchall() == [(3,)]
    shop.publish()
    Reader(shop.inventory).views(connection)
    rows = connection.execute("SELECT id, name, seen, said, dt FROM app.visits ORDER BY dt, id").fetchall()
    assert rows == [
        (1, "a", None, None, DAY),
        (2, "b", None, None, DAY),
        (2**40, "c", AT, "{}", DAY),
        (4, "d", None, None, NEXT),
        (5, "e", None, None, NEXT),
        (6, "f", None, None, NEXT + timedelta(days=1)),
    ]
    types = {name: type_ for name, type_, *_ in connection.execute("DESCRIBE app.visits").fetchall()}
    assert types == {"id": "BIGINT", "name": "VARCHAR", "seen": "TIMESTAMP", "said": "VARCHAR", "dt": "DATE"}


def test_a_view_of_a_chosen_schema_and_table(shop: Shop, connection: duckdb.DuckDBPyConnection) -> None:
    shop.inventory.sync_table(given.settings("other"))
    shop.land(11, [{"id": 1}])
    shop.publish()
    assert Reader(shop.inventory).views(connection, schema="merged", tables=[TABLE]) == [f'"merged"."{TABLE}"']
    assert connection.execute(f"SELECT id, dt FROM merged.{TABLE}").fetchall() == [(1, DAY)]


def test_a_view_of_a_table_without_partitions_has_its_columns(shop: Shop, connection: duckdb.DuckDBPyConnection) -> None:
    shop.land(11, [{"id": 1}], WIDE)
    Reader(shop.inventory).views(connection)
    assert connection.execute(f"SELECT id, seen, said, dt FROM app.{TABLE}").fetchall() == []


def test_a_column_of_the_partitions_name_is_refused(shop: Shop, connection: duckdb.DuckDBPyConnection) -> None:
    shop.land(11, [{"dt": DAY}], (Column("dt", "date"),))
    with pytest.raises(CatalogRejected, match="'dt'"):
        Reader(shop.inventory).views(connection)


def test_a_partition_of_no_interest_is_not_read(shop: Shop, connection: duckdb.DuckDBPyConnection) -> None:
    shop.land(11, [{"id": 1}])
    shop.land(12, [{"id": 2}], day=NEXT)
    shop.publish()
    Reader(shop.inventory).views(connection)
    [(_, planned)] = connection.execute(f"EXPLAIN SELECT * FROM app.{TABLE} WHERE dt = DATE '{NEXT}'").fetchall()
    assert planned.upper().replace("_", " ").count("READ PARQUET") == 2  # one scan, named twice


def test_views_of_objects_in_s3(store: Store, s3_bucket: str, connection: duckdb.DuckDBPyConnection) -> None:
    shop = Shop(given.inventory(store), f"{s3_bucket}/lake")
    shop.land(11, [{"id": 1, "name": "a"}])
    shop.publish_merged()
    shop.land(12, [{"id": 2, "name": "b"}], day=NEXT)
    shop.land(13, [{"id": 2**40, "name": "c", "seen": AT}], WIDE, day=NEXT)
    shop.publish()
    Reader(shop.inventory).views(connection)
    rows = connection.execute(f"SELECT id, name, seen, dt FROM app.{TABLE} ORDER BY id").fetchall()
    assert rows == [(1, "a", None, DAY), (2, "b", None, NEXT), (2**40, "c", AT, NEXT)]


def test_spark_reads_partitions_with_their_date(store: Store, tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(given.inventory(store), storage.as_uri(tmp_path / "lake"))
    shop.land(11, [{"id": 1, "name": "a"}])
    shop.publish_merged()
    shop.land(12, [{"id": 2**40, "name": "b", "seen": AT, "said": "{}"}], WIDE, day=NEXT)
    shop.land(13, [{"id": 3, "name": "c"}], NARROW, day=NEXT + timedelta(days=1))
    shop.land(14, [{"id": 4, "name": "d"}], WIDE, day=NEXT + timedelta(days=1))
    shop.publish()
    reader = Reader(shop.inventory)
    frame = reader.read(spark, TABLE)
    assert dict(frame.dtypes) == {
        "id": "bigint",
        "name": "string",
        "seen": "timestamp_ntz",
        "said": "string",
        "dt": "date",
    }
    assert [tuple(row) for row in frame.orderBy("dt", "id").collect()] == [
        (1, "a", None, None, DAY),
        (2**40, "b", AT, "{}", NEXT),
        (3, "c", None, None, NEXT + timedelta(days=1)),
        (4, "d", None, None, NEXT + timedelta(days=1)),
    ]
    assert [row["name"] for row in reader.read(spark, TABLE, [NEXT]).collect()] == ["b"]
    assert reader.read(spark, TABLE, []).dtypes == frame.dtypes
