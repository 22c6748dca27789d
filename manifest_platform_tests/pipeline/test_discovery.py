"""Discovery from end to end: landing, completeness, and directories that are only reported."""

from __future__ import annotations

import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import storage
from manifest_platform.config.config import ConfigError
from manifest_platform.demo.events import write_run
from manifest_platform.manifest import Application, Refused, UnknownItem
from manifest_platform.manifest.transitions import put_state
from manifest_platform.operations.standing import behind, step_status
from manifest_platform.orchestration.feed_checks import NOT_STOPPED, evaluations
from manifest_platform.orchestration.keys import Names
from manifest_platform.pipeline import LOAD, DiscoveryReport, discovery
from manifest_platform.pipeline.discovery import discover
from manifest_platform.sources import directories
from manifest_platform.sources.errors import LandingMisconfigured
from manifest_platform_tests.pipeline.shop import (
    EVENTS,
    NAME,
    Shop,
    drained,
    history,
    keys,
    move_watermark,
    run_name,
    run_names,
)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


class Settling(Shop):
    """A shop whose runs are complete after a minute without a change, by the storage's clock."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, landing={"complete": "settle", "settle_seconds": 60})
        self._ahead = [(datetime.min.replace(tzinfo=UTC), timedelta())]

    @property
    def storage_ahead(self) -> timedelta:
        """The lead of the storage's clock over this machine's clock."""
        return self._ahead[-1][1]

    @storage_ahead.setter
    def storage_ahead(self, ahead: timedelta) -> None:
        self._ahead.append((datetime.now(UTC), ahead))

    def by_the_storage(self, written: datetime) -> datetime:
        """The time at which a file was written, by the storage's clock."""
        return written + next(ahead for since, ahead in reversed(self._ahead) if since <= written)


@pytest.fixture
def settling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settling:
    shop, real = Settling(tmp_path), directories.local_time
    arrival = directories.arrival
    monkeypatch.setattr(directories, "local_time", lambda root: real(root) + shop.storage_ahead)
    monkeypatch.setattr(directories, "arrival", lambda status: shop.by_the_storage(arrival(status)))
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
def test_directories_settle_by_the_storages_clock_whatever_the_machines_clock(settling: Settling, ahead: timedelta) -> None:
    """Settle times followed the machine's clock: a machine that was ahead registered a run that was still being written."""
    settling.write(0)
    with settling.open() as pipeline:
        assert discover(pipeline).incomplete == (run_name(0),)
    settling.ahead = ahead
    with settling.open() as pipeline:
        assert discover(pipeline).incomplete == (run_name(0),)
    settling.storage_ahead += timedelta(minutes=1)
    with settling.open() as pipeline:
        assert discover(pipeline).new == (run_name(0),)


def test_directories_in_s3_settle_by_the_clock_of_s3(s3_bucket: str, tmp_path: Path) -> None:
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


def test_a_run_that_is_a_link_is_reported_and_does_not_delay_others(shop: Shop) -> None:
    shop.write(0, 1)
    link = shop.directory(0)
    link.rename(shop.home / "run")
    link.symlink_to(shop.home / "run")
    with shop.open() as pipeline:
        report = discover(pipeline)
        assert report.new == (run_name(1),)
        assert report.unreadable[0].startswith(f"{run_name(0)}: {link} is a symbolic link, which is never followed")
        link.unlink()
        (shop.home / "run").rename(link)
        assert discover(pipeline).new == (run_name(0),)


def test_a_run_that_changes_settles_again(settling: Settling) -> None:
    settling.write(0)
    with settling.open() as pipeline:
        discover(pipeline)
        settling.storage_ahead += timedelta(minutes=1)
        (settling.directory(0) / "part-00001.tsv").write_text("more\n")
        assert discover(pipeline).incomplete == (run_name(0),)
        assert discover(pipeline).incomplete == (run_name(0),)


def test_a_late_run_beyond_the_look_back_is_seen_only_by_a_look_at_everything(tmp_path: Path, spark: Any) -> None:
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


def test_a_rewritten_run_is_reported_and_its_first_content_stays_registered(shop: Shop) -> None:
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


def test_names_that_are_not_runs_are_reported_and_left_alone(shop: Shop) -> None:
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


def test_a_missing_landing_root_is_reported(shop: Shop) -> None:
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


