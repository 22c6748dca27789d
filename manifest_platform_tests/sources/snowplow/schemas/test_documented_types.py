"""The table of types in the documentation is what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from manifest_platform.sources.snowplow import numbers
from manifest_platform.sources.snowplow.events.values import fit
from manifest_platform.sources.snowplow.schemas.columns import entity_columns

PAGE = Path(__file__).parents[4] / "docs/reference/snowplow/schemas.md"
ROW = re.compile(r"\| `(\{.*?\})` \| `([a-z0-9(),]+)` \| (.*) \| (.*) \|")
ROWS = [match.groups() for line in PAGE.read_text().splitlines() if (match := ROW.fullmatch(line))]


def values(cell: str) -> list[object]:
    return [numbers.loads(text.encode()) for text in re.findall(r"`(.*?)`", cell)]


@pytest.mark.parametrize(("schema", "type_", "fits", "bad"), ROWS)
def test_a_row_of_the_table_is_true(schema: str, type_: str, fits: str, bad: str):
    (column,) = entity_columns([("1-0-0", {"properties": {"value": json.loads(schema)}})], "x")
    assert column.column.type == type_
    for value in values(fits):
        fit(value, type_, column.mixed)
    for value in values(bad):
        with pytest.raises((ValueError, OverflowError)):
            fit(value, type_, column.mixed)


def test_the_table_has_every_kind_of_column():
    kinds = {type_.partition("(")[0] for _, type_, _, _ in ROWS}
    assert kinds == {"string", "timestamp", "date", "integer", "bigint", "decimal", "double", "boolean", "json"}


def test_every_row_of_the_table_is_read():
    assert len(ROWS) == sum(line.startswith("| `{") for line in PAGE.read_text().splitlines())
