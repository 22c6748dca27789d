"""Snowplow's own loader, as the former loader of a dataset's tables: its table `manifest` in the schema `atomic`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from manifest_platform.listing import Table
from manifest_platform.sources.cutover import FormerLoader, FormerRun, FormerRuns
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey
from manifest_platform.sources.snowplow.settings import EVENTS_TABLE
from manifest_platform.warehouse.load import About

_NEEDED = ("base", "ingestion_tstamp")


class SnowplowLoader(FormerLoader):
    """The loader of shredded runs. Its releases from 1.0 on note each run as a row of `manifest`, in the load's transaction."""

    name = "Snowplow's loader"
    author = "snowplow-rdb-loader"
    schema = "atomic"
    table = "manifest"
    order = "ingestion_tstamp"

    @property
    def main_table(self) -> Table:
        """The table of events."""
        from manifest_platform.sources.snowplow.events.atomic import EVENTS

        return EVENTS

    def runs(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> FormerRuns:
        """Reads the rows of `manifest`. Columns that came with later releases may be missing."""
        names = [name.lower() for name in columns]
        if missing := [name for name in _NEEDED if name not in names]:
            raise ValueError(f"the table {self.table} has no column {missing[0]}, so it is not that of {self.name}")
        found: list[FormerRun] = []
        problems: list[str] = []
        for row in rows:
            values = dict(zip(names, row, strict=True))
            try:
                found.append(_run(values))
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                problems.append(f"{values['base']!r}: {error}")
        return FormerRuns(tuple(sorted(found, key=lambda run: run.loaded_at)), tuple(problems))

    def identity(self, table: str) -> str:
        """Returns the column with the id of the event."""
        return "event_id" if table == EVENTS_TABLE else "root_id"


def _run(row: Mapping[str, Any]) -> FormerRun:
    place, at, count = row["base"], row["ingestion_tstamp"], row.get("count_good")
    if not isinstance(place, str) or not place.strip("/"):
        raise ValueError("base is not the URI of a folder")
    if not isinstance(at, datetime):
        raise ValueError(f"ingestion_tstamp is {at!r}")
    rows, types = None if count is None else int(count), row.get("types")
    return FormerRun(place.rstrip("/"), _utc(at), rows, _types(types), _about(row, rows, types))


def _utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _about(row: Mapping[str, Any], rows: int | None, types: Any) -> About:
    def time(name: str) -> datetime | None:
        value = row.get(name)
        return _utc(value) if isinstance(value, datetime) else None

    return About(
        started=time("shredding_started"),
        completed=time("shredding_completed"),
        processor=row.get("processor_artifact"),
        release=row.get("processor_version"),
        compression=row.get("compression"),
        first_time=time("min_collector_tstamp"),
        last_time=time("max_collector_tstamp"),
        good=rows,
        types=types if isinstance(types, str) else None if types is None else orjson.dumps(types).decode(),
    )


def _types(text: Any) -> tuple[str, ...]:
    """Returns the schemas that a run's row names. The column holds JSON text, or what a driver made of it."""
    data = orjson.loads(text) if isinstance(text, str | bytes) and text else text or []
    keys = {str(SchemaKey.parse(one["schemaKey"] if isinstance(one, dict) else one)) for one in data}
    return tuple(sorted(keys))
