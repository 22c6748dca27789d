"""Loading directories in order: what the apply protocol costs over plain DuckDB, and against dlt.

    python benchmarks/ordered_load.py [--repeats 5] [--rows 5000]

The same 20 runs of 10 Parquet files each (1 M rows by default) are loaded three ways into a fresh DuckDB file:

    ours    Warehouse.apply a run: fence, marker, explicit columns, counted rows, ledger; one transaction
    plain   BEGIN, INSERT ... SELECT * FROM read_parquet, a marker row, COMMIT: no check, no order
    dlt     one dlt pipeline run a directory, appending Arrow tables, with dlt's own state

The ways take turns within each repetition; a ratio is the median of the ratios within the repetitions.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet

from manifest_platform import storage
from manifest_platform.listing import Column, Listing, ShreddedObject, Table
from manifest_platform.warehouse.apply import Applied, Load, Warehouse
from manifest_platform.warehouse.duckdb import DuckDB

RUNS, FILES = 20, 10
FEED = "enriched"
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


def make_runs(directory: Path, rows: int) -> list[Listing]:
    """Writes the runs' files, each with this many rows."""
    return [make_run(directory / f"{run:03}", run, rows) for run in range(RUNS)]


def make_run(directory: Path, run: int, rows: int) -> Listing:
    directory.mkdir(parents=True)
    objects = []
    for file in range(FILES):
        first = (run * FILES + file) * rows
        ids = range(first, first + rows)
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "measured_at": pa.array([datetime(2024, 5, 1) + timedelta(seconds=n) for n in ids], pa.timestamp("us")),
                "name": [f"sensor {n % 997}" for n in ids],
                "value": pa.array([n * 0.37 for n in ids], pa.float64()),
                "quantity": pa.array([n % 1000 for n in ids], pa.int32()),
                "valid": [n % 3 == 0 for n in ids],
            }
        )
        path = directory / f"{file}.parquet"
        pa.parquet.write_table(table, path)
        objects.append(ShreddedObject(TABLE.name, "2024-05-01", storage.as_uri(path), rows, path.stat().st_size))
    lines = FILES * rows
    return Listing(storage.as_uri(directory), "1", lines, lines, 0, (TABLE,), tuple(objects))


def load_ours(runs: list[Listing], directory: Path) -> None:
    """The whole of what a worker does for each run."""
    warehouse = Warehouse(DuckDB(directory / "ours.duckdb"), "bench")
    warehouse.raise_fence(FEED, token=1, epoch=1)
    for number, listing in enumerate(runs):
        result = warehouse.apply(
            Load(
                item=listing.item,
                feed=FEED,
                position=f"{number:09}",
                epoch=1,
                serving_epoch=1,
                token=1,
                record_id=f"record-{number}",
                checksum="",
                listing=listing,
            )
        )
        assert isinstance(result, Applied)
    warehouse.close()


def load_plain(runs: list[Listing], directory: Path) -> None:
    """The same transactions in plain DuckDB calls."""
    connection = duckdb.connect(str(directory / "plain.duckdb"))
    connection.execute(
        "CREATE TABLE readings (id BIGINT, measured_at TIMESTAMP, name VARCHAR, value DOUBLE, quantity INTEGER, valid BOOLEAN)"
    )
    connection.execute("CREATE TABLE marker (item VARCHAR, applied_at TIMESTAMP)")
    for listing in runs:
        paths = [str(storage.local_path(uri)) for uri in listing.uris(TABLE.name)]
        connection.execute("BEGIN")
        connection.execute("INSERT INTO readings SELECT * FROM read_parquet(?)", [paths])
        connection.execute("INSERT INTO marker VALUES (?, now()::TIMESTAMP)", [listing.item])
        connection.execute("COMMIT")
    connection.close()


def load_dlt(runs: list[Listing], directory: Path) -> None:
    """dlt, one pipeline run a directory: it appends, and keeps in its state which files it has seen."""
    import dlt

    pipeline = dlt.pipeline(
        "ordered_load",
        pipelines_dir=str(directory / "dlt"),
        destination=dlt.destinations.duckdb(str(directory / "dlt.duckdb")),
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


WAYS: dict[str, tuple[Callable[[list[Listing], Path], None], str]] = {
    "ours": (load_ours, "bench.readings"),
    "plain": (load_plain, "readings"),
    "dlt": (load_dlt, "bench.readings"),
}


def timed(way: str, runs: list[Listing]) -> float:
    """Seconds to load all runs into a fresh file, which must then hold all rows."""
    load, table = WAYS[way]
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        load(runs, Path(directory))
        seconds = time.perf_counter() - began
        with duckdb.connect(str(Path(directory) / f"{way}.duckdb"), read_only=True) as connection:
            (loaded,) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0]
        assert loaded == sum(listing.rows(TABLE.name) for listing in runs), f"{way} loaded {loaded} rows"
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="repetitions (5)")
    parser.add_argument("--rows", type=int, default=5000, help="rows a file (5000)")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"  # nothing is to leave the machine, nor to be timed
    with tempfile.TemporaryDirectory() as directory:
        runs = make_runs(Path(directory), arguments.rows)
        print(f"{RUNS} runs, {FILES} files each, {sum(listing.lines for listing in runs):,} rows")
        timed("plain", runs)  # warms the page cache for all alike
        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        for repeat in range(arguments.repeats):
            order = list(WAYS) if repeat % 2 == 0 else list(reversed(WAYS))
            for way in order:
                seconds[way].append(timed(way, runs))
    for way, taken in seconds.items():
        print(f"{way:6} median {statistics.median(taken):7.3f} s   ({', '.join(f'{one:.3f}' for one in taken)})")
    for peer, goal in GOALS.items():
        ratio = statistics.median(ours / theirs for ours, theirs in zip(seconds["ours"], seconds[peer], strict=True))
        print(f"ours / {peer:6} {ratio:6.3f}   goal {goal:.2f}   {'reached' if ratio <= goal else 'missed'}")


if __name__ == "__main__":
    main()
