"""Duplicates of events from landing to warehouse: counted in the shred's record, and left out by the load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from manifest_platform.manifest import Application
from manifest_platform.operations.bad_rows import bad_rows
from manifest_platform.operations.doctor import Doctor
from manifest_platform.operations.reload import reload
from manifest_platform.operations.tables import states_of_tables
from manifest_platform.pipeline import SHRED
from manifest_platform.pipeline.discovery import discover
from manifest_platform.sources.snowplow.fields import POSITION
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.pipeline.shop import EVENTS, Shop, drained, keys, loaded_record

SENT_AGAIN = 5


def landed(shop: Shop) -> None:
    """Lands two runs. The second has events of the first, an event of its own twice, and a different event under its id."""
    shop.write(0, 1)
    first, second = (next(shop.directory(number).glob("part-*")) for number in (0, 1))
    old, new = first.read_bytes().splitlines(), second.read_bytes().splitlines()
    other = new[0].split(b"\t")
    other[POSITION["event_fingerprint"]] = b"other"
    second.write_bytes(b"\n".join([*new, *old[:SENT_AGAIN], new[1], b"\t".join(other)]) + b"\n")


@pytest.mark.parametrize("across", ["seen", "warehouse"])
def test_copies_are_left_out_counted_and_stay_out_after_a_reload(tmp_path: Path, spark: Any, across: str) -> None:
    shop = Shop(tmp_path, load={"duplicates": across})
    landed(shop)
    with shop.open() as pipeline:
        discover(pipeline, everything=True)
        drained(pipeline, spark)
        second = pipeline.manifest.item(keys(pipeline, 1)[0])
        record = second.processed_by(Application(SHRED))
        assert record is not None
        assert record.data["duplicates"] == {"natural": 1, "synthetic": 2}
        assert record.data["lines"] == record.data["good"] + record.data["bad"] + 1 == EVENTS + SENT_AGAIN + 2
        assert bad_rows(FEED, [record]).duplicates == {"natural": 1, "synthetic": 2}
        loaded = loaded_record(pipeline, 1).data
        assert loaded["rows"]["events"] == EVENTS + 1
        assert f"{SENT_AGAIN} rows of table events were left out" in loaded["told"][0]
        rows = pipeline.warehouse.row_counts()
        assert rows["events"] == 2 * EVENTS + 1
        pipeline.warehouse.close()
        assert shop.doubled_events == []
        reload(pipeline, second.key, "in a test")
        drained(pipeline)
        assert pipeline.warehouse.row_counts() == rows
        pipeline.warehouse.close()
        assert [*states_of_tables(pipeline).differences, *Doctor(pipeline, objects=False).examine().findings] == []


def test_without_the_setting_an_event_is_there_as_often_as_runs_have_it(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path)
    landed(shop)
    with shop.open() as pipeline:
        discover(pipeline, everything=True)
        drained(pipeline, spark)
        assert loaded_record(pipeline, 1).data["rows"]["events"] == EVENTS + SENT_AGAIN + 1
    assert len(shop.doubled_events) == SENT_AGAIN
