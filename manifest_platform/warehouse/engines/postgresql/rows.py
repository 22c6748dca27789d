"""Rows of an Arrow batch in the binary format of COPY, encoded column by column instead of row by row.

Each column becomes an array of its fields as COPY wants them: four bytes of length, then the value in network order; length -1
for a missing value. Arrow then joins these arrays row by row, and the bytes of the joined array are the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"
_MISSING = b"\xff\xff\xff\xff"
_EPOCH_DAYS = 10_957  # from 1970 to 2000, where PostgreSQL counts from
_EPOCH_MICROSECONDS = _EPOCH_DAYS * 86_400_000_000
_BASE = 10_000  # of the digits of a numeric
_LIMBS = 5  # of 32 bits: a decimal of 38 digits, and three zeros


def encoded(batch: pa.RecordBatch) -> memoryview:
    """Returns the rows of a batch, without header and trailer of the stream. Its types are those of `arrow_type`."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(batch):
        return memoryview(b"")
    if not batch.num_columns:
        return memoryview(b"\0\0" * len(batch))
    count = pa.scalar(batch.num_columns.to_bytes(2, "big"), pa.large_binary())
    pieces = list(_joined(piece for column in batch.columns for piece in _fields(column)))
    joined = pc.call_function("binary_join_element_wise", [count, *pieces, pa.scalar(b"", pa.large_binary())])
    if isinstance(joined, pa.Scalar):  # no column has a value
        return memoryview(joined.as_py() * len(batch))
    offsets = np.frombuffer(joined.buffers()[1], np.int64)
    return memoryview(joined.buffers()[2])[offsets[joined.offset] : offsets[joined.offset + len(joined)]]


def _joined(pieces: Iterable[pa.Array | pa.Scalar]) -> Iterator[pa.Array | pa.Scalar]:
    """Yields pieces, those that are the same in each row and follow each other as one."""
    import pyarrow as pa

    same = b""
    for piece in pieces:
        if isinstance(piece, pa.Scalar):
            same += piece.as_py()
            continue
        if same:
            yield pa.scalar(same, pa.large_binary())
            same = b""
        yield piece
    if same:
        yield pa.scalar(same, pa.large_binary())


def _fields(column: pa.Array) -> list[pa.Array | pa.Scalar]:
    """Returns the fields of a column, in one or two pieces each."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.null_count == len(column):  # most columns of an event
        return [pa.scalar(_MISSING, pa.large_binary())]
    if pa.types.is_string(column.type):
        lengths = pc.fill_null(pc.call_function("binary_length", [column]), -1).to_numpy(zero_copy_only=False)
        return [_binary(lengths.astype(">i4")), pc.fill_null(column.cast(pa.large_binary()), b"")]
    values = _values(column)
    width = values.dtype.itemsize
    fields = np.empty(len(column), [("length", ">i4"), ("value", values.dtype)])
    fields["length"], fields["value"] = width, values
    found = _binary(fields)
    if not column.null_count:
        return [found]
    return [pc.call_function("if_else", [column.is_valid(), found, pa.scalar(_MISSING, pa.large_binary())])]


def _binary(items: np.ndarray[Any, Any]) -> pa.Array:
    """Returns items of a fixed size as an Arrow array of bytes."""
    import pyarrow as pa

    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(items.dtype.itemsize), len(items), [None, pa.py_buffer(items)])
    return fixed.cast(pa.large_binary())


def _values(column: pa.Array) -> np.ndarray[Any, Any]:
    """Returns the values of a column of a fixed size in network order; any value where one is missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_decimal(column.type):
        return _numerics(column)
    kinds: list[tuple[Callable[[pa.DataType], bool], str, int]] = [
        (pa.types.is_boolean, "i1", 0),
        (pa.types.is_int32, ">i4", 0),
        (pa.types.is_int64, ">i8", 0),
        (pa.types.is_float64, ">f8", 0),
        (pa.types.is_date32, ">i4", _EPOCH_DAYS),
        (pa.types.is_timestamp, ">i8", _EPOCH_MICROSECONDS),
    ]
    [(kind, shift)] = [(kind, shift) for is_kind, kind, shift in kinds if is_kind(column.type)]
    plain = {pa.date32(): pa.int32(), pa.timestamp("us"): pa.int64(), pa.bool_(): pa.int8()}.get(column.type)
    numbers = column.cast(plain) if plain else column
    found = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
    return (found - shift if shift else found).astype(kind)


def _numerics(column: pa.Array) -> np.ndarray[Any, Any]:
    """Returns decimals as numerics: number of digits, weight, sign and scale, then digits of the base 10,000.

    All values of a column have the same number of digits, with zeros before and after: PostgreSQL removes these.
    """
    import numpy as np

    scale = column.type.scale
    words = np.frombuffer(column.buffers()[1], "<u4").reshape(-1, 4)[column.offset : column.offset + len(column)]
    limbs = np.zeros((len(column), _LIMBS), np.uint64)
    limbs[:, :4] = words
    negative = words[:, 3] >= 1 << 31
    limbs[negative, :4] ^= np.uint64(0xFFFFFFFF)  # the complement, plus one below, is the magnitude
    carry = negative.astype(np.uint64)
    padding = np.uint64(10 ** (-scale % 4))  # the digits of the base begin at the decimal point
    for limb in range(_LIMBS):
        total = limbs[:, limb] + carry
        limbs[:, limb], carry = total & np.uint64(0xFFFFFFFF), total >> np.uint64(32)
    carry = np.zeros(len(column), np.uint64)
    for limb in range(_LIMBS):
        total = limbs[:, limb] * padding + carry
        limbs[:, limb], carry = total & np.uint64(0xFFFFFFFF), total >> np.uint64(32)
    after = -(-scale // 4)
    count = -(-(column.type.precision - scale) // 4) + after
    digits = np.empty((len(column), count), ">i2")
    for place in reversed(range(count)):
        rest = np.zeros(len(column), np.uint64)
        for limb in reversed(range(_LIMBS)):
            total = (rest << np.uint64(32)) | limbs[:, limb]
            limbs[:, limb], rest = total // np.uint64(_BASE), total % np.uint64(_BASE)
        digits[:, place] = rest
    found = np.empty(len(column), [("head", ">u2", (4,)), ("digits", ">i2", (count,))])
    found["head"] = (count, (count - after - 1) & 0xFFFF, 0, scale)
    found["head"][negative, 2] = 0x4000
    found["digits"] = digits
    return found
