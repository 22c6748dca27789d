"""Checksums that do not depend on the order of rows, to compare the rows written with the rows read.

Belongs here: counting. `kernel` decides what follows from a difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from manifest_platform.merging.sorting import LAST, Array
from manifest_platform.merging.time_keys import FIRST, ends

pc: Any = pyarrow.compute  # its functions are created at run time, so type checkers do not know them

_WRAP = 1 << 64  # sums are compared modulo 2**64
_INTEGERS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


@dataclass
class Tally:
    """Row count, null count and sum of each column, and the smallest and largest key: equal for the same rows in any order."""

    nulls: Array
    sums: Array
    rows: int = 0
    least: int = LAST
    most: int = FIRST

    @classmethod
    def none(cls, columns: int) -> Tally:
        """The tally of no rows."""
        return cls(np.zeros(columns, np.int64), np.zeros(columns, np.uint64))

    @classmethod
    def of(cls, rows: pa.Table, keys: Array | None) -> Tally:
        """The tally of these rows and their keys; `keys` is None if the rows have no times."""
        nulls = np.array([column.null_count for column in rows.columns], np.int64)
        sums = np.array([column_sum(column) for column in rows.columns], np.uint64)
        least, most = (LAST, FIRST) if keys is None else ends(keys)
        return cls(nulls, sums, rows.num_rows, least, most)

    def add(self, other: Tally) -> None:
        """Adds the tally of other rows."""
        self.rows += other.rows
        self.nulls = self.nulls + other.nulls
        self.sums = self.sums + other.sums
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)


def column_sum(column: pa.ChunkedArray) -> int:
    """The sum of a column's values modulo 2**64. For strings, the sum of their lengths; 0 for a type without a sum."""
    if column.null_count == len(column):
        return 0
    kind = column.type
    if isinstance(kind, pa.DictionaryType):
        lengths = [pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() for chunk in column.chunks]
        return sum(length for length in lengths if length is not None) % _WRAP
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        total = pc.sum(pc.binary_length(column))
    elif pa.types.is_boolean(kind):
        total = pc.sum(column)
    elif pa.types.is_decimal(kind):
        return sum(_decimal_sum(chunk) for chunk in column.chunks) % _WRAP
    elif pa.types.is_primitive(kind) and kind.bit_width in (8, 16, 32, 64):
        # Sums of the bits as integers do not depend on the order; sums of floating-point numbers do.
        parts = [pc.sum(chunk.view(_INTEGERS[kind.bit_width])).as_py() for chunk in column.chunks]
        return sum(part for part in parts if part is not None) % _WRAP
    else:
        return 0
    return total.as_py() % _WRAP


def _decimal_sum(values: pa.Array) -> int:
    """The sum of the unscaled decimals, using the low 64 bits of each: exact modulo 2**64 for every width."""
    given = values.drop_null()
    if not len(given):
        return 0
    width = given.type.bit_width // 8
    end = given.offset + len(given)
    words = np.frombuffer(given.buffers()[1], np.int32 if width == 4 else np.int64, end * max(1, width // 8))
    return int(words.reshape(end, -1)[given.offset :, 0].sum(dtype=np.int64))
