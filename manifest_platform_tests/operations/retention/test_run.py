"""Retention of a shop: what is deleted by age, what is kept, and how everything else tells about it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.cli import main
from manifest_platform.config import VARIABLE
from manifest_platform.manifest import Holding, Refused
from manifest_platform.operations.bad_replay import open_rows, with_bad_rows
from manifest_platform.operations.doctor import Doctor, Finding, Kind
from manifest_platform.operations.explain import explanation
from manifest_platform.operations.folders import compare
from manifest_platform.operations.reload import reload
from manifest_platform.operations.reshred import reshred
from manifest_platform.operations.retention.rule import Why
from manifest_platform.operations.retention.run import Collected, collect, plan
from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.merge import MergeReport, Merging, merge
from manifest_platform.pipeline.shredding import OutputGone
from manifest_platform_tests.pipeline.shop import NAME, Shop, drained, keys, no_spark, run_name

Made = Callable[..., Shop]
ONE_WEEK = timedelta(days=8)


@pytest.fixture
def made(tmp_path: Path, spark: Any) -> Made:
    """A shop with three loaded runs, eight days later. `retention`: its settings."""

    def _made(count: int = 3, settings: Mapping[str, Any] | None = None, lines: int = 0, **retention: int) -> Shop:
        shop = Shop(tmp_path / "shop", **(settings or {}))
        shop.config_file.write_text(
            shop.config_file.read_text().replace("    load: {}\n", f"    load: {{}}\n    retention: {retention}\n")
        )
        shop.shredded(spark, count, **({"bad_lines": lines} if lines else {}))
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


@pytest.mark.parametrize("last_copies", [{}, {"last_copy_days": 7}])
def test_a_rewritten_directory_that_nobody_accepted_is_kept(made: Made, last_copies: Mapping[str, int]) -> None:
    shop = made(2, landing_days=7, **last_copies)
    corrected = shop.directory(0) / "part-corrected.gz"
    corrected.write_bytes(b"new content")
    with shop.open() as pipeline:
        assert discover(pipeline, everything=True).changed == (run_name(0),)
        assert kept(plan(pipeline), "landing") == {Why.REWRITTEN: 1}
        done = collect(pipeline)
        assert (done.tallies["landing"].items, kept(done, "landing")) == (1, {Why.REWRITTEN: 1})
        assert "was rewritten since" in done.tallies["landing"].kept[Why.REWRITTEN].detail
        assert corrected.exists() and not shop.directory(1).exists()
        corrected.unlink()
        assert collect(pipeline).tallies["landing"].items == 1, "it is as it was"
    assert not shop.directory(0).exists()


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


def test_landed_directories_with_links_are_kept_and_not_followed(made: Made) -> None:
    shop = made(landing_days=7)
    (shop.home / "precious").mkdir()
    (shop.home / "precious" / "file").write_text("stays")
    (shop.directory(0) / "link").symlink_to(shop.home / "precious")
    shop.directory(1).rename(shop.home / "elsewhere")
    shop.directory(1).symlink_to(shop.home / "elsewhere")
    with shop.open() as pipeline:
        done = collect(pipeline)
        why = done.tallies["landing"].kept[Why.REWRITTEN]
    assert (why.items, done.failed) == (2, [])
    assert (shop.home / "precious" / "file").exists() and list((shop.home / "elsewhere").iterdir())
    assert shop.directory(0).exists() and not shop.directory(2).exists()


def test_merged_objects_take_the_place_of_shredded_output(made: Made, spark: Any) -> None:
    shop = made(2, {"merge": {}}, shredded_days=7)
    with shop.open() as pipeline:
        assert kept(plan(pipeline), "shredded") == {Why.MERGING: 2}, "nothing is merged yet"
        *_, report = merge(Merging(pipeline), lambda: spark)
        assert isinstance(report, MergeReport)
        shop.ahead = timedelta(days=30)
    with shop.open() as pipeline:
        question = "SELECT count(*) FROM events"
        reader, before = Merging(pipeline).reader, Merging(pipeline).reader.query(question)
        shown = plan(pipeline).tallies["shredded"]
        assert collect(pipeline).tallies["shredded"].found == shown.found
        assert shown.items == 2 and not attempts(shop, 0)
        assert reader.query(question) == before
        assert faults(pipeline) == []
        *_, report = merge(Merging(pipeline), no_spark)
        assert isinstance(report, MergeReport)


def test_bad_rows_alone_are_deleted_and_nothing_else_of_the_output(made: Made, spark: Any) -> None:
    whole = {"shred": {"pack_kib": 0, "bad_rows": {"max_count": 100, "max_share": 1.0}}}
    shop = made(1, whole, lines=3, bad_days=7)
    with shop.open() as pipeline:
        [key] = keys(pipeline, 0)
        assert sum(1 for _ in open_rows(pipeline, pipeline.manifest.item(key))) == 3
        done = collect(pipeline)
        assert done.tallies["bad"].items == 1
        assert "have bad rows that could not be listed or replayed" in done.tallies["bad"].costs
        [attempt] = attempts(shop, 0)
        assert not (attempt / "bad").exists() and (attempt / "events").exists()
        with pytest.raises(OutputGone, match="its bad rows were deleted by retention"):
            next(open_rows(pipeline, pipeline.manifest.item(key)))
        assert list(with_bad_rows(pipeline, key.feed)) == []
        assert faults(pipeline) == []
        reload(pipeline, key, "wrong rows")
        assert drained(pipeline, spark)[1].loaded == 1
        assert sum(1 for _ in open_rows(pipeline, pipeline.manifest.item(key))) == 3, "shredded again for the reload"


def test_the_command_shows_asks_and_deletes(made: Made, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    shop = made(1, landing_days=1)
    monkeypatch.setenv(VARIABLE, str(shop.config_file))
    monkeypatch.setattr(Pipeline, "__init__", _ahead(Pipeline.__init__))
    assert main(["gc", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "landing  1" in said and "landing: 1 items could not be shredded again" in said and "would be deleted" in said
    monkeypatch.setattr("typer.confirm", lambda _text: False)
    assert main(["gc"]) == 4
    assert shop.directory(0).exists() and "nothing was deleted" in capsys.readouterr().out
    assert main(["gc", "--json"]) == 2
    assert "add --yes or --dry-run" in capsys.readouterr().err
    assert main(["gc", "--yes", "--json"]) == 0
    [data] = json.loads(capsys.readouterr().out)["data"]
    assert (data["kind"], data["items"], data["kept"]) == ("landing", 1, [])
    assert not shop.directory(0).exists()
    assert main(["gc", "--yes"]) == 4
    assert "nothing to delete" in capsys.readouterr().out


def _ahead(opened: Callable[..., None]) -> Callable[..., None]:
    """Opens a pipeline whose clock is eight days ahead."""

    def open_ahead(pipeline: Pipeline, *arguments: Any, **options: Any) -> None:
        opened(pipeline, *arguments, **options)
        pipeline.clock = lambda: datetime.now(UTC) + ONE_WEEK

    return open_ahead
