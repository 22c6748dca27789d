"""Small loads of real Parquet files, and queries of a warehouse's state, for the contract suite of engines.

A shop appends events. A vault has windows that merge and delete by key, days of logs, and snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from manifest_platform import packs, storage
from manifest_platform.column_types import arrow_type
from manifest_platform.listing import Column, Listing, Pack, Retired, ShreddedObject, Table
from manifest_platform.warehouse.apply import Full, Load
from manifest_platform.warehouse.control_table import ControlTable
from manifest_platform.warehouse.engines.engine import Engine

SCHEMA = "shop"
"""The dataset of all loads, and its schema."""
FEED = "enriched"
EVENTS = Table("events", (Column("event_id", "string"), Column("amount", "integer"), Column("at", "timestamp")), load_time=True)
Rows = list[dict[str, Any]]

INCR, LOG, FULL = "incr", "log", "full"
FEEDS = (INCR, LOG, FULL)
PRODUCT = Table("product__v", (Column("id", "string"), Column("name__v", "string")), "merge", ("id",))
SITE = Table("site__v", (Column("id", "string"), Column("city__c", "string")), "merge", ("id",))
PICKLIST = Table(
    "picklist__sys",
    (Column("object", "string"), Column("object_field", "string"), Column("label", "string")),
    "merge",
    ("object", "object_field"),
)
AUDIT = Table("system_audit_trail__sys", (Column("id", "string"), Column("action", "string")))


def written(
    directory: Path | str, item: str, tables: Sequence[tuple[Table, Rows | None]], *, files: int = 1, reverse: bool = False
) -> Listing:
    """Writes the rows of each table, divided into `files` Parquet files, and returns the listing.

    `directory`: a local directory, or a prefix of a bucket. `reverse`: reverses the order of columns.

    If a table's rows are None, the listing has the table's columns and no object.
    """
    objects = []
    for table, rows in tables:
        for number in range(files if rows is not None else 0):
            assert rows is not None
            some = rows[number::files]
            columns = table.columns[::-1] if reverse else table.columns
            schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])
            uri = _within(directory, item, table.name, "date=2024-05-01", f"{number}.parquet")
            sink = pa.BufferOutputStream()
            pa.parquet.write_table(pa.Table.from_pylist(some, schema=schema), sink)
            data = sink.getvalue().to_pybytes()
            storage.write_bytes(uri, data)
            objects.append(ShreddedObject(table.name, "2024-05-01", uri, len(some), len(data)))
    lines = len(tables[0][1] or []) if tables else 0
    return Listing(item, "1", lines, lines, 0, tuple(table for table, _ in tables), tuple(objects))


def _within(directory: Path | str, *parts: str) -> str:
    """Returns the URI of a file in a local directory, or under a prefix of a bucket."""
    is_bucket = isinstance(directory, str) and directory.startswith("s3://")
    return "/".join((str(directory), *parts)) if is_bucket else storage.as_uri(Path(directory).joinpath(*parts))


def events(directory: Path | str, item: str, count: int = 3, **options: Any) -> Listing:
    """Returns the listing of a run with `count` events."""
    return written(directory, item, [(EVENTS, [{"event_id": f"{item}-{n}", "amount": n} for n in range(count)])], **options)


def packed(listing: Listing) -> Listing:
    """Returns the listing with its objects in a pack, and deletes their files."""
    pack = f"{listing.objects[0].uri.rsplit('/', 3)[0]}/00000-000{packs.SUFFIX}"
    objects = tuple(replace(one, pack=pack) for one in listing.objects)
    data = packs.packed({packs.member_of(one): storage.read_bytes(one.uri) for one in objects})
    storage.write_bytes(pack, data)
    for one in objects:
        storage.local_path(one.uri).unlink()
    return replace(listing, objects=objects, packs=(Pack(pack, len(data), storage.checksum(data)),))


def load(listing: Listing, position: str | None = None, **changes: Any) -> Load:
    """Returns a load of an item. Its position is the item's name by default."""
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


