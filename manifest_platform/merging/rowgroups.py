"""Builds a Parquet file from row groups of other files, byte for byte.

Belongs here: reading a footer (Thrift's compact protocol, only the fields that must change or be checked), and writing a new
footer for copied row groups. `kernel` decides which row groups are copied.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

MAGIC = b"PAR1"

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = range(1, 14)
_SCHEMA, _ROWS, _GROUPS, _CREATED_BY, _ORDERS, _ENCRYPTION = 2, 3, 4, 6, 7, 8  # of FileMetaData
_COLUMNS, _GROUP_ROWS, _GROUP_OFFSET, _ORDINAL = 1, 3, 5, 7  # of RowGroup
_FILE_PATH, _CHUNK_OFFSET, _META, _CRYPTO = 1, 2, 3, 8  # of ColumnChunk
_INDEXES = (4, 5, 6, 7)  # positions of the page indexes
_TYPE, _PATH, _VALUES, _ENCODED, _COMPRESSED, _STATISTICS, _SIZES = 1, 3, 5, 6, 7, 12, 16  # of ColumnMetaData
_OFFSETS = (9, 10, 11)  # positions of the data, index and dictionary pages
_DICTIONARY = 11
_BLOOM = (14, 15)  # position and length of the bloom filter
_NULLS = 3  # of Statistics
_TEXT_BYTES = 1  # of SizeStatistics
_WIDTHS = {1: 4, 2: 8, 4: 4, 5: 8}  # of a value, by its physical type
_TEXT = 6  # the physical type of strings (BYTE_ARRAY)
_NUM_CHILDREN = 5  # of SchemaElement
_LAST_ORDINAL = 32_767

Struct = dict[int, tuple[int, Any]]
"""A Thrift struct: wire type and value by field number. The value of a list is (wire type of its elements, elements)."""


class NotParquet(ValueError):
    """The bytes are not a complete Parquet file, or its row groups cannot be copied."""


@dataclass(frozen=True)
class Footer:
    """The footer of a Parquet file: its row groups and columns."""

    data: Struct

    @property
    def rows(self) -> int:
        """Number of rows in the file."""
        return self.data[_ROWS][1]

    @property
    def groups(self) -> list[Struct]:
        """The row groups, in their order."""
        return self.data[_GROUPS][1][1]

    @property
    def form(self) -> tuple[Any, ...]:
        """A value that is equal for two files if row groups of either file are valid in the other.

        It consists of the columns with types, order and nullability, the order of their statistics, and the program that wrote
        the file: readers have workarounds for the defects of some programs, by name.
        """
        root, *elements = self.data[_SCHEMA][1][1] or [{}]
        program = self.data.get(_CREATED_BY, (_BINARY, b""))[1].partition(b" version")[0]
        return root.get(_NUM_CHILDREN), elements, self.data.get(_ORDERS), program

    def extents(self, number: int, size: int) -> list[tuple[int, int]]:
        """The start and length in bytes of each column of a row group. `size`: the file's size. Raises NotParquet."""
        extents = []
        for chunk in self.groups[number][_COLUMNS][1][1]:
            meta = chunk[_META][1]
            starts = [meta[field][1] for field in _OFFSETS if field in meta and meta[field][1] > 0]
            start, length = min(starts, default=size), meta[_COMPRESSED][1]
            if not 0 < length <= size - start:
                raise NotParquet(f"a column has {length} bytes from {start}, but the file has only {size} bytes")
            extents.append((start, length))
        return extents

    def shares(self, number: int) -> dict[str, tuple[float, bool]]:
        """For each column of a row group: its encoded size divided by its plain size, and whether it holds strings.

        Columns without values or without a dictionary, or whose footer lacks the sizes, are omitted.
        """
        found = {}
        for chunk, nulls in zip(self.groups[number][_COLUMNS][1][1], self.nulls(number) or [], strict=False):
            meta = chunk[_META][1]
            values = meta[_VALUES][1] - nulls
            if meta[_TYPE][1] == _TEXT and _SIZES in meta:
                plain = meta[_SIZES][1].get(_TEXT_BYTES, (_I64, 0))[1] + 4 * values
            else:
                plain = _WIDTHS.get(meta[_TYPE][1], 0) * values
            path = meta[_PATH][1][1]
            if plain and len(path) == 1 and _DICTIONARY in meta:
                found[path[0].decode()] = (meta[_ENCODED][1] / plain, meta[_TYPE][1] == _TEXT)
        return found

    def nulls(self, number: int) -> list[int] | None:
        """The null count of each leaf column of a row group; None if the statistics lack it."""
        counts = []
        for chunk in self.groups[number][_COLUMNS][1][1]:
            statistics = chunk[_META][1].get(_STATISTICS)
            if statistics is None or _NULLS not in statistics[1]:
                return None
            counts.append(statistics[1][_NULLS][1])
        return counts


