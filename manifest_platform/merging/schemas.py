"""One schema for files of several: columns by name, types widened where nothing is lost.

Belongs here: how the Arrow schemas of a range's inputs come together, and how a file's rows come to have the common one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from manifest_platform.column_names import Spellings, spelled_twice
from manifest_platform.column_types import widened_arrow
from manifest_platform.merging.errors import ChangedInput, SchemaConflict


@dataclass
class _Known:
    """A column as far as files were looked at. `file` is the first that has this type; `seen`: how many schemas have it."""

    type: pa.DataType
    file: str
    nullable: bool
    seen: int = 1


def unified(table: str, files: Iterable[tuple[str, pa.Schema]]) -> pa.Schema:
    """The schema that holds the rows of all files of a table, given as (URI, schema).

    Names match without case. A column is where the first file that has it has it, and may be null where it may in any file, or
    where any lacks it. Of types that differ it has the narrowest that holds both. Raises SchemaConflict where none does, and
    ChangedInput for a file that has a column twice.
    """
    different: dict[pa.Schema, str] = {}
    last = None
    for uri, schema in files:
        if last is None or not schema.equals(last):
            different.setdefault(_plain(schema), uri)
        last = schema
    known: dict[str, _Known] = {}
    spellings = Spellings()
    for schema, uri in different.items():
        if twice := spelled_twice(schema.names):
            raise ChangedInput(f"table {table}: {uri} has the columns {', '.join(twice)} twice; write it anew with other names")
        for field in schema:
            _add(table, known, spellings, field, uri)
    fields = [pa.field(name, found.type, found.nullable or found.seen < len(different)) for name, found in known.items()]
    return pa.schema(fields)


def _add(table: str, known: dict[str, _Known], spellings: Spellings, field: pa.Field, uri: str) -> None:
    have = known.get(spellings.find(field.name) or "")
    if have is None:
        spellings.add(field.name)
        known[field.name] = _Known(field.type, uri, field.nullable)
        return
    wide = widened_arrow(have.type, field.type)
    if wide is None:
        raise SchemaConflict(
            f"table {table}, column {field.name}: it is {have.type} in {have.file} and {field.type} in {uri}, and no type "
            "holds both without loss; give the column another name where it is made, or convert the files of one kind"
        )
    have.file = have.file if wide == have.type else uri
    have.type, have.nullable, have.seen = wide, have.nullable or field.nullable, have.seen + 1


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with the columns of a schema that was unified from theirs; what they lack is null.

    Where the schema has a dictionary for texts and the rows have not, or the other way round, they get or lose it.
    """
    if rows.schema.equals(schema):
        return rows.replace_schema_metadata()
    columns, names = [], Spellings(rows.schema.names)
    for field in schema:
        name = names.find(field.name)
        if name is None:
            columns.append(pa.nulls(rows.num_rows, field.type))
        else:
            column = rows.column(name)
            columns.append(column if column.type == field.type else _cast(column, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def dense(rows: pa.Table) -> pa.Table:
    """The rows with no dictionaries."""
    return fitted(rows, _plain(rows.schema))


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if not isinstance(kind, pa.DictionaryType):
        return column.cast(kind)
    return column.cast(kind.value_type).dictionary_encode()


def _plain(schema: pa.Schema) -> pa.Schema:
    """A schema without what only says how values are laid out in memory."""
    return pa.schema([pa.field(field.name, _plain_type(field.type), field.nullable) for field in schema])


def _plain_type(type_: pa.DataType) -> pa.DataType:
    if isinstance(type_, pa.DictionaryType):
        return _plain_type(type_.value_type)
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return pa.binary()
    return type_
