"""Assignments and events come back from their JSON as they were, and the driver needs no Dagster."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import masking
from manifest_platform.listing import Column, Listing, ShreddedObject, Table
from manifest_platform.manifest import Failure, FailureKind, ItemKey
from manifest_platform.merging.state import FinishedJob
from manifest_platform.orchestration.jobs import assignments
from manifest_platform.orchestration.jobs.assignments import (
    BeginFull,
    DrainFeeds,
    MergePartitions,
    ShredItems,
    event_from_json,
    event_to_json,
    from_json,
    to_json,
)
from manifest_platform.pipeline import Budget, DrainReport, ItemFailed, Loaded, PutBack, Shredded, ShreddedAgain, Stop
from manifest_platform.pipeline.chosen import PassedOver, Waiting
from manifest_platform.pipeline.events import FeedEnd, ShredStarted, Tidied
from manifest_platform.pipeline.full import Begun
from manifest_platform.pipeline.merge import MergeBudget, MergeReport, MergeStarted
from manifest_platform.remedies import Action, Remedy

KEY = ItemKey("enriched", "2024-05-14-12", "s3://landing/run=2024-05-14-12")
TABLE = Table("events", (Column("event_id", "string(36)", False), Column("at", "timestamp")), "append")
OBJECT = ShreddedObject("events", "2024-05-14", "s3://out/a.parquet", 7, 900, "abc")
LISTING = Listing(KEY.id, "attempt-1", 8, 7, 1, (TABLE,), (OBJECT,))
EVENTS = [
    ShredStarted(2, 900),
    Shredded(KEY, LISTING, 900, 1.5, 2, 3),
    Loaded(KEY, {"events": 7}, 900, 0.5, 12.0, 4, late=True, tables=(TABLE,), epoch=2, told=("slow",), target="second"),
    ItemFailed(KEY, "load", Failure(FailureKind.PERMANENT, "no such table", "WarehouseError", "Traceback", "RESOLVE")),
    PutBack(KEY, "shred", "S3 is out of reach"),
    ShreddedAgain(KEY, "gone"),
    DrainReport(
        datetime(2024, 5, 14, tzinfo=UTC),
        loaded=1,
        stop=Stop.BLOCKED,
        item=KEY.name,
        remedy=Remedy(Action.RETRY_MERGE, table="events", day=date(2024, 5, 14)),
        ends=(FeedEnd("enriched", Stop.BLOCKED, KEY.name, "failed", Remedy(Action.RESOLVE, item=KEY.name)),),
        upkeep=(Tidied("events", "delete", 3, until=datetime(2024, 1, 1, tzinfo=UTC)),),
    ),
    PassedOver(KEY, "skipped"),
    Waiting("another worker"),
    Begun(KEY, 3, "2024-05-14"),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_comes_back_from_its_message_as_it_was(event: Any) -> None:
    assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event


def test_every_kind_of_event_has_a_message() -> None:
    """Events of merging are made by the tests of merging."""
    assert {type(event) for event in EVENTS} | {MergeStarted, FinishedJob, MergeReport} == set(assignments._EVENTS.values())


@pytest.mark.parametrize(
    "assignment",
    [
        DrainFeeds(("enriched", "log"), Budget(5, 60.0)),
        ShredItems((KEY,), frozenset({"run=other"}), 60.0),
        MergePartitions(MergeBudget(3), (("events", date(2024, 5, 14)),)),
        BeginFull("warehouse", "latest", "the history is wrong", ("empty",)),
    ],
    ids=lambda assignment: assignment.name,
)
def test_an_assignment_comes_back_from_its_json_as_it_was(assignment: Any) -> None:
    assert from_json(json.loads(json.dumps(to_json(assignment)))) == assignment


def test_a_secret_in_a_reason_is_masked_in_the_message() -> None:
    masking.keep("a-password-of-the-warehouse")
    told = event_to_json(PutBack(KEY, "load", "refused: password=a-password-of-the-warehouse"))
    assert told["reason"] == "refused: password=***"


def test_what_no_assignment_yields_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="Failure is no event of an assignment"):
        event_to_json(Failure(FailureKind.PERMANENT, "no event"))


def test_the_driver_imports_nothing_of_dagster_but_its_pipes() -> None:
    program = """
import sys
for name in ("dagster", "dagster_aws", "dagster_pyspark"):
    sys.modules[name] = None  # importing it fails
import dagster_pipes
import manifest_platform.orchestration.jobs.driver
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_driver_alone_says_who_starts_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "manifest_platform.orchestration.jobs.driver"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "only Dagster starts this program" in done.stderr
    assert "by hand: manifest-platform drain" in done.stderr
