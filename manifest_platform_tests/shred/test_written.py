"""What several tasks wrote of one table comes together as one definition."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from manifest_platform.listing import Column, Table
from manifest_platform.shred import batch
from manifest_platform.shred.batch import Directory, SchemaError, Task, Writer, Written
from manifest_platform.shred.rows import BAD


@pytest.mark.parametrize(
    ("before", "after", "wide"),
    [
        ("integer", "bigint", "bigint"),
        ("decimal(10,2)", "decimal(12,4)", "decimal(12,4)"),
        ("bigint", "decimal(10,2)", "decimal(21,2)"),
        ("string(9)", "string", "string"),
    ],
)
def test_a_column_is_as_wide_as_both_definitions_need_it(before: str, after: str, wide: str) -> None:
    written = Written()
    written.define(Table("t", (Column("a", before), Column("b", "date"))))
    written.define(Table("t", (Column("c", "json"), Column("a", after))))
    assert written.tables["t"].columns == (Column("a", wide), Column("b", "date"), Column("c", "json"))


@pytest.mark.parametrize(("before", "after"), [("string", "json"), ("decimal(38,0)", "decimal(38,1)"), ("bigint", "double")])
def test_definitions_that_no_type_holds_both_of_are_refused(before: str, after: str) -> None:
    written = Written()
    written.define(Table("t", (Column("a", before),)))
    with pytest.raises(SchemaError, match=r"column a was .* and became .* while shredding"):
        written.define(Table("t", (Column("a", after),)))


def test_small_directories_share_a_task_of_spark() -> None:
    """Not those of several tasks, and none with a large one."""
    sizes = [[1 << 19], [1 << 19, 1 << 19], [1 << 20], [0], [1 << 21], [0], [1 << 22], [1], [1 << 20], [2]]
    directories = [Directory("", tuple(("", size) for size in each), "", "") for each in sizes]
    owners = [0, 1, 2, 3, 4, 5, 6, 6, 7, 8, 9]
    tasks = [Task(owner, 0, "", (), None) for owner in owners]
    assert batch._groups(directories, tasks) == [[0, 1], [2, 3], [4, 5], [6], [7], [8, 9, 10]]


def test_rows_are_counted_by_the_types_that_are_told_else_by_what_the_table_holds(tmp_path: Path) -> None:
    writer = Writer(Task(0, 0, str(tmp_path), (), None), 1 << 20, lambda name, rows: [])
    columns, rows = (Column("a", "integer"),), pa.table({"a": pa.array([1, 2], pa.int32())})
    for _ in range(2):
        writer.add(Table("clicks_1", columns, family="iglu:com.acme/click/jsonschema/1"), rows, {"1-0-0": 1, "1-0-1": 1})
        writer.add(Table("visit__c", columns, family="Object.visit__c"), rows)
    writer.add(Table("plain", columns), rows)
    writer.add(Table("columns_alone", columns))
    writer.add(Table("visit__c__deletes", columns, "delete", ("a",), "visit__c"), rows)
    writer.add(BAD, BAD_ROW)
    assert writer.written.types == {
        "clicks_1": {"1-0-0": 2, "1-0-1": 2},
        "visit__c": {"Object.visit__c": 4},
        "plain": {"plain": 2},
    }


BAD_ROW = pa.table({"reasons": ["x"]})
