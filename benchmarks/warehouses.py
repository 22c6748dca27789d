"""Warehouses behind a server: a real PostgreSQL, compared with the same work by hand and with dlt.

    python benchmarks/warehouses.py [--repeats 3] [--scale 1] [--parts runs windows …]

    runs        20 runs of 10 Parquet files each (1 M rows at scale 1) in order: our drain, manifest included; a script with
                psycopg, which copies the same rows in the same transactions (fence, ledger, rows); dlt, a run of it a directory
    windows     96 windows of 2,200 changes by key (1,800 updates, 200 new rows, 200 deletes) onto 200,000 rows: our apply; the
                same statements by hand with psycopg; dlt's merge, which gets the first few windows only
    catch_up    the same windows applied together in one transaction, compared with one by one
    statements  the statements of a window, on PostgreSQL and DuckDB
    full        the most memory of a process that loads a snapshot of 5 M rows, compared with a process that loads a window

Each way loads an empty database of one server on this machine, in turns, and must end with the same rows. The time runs from
the first connection to the end of the last.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[1]))  # the servers of the tests

import cdc
import ordered_load
import psycopg
import pyarrow as pa
import pyarrow.parquet
from pairs import arguments, interleaved, print_figure, print_medians, print_ratio
from prepared import DATASET, register, write_config, write_listing
from psycopg.sql import SQL, Identifier
from results import Result, tell

from manifest_platform import config, storage
from manifest_platform.listing import Listing, Table
from manifest_platform.pipeline import Pipeline
from manifest_platform.warehouse.apply import Applied, Full, Load, Warehouse
from manifest_platform.warehouse.engines.engine import Engine
from manifest_platform_tests.servers.postgres import Postgres, postgres_at
from manifest_platform_tests.servers.warehouses import opened

WAYS = ("ours", "plain", "dlt")
RUNS_GOALS = {"plain": 1.15, "dlt": 0.15}
WINDOWS_GOALS = {"plain": 1.25, "dlt": 0.15}
CATCH_UP_GOAL = 0.3
STATEMENTS, STATEMENTS_A_TABLE = 4, 3
"""The goal for statements a window: fixed, and for each table of its listing."""
SNAPSHOT_ROWS, WINDOW_ROWS, PART_ROWS, MEMORY_GOAL = 5_000_000, 20_000, 100_000, 1.05
TYPES = {"string": "text", "double": "float8", "bigint": "int8", "integer": "int4", "decimal(38,10)": "numeric"}
"""Types by the names that binary COPY needs."""


class Server:
    """A PostgreSQL with a fresh database for each measurement."""

    def __init__(self, server: Postgres) -> None:
        self._server = server

    @contextmanager
    def database(self) -> Generator[str]:
        """The URL of an empty database."""
        name = f"bench_{uuid.uuid4().hex[:8]}"
        self._administer("CREATE DATABASE {}", name)
        self._checkpoint()
        yield f"postgresql://postgres@/{name}?host={self._server.socket_folder}"
        self._administer("DROP DATABASE {} WITH (FORCE)", name)

    def _checkpoint(self) -> None:
        """Writes out what earlier turns left, so that no turn pays for another."""
        with closing(psycopg.connect(self._server.url, autocommit=True)) as connection:
            connection.execute("CHECKPOINT")

    def _administer(self, statement: str, name: str) -> None:
        with closing(psycopg.connect(self._server.url, autocommit=True)) as connection:
            connection.execute(SQL(cast(Any, statement)).format(Identifier(name)))


def settings_of(url: str) -> dict[str, Any]:
    """The value of `warehouse` for a database."""
    return {"kind": "postgresql", "url": url}


# What both scripts by hand share


def prepare_by_hand(connection: psycopg.Connection[Any], table: Table, feed: str) -> None:
    columns = ", ".join(f'"{column.name}" {TYPES.get(column.type, column.type)}' for column in table.columns)
    connection.execute(cast(Any, f'CREATE TABLE "{table.name}" ({columns})'))
    connection.execute('CREATE TABLE fence (feed text, token int8, epoch int8, applied text COLLATE "C")')
    connection.execute("CREATE TABLE ledger (item text, epoch int8, token int8, rows text, applied_at timestamp)")
    connection.execute("INSERT INTO fence VALUES (%s, 1, 1, '')", (feed,))


FENCE = "UPDATE fence SET token = 1, epoch = 1, applied = %s WHERE feed = %s AND token <= 1 AND applied < %s"
ASK = "SELECT 1 FROM ledger WHERE item = %s LIMIT 1"
ENTER = "INSERT INTO ledger VALUES (%s, 1, 1, '{}', now()::timestamp)"


def copy(connection: psycopg.Connection[Any], into: str, table: Table, paths: Sequence[str]) -> None:
    """Copies the rows of Parquet files, as psycopg's documentation shows for large copies: binary, with known types."""
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    with (
        connection.cursor() as cursor,
        cursor.copy(cast(Any, f'COPY "{into}" ({names}) FROM STDIN (FORMAT BINARY)')) as copying,
    ):
        copying.set_types([TYPES.get(column.type, column.type) for column in table.columns])
        for path in paths:
            for batch in pyarrow.parquet.ParquetFile(path).iter_batches():
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    copying.write_row(row)


