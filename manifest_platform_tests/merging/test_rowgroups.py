"""Files of copied row groups, as other readers read them."""

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from manifest_platform.merging.rowgroups import Assembly, NotParquet, _Reader, _written, read_footer
from manifest_platform_tests.effort import cases

SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("at", pa.timestamp("us")),
        pa.field("ok", pa.bool_()),
        pa.field("ratio", pa.float64()),
    ]
)

rows = st.fixed_dictionaries(
    {
        "n": st.integers(-(2**63), 2**63 - 1),
        "text": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
        "price": st.none() | st.decimals(-9999999, 9999999, places=2),
        "at": st.none() | st.datetimes(),
        "ok": st.none() | st.booleans(),
        "ratio": st.none() | st.floats(allow_nan=False),
    }
)
tables = st.lists(rows, max_size=40).map(lambda found: pa.Table.from_pylist(found, SCHEMA))


def encoded(table: pa.Table, **options: Any) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def assembled(*files: pa.Buffer) -> pa.Buffer:
    """All row groups of files in one."""
    parts: list[bytes] = []
    assembly = Assembly(lambda data: parts.append(bytes(data)), read_footer(files[0]))
    for file in files:
        footer = read_footer(file)
        for number in range(len(footer.groups)):
            assembly.add(file, footer, number)
    size = assembly.finish()
    whole = b"".join(parts)
    assert len(whole) == size
    return pa.py_buffer(whole)


@settings(max_examples=cases(20, 60), deadline=None)
@given(
    st.lists(tables, min_size=1, max_size=5),
    st.sampled_from(["zstd", "snappy", "none"]),
    st.integers(1, 50),
    st.booleans(),
    st.sampled_from([100, 1 << 20]),
)
def test_the_rows_are_those_of_the_files_after_each_other(
    parts: list[pa.Table], compression: str, group: int, dictionary: bool, page: int
) -> None:
    files = [
        encoded(
            part,
            compression=compression,
            row_group_size=group,
            use_dictionary=dictionary,
            data_page_size=page,
            write_page_index=True,
        )
        for part in parts
    ]
    whole = assembled(*files)
    assert pq.read_table(pa.BufferReader(whole)).equals(pa.concat_tables(parts))


@settings(max_examples=cases(20, 60), deadline=None)
@given(tables, st.integers(1, 50))
def test_a_footer_is_written_as_it_was_read(part: pa.Table, group: int) -> None:
    file = encoded(part, row_group_size=group, write_page_index=True)
    length = int.from_bytes(bytes(memoryview(file)[-8:-4]), "little")
    data = bytes(memoryview(file)[-8 - length : -8])
    assert _written(_Reader(data).struct()) == data


def test_every_kind_of_field_is_kept() -> None:
    fields = {
        1: (1, True),
        2: (2, False),
        3: (3, b"\x07"),
        4: (4, -5),
        5: (5, 2**31 - 1),
        6: (6, -(2**63)),
        7: (7, b"12345678"),
        8: (8, b"x" * 300),
        9: (9, (1, [True, False, True])),
        10: (10, (5, list(range(-20, 20)))),
        11: (11, (0x85, [(b"a", 1), (b"b", 2)])),
        12: (12, {1: (5, 1), 40: (8, b"far")}),
        13: (13, b"0123456789abcdef"),
        300: (11, (0, [])),
    }
    assert _Reader(_written(fields)).struct() == fields


def test_statistics_and_metadata_go_along(tmp_path: Path) -> None:
    one = pa.table({"n": pa.array([1, 2, None]), "text": ["a", "b", "c"]})
    two = pa.table({"n": pa.array([7, 9, 8]), "text": ["d", None, None]})
    whole = assembled(encoded(one), encoded(two))
    metadata = pq.read_metadata(pa.BufferReader(whole))
    assert [metadata.row_group(number).column(0).statistics.max for number in range(2)] == [2, 9]
    assert read_footer(whole).nulls(0) == [1, 0]
    assert read_footer(whole).nulls(1) == [0, 2]
    assert pq.read_schema(pa.BufferReader(whole)).equals(one.schema)


def test_indexes_that_are_not_copied_are_not_named() -> None:
    part = pa.table({"n": list(range(1000))})
    file = encoded(part, write_page_index=True, row_group_size=100)
    column = pq.read_metadata(pa.BufferReader(assembled(file, file))).row_group(3).column(0)
    assert pq.read_metadata(pa.BufferReader(file)).row_group(3).column(0).has_offset_index
    assert not column.has_offset_index
    assert not column.has_column_index


def test_duckdb_and_spark_read_it(tmp_path: Path, spark: SparkSession) -> None:
    parts = [
        pa.Table.from_pylist(
            [{"n": base + n, "text": f"text {n % 7}", "ok": n % 3 == 0, "ratio": n / 7} for n in range(2000)], SCHEMA
        )
        for base in (0, 10_000)
    ]
    path = tmp_path / "whole.parquet"
    path.write_bytes(assembled(*(encoded(part, row_group_size=700, compression="zstd") for part in parts)))
    expected = [(4000, sum(range(2000)) + sum(range(10_000, 12_000)), 2 * 667)]
    query = "SELECT count(*), sum(n), count(*) FILTER (WHERE ok) FROM"
    with duckdb.connect() as connection:
        assert connection.execute(f"{query} '{path}'").fetchall() == expected
        assert connection.execute(f"SELECT n FROM '{path}' WHERE n = 10007").fetchall() == [(10007,)]
    frame = spark.read.parquet(str(path))
    frame.createOrReplaceTempView("assembled")
    assert [tuple(row) for row in spark.sql(f"{query} assembled").collect()] == expected
    assert frame.where("n = 10007").select("text").collect() == [("text 0",)]


@pytest.mark.parametrize(
    "other",
    [
        pa.table({"n": pa.array([1], pa.int32())}),
        pa.table({"m": pa.array([1])}),
        pa.table({"n": pa.array([1]), "m": [1]}),
        pa.table({"n": pa.array([1])}, pa.schema([pa.field("n", pa.int64(), nullable=False)])),
    ],
    ids=["type", "name", "more", "nullability"],
)
def test_other_columns_are_refused(other: pa.Table) -> None:
    with pytest.raises(NotParquet, match="differ from those of the first"):
        assembled(encoded(pa.table({"n": pa.array([1])})), encoded(other))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PAR1",
        b"PAR1" + bytes(20) + b"PAR1",
        b"PAR1" + bytes(20) + b"\xff\xff\xff\x7fPAR1",
        b"text" + bytes(20) + b"PAR1",
        b"PAR1" + bytes(20) + b"PARE",
        b"PAR1" + b"\xff" * 8 + b"\x08\0\0\0PAR1",
    ],
)
def test_what_is_no_parquet_is_refused(data: bytes) -> None:
    with pytest.raises(NotParquet):
        read_footer(pa.py_buffer(data))


@settings(max_examples=cases(60, 200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_damaged_footer_is_refused_or_read_but_nothing_else(data: st.DataObject) -> None:
    file = bytearray(encoded(pa.table({"n": [1, 2, 3], "text": ["a", None, "c"]})))
    length = int.from_bytes(file[-8:-4], "little")
    for _ in range(data.draw(st.integers(1, 4))):
        file[data.draw(st.integers(len(file) - 8 - length, len(file) - 9))] = data.draw(st.integers(0, 255))
    try:
        footer = read_footer(pa.py_buffer(bytes(file)))
        Assembly(lambda _: None, footer).add(pa.py_buffer(bytes(file)), footer, 0)
    except NotParquet:
        pass