def read_footer(file: pa.Buffer) -> Footer:
    """Parses the footer of a complete Parquet file. Raises NotParquet."""
    size = len(file)
    end = bytes(memoryview(file)[max(0, size - 8) :])
    if size < 12 or bytes(memoryview(file)[:4]) != MAGIC or end[4:] != MAGIC:
        raise NotParquet("it does not begin and end like a Parquet file, or its footer is encrypted")
    length = struct.unpack("<I", end[:4])[0]
    if length > size - 12:
        raise NotParquet(f"its footer should have {length} bytes, but the file has only {size} bytes")
    try:
        data = _Reader(bytes(memoryview(file)[size - 8 - length : size - 8])).struct()
    except (LookupError, RecursionError) as error:
        raise NotParquet(f"its footer cannot be read ({type(error).__name__}: {error})") from error
    _check_shape(data)
    return Footer(data)


class Assembly:
    """A Parquet file being built from row groups of files of the same form, in the order in which they are added.

    `write` receives the file's bytes in order. Schema and metadata are those of `like`. Page indexes and bloom filters are
    stored outside of row groups and are omitted.
    """

    def __init__(self, write: Callable[[Any], Any], like: Footer):
        self.position = 0
        self._write, self._like = write, like
        self._form = like.form
        self._groups: list[Struct] = []
        self._put(MAGIC)

    @property
    def footer(self) -> Footer:
        """The footer for the row groups added so far."""
        rows = sum(group[_GROUP_ROWS][1] for group in self._groups)
        return Footer({**self._like.data, _ROWS: (_I64, rows), _GROUPS: (_LIST, (_STRUCT, self._groups))})

    def add(self, file: pa.Buffer, footer: Footer, number: int) -> None:
        """Copies a row group of a file, unless it has no rows.

        Raises NotParquet if it has another form, or if its bytes are not all in this file.
        """
        if footer.form != self._form:
            raise NotParquet("its columns, or the program that wrote it, differ from those of the first file")
        group = footer.groups[number]
        if not group[_GROUP_ROWS][1]:
            return
        begun = self.position
        element, chunks = group[_COLUMNS][1]
        extents = footer.extents(number, len(file))
        copied = [self._copied(file, chunk, *extent) for chunk, extent in zip(chunks, extents, strict=True)]
        moved = {**group, _COLUMNS: (_LIST, (element, copied)), _GROUP_OFFSET: (_I64, begun)}
        moved[_ORDINAL] = (_I16, len(self._groups))
        if len(self._groups) > _LAST_ORDINAL:
            del moved[_ORDINAL]
        self._groups.append(moved)

    def finish(self) -> int:
        """Writes the footer and returns the size of the file in bytes."""
        data = _written(self.footer.data)
        self._put(data + struct.pack("<I", len(data)) + MAGIC)
        return self.position

    def _copied(self, file: pa.Buffer, chunk: Struct, start: int, length: int) -> Struct:
        shift = self.position - start
        self._put(file.slice(start, length))
        moved = {field: value for field, value in chunk[_META][1].items() if field not in _BLOOM}
        for field in _OFFSETS:
            if field in moved and moved[field][1] > 0:
                moved[field] = (_I64, moved[field][1] + shift)
        kept = {field: value for field, value in chunk.items() if field not in _INDEXES}
        return {**kept, _CHUNK_OFFSET: (_I64, 0), _META: (_STRUCT, moved)}

    def _put(self, data: Any) -> None:
        self._write(data)
        self.position += len(data)


