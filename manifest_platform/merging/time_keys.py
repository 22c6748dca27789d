"""Integer sort keys made from the times of rows.

Belongs here: keys, their bounds in Parquet statistics, and the conversion of a key to a time.
The key of a row without a time is LAST.
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
_EPOCH = datetime(1970, 1, 1)  # naive, because the times in our files are UTC without a zone


def time_type(table: str, column: str | None, schema: pa.Schema, uri: str) -> pa.DataType | None:
    """The type of the time column, or None if the table has none.

    Raises SchemaConflict if no object has the column, or it is neither a timestamp nor a date. `uri` names an input in the
    message.
    """
    if column is None:
        return None
    place = schema.get_field_index(column)
    if place < 0:
        raise SchemaConflict(f"table {table}: no object has the time column {column}; correct its configuration")
    kind = schema.field(place).type
    if not (pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
        raise SchemaConflict(
            f"table {table}, column {column}: the time column must be a timestamp or a date, but it is {kind} in "
            f"{uri}; correct the table's configuration"
        )
    return kind


def key_bounds(group: pq.RowGroupMetaData, column: int | None) -> tuple[int, int]:
    """Lower and upper bound of the keys in a row group, from its statistics. Without statistics: (FIRST, LAST)."""
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
    """True if no key is smaller than the key before it."""
    return bool(np.all(keys[1:] >= keys[:-1]))


def ends(keys: Array) -> tuple[int, int]:
    """The smallest and the largest key of the rows that have a time; (LAST, FIRST) if no row has a time."""
    timed = keys[keys != LAST]
    return (int(timed.min()), int(timed.max())) if len(timed) else (LAST, FIRST)


def to_microseconds(key: int, kind: pa.DataType | None) -> int:
    """Converts a key to microseconds since 1970. The key of a date is in days."""
    if kind is None or pa.types.is_date32(kind):
        return key * 86_400_000_000
    return key // 1000 if kind.unit == "ns" else key * _MICROSECONDS[kind.unit]


def iso(key: int, kind: pa.DataType | None) -> str | None:
    """The time of a key in ISO 8601, UTC; None if there is no time column, or the key is FIRST or LAST."""
    if kind is None or key in (LAST, FIRST):
        return None
    moment = _EPOCH + timedelta(microseconds=to_microseconds(key, kind))
    return f"{moment.isoformat(timespec='microseconds')}Z"
