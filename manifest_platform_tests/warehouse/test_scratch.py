"""Files that a load makes for itself: removed at its end, and by the doctor if it was killed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import storage
from manifest_platform.listing import Listing
from manifest_platform.operations.doctor import Doctor
from manifest_platform.operations.doctor.findings import Kind
from manifest_platform.pipeline.shredding import listing_of
from manifest_platform.sources.snowplow.settings import EVENTS_TABLE
from manifest_platform.warehouse.scratch import Scratch, scratch
from manifest_platform_tests.pipeline.shop import Shop, drained, keys


@pytest.mark.parametrize("clean", [False, True])
def test_what_a_killed_load_leaves_is_removed_by_the_doctor(tmp_path: Path, spark: Any, clean: bool) -> None:
    shop = Shop(tmp_path)
    shop.shredded(spark, 1)
    with shop.open() as pipeline:
        [key] = keys(pipeline, 0)
        listing = listing_of(pipeline.manifest.item(key))
        [uri, *_] = listing.uris(EVENTS_TABLE)
        before = sorted(Path(pipeline.folder(key).removeprefix("file://")).rglob("*"))
        left = Scratch(listing)
        storage.write_bytes(left.uri(uri, ".json.parquet"), b"left")
        if clean:
            doctor = Doctor(pipeline, grace=timedelta())
            diagnosis = doctor.examine()
            assert [one.kind for one in diagnosis.findings] == [Kind.ORPHAN]
            assert doctor.clean(diagnosis).findings == []
        else:
            left.remove()
        assert sorted(Path(pipeline.folder(key).removeprefix("file://")).rglob("*")) == before
        assert drained(pipeline)[1].loaded == 1


def test_what_the_storage_refuses_to_remove_is_told_and_fails_no_load(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_uri: str) -> None:
        raise PermissionError("AccessDenied")

    monkeypatch.setattr(storage, "delete_folder", refuse)
    with scratch(Listing("run", "a", 0, 0, 0, (), ())) as made:
        made.folder("s3://lake/run/a/events/1.parquet")
    assert "s3://lake/run/a-load-" in caplog.text, "the roles of deploy/aws know its folders by this"
    assert "is not removed now: AccessDenied. `doctor --clean` removes it" in caplog.text


def test_the_files_of_a_load_are_removed_if_it_fails(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path)
    shop.shredded(spark, 1)
    with shop.open() as pipeline:
        listing = listing_of(pipeline.manifest.item(keys(pipeline, 0)[0]))
        with pytest.raises(ValueError, match="no"), scratch(listing) as made:
            uri = made.uri(listing.objects[0].uri, ".repeated.parquet")
            storage.write_bytes(uri, b"x")
            raise ValueError("no")
        assert not Path(uri.removeprefix("file://")).parent.exists()
