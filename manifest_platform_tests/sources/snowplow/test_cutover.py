"""The notes of the former loader: rows that anybody could write into its table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from manifest_platform.sources.snowplow.cutover import SnowplowLoader

AT = datetime(2024, 3, 5, tzinfo=UTC)
COLUMNS = ("base", "types", "ingestion_tstamp", "count_good")


@pytest.mark.parametrize(
    "row",
    [
        (None, "[]", AT, 1),
        ("///", "[]", AT, 1),
        ("s3://a/run", "[", AT, 1),
        ("s3://a/run", "5", AT, 1),
        ("s3://a/run", '[{"schemaKey":"iglu:../../jsonschema/1-0-0"}]', AT, 1),
        ("s3://a/run", "[]", "yesterday", 1),
        ("s3://a/run", "[]", datetime.max.replace(tzinfo=timezone(-timedelta(hours=5))), 1),
        ("s3://a/run", "[]", AT, Decimal("Infinity")),
    ],
)
def test_a_row_that_cannot_be_read_is_a_problem_and_does_not_hide_the_others(row: tuple[Any, ...]):
    found = SnowplowLoader().runs(COLUMNS, [row, ("s3://a/good/", "[]", AT, 2)])
    assert [run.place for run in found.runs] == ["s3://a/good"]
    assert len(found.problems) == 1
