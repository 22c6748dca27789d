"""The landing root compared with the manifest, in one answer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.manifest import OUTPUT, Payload
from manifest_platform.operations import folders
from manifest_platform.operations.folders import compare
from manifest_platform.pipeline import LOAD, SHRED, Pipeline
from manifest_platform.pipeline.discovery import discover
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.pipeline.shop import Shop, keys, run_name, run_names


def load(pipeline: Pipeline, *numbers: int) -> None:
    """Records that runs are shredded and loaded, in their order."""
    for step in (SHRED, LOAD):
        with pipeline.lease(FEED, step) as lease:
            for key in keys(pipeline, *numbers):
                state = pipeline.manifest.state(lease.application)
                [claim] = pipeline.manifest.claim(lease, [pipeline.manifest.item(key)], state)
                pipeline.manifest.complete(claim, Payload(OUTPUT, {}))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def pipeline(shop: Shop) -> Iterator[Pipeline]:
    with shop.open() as pipeline:
        yield pipeline


def test_all_that_needs_a_look_is_one_answer(shop: Shop, pipeline: Pipeline) -> None:
    shop.land(pipeline, 0, 1, 2, 3)
    load(pipeline, 0, 1, 2)
    shutil.rmtree(shop.directory(1))
    shop.write(4, 5)
    (shop.directory(5) / "_SUCCESS").unlink()
    found = compare(pipeline)
    assert found.not_loaded == tuple(run_names(3, 4)), "registered, or not even that"
    assert (found.deleted, found.incomplete) == ((run_name(1),), (run_name(5),))
    assert (found.directories, bool(found)) == (5, True)
    assert found.summary == (
        f"2 landed and never loaded: {run_name(3)}, {run_name(4)}; 1 loaded and then deleted from the landing root:"
        f" {run_name(1)}; 1 incomplete: {run_name(5)}"
    )
    (shop.directory(5) / "_SUCCESS").touch()
    discover(pipeline)
    load(pipeline, 3, 4, 5)
    shop.write(1)
    assert not compare(pipeline)
    assert compare(pipeline).summary.startswith("everything in ")


def test_a_skipped_directory_is_meant_to_stay_unloaded(shop: Shop, pipeline: Pipeline) -> None:
    [key] = shop.land(pipeline, 0)
    assert compare(pipeline).not_loaded == (run_name(0),)
    pipeline.manifest.skip(key, "test data")
    assert not compare(pipeline)


def test_directories_before_the_period_are_not_compared(shop: Shop, pipeline: Pipeline) -> None:
    shop.land(pipeline, 0, 1, 2)
    load(pipeline, 0, 1, 2)
    shutil.rmtree(shop.directory(0))
    assert compare(pipeline).deleted == (run_name(0),)
    of_hour = compare(pipeline, 0.001)
    assert not of_hour
    assert of_hour.since == pipeline.source.time(run_name(2)) - timedelta(days=0.001)  # ty: ignore


def test_directories_of_the_last_hour_may_be_on_their_way(shop: Shop, pipeline: Pipeline, monkeypatch: Any) -> None:
    shop.land(pipeline, 0)
    time = pipeline.source.time(run_name(0))
    assert time
    for age, found in ((timedelta(minutes=59), ()), (timedelta(minutes=61), (run_name(0),))):
        monkeypatch.setattr(pipeline, "clock", lambda age=age: time + age)
        assert compare(pipeline).not_loaded == found


def test_every_page_of_names_is_read(shop: Shop, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_PAGE", 2)
    shop.land(pipeline, 0, 1, 2, 3, 4)
    load(pipeline, 0, 1, 2, 3, 4)
    found = compare(pipeline)
    assert (found.directories, bool(found)) == (5, False)
