"""Data outside the store that no row names: found, noted, and removed once no backup can name it. Both servers are real."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import config
from manifest_platform.demo.dynamodb import DynamoDbLocal
from manifest_platform.manifest.keys import UNNAMED
from manifest_platform.manifest.store import ABSENT, Delete, Put
from manifest_platform.manifest.stores.dynamodb.client import Address, open_client
from manifest_platform.manifest.stores.dynamodb.table import create_table
from manifest_platform.operations.doctor import Doctor, Finding, Kind
from manifest_platform.operations.doctor.outside import KEPT
from manifest_platform.pipeline import Pipeline
from manifest_platform.storage import ObjectFolder
from manifest_platform_tests.sources.veeva.ward.ward import NAME, Ward

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LARGE = {"of": "x" * 400_000}


class Place:
    """A vault whose manifest is in DynamoDB, with large data in S3. `now`: the time of all its clocks."""

    def __init__(self, home: Path, url: str, overflow: str) -> None:
        self.address, self.objects, self.now = Address.parse(url), ObjectFolder(overflow), NOW
        self._file = Ward(home, manifest={"store": url, "overflow": overflow}).config_file

    def open(self) -> Pipeline:
        return Pipeline(config.load(self._file), NAME, clock=lambda: self.now)

    def transact(self, *writes: Any) -> None:
        with self.open() as pipeline:
            pipeline.manifest.store.transact(NAME, writes, str(uuid.uuid4()))

    def found(self) -> list[Finding]:
        with self.open() as pipeline:
            return [one for one in Doctor(pipeline, warehouse=False).examine().findings if one.kind is Kind.OUTSIDE]

    def clean(self) -> list[str]:
        with self.open() as pipeline:
            doctor = Doctor(pipeline, warehouse=False)
            doctor.clean(doctor.examine())
            return doctor.done

    @property
    def stored(self) -> int:
        """The number of objects."""
        return len(list(self.objects.list("")))

    @property
    def notes(self) -> int:
        with self.open() as pipeline:
            return len(pipeline.manifest.store.query(NAME, UNNAMED))


@pytest.fixture
def place(tmp_path: Path, s3_bucket: str, dynamodb_server: DynamoDbLocal) -> Place:
    url = dynamodb_server.store(f"test-{uuid.uuid4().hex[:12]}")
    create_table(url)
    return Place(tmp_path, url, f"{s3_bucket}/overflow")


def test_an_unnamed_object_is_removed_once_no_backup_can_name_it(place: Place) -> None:
    """The object is old, but its age does not tell when it was last named."""
    place.transact(Put("kept", LARGE, ABSENT), Put("left", {**LARGE, "more": 1}, ABSENT))
    assert (place.found(), place.stored) == ([], 2)
    place.now += timedelta(days=300)
    place.transact(Put("left", {}, 1))
    [finding] = place.found()
    assert "1 objects, 400" in finding.cause
    assert "noted 1 objects" in place.clean()[0]
    for days in (0, 35):
        place.now += timedelta(days=days)
        assert (place.found(), place.clean(), place.stored, place.notes) == ([], [], 2, 1)
    place.now += timedelta(days=1)
    [finding] = place.found()
    assert f"for more than {KEPT.days} days" in finding.cause
    assert "removed 1 objects" in place.clean()[0]
    assert (place.found(), place.stored, place.notes) == ([], 1, 0)
    with place.open() as pipeline:
        row = pipeline.manifest.store.get(NAME, "kept")
        assert row and row.data == LARGE


def test_an_object_that_a_row_names_again_is_kept_and_its_time_restarts(place: Place) -> None:
    """The table is restored to a time at which a row named it."""
    client = open_client(place.address)
    place.transact(Put("back", LARGE, ABSENT))
    key = {"partition": {"S": NAME}, "sort": {"S": "back"}}
    item = client.get_item(TableName=place.address.table, Key=key)["Item"]
    place.transact(Delete("back", 1))
    place.clean()
    client.put_item(TableName=place.address.table, Item=item)
    place.now += 2 * KEPT
    assert (place.found(), place.clean(), place.stored, place.notes) == ([], [], 1, 0)
    place.transact(Delete("back", 1))
    assert "noted 1" in place.clean()[0]
    assert place.stored == 1
