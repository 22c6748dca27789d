"""The landing root compared with the manifest, in one answer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from manifest_platform.demo.events import write_run
from manifest_platform.manifest import OUTPUT, Payload
from manifest_platform.operations import folders
from manifest_platform.operations.folders import compare, in_steps
from manifest_platform.pipeline import LOAD, SHRED, Pipeline
from manifest_platform.pipeline.discovery import discover
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.pipeline.shop import Shop, keys, run_name, run_names

HOUR = timedelta(hours=1)


def load(pipeline: Pipeline, *numbers: int, steps: tuple[str, ...] = (SHRED, LOAD)) -> None:
    """Records that runs are shredded and loaded, in their order."""
    for step in steps:
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
    shop.ahead = 2 * HOUR
    found = compare(pipeline)
    assert found.not_loaded == tuple(run_names(3, 4)), "registered, or not even that"
    assert (found.deleted, found.incomplete, found.lost) == ((run_name(1),), (run_name(5),), ())
    assert (found.directories, bool(found)) == (5, True)
    assert found.summary == (
        f"2 landed and never loaded: {run_name(3)}, {run_name(4)}; 1 loaded and then deleted from the landing root:"
        f" {run_name(1)} (their rows stay loaded; put them back to shred or reload them again); 1 incomplete: {run_name(5)}"
        " (complete once it contains the file _SUCCESS, which its writer writes last; if the writer does not write it, set"
        " datasets.shop.landing.complete: settle)"
    )
    assert found.remedies == (Remedy(Action.EXPLAIN, item=run_name(3)), Remedy(Action.DISCOVER_ALL))
    (shop.directory(5) / "_SUCCESS").touch()
    discover(pipeline)
    load(pipeline, 3, 4, 5)
    shop.write(1)
    assert not compare(pipeline)
    assert compare(pipeline).summary.startswith("nothing in ")
    assert compare(pipeline).remedies == ()


def test_a_directory_that_is_gone_before_it_was_shredded_is_lost_at_any_age(shop: Shop, pipeline: Pipeline) -> None:
    shop.land(pipeline, 0, 1)
    load(pipeline, 0, steps=(SHRED,))
    for number in (0, 1):
        shutil.rmtree(shop.directory(number))
    found = compare(pipeline)
    assert (found.lost, found.not_loaded) == ((run_name(1),), ()), "the other can be loaded from what was shredded"
    assert found.summary == (
        f"1 deleted from the landing root before they were shredded: {run_name(1)} (put them back, or skip them)"
    )
    assert found.remedies == (Remedy(Action.SKIP, item=run_name(1)),)


def test_a_skipped_directory_is_meant_to_stay_unloaded(shop: Shop, pipeline: Pipeline) -> None:
    [key] = shop.land(pipeline, 0)
    assert compare(pipeline, age=0).not_loaded == (run_name(0),)
    pipeline.manifest.skip(key, "test data")
    assert not compare(pipeline, age=0)


def test_directories_before_the_period_are_not_compared(shop: Shop, pipeline: Pipeline) -> None:
    shop.land(pipeline, 0, 1, 2)
    load(pipeline, 0, 1, 2)
    shutil.rmtree(shop.directory(0))
    assert compare(pipeline).deleted == (run_name(0),)
    of_hour = compare(pipeline, 0.001)
    assert (bool(of_hour), of_hour.directories) == (False, 1)
    assert of_hour.since == pipeline.source.time(run_name(2)) - timedelta(days=0.001)  # ty: ignore


def test_directories_that_landed_lately_may_be_on_their_way(shop: Shop, pipeline: Pipeline) -> None:
    """The runs are of the past, and landed now: one is registered, one is not, and one is incomplete."""
    shop.land(pipeline, 0)
    shop.write(1, 2)
    (shop.directory(2) / "_SUCCESS").unlink()
    for ahead, not_loaded, partly in ((0.98 * HOUR, [], []), (1.02 * HOUR, [0, 1], [2])):
        shop.ahead = ahead
        found = compare(pipeline)
        assert (found.not_loaded, found.incomplete) == (tuple(run_names(*not_loaded)), tuple(run_names(*partly)))
    assert compare(pipeline, age=7200) == replace(found, not_loaded=(), incomplete=(), remedies=())


def test_a_directory_has_time_until_its_own_is_over(shop: Shop, pipeline: Pipeline) -> None:
    ends = datetime.now(UTC) + HOUR
    written = write_run(shop.home / "landing", ends, 1, seed=1)
    for ahead, found in ((1.9 * HOUR, ()), (2.1 * HOUR, (Path(written.uri).name,))):
        shop.ahead = ahead
        assert compare(pipeline).not_loaded == found


def test_every_page_of_names_is_read(shop: Shop, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_PAGE", 2)
    shop.land(pipeline, 0, 1, 2, 3, 4)
    load(pipeline, 0, 1, 2, 3, 4)
    found = compare(pipeline)
    assert (found.directories, bool(found)) == (5, False)


def test_a_comparison_in_steps_reads_a_stretch_at_a_time_and_says_the_same(
    shop: Shop, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.land(pipeline, *range(12))
    load(pipeline, *range(9))
    for number in (1, 6, 10):
        shutil.rmtree(shop.directory(number))
    shop.write(20, 21)
    shop.ahead = 5 * HOUR
    whole = compare(pipeline)
    assert (whole.deleted, whole.lost) == (tuple(run_names(1, 6)), tuple(run_names(10)))
    assert whole.not_loaded == tuple(run_names(9, 11, 20, 21))
    monkeypatch.setattr(folders, "STRETCH", 3)
    *stretches, found = in_steps(pipeline)
    assert stretches == [None] * 4
    assert found == replace(whole, requests=found.requests if found else 0)


def test_a_run_that_is_loaded_between_the_steps_is_not_missed(
    shop: Shop, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "STRETCH", 3)
    shop.land(pipeline, *range(4), *range(5, 10))
    load(pipeline, *range(4))
    shop.ahead = 5 * HOUR
    steps = in_steps(pipeline, age=0)
    next(steps)
    load(pipeline, *range(5, 10))
    shop.land(pipeline, 10)
    load(pipeline, 10)
    found = next(one for one in steps if one is not None)
    assert (found.deleted, found.lost) == ((), ())
    assert set(found.not_loaded) <= set(run_names(*range(7, 10))), "those that the first step read"
