"""Retention of a shop: what is deleted by age, what is kept, and how everything else tells about it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.manifest import Holding, Refused
from manifest_platform.operations.doctor import Doctor, Finding, Kind
from manifest_platform.operations.explain import explanation
from manifest_platform.operations.folders import compare
from manifest_platform.operations.reload import reload
from manifest_platform.operations.reshred import reshred
from manifest_platform.operations.retention.rule import Why
from manifest_platform.operations.retention.run import Collected, collect, plan
from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline.discovery import discover
from manifest_platform_tests.pipeline.shop import NAME, Shop, drained, keys, run_name

Made = Callable[..., Shop]
ONE_WEEK = timedelta(days=8)


@pytest.fixture
def made(tmp_path: Path, spark: Any) -> Made:
    """A shop with three loaded runs, eight days later. `retention`: its settings."""

    def _made(count: int = 3, **retention: int) -> Shop:
        shop = Shop(tmp_path / "shop")
        shop.config_file.write_text(
            shop.config_file.read_text().replace("    load: {}\n", f"    load: {{}}\n    retention: {retention}\n")
        )
        shop.shredded(spark, count)
        with shop.open() as pipeline:
            drained(pipeline)
        shop.ahead = ONE_WEEK
        return shop

    return _made


def attempts(shop: Shop, number: int) -> list[Path]:
    folder = shop.home / "shredded" / NAME / run_name(number)
    return sorted(folder.iterdir()) if folder.exists() else []


def kept(found: Collected, kind: str) -> dict[Why, int]:
    return {why: one.items for why, one in found.tallies[kind].kept.items()}


def faults(pipeline: Pipeline) -> list[Finding]:
    """The doctor's findings, apart from the shop's clock, which is ahead."""
    return [one for one in Doctor(pipeline).examine().findings if one.kind is not Kind.CLOCK]


def told(pipeline: Pipeline, number: int) -> str:
    [key] = keys(pipeline, number)
    return explanation(pipeline.manifest, key, str, pipeline.clock()).text


def test_by_default_nothing_is_deleted(made: Made) -> None:
    shop = made()
    with shop.open() as pipeline:
        assert not collect(pipeline)
        assert collect(pipeline).tallies == {}
    assert shop.directory(0).exists() and attempts(shop, 0)


def test_landed_directories_are_deleted_once_they_are_old_enough(made: Made) -> None:
    shop = made(landing_days=7)
    shop.ahead = timedelta(days=6)
    with shop.open() as pipeline:
        assert not plan(pipeline)
        assert kept(plan(pipeline), "landing") == {Why.YOUNG: 3}
    shop.ahead = ONE_WEEK
    with shop.open() as pipeline:
        shown = plan(pipeline)
        assert shop.directory(0).exists(), "a dry run deletes nothing"
        done = collect(pipeline)
        assert (shown.tallies["landing"].items, shown.tallies["landing"].found) == (3, done.tallies["landing"].found)
        assert list((shop.home / "landing").iterdir()) == []
        assert all(attempts(shop, number) for number in range(3))
        before = pipeline.manifest.store.query(NAME, "")
        assert not collect(pipeline)
        assert pipeline.manifest.store.query(NAME, "") == before, "a second time nothing is written"


def test_what_was_deleted_is_told_and_is_no_fault(made: Made) -> None:
    shop = made(landing_days=7)
    with shop.open() as pipeline:
        collect(pipeline)
        day = f"{pipeline.clock():%Y-%m-%d}"
        assert faults(pipeline) == []
        assert not compare(pipeline)
        found = discover(pipeline, everything=True)
        assert (found.changed, found.new) == ((), ())
        assert f"Its landed directory was deleted by retention on {day}" in told(pipeline, 0)
        [key] = keys(pipeline, 0)
        with pytest.raises(Refused, match=f"was deleted by retention on {day}. Restore it from a backup"):
            reshred(pipeline, key, "try")
        reload(pipeline, key, "rows are wrong")
        assert drained(pipeline)[1].loaded == 1


def test_of_landed_directory_and_output_the_last_copy_stays(made: Made) -> None:
    shop = made(landing_days=7, shredded_days=7)
    with shop.open() as pipeline:
        done = collect(pipeline)
        assert (done.tallies["shredded"].items, kept(done, "landing")) == (3, {Why.LAST_COPY: 3})
    assert all(shop.directory(number).exists() and not attempts(shop, number) for number in range(3))


def test_the_last_copy_is_deleted_by_its_own_age(made: Made) -> None:
    shop = made(landing_days=1, shredded_days=1, last_copy_days=7)
    with shop.open() as pipeline:
        done = collect(pipeline)
        assert (done.tallies["shredded"].items, done.tallies["landing"].items) == (3, 3)
        assert not shop.directory(0).exists() and not attempts(shop, 0)
        [key] = keys(pipeline, 0)
        with pytest.raises(Refused, match=r"its shredded output was deleted by retention on .*, and .* was deleted"):
            reload(pipeline, key, "rows are wrong")
        assert "It can no longer be loaded again" in told(pipeline, 0)
        assert faults(pipeline) == []


def test_an_item_whose_output_was_deleted_is_shredded_again_for_a_reload(made: Made, spark: Any) -> None:
    shop = made(shredded_days=7)
    with shop.open() as pipeline:
        collect(pipeline)
        [key] = keys(pipeline, 0)
        reload(pipeline, key, "rows are wrong")
        _, report = drained(pipeline, spark)
        assert report.loaded == 1
        assert pipeline.manifest.item(key).deletion_of(Holding.SHREDDED) is None, "it is there again"
        assert (len(attempts(shop, 0)), len(attempts(shop, 1))) == (1, 0)


def test_a_restored_directory_can_be_shredded_again(made: Made, spark: Any) -> None:
    shop = made(landing_days=7)
    shutil.copytree(shop.directory(0), shop.home / "backup")
    with shop.open() as pipeline:
        collect(pipeline)
        shutil.copytree(shop.home / "backup", shop.directory(0))
        [key] = keys(pipeline, 0)
        reshred(pipeline, key, "restored")
        drained(pipeline, spark)
        assert pipeline.manifest.item(key).deletion_of(Holding.LANDING) is None
        shop.ahead = 2 * ONE_WEEK
        collect(pipeline)
    assert not shop.directory(0).exists(), "it is deleted again, once it is old enough again"


def test_items_that_are_not_loaded_are_kept(made: Made, spark: Any) -> None:
    shop = made(landing_days=7, shredded_days=7)
    with shop.open() as pipeline:
        shop.land(pipeline, 3)
        pipeline.manifest.skip(keys(pipeline, 3)[0], "not wanted")
    shop.ahead = 2 * ONE_WEEK
    with shop.open() as pipeline:
        shop.land(pipeline, 4)
        shop.ahead = 3 * ONE_WEEK
        done = collect(pipeline)
    assert kept(done, "shredded") == {Why.UNFINISHED: 1, Why.BOUND: 1}
    assert shop.directory(3).exists(), "a skipped directory was never shredded, so it is the last copy"
    assert shop.directory(4).exists()


def test_links_in_landed_directories_are_not_followed(made: Made) -> None:
    shop = made(landing_days=7)
    (shop.home / "precious").mkdir()
    (shop.home / "precious" / "file").write_text("stays")
    (shop.directory(0) / "link").symlink_to(shop.home / "precious")
    shop.directory(1).rename(shop.home / "elsewhere")
    shop.directory(1).symlink_to(shop.home / "elsewhere")
    with shop.open() as pipeline:
        done = collect(pipeline)
        [failed] = done.failed
    assert run_name(1) in failed and "symbolic link" in failed
    assert (shop.home / "precious" / "file").exists() and list((shop.home / "elsewhere").iterdir())
    assert not shop.directory(0).exists() and not shop.directory(2).exists()
