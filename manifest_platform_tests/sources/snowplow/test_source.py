"""Listings of enriched runs, on disk and in S3: names, other files, completeness, failures."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from manifest_platform import landed_files, storage
from manifest_platform.sources import directories as sweep
from manifest_platform.sources.directories import LandedDirectory, Layout, Look, Marker, Settle, complete_directories
from manifest_platform.sources.errors import LandingDamaged, LandingError, LandingMisconfigured, LandingUnavailable
from manifest_platform.sources.snowplow.source import list_runs, parse_run_name, read_run
from manifest_platform_tests.sources.conftest import Place

RUN = "run=2024-05-01-10-00-00"
OTHER = "run=2024-05-01-11-00-00"
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def sort_of(name: str) -> str:
    found = parse_run_name(name)
    assert found is not None
    return found.sort


def names(runs: list[LandedDirectory]) -> list[str]:
    return [run.name for run in runs]


# --- names -----------------------------------------------------------------------------------------------------------

UUID = "7d05a8b6-192b-4715-95bf-1f0bae4c8a72"


@pytest.mark.parametrize(
    ("name", "time_", "sort"),
    [
        (RUN, (10, 0, 0), "2024-05-01-10-00-00"),
        ("run=2024-05-01-23-59-58", (23, 59, 58), "2024-05-01-23-59-58"),
        (f"run=2024-05-01-10-05-00-{UUID}", (10, 5, 0), f"2024-05-01-10-05-00-{UUID}"),
        (f"run=2024-05-01-10-05-{UUID}", (10, 5, 0), f"2024-05-01-10-05-00-{UUID}+"),
        ("run=2024-05-01-10-05-7", (10, 5, 0), "2024-05-01-10-05-00-7+"),
        ("run=2024-05-01-10-05-123", (10, 5, 0), "2024-05-01-10-05-00-123+"),
        ("run=2024-05-01-10-05-09-b-2", (10, 5, 9), "2024-05-01-10-05-09-b-2"),
    ],
)
def test_names_of_runs(name: str, time_: tuple[int, int, int], sort: str) -> None:
    found = parse_run_name(name)
    assert found is not None
    assert (found.name, found.time, found.sort) == (name, datetime(2024, 5, 1, *time_, tzinfo=UTC), sort)


@pytest.mark.parametrize(
    "name",
    [
        "run=2024-13-01-10-00-00",
        "run=2024-02-30-10-00-00",
        "run=2024-05-01-24-00-00",
        "run=2024-05-01-10-00-60",
        "run=2024-05-01-10-00-75-abc",
        "run=0000-05-01-10-00-00",
        "run=2024-05-01-10-00",
        "run=2024-05-01-10-00-",
        "run=2024-05-01-10-00-00-",
        "run=2024-05-01-10-00-00-a_b",
        "run=2024-05-01-10-00-00-a#b",
        "run=2024-05-01-10-00-00\n",
        "run=٢٠٢٤-05-01-10-00-00",
        " run=2024-05-01-10-00-00",
        "2024-05-01-10-00-00",
        "run=",
        "",
    ],
)
def test_other_names_are_not_runs(name: str) -> None:
    assert parse_run_name(name) is None


suffixes = st.text("ab0Z9-", min_size=1, max_size=4) | st.just("")
times = st.datetimes(datetime(2023, 12, 31, 23, 59), datetime(2024, 1, 1, 0, 1)).map(lambda at: at.replace(microsecond=0))


@given(st.lists(st.tuples(times, suffixes), min_size=2, max_size=6, unique=True))
def test_runs_sort_by_time_then_suffix_bytewise(written: list[tuple[datetime, str]]) -> None:
    names = [f"run={at:%Y-%m-%d-%H-%M-%S}" + (f"-{suffix}" if suffix else "") for at, suffix in sorted(written)]
    ordered = [sort_of(name).encode() for name in names]
    assert ordered == sorted(ordered)
    assert len(set(ordered)) == len(written)
    assert all(b"#" not in sort for sort in ordered)


@given(st.sets(st.from_regex(r"\Arun=2024-01-01-00-00-[0a-]{1,6}\Z"), min_size=2))
def test_no_two_names_share_a_sort(written: set[str]) -> None:
    runs = [run for run in map(parse_run_name, written) if run is not None]
    assert len({run.sort for run in runs}) == len(runs)


def test_a_suffix_after_the_minutes_orders_among_those_after_the_seconds() -> None:
    tail = ["", "-ab", "-ab-c", "-abc"]
    sorts = [sort_of(f"run=2024-01-01-00-00-00{end}") for end in tail]
    between = sort_of("run=2024-01-01-00-00-ab")
    assert sorted([*sorts, between]) == [*sorts[:2], between, *sorts[2:]]


# --- sweeps ----------------------------------------------------------------------------------------------------------


def test_a_sweep_finds_runs_oldest_first_with_their_data_files(place: Place) -> None:
    place.put(f"run=2024-05-01-10-00-{UUID}/part-00000.tsv.gz", b"gzip")
    place.put("run=2024-04-30-23-00-00/part-00000.tsv", b"12345")
    place.put("run=2024-04-30-23-00-00/part-00001.gz", b"123")
    place.put("run=2024-04-30-23-00-00/nested/deep/part-00002", b"1")
    for hidden in ("_SUCCESS", "_temporary.txt", ".part-00000.tsv.crc", "_logs/part-9", "nested/.hidden/part-9"):
        place.put(f"run=2024-04-30-23-00-00/{hidden}", b"no data")

    first, second = list_runs(place.root).directories

    assert (first.name, first.sort, first.time) == (
        "run=2024-04-30-23-00-00",
        "2024-04-30-23-00-00",
        datetime(2024, 4, 30, 23, tzinfo=UTC),
    )
    assert [(file.uri.removeprefix(f"{first.uri}/"), file.size) for file in first.files] == [
        ("nested/deep/part-00002", 1),
        ("part-00000.tsv", 5),
        ("part-00001.gz", 3),
    ]
    assert (first.bytes, first.marker) == (9, True)
    assert second.name == f"run=2024-05-01-10-00-{UUID}"
    assert (second.bytes, second.marker, len(second.files)) == (4, False, 1)


def test_uris_are_canonical_and_can_be_read(place: Place) -> None:
    if place.is_local:
        (storage.local_path(place.root) / RUN).mkdir()
        (storage.local_path(place.root) / RUN / "part ü%41+#?.tsv").write_bytes(b"content")
    else:
        place.put(f"{RUN}/part ü%41+#?.tsv", b"content")
    (run,) = list_runs(place.root + "/").directories
    if place.is_local:
        local = storage.local_path(place.root) / RUN
        assert run.uri == storage.as_uri(local)
        assert [file.uri for file in run.files] == [storage.as_uri(path) for path in local.iterdir()]
    else:
        assert run.uri == storage.as_uri(f"{place.root}/{RUN}/")
    assert storage.read_bytes(run.files[0].uri) == b"content"


def test_the_root_may_be_a_plain_path(tmp_path: Path) -> None:
    (tmp_path / RUN).mkdir()
    ways = [list_runs(root).directories for root in (tmp_path, str(tmp_path), tmp_path.as_uri())]
    assert ways[0] == ways[1] == ways[2]
    assert names(ways[0]) == [RUN]


def test_the_root_may_be_a_whole_bucket(s3_bucket: str) -> None:
    storage.write_bytes(f"{s3_bucket}/{RUN}/part", b"12")
    (run,) = list_runs(s3_bucket).directories
    assert (run.uri, run.bytes) == (f"{s3_bucket}/{RUN}", 2)


def test_names_that_are_not_runs_are_reported_and_left_alone(place: Place) -> None:
    place.put(f"{RUN}/part", b"1")
    place.put("run=2024-13-01-00-00-00/part", b"1")
    place.put("archive/2023/part", b"1")
    place.put("README.txt", b"1")
    place.put("run=2024-05-01-11-00-00", b"a file with a run's name")
    place.put("_SUCCESS", b"")
    place.put("_checkpoint/part", b"1")
    place.put(".DS_Store", b"1")
    place.put("run=2024-05-01-12-00-00_$folder$", b"")

    listing = list_runs(place.root)

    assert names(listing.directories) == [RUN]
    assert listing.unparseable == ["README.txt", "archive", "run=2024-05-01-11-00-00", "run=2024-13-01-00-00-00"]


def test_a_folder_whose_name_begins_like_the_root_is_not_listed(place: Place) -> None:
    place.put(f"{RUN}/part")
    storage.write_bytes(f"{place.root}-old/run=2024-05-02-00-00-00/part", b"1")
    listing = list_runs(place.root)
    assert (names(listing.directories), listing.unparseable) == ([RUN], [])


@pytest.mark.parametrize("folder_keys", [[RUN], [f"{RUN}/sub"], ["", RUN]])
def test_folders_that_are_only_keys_do_not_exist_in_s3(s3_place: Place, folder_keys: list[str]) -> None:
    for folder in folder_keys:
        s3_place.put_folder_key(folder.rstrip("/"))
    s3_place.put(f"{RUN}/sub_$folder$", b"")
    assert list_runs(s3_place.root).directories == []
    s3_place.put(f"{RUN}/part", b"1")
    (run,) = list_runs(s3_place.root).directories
    assert [file.uri for file in run.files] == [f"{s3_place.root}/{RUN}/part"]


def test_a_run_without_data_is_still_a_run_once_it_has_its_marker(place: Place) -> None:
    place.put(f"{RUN}/_SUCCESS", b"")
    (run,) = list_runs(place.root).directories
    assert (run.files, run.bytes, run.marker) == ((), 0, True)
    assert complete_directories([run], Marker(), {}, NOON) == ([run], {})


def test_an_empty_file_is_a_data_file(place: Place) -> None:
    place.put(f"{RUN}/part-00000.tsv", b"")
    (run,) = list_runs(place.root).directories
    assert [file.size for file in run.files] == [0]


def test_an_empty_root_has_no_runs(place: Place) -> None:
    listing = list_runs(place.root)
    assert (listing.directories, listing.unparseable) == ([], [])
    assert listing.requests == (0 if place.is_local else 1)


# --- the beginning of a sweep ----------------------------------------------------------------------------------------


@pytest.fixture
def three_hours(place: Place) -> Place:
    for run in (
        "run=2024-05-01-09-59-59",
        f"run=2024-05-01-10-00-00-{UUID}",
        "run=2024-05-01-10-00-00",
        "run=2024-05-01-10-00-0-starts-low",
        "run=2024-05-01-10-00-30",
        "run=2024-05-01-10-01-zz",
    ):
        place.put(f"{run}/part")
    place.put("archive/part")
    place.put("zebra/part")
    return place


@pytest.mark.parametrize(
    ("after", "first", "count"),
    [
        (datetime(2024, 5, 1, 9, 59, 59, tzinfo=UTC), "run=2024-05-01-09-59-59", 6),
        (datetime(2024, 5, 1, 9, 59, 59, 1, tzinfo=UTC), "run=2024-05-01-10-00-00", 5),
        (datetime(2024, 5, 1, 10, tzinfo=UTC), "run=2024-05-01-10-00-00", 5),
        (datetime(2024, 5, 1, 12, tzinfo=timezone(timedelta(hours=2))), "run=2024-05-01-10-00-00", 5),
        (datetime(2024, 5, 1, 10, 0, 1, tzinfo=UTC), "run=2024-05-01-10-00-30", 2),
        (datetime(2024, 5, 1, 10, 0, 30, tzinfo=UTC), "run=2024-05-01-10-00-30", 2),
        (datetime(2024, 5, 1, 10, 0, 31, tzinfo=UTC), "run=2024-05-01-10-01-zz", 1),
        (datetime(2024, 5, 1, 10, 1, tzinfo=UTC), "run=2024-05-01-10-01-zz", 1),
        (datetime(1, 1, 1, tzinfo=UTC), "run=2024-05-01-09-59-59", 6),
    ],
)
def test_a_sweep_begins_at_the_time_itself(three_hours: Place, after: datetime, first: str, count: int) -> None:
    listing = list_runs(three_hours.root, after)
    assert (names(listing.directories)[0], len(listing.directories)) == (first, count)
    assert listing.unparseable == ["zebra"]


def test_a_sweep_after_the_last_run_finds_nothing(three_hours: Place) -> None:
    assert list_runs(three_hours.root, datetime(2024, 5, 1, 10, 2, tzinfo=UTC)).directories == []


def test_a_time_without_a_zone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="time zone"):
        list_runs(tmp_path, datetime(2024, 5, 1))


# --- rewritten -------------------------------------------------------------------------------------------------------


def test_the_checksum_stands_for_the_data_files(place: Place) -> None:
    def checksum() -> str:
        return list_runs(place.root).directories[0].checksum

    place.put(f"{RUN}/part-0", b"one")
    place.put(f"{RUN}/part-1", b"two")
    seen = [checksum()]
    place.put(f"{RUN}/_SUCCESS", b"")
    assert checksum() == seen[0]
    for change in (
        lambda: place.put(f"{RUN}/part-1", b"owt"),
        lambda: place.put(f"{RUN}/part-1", b"three"),
        lambda: place.put(f"{RUN}/part-2", b""),
        lambda: place.remove(f"{RUN}/part-0"),
    ):
        change()
        assert checksum() not in seen
        seen.append(checksum())


def test_the_checksum_is_independent_of_the_place(s3_place: Place) -> None:
    s3_place.put(f"{RUN}/part", b"1")
    s3_place.put(f"copy/{RUN}/part", b"1")
    copy = list_runs(f"{s3_place.root}/copy").directories[0]
    assert list_runs(s3_place.root).directories[0].checksum == copy.checksum


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": (12, 0), "b": (3, 0)}, {"a1": (2, 0), "b": (3, 0)}),
        ({"a": (1, 23), "b": (1, 0)}, {"a": (12, 3), "b": (1, 0)}),
        ({"0": (1, 1), "2b": (1, 0)}, {"0": (1, 12), "b": (1, 0)}),
    ],
)
def test_names_sizes_and_fingerprints_do_not_run_into_each_other(
    tmp_path: Path, one: dict[str, tuple[int, int]], other: dict[str, tuple[int, int]]
) -> None:
    for run, files in ((RUN, one), ("run=2024-05-01-11-00-00", other)):
        (tmp_path / run).mkdir()
        for name, (size, modified) in files.items():
            (tmp_path / run / name).write_bytes(b"x" * size)
            os.utime(tmp_path / run / name, ns=(0, modified))
    first, second = list_runs(tmp_path).directories
    assert first.checksum != second.checksum


# --- complete --------------------------------------------------------------------------------------------------------


def test_a_marker_of_another_name(place: Place) -> None:
    seal = Marker("shredding_complete.json")
    place.put(f"{RUN}/part", b"12")
    place.put(f"{RUN}/_SUCCESS", b"")
    place.put(f"{RUN}/nested/shredding_complete.json", b"123")
    (run,) = list_runs(place.root, completeness=seal).directories
    assert complete_directories([run], seal, {}, NOON) == ([], {})
    assert run.bytes == 5

    place.put(f"{RUN}/shredding_complete.json", b"{}")
    (run,) = list_runs(place.root, completeness=seal).directories
    assert complete_directories([run], seal, {}, NOON) == ([run], {})
    assert run.bytes == 5


def test_settling_takes_an_unchanged_checksum_for_long_enough(place: Place) -> None:
    settle = Settle(60)

    def look(looks: dict[str, Look], now: datetime) -> tuple[list[str], dict[str, Look]]:
        complete, looks = complete_directories(list_runs(place.root, completeness=settle).directories, settle, looks, now)
        return names(complete), looks

    place.put(f"{RUN}/part-0", b"1")
    complete, looks = look({}, NOON)
    assert complete == []
    complete, looks = look(looks, NOON + timedelta(seconds=59.9))
    assert complete == []
    assert looks[RUN].first_seen == NOON
    complete, looks = look(looks, NOON + timedelta(seconds=60))
    assert complete == [RUN]

    place.put(f"{RUN}/part-1", b"1")
    complete, looks = look(looks, NOON + timedelta(seconds=120))
    assert complete == []
    assert looks[RUN].first_seen == NOON + timedelta(seconds=120)
    complete, _ = look(looks, NOON + timedelta(seconds=180))
    assert complete == [RUN]


def test_nothing_settles_at_first_sight(tmp_path: Path) -> None:
    (tmp_path / RUN).mkdir()
    runs = list_runs(tmp_path).directories
    assert complete_directories(runs, Settle(0), {}, NOON)[0] == []


def test_an_empty_local_directory_settles(tmp_path: Path) -> None:
    (tmp_path / RUN).mkdir()
    runs = list_runs(tmp_path).directories
    _, looks = complete_directories(runs, Settle(60), {}, NOON)
    assert complete_directories(runs, Settle(60), looks, NOON + timedelta(minutes=1))[0] == runs


def test_an_uncommitted_job_does_not_settle(place: Place) -> None:
    place.put(f"{RUN}/_temporary/0/task/part-0", b"1")
    runs = list_runs(place.root).directories
    _, looks = complete_directories(runs, Settle(60), {}, NOON)
    assert complete_directories(runs, Settle(60), looks, NOON + timedelta(hours=1))[0] == []
    place.remove(f"{RUN}/_temporary/0/task/part-0")
    if place.is_local:
        os.removedirs(storage.local_path(f"{place.root}/{RUN}/_temporary/0/task"))
    place.put(f"{RUN}/part-0", b"1")
    runs = list_runs(place.root).directories
    _, looks = complete_directories(runs, Settle(60), {}, NOON)
    assert complete_directories(runs, Settle(60), looks, NOON + timedelta(hours=1))[0] == runs


def test_looks_of_runs_that_are_gone_are_dropped() -> None:
    assert complete_directories([], Settle(60), {RUN: Look("x", NOON)}, NOON) == ([], {})


def test_a_clock_that_went_back_settles_nothing(tmp_path: Path) -> None:
    (tmp_path / RUN).mkdir()
    runs = list_runs(tmp_path).directories
    _, looks = complete_directories(runs, Settle(60), {}, NOON)
    assert complete_directories(runs, Settle(60), looks, NOON - timedelta(hours=1))[0] == []


# --- nothing is missed -----------------------------------------------------------------------------------------------


def test_one_late_old_run_among_many_is_found_whatever_its_modification_time(tmp_path: Path) -> None:
    start = datetime(2020, 1, 1)
    for hour in range(20_000):
        directory = f"{tmp_path}/run={start + timedelta(hours=hour):%Y-%m-%d-%H-%M-%S}"
        os.mkdir(directory)
        os.close(os.open(f"{directory}/_SUCCESS", os.O_CREAT | os.O_WRONLY))
    known = set(names(list_runs(tmp_path).directories))
    late = tmp_path / "run=2020-06-01-00-30-00"
    late.mkdir()
    (late / "_SUCCESS").touch()
    os.utime(late / "_SUCCESS", (0, 0))
    os.utime(late, (0, 0))

    began = time.process_time()
    runs = list_runs(tmp_path).directories
    took = time.process_time() - began

    assert [run.name for run in runs if run.name not in known] == [late.name]
    assert len(runs) == 20_001
    assert took < 5  # of its own processor time: 0.6 s, whatever else the machine does


def test_a_sweep_of_s3_costs_a_request_for_a_thousand_keys(s3_place: Place) -> None:
    hours = [datetime(2024, 1, 1) + timedelta(hours=hour) for hour in range(1_100)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(s3_place.put, [f"run={at:%Y-%m-%d-%H-%M-%S}/_SUCCESS" for at in hours]))
    listing = list_runs(s3_place.root)
    assert (len(listing.directories), listing.requests) == (1_100, 2)
    assert all(run.marker for run in listing.directories)
    recent = list_runs(s3_place.root, listing.directories[-200].time)
    assert (names(recent.directories), recent.requests) == (names(listing.directories[-200:]), 1)


def test_a_run_that_is_finished_between_two_pages_is_listed_again(
    s3_place: Place, monkeypatch: pytest.MonkeyPatch, writes_between_pages: Callable[[Any, Callable[[], None]], None]
) -> None:
    monkeypatch.setattr(sweep, "_PAGE", 2)
    monkeypatch.setattr(sweep, "s3_client", lambda root_uri: s3_place.client)
    for name in ("1.tsv", "2.tsv", "3.tsv"):
        s3_place.put(f"{RUN}/{name}")

    def finish() -> None:
        s3_place.put(f"{RUN}/0.tsv")
        s3_place.put(f"{RUN}/_SUCCESS", b"")

    writes_between_pages(s3_place.client, finish)
    listing = list_runs(s3_place.root)

    (run,) = listing.directories
    assert run.marker
    assert [file.uri[-5:] for file in run.files] == ["0.tsv", "1.tsv", "2.tsv", "3.tsv"]
    assert listing.requests == 2 + 3


def test_a_local_run_that_is_finished_while_it_is_listed_waits_for_the_next_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / RUN).mkdir()
    real = landed_files.walk

    def walk(*where: Any) -> Any:
        found = list(real(*where))
        (tmp_path / RUN / "_SUCCESS").touch()
        return found

    monkeypatch.setattr(landed_files, "walk", walk)
    assert [run.marker for run in list_runs(tmp_path).directories] == [False]
    assert [run.marker for run in list_runs(tmp_path).directories] == [True]


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_missing_local_root(tmp_path: Path) -> None:
    with pytest.raises(LandingMisconfigured, match=r"nowhere does not exist; create"):
        list_runs(tmp_path / "nowhere")


def test_a_root_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LandingMisconfigured, match="must be a directory"):
        list_runs(tmp_path / "file")


def test_a_local_root_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)  # tests may run as root, whom no mode stops
    with pytest.raises(LandingMisconfigured, match="Permission denied"):
        list_runs(tmp_path)


def test_a_local_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> None:
        raise OSError(116, "Stale file handle", path)

    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(LandingUnavailable, match="Stale file handle"):
        list_runs(tmp_path)


def test_a_run_that_is_removed_while_it_is_listed_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / RUN).mkdir()
    (tmp_path / "run=2024-05-01-11-00-00").mkdir()
    real = landed_files.walk

    def walk(folder: str, *how: Any) -> Any:
        if folder.endswith(RUN):
            os.rmdir(folder)
        return real(folder, *how)

    monkeypatch.setattr(landed_files, "walk", walk)
    assert names(list_runs(tmp_path).directories) == ["run=2024-05-01-11-00-00"]


def test_a_link_that_leads_nowhere_is_told_and_stops_nothing_else(tmp_path: Path) -> None:
    """A single such link stopped all discovery of the feed."""
    (tmp_path / OTHER).mkdir()
    circle, away = tmp_path / "run=2024-05-01-12-00-00", tmp_path / "run=2024-05-01-13-00-00"
    circle.symlink_to(circle)
    away.symlink_to(tmp_path / "a disk that is not there")
    found = list_runs(tmp_path)
    assert names(found.directories) == [OTHER]
    assert found.unparseable == [], "it was told that a run's name is none"
    told = {one.name: one for one in found.unreadable}
    assert told.keys() == {circle.name, away.name}
    assert all("is a symbolic link, which is never followed" in one.reason for one in told.values())
    with pytest.raises(LandingError, match=f"{circle.name} is a symbolic link"):
        read_run(storage.as_uri(circle))


def test_a_folder_that_may_not_be_read_stops_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = landed_files._open

    def refuse(name: str, flags: int, parent: int, path: str) -> int:
        if name == "closed":
            raise PermissionError(13, "Permission denied", path)  # tests may run as root, whom no mode stops
        return real(name, flags, parent, path)

    for name in (f"{RUN}/closed", OTHER):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(landed_files, "_open", refuse)
    found = list_runs(tmp_path)
    assert names(found.directories) == [OTHER]
    assert [(one.name, one.reason) for one in found.unreadable] == [(RUN, f"{tmp_path}/{RUN}/closed: Permission denied")]


# --- the storage's clock ---------------------------------------------------------------------------------------------


def test_the_time_of_a_look_is_the_storages(place: Place) -> None:
    place.put(f"{RUN}/part-0", b"1")
    found = list_runs(place.root)
    assert found.now is not None
    [run] = found.directories
    assert run.changed is not None
    assert abs((found.now - run.changed).total_seconds()) < 60
    assert abs((found.now - datetime.now(UTC)).total_seconds()) < 60  # the servers of the tests have this machine's clock


def test_asking_a_disk_for_its_time_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / RUN).mkdir()
    for _ in range(2):
        found = list_runs(tmp_path)
        assert (names(found.directories), found.unparseable) == ([RUN], [])
    assert sorted(os.listdir(tmp_path)) == [RUN]


def test_a_read_only_disk_is_assumed_to_have_this_machines_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_options: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    assert abs((sweep.local_time(str(tmp_path)) - datetime.now(UTC)).total_seconds()) < 60


def test_a_file_rewritten_with_the_same_content_settles_again() -> None:
    def seen(changed: datetime | None) -> LandedDirectory:
        return LandedDirectory(RUN, f"s3://landing/{RUN}", sort_of(RUN), NOON, (), False, False, "same", changed)

    settle, minute = Settle(60), timedelta(minutes=1)
    _, looks = complete_directories([seen(NOON - minute)], settle, {}, NOON)
    again = NOON + minute / 2
    complete, looks = complete_directories([seen(again)], settle, looks, NOON + minute)
    assert (complete, looks[RUN].first_seen) == ([], again)
    assert complete_directories([seen(again)], settle, looks, again + minute)[0] == [seen(again)]
    # A copy may bring a time along that is still to come: it says nothing.
    to_come = seen(NOON + timedelta(days=9))
    assert complete_directories([to_come], settle, {RUN: Look("same", NOON)}, NOON + minute)[0] == [to_come]


@pytest.mark.parametrize(("root", "shown_after"), [("file:///landing", 60), ("s3://landing", 24 * 3600)])
def test_what_shows_that_it_has_settled_is_complete_at_the_first_look(root: str, shown_after: int) -> None:
    """A new user's directories lay on a disk for an hour, and were told to wait five minutes more."""

    def seen(age: float, in_progress: bool = False) -> LandedDirectory:
        changed = NOON - timedelta(seconds=age)
        return LandedDirectory(RUN, f"{root}/{RUN}", sort_of(RUN), NOON, (), False, in_progress, "same", changed)

    old, young, unfinished = seen(shown_after), seen(shown_after - 1), seen(shown_after, in_progress=True)
    assert [complete_directories([one], Settle(60), {}, NOON)[0] for one in (old, young, unfinished)] == [[old], [], []]


