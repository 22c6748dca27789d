"""Runs as Snowplow's transformer writes them, made for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
from pyarrow import parquet

from manifest_platform.listing import Column
from manifest_platform.shred.rows import arrow_schema
from manifest_platform.sources.snowplow.events.atomic import EVENTS
from manifest_platform.sources.snowplow.fields import FIELDS
from manifest_platform.sources.snowplow.recognition import SEAL
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey
from manifest_platform_tests.sources.snowplow.given import CLICK, EVENT_ID, enriched

COLLECTED = "2024-03-05 10:11:12.345"
CLICK_TSV = ("http://acme", "\\N", "2024-03-05", '["a","b"]', "1", "1.5", "7", "\\N")
"""The columns of a click after the hierarchy: the required one, and then the others by name."""


def event(number: int = 0, **fields: str) -> str:
    """Returns an event as the transformer writes it: without the three JSON fields."""
    values = enriched(event_id=event_id(number), **fields).decode().split("\t")
    return "\t".join(value for value, field in zip(values, FIELDS, strict=True) if not field.is_json)


def event_id(number: int) -> str:
    return f"{EVENT_ID[:-4]}{number:04x}"


def row(schema: str, values: Sequence[str], number: int = 0) -> str:
    """Returns the row of an entity: the hierarchy columns, and these."""
    key = SchemaKey.parse(schema)
    hierarchy = (
        key.vendor,
        key.name,
        key.format,
        key.version,
        event_id(number),
        COLLECTED,
        "events",
        f'["events","{key.name}"]',
    )
    return "\t".join((*hierarchy, "events", *values))


def seal(good: int | None, types: Mapping[str, str] | Sequence[str] = (), **changed: Any) -> dict[str, Any]:
    """Returns a seal. `types`: the entity of each schema; for SHREDDED, all are TSV."""
    named = [{"schemaKey": key, "format": "TSV", "snowplowEntity": "CONTEXT"} for key in types]
    data = {
        "base": "s3://bucket/transformed/run=2024-03-05-10-00-00/",
        "typesInfo": {"transformation": "SHREDDED", "types": named},
        "timestamps": {
            "jobStarted": "2024-03-05T10:30:00Z",
            "jobCompleted": "2024-03-05T10:31:00Z",
            "min": "2024-03-05T10:11:12.345Z",
            "max": "2024-03-05T10:11:12.345Z",
        },
        "compression": "NONE",
        "processor": {"artifact": "snowplow-transformer-batch", "version": "5.6.3"},
        "count": None if good is None else {"good": good, "bad": 0},
        **changed,
    }
    return {
        "schema": "iglu:com.snowplowanalytics.snowplow.storage.rdbloader/shredding_complete/jsonschema/2-0-1",
        "data": data,
    }


def wide_seal(good: int, file_format: str = "PARQUET") -> dict[str, Any]:
    return seal(good, typesInfo={"transformation": "WIDEROW", "fileFormat": file_format, "types": []})


def land(run: Path, files: Mapping[str, Sequence[str]], sealed: Mapping[str, Any] | None) -> Path:
    """Writes a run: its files of lines by path, then its seal."""
    for path, lines in files.items():
        file = run / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{line}\n" for line in lines))
    run.mkdir(parents=True, exist_ok=True)
    if sealed is not None:
        (run / SEAL).write_bytes(orjson.dumps(sealed))
    return run


def folder(schema: str, exact: bool = False) -> str:
    """Returns the path of a file of a type."""
    key = SchemaKey.parse(schema)
    version = f"/revision={key.revision}/addition={key.addition}" if exact else ""
    return f"output=good/vendor={key.vendor}/name={key.name}/format=tsv/model={key.model}{version}/part-00000"


ATOMIC_FILE = "output=good/vendor=com.snowplowanalytics.snowplow/name=atomic/format=tsv/model=1/part-00000"


def land_clicks(root: Path, name: str, count: int = 3) -> Path:
    """Writes a run of events, each with a click."""
    files = {
        ATOMIC_FILE: [event(number) for number in range(count)],
        folder(CLICK): [row(CLICK, CLICK_TSV, number) for number in range(count)],
        "output=bad/vendor=com.snowplowanalytics.snowplow.badrows/name=loader_parsing_error/format=json/model=2/part-0": ["{}"],
    }
    return land(root / name, files, seal(count, [CLICK]))


def wide_table(entities: Mapping[str, pa.Array], count: int, **values: Any) -> pa.Table:
    """Returns wide rows with these columns of entities."""
    columns: list[Column] = list(EVENTS.columns)
    given: dict[str, Any] = {"v_collector": "ssc", "v_etl": "enrich", **values}
    arrays: list[pa.Array] = []
    for column, field in zip(columns, arrow_schema(columns), strict=True):
        if column.name == "event_id":
            arrays.append(pa.array([event_id(number) for number in range(count)]))
        elif column.name == "collector_tstamp":
            arrays.append(pa.array(["2024-03-05T10:11:12.345"] * count).cast(field.type))
        else:
            arrays.append(pa.array([given.get(column.name)] * count, field.type))
    return pa.Table.from_arrays([*arrays, *entities.values()], names=[*(column.name for column in columns), *entities])


def land_wide(root: Path, name: str, table: pa.Table) -> Path:
    """Writes a run of wide rows in Parquet."""
    run = root / name
    (run / "output=good").mkdir(parents=True)
    parquet.write_table(table, run / "output=good" / "part-00000.parquet")
    return land(run, {}, wide_seal(table.num_rows))
