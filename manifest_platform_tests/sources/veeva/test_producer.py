"""The producer against a fake Vault: what it registers, when, and how it handles failures.

P1 to P13 are acceptance cases. Where they involve a consumer, the tests take its steps in the manifest directly.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import failpoints, storage
from manifest_platform.failpoints import FailpointReached
from manifest_platform.fake_vault import FakeVault, Fault, VaultSettings, archive_of
from manifest_platform.manifest import Blocked, Discovered, Failure, FailureKind, Item, Landed, Manifest, Ready, Standing, Store
from manifest_platform.manifest.dataset import Mode
from manifest_platform.sources.capture import Awaited, Captured, CaptureEvent, CaptureFailed, CaptureReport, Diverged
from manifest_platform.sources.directories import Settle
from manifest_platform.sources.veeva import producer
from manifest_platform.sources.veeva.client import Password, Patience, Vault, VaultLogin
from manifest_platform.sources.veeva.errors import LoginRefused, VaultUnavailable, WrongVault
from manifest_platform.sources.veeva.files import FINGERPRINT, DirectDataFile, Feed, FileListing, Part, UnusableEntry
from manifest_platform.sources.veeva.layout import SIDECAR, list_windows, read_files, read_window
from manifest_platform.sources.veeva.producer import AWAITED, BY_URGENCY, LOGIN, capture, offered
from manifest_platform_tests.manifest.given import DONE
from manifest_platform_tests.manifest.vault import HOUR, INCR, LOG, acquire, claim, state
from manifest_platform_tests.manifest.vault import vault as manifest_of_vault
from manifest_platform_tests.sources.conftest import Place

EVERY_STORE = pytest.mark.every_store

QUARTER = timedelta(minutes=15)
STOPS = ("0015", "0030", "0045", "0100", "0115", "0130", "0145")
"""The windows of changes in the fixture's Vault."""


def incr(*stops: str) -> tuple[str, ...]:
    return tuple(f"incr/stoptime=20260101{stop}" for stop in stops)


class Producer:
    """Captures from a Vault, each time like a new process, and keeps the last report and events."""

    def __init__(self, fake: FakeVault, root: str, reopen: Callable[[], Store]):
        self.fake, self.root, self._reopen = fake, root, reopen
        self.password = fake.settings.password
        self.events: list[CaptureEvent] = []
        self._opened: list[Store] = []

    def manifest(self) -> Manifest:
        self._opened.append(self._reopen())
        return manifest_of_vault(self._opened[-1], gap="contiguous")

    def client(self, **patience: Any) -> Vault:
        login = VaultLogin(self.fake.url, str(self.fake.settings.vault_id), Password(self.fake.settings.user, self.password))
        return Vault(login, Patience(**{"attempts": 2, **patience}), sleep=lambda seconds: None)

    def __call__(
        self, *feeds: Feed, names: Sequence[str] | None = None, root: str | None = None, insist: bool = True
    ) -> CaptureReport:
        self.events = []
        arguments = str(self.fake.settings.vault_id), feeds or BY_URGENCY, self.fake.now, names
        with self.client() as client:
            for event in capture(client, self.manifest(), root or self.root, *arguments, insist=insist):
                self.events.append(event)
        report = self.events.pop()
        assert isinstance(report, CaptureReport)
        return report

    def items(self, feed: str = INCR) -> list[Item]:
        return list(self.manifest().items(feed))

    def names(self, feed: str = INCR) -> list[str]:
        return [item.key.name for item in self.items(feed)]

    def landed(self, name: str) -> Landed:
        feed = name.partition("/")[0]
        [found] = [item.landed for item in self.items(feed) if item.key.name == name]
        assert found is not None
        return found

    def attempts(self, name: str) -> list[str]:
        """The attempts on the disk, complete or not."""
        folder = storage.local_path(f"{self.root}/vault={self.fake.settings.vault_id}/{name}")
        return sorted(path.name for path in folder.glob("attempt=*"))

    def close(self) -> None:
        for store in self._opened:
            store.close()


@pytest.fixture
def run(vault: FakeVault, tmp_path: Path, reopen: Callable[[], Store]) -> Iterator[Producer]:
    producing = Producer(vault, storage.as_uri(tmp_path / "landing"), reopen)
    yield producing
    producing.close()


def ref(stop: str) -> str:
    return f"incr/2026-01-01T{stop[:2]}:{stop[2:]}Z"


def shred_all(of: Manifest, feed: str = INCR) -> None:
    with of.acquire(feed, "shred", "shredder", HOUR) as held:
        ready, _ = of.waiting(feed, "shred", 90)
        for claimed in of.claim(held, ready):
            of.complete(claimed, DONE)


def load_full(run: Producer) -> Manifest:
    """Captures and loads the first snapshot."""
    run("full")
    of = run.manifest()
    shred_all(of, "full")
    of.begin_full_load(run.items("full")[0].key, "load", "first load")
    with acquire(of, "full") as held:
        of.complete(claim(of, held), DONE)
    return of


# --- what is captured ------------------------------------------------------------------------------------------------