def test_a_look_of_a_clock_that_was_ahead_begins_anew() -> None:
    """The release before noted the time of its own machine, and who came after it waited for as long as that was ahead."""
    run = LandedDirectory(RUN, f"file:///{RUN}", sort_of(RUN), NOON, (), False, False, "same")
    _, looks = complete_directories([run], Settle(60), {RUN: Look("same", NOON + timedelta(days=1))}, NOON)
    assert looks == {RUN: Look("same", NOON)}
    assert complete_directories([run], Settle(60), looks, NOON + timedelta(minutes=1))[0] == [run]


# --- names, a part at a time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_the_names_of_a_root_come_in_parts_none_twice_and_none_left_out(three_hours: Place, most: int) -> None:
    three_hours.put("archive-2/part")
    if not three_hours.is_local:
        three_hours.put("README.txt")
    listed: list[str] = []
    others: list[str] = []
    beyond: str | None = ""
    parts = 0
    while beyond is not None:
        found = sweep.list_names(three_hours.root, Layout(parse_run_name), "", beyond=beyond, most=most)
        listed += [one.name for one in found.names]
        others += found.unparseable
        beyond, parts = found.upto, parts + 1
        assert found.requests <= 1
    assert sorted(listed) == sorted(names(list_runs(three_hours.root).directories))
    assert sorted(others) == ["archive", "archive-2", "zebra"]
    assert parts >= len(listed) / most


