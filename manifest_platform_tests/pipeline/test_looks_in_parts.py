"""Looks in parts, as sensors and followers look: bounded requests and time, nothing lost, everything in order."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from manifest_platform import aws
from manifest_platform.config.config import FollowConfig
from manifest_platform.manifest import Manifest
from manifest_platform.notices.files import FileNotices
from manifest_platform.pipeline import DiscoveryReport, Pipeline, discovery, follow, looking
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.follow import Follower
from manifest_platform.pipeline.heard import Heard
from manifest_platform.sources import directories
from manifest_platform.sources.snowplow.source import SnowplowEnriched
from manifest_platform.spark import SparkUnavailable
from manifest_platform_tests.pipeline.shop import Shop, move_watermark, run_name, run_names

FEED = "enriched"
LONG = 3600.0
MOST_LISTS = 3


def land(root: str, *numbers: int, marker: bool = True, files: int = 1) -> None:
    """Lands empty runs, in S3 or in a local folder."""
    names = [f"part-{number}.gz" for number in range(files)] + (["_SUCCESS"] if marker else [])
    for number, name in itertools.product(numbers, names):
        put(root, f"{run_name(number)}/{name}")


def put(root: str, path: str, content: bytes = b"") -> None:
    if root.startswith("s3://"):
        bucket, _, prefix = root.removeprefix("s3://").partition("/")
        aws.client("s3").put_object(Bucket=bucket, Key=f"{prefix}/{path}", Body=content)
        return
    file = Path(root.removeprefix("file://")) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def look(pipeline: Pipeline, seconds: float = LONG) -> DiscoveryReport:
    return discover(pipeline, seconds=seconds)


@contextmanager
def lists() -> Generator[list[str]]:
    """The requests that list objects in the block, as the client of looks in parts sends them."""
    sent: list[str] = []

    def note(request: Any, **_more: Any) -> None:
        sent.append(request.url)

    with aws.impatient():
        events = aws.client("s3").meta.events
    events.register("before-send.s3.ListObjectsV2", note)
    try:
        yield sent
    finally:
        events.unregister("before-send.s3.ListObjectsV2", note)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a part ten names or files, also of S3's answers, so that 100 runs are ten parts."""
    for module, name, value in (
        (looking, "PART", 10),
        (discovery, "PART", 10),
        (directories, "_PAGE", 10),
        (looking, "AT_ONCE", 20),
        (looking, "OVERLAP", 3),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.fixture
def remote(s3_bucket: str, tmp_path: Path) -> Shop:
    return Shop(tmp_path, landing={"root": f"{s3_bucket}/landing"})


@pytest.fixture(params=["local", "s3"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    return Shop(tmp_path) if request.param == "local" else request.getfixturevalue("remote")


def root_of(shop: Shop) -> str:
    with shop.open() as pipeline:
        return pipeline.source.root


@pytest.mark.usefixtures("small_parts")
def test_a_look_with_nothing_new_lists_three_times_at_most_however_much_has_landed(remote: Shop) -> None:
    """Earlier, it took a request for each thousand files in the look-back, and that was everything if none was loaded."""
    land(root_of(remote), *range(60), files=2)
    with remote.open() as pipeline:
        assert look(pipeline).new == tuple(run_names(*range(60)))
        counts = []
        for _ in range(20):
            with lists() as sent:
                assert look(pipeline).registered == ()
            counts.append(len(sent))
        move_watermark(pipeline, 59)
        with lists() as sent:
            look(pipeline)
        counts.append(len(sent))
    remote.ahead = timedelta(days=2)  # now a full listing is due, too
    with remote.open() as pipeline, lists() as sent:
        look(pipeline)
        counts.append(len(sent))
    assert max(counts) == MOST_LISTS
    assert min(counts) >= 1


@pytest.mark.usefixtures("small_parts")
def test_a_new_run_costs_its_own_request(remote: Shop) -> None:
    land(root_of(remote), *range(30))
    with remote.open() as pipeline:
        look(pipeline)
        land(root_of(remote), 31)
        with lists() as sent:
            assert look(pipeline).new == (run_name(31),)
        assert len(sent) <= MOST_LISTS + 1


@pytest.mark.usefixtures("small_parts")
def test_a_run_that_lands_late_in_the_look_back_is_found_after_one_round_of_its_names(shop: Shop) -> None:
    land(root_of(shop), *range(10), *range(11, 60))
    with shop.open() as pipeline:
        look(pipeline)
        land(root_of(shop), 10)
        found = [look(pipeline).registered for _ in range(60 // 10 + 1)]
    assert [names for names in found if names] == [(run_name(10),)]


@pytest.mark.usefixtures("small_parts")
def test_a_run_among_the_newest_that_lands_late_is_found_at_once(shop: Shop) -> None:
    land(root_of(shop), *range(57), 58, 59)
    with shop.open() as pipeline:
        look(pipeline)
        land(root_of(shop), 57)
        assert look(pipeline).new == (run_name(57),)


@pytest.mark.usefixtures("small_parts")
def test_a_run_that_a_notice_names_is_found_at_once_however_late_it_is_or_long_it_waited(shop: Shop) -> None:
    root = root_of(shop)
    land(root, *range(10), *range(11, 60))
    land(root, 10, marker=False)
    with shop.open() as pipeline:
        look(pipeline)
        [waits] = pipeline.sights[FEED].later.values()
        waits.due = time.monotonic() + LONG  # its first file is old
        land(root, 10)
        assert look(pipeline).registered == (), "it has its turn later"
        assert heard(pipeline, f"{run_name(10)}/_SUCCESS").new == (run_name(10),)
        land(root, 5, files=2)  # rewritten
        found = heard(
            pipeline, f"{run_name(5)}/_SUCCESS", f"{run_name(5)}/part-1.gz", run_name(61), "elsewhere", "run=x/_SUCCESS"
        )
        assert (found.changed, found.registered) == ((run_name(5),), ())
        assert not pipeline.sights[FEED].later


@pytest.mark.usefixtures("small_parts")
def test_a_run_that_a_notice_names_costs_one_request_and_the_newest_runs_keep_their_order(remote: Shop) -> None:
    root = root_of(remote)
    land(root, *range(3), *range(4, 60))
    with remote.open() as pipeline:
        look(pipeline)
        land(root, 3)
        with lists() as sent:
            assert heard(pipeline, f"{run_name(3)}/_SUCCESS", f"{run_name(58)}/_SUCCESS").registered == (run_name(3),)
        assert len(sent) <= MOST_LISTS + 1
        land(root, 60, 61)
        assert heard(pipeline, f"{run_name(61)}/_SUCCESS", f"{run_name(60)}/_SUCCESS").new == tuple(run_names(60, 61))


def no_spark() -> NoReturn:
    raise SparkUnavailable("no worker")


@pytest.mark.usefixtures("small_parts")
def test_a_turn_of_a_follower_with_nothing_new_lists_three_times_at_most(remote: Shop) -> None:
    land(root_of(remote), *range(60), files=2)
    following = Follower(remote.open, no_spark, FollowConfig(warm_spark=False, listing_seconds=LONG))
    with closing(following):
        [*_] = following.turn(landing_rang=True)
        for _ in range(10):
            with lists() as sent:
                [*_] = following.turn(landing_rang=True)
            assert 1 <= len(sent) <= MOST_LISTS


@pytest.mark.usefixtures("small_parts")
def test_a_follower_whose_look_is_not_over_looks_again_at_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.0)
    land(root_of(shop), *range(30))
    following = Follower(shop.open, no_spark, FollowConfig(warm_spark=False, listing_seconds=LONG))
    with closing(following):
        found: list[str] = []
        while following.due <= time.monotonic():
            found += [name for told in following.turn(False) if isinstance(told, DiscoveryReport) for name in told.new]
        assert found == run_names(*range(30))


@pytest.mark.usefixtures("small_parts")
def test_the_next_turn_of_a_follower_reads_what_its_notices_name(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    land(root_of(shop), *range(3), *range(4, 60))
    following = Follower(shop.open, no_spark, FollowConfig(warm_spark=False, listing_seconds=LONG))
    with closing(following):
        [*_] = following.turn(False)
        notices = following.landing_notices()
        assert isinstance(notices, FileNotices)
        land(root_of(shop), 3)
        assert notices._counts(str(shop.directory(3) / "_SUCCESS"), False)
        assert notices._counts(str(shop.directory(3)), True) and not notices._counts(
            str(shop.directory(3) / "part-0.gz"), False
        )
        found = [name for told in following.turn(True) if isinstance(told, DiscoveryReport) for name in told.registered]
        assert found == [run_name(3)]


def heard(pipeline: Pipeline, *paths: str) -> DiscoveryReport:
    """Looks after notices of these paths below the landing root."""
    notices = Heard()
    for path in paths:
        notices.hear(f"{pipeline.source.root}/{path}")
    notices.bring_forward(pipeline)
    return look(pipeline)


@pytest.mark.usefixtures("small_parts")
def test_a_rewritten_run_is_found_after_one_round_of_the_files(shop: Shop) -> None:
    land(root_of(shop), *range(40))
    with shop.open() as pipeline:
        look(pipeline)
        put(root_of(shop), f"{run_name(7)}/part-0.gz", b"other")
        found = [look(pipeline).changed for _ in range(40 * 2 // 8 + 1)]
    assert (run_name(7),) in found


@pytest.mark.usefixtures("small_parts")
def test_another_process_continues_where_the_last_look_of_any_process_ended(remote: Shop) -> None:
    land(root_of(remote), *range(60))
    with remote.open() as pipeline:
        look(pipeline)
    land(root_of(remote), 60)
    with remote.open() as pipeline, lists() as sent:
        assert look(pipeline).new == (run_name(60),)
    assert len(sent) <= MOST_LISTS + 1


@pytest.mark.usefixtures("small_parts")
def test_a_late_run_is_found_even_if_each_look_is_another_process(shop: Shop) -> None:
    """The memory of a process is lost then. The progress of the full listing is in the manifest."""
    land(root_of(shop), *range(30), *range(31, 60))
    with shop.open() as pipeline:
        for _ in range(10):
            look(pipeline)
    land(root_of(shop), 30)
    shop.ahead = timedelta(days=2)
    found = []
    for _ in range(60 // 10 + 1):
        with shop.open() as pipeline:
            found += look(pipeline).registered
    assert found == [run_name(30)]


@pytest.mark.usefixtures("small_parts")
def test_two_processes_that_look_in_turns_find_everything_once(shop: Shop) -> None:
    land(root_of(shop), *range(0, 120, 2))
    with shop.open() as one, shop.open() as other:
        found = [name for pipeline in (one, other) * 3 for name in look(pipeline).registered]
        land(root_of(shop), *range(1, 120, 2))
        found += [name for pipeline in (one, other) * 20 for name in look(pipeline).registered]
    assert sorted(found) == run_names(*range(120))


@pytest.mark.usefixtures("small_parts")
def test_runs_of_another_landing_root_are_registered_in_order(tmp_path: Path) -> None:
    """Otherwise a dataset that was tried with new runs, and is then pointed at all runs, loads the newest first."""
    tried = Shop(tmp_path)
    land(root_of(tried), *range(200, 260))
    with tried.open() as pipeline:
        look(pipeline)
    (tmp_path / "all").mkdir()
    shop = Shop(tmp_path, landing={"root": "all"})
    land(root_of(shop), *range(0, 100), *range(300, 310))
    with shop.open() as pipeline:
        found = look(pipeline).registered
    assert list(found) == run_names(*range(100), *range(300, 310))


@pytest.mark.usefixtures("small_parts")
def test_runs_dated_years_ahead_by_a_wrong_clock_hide_no_others(shop: Shop) -> None:
    land(root_of(shop), *range(30), *range(200_000, 200_030))
    shop.ahead = timedelta(days=2000)
    with shop.open() as pipeline:
        assert len(look(pipeline).new) == 60
    shop.ahead = timedelta(0)
    land(root_of(shop), 30, 31)
    with shop.open() as pipeline:
        found = [name for _ in range(60 // 10 + 1) for name in look(pipeline).registered]
    assert found == run_names(30, 31)


@pytest.mark.usefixtures("small_parts")
def test_a_manifest_that_was_set_back_is_filled_again(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    land(root_of(shop), *range(40))
    with shop.open() as pipeline:
        look(pipeline)
    database = tmp_path / "manifest.db"
    before = database.read_bytes()
    with shop.open() as pipeline:
        land(root_of(shop), *range(40, 90))
        assert look(pipeline).new == tuple(run_names(*range(40, 90)))
    database.write_bytes(before)
    with shop.open() as pipeline:
        assert look(pipeline).new == tuple(run_names(*range(40, 90)))


class Clock:
    """A monotonic clock that moves by a second each time that anybody asks it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    for module in (looking, discovery):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=found))
    return found


class Slow:
    """A storage in which each directory takes two seconds to read, and nothing else takes time.

    `now`: the time by the monotonic clock. `asked`: the names that were read, in order.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.asked: list[str] = []
        read = SnowplowEnriched.read

        def slowly(source: SnowplowEnriched, feed: str, name: directories.DirectoryName) -> Any:
            self.asked.append(name.name)
            self.now += 2
            return read(source, feed, name)

        monkeypatch.setattr(SnowplowEnriched, "read", slowly)
        for module in (looking, discovery):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))


SLOW_S = 15.0 + 2 * 2.0
"""The longest look of 15 seconds at the slow storage: after the last directory that waits, it reads a new one."""


def test_a_look_at_a_slow_storage_ends_in_time_and_the_next_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop, slow = Shop(tmp_path), Slow(monkeypatch)
    land(root_of(shop), *range(0, 40, 2), marker=False)
    land(root_of(shop), *range(1, 40, 2))
    found: list[str] = []
    with shop.open() as pipeline:
        while not found or pipeline.sights[FEED].goes_on:
            began = slow.now
            found += look(pipeline, seconds=15).registered
            assert slow.now - began <= SLOW_S
        assert found == run_names(*range(1, 40, 2))
        for one in pipeline.sights[FEED].later.values():
            one.due = 0.0
        began = slow.now
        look(pipeline, seconds=15)
        assert slow.now - began <= SLOW_S / 2, "half of the time remains for what is new"


def test_directories_that_wait_are_all_read_again_before_a_later_one_is_registered_however_slow_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that has no time for all of them does not register the later one, and the next reads the others."""
    shop, slow = Shop(tmp_path), Slow(monkeypatch)
    root = root_of(shop)
    land(root, *range(10), marker=False)
    with shop.open() as pipeline:
        assert look(pipeline).registered == ()
        for one in pipeline.sights[FEED].later.values():
            one.due = math.inf
        land(root, 10)
        put(root, f"{run_name(9)}/_SUCCESS")
        slow.asked.clear()
        found = [look(pipeline, seconds=15).registered]
        assert pipeline.sights[FEED].goes_on
        assert slow.asked == run_names(*range(8))
        for one in pipeline.sights[FEED].later.values():
            one.due = math.inf
        found.append(look(pipeline, seconds=15).registered)
        assert not pipeline.sights[FEED].goes_on
    assert found == [(), tuple(run_names(9, 10))]
    assert slow.asked == run_names(*range(11))


@pytest.mark.usefixtures("small_parts")
def test_a_full_listing_of_a_slow_storage_goes_on_where_a_look_had_no_more_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, slow = Shop(tmp_path), Slow(monkeypatch)
    land(root_of(shop), *range(100, 130))
    with shop.open() as pipeline:
        while not look(pipeline).partial:
            look(pipeline)
        move_watermark(pipeline, 129)
    land(root_of(shop), *range(30))
    shop.ahead = timedelta(days=2)
    found: list[str] = []
    with shop.open() as pipeline:
        for _ in range(12):
            began = slow.now
            found += look(pipeline, seconds=15).registered
            assert slow.now - began <= SLOW_S
    assert sorted(found) == run_names(*range(30))


def test_a_storage_that_does_not_answer_ends_a_look_in_time(remote: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster ends a tick after a minute. A drain that no clock waits for is as patient as before."""
    patient, hurried = aws.limits_of("s3"), list[aws.Limits]()
    with remote.open() as pipeline:
        monkeypatch.setattr(directories, "_list_s3", lambda *_a, **_k: hurried.append(aws.limits_of("s3")) or 1 / 0)
        monkeypatch.setattr(directories, "_names_s3", lambda *_a, **_k: hurried.append(aws.limits_of("s3")) or 1 / 0)
        for seconds in (15.0, None):
            with pytest.raises(ZeroDivisionError):
                discover(pipeline, seconds=seconds)
    short, long = hurried
    assert long == patient
    assert short.attempts * max(short.connect_seconds, short.read_seconds) <= 20


def numbers_in_order(shop: Shop) -> list[str]:
    """The names of all items, in the order in which they were registered."""
    with shop.open() as pipeline:
        items = sorted(pipeline.manifest.items(FEED), key=lambda item: item.records[0].timestamp)
        return [item.key.name for item in items]


@pytest.mark.usefixtures("small_parts")
def test_a_backlog_is_registered_by_looks_of_bounded_time_in_order_and_exactly_once(shop: Shop, clock: Clock) -> None:
    land(root_of(shop), *range(150))
    reports: list[DiscoveryReport] = []
    while not reports or reports[-1].goes_on:
        with shop.open() as pipeline:  # each look is another process
            began = clock.now
            reports.append(look(pipeline, seconds=8))
            assert clock.now - began <= 8 + 6, "a look ends with the step in which its time is over"
        assert reports[-1].new, "each look gets on"
    assert len(reports) > 2
    assert [name for report in reports for name in report.registered] == run_names(*range(150))
    assert numbers_in_order(shop) == run_names(*range(150))


@pytest.mark.usefixtures("small_parts")
def test_a_run_that_lands_late_before_the_end_of_a_look_that_ran_out_of_time_is_found_by_the_next(
    shop: Shop, clock: Clock
) -> None:
    land(root_of(shop), *range(0, 300, 2))
    with shop.open() as pipeline:
        registered = look(pipeline, seconds=8).registered
    number = run_names(*range(300)).index(registered[-1])
    land(root_of(shop), number - 1)
    with shop.open() as pipeline:
        assert look(pipeline, seconds=8).registered[0] == run_name(number - 1)
    assert clock.now


@pytest.mark.usefixtures("small_parts")
def test_a_look_that_is_killed_at_any_step_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(tmp_path)
    land(root_of(shop), *range(45))
    real = Manifest.discover
    for deaths in itertools.count(1):
        calls = itertools.count()

        def dying(self: Any, feed: str, landed: Any, calls: Iterator[int] = calls, deaths: int = deaths) -> Any:
            if next(calls) == deaths:
                raise KeyboardInterrupt
            return real(self, feed, landed)

        monkeypatch.setattr(Manifest, "discover", dying)
        with shop.open() as pipeline:
            try:
                report = look(pipeline)
            except KeyboardInterrupt:
                continue
            break
    assert not report.goes_on
    assert deaths > 2
    assert numbers_in_order(shop) == run_names(*range(45))


@pytest.mark.usefixtures("small_parts")
def test_a_run_that_is_not_complete_yet_is_registered_by_the_look_after_its_marker(shop: Shop) -> None:
    land(root_of(shop), *range(30))
    land(root_of(shop), 5, marker=False)
    land(root_of(shop), 40, marker=False)
    with shop.open() as pipeline:
        assert look(pipeline).incomplete == (run_name(40),)
        assert look(pipeline).incomplete == (run_name(40),), "also by a look that did not read it"
        put(root_of(shop), f"{run_name(40)}/_SUCCESS")
        found = [look(pipeline) for _ in range(2)]
    assert [one.new for one in found if one.new] == [(run_name(40),)]
    assert found[-1].incomplete == ()


def test_an_abandoned_run_is_read_again_after_a_twentieth_of_the_time_since_its_last_change(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    land(root_of(shop), 1, marker=False)
    file = next(shop.directory(1).iterdir())
    old = time.time() - 7200
    os.utime(file, (old, old))
    sight = looking.Sight()
    name = directories.DirectoryName("run", "run", datetime(2024, 5, 14, tzinfo=UTC))
    now = datetime.now(UTC)
    for age, settle, pause in ((0, None, 0), (200, None, 10), (7200, None, 360), (10**7, None, 3600), (7200, 60.0, 60)):
        sight.wait_for(name, None, now - timedelta(seconds=age), now, settle)
        assert sight.later["run"].due - time.monotonic() == pytest.approx(pause, abs=1)


def test_a_run_that_waits_is_read_again_before_a_later_run_is_registered(tmp_path: Path) -> None:
    """Both are complete now. If the earlier one waited for its turn, it would be late, and a strict order would be lost."""
    shop = Shop(tmp_path)
    root = root_of(shop)
    land(root, 0, 1)
    land(root, 2, marker=False)
    with shop.open() as pipeline:
        assert look(pipeline).new == tuple(run_names(0, 1))
        [waiting] = pipeline.sights[FEED].later.values()
        waiting.due += 600
        put(root, f"{run_name(2)}/_SUCCESS")
        land(root, 3)
        assert look(pipeline).new == tuple(run_names(2, 3))


def test_a_name_that_is_not_a_runs_is_reported_until_it_is_gone(shop: Shop) -> None:
    land(root_of(shop), *range(5))
    put(root_of(shop), "run=yesterday/part.gz")
    put(root_of(shop), "notes.txt")
    with shop.open() as pipeline:
        assert [look(pipeline).unparseable for _ in range(2)] == [("notes.txt", "run=yesterday")] * 2
        if root_of(shop).startswith("file"):
            (shop.home / "landing" / "notes.txt").unlink()
            look(pipeline)
            assert look(pipeline).unparseable == ("run=yesterday",)


@pytest.mark.usefixtures("small_parts")
def test_findings_outside_a_part_stay_in_the_report(shop: Shop) -> None:
    """A warning about the landing root would otherwise come and go with the parts."""
    land(root_of(shop), *range(40))
    put(root_of(shop), "run=2024-05-14-1230/part.gz")
    with shop.open() as pipeline:
        reports = [look(pipeline) for _ in range(30)]
    whole = [report for report in reports if not report.partial]
    assert len(whole) > 10
    assert {report.unparseable for report in whole} == {("run=2024-05-14-1230",)}


@pytest.mark.usefixtures("small_parts")
def test_windows_of_time_are_looked_at_in_parts(s3_bucket: str, tmp_path: Path) -> None:
    layout = {"layout": "{yyyy}/{MM}/{dd}/{HH}", "settle_seconds": 1}
    shop = Shop(tmp_path, landing={"root": f"{s3_bucket}/landing", **layout})
    root = root_of(shop)
    for hour, number in itertools.product(range(20), range(3)):
        put(root, f"2024/05/14/{hour:02}/{number}.gz")
    shop.ahead = timedelta(days=2)
    with shop.open() as pipeline:
        known = _looking(pipeline, 20)
        with lists() as sent:
            look(pipeline)
        assert len(sent) <= MOST_LISTS
        put(root, "2024/05/14/03/late.gz")
        late = set(_looking(pipeline, 21)) - set(known)
    assert known == [f"hour=2024-05-14-{hour:02}" for hour in range(20)]
    assert late == {"hour=2024-05-14-03-late-1"}


def _looking(pipeline: Pipeline, count: int) -> list[str]:
    """Looks until this number of items is registered, or in vain for a minute, and returns their names."""
    until = time.monotonic() + 60
    while True:
        look(pipeline)
        names = [item.key.name for item in pipeline.manifest.items(FEED)]
        if len(names) >= count or time.monotonic() > until:
            return names