def test_a_capture_takes_logs_first_and_each_feed_in_order(run: Producer) -> None:
    report = run()
    assert report.captured == ("log/date=2026-01-01", *incr(*STOPS), "full/date=2026-01-01")
    assert (run.names("log"), run.names(), run.names("full")) == (
        ["log/date=2026-01-01"],
        list(incr(*STOPS)),
        ["full/date=2026-01-01"],
    )
    assert (report.failed, report.diverged, report.awaited, report.empty, report.unavailable) == ((), (), (), (), None)
    assert report.known == 0
    assert report.oldest == {"log": "2026-01-01T00:00Z", "incr": "2026-01-01T00:15Z", "full": "2026-01-01T00:00Z"}
    assert (report.requests, report.bytes) == (len(run.fake.requests), sum(_sizes(run)))


def _sizes(run: Producer) -> list[int]:
    with run.client() as client:
        return [file.size for feed in BY_URGENCY for file in client.files(feed).files]


def test_an_item_names_its_attempt_and_holds_what_was_verified(run: Producer) -> None:
    [event] = _captured(run, "incr", names=incr("0030"))
    landed = run.landed(event.name)
    window = run.fake.windows("incr")[1]
    tree = archive_of(run.fake.simulation, window).tree()

    assert landed == event.landed
    assert (landed.key.sort, landed.key.feed) == ("2026-01-01T00:30Z", "incr")
    assert landed.key.id == f"{run.root}/vault={run.fake.settings.vault_id}/{event.name}"
    assert (landed.start, landed.stop) == ("2026-01-01T00:15Z", "2026-01-01T00:30Z")
    assert landed.place.startswith(f"{landed.key.id}/attempt=")
    assert (landed.files, landed.bytes) == (len(tree), sum(map(len, tree.values())))
    assert landed.checksum.startswith(FINGERPRINT)
    folder = storage.local_path(landed.place)
    written = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    del written[SIDECAR]
    assert written == tree

    sidecar = read_files(landed.place)
    assert sidecar is not None
    assert {file.path: file.bytes for file in sidecar.files} == {path: len(data) for path, data in tree.items()}
    assert (sidecar.source.name, sidecar.source.start, sidecar.source.stop) == (
        window.name(run.fake.settings.vault_id),
        landed.start,
        landed.stop,
    )
    assert [file.uri for file in read_window(landed.place).files] == sorted(f"{landed.place}/{path}" for path in tree)


def _captured(run: Producer, *feeds: Feed, names: Sequence[str] | None = None) -> list[Captured]:
    run(*feeds, names=names)
    return [event for event in run.events if isinstance(event, Captured)]


def test_a_snapshot_that_a_newer_one_replaced_is_captured_where_it_is_asked_for(run: Producer) -> None:
    run.fake.now = run.fake.simulation.begin + timedelta(hours=26)
    assert run("full").captured == ("full/date=2026-01-02",)
    assert run("full").captured == ()
    assert run("full", names=["full/date=2026-01-01"]).captured == ("full/date=2026-01-01",)
    assert run.names("full") == ["full/date=2026-01-01", "full/date=2026-01-02"]


def test_a_snapshot_of_another_hour_is_named_by_it(run: Producer) -> None:
    begin = run.fake.simulation.begin
    with FakeVault(run.fake.simulation, begin + timedelta(hours=10), VaultSettings(full_hour_utc=8)) as zoned:
        run.fake = zoned
        assert run("full", "log").captured == ("log/date=2026-01-01T0800", "full/date=2026-01-01T0800")
    assert run.landed("full/date=2026-01-01T0800").stop == "2026-01-01T08:00Z"


def test_windows_may_be_asked_for_by_name(run: Producer) -> None:
    report = run(names=["stoptime=202601010045", "log/date=2026-01-01", "incr/stoptime=202601020000"])
    assert report.captured == ("log/date=2026-01-01", *incr("0045"))
    [failed] = report.failed
    assert (failed.name, failed.permanent) == ("incr/stoptime=202601020000", True)
    assert "Vault does not have it" in failed.reason
    assert not any("full_directdata" in request.query.values() for request in run.fake.requests)
    with pytest.raises(ValueError, match="'yesterday' is not the name of a window"):
        run(names=["yesterday"])


def test_a_capture_of_known_windows_costs_one_list_per_feed(run: Producer) -> None:
    run()
    run.fake.requests.clear()
    report = run()
    assert (report.captured, report.known) == ((), 9)
    assert [request.call for request in run.fake.requests] == ["auth", "list", "list", "list"]


def test_a_window_whose_folder_is_a_link_fails_alone_and_nothing_is_written_there(run: Producer, tmp_path: Path) -> None:
    first, *others = incr(*STOPS)
    folder = storage.local_path(f"{run.root}/vault={run.fake.settings.vault_id}/{first}")
    folder.parent.mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    folder.symlink_to(tmp_path / "outside")
    report = run("incr")
    assert [(one.name, one.permanent, "symbolic link" in one.reason) for one in report.failed] == [(first, True, True)]
    assert report.captured == tuple(others)
    assert list((tmp_path / "outside").iterdir()) == []


def test_the_oldest_window_that_vault_still_has_is_told(run: Producer) -> None:
    run.fake.now += timedelta(days=3)
    report = run("log", names=["log/date=2026-01-01"])
    assert report.oldest == {"log": "2026-01-03T00:00Z"}
    assert "or no longer has it" in report.failed[0].reason


