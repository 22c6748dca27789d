"""Retention of a vault: a full load of the newest snapshot, and all windows behind it, still work afterward."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from manifest_platform.operations.retention.rule import Why
from manifest_platform.operations.retention.run import collect, plan
from manifest_platform.pipeline import Pipeline
from manifest_platform_tests.sources.veeva.ward.ward import (
    FULL,
    INCR,
    NAME,
    Ward,
    begun,
    drained,
    full,
    incrs,
    land,
    mend,
    replayed,
    spoil,
    started,
)

BEFORE, AFTER, SECOND = incrs("0101-2345", "0000"), incrs("0015", "0045"), full("0000")


@pytest.fixture
def ward(tmp_path: Path) -> Ward:
    made = Ward(tmp_path)
    whole = yaml.safe_load(made.config_file.read_text())
    whole["datasets"][NAME]["retention"] = {"shredded_days": 7, "last_copy_days": 7}
    made.config_file.write_text(yaml.safe_dump(whole))
    return made


@pytest.fixture
def pipeline(ward: Ward) -> Iterator[Pipeline]:
    """A ward that is loaded from a snapshot of 23:30 up to 00:45. Another of 00:00 has landed; all that is eight days old."""
    with ward.open() as opened:
        started(opened, "0101-2330", *BEFORE, *AFTER)
        drained(opened)
        land(opened, SECOND)
        opened.clock = lambda: datetime.now(UTC) + timedelta(days=8)
        yield opened


def outputs(ward: Ward) -> list[str]:
    """The names of the items whose shredded output is there."""
    return sorted(folder.name for folder in (ward.home / "shredded" / NAME).iterdir() if any(folder.rglob("listing.json")))


def test_what_the_newest_snapshot_contains_is_deleted_and_a_full_load_works(ward: Ward, pipeline: Pipeline) -> None:
    done = collect(pipeline)
    assert (done.tallies["shredded"].items, done.failed) == (3, [])
    assert {why: one.items for why, one in done.tallies["shredded"].kept.items()} == {Why.NEWEST_FULL: 4}
    assert [name.partition(".")[0] for name in outputs(ward)] == [FULL, INCR, INCR, INCR]
    begun(pipeline, "0000")
    drained(pipeline)
    assert ward.seen.tables == replayed([SECOND, *AFTER])


def test_a_snapshot_whose_output_is_lost_is_none_to_begin_with(pipeline: Pipeline) -> None:
    folder = spoil(pipeline, "0000", FULL)
    kept = plan(pipeline).tallies["shredded"]
    assert (kept.items, {why: one.items for why, one in kept.kept.items()}) == (0, {Why.NEWEST_FULL: 7})
    mend(folder)
    assert plan(pipeline).tallies["shredded"].items == 3


def test_during_a_full_load_nothing_is_deleted(pipeline: Pipeline) -> None:
    begun(pipeline, "0000")
    kept = plan(pipeline).tallies["shredded"]
    assert (kept.items, {why: one.items for why, one in kept.kept.items()}) == (0, {Why.FULL_LOAD: 7})