def _check_shape(data: Struct) -> None:
    """Raises NotParquet if a field that is used later is missing or has another type."""
    _check_fields(data, {_SCHEMA: _LIST, _ROWS: _I64, _GROUPS: _LIST}, {_CREATED_BY: _BINARY})
    if _ENCRYPTION in data:
        raise NotParquet("it is encrypted")
    for element in _structs(data[_SCHEMA]):
        _check_fields(element, {}, {_NUM_CHILDREN: _I32})
    for group in _structs(data[_GROUPS]):
        _check_fields(group, {_COLUMNS: _LIST, _GROUP_ROWS: _I64}, {})
        for chunk in _structs(group[_COLUMNS]):
            if _FILE_PATH in chunk or _CRYPTO in chunk:
                raise NotParquet("a column is stored in another file, or is encrypted")
            _check_fields(chunk, {_META: _STRUCT}, {})
            meta = chunk[_META][1]
            needed = {_TYPE: _I32, _PATH: _LIST, _VALUES: _I64, _ENCODED: _I64, _COMPRESSED: _I64}
            _check_fields(meta, needed, {_STATISTICS: _STRUCT, _SIZES: _STRUCT, **dict.fromkeys(_OFFSETS, _I64)})
            if meta[_PATH][1][0] != _BINARY:
                raise NotParquet("a column has no name")
            _check_fields(meta.get(_STATISTICS, (_STRUCT, {}))[1], {}, {_NULLS: _I64})


def _check_fields(fields: Struct, needed: dict[int, int], possible: dict[int, int]) -> None:
    wrong = [number for number, kind in needed.items() if fields.get(number, (0,))[0] != kind]
    wrong += [number for number, kind in possible.items() if fields.get(number, (kind,))[0] != kind]
    if wrong:
        raise NotParquet(f"field {wrong[0]} of a struct in its footer is missing or has the wrong type")


def _structs(field: tuple[int, Any]) -> list[Struct]:
    """The elements of a list of structs."""
    element, values = field[1]
    if values and element != _STRUCT:
        raise NotParquet("a list in its footer has elements of the wrong type")
    return values


class _Reader:
    """Reads a Thrift struct from its compact form. Raises IndexError if the bytes end too early."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def struct(self) -> Struct:
        fields: Struct = {}
        number = 0
        while head := self._byte():
            kind, step = head & 15, head >> 4
            number = number + step if step else self._zigzag()
            fields[number] = (kind, self._value(kind, in_struct=True))
        return fields

    def _value(self, kind: int, in_struct: bool = False) -> Any:
        if kind in (_I16, _I32, _I64):
            return self._zigzag()
        if kind == _BINARY:
            return self._take(self._varint())
        if kind == _STRUCT:
            return self.struct()
        if kind in (_TRUE, _FALSE):
            return (kind if in_struct else self._byte()) == _TRUE
        if kind in (_LIST, _SET):
            head = self._byte()
            size = head >> 4 if head >> 4 != 15 else self._varint()
            return head & 15, [self._value(head & 15) for _ in range(size)]
        if kind == _MAP:
            size = self._varint()
            kinds = self._byte() if size else 0
            return kinds, [(self._value(kinds >> 4), self._value(kinds & 15)) for _ in range(size)]
        if kind in (_BYTE, _DOUBLE, _UUID):
            return self._take({_BYTE: 1, _DOUBLE: 8, _UUID: 16}[kind])
        raise LookupError(f"no wire type {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _take(self, size: int) -> bytes:
        self.at += size
        if self.at > len(self.data):
            raise IndexError("the bytes end too early")
        return self.data[self.at - size : self.at]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
        return value | byte << shift

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)


def _written(fields: Struct) -> bytes:
    """Encodes a Thrift struct in its compact form."""
    return b"".join(_struct_parts(fields))


def _struct_parts(fields: Struct) -> Iterator[bytes]:
    before = 0
    for number in sorted(fields):
        kind, value = fields[number]
        step = number - before
        yield bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + _zigzag(number)
        before = number
        if kind not in (_TRUE, _FALSE):
            yield from _value_parts(kind, value)
    yield b"\0"


def _value_parts(kind: int, value: Any) -> Iterator[bytes]:
    if kind in (_I16, _I32, _I64):
        yield _zigzag(value)
    elif kind == _BINARY:
        yield _varint(len(value))
        yield value
    elif kind == _STRUCT:
        yield from _struct_parts(value)
    elif kind in (_TRUE, _FALSE):
        yield bytes([_TRUE if value else _FALSE])
    elif kind in (_LIST, _SET):
        element, values = value
        yield bytes([len(values) << 4 | element]) if len(values) < 15 else bytes([240 | element]) + _varint(len(values))
        for one in values:
            yield from _value_parts(element, one)
    elif kind == _MAP:
        kinds, pairs = value
        yield _varint(len(pairs)) + (bytes([kinds]) if pairs else b"")
        for left, right in pairs:
            yield from _value_parts(kinds >> 4, left)
            yield from _value_parts(kinds & 15, right)
    else:
        yield value


def _varint(value: int) -> bytes:
    if value < 128:
        return bytes([value])
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _zigzag(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else ((-value) << 1) - 1)