def test_a_capture_into_S3_equals_one_on_a_disk(run: Producer, s3_place: Place) -> None:
    run.root = s3_place.root
    run.fake.inject(Fault("missing_file", window=ref("0030")))
    report = run("incr", "full")
    assert report.captured == (*incr("0015", *STOPS[2:]), "full/date=2026-01-01")
    assert [failed.name for failed in report.failed] == list(incr("0030"))
    for name in report.captured:
        landed = run.landed(name)
        sidecar, window = read_files(landed.place), read_window(landed.place)
        assert sidecar is not None
        assert [f"{landed.place}/{file.path}" for file in sidecar.files] == [file.uri for file in window.files]
    assert list_windows(run.root, str(run.fake.settings.vault_id), completeness=Settle(0)).directories == []
    found = s3_place.client.list_objects_v2(Bucket=s3_place.root.split("/")[2], Prefix="landing", MaxKeys=1000)
    assert not [key["Key"] for key in found["Contents"] if "0030/attempt=" in key["Key"]]


# --- the cases -------------------------------------------------------------------------------------------------------


def test_P1_a_list_that_cannot_be_had_changes_nothing_and_the_next_run_registers(run: Producer) -> None:
    run.fake.inject(Fault("status", call="list", status=503))
    report = run()
    assert report.unavailable is not None
    assert "HTTP 503" in report.unavailable
    assert (report.captured, run.names(), state(run.manifest()).mode) == ((), [], Mode.INCREMENTAL)
    run.fake.heal()
    assert run("incr").captured == incr(*STOPS)


