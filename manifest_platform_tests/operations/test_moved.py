"""A moved landing root: items keep their ids, and are read from the new place."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import boto3
import pytest

from manifest_platform import storage
from manifest_platform.manifest import Manifest, Refused
from manifest_platform.operations import moved
from manifest_platform.operations.moved import import_moved
from manifest_platform.pipeline import LOAD, SHRED, Pipeline
from manifest_platform.pipeline.discovery import discover
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.pipeline.shop import Shop, keys, run_name, run_names


def relocated(shop: Shop, root: str) -> None:
    """Changes the landing root in the configuration."""
    old = f"root: {shop.home}/landing"
    assert old in shop.config_file.read_text()
    shop.config_file.write_text(shop.config_file.read_text().replace(old, f"root: {root}"))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A shop of three runs, whose landing directory was moved."""
    shop = Shop(tmp_path)
    with shop.open() as pipeline:
        shop.land(pipeline, 0, 1, 2)
    (tmp_path / "landing").rename(tmp_path / "moved")
    relocated(shop, f"{tmp_path}/moved")
    return shop


def move(pipeline: Pipeline, shop: Shop, **options: object) -> moved.Moved:
    return import_moved(pipeline, f"{shop.home}/landing", f"{shop.home}/moved", "a larger disk", **options)  # ty: ignore


def test_moved_items_keep_their_ids_and_are_read_from_the_new_place(shop: Shop) -> None:
    with shop.open() as pipeline, shop.open() as sensor:
        before = keys(pipeline, 0, 1, 2)
        assert discover(sensor).moved == tuple(run_names(0, 1, 2))
        assert discover(sensor).moved_from == (storage.as_uri(shop.home / "landing"),)
        report = move(pipeline, shop)
        assert (report.moved, report.missing, report.differs) == (3, [], [])
        assert keys(pipeline, 0, 1, 2) == before
        assert pipeline.key(str(shop.home / "moved" / run_name(0))) == before[0]
        for looking in (sensor, pipeline):
            found = discover(looking)
            assert (found.moved, found.known, found.changed) == ((), 3, ())
            assert [one.key for one in found.landed] == before
        with pipeline.lease(FEED, SHRED) as lease:
            claims = pipeline.manifest.claim(lease, [pipeline.manifest.item(key) for key in before])
            for claim in claims:
                files = pipeline.source.directory(claim, "file:///out").files
                assert all("/moved/" in uri for uri, _ in files)
                assert files


def test_a_repeated_move_records_nothing_and_a_dry_run_writes_nothing(shop: Shop) -> None:
    with shop.open() as pipeline:
        assert move(pipeline, shop, dry_run=True).moved == 3
        assert move(pipeline, shop, limit=2).left
        report = move(pipeline, shop)
        assert (report.moved, report.already, report.left) == (1, 2, False)
        assert move(pipeline, shop).moved == 0


def test_items_that_are_missing_or_differ_at_the_new_place_are_reported_and_not_moved(shop: Shop) -> None:
    shutil.rmtree(shop.home / "moved" / run_name(1))
    (shop.home / "moved" / run_name(2) / "part-00001.tsv").write_text("other")
    with shop.open() as pipeline:
        report = move(pipeline, shop)
        assert (report.moved, report.missing, report.differs) == (1, [run_name(1)], [run_name(2)])
        assert [pipeline.manifest.item(key).move is None for key in keys(pipeline, 0, 1, 2)] == [False, True, True]


def test_a_skipped_item_that_is_gone_is_not_reported_as_missing(shop: Shop) -> None:
    shutil.rmtree(shop.home / "moved" / run_name(1))
    with shop.open() as pipeline:
        [key] = keys(pipeline, 1)
        pipeline.manifest.skip(key, "not wanted", LOAD)
        report = move(pipeline, shop)
        assert (report.moved, report.gone, report.missing) == (2, 1, [])


def test_a_concurrent_worker_does_not_prevent_a_move(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    with shop.open() as pipeline, shop.open() as other:
        real = Manifest.move

        def meanwhile(self: Manifest, items: list, reason: str) -> None:
            with other.lease(FEED, SHRED) as lease:
                other.manifest.claim(lease, [other.manifest.item(items[0][0].key)])
            real(self, items, reason)

        monkeypatch.setattr(Manifest, "move", meanwhile)
        assert move(pipeline, shop).moved == 3
        assert all(pipeline.manifest.item(key).move for key in keys(pipeline, 0, 1, 2))


def _copied_in_parts(client: Any, bucket: str, source: str, target: str) -> None:
    """Copies an object as tools do that copy large ones: the copy has another ETag, so its directory has another checksum."""
    upload = client.create_multipart_upload(Bucket=bucket, Key=target)["UploadId"]
    place: dict[str, Any] = {"Bucket": bucket, "Key": target, "UploadId": upload}
    copied = client.upload_part_copy(CopySource={"Bucket": bucket, "Key": source}, PartNumber=1, **place)
    parts = [{"PartNumber": 1, "ETag": copied["CopyPartResult"]["ETag"]}]
    client.complete_multipart_upload(MultipartUpload={"Parts": parts}, **place)


def test_items_move_from_one_prefix_of_a_bucket_to_another(s3_bucket: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path, landing={"root": f"{s3_bucket}/old"})
    with shop.open() as pipeline:
        [key] = shop.land(pipeline, 0)
    client, bucket = boto3.client("s3"), s3_bucket.removeprefix("s3://")
    for one in client.list_objects_v2(Bucket=bucket, Prefix="old/")["Contents"]:
        _copied_in_parts(client, bucket, one["Key"], one["Key"].replace("old/", "new/", 1))
    shop.config_file.write_text(shop.config_file.read_text().replace(f"{s3_bucket}/old", f"{s3_bucket}/new"))
    with shop.open() as pipeline:
        assert discover(pipeline).moved_from == (f"{s3_bucket}/old",)
        assert import_moved(pipeline, f"{s3_bucket}/old", f"{s3_bucket}/new", "").differs == [run_name(0)]
        assert import_moved(pipeline, f"{s3_bucket}/old", f"{s3_bucket}/new", "", same_size=True).moved == 1
        report = discover(pipeline)
        assert (report.known, report.moved + report.changed, [one.key for one in report.landed]) == (1, (), [key])


def test_invalid_places_are_refused(shop: Shop) -> None:
    with shop.open() as pipeline:
        for old, new in (("ftp://x", "y"), ("s3://a/b", "s3://a/b/")):
            with pytest.raises(Refused):
                import_moved(pipeline, old, new, "")
