"""Windows from end to end: the hourly files of the S3 loader become items, each file once, even if files come late."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifest_platform import config, storage
from manifest_platform.cli import main
from manifest_platform.demo.events import SCHEMAS, write_run
from manifest_platform.manifest import Application, Item, Refused
from manifest_platform.manifest.transitions import put_state
from manifest_platform.operations.accept import accept, keep
from manifest_platform.operations.bad_replay import replay, with_bad_rows
from manifest_platform.operations.doctor import Doctor
from manifest_platform.operations.standing import behind
from manifest_platform.pipeline import LOAD, DiscoveryReport, Pipeline, discovery
from manifest_platform.pipeline.discovery import discover
from manifest_platform.sources import directories
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.pipeline.shop import NAME, Shop, drained

HIVE = "year={yyyy}/month={MM}/day={dd}/hour={HH}"
FLAT = "{yyyy}-{MM}-{dd}-{HH}*"
NOON = datetime(2024, 5, 14, 12, tzinfo=UTC)
NOON_NAME = "hour=2024-05-14-12"


@dataclass
class Zone:
    """A shop whose events land in windows, and the storage's clock, which a test may set ahead."""

    shop: Shop
    root: str
    layout: str
    ahead: timedelta = field(default_factory=timedelta)

    def put(self, start: datetime, name: str, data: bytes = b"x\n") -> None:
        """Writes a file of a window, as the loader does."""
        path = self.layout
        for word, code in (("{yyyy}", "%Y"), ("{MM}", "%m"), ("{dd}", "%d"), ("{HH}", "%H")):
            path = path.replace(word, f"{start:{code}}")
        uri = f"{self.root}/{path[:-1]}0501-{name}" if path.endswith("*") else f"{self.root}/{path}/{name}"
        if storage.is_local(uri):
            storage.local_path(uri).parent.mkdir(parents=True, exist_ok=True)
        storage.write_bytes(uri, data)

    def later(self) -> None:
        """Waits until the storage gives new files another time."""
        time.sleep(0.02 if storage.is_local(self.root) else 1.05)

    def look(self, everything: bool = True) -> DiscoveryReport:
        with self.shop.open() as pipeline:
            return discover(pipeline, everything)

    def settled(self) -> DiscoveryReport:
        """The report of a look after everything has settled."""
        self.ahead += timedelta(days=2)
        return self.look()

    def item(self, pipeline: Pipeline, name: str) -> Item:
        return pipeline.manifest.item(pipeline.key(name))


def zone_of(home: Path, monkeypatch: pytest.MonkeyPatch, root: str, layout: str = HIVE, **landing: Any) -> Zone:
    settings = {"root": root, "layout": layout, "settle_seconds": 60, **landing}
    zone = Zone(Shop(home, landing=settings), storage.as_uri(root), layout)
    local, answered = directories.local_time, directories.answered_at
    monkeypatch.setattr(directories, "local_time", lambda root: local(root) + zone.ahead)
    monkeypatch.setattr(directories, "answered_at", lambda answer: answered(answer) + zone.ahead)
    return zone


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Zone:
    return zone_of(tmp_path, monkeypatch, str(tmp_path / "landing"))