# Runs in order


def runs_ours(runs: list[Listing], url: str, home: Path) -> Callable[[], None]:
    """Prepares a manifest whose runs are shredded, and returns the drain."""
    with Pipeline(config.load(write_config(home, settings_of(url))), DATASET) as pipeline:
        register(pipeline, runs)
    return partial(ordered_load.load_ours, home)


def runs_plain(runs: list[Listing], url: str, _home: Path) -> Callable[[], None]:
    """The same transactions in psycopg: fence, look into the ledger, rows, ledger."""

    def load() -> None:
        with closing(psycopg.connect(url, autocommit=True)) as connection:
            prepare_by_hand(connection, ordered_load.TABLE, "enriched")
            for listing in runs:
                with connection.transaction():
                    connection.execute(FENCE, (listing.item, "enriched", listing.item))
                    connection.execute(ASK, (listing.item,)).fetchall()
                    copy(connection, ordered_load.TABLE.name, ordered_load.TABLE, paths(listing, ordered_load.TABLE))
                    connection.execute(ENTER, (listing.item,))

    return load


def runs_dlt(runs: list[Listing], url: str, home: Path) -> Callable[[], None]:
    import dlt

    pipeline = dlt_pipeline("ordered_load", url, home)

    @dlt.resource(name=ordered_load.TABLE.name, write_disposition="append")
    def readings(listing: Listing):
        seen = dlt.current.resource_state().setdefault("seen", [])
        if listing.item in seen:
            return
        for path in paths(listing, ordered_load.TABLE):
            yield pyarrow.parquet.read_table(path)
        seen.append(listing.item)

    def load() -> None:
        for listing in runs:
            pipeline.run(readings(listing)).raise_on_failed_jobs()

    return load


def paths(listing: Listing, table: Table) -> list[str]:
    return [str(storage.local_path(uri)) for uri in listing.uris(table.name)]


def dlt_pipeline(name: str, url: str, home: Path) -> Any:
    import dlt
    from dlt.destinations.impl.postgres.configuration import PostgresCredentials

    database, _, socket = url.removeprefix("postgresql://postgres@/").partition("?host=")
    credentials = PostgresCredentials(f"postgresql://postgres:unused@localhost/{database}?host={socket}")
    destination = dlt.destinations.postgres(credentials=credentials)
    return dlt.pipeline(name, pipelines_dir=str(home / "dlt"), destination=destination, dataset_name="bench")


def timed_runs(way: str, server: Server, runs: list[Listing]) -> float:
    """Seconds to load all runs into an empty database, which must then hold all rows."""
    prepare = {"ours": runs_ours, "plain": runs_plain, "dlt": runs_dlt}[way]
    schema = {"ours": DATASET, "plain": "public", "dlt": "bench"}[way]
    with tempfile.TemporaryDirectory() as directory, server.database() as url:
        load = prepare(runs, url, Path(directory))
        began = time.perf_counter()
        load()
        seconds = time.perf_counter() - began
        [(loaded,)] = asked(url, f"SELECT count(*) FROM {schema}.readings")
        assert loaded == sum(listing.lines for listing in runs), f"{way} loaded {loaded} rows"
    return seconds


