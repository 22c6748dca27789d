"""Loading directories in order: the cost of the manifest and the apply protocol, compared with plain DuckDB and with dlt.

    python benchmarks/ordered_load.py [--repeats 5] [--scale 1]

The same 20 runs of 10 Parquet files each (1 M rows at scale 1) are loaded four ways into a fresh DuckDB file:

    ours    the drain: lease, next, claim and complete in a manifest on disk; fence, columns, counted rows and ledger, one
            transaction a run
    plain   the same transactions in plain DuckDB calls, in a loop that knows the order: no manifest, no lease, no counts
    bare    only the rows and a marker, with no protection against a crash or a second worker
    dlt     one dlt pipeline run a directory, appending Arrow tables, with dlt's own state

The time runs from opening the warehouse to closing it. Registering the runs as shredded is not included.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NoReturn

import duckdb
import pyarrow as pa
import pyarrow.parquet
from pairs import arguments, interleaved, print_medians, print_ratio, ratio
from prepared import DATASET, register, run_directory, write_config, write_listing

from manifest_platform import config, storage
from manifest_platform.listing import Column, Listing, Table
from manifest_platform.pipeline import DrainReport, Pipeline, Stop
from manifest_platform.pipeline.drain import drain

RUNS, FILES, ROWS = 20, 10, 5000
GOALS = {"plain": 1.25, "dlt": 0.30}
TABLE = Table(
    "readings",
    (
        Column("id", "bigint"),
        Column("measured_at", "timestamp"),
        Column("name", "string"),
        Column("value", "double"),
        Column("quantity", "integer"),
        Column("valid", "boolean"),
    ),
)


def make_run(root: Path, run: int, rows: int) -> Listing:
    """Writes a run's files, each with this many rows."""
    return write_listing(
        run_directory(root, run), [(TABLE, [make_part((run * FILES + file) * rows, rows) for file in range(FILES)])]
    )


def make_part(first: int, rows: int) -> pa.Table:
    ids = range(first, first + rows)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "measured_at": pa.array([datetime(2024, 5, 1) + timedelta(seconds=n) for n in ids], pa.timestamp("us")),
            "name": [f"sensor {n % 997}" for n in ids],
            "value": pa.array([n * 0.37 for n in ids], pa.float64()),
            "quantity": pa.array([n % 1000 for n in ids], pa.int32()),
            "valid": [n % 3 == 0 for n in ids],
        }
    )


def no_spark() -> NoReturn:
    raise AssertionError("everything is shredded")


def load_ours(home: Path) -> None:
    """Runs a worker's drain of a pipeline, from its opening to its closing."""
    with Pipeline(config.load(home / "manifest_platform.yaml"), DATASET) as pipeline:
        *_, report = drain(pipeline, no_spark)
    assert isinstance(report, DrainReport)
    assert (report.stop, report.loaded) == (Stop.IDLE, RUNS), report


READINGS = "id BIGINT, measured_at TIMESTAMP, name VARCHAR, value DOUBLE, quantity INTEGER, valid BOOLEAN"
INSERT = "INSERT INTO readings SELECT * FROM read_parquet(?, hive_partitioning = false)"


def load_plain(runs: list[Listing], home: Path) -> None:
    """The same transactions in plain DuckDB calls: fence, look into the ledger, rows, ledger."""
    connection = duckdb.connect(str(home / "plain.duckdb"))
    connection.execute(f"CREATE TABLE readings ({READINGS})")
    connection.execute("CREATE TABLE fence (feed VARCHAR, token BIGINT, epoch BIGINT, applied VARCHAR)")
    connection.execute("CREATE TABLE ledger (item VARCHAR, position VARCHAR, epoch BIGINT, token BIGINT, applied_at TIMESTAMP)")
    connection.execute("INSERT INTO fence VALUES ('enriched', 1, 1, '')")
    fence = "UPDATE fence SET token = 1, epoch = 1, applied = ? WHERE feed = 'enriched' AND token <= 1 AND applied < ?"
    for listing in runs:
        connection.execute("BEGIN")
        connection.execute(fence, [listing.item, listing.item])
        connection.execute("SELECT 1 FROM ledger WHERE item = ? LIMIT 1", [listing.item]).fetchall()
        connection.execute(INSERT, [_paths(listing)])
        connection.execute("INSERT INTO ledger VALUES (?, ?, 1, 1, now()::TIMESTAMP)", [listing.item, listing.item])
        connection.execute("COMMIT")
    connection.close()


