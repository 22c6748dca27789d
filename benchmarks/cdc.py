"""Applying windows of changes by key: the cost of the apply protocol, compared with plain DuckDB and with dlt's merge.

    python benchmarks/cdc.py [--repeats 5] [--scale 1] [--windows 96] [--dlt-windows 4]

96 windows of 2,200 changes each (1,800 updates, 200 new rows, 200 deletes, as two Parquet files) are applied onto a table of
200,000 rows, three ways, each in a DuckDB file of its own that holds these rows already:

    ours    the warehouse's apply of the windows' listings: counts and keys of what is staged, fence, ledger, deletes, upserts,
            what is retired, one transaction a window
    plain   the same transactions in plain DuckDB calls, without checks of counts and keys: fence, ledger, deletes, upserts,
            ledger
    dlt     one dlt pipeline run a window: merge by primary key, deletes by a hard_delete column

The time runs from opening the warehouse to closing it, and is reported for one window. dlt needs a second or more for each
window, so it gets the first few only. Each way must end with the rows of a dictionary that applies the same changes.
"""

from __future__ import annotations

import logging
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet
from pairs import arguments, interleaved, print_medians, print_ratio
from prepared import write_listing

from manifest_platform import storage
from manifest_platform.column_types import arrow_type
from manifest_platform.listing import Column, Listing, Table
from manifest_platform.warehouse.apply import Applied, Load, Warehouse
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB

ROWS, UPDATES, NEW, DELETES = 200_000, 1800, 200, 200
GOALS = {"plain": 2.0, "dlt": 0.1}
TABLE = Table(
    "product__v",
    (
        Column("id", "string"),
        Column("modified_date__v", "timestamp"),
        Column("name__v", "string"),
        Column("status__v", "string"),
        Column("description__c", "string"),
        Column("owner__c", "string"),
        Column("price__c", "decimal(38,10)"),
        Column("approved_on__c", "date"),
        Column("active__c", "boolean"),
    ),
    "merge",
    ("id",),
)
GONE = Table(
    f"{TABLE.name}_deletes", (Column("id", "string"), Column("deleted_date", "timestamp")), "delete", TABLE.key, TABLE.name
)


@dataclass(frozen=True)
class Window:
    """A window's listing, its objects as paths, and what the table holds after it: the version of each row by its number."""

    listing: Listing
    upserts: str
    deletes: str
    after: dict[int, int]


def row_id(number: int) -> str:
    return f"V{number:014d}"


def make_rows(versions: Sequence[tuple[int, int]]) -> pa.Table:
    """The rows of these numbers, in these versions."""
    at = datetime(2026, 1, 1)
    columns: dict[str, list[Any]] = {
        "id": [row_id(number) for number, _ in versions],
        "modified_date__v": [at + timedelta(seconds=number + 900 * version) for number, version in versions],
        "name__v": [f"Product {number}, version {version}" for number, version in versions],
        "status__v": [f"state_{(number + version) % 7}__v" for number, version in versions],
        "description__c": [
            None if number % 5 == 0 else f"about {number * 7919 % 10007} of {version}" for number, version in versions
        ],
        "owner__c": [row_id(number % 311) for number, _ in versions],
        "price__c": [Decimal(number * 37 + version).scaleb(-2) for number, version in versions],
        "approved_on__c": [date(2020, 1, 1) + timedelta(days=number % 2000) for number, _ in versions],
        "active__c": [number % 3 == 0 for number, _ in versions],
    }
    return pa.table({column.name: pa.array(columns[column.name], arrow_type(column.type)) for column in TABLE.columns})


def make_windows(root: Path, rows: int, scale: float, count: int) -> Iterator[Window]:
    """Random windows of changes to a number of rows. The first window inserts all rows."""
    chosen = random.Random(6)
    current = dict.fromkeys(range(rows), 0)
    yield write_window(root, 0, list(current.items()), [], current)
    updates, new, deletes = (int(number * scale) for number in (UPDATES, NEW, DELETES))
    highest = rows
    for number in range(1, count + 1):
        touched = chosen.sample(sorted(current), updates + deletes)
        upserts = [(one, number) for one in (*touched[:updates], *range(highest, highest + new))]
        highest += new
        current.update(upserts)
        for one in touched[updates:]:
            del current[one]
        yield write_window(root, number, upserts, touched[updates:], current)


def write_window(root: Path, number: int, upserts: list[tuple[int, int]], deletes: list[int], after: dict[int, int]) -> Window:
    at = pa.array([datetime(2026, 1, 1)] * len(deletes), pa.timestamp("us"))
    gone = pa.table({"id": pa.array([row_id(one) for one in deletes], pa.string()), "deleted_date": at})
    listing = write_listing(root / f"stoptime={number:04d}", [(TABLE, [make_rows(upserts)]), (GONE, [gone])])
    paths = [str(storage.local_path(listing.uris(table.name)[0])) for table in (TABLE, GONE)]
    return Window(listing, *paths, dict(after))


def load_ours(windows: Sequence[Window], path: Path) -> None:
    warehouse = Warehouse(DuckDB(path), "bench")
    for number, window in enumerate(windows):
        listing = window.listing
        load = Load(listing.item, "incr", listing.item, 1, 1, 1, f"record {number}", "checksum", listing)
        assert isinstance(warehouse.apply(load), Applied)
    warehouse.close()