def asked(url: str, query: str) -> list[tuple[Any, ...]]:
    with closing(psycopg.connect(url)) as connection:
        return connection.execute(cast(Any, query)).fetchall()


def compare_runs(server: Server, repeats: int, scale: float) -> None:
    with tempfile.TemporaryDirectory() as directory:
        runs = [ordered_load.make_run(Path(directory), run, int(ordered_load.ROWS * scale)) for run in range(ordered_load.RUNS)]
        print(f"{len(runs)} runs, {ordered_load.FILES} files each, {sum(listing.lines for listing in runs):,} rows")
        ways = {way: partial(timed_runs, way, server, runs) for way in WAYS}
        seconds = interleaved(ways, repeats)
    print_medians(seconds)
    for peer, goal in RUNS_GOALS.items():
        print_ratio("runs in order", seconds, "ours", peer, goal)


# Windows of changes by key


def loads(windows: Sequence[cdc.Window], first: int) -> list[Load]:
    """The loads of windows, as a drain gives them: each believes the one before."""
    found = []
    for number, window in enumerate(windows, first):
        believed, item = f"record {number - 1}" if number else "", window.listing.item
        found.append(Load(item, "incr", item, 1, 1, 1, f"record {number}", "checksum", window.listing, believed=believed))
    return found


def windows_ours(windows: Sequence[cdc.Window], first: int, url: str, _home: Path) -> None:
    with closing(Warehouse(opened(settings_of(url)), "bench")) as warehouse:
        for load in loads(windows, first):
            assert isinstance(warehouse.apply(load), Applied)


def windows_plain(windows: Sequence[cdc.Window], first: int, url: str, _home: Path) -> None:
    """The same statements by hand: rows into temporary tables, then fence, ledger, deletes, upserts, ledger."""
    names = ", ".join(f'"{column.name}"' for column in cdc.TABLE.columns)
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        if not first:
            prepare_by_hand(connection, cdc.TABLE, "incr")
        for window in windows:
            item = window.listing.item
            connection.execute("CREATE TEMP TABLE upserts (LIKE product__v)")
            connection.execute("CREATE TEMP TABLE deletes (id text, deleted_date timestamp)")
            copy(connection, "upserts", cdc.TABLE, [window.upserts])
            copy(connection, "deletes", cdc.GONE, [window.deletes])
            with connection.transaction():
                connection.execute(FENCE, (item, "incr", item))
                connection.execute(ASK, (item,)).fetchall()
                for gone in ("deletes", "upserts"):
                    connection.execute(
                        cast(Any, f"DELETE FROM product__v WHERE EXISTS (SELECT 1 FROM {gone} s WHERE s.id = product__v.id)")
                    )
                connection.execute(cast(Any, f"INSERT INTO product__v ({names}) SELECT {names} FROM upserts"))
                connection.execute(ENTER, (item,))
            connection.execute("DROP TABLE upserts, deletes")


def windows_dlt(windows: Sequence[cdc.Window], _first: int, url: str, home: Path) -> None:
    import dlt

    pipeline = dlt_pipeline("cdc", url, home)
    for window in windows:
        rows, gone = pyarrow.parquet.read_table(window.upserts), pyarrow.parquet.read_table(window.deletes, columns=["id"])
        rows = rows.append_column("gone", pa.array([False] * len(rows)))
        gone = gone.append_column("gone", pa.array([True] * len(gone)))
        resource = dlt.resource(
            [pa.concat_tables([rows, gone], promote_options="default")],
            name=cdc.TABLE.name,
            write_disposition={"disposition": "merge", "strategy": "delete-insert"},
            primary_key="id",
            columns={"gone": {"hard_delete": True}},
        )
        pipeline.run(resource).raise_on_failed_jobs()


