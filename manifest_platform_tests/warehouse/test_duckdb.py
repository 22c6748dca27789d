from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from manifest_platform import storage
from manifest_platform.listing import Column, Listing, ShreddedObject, Table
from manifest_platform.warehouse.apply import Warehouse
from manifest_platform.warehouse.duckdb import DuckDB
from manifest_platform.warehouse.errors import LoadFailed, Unavailable
from manifest_platform_tests.servers.s3 import s3_bucket, s3_environment, s3_server
from manifest_platform_tests.warehouse.shop import EVENTS, events, load, written

__all__ = ["s3_bucket", "s3_environment", "s3_server"]


@pytest.fixture
def dialect(tmp_path: Path) -> Iterator[DuckDB]:
    opened = DuckDB(tmp_path / "warehouse.duckdb")
    yield opened
    opened.close()


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def listing_of(table: Table, rows: pa.Table, path: Path) -> Listing:
    path.parent.mkdir(parents=True, exist_ok=True)
    pa.parquet.write_table(rows, path)
    found = ShreddedObject(table.name, "2024-05-01", storage.as_uri(path), len(rows), path.stat().st_size)
    return Listing("a", "1", len(rows), len(rows), 0, (table,), (found,))


def test_every_type_comes_back_as_it_was_made(dialect: DuckDB, tmp_path: Path) -> None:
    types = ("boolean", "integer", "bigint", "double", "decimal(20,4)", "string", "string(7)", "timestamp", "date", "json")
    table = Table("t", tuple(Column(f"c{n}", type_) for n, type_ in enumerate(types)))
    warehouse = Warehouse(dialect, "shop")
    for item in ("a", "b", "c"):
        warehouse.apply(load(written(tmp_path, item, [(table, [{}])])))
    kept = {name: "string" if type_ in ("json", "string(7)") else type_ for name, type_ in zip(
        dialect.columns("shop")["t"], types, strict=True
    )}  # fmt: skip
    assert dialect.columns("shop")["t"] == kept


@pytest.mark.parametrize("name", ["shop", "manifest_platform"])
def test_a_file_may_be_called_as_a_schema(tmp_path: Path, name: str) -> None:
    warehouse = Warehouse(DuckDB(tmp_path / f"{name}.duckdb"), "shop")
    warehouse.apply(load(events(tmp_path, "a")))
    assert warehouse.row_counts() == {"events": 3}
    warehouse.close()


@pytest.mark.usefixtures("new_york")
def test_zoned_times_are_kept_in_utc(dialect: DuckDB, tmp_path: Path) -> None:
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    rows = pa.table({"at": pa.array([noon], pa.timestamp("us", "UTC"))})
    table = Table("t", (Column("at", "timestamp"),))
    Warehouse(dialect, "shop").apply(load(listing_of(table, rows, tmp_path / "1.parquet")))
    assert dialect.execute(f"SELECT t.at FROM {dialect.qualified('shop', 't')}") == [(noon.replace(tzinfo=None),)]


@pytest.mark.parametrize("name", ["*", "?", "[1]", "[!2]", "{1,2}", "\\"])
def test_a_path_is_no_pattern(dialect: DuckDB, tmp_path: Path, name: str) -> None:
    table, rows = Table("t", (Column("v", "integer"),)), pa.table({"v": pa.array([1], pa.int32())})
    listing_of(table, pa.table({"v": pa.array([2], pa.int32())}), tmp_path / "run=1" / "x.parquet")
    exact = listing_of(table, rows, tmp_path / f"run={name}" / "x.parquet")
    Warehouse(dialect, "shop").apply(load(exact))
    assert dialect.execute(f"SELECT v FROM {dialect.qualified('shop', 't')}") == [(1,)]


def test_a_folder_called_date_does_not_hide_a_column_of_that_name(dialect: DuckDB, tmp_path: Path) -> None:
    table = Table("t", (Column("date", "string"),))
    rows = pa.table({"date": ["its own"]})
    Warehouse(dialect, "shop").apply(load(listing_of(table, rows, tmp_path / "date=2024-05-01" / "x.parquet")))
    assert dialect.execute(f"SELECT date FROM {dialect.qualified('shop', 't')}") == [("its own",)]


def test_a_file_that_is_no_database_is_unavailable_and_named(tmp_path: Path) -> None:
    path = tmp_path / "blocks" / "warehouse.duckdb"  # a path with "lock" in it is not waited for as a lock
    path.parent.mkdir()
    path.write_text("something else, long enough to be looked at as a database file" * 100)
    with pytest.raises(Unavailable, match=r"cannot open the DuckDB file .*warehouse\.duckdb"):
        DuckDB(path).execute("SELECT 1")


def test_objects_in_s3_are_loaded_alike(dialect: DuckDB, tmp_path: Path, s3_bucket: str) -> None:
    local = events(tmp_path, "a", count=5, files=2)
    remote = tuple(
        replace(found, uri=f"{s3_bucket}/shop/run=[1]/date=2024-05-01/part {n}.parquet")
        for n, found in enumerate(local.objects)
    )
    for here, there in zip(local.objects, remote, strict=True):
        storage.write_bytes(there.uri, storage.read_bytes(here.uri))
    warehouse = Warehouse(dialect, "shop")
    assert warehouse.apply(load(replace(local, objects=remote))).entry.rows == {"events": 5}
    assert dialect.execute(f"SELECT sum(amount) FROM {dialect.qualified('shop', EVENTS.name)}") == [(10,)]
    assert dialect.execute("SELECT count(*) FROM duckdb_views() WHERE view_name LIKE 'staged%'") == [(0,)]


def test_an_object_that_s3_lacks_fails_the_load(dialect: DuckDB, tmp_path: Path, s3_bucket: str) -> None:
    local = events(tmp_path, "a")
    gone = replace(local, objects=(replace(local.objects[0], uri=f"{s3_bucket}/gone.parquet"),))
    with pytest.raises(LoadFailed, match=r"table events.*gone\.parquet"):
        Warehouse(dialect, "shop").apply(load(gone))


def test_parent_directories_are_made(tmp_path: Path) -> None:
    dialect = DuckDB(tmp_path / "deep" / "er" / "w.duckdb")
    assert dialect.execute("SELECT 1") == [(1,)]
    dialect.close()