def test_a_run_dated_in_the_future_is_reported_and_left_alone(shop: Shop) -> None:
    ahead = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
    write_run(str(shop.home / "landing"), ahead, EVENTS, seed=1)
    with shop.open() as pipeline:
        report = discover(pipeline)
        assert report.future == (f"run={ahead:%Y-%m-%d-%H-%M-%S}",)
        assert report.registered == ()


def test_a_watermark_ahead_of_the_clock_hides_nothing(shop: Shop, spark: Any) -> None:
    """A run dated tomorrow is registered, and runs of today are still looked for."""
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


def test_directories_that_settle_outside_the_look_back_are_not_forgotten(settling: Settling, spark: Any) -> None:
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


def test_a_moved_run_is_reported_at_every_look_even_if_runs_settle(settling: Settling, spark: Any) -> None:
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


# Directories older than the look-back


@pytest.fixture
def forgetful(tmp_path: Path) -> Shop:
    """A shop that looks back 14 minutes, and whose run 100 is loaded; a full listing is due."""
    shop = Shop(tmp_path, landing={"look_back_days": 0.01})
    shop.write(100)
    with shop.open() as pipeline:
        discover(pipeline)
        move_watermark(pipeline, 100)
    shop.ahead = timedelta(hours=25)  # the first look lists everything
    return shop


def look(shop: Shop) -> DiscoveryReport:
    """The report of a new process that looks once."""
    with shop.open() as pipeline:
        return discover(pipeline)


def test_a_run_that_landed_beyond_the_look_back_is_found_within_a_day(forgetful: Shop) -> None:
    """Earlier, only a look at everything found it."""
    look(forgetful)
    forgetful.write(3)
    assert look(forgetful).registered == ()
    forgetful.ahead += timedelta(hours=25)
    assert look(forgetful).late == (run_name(3),)
    assert look(forgetful).registered == ()


def test_a_full_listing_is_done_in_parts_and_continued_by_other_processes(
    forgetful: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "PART", 2)
    forgetful.write(*range(5))
    looks: list[tuple[str, ...]] = []
    for _ in range(4):
        looks.append(look(forgetful).late)
    assert looks == [tuple(run_names(0, 1)), tuple(run_names(2, 3)), (run_name(4),), ()]


def test_abandoned_directories_also_limit_a_part_of_a_full_listing(forgetful: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "READ", 2)
    for run in forgetful.write(*range(5)):
        (storage.local_path(run.uri) / "_SUCCESS").unlink()
    looks = [look(forgetful).incomplete for _ in range(4)]
    assert looks == [tuple(run_names(0, 1)), tuple(run_names(2, 3)), (run_name(4),), ()]


def test_an_unreadable_run_beyond_the_look_back_is_reported(forgetful: Shop) -> None:
    forgetful.write(1, 2)
    forgetful.directory(1).rename(forgetful.home / "run")
    forgetful.directory(1).symlink_to("nothing")
    report = look(forgetful)
    assert report.late == (run_name(2),)
    assert "is a symbolic link" in report.unreadable[0]


def test_a_part_of_a_full_listing_of_s3_costs_a_request_and_another_for_each_unknown_run(
    s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, landing={"root": f"{s3_bucket}/landing", "look_back_days": 0.01})
    monkeypatch.setattr(discovery, "PART", 4)
    with shop.open() as pipeline:
        shop.land(pipeline, *range(6), 100)
        move_watermark(pipeline, 100)
    shop.ahead = timedelta(days=2)
    shop.write(7)
    with shop.open() as pipeline:
        reports = [discover(pipeline) for _ in range(4)]
    assert [report.late for report in reports] == [(), (run_name(7),), (), ()]
    assert [report.requests for report in reports] == [2, 3, 1, 1]


# The rows that a look reads


def test_a_look_without_new_directories_costs_no_store_request(tmp_path: Path) -> None:
    """Earlier, it read the state again that its sensor had just read, and its notes, of which there were none."""
    shop = Shop(tmp_path, landing={"complete": "settle", "settle_seconds": 60})
    with shop.open() as pipeline:
        costs = []
        for _ in range(2):
            state = pipeline.manifest.state(Application(LOAD))
            before = pipeline.manifest.store.requests
            discover(pipeline, state=state)
            costs.append(pipeline.manifest.store.requests - before)
        assert costs[-1] == 0
        shop.write(2)
        assert discover(pipeline).incomplete == (run_name(2),)
        assert list(pipeline.manifest.looks("enriched", all_known=True)) == [run_name(2)], "a note was made"