def deletes(of: Table) -> Table:
    """Returns the table of a table's deletes: its key, and the time of the deletion."""
    columns = tuple(column for column in of.columns if column.name in of.key)
    return Table(f"{of.name}_deletes", (*columns, Column("deleted_date", "timestamp")), "delete", of.key, of.name)


def more(of: Table, *columns: str) -> Table:
    """Returns a table with additional text columns."""
    return replace(of, columns=(*of.columns, *(Column(name, "string") for name in columns)))


def products(**names: str | None) -> tuple[Table, Rows]:
    """Returns the products of a window, by id."""
    return PRODUCT, [{"id": id_, "name__v": name} for id_, name in names.items()]


def gone(of: Table, *keys: str | tuple[object, ...]) -> tuple[Table, Rows]:
    """Returns rows that delete these keys."""
    parts = [(key,) if isinstance(key, str) else key for key in keys]
    return deletes(of), [dict(zip(of.key, part, strict=True)) for part in parts]


def window(
    directory: Path | str, stop: str, *tables: tuple[Table, Rows | None], retired: Sequence[Retired] = (), **changes: Any
) -> Load:
    """Returns a window of changes up to a stop time."""
    listing = replace(written(directory, f"incr-{stop}", tables), retired=tuple(retired))
    return load(listing, position=stop, **{"feed": INCR, **changes})


def day(directory: Path | str, stop: str, *ids: str, **changes: Any) -> Load:
    """Returns a day of logs."""
    listing = written(directory, f"log-{stop}", [(AUDIT, [{"id": id_, "action": "login"} for id_ in ids])])
    return load(listing, position=stop, **{"feed": LOG, **changes})


def snapshot(
    directory: Path | str,
    stop: str,
    *tables: tuple[Table, Rows | None],
    epoch: int = 2,
    keeps: tuple[str, ...] = (),
    **changes: Any,
) -> Load:
    """Returns a snapshot as of a stop time. It contains tables completely, except those in `keeps`."""
    whole = [(table if table.name in keeps else replace(table, mode="replace"), rows) for table, rows in tables]
    listing = written(directory, f"full-{stop}", whole)
    return full_load(listing, stop, epoch, keeps, **changes)


def full_load(listing: Listing, stop: str, epoch: int = 2, keeps: tuple[str, ...] = (), **changes: Any) -> Load:
    """Returns the load of a snapshot with this listing, as of a stop time."""
    wanted = {"feed": FULL, "epoch": epoch, "serving_epoch": epoch, "full": Full(stop, (INCR,), FEEDS, keeps)}
    return load(listing, position=stop, **{**wanted, **changes})


def rows_of(engine: Engine, table: Table | str, columns: str = "*") -> list[tuple[Any, ...]]:
    """Returns the rows of a table, sorted, nulls last."""
    name = table if isinstance(table, str) else table.name
    found = engine.execute(f"SELECT {columns} FROM {engine.qualified(SCHEMA, name)}")
    return sorted(found, key=lambda row: [(value is None, value) for value in row])


def names_of(engine: Engine) -> Mapping[str, str | None]:
    """Returns the products' names by id."""
    return dict(rows_of(engine, PRODUCT, "id, name__v"))


def control(engine: Engine, table: str) -> str:
    """Returns the qualified name of a control table of the dataset."""
    return ControlTable(engine, table, SCHEMA, {}).qualified


def fences(engine: Engine) -> dict[str, tuple[int, int, str]]:
    """Returns each feed's token, epoch and applied position."""
    found = engine.execute(f"SELECT feed, token, epoch, applied FROM {control(engine, 'fence')}")
    return {feed: (token, epoch, applied) for feed, token, epoch, applied in found}


def ledger(engine: Engine) -> list[tuple[str, int]]:
    """Returns the applied items with their epochs, in the order of the loads."""
    return engine.execute(f"SELECT item, epoch FROM {control(engine, 'ledger')} ORDER BY applied_at")


def content(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    """Returns all rows of all tables in the data schema."""
    return {table: rows_of(engine, table) for table in sorted(engine.columns(SCHEMA))}