NAMES = ", ".join(f'"{column.name}"' for column in TABLE.columns)
DELETE = f"DELETE FROM {TABLE.name} WHERE EXISTS (SELECT 1 FROM read_parquet(?) AS staged WHERE staged.id = {TABLE.name}.id)"
INSERT = f"INSERT INTO {TABLE.name} ({NAMES}) SELECT {NAMES} FROM read_parquet(?)"


def load_plain(windows: Sequence[Window], path: Path) -> None:
    """The same transactions in plain DuckDB calls: fence, look into the ledger, deletes, upserts, ledger."""
    new = not path.exists()
    connection = duckdb.connect(str(path))
    if new:
        types = {"string": "VARCHAR", "decimal(38,10)": "DECIMAL(38,10)"}
        columns = ", ".join(f"{column.name} {types.get(column.type, column.type)}" for column in TABLE.columns)
        connection.execute(f"CREATE TABLE {TABLE.name} ({columns})")
        connection.execute("CREATE TABLE fence (feed VARCHAR, token BIGINT, epoch BIGINT, applied VARCHAR)")
        connection.execute("CREATE TABLE ledger (item VARCHAR, epoch BIGINT, token BIGINT, rows VARCHAR, applied_at TIMESTAMP)")
        connection.execute("INSERT INTO fence VALUES ('incr', 1, 1, '')")
    fence = "UPDATE fence SET token = 1, epoch = 1, applied = ? WHERE feed = 'incr' AND token <= 1 AND applied < ?"
    for window in windows:
        item = window.listing.item
        connection.execute("BEGIN")
        connection.execute(fence, [item, item])
        connection.execute("SELECT 1 FROM ledger WHERE item = ? LIMIT 1", [item]).fetchall()
        connection.execute(DELETE, [window.deletes])
        connection.execute(DELETE, [window.upserts])
        connection.execute(INSERT, [window.upserts])
        connection.execute("INSERT INTO ledger VALUES (?, 1, 1, '{}', now()::TIMESTAMP)", [item])
        connection.execute("COMMIT")
    connection.close()


def load_dlt(windows: Sequence[Window], path: Path) -> None:
    """dlt, one pipeline run a window: rows are merged by their primary key, those that are marked as deleted go."""
    import dlt

    pipeline = dlt.pipeline(
        "cdc", pipelines_dir=str(path.parent / "dlt"), destination=dlt.destinations.duckdb(str(path)), dataset_name="bench"
    )
    for window in windows:
        rows, gone = pyarrow.parquet.read_table(window.upserts), pyarrow.parquet.read_table(window.deletes, columns=["id"])
        rows = rows.append_column("gone", pa.array([False] * len(rows)))
        gone = gone.append_column("gone", pa.array([True] * len(gone)))
        changes = pa.concat_tables([rows, gone], promote_options="default")
        resource = dlt.resource(
            [changes],
            name=TABLE.name,
            write_disposition={"disposition": "merge", "strategy": "delete-insert"},
            primary_key="id",
            columns={"gone": {"hard_delete": True}},
        )
        pipeline.run(resource).raise_on_failed_jobs()


LOADS: dict[str, Callable[[Sequence[Window], Path], None]] = {"ours": load_ours, "plain": load_plain, "dlt": load_dlt}
SCHEMAS = {"ours": "bench.", "plain": "", "dlt": "bench."}


def timed(way: str, windows: Sequence[Window]) -> float:
    """Seconds a window: all but the first, which brings the rows that are there before, and is not timed."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"{way}.duckdb"
        LOADS[way](windows[:1], path)
        began = time.perf_counter()
        LOADS[way](windows[1:], path)
        seconds = time.perf_counter() - began
        with duckdb.connect(str(path), read_only=True) as connection:
            found = connection.execute(f"SELECT id, name__v FROM {SCHEMAS[way]}{TABLE.name}").fetchall()
    check(way, windows, found)
    return seconds / (len(windows) - 1)


def check(way: str, windows: Sequence[Window], found: Sequence[tuple[Any, ...]]) -> None:
    """Compares the ids and names that a way ended with to those after the last window."""
    expected = {row_id(number): f"Product {number}, version {version}" for number, version in windows[-1].after.items()}
    assert len(found) == len(expected), f"{way} has {len(found)} rows instead of {len(expected)}"
    assert dict(found) == expected, f"{way} has other rows than it should"


def main() -> None:
    parser = arguments(__doc__, 3, "2,200 changes a window onto 200,000 rows")
    parser.add_argument("--windows", type=int, default=24, help="windows to apply (24)")
    parser.add_argument("--dlt-windows", type=int, default=4, help="of these, how many dlt applies (4)")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"  # telemetry would leave the machine and distort the times
    with tempfile.TemporaryDirectory() as directory:
        windows = list(make_windows(Path(directory), int(ROWS * options.scale), options.scale, options.windows))
        changes = windows[1].listing.rows(TABLE.name) + windows[1].listing.rows(GONE.name)
        print(f"{options.windows} windows, {changes:,} changes each, onto {windows[0].listing.lines:,} rows; seconds a window")
        print(f"dlt: the first {options.dlt_windows} windows")
        few = windows[: options.dlt_windows + 1]
        ways = {way: partial(timed, way, few if way == "dlt" else windows) for way in LOADS}
        seconds = interleaved(ways, options.repeats)
    print_medians(seconds)
    for peer, goal in GOALS.items():
        print_ratio("a window", seconds, "ours", peer, goal)


if __name__ == "__main__":
    main()
