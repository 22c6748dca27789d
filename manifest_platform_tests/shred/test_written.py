"""What several tasks wrote of one table comes together as one definition."""

from __future__ import annotations

import pytest

from manifest_platform.listing import Column, Table
from manifest_platform.shred.batch import SchemaError, Written


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