def timed_windows(way: str, server: Server, windows: Sequence[cdc.Window]) -> float:
    """Seconds a window: all but the first, which brings the rows that are there before, and is not timed."""
    load = {"ours": windows_ours, "plain": windows_plain, "dlt": windows_dlt}[way]
    schema = {"ours": "bench", "plain": "public", "dlt": "bench"}[way]
    with tempfile.TemporaryDirectory() as directory, server.database() as url:
        load(windows[:1], 0, url, Path(directory))
        asked(url, f"SELECT count(*) FROM {schema}.{cdc.TABLE.name}")
        began = time.perf_counter()
        load(windows[1:], 1, url, Path(directory))
        seconds = time.perf_counter() - began
        found = asked(url, f"SELECT id, name__v FROM {schema}.{cdc.TABLE.name}")
    cdc.check(way, windows, found)
    return seconds / (len(windows) - 1)


def compare_windows(server: Server, repeats: int, scale: float, count: int, few: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        windows = list(cdc.make_windows(Path(directory), int(cdc.ROWS * scale), scale, count))
        print(f"{count} windows onto {windows[0].listing.lines:,} rows; seconds a window; dlt: the first {few}")
        ways = {way: partial(timed_windows, way, server, windows[: few + 1] if way == "dlt" else windows) for way in WAYS}
        seconds = interleaved(ways, repeats)
    print_medians(seconds)
    for peer, goal in WINDOWS_GOALS.items():
        print_ratio("a window", seconds, "ours", peer, goal)


# The same windows as one catch-up


def timed_catch_up(way: str, server: Server, windows: Sequence[cdc.Window]) -> float:
    """Seconds for all windows but the first: together in one transaction, or one by one."""
    with server.database() as url:
        windows_ours(windows[:1], 0, url, Path())
        began = time.perf_counter()
        if way == "one_by_one":
            windows_ours(windows[1:], 1, url, Path())
        else:
            with closing(Warehouse(opened(settings_of(url)), "bench")) as warehouse:
                assert len(warehouse.apply_all(loads(windows[1:], 1))) == len(windows) - 1
        seconds = time.perf_counter() - began
        cdc.check(way, windows, asked(url, f"SELECT id, name__v FROM bench.{cdc.TABLE.name}"))
    return seconds


def compare_catch_up(server: Server, repeats: int, scale: float, count: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        windows = list(cdc.make_windows(Path(directory), int(cdc.ROWS * scale), scale, count))
        ways = {way: partial(timed_catch_up, way, server, windows) for way in ("together", "one_by_one")}
        seconds = interleaved(ways, repeats)
    print_medians(seconds)
    print_ratio(f"{count} windows together", seconds, "together", "one_by_one", CATCH_UP_GOAL)


# Statements a window


class Counted:
    """Counts what an engine sends to its database: statements, and the COPY of each staged table where it is none."""

    def __init__(self, engine: Engine, copies: bool) -> None:
        self.sent, self._within = 0, False
        wrapped: dict[str, Callable[..., Any]] = {
            name: partial(self._counted, getattr(engine, name)) for name in ("execute", "write")
        }
        if copies:
            wrapped["stage"] = partial(self._copied, engine.stage)
        vars(engine).update(wrapped)

    def _counted(self, run: Callable[..., Any], *given: Any) -> Any:
        outermost, self._within = not self._within, True
        self.sent += outermost
        try:
            return run(*given)
        finally:
            self._within = not outermost

    def _copied(self, stage: Callable[..., Any], *given: Any) -> Any:
        self.sent += 1
        return stage(*given)


def count_statements(server: Server) -> None:
    """The statements of a window whose tables are known, with upserts and deletes: two tables of its listing."""
    with tempfile.TemporaryDirectory() as directory, server.database() as url:
        windows = list(cdc.make_windows(Path(directory), 1000, 0.1, 3))
        places = {"postgresql": settings_of(url), "duckdb": {"kind": "duckdb", "path": f"{directory}/warehouse.duckdb"}}
        for kind, settings in places.items():
            engine = opened(settings)
            counted = Counted(engine, copies=kind == "postgresql")
            with closing(Warehouse(engine, "bench")) as warehouse:
                for load in loads(windows, 0):
                    before = counted.sent
                    warehouse.apply(load)
            print_figure(f"statements a window, {kind}", counted.sent - before, STATEMENTS + 2 * STATEMENTS_A_TABLE)


# Memory of a full load


def make_snapshot(root: Path, rows: int) -> Listing:
    """A snapshot of many rows, in files of 100,000."""
    base = cdc.make_rows([(number, 0) for number in range(PART_ROWS)])
    table = replace(cdc.TABLE, mode="replace")

    def part(number: int) -> pa.Table:
        ids = [f"S{number:05d}{place:09d}" for place in range(PART_ROWS)]
        return base.set_column(0, "id", pa.array(ids, pa.string()))

    return write_listing(root / "full", [(table, Parts(part, rows // PART_ROWS))])


class Parts(Sequence[pa.Table]):
    """Parts of a table that are made when they are written, and not kept."""

    def __init__(self, make: Callable[[int], pa.Table], count: int) -> None:
        self._make, self._count = make, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        if number >= self._count:
            raise IndexError
        return self._make(number)


def apply_and_measure(url: str, listing_file: str, mode: str) -> None:
    """Applies one listing in this process, and prints the most memory that the process ever had, in MB."""
    listing = Listing.read(storage.as_uri(listing_file))
    full = Full(listing.item, ("incr",), ("incr", "full")) if mode == "full" else None
    feed, epoch = ("full", 2) if full else ("incr", 1)
    load = Load(listing.item, feed, listing.item, epoch, epoch, 1, f"record of {mode}", "checksum", listing, full=full)
    with closing(Warehouse(opened(settings_of(url)), "bench")) as warehouse:
        assert isinstance(warehouse.apply(load), Applied)
    [peak] = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    print(int(peak) / 1000)


def compare_memory(server: Server, scale: float) -> None:
    with tempfile.TemporaryDirectory() as directory, server.database() as url:
        window = next(iter(cdc.make_windows(Path(directory), WINDOW_ROWS, scale, 0)))
        snapshot = make_snapshot(Path(directory), int(SNAPSHOT_ROWS * scale))
        peaks, began = {}, time.perf_counter()
        for mode, listing in (("window", window.listing), ("full", snapshot)):
            file = storage.local_path(f"{listing.item}/listing.json")
            done = subprocess.run(
                [sys.executable, __file__, "--apply", url, file, mode], capture_output=True, text=True, check=True
            )
            peaks[mode] = float(done.stdout)
        [(rows,)] = asked(url, f"SELECT count(*) FROM bench.{cdc.TABLE.name}")
        assert rows == snapshot.lines, f"{rows} rows instead of {snapshot.lines}"
    print(f"a window of {window.listing.lines:,} rows and a full load of {rows:,} took {time.perf_counter() - began:.0f} s")
    value = peaks["full"] / peaks["window"]
    told = Result(
        "peak memory of a full load",
        f"{peaks['full']:.0f} MB",
        f"window {peaks['window']:.0f} MB",
        f"{value:.3f}",
        f"at most {MEMORY_GOAL:g}",
        value <= MEMORY_GOAL,
    )
    tell(told)


PARTS = ("runs", "windows", "catch_up", "statements", "full")


def main() -> None:
    parser = arguments(__doc__, 3, "1 M rows; 2,200 changes a window onto 200,000 rows")
    parser.add_argument("--windows", type=int, default=96, help="windows to apply (96)")
    parser.add_argument("--dlt-windows", type=int, default=4, help="of these, how many dlt applies (4)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure; by default everything")
    parser.add_argument("--apply", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.apply:
        apply_and_measure(*options.apply)
        return
    logging.disable(logging.WARNING)
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"  # telemetry would leave the machine and distort the times
    with postgres_at(Path()) as socket_folder:
        server = Server(Postgres(Path(socket_folder)))
        if "runs" in options.parts:
            compare_runs(server, options.repeats, options.scale)
        if "windows" in options.parts:
            compare_windows(server, options.repeats, options.scale, options.windows, options.dlt_windows)
        if "catch_up" in options.parts:
            compare_catch_up(server, options.repeats, options.scale, options.windows)
        if "statements" in options.parts:
            count_statements(server)
        if "full" in options.parts:
            compare_memory(server, options.scale)


if __name__ == "__main__":
    main()
