"""A small dataset, `shop`, of real Parquet files: what the warehouse's tests load."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from manifest_platform import failpoints, storage
from manifest_platform.listing import Column, Listing, ShreddedObject, Table
from manifest_platform.warehouse.apply import Full, Load, Warehouse
from manifest_platform.warehouse.engines.duckdb import DuckDB

FEED = "enriched"
Rows = list[dict[str, Any]]
EVENTS = Table("events", (Column("event_id", "string"), Column("amount", "integer"), Column("at", "timestamp")))
ARROW = {
    "boolean": pa.bool_(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us"),
    "date": pa.date32(),
}


def written(
    directory: Path, item: str, tables: Sequence[tuple[Table, Rows | None]], *, files: int = 1, reverse: bool = False
) -> Listing:
    """Writes each table's rows to that many objects, if asked with the columns in reverse order; returns the listing.

    None for rows: the table's columns alone, without an object.
    """
    objects = []
    for table, rows in tables:
        for number in range(files if rows is not None else 0):
            assert rows is not None
            some = rows[number::files]
            columns = table.columns[::-1] if reverse else table.columns
            schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])
            path = directory / item / table.name / "date=2024-05-01" / f"{number}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pa.parquet.write_table(pa.Table.from_pylist(some, schema=schema), path)
            objects.append(ShreddedObject(table.name, "2024-05-01", storage.as_uri(path), len(some), path.stat().st_size))
    lines = len(tables[0][1] or []) if tables else 0
    return Listing(item, "1", lines, lines, 0, tuple(table for table, _ in tables), tuple(objects))


def arrow_type(logical: str) -> pa.DataType:
    if logical.startswith("decimal"):
        precision, scale = logical.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    return ARROW.get(logical, pa.string())


def events(directory: Path, item: str, count: int = 3, **options: Any) -> Listing:
    return written(directory, item, [(EVENTS, [{"event_id": f"{item}-{n}", "amount": n} for n in range(count)])], **options)


def load(listing: Listing, position: str | None = None, **changes: Any) -> Load:
    given: dict[str, Any] = {
        "item": listing.item,
        "feed": FEED,
        "position": position or listing.item,
        "epoch": 1,
        "serving_epoch": 1,
        "token": 1,
        "record_id": f"record-{listing.item}",
        "checksum": f"sum-{listing.item}",
        "listing": listing,
    }
    return Load(**{**given, **changes})


class Recording(DuckDB):
    """DuckDB that remembers the statements it ran."""

    def __init__(self, path: Path, patience: float = 1.0) -> None:
        super().__init__(path, patience)
        self.statements: list[str] = []

    def execute(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        self.statements.append(sql)
        return super().execute(sql, parameters)


def seen(path: Path) -> dict[str, Any]:
    """What a reader finds: rows of `events`, the fence's (token, epoch, applied), the ledger's (item, epoch, late)."""
    engine = DuckDB(path)
    try:
        has_events = "events" in engine.columns("shop")
        return {
            "events": engine.execute(f"SELECT count(*) FROM {engine.qualified('shop', 'events')}")[0][0] if has_events else 0,
            "fence": engine.execute(
                f"SELECT token, epoch, applied FROM {engine.qualified('manifest_platform', 'fence')} WHERE feed = ?", (FEED,)
            )[0],
            "ledger": engine.execute(
                f"SELECT item, epoch, late FROM {engine.qualified('manifest_platform', 'ledger')} ORDER BY applied_at"
            ),
        }
    finally:
        engine.close()


def process(directory: Path, path: Path, wanted: Load, failpoint: str) -> subprocess.Popen[str]:
    """Another process that applies a load and reaches a failpoint on its way."""
    wanted.listing.write(storage.as_uri(directory / "listing.json"))
    given = {**asdict(wanted), "listing": storage.as_uri(directory / "listing.json")}
    return subprocess.Popen(
        [sys.executable, "-m", __name__, str(path), json.dumps(given)],
        env={"PATH": "", failpoints.VARIABLE: failpoint},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def main(path: str, text: str) -> None:
    given: dict[str, Any] = json.loads(text)
    given["listing"] = Listing.read(given["listing"])
    if full := given["full"]:
        given["full"] = Full(full["boundary"], tuple(full["covers"]), tuple(full["feeds"]), tuple(full["keeps"]))
    warehouse = Warehouse(DuckDB(path, patience=5), "shop")
    print(type(warehouse.apply(Load(**given))).__name__)  # noqa: T201
    warehouse.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
