"""Events and metadata of items: a partition, and numbers that Dagster plots (rows, bytes, seconds, lag, requests)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

import dagster as dg

from manifest_platform.listing import Table
from manifest_platform.manifest import Item, Landed, Record, Standing, StepState, Survey
from manifest_platform.orchestration.events import materialization
from manifest_platform.orchestration.keys import Names
from manifest_platform.orchestration.translator import table_metadata
from manifest_platform.pipeline import DrainReport, Loaded, Shredded


def landed_event(names: Names, landed: Landed) -> dg.AssetMaterialization:
    """Returns the event of a landed directory."""
    metadata = {
        "bytes": landed.bytes,
        "files": landed.files,
        "dagster/uri": landed.key.id,
        "checksum": landed.checksum,
        **({"start": landed.start or "", "stop": landed.stop} if landed.stop else {}),
    }
    return materialization(names.landed(landed.key.feed), partition=landed.key.name, metadata=metadata)


def shredded_event(names: Names, event: Shredded) -> dg.AssetMaterialization:
    """Returns the event of a shredded item. `seconds` is an equal share of the batch's time, because one job shreds a batch."""
    listing = event.listing
    metadata = {
        "dagster/partition_row_count": listing.good,
        "lines": listing.lines,
        "good": listing.good,
        "bad": listing.bad,
        **_duplicates(asdict(listing.duplicates)),
        **({"remarks": "\n".join(listing.remarks)} if listing.remarks else {}),
        "bytes_read": event.bytes_in,
        "bytes_written": listing.bytes,
        "objects": len(listing.objects),
        **({} if event.already else {"seconds": round(event.seconds / event.batch, 3), "requests": event.requests}),
        "already": event.already,
    }
    return materialization(names.shredded(event.key.feed), partition=event.key.name, metadata=metadata, version=listing.attempt)


def _duplicates(counts: Mapping[str, int]) -> dict[str, int]:
    """Returns the numbers of duplicates by kind, without zeros, which every source without duplicates would show."""
    return {f"{kind}_duplicates": count for kind, count in counts.items() if count}


def shredded_before_event(names: Names, item: Item, record: Record) -> dg.AssetMaterialization:
    """Returns the event of an item that was shredded outside Dagster, from its record alone: its files may be gone by now."""
    metadata = {
        "dagster/partition_row_count": record.data["good"],
        "lines": record.data["lines"],
        "good": record.data["good"],
        "bad": record.data["bad"],
        **_duplicates(record.data.get("duplicates", {})),
        "bytes_read": item.landed.bytes if item.landed else 0,
        "bytes_written": record.data["bytes"],
        "already": True,
    }
    return materialization(names.shredded(item.key.feed), partition=item.key.name, metadata=metadata, version=record.previous)


def loaded_event(names: Names, event: Loaded) -> dg.AssetMaterialization:
    """Returns the event of a loaded item. Seconds, lag and requests are those of the load, as far as known."""
    measured = {"seconds": round(event.seconds, 3), "lag_seconds": round(event.lag_seconds, 1)}
    metadata = {
        "dagster/partition_row_count": event.row_count,
        "rows": event.row_count,
        **({names.main_table: event.rows[names.main_table]} if names.main_table in event.rows else {}),
        "bytes": event.bytes,
        **(measured if event.seconds or not event.already else {}),
        **({} if event.already else {"requests": event.requests}),
        "late": event.late,
        "epoch": event.epoch,
        "already": event.already,
        **({"told": "\n".join(event.told)} if event.told else {}),
        "rows_by_table": counts("table", {"rows": event.rows}),
    }
    return materialization(
        names.warehouse(event.key.feed), partition=event.key.name, metadata=metadata, version=f"epoch {event.epoch}"
    )


def table_events(
    names: Names, loaded: list[Loaded], held: Mapping[str, int] | None = None
) -> Iterator[dg.AssetMaterialization]:
    """Yields an event for each table that the loads reached: columns, rows of each partition, and the row count if known."""
    tables: dict[str, Table] = {table.name: table for event in loaded for table in event.tables if table.mode != "delete"}
    for name, table in sorted(tables.items()):
        rows = {event.key.name: event.rows.get(name, 0) for event in loaded}
        metadata = {
            **({"dagster/row_count": held[name]} if held and name in held else {}),
            "rows_loaded": sum(rows.values()),
            "rows_by_partition": counts("partition", {"rows": rows}),
            **table_metadata(names.schema, table),
        }
        yield materialization(names.table(name), metadata=metadata)


def counts(of: str, columns: Mapping[str, Mapping[str, int]]) -> dg.MetadataValue:
    """Returns a table of counts with a line for each name in any column. The schema is explicit, for a table without lines."""
    names = sorted({name for column in columns.values() for name in column})
    lines = [dg.TableRecord({of: name, **{title: column.get(name, 0) for title, column in columns.items()}}) for name in names]
    schema = dg.TableSchema([dg.TableColumn(of, "string"), *(dg.TableColumn(title, "int") for title in columns)])
    return dg.MetadataValue.table(lines, schema)


def drain_metadata(report: DrainReport, command: str) -> Mapping[str, dg.MetadataValue | str | int | float]:
    """The totals of a drain, the reason why it stopped, and the command that helps."""
    return {
        "stop": str(report.stop),
        **{f"stop_{end.feed}": str(end.stop) for end in report.ends if len(report.ends) > 1},
        "item": report.item or "",
        "reason": report.reason,
        "command": command,
        "shredded": report.shredded,
        "loaded": report.loaded,
        "failed": report.failed,
        "put_back": report.put_back,
        "rows": report.rows,
        "bytes": report.bytes,
        "seconds": round(report.seconds, 3),
        "requests": report.requests,
    }


def backlog_metadata(survey: Survey, lag_seconds: float) -> dict[str, dg.MetadataValue | str | int | float]:
    """The size of a feed's backlog by standing, its watermark and its lag. `more`: the backlog is longer than was counted."""
    counts = {f"backlog_{standing}": survey.counts.get(standing, 0) for standing in Standing if standing in survey.counts}
    feed = survey.state.feed(survey.feed)
    return {
        "backlog": sum(survey.counts.values()),
        "more": survey.more,
        **counts,
        "lag_seconds": round(lag_seconds, 1),
        "watermark": feed.watermark.partition("#")[0],
        "applied": feed.applied,
        **state_metadata(survey.state),
    }


def state_metadata(state: StepState) -> dict[str, dg.MetadataValue | str | int | float]:
    """The state of a dataset: mode, epoch, and the boundary of the last loaded snapshot."""
    return {"mode": str(state.mode), "epoch": state.epoch, **({"boundary": state.boundary} if state.boundary else {})}
