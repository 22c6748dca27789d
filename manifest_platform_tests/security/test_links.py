"""Whoever lands files may be a stranger: a symbolic link of theirs is never followed, and stops nobody else's directories."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import landed_files, storage
from manifest_platform.landed_files import NotFollowed
from manifest_platform.manifest import Claim
from manifest_platform.pipeline.discovery import discover
from manifest_platform.shred import batch
from manifest_platform.shred.batch import open_landed
from manifest_platform.shred.lines import Piece, chunks, newlines_before
from manifest_platform.sources import directories
from manifest_platform.sources.directories import Found, Layout, list_names
from manifest_platform.sources.errors import LandingDamaged, LandingLinked
from manifest_platform.sources.snowplow.source import list_runs, parse_run_name, read_run
from manifest_platform.sources.veeva.layout import (
    SIDECAR,
    attempt_folders,
    check_way,
    list_attempts,
    list_window_names,
    list_windows,
    read_files,
    read_window,
    root_of,
)
from manifest_platform_tests.pipeline.shop import Shop, run_name

SECRET = b"a secret that lies outside the landing root\n"
RUN, OTHER = "run=2026-01-01-00-00-00", "run=2026-01-01-00-10-00"
VAULT = "vault=7"
WINDOW = "incr/stoptime=202601010015"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A landing root with a good run; what must not be read lies beside it."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "part-00000").write_bytes(SECRET)
    landing = tmp_path / "landing"
    run(landing / OTHER)
    return landing


def run(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "part-00001").write_bytes(b"a\tb\n")
    (folder / "_SUCCESS").touch()
    return folder


def names(found: Found) -> list[str]:
    return [one.name for one in found.directories]


def pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def file_link(path: Path, root: Path) -> None:
    path.symlink_to(root.parent / "secret" / "part-00000")


def folder_link(path: Path, root: Path) -> None:
    path.symlink_to(root.parent / "secret")


def dangling(path: Path, _: Path) -> None:
    path.symlink_to("nowhere")


def circle(path: Path, _: Path) -> None:
    path.symlink_to(".")


# --- Links within a run ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [file_link, folder_link, dangling, circle, pipe])
def test_what_is_no_file_in_a_run_is_listed_as_what_it_is_and_refused_before_shredding(
    root: Path, make: Callable[[Path, Path], None]
) -> None:
    make(run(root / RUN) / "part-00000", root)
    found = list_runs(root)
    assert (names(found), found.unreadable) == ([RUN, OTHER], ())
    linked = found.directories[0]
    assert [file.uri.rpartition("/")[2] for file in linked.files] == ["part-00000", "part-00001"]
    assert [one.partition(",")[0] for one in linked.links] == ["part-00000"]
    with pytest.raises(LandingLinked, match=r"part-00000, a symbolic link, which is never followed|part-00000, a pipe"):
        read_run(linked.uri).check()
    found.directories[1].check()


def test_a_run_whose_link_was_replaced_by_the_file_is_another_content(root: Path) -> None:
    folder = run(root / RUN)
    file_link(folder / "part-00000", root)
    before = read_run(storage.as_uri(folder)).checksum
    (folder / "part-00000").unlink()
    shutil.copy(root.parent / "secret" / "part-00000", folder / "part-00000")
    run_now = read_run(storage.as_uri(folder))
    assert run_now.checksum != before
    run_now.check()


def test_a_link_in_place_of_the_marker_is_no_less_one(root: Path) -> None:
    folder = run(root / RUN)
    (folder / "_SUCCESS").unlink()
    dangling(folder / "_SUCCESS", root)
    assert list_runs(root).directories[0].links


def test_hidden_files_may_be_links_for_they_are_no_data(root: Path) -> None:
    circle(run(root / RUN) / ".again", root)
    assert not list_runs(root).directories[0].links


def test_seventy_links_two_a_level_do_not_hang_the_discovery(root: Path) -> None:
    """Each level led to the next by two ways: 2 to the 35th paths."""
    folder = run(root / RUN)
    for _ in range(35):
        (folder / "in").mkdir()
        for way in "ab":
            (folder / way).symlink_to("in")
        folder = folder / "in"
    run(root / "run=2026-01-01-00-20-00" / "well")
    found = list_runs(root)
    assert [(one.name, "deeper" in one.reason) for one in found.unreadable] == [(RUN, True)]
    assert names(found) == [OTHER, "run=2026-01-01-00-20-00"]


def test_links_of_thirty_levels_are_listed_once_each(root: Path) -> None:
    folder = run(root / RUN)
    for _ in range(30):
        (folder / "in").mkdir()
        for way in "ab":
            (folder / way).symlink_to("in")
        folder = folder / "in"
    assert len(list_runs(root).directories[0].links) == 60


def test_a_run_with_a_link_fails_alone_and_says_which(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.write(0, 1)
    (shop.directory(0) / "part-09999").symlink_to("/etc/hostname")
    with shop.open() as pipeline:
        report = discover(pipeline)
        assert report.new == (run_name(0), run_name(1))
        assert [one.partition(",")[0] for one in report.linked] == [f"{run_name(0)}: part-09999"]
        items = [pipeline.manifest.item(one.key) for one in report.landed]

        def directory(number: int) -> batch.Directory:
            item = next(one for one in items if one.key.name == run_name(number))
            return pipeline.source.directory(Claim(item, item.records[0], None, None, ""), "out")  # ty: ignore

        with pytest.raises(LandingLinked, match=r"run=2024-05-14-12-00-00 holds part-09999, a symbolic link"):
            directory(0)
        assert directory(1).root == storage.as_uri(tmp_path / "landing")
        assert discover(pipeline).linked == ()


# --- Links at the level of runs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [folder_link, file_link, dangling, circle])
def test_a_run_that_is_a_link_is_reported_and_not_listed(root: Path, make: Callable[[Path, Path], None]) -> None:
    make(root / RUN, root)
    found = list_runs(root)
    assert names(found) == [OTHER]
    assert [(one.name, "symbolic link" in one.reason) for one in found.unreadable] == [(RUN, True)]
    with pytest.raises(LandingLinked, match="symbolic link"):
        read_run(storage.as_uri(root / RUN))


def test_a_link_in_the_root_that_no_run_is_called_by_is_reported_by_its_name(root: Path) -> None:
    circle(root / "a", root)
    dangling(root / "b", root)
    found = list_runs(root)
    assert (names(found), found.unparseable) == ([OTHER], ["a", "b"])


def test_the_root_itself_may_be_a_link_which_is_its_owners_matter(root: Path, tmp_path: Path) -> None:
    (tmp_path / "mounted").symlink_to(root)
    assert names(list_runs(tmp_path / "mounted")) == [OTHER]


# --- Links in a vault's folder ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("linked", [VAULT, f"{VAULT}/incr"])
def test_a_linked_folder_of_a_vault_or_feed_is_reported_and_stops_no_other_feed(tmp_path: Path, linked: str) -> None:
    run(tmp_path / "outside" / WINDOW.partition("/")[2])
    run(tmp_path / "outside" / WINDOW)
    landing = tmp_path / "landing"
    (landing / linked).parent.mkdir(parents=True)
    (landing / linked).symlink_to(tmp_path / "outside")
    if linked != VAULT:
        run(landing / VAULT / "log" / "date=2026-01-01")
    found = list_windows(landing, "7")
    assert names(found) == ([] if linked == VAULT else ["log/date=2026-01-01"])
    assert [one.name for one in found.unreadable if "symbolic link" in one.reason] == ["incr"]
    listed = list_window_names(landing, "7", "incr")
    assert (listed.names, [one.name for one in listed.unreadable]) == ([], ["incr"])
    with pytest.raises(LandingLinked):
        read_window(storage.as_uri(landing / VAULT / WINDOW))


def test_a_window_of_links_alone_is_not_an_empty_window(tmp_path: Path) -> None:
    folder = tmp_path / VAULT / WINDOW
    folder.mkdir(parents=True)
    (folder / "_SUCCESS").touch()
    dangling(folder / "manifest.csv", tmp_path)
    [window] = list_windows(tmp_path, "7").directories
    assert len(window.files) == len(window.links) == 1


def test_neither_a_sidecar_nor_an_attempt_is_read_through_a_link(root: Path, tmp_path: Path) -> None:
    folder = run(root / VAULT / WINDOW)
    item = storage.as_uri(folder)
    assert root_of(item) == root_of(f"{item}/attempt=1") == storage.as_uri(root)
    outside = run(tmp_path / "outside")
    (outside / SIDECAR).write_text("{}")
    (folder / "attempt=1").symlink_to(outside)
    circle(folder / "attempt=2", root)
    assert attempt_folders(item) == []
    assert {uri.rpartition("/")[2] for uri, _ in list_attempts(item)} == {"attempt=1", "attempt=2"}
    with pytest.raises(LandingLinked):
        read_files(f"{item}/attempt=1")
    (folder / SIDECAR).symlink_to(outside / SIDECAR)
    with pytest.raises(LandingLinked):
        read_files(item)


def test_nothing_is_written_through_a_link(root: Path, tmp_path: Path) -> None:
    """A link that was created in place of a window's folder once made the capture write to the link's target."""
    item = root / VAULT / WINDOW
    check_way(storage.as_uri(item / "attempt=1"))  # nothing of it is there yet
    item.parent.mkdir(parents=True)
    check_way(storage.as_uri(item / "attempt=1"))
    folder_link(item, root)
    with pytest.raises(LandingLinked, match="stoptime=202601010015 is a symbolic link"):
        check_way(storage.as_uri(item / "attempt=1"))


# --- Opening ---------------------------------------------------------------------------------------------------------


def test_a_file_that_becomes_a_link_after_it_was_listed_is_not_read(root: Path) -> None:
    folder = run(root / RUN)
    piece = Piece(storage.as_uri(folder / "part-00001"), len(SECRET), 0, len(SECRET), storage.as_uri(root))
    (folder / "part-00001").unlink()
    file_link(folder / "part-00001", root)
    for read in (lambda: list(chunks(piece)), lambda: newlines_before(piece, 4), lambda: open_landed(piece.uri, len(SECRET))):
        with pytest.raises(NotFollowed, match=r"part-00001 is a symbolic link, which is never followed\. Land the file"):
            read()


@pytest.mark.parametrize("linked", [RUN, f"{RUN}/in"])
def test_a_folder_that_becomes_a_link_after_it_was_listed_is_not_entered(root: Path, linked: str) -> None:
    folder = run(root / RUN / "in") if linked != RUN else run(root / RUN)
    uri = storage.as_uri(folder / "part-00000")
    shutil.rmtree(root / linked)
    folder_link(root / linked, root)
    assert (folder / "part-00000").read_bytes() == SECRET
    with pytest.raises(NotFollowed, match=linked):
        landed_files.read_bytes(uri, storage.as_uri(root))


def test_a_pipe_in_place_of_a_file_does_not_wait_for_a_writer(root: Path) -> None:
    pipe(run(root / RUN) / "part-00000", root)
    ended = threading.Event()

    def read() -> None:
        with pytest.raises(NotFollowed, match="pipe"):
            landed_files.open_file(storage.as_uri(root / RUN / "part-00000"), storage.as_uri(root))
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    assert ended.wait(5)


def test_a_path_that_leads_out_of_the_root_is_not_opened(root: Path) -> None:
    for path in (f"{root}/../secret/part-00000", f"{root.parent}/secret/part-00000", f"{root}-other/part-00000"):
        with pytest.raises(ValueError, match=r"below|out of"):
            landed_files.read_bytes(f"file://{path}", storage.as_uri(root))


# --- Keys in S3 ------------------------------------------------------------------------------------------------------


class Bucket:
    """A client of S3 whose bucket has these keys; file systems behind a gateway would know no key like theirs."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def list_objects_v2(self, Prefix: str, Delimiter: str = "", **_: Any) -> dict[str, Any]:  # noqa: N803
        keys = [key for key in self.keys if key.startswith(Prefix)]
        folders = {f"{Prefix}{key[len(Prefix) :].partition('/')[0]}/" for key in keys}
        found = [{"Key": key, "Size": 1, "ETag": '"1"', "LastModified": datetime(2026, 1, 1, tzinfo=UTC)} for key in keys]
        listed = {"CommonPrefixes": [{"Prefix": one} for one in sorted(folders)]} if Delimiter else {"Contents": found}
        return {"ResponseMetadata": {}, **listed}


