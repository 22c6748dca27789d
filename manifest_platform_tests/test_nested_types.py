"""Nested column types: their texts, their Arrow types, and what holds the values of two."""

from __future__ import annotations

import pyarrow as pa
import pytest

from manifest_platform.column_types import arrow_type, widened, widened_arrow
from manifest_platform.listing import Column
from manifest_platform.merging.catalogs.glue import hive_type
from manifest_platform.merging.readers import _duckdb_type, _spark_type
from manifest_platform.merging.schemas import fitted, unified

PEOPLE = "array<struct<name:string(9),paid:decimal(18,2),home:struct<at:timestamp,raw:json>>>"


@pytest.mark.parametrize("type_", [PEOPLE, "struct<a:integer>", "array<array<string>>"])
def test_a_nested_type_is_a_columns_type_and_has_an_arrow_type(type_):
    assert Column("c", type_).type == type_
    assert widened_arrow(arrow_type(type_), arrow_type(type_)) == arrow_type(type_)


def test_the_arrow_type_is_what_parquet_gives_back():
    assert arrow_type("array<struct<a:integer>>") == pa.list_(pa.field("element", pa.struct([("a", pa.int32())])))


@pytest.mark.parametrize(
    "type_", ["struct<>", "array<>", "struct<a>", "struct<a b:string>", "array<text>", "map<a>", "struct<a:string"]
)
def test_other_texts_are_no_types(type_):
    with pytest.raises(ValueError, match="unknown type"):
        Column("c", type_)


@pytest.mark.parametrize(
    ("have", "want", "wide"),
    [
        ("struct<a:integer>", "struct<b:json,a:bigint>", "struct<a:bigint,b:json>"),
        ("array<struct<a:string(2)>>", "array<struct<a:string(5)>>", "array<struct<a:string(5)>>"),
        ("struct<a:struct<b:integer>>", "struct<a:struct<c:date>>", "struct<a:struct<b:integer,c:date>>"),
        ("struct<a:integer>", "struct<a:date>", None),
        ("struct<a:integer>", "array<integer>", None),
        ("struct<a:integer>", "json", None),
        ("integer", "array<integer>", None),
    ],
)
def test_structs_get_the_fields_of_both(have, want, wide):
    assert widened(have, want) == wide
    if "(" not in have:
        found = widened_arrow(arrow_type(have), arrow_type(want))
        assert found == (arrow_type(wide) if wide else None)


def test_catalogs_and_readers_write_types_in_their_own_words():
    assert hive_type(PEOPLE) == "array<struct<name:string,paid:decimal(18,2),home:struct<at:timestamp,raw:string>>>"
    assert _spark_type("array<struct<a:integer,b:json>>") == "ARRAY<STRUCT<`a`: INTEGER,`b`: STRING>>"
    assert _duckdb_type("array<struct<a:integer,b:json>>") == 'STRUCT("a" INTEGER,"b" VARCHAR)[]'


def test_merging_unifies_structs_and_fills_new_fields_with_null():
    few, more = (arrow_type(f"array<struct<{fields}>>") for fields in ("a:integer", "b:string,a:bigint"))
    tables = [pa.table({"c": pa.array([value], type_)}) for value, type_ in (([{"a": 1}], few), ([{"b": "x", "a": 2}], more))]
    schema = unified("t", [(str(number), table.schema) for number, table in enumerate(tables)])
    assert schema.field("c").type == arrow_type("array<struct<a:bigint,b:string>>")
    rows = pa.concat_tables([fitted(table, schema) for table in tables])
    assert rows["c"].to_pylist() == [[{"a": 1, "b": None}], [{"a": 2, "b": "x"}]]