@pytest.fixture(params=[("local", HIVE), ("s3", HIVE), ("s3", FLAT)], ids=" ".join)
def zone(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Zone:
    where, layout = request.param
    bucket = request.getfixturevalue("s3_bucket") if where == "s3" else ""
    return zone_of(tmp_path, monkeypatch, f"{bucket}/landing" if bucket else str(tmp_path / "landing"), layout)


def test_a_window_is_registered_once_it_is_over_and_has_settled(zone: Zone) -> None:
    now = datetime.now(UTC)
    zone.put(now, "a.gz")
    zone.put(NOON, "a.gz")
    zone.put(NOON, "b.gz")
    if zone.layout == HIVE:
        zone.put(NOON + timedelta(hours=1), "_SUCCESS")
    with zone.shop.open() as pipeline:
        running = f"hour={now:%Y-%m-%d-%H}"
        assert discover(pipeline).incomplete == (NOON_NAME, running)
        zone.ahead = timedelta(seconds=30)
        assert discover(pipeline).incomplete == (NOON_NAME, running)
        zone.ahead = timedelta(seconds=90)
        report = discover(pipeline)
        assert (report.new, report.incomplete) == ((NOON_NAME,), (running,))
        landed = zone.item(pipeline, NOON_NAME).landed
        assert landed
        assert landed.files == 2
        again = discover(pipeline, everything=True)
        assert (again.registered, again.changed, again.known) == ((), (), 1)


def test_a_window_unchanged_for_a_day_needs_no_second_look(zone: Zone) -> None:
    zone.put(NOON, "a.gz")
    assert zone.settled().new == (NOON_NAME,)


def test_late_files_of_a_window_become_another_item(zone: Zone) -> None:
    zone.put(NOON, "b.gz")
    zone.put(NOON + timedelta(hours=1), "b.gz")
    zone.settled()
    for number, name in enumerate(("c.gz", "a.gz"), start=1):
        zone.later()
        zone.ahead = timedelta()
        zone.put(NOON, name)
        late = f"{NOON_NAME}-late-{number}"
        assert zone.look().incomplete == (late,), "it settles like any other"
        report = zone.settled()
        assert (report.new, report.changed) == ((late,), ())
    with zone.shop.open() as pipeline:
        items = list(pipeline.manifest.items(FEED))
        assert [item.key.name for item in items] == [
            NOON_NAME,
            f"{NOON_NAME}-late-1",
            f"{NOON_NAME}-late-2",
            "hour=2024-05-14-13",
        ]
        for item in items:
            assert item.landed
            assert item.landed.files == 1
            assert pipeline.source.reread(item.landed) == item.landed, "each has its own files, whatever came later"
    assert zone.look().registered == ()


def test_a_rewritten_file_is_reported_and_doubles_nothing(zone: Zone) -> None:
    zone.put(NOON, "a.gz")
    zone.put(NOON, "b.gz")
    zone.settled()
    zone.later()
    zone.put(NOON, "a.gz", b"other\n")
    for _ in range(2):
        report = zone.settled()
        assert (report.registered, report.changed) == ((), (NOON_NAME,))
    with zone.shop.open() as pipeline:
        item = zone.item(pipeline, NOON_NAME)
        accept(pipeline, item.key, "written anew")
        landed = zone.item(pipeline, NOON_NAME).landed
        assert landed
        assert landed.files == 2
        assert pipeline.source.reread(landed) == landed
    assert (zone.settled().changed, zone.look().registered) == ((), ())
    zone.later()
    zone.put(NOON, "c.gz")
    assert zone.settled().new == (f"{NOON_NAME}-late-1",)


def test_acknowledged_files_stay_out_of_a_window_and_further_files_are_reported(here: Zone) -> None:
    here.put(NOON, "a.gz")
    here.put(NOON, "b.gz")
    here.settled()
    here.later()
    here.put(NOON, "a.gz", b"other\n")
    here.settled()
    with here.shop.open() as pipeline:
        keep(pipeline, pipeline.key(NOON_NAME), "known")
    assert (here.settled().changed, here.look().registered) == ((), ())
    here.put(NOON, "c.gz")
    report = here.settled()
    assert (report.changed, report.registered) == ((NOON_NAME,), ()), "nobody can tell whether its rows are loaded"


def test_a_file_dated_before_the_cut_that_appears_after_it_is_reported(here: Zone) -> None:
    """S3 gives a file that was uploaded in parts the time at which the upload began."""
    here.put(NOON, "a.gz")
    (file,) = storage.local_path(here.root).rglob("a.gz")
    here.settled()
    here.put(NOON, "b.gz")
    (late,) = storage.local_path(here.root).rglob("b.gz")
    stat = file.stat()
    os.utime(late, ns=(stat.st_mtime_ns - 1, stat.st_mtime_ns - 1))
    report = here.settled()
    assert (report.changed, report.registered) == ((NOON_NAME,), ())


def test_files_outside_every_window_are_reported(zone: Zone) -> None:
    zone.put(NOON, "a.gz")
    storage_name = "run=2024-05-14-12-00-00" if zone.layout == HIVE else "enriched.tsv"
    if storage.is_local(zone.root):
        (storage.local_path(zone.root) / storage_name).mkdir()
    else:
        storage.write_bytes(f"{zone.root}/{storage_name}" + ("/part-0" if zone.layout == HIVE else ""), b"x")
    assert zone.look().unparseable == (storage_name,)


def test_a_window_can_be_named_by_its_folder(here: Zone) -> None:
    here.put(NOON, "a.gz")
    here.settled()
    with here.shop.open() as pipeline:
        key = pipeline.key(NOON_NAME)
        assert pipeline.key("year=2024/month=05/day=14/hour=12") == key
        assert pipeline.key(key.id) == key
        with pytest.raises(Refused, match=r"in a window of the layout year=.* \(named as hour=2024-05-14-12\)"):
            pipeline.key("hour=2024-05-14")


# Cost


def test_a_look_at_rest_costs_one_s3_request_and_no_store_request(
    s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = zone_of(tmp_path, monkeypatch, f"{s3_bucket}/landing")
    hours = [NOON + timedelta(hours=number) for number in range(12)]
    for hour in hours:
        zone.put(hour, "a.gz")
    zone.put(datetime.now(UTC), "a.gz")
    zone.settled()
    zone.later()
    zone.put(hours[-1], "late.gz")
    with zone.shop.open() as pipeline:
        move_watermark_to(pipeline, "hour=2024-05-14-23")
        zone.ahead += timedelta(days=2)
        assert discover(pipeline).new == ("hour=2024-05-14-23-late-1",), "nothing behind it is loaded, so it is in order"
        for _ in range(2):
            state, before = pipeline.manifest.state(Application(LOAD)), pipeline.manifest.store.requests
            report = discover(pipeline, recalled=True, state=state)
        assert pipeline.manifest.store.requests == before
        assert (report.requests, report.known) == (1, 9), "of the last six hours; the others are looked at once a day"


def move_watermark_to(pipeline: Pipeline, name: str) -> None:
    """Moves the watermark, as if all items up to this item were loaded."""
    moved = pipeline.manifest.state(Application(LOAD)).with_feed(FEED, watermark=pipeline.key(name).position)
    pipeline.manifest.store.transact(NAME, [put_state(Application(LOAD), moved)], name)


def test_every_window_is_compared_once_a_day_in_parts(s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zone = zone_of(tmp_path, monkeypatch, f"{s3_bucket}/landing")
    monkeypatch.setattr(discovery, "PART", 3)
    for number in range(30):
        zone.put(NOON + timedelta(hours=number), "a.gz")
    with zone.shop.open() as pipeline:
        zone.ahead += timedelta(days=2)
        discover(pipeline)
        move_watermark_to(pipeline, "hour=2024-05-15-17")
    zone.later()
    zone.put(NOON, "late.gz")  # into a known window, and far behind the watermark
    zone.put(NOON - timedelta(hours=2), "a.gz")
    zone.ahead += timedelta(days=2)
    zone.shop.ahead = timedelta(days=2)
    found: list[str] = []
    requests: list[int] = []
    with zone.shop.open() as pipeline:
        for _ in range(14):
            report = discover(pipeline)
            found += report.registered
            requests.append(report.requests)
    assert sorted(found) == ["hour=2024-05-14-10", f"{NOON_NAME}-late-1"]
    assert max(requests) <= 3
    assert requests[-1] == 1, "then it rests until the next day"


# From landing to warehouse


def events(zone: Zone, start: datetime, name: str, seed: int, count: int = 5) -> None:
    run = write_run(zone.shop.home / f"written-{seed}", start, count, seed)
    zone.put(start, name, storage.read_bytes(f"{run.uri}/part-00000.tsv"))


def test_windows_are_loaded_in_order_and_each_file_once(here: Zone, spark: Any) -> None:
    events(here, NOON, "b.tsv", 1)
    events(here, NOON + timedelta(hours=1), "a.tsv", 2)
    here.settled()
    here.later()
    events(here, NOON, "a.tsv", 3)  # after it was registered, before it is loaded
    with here.shop.open() as pipeline:
        _, report = drained(pipeline, spark)
        assert (report.loaded, report.failed) == (2, 0), "what came late keeps nothing from being loaded"
    here.settled()
    with here.shop.open() as pipeline:
        _, report = drained(pipeline, spark)
        assert (report.loaded, report.failed) == (1, 0)
    seen = here.shop.seen
    assert seen.ledger == [(NOON_NAME, False), ("hour=2024-05-14-13", False), (f"{NOON_NAME}-late-1", True)]
    assert (seen.rows["events"], here.shop.doubled_events) == (15, [])


@pytest.mark.long
def test_bad_lines_of_windows_are_replayed_and_no_later_file_is_lost(here: Zone, spark: Any) -> None:
    settings = yaml.safe_load(here.shop.config_file.read_text())
    schemas = here.shop.home / "schemas"
    shutil.copytree(SCHEMAS, schemas, ignore=shutil.ignore_patterns("add_to_cart"))
    more = {"schemas": [str(schemas)], "bad_rows": {"max_share": 0.9, "max_count": 1000}}
    settings["datasets"][NAME]["shred"] |= more
    here.shop.config_file.write_text(yaml.safe_dump(settings))
    for number in range(2):
        events(here, NOON + timedelta(hours=number), "a.tsv", number, 20)
    here.settled()
    with here.shop.open() as pipeline:
        drained(pipeline, spark)
        bad = pipeline.warehouse.row_counts()["bad"]
        shutil.copytree(SCHEMAS / "com.acme/add_to_cart", schemas / "com.acme/add_to_cart")
        done = replay(pipeline, [item.key for item in with_bad_rows(pipeline, FEED)], "published")
        assert (done.good.total(), len(done.items), bad > 0) == (bad, 1, True)
        assert drained(pipeline, spark)[1].loaded == 1
    here.later()
    events(here, NOON, "b.tsv", 2, 20)
    events(here, NOON + timedelta(hours=1), "b.tsv", 3, 20)
    events(here, NOON + timedelta(hours=2), "a.tsv", 4, 20)
    here.settled()
    with here.shop.open() as pipeline:
        assert drained(pipeline, spark)[1].loaded == 3
        assert pipeline.warehouse.row_counts()["events"] == 100
        assert replay(pipeline, [item.key for item in with_bad_rows(pipeline, FEED)], "again").items == []
        pipeline.warehouse.close()
        assert Doctor(pipeline).examine().findings == []
    late = {name for name, is_late in here.shop.seen.ledger if is_late}
    assert late == {f"{NOON_NAME}-late-1", "hour=2024-05-14-13-late-1"}
    assert here.shop.doubled_events == []


def test_status_explain_and_history_know_windows(here: Zone, spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    here.shop.config_file.write_text(
        here.shop.config_file.read_text().replace(
            "settle_seconds", "expected_every_seconds: {enriched: 1}\n      settle_seconds"
        )
    )
    events(here, NOON, "a.tsv", 1)
    here.settled()
    with here.shop.open() as pipeline:
        drained(pipeline, spark)
        late = behind(pipeline, FEED, NOON_NAME)
        assert late
        now = datetime.now(UTC)
        assert abs(late.seconds - (now - NOON - timedelta(hours=1)).total_seconds()) < 60, "since the window's end"
    at = ["--config", str(here.shop.config_file)]
    assert main(["status", "--json", *at]) == 0
    load = json.loads(capsys.readouterr().out)["steps"][-1]
    assert load["watermark"] == NOON_NAME
    for command in (["history", NOON_NAME], ["explain", NOON_NAME]):
        assert main([*command, *at]) == 0
        assert NOON_NAME in capsys.readouterr().out


# Settings


@pytest.mark.parametrize(
    ("landing", "why"),
    [
        ({"layout": "hourly"}, "landing.layout"),
        ({"layout": HIVE, "complete": "marker"}, "allowed with this layout: `complete: settle`"),
    ],
)
def test_an_invalid_layout_is_reported_with_its_key(tmp_path: Path, landing: dict[str, str], why: str) -> None:
    shop = Shop(tmp_path, landing=landing)
    with pytest.raises(config.ConfigError, match=why):
        config.load(shop.config_file)


def test_windows_settle_and_have_a_short_look_back_by_default(tmp_path: Path) -> None:
    landing = config.load(Shop(tmp_path, landing={"layout": HIVE}).config_file).datasets[NAME].landing
    assert (landing.complete, landing.look_back_days) == ("settle", 0.25)
