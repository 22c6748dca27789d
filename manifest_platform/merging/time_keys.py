"""What rows are ordered by: their times as integers.

Belongs here: keys, their bounds in a file's statistics, and back from a key to a time. Rows without a time have the key LAST.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manifest_platform.merging.errors import SchemaConflict
from manifest_platform.merging.sorting import LAST, Array

FIRST = int(np.iinfo(np.int64).min)

_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_EPOCH = datetime(1970, 1, 1)  # naive, as the UTC times of our files are


def time_type(table: str, column: str | None, schema: pa.Schema, uri: str) -> pa.DataType | None:
    """The type of the time column; None where there is none to order by. Raises SchemaConflict, with the `uri` of an input."""
    if column is None:
        return None
    place = schema.get_field_index(column)
    if place < 0:
        raise SchemaConflict(f"table {table}: no object has the time column {column}; correct its configuration")
    kind = schema.field(place).type
    if not (pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
        raise SchemaConflict(
            f"table {table}, column {column}: rows are ordered by a timestamp or a date, and it is {kind} in "
            f"{uri}; correct the table's configuration"
        )
    return kind


def key_bounds(group: pq.RowGroupMetaData, column: int | None) -> tuple[int, int]:
    """Bounds of the keys of a row group by its statistics: the widest where these say nothing."""
    if column is None:
        return LAST, LAST
    statistics = group.column(column).statistics if column >= 0 else None
    if statistics is None:
        return FIRST, LAST
    if statistics.has_null_count and statistics.null_count == group.num_rows:
        return LAST, LAST
    if not statistics.has_min_max:
        return FIRST, LAST
    full = statistics.has_null_count and not statistics.null_count
    return statistics.min_raw, statistics.max_raw if full else LAST


def in_order(keys: Array) -> bool:
    """Whether keys ascend, or stay."""
    return bool(np.all(keys[1:] >= keys[:-1]))


def ends(keys: Array) -> tuple[int, int]:
    """The first and the last key of rows that have a time; the first is behind the last where none has."""
    timed = keys[keys != LAST]
    return (int(timed.min()), int(timed.max())) if len(timed) else (LAST, FIRST)


def to_microseconds(key: int, kind: pa.DataType | None) -> int:
    """A key as microseconds since 1970."""
    if kind is None or pa.types.is_date32(kind):
        return key * 86_400_000_000
    return key // 1000 if kind.unit == "ns" else key * _MICROSECONDS[kind.unit]


def iso(key: int, kind: pa.DataType | None) -> str | None:
    """The time of a sort key as ISO 8601, UTC; None for the keys of rows that have no time."""
    if kind is None or key in (LAST, FIRST):
        return None
    moment = _EPOCH + timedelta(microseconds=to_microseconds(key, kind))
    return f"{moment.isoformat(timespec='microseconds')}Z"