class Rows:
    """Counts the rows that a store returns."""

    def __init__(self, store: Any):
        self._store, self.rows = store, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def query(self, *arguments: Any, **options: Any) -> Any:
        found = self._store.query(*arguments, **options)
        self.rows += len(found)
        return found

    def get_many(self, *arguments: Any) -> Any:
        found = self._store.get_many(*arguments)
        self.rows += len(found)
        return found


def test_a_look_reads_only_new_items_despite_abandoned_directories(shop: Shop) -> None:
    """An abandoned run at the start of the look-back made each look read all of it: 2,691 rows instead of 2."""
    for run in shop.write(0, 20, 40):
        (storage.local_path(run.uri) / "_SUCCESS").unlink()
    with shop.open() as pipeline:
        shop.land(pipeline, *(number for number in range(60) if number % 20))
        manifest = pipeline.manifest
        discover(pipeline)
        manifest.store = counting = Rows(manifest.store)  # ty: ignore[invalid-assignment]
        before = counting.requests
        assert discover(pipeline).incomplete == tuple(run_names(0, 20, 40))
        # One request for the store's identity and its newest record, the watermark's, and one for the abandoned ones at once.
        assert (counting.rows, counting.requests - before) == (2, 3)
        counting.rows = 0
        shop.write(60)
        assert discover(pipeline).new == (run_name(60),)
        assert counting.rows <= 2 + 2
        (shop.directory(0) / "_SUCCESS").touch()
        counting.rows = 0
        assert discover(pipeline).new == (run_name(0),)
        assert counting.rows <= 2 + 3


def test_an_abandoned_directory_that_another_process_registers_is_seen(shop: Shop) -> None:
    [run] = shop.write(0)
    marker = storage.local_path(run.uri) / "_SUCCESS"
    marker.unlink()
    with shop.open() as pipeline, shop.open() as other:
        assert [discover(pipeline).incomplete for _ in range(2)] == [(run_name(0),)] * 2
        marker.touch()
        assert discover(other).new == (run_name(0),)
        report = discover(pipeline)
        assert (report.new, report.known, report.incomplete) == ((), 1, ())


# Stopped producers


def test_a_stopped_producer_is_reported_by_the_age_of_the_watermark(tmp_path: Path) -> None:
    """Nothing waits after a stop, so the lag of the waiting items stays 0."""
    shop = Shop(tmp_path, landing={"expected_every_seconds": {"enriched": 3600}})
    now = datetime.now(UTC).replace(microsecond=0)
    write_run(str(shop.home / "landing"), now, EVENTS, seed=1)
    name = f"run={now:%Y-%m-%d-%H-%M-%S}"
    with shop.open() as pipeline:
        assert behind(pipeline, "enriched", None) is None
        discover(pipeline)
        state = pipeline.manifest.state(Application(LOAD)).with_feed("enriched", watermark=pipeline.key(name).position)
        pipeline.manifest.store.transact(NAME, [put_state(Application(LOAD), state)], "as if loaded")
        found = step_status(pipeline, "enriched", LOAD).behind
        assert found is not None
        assert (found.watermark, found.stopped, found.seconds < 3600) == (name, False, True)
        shop.ahead = timedelta(hours=2)
        found = step_status(pipeline, "enriched", LOAD).behind
        assert found is not None
        assert (found.stopped, found.seconds >= 7200) == (True, True)
        names = Names(pipeline.config, pipeline.source)
        told = evaluations(pipeline, names, pipeline.clock(), lambda feed: pipeline.manifest.next(feed, LOAD), {})
        [(words, make)] = [(words, make) for check, words, make in told if check.endswith(NOT_STOPPED)]
        assert name in str(words)
        evaluation = make()
        assert not evaluation.passed
        assert float(str(evaluation.metadata["behind_seconds"].value)) >= 7200


def test_an_expected_interval_for_an_unknown_feed_is_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path, landing={"expected_every_seconds": {"incr": 900}})
    with pytest.raises(ConfigError, match=r"names feed 'incr'; allowed: enriched"):
        shop.open()
