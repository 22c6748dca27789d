from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

from manifest_platform import storage
from manifest_platform.listing import Column, Listing, ShreddedObject, Table
from manifest_platform.testing.loads import EVENTS, PRODUCT, events, gone, load, names_of, products, window
from manifest_platform.warehouse.apply import Warehouse
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.engines.duckdb.turns import Turns
from manifest_platform.warehouse.errors import Held, LoadFailed, Unavailable, WarehouseError


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DuckDB]:
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


def test_a_signal_in_a_statement_ends_the_command_as_a_signal_does(engine: DuckDB) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            engine.execute("SELECT count(*) FROM range(100000000000)")
    finally:
        signal.signal(signal.SIGINT, before)
    assert engine.execute("SELECT 1") == [(1,)]


def listing_of(table: Table, rows: pa.Table, path: Path) -> Listing:
    path.parent.mkdir(parents=True, exist_ok=True)
    pa.parquet.write_table(rows, path)
    found = ShreddedObject(table.name, "2024-05-01", storage.as_uri(path), len(rows), path.stat().st_size)
    return Listing("a", "1", len(rows), len(rows), 0, (table,), (found,))


@pytest.mark.parametrize("name", ["shop", "manifest_platform"])
def test_a_file_may_be_called_as_a_schema(tmp_path: Path, name: str) -> None:
    warehouse = Warehouse(DuckDB(tmp_path / f"{name}.duckdb"), "shop")
    warehouse.apply(load(events(tmp_path, "a")))
    assert warehouse.row_counts() == {"events": 3}
    warehouse.close()


@pytest.mark.usefixtures("new_york")
def test_zoned_times_are_kept_in_utc(engine: DuckDB, tmp_path: Path) -> None:
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    rows = pa.table({"at": pa.array([noon], pa.timestamp("us", "UTC"))})
    table = Table("t", (Column("at", "timestamp"),))
    Warehouse(engine, "shop").apply(load(listing_of(table, rows, tmp_path / "1.parquet")))
    assert engine.execute(f"SELECT t.at FROM {engine.qualified('shop', 't')}") == [(noon.replace(tzinfo=None),)]


@pytest.mark.parametrize("name", ["*", "?", "[1]", "[!2]", "{1,2}", "\\"])
def test_a_path_is_no_pattern(engine: DuckDB, tmp_path: Path, name: str) -> None:
    table, rows = Table("t", (Column("v", "integer"),)), pa.table({"v": pa.array([1], pa.int32())})
    listing_of(table, pa.table({"v": pa.array([2], pa.int32())}), tmp_path / "run=1" / "x.parquet")
    exact = listing_of(table, rows, tmp_path / f"run={name}" / "x.parquet")
    Warehouse(engine, "shop").apply(load(exact))
    assert engine.execute(f"SELECT v FROM {engine.qualified('shop', 't')}") == [(1,)]


def test_a_file_that_is_no_database_is_unavailable_and_named(tmp_path: Path) -> None:
    path = tmp_path / "blocks" / "warehouse.duckdb"  # a path with "lock" in it is not waited for as a lock
    path.parent.mkdir()
    path.write_text("something else, long enough to be looked at as a database file" * 100)
    with pytest.raises(Unavailable, match=r"cannot open the DuckDB file .*warehouse\.duckdb"):
        DuckDB(path).execute("SELECT 1")


def test_objects_in_s3_are_loaded_alike(engine: DuckDB, tmp_path: Path, s3_bucket: str) -> None:
    local = events(tmp_path, "a", count=5, files=2)
    remote = tuple(
        replace(found, uri=f"{s3_bucket}/shop/run=[1]/date=2024-05-01/part {n}.parquet")
        for n, found in enumerate(local.objects)
    )
    for here, there in zip(local.objects, remote, strict=True):
        storage.write_bytes(there.uri, storage.read_bytes(here.uri))
    warehouse = Warehouse(engine, "shop")
    assert warehouse.apply(load(replace(local, objects=remote))).entry.rows == {"events": 5}
    assert engine.execute(f"SELECT sum(amount) FROM {engine.qualified('shop', EVENTS.name)}") == [(10,)]
    assert engine.execute("SELECT count(*) FROM duckdb_views() WHERE view_name LIKE 'staged%'") == [(0,)]


