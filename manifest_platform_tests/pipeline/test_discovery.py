"""Discovery from end to end: what lands, when it counts as complete, and what is only reported."""

from __future__ import annotations

import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.demo.events import write_run
from manifest_platform.manifest import Refused, UnknownItem
from manifest_platform.pipeline.discovery import discover
from manifest_platform.sources import directories
from manifest_platform.sources.errors import LandingMisconfigured
from manifest_platform_tests.pipeline.shop import (
    EVENTS,
    Shop,
    drained,
    history,
    keys,
    run_name,
    run_names,
)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


class Settling(Shop):
    """A shop whose runs are complete when they have not changed for a minute of the storage's clock."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, landing={"complete": "settle", "settle_seconds": 60})
        self.storage_ahead = timedelta()


@pytest.fixture
def settling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settling:
    shop, real = Settling(tmp_path), directories.local_time
    monkeypatch.setattr(directories, "local_time", lambda root: real(root) + shop.storage_ahead)
    return shop


def test_a_run_is_registered_once_it_has_its_marker(shop: Shop) -> None:
    shop.write(0, 1)
    (shop.directory(1) / "_SUCCESS").rename(shop.home / "marker")
    with shop.open() as pipeline:
        report = discover(pipeline)
        assert (report.new, report.incomplete, report.known) == ((run_name(0),), (run_name(1),), 0)
        with pytest.raises(UnknownItem):
            keys(pipeline, 1)
        (shop.home / "marker").rename(shop.directory(1) / "_SUCCESS")
        report = discover(pipeline)
        assert (report.new, report.incomplete, report.known) == ((run_name(1),), (), 1)
        assert {landed.key.name for landed in report.landed} == set(run_names(0, 1))
        assert report.registered == (run_name(1),)


def test_discovering_again_changes_nothing(shop: Shop) -> None:
    shop.write(0)
    for known in (0, 1, 1):
        with shop.open() as pipeline:
            report = discover(pipeline)
            assert (len(report.new), report.known) == (1 - known, known)
            assert history(pipeline, 0) == ["New"]


def test_a_run_settles_between_two_processes(settling: Settling) -> None:
    settling.write(0)
    with settling.open() as pipeline:
        assert discover(pipeline).incomplete == (run_name(0),)
    settling.storage_ahead += timedelta(minutes=1)
    with settling.open() as pipeline:
        assert discover(pipeline).new == (run_name(0),)
        assert pipeline.manifest.looks("enriched") == {}


@pytest.mark.parametrize("ahead", [timedelta(days=2), -timedelta(days=2)])
def test_a_machine_whose_clock_is_off_registers_neither_too_early_nor_never(settling: Settling, ahead: timedelta) -> None:
    """Settle times were of the machine that looked: one that was ahead registered a run that was still being written."""
    settling.write(0)
    with settling.open() as pipeline:
        assert discover(pipeline).incomplete == (run_name(0),)
    settling.ahead = ahead
    with settling.open() as pipeline:
        assert discover(pipeline).incomplete == (run_name(0),)
    settling.storage_ahead += timedelta(minutes=1)
    with settling.open() as pipeline:
        assert discover(pipeline).new == (run_name(0),)


def test_a_machine_whose_clock_is_off_waits_for_the_clock_of_s3(s3_bucket: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path, landing={"root": f"{s3_bucket}/landing", "complete": "settle", "settle_seconds": 2})
    shop.write(0)
    shop.ahead = timedelta(days=2)
    with shop.open() as pipeline:
        assert [discover(pipeline).new for _ in range(2)] == [(), ()]
    shop.ahead = -timedelta(days=2)
    until = time.monotonic() + 30
    with shop.open() as pipeline:
        while not (new := discover(pipeline).new) and time.monotonic() < until:
            pass
    assert new == (run_name(0),)


def test_a_run_with_a_link_to_nothing_is_told_and_holds_no_other_up(shop: Shop) -> None:
    shop.write(0, 1)
    link = shop.directory(0) / "part-00009.tsv"
    link.symlink_to("nothing")
    with shop.open() as pipeline:
        report = discover(pipeline)
        assert (report.new, report.unreadable) == ((run_name(1),), (f"{run_name(0)}: {link} is a link to nothing",))
        link.unlink()
        assert discover(pipeline).new == (run_name(0),)


def test_a_run_that_changes_settles_anew(settling: Settling) -> None:
    settling.write(0)
    with settling.open() as pipeline:
        discover(pipeline)
        settling.storage_ahead += timedelta(minutes=1)
        (settling.directory(0) / "part-00001.tsv").write_text("more\n")
        assert discover(pipeline).incomplete == (run_name(0),)
        assert discover(pipeline).incomplete == (run_name(0),)


def test_a_late_run_is_seen_within_the_look_back_and_beyond_it_only_when_all_is_looked_at(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path, landing={"look_back_days": 0.01})  # 14 minutes, and runs are 10 apart
    shop.write(5)
    with shop.open() as pipeline:
        discover(pipeline)
        drained(pipeline, spark)
        shop.write(3, 4, 6)
        report = discover(pipeline)
        assert (report.late, report.new) == ((run_name(4),), (run_name(6),))
        assert discover(pipeline).registered == ()
        report = discover(pipeline, everything=True)
        assert (report.late, report.known) == ((run_name(3),), 3)


def test_a_rewritten_run_is_reported_and_the_first_content_stands(shop: Shop) -> None:
    shop.write(0)
    with shop.open() as pipeline:
        first = discover(pipeline).landed[0].checksum
        (shop.directory(0) / "part-00001.tsv").write_text("more\n")
        report = discover(pipeline)
        assert (report.changed, report.new, report.known) == ((run_name(0),), (), 0)
        landed = pipeline.manifest.item(keys(pipeline, 0)[0]).landed
        assert landed is not None
        assert landed.checksum == first
        assert history(pipeline, 0) == ["New"]


def test_what_is_no_run_is_reported_and_left_alone(shop: Shop) -> None:
    shop.write(0)
    shutil.copytree(shop.directory(0), shop.home / "landing" / "run=2024-05-14-copy-of-yesterday")
    (shop.home / "landing" / "notes.txt").touch()
    with shop.open() as pipeline:
        report = discover(pipeline)
        assert report.unparseable == ("notes.txt", "run=2024-05-14-copy-of-yesterday")
        assert report.new == (run_name(0),)


def test_an_empty_run_is_an_item_like_any_other(shop: Shop) -> None:
    shop.directory(0).mkdir()
    (shop.directory(0) / "_SUCCESS").touch()
    with shop.open() as pipeline:
        [landed] = discover(pipeline).landed
        assert (landed.files, landed.bytes) == (0, 0)


def test_a_root_that_is_not_there_is_told(shop: Shop) -> None:
    (shop.home / "landing").rmdir()
    with shop.open() as pipeline, pytest.raises(LandingMisconfigured, match="does not exist"):
        discover(pipeline)


def test_items_are_named_by_run_or_uri(shop: Shop) -> None:
    with shop.open() as pipeline:
        [key] = shop.land(pipeline, 0)
        assert pipeline.key(key.id) == pipeline.key(f"{key.id}/") == pipeline.key(run_name(0)) == key
        assert pipeline.key(str(shop.directory(0))) == key
        with pytest.raises(Refused, match="'yesterday' is neither a run name"):
            pipeline.key("yesterday")


def test_a_run_that_is_dated_ahead_is_reported_and_left_alone(shop: Shop) -> None:
    ahead = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
    write_run(str(shop.home / "landing"), ahead, EVENTS, seed=1)
    with shop.open() as pipeline:
        report = discover(pipeline)
        assert report.future == (f"run={ahead:%Y-%m-%d-%H-%M-%S}",)
        assert report.registered == ()


def test_a_watermark_ahead_of_the_clock_hides_nothing(shop: Shop, spark: Any) -> None:
    """A run of tomorrow is taken, and what lands today is still looked for."""
    ahead = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=20)
    write_run(str(shop.home / "landing"), ahead, EVENTS, seed=1)
    config_file = shop.config_file
    config_file.write_text(config_file.read_text().replace("landing:", "landing:\n      look_back_days: 0.5", 1))
    with shop.open() as pipeline:
        discover(pipeline)
        assert drained(pipeline, spark)[1].loaded == 1
        now = datetime.now(UTC).replace(microsecond=0)
        write_run(str(shop.home / "landing"), now, EVENTS, seed=2)
        assert discover(pipeline).late == (f"run={now:%Y-%m-%d-%H-%M-%S}",)


def test_what_settles_outside_the_look_back_is_not_forgotten(settling: Settling, spark: Any) -> None:
    settling.write(100_000)
    with settling.open() as pipeline:
        discover(pipeline)
        settling.storage_ahead += timedelta(minutes=1)
        discover(pipeline)
        assert drained(pipeline, spark)[1].loaded == 1
        settling.write(0)
        assert discover(pipeline, everything=True).incomplete == (run_name(0),)
        assert discover(pipeline).incomplete == (), "a look that does not go so far back"
        settling.storage_ahead += timedelta(minutes=1)
        assert discover(pipeline, everything=True).late == (run_name(0),)


def test_a_landing_root_that_was_moved_loads_nothing_again(shop: Shop, spark: Any) -> None:
    shop.shredded(spark, 1)
    (shop.home / "landing").rename(shop.home / "moved")
    config_file = shop.config_file
    config_file.write_text(config_file.read_text().replace("/landing", "/moved"))
    with shop.open() as pipeline:
        report = discover(pipeline, everything=True)
        assert (report.moved, report.registered) == ((run_name(0),), ())
        assert keys(pipeline, 0)[0].id.endswith(f"/landing/{run_name(0)}")


def test_a_moved_run_is_told_of_at_every_look_also_where_runs_settle(settling: Settling, spark: Any) -> None:
    settling.write(0)
    with settling.open() as pipeline:
        discover(pipeline)
        settling.storage_ahead += timedelta(minutes=1)
        assert discover(pipeline).new == (run_name(0),)
    (settling.home / "landing").rename(settling.home / "moved")
    settling.config_file.write_text(settling.config_file.read_text().replace("/landing", "/moved"))
    with settling.open() as pipeline:
        discover(pipeline)
        settling.storage_ahead += timedelta(minutes=1)
        assert [discover(pipeline).moved for _ in range(3)] == [(run_name(0),)] * 3