@pytest.mark.parametrize("path", ["/part-00000", "in//part-00000", "./part-00000", "in/../part-00000"])
def test_a_key_that_no_file_can_be_called_by_is_reported_and_blocks_nothing_else(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    keys = [f"in/{name}/{file}" for name in (RUN, OTHER) for file in ("part-00001", "_SUCCESS")]
    monkeypatch.setattr(directories, "s3_client", lambda _: Bucket(*keys, f"in/{RUN}/{path}"))
    found = list_runs("s3://bucket/in")
    assert names(found) == [OTHER]
    assert [(one.name, f"{RUN}/{path}" in one.reason) for one in found.unreadable] == [(RUN, True)]
    assert not read_run(f"s3://bucket/in/{OTHER}").links
    with pytest.raises(LandingDamaged, match="a part that is empty"):
        read_run(f"s3://bucket/in/{RUN}")


def test_an_empty_name_at_the_level_of_runs_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = f"in//{RUN}/part-00000", f"in/../{RUN}/part-00000", f"in/{OTHER}/_SUCCESS"
    monkeypatch.setattr(directories, "s3_client", lambda _: Bucket(*keys))
    found = list_runs("s3://bucket/in")
    assert (names(found), found.unparseable) == ([OTHER], ["..", "/"])
    assert list_names("s3://bucket/in", Layout(parse_run_name), "").unparseable == ["/"]
