"""Names and listings of windows, on disk and in S3: what is found and what is ignored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifest_platform import storage
from manifest_platform.manifest import ItemKey
from manifest_platform.sources import directories
from manifest_platform.sources import directories as sweep
from manifest_platform.sources.directories import Marker, Settle, complete_directories
from manifest_platform.sources.errors import LandingDamaged, LandingMisconfigured, LandingUnavailable
from manifest_platform.sources.veeva.files import Announced, Part, Sidecar, UnpackedFile
from manifest_platform.sources.veeva.layout import (
    FEEDS,
    SIDECAR,
    item_uri,
    list_attempts,
    list_window_names,
    list_windows,
    minute,
    parse_window_name,
    read_files,
    read_window,
    window_name,
)
from manifest_platform_tests.sources.conftest import Place

VAULT = "146478"
INCR = "incr/stoptime=202601010015"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
QUARTER = datetime(2026, 1, 1, 0, 15, tzinfo=UTC)


def landed(place: Place, name: str, path: str = "manifest.csv", data: bytes = b"x") -> None:
    place.put(f"vault={VAULT}/{name}/{path}", data)


def found(place: Place, after: datetime | None = None) -> list[str]:
    return [run.name for run in list_windows(place.root, VAULT, after).directories]


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "feed", "start", "stop"),
    [
        (INCR, "incr", "2026-01-01T00:00Z", "2026-01-01T00:15Z"),
        ("incr/stoptime=202601010000", "incr", "2025-12-31T23:45Z", "2026-01-01T00:00Z"),
        ("log/date=2026-01-01", "log", "2025-12-31T00:00Z", "2026-01-01T00:00Z"),
        ("log/date=2026-01-01T0800", "log", "2025-12-31T08:00Z", "2026-01-01T08:00Z"),
        ("full/date=2026-01-01", "full", "2000-01-01T00:00Z", "2026-01-01T00:00Z"),
        ("full/date=2026-01-01T0801", "full", "2000-01-01T00:00Z", "2026-01-01T08:01Z"),
        ("log/date=20260101", "log", "2025-12-31T00:00Z", "2026-01-01T00:00Z"),
        ("full/date=20260101T0801", "full", "2000-01-01T00:00Z", "2026-01-01T08:01Z"),
    ],
)
def test_names_of_windows(name: str, feed: str, start: str, stop: str) -> None:
    parsed = parse_window_name(name)
    assert parsed is not None
    assert (parsed.name, parsed.feed, parsed.start, parsed.stop, parsed.sort) == (name, feed, start, stop, stop)
    assert minute(parsed.time) == stop
    assert window_name(parsed.feed, parsed.time).replace("-", "") == name.replace("-", "")


def test_a_window_of_changes_may_be_named_without_its_feed() -> None:
    assert parse_window_name("stoptime=202601010015") == parse_window_name(INCR)


@pytest.mark.parametrize(
    "name",
    [
        "incr/date=2026-01-01",
        "log/stoptime=202601010000",
        "date=2026-01-01",
        "full/date=2026-01-01T0000",
        "full/date=2026-01-01T2400",
        "full/date=2026-02-30",
        "full/date=2026-01-01T08",
        "full/date=2026-0101",
        "full/date=202601-01",
        "full/date=20260101T0000",
        "full/date=20260230",
        "full/date=2026010",
        "full/date=202601011",
        "log/date=٢٠٢٦٠١٠١",
        "full/date=2026-01-01T080000",
        "incr/stoptime=20260101001",
        "incr/stoptime=202601010060",
        "incr/stoptime=٢٠٢٦٠١٠١٠٠١٥",
        "incr/stoptime=000101010000",
        "incr/stoptime=202601010015/attempt=1",
        "incr/stoptime=202601010015\n",
        "INCR/stoptime=202601010015",
        "",
    ],
)
def test_other_names_are_not_windows_of_a_vault(name: str) -> None:
    assert parse_window_name(name) is None


minutes = st.datetimes(datetime(2000, 1, 3), datetime(2100, 1, 1)).map(
    lambda at: at.replace(second=0, microsecond=0, tzinfo=UTC)
)


@given(st.sampled_from(FEEDS), st.sets(minutes | st.just(NOON.replace(hour=0)), min_size=2, max_size=5))
def test_a_name_is_one_to_one_with_feed_and_stop_and_sorts_by_stop(feed: str, stops: set[datetime]) -> None:
    names = [window_name(feed, stop) for stop in sorted(stops)]  # ty: ignore[invalid-argument-type]
    parsed = [parse_window_name(name) for name in names]
    assert [one and one.time for one in parsed] == sorted(stops)
    sorts = [one.sort for one in parsed if one]
    assert (sorts, names) == (sorted(sorts), sorted(names))
    assert len(set(names)) == len(stops)


def test_a_stop_in_another_zone_is_named_in_utc() -> None:
    zone = timezone(-timedelta(hours=8))
    assert window_name("full", datetime(2026, 1, 1, tzinfo=zone)) == "full/date=2026-01-01T0800"


@pytest.mark.parametrize("stop", [datetime(2026, 1, 1), NOON.replace(second=1), NOON.replace(microsecond=1)])
def test_a_stop_that_no_name_can_hold_is_refused(stop: datetime) -> None:
    with pytest.raises(ValueError, match="whole minute"):
        window_name("incr", stop)


def test_P13_windows_of_three_feeds_that_stop_together_are_three_items() -> None:
    stop = NOON.replace(hour=0)
    keys = {ItemKey(feed, minute(stop), item_uri("s3://bucket/x", VAULT, window_name(feed, stop))) for feed in FEEDS}
    assert len({(key.feed, key.position) for key in keys}) == len({key.id for key in keys}) == 3
    assert {key.name for key in keys} == {"incr/stoptime=202601010000", "log/date=2026-01-01", "full/date=2026-01-01"}


# --- sweeps ----------------------------------------------------------------------------------------------------------


def test_a_sweep_finds_the_windows_of_all_feeds(place: Place) -> None:
    for name in ("full/date=2026-01-01", INCR, "log/date=2026-01-01", "incr/stoptime=202601010000"):
        landed(place, name)
        landed(place, name, "Object/product__v.csv", b"12")
    landed(place, INCR, "_SUCCESS")
    place.put("vault=999/incr/stoptime=202601010030/manifest.csv")

    runs = {run.name: run for run in list_windows(place.root, VAULT).directories}

    assert list(runs) == ["full/date=2026-01-01", "incr/stoptime=202601010000", "log/date=2026-01-01", INCR]
    run = runs[INCR]
    assert (run.uri, run.sort, run.time, run.marker) == (item_uri(place.root, VAULT, INCR), minute(QUARTER), QUARTER, True)
    assert [file.uri.removeprefix(f"{run.uri}/") for file in run.files] == ["Object/product__v.csv", "manifest.csv"]
    assert storage.read_bytes(run.files[0].uri) == b"12"
    assert not runs["log/date=2026-01-01"].marker


def test_a_sweep_may_be_of_some_feeds_alone(place: Place) -> None:
    for name in ("full/date=2026-01-01", INCR, "log/date=2026-01-01"):
        landed(place, name)
    listing = list_windows(place.root, VAULT, feeds=["log", "full"])
    assert {run.name for run in listing.directories} == {"full/date=2026-01-01", "log/date=2026-01-01"}
    assert listing.requests == (0 if place.is_local else 2)


def test_attempts_are_ignored_by_a_sweep(place: Place) -> None:
    """A directory with only attempts, registered or orphaned, is not a window."""
    landed(place, INCR, "attempt=0a/manifest.csv")
    landed(place, INCR, "attempt=0a/_files.json")
    landed(place, "incr/stoptime=202601010030", "attempt=0b/Object/a.csv")
    landed(place, "incr/stoptime=202601010030", "manifest.csv", b"12345")
    [run] = list_windows(place.root, VAULT, completeness=Settle(0)).directories
    assert (run.name, run.bytes) == ("incr/stoptime=202601010030", 5)


def test_names_are_listed_without_a_look_into_any_window(place: Place) -> None:
    for number in range(40):
        landed(place, INCR, f"attempt=0a/Object/{number}.csv")
    landed(place, "incr/stoptime=202601010030")
    landed(place, "incr/copy")
    landed(place, "log/date=2026-01-01")
    listed = list_window_names(place.root, VAULT, "incr")
    assert [name.name for name in listed.names] == [INCR, "incr/stoptime=202601010030"]
    assert listed.unparseable == ["incr/copy"]
    assert listed.requests == (0 if place.is_local else 1)
    later = list_window_names(place.root, VAULT, "incr", QUARTER + timedelta(minutes=15))
    assert [name.name for name in later.names] == ["incr/stoptime=202601010030"]
    assert list_window_names(place.root, VAULT, "full").names == []


def test_an_empty_directory_is_no_window_and_never_settles_into_one(tmp_path: Path) -> None:
    (tmp_path / f"vault={VAULT}/incr/stoptime=202601010015").mkdir(parents=True)
    assert list_windows(tmp_path, VAULT, completeness=Settle(0)).directories == []
    (tmp_path / f"vault={VAULT}/incr/stoptime=202601010015/_SUCCESS").touch()
    [run] = list_windows(tmp_path, VAULT).directories
    assert (run.name, run.files) == (INCR, ())
    assert complete_directories([run], Marker(), {}, NOON)[0] == [run]


def test_names_that_are_not_windows_are_reported_and_left_alone(place: Place) -> None:
    landed(place, INCR)
    landed(place, "incr/date=2026-01-01")
    landed(place, "full/date=2026-01-01T0000")
    landed(place, "other/date=2026-01-01")
    listing = list_windows(place.root, VAULT)
    assert [run.name for run in listing.directories] == [INCR]
    assert sorted(listing.unparseable) == ["full/date=2026-01-01T0000", "incr/date=2026-01-01"]


@pytest.mark.parametrize(
    ("after", "names"),
    [
        (NOON, ["full/date=2026-01-01T1200", "incr/stoptime=202601011200", "log/date=2026-01-02"]),
        (NOON + timedelta(seconds=1), ["log/date=2026-01-02"]),
        (datetime(2026, 1, 1, 20, tzinfo=timezone(timedelta(hours=8))), None),
    ],
)
def test_a_sweep_begins_at_the_time_itself(place: Place, after: datetime, names: list[str] | None) -> None:
    for name in ("incr/stoptime=202601011145", "incr/stoptime=202601011200", "log/date=2026-01-01", "log/date=2026-01-02"):
        landed(place, name)
    for name in ("full/date=2026-01-01", "full/date=2026-01-01T1159", "full/date=2026-01-01T1200"):
        landed(place, name)
    assert found(place, after) == (names or found(place, NOON))


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%Y%m%d"])
def test_a_sweep_lists_names_of_both_forms_from_its_time_on(place: Place, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directories, "_PAGE", 20)
    days = [datetime(2025, 10, 20, tzinfo=UTC) + timedelta(days=day) for day in range(80)]
    for day in days:
        place.put(f"vault={VAULT}/log/date={day.strftime(form)}/manifest.csv")
    for count in (5, 15):  # from this year on, and from the one before
        listing = list_windows(place.root, VAULT, days[-count], feeds=["log"])
        assert [run.name for run in listing.directories] == [f"log/date={day.strftime(form)}" for day in days[-count:]]
        assert listing.requests <= (0 if place.is_local else 2)


def test_a_time_without_a_zone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="time zone"):
        list_windows(tmp_path, VAULT, datetime(2026, 1, 1))


def test_a_vault_of_which_nothing_landed_has_no_windows(place: Place) -> None:
    assert list_windows(place.root, VAULT).directories == []


def test_a_root_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LandingMisconfigured, match="nowhere does not exist"):
        list_windows(tmp_path / "nowhere", VAULT)


# --- one window ------------------------------------------------------------------------------------------------------


def test_a_window_is_read_as_the_sweep_sees_it(place: Place) -> None:
    landed(place, INCR)
    landed(place, INCR, "attempt=0a/manifest.csv")
    assert [read_window(item_uri(place.root, VAULT, INCR))] == list_windows(place.root, VAULT).directories


def test_an_attempt_is_read_as_the_window_that_it_holds(place: Place) -> None:
    content = f"{item_uri(place.root, VAULT, INCR)}/attempt=0a"
    landed(place, INCR, "attempt=0a/Object/product__v.csv", b"123")
    landed(place, INCR, "attempt=0a/_files.json", b"{}")
    run = read_window(content)
    assert (run.name, run.uri, run.bytes) == (INCR, content, 3)
    assert [file.uri for file in run.files] == [f"{content}/Object/product__v.csv"]
    before = run.checksum
    landed(place, INCR, "attempt=0a/Object/product__v.csv", b"1234")
    assert read_window(content).checksum != before


def test_a_window_that_is_finished_while_it_is_read_is_read_whole(
    s3_place: Place, monkeypatch: pytest.MonkeyPatch, writes_between_pages: Callable[[Any, Callable[[], None]], None]
) -> None:
    """S3 lists in order of names, page by page, so the marker may be on a later page than files that were written before it."""
    monkeypatch.setattr(sweep, "_PAGE", 2)
    monkeypatch.setattr(sweep, "s3_client", lambda root_uri: s3_place.client)
    for name in ("1.csv", "2.csv", "3.csv"):
        landed(s3_place, INCR, name)

    def finish() -> None:
        landed(s3_place, INCR, "0.csv")
        landed(s3_place, INCR, "_SUCCESS")

    writes_between_pages(s3_place.client, finish)
    window = read_window(item_uri(s3_place.root, VAULT, INCR))
    assert window.marker
    assert [file.uri[-5:] for file in window.files] == ["0.csv", "1.csv", "2.csv", "3.csv"]


def test_attempts_are_listed_with_the_time_of_their_last_file(place: Place) -> None:
    began = datetime.now(UTC) - timedelta(seconds=2)
    for path in ("attempt=a/manifest.csv", "attempt=a/Object/b.csv", "attempt=b/manifest.csv", "manifest.csv"):
        landed(place, INCR, path)
    window = item_uri(place.root, VAULT, INCR)
    found = list_attempts(window)
    assert [attempt for attempt, _ in found] == [f"{window}/attempt=a", f"{window}/attempt=b"]
    assert all(began <= time <= datetime.now(UTC) + timedelta(seconds=2) for _, time in found)
    assert list_attempts(item_uri(place.root, VAULT, "incr/stoptime=202601010030")) == []


def test_a_window_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(LandingDamaged, match="is gone"):
        read_window(item_uri(tmp_path, VAULT, INCR))


def test_only_windows_are_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not end in the name of a window"):
        read_window(storage.as_uri(tmp_path))


# --- the sidecar -----------------------------------------------------------------------------------------------------

FILES = Sidecar(
    Announced("146478-20260101-0015-N", "2026-01-01T00:00Z", "2026-01-01T00:15Z", None, (Part("p.001", 1, 5, None),)),
    (UnpackedFile("Object/prüf__v.csv", 5, "ab"),),
)


def test_a_sidecar_is_read_as_it_was_written(tmp_path: Path) -> None:
    place = storage.as_uri(tmp_path)
    assert read_files(place) is None
    storage.write_bytes(f"{place}/{SIDECAR}", FILES.to_bytes())
    assert read_files(place) == FILES


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", FILES.to_bytes()[:-10], b'{"source": 1, "files": []}'])
def test_an_invalid_sidecar_is_damage(tmp_path: Path, data: bytes) -> None:
    (tmp_path / SIDECAR).write_bytes(data)
    with pytest.raises(LandingDamaged, match="it was altered"):
        read_files(storage.as_uri(tmp_path))


def test_a_sidecar_that_cannot_be_read_is_a_transient_error(tmp_path: Path) -> None:
    (tmp_path / SIDECAR).mkdir()
    with pytest.raises(LandingUnavailable, match="could not be read"):
        read_files(storage.as_uri(tmp_path))