def test_windows_in_s3_are_merged_alike(engine: DuckDB, tmp_path: Path, s3_bucket: str) -> None:
    warehouse = Warehouse(engine, "shop")
    for stop, tables in (("0015", (products(a="1", b="1"),)), ("0030", (products(b="2", c="2"), gone(PRODUCT, "a")))):
        local = window(tmp_path, stop, *tables)
        remote = [replace(found, uri=f"{s3_bucket}/{stop}/{found.table}.parquet") for found in local.listing.objects]
        for here, there in zip(local.listing.objects, remote, strict=True):
            storage.write_bytes(there.uri, storage.read_bytes(here.uri))
        warehouse.apply(replace(local, listing=replace(local.listing, objects=tuple(remote))))
    assert names_of(engine) == {"b": "2", "c": "2"}


def test_an_object_that_s3_lacks_fails_the_load(engine: DuckDB, tmp_path: Path, s3_bucket: str) -> None:
    local = events(tmp_path, "a")
    gone = replace(local, objects=(replace(local.objects[0], uri=f"{s3_bucket}/gone.parquet"),))
    with pytest.raises(LoadFailed, match=r"table events.*gone\.parquet"):
        Warehouse(engine, "shop").apply(load(gone))


def remote_events(tmp_path: Path, s3_bucket: str) -> Listing:
    local = events(tmp_path, "a")
    remote = tuple(replace(found, uri=f"{s3_bucket}/{n}.parquet") for n, found in enumerate(local.objects))
    for here, there in zip(local.objects, remote, strict=True):
        storage.write_bytes(there.uri, storage.read_bytes(here.uri))
    return replace(local, objects=remote)


def test_an_object_that_vanishes_from_s3_while_it_is_loaded_fails_the_load(
    engine: DuckDB, tmp_path: Path, s3_bucket: str
) -> None:
    listing = remote_events(tmp_path, s3_bucket)
    staged = engine.stage(EVENTS, listing.uris("events"))
    for uri in listing.uris("events"):
        system, path = storage.filesystem(uri)
        system.delete_file(path)
    with pytest.raises(LoadFailed, match=r"0\.parquet"):
        engine.execute(f"SELECT * FROM {staged.sql}")


def test_storage_that_does_not_answer_while_it_is_read_is_unavailable(engine: DuckDB) -> None:
    nobody = S3FileSystem(
        endpoint_override="http://127.0.0.1:1",
        access_key="key",
        secret_key="secret",
        region="us-east-1",
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=1),
    )
    format_ = pyarrow.dataset.ParquetFileFormat()
    schema = pa.schema({"v": pa.int32()})
    objects = pyarrow.dataset.FileSystemDataset([format_.make_fragment("bucket/x.parquet", nobody)], schema, format_)
    engine.connection().register("staged", objects)
    with pytest.raises(Unavailable, match="AWS Error"):
        engine.execute("SELECT * FROM staged")


def test_an_s3_object_that_is_no_parquet_fails_the_load(engine: DuckDB, tmp_path: Path, s3_bucket: str) -> None:
    listing = remote_events(tmp_path, s3_bucket)
    storage.write_bytes(listing.uris("events")[0], b"not what was committed")
    with pytest.raises(LoadFailed, match="table events"):
        Warehouse(engine, "shop").apply(load(listing))


def test_a_full_disk_and_too_little_memory_are_unavailable(engine: DuckDB) -> None:
    with pytest.raises(Unavailable, match="No space left"):
        engine.execute("COPY (SELECT 1) TO '/dev/full' (FORMAT csv)")
    engine.execute("SET memory_limit = '10MB'")
    engine.execute("SET temp_directory = ''")
    with pytest.raises(Unavailable, match="Out of Memory"):
        engine.execute("SELECT list(repeat('x', 1000) || range) FROM range(100000)")


def test_a_reader_changes_nothing_and_reads_nothing_else(engine: DuckDB, tmp_path: Path) -> None:
    Warehouse(engine, "shop").apply(load(events(tmp_path, "a")))
    (tmp_path / "secret.csv").write_text("a\n1\n")
    engine.close()
    reader = DuckDB(engine.path, read_only=True)
    assert Warehouse(reader, "shop").row_counts() == {"events": 3}
    for sql in ("DELETE FROM shop.events", f"FROM '{tmp_path}/secret.csv'", f"COPY (SELECT 1) TO '{tmp_path}/out.csv'"):
        with pytest.raises(LoadFailed):
            reader.execute(sql)
    side_by_side = DuckDB(engine.path, read_only=True)
    assert side_by_side.execute("SELECT count(*) FROM warehouse.shop.events") == [(3,)]
    reader.close()
    side_by_side.close()