def test_P2_a_part_with_a_wrong_md5_is_fetched_again(run: Producer) -> None:
    run.fake.inject(Fault("bad_md5", window="full/2026-01-01T00:00Z", part=2, times=1))
    assert run("full").captured == ("full/date=2026-01-01",)
    names = [request.path.rpartition("/")[2] for request in run.fake.requests if request.call == "download"]
    assert [name[-3:] for name in names] == ["001", "002", "002", "003"]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the blocks so small that half a part arrives in several."""
    monkeypatch.setattr("manifest_platform.sources.veeva.client._BLOCK", 256)


def downloads(run: Producer) -> list[tuple[str, str | None]]:
    return [(one.path[-3:], one.range) for one in run.fake.requests if one.call == "download"]


@pytest.mark.usefixtures("small_blocks")
def test_a_part_that_breaks_off_is_resumed_and_the_parts_before_it_are_not_fetched_again(run: Producer) -> None:
    run.fake.inject(Fault("cut", window="full/2026-01-01T00:00Z", part=2, times=2))
    report = run("full")
    assert report.captured == ("full/date=2026-01-01",)
    (first, whole), *resumed, last = downloads(run)
    assert (first, whole, last) == ("001", None, ("003", None))
    assert [part for part, _ in resumed] == ["002"] * 3
    starts = [int(start.removeprefix("bytes=").removesuffix("-")) if start else 0 for _, start in resumed]
    assert 0 == starts[0] < starts[1] < starts[2]
    with run.client() as client:
        assert report.bytes == client.files("full").files[0].size, "no byte came twice"


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("ranges", [True, False])
def test_a_part_whose_content_changed_since_it_broke_off_is_fetched_from_its_beginning(run: Producer, ranges: bool) -> None:
    """Joining the halves of two different contents would give a file that never existed."""
    run.fake.ranges = ranges
    full = "full/2026-01-01T00:00Z"
    run.fake.inject(Fault("cut", window=full, part=2, times=1), Fault("bad_md5", window=full, part=2, times=1))
    assert run("full").captured == ("full/date=2026-01-01",)
    parts = downloads(run)
    assert [part for part, _ in parts] == ["001", "002", "002", "002", "003"]
    assert parts[2][1] is not None
    assert parts[3][1] is None


@pytest.mark.parametrize("kind", ["bad_md5", "short_part"])
def test_P2_a_window_with_a_wrong_part_is_not_registered_and_stops_nothing_else(run: Producer, kind: str) -> None:
    run.fake.inject(Fault(kind, window=ref("0030"), part=1))
    report = run("incr")
    assert report.captured == incr("0015", *STOPS[2:])
    [failed] = report.failed
    assert (failed.feed, failed.name, failed.permanent) == ("incr", *incr("0030"), True)
    assert "part 146478-20260101-0030-N.001" in failed.reason
    assert run.attempts(*incr("0030")) == []
    run.fake.heal()
    assert run("incr").captured == incr("0030")
    assert run.names() == list(incr(*STOPS))


@pytest.mark.parametrize("kind", ["missing_file", "extra_file", "wrong_records", "truncated"])
def test_P3_an_archive_that_contradicts_its_manifest_is_not_registered(run: Producer, kind: str) -> None:
    run.fake.inject(Fault(kind, window=ref("0015")))
    report = run("incr")
    assert [failed.name for failed in report.failed] == list(incr("0015"))
    assert run.names() == list(incr(*STOPS[1:]))
    assert run.attempts(*incr("0015")) == []


def test_P4_a_window_that_vault_failed_to_publish_is_awaited_and_comes_later(run: Producer) -> None:
    begin, source = run.fake.now, "146478-20260101-0030-N"
    retry = begin + timedelta(minutes=20)
    run.fake.inject(Fault("unpublished", window=ref("0030"), until=retry))
    report = run("incr")
    assert report.captured == incr("0015", *STOPS[2:])
    assert run.names() == list(incr("0015", *STOPS[2:]))
    [awaited] = report.awaited
    assert (awaited.name, awaited.next_retry, awaited.first_seen) == (source, retry, begin)

    run.fake.now += timedelta(minutes=10)
    [awaited] = run("incr").awaited
    assert awaited.first_seen == begin
    assert set(run.manifest().looks(AWAITED)) == {source}
    run("log", "full")
    assert set(run.manifest().looks(AWAITED)) == {source}

    run.fake.now = retry
    report = run("incr")
    assert (report.captured, report.awaited) == (incr("0030", "0200"), ())
    assert run.manifest().looks(AWAITED) == {}


@EVERY_STORE
def test_P5_a_redelivery_is_the_same_item(run: Producer) -> None:
    run("incr", names=incr(*STOPS[:3]))
    before = run.items()
    report = run("incr", names=incr(*STOPS[:3]))
    assert (report.known, report.captured, report.diverged) == (3, (), ())
    assert run.items() == before
    assert [len(run.attempts(name)) for name in incr(*STOPS[:3])] == [1, 1, 1]


def test_P6_other_content_for_a_known_window_is_reported_and_changes_nothing(run: Producer) -> None:
    run("incr")
    before = run.items()
    run.fake.inject(Fault("duplicate_ids", window=ref("0030")))
    for downloads in (1, 0):  # what was found is noted
        run.fake.requests.clear()
        report = run("incr")
        assert (report.diverged, report.known, report.failed) == (incr("0030"), 6, ())
        [diverged] = run.events
        assert isinstance(diverged, Diverged)
        assert diverged.known == run.landed(*incr("0030")).checksum != diverged.found
        assert run.items() == before
        assert run.fake.count("download") == downloads
        assert len(run.attempts(*incr("0030"))) == 1


def test_the_same_files_in_another_archive_are_the_same_content(run: Producer) -> None:
    """Such archives were reported at every capture, and every schedule ended as failed."""
    run("incr")
    run.fake.inject(Fault("repacked", window=ref("0030")))
    for downloads in (1, 0):
        run.fake.requests.clear()
        report = run("incr")
        assert (report.diverged, report.known, report.failed) == ((), len(STOPS), ())
        assert run.fake.count("download") == downloads
    assert len(run.attempts(*incr("0030"))) == 1


def test_acknowledged_content_is_not_reported_again_however_it_is_packed(run: Producer) -> None:
    run("incr")
    run.fake.inject(Fault("duplicate_ids", window=ref("0030")))
    run("incr")
    [diverged] = run.events
    assert isinstance(diverged, Diverged)
    manifest, key = run.manifest(), run.landed(*incr("0030")).key
    assert offered(manifest, key) == diverged.found
    manifest.acknowledge(key, diverged.found, "nobody needs it")
    assert run("incr").diverged == ()
    run.fake.inject(Fault("repacked", window=ref("0030")))
    assert run("incr").diverged == ()
    run.fake.heal()
    run.fake.inject(Fault("missing_file", window=ref("0030")))
    assert run("incr").diverged == incr("0030"), "that is a third content"


def test_other_content_that_cannot_be_had_just_now_is_compared_later(run: Producer) -> None:
    run("incr")
    run.fake.inject(Fault("duplicate_ids", window=ref("0030")))
    run.fake.inject(Fault("status", call="download"))
    report = run("incr")
    assert ([failed.name for failed in report.failed], report.diverged) == (list(incr("0030")), ())
    run.fake.heal()
    run.fake.inject(Fault("duplicate_ids", window=ref("0030")))
    assert run("incr").diverged == incr("0030")


def test_P6_md5s_that_vault_announces_only_now_are_the_same_content(run: Producer) -> None:
    run.fake.publisher.md5 = False
    run("incr")
    run.fake.publisher.md5 = True
    report = run("incr")
    assert (report.diverged, report.known) == ((), len(STOPS))
    run.fake.inject(Fault("wrong_records", window=ref("0030")))
    assert run("incr").diverged == incr("0030")


@pytest.mark.parametrize("kind", ["emptied", "hollow"])
def test_P7_an_empty_window_is_registered_without_a_download_and_passed_in_order(run: Producer, kind: str) -> None:
    of = load_full(run)
    run.fake.requests.clear()
    run.fake.inject(Fault(kind, window=ref("0030")))
    report = run("incr", names=incr("0015", "0030", "0045"))
    assert (report.captured, report.empty) == (incr("0015", "0030", "0045"), incr("0030"))
    assert not [request for request in run.fake.requests if "-0030-" in request.path]
    landed = run.landed(*incr("0030"))
    assert (landed.files, landed.bytes, landed.content) == (0, 0, None)
    assert not storage.local_path(landed.key.id).exists()

    shred_all(of)
    with acquire(of, INCR) as held:
        for name in incr("0015", "0030", "0045"):
            claimed = claim(of, held)
            assert claimed.item.key.name == name
            of.complete(claimed, DONE)
    assert state(of).feed(INCR).watermark.startswith("2026-01-01T00:45Z")


def test_a_malformed_entry_of_the_list_costs_only_itself(run: Producer) -> None:
    run.fake.inject(Fault("malformed", window=ref("0030")))
    report = run()
    assert report.captured == ("log/date=2026-01-01", *incr("0015", *STOPS[2:]), "full/date=2026-01-01")
    [failed] = report.failed
    assert (failed.name, failed.permanent) == ("146478-20260101-0030-N", True)
    assert failed.reason == "its entry in Vault's list cannot be used: one of its parts is 17, not an object"
    run.fake.heal()
    assert run("incr").captured == incr("0030")


def test_a_vault_that_still_generates_its_first_snapshot_fails_nothing_permanently(run: Producer) -> None:
    after, run.fake.now = run.fake.now, run.fake.simulation.begin + timedelta(minutes=30)
    report = run()
    assert report.unavailable is not None
    assert "Until the first snapshot is generated, Vault lists no file" in report.unavailable
    assert ({failed.permanent for failed in report.failed}, report.captured) == ({False}, ())
    run.fake.now = after
    report = run()
    assert (report.unavailable, len(report.captured)) == (None, 9)


def test_P8_a_failed_window_keeps_nothing_from_being_captured(run: Producer) -> None:
    of = load_full(run)
    run("incr", names=incr("0015"))
    shred_all(of)
    with acquire(of, INCR) as held:
        of.fail(claim(of, held), Failure(FailureKind.PERMANENT, "broken"))
    run.fake.now += QUARTER
    report = run("incr")
    assert report.captured == incr(*STOPS[1:], "0200")
    assert report.unavailable is None
    shred_all(of)
    verdict = of.next(INCR, "load")
    assert isinstance(verdict, Blocked)
    assert verdict.item.key.name == incr("0015")[0]


def test_P9_a_full_load_keeps_nothing_from_being_captured(run: Producer) -> None:
    run()
    of = run.manifest()
    for feed in ("incr", "log", "full"):
        shred_all(of, feed)
    of.begin_full_load(run.items("full")[0].key, "load", "needed")
    run.fake.now += timedelta(hours=1)
    report = run()
    assert report.captured == incr("0200", "0215", "0230", "0245")
    shred_all(of)
    for feed in (INCR, LOG):
        verdict = of.next(feed, "load")
        assert isinstance(verdict, Blocked)
        assert verdict.standing is Standing.MODE
    with acquire(of, "full") as held:
        of.complete(claim(of, held), DONE)
    verdict = of.next(INCR, "load")
    assert isinstance(verdict, Ready)
    assert verdict.item.key.name == incr("0015")[0]


def test_P10_a_session_of_another_vault_registers_nothing(run: Producer) -> None:
    run.fake.opens_vault = 999
    with pytest.raises(WrongVault):
        run()
    assert [run.names(feed) for feed in BY_URGENCY] == [[], [], []]
    assert run.fake.count("list") == 0


@EVERY_STORE
def test_P11_what_a_dead_producer_wrote_is_never_read(run: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, "capture.landed:raise")
    with pytest.raises(FailpointReached):
        run("incr")
    [orphan] = run.attempts(*incr("0015"))
    assert run.names() == []
    monkeypatch.delenv(failpoints.VARIABLE)
    assert run("incr", names=incr("0015")).captured == incr("0015")
    landed = run.landed(*incr("0015"))
    assert set(run.attempts(*incr("0015"))) == {orphan, landed.place.rpartition("/")[2]}
    assert list_windows(run.root, str(run.fake.settings.vault_id), completeness=Settle(0)).directories == []


def test_P11_files_of_a_dead_producer_are_removed_a_day_later_when_the_window_is_registered(
    run: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphans: list[str] = []
    for _ in range(2):
        monkeypatch.setenv(failpoints.VARIABLE, "capture.landed:raise")
        with pytest.raises(FailpointReached):
            run("incr", names=incr("0015"))
        monkeypatch.delenv(failpoints.VARIABLE)
        orphans += set(run.attempts(*incr("0015"))) - set(orphans)
        if len(orphans) == 1:
            _age(run, orphans[0], hours=25)
    run("incr", names=incr("0030"))
    assert set(run.attempts(*incr("0015"))) == set(orphans)
    run("incr", names=incr("0015"))
    landed = run.landed(*incr("0015"))
    assert set(run.attempts(*incr("0015"))) == {orphans[1], landed.place.rpartition("/")[2]}
    assert read_files(landed.place)


def test_what_was_registered_stays_whatever_the_clocks_say(run: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "GARBAGE_AGE", timedelta(days=-1))
    run("incr", names=incr("0015"))
    assert read_files(run.landed(*incr("0015")).place)


def _age(run: Producer, attempt: str, hours: int) -> None:
    folder = storage.local_path(f"{run.root}/vault={run.fake.settings.vault_id}/{incr('0015')[0]}/{attempt}")
    then = time.time() - hours * 3600
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (then, then))


def test_P11_a_producer_that_dies_after_registering_has_done_it(run: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, "capture.registered:raise")
    with pytest.raises(FailpointReached):
        run("incr")
    monkeypatch.delenv(failpoints.VARIABLE)
    assert run.names() == list(incr("0015"))
    report = run("incr")
    assert (report.captured, report.known) == (incr(*STOPS[1:]), 1)


def test_P12_a_session_that_ends_in_the_middle_of_an_archive_costs_one_login(run: Producer) -> None:
    run.fake.publisher.part_bytes = 1500
    run.fake.inject(Fault("expired", window="full/2026-01-01T00:00Z", part=5, times=1))
    assert run("full").captured == ("full/date=2026-01-01",)
    assert (run.fake.count("auth"), run.fake.count("download", "INVALID_SESSION_ID")) == (2, 1)


def test_P13_windows_of_three_feeds_that_stop_together_are_three_items(run: Producer) -> None:
    run.fake.now = run.fake.simulation.begin + timedelta(hours=25)
    names = ["log/date=2026-01-02", "incr/stoptime=202601020000", "full/date=2026-01-02"]
    assert run(names=names).captured == tuple(names)
    stops = {(item.key.feed, item.key.sort) for feed in BY_URGENCY for item in run.items(feed)}
    assert stops == {(feed, "2026-01-02T00:00Z") for feed in BY_URGENCY}


# --- what fails ------------------------------------------------------------------------------------------------------


def test_a_vault_that_goes_away_ends_the_run_with_what_was_done(run: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Vault.download
    monkeypatch.setattr(Vault, "download", lambda client, part: _gone(run) if "-0045-" in part.name else real(client, part))
    report = run("incr", "full")
    assert report.captured == incr("0015", "0030")
    assert report.unavailable is not None
    assert run.names() == list(incr("0015", "0030"))
    assert run.attempts(*incr("0045")) == []


def _fail(monkeypatch: pytest.MonkeyPatch, *windows: str, kind: str = "UNEXPECTED_ERROR") -> None:
    """Makes Vault fail for each part whose name contains one of these texts."""
    real = Vault.download

    def download(client: Vault, part: Part) -> Iterator[bytes]:
        if any(window in part.name for window in windows):
            raise VaultUnavailable(f"GET {part.name}: {kind}")
        return real(client, part)

    monkeypatch.setattr(Vault, "download", download)


def test_a_window_that_vault_always_fails_to_give_holds_nothing_up(run: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    [log] = [window.name(run.fake.settings.vault_id) for window in run.fake.windows("log")]
    _fail(monkeypatch, log, "-0015-", "-0045-", "-0115-")
    run.fake.inject(Fault("wrong_records", window=ref("0100")))
    report = run()
    assert report.captured == (*incr("0030", "0130", "0145"), "full/date=2026-01-01")
    assert [one.name for one in report.failed] == ["log/date=2026-01-01", *incr("0015", "0045", "0100", "0115")]
    assert [one.permanent for one in report.failed] == [False, False, False, True, False]
    assert report.unavailable is None
    assert run.attempts(*incr("0015")) == []


def test_two_windows_in_a_row_end_their_feed_and_no_other(run: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    _fail(monkeypatch, "-0030-", "-0045-", "-0100-")
    report = run()
    assert report.captured == ("log/date=2026-01-01", *incr("0015"), "full/date=2026-01-01")
    assert [one.name for one in report.failed] == list(incr("0030", "0045"))
    assert report.unavailable is not None
    assert "UNEXPECTED_ERROR" in report.unavailable


def test_a_list_that_vault_always_fails_to_give_holds_no_other_feed_up(run: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Vault.files

    def files(client: Vault, feed: Feed) -> FileListing:
        if feed == "log":
            raise VaultUnavailable("list of log: UNEXPECTED_ERROR")
        return real(client, feed)

    monkeypatch.setattr(Vault, "files", files)
    report = run()
    assert report.captured == (*incr(*STOPS), "full/date=2026-01-01")
    assert report.failed == (CaptureFailed("log", "log", "list of log: UNEXPECTED_ERROR", False),)
    assert report.unavailable is None


@pytest.mark.parametrize("fault", [Fault("status", call="auth", status=503), Fault("status", status=503, retry_after=3600)])
def test_a_vault_without_sessions_is_not_called_again(run: Producer, fault: Fault) -> None:
    run.fake.inject(fault)
    report = run()
    assert (report.captured, report.failed) == ((), ())
    assert report.unavailable is not None
    assert "HTTP 503" in report.unavailable
    assert run.fake.count("list") == 0


def test_a_vault_that_asks_for_a_long_wait_is_not_called_again(run: Producer) -> None:
    run.fake.inject(Fault("status", call="download", status=503, retry_after=3600))
    report = run()
    assert (report.captured, report.failed) == ((), ())
    assert report.unavailable is not None
    assert (run.fake.count("list"), run.fake.count("download")) == (1, 1)
    assert run.attempts("log/date=2026-01-01") == []


def _gone(run: Producer) -> Iterator[bytes]:
    run.fake.inject(Fault("status", status=503))
    with run.client() as client:
        client.files("incr")
    yield b""


def test_a_window_whose_download_always_breaks_holds_nothing_up(run: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manifest_platform.sources.veeva.client._BLOCK", 64)
    run.fake.inject(Fault("cut", window=ref("0030")))
    report = run("incr")
    assert report.captured == incr("0015", *STOPS[2:])
    [failed] = report.failed
    assert (failed.name, failed.permanent, report.unavailable) == (*incr("0030"), False, None)
    assert "broke off" in failed.reason


def test_a_part_that_vault_refuses_holds_nothing_up(run: Producer) -> None:
    run.fake.inject(Fault("error", call="download", error="INVALID_DATA", times=1))
    report = run("incr")
    assert report.captured == incr(*STOPS[1:])
    assert [(failed.name, failed.permanent) for failed in report.failed] == [(*incr("0015"), True)]


def test_a_login_that_is_refused_in_the_middle_ends_all(run: Producer) -> None:
    run.fake.inject(Fault("expired", window=ref("0030"), times=1))
    with run.client() as client, pytest.raises(LoginRefused):
        client.log_in()
        run.fake.inject(Fault("error", call="auth", error="USER_LOCKED_OUT"))
        list(capture(client, run.manifest(), run.root, str(run.fake.settings.vault_id), ("incr",), run.fake.now))
    assert run.names() == list(incr("0015"))
    assert run.fake.count("auth") == 2
    assert run.attempts(*incr("0030")) == []


WRONG = "not-the-password"


def refused(run: Producer, *, insist: bool = False) -> str:
    with pytest.raises(LoginRefused) as error:
        run("incr", insist=insist)
    return str(error.value)


@EVERY_STORE
def test_a_login_that_was_refused_is_not_tried_again_by_a_schedule(run: Producer) -> None:
    run.password = WRONG
    assert "USERNAME_OR_PASSWORD_INCORRECT" in refused(run)
    for _ in range(run.fake.wrong_passwords):
        message = refused(run)
        assert "no login is tried" in message
        assert "USERNAME_OR_PASSWORD_INCORRECT" in message
    assert run.fake.count("auth") == 1
    assert WRONG not in str(run.manifest().looks(LOGIN)) + message

    run.password = run.fake.settings.password
    assert run("incr", insist=False).captured == incr(*STOPS)
    assert run.manifest().looks(LOGIN) == {}


def test_a_login_that_was_refused_is_tried_again_by_hand_and_after_a_day(run: Producer) -> None:
    run.password = WRONG
    refused(run)
    assert "no login is tried" not in refused(run, insist=True)
    assert run.fake.count("auth") == 2
    run.fake.now += timedelta(hours=23)
    assert "no login is tried" in refused(run)
    run.fake.now += timedelta(hours=1)
    assert "no login is tried" not in refused(run)
    assert run.fake.count("auth") == 3


def test_a_login_that_succeeds_by_hand_lets_the_schedule_in_again(run: Producer) -> None:
    run.fake.inject(Fault("error", call="auth", error="USER_LOCKED_OUT"))
    refused(run)
    run.fake.heal()
    assert "no login is tried" in refused(run)
    assert run("incr", names=incr("0015"), insist=True).captured == incr("0015")
    assert run("incr", insist=False).captured == incr(*STOPS[1:])


def test_a_session_of_another_vault_and_an_answer_that_is_none_of_vaults_are_asked_again(
    run: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither brings a user closer to being locked out."""
    run.fake.opens_vault = 999
    for _ in range(2):
        assert "opened a session with vault 999" in refused(run)
    run.fake.opens_vault = None
    with monkeypatch.context() as patch:
        patch.setattr("manifest_platform.sources.veeva.client.parsed", lambda body: {})
        for _ in range(2):
            assert "not in Vault's form" in refused(run)
    assert run.manifest().looks(LOGIN) == {}