def load_bare(runs: list[Listing], home: Path) -> None:
    """The rows and a marker, and nothing that keeps order or a replaced worker out."""
    connection = duckdb.connect(str(home / "bare.duckdb"))
    connection.execute(f"CREATE TABLE readings ({READINGS})")
    connection.execute("CREATE TABLE marker (item VARCHAR, applied_at TIMESTAMP)")
    for listing in runs:
        connection.execute("BEGIN")
        connection.execute(INSERT, [_paths(listing)])
        connection.execute("INSERT INTO marker VALUES (?, now()::TIMESTAMP)", [listing.item])
        connection.execute("COMMIT")
    connection.close()


def _paths(listing: Listing) -> list[str]:
    return [str(storage.local_path(uri)) for uri in listing.uris(TABLE.name)]


def load_dlt(runs: list[Listing], home: Path) -> None:
    """dlt, one pipeline run a directory: it appends, and keeps in its state which files it has seen."""
    import dlt

    pipeline = dlt.pipeline(
        "ordered_load",
        pipelines_dir=str(home / "dlt"),
        destination=dlt.destinations.duckdb(str(home / "dlt.duckdb")),
        dataset_name="bench",
    )

    @dlt.resource(name=TABLE.name, write_disposition="append")
    def readings(listing: Listing):
        seen = dlt.current.resource_state().setdefault("seen", [])
        if listing.item in seen:
            return
        for uri in listing.uris(TABLE.name):
            yield pyarrow.parquet.read_table(str(storage.local_path(uri)))
        seen.append(listing.item)

    for listing in runs:
        pipeline.run(readings(listing)).raise_on_failed_jobs()


def timed(way: str, runs: list[Listing], table: str) -> float:
    """Seconds to load all runs into a fresh file, which must then hold all rows."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        load: Callable[[], None]
        if way == "ours":
            with Pipeline(config.load(write_config(home)), DATASET) as pipeline:
                register(pipeline, runs)
            load = partial(load_ours, home)
        else:
            load = partial({"plain": load_plain, "bare": load_bare, "dlt": load_dlt}[way], runs, home)
        began = time.perf_counter()
        load()
        seconds = time.perf_counter() - began
        with duckdb.connect(str(home / f"{way}.duckdb"), read_only=True) as connection:
            (loaded,) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0]
        assert loaded == sum(listing.rows(TABLE.name) for listing in runs), f"{way} loaded {loaded} rows"
    return seconds


def main() -> None:
    options = arguments(__doc__, 3, "1 M rows").parse_args()
    logging.disable(logging.WARNING)
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"  # telemetry would leave the machine and distort the times
    with tempfile.TemporaryDirectory() as directory:
        runs = [make_run(Path(directory), run, int(ROWS * options.scale)) for run in range(RUNS)]
        print(f"{RUNS} runs, {FILES} files each, {sum(listing.lines for listing in runs):,} rows")
        tables = {"ours": f"{DATASET}.readings", "plain": "readings", "bare": "readings", "dlt": "bench.readings"}
        seconds = interleaved({way: partial(timed, way, runs, table) for way, table in tables.items()}, options.repeats)
    print_medians(seconds)
    print(f"ours / bare {ratio(seconds, 'ours', 'bare'):8.3f}")
    for peer, goal in GOALS.items():
        print_ratio("runs in order", seconds, "ours", peer, goal)


if __name__ == "__main__":
    main()
