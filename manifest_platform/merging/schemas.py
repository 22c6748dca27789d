"""Unifies the schemas of several files: columns by name, types widened if nothing is lost.

Belongs here: the common Arrow schema of a range's inputs, and the conversion of a file's rows to it.
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
    """A column found so far. `file`: the first file with this type. `seen`: the number of schemas that have the column."""

    type: pa.DataType
    file: str
    nullable: bool
    seen: int = 1


def unified(table: str, files: Iterable[tuple[str, pa.Schema]]) -> pa.Schema:
    """Returns a schema that holds the rows of all files of a table, given as (URI, schema).

    Names are compared without case. A column has the position of its first occurrence. It is nullable if it is nullable in any
    file or missing in any file. If its types differ, it has the narrowest type that holds all of them.
    Raises SchemaConflict if no such type exists, and ChangedInput if a file has a column twice.
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
            raise ChangedInput(
                f"table {table}: {uri} has the columns {', '.join(twice)} twice; write the file again with other names"
            )
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
            "holds both without loss; rename one of the columns at its source, or convert the files of one kind"
        )
    have.file = have.file if wide == have.type else uri
    have.type, have.nullable, have.seen = wide, have.nullable or field.nullable, have.seen + 1


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Converts rows to a schema that `unified` made from theirs. A missing column is filled with nulls.

    String columns are dictionary-encoded or decoded to match the schema.
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
    """Returns the rows with all dictionary-encoded columns decoded."""
    return fitted(rows, _plain(rows.schema))


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if not isinstance(kind, pa.DictionaryType):
        return column.cast(kind)
    return column.cast(kind.value_type).dictionary_encode()


def _plain(schema: pa.Schema) -> pa.Schema:
    """Removes dictionaries and large or view variants of types, which only describe the layout in memory."""
    return pa.schema([pa.field(field.name, _plain_type(field.type), field.nullable) for field in schema])


def _plain_type(type_: pa.DataType) -> pa.DataType:
    if isinstance(type_, pa.DictionaryType):
        return _plain_type(type_.value_type)
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return pa.binary()
    return type_