def test_an_archive_of_changes_or_logs_without_metadata_is_not_registered(
    run: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it the types of columns are unknown. A snapshot's manifest names its own metadata."""
    monkeypatch.setattr(producer, "METADATA", "metadata_other.csv")
    report = run(names=["log/date=2026-01-01", *incr("0015"), "full/date=2026-01-01"])
    assert report.captured == ("full/date=2026-01-01",)
    assert ["metadata_other.csv is missing" in one.reason for one in report.failed] == [True, True]


def test_a_feed_that_vault_refuses_holds_no_other_up(run: Producer) -> None:
    run.fake.inject(Fault("error", call="list", error="INSUFFICIENT_ACCESS", times=1))
    report = run()
    assert [(failed.feed, failed.name, failed.permanent) for failed in report.failed] == [("log", "log", True)]
    assert report.captured == (*incr(*STOPS), "full/date=2026-01-01")


def test_an_entry_of_the_list_that_is_unusable_holds_nothing_up(run: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Vault.files

    def files(client: Vault, feed: Feed) -> FileListing:
        found = real(client, feed)
        return FileListing(found.files[1:], found.awaiting, (UnusableEntry("146478-x", feed, "it has no stop"),))

    monkeypatch.setattr(Vault, "files", files)
    report = run("incr")
    assert report.captured == incr(*STOPS[1:])
    assert report.failed == (
        CaptureFailed("incr", "146478-x", "its entry in Vault's list cannot be used: it has no stop", True),
    )


def test_a_landing_place_that_cannot_be_written_ends_the_run(run: Producer, tmp_path: Path) -> None:
    (tmp_path / "landing").touch()
    report = run("incr")
    assert report.unavailable is not None
    assert "could not be written" in report.unavailable
    assert (report.captured, run.names(), run.fake.count("download")) == ((), [], 0)


def test_nothing_is_registered_without_its_sidecar(run: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(folder: storage.ObjectFolder, name: str, data: bytes) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.ObjectFolder, "put", put)
    report = run("incr")
    assert report.unavailable is not None
    assert "No space left" in report.unavailable
    assert (run.names(), run.attempts(*incr("0015"))) == ([], [])


def test_the_sidecar_is_written_last(run: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    real, seen = storage.ObjectFolder.put, []

    def put(folder: storage.ObjectFolder, name: str, data: bytes) -> str:
        seen.append((name, len(read_window(folder.uri).files), run.names()))
        return real(folder, name, data)

    monkeypatch.setattr(storage.ObjectFolder, "put", put)
    run("incr", names=incr("0015"))
    assert seen == [(SIDECAR, run.landed(*incr("0015")).files, [])]


def test_a_registration_of_unknown_outcome_leaves_what_was_written(run: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The window may be registered: removing its files would leave an item without files."""

    def discover(of: Manifest, feed: str, landed: Sequence[Landed]) -> list[Discovered]:
        raise ConnectionError("no answer")

    monkeypatch.setattr(Manifest, "discover", discover)
    with pytest.raises(ConnectionError):
        run("incr")
    assert len(run.attempts(*incr("0015"))) == 1


# --- several producers -----------------------------------------------------------------------------------------------


def meanwhile(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Runs an action once, after a producer has written a window and before it registers it."""
    done: list[str] = []

    def reach(point: str) -> None:
        if point == "capture.landed" and not done:
            done.append(point)
            action()

    monkeypatch.setattr(failpoints, "reach", reach)


@EVERY_STORE
def test_two_producers_register_a_window_once(run: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Producer(run.fake, run.root, run._reopen)
    meanwhile(monkeypatch, lambda: other("incr", names=incr("0015")))
    report = run("incr", names=incr("0015"))
    assert (report.captured, report.known, report.diverged) == ((), 1, ())
    assert run.names() == list(incr("0015"))
    assert run.attempts(*incr("0015")) == [run.landed(*incr("0015")).place.rpartition("/")[2]]
    other.close()


def test_a_race_lost_to_other_content_is_reported(run: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Producer(run.fake, run.root, run._reopen)

    def republish() -> None:
        run.fake.inject(Fault("duplicate_ids", window=ref("0015")))
        other("incr", names=incr("0015"))

    meanwhile(monkeypatch, republish)
    report = run("incr", names=incr("0015"))
    assert (report.captured, report.diverged) == ((), incr("0015"))
    assert run.attempts(*incr("0015")) == [run.landed(*incr("0015")).place.rpartition("/")[2]]
    other.close()


def test_an_own_registration_whose_answer_was_lost_keeps_its_files(run: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Manifest.discover

    def discover(of: Manifest, feed: str, landed: Sequence[Landed]) -> list[Discovered]:
        return [Discovered(found.landed, "known") for found in real(of, feed, landed)]

    monkeypatch.setattr(Manifest, "discover", discover)
    run("incr", names=incr("0015"))
    assert read_files(run.landed(*incr("0015")).place)


def test_windows_registered_under_another_root_are_reported_without_a_download(run: Producer, tmp_path: Path) -> None:
    run("incr", names=incr("0015"))
    run.fake.requests.clear()
    report = run("incr", names=incr("0015", "0030"), root=storage.as_uri(tmp_path / "elsewhere"))
    assert report.captured == incr("0030")
    [failed] = report.failed
    assert f"it is registered as {run.root}/vault=146478/incr/stoptime=202601010015" in failed.reason
    assert not [request for request in run.fake.requests if "-0015-" in request.path]


def test_a_race_lost_to_a_producer_with_another_root(run: Producer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Producer(run.fake, storage.as_uri(tmp_path / "elsewhere"), run._reopen)
    meanwhile(monkeypatch, lambda: other("incr", names=incr("0015")))
    report = run("incr", names=incr("0015"))
    assert [failed.name for failed in report.failed] == list(incr("0015"))
    assert run.attempts(*incr("0015")) == []
    other.close()


def test_a_window_that_somebody_else_landed_is_left_as_it_is(run: Producer) -> None:
    """Its checksum is of files, and cannot be compared with Vault's announcement."""
    with run.client() as client:
        file = client.files("incr").files[0]
    run("incr", names=incr("0030"))
    landed = run.landed(*incr("0030"))
    of = run.manifest()
    key = type(landed.key)("incr", "2026-01-01T00:15Z", landed.key.id.replace("0030", "0015"))
    of.discover("incr", [Landed(key, 3, 30, "0" * 32, "2026-01-01T00:00Z", "2026-01-01T00:15Z")])
    report = run("incr", names=incr("0015"))
    assert (report.known, report.diverged, report.captured) == (1, (), ())
    assert isinstance(file, DirectDataFile)


def test_an_awaited_window_without_a_retry_time_is_stored(run: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Vault.files

    def files(client: Vault, feed: Feed) -> FileListing:
        found = real(client, feed)
        waiting = producer.Awaiting("146478-x", feed, None, "no word")
        return FileListing(found.files, (waiting,))

    monkeypatch.setattr(Vault, "files", files)
    assert [one.next_retry for one in run("incr").awaited] == [None]
    now: datetime = run.fake.now
    assert [one for one in run.events if isinstance(one, Awaited)] == [Awaited("incr", "146478-x", None, "no word", now)]
    assert run.manifest().looks(AWAITED)["146478-x"].data["next_retry"] == ""