def test_a_reader_of_what_does_not_exist_says_so_and_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"there is no warehouse at .* yet"):
        DuckDB(tmp_path / "deep" / "w.duckdb", read_only=True).execute("SELECT 1")
    assert list(tmp_path.iterdir()) == []


def test_a_reader_waits_for_the_writer_of_its_own_process(engine: DuckDB) -> None:
    engine.execute("SELECT 1")
    started = time.monotonic()
    with pytest.raises(WarehouseError, match=r"locked by another process or connection; waited 0\.2 s"):
        DuckDB(engine.path, patience=0.2, read_only=True).execute("SELECT 1")
    assert time.monotonic() - started >= 0.2
    engine.close()
    reader = DuckDB(engine.path, read_only=True)
    assert reader.execute("SELECT 1") == [(1,)]
    reader.close()


def test_parent_directories_are_made(tmp_path: Path) -> None:
    engine = DuckDB(tmp_path / "deep" / "er" / "w.duckdb")
    assert engine.execute("SELECT 1") == [(1,)]
    engine.close()


def test_the_file_is_let_go_for_somebody_who_waits_and_when_idle(engine: DuckDB) -> None:
    engine.execute("SELECT 1")
    assert not engine.release(idle=False) and engine.is_at_hand, "opening the file costs more than a small load"
    other = Turns(engine.path)
    other.wait()
    assert engine.release(idle=False) and not engine.is_at_hand
    other.leave()
    assert [one.name for one in engine.path.parent.iterdir()] == [engine.path.name], "the folder of tickets goes"
    engine.execute("SELECT 1")
    assert engine.release(idle=True) and not engine.release(idle=True)


def test_who_came_first_opens_the_file_first(engine: DuckDB) -> None:
    first, second = Turns(engine.path), Turns(engine.path)
    assert first.is_mine(), "nobody waits"
    first.wait()
    second.wait()
    assert (first.is_mine(), second.is_mine(), Turns(engine.path).is_mine()) == (True, False, False)
    with pytest.raises(Held, match="other processes wait for it, and came earlier"):
        DuckDB(engine.path, patience=0.1).execute("SELECT 1")
    [late, _] = sorted((engine.path.with_name(f"{engine.path.name}.waiting")).iterdir())
    os.utime(late, (0, 0))
    assert second.is_mine(), "a ticket that nobody touches any more does not count"
    first.leave()
    second.leave()
    DuckDB(engine.path, patience=0.1).execute("SELECT 1")


def test_a_reader_waits_for_writers_only_part_of_its_time(engine: DuckDB) -> None:
    engine.execute("SELECT 1")
    engine.release(idle=True)
    writer = Turns(engine.path)
    writer.wait()
    reader = DuckDB(engine.path, patience=0.4, read_only=True)
    assert reader.execute("SELECT 1") == [(1,)], "another reader may have the file, which this one can share"
    reader.close()
    writer.leave()


def test_a_worker_is_told_from_a_program(engine: DuckDB) -> None:
    """A program may keep the file all day; a worker lets go after its transaction."""
    script = (
        "import sys; from manifest_platform.warehouse.engines.duckdb.engine import DuckDB\n"
        "held = DuckDB(sys.argv[1]); held.execute('SELECT 1'); print(1, flush=True); sys.stdin.read()"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", script, str(engine.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert worker.stdout and worker.stdout.readline() == "1\n"
        with pytest.raises(Held) as held:
            DuckDB(engine.path, patience=0).execute("SELECT 1")
        assert (held.value.pid, held.value.is_worker) == (worker.pid, True)
        engine.path.with_name(f"{engine.path.name}.worker").unlink()
        with pytest.raises(Held) as held:
            DuckDB(engine.path, patience=0).execute("SELECT 1")
        assert (held.value.pid, held.value.is_worker) == (worker.pid, False)
    finally:
        worker.kill()
        worker.communicate()