def test_a_missing_bucket(s3_bucket: str) -> None:
    with pytest.raises(LandingMisconfigured, match=r"s3://no-such-bucket/x cannot be listed: .*check that the bucket"):
        list_runs("s3://no-such-bucket/x")


def test_wrong_credentials(s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(LandingMisconfigured, match=s3_bucket):
        list_runs(s3_bucket)


def test_no_credentials(s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(LandingMisconfigured, match="credentials"):
        list_runs(s3_bucket)


def test_a_server_that_does_not_answer(s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    impatient = boto3.client("s3", config=Config(retries={"total_max_attempts": 1}))
    monkeypatch.setattr(sweep, "s3_client", lambda root_uri: impatient)
    with pytest.raises(LandingUnavailable, match="try again"):
        list_runs(s3_bucket)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (503, "SlowDown", LandingUnavailable),
        (500, "InternalError", LandingUnavailable),
        (429, "TooManyRequests", LandingUnavailable),
        (400, "RequestTimeout", LandingUnavailable),
        (403, "AccessDenied", LandingMisconfigured),
        (404, "NoSuchBucket", LandingMisconfigured),
        (400, "ExpiredToken", LandingMisconfigured),
    ],
)
def test_answers_of_s3_are_transient_or_permanent(
    s3_bucket: str, monkeypatch: pytest.MonkeyPatch, status: int, code: str, expected: type[Exception]
) -> None:
    class Refusing:
        def list_objects_v2(self, **arguments: Any) -> None:
            answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
            raise ClientError(answer, "ListObjectsV2")

    monkeypatch.setattr(sweep, "s3_client", lambda root_uri: Refusing())
    with pytest.raises(expected, match=code):
        list_runs(s3_bucket)


# --- one run ---------------------------------------------------------------------------------------------------------


def test_a_run_is_read_by_its_uri_as_the_sweep_sees_it(place: Place) -> None:
    place.put(f"{RUN}/part-0", b"abc")
    place.put(f"{RUN}/_SUCCESS", b"")
    assert [read_run(f"{place.root}/{RUN}")] == list_runs(place.root).directories


def test_a_run_that_is_gone_is_no_empty_run(place: Place) -> None:
    place.put(f"{RUN}-longer/part-0")
    with pytest.raises(LandingDamaged, match=f"{RUN} is gone"):
        read_run(f"{place.root}/{RUN}")
    place.put(f"{RUN}/_SUCCESS", b"")
    assert read_run(f"{place.root}/{RUN}").files == ()


def test_a_folder_key_alone_is_an_empty_run(s3_place: Place) -> None:
    s3_place.put_folder_key(RUN)
    assert read_run(f"{s3_place.root}/{RUN}").files == ()
